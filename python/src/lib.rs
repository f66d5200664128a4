// SPDX-License-Identifier: Apache-2.0

//! The base of the Python package `tidegate`: the parts that must be fast or that exist in Rust already.
//!
//! The package (`tidegate/`) gives these their public shape; nothing here is meant to be imported by programs.
//! Work that takes time runs detached from the interpreter. No class here relies on the interpreter's lock.

mod directory;
mod instruments;
mod metric;
mod nixl_store;
mod number;
mod ring;
mod sdk;
mod store;
mod timer;

/// See the crate.
#[pyo3::pymodule(gil_used = false)]
mod _tidegate {
    #[pymodule_export]
    use crate::directory::{Directory, MergedFamily, Process};
    #[pymodule_export]
    use crate::instruments::{Counter, Gauge, Histogram, Summary};
    #[pymodule_export]
    use crate::metric::Metric;
    #[pymodule_export]
    use crate::nixl_store::{NixlStore, NixlTotal};
    #[pymodule_export]
    use crate::ring::{RingInspection, RingPoll, RingReader, inspect_ring};
    #[pymodule_export]
    use crate::sdk::composite::{
        Composite, GroupSnapshot, Sources, Subscription, Trigger, Watcher, callback_failures,
    };
    #[pymodule_export]
    use crate::sdk::instrument::{
        CounterInstrument, Declared, FloatCounterInstrument, GaugeInstrument, HistogramInstrument,
        UpDownCounterInstrument,
    };
    #[pymodule_export]
    use crate::sdk::registry::{FamilyValues, Registry};
    #[pymodule_export]
    use crate::sdk::server::{Health, Server};
    #[pymodule_export]
    use crate::sdk::trace::{Span, TraceContext, set_span_source};
    #[pymodule_export]
    use crate::store::{Family, Store};
    #[pymodule_export]
    use crate::timer::Timer;

    /// The version of the package.
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
