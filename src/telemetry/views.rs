// SPDX-License-Identifier: Apache-2.0

//! `service::telemetry::metrics::views`: metrics to drop, and attributes to omit.

use std::collections::HashMap;
use std::sync::Arc;

use metrics::{Counter, CounterFn, Gauge, GaugeFn, Key};
use parking_lot::Mutex;

use super::catalogue::{CATALOGUE, Described, MetricKind};
use super::config::{NoEffect, Selected};
use crate::component::graph_metrics::NO_VALUE;
use crate::config::{Decode, Node, Problems, TypeHelp, YamlType, wrong_type};

crate::options! {
    /// Changes to some of the gateway's own metrics.
    pub struct View {
        /// The metrics that the view applies to.
        pub selector: Selector = required,
        /// Changes to these metrics.
        pub stream: ViewStream = ViewStream::default(),
    }
    check = View::check
}

crate::options! {
    /// Conditions that a metric meets all of.
    pub struct Selector {
        /// Name of the metric; `*` stands for any characters, `?` for one.
        pub instrument_name: Option<String> = None,
        /// Kind of the metric.
        pub instrument_type: Option<InstrumentType> = None,
        /// Unit of the metric.
        pub unit: Option<String> = None,
        /// Scope of the metric: `tidegate`, or its scope in the Collector.
        pub meter_name: Option<String> = None,
        /// Accepted, without effect: `meter_name` selects scopes.
        pub meter_version: NoEffect = NoEffect,
        /// Accepted, without effect: `meter_name` selects scopes.
        pub meter_schema_url: NoEffect = NoEffect,
    }
}

crate::choices! {
    /// Kinds of metrics, as OpenTelemetry names them.
    pub enum InstrumentType {
        /// A counter.
        Counter = "counter" | "observable_counter",
        /// A value that rises and falls.
        Gauge = "gauge" | "observable_gauge" | "up_down_counter" | "observable_up_down_counter",
        /// A distribution.
        Histogram = "histogram",
    }
}

crate::options! {
    /// Changes that a view makes to metrics.
    pub struct ViewStream {
        /// Accepted, without effect: metrics keep their names.
        pub name: NoEffect = NoEffect,
        /// Accepted, without effect: metrics keep their descriptions.
        pub description: NoEffect = NoEffect,
        /// `drop: {}` drops the metrics; the other values change nothing.
        pub aggregation: Aggregation = Aggregation::default(),
        /// Accepted, without effect: the series of the gateway are few.
        pub aggregation_cardinality_limit: NoEffect = NoEffect,
        /// Attributes to keep. The gateway adds up series that differ only in the others.
        pub attribute_keys: Option<AttributeKeys> = None,
    }
}

crate::options! {
    /// Aggregation of values.
    pub struct Aggregation {
        /// The gateway drops the metric.
        pub drop: Present = Present(false),
        /// The same aggregation as without a view.
        pub default: Present = Present(false),
        /// Accepted, without effect: histograms have fixed bounds.
        pub explicit_bucket_histogram: NoEffect = NoEffect,
        /// Accepted, without effect: histograms have fixed bounds.
        pub base2_exponential_bucket_histogram: NoEffect = NoEffect,
        /// Accepted, without effect: a metric keeps its kind.
        pub last_value: NoEffect = NoEffect,
        /// Accepted, without effect: a metric keeps its kind.
        pub sum: NoEffect = NoEffect,
    }
}

/// A key that says something by being there: `drop: {}`, `drop:`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Present(bool);

impl Decode for Present {
    const TAKES_NULL: bool = true;

    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let is_empty = node.as_map().is_some_and(<[_]>::is_empty);
        if node.is_null() || is_empty {
            Some(Self(true))
        } else {
            wrong_type(node, cx)
        }
    }

    fn type_help() -> TypeHelp {
        TypeHelp::like("empty map", "{}").accepting(YamlType::Options(Vec::new))
    }

    fn show(&self) -> String {
        "unset".to_owned()
    }
}

/// Attributes that stay: `included` and `excluded`, or a list of the first.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributeKeys(Selected);

impl Decode for AttributeKeys {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let selected = match node.as_list() {
            Some(_) => Selected {
                included: Vec::decode(node, cx)?,
                excluded: Vec::new(),
            },
            None => Selected::decode(node, cx)?,
        };
        Some(Self(selected))
    }

    fn type_help() -> TypeHelp {
        let list = Vec::<String>::type_help().accepts;
        TypeHelp::like("included and excluded", "{excluded: [transport]}")
            .accepting(YamlType::AnyOf(vec![list, Selected::type_help().accepts]))
    }

    fn show(&self) -> String {
        "unset".to_owned()
    }
}

impl AttributeKeys {
    /// Without `included`, all but those excluded.
    fn keep(&self, name: &str) -> bool {
        let Selected { included, excluded } = &self.0;
        let every = ["*".to_owned()];
        let selected = Selected {
            included: if included.is_empty() {
                every.to_vec()
            } else {
                included.clone()
            },
            excluded: excluded.clone(),
        };
        selected.has(name)
    }
}

impl View {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if !CATALOGUE.iter().any(|described| self.selector.selects(described)) {
            cx.at(at.child("selector"))
                .warning("selects none of tidegate's metrics: the view has no effect");
        }
    }
}

impl Selector {
    fn selects(&self, described: &Described) -> bool {
        let is = |pattern: &Option<String>, text: &str| {
            let pattern = pattern.as_deref().map(glob::Pattern::new);
            pattern.is_none_or(|pattern| pattern.is_ok_and(|pattern| pattern.matches(text)))
        };
        let kind = match described.kind {
            MetricKind::Counter | MetricKind::FractionCounter => InstrumentType::Counter,
            MetricKind::Gauge => InstrumentType::Gauge,
            MetricKind::Histogram(_) => InstrumentType::Histogram,
        };
        let meters = [super::SCOPE, meter(described.name)];
        is(&self.instrument_name, described.name)
            && self.instrument_type.is_none_or(|wanted| wanted == kind)
            && self.unit.as_deref().is_none_or(|unit| unit == described.unit)
            && meters.iter().any(|meter| is(&self.meter_name, meter))
    }
}

/// The scope of a metric in the Collector, by which files written for it select.
fn meter(name: &str) -> &'static str {
    const METERS: [(&str, &str); 9] = [
        (
            "http.",
            "go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp",
        ),
        (
            "rpc.",
            "go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc",
        ),
        (
            "otelcol_processor_batch_",
            "go.opentelemetry.io/collector/processor/batchprocessor",
        ),
        (
            "otelcol_processor_memory_limiter_",
            "go.opentelemetry.io/collector/processor/memorylimiterprocessor",
        ),
        (
            "otelcol_processor_filter_",
            "github.com/open-telemetry/opentelemetry-collector-contrib/processor/filterprocessor",
        ),
        (
            "otelcol_processor_",
            "go.opentelemetry.io/collector/processor/processorhelper",
        ),
        (
            "otelcol_receiver_",
            "go.opentelemetry.io/collector/receiver/receiverhelper",
        ),
        (
            "otelcol_exporter_",
            "go.opentelemetry.io/collector/exporter/exporterhelper",
        ),
        ("otelcol_process_", "go.opentelemetry.io/collector/service"),
    ];
    let mut known = METERS.into_iter();
    let found = known.find(|(prefix, _)| name.starts_with(prefix));
    found.map_or(super::SCOPE, |(_, meter)| meter)
}

/// Views in operation.
#[derive(Default)]
pub(super) struct Views {
    by_name: HashMap<&'static str, Treatment>,
    counters: Shares<CounterShare>,
    gauges: Shares<GaugeShare>,
    /// By the key that is left.
    totals: Shares<Total>,
}

/// The treatment of a metric.
enum Treatment {
    Dropped,
    Keeps(Vec<AttributeKeys>),
}

/// The value that each series of the components contributes to the series that is left.
type Shares<S> = Mutex<HashMap<Key, Arc<S>>>;

impl Views {
    pub(super) fn new(views: &[View]) -> Self {
        let treated = |described: &Described| Some((described.name, treatment(views, described)?));
        Self {
            by_name: CATALOGUE.iter().filter_map(treated).collect(),
            ..Self::default()
        }
    }

    /// Whether a metric is dropped.
    pub(super) fn drops(&self, name: &str) -> bool {
        matches!(self.by_name.get(name), Some(Treatment::Dropped))
    }

    /// The key with the attributes that stay; `None`: it stays as it is.
    pub(super) fn reduced(&self, key: &Key) -> Option<Key> {
        let Treatment::Keeps(views) = self.by_name.get(key.name())? else {
            return None;
        };
        let stays = |label: &&metrics::Label| views.iter().all(|view| view.keep(label.key()));
        let labels: Vec<_> = key.labels().filter(stays).cloned().collect();
        (labels.len() < key.labels().len()).then(|| Key::from_parts(key.name().to_owned(), labels))
    }

    /// The counter of a series whose values are added to another one.
    pub(super) fn counter(&self, key: &Key, sum: impl FnOnce() -> Counter) -> Counter {
        let mut shares = self.counters.lock();
        let share = shares.entry(key.clone()).or_insert_with(|| {
            Arc::new(CounterShare {
                own: Mutex::default(),
                sum: sum(),
            })
        });
        Counter::from_arc(share.clone())
    }

    /// The gauge of a series whose values are added to that of `reduced`.
    pub(super) fn gauge(&self, key: &Key, reduced: Key, make: impl FnOnce(&Key) -> Gauge) -> Gauge {
        let mut shares = self.gauges.lock();
        let share = shares.entry(key.clone()).or_insert_with(|| {
            let shown = make(&reduced);
            let mut totals = self.totals.lock();
            let total = totals.entry(reduced).or_insert_with(|| Total::new(shown));
            Arc::new(GaugeShare::new(total.clone()))
        });
        Gauge::from_arc(share.clone())
    }
}

/// Dropped, where all views that select it say so; `None`: nothing becomes of it.
fn treatment(views: &[View], described: &Described) -> Option<Treatment> {
    let mut selecting = views
        .iter()
        .filter(|view| view.selector.selects(described))
        .peekable();
    selecting.peek()?;
    let kept: Vec<_> = selecting.filter(|view| !view.stream.aggregation.drop.0).collect();
    if kept.is_empty() {
        return Some(Treatment::Dropped);
    }
    let keys: Vec<_> = kept
        .iter()
        .filter_map(|view| view.stream.attribute_keys.clone())
        .collect();
    (!keys.is_empty()).then_some(Treatment::Keeps(keys))
}

/// One of several counters whose sum is shown.
struct CounterShare {
    own: Mutex<u64>,
    sum: Counter,
}

impl CounterFn for CounterShare {
    fn increment(&self, value: u64) {
        *self.own.lock() += value;
        self.sum.increment(value);
    }

    fn absolute(&self, value: u64) {
        let mut own = self.own.lock();
        self.sum.increment(value.saturating_sub(*own));
        *own = value.max(*own);
    }
}

/// One of several gauges whose sum is shown.
struct GaugeShare {
    /// `None`: it has no value.
    own: Mutex<Option<f64>>,
    total: Arc<Total>,
}

impl GaugeShare {
    /// As every gauge, it is 0 until it is set.
    fn new(total: Arc<Total>) -> Self {
        total.replace(None, Some(0.0));
        Self {
            own: Mutex::new(Some(0.0)),
            total,
        }
    }

    fn change(&self, to: impl FnOnce(f64) -> f64) {
        let mut own = self.own.lock();
        let value = Some(to(own.unwrap_or_default())).filter(|value| value.is_finite());
        self.total.replace(*own, value);
        *own = value;
    }
}

impl GaugeFn for GaugeShare {
    fn increment(&self, value: f64) {
        self.change(|own| own + value);
    }

    fn decrement(&self, value: f64) {
        self.change(|own| own - value);
    }

    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

/// The sum of several gauges.
struct Total {
    /// And how many of them have a value.
    sum: Mutex<(f64, usize)>,
    shown: Gauge,
}

impl Total {
    fn new(shown: Gauge) -> Arc<Self> {
        let sum = Mutex::default();
        Arc::new(Self { sum, shown })
    }

    /// One of the gauges has another value.
    fn replace(&self, old: Option<f64>, new: Option<f64>) {
        let mut total = self.sum.lock();
        let (sum, count) = *total;
        let count = count + usize::from(new.is_some()) - usize::from(old.is_some());
        let sum = sum - old.unwrap_or_default() + new.unwrap_or_default();
        *total = if count == 0 { (0.0, 0) } else { (sum, count) };
        self.shown.set(if count == 0 { NO_VALUE } else { sum });
    }
}

#[cfg(test)]
mod tests;
