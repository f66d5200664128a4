//! What queries see: the present and the past of what a selector asks for.

use std::collections::HashMap;

use tidegate_engine::History;
use tidegate_engine::query::{Labels, NAME, QueryError, QuerySeries, Sample, Samples, Selection};

use super::View;
use super::entry::{Gone, Number, Past};
use super::state::State;

impl State {
    /// The numbers that a selection accepts; one a label set.
    pub(super) fn live<'a>(&'a self, selection: &'a Selection) -> Box<dyn Iterator<Item = &'a Number> + 'a> {
        let accepts = |number: &&Number| !number.is_shadowed && selection.accepts(&number.labels);
        match selection.name() {
            None => Box::new(self.entries().flat_map(|entry| &entry.numbers).filter(accepts)),
            Some(name) => Box::new(self.named(name).flat_map(move |entry| {
                let stem = entry.name.as_ref().map_or(0, |stem| stem.len());
                let numbers = entry.numbers.iter();
                numbers
                    .filter(move |number| stem + number.suffix.len() == name.len())
                    .filter(accepts)
            })),
        }
    }

    /// The numbers that a selection accepts and that are no more.
    pub(super) fn gone<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = &'a Gone> {
        let gone = &self.books.gone;
        let of_name = selection.name().map(|name| gone.get(name));
        let (named, all) = match of_name {
            Some(of_name) => (of_name, None),
            None => (None, Some(gone.values())),
        };
        let all = named.into_iter().chain(all.into_iter().flatten()).flatten();
        all.filter(|gone| selection.accepts(&gone.labels))
    }
}

impl Samples for View {
    fn select(&self, selection: &Selection) -> Result<Vec<QuerySeries>, QueryError> {
        let state = self.state();
        let history = &state.books.history;
        let read = |past, samples: &mut Vec<Sample>| match selection.needs_past {
            true => samples.extend(history.read(past, selection.from, selection.to)),
            false => samples.extend(history.newest(past, selection.from, selection.to)),
        };
        let is_within = |sample: &Sample| sample.time > selection.from && sample.time <= selection.to;
        let mut ended: HashMap<&Labels, Vec<Sample>> = HashMap::new();
        for gone in state.gone(selection) {
            let samples = ended.entry(&gone.labels).or_default();
            read(gone.past, samples);
            let end = Sample {
                time: gone.since,
                value: f64::from_bits(Sample::STALE),
            };
            samples.extend(is_within(&end).then_some(end));
        }
        let mut all = Vec::new();
        for number in state.live(selection) {
            if selection.needs_past && (!self.has_past || matches!(number.past, Past::Refused)) {
                return Err(QueryError::Samples(no_past(
                    self.has_past,
                    &number.labels,
                    history,
                )));
            }
            let mut samples = ended.remove(&number.labels).unwrap_or_default();
            let is_here = is_within(&number.now);
            if let Past::Kept(past) = number.past
                && (selection.needs_past || !is_here)
            {
                read(past, &mut samples);
            }
            if is_here && samples.last().is_none_or(|last| last.time < number.now.time) {
                samples.push(number.now);
            }
            all.push((&number.labels, samples));
        }
        let series = all.into_iter().chain(ended);
        Ok(series
            .filter(|(_, samples)| !samples.is_empty())
            .map(|(labels, mut samples)| {
                samples.sort_by_key(|sample| sample.time);
                QuerySeries {
                    labels: labels.clone(),
                    samples,
                }
            })
            .collect())
    }
}

fn no_past(has_past: bool, labels: &Labels, history: &History) -> String {
    let name = labels.get(NAME);
    match has_past {
        false => format!("`{name}` has no past: `history` of the admin extension is disabled"),
        true => format!(
            "`{name}` has series without a past: `history::max_bytes` was used up when they came ({} series refused)",
            history.refused()
        ),
    }
}
