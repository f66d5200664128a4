// SPDX-License-Identifier: Apache-2.0

//! Handles: what a component records with.
//!
//! A handle is a cell and what its series keeps beside it. Only where a registry is more than cells (it passes on to
//! C, or to several registries) the handle is dynamic; where it keeps nothing, the handle does nothing.

mod gauge;
pub(crate) mod histogram;
mod sum;
mod timer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use gauge::{Gauge, GaugeFn, InProgress};
pub use histogram::{Histogram, HistogramFn};
pub use sum::{Counter, CounterFn, FloatCounter, FloatCounterFn, UpDownCounter, UpDownCounterFn};
pub use timer::Timer;

use crate::description::{Description, Kind};
use crate::family::{AnyFamily, Family};
use crate::side::{Info, Side};
use crate::span::SpanRef;
use crate::value::{Exemplar, Value};

/// The target of a handle.
#[derive(Debug)]
pub(crate) enum Repr<C, D: ?Sized> {
    Null,
    Cell(Celled<C>),
    Dyn(Arc<D>),
}

impl<C: Clone, D: ?Sized> Clone for Repr<C, D> {
    fn clone(&self) -> Self {
        match self {
            Self::Null => Self::Null,
            Self::Cell(cell) => Self::Cell(cell.clone()),
            Self::Dyn(other) => Self::Dyn(other.clone()),
        }
    }
}

/// A cell with what its series keeps beside it: attached, so that a handle is one reference to count.
pub(crate) trait Sided {
    fn side(&self) -> &Arc<Side>;
}

macro_rules! sided {
    ($($cell:ident),*) => {$(
        impl Sided for tidegate_cells::$cell<Arc<Side>> {
            #[inline]
            fn side(&self) -> &Arc<Side> {
                self.attached()
            }
        }
    )*};
}

sided!(CounterCell, FloatCell, UpDownCell);

/// A cell that is recorded in.
#[derive(Clone, Debug)]
pub(crate) struct Celled<C> {
    pub(crate) cell: C,
    /// Whether recording asks for the current span. A copy: looking it up would touch another cache line.
    is_traced: bool,
}

impl<C: Sided> Celled<C> {
    pub(crate) fn new(cell: C) -> Self {
        Self {
            is_traced: cell.side().info.family().exemplars,
            cell,
        }
    }

    #[inline]
    pub(crate) fn side(&self) -> &Arc<Side> {
        self.cell.side()
    }

    /// Remembers the current span, where the family wants that.
    #[inline]
    fn trace(&self, value: f64) {
        if self.is_traced {
            self.trace_slowly(value);
        }
    }

    #[cold]
    fn trace_slowly(&self, value: f64) {
        if let Some(span) = SpanRef::current() {
            self.side().remember(value, span);
        }
    }
}

/// The kinds of handle.
pub trait Instrument: Clone + Send + Sync + 'static {
    /// A handle that does nothing.
    fn null() -> Self;

    /// The kind of a family that is described so.
    fn kind(description: &Description) -> Kind;

    /// A family of this kind of handle; `None`: it is of another kind.
    fn family(any: AnyFamily) -> Option<Family<Self>>;

    /// The family as one of any kind.
    fn erase(family: Family<Self>) -> AnyFamily;

    /// Its value; `None`: a registry that keeps nothing.
    fn read(&self) -> Option<Value>;

    /// Which instrument it is of; `None`: of a registry that keeps nothing.
    fn info(&self) -> Option<&Info>;

    /// The exemplars: the spans in which it was used.
    fn exemplars(&self) -> Vec<Exemplar>;

    #[doc(hidden)]
    fn side(&self) -> Option<SideRef<'_>>;
}

/// The data that a series keeps beside its cell, for watchers.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct SideRef<'a>(pub(crate) &'a Arc<Side>);

static MISUSED: AtomicU64 = AtomicU64::new(0);

/// How often this process used an instrument in a way that has no meaning (a negative or endless increase of a counter,
/// an observed value that is not finite, a NaN added to a gauge, another number of label values than labels). Each time
/// nothing was recorded.
pub fn misused() -> u64 {
    MISUSED.load(Relaxed)
}

#[cold]
pub(crate) fn misuse() {
    MISUSED.fetch_add(1, Relaxed);
}
