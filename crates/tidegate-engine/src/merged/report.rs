// SPDX-License-Identifier: Apache-2.0

//! Reports: what a producer says about a series, in which order they count, and why one is refused.

use std::cmp::Ordering;
use std::fmt;

use crate::stream_tracker::LastValue;
use crate::{Number, UnixNanos, Value};

/// A producer: a node agent or a gateway. The id stays the same over restarts and in all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub [u8; 16]);

impl fmt::Display for ProducerId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(to, "{byte:02x}"))
    }
}

/// How the values of several producers become one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MergeMode {
    /// The sum of totals that never fall. The total of an ended run stays.
    Add,
    /// The sum of levels. This and the following modes forget a value when the lease of its run ends.
    Level,
    /// The newest value.
    Last,
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
    /// The mean. A summary is as many values as its count says, a number is one.
    Mean,
}

impl MergeMode {
    pub(super) const ALL: [Self; 6] = [
        Self::Add,
        Self::Level,
        Self::Last,
        Self::Min,
        Self::Max,
        Self::Mean,
    ];

    /// Whether the values of ended runs stay.
    pub fn is_retained(self) -> bool {
        self == Self::Add
    }

    /// The name, as metadata of a metric spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Level => "level",
            Self::Last => "last",
            Self::Min => "min",
            Self::Max => "max",
            Self::Mean => "mean",
        }
    }

    /// The mode with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueForm {
    /// A number, whole or not.
    Number,
    /// A histogram with explicit bounds.
    Histogram,
    /// An exponential histogram.
    ExponentialHistogram,
    /// A summary.
    Summary,
}

/// The merge mode and the form that all values of a series have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReportKind {
    /// How they become one value.
    pub mode: MergeMode,
    /// Their form.
    pub form: ValueForm,
}

impl fmt::Display for ReportKind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match self.form {
            ValueForm::Number => "numbers",
            ValueForm::Histogram => "histograms",
            ValueForm::ExponentialHistogram => "exponential histograms",
            ValueForm::Summary => "summaries",
        };
        write!(to, "`{}` of {form}", self.mode.name())
    }
}

/// The newest value of a series that one run of a producer has.
#[derive(Clone, Debug, PartialEq)]
pub struct RunReport {
    /// The producer.
    pub producer: ProducerId,
    /// The run of the producer that sends the report. The lease of this run keeps levels alive.
    pub epoch: UnixNanos,
    /// The start time of the series in this run. Of levels, `Merged` sets it to the epoch.
    pub start: UnixNanos,
    /// A number that grows with each report of this producer and start.
    pub sequence: u64,
    /// When the value was true.
    pub time: UnixNanos,
    /// How it merges.
    pub mode: MergeMode,
    /// The cumulative value, or the level.
    pub value: Value,
}

impl RunReport {
    /// Its place among the reports of a series. A level is never in the place of a total: it goes, and totals stay.
    pub(super) fn order_key(&self) -> (ProducerId, UnixNanos, bool) {
        (self.producer, self.start, self.mode.is_retained())
    }

    /// The kind of its value. A value that says that the series has ended has none, and `checked` refuses it.
    pub(super) fn kind(&self) -> ReportKind {
        kind(self.mode, &self.value)
    }

    /// Whether it takes the place of `other`, which has the same producer and start. Of two reports with the same
    /// sequence, all replicas prefer the same one.
    pub(super) fn supersedes(&self, other: &Self) -> bool {
        match self.sequence.cmp(&other.sequence) {
            Ordering::Equal => self.rank(other).is_gt(),
            order => order.is_gt(),
        }
    }

    fn rank(&self, other: &Self) -> Ordering {
        let rest = |report: &Self| (report.time, report.epoch, report.mode);
        rank(&self.value, &other.value).then_with(|| rest(self).cmp(&rest(other)))
    }

    /// The report as it is kept; `None`: it is not valid.
    pub(super) fn checked(mut self) -> Option<Self> {
        let is_sound = match (self.mode, &self.value) {
            (MergeMode::Add, value) => self.start > 0 && is_total(value),
            (MergeMode::Last, Value::Int(_) | Value::Double(_)) => true,
            (MergeMode::Mean, Value::Summary(summary)) => summary.sum.is_finite(),
            (_, value) => value.number().is_some_and(Number::is_finite),
        };
        if !self.mode.is_retained() {
            self.start = self.epoch;
        }
        drop_quantiles(&mut self.value);
        is_sound.then_some(self)
    }
}

/// Removes the quantiles of a summary: those of several producers do not add up.
pub(super) fn drop_quantiles(value: &mut Value) {
    if let Value::Summary(summary) = value {
        summary.quantiles = Vec::new();
    }
}

pub(super) fn kind(mode: MergeMode, value: &Value) -> ReportKind {
    let form = match value {
        Value::Int(_) | Value::Double(_) | Value::NoRecordedValue => ValueForm::Number,
        Value::Histogram(_) => ValueForm::Histogram,
        Value::ExponentialHistogram(_) => ValueForm::ExponentialHistogram,
        Value::Summary(_) => ValueForm::Summary,
    };
    ReportKind { mode, form }
}

/// Whether a value is a total that can only grow.
pub(super) fn is_total(value: &Value) -> bool {
    match value {
        Value::Int(_) | Value::Double(_) => value
            .number()
            .is_some_and(|number| number.is_finite() && !number.less(Number::ZERO)),
        Value::Histogram(histogram) => histogram.is_sound(),
        Value::ExponentialHistogram(histogram) => histogram.is_sound(),
        Value::Summary(summary) => summary.sum.is_finite(),
        Value::NoRecordedValue => false,
    }
}

/// A total order of values that all processes agree on; the larger total is the greater one.
pub(super) fn rank(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => return one.cmp(other),
        (Value::Double(one), Value::Double(other)) => return one.total_cmp(other),
        _ => {}
    }
    let weight = |value: &Value| LastValue::weight_of(value).unwrap_or(f64::NEG_INFINITY);
    let bytes = |value: &Value| {
        let mut bytes = Vec::new();
        LastValue::of(value).unwrap_or_default().save(&mut bytes);
        bytes
    };
    weight(one)
        .total_cmp(&weight(other))
        .then_with(|| bytes(one).cmp(&bytes(other)))
}

/// Why a report or a retained total is refused. [`super::MergedStats`] counts them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeRefusal {
    /// A value that its mode does not allow, or a total without a start time.
    #[error(
        "producer {0}: the value does not fit its merge mode, or the total has no start time: fix the sender"
    )]
    Invalid(ProducerId),
    /// The series has another kind. The report is kept: a run with a smaller start may decide for its kind.
    #[error(
        "producer {producer}: the report is {sent}, the series is {shown}: give one of them another name"
    )]
    MixedKinds {
        /// The producer of the refused report.
        producer: ProducerId,
        /// The kind of the refused report.
        sent: ReportKind,
        /// The kind of the series.
        shown: ReportKind,
    },
    /// A level of a run that has ended, or that has no lease.
    #[error("producer {0}: the run has ended, so its levels do not count")]
    LeaseEnded(ProducerId),
    /// A retained total contains the run, or lists [`super::LISTED_STARTS`] later ones only.
    #[error(
        "producer {0}: the run is final, or began before all final ones: check the clock of the producer"
    )]
    FinalRun(ProducerId),
    /// The producer has reached its limit of series.
    #[error(
        "producer {0}: it has reached the limit `max_series_per_producer`: raise it, or send fewer series"
    )]
    ProducerSeries(ProducerId),
    /// The producer has reached its limit of runs in this series.
    #[error("producer {0}: it has too many runs: give each process a producer name of its own")]
    ProducerRuns(ProducerId),
    /// The limit of series is reached.
    #[error("producer {0}: the series have reached the limit `max_series`: raise it, or send fewer series")]
    Series(ProducerId),
    /// The limit of producers is reached.
    #[error("producer {0}: the producers have reached the limit `max_producers`: raise it")]
    Producers(ProducerId),
    /// The limit of memory is reached.
    #[error("producer {0}: the merged series need more memory: raise the memory limit, or send fewer series")]
    Memory(ProducerId),
}
