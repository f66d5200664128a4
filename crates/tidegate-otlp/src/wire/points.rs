// SPDX-License-Identifier: Apache-2.0

//! Metric points out of wire bytes, each with the key of the bytes that identify it.
//!
//! Numbers cost a walk over their fields and a hash; the identity of a series is decoded only on request, by cutting
//! the point out as a request of its own. Other kinds of points, and numbers with exemplars, are decoded the same way.

mod number;

use std::hash::Hasher;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_engine::{Data, Key, KeyHasher, Point, PointSample, Series, Temporality};

use super::WireError;
use super::edit::{Editor, push_field, push_message};
use super::proto::{Field, Fields, WireType, varint};
use super::walk::{Item, ItemKind, Level, Visitor, edit};
use crate::{Encoded, Signal, convert};
use number::Number;

/// A point as it stands on the wire.
pub struct WirePoint<'a> {
    /// The metric's name.
    pub name: &'a str,
    /// Stands for resource, scope, metric and attributes as they were written.
    pub key: Key,
    /// Stands for the resource as it was written.
    pub resource: Key,
    /// Times, value and exemplars.
    pub sample: PointSample<'a>,
    /// Decodes what identifies it; `None` when that can't be decoded.
    pub series: &'a dyn Fn() -> Option<Arc<Series>>,
}

/// Looks at points and says which stay in the request.
pub trait PointVisitor {
    /// Whether to look at the points of a metric; the others stay.
    fn wants(&mut self, name: &str) -> bool;

    /// Whether to look at the points of such a metric, by the kind of its data.
    fn wants_data(&mut self, _data: Data) -> bool {
        true
    }

    /// Metrics of a resource follow; a key that stands for the resource as it was written.
    fn resource(&mut self, _key: Key) {}

    /// A point of such a metric. False: it goes.
    fn point(&mut self, point: &WirePoint<'_>) -> bool;
}

/// The request after a visit.
///
/// # Errors
/// Bytes that are not a request.
pub fn visit(encoded: &Encoded, visitor: &mut dyn PointVisitor) -> Result<Encoded, WireError> {
    let mut reader = PointReader {
        visitor,
        wanted: false,
        name: String::new(),
        data: 0,
        around: Default::default(),
        hashers: Default::default(),
        resource: KeyHasher::default().key(),
    };
    edit(encoded, &mut reader)
}

struct PointReader<'v> {
    visitor: &'v mut dyn PointVisitor,
    /// Whether the visitor looks at the current metric.
    wanted: bool,
    /// The name of the current metric.
    name: String,
    /// Which data field of the metric: its number.
    data: u32,
    /// The fields around the current points, by level, without the messages inside them.
    around: [Vec<u8>; 4],
    /// Each has been shown what is in `around` up to its level.
    hashers: [KeyHasher; 4],
    /// The current resource.
    resource: Key,
}

/// Field numbers of the messages inside: `scope_metrics`, `metrics`, the kinds of data, `data_points`.
const INSIDE: [&[u32]; 4] = [&[2], &[2], &[5, 7, 9, 10, 11], &[1]];

impl Visitor for PointReader<'_> {
    fn begin(&mut self, level: Level, message: &[u8]) {
        let depth = match level {
            Level::Resource => 0,
            Level::Scope => 1,
            Level::Metric => 2,
            Level::Data(_) => 3,
        };
        if let Level::Data(number) = level {
            self.wanted = self.wanted && self.visitor.wants_data(data_of(number, message));
        }
        if depth >= 2 && !self.wanted {
            return;
        }
        let around = &mut self.around[depth];
        around.clear();
        for field in Fields::new(message).flatten() {
            if !INSIDE[depth].contains(&field.number) {
                push_field(around, &field);
            }
        }
        let mut hasher = match depth.checked_sub(1) {
            Some(outer) => self.hashers[outer].clone(),
            None => KeyHasher::default(),
        };
        write(&mut hasher, &self.around[depth]);
        if let Level::Data(number) = level {
            self.data = number;
            hasher.write_u32(number);
        }
        if level == Level::Resource {
            self.resource = hasher.key();
            self.visitor.resource(self.resource);
        }
        self.hashers[depth] = hasher;
    }

    fn metric(&mut self, name: &[u8]) -> bool {
        self.name.clear();
        self.name.push_str(&String::from_utf8_lossy(name));
        self.wanted = self.visitor.wants(&self.name);
        true
    }

    fn item(&mut self, item: &Item<'_>, _: &mut Editor<'_>) -> bool {
        !self.wanted || self.show(item)
    }
}

impl PointReader<'_> {
    fn show(&mut self, item: &Item<'_>) -> bool {
        let (around, data) = (&self.around, self.data);
        let decode = || cut_out(around, data, item.message);
        let [.., around_points] = &self.hashers;
        let mut hasher = around_points.clone();
        let number = match item.kind {
            ItemKind::Number => Number::read(item.message, &mut hasher),
            _ => None,
        };
        let name = &self.name;
        match number {
            Some(number) => self.visitor.point(&WirePoint {
                name,
                key: hasher.key(),
                resource: self.resource,
                sample: number.sample(),
                series: &|| decode().map(|point| point.series),
            }),
            None => match decode() {
                Some(point) => self.visitor.point(&WirePoint {
                    name,
                    key: key(around_points, item),
                    resource: self.resource,
                    sample: sample(&point),
                    series: &|| Some(point.series.clone()),
                }),
                None => true,
            },
        }
    }
}

/// The key of a point, with what is around it hashed already.
fn key(around: &KeyHasher, item: &Item<'_>) -> Key {
    let mut hasher = around.clone();
    let mut spans = Spans::of(item.message, item.kind.attributes_field());
    let mut fields = Fields::new(item.message);
    while let Some(Ok(field)) = fields.next() {
        spans.pass(&field, &fields, &mut hasher);
    }
    spans.end(&mut hasher);
    hasher.key()
}

/// Shows the attributes of a message to a hasher: those that stand side by side at once, with their tags and lengths.
struct Spans<'a> {
    message: &'a [u8],
    number: u32,
    /// Where the fields before this one end, and where the attributes just before it begin.
    at: usize,
    start: usize,
}

impl<'a> Spans<'a> {
    fn of(message: &'a [u8], number: u32) -> Self {
        Self {
            message,
            number,
            at: 0,
            start: 0,
        }
    }

    /// A field of the message, which `rest` comes behind.
    #[inline]
    fn pass(&mut self, field: &Field<'_>, rest: &Fields<'_>, hasher: &mut KeyHasher) {
        let end = self.message.len() - rest.rest().len();
        if field.number != self.number || field.wire != WireType::Bytes {
            self.end(hasher);
            self.start = end;
        }
        self.at = end;
    }

    /// Writes the last range of fields to the hasher, before other fields follow.
    fn end(&self, hasher: &mut KeyHasher) {
        if let Some(span @ [_, ..]) = self.message.get(self.start..self.at) {
            write(hasher, span);
        }
    }
}

/// The kind of a metric's data, as far as its message says. Of a field that is repeated the last one counts.
pub(super) fn data_of(number: u32, message: &[u8]) -> Data {
    let (mut temporality, mut monotonic) = (Temporality::Unspecified, false);
    for field in Fields::new(message)
        .flatten()
        .filter(|field| field.wire == WireType::Varint)
    {
        let value = varint(field.payload).map_or(0, |(value, _)| value);
        match (field.number, value) {
            // Protobuf takes the lower 32 bits of an enum.
            (2, value) => temporality = convert::temporality((value as u32).cast_signed()),
            (3, value) => monotonic = value != 0,
            _ => {}
        }
    }
    match number {
        7 => Data::Sum {
            monotonic,
            temporality,
        },
        9 => Data::Histogram { temporality },
        10 => Data::ExponentialHistogram { temporality },
        11 => Data::Summary,
        _ => Data::Gauge,
    }
}

fn write(hasher: &mut KeyHasher, bytes: &[u8]) {
    hasher.write_usize(bytes.len());
    hasher.write(bytes);
}

fn sample(point: &Point) -> PointSample<'_> {
    PointSample {
        start: point.start,
        time: point.time,
        value: &point.value,
        exemplars: &point.exemplars,
    }
}

/// The point, decoded from a request that holds nothing else.
fn cut_out(around: &[Vec<u8>; 4], data: u32, point: &[u8]) -> Option<Point> {
    /// Under which number each message stands in the one around it; data has one of several.
    const NUMBERS: [u32; 3] = [2, 2, 1];
    let [resource, scope, metric, of_data] = around;
    let mut message = of_data.clone();
    push_message(&mut message, NUMBERS[2], point);
    for (fields, number) in [(metric, data), (scope, NUMBERS[1]), (resource, NUMBERS[0])] {
        let mut outer = fields.clone();
        push_message(&mut outer, number, &message);
        message = outer;
    }
    let mut request = Vec::with_capacity(message.len() + 8);
    push_message(&mut request, 1, &message);
    let request = Encoded::one(Signal::Metrics, Bytes::from(request), 1);
    convert::points(&request).ok()?.pop()
}

#[cfg(test)]
mod tests;
