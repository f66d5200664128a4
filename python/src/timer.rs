// SPDX-License-Identifier: Apache-2.0

//! Measuring a block: a context manager that hands its seconds to a method of a metric.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

/// Hands the seconds that a block or a function took to a method of a metric, and keeps them as `duration`.
#[pyclass(subclass, frozen, module = "tidegate._tidegate")]
pub(crate) struct Timer {
    method: Py<PyString>,
    state: Mutex<TimerState>,
}

struct TimerState {
    metric: Py<PyAny>,
    start: Option<Instant>,
    duration: Option<f64>,
}

#[pymethods]
impl Timer {
    #[new]
    pub(crate) fn new(metric: Py<PyAny>, callback_name: Py<PyString>) -> Self {
        let state = TimerState {
            metric,
            start: None,
            duration: None,
        };
        Self {
            method: callback_name,
            state: Mutex::new(state),
        }
    }

    /// Another one of the same metric.
    fn _new_timer(&self, py: Python<'_>) -> Self {
        Self::new(self.metric(py), self.method.clone_ref(py))
    }

    /// Chooses the series late: within the block, when its labels are known.
    #[pyo3(signature = (*args, **kw))]
    fn labels(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kw: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let child = self.metric(py).call_method(py, intern!(py, "labels"), args, kw)?;
        let before = std::mem::replace(&mut self.state().metric, child);
        drop(before); // without the lock: that may run Python code
        Ok(())
    }

    /// The function with a timer of its own around each call.
    fn __call__<'py>(slf: &Bound<'py, Self>, f: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let around = slf.py().import("tidegate._around")?;
        around.call_method1("around", (f, slf.getattr("_new_timer")?))
    }

    /// Seconds that the block took, once it is over.
    #[getter]
    fn duration(&self) -> Option<f64> {
        self.state().duration
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf.get().state().start = Some(Instant::now());
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        let (metric, seconds) = {
            let mut state = self.state();
            let seconds = state.start.map_or(0.0, |start| start.elapsed().as_secs_f64());
            state.duration = Some(seconds);
            (state.metric.clone_ref(py), seconds)
        };
        metric.call_method1(py, &self.method, (seconds,)).map(drop)
    }
}

impl Timer {
    fn metric(&self, py: Python<'_>) -> Py<PyAny> {
        self.state().metric.clone_ref(py)
    }

    /// Never held while Python code runs.
    fn state(&self) -> MutexGuard<'_, TimerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
