// SPDX-License-Identifier: Apache-2.0

//! Composites: what instruments say over a window, read on demand or notified on changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tidegate_metrics::{
    Across, Change, CompositeBuilder, CompositeError, Function, Source, State, composite,
};

use super::{LabelPairs, borrowed};

/// A composite in the making, until it is built.
#[pyclass(frozen, module = "tidegate._tidegate")]
pub(crate) struct Sources(Mutex<Option<CompositeBuilder>>);

/// A statistic of instruments over a window.
#[pyclass(frozen, module = "tidegate._tidegate")]
pub(crate) struct Composite {
    composite: tidegate_metrics::Composite,
    /// In a child of `fork` it is absent until it has seen data: it does not take over its parent's data.
    is_absent: AtomicBool,
}

/// The state of one group of a composite at an instant. Times in seconds.
#[pyclass(frozen, get_all, name = "Snapshot", module = "tidegate._tidegate")]
pub(crate) struct GroupSnapshot {
    labels: std::collections::HashMap<String, String>,
    value: Option<f64>,
    min: Option<f64>,
    avg: Option<f64>,
    max: Option<f64>,
    sum: f64,
    count: f64,
    last: Option<f64>,
    /// By rank.
    quantiles: Vec<(f64, f64)>,
    window: f64,
    age: Option<f64>,
    /// `fresh`, `idle`, `stale`, `absent` or `partial`.
    state: &'static str,
    /// Why the composite has no value: its declaration does not suit its instruments.
    error: Option<String>,
}

/// When a callback is due.
#[pyclass(frozen, module = "tidegate._tidegate")]
pub(crate) struct Trigger(pub(crate) tidegate_metrics::Trigger);

/// Keeps a callback in place until it is closed or collected.
#[pyclass(frozen, module = "tidegate._tidegate")]
pub(crate) struct Subscription(Mutex<Option<tidegate_metrics::Subscription>>);

/// Waits for what a composite says next.
#[pyclass(frozen, module = "tidegate._tidegate")]
pub(crate) struct Watcher(Mutex<tidegate_metrics::Watcher>);

#[pymethods]
impl Sources {
    #[new]
    #[pyo3(signature = (name, window, by, function = None, quantiles = Vec::new(), across = None, across_quantile = None))]
    fn new(
        name: &str,
        window: f64,
        by: Vec<String>,
        function: Option<&str>,
        quantiles: Vec<f64>,
        across: Option<&str>,
        across_quantile: Option<f64>,
    ) -> PyResult<Self> {
        let mut builder = composite(name)
            .window(seconds(window)?)
            .by(by)
            .quantiles(quantiles);
        if let Some(name) = function {
            builder = builder.function(named(name)?);
        }
        if let Some(across) = named_across(across, across_quantile)? {
            builder = builder.across(across);
        }
        Ok(Self(Mutex::new(Some(builder))))
    }

    #[pyo3(signature = (is_absent = false))]
    fn build(&self, py: Python<'_>, is_absent: bool) -> PyResult<Composite> {
        let builder = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let builder = builder.ok_or_else(|| PyValueError::new_err("it is built already"))?;
        let composite = py.detach(|| builder.build()).map_err(impossible)?;
        Ok(Composite {
            composite,
            is_absent: AtomicBool::new(is_absent),
        })
    }
}

impl Sources {
    pub(crate) fn add(&self, source: impl Source) {
        let mut builder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *builder = builder.take().map(|builder| builder.of(&source));
    }
}

#[pymethods]
impl Composite {
    #[getter]
    fn name(&self) -> &str {
        self.composite.name()
    }

    /// The current state: of the group with these labels, or of the first.
    #[pyo3(signature = (labels = None))]
    fn get(&self, py: Python<'_>, labels: Option<LabelPairs>) -> Option<GroupSnapshot> {
        py.detach(|| match labels {
            None => Some(self.composite.get()),
            Some(labels) => self.composite.get_for(&borrowed(&labels)),
        })
        .map(|snapshot| self.shown(snapshot))
    }

    /// The current state of every group.
    fn all(&self, py: Python<'_>) -> Vec<GroupSnapshot> {
        let all = py.detach(|| self.composite.all());
        all.into_iter().map(|snapshot| self.shown(snapshot)).collect()
    }

    fn on_change(&self, py: Python<'_>, callback_: Py<PyAny>, trigger: &Trigger) -> PyResult<Subscription> {
        let callback = callback(callback_);
        Subscription::of(py.detach(|| self.composite.on_change(trigger.0.clone(), callback)))
    }

    fn watch(&self, py: Python<'_>) -> Watcher {
        Watcher(Mutex::new(py.detach(|| self.composite.watch())))
    }
}

impl Composite {
    fn shown(&self, snapshot: tidegate_metrics::Snapshot) -> GroupSnapshot {
        let mut shown = GroupSnapshot::of(snapshot);
        if shown.age.is_some() {
            self.is_absent.store(false, Relaxed);
        } else if self.is_absent.load(Relaxed) {
            shown.state = State::Absent.name();
        }
        shown
    }
}

#[pymethods]
impl Trigger {
    /// One of `above`, `below`, `moved`; without, any change. Times in seconds.
    #[new]
    #[pyo3(signature = (*, above = None, below = None, moved = None, hysteresis = 0.0, min_interval = 0.0))]
    fn new(
        above: Option<f64>,
        below: Option<f64>,
        moved: Option<f64>,
        hysteresis: f64,
        min_interval: f64,
    ) -> PyResult<Self> {
        use tidegate_metrics::Trigger as T;
        let trigger = match (above, below, moved) {
            (Some(at), None, None) => T::above(at),
            (None, Some(at), None) => T::below(at),
            (None, None, Some(by)) => T::moved(by),
            (None, None, None) => T::changed(),
            _ => return Err(PyValueError::new_err("one of `above`, `below` and `moved`")),
        };
        let trigger = trigger.hysteresis(hysteresis);
        Ok(Self(trigger.min_interval(seconds(min_interval)?)))
    }
}

#[pymethods]
impl Subscription {
    /// Ends the calls. One that runs goes on to its end.
    fn close(&self, py: Python<'_>) {
        let subscription = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It may wait for the thread that calls, which may wait for the interpreter.
        py.detach(|| drop(subscription));
    }
}

impl Subscription {
    pub(crate) fn of(made: Result<tidegate_metrics::Subscription, CompositeError>) -> PyResult<Self> {
        made.map(|subscription| Self(Mutex::new(Some(subscription))))
            .map_err(impossible)
    }
}

#[pymethods]
impl Watcher {
    /// All groups, once they say something that was not taken yet; None if that takes longer than `at_most` seconds.
    fn wait(&self, py: Python<'_>, at_most: f64) -> PyResult<Option<Vec<GroupSnapshot>>> {
        let at_most = seconds(at_most)?;
        let news = py.detach(|| {
            let watcher = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            watcher.wait(at_most)
        });
        Ok(news.map(|all| all.into_iter().map(GroupSnapshot::of).collect()))
    }
}

#[pymethods]
impl GroupSnapshot {
    fn __repr__(&self) -> String {
        let labels: std::collections::BTreeMap<_, _> = self.labels.iter().collect();
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}={value:?}"))
            .collect();
        let value = self.value.map_or("None".to_owned(), |value| value.to_string());
        let (count, state) = (self.count, self.state);
        format!(
            "<tidegate.Snapshot {{{}}} value={value} count={count} state={state}>",
            labels.join(", ")
        )
    }
}

impl GroupSnapshot {
    fn of(snapshot: tidegate_metrics::Snapshot) -> Self {
        Self {
            labels: snapshot.labels.into_iter().collect(),
            value: snapshot.value,
            min: snapshot.min,
            avg: snapshot.avg,
            max: snapshot.max,
            sum: snapshot.sum,
            count: snapshot.count,
            last: snapshot.last,
            quantiles: snapshot.quantiles,
            window: snapshot.window.as_secs_f64(),
            age: snapshot.age.map(|age| age.as_secs_f64()),
            state: snapshot.state.name(),
            error: snapshot.error,
        }
    }
}

/// Callbacks that raised, in this process.
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// How many callbacks have raised in this process.
#[pyfunction]
pub(crate) fn callback_failures() -> u64 {
    FAILURES.load(Relaxed)
}

/// Runs a Python callable with `(snapshot, value, is_crossed)` on the thread that calls back. It logs the first
/// exception of the callable and counts every one.
pub(crate) fn callback(callable: Py<PyAny>) -> impl Fn(&Change) + Send + Sync + 'static {
    move |change| {
        // None: the interpreter is shutting down.
        Python::try_attach(|py| {
            let snapshot = GroupSnapshot::of(change.snapshot.clone());
            if let Err(error) = callable.call1(py, (snapshot, change.value, change.is_crossed)) {
                failed(py, error);
            }
        });
    }
}

fn failed(py: Python<'_>, error: PyErr) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    FAILURES.fetch_add(1, Relaxed);
    if !TOLD.swap(true, Relaxed) {
        let log = py
            .import("tidegate._report")
            .and_then(|report| report.call_method1("callback_failed", (error,)));
        if let Err(error) = log {
            error.print(py);
        }
    }
}

fn impossible(error: CompositeError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn named(name: &str) -> PyResult<Function> {
    Ok(match name {
        "min" => Function::Min,
        "avg" => Function::Avg,
        "max" => Function::Max,
        "sum" => Function::Sum,
        "count" => Function::Count,
        "rate" => Function::Rate,
        "last" => Function::Last,
        other => return Err(PyValueError::new_err(format!("no such function: {other}"))),
    })
}

fn named_across(name: Option<&str>, rank: Option<f64>) -> PyResult<Option<Across>> {
    let refused = |why: String| Err(PyValueError::new_err(why));
    Ok(Some(match (name, rank) {
        (None, None) => return Ok(None),
        (Some("quantile"), Some(rank)) => Across::Quantile(rank),
        (Some("quantile"), None) | (_, Some(_)) => {
            return refused("`across_quantile` goes together with `across=\"quantile\"`".to_owned());
        }
        (Some("sum"), None) => Across::Sum,
        (Some("avg"), None) => Across::Avg,
        (Some("min"), None) => Across::Min,
        (Some("max"), None) => Across::Max,
        (Some("count"), None) => Across::Count,
        (Some("pool"), None) => Across::Pool,
        (Some(other), None) => return refused(format!("no such `across`: {other}")),
    }))
}
