//! `debug`: prints what arrives to standard error, in three degrees of detail. For people at a terminal.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::batch::{Batch, Signal, convert, json};
use crate::component::{
    ConfigType, Consumer, Exporter, ExporterFactory, Factory, Flow, Ledger, Lifecycle, Reason, Refused,
    Stability,
};
use crate::config::{Node, Problems, WithoutEffect};
use crate::prom::labels::text;

crate::options! {
    /// Options of the `debug` exporter.
    pub struct Config {
        /// `basic`: a line a batch; `normal`: a line a point, span or log record; `detailed`: everything of each.
        pub verbosity: Verbosity = Verbosity::Basic,
        /// The old spelling of `verbosity`: `debug` is `detailed`, `info` is `normal`, the others are `basic`.
        pub loglevel: Option<LogLevel> = None,
        /// Batches of a signal that are printed in each second before `sampling_thereafter` counts.
        pub sampling_initial: u64 = 2,
        /// Of the batches beyond, each so-manieth is printed; 0: none. All are counted.
        pub sampling_thereafter: u64 = 1,
    }
    accepted = OUTPUTS;
    check = Config::check
}

/// Options of the Collector's exporter that can mean nothing here.
const OUTPUTS: &WithoutEffect = &[
    ("use_internal_logger", "what is printed goes to standard error"),
    ("output_paths", "what is printed goes to standard error"),
    ("sending_queue", "each batch is printed when it comes"),
];

crate::choices! {
    /// The levels that the Collector's `logging` exporter had.
    pub enum LogLevel {
        /// Everything.
        Debug = "debug",
        /// One line an item.
        Info = "info",
        /// Counts.
        Warn = "warn",
        /// Counts.
        Error = "error",
    }
}

impl Config {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.loglevel.is_some() && at.get("verbosity").is_some() {
            cx.at(at.child("loglevel"))
                .help("leave it out")
                .error("`verbosity` says it already");
        }
    }

    fn verbosity(&self) -> Verbosity {
        match self.loglevel {
            None => self.verbosity,
            Some(LogLevel::Debug) => Verbosity::Detailed,
            Some(LogLevel::Info) => Verbosity::Normal,
            Some(LogLevel::Warn | LogLevel::Error) => Verbosity::Basic,
        }
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
    aliases: &["logging"],
    signals: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "prints metrics, traces and logs to standard error",
    config: ConfigType::of::<Config>(),
    build: |settings, cx| {
        let config = settings.get::<Config>();
        let sampler = || Mutex::new(Sampler::new(config.sampling_initial, config.sampling_thereafter));
        Ok(Arc::new(Debug {
            verbosity: config.verbosity(),
            samplers: [sampler(), sampler(), sampler()],
            id: cx.base.id.clone(),
            ledgers: cx.ledgers,
        }))
    },
};

/// Which batches of a second are printed.
struct Sampler {
    initial: u64,
    thereafter: u64,
    /// When the second began, and the batches that it has seen.
    second: Option<(Instant, u64)>,
}

impl Sampler {
    const fn new(initial: u64, thereafter: u64) -> Self {
        Self {
            initial,
            thereafter,
            second: None,
        }
    }

    fn prints(&mut self, now: Instant) -> bool {
        const SECOND: Duration = Duration::from_secs(1);
        let (began, seen) = match self.second {
            Some((began, seen)) if now.duration_since(began) < SECOND => (began, seen + 1),
            _ => (now, 1),
        };
        self.second = Some((began, seen));
        let beyond = seen.saturating_sub(self.initial);
        // Nothing is a multiple of 0 but 0.
        beyond.is_multiple_of(self.thereafter)
    }
}

struct Debug {
    verbosity: Verbosity,
    /// By `Signal as usize`.
    samplers: [Mutex<Sampler>; 3],
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
        let sampler = &self.samplers[batch.signal() as usize];
        let mut sampler = sampler.lock().unwrap_or_else(PoisonError::into_inner);
        if !sampler.prints(Instant::now()) {
            return ledger.leave(items);
        }
        drop(sampler);
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
    fn of_many_batches_in_a_second_some_are_printed() {
        let begin = Instant::now();
        let printed = |initial, thereafter, count: u64| {
            let mut sampler = Sampler::new(initial, thereafter);
            let printed = |_: &u64| sampler.prints(begin);
            (1..=count).filter(printed).collect::<Vec<_>>()
        };
        assert_eq!(printed(2, 1, 5), [1, 2, 3, 4, 5], "the default");
        assert_eq!(printed(2, 3, 9), [1, 2, 5, 8]);
        assert_eq!(printed(2, 0, 9), [1, 2]);
        let mut sampler = Sampler::new(1, 0);
        assert!(sampler.prints(begin));
        assert!(!sampler.prints(begin));
        assert!(
            sampler.prints(begin + Duration::from_secs(1)),
            "a second later it begins again"
        );
    }

    #[test]
    fn the_old_exporters_levels_are_verbosities() {
        use crate::component::testing::options;
        for (yaml, expected) in [
            ("{}", Verbosity::Basic),
            ("verbosity: Detailed", Verbosity::Detailed),
            ("loglevel: debug", Verbosity::Detailed),
            ("loglevel: info", Verbosity::Normal),
            ("loglevel: warn", Verbosity::Basic),
        ] {
            assert_eq!(options::<Config>(yaml).unwrap().verbosity(), expected, "{yaml}");
        }
        assert!(options::<Config>("{loglevel: info, verbosity: basic}").is_err());
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
