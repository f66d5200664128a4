// SPDX-License-Identifier: Apache-2.0

//! Records: the resource, families and series of a file. A record is its length, the CRC-32 of the rest, its kind and
//! its payload. A string is a `u16` length and its bytes.

use std::sync::Arc;

use crate::layout::{
    Identity, MAX_ATTRIBUTES, MAX_BOUNDS, MAX_HELP, MAX_LABEL_VALUE, MAX_LABELS, MAX_NAME, MAX_PAYLOAD,
    RECORD_HEAD,
};
use crate::spec::{FamilySpec, GaugeMode, Kind};

/// The content of a record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Record {
    /// Attributes of the resource; the last one counts.
    Resource(Vec<(String, String)>),
    /// Families are numbered in the order of their records.
    Family(FamilySpec),
    /// A series and where its value is.
    Series {
        family: u32,
        /// Offset in the file, in words.
        slot: u64,
        role: SeriesRole,
        values: Vec<Box<str>>,
    },
    /// The series at this slot has ended.
    End {
        /// The slot of the series.
        slot: u64,
    },
    /// A process whose values this file contains.
    Folded {
        identity: Identity,
        /// When, in nanoseconds since 1970.
        at_ns: u64,
    },
}

/// Whose a series is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum SeriesRole {
    /// Its label values'.
    Normal,
    /// The series of all label sets without room. It has one word more than the value: the number of its look-ups.
    Overflow,
    /// In a retained file, of one dead process: a gauge that every process keeps for itself.
    Of(Identity),
}

/// Appends a record.
pub(crate) fn put(to: &mut Vec<u8>, record: &Record) {
    let start = to.len();
    to.extend_from_slice(&[0; RECORD_HEAD]);
    let kind = match record {
        Record::Resource(attributes) => {
            put_u16(to, attributes.len());
            for (key, value) in attributes {
                put_str(to, key);
                put_str(to, value);
            }
            1
        }
        Record::Family(spec) => {
            put_family(to, spec);
            2
        }
        Record::Series {
            family,
            slot,
            role,
            values,
        } => {
            to.extend_from_slice(&family.to_le_bytes());
            to.extend_from_slice(&slot.to_le_bytes());
            put_role(to, *role);
            put_u16(to, values.len());
            for value in values {
                put_str(to, value);
            }
            3
        }
        Record::End { slot } => {
            to.extend_from_slice(&slot.to_le_bytes());
            4
        }
        Record::Folded { identity, at_ns } => {
            put_identity(to, *identity);
            to.extend_from_slice(&at_ns.to_le_bytes());
            5
        }
    };
    let length = (to.len() - start - RECORD_HEAD) as u32; // far less than 4 GiB: every part is bounded
    if let Some(head) = to.get_mut(start..) {
        head[8] = kind;
        let crc = crc32fast::hash(&head[8..]);
        head[..4].copy_from_slice(&length.to_le_bytes());
        head[4..8].copy_from_slice(&crc.to_le_bytes());
    }
}

fn put_u16(to: &mut Vec<u8>, number: usize) {
    to.extend_from_slice(&(number as u16).to_le_bytes()); // every limit is below 65,536
}

fn put_str(to: &mut Vec<u8>, text: &str) {
    put_u16(to, text.len());
    to.extend_from_slice(text.as_bytes());
}

fn put_identity(to: &mut Vec<u8>, identity: Identity) {
    to.extend_from_slice(&identity.pid.to_le_bytes());
    to.extend_from_slice(&identity.start.to_le_bytes());
    to.extend_from_slice(&identity.epoch.to_le_bytes());
}

fn put_role(to: &mut Vec<u8>, role: SeriesRole) {
    match role {
        SeriesRole::Normal => to.push(0),
        SeriesRole::Overflow => to.push(1),
        SeriesRole::Of(identity) => {
            to.push(2);
            put_identity(to, identity);
        }
    }
}

fn put_family(to: &mut Vec<u8>, spec: &FamilySpec) {
    put_str(to, &spec.name);
    put_str(to, &spec.help);
    put_str(to, &spec.unit);
    match &spec.kind {
        Kind::Counter => to.push(1),
        Kind::FloatCounter => to.push(2),
        Kind::UpDownCounter => to.push(3),
        Kind::Gauge(mode) => to.extend_from_slice(&[4, *mode as u8]),
        Kind::Histogram { bounds } => {
            to.push(5);
            put_u16(to, bounds.len());
            bounds
                .iter()
                .for_each(|bound| to.extend_from_slice(&bound.to_le_bytes()));
        }
        Kind::ExponentialHistogram { max_scale } => to.extend_from_slice(&[6, *max_scale as u8]),
        Kind::Summary => to.push(7),
    }
    put_u16(to, spec.labels.len());
    spec.labels.iter().for_each(|label| put_str(to, label));
}

/// The first record of `bytes` and its length. `None`: it is damaged, or not whole.
pub(crate) fn take(bytes: &[u8]) -> Option<(Record, usize)> {
    let mut head = Cursor(bytes);
    let length = u32::from_le_bytes(head.array()?) as usize;
    let crc = u32::from_le_bytes(head.array()?);
    if length > MAX_PAYLOAD {
        return None;
    }
    let checked = head.0.get(..length + 1)?;
    if crc32fast::hash(checked) != crc {
        return None;
    }
    let mut payload = Cursor(checked);
    let record = payload.record()?;
    payload.0.is_empty().then_some((record, RECORD_HEAD + length))
}

/// The unread rest.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn count(&mut self, most: usize) -> Option<usize> {
        let count = usize::from(self.array().map(u16::from_le_bytes)?);
        (count <= most).then_some(count)
    }

    fn text(&mut self, most: usize) -> Option<&'a str> {
        let len = self.count(most)?;
        std::str::from_utf8(self.bytes(len)?).ok()
    }

    fn identity(&mut self) -> Option<Identity> {
        Some(Identity {
            pid: u32::from_le_bytes(self.array()?),
            start: self.u64()?,
            epoch: self.u64()?,
        })
    }

    fn record(&mut self) -> Option<Record> {
        Some(match self.u8()? {
            1 => {
                let count = self.count(MAX_ATTRIBUTES)?;
                let pair = |_| {
                    Some((
                        self.text(MAX_NAME)?.to_owned(),
                        self.text(MAX_LABEL_VALUE)?.to_owned(),
                    ))
                };
                Record::Resource((0..count).map(pair).collect::<Option<_>>()?)
            }
            2 => Record::Family(self.family()?),
            3 => {
                let family = u32::from_le_bytes(self.array()?);
                let slot = self.u64()?;
                let role = match self.u8()? {
                    0 => SeriesRole::Normal,
                    1 => SeriesRole::Overflow,
                    2 => SeriesRole::Of(self.identity()?),
                    _ => return None,
                };
                let count = self.count(MAX_LABELS)?;
                let values = (0..count).map(|_| self.text(MAX_LABEL_VALUE).map(Box::from));
                let values = values.collect::<Option<_>>()?;
                Record::Series {
                    family,
                    slot,
                    role,
                    values,
                }
            }
            4 => Record::End { slot: self.u64()? },
            5 => Record::Folded {
                identity: self.identity()?,
                at_ns: self.u64()?,
            },
            _ => return None,
        })
    }

    fn family(&mut self) -> Option<FamilySpec> {
        let name = self.text(MAX_NAME)?.to_owned();
        let help = self.text(MAX_HELP)?.to_owned();
        let unit = self.text(MAX_NAME)?.to_owned();
        let kind = self.kind()?;
        let count = self.count(MAX_LABELS)?;
        let labels = (0..count).map(|_| self.text(MAX_NAME).map(str::to_owned));
        let labels = labels.collect::<Option<_>>()?;
        let spec = FamilySpec {
            name,
            help,
            unit,
            kind,
            labels,
        };
        spec.check().is_ok().then_some(spec)
    }

    fn kind(&mut self) -> Option<Kind> {
        Some(match self.u8()? {
            1 => Kind::Counter,
            2 => Kind::FloatCounter,
            3 => Kind::UpDownCounter,
            4 => Kind::Gauge(*GaugeMode::ALL.get(usize::from(self.u8()?))?),
            5 => {
                let count = self.count(MAX_BOUNDS)?;
                let bounds = (0..count).map(|_| self.array().map(f64::from_le_bytes));
                let bounds: Option<Arc<[f64]>> = bounds.collect();
                Kind::Histogram { bounds: bounds? }
            }
            6 => Kind::ExponentialHistogram {
                max_scale: self.u8()? as i8,
            },
            7 => Kind::Summary,
            _ => return None,
        })
    }
}
