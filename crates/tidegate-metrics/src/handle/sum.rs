// SPDX-License-Identifier: Apache-2.0

//! Counters: whole, fractional, and up and down.

use std::sync::Arc;

use tidegate_cells::{CounterCell, FloatCell, UpDownCell};

use super::{Celled, Instrument, Repr, SideRef, misuse};
use crate::description::{Description, Kind};
use crate::family::{AnyFamily, Family};
use crate::side::{Info, Side};
use crate::span::SpanRef;
use crate::value::{Exemplar, Value};

/// A kind of counter: its handle, its behaviour elsewhere, and what they have in common.
macro_rules! sum_handle {
    ($(#[$doc:meta])* $name:ident, $(#[$fn_doc:meta])* $behaviour:ident, $cell:ident, $number:ty) => {
        $(#[$fn_doc])*
        pub trait $behaviour: Send + Sync {
            /// Adds.
            fn add(&self, amount: $number);

            /// Adds, and remembers the span that it happened in where that is possible.
            fn add_in(&self, amount: $number, _span: SpanRef) {
                self.add(amount);
            }

            /// The handle that can be read and watched here; `None`: there is none.
            fn local(&self) -> Option<&$name>;
        }

        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name(Repr<$cell<Arc<Side>>, dyn $behaviour>);

        impl $name {
            pub(crate) fn of_cell(cell: &$cell, info: Info) -> Self {
                Self(Repr::Cell(Celled::new(cell.attach(Arc::new(Side::new(info))))))
            }

            /// A handle that does this.
            pub fn of(behaviour: Arc<dyn $behaviour>) -> Self {
                Self(Repr::Dyn(behaviour))
            }

            /// Adds, and remembers that it happened in this span (where the family was described with exemplars).
            pub fn add_in(&self, amount: $number, span: SpanRef) {
                if !Self::is_valid(amount) {
                    return misuse();
                }
                match &self.0 {
                    Repr::Cell(here) => {
                        here.cell.add(amount);
                        here.side().remember(amount as f64, span);
                    }
                    Repr::Dyn(other) => other.add_in(amount, span),
                    Repr::Null => {}
                }
            }

            /// The total; 0 of a registry that keeps nothing.
            pub fn get(&self) -> $number {
                match &self.0 {
                    Repr::Cell(here) => here.cell.get(),
                    Repr::Dyn(other) => other.local().map_or_else(Default::default, Self::get),
                    Repr::Null => Default::default(),
                }
            }

            /// The handle of cells behind it.
            fn here(&self) -> Option<&Celled<$cell<Arc<Side>>>> {
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

        impl Instrument for $name {
            fn null() -> Self {
                Self(Repr::Null)
            }

            fn kind(_: &Description) -> Kind {
                Kind::$name
            }

            fn family(any: AnyFamily) -> Option<Family<Self>> {
                match any {
                    AnyFamily::$name(family) => Some(family),
                    _ => None,
                }
            }

            fn erase(family: Family<Self>) -> AnyFamily {
                AnyFamily::$name(family)
            }

            fn read(&self) -> Option<Value> {
                self.here().map(|here| Value::$name(here.cell.get()))
            }

            fn info(&self) -> Option<&Info> {
                Self::info(self)
            }

            fn exemplars(&self) -> Vec<Exemplar> {
                self.here().map(|here| here.side().exemplars()).unwrap_or_default()
            }

            fn side(&self) -> Option<SideRef<'_>> {
                self.here().map(|here| SideRef(here.side()))
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let name = self.info().map(Info::name);
                f.debug_tuple(stringify!($name)).field(&name).field(&self.get()).finish()
            }
        }
    };
}

sum_handle!(
    /// A whole number that only grows; wraps at 2^64. Recording costs one atomic addition.
    Counter,
    /// A counter of another registry.
    CounterFn,
    CounterCell,
    u64
);

sum_handle!(
    /// A number that only grows.
    FloatCounter,
    /// A fractional counter of another registry.
    FloatCounterFn,
    FloatCell,
    f64
);

sum_handle!(
    /// A whole number that grows and falls by what is added: things that come and go.
    UpDownCounter,
    /// An up-down counter of another registry.
    UpDownCounterFn,
    UpDownCell,
    i64
);

impl Counter {
    fn is_valid(_: u64) -> bool {
        true
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds.
    #[inline]
    pub fn add(&self, amount: u64) {
        match &self.0 {
            Repr::Cell(here) => {
                here.cell.add(amount);
                here.trace(amount as f64);
            }
            Repr::Dyn(other) => other.add(amount),
            Repr::Null => {}
        }
    }
}

impl FloatCounter {
    fn is_valid(amount: f64) -> bool {
        amount >= 0.0 && amount.is_finite()
    }

    /// Adds an amount. It does not add a negative or non-finite number, but [counts](crate::misused) it.
    #[inline]
    pub fn add(&self, amount: f64) {
        if !Self::is_valid(amount) {
            return misuse();
        }
        match &self.0 {
            Repr::Cell(here) => {
                here.cell.add(amount);
                here.trace(amount);
            }
            Repr::Dyn(other) => other.add(amount),
            Repr::Null => {}
        }
    }
}

impl UpDownCounter {
    fn is_valid(_: i64) -> bool {
        true
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Takes one away.
    #[inline]
    pub fn dec(&self) {
        self.add(-1);
    }

    /// Adds; less than nothing takes away.
    #[inline]
    pub fn add(&self, amount: i64) {
        match &self.0 {
            Repr::Cell(here) => {
                here.cell.add(amount);
                if here.side().watched.is_watched() {
                    here.side().watched.observe(here.cell.get() as f64);
                }
            }
            Repr::Dyn(other) => other.add(amount),
            Repr::Null => {}
        }
    }
}
