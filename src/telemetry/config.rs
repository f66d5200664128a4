//! Options under `service::telemetry`.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::otlp::{Millis, Otlp, Protocol};
use super::resource::ResourceConfig;
use super::views::View;
use crate::config::{Decode, Node, Problems, TypeHelp};
use crate::net::Endpoint;

crate::options! {
    /// tidegate's own telemetry.
    pub struct Config {
        /// What tidegate logs.
        pub logs: Logs = Logs::default(),
        /// What it counts.
        pub metrics: Metrics = Metrics::default(),
        /// Spans of what takes long.
        pub traces: Traces = Traces::default(),
        /// Attributes of the gateway itself, added to all of its own telemetry: a map, or `attributes`, a list of `name`
        /// and `value`. `service.name`, `service.version` and `service.instance.id` are there without it; null takes one
        /// away.
        pub resource: ResourceConfig = ResourceConfig::default(),
    }
}

crate::options! {
    /// Logs of tidegate itself, to standard error.
    pub struct Logs {
        /// The least severe level that is logged.
        pub level: Level = Level::Info,
        /// Lines for people, or JSON objects.
        pub encoding: Encoding = Encoding::Console,
        /// Where log records go besides standard error.
        pub processors: Vec<LogProcessor> = Vec::new(),
        /// Accepted, without effect.
        pub development: NoEffect = NoEffect,
        /// Accepted, without effect: records have no caller.
        pub disable_caller: NoEffect = NoEffect,
        /// Accepted, without effect: records have no stack trace.
        pub disable_stacktrace: NoEffect = NoEffect,
        /// Accepted, without effect: what repeats is held back by kind, and counted.
        pub sampling: NoEffect = NoEffect,
        /// Accepted, without effect: logs go to standard error.
        pub output_paths: NoEffect = NoEffect,
        /// Accepted, without effect: logs go to standard error.
        pub error_output_paths: NoEffect = NoEffect,
        /// Accepted, without effect: `resource` is where attributes of the gateway are written.
        pub initial_fields: NoEffect = NoEffect,
    }
}

/// A key of the Collector that has no effect here. It causes a warning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoEffect;

impl Decode for NoEffect {
    const TAKES_NULL: bool = true;

    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        cx.at_key(node).warning("has no effect in tidegate: remove it");
        Some(Self)
    }

    fn type_help() -> TypeHelp {
        TypeHelp::plain("anything")
    }

    fn show(&self) -> String {
        "unset".to_owned()
    }
}

crate::options! {
    /// A processor of log records.
    pub struct LogProcessor {
        /// Collects records and sends them together.
        pub batch: Option<Batch> = None,
        /// Sends records as they come: here, those of 50 ms together.
        pub simple: Option<Simple> = None,
    }
    check = LogProcessor::check
}

crate::options! {
    /// Metrics of tidegate itself, served for Prometheus and pushed by OTLP.
    pub struct Metrics {
        /// Which metrics exist. `none`: none, and nothing is served or pushed. `basic`: what receivers and exporters took,
        /// refused and dropped, queues and the process. `normal`: all but sizes of requests. `detailed`: all.
        pub level: Detail = Detail::Normal,
        /// Where they are served, at `/metrics`.
        pub address: String = "localhost:8888".to_owned(),
        /// Names by which the page may be asked for besides addresses and `localhost`, where it is served on this machine
        /// alone: a page in a browser can give its own name any address.
        pub allowed_hosts: Vec<String> = Vec::new(),
        /// Connections of one address at a time, further ones are closed; unset: a quarter of the 64 that there may be. Those of
        /// this machine count where it is set.
        pub max_connections_per_peer: Option<NonZeroUsize> = None,
        /// The Collector's newer spelling, which wins over `address`: every `pull` reader with a Prometheus exporter
        /// serves, every `periodic` reader pushes.
        pub readers: Vec<Reader> = Vec::new(),
        /// Metrics to drop, and attributes to leave out.
        pub views: Vec<View> = Vec::new(),
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
        /// How long a push may take; unset: as its exporter says.
        pub timeout: Option<Millis> = None,
        /// Where to push.
        pub exporter: PushExporter = required,
        /// Accepted, without effect: there are no others.
        pub producers: NoEffect = NoEffect,
    }
    check = Periodic::check
}

crate::options! {
    /// Exporters that push.
    pub struct PushExporter {
        /// OTLP, by the protocol that it names.
        pub otlp: Option<Otlp> = None,
        /// OTLP over gRPC.
        pub otlp_grpc: Option<Otlp> = None,
        /// OTLP over HTTP.
        pub otlp_http: Option<Otlp> = None,
        /// Accepted, without effect: nothing is printed.
        pub console: NoEffect = NoEffect,
    }
    check = PushExporter::check
}

crate::options! {
    /// Spans of batches that take long.
    pub struct Traces {
        /// `none` records nothing, the other levels record slow batches.
        pub level: Detail = Detail::Normal,
        /// Accepted, without effect: spans of slow batches have no parents outside.
        pub propagators: NoEffect = NoEffect,
        /// Accepted, without effect: `slow_batch` chooses.
        pub sampler: NoEffect = NoEffect,
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
        pub batch: Option<Batch> = None,
        /// Sends spans as they come: here, those of 50 ms together.
        pub simple: Option<Simple> = None,
    }
    check = SpanProcessor::check
}

crate::options! {
    /// Sends without collecting.
    pub struct Simple {
        /// Where to send.
        pub exporter: PushExporter = required,
    }
}

crate::options! {
    /// How records and spans are collected.
    pub struct Batch {
        /// The longest time that one waits.
        pub schedule_delay: Millis = Millis::of(5_000),
        /// How long a push may take; unset: as its exporter says.
        pub export_timeout: Option<Millis> = None,
        /// Those that may wait; more are dropped.
        pub max_queue_size: usize = 2048,
        /// Those in one request.
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
        /// Accepted, without effect: there are no others.
        pub producers: NoEffect = NoEffect,
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
        /// Names without units (`otelcol_process_uptime` instead of `otelcol_process_uptime_seconds`).
        pub without_units: bool = true,
        /// Names of counters as they are, without a `_total` that they don't have.
        pub without_type_suffix: bool = true,
        /// Without the labels `otel_scope_name`, `otel_scope_version` and `otel_scope_schema_url`.
        pub without_scope_info: bool = true,
        /// Attributes of the gateway that every series has as labels.
        pub with_resource_constant_labels: Option<Selected> = None,
    }
}

crate::options! {
    /// A selection of attributes by name; `*` stands for any characters.
    pub struct Selected {
        /// These, ...
        pub included: Vec<String> = Vec::new(),
        /// ... without these.
        pub excluded: Vec<String> = Vec::new(),
    }
}

impl Selected {
    /// Whether the selection has an attribute.
    pub fn has(&self, name: &str) -> bool {
        let matches = |patterns: &[String]| {
            let mut patterns = patterns.iter().map(|pattern| glob::Pattern::new(pattern));
            patterns.any(|pattern| pattern.is_ok_and(|pattern| pattern.matches(name)))
        };
        matches(&self.included) && !matches(&self.excluded)
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

/// Checks that a processor has exactly one kind.
fn check_kinds(has_batch: bool, has_simple: bool, at: &Node, cx: &mut Problems) {
    if has_batch == has_simple {
        cx.at(at).error("expected one of `batch` and `simple`");
    }
}

/// The effective batching of a processor of either kind.
fn batch(batch: Option<&Batch>, simple: Option<&Simple>) -> Option<(Batch, Otlp)> {
    /// The delay of `simple`. Pushing each record separately would cost more than it is worth.
    const SOON: Millis = Millis::of(50);
    let simple = || {
        simple.map(|simple| Batch {
            schedule_delay: SOON,
            export_timeout: None,
            max_queue_size: 2048,
            max_export_batch_size: 512,
            exporter: simple.exporter.clone(),
        })
    };
    let batch = batch.cloned().or_else(simple)?;
    let mut otlp = batch.exporter.otlp()?;
    otlp.timeout = batch.export_timeout.unwrap_or(otlp.timeout);
    Some((batch, otlp))
}

impl LogProcessor {
    fn check(&self, at: &Node, cx: &mut Problems) {
        check_kinds(self.batch.is_some(), self.simple.is_some(), at, cx);
    }

    /// The batching and destination; `None`: no processor is configured.
    pub(super) fn push(&self) -> Option<(Batch, Otlp)> {
        batch(self.batch.as_ref(), self.simple.as_ref())
    }
}

impl SpanProcessor {
    fn check(&self, at: &Node, cx: &mut Problems) {
        check_kinds(self.batch.is_some(), self.simple.is_some(), at, cx);
    }

    /// The batching and destination; `None`: no processor is configured.
    pub(super) fn push(&self) -> Option<(Batch, Otlp)> {
        batch(self.batch.as_ref(), self.simple.as_ref())
    }
}

impl Periodic {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.interval.0.is_zero() {
            cx.at(at.child("interval")).error("must be greater than zero");
        }
    }
}

impl PushExporter {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let given = [&self.otlp, &self.otlp_grpc, &self.otlp_http];
        let count = given.iter().filter(|otlp| otlp.is_some()).count();
        if count > 1 || count == 0 && at.get("console").is_none() {
            cx.at(at)
                .error("expected one of `otlp`, `otlp_grpc` and `otlp_http`");
        }
    }

    /// The OTLP destination, if there is one.
    pub fn otlp(&self) -> Option<Otlp> {
        let by = |protocol, otlp: &Otlp| Otlp {
            protocol,
            ..otlp.clone()
        };
        let grpc = || self.otlp_grpc.as_ref().map(|otlp| by(Protocol::Grpc, otlp));
        let http = || self.otlp_http.as_ref().map(|otlp| by(Protocol::Http, otlp));
        self.otlp.clone().or_else(grpc).or_else(http)
    }
}

impl Metrics {
    /// The readers that push.
    pub fn pushers(&self) -> impl Iterator<Item = &Periodic> {
        let wanted = self.level != Detail::None;
        self.readers
            .iter()
            .filter_map(|reader| reader.periodic.as_ref())
            .filter(move |reader| wanted && reader.exporter.otlp().is_some())
    }

    /// The pages to serve, with their endpoints.
    pub fn pages(&self) -> Result<Vec<(Endpoint, Listen)>, String> {
        if self.level == Detail::None {
            return Ok(Vec::new());
        }
        // A list of readers without a pull reader serves no page.
        if self.readers.is_empty() {
            let endpoint = self.address.parse();
            let endpoint =
                endpoint.map_err(|error| format!("service::telemetry::metrics::address: {error}"))?;
            return Ok(vec![(endpoint, Listen::default())]);
        }
        let pull = self
            .readers
            .iter()
            .filter_map(|reader| reader.pull.as_ref()?.exporter.prometheus.as_ref());
        let page = |listen: &Listen| {
            let endpoint = Endpoint::Tcp {
                host: listen.host.clone(),
                port: listen.port,
            };
            (endpoint, listen.clone())
        };
        Ok(pull.map(page).collect())
    }
}
