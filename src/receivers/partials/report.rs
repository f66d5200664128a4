// SPDX-License-Identifier: Apache-2.0

//! The state of a replica in the gateway's own metrics and in the status of the cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_cluster::{
    ClusterLeader, DeltaStats, LeaderStats, PageReader, ProducerName, ProducerStatus, ReaderStats,
    RefusedMessages, ReplicaState, ReplicaStatus,
};
use tidegate_engine::{MergedStats, UnixNanos};

use super::shown::ShownSeries;
use crate::component::{Cluster, Context};

/// The most producers that metrics name, and that the status lists. The others count as one.
const MAX_NAMED: usize = 1000;

/// The label of the producers that are not named.
const OTHERS: &str = "others";

pub(super) fn report(
    base: &Context,
    cluster: &Cluster,
    reader: &mut PageReader,
    leader: &ClusterLeader,
    shown: &ShownSeries,
    leads: bool,
    now: UnixNanos,
) {
    let status = reader.status(now);
    let merged = reader.merged();
    let (merged_stats, series, bytes) = (merged.stats(), merged.len(), merged.bytes());
    let producers: Vec<_> = reader.producers(now).collect();
    let metrics = ReplicaMetrics(base.id.to_string());
    metrics.messages(&reader.stats(), &merged_stats, shown);
    let engine = cluster.engine().map(|engine| engine.status()).unwrap_or_default();
    metrics.store(engine.refused);
    metrics.unreadable(&producers);
    metrics.state(&status, series, bytes);
    metrics.leader(&leader.stats(), leads);
    metrics.deltas(leader.delta_stats());
    cluster.warn(
        &base.path,
        incomplete(cluster.name(), &status, &reader.silent(now)),
    );
    let mismatch = reader.mismatch().map(|mismatch| mismatch.to_string());
    let refused = reader.refused_partitions().map(|refused| refused.to_string());
    base.shared.health.trouble(&base.path, refused.clone());
    base.shared
        .notices
        .set(&base.path, mismatch.into_iter().chain(refused).collect());
    cluster.report(
        &base.path,
        Some(json!({
            "kind": "replica",
            "state": state_name(status.state),
            "lag_seconds": status.lag_ns.map(seconds),
            "sources": {"reporting": status.reporting, "expected": status.expected},
            "leading": leads,
            "series": series,
            "retained_records": reader.retained(),
            "producers": producers.iter().take(MAX_NAMED).map(producer).collect::<Vec<_>>(),
            "missing": missing(reader.expected(), &producers),
        })),
    );
}

/// Producers that one warning names. The others are counted.
const NAMED_IN_WARNING: usize = 5;

/// Why the merged series are incomplete; `None`: they are complete, or readers do not get them.
fn incomplete(cluster: &str, status: &ReplicaStatus, silent: &[&ProducerName]) -> Option<String> {
    if status.state != ReplicaState::Partial {
        return None;
    }
    let (reporting, expected) = (status.reporting, status.expected);
    if silent.is_empty() {
        return Some(format!(
            "the cluster `{cluster}` is partial: all {expected} producers report, but some of their messages are missing"
        ));
    }
    let names: Vec<_> = silent
        .iter()
        .take(NAMED_IN_WARNING)
        .map(|name| name.as_str())
        .collect();
    let more = match silent.len().saturating_sub(NAMED_IN_WARNING) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "the cluster `{cluster}` is partial: {reporting} of {expected} producers report, without {}{more}",
        names.join(", ")
    ))
}

/// The names of expected producers that no message is known of, of the first ones.
fn missing<'a>(expected: &'a BTreeSet<ProducerName>, producers: &[ProducerStatus]) -> Vec<&'a str> {
    let known: BTreeSet<_> = producers.iter().map(|status| &status.name).collect();
    let missing = expected.iter().filter(|name| !known.contains(name));
    missing.take(MAX_NAMED).map(ProducerName::as_str).collect()
}

fn producer(status: &ProducerStatus) -> Value {
    json!({
        "name": status.name.as_str(),
        "reporting": status.is_reporting,
        "runs": status.runs,
        "age_seconds": status.age_ns.map(seconds),
        "unreadable": status.counts.poisoned,
        "newer": status.counts.newer,
    })
}

fn state_name(state: ReplicaState) -> &'static str {
    match state {
        ReplicaState::CatchingUp => "catching_up",
        ReplicaState::Fresh => "fresh",
        ReplicaState::Partial => "partial",
        ReplicaState::Stale => "stale",
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// The label of the metrics.
struct ReplicaMetrics(String);

impl ReplicaMetrics {
    fn label(&self) -> [(&'static str, String); 1] {
        [("receiver", self.0.clone())]
    }

    fn messages(&self, stats: &ReaderStats, merged: &MergedStats, shown: &ShownSeries) {
        let labels = self.label();
        metrics::counter!("tidegate_cluster_pages_total", &labels).absolute(stats.pages);
        metrics::counter!("tidegate_cluster_records_total", &labels).absolute(stats.records);
        metrics::counter!("tidegate_cluster_losses_total", &labels).absolute(stats.losses);
        for (reason, count) in [
            ("foreign", stats.foreign),
            ("room", stats.refused),
            ("panic", stats.failed),
            ("unknown_composite", stats.unknown_composites),
            ("partitions", stats.refused_partitions),
            ("invalid", merged.invalid),
            ("mixed_kinds", merged.mixed_kinds),
            ("lease_ended", merged.lease_ended),
            ("final_run", merged.final_runs),
            ("producer_limit", merged.producer_limits),
            ("limit", merged.limits),
            ("table", shown.refused()),
        ] {
            self.refused(reason, count);
        }
    }

    /// The messages that did not reach the store of this replica.
    fn store(&self, refused: RefusedMessages) {
        self.refused("store_full", refused.full);
        self.refused("store_too_large", refused.too_large);
        self.refused("store_invalid", refused.invalid);
    }

    fn refused(&self, reason: &'static str, count: u64) {
        let labels = [("receiver", self.0.clone()), ("reason", reason.to_owned())];
        metrics::counter!("tidegate_cluster_refused_total", &labels).absolute(count);
    }

    /// The messages that are not readable, of the first producers that have sent some.
    fn unreadable(&self, producers: &[ProducerStatus]) {
        let is_bad = |status: &&ProducerStatus| status.counts.poisoned + status.counts.newer > 0;
        let (mut poisoned, mut newer) = (0, 0);
        for (at, status) in producers.iter().filter(is_bad).enumerate() {
            if at < MAX_NAMED {
                self.unreadable_of(status.name.as_str(), status.counts.poisoned, status.counts.newer);
            } else {
                poisoned += status.counts.poisoned;
                newer += status.counts.newer;
            }
        }
        if poisoned + newer > 0 {
            self.unreadable_of(OTHERS, poisoned, newer);
        }
    }

    fn unreadable_of(&self, producer: &str, poisoned: u64, newer: u64) {
        for (reason, count) in [("unreadable", poisoned), ("newer_version", newer)] {
            let labels = [
                ("receiver", self.0.clone()),
                ("producer", producer.to_owned()),
                ("reason", reason.to_owned()),
            ];
            metrics::counter!("tidegate_cluster_unreadable_messages_total", &labels).absolute(count);
        }
    }

    fn state(&self, status: &ReplicaStatus, series: usize, bytes: usize) {
        let labels = self.label();
        let is_ready = matches!(status.state, ReplicaState::Fresh | ReplicaState::Partial);
        metrics::gauge!("tidegate_cluster_ready", &labels).set(f64::from(u8::from(is_ready)));
        metrics::gauge!("tidegate_cluster_series", &labels).set(series as f64);
        metrics::gauge!("tidegate_cluster_bytes", &labels).set(bytes as f64);
        if let Some(lag) = status.lag_ns {
            metrics::gauge!("tidegate_cluster_lag_seconds", &labels).set(seconds(lag));
        }
        for (state, count) in [("expected", status.expected), ("reporting", status.reporting)] {
            let labels = [("receiver", self.0.clone()), ("state", state.to_owned())];
            metrics::gauge!("tidegate_cluster_producers", &labels).set(count as f64);
        }
    }

    fn deltas(&self, stats: DeltaStats) {
        for (result, count) in [
            ("won", stats.won),
            ("lost", stats.lost),
            ("failed", stats.failed),
            ("followed", stats.followed),
        ] {
            let labels = [("receiver", self.0.clone()), ("result", result.to_owned())];
            metrics::counter!("tidegate_cluster_delta_claims_total", &labels).absolute(count);
        }
        metrics::counter!("tidegate_cluster_delta_handovers_total", &self.label()).absolute(stats.handovers);
        let gap = Duration::from_nanos(stats.gap_ns).as_secs();
        metrics::counter!("tidegate_cluster_delta_gap_seconds_total", &self.label()).absolute(gap);
    }

    fn leader(&self, stats: &LeaderStats, leads: bool) {
        let labels = self.label();
        metrics::gauge!("tidegate_cluster_leader", &labels).set(f64::from(u8::from(leads)));
        metrics::counter!("tidegate_cluster_restored_records_total", &labels).absolute(stats.restored);
        metrics::counter!("tidegate_cluster_folded_runs_total", &labels).absolute(stats.purged);
        for (reason, count) in [
            ("store", stats.failed),
            ("too_large", stats.too_large),
            ("unreadable", stats.unreadable),
        ] {
            let labels = [("receiver", self.0.clone()), ("reason", reason.to_owned())];
            metrics::counter!("tidegate_cluster_failed_folds_total", &labels).absolute(count);
        }
    }
}
