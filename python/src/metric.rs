// SPDX-License-Identifier: Apache-2.0

//! The common part of all instruments of the drop-in: label names, label values, and the children of a labelled metric.
//!
//! A child is found by its label values without running any Python code; only the first use of a label set takes the
//! way through the class's own `_child`.

use std::sync::OnceLock;

use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

/// The base of all instruments.
#[pyclass(subclass, frozen, weakref, module = "tidegate._tidegate")]
pub(crate) struct Metric {
    labels: OnceLock<MetricLabels>,
    children: Py<PyDict>,
}

/// The labels of a metric, known from its constructor on.
struct MetricLabels {
    names: Py<PyTuple>,
    values: Py<PyTuple>,
    is_parent: bool,
}

impl Metric {
    pub(crate) fn empty(py: Python<'_>) -> Self {
        Self {
            labels: OnceLock::new(),
            children: PyDict::new(py).unbind(),
        }
    }

    /// The values of `labels` in the order of the names; none if they are not these names.
    fn ordered<'py>(&self, py: Python<'py>, labels: &Bound<'py, PyDict>) -> Option<Bound<'py, PyTuple>> {
        let names = self.labels.get()?.names.bind(py);
        if names.len() != labels.len() {
            return None;
        }
        let value = |name| labels.get_item(name).ok().flatten();
        let values: Option<Vec<_>> = names.iter_borrowed().map(value).collect();
        PyTuple::new(py, values?).ok()
    }
}

#[pymethods]
impl Metric {
    /// Children and parents can be in a cycle, through attributes of theirs.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.children)
    }

    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(py: Python<'_>, _args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self::empty(py)
    }

    /// Says which labels the metric has, once; a second time changes nothing.
    fn _set_labels(&self, names: Py<PyTuple>, values: Py<PyTuple>, py: Python<'_>) {
        let is_parent = !names.bind(py).is_empty() && values.bind(py).is_empty();
        self.labels.get_or_init(|| MetricLabels {
            names,
            values,
            is_parent,
        });
    }

    #[getter]
    fn _labelnames(&self, py: Python<'_>) -> Py<PyTuple> {
        let empty = || PyTuple::empty(py).unbind();
        self.labels
            .get()
            .map_or_else(empty, |labels| labels.names.clone_ref(py))
    }

    #[getter]
    fn _labelvalues(&self, py: Python<'_>) -> Py<PyTuple> {
        let empty = || PyTuple::empty(py).unbind();
        self.labels
            .get()
            .map_or_else(empty, |labels| labels.values.clone_ref(py))
    }

    /// The children by their label values.
    #[getter]
    fn _metrics(&self, py: Python<'_>) -> Py<PyDict> {
        self.children.clone_ref(py)
    }

    fn _is_parent(&self) -> bool {
        self.labels.get().is_some_and(|labels| labels.is_parent)
    }

    fn _is_observable(&self) -> bool {
        !self._is_parent()
    }

    /// The child with these label values, in order or by name; made at its first use.
    #[pyo3(signature = (*labelvalues, **labelkwargs))]
    fn labels<'py>(
        slf: &Bound<'py, Self>,
        labelvalues: &Bound<'py, PyTuple>,
        labelkwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let key = match labelkwargs {
            None => Some(labelvalues.clone()),
            Some(labels) if labelvalues.is_empty() => this.ordered(py, labels),
            Some(_) => None,
        };
        if let Some(key) = key
            && this._is_parent()
            && let Some(child) = this.children.bind(py).get_item(texts(key)?)?
        {
            return Ok(child);
        }
        slf.call_method("_child", (labelvalues, labelkwargs), None)
    }
}

/// Label values as `str`.
fn texts(values: Bound<'_, PyTuple>) -> PyResult<Bound<'_, PyTuple>> {
    if values
        .iter_borrowed()
        .all(|value| value.is_exact_instance_of::<PyString>())
    {
        return Ok(values);
    }
    let texts: Vec<_> = values
        .iter_borrowed()
        .map(|value| value.str())
        .collect::<PyResult<_>>()?;
    PyTuple::new(values.py(), texts)
}

/// The error of an instrument that is used without its label values.
#[cold]
pub(crate) fn not_observable(slf: &Bound<'_, PyAny>) -> PyErr {
    let kind = slf.getattr("_type").and_then(|kind| kind.extract::<String>());
    let kind = kind.unwrap_or_else(|_| "the".to_owned());
    PyValueError::new_err(format!("{kind} metric is missing label values"))
}
