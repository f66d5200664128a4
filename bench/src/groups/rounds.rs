// SPDX-License-Identifier: Apache-2.0

//! Runs that take turns, so that what else the machine does falls on all alike; the first is what the others are held
//! against.

use crate::BenchError;
use crate::report::{Budget, Row};
use crate::stats::Samples;

/// A figure of a run.
pub(super) struct Figure<T> {
    pub(super) what: &'static str,
    pub(super) unit: &'static str,
    pub(super) of: fn(&T) -> f64,
    /// How what it is of the first run's is named, if that is said too, and what it must be.
    pub(super) against: Option<(&'static str, Option<Budget>)>,
}

/// Measures all `ways` in each of `rounds` rounds; rows of their figures.
pub(super) fn rows<W: Copy, T>(
    rounds: usize,
    ways: &[(&str, W)],
    figures: &[Figure<T>],
    mut measure: impl FnMut(W) -> Result<T, BenchError>,
) -> Result<Vec<Row>, BenchError> {
    let mut runs: Vec<Vec<T>> = ways.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for (index, (runs, (name, way))) in runs.iter_mut().zip(ways).enumerate() {
            super::note_job(name, round * ways.len() + index, rounds * ways.len());
            runs.push(measure(*way)?);
        }
    }
    let mut rows = Vec::new();
    for ((name, _), own) in ways.iter().zip(&runs) {
        rows.extend(figures.iter().map(|figure| {
            let samples = Samples::new(own.iter().map(figure.of));
            Row::median(format!("{name}: {}", figure.what), samples, figure.unit)
        }));
        if let [first, _, ..] = runs.as_slice()
            && !std::ptr::eq(first, own)
        {
            rows.extend(
                figures
                    .iter()
                    .filter_map(|figure| against(name, figure, own, first)),
            );
        }
    }
    Ok(rows)
}

fn against<T>(name: &str, figure: &Figure<T>, own: &[T], first: &[T]) -> Option<Row> {
    let (what, budget) = figure.against?;
    let row = Row::median(
        format!("{name}: {what}"),
        Samples::ratios(own, first, figure.of),
        "x",
    );
    Some(match budget {
        Some(budget) => row.budget(budget),
        None => row,
    })
}
