// SPDX-License-Identifier: Apache-2.0

//! The results of attacks, as tables in Markdown.

use std::fmt::Write;

use super::result::{AttackResult, TOTAL};

impl AttackResult {
    fn cells(&self) -> Vec<String> {
        vec![
            self.name.to_owned(),
            number(self.peak_mib, " MiB"),
            number(self.health, " ms"),
            number(self.honest, " %"),
            number(self.gap, " s"),
            number(self.queries, " ms"),
            self.recovery(),
            self.word().to_owned(),
        ]
    }

    /// The columns that the tables of all programs have: memory, health, honest pushes, their total, recovery.
    fn beside(&self) -> [String; 5] {
        let memory = if self.was_ended {
            number(self.peak_mib, " MiB, ended")
        } else {
            number(self.peak_mib, " MiB")
        };
        let health = if self.health.is_infinite() {
            "failed".to_owned()
        } else {
            number(self.health, " ms")
        };
        let total = match self.lines.iter().find(|line| line.what == TOTAL) {
            Some(line) if line.holds => "right".to_owned(),
            Some(line) => line.figure.clone(),
            None => String::new(),
        };
        [memory, health, number(self.honest, " %"), total, self.recovery()]
    }
}

/// A figure that is rounded, or nothing.
fn number(value: f64, unit: &str) -> String {
    if value.is_nan() {
        String::new()
    } else {
        format!("{value:.0}{unit}")
    }
}

const COLUMNS: [&str; 8] = [
    "attack",
    "peak memory",
    "health p99",
    "honest",
    "longest gap",
    "query max",
    "recovery",
    "verdict",
];

/// All of them as a table in Markdown.
pub(super) fn table(results: &[AttackResult]) -> String {
    markdown(&COLUMNS, results.iter().map(AttackResult::cells))
}

const COLUMNS_BESIDE: [&str; 11] = [
    "attack",
    "peak memory: tidegate",
    "Collector",
    "health p99: tidegate",
    "Collector",
    "honest: tidegate",
    "Collector",
    "total: tidegate",
    "Collector",
    "recovery: tidegate",
    "Collector",
];

/// Ours, each beside that of the Collector.
pub(super) fn beside(pairs: &[[AttackResult; 2]]) -> String {
    let rows = pairs.iter().map(|[ours, theirs]| {
        let cells = ours.beside().into_iter().zip(theirs.beside());
        let cells = cells.flat_map(|(ours, theirs)| [ours, theirs]);
        std::iter::once(ours.name.to_owned()).chain(cells).collect()
    });
    markdown(&COLUMNS_BESIDE, rows)
}

/// A table whose columns are of even width.
fn markdown(columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let columns = columns.iter().map(|&column| column.to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(columns).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let mut text = String::new();
    // Writing to a string does not fail.
    for (index, row) in rows.iter().enumerate() {
        let cells = row.iter().enumerate();
        let cells = cells.map(|(column, cell)| format!("{cell:width$}", width = width(column)));
        let _ = writeln!(text, "| {} |", cells.collect::<Vec<_>>().join(" | "));
        if index == 0 {
            let rules = (0..row.len()).map(|column| "-".repeat(width(column)));
            let _ = writeln!(text, "| {} |", rules.collect::<Vec<_>>().join(" | "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::result::CheckLine;
    use super::*;

    #[test]
    fn a_subject_that_was_ended_is_marked_beside_ours() {
        let result = |was_ended| AttackResult {
            peak_mib: 2050.0,
            was_ended,
            health: if was_ended { f64::INFINITY } else { 3.2 },
            lines: vec![CheckLine::new(TOTAL, "2 of 9", !was_ended)],
            ..AttackResult::failed("x", &"none".into())
        };
        let table = super::beside(&[[result(false), result(true)]]);
        let row = table.lines().last().unwrap_or_default();
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(
            cells,
            [
                "",
                "x",
                "2050 MiB",
                "2050 MiB, ended",
                "3 ms",
                "failed",
                "",
                "",
                "right",
                "2 of 9",
                "never",
                "never",
                ""
            ]
        );
    }
}
