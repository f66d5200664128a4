// SPDX-License-Identifier: Apache-2.0

//! The data model that the other crates share: [kinds](mod@kind) of metrics, their [values](mod@value) and
//! [numbers as varints](mod@varint).
//!
//! No I/O, nothing of the gateway.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod classic;
pub mod exponential;
pub mod histogram;
pub mod kind;
pub mod number;
pub mod value;
pub mod varint;

pub use kind::{Data, GaugeMode, Instrument, Kind, MetricType, Temporality};
pub use number::Number;
pub use value::{Buckets, ExponentialHistogram, Histogram, Quantile, Summary, Value};
