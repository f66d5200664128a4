// SPDX-License-Identifier: Apache-2.0

//! Histograms: with fixed buckets and with exponential ones.

use std::sync::Arc;
use std::time::Duration;

use tidegate_cells::{ExponentialCell, HistogramCell};

use super::{Celled, Instrument, Repr, SideRef, Sided, Timer, misuse};
use crate::cells;
use crate::description::{Description, Kind};
use crate::family::{AnyFamily, Family};
use crate::side::{Info, Side};
use crate::span::SpanRef;
use crate::value::{Exemplar, Value};

/// A histogram of another registry.
pub trait HistogramFn: Send + Sync {
    /// Counts a value.
    fn observe(&self, value: f64);

    /// Counts a value, and remembers the span that it was made in where that is possible.
    fn observe_in(&self, value: f64, _span: SpanRef) {
        self.observe(value);
    }

    /// The handle that can be read and watched here; `None`: there is none.
    fn local(&self) -> Option<&Histogram>;
}

/// Counts values by buckets: fixed ones, or exponential ones if it was described so.
#[derive(Clone)]
pub struct Histogram(Repr<Buckets, dyn HistogramFn>);

#[derive(Clone, Debug)]
pub(crate) enum Buckets {
    Fixed(HistogramCell<Arc<Side>>),
    Exponential(ExponentialCell<Arc<Side>>),
}

impl Sided for Buckets {
    #[inline]
    fn side(&self) -> &Arc<Side> {
        match self {
            Self::Fixed(cell) => cell.attached(),
            Self::Exponential(cell) => cell.attached(),
        }
    }
}

impl Buckets {
    #[inline]
    fn observe(&self, value: f64) {
        match self {
            Self::Fixed(cell) => cell.observe(value),
            Self::Exponential(cell) => cell.observe(value),
        }
    }

    fn read(&self) -> Value {
        match self {
            Self::Fixed(cell) => Value::Histogram(cells::histogram(cell.bounds().clone(), cell.snapshot())),
            Self::Exponential(cell) => Value::Exponential(cells::exponential(cell.snapshot())),
        }
    }
}

impl Histogram {
    pub(crate) fn fixed(cell: &HistogramCell, info: Info) -> Self {
        let cell = cell.attach(Arc::new(Side::new(info)));
        Self(Repr::Cell(Celled::new(Buckets::Fixed(cell))))
    }

    pub(crate) fn exponential(cell: &ExponentialCell, info: Info) -> Self {
        let cell = cell.attach(Arc::new(Side::new(info)));
        Self(Repr::Cell(Celled::new(Buckets::Exponential(cell))))
    }

    /// A handle that does this.
    pub fn of(behaviour: Arc<dyn HistogramFn>) -> Self {
        Self(Repr::Dyn(behaviour))
    }

    /// Counts a value. It does not count a non-finite number, but records it as [misuse](crate::misused).
    #[inline]
    pub fn observe(&self, value: f64) {
        if !value.is_finite() {
            return misuse();
        }
        match &self.0 {
            Repr::Cell(here) => {
                here.cell.observe(value);
                here.side().watched.observe(value);
                here.trace(value);
            }
            Repr::Dyn(other) => other.observe(value),
            Repr::Null => {}
        }
    }

    /// Counts a value and remembers that it was made in this span (where the family was described with exemplars).
    pub fn observe_in(&self, value: f64, span: SpanRef) {
        if !value.is_finite() {
            return misuse();
        }
        match &self.0 {
            Repr::Cell(here) => {
                here.cell.observe(value);
                here.side().watched.observe(value);
                here.side().remember(value, span);
            }
            Repr::Dyn(other) => other.observe_in(value, span),
            Repr::Null => {}
        }
    }

    /// Counts a duration in seconds.
    #[inline]
    pub fn observe_duration(&self, duration: Duration) {
        self.observe(duration.as_secs_f64());
    }

    /// Measures until what it returns is dropped, in seconds.
    pub fn start_timer(&self) -> Timer {
        Timer::new(self.clone())
    }

    /// Measures how many seconds `work` takes.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let _timer = self.start_timer();
        work()
    }

    /// How many values, and their sum; nothing of a registry that keeps nothing.
    pub fn count_and_sum(&self) -> (u64, f64) {
        let value = self.read().and_then(|value| value.count_and_sum());
        value.unwrap_or_default()
    }

    fn here(&self) -> Option<&Celled<Buckets>> {
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

impl Instrument for Histogram {
    fn null() -> Self {
        Self(Repr::Null)
    }

    fn kind(description: &Description) -> Kind {
        description.histogram()
    }

    fn family(any: AnyFamily) -> Option<Family<Self>> {
        match any {
            AnyFamily::Histogram(family) => Some(family),
            _ => None,
        }
    }

    fn erase(family: Family<Self>) -> AnyFamily {
        AnyFamily::Histogram(family)
    }

    fn read(&self) -> Option<Value> {
        self.here().map(|here| here.cell.read())
    }

    fn info(&self) -> Option<&Info> {
        Self::info(self)
    }

    fn exemplars(&self) -> Vec<Exemplar> {
        self.here()
            .map(|here| here.side().exemplars())
            .unwrap_or_default()
    }

    fn side(&self) -> Option<SideRef<'_>> {
        self.here().map(|here| SideRef(here.side()))
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.info().map(Info::name);
        let (count, sum) = self.count_and_sum();
        f.debug_tuple("Histogram")
            .field(&name)
            .field(&count)
            .field(&sum)
            .finish()
    }
}
