// SPDX-License-Identifier: Apache-2.0

//! A cluster of gateways: the engine that its components share, and their reports for people.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tidegate_cluster::ClusterEngine;
use tidegate_engine::Table;

use super::unix_now;

/// A note that this replica leads counts for this long (2 s).
const LEADER_TERM: Duration = Duration::from_secs(2);

/// What exporters of deltas do with the contents of the merged table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum DeltaTurn {
    /// They keep their totals: the next turn covers the increases.
    #[default]
    Hold,
    /// They let go of the increases, which another replica exports.
    Follow,
    /// They export the increases.
    Export,
}

impl DeltaTurn {
    const ALL: [Self; 3] = [Self::Hold, Self::Follow, Self::Export];
}

/// An election of the replica that exports, beside the one in the store.
pub trait Election: Send + Sync {
    /// Notes whether this replica is able to lead. Its consent counts for a short time.
    fn stand(&self, is_able: bool);
    /// Whether this replica leads.
    fn is_leading(&self) -> bool;
    /// The status, for people.
    fn status(&self) -> Value;
}

/// A cluster that this gateway takes part in. An extension owns it, and components find it by the id of the extension.
pub struct Cluster {
    name: String,
    partitions: u16,
    /// Whether one store knows all messages.
    has_store: bool,
    engine: Mutex<Option<Arc<dyn ClusterEngine>>>,
    /// `None`: the store elects the leader.
    election: Mutex<Option<Arc<dyn Election>>>,
    /// Until when this replica leads, by the gateway's clock.
    leads_until: AtomicU64,
    /// Whether an exporter pushes deltas of the merged series.
    has_deltas: AtomicBool,
    /// The turn of these exporters, for the contents that are on their way to them.
    turn: AtomicU8,
    /// The tables that all replicas have, and how old they may be.
    merged: Mutex<Vec<(Weak<Table>, Duration)>>,
    /// The newest reports of the components, by path.
    reports: Mutex<BTreeMap<String, Value>>,
    /// Why the values of a component are incomplete, by path.
    warnings: Mutex<BTreeMap<String, String>>,
}

impl Cluster {
    /// A cluster whose engine has not started.
    pub fn new(name: &str, partitions: u16) -> Self {
        Self {
            name: name.to_owned(),
            partitions,
            has_store: true,
            engine: Mutex::default(),
            election: Mutex::default(),
            leads_until: AtomicU64::new(0),
            has_deltas: AtomicBool::new(false),
            turn: AtomicU8::new(DeltaTurn::Hold as u8),
            merged: Mutex::default(),
            reports: Mutex::default(),
            warnings: Mutex::default(),
        }
    }

    /// The same cluster, whose replicas have one store each.
    #[must_use]
    pub fn without_store(mut self) -> Self {
        self.has_store = false;
        self
    }

    /// Whether one store knows all messages.
    pub fn has_store(&self) -> bool {
        self.has_store
    }

    /// The name of the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of partitions of the cluster.
    pub fn partitions(&self) -> u16 {
        self.partitions
    }

    /// Sets the engine, which has started; `None`: it stops when no component uses it any more.
    pub fn set_engine(&self, engine: Option<Arc<dyn ClusterEngine>>) {
        let before = std::mem::replace(&mut *self.engine.lock(), engine);
        drop(before);
    }

    /// The engine; `None`: it does not run.
    pub fn engine(&self) -> Option<Arc<dyn ClusterEngine>> {
        self.engine.lock().clone()
    }

    /// Sets the election of the replica that exports; `None`: the store elects it.
    pub fn set_election(&self, election: Option<Arc<dyn Election>>) {
        let before = std::mem::replace(&mut *self.election.lock(), election);
        drop(before);
    }

    /// The election beside the store, if there is one.
    pub fn election(&self) -> Option<Arc<dyn Election>> {
        self.election.lock().clone()
    }

    /// Notes whether this replica leads now. Call it at least once a second.
    pub fn note_leading(&self, leads: bool) {
        let term = u64::try_from(LEADER_TERM.as_nanos()).unwrap_or(u64::MAX);
        let until = if leads { unix_now().saturating_add(term) } else { 0 };
        self.leads_until.store(until, Relaxed);
    }

    /// Whether this replica leads. Exporters that push ask this.
    pub fn is_leading(&self) -> bool {
        let is_noted = unix_now() < self.leads_until.load(Relaxed);
        // The note is up to 2 s old. An election knows the present, also after a suspension.
        is_noted && self.election().is_none_or(|election| election.is_leading())
    }

    /// Notes that an exporter pushes deltas of the merged series.
    pub fn note_deltas(&self) {
        self.has_deltas.store(true, Relaxed);
    }

    /// Whether an exporter pushes deltas of the merged series.
    pub fn has_deltas(&self) -> bool {
        self.has_deltas.load(Relaxed)
    }

    /// Sets the turn of exporters of deltas. Call it before a push of the merged table.
    pub fn set_turn(&self, turn: DeltaTurn) {
        self.turn.store(turn as u8, Relaxed);
    }

    /// The turn of exporters of deltas.
    pub fn turn(&self) -> DeltaTurn {
        let turn = self.turn.load(Relaxed);
        DeltaTurn::ALL.get(usize::from(turn)).copied().unwrap_or_default()
    }

    /// Notes a table that all replicas have. It may be up to `max_lag` older than that of another replica.
    pub fn note_merged(&self, table: &Arc<Table>, max_lag: Duration) {
        self.merged.lock().push((Arc::downgrade(table), max_lag));
    }

    /// The tables that all replicas have, each with its `max_lag`.
    pub fn merged(&self) -> Vec<(Arc<Table>, Duration)> {
        let mut merged = self.merged.lock();
        merged.retain(|(table, _)| table.strong_count() > 0);
        let tables = merged.iter();
        tables
            .filter_map(|(table, max_lag)| Some((table.upgrade()?, *max_lag)))
            .collect()
    }

    /// Sets the report of a component; `None`: it has stopped.
    pub fn report(&self, component: &str, report: Option<Value>) {
        let mut reports = self.reports.lock();
        match report {
            Some(report) => drop(reports.insert(component.to_owned(), report)),
            None => drop(reports.remove(component)),
        }
    }

    /// Sets why the values of a component are incomplete; `None`: they are complete, or it has stopped.
    pub fn warn(&self, component: &str, warning: Option<String>) {
        let mut warnings = self.warnings.lock();
        match warning {
            Some(warning) => drop(warnings.insert(component.to_owned(), warning)),
            None => drop(warnings.remove(component)),
        }
    }

    /// Why values of this cluster are incomplete, a sentence for each component.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().values().cloned().collect()
    }

    /// The status, for people.
    pub fn status(&self) -> Value {
        let engine = self.engine().map(|engine| engine.status()).unwrap_or_default();
        json!({
            "name": self.name,
            "partitions": self.partitions,
            "leading": self.is_leading(),
            "election": self.election().map(|election| election.status()),
            "engine": {
                "connected": engine.is_connected,
                "connections": engine.connections,
                "sent_bytes": engine.sent_bytes,
                "received_bytes": engine.received_bytes,
                "last_error": engine.last_error,
            },
            "components": *self.reports.lock(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_leads_from_its_note_until_the_next_one() {
        let cluster = Cluster::new("test", 1);
        assert!(!cluster.is_leading());
        cluster.note_leading(true);
        assert!(cluster.is_leading());
        cluster.note_leading(false);
        assert!(!cluster.is_leading());
    }

    #[test]
    fn the_status_has_the_reports_of_the_components_that_run() {
        let cluster = Cluster::new("test", 2);
        cluster.report("receivers::partials", Some(json!({"state": "fresh"})));
        assert_eq!(
            cluster.status()["components"]["receivers::partials"]["state"],
            "fresh"
        );
        cluster.report("receivers::partials", None);
        assert_eq!(cluster.status()["components"], json!({}));
        assert_eq!(cluster.status()["engine"]["connected"], false);
    }
}
