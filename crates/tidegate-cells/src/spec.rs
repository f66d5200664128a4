// SPDX-License-Identifier: Apache-2.0

//! The specification of a family of series: name, instrument, labels.

use std::sync::Arc;

use crate::error::SpecError;
use crate::exponential;
use crate::layout::{MAX_BOUNDS, MAX_HELP, MAX_LABELS, MAX_NAME};

/// The merge of a gauge of several processes, as in `prometheus_client`. The `Live` modes leave out a dead process.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum GaugeMode {
    /// Each process keeps its own series, with a label `pid`.
    #[default]
    All,
    /// [`All`](Self::All) of the processes that live.
    LiveAll,
    /// The sum.
    Sum,
    /// The sum over the processes that live.
    LiveSum,
    /// The largest.
    Max,
    /// The largest of the processes that live.
    LiveMax,
    /// The smallest.
    Min,
    /// The smallest of the processes that live.
    LiveMin,
    /// The one set last.
    MostRecent,
    /// The one set last by a process that lives.
    LiveMostRecent,
}

/// All of them, in the order of their codes in files.
pub(crate) const GAUGE_MODES: [GaugeMode; 10] = [
    GaugeMode::All,
    GaugeMode::LiveAll,
    GaugeMode::Sum,
    GaugeMode::LiveSum,
    GaugeMode::Max,
    GaugeMode::LiveMax,
    GaugeMode::Min,
    GaugeMode::LiveMin,
    GaugeMode::MostRecent,
    GaugeMode::LiveMostRecent,
];

impl GaugeMode {
    /// Whether a dead process counts no more.
    pub fn is_live(self) -> bool {
        use GaugeMode::{LiveAll, LiveMax, LiveMin, LiveMostRecent, LiveSum};
        matches!(self, LiveAll | LiveSum | LiveMax | LiveMin | LiveMostRecent)
    }

    /// Whether every process keeps its own series.
    pub fn is_per_process(self) -> bool {
        matches!(self, GaugeMode::All | GaugeMode::LiveAll)
    }

    /// Whether the time of the last `set` is kept.
    pub fn is_most_recent(self) -> bool {
        matches!(self, GaugeMode::MostRecent | GaugeMode::LiveMostRecent)
    }
}

/// An instrument. It has more than `tidegate_model::Instrument`: number type, merge of gauges and buckets decide which
/// words of the file a value has.
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
    /// Counts by powers of 2^(2^-scale), and a sum; 160 buckets a side, the scale falls when they do not do.
    ExponentialHistogram {
        /// Scale it starts with, -10 to 20.
        max_scale: i8,
    },
    /// A count and a sum.
    Summary,
}

impl Kind {
    /// 64-bit words of a value.
    pub(crate) fn words(&self) -> usize {
        match self {
            Kind::Counter | Kind::FloatCounter | Kind::UpDownCounter => 1,
            Kind::Gauge(mode) => 1 + usize::from(mode.is_most_recent()),
            Kind::Histogram { bounds } => bounds.len() + 2,
            Kind::ExponentialHistogram { .. } => exponential::WORDS,
            Kind::Summary => 2,
        }
    }

    /// The alignment of a value in words: values with several written words have cache lines of their own.
    pub(crate) fn align(&self) -> u64 {
        match self {
            Kind::Histogram { .. } | Kind::ExponentialHistogram { .. } => 8,
            _ => 1,
        }
    }

    /// The merge of a gauge.
    pub(crate) fn gauge_mode(&self) -> Option<GaugeMode> {
        match self {
            Kind::Gauge(mode) => Some(*mode),
            _ => None,
        }
    }

    /// Its name in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::FloatCounter => "float counter",
            Kind::UpDownCounter => "up-down counter",
            Kind::Gauge(_) => "gauge",
            Kind::Histogram { .. } => "histogram",
            Kind::ExponentialHistogram { .. } => "exponential histogram",
            Kind::Summary => "summary",
        }
    }

    fn check(&self) -> Result<(), SpecError> {
        if let Kind::Histogram { bounds } = self {
            let ascending = bounds.iter().zip(bounds.iter().skip(1)).all(|(a, b)| a < b);
            let finite = bounds.iter().all(|bound| bound.is_finite());
            if bounds.len() > MAX_BOUNDS || !ascending || !finite {
                return Err(SpecError::Bounds);
            }
        }
        if let Kind::ExponentialHistogram { max_scale } = self
            && !(exponential::MIN_SCALE..=exponential::MAX_SCALE).contains(&i32::from(*max_scale))
        {
            return Err(SpecError::Scale(*max_scale));
        }
        Ok(())
    }
}

/// A family: all series of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct FamilySpec {
    /// Its name, in any convention.
    pub name: String,
    /// Its description, in a sentence.
    pub help: String,
    /// Unit, in UCUM or Prometheus' words; may be empty.
    pub unit: String,
    /// The instrument.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: Vec<String>,
}

impl FamilySpec {
    /// A family without help, unit and labels.
    pub fn new(name: impl Into<String>, kind: Kind) -> Self {
        FamilySpec {
            name: name.into(),
            help: String::new(),
            unit: String::new(),
            kind,
            labels: Vec::new(),
        }
    }

    /// With such labels.
    #[must_use]
    pub fn labels<S: Into<String>>(mut self, labels: impl IntoIterator<Item = S>) -> Self {
        self.labels = labels.into_iter().map(Into::into).collect();
        self
    }

    /// With such a help text.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// With such a unit.
    #[must_use]
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = unit.into();
        self
    }

    /// Whether a file can hold it.
    ///
    /// # Errors
    /// [`SpecError`].
    pub fn check(&self) -> Result<(), SpecError> {
        let named = |name: &String| !name.is_empty() && name.len() <= MAX_NAME;
        if !named(&self.name) {
            return Err(SpecError::Name);
        }
        if self.help.len() > MAX_HELP || self.unit.len() > MAX_NAME {
            return Err(SpecError::Text);
        }
        let twice = |at: usize, label: &String| self.labels.iter().take(at).any(|other| other == label);
        let mut labels = self.labels.iter().enumerate();
        if self.labels.len() > MAX_LABELS || labels.any(|(at, label)| !named(label) || twice(at, label)) {
            return Err(SpecError::Labels);
        }
        self.kind.check()
    }

    /// Whether both mean the same series: all but the help.
    pub(crate) fn same_as(&self, other: &FamilySpec) -> bool {
        self.name == other.name
            && self.unit == other.unit
            && self.kind == other.kind
            && self.labels == other.labels
    }
}
