// SPDX-License-Identifier: Apache-2.0

//! The gauges of components. Those of a component that a reload has removed end: a reader would take the last value for a
//! present one.

use std::collections::HashMap;
use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;

use super::catalogue::{MetricKind, find};
use crate::component::graph_metrics::NO_VALUE;

/// The label with the path of a component.
const COMPONENT: &str = "component";

/// Labels with the id of a component, or with its path, and the sections of the paths.
const CLASSES: [(&str, &str); 5] = [
    ("receiver", "receivers::"),
    ("processor", "processors::"),
    ("exporter", "exporters::"),
    ("connector", "connectors::"),
    ("extension", "extensions::"),
];

/// All gauges with a label of a component.
#[derive(Default)]
pub(super) struct ComponentGauges(Mutex<HashMap<Key, KnownGauge>>);

struct KnownGauge {
    gauge: Gauge,
    has_ended: bool,
}

impl ComponentGauges {
    /// The gauge of a series, made at the first call. One that has ended begins again at 0.
    fn gauge(&self, key: &Key, make: impl FnOnce() -> Gauge) -> Gauge {
        if !key.labels().any(|label| is_of_component(label.key())) || is_count(key) {
            return make();
        }
        let mut known = self.0.lock();
        let known = known.entry(key.clone()).or_insert_with(|| KnownGauge {
            gauge: make(),
            has_ended: false,
        });
        if std::mem::take(&mut known.has_ended) {
            known.gauge.set(0.0);
        }
        known.gauge.clone()
    }

    /// Ends the gauges of removed components. `removed` and `running` are paths. A label with an id counts if no running
    /// component of the class has the id.
    pub(super) fn end(&self, removed: &[Arc<str>], running: &[Arc<str>]) {
        for (key, known) in &mut *self.0.lock() {
            let is_gone = key.labels().any(|label| {
                let is_named = |path: &Arc<str>| names(path, label.key(), label.value());
                removed.iter().any(is_named) && !running.iter().any(is_named)
            });
            if is_gone && !known.has_ended {
                known.has_ended = true;
                known.gauge.set(NO_VALUE);
            }
        }
    }
}

fn is_of_component(label: &str) -> bool {
    label == COMPONENT || CLASSES.iter().any(|(class, _)| *class == label)
}

/// Counts of a removed component stay. Those with fractions are set as gauges.
fn is_count(key: &Key) -> bool {
    find(key.name()).is_some_and(|described| described.kind == MetricKind::FractionCounter)
}

/// Whether a label names the component with this path (`processors::batch@metrics`).
fn names(path: &str, label: &str, value: &str) -> bool {
    if label == COMPONENT {
        return path == value;
    }
    let Some((_, section)) = CLASSES.iter().find(|(class, _)| *class == label) else {
        return false;
    };
    let Some(id) = path.strip_prefix(section) else {
        return false;
    };
    path == value || id.split_once('@').map_or(id, |(id, _)| id) == value
}

/// Notes the gauges that components register.
pub(super) struct Noting<R> {
    pub(super) gauges: Arc<ComponentGauges>,
    pub(super) inner: R,
}

impl<R: Recorder> Recorder for Noting<R> {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.inner.register_counter(key, metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.gauges
            .gauge(key, || self.inner.register_gauge(key, metadata))
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.inner.register_histogram(key, metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::recorder;
    use super::*;

    fn paths(paths: &[&str]) -> Vec<Arc<str>> {
        paths.iter().copied().map(Arc::from).collect()
    }

    #[test]
    fn gauges_of_removed_components_end_and_begin_again() {
        let (inner, page) = recorder("[]");
        let gauges = Arc::<ComponentGauges>::default();
        let noting = Noting {
            gauges: gauges.clone(),
            inner,
        };
        metrics::with_local_recorder(&noting, || {
            let queue = || metrics::gauge!("otelcol_exporter_queue_size", "exporter" => "otlp/a");
            queue().set(7.0);
            metrics::gauge!("otelcol_exporter_queue_size", "exporter" => "otlp").set(1.0);
            metrics::gauge!("tidegate_held_items", "component" => "processors::batch@metrics").set(2.0);
            metrics::gauge!("tidegate_aggregate_series", "processor" => "batch").set(3.0);
            let removed = paths(&["exporters::otlp/a", "processors::batch@metrics"]);
            gauges.end(&removed, &paths(&["exporters::otlp", "processors::batch@logs"]));
            let all = || {
                [
                    page.series("otelcol_exporter_queue_size"),
                    page.series("tidegate_held_items"),
                    page.series("tidegate_aggregate_series"),
                ]
            };
            let value = |label: &str, value| vec![(label.to_owned(), value)];
            let others = value("processor=\"batch\"", 3.0);
            let otlp = value("exporter=\"otlp\"", 1.0);
            assert_eq!(
                all(),
                [otlp, Vec::new(), others],
                "an id that also runs elsewhere stays"
            );
            queue().increment(1.0);
            let mut queues = page.series("otelcol_exporter_queue_size");
            queues.sort_by(|a, b| a.0.cmp(&b.0));
            assert_eq!(queues[1], ("exporter=\"otlp/a\"".to_owned(), 1.0));
        });
    }
}
