// SPDX-License-Identifier: Apache-2.0

//! Stores of cells for Python: a file of this process in a directory, or memory.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use tidegate_cells::{Error, FamilySpec, GaugeMode, Kind, Options, Series};

/// The values of this process.
#[pyclass(frozen, module = "tidegate._tidegate")]
pub(crate) struct Store(tidegate_cells::Store);

/// A family of a store.
#[pyclass(frozen, module = "tidegate._tidegate")]
pub(crate) struct Family(tidegate_cells::Family);

#[pymethods]
impl Store {
    /// A file in `directory`, or memory if that is None.
    #[new]
    #[pyo3(signature = (directory, *, max_series, max_bytes, resource = Vec::new()))]
    fn new(
        py: Python<'_>,
        directory: Option<PathBuf>,
        max_series: usize,
        max_bytes: u64,
        resource: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let options = Options {
            resource,
            max_series,
            max_bytes,
            ..Options::default()
        };
        let made = py.detach(|| match directory {
            Some(directory) => tidegate_cells::Store::create(&directory, options),
            None => Ok(tidegate_cells::Store::in_memory(options)),
        });
        made.map(Self).map_err(raise)
    }

    /// The family of that name; `ValueError` if there is one that is something else. `kind` is `counter`, `gauge`
    /// (with `mode`), `histogram` (with `bounds`, without +Inf) or `summary`.
    #[pyo3(signature = (name, help, unit, kind, labels, *, mode = "all", bounds = Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "a specification, by name in Python")]
    fn family(
        &self,
        py: Python<'_>,
        name: String,
        help: String,
        unit: String,
        kind: &str,
        labels: Vec<String>,
        mode: &str,
        bounds: Vec<f64>,
    ) -> PyResult<Family> {
        let kind = match kind {
            "counter" => Kind::FloatCounter,
            "gauge" => Kind::Gauge(gauge_mode(mode)?),
            "summary" => Kind::Summary,
            "histogram" => Kind::Histogram {
                bounds: Arc::from(bounds),
            },
            other => return Err(PyValueError::new_err(format!("no such kind: {other}"))),
        };
        let spec = FamilySpec {
            name,
            help,
            unit,
            kind,
            labels,
        };
        py.detach(|| self.0.family(&spec)).map(Family).map_err(raise)
    }

    /// `(series, room, invalid)`: what was not taken, by reason.
    fn refused(&self, py: Python<'_>) -> (u64, u64, u64) {
        let refused = py.detach(|| self.0.refused());
        (refused.series, refused.room, refused.invalid)
    }

    /// Whether a file could not be made after `fork`: the values are in memory only.
    fn is_detached(&self, py: Python<'_>) -> bool {
        py.detach(|| self.0.is_detached())
    }
}

#[pymethods]
impl Family {
    /// Ends the series with these label values; false if there is none.
    fn remove(&self, py: Python<'_>, values: Vec<String>) -> bool {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        py.detach(|| self.0.remove(&values))
    }
}

impl Family {
    pub(crate) fn series(&self, values: &[String]) -> Series {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        self.0.with(&values)
    }
}

/// All modes by the names that `prometheus_client` gives them.
const MODES: [(&str, GaugeMode); 10] = [
    ("all", GaugeMode::All),
    ("liveall", GaugeMode::LiveAll),
    ("sum", GaugeMode::Sum),
    ("livesum", GaugeMode::LiveSum),
    ("max", GaugeMode::Max),
    ("livemax", GaugeMode::LiveMax),
    ("min", GaugeMode::Min),
    ("livemin", GaugeMode::LiveMin),
    ("mostrecent", GaugeMode::MostRecent),
    ("livemostrecent", GaugeMode::LiveMostRecent),
];

pub(crate) fn gauge_mode(name: &str) -> PyResult<GaugeMode> {
    let found = MODES.iter().find(|(known, _)| *known == name);
    let wrong = || {
        let known: Vec<_> = MODES.iter().map(|(known, _)| *known).collect();
        let known = known.join(", ");
        PyValueError::new_err(format!(
            "Invalid multiprocess mode: {name}; expected one of {known}"
        ))
    };
    found.map(|(_, mode)| *mode).ok_or_else(wrong)
}

pub(crate) fn raise(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Io { source, .. } => match source.raw_os_error() {
            // With the number Python picks the class: FileNotFoundError and so on.
            Some(number) => PyOSError::new_err((number, text)),
            None => PyOSError::new_err(text),
        },
        Error::NoRoom { .. } => PyMemoryError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}
