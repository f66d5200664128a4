// SPDX-License-Identifier: Apache-2.0

//! Kinds of metrics: of an instrument, of OTLP's data, and of a family of Prometheus; and how they convert.
//!
//! Wire formats and interfaces of plugins have kinds of their own, with their own numbers. They convert to these.

use std::sync::Arc;

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
    #[inline]
    pub fn temporality(self) -> Temporality {
        match self {
            Self::Sum { temporality, .. }
            | Self::Histogram { temporality }
            | Self::ExponentialHistogram { temporality } => temporality,
            Self::Gauge | Self::Summary => Temporality::Cumulative,
        }
    }

    /// The instrument whose data it is. Quantiles summarise observations.
    #[inline]
    pub const fn instrument(self) -> Instrument {
        match self {
            Self::Gauge => Instrument::Gauge,
            Self::Sum { monotonic: true, .. } => Instrument::Counter,
            Self::Sum { monotonic: false, .. } => Instrument::UpDownCounter,
            Self::Histogram { .. } | Self::ExponentialHistogram { .. } | Self::Summary => {
                Instrument::Histogram
            }
        }
    }

    /// Whether it is a sum of deltas that may fall. A reader of totals does not know where such a sum began.
    #[inline]
    pub fn is_falling_delta(self) -> bool {
        let temporality = Temporality::Delta;
        let monotonic = false;
        self == Self::Sum {
            monotonic,
            temporality,
        }
    }
}

/// The instrument of an event: the meaning of a value before any aggregation. [`Kind`] does not serve here: an event has no
/// buckets and no merge yet.
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

impl Instrument {
    /// The last part of a Prometheus name: `total` of counters, `ratio` of gauges without a unit.
    pub fn suffix(self, unit: &str) -> Option<&'static str> {
        match self {
            Self::Counter => Some("total"),
            Self::Gauge if unit == "1" => Some("ratio"),
            Self::Gauge | Self::UpDownCounter | Self::Histogram => None,
        }
    }
}

/// The merge of a gauge of several processes, as in `prometheus_client`. The `Live` modes omit a dead process.
///
/// The numbers are those of files of cells.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum GaugeMode {
    /// Each process keeps its own series, with a label `pid`.
    #[default]
    All = 0,
    /// [`All`](Self::All) of the processes that live.
    LiveAll = 1,
    /// The sum.
    Sum = 2,
    /// The sum over the processes that live.
    LiveSum = 3,
    /// The largest.
    Max = 4,
    /// The largest of the processes that live.
    LiveMax = 5,
    /// The smallest.
    Min = 6,
    /// The smallest of the processes that live.
    LiveMin = 7,
    /// The one set last.
    MostRecent = 8,
    /// The one set last by a process that lives.
    LiveMostRecent = 9,
}

impl GaugeMode {
    /// All of them, by their numbers.
    pub const ALL: [Self; 10] = [
        Self::All,
        Self::LiveAll,
        Self::Sum,
        Self::LiveSum,
        Self::Max,
        Self::LiveMax,
        Self::Min,
        Self::LiveMin,
        Self::MostRecent,
        Self::LiveMostRecent,
    ];

    /// Whether a dead process counts no more.
    pub fn is_live(self) -> bool {
        use GaugeMode::{LiveAll, LiveMax, LiveMin, LiveMostRecent, LiveSum};
        matches!(self, LiveAll | LiveSum | LiveMax | LiveMin | LiveMostRecent)
    }

    /// Whether every process keeps its own series.
    pub fn is_per_process(self) -> bool {
        matches!(self, Self::All | Self::LiveAll)
    }

    /// Whether the time of the last `set` is kept.
    pub fn is_most_recent(self) -> bool {
        matches!(self, Self::MostRecent | Self::LiveMostRecent)
    }
}

/// The kind of instrument of a family that programs record: an [`Instrument`] with its number type, merge and buckets.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A `u64` that grows.
    Counter,
    /// An `f64` that grows.
    FloatCounter,
    /// An `i64` that goes up and down. The sum includes the parts of dead processes.
    UpDownCounter,
    /// An `f64` that is set or added to.
    Gauge(GaugeMode),
    /// Counts by upper bounds (inclusive; the last bucket, +Inf, is not listed), and a sum.
    Histogram {
        /// Ascending, finite.
        bounds: Arc<[f64]>,
    },
    /// Counts by powers of 2^(2^-scale), and a sum. A side has at most 160 buckets: the scale falls if more are needed.
    ExponentialHistogram {
        /// Scale it starts with, -10 to 20.
        max_scale: i8,
    },
    /// A count and a sum. The SDK reads summaries of other writers, and records none.
    Summary,
}

impl Kind {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::FloatCounter => "float_counter",
            Self::UpDownCounter => "up_down_counter",
            Self::Gauge(_) => "gauge",
            Self::Histogram { .. } => "histogram",
            Self::ExponentialHistogram { .. } => "exponential_histogram",
            Self::Summary => "summary",
        }
    }

    /// The instrument without its details. A summary has observations, as a histogram has.
    pub const fn instrument(&self) -> Instrument {
        match self {
            Self::Counter | Self::FloatCounter => Instrument::Counter,
            Self::UpDownCounter => Instrument::UpDownCounter,
            Self::Gauge(_) => Instrument::Gauge,
            Self::Histogram { .. } | Self::ExponentialHistogram { .. } | Self::Summary => {
                Instrument::Histogram
            }
        }
    }

    /// The merge of a gauge.
    pub const fn gauge_mode(&self) -> Option<GaugeMode> {
        match self {
            Self::Gauge(mode) => Some(*mode),
            _ => None,
        }
    }

    /// Whether values only grow.
    pub fn is_monotonic(&self) -> bool {
        self.instrument() == Instrument::Counter
    }

    /// Whether a value says how much there is, and not how much came.
    pub fn is_level(&self) -> bool {
        matches!(self, Self::UpDownCounter | Self::Gauge(_))
    }

    /// Whether values are observations: counted by buckets, or in a summary.
    pub fn is_histogram(&self) -> bool {
        self.instrument() == Instrument::Histogram
    }
}

/// The type of a family of Prometheus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MetricType {
    /// No type is given.
    #[default]
    Unknown,
    /// Never falls.
    Counter,
    /// May fall.
    Gauge,
    /// A distribution that only grows.
    Histogram,
    /// A distribution that may fall.
    GaugeHistogram,
    /// Quantiles.
    Summary,
    /// Labels that say something; the value is 1.
    Info,
    /// A label of the family's name says which state, the value whether.
    StateSet,
}

impl MetricType {
    /// All of them, by their numbers in remote write.
    pub const ALL: [Self; 8] = [
        Self::Unknown,
        Self::Counter,
        Self::Gauge,
        Self::Histogram,
        Self::GaugeHistogram,
        Self::Summary,
        Self::Info,
        Self::StateSet,
    ];

    /// As OpenMetrics spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::GaugeHistogram => "gaugehistogram",
            Self::Summary => "summary",
            Self::Info => "info",
            Self::StateSet => "stateset",
        }
    }
    /// By its name in OpenMetrics.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The number of `io.prometheus.client.MetricType`, which has no information and no state sets: they are gauges.
    pub const fn number(self) -> u8 {
        match self {
            Self::Counter => 0,
            Self::Gauge | Self::Info | Self::StateSet => 1,
            Self::Summary => 2,
            Self::Unknown => 3,
            Self::Histogram => 4,
            Self::GaugeHistogram => 5,
        }
    }

    /// By its number in `io.prometheus.client.MetricType`.
    pub const fn numbered(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::Counter,
            1 => Self::Gauge,
            2 => Self::Summary,
            3 => Self::Unknown,
            4 => Self::Histogram,
            5 => Self::GaugeHistogram,
            _ => return None,
        })
    }

    /// The type of a metric that does not say which type it had in Prometheus.
    pub const fn of(data: Data) -> Self {
        match data {
            Data::Gauge | Data::Sum { monotonic: false, .. } => Self::Gauge,
            Data::Sum { monotonic: true, .. } => Self::Counter,
            Data::Histogram { .. } | Data::ExponentialHistogram { .. } => Self::Histogram,
            Data::Summary => Self::Summary,
        }
    }

    /// The kind of data of a family; of a histogram, a classic one. Nothing for gauge histograms, which OpenTelemetry
    /// does not have.
    pub const fn data(self) -> Option<Data> {
        let temporality = Temporality::Cumulative;
        Some(match self {
            Self::Unknown | Self::Gauge => Data::Gauge,
            Self::Counter => Data::Sum {
                monotonic: true,
                temporality,
            },
            Self::Info | Self::StateSet => Data::Sum {
                monotonic: false,
                temporality,
            },
            Self::Histogram => Data::Histogram { temporality },
            Self::GaugeHistogram => return None,
            Self::Summary => Data::Summary,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_mode_is_at_its_number() {
        let numbers = GaugeMode::ALL.map(|mode| mode as usize);
        assert_eq!(numbers, std::array::from_fn(|at| at));
    }

    #[test]
    fn a_type_is_found_by_its_name_and_by_its_number() {
        for kind in MetricType::ALL {
            assert_eq!(MetricType::named(kind.name()), Some(kind));
            let is_gauge = matches!(kind, MetricType::Info | MetricType::StateSet);
            let expected = if is_gauge { MetricType::Gauge } else { kind };
            assert_eq!(MetricType::numbered(kind.number().into()), Some(expected));
        }
        assert_eq!(
            (MetricType::named("untyped"), MetricType::numbered(6)),
            (None, None)
        );
    }

    #[test]
    fn the_data_of_a_type_has_that_type() {
        use MetricType::{Counter, Gauge, Histogram, Summary};
        for kind in [Counter, Gauge, Histogram, Summary] {
            assert_eq!(kind.data().map(MetricType::of), Some(kind));
        }
        assert_eq!(MetricType::GaugeHistogram.data(), None);
    }
}
