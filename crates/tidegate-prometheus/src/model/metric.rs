//! Converts a family's metadata to a metric.

use tidegate_engine::{Attributes, Data, Metric, Temporality};
use tidegate_exposition::MetricType;

use super::unit::ucum;

/// Metadata key that says which type Prometheus had for a metric.
pub const PROMETHEUS_TYPE: &str = "prometheus.type";

/// The kind of data of a family; of a histogram, a classic one. Nothing for gauge histograms, which OpenTelemetry does
/// not have.
pub fn data(kind: MetricType) -> Option<Data> {
    let temporality = Temporality::Cumulative;
    match kind {
        MetricType::Unknown | MetricType::Gauge => Some(Data::Gauge),
        MetricType::Counter => Some(Data::Sum {
            monotonic: true,
            temporality,
        }),
        MetricType::Info | MetricType::StateSet => Some(Data::Sum {
            monotonic: false,
            temporality,
        }),
        MetricType::Histogram => Some(Data::Histogram { temporality }),
        MetricType::GaugeHistogram => None,
        MetricType::Summary => Some(Data::Summary),
    }
}

/// A metric; `unit` is a word of Prometheus.
pub fn metric(name: &str, kind: MetricType, data: Data, help: &str, unit: &str) -> Metric {
    Metric {
        name: name.into(),
        description: help.into(),
        unit: ucum(unit).into(),
        data,
        metadata: Attributes::from_iter([(PROMETHEUS_TYPE, kind.name())]),
    }
}
