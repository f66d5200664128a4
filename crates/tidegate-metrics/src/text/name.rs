// SPDX-License-Identifier: Apache-2.0

//! Names as Prometheus shows them.

use tidegate_exposition::unit::name_with_suffixes;

use crate::description::Kind;

/// The name of a family on a page: words of name and unit, `_total` behind counters. As the gateway translates OTLP,
/// so that a metric has one name whichever way it took.
pub fn family_name(name: &str, unit: &str, kind: &Kind) -> String {
    let suffix = kind.instrument().suffix(unit);
    let shown = name_with_suffixes(name, unit, suffix).unwrap_or_default();
    if name.starts_with('_') {
        // The words have lost it.
        format!("_{shown}")
    } else {
        shown
    }
}

/// The names of the samples of a family that is shown as `family`.
pub fn sample_names(family: &str, kind: &Kind) -> Vec<String> {
    match kind {
        kind if kind.is_histogram() => ["", "_bucket", "_sum", "_count"]
            .iter()
            .map(|suffix| format!("{family}{suffix}"))
            .collect(),
        // OpenMetrics names the family without the suffix.
        kind if kind.is_monotonic() => vec![
            family.to_owned(),
            family.strip_suffix("_total").unwrap_or(family).to_owned(),
        ],
        _ => vec![family.to_owned()],
    }
}
