// SPDX-License-Identifier: Apache-2.0

//! The samples of a unit test in memory.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tidegate_promql::{Labels, Millis, Query, QueryError, QuerySeries, SampleValue, Samples, Selection};

use crate::backend::{QueryAnswer, RuleBackend, RuleSample};

/// The most samples of a test.
const MAX_HELD: usize = 20_000_000;

/// An input series, of which a part is in the store.
struct Input {
    labels: Labels,
    /// In reverse order.
    samples: Vec<(Millis, SampleValue)>,
}

/// Input series up to a time, and what rules have written.
#[derive(Default)]
pub(super) struct TestStore {
    inputs: Vec<Input>,
    series: BTreeMap<Labels, QuerySeries>,
    held: usize,
}

impl TestStore {
    /// Adds an input series.
    pub(super) fn add(&mut self, labels: Labels, mut samples: Vec<(Millis, SampleValue)>) {
        samples.reverse();
        self.inputs.push(Input { labels, samples });
    }

    /// Shows the samples of input series up to a time.
    pub(super) fn advance(&mut self, to: Millis) {
        let mut inputs = std::mem::take(&mut self.inputs);
        for input in &mut inputs {
            while let Some((time, value)) = input.samples.pop_if(|(time, _)| *time <= to) {
                self.push(&input.labels, time, value);
            }
        }
        self.inputs = inputs;
    }

    /// Whether the store holds all that it may.
    pub(super) fn is_full(&self) -> bool {
        self.held >= MAX_HELD
    }

    /// A sample that is not later than those of its series is dropped, as Prometheus does.
    fn push(&mut self, labels: &Labels, time: Millis, value: SampleValue) {
        if self.is_full() {
            return;
        }
        let series = match self.series.entry(labels.clone()) {
            Entry::Occupied(series) => series.into_mut(),
            Entry::Vacant(free) => free.insert(QuerySeries::of_floats(labels.clone(), Vec::new())),
        };
        if series.last_time().is_none_or(|last| last < time) {
            series.push(time, value);
            self.held += 1;
        }
    }
}

/// The samples that a selection reaches: from later than its start to its end.
fn between<'a, S>(samples: &'a [S], selection: &Selection, time: impl Fn(&S) -> Millis) -> &'a [S] {
    let from = samples.partition_point(|sample| time(sample) <= selection.from);
    let to = samples.partition_point(|sample| time(sample) <= selection.to);
    samples.get(from..to).unwrap_or_default()
}

impl Samples for TestStore {
    fn select(&self, selection: &Selection) -> Result<Vec<QuerySeries>, QueryError> {
        let need = selection.need;
        let wanted = self
            .series
            .values()
            .filter(|series| selection.accepts(&series.labels));
        let cut = |series: &QuerySeries| {
            let mut cut = QuerySeries::of_floats(series.labels.clone(), Vec::new());
            let floats = between(&series.samples, selection, |sample| sample.time);
            need.keep(floats.iter().copied(), &mut cut.samples, |sample| sample.time);
            let histograms = between(&series.histograms, selection, |sample| sample.time);
            need.keep(histograms.iter().cloned(), &mut cut.histograms, |sample| {
                sample.time
            });
            cut
        };
        Ok(wanted.map(cut).filter(|series| !series.is_empty()).collect())
    }
}

impl RuleBackend for TestStore {
    fn instant(&mut self, query: &Query, at: Millis) -> Result<QueryAnswer, QueryError> {
        let instant = query.instant(&*self, at)?;
        QueryAnswer::from_instant(instant, false)
    }

    fn append(&mut self, samples: &[RuleSample]) {
        for sample in samples {
            self.push(&sample.labels, sample.time, sample.value.clone());
        }
    }
}
