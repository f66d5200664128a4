// SPDX-License-Identifier: Apache-2.0

//! The memory of a decoded request. It is estimated before anything is copied: a reference to a symbol has a byte
//! or two, but the symbol may be as long as the request.

use super::Version;
use crate::model::{MAX_LABELS, MAX_TEXT_BYTES};
use tidegate_pipeline::batch::wire::proto::{Field, Fields, WireType, varint};

/// A sample, histogram or exemplar until the pipelines have it: a point, and its place in a list that grows.
const PART: usize = 256;
/// The bytes of a bucket in the growing lists of the reader and of the value.
const BUCKET: usize = 24;
/// An exemplar may have a label for every two bytes.
const EXEMPLAR_BYTE: usize = 16;
/// A reference to a symbol, in a list that grows: the old one and the new one, until it is copied.
const SYMBOL: usize = 48;
/// The copies of a text: in the sorted labels, and in the attributes.
const COPIES: usize = 2;
/// A name or value among labels and attributes, besides its text.
const STRING: usize = 32;

/// The size of the strings of a series.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// Bytes of all of them: labels, help, unit, the labels of exemplars.
    pub text: usize,
    /// The labels of the series.
    pub labels: usize,
    /// The labels of the exemplar with the most.
    pub exemplar_labels: usize,
}

impl Extent {
    /// Whether it is more than any valid series has.
    pub fn is_absurd(self) -> bool {
        self.text > MAX_TEXT_BYTES || self.labels.max(self.exemplar_labels) > MAX_LABELS
    }
}

impl Version {
    /// The most bytes of the symbol index.
    pub fn index_weight(self, request: &[u8]) -> usize {
        match self {
            Self::One => 0,
            Self::Two => symbols(request).count().saturating_mul(SYMBOL),
        }
    }

    /// The most bytes of the decoded request. It includes [`Self::index_weight`], which is needed at once. A byte
    /// of a histogram may be a bucket, and two bytes of an exemplar may be a label.
    pub fn weight(self, request: &[u8]) -> usize {
        let (series, exemplars, histograms) = match self {
            Self::One => (1, 3, 4),
            Self::Two => (5, 4, 3),
        };
        let lengths: Vec<u32> = match self {
            Self::One => Vec::new(),
            Self::Two => symbols(request).map(|symbol| symbol.len() as u32).collect(),
        };
        let mut weight = lengths.len().saturating_mul(SYMBOL);
        for field in Fields::new(request).map_while(Result::ok) {
            if field.number != series || field.wire != WireType::Bytes {
                continue;
            }
            let mut extent = Extent::default();
            let (mut labels, mut of_exemplars) = (0, 0);
            for part in Fields::new(field.payload).map_while(Result::ok) {
                let bytes = part.payload.len();
                weight = weight.saturating_add(match part.number {
                    LABELS => {
                        extent.add_strings(self, &part, &lengths, &mut labels);
                        0
                    }
                    number if number == histograms => PART + bytes * BUCKET,
                    number if number == exemplars => {
                        for part in Fields::new(part.payload).map_while(Result::ok) {
                            if part.number == LABELS {
                                extent.add_strings(self, &part, &lengths, &mut of_exemplars);
                            }
                        }
                        PART + bytes * EXEMPLAR_BYTE
                    }
                    METADATA if self == Self::Two => {
                        extent.add_metadata(part.payload, &lengths);
                        0
                    }
                    _ => PART,
                });
            }
            // A longer series is removed.
            let (text, labels) = (extent.text.min(MAX_TEXT_BYTES), labels.min(2 * MAX_LABELS));
            weight = weight.saturating_add(text * COPIES + labels * STRING);
        }
        weight
    }
}

/// The field of a series, and of an exemplar, that has labels; a series' field in 2.0 that says what its metric is.
const LABELS: u32 = 1;
const METADATA: u32 = 5;

fn symbols(request: &[u8]) -> impl Iterator<Item = &[u8]> {
    const SYMBOLS: u32 = 4;
    let fields = Fields::new(request).map_while(Result::ok);
    fields
        .filter(|field| field.number == SYMBOLS && field.wire == WireType::Bytes)
        .map(|field| field.payload)
}

impl Extent {
    /// Adds the strings of a field that is a label, or has references to labels; `strings` counts names and values.
    fn add_strings(&mut self, version: Version, field: &Field<'_>, lengths: &[u32], strings: &mut usize) {
        if version == Version::One {
            self.text += field.payload.len();
            *strings += 2;
            return;
        }
        let mut rest = field.payload;
        while let Some((number, used)) = varint(rest) {
            self.add_symbol(number, lengths);
            *strings += 1;
            rest = rest.get(used..).unwrap_or_default();
        }
    }

    fn add_symbol(&mut self, number: u64, lengths: &[u32]) {
        let length = usize::try_from(number).ok().and_then(|at| lengths.get(at));
        self.text += length.map_or(0, |length| *length as usize);
    }

    fn add_metadata(&mut self, metadata: &[u8], lengths: &[u32]) {
        const HELP: u32 = 3;
        const UNIT: u32 = 4;
        for field in Fields::new(metadata).map_while(Result::ok) {
            if let (HELP | UNIT, Some((number, _))) = (field.number, varint(field.payload)) {
                self.add_symbol(number, lengths);
            }
        }
    }
}
