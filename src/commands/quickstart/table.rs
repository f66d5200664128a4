// SPDX-License-Identifier: Apache-2.0

//! Composites as a table: a row a group, a column a composite.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use tidegate_engine::{Answer, Composite};

use crate::component::unix_now;
use crate::prom::labels::text;
use crate::watch::Watched;

/// Renders all composites that share their grouping as one table.
pub(super) fn render(composites: &[Arc<Watched>]) -> String {
    let now = unix_now();
    let columns: Vec<(String, BTreeMap<String, Answer>)> = composites
        .iter()
        .map(|one| (one.declaration().name.to_string(), by_group(one.composite(), now)))
        .collect();
    let mut groups: Vec<&String> = columns.iter().flat_map(|(_, answers)| answers.keys()).collect();
    groups.sort();
    groups.dedup();
    let mut table = format!("\n{:<24}", "");
    for (name, _) in &columns {
        write_cell(&mut table, name);
    }
    table.push('\n');
    for group in groups {
        let _ = write!(table, "{group:<24}");
        for (_, answers) in &columns {
            write_cell(&mut table, &answers.get(group).map(cell).unwrap_or_default());
        }
        table.push('\n');
    }
    table
}

/// Room for a name of ours and a space.
const COLUMN: usize = 24;

fn write_cell(table: &mut String, text: &str) {
    // Writing to a string can't fail.
    let _ = write!(table, "{text:>COLUMN$}");
}

fn by_group(composite: &Composite, now: u64) -> BTreeMap<String, Answer> {
    let group = |answer: &Answer| -> String {
        let pairs: Vec<_> = answer.attributes.iter().map(|(_, value)| text(value)).collect();
        pairs.join(" ")
    };
    composite
        .read(now)
        .into_iter()
        .map(|answer| (group(&answer), answer))
        .collect()
}

/// The value, and how far it can be trusted where that is not the usual.
fn cell(answer: &Answer) -> String {
    let value = answer.value.map_or("-".to_owned(), short);
    match answer.state {
        tidegate_engine::Freshness::Fresh => value,
        state => format!("{value} ({})", state.name()),
    }
}

/// Three digits and a prefix.
fn short(value: f64) -> String {
    const PREFIXES: [(f64, &str); 3] = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    match PREFIXES.iter().find(|(scale, _)| value.abs() >= *scale) {
        Some((scale, prefix)) => format!("{:.2}{prefix}", value / scale),
        None => format!("{value:.1}"),
    }
}
