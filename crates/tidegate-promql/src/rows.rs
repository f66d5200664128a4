// SPDX-License-Identifier: Apache-2.0

//! Instant vectors over all steps of a query: each series is a row, each step is a cell.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use hashbrown::HashTable;

use super::eval::execution;
use super::labels::is_of_name;
use super::need::Steps;
use super::{FloatHistogram, HistogramSample, Labels, NAME, QueryError, QuerySeries, Sample, SampleValue};

/// A cell without a value: the bits of a stale marker, which no value has.
pub(super) const ABSENT: f64 = f64::from_bits(Sample::STALE);

pub(super) fn is_absent(value: f64) -> bool {
    value.to_bits() == Sample::STALE
}

/// The content of a cell.
#[derive(Clone, Copy)]
pub(super) enum Cell<'a> {
    Float(f64),
    Histogram(&'a Arc<FloatHistogram>),
}

impl Cell<'_> {
    pub(super) fn value(self) -> SampleValue {
        match self {
            Self::Float(number) => SampleValue::Float(number),
            Self::Histogram(histogram) => SampleValue::Histogram(histogram.clone()),
        }
    }

    /// The number of samples that it counts as.
    pub(super) fn weight(self) -> usize {
        match self {
            Self::Float(_) => 1,
            Self::Histogram(histogram) => 1 + histogram.len(),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    pub(super) steps: usize,
    /// One a row. No two rows of equal labels have values at the same step.
    pub(super) labels: Vec<Labels>,
    /// Whether the names in the labels are dropped. The labels themselves are made without them late, if at all.
    pub(super) is_nameless: bool,
    /// Row by row.
    pub(super) floats: Vec<f64>,
    /// Parallel to the floats; empty: there are no histograms.
    pub(super) histograms: Vec<Option<Arc<FloatHistogram>>>,
}

impl Rows {
    pub(super) fn new(steps: usize) -> Self {
        Self {
            steps,
            ..Self::default()
        }
    }

    /// Rows with these labels and empty cells.
    pub(super) fn of_labels(steps: usize, labels: Vec<Labels>) -> Self {
        Self {
            steps,
            floats: vec![ABSENT; steps * labels.len()],
            labels,
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.labels.len()
    }

    /// A new row of absent cells.
    pub(super) fn push(&mut self, labels: Labels) -> usize {
        self.labels.push(labels);
        self.floats.resize(self.labels.len() * self.steps, ABSENT);
        if !self.histograms.is_empty() {
            self.histograms.resize(self.floats.len(), None);
        }
        self.labels.len() - 1
    }

    /// Takes the last row away.
    pub(super) fn pop(&mut self) {
        self.labels.pop();
        self.floats.truncate(self.labels.len() * self.steps);
        self.histograms.truncate(self.floats.len());
    }

    pub(super) fn row(&self, row: usize) -> &[f64] {
        self.floats
            .get(row * self.steps..(row + 1) * self.steps)
            .unwrap_or_default()
    }

    pub(super) fn row_mut(&mut self, row: usize) -> &mut [f64] {
        self.floats
            .get_mut(row * self.steps..(row + 1) * self.steps)
            .unwrap_or_default()
    }

    pub(super) fn cell(&self, row: usize, step: usize) -> Option<Cell<'_>> {
        let at = row * self.steps + step;
        let float = *self.floats.get(at)?;
        if !is_absent(float) {
            return Some(Cell::Float(float));
        }
        let histogram = self.histograms.get(at)?.as_ref();
        histogram.map(Cell::Histogram)
    }

    pub(super) fn set(&mut self, row: usize, step: usize, value: SampleValue) {
        let at = row * self.steps + step;
        match value {
            SampleValue::Float(number) => self.floats[at] = number,
            SampleValue::Histogram(histogram) => {
                self.histograms.resize(self.floats.len(), None);
                self.histograms[at] = Some(histogram);
            }
        }
    }

    pub(super) fn clear(&mut self, row: usize, step: usize) {
        let at = row * self.steps + step;
        self.floats[at] = ABSENT;
        if let Some(histogram) = self.histograms.get_mut(at) {
            *histogram = None;
        }
    }

    /// Cells with a value, in the order of rows.
    pub(super) fn cells(&self) -> impl Iterator<Item = (usize, usize, Cell<'_>)> {
        let places = (0..self.len()).flat_map(|row| (0..self.steps).map(move |step| (row, step)));
        places.filter_map(|(row, step)| Some((row, step, self.cell(row, step)?)))
    }

    pub(super) fn has_histograms(&self) -> bool {
        !self.histograms.is_empty()
    }

    /// The number of samples that it counts as.
    pub(super) fn weight(&self) -> usize {
        let histograms = self.histograms.iter().flatten().map(|histogram| histogram.len());
        self.floats.len() + self.len() + histograms.sum::<usize>()
    }

    /// Whether there is a value, by step.
    pub(super) fn presence(&self) -> Vec<bool> {
        let mut all = vec![false; self.steps];
        self.cells().for_each(|(_, step, _)| all[step] = true);
        all
    }

    /// The metric name of a row; empty if it is dropped.
    pub(super) fn name(&self, row: usize) -> &str {
        if self.is_nameless {
            ""
        } else {
            self.labels[row].get(NAME)
        }
    }

    /// The labels of a row, without names if they are dropped.
    pub(super) fn shown(&self, row: usize) -> Labels {
        if self.is_nameless {
            self.labels[row].nameless()
        } else {
            self.labels[row].clone()
        }
    }

    /// Drops the names. Rows that become equal are joined.
    pub(super) fn nameless(mut self) -> Result<Self, QueryError> {
        if self.is_nameless {
            return Ok(self);
        }
        self.is_nameless = true;
        let mut names = self.labels.iter().map(Labels::only_name);
        let first = names.next().unwrap_or(Some(""));
        if first.is_some() && names.all(|name| name == first) {
            Ok(self)
        } else {
            self.joined()
        }
    }

    /// Joins the rows of equal labels.
    pub(super) fn joined(self) -> Result<Self, QueryError> {
        let mut groups = Groups::new(Keep::All);
        let labels = self.labels.iter();
        let places: Vec<usize> = labels
            .map(|labels| groups.group_index(labels, self.is_nameless))
            .collect();
        if groups.labels.len() == self.len() {
            return Ok(self);
        }
        let mut made = Self::of_labels(self.steps, groups.labels);
        made.is_nameless = self.is_nameless;
        for (row, step, cell) in self.cells() {
            if made.cell(places[row], step).is_some() {
                return execution("vector cannot contain metrics with the same labelset");
            }
            made.set(places[row], step, cell.value());
        }
        Ok(made)
    }

    /// Series of the values.
    pub(super) fn into_series(self, steps: Steps) -> Vec<QuerySeries> {
        let series = (0..self.len()).map(|row| {
            let present = self.row(row).iter().filter(|value| !is_absent(**value)).count();
            let mut samples = Vec::with_capacity(present);
            let values = steps.times().zip(self.row(row));
            let values = values.filter(|(_, value)| !is_absent(**value));
            samples.extend(values.map(|(time, value)| Sample { time, value: *value }));
            let from = row * self.steps;
            let histograms = self.histograms.get(from..from + self.steps).unwrap_or_default();
            let histograms = steps.times().zip(histograms);
            let histograms = histograms.filter_map(|(time, value)| {
                let value = value.clone()?;
                Some(HistogramSample { time, value })
            });
            QuerySeries {
                histograms: histograms.collect(),
                ..QuerySeries::of_floats(Labels::default(), samples)
            }
        });
        let named = series.enumerate().filter(|(_, series)| !series.is_empty());
        let named = named.map(|(row, series)| QuerySeries {
            labels: self.shown(row),
            ..series
        });
        named.collect()
    }
}

/// The labels that make a group.
#[derive(Clone, Copy)]
pub(super) enum Keep<'a> {
    All,
    By(&'a [String]),
    /// And without the metric's name.
    Without(&'a [String]),
    /// All but the metric's name.
    Nameless,
}

impl Keep<'_> {
    fn keeps(self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::By(names) => names.iter().any(|known| known == name),
            Self::Without(names) => name != NAME && !names.iter().any(|known| known == name),
            Self::Nameless => name != NAME,
        }
    }
}

fn hash_of<'l>(labels: impl Iterator<Item = (&'l Arc<str>, &'l Arc<str>)>) -> u64 {
    let mut hasher = foldhash::fast::FixedState::with_seed(0).build_hasher();
    for (name, value) in labels {
        hasher.write(name.as_bytes());
        hasher.write_u8(0xff);
        hasher.write(value.as_bytes());
        hasher.write_u8(0xff);
    }
    hasher.finish()
}

/// Groups of series by some of their labels.
pub(super) struct Groups<'a> {
    keep: Keep<'a>,
    table: HashTable<u32>,
    /// One a group.
    pub(super) labels: Vec<Labels>,
}

impl<'a> Groups<'a> {
    pub(super) fn new(keep: Keep<'a>) -> Self {
        Self {
            keep,
            table: HashTable::new(),
            labels: Vec::new(),
        }
    }

    /// The known group for these labels, with names dropped or not.
    pub(super) fn find(&self, labels: &Labels, is_nameless: bool) -> Option<usize> {
        let kept = || kept(self.keep, labels, is_nameless);
        let is_same = |group: &u32| self.labels[*group as usize].iter().eq(kept());
        let found = self.table.find(hash_of(kept()), is_same);
        found.map(|group| *group as usize)
    }

    /// The group of such labels, made if need be.
    pub(super) fn group_index(&mut self, labels: &Labels, is_nameless: bool) -> usize {
        if let Some(group) = self.find(labels, is_nameless) {
            return group;
        }
        let keep = self.keep;
        let made = labels.filter(|name| keep.keeps(name) && !(is_nameless && is_of_name(name)));
        let (group, hash) = (self.labels.len(), hash_of(made.iter()));
        self.labels.push(made);
        let labels = &self.labels;
        let rehash = |group: &u32| hash_of(labels[*group as usize].iter());
        self.table.insert_unique(hash, group as u32, rehash);
        group
    }
}

/// The labels that make the group.
fn kept<'l>(
    keep: Keep<'l>,
    labels: &'l Labels,
    is_nameless: bool,
) -> impl Iterator<Item = (&'l Arc<str>, &'l Arc<str>)> {
    let all = labels.iter();
    all.filter(move |(name, _)| keep.keeps(name) && !(is_nameless && is_of_name(name)))
}
