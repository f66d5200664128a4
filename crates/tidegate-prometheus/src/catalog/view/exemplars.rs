// SPDX-License-Identifier: Apache-2.0

//! The query names of table series, for data beside the values, such as exemplars.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_engine::{Series, UnixNanos};
use tidegate_promql::{Labels, Patience, QueryError, Selection};

use super::View;

/// Series of tables that some selections accept, by their addresses.
#[derive(Default)]
pub struct Accepted(HashMap<usize, AcceptedSeries>);

/// A series, and its numbers: the suffix of the name, and the labels.
struct AcceptedSeries {
    /// Kept, so that its address stays its own.
    _series: Arc<Series>,
    numbers: Vec<(&'static str, Labels)>,
}

impl Accepted {
    /// The query labels of a series' numbers whose names have this suffix. None if another series hides them.
    pub fn labels(&self, series: &Arc<Series>, suffix: &str) -> impl Iterator<Item = &Labels> {
        let numbers = self.0.get(&address(series)).into_iter();
        let numbers = numbers.flat_map(|seen| &seen.numbers);
        numbers.filter_map(move |(known, labels)| (*known == suffix).then_some(labels))
    }
}

fn address(series: &Arc<Series>) -> usize {
    Arc::as_ptr(series).addr()
}

impl View {
    /// The series that these selections accept now.
    ///
    /// # Errors
    /// The reader no longer waits, its time is over, or memory is short.
    pub fn accepted(
        &self,
        now: UnixNanos,
        selections: &[Selection],
        patience: &Patience,
    ) -> Result<Accepted, QueryError> {
        self.refresh_for(now, selections, patience)?;
        let mut all = Accepted::default();
        for selection in selections {
            self.each(selection, patience, &mut |state, entry| {
                for number in state.numbers(entry, selection) {
                    let seen = all
                        .0
                        .entry(address(&entry.series))
                        .or_insert_with(|| AcceptedSeries {
                            _series: entry.series.clone(),
                            numbers: Vec::new(),
                        });
                    let mut numbers = seen.numbers.iter();
                    // Selections may ask for the same again and again.
                    if !numbers.any(|(suffix, labels)| *suffix == number.suffix && *labels == number.labels) {
                        seen.numbers.push((number.suffix, number.labels.clone()));
                    }
                }
            })?;
        }
        Ok(all)
    }
}
