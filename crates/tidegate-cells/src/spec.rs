// SPDX-License-Identifier: Apache-2.0

//! The specification of a family of series: name, instrument, labels.

pub use tidegate_model::{GaugeMode, Kind};

use crate::error::SpecError;
use crate::exponential;
use crate::layout::{MAX_BOUNDS, MAX_HELP, MAX_LABELS, MAX_NAME};

/// 64-bit words of a value.
pub(crate) fn value_words(kind: &Kind) -> usize {
    match kind {
        Kind::Counter | Kind::FloatCounter | Kind::UpDownCounter => 1,
        Kind::Gauge(mode) => 1 + usize::from(mode.is_most_recent()),
        Kind::Histogram { bounds } => bounds.len() + 2,
        Kind::ExponentialHistogram { .. } => exponential::WORDS,
        Kind::Summary => 2,
    }
}

/// The alignment of a value in words: values with several written words have cache lines of their own.
pub(crate) fn value_alignment(kind: &Kind) -> u64 {
    match kind {
        Kind::Histogram { .. } | Kind::ExponentialHistogram { .. } => 8,
        _ => 1,
    }
}

fn check_kind(kind: &Kind) -> Result<(), SpecError> {
    if let Kind::Histogram { bounds } = kind {
        let ascending = bounds.iter().zip(bounds.iter().skip(1)).all(|(a, b)| a < b);
        let finite = bounds.iter().all(|bound| bound.is_finite());
        if bounds.len() > MAX_BOUNDS || !ascending || !finite {
            return Err(SpecError::Bounds);
        }
    }
    if let Kind::ExponentialHistogram { max_scale } = kind
        && !(exponential::MIN_SCALE..=exponential::MAX_SCALE).contains(&i32::from(*max_scale))
    {
        return Err(SpecError::Scale(*max_scale));
    }
    Ok(())
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
        check_kind(&self.kind)
    }

    /// Whether both mean the same series: all but the help.
    pub(crate) fn same_as(&self, other: &FamilySpec) -> bool {
        self.name == other.name
            && self.unit == other.unit
            && self.kind == other.kind
            && self.labels == other.labels
    }
}
