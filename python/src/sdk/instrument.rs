// SPDX-License-Identifier: Apache-2.0

//! Instruments of the SDK: a handle that records, or with labels of its own the family of such handles.

use std::sync::OnceLock;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyTuple};
use tidegate_cells::OVERFLOW_LABEL;
use tidegate_metrics::{
    Counter, CounterFamily, Description, FloatCounter, FloatCounterFamily, Gauge, GaugeFamily, GaugeMode,
    Histogram, HistogramFamily, MetricsRegistry, UpDownCounter, UpDownCounterFamily, buckets,
};

use super::composite::{Subscription, Trigger};
use super::registry::Registry;
use super::{LabelPairs, borrowed, composite, refused};
use crate::metric::Metric;
use crate::store::gauge_mode;
use crate::timer::Timer;

/// The content of an instrument's declaration.
#[pyclass(frozen, module = "tidegate._tidegate")]
pub(crate) struct Declared(Description);

/// The buckets of a histogram: by name, or by their upper bounds.
#[derive(FromPyObject)]
enum Buckets {
    Named(String),
    Bounds(Vec<f64>),
}

#[pymethods]
impl Declared {
    #[new]
    #[pyo3(signature = (name, help, unit = "", *, buckets = None, mode = None, exemplars = false))]
    fn new(
        name: &str,
        help: &str,
        unit: &str,
        buckets: Option<Buckets>,
        mode: Option<&str>,
        exemplars: bool,
    ) -> PyResult<Self> {
        let mut description = Description::new(name, help).unit(unit);
        description = match buckets {
            None => description,
            Some(Buckets::Named(name)) if name == "exponential" => description.exponential(),
            Some(Buckets::Named(name)) => description.bounds(buckets::named(&name).map_err(refused)?),
            Some(Buckets::Bounds(bounds)) => description.bounds(bounds),
        };
        if exemplars {
            description = description.exemplars();
        }
        let mode = mode.map_or(Ok(GaugeMode::LiveSum), gauge_mode)?;
        Ok(Self(description.mode(mode)))
    }
}

/// Nothing can be recorded with an instrument that has labels or was never registered.
#[cold]
fn unusable() -> PyErr {
    PyValueError::new_err("the instrument has labels (use `labels(...)`) or was not registered")
}

macro_rules! instrument {
    ($(#[$doc:meta])* $name:ident, $py:literal, $handle:ty, $family:ty, $register:ident, { $($methods:tt)* }) => {
        $(#[$doc])*
        #[pyclass(extends = Metric, subclass, frozen, name = $py, module = "tidegate._tidegate")]
        pub(crate) struct $name {
            handle: OnceLock<$handle>,
            family: OnceLock<$family>,
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
                let empty = Self { handle: OnceLock::new(), family: OnceLock::new() };
                PyClassInitializer::from(Metric::empty(py)).add_subclass(empty)
            }

            /// Registers it, once: constant labels, and the names of those that tell its series apart.
            fn _register(
                &self,
                py: Python<'_>,
                registry: &Registry,
                declared: &Declared,
                constant: LabelPairs,
                names: Vec<String>,
            ) -> PyResult<()> {
                let by: Vec<&str> = names.iter().map(String::as_str).collect();
                let family = py.detach(|| registry.scope().$register(&declared.0, &borrowed(&constant), &by));
                let family = self.family.get_or_init({
                    let family = family.map_err(refused)?;
                    || family
                });
                if by.is_empty() {
                    self.handle.get_or_init(|| family.with(&[]));
                }
                Ok(())
            }

            /// Makes it the series of its parent with these label values; false if it has none of its own, beyond the bound
            /// or where nothing is kept.
            fn _join(&self, py: Python<'_>, parent: &Self, values: Vec<String>) -> PyResult<bool> {
                let family = parent.family.get().ok_or_else(unusable)?;
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                let handle = py.detach(|| family.with(&values));
                let is_own = handle.info().is_some_and(|info| info.labels().all(|label| label != OVERFLOW_LABEL));
                self.handle.get_or_init(|| handle);
                Ok(is_own)
            }

            /// Ends the series with these label values.
            fn _end(&self, py: Python<'_>, values: Vec<String>) {
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                if let Some(family) = self.family.get() {
                    py.detach(|| family.remove(&values));
                }
            }

            fn _add_to(&self, sources: &composite::Sources) -> PyResult<()> {
                match (self.handle.get(), self.family.get()) {
                    (Some(handle), _) => sources.add(handle.clone()),
                    (None, Some(family)) => sources.add(family.clone()),
                    (None, None) => return Err(unusable()),
                }
                Ok(())
            }

            $($methods)*
        }
    };
}

instrument! {
    /// Whole numbers that only grow.
    CounterInstrument, "CounterInstrument", Counter, CounterFamily, counter_family, {
        /// Calls back when the value makes the trigger due.
        fn _on_change(&self, py: Python<'_>, callback: Py<PyAny>, trigger: &Trigger) -> PyResult<Subscription> {
            let handle = self.handle.get().ok_or_else(unusable)?;
            let callback = composite::callback(callback);
            Subscription::of(py.detach(|| handle.on_change(trigger.0.clone(), callback)))
        }

        /// Adds.
        #[pyo3(signature = (amount = Whole(1)), text_signature = "($self, amount=1)")]
        fn inc(&self, amount: Whole) -> PyResult<()> {
            let handle = self.handle.get().ok_or_else(unusable)?;
            let amount = u64::try_from(amount.0).map_err(|_| shrinking())?;
            handle.add(amount);
            Ok(())
        }

        /// The value of this process.
        fn get(&self) -> u64 {
            self.handle.get().map_or(0, Counter::get)
        }
    }
}

instrument! {
    /// Numbers that only grow.
    FloatCounterInstrument, "FloatCounterInstrument", FloatCounter, FloatCounterFamily, float_counter_family, {
        /// Calls back when the value makes the trigger due.
        fn _on_change(&self, py: Python<'_>, callback: Py<PyAny>, trigger: &Trigger) -> PyResult<Subscription> {
            let handle = self.handle.get().ok_or_else(unusable)?;
            let callback = composite::callback(callback);
            Subscription::of(py.detach(|| handle.on_change(trigger.0.clone(), callback)))
        }

        /// Adds.
        #[pyo3(signature = (amount = 1.0))]
        fn inc(&self, amount: f64) -> PyResult<()> {
            let handle = self.handle.get().ok_or_else(unusable)?;
            if amount < 0.0 {
                return Err(shrinking());
            }
            handle.add(amount);
            Ok(())
        }

        /// The value of this process.
        fn get(&self) -> f64 {
            self.handle.get().map_or(0.0, FloatCounter::get)
        }
    }
}

instrument! {
    /// A whole number that grows and falls by what is added.
    UpDownCounterInstrument, "UpDownCounterInstrument", UpDownCounter, UpDownCounterFamily, up_down_counter_family, {
        /// Calls back when the value makes the trigger due.
        fn _on_change(&self, py: Python<'_>, callback: Py<PyAny>, trigger: &Trigger) -> PyResult<Subscription> {
            let handle = self.handle.get().ok_or_else(unusable)?;
            let callback = composite::callback(callback);
            Subscription::of(py.detach(|| handle.on_change(trigger.0.clone(), callback)))
        }

        /// Adds.
        #[pyo3(signature = (amount = 1))]
        fn inc(&self, amount: i64) -> PyResult<()> {
            self.handle.get().ok_or_else(unusable)?.add(amount);
            Ok(())
        }

        /// Takes away.
        #[pyo3(signature = (amount = 1))]
        fn dec(&self, amount: i64) -> PyResult<()> {
            self.handle.get().ok_or_else(unusable)?.add(amount.wrapping_neg());
            Ok(())
        }

        /// The value of this process.
        fn get(&self) -> i64 {
            self.handle.get().map_or(0, UpDownCounter::get)
        }
    }
}

instrument! {
    /// A number that is set.
    GaugeInstrument, "GaugeInstrument", Gauge, GaugeFamily, gauge_family, {
        /// Calls back when the value makes the trigger due.
        fn _on_change(&self, py: Python<'_>, callback: Py<PyAny>, trigger: &Trigger) -> PyResult<Subscription> {
            let handle = self.handle.get().ok_or_else(unusable)?;
            let callback = composite::callback(callback);
            Subscription::of(py.detach(|| handle.on_change(trigger.0.clone(), callback)))
        }

        /// Sets.
        fn set(&self, value: f64) -> PyResult<()> {
            self.handle.get().ok_or_else(unusable)?.set(value);
            Ok(())
        }

        /// Adds.
        #[pyo3(signature = (amount = 1.0))]
        fn inc(&self, amount: f64) -> PyResult<()> {
            self.handle.get().ok_or_else(unusable)?.add(amount);
            Ok(())
        }

        /// Takes away.
        #[pyo3(signature = (amount = 1.0))]
        fn dec(&self, amount: f64) -> PyResult<()> {
            self.handle.get().ok_or_else(unusable)?.sub(amount);
            Ok(())
        }

        /// The value of this process.
        fn get(&self) -> f64 {
            self.handle.get().map_or(0.0, Gauge::get)
        }
    }
}

instrument! {
    /// Counts values by buckets.
    HistogramInstrument, "HistogramInstrument", Histogram, HistogramFamily, histogram_family, {
        /// Counts a value.
        fn observe(&self, value: f64) -> PyResult<()> {
            self.handle.get().ok_or_else(unusable)?.observe(value);
            Ok(())
        }

        /// Observes the seconds that a block or a function (sync or async) took.
        fn time(slf: Py<Self>, py: Python<'_>) -> Timer {
            Timer::new(slf.into_any(), intern!(py, "observe").clone().unbind())
        }

        /// `(count, sum)` of this process.
        fn get(&self) -> (u64, f64) {
            self.handle.get().map_or((0, 0.0), Histogram::count_and_sum)
        }
    }
}

#[cold]
fn shrinking() -> PyErr {
    PyValueError::new_err("a counter only grows: use an UpDownCounter or a Gauge for values that fall")
}

/// A whole number of a call.
struct Whole(i64);

impl<'a, 'py> FromPyObject<'a, 'py> for Whole {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let too_fine =
            || PyTypeError::new_err("a Counter counts whole numbers: use a FloatCounter for fractions");
        value.extract().map(Self).map_err(|error: PyErr| {
            if value.is_instance_of::<PyFloat>() {
                too_fine()
            } else {
                error
            }
        })
    }
}
