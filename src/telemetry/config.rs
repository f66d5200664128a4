// SPDX-License-Identifier: Apache-2.0

//! Options under `service::telemetry`.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use super::component_levels::named_component;
use super::otlp::{Millis, Otlp, Protocol};
use super::resource::ResourceConfig;
use super::views::View;
use crate::config::{Decode, Node, Problems, TypeHelp};
use crate::net::Endpoint;

crate::options! {
    /// tidegate's own telemetry.
    pub struct TelemetryConfig {
        /// tidegate's own logs.
        pub logs: Logs = Logs::default(),
        /// tidegate's own metrics.
        pub metrics: Metrics = Metrics::default(),
        /// Spans of slow batches.
        pub traces: Traces = Traces::default(),
        /// Attributes of the gateway itself, added to all of its own telemetry: a map, or `attributes`, a list of
        /// `name` and `value`. `service.name`, `service.version` and `service.instance.id` have defaults; null removes
        /// one.
        pub resource: ResourceConfig = ResourceConfig::default(),
    }
}

crate::options! {
    /// Logs of tidegate itself, to standard error.
    pub struct Logs {
        /// The lowest level that the gateway logs.
        pub level: Level = Level::Info,
        /// Levels of components, such as `exporters::otlphttp/vendor`, of component types, such as `receivers::otlp`, and
        /// of other log targets, such as `tidegate_pipeline::delivery`. The level of a component decides on the lines that
        /// name it; for all others, the longest name that fits the line.
        pub levels: BTreeMap<String, Level> = BTreeMap::new(),
        /// Format of log lines: text, or JSON objects.
        pub encoding: Encoding = Encoding::Console,
        /// Destinations of log records in addition to standard error.
        pub processors: Vec<LogProcessor> = Vec::new(),
        /// Accepted, without effect.
        pub development: NoEffect = NoEffect,
        /// Accepted, without effect: records have no caller.
        pub disable_caller: NoEffect = NoEffect,
        /// Accepted, without effect: records have no stack trace.
        pub disable_stacktrace: NoEffect = NoEffect,
        /// Accepted, without effect: the gateway limits repeated lines by kind, and counts them.
        pub sampling: NoEffect = NoEffect,
        /// Accepted, without effect: logs go to standard error.
        pub output_paths: NoEffect = NoEffect,
        /// Accepted, without effect: logs go to standard error.
        pub error_output_paths: NoEffect = NoEffect,
        /// Accepted, without effect: `resource` is where attributes of the gateway are written.
        pub initial_fields: NoEffect = NoEffect,
    }
    check = Logs::check
}

impl Logs {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let is_target = |name: &str| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_:".contains(c))
        };
        let is_known = |name: &str| is_target(name) || named_component(name).is_some();
        for name in self.levels.keys().filter(|name| !is_known(name)) {
            cx.at(at.child("levels"))
                .help(
                    "name a component with its class, such as `exporters::otlphttp/vendor`, a type, such as \
                     `receivers::otlp`, or a log target",
                )
                .error(format!("no log line has the target {name:?}"));
        }
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
        /// Collects records and sends them in batches.
        pub batch: Option<BatchExport> = None,
        /// Sends records at once; the gateway joins those of 50 ms.
        pub simple: Option<Simple> = None,
    }
    check = LogProcessor::check
}

crate::options! {
    /// Metrics of tidegate itself, served for Prometheus and pushed by OTLP.
    pub struct Metrics {
        /// The set of metrics. `none`: no metrics, no page and no pushes. `basic`: queues, the process, and items that
        /// components accepted, refused and dropped. `normal`: all except sizes of requests. `detailed`: all.
        pub level: Detail = Detail::Normal,
        /// Host and port of the page, which has the path `/metrics`.
        pub address: String = "localhost:8888".to_owned(),
        /// Host names that requests may use in addition to addresses and `localhost`. The check applies to a page that
        /// only this machine can reach: it stops web pages that give their own name a local address.
        pub allowed_hosts: Vec<String> = Vec::new(),
        /// Largest number of concurrent connections from one address; the gateway closes further ones. Unset: 16,
        /// and no limit for this machine.
        pub max_connections_per_peer: Option<NonZeroUsize> = None,
        /// The Collector's newer form, which overrides `address`: every `pull` reader with a Prometheus exporter serves
        /// a page, and every `periodic` reader pushes.
        pub readers: Vec<MetricReader> = Vec::new(),
        /// Metrics to drop, and attributes to remove.
        pub views: Vec<View> = Vec::new(),
    }
}

crate::options! {
    /// A reader of tidegate's own metrics.
    pub struct MetricReader {
        /// A page for a scraper.
        pub pull: Option<Pull> = None,
        /// Pushes at intervals.
        pub periodic: Option<Periodic> = None,
    }
}

crate::options! {
    /// A reader that pushes.
    pub struct Periodic {
        /// Time between two pushes.
        pub interval: Millis = Millis::of(60_000),
        /// Timeout of a push. Unset: `timeout` of the exporter.
        pub timeout: Option<Millis> = None,
        /// Destination of the pushes.
        pub exporter: PushExporter = required,
        /// Accepted, without effect: there are no others.
        pub producers: NoEffect = NoEffect,
    }
    check = Periodic::check
}

crate::options! {
    /// Exporters that push.
    pub struct PushExporter {
        /// OTLP over the transport that its `protocol` names.
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
    /// Spans of slow batches.
    pub struct Traces {
        /// `none` records no spans; the other levels record slow batches.
        pub level: Detail = Detail::Normal,
        /// Accepted, without effect: spans of slow batches have no parents outside.
        pub propagators: NoEffect = NoEffect,
        /// Accepted, without effect: `slow_batch` chooses.
        pub sampler: NoEffect = NoEffect,
        /// Shortest duration of a recorded batch: of its push through the graph, or of its delivery to a destination.
        pub slow_batch: Duration = Duration::from_secs(1),
        /// Destinations of spans. Empty: the gateway measures no durations for spans.
        pub processors: Vec<SpanProcessor> = Vec::new(),
    }
}

crate::options! {
    /// A processor of spans.
    pub struct SpanProcessor {
        /// Collects spans and sends them in batches.
        pub batch: Option<BatchExport> = None,
        /// Sends spans at once; the gateway joins those of 50 ms.
        pub simple: Option<Simple> = None,
    }
    check = SpanProcessor::check
}

crate::options! {
    /// Sends without collecting.
    pub struct Simple {
        /// Destination of the records.
        pub exporter: PushExporter = required,
    }
}

crate::options! {
    /// Batches of log records or spans.
    pub struct BatchExport {
        /// The longest time that a record or span waits.
        pub schedule_delay: Millis = Millis::of(5_000),
        /// Timeout of a push. Unset: `timeout` of the exporter.
        pub export_timeout: Option<Millis> = None,
        /// Largest number of records or spans that wait; the gateway drops further ones.
        pub max_queue_size: usize = 2048,
        /// Largest number of records or spans in a request.
        pub max_export_batch_size: usize = 512,
        /// Destination of the requests.
        pub exporter: PushExporter = required,
    }
}

crate::options! {
    /// A pull reader.
    pub struct Pull {
        /// Format and address of the page.
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
    /// The address of the page.
    pub struct Listen {
        /// Host name or address.
        pub host: String = "localhost".to_owned(),
        /// TCP port.
        pub port: u16 = 8888,
        /// Names without units (`otelcol_process_uptime` instead of `otelcol_process_uptime_seconds`).
        pub without_units: bool = true,
        /// Names of counters without an added suffix `_total`.
        pub without_type_suffix: bool = true,
        /// Series without the labels `otel_scope_name`, `otel_scope_version` and `otel_scope_schema_url`.
        pub without_scope_info: bool = true,
        /// Attributes of the gateway that every series has as labels.
        pub with_resource_constant_labels: Option<Selected> = None,
    }
}

crate::options! {
    /// A selection of attributes by name; `*` stands for any characters.
    pub struct Selected {
        /// Attributes to select.
        pub included: Vec<String> = Vec::new(),
        /// Attributes to exclude from `included`.
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
        /// Events that an operator needs to know.
        Info = "info" | "INFO",
        /// Problems that need attention soon.
        Warn = "warn" | "WARN",
        /// Failures.
        Error = "error" | "ERROR",
    }
}

crate::choices! {
    /// Log formats.
    pub enum Encoding {
        /// Lines of text.
        Console = "console",
        /// One JSON object per line.
        Json = "json",
    }
}

crate::choices! {
    /// Amount of telemetry.
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
fn batch(batch: Option<&BatchExport>, simple: Option<&Simple>) -> Option<(BatchExport, Otlp)> {
    /// The delay of `simple`. Pushing each record separately would cost more than it is worth.
    const SOON: Millis = Millis::of(50);
    let simple = || {
        simple.map(|simple| BatchExport {
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
    pub(super) fn push(&self) -> Option<(BatchExport, Otlp)> {
        batch(self.batch.as_ref(), self.simple.as_ref())
    }
}

impl SpanProcessor {
    fn check(&self, at: &Node, cx: &mut Problems) {
        check_kinds(self.batch.is_some(), self.simple.is_some(), at, cx);
    }

    /// The batching and destination; `None`: no processor is configured.
    pub(super) fn push(&self) -> Option<(BatchExport, Otlp)> {
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
    ///
    /// # Errors
    /// `service::telemetry::metrics::address` is not an endpoint.
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
        let pull = self.readers.iter().filter_map(MetricReader::listen);
        let page = |listen: &Listen| (listen.endpoint(), listen.clone());
        Ok(pull.map(page).collect())
    }

    /// The option with the address of a page, for messages.
    pub fn option_of(&self, endpoint: &Endpoint) -> String {
        let metrics = "service::telemetry::metrics";
        let mut readers = self.readers.iter().map(MetricReader::listen);
        let is_at = |listen: Option<&Listen>| listen.is_some_and(|listen| listen.endpoint() == *endpoint);
        match readers.position(is_at) {
            Some(at) => format!("{metrics}::readers[{at}]::pull::exporter::prometheus::port"),
            None => format!("{metrics}::address"),
        }
    }
}

impl MetricReader {
    /// The page of the reader, if it has one.
    fn listen(&self) -> Option<&Listen> {
        self.pull.as_ref()?.exporter.prometheus.as_ref()
    }
}

impl Listen {
    fn endpoint(&self) -> Endpoint {
        Endpoint::Tcp {
            host: self.host.clone(),
            port: self.port,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_text;

    #[test]
    fn messages_name_the_option_that_has_the_address_of_a_page() {
        let readers = "{readers: [{periodic: {exporter: {otlp_http: {endpoint: 'http://a:1'}}}}, \
                       {pull: {exporter: {prometheus: {host: 127.0.0.1, port: 9}}}}]}";
        for (text, expected) in [
            ("{address: 'localhost:9'}", "address"),
            ("{}", "address"),
            (readers, "readers[1]::pull::exporter::prometheus::port"),
        ] {
            let mut problems = Problems::default();
            let node = parse_text("in.yaml", text, &mut problems).unwrap();
            let metrics = Metrics::decode(&node, &mut problems).unwrap();
            let pages = metrics.pages().unwrap();
            let option = metrics.option_of(&pages[0].0);
            assert_eq!(
                option,
                format!("service::telemetry::metrics::{expected}"),
                "{text}"
            );
        }
    }
}
