//! Options under `service::telemetry`.

use std::time::Duration;

use super::otlp::{Millis, Otlp};
use crate::config::{Node, Ordered, Problems};

crate::options! {
    /// tidegate's own telemetry.
    pub struct Config {
        /// What tidegate logs.
        pub logs: Logs = Logs::default(),
        /// What it counts.
        pub metrics: Metrics = Metrics::default(),
        /// Spans of what takes long.
        pub traces: Traces = Traces::default(),
        /// Attributes of the gateway itself, added to all of its own telemetry; `service.name`, `service.version`
        /// and `service.instance.id` are there without it.
        pub resource: Ordered<String> = Ordered::default(),
    }
}

crate::options! {
    /// Logs of tidegate itself, to standard error.
    pub struct Logs {
        /// The least severe level that is logged.
        pub level: Level = Level::Info,
        /// Lines for people, or JSON objects.
        pub encoding: Encoding = Encoding::Console,
    }
}

crate::options! {
    /// Metrics of tidegate itself, served for Prometheus and pushed by OTLP.
    pub struct Metrics {
        /// `none` serves and pushes nothing; the other levels are one today.
        pub level: Detail = Detail::Normal,
        /// Where they are served, at `/metrics`.
        pub address: String = "localhost:8888".to_owned(),
        /// The Collector's newer spelling: the first `pull` reader with a Prometheus exporter wins over `address`;
        /// every `periodic` reader pushes.
        pub readers: Vec<Reader> = Vec::new(),
    }
}

crate::options! {
    /// A reader of tidegate's own metrics.
    pub struct Reader {
        /// Served for a scraper.
        pub pull: Option<Pull> = None,
        /// Pushed at intervals.
        pub periodic: Option<Periodic> = None,
    }
}

crate::options! {
    /// A reader that pushes.
    pub struct Periodic {
        /// Time between two pushes.
        pub interval: Millis = Millis::of(60_000),
        /// Where to push.
        pub exporter: PushExporter = required,
    }
    check = Periodic::check
}

crate::options! {
    /// Exporters that push.
    pub struct PushExporter {
        /// OTLP.
        pub otlp: Otlp = required,
    }
}

crate::options! {
    /// Spans of batches that take long.
    pub struct Traces {
        /// `none` records nothing; the other levels are one today.
        pub level: Detail = Detail::Normal,
        /// A batch is recorded whose push through the graph, or whose way to a destination, takes at least this long.
        pub slow_batch: Duration = Duration::from_secs(1),
        /// Where spans go. Without any, nothing is timed.
        pub processors: Vec<SpanProcessor> = Vec::new(),
    }
}

crate::options! {
    /// A processor of spans.
    pub struct SpanProcessor {
        /// Collects spans and sends them together.
        pub batch: BatchSpans = required,
    }
}

crate::options! {
    /// How spans are collected.
    pub struct BatchSpans {
        /// The longest time that a span waits.
        pub schedule_delay: Millis = Millis::of(5_000),
        /// Spans that may wait; more are dropped.
        pub max_queue_size: usize = 2048,
        /// Spans in one request.
        pub max_export_batch_size: usize = 512,
        /// Where to send them.
        pub exporter: PushExporter = required,
    }
}

crate::options! {
    /// A pull reader.
    pub struct Pull {
        /// How it is served.
        pub exporter: PullExporter = PullExporter::default(),
    }
}

crate::options! {
    /// Exporters of a pull reader.
    pub struct PullExporter {
        /// The Prometheus format.
        pub prometheus: Option<Listen> = None,
    }
}

crate::options! {
    /// Where to listen.
    pub struct Listen {
        /// Host name or address.
        pub host: String = "localhost".to_owned(),
        /// TCP port.
        pub port: u16 = 8888,
    }
}

crate::choices! {
    /// Log levels.
    pub enum Level {
        /// Everything.
        Debug = "debug" | "DEBUG",
        /// What an operator wants to know.
        Info = "info" | "INFO",
        /// What needs attention soon.
        Warn = "warn" | "WARN",
        /// What is broken.
        Error = "error" | "ERROR",
    }
}

crate::choices! {
    /// Log formats.
    pub enum Encoding {
        /// Lines for people.
        Console = "console",
        /// A JSON object a line.
        Json = "json",
    }
}

crate::choices! {
    /// How much is measured.
    pub enum Detail {
        /// Nothing is served.
        None = "none",
        /// The essentials.
        Basic = "basic",
        /// The default.
        Normal = "normal",
        /// Everything.
        Detailed = "detailed",
    }
}

impl Periodic {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.interval.0.is_zero() {
            cx.at(at.child("interval")).error("must be greater than zero");
        }
    }
}

impl Metrics {
    /// Readers that push.
    pub fn pushers(&self) -> impl Iterator<Item = &Periodic> {
        let wanted = self.level != Detail::None;
        self.readers
            .iter()
            .filter_map(move |reader| reader.periodic.as_ref().filter(|_| wanted))
    }

    /// `host:port` to serve on; `None` when nothing is to be served.
    pub fn endpoint(&self) -> Option<String> {
        if self.level == Detail::None {
            return None;
        }
        let mut pull = self
            .readers
            .iter()
            .filter_map(|reader| reader.pull.as_ref()?.exporter.prometheus.as_ref());
        match pull.next() {
            Some(listen) => Some(format!("{}:{}", listen.host, listen.port)),
            // Whoever lists readers and none to be scraped wants none to be scraped.
            None => self.readers.is_empty().then(|| self.address.clone()),
        }
    }
}
