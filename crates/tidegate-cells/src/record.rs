// SPDX-License-Identifier: Apache-2.0

//! Records: the resource, families and series of a file. A record is its length, the CRC-32 of the rest, its kind and
//! its payload. A string is a `u16` length and its bytes.

use crate::layout::{Identity, RECORD_HEAD};
use crate::spec::{FamilySpec, Kind};

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
