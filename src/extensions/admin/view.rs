//! All series of all tables as Prometheus would know them, live and with their recent past.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_engine::query::{Labels, Millis, NAME, QueryError, QuerySeries, Sample, Samples, Selection};
use tidegate_engine::{Data, History, HistoryLimits, Reading, Series, SeriesId, UnixNanos};

use super::HistoryConfig;
use crate::component::Shared;
use crate::prom::flat::{identity, numbers};
use crate::prom::number::push_f64;
use crate::prom::{Naming, OPENMETRICS_NAME};

/// A view of what the gateway holds.
pub(super) struct View {
    shared: Arc<Shared>,
    pub(super) naming: Naming,
    has_past: bool,
    state: Mutex<State>,
}

struct State {
    history: History,
    /// By table and series, both by address: the entry holds the series.
    entries: HashMap<(usize, usize), Entry>,
    /// Who shows what: of two series with one name and labels the first counts.
    owners: HashMap<Labels, (usize, usize)>,
    /// Series that have gone and can still be asked for.
    gone: Vec<Gone>,
    /// Which look at the tables was the last one.
    pass: u64,
    /// Entries that it saw.
    seen: usize,
}

/// A series of a table, and the numbers it has.
struct Entry {
    series: Arc<Series>,
    /// Name and labels; `None`: it can't be told.
    identity: Option<(String, Vec<(String, String)>)>,
    numbers: Vec<Number>,
    pass: u64,
}

/// One number of a series: for Prometheus a series of its own.
struct Number {
    suffix: &'static str,
    more: Option<(&'static str, f64)>,
    labels: Labels,
    /// Another series has the same name and labels.
    is_shadowed: bool,
    past: Past,
    now: Sample,
}

/// Whether a number has a past.
#[derive(Clone, Copy)]
enum Past {
    /// It was not sampled yet.
    Young,
    Kept(SeriesId),
    /// There was no room for it when it came.
    Refused,
}

struct Gone {
    labels: Labels,
    past: SeriesId,
    since: Millis,
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

fn limit(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX / 4)
}

impl View {
    pub(super) fn new(shared: Arc<Shared>, config: &HistoryConfig) -> Self {
        let limits = HistoryLimits {
            interval_ms: limit(config.interval),
            span_ms: limit(config.retention),
            max_bytes: usize::try_from(config.max_bytes.bytes()).unwrap_or(usize::MAX),
        };
        Self {
            shared,
            naming: Naming {
                namespace: String::new(),
                suffixes: true,
            },
            has_past: config.enabled,
            state: Mutex::new(State {
                history: History::new(limits),
                entries: HashMap::new(),
                owners: HashMap::new(),
                gone: Vec::new(),
                pass: 0,
                seen: 0,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at every series, and keeps what it sees as part of the past.
    pub(super) fn record(&self, now: UnixNanos) {
        self.look(now, self.has_past);
        let state = self.state();
        metrics::gauge!("tidegate_history_bytes").set(state.history.bytes() as f64);
        metrics::gauge!("tidegate_history_series").set(state.history.len() as f64);
        metrics::counter!("tidegate_history_refused_series_total").absolute(state.history.refused());
    }

    /// Looks at every series.
    pub(super) fn refresh(&self, now: UnixNanos) {
        self.look(now, false);
    }

    fn look(&self, now: UnixNanos, records: bool) {
        let tables = self.shared.tables.list();
        let state = &mut *self.state();
        let time = millis(now);
        (state.pass, state.seen) = (state.pass + 1, 0);
        for table in &tables {
            let of = Arc::as_ptr(table).addr();
            table.read(now, &mut |reading| {
                state.see(of, &reading, &self.naming, time, records)
            });
        }
        if state.seen < state.entries.len() {
            state.let_go(time);
        }
        state.forget(time);
    }

    /// Series of tables that it knows.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.state().entries.len()
    }

    /// What is known of the metrics that are shown now.
    pub(super) fn about(&self) -> Vec<About> {
        let state = self.state();
        let about = |entry: &Entry| {
            let (name, _) = entry.identity.as_ref()?;
            let metric = &entry.series.metric;
            Some(About {
                name: name.clone(),
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
        let mut all: Vec<About> = state.entries.values().filter_map(about).collect();
        all.sort();
        all.dedup();
        all
    }

    /// The labels of every series that one of these selections accepts; without selections, of all.
    pub(super) fn labels(&self, selections: &[Selection]) -> Vec<Labels> {
        let state = self.state();
        let live = state.numbers().map(|number| &number.labels);
        let gone = state.gone.iter().map(|gone| &gone.labels);
        let wanted = |labels: &&Labels| {
            selections.is_empty() || selections.iter().any(|selection| selection.accepts(labels))
        };
        let mut all: Vec<Labels> = live.chain(gone).filter(wanted).cloned().collect();
        all.sort();
        all.dedup();
        all
    }
}

impl State {
    fn numbers(&self) -> impl Iterator<Item = &Number> {
        let all = self.entries.values().flat_map(|entry| &entry.numbers);
        all.filter(|number| !number.is_shadowed)
    }

    fn see(&mut self, table: usize, reading: &Reading<'_>, naming: &Naming, time: Millis, records: bool) {
        let key = (table, Arc::as_ptr(reading.series).addr());
        let entry = self.entries.entry(key).or_insert_with(|| Entry {
            series: reading.series.clone(),
            identity: identity(reading.series, naming),
            numbers: Vec::new(),
            pass: 0,
        });
        self.seen += usize::from(entry.pass != self.pass);
        entry.pass = self.pass;
        let Some(identity) = &entry.identity else { return };
        let (history, owners, known) = (&mut self.history, &mut self.owners, &mut entry.numbers);
        let mut at = 0;
        numbers(reading, &mut |suffix, more, value| {
            let is_same = |number: &Number| number.suffix == suffix && number.more == more;
            if !known.get(at).is_some_and(is_same) {
                // Other buckets than before: those behind are others too.
                for old in known.drain(at.min(known.len())..) {
                    release(old, history, owners, key);
                }
                let labels = labels(identity, suffix, more);
                let owner = *owners.entry(labels.clone()).or_insert(key);
                known.push(Number {
                    suffix,
                    more,
                    labels,
                    is_shadowed: owner != key,
                    past: Past::Young,
                    now: Sample { time, value },
                });
            }
            if let Some(number) = known.get_mut(at) {
                number.now = Sample { time, value };
                if records && !number.is_shadowed {
                    if matches!(number.past, Past::Young) {
                        number.past = history.add().map_or(Past::Refused, Past::Kept);
                    }
                    if let Past::Kept(past) = number.past {
                        history.append(past, time, value);
                    }
                }
            }
            at += 1;
        });
    }

    /// Ends the series that were not seen in this pass.
    fn let_go(&mut self, now: Millis) {
        let pass = self.pass;
        let (owners, gone) = (&mut self.owners, &mut self.gone);
        self.entries.retain(|key, entry| {
            let stays = entry.pass == pass;
            if !stays {
                for number in entry.numbers.drain(..) {
                    if owners.get(&number.labels) == Some(key) {
                        owners.remove(&number.labels);
                    }
                    if let Past::Kept(past) = number.past {
                        gone.push(Gone {
                            labels: number.labels,
                            past,
                            since: now,
                        });
                    }
                }
            }
            stays
        });
        // The first of two has gone: the other counts from now on.
        for (key, entry) in &mut self.entries {
            for number in entry.numbers.iter_mut().filter(|number| number.is_shadowed) {
                number.is_shadowed = *owners.entry(number.labels.clone()).or_insert(*key) != *key;
            }
        }
    }

    /// Forgets the series that ended too long ago.
    fn forget(&mut self, now: Millis) {
        let history = &mut self.history;
        let span = history.limits().span_ms;
        self.gone.retain(|series| {
            let stays = now.saturating_sub(series.since) <= span;
            if !stays {
                history.remove(series.past);
            }
            stays
        });
    }
}

fn release(
    number: Number,
    history: &mut History,
    owners: &mut HashMap<Labels, (usize, usize)>,
    key: (usize, usize),
) {
    if owners.get(&number.labels) == Some(&key) {
        owners.remove(&number.labels);
    }
    if let Past::Kept(past) = number.past {
        history.remove(past);
    }
}

fn labels(
    identity: &(String, Vec<(String, String)>),
    suffix: &str,
    more: Option<(&'static str, f64)>,
) -> Labels {
    let (name, pairs) = identity;
    let mut full = format!("{name}{suffix}");
    full.shrink_to_fit();
    let bound = more.map(|(label, bound)| {
        let mut text = String::new();
        push_f64(&mut text, bound);
        (label.to_owned(), text)
    });
    let name = (NAME.to_owned(), full);
    pairs.iter().cloned().chain(bound).chain([name]).collect()
}

impl Samples for View {
    fn select(&self, selection: &Selection) -> Result<Vec<QuerySeries>, QueryError> {
        let state = self.state();
        let mut all: HashMap<&Labels, Vec<Sample>> = HashMap::new();
        let is_within = |time: Millis| time > selection.from && time <= selection.to;
        for gone in state.gone.iter().filter(|gone| selection.accepts(&gone.labels)) {
            let samples = all.entry(&gone.labels).or_default();
            samples.extend(state.history.read(gone.past, selection.from, selection.to));
            if is_within(gone.since) {
                samples.push(Sample {
                    time: gone.since,
                    value: f64::from_bits(Sample::STALE),
                });
            }
        }
        for entry in state.entries.values() {
            let wanted = entry.numbers.iter().filter(|number| !number.is_shadowed);
            for number in wanted.filter(|number| selection.accepts(&number.labels)) {
                let samples = all.entry(&number.labels).or_default();
                if selection.needs_past && (!self.has_past || matches!(number.past, Past::Refused)) {
                    return Err(QueryError::Samples(no_past(
                        self.has_past,
                        &number.labels,
                        &state.history,
                    )));
                }
                if let Past::Kept(past) = number.past {
                    samples.extend(state.history.read(past, selection.from, selection.to));
                }
                let is_newer = samples.last().is_none_or(|last| last.time < number.now.time);
                if is_newer && is_within(number.now.time) {
                    samples.push(number.now);
                }
            }
        }
        let series = all.into_iter().filter(|(_, samples)| !samples.is_empty());
        Ok(series
            .map(|(labels, mut samples)| {
                samples.sort_by_key(|sample| sample.time);
                QuerySeries {
                    labels: labels.clone(),
                    samples,
                }
            })
            .collect())
    }
}

fn no_past(has_past: bool, labels: &Labels, history: &History) -> String {
    let name = labels.get(NAME);
    match has_past {
        false => format!("`{name}` has no past: `history` of the admin extension is disabled"),
        true => format!(
            "`{name}` has series without a past: `history::max_bytes` was used up when they came ({} series refused)",
            history.refused()
        ),
    }
}
