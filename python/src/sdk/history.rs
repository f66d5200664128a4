// SPDX-License-Identifier: Apache-2.0

//! The recent past of a registry, for PromQL: samples taken by a thread of its own, and the newest at the time of a
//! query.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, SystemTime};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidegate_exposition::write::push_f64;
use tidegate_metrics::text::family_name;
use tidegate_metrics::{FamilyValues, MetricsRegistry, SeriesValues, Value};
use tidegate_promql::{
    History, HistoryLimits, Instant, Labels, Millis, NAME, Query, QueryError, QuerySeries, Sample, Samples,
    Selection, SeriesId,
};

/// The limit of the memory of all samples of a registry.
const MAX_BYTES: usize = 64 << 20;

/// Keeps samples of a registry.
pub(crate) struct Recorder {
    registry: Arc<dyn MetricsRegistry>,
    past: Mutex<Past>,
}

struct Past {
    history: History,
    series: BTreeMap<Labels, (SeriesId, Millis)>,
}

impl Recorder {
    /// Begins to take samples, until no reference to it is left.
    pub(crate) fn begin(
        registry: Arc<dyn MetricsRegistry>,
        every: Duration,
        keep: Duration,
    ) -> PyResult<Arc<Self>> {
        let every = every.max(Duration::from_millis(1));
        let limits = HistoryLimits {
            interval_ms: millis(every),
            span_ms: millis(keep),
            max_bytes: MAX_BYTES,
        };
        let past = Past {
            history: History::new(limits),
            series: BTreeMap::new(),
        };
        let recorder = Arc::new(Self {
            registry,
            past: Mutex::new(past),
        });
        let weak = Arc::downgrade(&recorder);
        let thread = thread::Builder::new().name("tidegate-history".to_owned());
        thread
            .spawn(move || run(&weak, every))
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(recorder)
    }

    /// Evaluates a query now, over what is kept and what is there now.
    pub(crate) fn query(&self, query: &str) -> Result<Instant, QueryError> {
        let query = Query::parse(query)?;
        let view = View {
            newest: self.flat(),
            past: self.past(),
            now: now(),
        };
        query.instant(&view, view.now)
    }

    fn flat(&self) -> BTreeMap<Labels, f64> {
        self.registry.gather().iter().flat_map(flatten).collect()
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self) {
        let values = self.flat();
        self.past().take(values, now());
    }
}

fn run(recorder: &Weak<Recorder>, every: Duration) {
    while let Some(recorder) = recorder.upgrade() {
        recorder.record();
        drop(recorder);
        thread::sleep(every);
    }
}

impl Past {
    fn take(&mut self, values: BTreeMap<Labels, f64>, now: Millis) {
        let oldest = now - self.history.limits().span_ms;
        self.series.retain(|_, (id, seen)| {
            let stays = *seen >= oldest;
            if !stays {
                self.history.remove(*id);
            }
            stays
        });
        for (labels, value) in values {
            if let Some((id, seen)) = self.series.get_mut(&labels) {
                *seen = now;
                self.history.append(*id, now, value);
            } else if let Some(id) = self.history.add() {
                self.history.append(id, now, value);
                self.series.insert(labels, (id, now));
            }
        }
    }
}

/// The samples that a query sees.
struct View<'a> {
    past: MutexGuard<'a, Past>,
    newest: BTreeMap<Labels, f64>,
    now: Millis,
}

impl Samples for View<'_> {
    fn select(&self, selection: &Selection) -> Result<Vec<QuerySeries>, QueryError> {
        let mut left = selection.max_samples;
        let mut selected = Vec::new();
        let names = self.newest.keys().chain(self.past.series.keys());
        let wanted: std::collections::BTreeSet<&Labels> =
            names.filter(|labels| selection.accepts(labels)).collect();
        for labels in wanted {
            let samples = self.samples(labels, selection);
            left = left
                .checked_sub(samples.len())
                .ok_or_else(QueryError::too_many_samples)?;
            if !samples.is_empty() {
                selected.push(QuerySeries {
                    labels: labels.clone(),
                    samples,
                    histograms: Vec::new(),
                });
            }
        }
        Ok(selected)
    }
}

impl View<'_> {
    fn samples(&self, labels: &Labels, selection: &Selection) -> Vec<Sample> {
        let kept = self.past.series.get(labels);
        let mut samples = Vec::new();
        if let Some((id, _)) = kept {
            let span = (selection.from, selection.to);
            let history = &self.past.history;
            history.read_into(*id, span, selection.need, &mut samples);
        }
        // A series that has ended is not there now.
        let value = self.newest.get(labels).copied();
        let value = value.unwrap_or(f64::from_bits(Sample::STALE));
        if self.now > selection.from && self.now <= selection.to {
            samples.retain(|sample| sample.time < self.now);
            samples.push(Sample {
                time: self.now,
                value,
            });
        }
        samples
    }
}

/// A family's series as a page of Prometheus has them.
fn flatten(family: &FamilyValues) -> Vec<(Labels, f64)> {
    let name = family_name(&family.name, &family.unit, &family.kind);
    family
        .series
        .iter()
        .flat_map(|series| flat_series(&name, series))
        .collect()
}

fn flat_series(name: &str, series: &SeriesValues) -> Vec<(Labels, f64)> {
    let labelled = |suffix: &str, le: Option<f64>, value: f64| {
        let own = series
            .labels
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()));
        let own = own.chain(le.map(|le| ("le".to_owned(), bound(le))));
        (
            own.chain([(NAME.to_owned(), format!("{name}{suffix}"))])
                .collect(),
            value,
        )
    };
    let Some((count, sum)) = series.value.count_and_sum() else {
        return vec![labelled("", None, series.value.as_f64())];
    };
    let mut flat = vec![
        labelled("_count", None, count as f64),
        labelled("_sum", None, sum),
    ];
    if let Value::Histogram(histogram) = &series.value {
        let mut below = 0;
        let bounds = histogram.bounds.iter().copied().chain([f64::INFINITY]);
        flat.extend(bounds.zip(&histogram.counts).map(|(bound, count)| {
            below += count;
            labelled("_bucket", Some(bound), below as f64)
        }));
    }
    flat
}

/// A bound as a page has it.
fn bound(le: f64) -> String {
    let mut text = String::new();
    push_f64(&mut text, le);
    text
}

/// The answer as Python has it: a number, a text, or a list of `(labels, value)` or of `(labels, [(seconds, value)])`.
pub(crate) fn answer<'py>(py: Python<'py>, instant: Instant) -> PyResult<Bound<'py, PyAny>> {
    let dict = |labels: &Labels| -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in labels.iter() {
            dict.set_item(&**name, &**value)?;
        }
        Ok(dict)
    };
    match instant {
        Instant::Scalar(value) => Ok(value.into_pyobject(py)?.into_any()),
        Instant::String(text) => Ok(text.into_pyobject(py)?.into_any()),
        Instant::Vector(vector) => {
            let numbers = vector
                .iter()
                .filter_map(|(labels, value)| Some((labels, value.float()?)));
            let rows: PyResult<Vec<_>> = numbers
                .map(|(labels, value)| Ok((dict(labels)?, value)))
                .collect();
            Ok(rows?.into_pyobject(py)?.into_any())
        }
        Instant::Matrix(matrix) => {
            let row = |series: &QuerySeries| {
                let samples = series.samples.iter();
                let samples: Vec<_> = samples
                    .map(|sample| (sample.time as f64 / 1e3, sample.value))
                    .collect();
                Ok((dict(&series.labels)?, samples))
            };
            let rows: PyResult<Vec<_>> = matrix.iter().map(row).collect();
            Ok(rows?.into_pyobject(py)?.into_any())
        }
    }
}

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis())
        .unwrap_or(Millis::MAX)
        .max(1)
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, millis)
}
