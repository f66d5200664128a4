// SPDX-License-Identifier: Apache-2.0

//! The graph with its counters: totals since the start, for clients that compute rates.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};

use super::{Api, ApiFailure, PageContent};
use crate::batch::Signal;
use crate::built::VERSION;
use crate::component::graph_metrics::{NodeMetrics, ReceiverMetrics};
use crate::component::overview::{Overview, PipelineOverview};
use crate::component::queue_level::QueueLevel;
use crate::component::send_times::SendTimes;
use crate::component::shared::{Health, Phase};
use crate::component::targets::TargetStates;
use crate::component::{Balance, Reason};
use crate::config::Class;
use crate::net::pages::Request;

impl Api {
    /// The pipelines, and the counters of all components.
    pub(super) fn graph(&self, _: &Request) -> Result<PageContent, ApiFailure> {
        let overview = self.overview()?;
        let queues = self.shared.queues.list();
        let now = Instant::now();
        let entries = overview.metrics.entries.iter().map(receiver);
        let nodes = overview.metrics.nodes.iter().map(|one| {
            let own = match one.class {
                Class::Exporter => queues_of(&queues, &one.id, one.signal),
                _ => Vec::new(),
            };
            node(one, &one.ledger.balance(), &own, now)
        });
        let components: Vec<Value> = entries.chain(nodes).collect();
        let limit = self.shared.memory.limit();
        Ok(json!({
            "time": seconds(SystemTime::now()),
            "started": seconds(overview.built),
            "instance": self.instance,
            "version": VERSION,
            "health": health(&self.shared.health),
            "process": {"cpuSeconds": cpu_seconds()},
            "memory": {
                "usedBytes": self.shared.memory.used_bytes(),
                "limitBytes": (limit < usize::MAX / 2).then_some(limit),
            },
            "pipelines": overview.pipelines.iter().map(pipeline).collect::<Vec<_>>(),
            "components": components,
            "targets": self.target_states(),
            "extensions": &overview.extensions,
        })
        .into())
    }

    /// The numbers of scrape targets by their last scrape.
    fn target_states(&self) -> Value {
        let mut states = TargetStates::default();
        for pool in self.shared.scrape_pools.list() {
            pool.count(&mut states);
        }
        let TargetStates { up, down, unknown } = states;
        json!({"up": up, "down": down, "unknown": unknown})
    }

    /// Whether the gateway is ready, its troubles, and its version.
    pub(super) fn health(&self, _: &Request) -> Result<PageContent, ApiFailure> {
        let mut page = health(&self.shared.health);
        page["version"] = VERSION.into();
        Ok(page.into())
    }

    /// The overview of the components, once the graph is built.
    pub(super) fn overview(&self) -> Result<Arc<Overview>, ApiFailure> {
        self.shared.overview.get().ok_or_else(|| ApiFailure {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "unavailable",
            why: "the gateway is starting".to_owned(),
            is_too_much: false,
        })
    }
}

/// The processor time of the process, user and system.
fn cpu_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// A queue of an exporter, with the endpoint if the exporter has one for each endpoint.
type OwnQueue<'a> = (Option<&'a str>, &'a QueueLevel);

/// The queues of an exporter for a signal.
fn queues_of<'a>(all: &'a [Arc<QueueLevel>], id: &str, signal: Signal) -> Vec<OwnQueue<'a>> {
    let of_signal = all.iter().filter(|queue| queue.signal == signal);
    of_signal
        .filter_map(|queue| match queue.exporter.strip_prefix(id)? {
            "" => Some((None, &**queue)),
            rest => Some((Some(rest.strip_prefix('@')?), &**queue)),
        })
        .collect()
}

/// The level of the queues together, and of each endpoint with its latency.
fn queue(own: &[OwnQueue<'_>], now: Instant) -> Value {
    if own.is_empty() {
        return Value::Null;
    }
    let (mut used, mut capacity, mut refused, mut endpoints) = (0_u64, 0_u64, 0_u64, Vec::new());
    for one in own {
        let (endpoint, queue) = one;
        let (own_used, own_capacity) = (queue.used.load(Relaxed), queue.capacity.load(Relaxed));
        used = used.saturating_add(own_used);
        capacity = capacity.saturating_add(own_capacity);
        refused = refused.saturating_add(queue.refused.load(Relaxed));
        if let Some(endpoint) = endpoint {
            endpoints.push(json!({
                "endpoint": endpoint,
                "used": own_used,
                "capacity": own_capacity,
                "latency": latency(slice::from_ref(one), now),
            }));
        }
    }
    json!({"used": used, "capacity": capacity, "refused": refused, "endpoints": endpoints})
}

/// Quantiles of recent attempts to send, in seconds.
fn latency(own: &[OwnQueue<'_>], now: Instant) -> Value {
    let quantiles = SendTimes::quantiles(own.iter().map(|(_, queue)| &queue.sends), now);
    quantiles.map_or(
        Value::Null,
        |[p50, p99]| json!({"p50": p50.as_secs_f64(), "p99": p99.as_secs_f64()}),
    )
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

fn node(node: &NodeMetrics, balance: &Balance, own: &[OwnQueue<'_>], now: Instant) -> Value {
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
        "queue": queue(own, now),
        "latency": latency(own, now),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        let shown = node(&one, &one.ledger.balance(), &[], Instant::now());
        assert_eq!(
            [&shown["entered"], &shown["left"], &shown["held"]],
            [&json!(10), &json!(3), &json!(5)]
        );
        assert_eq!(shown["dropped"], json!({"queue_full": 2}));
        assert_eq!(shown["queue"], Value::Null);
        assert_eq!(shown["latency"], Value::Null);
    }

    #[test]
    fn queues_of_endpoints_count_for_their_exporter() {
        let level = |exporter: &str, used: u64| {
            Arc::new(QueueLevel {
                exporter: exporter.to_owned(),
                signal: Signal::Logs,
                used: used.into(),
                capacity: 10.into(),
                refused: used.into(),
                sends: SendTimes::default(),
            })
        };
        let all = [
            level("loadbalancing@a:1", 3),
            level("loadbalancing@b:1", 5),
            level("loadbalancing/x@c:1", 1),
            level("otlp", 2),
        ];
        let now = Instant::now();
        let balanced = queues_of(&all, "loadbalancing", Signal::Logs);
        assert_eq!(
            queue(&balanced, now),
            json!({"used": 8, "capacity": 20, "refused": 8, "endpoints": [
                {"endpoint": "a:1", "used": 3, "capacity": 10, "latency": null},
                {"endpoint": "b:1", "used": 5, "capacity": 10, "latency": null},
            ]})
        );
        all[1].sends.record(Duration::from_millis(500), now);
        let endpoints = &queue(&balanced, now)["endpoints"];
        assert_eq!(endpoints[0]["latency"], Value::Null);
        let p50 = &endpoints[1]["latency"]["p50"];
        assert!(p50.as_f64().is_some_and(|seconds| seconds >= 0.5), "{p50}");
        let plain = queues_of(&all, "otlp", Signal::Logs);
        assert_eq!(
            queue(&plain, now),
            json!({"used": 2, "capacity": 10, "refused": 2, "endpoints": []})
        );
        all[3].sends.record(Duration::from_millis(3), now);
        let shown = latency(&plain, now);
        assert!(
            shown["p99"].as_f64().is_some_and(|seconds| seconds >= 0.003),
            "{shown}"
        );
        assert!(queues_of(&all, "otlp", Signal::Traces).is_empty());
    }
}
