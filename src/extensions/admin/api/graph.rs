// SPDX-License-Identifier: Apache-2.0

//! The graph with its counters: totals since the start, for clients that compute rates.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{Api, ApiFailure, PageContent};
use crate::batch::Signal;
use crate::built::VERSION;
use crate::component::graph_metrics::{NodeMetrics, ReceiverMetrics};
use crate::component::overview::{Overview, PipelineOverview};
use crate::component::shared::{Health, Phase};
use crate::component::{Balance, Reason};
use crate::config::Class;
use crate::net::pages::Request;

impl Api {
    /// The pipelines, and the counters of all components.
    pub(super) fn graph(&self, _: &Request) -> Result<PageContent, ApiFailure> {
        let overview = self.overview()?;
        let queues = self.shared.queues.list();
        let by_exporter: HashMap<(&str, Signal), Value> = queues
            .iter()
            .map(|queue| {
                let level =
                    json!({"used": queue.used.load(Relaxed), "capacity": queue.capacity.load(Relaxed)});
                ((&*queue.exporter, queue.signal), level)
            })
            .collect();
        let entries = overview.metrics.entries.iter().map(receiver);
        let nodes = overview.metrics.nodes.iter().map(|one| {
            let queue = match one.class {
                Class::Exporter => by_exporter.get(&(&*one.id, one.signal)),
                _ => None,
            };
            node(one, &one.ledger.balance(), queue)
        });
        let components: Vec<Value> = entries.chain(nodes).collect();
        let limit = self.shared.memory.limit();
        Ok(json!({
            "time": seconds(SystemTime::now()),
            "started": seconds(overview.built),
            "instance": self.instance,
            "version": VERSION,
            "health": health(&self.shared.health),
            "memory": {
                "usedBytes": self.shared.memory.used_bytes(),
                "limitBytes": (limit < usize::MAX / 2).then_some(limit),
            },
            "pipelines": overview.pipelines.iter().map(pipeline).collect::<Vec<_>>(),
            "components": components,
            "extensions": &overview.extensions,
        })
        .into())
    }

    /// The overview of the components, once the graph is built.
    pub(super) fn overview(&self) -> Result<std::sync::Arc<Overview>, ApiFailure> {
        self.shared.overview.get().ok_or_else(|| ApiFailure {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "unavailable",
            why: "the gateway is starting".to_owned(),
            is_too_much: false,
        })
    }
}

/// Seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn health(health: &Health) -> Value {
    let reason = match health.phase() {
        Phase::Starting => Some("the gateway is starting".to_owned()),
        Phase::Stopping => Some("the gateway is stopping".to_owned()),
        Phase::Ready => health.unready(),
    };
    json!({"ready": reason.is_none(), "reason": reason, "troubles": health.troubles()})
}

fn pipeline(pipeline: &PipelineOverview) -> Value {
    json!({
        "id": pipeline.id,
        "receivers": pipeline.receivers,
        "processors": pipeline.processors,
        "exporters": pipeline.exporters,
    })
}

fn receiver(entry: &ReceiverMetrics) -> Value {
    json!({
        "class": Class::Receiver.as_str(),
        "id": &*entry.receiver,
        "path": format!("receivers::{}", entry.receiver),
        "pipeline": null,
        "signal": entry.signal.name(),
        "accepted": entry.counts.accepted.load(Relaxed),
        "refused": entry.counts.refused.load(Relaxed),
        "failed": entry.counts.failed.load(Relaxed),
    })
}

fn node(node: &NodeMetrics, balance: &Balance, queue: Option<&Value>) -> Value {
    let dropped = Reason::ALL.into_iter().zip(balance.dropped);
    let dropped = dropped.filter(|(_, items)| *items > 0);
    let dropped: Map<String, Value> = dropped
        .map(|(reason, items)| (reason.name().to_owned(), items.into()))
        .collect();
    json!({
        "class": node.class.as_str(),
        "id": &*node.id,
        "path": &*node.path,
        "pipeline": node.pipeline.as_deref(),
        "signal": node.signal.name(),
        "entered": balance.entered,
        "made": balance.made,
        "restored": balance.restored,
        "left": balance.left,
        "absorbed": balance.absorbed,
        "dropped": dropped,
        "held": balance.held(),
        "queue": queue,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::component::Ledger;

    #[test]
    fn a_node_shows_its_ledger_exactly() {
        let ledger = Arc::<Ledger>::default();
        ledger.enter(10);
        ledger.leave(3);
        ledger.drop_items(Reason::QueueFull, 2);
        let one = NodeMetrics {
            class: Class::Exporter,
            id: "otlp/a".into(),
            path: "exporters::otlp/a".into(),
            pipeline: None,
            signal: Signal::Logs,
            ledger,
        };
        let shown = node(&one, &one.ledger.balance(), None);
        assert_eq!(
            [&shown["entered"], &shown["left"], &shown["held"]],
            [&json!(10), &json!(3), &json!(5)]
        );
        assert_eq!(shown["dropped"], json!({"queue_full": 2}));
        assert_eq!(shown["queue"], Value::Null);
    }
}
