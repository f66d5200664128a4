// SPDX-License-Identifier: Apache-2.0

//! Input of events: each source folds them by kind into arrays, and reads add the sums to the cells.

mod succession;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use super::Table;
use super::cell::CellRef;
use super::targets::{CellTarget, Targets};
use crate::fold::{BucketSets, BucketTable, Folded, Folds};
use crate::rule::Op;
use crate::stream_tracker::Rejection;
use crate::streams::lock;
use crate::{Events, Instrument, Number, Schema, Source, SourceId, TimestampAnomaly, UnixNanos, clock};

/// The bytes of a kind of a source, estimated: its meaning, its targets and its folds. When the kinds of all sources
/// take half of the bound for series, no further source is taken in until some have left.
const KIND_BYTES: usize = 300;

/// The result of a batch of events.
#[derive(Clone, Debug, Default)]
pub struct Absorbed {
    /// Events that are part of the state.
    pub absorbed: usize,
    /// Events with values that can't be.
    pub invalid: usize,
    /// Events without room.
    pub limited: usize,
    /// Events whose time is too far ahead.
    pub future: usize,
    /// Events that no rule takes.
    pub unmatched: Option<Events>,
}

/// The state of a source of events.
#[derive(Debug)]
pub(super) struct SourceState {
    source: Arc<Source>,
    schema: Arc<Schema>,
    /// By kind, the cells that its events change. `member` of a target is, of sums that may fall, its place in `given`,
    /// and of histograms the id of its buckets.
    targets: Vec<Targets>,
    /// The amounts added so far to sums that may fall: the table subtracts them when the source leaves.
    given: Vec<Number>,
    /// By kind, the fate of its events; separate from the targets because each event reads it.
    fates: Vec<Fate>,
    folds: Folds,
    /// Whether every kind is taken in, so that a batch need not be looked through.
    takes_all: bool,
    /// Whether events of its latest batch lay too far ahead and were not taken in.
    is_ahead: bool,
    seen: UnixNanos,
    /// Removed by a sweep: it is no longer used.
    gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Taken,
    Unmatched,
    NoRoom,
}

impl Table {
    /// Takes in events. A source is known from its first batch on, even an empty one.
    pub fn absorb(&self, events: &Events) -> Absorbed {
        if events.kinds.len() != events.values.len() {
            self.reject(Rejection::Invalid, events.len());
            return Absorbed {
                invalid: events.len(),
                ..Absorbed::default()
            };
        }
        let absorbed = loop {
            let Some(state) = self.source(&events.source) else {
                break Absorbed {
                    limited: events.len(),
                    ..Absorbed::default()
                };
            };
            if let Some(absorbed) = self.absorb_into(&mut lock(&state), events) {
                break absorbed;
            }
        };
        self.reject(Rejection::Invalid, absorbed.invalid);
        self.reject(Rejection::Limit, absorbed.limited);
        self.reject(Rejection::Future, absorbed.future);
        if absorbed.absorbed > 0 {
            self.changed();
        }
        absorbed
    }

    /// The events that no rule takes, if there are any. Nothing is taken in; the source is known from now on.
    pub fn unmatched(&self, events: &Events) -> Option<Events> {
        loop {
            let state = self.source(&events.source)?;
            let state = &mut *lock(&state);
            if state.gone {
                continue;
            }
            self.plan(state, &events.schema, events.observed);
            return if state.takes_all {
                None
            } else {
                state.unmatched(events)
            };
        }
    }

    /// `None`: a sweep has let the source go in the meantime.
    fn absorb_into(&self, state: &mut SourceState, events: &Events) -> Option<Absorbed> {
        if state.gone {
            return None;
        }
        self.plan(state, &events.schema, events.observed);
        state.seen = state.seen.max(events.observed);
        let is_taken = |kind| state.fate(kind) == Fate::Taken;
        let settled = self.limits.future.apply(events, is_taken);
        let (events, future) = settled.as_ref().map_or((events, 0), |(kept, cut)| (kept, *cut));
        self.note_ahead(state, future > 0);
        let absorbed = if state.takes_all || state.takes(events) {
            state.fold(events, 0, None)
        } else {
            state.fold_taken(events)
        };
        Some(Absorbed { future, ..absorbed })
    }

    /// Notes whether a source's clock is too far ahead, and reports it once.
    fn note_ahead(&self, state: &mut SourceState, is_ahead: bool) {
        if std::mem::replace(&mut state.is_ahead, is_ahead) == is_ahead || !is_ahead {
            return;
        }
        let mut cursor = self.cells.cursor();
        let mut targets = state.each_target();
        let series = targets.find_map(|target| Some(cursor.get(target.cell)?.series.clone()));
        self.anomalies.note(TimestampAnomaly::Ahead, series.as_ref());
    }

    fn source(&self, source: &Arc<Source>) -> Option<Arc<Mutex<SourceState>>> {
        if let Some(state) = self.sources().get(&source.id) {
            return Some(state.clone());
        }
        let mut sources = self.sources.write().unwrap_or_else(PoisonError::into_inner);
        let is_full = sources.len() >= self.limits.sources
            || self.kinds_of_sources.load(Relaxed).saturating_mul(KIND_BYTES) >= self.max_bytes() / 2;
        if is_full && !sources.contains_key(&source.id) {
            return None;
        }
        let state = sources.entry(source.id).or_insert_with(|| {
            Arc::new(Mutex::new(SourceState {
                source: source.clone(),
                schema: Arc::default(),
                targets: Vec::new(),
                given: Vec::new(),
                fates: Vec::new(),
                folds: Folds::default(),
                takes_all: true,
                is_ahead: false,
                seen: 0,
                gone: false,
            }))
        });
        Some(state.clone())
    }

    /// Compiles the rules for the kinds that are new in `schema`.
    fn plan(&self, state: &mut SourceState, schema: &Arc<Schema>, now: UnixNanos) {
        if Arc::ptr_eq(&state.schema, schema) {
            return;
        }
        let new = schema.kinds.len().saturating_sub(state.targets.len());
        self.kinds_of_sources.fetch_add(new, Relaxed);
        state.folds.grow(schema.kinds.len());
        state.targets.reserve_exact(new);
        state.fates.reserve_exact(new);
        for index in state.targets.len()..schema.kinds.len() {
            let (targets, fate) = self.plan_kind(state, schema, index, now);
            state.takes_all &= fate == Fate::Taken;
            state.targets.push(targets);
            state.fates.push(fate);
        }
        if schema.kinds.len() >= state.schema.kinds.len() {
            state.schema = schema.clone();
        }
        self.changed();
    }

    fn plan_kind(
        &self,
        state: &mut SourceState,
        schema: &Schema,
        index: usize,
        now: UnixNanos,
    ) -> (Targets, Fate) {
        let mut targets = Targets::default();
        let mut fate = Fate::Unmatched;
        let (Some(kind), Ok(number)) = (schema.kinds.get(index), u16::try_from(index)) else {
            return (targets, fate);
        };
        let crowded = self.is_crowded_kind(index);
        for (rule, tracker) in self.rules.iter().zip(&self.match_trackers) {
            let Some(output) = rule.of_events(&state.source, kind) else {
                continue;
            };
            tracker.note_match(
                &state.source.resource,
                &[&kind.attributes, &state.source.attributes],
            );
            match self.cell(rule, output, crowded, 0, now) {
                Some((cell, op)) => {
                    let mut target = self.target(cell, op);
                    let bounds = self.prepare(&target, rule.zero.then_some(now));
                    state.enter(number, &mut target, bounds);
                    targets.push(target);
                    fate = Fate::Taken;
                }
                None if fate == Fate::Unmatched => fate = Fate::NoRoom,
                None => {}
            }
        }
        state.keep(number, &targets);
        (targets, fate)
    }

    /// Makes a cell show its 0 if it should, and gives its bounds if it takes observations.
    fn prepare(&self, to: &CellTarget, zero: Option<UnixNanos>) -> Option<Arc<BucketTable>> {
        let mut cursor = self.cells.cursor();
        let cell = cursor.get(to.cell)?;
        if let Some(now) = zero {
            cell.state.show_zero(clock::wall(now));
        }
        let bounds = cell.state.bounds().filter(|_| to.op == Op::Observe)?;
        Some(Arc::new(BucketTable::new(bounds)))
    }

    /// Adds the folded sums to the cells.
    pub(super) fn flush(&self) {
        let sources: Vec<_> = self.sources().values().cloned().collect();
        for state in sources {
            let state = &mut *lock(&state);
            if !state.folds.is_clean() {
                self.flush_source(state);
            }
        }
    }

    fn flush_source(&self, state: &mut SourceState) {
        let (targets, given, seen) = (&state.targets, &mut state.given, state.seen);
        let mut cursor = self.cells.cursor();
        state.folds.drain(|kind, folded: Folded, sets: &mut BucketSets| {
            for target in targets.get(kind).into_iter().flat_map(|targets| targets.iter()) {
                let given = given.get_mut(target.member as usize);
                if let Some(given) = given.filter(|_| target.op == Op::UpDown) {
                    *given = given.plus(folded.sum);
                }
                if let Some(cell) = cursor.get(target.cell) {
                    let buckets = match target.op {
                        Op::Observe => sets.counts(target.member),
                        _ => &[],
                    };
                    cell.seen = cell.seen.max(seen);
                    let arrived = clock::wall(cell.seen);
                    cell.state
                        .apply_folded(target.op, target.member, &folded, buckets, arrived);
                }
            }
        });
    }

    /// Keeps the series of live sources alive, and removes the sources that have left.
    pub(super) fn sweep_sources(&self, now: UnixNanos) {
        let sources: Vec<_> = self.sources().values().cloned().collect();
        for shared in sources {
            self.streams.still(|| self.sweep_source(&mut lock(&shared), now));
        }
    }

    /// Removes a source of events now, even if its lease still holds.
    pub fn let_go(&self, source: SourceId) {
        let shared = self.sources().get(&source).cloned();
        if let Some(shared) = shared {
            self.streams.still(|| self.part_from(&mut lock(&shared)));
        }
    }

    fn sweep_source(&self, state: &mut SourceState, now: UnixNanos) {
        if state.source.lease.is_alive(now) {
            self.flush_source(state);
            self.touch_source(state, now);
        } else {
            self.part_from(state);
        }
    }

    fn part_from(&self, state: &mut SourceState) {
        self.flush_source(state);
        self.leave_source(state);
        let mut all = self.sources.write().unwrap_or_else(PoisonError::into_inner);
        all.remove(&state.source.id);
    }

    fn touch_source(&self, state: &SourceState, now: UnixNanos) {
        let mut cursor = self.cells.cursor();
        for target in state.each_target() {
            if let Some(cell) = cursor.get(target.cell) {
                cell.seen = cell.seen.max(now);
            }
        }
    }

    fn leave_source(&self, state: &mut SourceState) {
        let mut cursor = self.cells.cursor();
        for target in state.each_target() {
            let Some(cell) = cursor.get(target.cell) else {
                continue;
            };
            match target.op {
                Op::UpDown => {
                    let given = state.given(target);
                    cell.state.add(Number::ZERO.minus(given), cell.state.time);
                }
                Op::Member => cell.state.leave(target.member),
                _ => {}
            }
        }
        self.kinds_of_sources.fetch_sub(state.targets.len(), Relaxed);
        state.targets.clear();
        state.gone = true;
        self.changed();
    }
}

impl SourceState {
    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    pub(super) fn is_ahead(&self) -> bool {
        self.is_ahead
    }

    /// Prepares the state that a target needs beside the folds of its kind.
    fn enter(&mut self, kind: u16, target: &mut CellTarget, bounds: Option<Arc<BucketTable>>) {
        match (target.op, bounds) {
            (Op::UpDown, _) => {
                target.member = self.given.len() as u32;
                self.given.push(Number::ZERO);
            }
            (Op::Observe, Some(bounds)) => target.member = self.folds.observe(kind, bounds),
            _ => {}
        }
    }

    /// Prepares the folds of a new kind for the needs of its targets.
    fn keep(&mut self, kind: u16, targets: &[CellTarget]) {
        let all = |wanted: [Op; 2]| targets.iter().all(|target| wanted.contains(&target.op));
        if all([Op::Add, Op::UpDown]) {
            return;
        }
        if all([Op::Last, Op::Member]) {
            self.folds.keep_last(kind);
        } else {
            self.folds.detail(kind.into());
        }
    }

    fn each_target(&self) -> impl Iterator<Item = &CellTarget> {
        self.targets.iter().flat_map(|targets| targets.iter())
    }

    /// The source, and how many of its kinds end in some series.
    pub(super) fn count(&self) -> (Arc<Source>, usize) {
        let fed = self.targets.iter().filter(|targets| !targets.is_empty());
        (self.source.clone(), fed.count())
    }

    /// The number of its kinds that feed this series.
    pub(super) fn feeds(&self, at: CellRef) -> usize {
        let feeds = |targets: &&Targets| targets.iter().any(|target| target.cell == at);
        self.targets.iter().filter(feeds).count()
    }

    fn given(&self, target: &CellTarget) -> Number {
        let given = self.given.get(target.member as usize);
        given.copied().unwrap_or(Number::ZERO)
    }

    /// Each amount that it has added to a sum that may fall.
    pub(super) fn each_given(&self, mut each: impl FnMut(CellRef, Number)) {
        for target in self.each_target().filter(|target| target.op == Op::UpDown) {
            each(target.cell, self.given(target));
        }
    }

    fn fold(&mut self, events: &Events, limited: usize, unmatched: Option<Events>) -> Absorbed {
        let kinds = &self.schema.kinds;
        let falls = |kind: usize| {
            kinds
                .get(kind)
                .is_none_or(|kind| kind.instrument != Instrument::Counter)
        };
        let invalid = self.folds.add(events, falls);
        Absorbed {
            absorbed: events.len() - invalid,
            invalid,
            limited,
            unmatched,
            future: 0,
        }
    }

    /// The fate of the events of a kind. The folds count the events of a kind outside of the schema.
    fn fate(&self, kind: u16) -> Fate {
        self.fates.get(usize::from(kind)).copied().unwrap_or(Fate::Taken)
    }

    /// Whether all of these are taken in, as is usual also where some kinds are not.
    fn takes(&self, events: &Events) -> bool {
        events.kinds.iter().all(|kind| self.fate(*kind) == Fate::Taken)
    }

    /// Sorts out a batch some of whose events are not taken in.
    fn fold_taken(&mut self, events: &Events) -> Absorbed {
        let fate = |kind| self.fate(kind);
        let limited = events
            .kinds
            .iter()
            .filter(|kind| fate(**kind) == Fate::NoRoom)
            .count();
        let taken = select(events, |kind| fate(kind) == Fate::Taken);
        let unmatched = self.unmatched(events);
        self.fold(&taken, limited, unmatched)
    }

    fn unmatched(&self, events: &Events) -> Option<Events> {
        let unmatched = select(events, |kind| self.fate(kind) == Fate::Unmatched);
        Some(unmatched).filter(|unmatched| !unmatched.is_empty())
    }
}

/// The events whose kind `keep` wants.
fn select(events: &Events, keep: impl Fn(u16) -> bool) -> Events {
    events.select(|at| events.kinds.get(at).is_some_and(|kind| keep(*kind)))
}
