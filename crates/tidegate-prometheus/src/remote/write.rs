// SPDX-License-Identifier: Apache-2.0

//! Requests: series as bytes of either message, then snappy.

use std::collections::HashMap;
use std::collections::HashSet;

use prost::Message;

use super::Version;
use super::histogram::Native;
use super::series::{Exemplar, Family, Sample, Series, number};

/// A request, uncompressed.
pub fn encode<'a>(version: Version, series: impl Iterator<Item = &'a Series>, metadata: bool) -> Vec<u8> {
    match version {
        Version::One => one(series, metadata),
        Version::Two => two(series),
    }
}

/// The compressed request: a snappy block.
///
/// # Errors
/// The request is too large for a snappy block (nearly 4 GiB).
pub fn compress(request: &[u8]) -> Result<Vec<u8>, snap::Error> {
    snap::raw::Encoder::new().compress_vec(request)
}

fn one<'a>(all: impl Iterator<Item = &'a Series>, metadata: bool) -> Vec<u8> {
    let mut out = Encoder::default();
    let mut families: Vec<&Family> = Vec::new();
    let mut seen: HashSet<&str> = HashSet::new();
    for series in all {
        if metadata && seen.insert(&*series.family.name) {
            families.push(&series.family);
        }
        out.message(1, |out| {
            for (name, value) in series.identity.labels() {
                out.message(1, |out| {
                    out.text(1, name);
                    out.text(2, value);
                });
            }
            for sample in &series.samples {
                out.message(2, |out| out.sample(sample, false));
            }
            for exemplar in &series.exemplars {
                out.message(3, |out| {
                    for (name, value) in &exemplar.labels {
                        out.message(1, |out| {
                            out.text(1, name);
                            out.text(2, value);
                        });
                    }
                    out.value_and_time(exemplar);
                });
            }
            for (native, _) in &series.histograms {
                out.native(4, native, false);
            }
        });
    }
    for family in families {
        out.message(3, |out| {
            out.number(1, number(family.kind));
            out.text(2, &family.name);
            out.text(4, &family.help);
            out.text(5, &family.unit);
        });
    }
    out.bytes
}

fn two<'a>(all: impl Iterator<Item = &'a Series>) -> Vec<u8> {
    let mut symbols = Symbols::default();
    symbols.of("");
    let mut out = Encoder::default();
    for series in all {
        let labels = series.identity.labels().iter();
        let refs = symbols.refs(labels.map(|(name, value)| (&**name, &**value)));
        let exemplars = series.exemplars.iter().map(|exemplar| {
            let labels = exemplar.labels.iter();
            symbols.refs(labels.map(|(name, value)| (name.as_str(), value.as_str())))
        });
        let exemplars: Vec<_> = exemplars.collect();
        let (help, unit) = (symbols.of(&series.family.help), symbols.of(&series.family.unit));
        // A message has samples or histograms, not both.
        let (samples, histograms) = (&*series.samples, &*series.histograms);
        let halves = if samples.is_empty() || histograms.is_empty() {
            vec![(samples, histograms)]
        } else {
            vec![(samples, &[][..]), (&[][..], histograms)]
        };
        for (half, (samples, histograms)) in halves.into_iter().enumerate() {
            out.message(5, |out| {
                out.packed(1, &refs);
                for sample in samples {
                    out.message(2, |out| out.sample(sample, true));
                }
                for (native, _) in histograms {
                    out.native(3, native, true);
                }
                for (exemplar, refs) in series.exemplars.iter().zip(&exemplars).filter(|_| half == 0) {
                    out.message(4, |out| {
                        out.packed(1, refs);
                        out.value_and_time(exemplar);
                    });
                }
                out.message(5, |out| {
                    out.number(1, number(series.family.kind));
                    out.number(3, u64::from(help));
                    out.number(4, u64::from(unit));
                });
                // Until release candidate 3 a start was said once a series; later readers skip it.
                let first = samples.first().map(|sample| sample.start);
                let start = first.or_else(|| Some(histograms.first()?.0.start_timestamp));
                out.signed(6, start.unwrap_or(0));
            });
        }
    }
    let mut request = Encoder::default();
    for symbol in &symbols.list {
        request.tag(4, BYTES);
        request.length(symbol.len());
        request.bytes.extend_from_slice(symbol.as_bytes());
    }
    request.bytes.append(&mut out.bytes);
    request.bytes
}

/// The table of strings of a request.
#[derive(Default)]
struct Symbols<'a> {
    list: Vec<&'a str>,
    known: HashMap<&'a str, u32, foldhash::fast::RandomState>,
}

impl<'a> Symbols<'a> {
    fn of(&mut self, text: &'a str) -> u32 {
        *self.known.entry(text).or_insert_with(|| {
            self.list.push(text);
            // A request has fewer bytes than that.
            (self.list.len() - 1) as u32
        })
    }

    fn refs(&mut self, labels: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<u32> {
        labels
            .flat_map(|(name, value)| [self.of(name), self.of(value)])
            .collect()
    }
}

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;

/// Fields one after another. It omits fields that are zero or empty, as proto3 does.
#[derive(Default)]
struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    /// Field numbers here are below 16, wire types below 8.
    fn tag(&mut self, number: u8, wire: u8) {
        self.bytes.push(number << 3 | wire);
    }

    fn length(&mut self, length: usize) {
        self.varint(length as u64);
    }

    fn varint(&mut self, number: u64) {
        prost::encoding::encode_varint(number, &mut self.bytes);
    }

    fn number(&mut self, field: u8, number: u64) {
        if number != 0 {
            self.tag(field, VARINT);
            self.varint(number);
        }
    }

    fn signed(&mut self, field: u8, number: i64) {
        self.number(field, number.cast_unsigned());
    }

    fn text(&mut self, field: u8, text: &str) {
        if !text.is_empty() {
            self.tag(field, BYTES);
            self.length(text.len());
            self.bytes.extend_from_slice(text.as_bytes());
        }
    }

    fn double(&mut self, field: u8, number: f64) {
        // Only positive zero is the default.
        if number.to_bits() != 0 {
            self.tag(field, FIXED64);
            self.bytes.extend_from_slice(&number.to_bits().to_le_bytes());
        }
    }

    fn packed(&mut self, field: u8, numbers: &[u32]) {
        if !numbers.is_empty() {
            self.message(field, |out| {
                numbers.iter().for_each(|number| out.varint(u64::from(*number)));
            });
        }
    }

    /// A nested message, written after a length of one byte, which grows if necessary.
    fn message(&mut self, field: u8, inside: impl FnOnce(&mut Self)) {
        self.tag(field, BYTES);
        let at = self.bytes.len();
        self.bytes.push(0);
        inside(self);
        let length = self.bytes.len() - at - 1;
        match u8::try_from(length) {
            Ok(short @ ..0x80) => self.bytes[at] = short,
            _ => {
                let mut prefix = Vec::with_capacity(5);
                prost::encoding::encode_varint(length as u64, &mut prefix);
                self.bytes.splice(at..=at, prefix);
            }
        }
    }

    fn sample(&mut self, sample: &Sample, starts: bool) {
        self.double(1, sample.value);
        self.signed(2, sample.time);
        if starts {
            self.signed(3, sample.start);
        }
    }

    fn value_and_time(&mut self, exemplar: &Exemplar) {
        self.double(2, exemplar.value);
        self.signed(3, exemplar.time);
    }

    fn native(&mut self, field: u8, native: &Native, starts: bool) {
        let without_start;
        let native = if starts || native.start_timestamp == 0 {
            native
        } else {
            without_start = Native {
                start_timestamp: 0,
                ..native.clone()
            };
            &without_start
        };
        self.tag(field, BYTES);
        self.length(native.encoded_len());
        // A vector has room for everything.
        let _ = native.encode(&mut self.bytes);
    }
}
