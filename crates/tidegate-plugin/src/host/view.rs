// SPDX-License-Identifier: Apache-2.0

//! An owned batch as the structs of the ABI: columns are pointed to, only the tables of texts are built.

use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use super::batch::{EventKind, Events, ExportBatch, Values};
use crate::abi;

/// Keeps what the pointers of a batch lead to.
pub(super) struct View<'a> {
    batch: &'a ExportBatch,
    /// Never grows any more once something points into it.
    _attributes: Vec<abi::Attribute>,
    _kinds: Vec<abi::Kind>,
    events: Vec<abi::Events>,
}

impl<'a> View<'a> {
    /// Events that are not sound are dropped: a plugin would read beyond a column.
    pub(super) fn new(batch: &'a ExportBatch) -> Self {
        let sound = || batch.events.iter().filter(|events| events.is_sound());
        let attributes: Vec<_> = sound().flat_map(pairs).map(attribute).collect();
        let mut rest = 0..attributes.len();
        let mut ranges = sound().map(|events| {
            let own = take(&mut rest, events.attributes.len());
            let kinds: Vec<_> = events
                .kinds
                .iter()
                .map(|kind| take(&mut rest, kind.attributes.len()))
                .collect();
            (events, own, kinds)
        });
        let placed: Vec<_> = ranges.by_ref().collect();
        let part = |range: &Range<usize>| attributes.get(range.clone()).unwrap_or_default().as_ptr();
        let kinds: Vec<_> = placed
            .iter()
            .flat_map(|(events, _, ranges)| events.kinds.iter().zip(ranges))
            .map(|(kind, range)| as_kind(kind, part(range)))
            .collect();
        let mut rest = 0..kinds.len();
        let events = placed
            .iter()
            .map(|(events, own, _)| {
                let range = take(&mut rest, events.kinds.len());
                as_events(events, part(own), kinds.get(range).unwrap_or_default().as_ptr())
            })
            .collect();
        Self {
            batch,
            _attributes: attributes,
            _kinds: kinds,
            events,
        }
    }

    /// The struct that a plugin gets. Good as long as the view is.
    pub(super) fn batch(&self) -> abi::Batch {
        abi::Batch {
            struct_size: size_of::<abi::Batch>(),
            signal: self.batch.signal as u32,
            reserved: 0,
            items: self.batch.items,
            otlp: abi::Bytes {
                data: self.batch.otlp.as_ptr(),
                length: self.batch.otlp.len(),
            },
            events: self.events.as_ptr(),
            events_count: self.events.len(),
        }
    }
}

/// The attributes of a source, then those of its kinds.
fn pairs(events: &Events) -> impl Iterator<Item = &(Arc<str>, Arc<str>)> {
    let kinds = events.kinds.iter().flat_map(|kind| &kind.attributes);
    events.attributes.iter().chain(kinds)
}

/// The next `count` places.
fn take(rest: &mut Range<usize>, count: usize) -> Range<usize> {
    let start = rest.start;
    rest.start += count;
    start..rest.start
}

pub(super) fn text(text: &str) -> abi::Text {
    abi::Text {
        data: text.as_ptr().cast(),
        length: text.len(),
    }
}

fn attribute((key, value): &(Arc<str>, Arc<str>)) -> abi::Attribute {
    abi::Attribute {
        key: text(key),
        value: text(value),
    }
}

fn as_kind(kind: &EventKind, attributes: *const abi::Attribute) -> abi::Kind {
    abi::Kind {
        name: text(&kind.name),
        category: text(&kind.category),
        unit: text(&kind.unit),
        description: text(&kind.description),
        instrument: kind.instrument as u32,
        reserved: 0,
        attributes,
        attribute_count: kind.attributes.len(),
    }
}

fn as_events(events: &Events, attributes: *const abi::Attribute, kinds: *const abi::Kind) -> abi::Events {
    let (values_u64, values_f64) = match &events.values {
        Values::U64(values) => (values.as_ptr(), ptr::null()),
        Values::F64(values) => (ptr::null(), values.as_ptr()),
    };
    abi::Events {
        source: text(&events.source),
        attributes,
        attribute_count: events.attributes.len(),
        kinds,
        kind_count: events.kinds.len(),
        count: events.kind.len(),
        kind: events.kind.as_ptr(),
        values_u64,
        values_f64,
        times_ns: events.times_ns.as_ptr(),
        weights: events.weights.as_ref().map_or(ptr::null(), std::vec::Vec::as_ptr),
    }
}
