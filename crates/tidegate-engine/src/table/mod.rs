// SPDX-License-Identifier: Apache-2.0

//! Tables: the store of all series.
//!
//! A table takes in events and points by its rules, and has one cell per output series. For each source it tracks the
//! position of each stream (`points`, by `session`), and folded sums not yet added (`events`). Readers use the cells in
//! place, without a copy.

mod cell;
mod events;
mod explain;
mod fairness;
mod folded;
mod holdings;
mod limits;
mod lookup;
mod points;
mod saved;
mod session;
mod sets;
mod source_registry;
mod state;
mod succession;
mod targets;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cell::{Caps, CellRef, Cells};
pub use events::Absorbed;
pub use explain::{SeriesExplanation, SeriesSource, SourceList, SourceStatus};
use folded::Folded;
pub use holdings::{Count, Holdings, holdings};
pub use limits::{Limits, Overflow, Stats};
pub use lookup::{LookupResult, SeriesReader, SlotId};
use points::InputStream;
pub use points::Outcome;
pub use saved::{Frozen, Restored};
pub use session::Session;
use source_registry::SourceRegistry;
use state::SeriesState;

use crate::MatchTracker;
use crate::lease::nanos;
use crate::restored::RestoredStates;
use crate::rule::{Op, Output, Rule};
use crate::saved::StreamId;
use crate::stream_tracker::{Collision, Rejection};
use crate::streams::{Streams, lock};
use crate::{Bounds, Composite, Reading, Series, SourceId, TimestampAnomalies, UnixNanos, clock};

/// Overflow series may take one eighth of the others' bound in addition: one series for each metric, if its name is
/// short.
const OVERFLOW_SHARE: usize = 8;

/// The bytes of an input stream of points, estimated: its state, its index entries and its timer.
const STREAM_BYTES: usize = size_of::<InputStream>() + 160;

/// The number of sweeps over the sources of events in one expiry time.
const SWEEPS: u64 = 4;

#[derive(Debug, Default)]
struct Counters {
    version: AtomicU64,
    overflowed: [AtomicU64; Overflow::ALL.len()],
    refused_quantiles: AtomicU64,
    expired: AtomicU64,
    next_sweep: AtomicU64,
    rejected: [AtomicU64; Rejection::ALL.len()],
    colliding: [AtomicU64; Collision::ALL.len()],
    adds_streams: AtomicBool,
}

type SourceStates = HashMap<SourceId, Arc<Mutex<events::SourceState>>>;

/// State by output identity.
#[derive(Debug)]
pub struct Table {
    owner: Arc<str>,
    rules: Box<[Rule]>,
    /// By rule: which of its names have matched.
    match_trackers: Box<[MatchTracker]>,
    limits: Limits,
    /// The memory that other users leave.
    bounds: Arc<Bounds>,
    /// Whether no source may take more than half.
    is_shared: bool,
    lateness_ns: u64,
    cells: Arc<Cells>,
    streams: Arc<Streams<InputStream>>,
    /// Identifies streams to other processes, if the state is saved.
    identify: Option<fn(&Series) -> StreamId>,
    /// Streams that a previous process saved, or that come from a replaced table, until they are seen again. The second
    /// member is the time at which they were last seen.
    restored: Arc<RestoredStates<(InputStream, UnixNanos)>>,
    folded: Mutex<Folded>,
    /// The last stream that collided, by its first output series.
    collided: Mutex<Option<(Collision, Arc<Series>)>>,
    anomalies: TimestampAnomalies,
    registry: Mutex<SourceRegistry>,
    sources: RwLock<SourceStates>,
    kinds_of_sources: AtomicUsize,
    composites: RwLock<Vec<Arc<Composite>>>,
    /// Names the sources of series for explanations, if the table does not know them.
    source_list: Mutex<Option<Arc<dyn SourceList>>>,
    /// The names of the rules in explanations.
    rule_names: Vec<Arc<str>>,
    counters: Counters,
    /// Whether `restored` has streams of a replaced table, by their keys.
    has_predecessor: AtomicBool,
    /// The table that has taken over the state.
    successor: Mutex<Option<Arc<Table>>>,
}

impl Table {
    /// An empty table that takes in what `rules` say. `owner` is the component that writes it
    /// (`processors::aggregate@metrics/vendor`).
    pub fn new(owner: impl Into<Arc<str>>, rules: Vec<Rule>, limits: Limits) -> Self {
        Self {
            owner: owner.into(),
            match_trackers: rules
                .iter()
                .map(|rule| MatchTracker::new(&rule.grouping))
                .collect(),
            rules: rules.into(),
            limits,
            bounds: Arc::default(),
            is_shared: false,
            lateness_ns: nanos(limits.lateness),
            cells: Arc::new(Cells::new(nanos(limits.expiry))),
            streams: Arc::new(Streams::new(limits.streams, nanos(limits.expiry))),
            identify: None,
            restored: Arc::default(),
            folded: Mutex::new(Folded::new(limits.streams)),
            collided: Mutex::default(),
            anomalies: TimestampAnomalies::default(),
            registry: Mutex::default(),
            sources: RwLock::default(),
            kinds_of_sources: AtomicUsize::new(0),
            composites: RwLock::default(),
            source_list: Mutex::default(),
            rule_names: Vec::new(),
            counters: Counters::default(),
            has_predecessor: AtomicBool::new(false),
            successor: Mutex::default(),
        }
    }

    /// Whether a new table with these rules and limits would do the same.
    pub fn has_rules_and_limits(&self, rules: &[Rule], limits: Limits) -> bool {
        *self.rules == *rules && self.limits == limits
    }

    /// The rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The match tracker of a rule, by its index.
    pub fn match_tracker(&self, rule: usize) -> Option<&MatchTracker> {
        self.match_trackers.get(rule)
    }

    /// Lets the state be saved and restored: `identify` gives a stream's identity, which is the same in every process.
    #[must_use]
    pub fn identified_by(self, identify: fn(&Series) -> StreamId) -> Self {
        Self {
            identify: Some(identify),
            ..self
        }
    }

    /// Names the rules in explanations, in their order.
    #[must_use]
    pub fn with_rule_names(self, rule_names: Vec<Arc<str>>) -> Self {
        Self { rule_names, ..self }
    }

    /// Bounds the memory of the table. `bounds` may change at any time.
    #[must_use]
    pub fn bounded_by(self, bounds: Arc<Bounds>) -> Self {
        Self { bounds, ..self }
    }

    fn max_bytes(&self) -> usize {
        match self.limits.bytes {
            usize::MAX => self.bounds.bytes(),
            bytes => bytes,
        }
    }

    /// The component that writes it.
    pub fn owner(&self) -> &Arc<str> {
        &self.owner
    }

    /// Shows every live series to `each`, those of attached composites too. Holds no lock for longer than a bounded
    /// run of series; `each` must not call this table.
    pub fn read(&self, now: UnixNanos, each: &mut dyn FnMut(Reading<'_>)) {
        self.flush();
        self.cells
            .each(|cell| lookup::reading(cell).into_iter().for_each(&mut *each));
        for composite in &self.composites() {
            composite.show(now, each);
        }
    }

    /// Changes whenever a series came, went or got another value. (Composites change by time alone and don't count.)
    pub fn version(&self) -> u64 {
        self.counters.version.load(Relaxed)
    }

    /// The number of output series, without those of composites.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it has added up cumulative streams, so that a total of it has parts of several senders.
    pub fn adds_streams(&self) -> bool {
        self.counters.adds_streams.load(Relaxed)
    }

    /// Its contents, and the input that it could not take in.
    pub fn stats(&self) -> Stats {
        Stats {
            series: self.len(),
            streams: self.streams.len(),
            sources: self.sources().len(),
            bytes: self.bytes(),
            overflowed_streams: std::array::from_fn(|at| self.counters.overflowed[at].load(Relaxed)),
            refused_quantiles: self.counters.refused_quantiles.load(Relaxed),
            expired_series: self.counters.expired.load(Relaxed),
            colliding_streams: std::array::from_fn(|at| self.counters.colliding[at].load(Relaxed)),
            rejected: std::array::from_fn(|at| self.counters.rejected[at].load(Relaxed)),
        }
    }

    /// The output series of a stream that turned out since the last call to be reported by several processes.
    pub fn take_collided(&self) -> Option<(Collision, Arc<Series>)> {
        lock(&self.collided).take()
    }

    /// The streams whose points were refused because of their times.
    pub fn timestamp_anomalies(&self) -> &TimestampAnomalies {
        &self.anomalies
    }

    /// Shows `composite` to readers of this table as a gauge.
    pub fn attach(&self, composite: Arc<Composite>) {
        let mut composites = self.composites.write().unwrap_or_else(PoisonError::into_inner);
        composites.push(composite);
    }

    /// Bytes of output series and input streams, estimated.
    fn bytes(&self) -> usize {
        self.cells.bytes() + self.streams.len() * STREAM_BYTES
    }

    /// Removes state without a sign of life for the expiry time. Call it about once a second; it looks only at state
    /// that may be due.
    pub fn expire(&self, now: UnixNanos) {
        let (next_sweep, due) = (&self.counters.next_sweep, self.counters.next_sweep.load(Relaxed));
        let next = now.saturating_add(self.sweep_ns());
        if now >= due && next_sweep.compare_exchange(due, next, Relaxed, Relaxed).is_ok() {
            self.sweep_sources(now);
        }
        self.sweep_streams(now);
        let gone = self.cells.expire(now);
        self.counters.expired.fetch_add(gone as u64, Relaxed);
        if gone > 0 {
            self.changed();
        }
    }

    fn sweep_ns(&self) -> u64 {
        const LONGEST_NS: u64 = 10_000_000_000;
        (nanos(self.limits.expiry) / SWEEPS).min(LONGEST_NS)
    }

    /// The interval at which the series of live sources of events are confirmed, in nanoseconds; 0 without such
    /// sources.
    pub fn confirmed_every_ns(&self) -> u64 {
        if self.sources().is_empty() {
            0
        } else {
            self.sweep_ns()
        }
    }

    fn changed(&self) {
        self.counters.version.fetch_add(1, Relaxed);
    }

    fn reject(&self, rejection: Rejection, items: usize) {
        self.counters.rejected[rejection as usize].fetch_add(items as u64, Relaxed);
    }

    fn sources(&self) -> std::sync::RwLockReadGuard<'_, SourceStates> {
        self.sources.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn composites(&self) -> Vec<Arc<Composite>> {
        self.composites
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The cell that `rule` feeds with `output`, or the overflow cell of its metric if a cap is reached or `crowded`.
    /// `None`: neither has room. The result also has the operation of the input.
    fn cell(
        &self,
        rule: &Rule,
        output: Output,
        crowded: bool,
        start: UnixNanos,
        now: UnixNanos,
    ) -> Option<(CellRef, Op)> {
        let max_bytes = self.max_bytes();
        let of_streams = self.streams.len() * STREAM_BYTES;
        let caps = Caps {
            series: self.limits.series,
            per_metric: self.limits.series_per_metric,
            bytes: if self.bounds.is_tight() {
                0
            } else {
                max_bytes.saturating_sub(of_streams)
            },
        };
        let make = |series: &Series| SeriesState::new(series.metric.data, rule, start, clock::wall(now));
        let mut why = Overflow::Source;
        if !crowded {
            match self.cells.resolve(output.series.clone(), caps, make, now) {
                Ok(at) => return Some((at, output.op)),
                Err(overflow) => why = overflow,
            }
        }
        self.counters.overflowed[why as usize].fetch_add(1, Relaxed);
        self.overflow_cell(rule, output, now)
    }

    /// The overflow cell of the metric of `output`, and the operation of the input on it. `None`: it has no room.
    fn overflow_cell(&self, rule: &Rule, output: Output, now: UnixNanos) -> Option<(CellRef, Op)> {
        let max_bytes = self.max_bytes();
        let output = output.overflow();
        let caps = Caps {
            series: self.limits.series_with_overflow(),
            per_metric: usize::MAX,
            // Names of metrics may be as long as anything else.
            bytes: max_bytes.saturating_add(max_bytes / OVERFLOW_SHARE),
        };
        let make = |series: &Series| SeriesState::new(series.metric.data, rule, 0, clock::wall(now));
        let at = self.cells.resolve(output.series, caps, make, now).ok()?;
        (output.op != Op::Keep).then_some((at, output.op))
    }
}

#[cfg(test)]
mod tests;
