// SPDX-License-Identifier: Apache-2.0

//! The figures of `cargo xtask page --open` as a section of the documentation. A script measures them with a browser.

use std::path::Path;

use serde_json::Value;

use crate::BenchError;
use crate::machine;
use crate::publish::{self, OPEN_PAGES, Published};
use crate::report::{Budget, Report, Row};

/// The units of the figures.
const UNITS: [&str; 4] = ["", "%", "MiB", "min"];

/// Publishes a list of figures: `name` with `value`, `unit` and perhaps `at_most`, or with `text`.
pub(crate) fn publish_figures(figures: &Path, command: &str) -> Result<(), BenchError> {
    let figures: Value = serde_json::from_slice(&std::fs::read(figures)?)?;
    let mut report = Report::new(machine::describe()?);
    for figure in figures.as_array().ok_or("the figures are not a list")? {
        report.add(OPEN_PAGES, row(figure)?);
    }
    publish::publish(Published {
        command,
        machine: report.machine(),
        sections: report.sections(),
    })
}

fn row(figure: &Value) -> Result<Row, BenchError> {
    let name = figure["name"].as_str().ok_or("a figure has no name")?;
    if let Some(text) = figure["text"].as_str() {
        return Ok(Row::note(name, text));
    }
    let value = figure["value"].as_f64();
    let value = value.ok_or_else(|| format!("{name}: it has no value"))?;
    let unit = UNITS.into_iter().find(|unit| figure["unit"] == *unit);
    let unit = unit.ok_or_else(|| format!("{name}: the unit {} is unknown", figure["unit"]))?;
    let row = Row::value(name, value, unit);
    Ok(match figure["at_most"].as_f64() {
        Some(limit) => row.budget(Budget::AtMost(limit)),
        None => row,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_figure_has_a_budget_or_none_and_a_note_has_a_text() {
        let shown = |figure: Value| row(&figure).map(|row| row.to_string());
        let missed = json!({"name": "cost", "value": 1.5, "unit": "%", "at_most": 1.0});
        assert!(shown(missed).unwrap().ends_with("MISSED"));
        let free = json!({"name": "minutes", "value": 60.0, "unit": "min", "at_most": null});
        let free = shown(free).unwrap();
        assert!(free.contains("60 min") && !free.contains("holds"), "{free}");
        let note = json!({"name": "browser", "text": "Chromium 1"});
        assert!(shown(note).unwrap().ends_with("Chromium 1"));
        for wrong in [
            json!({"value": 1.0}),
            json!({"name": "a", "value": 1.0, "unit": "miles"}),
        ] {
            assert!(shown(wrong).is_err());
        }
    }
}
