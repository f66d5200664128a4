// SPDX-License-Identifier: Apache-2.0

//! The metrics SDK (`tidegate-metrics`) for Python: registries, instruments, composites, queries.

pub(crate) mod composite;
mod foreign;
pub(crate) mod history;
pub(crate) mod instrument;
mod otel;
pub(crate) mod registry;
pub(crate) mod server;
pub(crate) mod trace;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use tidegate_metrics::{ExportError, RegisterError};

/// Names and values of labels.
pub(crate) type LabelPairs = Vec<(String, String)>;

/// The same, as the SDK takes them.
pub(crate) fn borrowed(labels: &LabelPairs) -> Vec<(&str, &str)> {
    let pairs = labels.iter();
    pairs.map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

pub(crate) fn refused(error: RegisterError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

pub(crate) fn failed(error: ExportError) -> PyErr {
    PyOSError::new_err(error.to_string())
}
