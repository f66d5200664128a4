//! Measuring a block: a context manager that hands its seconds to a method of a metric.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

/// The base of `tidegate._around.Timer`.
#[pyclass(subclass, frozen, module = "tidegate._tidegate")]
pub(crate) struct Timer {
    method: Py<PyString>,
    state: Mutex<State>,
}

struct State {
    metric: Py<PyAny>,
    start: Option<Instant>,
    duration: Option<f64>,
}

#[pymethods]
impl Timer {
    #[new]
    fn new(metric: Py<PyAny>, callback_name: Py<PyString>) -> Self {
        let state = State {
            metric,
            start: None,
            duration: None,
        };
        Self {
            method: callback_name,
            state: Mutex::new(state),
        }
    }

    #[getter]
    fn _metric(&self, py: Python<'_>) -> Py<PyAny> {
        self.state().metric.clone_ref(py)
    }

    #[setter(_metric)]
    fn set_metric(&self, metric: Py<PyAny>) {
        let before = std::mem::replace(&mut self.state().metric, metric);
        drop(before); // without the lock: that may run Python code
    }

    #[getter]
    fn _callback_name(&self, py: Python<'_>) -> Py<PyString> {
        self.method.clone_ref(py)
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
    /// Never held while Python code runs.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
