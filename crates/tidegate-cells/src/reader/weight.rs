// SPDX-License-Identifier: Apache-2.0

//! The bytes kept of files: high estimates, rounded up as the allocator does.

use std::sync::Arc;

use super::process::SourceSeries;
use crate::spec::{FamilySpec, Kind};

/// A file: its fields, its path and its open file.
pub(super) const FILE: usize = 4096;

/// A dead process that a retained file contains.
pub(super) const FOLDED: usize = 96;

/// A text beside its bytes.
const TEXT: usize = 48;

/// Attributes of a resource, which is kept of the file and of the whole.
pub(super) fn resource(attributes: &[(String, String)]) -> usize {
    let attribute = |(key, value): &(String, String)| 3 * (2 * TEXT + key.len() + value.len());
    attributes.iter().map(attribute).sum()
}

/// A family, with its names for callers that show it.
pub(super) fn family(spec: &FamilySpec) -> usize {
    /// Without texts and bounds.
    const FAMILY: usize = 512;
    let texts = [&spec.name, &spec.help, &spec.unit]
        .into_iter()
        .chain(&spec.labels);
    let texts: usize = texts.map(|text| 3 * (TEXT + text.len())).sum();
    let bounds = match &spec.kind {
        Kind::Histogram { bounds } => 16 * bounds.len(),
        _ => 0,
    };
    FAMILY + texts + bounds
}

/// A series of a file, without its value: its record, and its position in the merged values.
pub(super) fn series(series: &SourceSeries) -> usize {
    /// Without labels.
    const SERIES: usize = 512;
    let label = |(_, value): &(Arc<str>, Box<str>)| TEXT + value.len();
    SERIES + series.labels.iter().map(label).sum::<usize>()
}

/// The same series in the merged values and in callers that show it: labels with their names, and values.
pub(super) fn shown(series: &SourceSeries, words: usize) -> usize {
    /// Without labels and value.
    const SHOWN: usize = 768;
    let label = |(name, value): &(Arc<str>, Box<str>)| 16 + name.len() + value.len();
    SHOWN + series.labels.iter().map(label).sum::<usize>() + 16 * words
}
