// SPDX-License-Identifier: Apache-2.0

//! Rows of figures: printed as they come, kept as JSON and as a Markdown table.

use std::fmt;
use std::path::Path;

use serde_json::json;

use crate::BenchError;
use crate::stats::Samples;

/// One figure.
pub(crate) struct Row {
    name: String,
    unit: &'static str,
    value: f64,
    spread: Option<Samples>,
    budget: Option<Budget>,
    /// The text that is shown instead of a value.
    text: Option<String>,
    /// The job of its group that it is of.
    job: Option<&'static str>,
    place: Option<TablePosition>,
}

/// Where a figure stands in the table of its job.
struct TablePosition {
    line: String,
    column: &'static str,
}

/// The limit that a figure must not exceed, or fall below.
#[derive(Clone, Copy)]
pub(crate) enum Budget {
    AtMost(f64),
    AtLeast(f64),
}

impl Row {
    /// A single value.
    pub(crate) fn value(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            name: name.into(),
            unit,
            value,
            spread: None,
            budget: None,
            text: None,
            job: None,
            place: None,
        }
    }

    /// A text instead of a figure: a version, or the reason why something was not measured.
    pub(crate) fn note(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            text: Some(text.into()),
            ..Self::value(name, 0.0, "")
        }
    }

    /// The median of several runs, with the least and the greatest.
    pub(crate) fn median(name: impl Into<String>, samples: Samples, unit: &'static str) -> Self {
        Self {
            spread: Some(samples.clone()),
            ..Self::value(name, samples.median(), unit)
        }
    }

    pub(crate) fn budget(self, budget: Budget) -> Self {
        Self {
            budget: Some(budget),
            ..self
        }
    }

    /// Belongs to this job of its group, which is reported by itself.
    pub(crate) fn of(self, job: &'static str) -> Self {
        Self {
            job: Some(job),
            ..self
        }
    }

    /// To be shown in the table of its job, where figures of the same `line` stand side by side.
    pub(crate) fn placed(self, line: impl Into<String>, column: &'static str) -> Self {
        let place = TablePosition {
            line: line.into(),
            column,
        };
        Self {
            place: Some(place),
            ..self
        }
    }

    /// Whether it says no more than a table of its own does.
    pub(crate) fn is_only_in_a_table(&self) -> bool {
        self.place.is_some() && self.budget.is_none()
    }

    fn holds(&self) -> Option<bool> {
        self.budget.map(|budget| match budget {
            Budget::AtMost(limit) => self.value <= limit,
            Budget::AtLeast(limit) => self.value >= limit,
        })
    }

    /// Value and spread, for a table whose column says the rest.
    fn in_a_table(&self) -> String {
        let spread = self.spread.as_ref().map_or_else(String::new, |samples| {
            format!(" [{} .. {}]", number(samples.min()), number(samples.max()))
        });
        format!("{} {}{spread}", number(self.value), self.unit)
    }

    /// Name, value, spread, budget, verdict: the cells of a table.
    fn cells(&self) -> [String; 5] {
        let spread = self.spread.as_ref().map_or_else(String::new, |samples| {
            format!(
                "{} .. {} of {}",
                number(samples.min()),
                number(samples.max()),
                samples.count()
            )
        });
        let budget = self.budget.map_or_else(String::new, |budget| match budget {
            Budget::AtMost(limit) => format!("<= {}", number(limit)),
            Budget::AtLeast(limit) => format!(">= {}", number(limit)),
        });
        let verdict = match self.holds() {
            Some(true) => "holds",
            Some(false) => "MISSED",
            None => "",
        };
        let value = match &self.text {
            Some(text) => text.clone(),
            None => format!("{} {}", number(self.value), self.unit),
        };
        [self.name.clone(), value, spread, budget, verdict.to_owned()]
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [name, value, spread, budget, verdict] = self.cells();
        if self.text.is_some() {
            return write!(f, "{name:58} {value}");
        }
        write!(f, "{name:58} {value:>20}  {spread:28} {budget:12} {verdict}")
    }
}

/// Three significant digits or so, and thousands apart.
fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 1e6 {
        format!("{:.1} M", value / 1e6)
    } else if magnitude >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if magnitude >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// All rows of a run.
pub(crate) struct Report {
    machine: String,
    rows: Vec<(&'static str, Row)>,
}

impl Report {
    pub(crate) fn new(machine: String) -> Self {
        Self {
            machine,
            rows: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, group: &'static str, row: Row) {
        self.rows.push((group, row));
    }

    /// Writes `report.json` and `report.md`.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), BenchError> {
        std::fs::create_dir_all(directory)?;
        let text = serde_json::to_string_pretty(&self.json())?;
        std::fs::write(directory.join("report.json"), text)?;
        std::fs::write(directory.join("report.md"), self.markdown())?;
        Ok(())
    }

    fn json(&self) -> serde_json::Value {
        let rows = self.rows.iter().map(|(group, row)| {
            json!({
                "group": group,
                "job": row.job,
                "name": row.name,
                "value": row.text.is_none().then_some(row.value),
                "text": row.text,
                "unit": row.unit,
                "min": row.spread.as_ref().map(Samples::min),
                "max": row.spread.as_ref().map(Samples::max),
                "runs": row.spread.as_ref().map(Samples::count),
                "budget_holds": row.holds(),
            })
        });
        json!({"machine": self.machine, "rows": rows.collect::<Vec<_>>()})
    }

    fn markdown(&self) -> String {
        let sections = self.sections().into_iter();
        let sections = sections.map(|(name, text)| format!("## {name}\n\n{text}\n"));
        format!("{}\n\n{}", self.machine, sections.collect::<String>())
    }

    /// The results as Markdown, a section for each group, or for each job of it.
    pub(crate) fn sections(&self) -> Vec<(String, String)> {
        let key = |group: &str, row: &Row| {
            row.job
                .map_or_else(|| group.to_owned(), |job| format!("{group}/{job}"))
        };
        let mut sections: Vec<(String, Vec<&Row>)> = Vec::new();
        for (group, row) in &self.rows {
            let key = key(group, row);
            match sections.iter_mut().find(|(name, _)| *name == key) {
                Some((_, rows)) => rows.push(row),
                None => sections.push((key, vec![row])),
            }
        }
        sections
            .into_iter()
            .map(|(name, rows)| (name, section(&rows)))
            .collect()
    }

    pub(crate) fn machine(&self) -> &str {
        &self.machine
    }
}

/// A table of the figures that belong into it, then all others and those with a budget, then notes.
fn section(rows: &[&Row]) -> String {
    let (notes, figures): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.text.is_some());
    let listed = figures.iter().filter(|row| !row.is_only_in_a_table());
    let listed: String = listed
        .map(|row| format!("| {} |\n", row.cells().join(" | ")))
        .collect();
    let listed = match listed.as_str() {
        "" => String::new(),
        lines => {
            format!(
                "| figure | value | min .. max of runs | budget | |\n| --- | --- | --- | --- | --- |\n{lines}\n"
            )
        }
    };
    let notes = notes.iter().map(|note| {
        let text = note.text.as_deref().unwrap_or_default();
        format!("- {}: {text}\n", note.name)
    });
    [table(&figures), listed].into_iter().chain(notes).collect()
}

/// Figures of the same line side by side.
fn table(figures: &[&Row]) -> String {
    let placed = figures.iter().filter_map(|row| Some((row.place.as_ref()?, *row)));
    let placed: Vec<(&TablePosition, &Row)> = placed.collect();
    let (mut lines, mut columns) = (Vec::new(), Vec::new());
    for (place, _) in &placed {
        if !lines.contains(&place.line.as_str()) {
            lines.push(&place.line);
        }
        if !columns.contains(&place.column) {
            columns.push(place.column);
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let rule = " --- |".repeat(columns.len() + 1);
    let mut table = format!("| | {} |\n|{rule}\n", columns.join(" | "));
    for line in lines {
        let cells = columns.iter().map(|column| {
            let cell = placed
                .iter()
                .find(|(place, _)| place.line == line && place.column == *column);
            cell.map_or_else(String::new, |(_, row)| row.in_a_table())
        });
        let cells: Vec<String> = cells.collect();
        table += &format!("| {line} | {} |\n", cells.join(" | "));
    }
    table + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_held_or_missed() {
        let row = |budget| Row::value("x", 10.0, "ms").budget(budget);
        assert_eq!(row(Budget::AtMost(10.0)).holds(), Some(true));
        assert_eq!(row(Budget::AtLeast(10.5)).holds(), Some(false));
        assert_eq!(Row::value("x", 1.0, "ms").holds(), None);
    }

    #[test]
    fn a_row_says_its_spread() {
        let row = Row::median("age", Samples::new([1.0, 2.5, 140.0]), "ms").budget(Budget::AtMost(2.0));
        assert_eq!(row.cells(), ["age", "2.50 ms", "1 .. 140 of 3", "<= 2", "MISSED"]);
    }

    #[test]
    fn figures_of_a_line_stand_side_by_side() {
        let row = |name: &str, line: &str, column| Row::value(name, 1.0, "ms").placed(line, column);
        let rows = [
            row("a", "one", "p50"),
            row("b", "one", "p99").budget(Budget::AtMost(0.5)),
            row("c", "two", "p99"),
            Row::note("two", "version 3"),
        ];
        let expected = "| | p50 | p99 |
| --- | --- | --- |
| one | 1 ms | 1 ms |
| two |  | 1 ms |

| figure | value | min .. max of runs | budget | |
| --- | --- | --- | --- | --- |
| b | 1 ms |  | <= 0.50 | MISSED |

- two: version 3
";
        assert_eq!(section(&rows.iter().collect::<Vec<_>>()), expected);
    }
}
