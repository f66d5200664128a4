//! The Prometheus type of a metric, and its name in each format.

use tidegate_engine::{Data, Metric, Temporality};

use crate::format::Format;
use crate::model::PROMETHEUS_TYPE;
use crate::name::Kind;

/// The type of a TYPE line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Counter,
    Gauge,
    Unknown,
    Info,
    StateSet,
    Histogram,
    Summary,
}

impl Type {
    /// The type of a metric, and the kind for its name. Sums and histograms of tables are cumulative.
    ///
    /// # Errors The data model can't express the metric.
    pub(super) fn of(metric: &Metric, format: Format) -> Result<(Self, Kind), &'static str> {
        let (kind, of_data) = kinds(metric.data)?;
        let before = metric.metadata.get(PROMETHEUS_TYPE);
        let before = before.and_then(|before| before.as_str()).unwrap_or_default();
        // Only OpenMetrics has a name for the latter two: elsewhere they are gauges.
        let is_openmetrics = format == Format::OpenMetrics;
        let of_name = match (of_data, before) {
            (Self::Gauge, "unknown") => Self::Unknown,
            (Self::Gauge, "info") if is_openmetrics => Self::Info,
            (Self::Gauge, "stateset") if is_openmetrics => Self::StateSet,
            _ => of_data,
        };
        Ok((of_name, kind))
    }

    /// The word in a TYPE line.
    pub(super) fn word(self, format: Format) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Unknown if format == Format::OpenMetrics => "unknown",
            Self::Unknown => "untyped",
            Self::Info => "info",
            Self::StateSet => "stateset",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }

    /// The number of `io.prometheus.client.MetricType`.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Counter => 0,
            Self::Gauge | Self::Info | Self::StateSet => 1,
            Self::Summary => 2,
            Self::Unknown => 3,
            Self::Histogram => 4,
        }
    }

    /// The suffixes of the family's sample names. The name itself always belongs to the family.
    pub(super) fn suffixes(self, format: Format) -> &'static [&'static str] {
        match (self, format) {
            (Self::Counter, Format::OpenMetrics) => &["_total", "_created"],
            (Self::Histogram, Format::OpenMetrics) => &["_bucket", "_sum", "_count", "_created"],
            (Self::Summary, Format::OpenMetrics) => &["_sum", "_count", "_created"],
            (Self::Info, _) => &["_info"],
            (Self::Histogram, _) => &["_bucket", "_sum", "_count"],
            (Self::Summary, _) => &["_sum", "_count"],
            _ => &[],
        }
    }

    /// Whether its samples may carry exemplars.
    pub(super) fn has_exemplars(self) -> bool {
        matches!(self, Self::Counter | Self::Histogram)
    }
}

/// A point's kind as a name sees it, and what it is unless its metadata says more.
pub(crate) fn kinds(data: Data) -> Result<(Kind, Type), &'static str> {
    match data {
        Data::Gauge => Ok((Kind::Gauge, Type::Gauge)),
        Data::Sum {
            temporality: Temporality::Unspecified,
            ..
        } => Err("its temporality is unspecified"),
        Data::Sum { monotonic: true, .. } => Ok((Kind::Counter, Type::Counter)),
        Data::Sum { monotonic: false, .. } => Ok((Kind::UpDownCounter, Type::Gauge)),
        Data::Histogram { .. } | Data::ExponentialHistogram { .. } => {
            Ok((Kind::Distribution, Type::Histogram))
        }
        Data::Summary => Ok((Kind::Distribution, Type::Summary)),
    }
}
