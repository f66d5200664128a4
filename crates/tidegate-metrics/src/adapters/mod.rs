// SPDX-License-Identifier: Apache-2.0

//! Adapters: what was written for other libraries records here.

#[cfg(feature = "metrics-facade")]
mod facade;
#[cfg(feature = "otel")]
mod meter;
mod names;

#[cfg(feature = "metrics-facade")]
pub use facade::Facade;
#[cfg(feature = "otel")]
pub use meter::Meters;
