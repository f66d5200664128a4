//! Rows of figures: printed as they come, kept as JSON and as a Markdown table.

use std::fmt;
use std::path::Path;

use serde_json::json;

use crate::Error;
use crate::stats::Samples;

/// One figure.
pub(crate) struct Row {
    name: String,
    unit: &'static str,
    value: f64,
    spread: Option<Samples>,
    budget: Option<Budget>,
}

/// What a figure must not exceed, or fall below.
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

    fn holds(&self) -> Option<bool> {
        self.budget.map(|budget| match budget {
            Budget::AtMost(limit) => self.value <= limit,
            Budget::AtLeast(limit) => self.value >= limit,
        })
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
        let value = format!("{} {}", number(self.value), self.unit);
        [self.name.clone(), value, spread, budget, verdict.to_owned()]
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [name, value, spread, budget, verdict] = self.cells();
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
    pub(crate) fn write(&self, directory: &Path) -> Result<(), Error> {
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
                "name": row.name,
                "value": row.value,
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
        let head = "| group | figure | value | min .. max of runs | budget | |\n| --- | --- | --- | --- | --- | --- |\n";
        let rows = self
            .rows
            .iter()
            .map(|(group, row)| format!("| {group} | {} |\n", row.cells().join(" | ")));
        format!("{}\n\n{head}{}", self.machine, rows.collect::<String>())
    }
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
}
