//! All series of all tables as Prometheus would know them, live and with their recent past.
//!
//! Series are found by the name of their metric, so that a query costs what the series of its names cost: only these
//! are read when it is asked. What is new in a table since the last look is learned first, whoever looks.

mod entry;
mod select;
mod state;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_engine::query::{Instant as Told, Labels, Millis, NAME, Query, Selection};
use tidegate_engine::{Data, HistoryLimits, UnixNanos};

pub(super) use self::entry::HistoryRule;
use self::entry::{Entry, Look};
use self::state::State;
use super::HistoryConfig;
use crate::component::{Evaluate, Shared};
use crate::prom::{Naming, OPENMETRICS_NAME};

/// Series that the sampler reads before it lets others go first: some ten microseconds.
const SLICE: usize = 256;

/// How long the sampler stays away from a lock that others wait for.
const YIELD: Duration = Duration::from_micros(100);

/// A view of what the gateway holds.
pub(super) struct View {
    shared: Arc<Shared>,
    pub(super) naming: Naming,
    has_past: bool,
    rules: Vec<HistoryRule>,
    state: Mutex<State>,
    /// Who waits for the state.
    waiting: AtomicUsize,
}

/// What is known of a metric besides its values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct About {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) help: String,
    pub(super) unit: String,
}

pub(super) fn millis(time: UnixNanos) -> Millis {
    Millis::try_from(time / 1_000_000).unwrap_or(Millis::MAX)
}

impl Evaluate for Arc<View> {
    fn evaluate(&self, query: &Query, now: UnixNanos) -> Result<Vec<(Labels, f64)>, String> {
        self.refresh(now, query.only_names().as_deref());
        match query
            .instant(&**self, millis(now))
            .map_err(|error| error.to_string())?
        {
            Told::Scalar(number) => Ok(vec![(Labels::default(), number)]),
            Told::Vector(vector) => {
                let numbers = vector.iter().map(|(labels, value)| {
                    let rest = labels.iter().filter(|(name, _)| ***name != *NAME);
                    Some((
                        rest.map(|(name, value)| (name.to_string(), value.to_string()))
                            .collect(),
                        value.float()?,
                    ))
                });
                let numbers: Option<_> = numbers.collect();
                numbers.ok_or_else(|| "it gives native histograms, which are not numbers".to_owned())
            }
            Told::String(_) | Told::Matrix(_) => Err("it gives neither a number nor a vector".to_owned()),
        }
    }
}

fn limit(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX / 4)
}

impl View {
    pub(super) fn new(shared: Arc<Shared>, config: &HistoryConfig, rules: Vec<HistoryRule>) -> Self {
        let limits = HistoryLimits {
            interval_ms: limit(config.interval),
            span_ms: limit(config.retention),
            max_bytes: usize::try_from(config.max_bytes.bytes()).unwrap_or(usize::MAX),
        };
        Self {
            shared,
            naming: Naming::default(),
            has_past: config.enabled,
            rules,
            state: Mutex::new(State::new(limits)),
            waiting: AtomicUsize::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.waiting.fetch_add(1, Relaxed);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Relaxed);
        state
    }

    fn look(&self, now: UnixNanos, records: bool) -> Look<'_> {
        Look {
            naming: &self.naming,
            rules: &self.rules,
            time: millis(now),
            records,
        }
    }

    /// Reads every series, some at a time, and keeps what it sees as part of the past. The pass is spread over `spread`:
    /// whoever needs the core for a moment gets it. `rest` waits; once it says false the pass is broken off.
    pub(super) fn record(&self, now: UnixNanos, spread: Duration, rest: &mut dyn FnMut(Duration) -> bool) {
        let look = self.look(now, self.has_past);
        self.state().meet(&self.shared.tables.list(), look);
        let pace = self.pace(spread);
        let mut next = Some((0, 0));
        while let Some(from) = next {
            while self.waiting.load(Relaxed) > 0 {
                if !rest(YIELD) {
                    return;
                }
            }
            let begun = Instant::now();
            next = self.state().read_some(from, SLICE, now, look);
            let pause = pace.saturating_sub(begun.elapsed());
            if !pause.is_zero() && next.is_some() && !rest(pause) {
                return;
            }
        }
        let mut state = self.state();
        state.books.forget_gone(look.time);
        let history = &state.books.history;
        metrics::gauge!("tidegate_history_bytes").set(history.bytes() as f64);
        metrics::gauge!("tidegate_history_series").set(history.len() as f64);
        metrics::counter!("tidegate_history_refused_series_total").absolute(history.refused());
    }

    /// How long a slice may take with the pause behind it, for all of them to take `spread`.
    fn pace(&self, spread: Duration) -> Duration {
        let slices = self.state().len().div_ceil(SLICE);
        match u32::try_from(slices) {
            Ok(slices) if slices > 1 => spread / slices,
            _ => Duration::ZERO,
        }
    }

    /// Reads what is now of the series that have numbers of these names; `None`: of all.
    pub(super) fn refresh(&self, now: UnixNanos, names: Option<&[String]>) {
        let look = self.look(now, false);
        let mut state = self.state();
        state.meet(&self.shared.tables.list(), look);
        match names {
            Some(names) => state.read_named(names, now, look),
            None => state.read_all(now, look),
        }
    }

    /// Series of tables that it knows.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.state().entries().count()
    }

    /// What is known of the metrics that are shown now.
    pub(super) fn about(&self) -> Vec<About> {
        let state = self.state();
        let about = |entry: &Entry| {
            let name = entry.name.as_ref().filter(|_| !entry.numbers.is_empty())?;
            let metric = &entry.series.metric;
            Some(About {
                name: name.to_string(),
                kind: match metric.data {
                    Data::Sum { monotonic: true, .. } => "counter",
                    Data::Gauge | Data::Sum { .. } => "gauge",
                    Data::Histogram { .. } | Data::ExponentialHistogram { .. } => "histogram",
                    Data::Summary => "summary",
                },
                help: metric.description.to_string(),
                unit: metric
                    .metadata
                    .get(OPENMETRICS_NAME)
                    .map_or_else(|| metric.unit.to_string(), |_| String::new()),
            })
        };
        let mut all: Vec<About> = state.entries().filter_map(about).collect();
        all.sort();
        all.dedup();
        all
    }

    /// The labels of every series that one of these selections accepts and that has a sample in its time.
    pub(super) fn labels(&self, selections: &[Selection]) -> Vec<Labels> {
        let state = self.state();
        let of = |selection| {
            let live = state.live(selection);
            let live = live.filter(|number| state.has_samples(number, selection));
            let gone = state.gone(selection);
            let gone = gone.filter(|gone| state.had_samples(gone.past, selection));
            let live = live.map(|number| &number.labels);
            live.chain(gone.map(|gone| &gone.labels)).cloned()
        };
        let mut all: Vec<Labels> = selections.iter().flat_map(of).collect();
        all.sort();
        all.dedup();
        all
    }
}
