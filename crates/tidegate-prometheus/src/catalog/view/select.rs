// SPDX-License-Identifier: Apache-2.0

//! The results of selectors: the present and the past of series.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use tidegate_promql::{
    History, Labels, Millis, NAME, Need, QueryError, QuerySeries, Sample, SampleValue, Samples, Selection,
    SeriesId,
};

use super::View;
use super::asked::Asked;
use super::entry::{Number, Past, SeriesEntry};
use super::shared::Gone;
use super::state::ViewState;

/// The longest distance by which a series without samples reaches back, in milliseconds.
const BEHIND_MS: Millis = 2000;

/// The number of series between two checks whether the reader still waits.
const LOOK_EVERY: usize = 256;

/// Numbers with their series.
type Live<'a> = Box<dyn Iterator<Item = (&'a SeriesEntry, &'a Number)> + 'a>;

impl ViewState {
    /// The numbers that a selection accepts, with their series; one a label set.
    pub(super) fn live<'a>(&'a self, selection: &'a Selection) -> Live<'a> {
        let of = |entry: &'a SeriesEntry| {
            let numbers = entry.is_shown.then_some(&entry.numbers);
            let numbers = numbers.into_iter().flatten();
            numbers.map(move |number| (entry, number))
        };
        let accepts = |(_, number): &(&SeriesEntry, &Number)| selection.accepts(&number.labels);
        match selection.name() {
            None => Box::new(self.entries().flat_map(of).filter(accepts)),
            Some(name) => Box::new(self.asked(name, selection).flat_map(move |entry| {
                let stem = entry.name.as_ref().map_or(0, |stem| stem.len());
                of(entry)
                    .filter(move |(_, number)| stem + number.suffix.len() == name.len())
                    .filter(accepts)
            })),
        }
    }

    /// The numbers that a selection accepts and that no longer exist.
    pub(super) fn gone<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = &'a Gone> {
        let gone = &self.shared.gone;
        let of_name = selection.name().map(|name| gone.get(name));
        let (named, all) = match of_name {
            Some(of_name) => (of_name, None),
            None => (None, Some(gone.values())),
        };
        let all = named.into_iter().chain(all.into_iter().flatten()).flatten();
        all.filter(|gone| selection.accepts(&gone.labels))
    }

    /// Whether a number has a sample in the time of a selection.
    pub(super) fn has_samples(&self, number: &Number, selection: &Selection) -> bool {
        let is_here = number.now.0 > selection.from && number.now.0 <= selection.to;
        is_here || matches!(number.past, Past::Kept(past) if self.had_samples(past, selection))
    }

    /// Whether a past has one.
    pub(super) fn had_samples(&self, past: SeriesId, selection: &Selection) -> bool {
        let history = &self.shared.history;
        let (from, to) = (selection.from, selection.to);
        history.newest(past, from, to).is_some() || history.newest_histogram(past, from, to).is_some()
    }
}

impl Samples for View {
    fn select(&self, selection: &Selection) -> Result<Vec<QuerySeries>, QueryError> {
        let mut state = self.state();
        state.prepare(selection);
        self.read(&state, selection)
    }
}

impl Samples for Asked<'_> {
    fn select(&self, selection: &Selection) -> Result<Vec<QuerySeries>, QueryError> {
        let mut state = self.view.state();
        if let Some((now, ended)) = self.began
            && ended != state.ended
        {
            // Another reader has ended tables that it has read. Nobody may have read their successors yet.
            drop(state);
            let selections = std::slice::from_ref(selection);
            self.view.refresh_for(now, selections, &selection.patience)?;
            state = self.view.state();
        }
        state.prepare(selection);
        self.note(&state, selection);
        self.view.read(&state, selection)
    }
}

impl View {
    fn read(&self, state: &ViewState, selection: &Selection) -> Result<Vec<QuerySeries>, QueryError> {
        let history = &state.shared.history;
        let (from, to) = (selection.from, selection.to);
        // A series is of one kind: the other gives nothing.
        let needs_past = selection.need.needs_past();
        let read = |past, series: &mut QuerySeries| match selection.need {
            Need::Newest => {
                series.samples.extend(history.newest(past, from, to));
                series.histograms.extend(history.newest_histogram(past, from, to));
            }
            need => {
                history.read_into(past, (from, to), need, &mut series.samples);
                let histograms = history.read_histograms(past, (from, to), need);
                series.histograms.extend(histograms);
            }
        };
        let is_within = |time: Millis| time > from && time <= to;
        let mut room = selection.max_samples;
        let mut all = Vec::new();
        let mut ended: HashMap<&Labels, QuerySeries, RandomState> = HashMap::default();
        for gone in state.gone(selection) {
            let series = ended.entry(&gone.labels).or_default();
            let before = series.weight();
            read(gone.past, series);
            room = less(room, before, series)?;
            if is_within(gone.since) {
                series.push(gone.since, SampleValue::Float(f64::from_bits(Sample::STALE)));
            }
        }
        let has_ended = !ended.is_empty();
        for (at, (_, number)) in state.live(selection).enumerate() {
            if at % LOOK_EVERY == 0 {
                selection.patience.check()?;
            }
            if needs_past {
                self.check_past(number, history)?;
            }
            let mut series = if has_ended {
                ended.remove(&number.labels).unwrap_or_default()
            } else {
                QuerySeries::of_floats(number.labels.clone(), Vec::new())
            };
            let before = series.weight();
            let (time, now) = &number.now;
            let is_here = is_within(*time);
            if has_ended {
                // This one took its place at the moment when another one ended.
                let is_end = |sample: &Sample| sample.value.to_bits() == Sample::STALE;
                series
                    .samples
                    .retain(|sample| !is_end(sample) || sample.time < *time);
            }
            if let Past::Kept(past) = number.past
                && (needs_past || !is_here)
            {
                read(past, &mut series);
            }
            let is_behind = !needs_past && series.is_empty() && *time > to && *time - to <= BEHIND_MS;
            if is_here && is_own_sample(&series, *time, now, needs_past) {
                series.push(*time, now.clone());
            } else if !is_here && is_behind {
                // The first sample of a new series may be just after the requested time, because the client's
                // clock is a little slow. A range, which `offset` may move into the past, has only its own
                // samples.
                series.push(to, now.clone());
            }
            room = less(room, before, &series)?;
            if has_ended {
                series.labels = number.labels.clone();
            }
            all.push(series);
        }
        let ended = ended.into_iter();
        all.extend(ended.map(|(labels, series)| QuerySeries {
            labels: labels.clone(),
            ..series
        }));
        all.retain(|series| !series.is_empty());
        if has_ended {
            for series in &mut all {
                series.samples.sort_by_key(|sample| sample.time);
                series.histograms.sort_by_key(|sample| sample.time);
            }
        }
        Ok(all)
    }
}

/// Whether the present is a sample of its own: in a range, one that only repeats the newest sample would count twice.
fn is_own_sample(series: &QuerySeries, time: Millis, now: &SampleValue, is_range: bool) -> bool {
    let Some(last) = series.last_time() else {
        return true;
    };
    let repeats = match (now, series.samples.last(), series.histograms.last()) {
        (SampleValue::Float(now), Some(last), None) => last.value.to_bits() == now.to_bits(),
        (SampleValue::Histogram(now), None, Some(last)) => last.value == *now,
        _ => false,
    };
    last < time && !(is_range && repeats)
}

/// The remaining capacity after a series of this weight.
fn less(room: usize, before: usize, series: &QuerySeries) -> Result<usize, QueryError> {
    room.checked_sub(series.weight().saturating_sub(before))
        .ok_or_else(QueryError::too_many_samples)
}

impl View {
    /// Whether a series has a past; the error says why it has none.
    fn check_past(&self, number: &Number, history: &History) -> Result<(), QueryError> {
        let name = number.labels.get(NAME);
        let why = match number.past {
            _ if !self.has_past() => "`history` of the admin extension is disabled".to_owned(),
            Past::Unwanted => "no rule of `history::rules` matches it".to_owned(),
            Past::Refused => format!(
                "`history::max_bytes` was used up when some of its series came ({} series refused)",
                history.refused()
            ),
            Past::Young | Past::Kept(_) => return Ok(()),
        };
        Err(QueryError::Samples(format!("`{name}` has no past: {why}")))
    }
}
