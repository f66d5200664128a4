// SPDX-License-Identifier: Apache-2.0

//! Identities (and `events`) as bytes that another process can read back.
//!
//! Numbers are little-endian. A list or a text is its length (4 bytes) and its content. A resource, scope or metric is
//! a number. A number that is new in the same bytes is the next one, and its content follows.

mod events;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::bytes::{number, take};
use crate::{
    AttributeList, AttributeRef, Attributes, AttributesBuilder, Data, MapRef, Metric, Resource, Scope,
    Series, Temporality,
};

/// The identity of a stream that has the same meaning in another process.
pub type StreamId = [u8; 16];

/// Attributes within attributes beyond this depth are not ours.
const MAX_DEPTH: usize = 64;

/// Writes identities.
#[derive(Debug, Default)]
pub(crate) struct IdentityWriter {
    pub(crate) bytes: Vec<u8>,
    resources: HashMap<Arc<Resource>, u32>,
    scopes: HashMap<Arc<Scope>, u32>,
    metrics: HashMap<Arc<Metric>, u32>,
}

/// Writes the number of an item. Says whether its content must follow.
fn refer<T: Eq + Hash>(seen: &mut HashMap<Arc<T>, u32>, thing: &Arc<T>, to: &mut Vec<u8>) -> bool {
    let next = seen.len() as u32;
    let number = *seen.entry(thing.clone()).or_insert(next);
    to.extend(number.to_le_bytes());
    number == next && seen.len() as u32 > next
}

impl AsMut<Vec<u8>> for IdentityWriter {
    fn as_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl IdentityWriter {
    pub(crate) fn series(&mut self, series: &Series) {
        self.resource(&series.resource);
        self.scope(&series.scope);
        let metric = &series.metric;
        if refer(&mut self.metrics, metric, &mut self.bytes) {
            for text in [&metric.name, &metric.description, &metric.unit] {
                save_text(&mut self.bytes, text);
            }
            self.bytes.push(data_code(metric.data));
            save_attributes(&mut self.bytes, &metric.metadata);
        }
        save_attributes(&mut self.bytes, &series.attributes);
    }

    fn resource(&mut self, resource: &Arc<Resource>) {
        if refer(&mut self.resources, resource, &mut self.bytes) {
            save_attributes(&mut self.bytes, &resource.attributes);
            save_text(&mut self.bytes, &resource.schema_url);
        }
    }

    fn scope(&mut self, scope: &Arc<Scope>) {
        if refer(&mut self.scopes, scope, &mut self.bytes) {
            for text in [&scope.name, &scope.version, &scope.schema_url] {
                save_text(&mut self.bytes, text);
            }
            save_attributes(&mut self.bytes, &scope.attributes);
        }
    }
}

/// Reads identities back; `None` where the bytes are not ours.
pub(crate) struct IdentityReader<'a> {
    pub(crate) bytes: &'a [u8],
    resources: Vec<Arc<Resource>>,
    scopes: Vec<Arc<Scope>>,
    metrics: Vec<Arc<Metric>>,
}

impl<'a> IdentityReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            resources: Vec::new(),
            scopes: Vec::new(),
            metrics: Vec::new(),
        }
    }

    pub(crate) fn series(&mut self) -> Option<Series> {
        Some(Series {
            resource: self.resource()?,
            scope: self.scope()?,
            metric: self.metric()?,
            attributes: load_attributes(&mut self.bytes, 0)?,
        })
    }

    fn resource(&mut self) -> Option<Arc<Resource>> {
        let number = self.length()?;
        if number == self.resources.len() {
            self.resources.push(Arc::new(Resource {
                attributes: load_attributes(&mut self.bytes, 0)?,
                schema_url: load_text(&mut self.bytes)?,
            }));
        }
        self.resources.get(number).cloned()
    }

    fn scope(&mut self) -> Option<Arc<Scope>> {
        let number = self.length()?;
        if number == self.scopes.len() {
            self.scopes.push(Arc::new(Scope {
                name: load_text(&mut self.bytes)?,
                version: load_text(&mut self.bytes)?,
                schema_url: load_text(&mut self.bytes)?,
                attributes: load_attributes(&mut self.bytes, 0)?,
            }));
        }
        self.scopes.get(number).cloned()
    }

    fn metric(&mut self) -> Option<Arc<Metric>> {
        let number = self.length()?;
        if number == self.metrics.len() {
            self.metrics.push(Arc::new(Metric {
                name: load_text(&mut self.bytes)?,
                description: load_text(&mut self.bytes)?,
                unit: load_text(&mut self.bytes)?,
                data: data_of(take::<1>(&mut self.bytes)?[0])?,
                metadata: load_attributes(&mut self.bytes, 0)?,
            }));
        }
        self.metrics.get(number).cloned()
    }

    pub(crate) fn length(&mut self) -> Option<usize> {
        load_length(&mut self.bytes)
    }
}

const DATA: [Data; 11] = {
    const fn sum(monotonic: bool, temporality: Temporality) -> Data {
        Data::Sum {
            monotonic,
            temporality,
        }
    }
    const fn histogram(temporality: Temporality) -> Data {
        Data::Histogram { temporality }
    }
    const fn exponential(temporality: Temporality) -> Data {
        Data::ExponentialHistogram { temporality }
    }
    [
        Data::Gauge,
        Data::Summary,
        sum(true, Temporality::Delta),
        sum(true, Temporality::Cumulative),
        sum(false, Temporality::Delta),
        sum(false, Temporality::Cumulative),
        histogram(Temporality::Delta),
        histogram(Temporality::Cumulative),
        exponential(Temporality::Delta),
        exponential(Temporality::Cumulative),
        sum(true, Temporality::Unspecified),
    ]
};

/// Data without a temporality is never part of a state, so its code does not matter.
pub(crate) fn data_code(data: Data) -> u8 {
    let at = DATA.iter().position(|known| *known == data);
    at.unwrap_or(DATA.len() - 1) as u8
}

pub(crate) fn data_of(code: u8) -> Option<Data> {
    DATA.get(usize::from(code)).copied()
}

fn load_length(from: &mut &[u8]) -> Option<usize> {
    take(from).map(|bytes| u32::from_le_bytes(*bytes) as usize)
}

fn save_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend((bytes.len() as u32).to_le_bytes());
    to.extend(bytes);
}

fn load_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = load_length(from)?;
    let (bytes, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(bytes)
}

pub(crate) fn save_text(to: &mut Vec<u8>, text: &str) {
    save_bytes(to, text.as_bytes());
}

fn load_str<'a>(from: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(load_bytes(from)?).ok()
}

pub(crate) fn load_text(from: &mut &[u8]) -> Option<Arc<str>> {
    load_str(from).map(Arc::from)
}

pub(crate) fn save_attributes(to: &mut Vec<u8>, attributes: &Attributes) {
    save_map(to, attributes.view());
}

fn save_map(to: &mut Vec<u8>, map: MapRef<'_>) {
    to.extend((map.len() as u32).to_le_bytes());
    for (key, value) in map.iter() {
        save_text(to, key);
        save_value(to, value);
    }
}

pub(crate) fn load_attributes(from: &mut &[u8], depth: usize) -> Option<Attributes> {
    let mut attributes = AttributesBuilder::default();
    for _ in 0..load_length(from)? {
        let key = load_str(from)?;
        load_value(from, depth, &mut |value| attributes.push(key, value))?;
    }
    Some(attributes.finish())
}

fn save_value(to: &mut Vec<u8>, value: AttributeRef<'_>) {
    to.push(value.rank());
    match value {
        AttributeRef::Empty => {}
        AttributeRef::Str(text) => save_text(to, text),
        AttributeRef::Bool(truth) => to.push(u8::from(truth)),
        AttributeRef::Int(whole) => to.extend(whole.to_le_bytes()),
        AttributeRef::Double(double) => to.extend(double.to_le_bytes()),
        AttributeRef::Bytes(bytes) => save_bytes(to, bytes),
        AttributeRef::Array(list) => {
            to.extend((list.len() as u32).to_le_bytes());
            list.iter().for_each(|value| save_value(to, value));
        }
        AttributeRef::Map(map) => save_map(to, map),
    }
}

/// Reads a value and hands it on: most need not be kept by themselves.
fn load_value(from: &mut &[u8], depth: usize, give: &mut dyn FnMut(AttributeRef<'_>)) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    let [rank] = *take(from)?;
    match rank {
        0 => give(AttributeRef::Empty),
        1 => give(AttributeRef::Str(load_str(from)?)),
        2 => give(AttributeRef::Bool(take::<1>(from)?[0] != 0)),
        3 => give(AttributeRef::Int(number(from)?.cast_signed())),
        4 => give(AttributeRef::Double(f64::from_bits(number(from)?))),
        5 => give(AttributeRef::Bytes(load_bytes(from)?)),
        6 => {
            let mut list = AttributeList::default();
            for _ in 0..load_length(from)? {
                load_value(from, depth + 1, &mut |value| list.push(value))?;
            }
            give(AttributeRef::Array(list.view()));
        }
        7 => give(AttributeRef::Map(load_attributes(from, depth + 1)?.view())),
        _ => return None,
    }
    Some(())
}
