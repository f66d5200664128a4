// SPDX-License-Identifier: Apache-2.0

//! `tidegate tap`: what enters or leaves a component of a running gateway, item by item.

use std::num::NonZeroU64;
use std::time::Duration;

use serde_json::Value;

use super::client::{self, Client, EventStream, GatewayArgs, StreamEvent, printable, printable_json};
use super::{Failure, output};
use crate::batch::{Signal, convert, json, wire};
use crate::exporters::debug::layout;
use crate::print_line;

/// Arguments of `tidegate tap`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A tap copies batches beside the pipelines, and skips those that it has no room for.\n\nExamples:\n  \
tidegate tap batch\n  tidegate tap exporters::otlp --where 'name=~\"http.*\"' --format json --limit 10"
)]
pub struct TapArgs {
    /// Component as `tidegate graph` names it, for example `batch`, or `receivers::otlp` if the id has two components
    component: String,
    /// Only items with these labels, as a selector of PromQL, for example 'name=~"http.*"'
    #[arg(long = "where", value_name = "SELECTOR")]
    conditions: Vec<String>,
    /// Show what enters the component (the default for exporters)
    #[arg(long, conflicts_with = "output")]
    input: bool,
    /// Show what leaves the component (the default for others)
    #[arg(long)]
    output: bool,
    /// Only data of this pipeline
    #[arg(long)]
    pipeline: Option<String>,
    /// Stop after this number of items
    #[arg(long)]
    limit: Option<NonZeroU64>,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = TapFormat::Text)]
    format: TapFormat,
    #[command(flatten)]
    gateway: GatewayArgs,
}

/// The format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TapFormat {
    /// A line for each item, as the `debug` exporter prints it
    Text,
    /// OTLP/JSON of each item with its resource and scope, one item a line
    Json,
}

/// The path of the stream.
const PATH: &str = "/api/v1/tap";

/// The wait before the first attempt to connect again, and the longest wait.
const WAITS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(5)];

/// Prints items until the limit, and connects again when the gateway restarts.
///
/// # Errors
/// The gateway can't be reached at first, or refuses the tap.
pub fn run(args: &TapArgs) -> Result<(), Failure> {
    client::run(&args.gateway, |client| output::while_read(follow(client, args)))
}

/// The end of a stream.
enum TapEnd {
    /// All items are printed, or can't be printed any more.
    Complete,
    /// The connection or the gateway has ended.
    Lost(String),
}

async fn follow(client: Client, args: &TapArgs) -> Result<(), Failure> {
    let mut left = args.limit.map(NonZeroU64::get);
    let mut stream = open(&client, args, left).await?;
    loop {
        let why = match print_all(&mut stream, args.format, &mut left).await {
            TapEnd::Complete => return Ok(()),
            TapEnd::Lost(why) => why,
        };
        eprintln!("tidegate tap: {why}; connecting again");
        stream = open_again(&client, args, left).await;
    }
}

async fn open(client: &Client, args: &TapArgs, left: Option<u64>) -> Result<EventStream, Failure> {
    let left = left.map(|left| left.to_string());
    let direction = match (args.input, args.output) {
        (true, _) => Some("input"),
        (false, true) => Some("output"),
        (false, false) => None,
    };
    let mut form = vec![("component", &*args.component)];
    form.extend(args.conditions.iter().map(|text| ("where", &**text)));
    form.extend(direction.map(|direction| ("direction", direction)));
    form.extend(args.pipeline.as_deref().map(|pipeline| ("pipeline", pipeline)));
    form.extend(left.as_deref().map(|left| ("limit", left)));
    client.events(PATH, &form).await
}

/// Opens the stream again, as often as it takes.
async fn open_again(client: &Client, args: &TapArgs, left: Option<u64>) -> EventStream {
    let [mut wait, longest] = WAITS;
    let mut reported = String::new();
    loop {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(longest);
        match open(client, args, left).await {
            Ok(stream) => return stream,
            Err(failure) => {
                let why = failure.to_string();
                if why != reported {
                    eprintln!("tidegate tap: {why}");
                    reported = why;
                }
            }
        }
    }
}

/// Prints the items of one stream.
async fn print_all(stream: &mut EventStream, format: TapFormat, left: &mut Option<u64>) -> TapEnd {
    loop {
        let event = match stream.next_event().await {
            Ok(event) => event,
            Err(failure) => return TapEnd::Lost(failure.to_string()),
        };
        if let Some(end) = print_event(&event, format, left) {
            return end;
        }
    }
}

/// Prints an event. Returns the end of the stream, if this is its last event.
fn print_event(event: &StreamEvent, format: TapFormat, left: &mut Option<u64>) -> Option<TapEnd> {
    let data = event.data.as_str();
    let number = |name: &str| serde_json::from_str::<Value>(data).ok()?[name].as_u64();
    match event.name.as_str() {
        "item" => {
            print_item(data, format);
            *left = left.map(|left| left.saturating_sub(1));
            (*left == Some(0) || output::has_failed()).then_some(TapEnd::Complete)
        }
        "skipped" => {
            eprintln!(
                "tidegate tap: {} batches skipped",
                number("batches").unwrap_or_default()
            );
            None
        }
        "unreadable" => {
            let why = serde_json::from_str::<Value>(data).unwrap_or_default();
            eprintln!(
                "tidegate tap: {} batches can't be decoded: {}",
                number("batches").unwrap_or_default(),
                printable(why["error"].as_str().unwrap_or_default())
            );
            None
        }
        "end" => Some(TapEnd::Lost(format!(
            "the gateway ended the stream: {}",
            printable(data)
        ))),
        _ => None,
    }
}

fn print_item(line: &str, format: TapFormat) {
    let shown = match format {
        TapFormat::Json => printable_json(line),
        TapFormat::Text => printable(&text(line).unwrap_or_else(|| line.to_owned())),
    };
    print_line!("{shown}");
}

/// The item as the `debug` exporter prints it; `None`: the line is not OTLP/JSON.
fn text(line: &str) -> Option<String> {
    let signal = match line.get(..12)? {
        "{\"resourceMe" => Signal::Metrics,
        "{\"resourceSp" => Signal::Traces,
        "{\"resourceLo" => Signal::Logs,
        _ => return None,
    };
    let mut text = Vec::new();
    if signal == Signal::Metrics {
        let bytes = json::to_protobuf(signal, line.as_bytes()).ok()?;
        let points = convert::points(&wire::check(signal, bytes).ok()?).ok()?;
        layout::points(&points, &mut text).ok()?;
    } else {
        layout::items(line, &mut text).ok()?;
    }
    let text = String::from_utf8(text).ok()?;
    Some(text.trim_matches([' ', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_printed_as_the_debug_exporter_prints_them() {
        let point = r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"m","gauge":{"dataPoints":[
            {"asInt":"42","attributes":[{"key":"a","value":{"stringValue":"b"}}]}]}}]}]}]}"#;
        assert_eq!(text(point).as_deref(), Some("m{a=b} 42"));
        let span = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"one"}]}]}]}"#;
        assert_eq!(text(span).as_deref(), Some("{\"name\":\"one\"}"));
        let record = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityText":"INFO"}]}]}]}"#;
        assert_eq!(text(record).as_deref(), Some("{\"severityText\":\"INFO\"}"));
        assert_eq!(text("{}"), None);
    }

    #[test]
    fn events_count_towards_the_limit_and_end_the_stream() {
        let mut left = Some(2);
        let mut print = |name: &str, data: &str| {
            let event = StreamEvent {
                name: name.to_owned(),
                data: data.to_owned(),
            };
            print_event(&event, TapFormat::Json, &mut left)
        };
        assert!(print("skipped", "{\"batches\":3}").is_none());
        assert!(print("unreadable", "{\"batches\":1,\"error\":\"x\"}").is_none());
        assert!(print("item", "{}").is_none());
        let lost = print("end", "{\"reason\":\"stopping\"}");
        assert!(matches!(lost, Some(TapEnd::Lost(why)) if why.contains("stopping")));
        assert!(matches!(print("item", "{}"), Some(TapEnd::Complete)));
    }
}
