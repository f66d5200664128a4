// SPDX-License-Identifier: Apache-2.0

//! Exemplars in the forms of the formats.

use tidegate_engine::{AttributeValue, Exemplar};

use crate::labels::PrometheusLabels;
use crate::name::{Naming, Spelling};

/// OpenMetrics 1.0: the most characters of the names and values of an exemplar's labels.
const ROOM: usize = 128;

/// The value; `None`: it has none.
pub fn value(exemplar: &Exemplar) -> Option<f64> {
    match exemplar.value {
        AttributeValue::Int(number) => Some(number as f64),
        AttributeValue::Double(number) => Some(number),
        _ => None,
    }
}

/// The newest one.
pub(super) fn newest(exemplars: &[Exemplar]) -> Option<&Exemplar> {
    let say_something = exemplars.iter().filter(|exemplar| value(exemplar).is_some());
    say_something.max_by_key(|exemplar| exemplar.time)
}

/// The newest one of a bucket.
pub(super) fn within(exemplars: &[Exemplar], below: f64, bound: f64) -> Option<&Exemplar> {
    let is_inside = |e: &&Exemplar| value(e).is_some_and(|value| value > below && value <= bound);
    exemplars
        .iter()
        .filter(is_inside)
        .max_by_key(|exemplar| exemplar.time)
}

/// The labels: the ids of span and trace first, then attributes that fit.
pub fn labels(
    exemplar: &Exemplar,
    naming: &Naming,
    spelling: Spelling,
    is_text: bool,
) -> Vec<(String, String)> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let ids = [("trace_id", &exemplar.trace_id), ("span_id", &exemplar.span_id)];
    let ids = ids.iter().filter(|(_, id)| !id.is_empty());
    let mut all = PrometheusLabels::new(naming, spelling);
    all.extend(&exemplar.filtered_attributes);
    ids.clone().for_each(|(name, id)| all.set(name, hex(id)));
    let is_id = |name: &str| ids.clone().any(|(id, _)| *id == name);
    let mut pairs = all.into_pairs();
    pairs.sort_by_key(|(name, _)| !is_id(name));
    let mut room = ROOM;
    pairs.retain(|(name, value)| {
        let size = name.chars().count() + value.chars().count();
        // Some parsers take an escaped quote in an exemplar for the end of its text.
        let fits = size <= room && !(is_text && (name.contains('"') || value.contains('"')));
        room -= if fits { size } else { 0 };
        fits
    });
    pairs
}
