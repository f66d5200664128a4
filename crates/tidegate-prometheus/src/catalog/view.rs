// SPDX-License-Identifier: Apache-2.0

//! The Prometheus view of all series of all tables, with their recent past. Each gateway has one view.
//!
//! Series have the names and labels of the `prometheus` exporter that shows their table; other tables use its
//! defaults. Series are found by metric name and label values, so a query costs only as much as its series. Only
//! these are read. Every reader first learns the new series of the tables.

mod about;
mod asked;
mod borrowed;
mod ended;
mod entry;
mod exemplars;
mod expositions;
mod interner;
mod listed;
mod names;
mod ownership;
mod past;
mod patient;
mod reading;
mod select;
mod shared;
mod sources;
mod state;
mod styled;
mod targets;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tidegate_engine::{Table, UnixNanos, clock};
use tidegate_promql::{
    HistoryLimits, Instant as Answer, Labels, MAX_SAMPLES, Millis, Options, Patience, Query, Selection,
};

pub use self::about::About;
pub use self::asked::{Asked, BeforeHistory, QueryWarnings};
pub use self::borrowed::{Borrowed, HistoryPage, LOAN_SAMPLES, MergedTables, SeriesPosition};
pub use self::entry::HistoryRule;
use self::entry::ViewPass;
pub use self::exemplars::Accepted;
pub use self::expositions::Exposes;
use self::expositions::Exposition;
pub use self::listed::{Found, SeriesStats};
pub use self::past::{KeptPast, PastNeed, max_past_bytes_within};
pub use self::sources::Level;
use self::sources::unnamed;
pub use self::state::NamedTable;
use self::state::ViewState;
use super::{Newcomers, Senders};
use crate::Style;
use tidegate_pipeline::component::shared::Registry;
use tidegate_pipeline::component::{Account, Evaluate, Evaluation, Shared};
use tidegate_pipeline::watch::Watched;

/// Series that the sampler reads before it pauses: some ten microseconds.
const SLICE: usize = 256;

/// The time for which the sampler releases a lock that others wait for.
const YIELD: Duration = Duration::from_micros(100);

/// The time limit for the query of a composite.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most samples that a query may read under a memory limit in bytes.
pub fn max_samples_within(memory: usize) -> usize {
    /// Two queries at a time may have all they want, twice over while they compute, and take half of the memory.
    const BYTES: usize = 128;
    (memory / BYTES).clamp(1, MAX_SAMPLES)
}

/// The history limits before a component asks for a past. Levels that have ended take some of the bytes in any case.
fn no_past(memory: usize) -> HistoryLimits {
    HistoryLimits {
        interval_ms: 1000,
        span_ms: 0,
        max_bytes: max_past_bytes_within(memory),
    }
}

/// A view of the series of the gateway.
pub struct View {
    tables: Registry<Table>,
    composites: Registry<Watched>,
    expositions: Mutex<Vec<Exposition>>,
    /// The number of changes of `expositions`.
    exposed: AtomicU64,
    /// The exporter whose names count first.
    preferred: OnceLock<String>,
    /// The style of series that no exporter shows.
    plain: Arc<Style>,
    /// The past that is kept, if one is kept.
    past: OnceLock<KeptPast>,
    /// What readers need of the past.
    needs: Mutex<Vec<Weak<PastNeed>>>,
    senders: Arc<Senders>,
    /// The account whose limit bounds the samples of composite queries.
    memory: Arc<Account>,
    /// The arrivals of tables that `senders` already knows.
    attended: Mutex<Vec<(Weak<Table>, u64)>>,
    state: Mutex<ViewState>,
    /// The number of readers that wait for the state.
    waiting: AtomicUsize,
}

/// A time as queries count it.
pub fn millis(time: UnixNanos) -> Millis {
    Millis::try_from(time / 1_000_000).unwrap_or(Millis::MAX)
}

impl Evaluate for View {
    fn evaluate(&self, query: &Query, now: UnixNanos) -> Result<Evaluation, String> {
        let asked = self.ask(now, &self.selections_with_sources(query));
        let options = Options {
            patience: Patience::until(Instant::now() + PATIENCE),
            max_samples: max_samples_within(self.memory.limit()),
            ..Options::default()
        };
        let (answer, _) = query
            .instant_with(&asked, millis(clock::wall(now)), &options)
            .map_err(|error| error.to_string())?;
        let values = match answer {
            Answer::Scalar(number) => vec![(Labels::default(), number)],
            Answer::Vector(vector) => {
                let numbers = vector.iter();
                let numbers = numbers.map(|(labels, value)| Some((unnamed(labels), value.float()?)));
                let numbers: Option<_> = numbers.collect();
                numbers.ok_or("the query gives native histograms, which are not numbers")?
            }
            Answer::String(_) | Answer::Matrix(_) => {
                return Err("the query gives neither a number nor a vector".to_owned());
            }
        };
        let mut evaluation = Evaluation {
            values,
            collision: asked.query_warnings().collision(),
            ..Evaluation::default()
        };
        self.add_sources(query, now, &mut evaluation);
        Ok(evaluation)
    }

    fn names_of_gauge(&self, name: &str) -> Vec<String> {
        View::names_of_gauge(self, name)
    }
}

impl View {
    /// The one view of this gateway.
    pub fn of(shared: &Shared) -> Arc<Self> {
        let senders = Senders::of(shared);
        shared.parts.get(|| Self {
            tables: shared.tables.clone(),
            composites: shared.composites.clone(),
            expositions: Mutex::default(),
            exposed: AtomicU64::new(0),
            preferred: OnceLock::new(),
            plain: Arc::default(),
            past: OnceLock::new(),
            needs: Mutex::default(),
            senders,
            memory: shared.memory.clone(),
            attended: Mutex::default(),
            state: Mutex::new(ViewState::new(no_past(shared.memory.limit()))),
            waiting: AtomicUsize::new(0),
        })
    }

    fn has_past(&self) -> bool {
        self.past.get().is_some()
    }

    /// Reads what a query that is asked now needs, and gives what it is to be computed over.
    pub fn ask(&self, now: UnixNanos, selections: &[Selection]) -> Asked<'_> {
        // A query without selections waits for no lock.
        if selections.is_empty() {
            return self.recall();
        }
        let ended = self.state().ended;
        self.refresh(now, selections);
        Asked::new(self, Some((now, ended)))
    }

    /// Begins a query of the past, without reading the present.
    pub fn recall(&self) -> Asked<'_> {
        Asked::new(self, None)
    }

    fn state(&self) -> MutexGuard<'_, ViewState> {
        self.waiting.fetch_add(1, Relaxed);
        let state = self.state.lock();
        self.waiting.fetch_sub(1, Relaxed);
        state
    }

    fn pass(&self, now: UnixNanos, records: bool) -> ViewPass<'_> {
        ViewPass {
            style: &self.plain,
            senders: &self.senders,
            table: None,
            now,
            rules: self.past.get().map_or(&[], |past| past.rules.as_slice()),
            time: millis(clock::wall(now)),
            records,
        }
    }

    /// Reads every series, some at a time, and keeps what it sees as part of the past. The pass is spread over `spread`:
    /// a thread that needs the core for a moment gets it. `rest` waits; once it says false the pass is broken off.
    pub fn record(&self, now: UnixNanos, spread: Duration, rest: &mut dyn FnMut(Duration) -> bool) {
        let mut exposed = self.exposed.load(Relaxed);
        self.update_sources(now);
        let pass = self.pass(now, self.has_past());
        let limits = self.past_limits();
        let (arrived, total) = {
            let mut state = self.state();
            if let Some(limits) = limits {
                state.keep_for(limits.span_ms);
            }
            state.follow(pass.time);
            (state.arrived, state.len().max(1))
        };
        let (mut next, mut unrested) = (Some((0, 0)), 0);
        let mut begun = Instant::now();
        while let Some(from) = next {
            while self.waiting.load(Relaxed) > 0 {
                if !rest(YIELD) {
                    return;
                }
            }
            // Series that arrive after an exporter has started have their past under its names.
            let latest = self.exposed.load(Relaxed);
            if latest != exposed {
                exposed = latest;
                self.update_sources(now);
            }
            let step = self.state().read_some(from, SLICE, now, pass);
            next = step.map(|(next, _)| next);
            unrested += step.map_or(0, |(_, read)| read);
            // Many small tables and composites have one pause: one for each would take longer than the interval.
            if unrested >= SLICE && next.is_some() {
                let share = spread.mul_f64((unrested as f64 / total as f64).min(1.0));
                let pause = share.saturating_sub(begun.elapsed());
                if !pause.is_zero() && !rest(pause) {
                    return;
                }
                (unrested, begun) = (0, Instant::now());
            }
        }
        let ups = self.names_of_ups();
        let mut state = self.state();
        state.read = arrived;
        state.shared.forget_gone(pass.time);
        state.forget_ended(&ups, pass);
        let history = &state.shared.history;
        let refused = history.refused() + state.shared.ended.refused();
        metrics::gauge!("tidegate_history_bytes").set(history.bytes() as f64);
        metrics::gauge!("tidegate_history_series").set(history.len() as f64);
        metrics::counter!("tidegate_history_refused_series_total").absolute(refused);
    }

    /// Updates the sources and their series, without reading values.
    fn update_sources(&self, now: UnixNanos) {
        let mut state = self.state();
        // Listed under the lock: an older list must not replace a newer one.
        let tables = self.named_tables();
        state.update_sources(&tables, self.pass(now, false));
        // The lock must be free when the last reference to a table is dropped.
        drop(state);
        self.senders.tick(now);
    }

    /// Records the reports of resources without reading values. Call it about once a second if nothing is
    /// recorded.
    pub fn attend(&self, now: UnixNanos) {
        let mut attended = self.attended.lock();
        attended.retain(|(table, _)| table.strong_count() > 0);
        for NamedTable { table, .. } in self.named_tables() {
            let is_it = |(known, _): &(Weak<Table>, u64)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(&table));
            let at = attended.iter().position(is_it).unwrap_or_else(|| {
                attended.push((Arc::downgrade(&table), 0));
                attended.len() - 1
            });
            let Some((_, seen)) = attended.get_mut(at) else {
                continue;
            };
            let mut newcomers = Newcomers::default();
            *seen = table.flush_and_list_arrivals(*seen, &mut |place, series| {
                newcomers.note(&series.resource, place);
            });
            self.senders.record_all(&table, newcomers, now);
        }
        self.senders.tick(now);
        drop(attended);
        self.attend_ended(now);
    }

    /// Reads the current state of the series in `selections`. A selection without a name reads all series in
    /// slices.
    pub fn refresh(&self, now: UnixNanos, selections: &[Selection]) {
        if self.begin_refresh(now, selections) {
            // Patience without an end.
            let _ = self.refresh_all(now, &Patience::default());
        }
    }

    /// Reads what is asked for by name; whether all series are to be read instead.
    fn begin_refresh(&self, now: UnixNanos, selections: &[Selection]) -> bool {
        let pass = self.pass(now, false);
        let mut state = self.state();
        // Listed under the lock: an older list must not replace a newer one.
        let tables = self.named_tables();
        state.update_sources(&tables, pass);
        self.senders.tick(now);
        let names: Option<Vec<&str>> = selections.iter().map(Selection::name).collect();
        // The sampler has just read all other series. Without a sampler, nothing has.
        let needs_all = |names: &[&str]| {
            (!self.has_past() || state.read != state.arrived) && state.asks_for_targets(names)
        };
        let is_all = names.is_none_or(|names| needs_all(&names));
        if !is_all {
            state.read_asked(selections, now, pass);
        }
        // The lock must be free when the last reference to a table is dropped.
        drop(state);
        is_all
    }

    /// Series of tables that it knows.
    #[cfg(any(test, feature = "testing"))]
    pub fn series_count(&self) -> usize {
        self.state().entries().count()
    }
}
