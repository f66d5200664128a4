// SPDX-License-Identifier: Apache-2.0

//! The component types that have each of the gateway's own metrics, by the beginning of its name.

use super::catalogue::{CATALOGUE, Described, MetricKind};
use crate::config::Class;

/// A component type with such metrics. Without a type, all of the class.
type Owner = (Class, Option<&'static str>);

/// The beginnings of names. The longest one counts.
const OWNERS: &[(&str, &[Owner])] = &[
    ("otelcol_receiver_", &[(Class::Receiver, None)]),
    ("otelcol_processor_", &[(Class::Processor, None)]),
    ("otelcol_processor_batch_", &[(Class::Processor, Some("batch"))]),
    ("otelcol_processor_filter_", &[(Class::Processor, Some("filter"))]),
    (
        "otelcol_processor_memory_limiter_",
        &[(Class::Processor, Some("memory_limiter"))],
    ),
    ("otelcol_exporter_", &[(Class::Exporter, None)]),
    ("tidegate_exporter_failing", &[(Class::Exporter, None)]),
    ("rpc.server.", &[(Class::Receiver, Some("otlp"))]),
    ("rpc.client.", &[(Class::Exporter, Some("otlp"))]),
    (
        "http.server.",
        &[
            (Class::Receiver, Some("otlp")),
            (Class::Receiver, Some("prometheusremotewrite")),
        ],
    ),
    ("http.client.", &[(Class::Exporter, Some("otlphttp"))]),
    ("tidegate_aggregate_", &[(Class::Processor, Some("aggregate"))]),
    ("tidegate_composite_", &[(Class::Processor, Some("composite"))]),
    (
        "tidegate_composite_page_",
        &[(Class::Extension, Some("composite_page"))],
    ),
    ("tidegate_webhook_", &[(Class::Processor, Some("composite"))]),
    ("tidegate_answers_", &[(Class::Extension, Some("admin"))]),
    ("tidegate_queries_", &[(Class::Extension, Some("admin"))]),
    ("tidegate_history_", &[(Class::Extension, Some("admin"))]),
    ("tidegate_watch_", &[(Class::Extension, Some("admin"))]),
    ("tidegate_rule_", &[(Class::Extension, Some("rules"))]),
    ("tidegate_alert", &[(Class::Extension, Some("rules"))]),
    ("tidegate_cluster_", &[(Class::Extension, Some("cluster"))]),
    ("tidegate_storage_", &[(Class::Extension, Some("file_storage"))]),
    ("tidegate_nixl_", &[(Class::Receiver, Some("nixl"))]),
    ("tidegate_nixl_mp_", &[(Class::Receiver, Some("nixl_mp"))]),
    ("tidegate_otlp_", &[(Class::Receiver, Some("otlp"))]),
    ("tidegate_kafka_", &[(Class::Receiver, Some("kafka"))]),
    ("tidegate_nats_", &[(Class::Receiver, Some("nats"))]),
    ("tidegate_nats_duplicate_", &[(Class::Exporter, Some("nats"))]),
    ("tidegate_scrape", &[(Class::Receiver, Some("prometheus"))]),
    ("tidegate_shm_", &[(Class::Receiver, Some("shm"))]),
    ("tidegate_uds_", &[(Class::Receiver, Some("uds"))]),
    ("tidegate_partials_", &[(Class::Exporter, Some("partials"))]),
    ("tidegate_plugin_", &[(Class::Exporter, Some("plugin"))]),
    (
        "tidegate_loadbalancing_",
        &[(Class::Exporter, Some("loadbalancing"))],
    ),
    ("tidegate_prometheus_", &[(Class::Exporter, Some("prometheus"))]),
    (
        "tidegate_remote_write_",
        &[
            (Class::Receiver, Some("prometheusremotewrite")),
            (Class::Exporter, Some("prometheusremotewrite")),
        ],
    ),
    (
        "tidegate_k8sattributes_",
        &[(Class::Processor, Some("k8sattributes"))],
    ),
    (
        "tidegate_kubernetes_",
        &[
            (Class::Receiver, Some("prometheus")),
            (Class::Processor, Some("k8sattributes")),
        ],
    ),
];

/// One of the gateway's own metrics, with the component types that have it.
#[derive(Clone, Copy, Debug)]
pub struct OwnMetric {
    /// Name as components use it.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Unit in UCUM, for example `By`.
    pub unit: &'static str,
    /// The lowest level of `service::telemetry::metrics::level` at which it exists.
    pub level: &'static str,
    /// Its meaning.
    pub help: &'static str,
    owners: &'static [Owner],
}

impl OwnMetric {
    /// Whether components of this type have the metric, alone or with all of their class.
    pub fn is_of(&self, class: Class, kind: &str) -> bool {
        self.is_of_class(class) || self.kinds().any(|owner| owner == (class, kind))
    }

    /// Whether all components of this class have the metric.
    pub fn is_of_class(&self, class: Class) -> bool {
        self.owners.contains(&(class, None))
    }

    /// The component types that have the metric, if it is not of a class or of the whole gateway.
    pub fn kinds(&self) -> impl Iterator<Item = (Class, &'static str)> + use<> {
        self.owners
            .iter()
            .filter_map(|(class, kind)| kind.map(|kind| (*class, kind)))
    }
}

impl From<&Described> for OwnMetric {
    fn from(described: &Described) -> Self {
        let fitting = OWNERS
            .iter()
            .filter(|(begin, _)| described.name.starts_with(begin));
        let longest = fitting.max_by_key(|(begin, _)| begin.len());
        Self {
            name: described.name,
            kind: match described.kind {
                MetricKind::Counter | MetricKind::FractionCounter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Histogram(_) => "histogram",
            },
            unit: described.unit,
            level: described.level.as_str(),
            help: described.help,
            owners: longest.map_or::<&[Owner], _>(&[], |(_, owners)| *owners),
        }
    }
}

/// All of the gateway's own metrics, in the order of the catalogue.
pub fn own_metrics() -> Vec<OwnMetric> {
    CATALOGUE.iter().map(OwnMetric::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_beginning_is_that_of_a_metric() {
        for (begin, _) in OWNERS {
            let owned = CATALOGUE
                .iter()
                .any(|described| described.name.starts_with(begin));
            assert!(owned, "{begin}");
        }
    }

    #[test]
    fn the_longest_beginning_counts() {
        let all = own_metrics();
        let of = |name: &str| *all.iter().find(|metric| metric.name == name).unwrap();
        let stores = of("tidegate_nixl_mp_stores");
        assert!(stores.is_of(Class::Receiver, "nixl_mp") && !stores.is_of(Class::Receiver, "nixl"));
        assert!(of("otelcol_receiver_accepted_spans").is_of(Class::Receiver, "nixl"));
        assert_eq!(of("otelcol_process_uptime").kinds().count(), 0);
    }
}
