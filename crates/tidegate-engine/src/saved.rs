//! Identities and events as bytes that another process can read back.
//!
//! Numbers are little-endian. A list or a text is its length (4 bytes) and what is in it. A resource, scope or metric
//! is a number; one that has not been seen before in the same bytes is the next number, and follows.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::bytes::{number, take};
use crate::{
    AttributeValue, Attributes, Data, Events, Instrument, Kind, Lease, Metric, Resource, Schema, Scope,
    Series, Source, SourceId, Temporality, UnixNanos, Values,
};

/// What stands for a stream where it must mean the same to another process.
pub type StreamId = [u8; 16];

/// Attributes within attributes beyond this depth are not ours.
const MAX_DEPTH: usize = 64;

/// Writes identities.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
    resources: HashMap<Arc<Resource>, u32>,
    scopes: HashMap<Arc<Scope>, u32>,
    metrics: HashMap<Arc<Metric>, u32>,
}

/// Whether a thing has to be written out behind its number.
fn refer<T: Eq + Hash>(seen: &mut HashMap<Arc<T>, u32>, thing: &Arc<T>, to: &mut Vec<u8>) -> bool {
    let next = seen.len() as u32;
    let number = *seen.entry(thing.clone()).or_insert(next);
    to.extend(number.to_le_bytes());
    number == next && seen.len() as u32 > next
}

impl Writer {
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
pub(crate) struct Reader<'a> {
    pub(crate) bytes: &'a [u8],
    resources: Vec<Arc<Resource>>,
    scopes: Vec<Arc<Scope>>,
    metrics: Vec<Arc<Metric>>,
}

impl<'a> Reader<'a> {
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

/// Data that says no temporality is never part of a state, whatever it is.
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

fn save_text(to: &mut Vec<u8>, text: &str) {
    save_bytes(to, text.as_bytes());
}

fn load_text(from: &mut &[u8]) -> Option<Arc<str>> {
    std::str::from_utf8(load_bytes(from)?).ok().map(Arc::from)
}

fn save_attributes(to: &mut Vec<u8>, attributes: &Attributes) {
    to.extend((attributes.len() as u32).to_le_bytes());
    for (key, value) in attributes.iter() {
        save_text(to, key);
        save_value(to, value);
    }
}

fn load_attributes(from: &mut &[u8], depth: usize) -> Option<Attributes> {
    let mut entries = Vec::new();
    for _ in 0..load_length(from)? {
        entries.push((load_text(from)?, load_value(from, depth)?));
    }
    Some(Attributes::new(entries))
}

fn save_value(to: &mut Vec<u8>, value: &AttributeValue) {
    to.push(value.rank());
    match value {
        AttributeValue::Empty => {}
        AttributeValue::Str(text) => save_text(to, text),
        AttributeValue::Bool(truth) => to.push(u8::from(*truth)),
        AttributeValue::Int(whole) => to.extend(whole.to_le_bytes()),
        AttributeValue::Double(double) => to.extend(double.to_le_bytes()),
        AttributeValue::Bytes(bytes) => save_bytes(to, bytes),
        AttributeValue::Array(values) => {
            to.extend((values.len() as u32).to_le_bytes());
            values.iter().for_each(|value| save_value(to, value));
        }
        AttributeValue::Map(map) => save_attributes(to, map),
    }
}

fn load_value(from: &mut &[u8], depth: usize) -> Option<AttributeValue> {
    if depth > MAX_DEPTH {
        return None;
    }
    let [rank] = *take(from)?;
    Some(match rank {
        0 => AttributeValue::Empty,
        1 => AttributeValue::Str(load_text(from)?),
        2 => AttributeValue::Bool(take::<1>(from)?[0] != 0),
        3 => AttributeValue::Int(number(from)?.cast_signed()),
        4 => AttributeValue::Double(f64::from_bits(number(from)?)),
        5 => AttributeValue::Bytes(load_bytes(from)?.into()),
        6 => {
            let mut values = Vec::new();
            for _ in 0..load_length(from)? {
                values.push(load_value(from, depth + 1)?);
            }
            AttributeValue::Array(values.into())
        }
        7 => AttributeValue::Map(load_attributes(from, depth + 1)?),
        _ => return None,
    })
}

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
        let mut writer = Writer::default();
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
        bytes.extend(self.observed.to_le_bytes());
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
        let mut reader = Reader::new(from);
        let (resource, scope) = (reader.resource()?, reader.scope()?);
        let from = &mut reader.bytes;
        let attributes = load_attributes(from, 0)?;
        let mut schema = Schema::default();
        for _ in 0..load_length(from)? {
            schema.kinds.push(Kind {
                name: load_text(from)?,
                description: load_text(from)?,
                unit: load_text(from)?,
                instrument: *INSTRUMENTS.get(usize::from(take::<1>(from)?[0]))?,
                attributes: load_attributes(from, 0)?,
            });
        }
        let observed = number(from)?;
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
        let lease = Lease::new(std::time::Duration::ZERO, now);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = AttributeValue> {
        let leaf = prop_oneof![
            Just(AttributeValue::Empty),
            ".{0,4}".prop_map(AttributeValue::from),
            any::<bool>().prop_map(AttributeValue::Bool),
            any::<i64>().prop_map(AttributeValue::Int),
            any::<f64>().prop_map(AttributeValue::Double),
            prop::collection::vec(any::<u8>(), 0..4).prop_map(|bytes| AttributeValue::Bytes(bytes.into())),
        ];
        leaf.prop_recursive(3, 8, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(|all| AttributeValue::Array(all.into())),
                prop::collection::vec((".{0,2}", inner), 0..3)
                    .prop_map(|all| AttributeValue::Map(all.into_iter().collect())),
            ]
        })
    }

    fn attributes() -> impl Strategy<Value = Attributes> {
        prop::collection::vec((".{0,3}", value()), 0..3).prop_map(|all| all.into_iter().collect())
    }

    fn series() -> impl Strategy<Value = Series> {
        (attributes(), attributes(), attributes(), "[ab]", 0..DATA.len()).prop_map(
            |(resource, scope, attributes, name, data)| Series {
                resource: Arc::new(Resource {
                    attributes: resource,
                    schema_url: "r".into(),
                }),
                scope: Arc::new(Scope {
                    name: "s".into(),
                    version: "1".into(),
                    attributes: scope,
                    schema_url: "".into(),
                }),
                metric: Arc::new(Metric {
                    name: name.into(),
                    description: "d".into(),
                    unit: "By".into(),
                    data: DATA[data],
                    metadata: attributes.clone(),
                }),
                attributes,
            },
        )
    }

    proptest! {
        #[test]
        fn series_come_back_as_they_were(all in prop::collection::vec(series(), 0..6)) {
            let mut writer = Writer::default();
            all.iter().chain(&all).for_each(|series| writer.series(series));
            let mut reader = Reader::new(&writer.bytes);
            for series in all.iter().chain(&all) {
                let back = reader.series();
                prop_assert_eq!(back.as_ref(), Some(series));
            }
            prop_assert!(reader.bytes.is_empty());
        }

        #[test]
        fn events_come_back_with_the_kinds_they_have(
            events in prop::collection::vec((0u16..4, any::<u64>(), any::<f64>()), 0..8),
            whole: bool,
            attributes in attributes(),
        ) {
            let kinds = INSTRUMENTS.iter().enumerate().map(|(at, instrument)| Kind {
                name: format!("k{at}").into(),
                description: "".into(),
                unit: "s".into(),
                instrument: *instrument,
                attributes: attributes.clone(),
            });
            let batch = Events {
                source: Arc::new(Source {
                    id: SourceId::next(),
                    resource: Arc::default(),
                    scope: Arc::default(),
                    attributes: attributes.clone(),
                    lease: Arc::new(Lease::new(std::time::Duration::from_secs(1), 1)),
                }),
                schema: Arc::new(Schema { kinds: kinds.collect() }),
                kinds: events.iter().map(|(kind, _, _)| *kind).collect(),
                values: match whole {
                    true => Values::U64(events.iter().map(|(_, value, _)| *value).collect()),
                    false => Values::F64(events.iter().map(|(_, _, value)| *value).collect()),
                },
                times: whole.then(|| events.iter().map(|(_, time, _)| *time).collect()),
                weights: (!whole).then(|| events.iter().map(|(_, _, weight)| *weight).collect()),
                observed: 7,
            };
            let mut bytes = Vec::new();
            batch.save(&mut bytes);
            let back = Events::load(&bytes, 9).unwrap();
            prop_assert!(!back.source.lease.is_alive(9));
            prop_assert_eq!(&back.source.attributes, &attributes);
            let named = |events: &Events| -> Vec<Kind> {
                events.kinds.iter().map(|kind| events.schema.kinds[usize::from(*kind)].clone()).collect()
            };
            prop_assert_eq!(named(&back), named(&batch));
            prop_assert_eq!(format!("{:?}", (&back.values, &back.times, &back.weights, back.observed)),
                format!("{:?}", (&batch.values, &batch.times, &batch.weights, batch.observed)));
            for length in 0..bytes.len() {
                prop_assert!(Events::load(&bytes[..length], 9).is_none());
            }
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            Events::load(&bytes, 1);
            let mut reader = Reader::new(&bytes);
            while reader.series().is_some() {}
        }
    }
}
