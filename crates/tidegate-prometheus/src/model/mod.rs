// SPDX-License-Identifier: Apache-2.0

//! The meaning of Prometheus data in OpenTelemetry, from a scraped page or a remote write.
//!
//! - [`LabelSet`]: the labels of a series, including `__name__`.
//! - [`SeriesIdentity`]: the labels of the resource (`job`, `instance`), the scope (`otel_scope_*`) and the point.
//! - [`metric`]: name, type, help and unit as a [`Metric`](tidegate_engine::Metric); [`ucum`]: unit words as UCUM.
//! - [`native`]: native histograms as values; [`Classic`]: bucket lines as a histogram; [`Quantiles`]: as a summary.
//! - [`exemplar`]; [`number`] and [`is_stale`]: samples, and the NaN that ends a series; [`nanos`]: times.
//!
//! The rules are those of the OpenTelemetry specification (compatibility/prometheus_and_openmetrics, "Prometheus
//! Metric points to OTLP").

mod classic;
mod identity;
mod labels;
mod metric;
mod native;
mod sample;
mod summary;
#[cfg(test)]
mod tests;
mod unit;

pub use classic::Classic;
pub use identity::{SeriesIdentity, TARGET_INFO};
pub use labels::{INSTANCE, JOB, LabelSet, MAX_LABELS, MAX_TEXT_BYTES, NAME};
pub use metric::{PROMETHEUS_TYPE, metric};
pub use native::{BucketLimit, Resolution, knows_schema, native, native_within};
pub use sample::{NANOS_PER_MILLI, STALE_NAN, exemplar, is_stale, nanos, number, whole};
pub use summary::Quantiles;
pub use unit::ucum;
