//! The identity of a series: resource + scope + metric + attributes (OpenTelemetry metrics data model, "stream
//! identity").

use std::sync::Arc;

use crate::Attributes;

/// The producer of the data: OTLP's `Resource` with its schema URL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// The resource's attributes.
    pub attributes: Attributes,
    /// `schema_url` of the `ResourceMetrics`.
    pub schema_url: Arc<str>,
}

/// The library that produced the data: OTLP's `InstrumentationScope` with its schema URL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// The scope's name.
    pub name: Arc<str>,
    /// The scope's version.
    pub version: Arc<str>,
    /// The scope's attributes.
    pub attributes: Attributes,
    /// `schema_url` of the `ScopeMetrics`.
    pub schema_url: Arc<str>,
}

/// The relation between values of successive points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Temporality {
    /// Not said, which OTLP forbids for sums and histograms; such points can only be passed through.
    Unspecified,
    /// Each point covers its own interval.
    Delta,
    /// Each point covers everything since its start time.
    #[default]
    Cumulative,
}

/// The kind of a metric's data, with all that is part of its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Data {
    /// A value as it was read.
    Gauge,
    /// A sum of increments.
    Sum {
        /// Never falls.
        monotonic: bool,
        /// Delta or cumulative.
        temporality: Temporality,
    },
    /// A histogram with explicit bounds.
    Histogram {
        /// Delta or cumulative.
        temporality: Temporality,
    },
    /// A histogram with exponential buckets.
    ExponentialHistogram {
        /// Delta or cumulative.
        temporality: Temporality,
    },
    /// Quantiles computed by the producer.
    Summary,
}

impl Data {
    /// The temporality; gauges and summaries have none, which reads as cumulative.
    pub fn temporality(self) -> Temporality {
        match self {
            Self::Sum { temporality, .. }
            | Self::Histogram { temporality }
            | Self::ExponentialHistogram { temporality } => temporality,
            Self::Gauge | Self::Summary => Temporality::Cumulative,
        }
    }

    /// Whether it is a sum of deltas that may fall. A reader of totals does not know where such a sum began.
    pub fn is_falling_delta(self) -> bool {
        let temporality = Temporality::Delta;
        let monotonic = false;
        self == Self::Sum {
            monotonic,
            temporality,
        }
    }
}

/// The instrument of an event: the meaning of a value before any aggregation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Instrument {
    /// Adds a non-negative amount.
    Counter,
    /// Adds an amount of either sign.
    UpDownCounter,
    /// Replaces the value.
    Gauge,
    /// One observation of a distribution.
    Histogram,
}

/// A metric: OTLP's `Metric` without its points.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Metric {
    /// Metric name as sent.
    pub name: Arc<str>,
    /// Free text; not part of the identity by the data model, kept with it here.
    pub description: Arc<str>,
    /// UCUM unit as sent.
    pub unit: Arc<str>,
    /// Kind of data.
    pub data: Data,
    /// `Metric.metadata` (for example `prometheus.type`).
    pub metadata: Attributes,
}

/// One output identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Series {
    /// The resource that produced it.
    pub resource: Arc<Resource>,
    /// The library that produced it.
    pub scope: Arc<Scope>,
    /// The metric.
    pub metric: Arc<Metric>,
    /// The point's attributes.
    pub attributes: Attributes,
}
