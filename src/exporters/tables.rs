// SPDX-License-Identifier: Apache-2.0

//! The tables that an exporter reads: those of earlier components, and one of its own for all other data.

use std::sync::{Arc, Once};

use parking_lot::Mutex;
use tidegate_engine::{Data, Key, Lease, Limits, Outcome, Point, PointSample, Rule, Series, Session, Table};
use tokio::sync::watch;

use crate::batch::wire::{
    self,
    points::{PointVisitor, WirePoint},
};
use crate::batch::{Batch, Encoded, Payload};
use crate::component::{
    ComponentError, Context, Flow, Ledger, Reason, TableHandle, TableSuccession, unix_now,
};
use crate::prom::catalog::Exposes;

/// The reason for dropping a point of a sum of deltas that may fall, with the remedy.
const FALLING: &str =
    "a sum of deltas that may fall has no total; put an `aggregate` processor before the exporter";

/// The tables of an exporter.
pub(super) struct ExporterTables {
    /// The table of data from no other table.
    pub(super) own: Arc<Table>,
    /// The tables of earlier components.
    pub(super) live: Mutex<Vec<TableHandle>>,
    succession: TableSuccession,
    /// The owners of tables that it showed until the last change. They push their last snapshots.
    former: Mutex<Vec<Arc<str>>>,
    state: watch::Sender<State>,
}

/// Whether an exporter has the tables of earlier components. A reload starts it before the components that it reads.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Waiting,
    Shown,
    /// It stops, and never got them.
    Ended,
}

impl Exposes for ExporterTables {
    fn live(&self) -> Vec<Arc<Table>> {
        let mut live = self.live.lock();
        live.retain(|handle| !handle.is_gone());
        live.iter().filter_map(TableHandle::table).collect()
    }

    fn own(&self) -> &Arc<Table> {
        &self.own
    }
}

impl ExporterTables {
    /// Begins without the tables of earlier components.
    pub(super) fn new(own: Arc<Table>) -> Self {
        Self {
            own,
            live: Mutex::default(),
            succession: TableSuccession::default(),
            former: Mutex::default(),
            state: watch::Sender::new(State::Waiting),
        }
    }

    /// The same with the newest table of the exporters that a reload replaces, if its limits are the same. Otherwise the own
    /// table is empty, and the start takes over the state of theirs. `replaced`: the newest is first.
    pub(super) fn replacing(base: &Context, limits: Limits, replaced: Vec<Arc<Table>>) -> Self {
        let rules = vec![Rule::newest()];
        let newest = replaced.first();
        if let Some(same) = newest.filter(|table| table.has_rules_and_limits(&rules, limits)) {
            return Self::new(same.clone());
        }
        let own = Table::new(base.path.clone(), rules, limits);
        let own = own.bounded_by(base.shared.memory.bounds_of_tables());
        Self {
            succession: TableSuccession::of(replaced),
            ..Self::new(Arc::new(own))
        }
    }

    /// Takes over the state of the replaced instances. None has pushes under way.
    pub(super) async fn take_over(&self, base: &Context) -> Result<(), ComponentError> {
        let taken = self.succession.take_over(&self.own).await;
        let taken = taken.map_err(|error| {
            let message = format!("the series of the replaced instance can't be taken over: {error}");
            base.error(message)
        })?;
        if let Some(taken) = taken {
            tracing::info!(
                component = &*base.path,
                series = taken.series,
                in_overflow = taken.overflowed,
                without_room = taken.outdated,
                "the series of the page go on under the new limits"
            );
        }
        Ok(())
    }

    /// Notes that the exporter stops. Pushes that end later belong to its successor.
    pub(super) fn note_stop(&self) {
        self.succession.note_stop();
        self.end_waits();
    }

    /// The table that takes data in: the own one, or that of the instance that has taken over its state.
    fn receiving(&self) -> Arc<Table> {
        let successor = self.succession.successor(&self.own);
        successor.unwrap_or_else(|| self.own.clone())
    }

    /// Waits for the tables of earlier components. Returns false if the exporter stops before.
    pub(super) async fn wait_until_shown(&self) -> bool {
        let mut states = self.state.subscribe();
        let state = states.wait_for(|state| *state != State::Waiting).await;
        // The sender lives as long as `self`.
        state.is_ok_and(|state| *state == State::Shown)
    }

    /// Whether a reader waits for the tables of earlier components.
    #[cfg(test)]
    pub(super) fn are_awaited(&self) -> bool {
        self.state.receiver_count() > 0
    }

    /// Ends all waits for the tables.
    fn end_waits(&self) {
        self.state.send_if_modified(|state| {
            let waits = *state == State::Waiting;
            if waits {
                *state = State::Ended;
            }
            waits
        });
    }

    /// The tables that can be read now: the own one is the last.
    pub(super) fn all(&self) -> Vec<Arc<Table>> {
        self.live().into_iter().chain([self.own.clone()]).collect()
    }

    pub(super) fn show(&self, handles: Vec<TableHandle>) {
        let former = std::mem::replace(&mut *self.live.lock(), handles);
        *self.former.lock() = former.iter().map(|handle| handle.owner().clone()).collect();
        self.state.send_replace(State::Shown);
    }

    /// Whether the batch only repeats a table that the exporter reads itself.
    fn has_table_of(&self, batch: &Batch) -> bool {
        let is_attached = |owner: &Arc<str>| {
            let is_live = self.live.lock().iter().any(|handle| handle.owner() == owner);
            is_live || self.former.lock().contains(owner)
        };
        batch.snapshot_of.as_ref().is_some_and(is_attached)
    }
}

/// Takes points that the table of an exporter is not for.
pub(super) trait TakesPoints: Send + Sync {
    /// The outcome of a point that it takes; `None`: it is for the table. `key` stands for the series as it is spelled.
    fn take(
        &self,
        data: Data,
        key: Key,
        sample: PointSample<'_>,
        identify: &mut dyn FnMut() -> Option<Arc<Series>>,
    ) -> Option<Outcome>;
}

/// Puts batches into the own table of an exporter.
pub(super) struct TableSink {
    tables: Arc<ExporterTables>,
    /// Takes points before the table does.
    first: Option<Arc<dyn TakesPoints>>,
    ledger: Arc<Ledger>,
    exporter: Arc<str>,
    /// Whether the log names a sum of deltas that may fall.
    told_of_falling: Once,
}

impl TableSink {
    pub(super) fn new(tables: Arc<ExporterTables>, ledger: Arc<Ledger>, exporter: Arc<str>) -> Self {
        Self {
            tables,
            first: None,
            ledger,
            exporter,
            told_of_falling: Once::new(),
        }
    }

    /// Offers points to another taker before the table.
    pub(super) fn offering_first(self, first: Option<Arc<dyn TakesPoints>>) -> Self {
        Self { first, ..self }
    }

    pub(super) fn consume(&self, batch: Batch, flow: &mut Flow) {
        if self.tables.has_table_of(&batch) {
            return self.ledger.absorb(batch.items());
        }
        match batch.payload {
            Payload::Points(points) => self.observe(&points.points, batch.lease, flow),
            Payload::Events(events) => {
                let absorbed = self.tables.receiving().absorb(&events);
                self.ledger.absorb(absorbed.absorbed);
                self.ledger.drop_items(Reason::Invalid, absorbed.invalid);
                self.ledger.drop_items(Reason::Limit, absorbed.limited);
                self.ledger.drop_future(absorbed.future, flow);
                let unmatched = absorbed.unmatched.map_or(0, |events| events.len());
                self.ledger.drop_items(Reason::Unsupported, unmatched);
            }
            Payload::Encoded(encoded) => self.observe_encoded(&encoded, flow),
        }
    }

    fn observe(&self, points: &[Point], lease: Option<Arc<Lease>>, flow: &mut Flow) {
        let own = self.tables.receiving();
        let mut session = own.session(unix_now()).of_leased(lease);
        for point in points {
            let taken = self.first.as_ref().and_then(|first| {
                let sample = PointSample {
                    start: point.start,
                    time: point.time,
                    value: &point.value,
                    exemplars: &point.exemplars,
                };
                let (data, key) = (point.series.metric.data, Key::of(&point.series));
                first.take(data, key, sample, &mut || Some(point.series.clone()))
            });
            let outcome = taken.unwrap_or_else(|| session.observe(point));
            self.count_outcome(outcome, &point.series.metric.name, flow);
        }
    }

    fn observe_encoded(&self, encoded: &Encoded, flow: &mut Flow) {
        let own = self.tables.receiving();
        let mut reading = Reading {
            sink: self,
            session: own.session(unix_now()),
            data: Data::Gauge,
            seen: 0,
            flow,
        };
        // Unreadable data ends the walk.
        let _ = wire::points::visit(encoded, &mut reading);
        let unread = encoded.items().saturating_sub(reading.seen);
        self.ledger.drop_items(Reason::Invalid, unread);
    }

    fn count_outcome(&self, outcome: Outcome, metric: &str, flow: &mut Flow) {
        if self.ledger.count_outcome(outcome, metric, flow) {
            self.ledger.drop_items(Reason::Unsupported, 1);
            flow.reject(1, || format!("`{metric}`: {FALLING}"));
            self.told_of_falling.call_once(|| {
                let exporter = &*self.exporter;
                tracing::warn!(exporter, metric, "dropped: {FALLING}");
            });
        }
    }
}

/// Reads the points of a request into the exporter's own table.
struct Reading<'a> {
    sink: &'a TableSink,
    session: Session<'a>,
    /// The data of the metric that is being read.
    data: Data,
    seen: usize,
    flow: &'a mut Flow,
}

impl PointVisitor for Reading<'_> {
    fn wants(&mut self, _: &str) -> bool {
        true
    }

    fn wants_data(&mut self, data: Data) -> bool {
        self.data = data;
        true
    }

    fn point(&mut self, point: &WirePoint<'_>) -> bool {
        let mut identify = || (point.series)();
        let first = self.sink.first.as_ref();
        let taken = first.and_then(|first| first.take(self.data, point.key, point.sample, &mut identify));
        let outcome =
            taken.unwrap_or_else(|| self.session.observe_as(point.key, point.sample, &mut identify));
        self.sink.count_outcome(outcome, point.name, self.flow);
        self.seen += 1;
        true
    }
}
