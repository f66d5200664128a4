// SPDX-License-Identifier: Apache-2.0

//! The API of plugins in Rust: a trait, a macro, and views of the gateway's data.

#[allow(unsafe_code)]
mod glue;
#[allow(unsafe_code)]
mod view;

pub use glue::{Exporter, table};
pub use view::{Batch, Event, EventKind, EventValue, Events, Setup};

use crate::abi::takes;

/// The payloads that a plugin takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takes(pub u32);

impl Takes {
    /// Metrics as OTLP.
    pub const METRICS: Self = Self(takes::METRICS);
    /// Traces as OTLP.
    pub const TRACES: Self = Self(takes::TRACES);
    /// Logs as OTLP.
    pub const LOGS: Self = Self(takes::LOGS);
    /// Events as columns. Without `METRICS` the points of gauges and of delta sums come as events too.
    pub const EVENTS: Self = Self(takes::EVENTS);

    /// Both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is taken.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The payloads among these that this version knows: a later minor version may know more.
    pub const fn known(self) -> Self {
        Self(self.0 & (takes::METRICS | takes::TRACES | takes::LOGS | takes::EVENTS))
    }
}

/// Which telemetry a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Signal {
    /// Metrics.
    Metrics = 0,
    /// Traces.
    Traces = 1,
    /// Logs.
    Logs = 2,
}

impl Signal {
    /// From the number in the ABI.
    pub fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Metrics),
            1 => Some(Self::Traces),
            2 => Some(Self::Logs),
            _ => None,
        }
    }
}

/// How the values of a kind combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Instrument {
    /// Values add up and never fall.
    Counter = 0,
    /// Values add up.
    UpDownCounter = 1,
    /// The last value counts.
    Gauge = 2,
    /// Values are observations.
    Histogram = 3,
}

impl Instrument {
    /// From the number in the ABI.
    pub fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Counter),
            1 => Some(Self::UpDownCounter),
            2 => Some(Self::Gauge),
            3 => Some(Self::Histogram),
            _ => None,
        }
    }
}

/// Exports a type that implements [`Exporter`] as the plugin of its shared object (`crate-type = ["cdylib"]`).
#[macro_export]
macro_rules! exporter_plugin {
    ($exporter:ty) => {
        /// The symbol that the gateway looks up.
        #[unsafe(no_mangle)]
        pub extern "C" fn tidegate_exporter_plugin() -> *const $crate::abi::Table {
            static TABLE: $crate::abi::Table = $crate::plugin::table::<$exporter>();
            &TABLE
        }
    };
}
