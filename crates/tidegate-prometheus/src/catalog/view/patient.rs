// SPDX-License-Identifier: Apache-2.0

//! Reads many series for a waiting reader, in slices, so that others get the state in between. It ends when the
//! reader no longer waits.

use std::sync::atomic::Ordering::Relaxed;

use foldhash::HashSet;
use tidegate_engine::UnixNanos;
use tidegate_promql::{Labels, Patience, QueryError, Selection};

use super::entry::{Key, Number, SeriesEntry};
use super::state::ViewState;
use super::{SLICE, View, YIELD};

impl View {
    /// Reads the current state of the series in the selections. A selection without a name reads all series in
    /// slices.
    ///
    /// # Errors
    /// The reader no longer waits, its time is over, or memory is short.
    pub fn refresh_for(
        &self,
        now: UnixNanos,
        selections: &[Selection],
        patience: &Patience,
    ) -> Result<(), QueryError> {
        patience.check()?;
        if self.begin_refresh(now, selections) {
            self.refresh_all(now, patience)
        } else {
            Ok(())
        }
    }

    /// Reads all series, some at a time.
    pub(super) fn refresh_all(&self, now: UnixNanos, patience: &Patience) -> Result<(), QueryError> {
        let arrived = self.state().arrived;
        let mut is_over = Ok(());
        self.in_slices(now, &mut |_, _, _| {
            is_over = patience.check();
            is_over.is_ok()
        });
        is_over?;
        let pass = self.pass(now, false);
        let mut state = self.state();
        state.resolve_all(pass);
        state.read = arrived;
        Ok(())
    }

    /// The sorted labels of every series that one of these selections accepts and that has a sample in its time
    /// range.
    ///
    /// # Errors
    /// The reader no longer waits, its time is over, or memory is short.
    pub fn labels(&self, selections: &[Selection], patience: &Patience) -> Result<Vec<Labels>, QueryError> {
        let mut all: HashSet<Labels> = HashSet::default();
        for selection in selections {
            self.each(selection, patience, &mut |state, entry| {
                for number in state.numbers(entry, selection) {
                    if state.has_samples(number, selection) && !all.contains(&number.labels) {
                        all.insert(number.labels.clone());
                    }
                }
            })?;
            let state = self.state();
            for (at, gone) in state.gone(selection).enumerate() {
                if at % SLICE == 0 {
                    patience.check()?;
                }
                if state.had_samples(gone.past, selection) && !all.contains(&gone.labels) {
                    all.insert(gone.labels.clone());
                }
            }
        }
        let mut all: Vec<Labels> = all.into_iter().collect();
        all.sort_unstable();
        Ok(all)
    }

    /// Shows the series that a selection may accept, by name, to `look_at`; the state is free between parts of them.
    pub(super) fn each(
        &self,
        selection: &Selection,
        patience: &Patience,
        look_at: &mut dyn FnMut(&ViewState, &SeriesEntry),
    ) -> Result<(), QueryError> {
        patience.check()?;
        let keys = {
            let mut state = self.state();
            state.prepare(selection);
            state.all_keys(selection)
        };
        for part in keys.chunks(SLICE) {
            patience.check()?;
            while self.waiting.load(Relaxed) > 0 {
                std::thread::sleep(YIELD);
            }
            let state = self.state();
            let entries = part.iter().filter_map(|key| state.entry(*key));
            entries.for_each(|entry| look_at(&state, entry));
        }
        Ok(())
    }

    /// The number of series that these selections read, at most `most`: the cost of a query before its
    /// computation.
    pub fn cost(&self, selections: &[Selection], most: usize) -> usize {
        let state = self.state();
        let mut cost = 0;
        for selection in selections {
            cost += match selection.name() {
                None => state.len(),
                Some(name) => state.keys(name, selection).take(most).count(),
            };
            if cost >= most {
                return most;
            }
        }
        cost
    }
}

impl ViewState {
    /// The keys of series that a selection may accept.
    fn all_keys(&self, selection: &Selection) -> Vec<Key> {
        if let Some(name) = selection.name() {
            return self.keys(name, selection).collect();
        }
        let ends = self.sources.iter().map(|source| {
            let entries = source.as_ref().map_or(0, |source| source.entries.len());
            u32::try_from(entries).unwrap_or(u32::MAX)
        });
        (0u32..)
            .zip(ends)
            .flat_map(|(source, end)| (0..end).map(move |at| (source, at)))
            .collect()
    }

    /// The numbers of a series that a selection accepts.
    pub(super) fn numbers<'a>(
        &self,
        entry: &'a SeriesEntry,
        selection: &'a Selection,
    ) -> impl Iterator<Item = &'a Number> {
        let numbers = entry.is_shown.then_some(&entry.numbers).into_iter().flatten();
        let stem = entry.name.as_ref().map_or(0, |stem| stem.len());
        let length = selection.name().map(str::len);
        let numbers =
            numbers.filter(move |number| length.is_none_or(|length| stem + number.suffix.len() == length));
        numbers.filter(|number| selection.accepts(&number.labels))
    }
}
