// SPDX-License-Identifier: Apache-2.0

//! `tidegate explain`: where a series of a running gateway comes from.

use serde_json::Value;

use super::Failure;
use super::client::{self, Client, GatewayArgs, labels, number, printable, table};
use crate::print_line;

/// Arguments of `tidegate explain`.
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    /// A selector, such as `agent_tx_bytes_total{node="n1"}`; without it, only the notices of the gateway
    series: Option<String>,
    /// Largest number of series, and of sources per series
    #[arg(long, default_value_t = 10)]
    limit: usize,
    /// Print the gateway's answer unchanged, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: GatewayArgs,
}

/// The path of the notices: likely mistakes, by component.
const NOTICES: &str = "/api/v1/status/notices";

/// Asks, and prints.
///
/// # Errors
/// The gateway can't be reached, or no series matches.
pub fn run(args: &ExplainArgs) -> Result<(), Failure> {
    client::run(&args.place, |client| ask(args, client))
}

async fn ask(args: &ExplainArgs, client: Client) -> Result<(), Failure> {
    let Some(series_asked) = &args.series else {
        let notices = client.data(NOTICES, &[]).await?;
        if args.json {
            print_line!("{notices}");
        } else if print_notices(&notices) == 0 {
            print_line!("no notices");
        }
        return Ok(());
    };
    let limit = args.limit.to_string();
    let form = [("match[]", &**series_asked), ("limit", &*limit)];
    let all = client.data("/api/v1/explain", &form).await?;
    if args.json {
        print_line!("{all}");
        return Ok(());
    }
    print_notices(&client.data(NOTICES, &[]).await?);
    let found = all.as_array().map_or(&[][..], Vec::as_slice);
    if found.is_empty() {
        // A metric that is not known has been warned of.
        let why = "no series matches now; if its source has ended, `tidegate query 'up == 0'` lists targets that are down, \
                   and a range query shows the past";
        return Err(client.failure(format_args!("{series_asked}: {why}")));
    }
    for (at, one) in found.iter().enumerate() {
        if at > 0 {
            print_line!("");
        }
        let name = one["metric"]["__name__"].as_str().unwrap_or_default();
        print_line!("{}{}", printable(name), labels(&one["metric"]));
        if one["hidden"] == true {
            print_line!("  hidden    by another series of the same name and labels");
        }
        if one["composite"].is_object() {
            composite(one);
        } else {
            series(one);
        }
    }
    Ok(())
}

/// How many there are.
fn print_notices(all: &Value) -> usize {
    let all = all.as_object().into_iter().flatten();
    let all = all.flat_map(|(component, notices)| {
        let notices = notices.as_array().into_iter().flatten();
        notices.map(move |notice| {
            (
                printable(component),
                printable(notice.as_str().unwrap_or_default()),
            )
        })
    });
    all.inspect(|(component, notice)| print_line!("notice    {component}: {notice}"))
        .count()
}

fn composite(one: &Value) {
    let set = &one["composite"];
    let text = |key: &str| printable(set[key].as_str().unwrap_or_default());
    let across = match set["across"].as_str() {
        Some(across) => format!(", {} across the sources", printable(across)),
        None => String::new(),
    };
    print_line!(
        "  value     {} ({} over {}{across})",
        number(&set["value"]),
        text("function"),
        text("window")
    );
    print_line!("  state     {}, {}", text("state"), reporting(&set["sources"]));
    for key in ["error", "collision"] {
        if let Some(why) = set[key].as_str() {
            print_line!("  {key:<9} {}", printable(why));
        }
    }
    print_line!("  made by   composite `{}`", text("name"));
    if let Some(why) = one["unmatched"].as_str() {
        print_line!("  matches   nothing: {}", printable(why));
    }
    // An older gateway has no such list.
    let silent = one["silent"].as_array().map_or(&[][..], Vec::as_slice);
    if silent.is_empty() {
        return;
    }
    let rows = silent.iter().map(|silent| {
        let state = silent["state"].as_str().unwrap_or_default();
        vec![
            source(&silent["source"]),
            state.to_owned(),
            age(&silent["age_ms"]),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    print_line!("  silent    {}", sources(&one["silent_total"]));
    print_indented(&table(&["SOURCE", "STATE", "SINCE"], &rows));
    let more = one["silent_total"].as_u64().unwrap_or_default();
    let more = more.saturating_sub(silent.len() as u64);
    if more > 0 {
        print_line!("    and {more} more: raise `--limit`");
    }
}

fn print_indented(table: &str) {
    for line in table.lines() {
        print_line!("    {line}");
    }
}

/// The attributes of a source.
fn source(attributes: &Value) -> String {
    let source = labels(attributes);
    if source.is_empty() {
        "(no attributes)".to_owned()
    } else {
        source
    }
}

fn reporting(all: &Value) -> String {
    format!("{} of {} reporting", all["reporting"], sources(&all["expected"]))
}

fn sources(count: &Value) -> String {
    match count.as_u64() {
        Some(1) => "1 source".to_owned(),
        _ => format!("{count} sources"),
    }
}

fn age(value: &Value) -> String {
    match value.as_f64() {
        Some(ms) => format!("{:.3} s ago", ms / 1e3),
        None => "never".to_owned(),
    }
}

fn time(value: &Value) -> String {
    let at = value.as_f64().map(std::time::Duration::from_secs_f64);
    let at = at.and_then(|since| std::time::UNIX_EPOCH.checked_add(since));
    at.map_or_else(
        || "unknown".to_owned(),
        |at| humantime::format_rfc3339_millis(at).to_string(),
    )
}

fn series(one: &Value) {
    let text = |key: &str| printable(one[key].as_str().unwrap_or_default());
    // UCUM writes "1" for a plain number: behind the value it would read as a second number.
    let unit = Some(text("unit")).filter(|unit| unit != "1").unwrap_or_default();
    let value = if one["value"].is_number() {
        format!("{} {unit}", number(&one["value"]))
    } else {
        "a distribution".to_owned()
    };
    print_line!("  value     {}", value.trim_end());
    print_line!("  state     {}, {}", text("state"), reporting(&one["sources"]));
    print_line!("  heard     {}", age(&one["age_ms"]));
    if one["counts_since"].is_number() {
        print_line!("  counts    since {}", time(&one["counts_since"]));
    }
    // Rules without a name are not in the configuration, such as that of a `prometheus` exporter.
    let rule = one["rule_name"].as_str();
    let rule = rule.map_or_else(String::new, |name| format!(", {}", printable(name)));
    print_line!("  made by   {}{rule}", text("owner"));
    let feeders = one["fed_by"].as_array().map_or(&[][..], Vec::as_slice);
    if feeders.is_empty() {
        print_line!("  fed by    no source now: its sources have left, and their counts stay");
        return;
    }
    let rows = feeders.iter().map(|feeder| {
        let text = |key: &str| feeder[key].as_str().unwrap_or_default().to_owned();
        vec![
            source(&feeder["source"]),
            text("state"),
            age(&feeder["age_ms"]),
            time(&feeder["began"]),
            number(&feeder["said"]),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    print_line!("  fed by    {}", sources(&one["fed_by_total"]));
    print_indented(&table(
        &["SOURCE", "STATE", "HEARD", "BEGAN", "LAST VALUE"],
        &rows,
    ));
}
