// SPDX-License-Identifier: Apache-2.0

//! Values as pages that Prometheus reads: text 0.0.4 and OpenMetrics 1.0.0.
//!
//! A page lists every family once, under a name that no other family on it has; labels are escaped. Exponential
//! histograms, which text has no way to say, appear in their [classic form](crate::ExponentialHistogram::classic), as
//! the gateway shows them; OTLP has them whole.

mod name;
mod page;

pub use name::{family_name, sample_names};
pub use page::{Format, render};

#[cfg(test)]
mod tests;
