// SPDX-License-Identifier: Apache-2.0

//! Gauges.

use std::sync::Arc;

use tidegate_cells::FloatCell;

use super::{Celled, Instrument, Repr, SideRef, misuse};
use crate::description::{Description, Kind};
use crate::family::{AnyFamily, Family};
use crate::side::{Info, Side};
use crate::value::{Exemplar, Value};

/// A gauge of another registry.
pub trait GaugeFn: Send + Sync {
    /// Sets.
    fn set(&self, value: f64);

    /// Adds.
    fn add(&self, amount: f64);

    /// The handle that can be read and watched here; `None`: there is none.
    fn local(&self) -> Option<&Gauge>;
}

/// A number that is set.
#[derive(Clone)]
pub struct Gauge(Repr<FloatCell<Arc<Side>>, dyn GaugeFn>);

impl Gauge {
    pub(crate) fn of_cell(cell: &FloatCell, info: Info) -> Self {
        Self(Repr::Cell(Celled::new(cell.attach(Arc::new(Side::new(info))))))
    }

    /// A handle that does this.
    pub fn of(behaviour: Arc<dyn GaugeFn>) -> Self {
        Self(Repr::Dyn(behaviour))
    }

    /// Sets. (A value that is not a number is one that is not known; it is set, too.)
    #[inline]
    pub fn set(&self, value: f64) {
        match &self.0 {
            Repr::Cell(here) => {
                here.cell.set(value);
                here.side().watched.observe(value);
            }
            Repr::Dyn(other) => other.set(value),
            Repr::Null => {}
        }
    }

    /// Adds an amount; a negative one subtracts. It does not add a NaN, but [counts](crate::misused) it.
    #[inline]
    pub fn add(&self, amount: f64) {
        if amount.is_nan() {
            return misuse();
        }
        match &self.0 {
            Repr::Cell(here) => {
                here.cell.add(amount);
                if here.side().watched.is_watched() {
                    here.side().watched.observe(here.cell.get());
                }
            }
            Repr::Dyn(other) => other.add(amount),
            Repr::Null => {}
        }
    }

    /// Takes away.
    #[inline]
    pub fn sub(&self, amount: f64) {
        self.add(-amount);
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(1.0);
    }

    /// Takes one away.
    #[inline]
    pub fn dec(&self) {
        self.add(-1.0);
    }

    /// Sets seconds since the epoch, now.
    pub fn set_to_current_time(&self) {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        self.set(now.as_secs_f64());
    }

    /// One more until what it returns is dropped.
    pub fn track(&self) -> InProgress {
        self.inc();
        InProgress(self.clone())
    }

    /// The value; 0 of a registry that keeps nothing.
    pub fn get(&self) -> f64 {
        self.here().map_or(0.0, |here| here.cell.get())
    }

    fn here(&self) -> Option<&Celled<FloatCell<Arc<Side>>>> {
        match &self.0 {
            Repr::Cell(here) => Some(here),
            Repr::Dyn(other) => other.local().and_then(Self::here),
            Repr::Null => None,
        }
    }

    /// Which instrument it is of; `None`: of a registry that keeps nothing.
    pub fn info(&self) -> Option<&Info> {
        self.here().map(|here| &here.side().info)
    }
}

impl Instrument for Gauge {
    fn null() -> Self {
        Self(Repr::Null)
    }

    fn kind(description: &Description) -> Kind {
        Kind::Gauge(description.mode)
    }

    fn family(any: AnyFamily) -> Option<Family<Self>> {
        match any {
            AnyFamily::Gauge(family) => Some(family),
            _ => None,
        }
    }

    fn erase(family: Family<Self>) -> AnyFamily {
        AnyFamily::Gauge(family)
    }

    fn read(&self) -> Option<Value> {
        self.here().map(|here| Value::Gauge(here.cell.get()))
    }

    fn info(&self) -> Option<&Info> {
        Self::info(self)
    }

    fn exemplars(&self) -> Vec<Exemplar> {
        Vec::new()
    }

    fn side(&self) -> Option<SideRef<'_>> {
        self.here().map(|here| SideRef(here.side()))
    }
}

impl std::fmt::Debug for Gauge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.info().map(Info::name);
        f.debug_tuple("Gauge").field(&name).field(&self.get()).finish()
    }
}

/// Something in progress, which a gauge counts until this is dropped.
#[derive(Debug)]
#[must_use = "it is counted until it is dropped"]
pub struct InProgress(Gauge);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.dec();
    }
}
