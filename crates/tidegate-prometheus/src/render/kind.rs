// SPDX-License-Identifier: Apache-2.0

//! The Prometheus type of a metric, and its name in each format.

use tidegate_engine::{Data, Metric, Temporality};
/// The type of a TYPE line.
pub(crate) use tidegate_exposition::MetricType as Type;

use crate::format::Format;
use crate::model::PROMETHEUS_TYPE;
use crate::name::Kind;

/// The type of a metric, and the kind for its name. Sums and histograms of tables are cumulative.
///
/// # Errors The data model can't express the metric.
pub(super) fn of(metric: &Metric, format: Format) -> Result<(Type, Kind), &'static str> {
    let (kind, of_data) = kinds(metric.data)?;
    let before = metric.metadata.get(PROMETHEUS_TYPE);
    let before = before
        .and_then(tidegate_engine::AttributeRef::as_str)
        .unwrap_or_default();
    // Only OpenMetrics has a name for the latter two: elsewhere they are gauges.
    let is_openmetrics = format == Format::OpenMetrics;
    let of_name = match (of_data, before) {
        (Type::Gauge, "unknown") => Type::Unknown,
        (Type::Gauge, "info") if is_openmetrics => Type::Info,
        (Type::Gauge, "stateset") if is_openmetrics => Type::StateSet,
        _ => of_data,
    };
    Ok((of_name, kind))
}

/// The word in a TYPE line.
pub(super) fn word(of_type: Type, format: Format) -> &'static str {
    match of_type {
        Type::Unknown if format != Format::OpenMetrics => "untyped",
        _ => of_type.name(),
    }
}

/// The suffixes of the family's sample names. The name itself always belongs to the family.
pub(super) fn suffixes(of_type: Type, format: Format) -> &'static [&'static str] {
    match (of_type, format) {
        (Type::Counter, Format::OpenMetrics) => &["_total", "_created"],
        (Type::Histogram, Format::OpenMetrics) => &["_bucket", "_sum", "_count", "_created"],
        (Type::Summary, Format::OpenMetrics) => &["_sum", "_count", "_created"],
        (Type::Info, _) => &["_info"],
        (Type::Histogram, _) => &["_bucket", "_sum", "_count"],
        (Type::Summary, _) => &["_sum", "_count"],
        _ => &[],
    }
}

/// Whether samples of this type may carry exemplars.
pub(super) fn has_exemplars(of_type: Type) -> bool {
    matches!(of_type, Type::Counter | Type::Histogram)
}

/// A point's kind as a name sees it, and what it is unless its metadata says more.
pub(crate) fn kinds(data: Data) -> Result<(Kind, Type), &'static str> {
    match data {
        Data::Sum {
            temporality: Temporality::Unspecified,
            ..
        } => Err("its temporality is unspecified"),
        _ => Ok((data.instrument(), Type::of(data))),
    }
}
