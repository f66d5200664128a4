// SPDX-License-Identifier: Apache-2.0

//! Registries of the SDK: each is a scope (a prefix, constant labels) of one.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};
use tidegate_metrics::text::{self, Format};
use tidegate_metrics::{Fanout, MetricsRegistry, Null, Prometheus, Scope, Shm, Value};

use super::foreign::foreign;
use super::history::{Recorder, answer};
use super::otel::{PushOptions, Pushing};
use super::server::Server;
use super::trace::{Span, TraceContext};
use super::{LabelPairs, borrowed, failed};
use crate::store::raise;

/// Samples for queries are taken so often, and kept so long, by default.
const EVERY: f64 = 0.5;
const KEEP: f64 = 300.0;

/// Where instruments are registered.
#[pyclass(frozen, subclass, module = "tidegate._tidegate")]
pub(crate) struct Registry {
    scope: Scope,
    own: Own,
    /// And the process that it is of: a fork takes no threads along. Never held while detached.
    recorder: Mutex<Option<(u32, Arc<Recorder>)>>,
}

/// The additional functions of one kind of registry.
#[derive(Clone)]
enum Own {
    Nothing,
    Shm(Shm),
    Otel(Arc<Pushing>),
}

/// The values of one family in a registry.
#[pyclass(frozen, get_all, module = "tidegate._tidegate")]
pub(crate) struct FamilyValues {
    name: String,
    help: String,
    unit: String,
    kind: &'static str,
    /// `(labels, value)` each; of histograms the value is `(count, sum)`.
    series: Py<PyList>,
}

impl Registry {
    fn of(registry: impl MetricsRegistry + 'static, own: Own) -> Self {
        Self::within(Scope::new(Arc::new(registry)), own)
    }

    fn within(scope: Scope, own: Own) -> Self {
        Self {
            scope,
            own,
            recorder: Mutex::new(None),
        }
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The recorder of this process. It starts if need be, and again if `times` are given.
    fn recorder(&self, times: Option<(f64, f64)>) -> PyResult<Arc<Recorder>> {
        let mut recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        match &*recorder {
            Some((of, recorder)) if *of == process && times.is_none() => Ok(recorder.clone()),
            _ => {
                let (every, keep) = times.unwrap_or((EVERY, KEEP));
                let seconds = |seconds| {
                    Duration::try_from_secs_f64(seconds)
                        .map_err(|error| PyValueError::new_err(error.to_string()))
                };
                let begun = Recorder::begin(Arc::new(self.scope.clone()), seconds(every)?, seconds(keep)?)?;
                *recorder = Some((process, begun.clone()));
                Ok(begun)
            }
        }
    }
}

#[pymethods]
impl Registry {
    /// Values in memory.
    #[staticmethod]
    fn _prometheus(py: Python<'_>, max_series: usize) -> Self {
        Self::of(
            py.detach(|| Prometheus::with_max_series(max_series)),
            Own::Nothing,
        )
    }

    /// Values in a file of a directory that processes share.
    #[staticmethod]
    fn _shm(py: Python<'_>, directory: PathBuf, resource: LabelPairs) -> PyResult<Self> {
        let shm = py
            .detach(|| Shm::create(&directory, &borrowed(&resource)))
            .map_err(raise)?;
        Ok(Self::of(shm.clone(), Own::Shm(shm)))
    }

    /// Values in memory, pushed to a collector.
    #[staticmethod]
    fn _otel(py: Python<'_>, options: PushOptions) -> PyResult<Self> {
        let pushing = Arc::new(py.detach(|| options.build())?);
        Ok(Self::of(pushing.clone(), Own::Otel(pushing)))
    }

    /// Values in memory and behind a C table of functions.
    #[staticmethod]
    fn _foreign(capsule: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        Ok(Self::of(foreign(capsule)?, Own::Nothing))
    }

    /// No values.
    #[staticmethod]
    fn _null() -> Self {
        Self::of(Null::new(), Own::Nothing)
    }

    /// Several at once.
    #[staticmethod]
    fn _fanout(registries: Vec<Py<Registry>>) -> Self {
        let registries = registries.iter().map(|registry| {
            let registry: Arc<dyn MetricsRegistry> = Arc::new(registry.get().scope.clone());
            registry
        });
        Self::of(Fanout::new(registries.collect()), Own::Nothing)
    }

    /// The same with a prefix, labels, and the levels of a hierarchy.
    #[pyo3(signature = (prefix, labels, namespace, component, endpoint))]
    fn _scope(
        &self,
        prefix: &str,
        labels: LabelPairs,
        namespace: Option<&str>,
        component: Option<&str>,
        endpoint: Option<&str>,
    ) -> Self {
        let mut scope = self.scope.clone().prefix(prefix);
        for (key, value) in labels {
            scope = scope.label(key, value);
        }
        scope = namespace.map_or(scope.clone(), |name| scope.namespace(name));
        scope = component.map_or(scope.clone(), |name| scope.component(name));
        scope = endpoint.map_or(scope.clone(), |name| scope.endpoint(name));
        Self::within(scope, self.own.clone())
    }

    /// All values as a page: Prometheus's text, or OpenMetrics.
    #[pyo3(signature = (openmetrics = false))]
    fn expose(&self, py: Python<'_>, openmetrics: bool) -> String {
        let format = if openmetrics {
            Format::OpenMetrics
        } else {
            Format::Prometheus
        };
        py.detach(|| text::render(&self.scope.gather(), format))
    }

    /// Begins a span that goes where the values go; of a registry without a way for spans one that goes nowhere.
    fn _span(&self, name: &str, parent: Option<PyRef<'_, TraceContext>>) -> Span {
        Span::begin(&self.scope.tracer(), name, parent.as_deref())
    }

    /// Serves the page and the health of the program.
    fn _serve(&self, py: Python<'_>, host: &str, port: u16) -> PyResult<Server> {
        Server::start(py, Arc::new(self.scope.clone()), host, port)
    }

    /// All values.
    fn gather(&self, py: Python<'_>) -> PyResult<Vec<FamilyValues>> {
        let families = py.detach(|| self.scope.gather());
        families
            .into_iter()
            .map(|family| FamilyValues::of(py, family))
            .collect()
    }

    /// Gets out what was recorded until now; `within` in seconds.
    #[pyo3(signature = (within = 5.0))]
    fn flush(&self, py: Python<'_>, within: f64) -> PyResult<()> {
        let within = Duration::try_from_secs_f64(within).unwrap_or(Duration::MAX);
        py.detach(|| self.scope.flush(within)).map_err(failed)
    }

    /// Gets out what was recorded until now, and stops; `within` in seconds.
    #[pyo3(signature = (within = 5.0))]
    fn shutdown(&self, py: Python<'_>, within: f64) -> PyResult<()> {
        let within = Duration::try_from_secs_f64(within).unwrap_or(Duration::MAX);
        py.detach(|| self.scope.shutdown(within)).map_err(failed)
    }

    /// Pushes that failed, and points that the collector refused.
    fn push_failures(&self) -> (u64, u64) {
        match &self.own {
            Own::Otel(pushing) => pushing.failures(),
            _ => (0, 0),
        }
    }

    /// Takes over what dead processes of a shared directory counted; `grace` in seconds.
    #[pyo3(signature = (grace = 60.0))]
    fn fold(&self, py: Python<'_>, grace: f64) -> PyResult<()> {
        let grace = Duration::try_from_secs_f64(grace).unwrap_or(Duration::MAX);
        match &self.own {
            Own::Shm(shm) => py.detach(|| shm.fold(grace)).map_err(failed),
            _ => Err(PyValueError::new_err(
                "only registries of a shared directory fold",
            )),
        }
    }

    /// Begins to keep samples for queries: one in `every` seconds, for `keep` seconds.
    #[pyo3(signature = (every = EVERY, keep = KEEP))]
    fn record(&self, every: f64, keep: f64) -> PyResult<()> {
        self.recorder(Some((every, keep))).map(drop)
    }

    /// The value of a PromQL query, now.
    fn query<'py>(&self, py: Python<'py>, query: &str) -> PyResult<Bound<'py, PyAny>> {
        let recorder = self.recorder(None)?;
        let instant = py.detach(|| recorder.query(query));
        answer(
            py,
            instant.map_err(|error| PyValueError::new_err(error.to_string()))?,
        )
    }
}

impl FamilyValues {
    fn of(py: Python<'_>, family: tidegate_metrics::FamilyValues) -> PyResult<Self> {
        let series = PyList::empty(py);
        for one in &family.series {
            let labels = PyDict::new(py);
            for (name, value) in &one.labels {
                labels.set_item(name, value)?;
            }
            match &one.value {
                Value::Counter(count) => series.append((labels, count))?,
                Value::UpDownCounter(sum) => series.append((labels, sum))?,
                value => match value.count_and_sum() {
                    Some(both) => series.append((labels, both))?,
                    None => series.append((labels, value.as_f64()))?,
                },
            }
        }
        Ok(Self {
            name: family.name,
            help: family.help,
            unit: family.unit,
            kind: family.kind.name(),
            series: series.unbind(),
        })
    }
}
