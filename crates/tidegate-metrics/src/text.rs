// SPDX-License-Identifier: Apache-2.0

//! Values as pages that Prometheus reads: text 0.0.4 and OpenMetrics 1.0.0.
//!
//! A page lists every family once, under a name that no other family on it has; labels are escaped. Exponential
//! histograms, which text has no way to say, appear with the bounds of their buckets at a resolution of at most
//! [`TEXT_SCALE`]; OTLP has them whole.

mod name;
mod page;

pub use name::{family_name, sample_names};
pub use page::{Format, TEXT_SCALE, render};

#[cfg(test)]
mod tests;
