// SPDX-License-Identifier: Apache-2.0

//! The instruments of the drop-in: classes whose recording methods are a check and an atomic operation on a cell.
//!
//! Python subclasses (`tidegate.compat.prometheus_client.metrics`) add constructors, names and samples. A parent of
//! labelled children has no cell.

use std::sync::OnceLock;

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyTuple};
use tidegate_cells::{Error, FloatCell, HistogramCell, Kind, Series, SummaryCell, Value};

use crate::metric::{Metric, not_observable};
use crate::store::Family;
use crate::timer::Timer;

/// A number as `float()` takes it.
fn number(value: &Bound<'_, PyAny>) -> PyResult<f64> {
    match value.extract() {
        Ok(number) => Ok(number),
        Err(_) => value.py().get_type::<PyFloat>().call1((value,))?.extract(),
    }
}

/// Keeps an exemplar: the class's own business, as it is rare.
#[cold]
fn keep_exemplar(slf: &Bound<'_, PyAny>, exemplar: Option<&Bound<'_, PyAny>>, value: f64) -> PyResult<()> {
    match exemplar {
        Some(exemplar) if exemplar.is_truthy()? => {
            slf.call_method1("_set_exemplar", (exemplar, value)).map(drop)
        }
        _ => Ok(()),
    }
}

/// A cell of a series.
trait Of: Sized {
    fn of(series: &Series) -> Result<Self, Error>;
}

impl Of for FloatCell {
    fn of(series: &Series) -> Result<Self, Error> {
        series.float()
    }
}

impl Of for SummaryCell {
    fn of(series: &Series) -> Result<Self, Error> {
        series.summary()
    }
}

impl Of for HistogramCell {
    fn of(series: &Series) -> Result<Self, Error> {
        series.histogram()
    }
}

/// A gauge's cell, and whether only the most recent value of all processes counts: then adding has no meaning.
struct GaugeCell {
    cell: FloatCell,
    is_most_recent: bool,
}

impl Of for GaugeCell {
    fn of(series: &Series) -> Result<Self, Error> {
        Ok(Self {
            cell: series.float()?,
            is_most_recent: matches!(series.spec().kind, Kind::Gauge(mode) if mode.is_most_recent()),
        })
    }
}

macro_rules! instrument {
    ($(#[$doc:meta])* $name:ident, $cell:ty, { $($methods:tt)* }) => {
        $(#[$doc])*
        #[pyclass(extends = Metric, subclass, frozen, module = "tidegate._tidegate")]
        pub(crate) struct $name {
            cell: OnceLock<$cell>,
        }

        #[pymethods]
        impl $name {
            #[new]
            #[pyo3(signature = (*_args, **_kwargs))]
            fn new(
                py: Python<'_>,
                _args: &Bound<'_, PyTuple>,
                _kwargs: Option<&Bound<'_, PyDict>>,
            ) -> PyClassInitializer<Self> {
                PyClassInitializer::from(Metric::empty(py)).add_subclass(Self { cell: OnceLock::new() })
            }

            /// Gives it the series with these label values, once; false if it is the one that all beyond the bound share.
            fn _bind(&self, py: Python<'_>, family: &Family, values: Vec<String>) -> PyResult<bool> {
                let series = py.detach(|| family.series(&values));
                let cell = <$cell>::of(&series).map_err(|error| PyTypeError::new_err(error.to_string()))?;
                self.cell.get_or_init(|| cell);
                Ok(!series.is_overflow())
            }

            $($methods)*
        }
    };
}

instrument! {
    /// A counter.
    Counter, FloatCell, {
        /// Adds; `ValueError` for less than zero.
        #[pyo3(signature = (amount = 1.0, exemplar = None))]
        fn inc(slf: &Bound<'_, Self>, amount: f64, exemplar: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
            let cell = slf.get().cell.get().ok_or_else(|| not_observable(slf.as_any()))?;
            if amount < 0.0 {
                let text = "Counters can only be incremented by non-negative amounts.";
                return Err(PyValueError::new_err(text));
            }
            cell.add_or_saturate(amount);
            match exemplar {
                None => Ok(()),
                some => keep_exemplar(slf.as_any(), some, amount),
            }
        }

        fn _get(&self) -> f64 {
            self.cell.get().map_or(0.0, FloatCell::get)
        }

        fn _reset(&self) {
            self.cell.get().inspect(|cell| cell.reset());
        }
    }
}

instrument! {
    /// A gauge.
    Gauge, GaugeCell, {
        /// Adds.
        #[pyo3(signature = (amount = 1.0))]
        fn inc(slf: &Bound<'_, Self>, amount: f64) -> PyResult<()> {
            slf.get().add(slf, "inc", amount)
        }

        /// Subtracts.
        #[pyo3(signature = (amount = 1.0))]
        fn dec(slf: &Bound<'_, Self>, amount: f64) -> PyResult<()> {
            slf.get().add(slf, "dec", -amount)
        }

        /// Sets.
        fn set(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<()> {
            let gauge = slf.get().cell.get().ok_or_else(|| not_observable(slf.as_any()))?;
            gauge.cell.set(number(value)?);
            Ok(())
        }

        /// Sets it to the seconds that a block or a function (sync or async) took.
        fn time(slf: Py<Self>, py: Python<'_>) -> Timer {
            Timer::new(slf.into_any(), intern!(py, "set").clone().unbind())
        }

        fn _get(&self) -> f64 {
            self.cell.get().map_or(0.0, |gauge| gauge.cell.get())
        }
    }
}

impl Gauge {
    fn add(&self, slf: &Bound<'_, Self>, method: &str, amount: f64) -> PyResult<()> {
        let gauge = self.cell.get().ok_or_else(|| not_observable(slf.as_any()))?;
        if gauge.is_most_recent {
            let text = format!("{method} must not be used with the mostrecent mode");
            return Err(PyRuntimeError::new_err(text));
        }
        gauge.cell.add(amount);
        Ok(())
    }
}

instrument! {
    /// A summary: a count and a sum.
    Summary, SummaryCell, {
        /// Counts a value.
        fn observe(slf: &Bound<'_, Self>, amount: f64) -> PyResult<()> {
            let cell = slf.get().cell.get().ok_or_else(|| not_observable(slf.as_any()))?;
            cell.observe(amount);
            Ok(())
        }

        /// Observes the seconds that a block or a function (sync or async) took.
        fn time(slf: Py<Self>, py: Python<'_>) -> Timer {
            Timer::new(slf.into_any(), intern!(py, "observe").clone().unbind())
        }

        /// `(count, sum)`.
        fn _get(&self) -> (u64, f64) {
            match self.cell.get().map(SummaryCell::snapshot) {
                Some(Value::Summary { count, sum }) => (count, sum),
                _ => (0, 0.0),
            }
        }
    }
}

instrument! {
    /// A histogram with bounds of its own.
    Histogram, HistogramCell, {
        /// Counts a value.
        #[pyo3(signature = (amount, exemplar = None))]
        fn observe(slf: &Bound<'_, Self>, amount: f64, exemplar: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
            let cell = slf.get().cell.get().ok_or_else(|| not_observable(slf.as_any()))?;
            cell.observe(amount);
            match exemplar {
                None => Ok(()),
                some => keep_exemplar(slf.as_any(), some, amount),
            }
        }

        /// Observes the seconds that a block or a function (sync or async) took.
        fn time(slf: Py<Self>, py: Python<'_>) -> Timer {
            Timer::new(slf.into_any(), intern!(py, "observe").clone().unbind())
        }

        /// `(counts by bucket, sum)`; the counts are not cumulative.
        fn _get(&self) -> (Vec<u64>, f64) {
            match self.cell.get().map(HistogramCell::snapshot) {
                Some(Value::Histogram { buckets, sum }) => (buckets, sum),
                _ => (Vec::new(), 0.0),
            }
        }
    }
}
