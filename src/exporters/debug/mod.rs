//! `debug`: prints what arrives to standard error, in three degrees of detail. For people at a terminal.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

use crate::batch::{Batch, Signal, convert, json};
use crate::component::{
    ConfigType, Consumer, Exporter, ExporterFactory, Factory, Flow, Ledger, Lifecycle, Reason, Refused,
    Stability,
};
use crate::prom::labels::text;

crate::options! {
    /// Options of the `debug` exporter.
    pub struct Config {
        /// `basic`: a line a batch; `normal`: a line a point, span or log record; `detailed`: everything of each.
        pub verbosity: Verbosity = Verbosity::Basic,
    }
}

crate::choices! {
    /// How much is printed.
    pub enum Verbosity {
        /// Counts.
        Basic = "basic",
        /// One line an item.
        Normal = "normal",
        /// Everything.
        Detailed = "detailed",
    }
}

/// The factory of `debug`.
pub static FACTORY: ExporterFactory = Factory {
    kind: "debug",
    aliases: &[],
    signals: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "prints metrics, traces and logs to standard error",
    config: ConfigType::of::<Config>(),
    build: |settings, cx| {
        let verbosity = settings.get::<Config>().verbosity;
        Ok(Arc::new(Debug {
            verbosity,
            id: cx.base.id.clone(),
            ledgers: cx.ledgers,
        }))
    },
};

struct Debug {
    verbosity: Verbosity,
    id: Arc<str>,
    ledgers: [Option<Arc<Ledger>>; 3],
}

impl Lifecycle for Debug {}
impl Exporter for Debug {}

impl Consumer for Debug {
    fn admit(&self, _: &Batch, _: &mut Flow) -> Result<(), Refused> {
        Ok(())
    }

    fn consume(&self, batch: Batch, _: &mut Flow) {
        let Some(ledger) = &self.ledgers[batch.signal() as usize] else {
            return;
        };
        let items = batch.items();
        if items == 0 {
            return;
        }
        match describe(&batch, self.verbosity) {
            Ok(body) => {
                let head = format!("{}: {} {}\n", self.id, items, batch.signal().items());
                // One write a batch, so that lines of several components don't mix. A closed terminal is no error.
                let _ = std::io::stderr()
                    .lock()
                    .write_all(format!("{head}{body}").as_bytes());
                ledger.leave(items);
            }
            Err(why) => {
                tracing::warn!(exporter = %self.id, why, "can't be printed");
                ledger.drop_items(Reason::Invalid, items);
            }
        }
    }
}

fn describe(batch: &Batch, verbosity: Verbosity) -> Result<String, String> {
    let encoded = || convert::encode(&batch.payload);
    match (verbosity, batch.signal()) {
        (Verbosity::Basic, _) => Ok(String::new()),
        (Verbosity::Normal, Signal::Metrics) => convert::points(&encoded())
            .map(|points| lines(&points))
            .map_err(|error| error.to_string()),
        (Verbosity::Normal | Verbosity::Detailed, _) => {
            let json = json::to_json(&encoded()).map_err(|error| error.to_string())?;
            let value: serde_json::Value = serde_json::from_str(&json).map_err(|error| error.to_string())?;
            Ok(match verbosity {
                Verbosity::Detailed => format!("{value:#}\n"),
                _ => items(&value),
            })
        }
    }
}

/// `name{attributes} value`, a line a point.
fn lines(points: &[tidegate_engine::Point]) -> String {
    use tidegate_engine::Value;
    let mut lines = String::new();
    for point in points {
        let pairs = point
            .series
            .attributes
            .iter()
            .map(|(key, value)| format!("{key}={}", text(value)));
        let attributes = pairs.collect::<Vec<_>>().join(", ");
        let value = match &point.value {
            Value::Int(number) => number.to_string(),
            Value::Double(number) => number.to_string(),
            Value::Histogram(h) => format!(
                "count={} sum={:?} min={:?} max={:?}",
                h.count, h.sum, h.min, h.max
            ),
            Value::ExponentialHistogram(h) => format!("count={} sum={:?} scale={}", h.count, h.sum, h.scale),
            Value::Summary(s) => format!("count={} sum={}", s.count, s.sum),
            Value::NoRecordedValue => "no recorded value".to_owned(),
        };
        // Writing to a string can't fail.
        let _ = writeln!(lines, "  {}{{{attributes}}} {value}", point.series.metric.name);
    }
    lines
}

/// A line for every span or log record, wherever it lies in the request.
fn items(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, inner)| match (name.as_str(), inner) {
                ("spans" | "logRecords", Value::Array(all)) => {
                    all.iter().map(|item| format!("  {item}\n")).collect()
                }
                _ => items(inner),
            })
            .collect(),
        Value::Array(all) => all.iter().map(items).collect(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::wire;

    fn described(signal: Signal, json: &str, verbosity: Verbosity) -> String {
        let encoded = wire::check(signal, json::to_protobuf(signal, json.as_bytes()).unwrap()).unwrap();
        describe(&Batch::new(encoded), verbosity).unwrap()
    }

    #[test]
    fn every_verbosity_says_what_it_promises() {
        let metrics = r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"m","gauge":{"dataPoints":[
            {"asInt":"42","attributes":[{"key":"a","value":{"stringValue":"b"}}]}]}}]}]}]}"#;
        assert_eq!(described(Signal::Metrics, metrics, Verbosity::Basic), "");
        assert_eq!(
            described(Signal::Metrics, metrics, Verbosity::Normal),
            "  m{a=b} 42\n"
        );
        assert!(described(Signal::Metrics, metrics, Verbosity::Detailed).contains("\"asInt\": \"42\""));
        let traces = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"one"},{"name":"two"}]}]}]}"#;
        let lines = described(Signal::Traces, traces, Verbosity::Normal);
        assert_eq!(lines, "  {\"name\":\"one\"}\n  {\"name\":\"two\"}\n");
    }
}
