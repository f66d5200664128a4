// SPDX-License-Identifier: Apache-2.0

//! The series of a store, with the names and labels of NIXL's `prometheus_mp` exporter.

use std::sync::Arc;

use tidegate_engine::{Attributes, Data, Metric, Resource, Scope, Series, Temporality};
use tidegate_ring::{KINDS, KNOWN_KINDS, NixlKind, StoreIdentity};

/// The series that a kind of event feeds.
pub(super) struct KindSeries {
    pub(super) total: Arc<Series>,
    pub(super) last: Option<Arc<Series>>,
    pub(super) distribution: Option<Arc<Series>>,
}

/// All series of a store by kind.
pub(super) fn all(resource: &Arc<Resource>, identity: &StoreIdentity) -> Vec<KindSeries> {
    let common = attributes(identity);
    KINDS
        .iter()
        .take(KNOWN_KINDS)
        .map(|kind| of_kind(kind, resource, &common))
        .collect()
}

fn attributes(identity: &StoreIdentity) -> Attributes {
    let rank = identity
        .local_rank
        .as_ref()
        .map(|rank| ("local_rank", rank.clone()));
    [
        ("hostname", identity.hostname.clone()),
        ("agent_name", identity.agent_name.clone()),
        ("pid", identity.pid.to_string()),
        ("agent_instance", identity.instance.to_string()),
    ]
    .into_iter()
    .chain(rank)
    .collect()
}

fn of_kind(kind: &NixlKind, resource: &Arc<Resource>, common: &Attributes) -> KindSeries {
    let own: Attributes = [("category", kind.category.name())]
        .into_iter()
        .chain(kind.status.map(|s| ("status", s)))
        .collect();
    let attributes = common.merge(&own);
    let series = |name: &str, data| {
        Arc::new(Series {
            resource: resource.clone(),
            scope: Arc::new(Scope::default()),
            metric: Arc::new(Metric {
                name: name.into(),
                description: "".into(),
                unit: kind.unit.into(),
                data,
                metadata: Attributes::default(),
            }),
            attributes: attributes.clone(),
        })
    };
    let temporality = Temporality::Cumulative;
    let counter = Data::Sum {
        monotonic: true,
        temporality,
    };
    KindSeries {
        total: series(kind.total.name, counter),
        last: kind.last.map(|last| series(last.name, Data::Gauge)),
        distribution: kind
            .histogram
            .map(|histogram| series(histogram.name, Data::Histogram { temporality })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_nixls_own_exporter() {
        let identity = StoreIdentity {
            pid: 7,
            instance: 0,
            agent_name: "a".into(),
            hostname: "h".into(),
            local_rank: None,
        };
        let all = all(&Arc::default(), &identity);
        let last: Vec<_> = all
            .iter()
            .filter_map(|series| series.last.as_ref())
            .map(|s| s.metric.name.to_string())
            .collect();
        let expected = [
            "agent_tx_last_bytes",
            "agent_rx_last_bytes",
            "agent_memory_registered_last_bytes",
            "agent_memory_deregistered_last_bytes",
            "agent_xfer_time",
            "agent_xfer_post_time",
        ];
        assert_eq!(last, expected);
        let histograms: Vec<_> = all
            .iter()
            .filter_map(|series| series.distribution.as_ref())
            .map(|s| s.metric.name.to_string())
            .collect();
        assert_eq!(histograms, ["agent_xfer_time_us", "agent_xfer_post_time_us"]);
        let errors = all
            .iter()
            .filter(|series| &*series.total.metric.name == "agent_errors")
            .count();
        assert_eq!(errors, 12);
    }
}
