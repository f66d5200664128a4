// SPDX-License-Identifier: Apache-2.0

//! An outgoing series: labels that are made once, and samples in the order of their time.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_engine::Key;
pub use tidegate_exposition::MetricType as Kind;

use super::histogram::Native;

/// A label: name and value.
pub type Label = (Arc<str>, Arc<str>);

pub use crate::model::NAME;

/// The identity of a series.
#[derive(Debug)]
pub struct Identity {
    /// In the order of their names, `__name__` among them; neither names nor values are empty.
    labels: Box<[Label]>,
    key: Key,
}

impl Identity {
    /// Creates an identity from labels in any order, without duplicate names or empty values.
    pub fn new(labels: impl IntoIterator<Item = Label>) -> Self {
        let mut labels: Box<[Label]> = labels.into_iter().collect();
        labels.sort_by(|a, b| a.0.cmp(&b.0));
        Self {
            key: Key::of_value(&labels),
            labels,
        }
    }

    /// The labels, in the order of their names.
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// The name of the metric.
    pub fn name(&self) -> &str {
        let found = self.labels.iter().find(|(name, _)| &**name == NAME);
        found.map_or("", |(_, value)| value)
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && (std::ptr::eq(self, other) || self.labels == other.labels)
    }
}

impl Eq for Identity {}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

/// By its number in both messages; strangers are unknown.
pub(super) fn numbered(number: u64) -> Kind {
    let at = usize::try_from(number).unwrap_or(usize::MAX);
    Kind::ALL.get(at).copied().unwrap_or_default()
}

/// The number of a kind.
pub(super) fn number(kind: Kind) -> u64 {
    Kind::ALL
        .iter()
        .position(|known| *known == kind)
        .unwrap_or_default() as u64
}

/// The metadata of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// The name.
    pub name: Arc<str>,
    /// The kind.
    pub kind: Kind,
    /// The description.
    pub help: Arc<str>,
    /// The unit.
    pub unit: Arc<str>,
}

/// A value at a time, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The time, in milliseconds.
    pub time: i64,
    /// Since when a counter counts; 0 = not said.
    pub start: i64,
    /// The value.
    pub value: f64,
    /// The index of its point, for the item counts.
    pub point: u32,
}

/// An example of what a value is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Exemplar {
    /// The time, in milliseconds.
    pub time: i64,
    /// The observed value.
    pub value: f64,
    /// In the order of their names.
    pub labels: Vec<(String, String)>,
}

/// A series with what is to be said of it now.
#[derive(Clone, Debug)]
pub struct Series {
    /// The labels.
    pub identity: Arc<Identity>,
    /// The metadata.
    pub family: Arc<Family>,
    /// The samples.
    pub samples: SmallVec<[Sample; 1]>,
    /// Native histograms, with the point each is of.
    pub histograms: Vec<(Native, u32)>,
    /// The exemplars.
    pub exemplars: Vec<Exemplar>,
}

impl Series {
    /// A series without samples.
    pub fn new(identity: Arc<Identity>, family: Arc<Family>) -> Self {
        Self {
            identity,
            family,
            samples: SmallVec::new(),
            histograms: Vec::new(),
            exemplars: Vec::new(),
        }
    }

    /// An upper estimate of its size in a request, in bytes.
    pub fn bytes(&self) -> usize {
        /// Tags, lengths, references, metadata.
        const FRAME: usize = 32;
        const LABEL: usize = 16;
        const SAMPLE: usize = 40;
        const HISTOGRAM: usize = 96;
        let labels = self.identity.labels().iter();
        let labels: usize = labels.map(|(name, value)| name.len() + value.len() + LABEL).sum();
        let histograms = self.histograms.iter().map(|(native, _)| {
            let spans = native.positive_spans.len() + native.negative_spans.len();
            let deltas = native.positive_deltas.len() + native.negative_deltas.len();
            HISTOGRAM + spans * 13 + deltas * 10 + native.custom_values.len() * 8
        });
        let exemplars = self.exemplars.iter().map(|exemplar| {
            let labels = exemplar.labels.iter();
            SAMPLE
                + labels
                    .map(|(name, value)| name.len() + value.len() + LABEL)
                    .sum::<usize>()
        });
        let family = self.family.help.len() + self.family.unit.len() + self.family.name.len();
        FRAME
            + labels
            + family
            + self.samples.len() * SAMPLE
            + histograms.sum::<usize>()
            + exemplars.sum::<usize>()
    }
}

/// Series that belong together: all of the points that made any of them. They go into one request.
#[derive(Clone, Debug)]
pub struct Group {
    /// A hash that is equal for all series that may share one of these names and labels.
    pub hash: u64,
    /// Points that are in it.
    pub points: usize,
    /// The series.
    pub series: SmallVec<[Series; 1]>,
}

impl Group {
    /// An upper estimate of its size in a request, in bytes.
    pub fn bytes(&self) -> usize {
        self.series.iter().map(Series::bytes).sum()
    }
}
