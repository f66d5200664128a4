// SPDX-License-Identifier: Apache-2.0

//! Composites as a table of at most 80 columns: a row a group, a column a composite.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_engine::{Answer, Composite, Freshness};

use crate::commands::client::printable;
use crate::commands::terminal::clip;
use crate::component::unix_now;
use crate::prom::labels::text;
use crate::watch::Watched;

/// Units with their sizes, the greatest first.
type Units = &'static [(f64, &'static str)];

const TIME: Units = &[(1e6, " s"), (1e3, " ms"), (1.0, " µs")];
const BYTE_RATE: Units = &[(1e9, " GB/s"), (1e6, " MB/s"), (1e3, " kB/s"), (1.0, " B/s")];
const COUNT: Units = &[(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];

/// The composites of the configuration, with the heads of their columns and their units.
const COLUMNS: [(&str, &str, Units); 6] = [
    ("nixl_xfer_time_avg_10s", "time avg", TIME),
    ("nixl_xfer_time_min_10s", "min", TIME),
    ("nixl_xfer_time_max_10s", "max", TIME),
    ("nixl_tx_bytes_rate_10s", "sent", BYTE_RATE),
    ("nixl_rx_bytes_rate_10s", "received", BYTE_RATE),
    ("nixl_transfers_10s", "transfers", COUNT),
];

/// The room for a group.
const GROUP: usize = 10;

/// The room for a number with its unit, and the space before it.
const CELL: usize = 10;

/// The names of the columns, and a line for each group.
pub(super) fn lines(composites: &[Arc<Watched>]) -> Vec<String> {
    let now = unix_now();
    let columns: Vec<BTreeMap<String, Answer>> = COLUMNS
        .iter()
        .map(|(name, ..)| {
            let found = composites.iter().find(|one| &*one.declaration().name == *name);
            found
                .map(|one| by_group(one.composite(), now))
                .unwrap_or_default()
        })
        .collect();
    let groups: BTreeSet<&String> = columns.iter().flat_map(BTreeMap::keys).collect();
    let heads = COLUMNS.map(|(_, head, _)| head.to_owned());
    let mut lines = vec![line("last 10 s", &heads, "state")];
    lines.extend(groups.into_iter().map(|group| {
        let answers: Vec<Option<&Answer>> = columns.iter().map(|answers| answers.get(group)).collect();
        let cells = answers.iter().zip(COLUMNS).map(|(answer, (_, _, units))| {
            let value = answer.and_then(|answer| answer.value);
            value.map_or_else(|| "-".to_owned(), |value| scaled(value, units))
        });
        let cells: Vec<String> = cells.collect();
        line(&printable(group), &cells, state(&answers))
    }));
    lines
}

fn line(group: &str, cells: &[String], state: &str) -> String {
    let cells: String = cells.iter().map(|cell| format!("{cell:>CELL$}")).collect();
    let group = clip(group.to_owned(), GROUP);
    format!("{group:<GROUP$}{cells}  {state}")
}

/// The first state that is not the usual one.
fn state(answers: &[Option<&Answer>]) -> &'static str {
    let mut states = answers.iter().flatten().map(|answer| answer.state);
    let state = states.find(|state| !matches!(state, Freshness::Fresh));
    state.unwrap_or(Freshness::Fresh).name()
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

/// Three digits and a unit.
fn scaled(value: f64, units: Units) -> String {
    let found = units.iter().find(|(size, _)| value.abs() >= *size);
    let Some((size, unit)) = found.or(units.last()) else {
        return value.to_string();
    };
    let value = value / size;
    let decimals = match value.abs() {
        _ if value.fract() == 0.0 => 0,
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    format!("{value:.decimals$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_declares_each_column() {
        for (name, ..) in COLUMNS {
            let declared = format!("name: {name},");
            assert!(super::super::CONFIG.contains(&declared), "{name}");
        }
    }

    #[test]
    fn numbers_have_units_and_three_digits() {
        let cases = [
            (612.4, TIME, "612 µs"),
            (1312.18, TIME, "1.31 ms"),
            (2_500_000.0, TIME, "2.50 s"),
            (0.0, TIME, "0 µs"),
            (264_200_000.0, BYTE_RATE, "264 MB/s"),
            (12.34, BYTE_RATE, "12.3 B/s"),
            (2480.0, COUNT, "2.48k"),
            (250.0, COUNT, "250"),
        ];
        for (value, units, expected) in cases {
            assert_eq!(scaled(value, units), expected, "{value}");
        }
    }

    #[test]
    fn lines_fit_80_columns() {
        let widest = std::array::from_fn::<_, 6, _>(|_| "1000 MB/s".to_owned());
        let line = line(&"g".repeat(50), &widest, Freshness::Partial.name());
        assert!(line.chars().count() <= 80, "{line}");
        assert!(line.split_whitespace().count() > 6, "{line}");
    }
}
