// SPDX-License-Identifier: Apache-2.0

//! Batches of events as bytes, and back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{
    IdentityReader, IdentityWriter, load_attributes, load_length, load_text, save_attributes, save_text,
};
use crate::bytes::{number, take};
use crate::{EventKind, Events, Instrument, Lease, Schema, Source, SourceId, UnixNanos, Values, clock};

const INSTRUMENTS: [Instrument; 4] = [
    Instrument::Counter,
    Instrument::UpDownCounter,
    Instrument::Gauge,
    Instrument::Histogram,
];

impl Events {
    /// The batch as bytes, with those of its kinds that occur in it.
    pub fn save(&self, to: &mut Vec<u8>) {
        let mut places: HashMap<u16, u16> = HashMap::new();
        let mut used = Vec::new();
        let kinds = self.kinds.iter().filter_map(|kind| {
            let known = self.schema.kinds.get(usize::from(*kind))?;
            Some(*places.entry(*kind).or_insert_with(|| {
                used.push(known);
                used.len() as u16 - 1
            }))
        });
        let kinds: Vec<u16> = kinds.collect();
        let mut writer = IdentityWriter::default();
        writer.resource(&self.source.resource);
        writer.scope(&self.source.scope);
        let mut bytes = writer.bytes;
        save_attributes(&mut bytes, &self.source.attributes);
        bytes.extend((used.len() as u32).to_le_bytes());
        for kind in used {
            for text in [&kind.name, &kind.description, &kind.unit] {
                save_text(&mut bytes, text);
            }
            let instrument = INSTRUMENTS.iter().position(|known| *known == kind.instrument);
            bytes.push(instrument.unwrap_or_default() as u8);
            save_attributes(&mut bytes, &kind.attributes);
        }
        bytes.extend(self.arrived().to_le_bytes());
        bytes.extend((kinds.len() as u32).to_le_bytes());
        kinds.iter().for_each(|kind| bytes.extend(kind.to_le_bytes()));
        match &self.values {
            Values::U64(values) => save_column(&mut bytes, 1, values.iter().copied()),
            Values::F64(values) => save_column(&mut bytes, 2, values.iter().map(|value| value.to_bits())),
        }
        save_optional(
            &mut bytes,
            self.times.iter().flatten().copied(),
            self.times.is_some(),
        );
        let weights = self.weights.iter().flatten().map(|weight| weight.to_bits());
        save_optional(&mut bytes, weights, self.weights.is_some());
        to.append(&mut bytes);
    }

    /// A batch that was saved. Its source is a new one, whose lease is over at `now`: it left with its process.
    pub fn load(from: &[u8], now: UnixNanos) -> Option<Self> {
        let mut reader = IdentityReader::new(from);
        let (resource, scope) = (reader.resource()?, reader.scope()?);
        let from = &mut reader.bytes;
        let attributes = load_attributes(from, 0)?;
        let mut schema = Schema::default();
        for _ in 0..load_length(from)? {
            schema.kinds.push(EventKind {
                name: load_text(from)?,
                description: load_text(from)?,
                unit: load_text(from)?,
                instrument: *INSTRUMENTS.get(usize::from(take::<1>(from)?[0]))?,
                attributes: load_attributes(from, 0)?,
            });
        }
        let observed = clock::steady(number(from)?);
        let length = load_length(from)?;
        let (kinds, rest) = from.split_at_checked(length.checked_mul(2)?)?;
        *from = rest;
        let kinds = kinds
            .chunks_exact(2)
            .map(|kind| u16::from_le_bytes([kind[0], kind[1]]));
        let kinds: Vec<u16> = kinds.collect();
        let values = match take::<1>(from)?[0] {
            1 => Values::U64(load_column(from, length)?),
            2 => Values::F64(doubles(load_column(from, length)?)),
            _ => return None,
        };
        let mut optional = || match take::<1>(from)?[0] {
            0 => Some(None),
            _ => load_column(from, length).map(Some),
        };
        let times = optional()?;
        let weights = optional()?.map(doubles);
        let lease = Lease::new(Duration::ZERO, now);
        lease.end();
        Some(Self {
            source: Arc::new(Source {
                id: SourceId::next(),
                resource,
                scope,
                attributes,
                lease: Arc::new(lease),
            }),
            schema: Arc::new(schema),
            kinds,
            values,
            times,
            weights,
            observed,
        })
    }
}

fn save_column(to: &mut Vec<u8>, kind: u8, column: impl Iterator<Item = u64>) {
    to.push(kind);
    column.for_each(|number| to.extend(number.to_le_bytes()));
}

fn save_optional(to: &mut Vec<u8>, column: impl Iterator<Item = u64>, is_there: bool) {
    save_column(to, u8::from(is_there), column);
}

fn load_column(from: &mut &[u8], length: usize) -> Option<Vec<u64>> {
    let (column, rest) = from.split_at_checked(length.checked_mul(8)?)?;
    *from = rest;
    Some(
        column
            .chunks_exact(8)
            .filter_map(|mut bytes| number(&mut bytes))
            .collect(),
    )
}

fn doubles(bits: Vec<u64>) -> Vec<f64> {
    bits.into_iter().map(f64::from_bits).collect()
}
