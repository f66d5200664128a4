// SPDX-License-Identifier: Apache-2.0

//! The directory of all processes' cells for Python: their values as one.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tidegate_cells::{FamilyValues, Kind, Limits, SeriesValue, SharedDirectory, Snapshot, Value};

use crate::number::go_float;
use crate::store::raise;

/// More than a process writes by default; they only keep a damaged file from taking the machine.
const LIMITS: Limits = Limits {
    max_files: 65_536,
    max_file_bytes: 1 << 30,
    max_families: 100_000,
    max_series: 2_000_000,
    max_kept_bytes: usize::MAX,
};

/// A directory of cells, read as a whole.
#[pyclass(frozen, module = "tidegate._tidegate")]
pub(crate) struct Directory(SharedDirectory);

/// A family as a collector gives it.
#[pyclass(frozen, get_all, module = "tidegate._tidegate")]
pub(crate) struct MergedFamily {
    name: String,
    help: String,
    unit: String,
    /// A type of OpenMetrics.
    kind: &'static str,
    /// `(name, labels, value)` each.
    samples: Py<PyList>,
}

/// Files that could not be read, and why.
type Problems = Vec<(PathBuf, String)>;

/// A process that has a file.
#[pyclass(frozen, get_all, module = "tidegate._tidegate")]
pub(crate) struct Process {
    pid: u32,
    alive: bool,
    resource: Vec<(String, String)>,
}

#[pymethods]
impl Directory {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let opened = py.detach(|| SharedDirectory::open(&path, LIMITS));
        opened.map(Self).map_err(raise)
    }

    /// The values of all processes, merged; and `(file, why)` of what could not be read.
    fn collect(&self, py: Python<'_>) -> PyResult<(Vec<MergedFamily>, Problems)> {
        let scan = py.detach(|| self.0.with(tidegate_cells::Directory::scan));
        let problems = scan
            .problems
            .into_iter()
            .map(|problem| (problem.path, problem.why));
        Ok((families(py, &scan.merged)?, problems.collect()))
    }

    /// The processes, dead ones as well until they are folded.
    fn processes(&self, py: Python<'_>) -> Vec<Process> {
        let scan = py.detach(|| self.0.with(tidegate_cells::Directory::scan));
        let process = |process: tidegate_cells::Process| Process {
            pid: process.identity.pid,
            alive: process.alive,
            resource: process.resource,
        };
        scan.processes.into_iter().map(process).collect()
    }

    /// Takes over what dead processes counted; `(taken over, files removed)`. `grace` in seconds.
    fn fold(&self, py: Python<'_>, grace: f64) -> PyResult<(usize, usize)> {
        let grace = Duration::try_from_secs_f64(grace.max(0.0)).unwrap_or(Duration::MAX);
        let folded = py
            .detach(|| self.0.with(|directory| directory.fold(grace)))
            .map_err(raise)?;
        Ok((folded.processes.len(), folded.removed))
    }
}

fn families(py: Python<'_>, snapshot: &Snapshot) -> PyResult<Vec<MergedFamily>> {
    let filled = snapshot
        .families
        .iter()
        .filter(|family| !family.series.is_empty());
    filled.map(|family| merged(py, family)).collect()
}

fn merged(py: Python<'_>, family: &FamilyValues) -> PyResult<MergedFamily> {
    let spec = &family.spec;
    let kind = kind(&spec.kind);
    let name = match kind {
        // Their samples get it back.
        "counter" => spec.name.strip_suffix("_total").unwrap_or(&spec.name),
        _ => &spec.name,
    };
    let samples = Samples {
        list: PyList::empty(py),
        name,
    };
    family
        .series
        .iter()
        .try_for_each(|series| samples.series(&spec.kind, series))?;
    Ok(MergedFamily {
        name: name.to_owned(),
        help: spec.help.clone(),
        unit: spec.unit.clone(),
        kind,
        samples: samples.list.unbind(),
    })
}

fn kind(kind: &Kind) -> &'static str {
    match kind {
        Kind::Counter | Kind::FloatCounter => "counter",
        Kind::UpDownCounter | Kind::Gauge(_) => "gauge",
        Kind::Histogram { .. } | Kind::ExponentialHistogram { .. } => "histogram",
        Kind::Summary => "summary",
    }
}

struct Samples<'py, 'a> {
    list: Bound<'py, PyList>,
    name: &'a str,
}

impl<'py> Samples<'py, '_> {
    fn series(&self, kind: &Kind, series: &SeriesValue) -> PyResult<()> {
        let labels = PyDict::new(self.list.py());
        for (name, value) in series.labels.iter() {
            labels.set_item(&**name, &**value)?;
        }
        match &series.value {
            Value::Counter(count) => self.add("_total", &labels, *count as f64),
            Value::FloatCounter(count) => self.add("_total", &labels, *count),
            Value::UpDownCounter(sum) => self.add("", &labels, *sum as f64),
            Value::Gauge { value, .. } => self.add("", &labels, *value),
            Value::Summary { count, sum } => {
                self.add("_count", &labels, *count as f64)?;
                self.add("_sum", &labels, *sum)
            }
            Value::Histogram { buckets, sum } => {
                let bounds = match kind {
                    Kind::Histogram { bounds } => &bounds[..],
                    _ => &[],
                };
                self.histogram(&labels, bounds, buckets, *sum)
            }
            // Its buckets have no names in the text formats.
            Value::Exponential(value) => {
                self.histogram(&labels, &[], &[value.count], value.sum.unwrap_or_default())
            }
        }
    }

    fn histogram(
        &self,
        labels: &Bound<'py, PyDict>,
        bounds: &[f64],
        buckets: &[u64],
        sum: f64,
    ) -> PyResult<()> {
        self.add("_sum", labels, sum)?;
        let mut below = 0_u64;
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        for (bound, count) in bounds.zip(buckets) {
            below = below.wrapping_add(*count);
            let labels = labels.copy()?;
            labels.set_item("le", go_float(labels.py(), bound)?)?;
            self.add("_bucket", &labels, below as f64)?;
        }
        self.add("_count", labels, below as f64)
    }

    fn add(&self, suffix: &str, labels: &Bound<'py, PyDict>, value: f64) -> PyResult<()> {
        self.list
            .append((format!("{}{suffix}", self.name), labels, value))
    }
}
