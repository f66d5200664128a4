// SPDX-License-Identifier: Apache-2.0

//! Partition ids of metric points on the wire, without decoded series.
//!
//! A point has the id that [`tidegate_engine::partition_id`] gives its decoded series, in any spelling. The hash of each
//! message around points is computed once. The attributes of a point are written into a buffer that the next point uses
//! again, so a point allocates nothing, unless it has lists or maps as values, or more than 16 unsorted attributes.

use std::borrow::Cow;

use tidegate_engine::{AttributeList, AttributeRef, AttributesBuilder, MapRef, PartitionHasher};

use super::edit::Editor;
use super::points::data_of;
use super::proto::{Field, Fields, WireType, varint};
use super::walk::{HEADER, Item, Level, Visitor, edit};
use super::{MAX_DEPTH, WireError};
use crate::Encoded;

/// Gives the partition ids of all points of checked metrics, in the order of the points.
///
/// # Errors
/// Bytes that are not a request. `each` has then seen the points before the error.
pub fn partition_ids(encoded: &Encoded, each: &mut dyn FnMut(u64)) -> Result<(), WireError> {
    let none = PartitionHasher::of_resource(MapRef::default(), "");
    let mut reader = IdReader {
        each,
        around: [(); 4].map(|()| none.clone()),
        builder: AttributesBuilder::default(),
    };
    edit(encoded, &mut reader).map(|_| ())
}

struct IdReader<'e> {
    each: &'e mut dyn FnMut(u64),
    /// The hashes of the messages around the current point, each with those outside of it.
    around: [PartitionHasher; 4],
    builder: AttributesBuilder,
}

impl Visitor for IdReader<'_> {
    fn begin(&mut self, level: Level, message: &[u8]) {
        let Self { around, builder, .. } = self;
        match level {
            Level::Resource => around[0] = resource(message, builder),
            Level::Scope => around[1] = scope(around[0].clone(), message, builder),
            Level::Metric => around[2] = around[1].clone().metric(&text(message, 1), &text(message, 3)),
            Level::Data(number) => around[3] = around[2].clone().data(data_of(number, message)),
        }
    }

    fn item(&mut self, item: &Item<'_>, _: &mut Editor<'_>) -> bool {
        let around = self.around[3].clone();
        let number = item.kind.attributes_field();
        let id = with_set(&mut self.builder, item.message, number, 0, |set| around.id(set));
        (self.each)(id);
        true
    }
}

/// Begins with the resource of a `ResourceMetrics`.
fn resource(message: &[u8], builder: &mut AttributesBuilder) -> PartitionHasher {
    let resource = payload(message, HEADER);
    with_set(builder, resource, 1, 0, |set| {
        PartitionHasher::of_resource(set, &text(message, 3))
    })
}

/// Adds the scope of a `ScopeMetrics`.
fn scope(around: PartitionHasher, message: &[u8], builder: &mut AttributesBuilder) -> PartitionHasher {
    let scope = payload(message, HEADER);
    let (name, version) = (text(scope, 1), text(scope, 2));
    with_set(builder, scope, 3, 0, |set| {
        around.scope(&name, &version, set, &text(message, 3))
    })
}

/// Lends the canonical set of the attributes that a message has under a field number.
fn with_set<R>(
    builder: &mut AttributesBuilder,
    message: &[u8],
    number: u32,
    depth: usize,
    look: impl FnOnce(MapRef<'_>) -> R,
) -> R {
    for pair in payloads(message, number) {
        let key = text(pair, 1);
        with_value(payload(pair, 2), depth, &mut |value| builder.push(&key, value));
    }
    builder.finish_with(look)
}

/// Lends the value of an `AnyValue`. Values below the depth that [`check`](super::check()) allows are empty.
fn with_value(message: &[u8], depth: usize, look: &mut dyn FnMut(AttributeRef<'_>)) {
    let field = fields(message)
        .filter(|field| (1..=8).contains(&field.number))
        .last();
    let Some(field) = field.filter(|_| depth < MAX_DEPTH) else {
        return look(AttributeRef::Empty);
    };
    let number = || varint(field.payload).map_or(0, |(number, _)| number);
    match (field.number, field.wire) {
        (1, WireType::Bytes) => look(AttributeRef::Str(&String::from_utf8_lossy(field.payload))),
        (2, WireType::Varint) => look(AttributeRef::Bool(number() != 0)),
        (3, WireType::Varint) => look(AttributeRef::Int(number().cast_signed())),
        (4, WireType::Fixed64) => look(AttributeRef::Double(double(field.payload))),
        (5, WireType::Bytes) => {
            let mut list = AttributeList::default();
            for value in payloads(field.payload, 1) {
                with_value(value, depth + 1, &mut |value| list.push(value));
            }
            look(AttributeRef::Array(list.view()));
        }
        (6, WireType::Bytes) => {
            let mut builder = AttributesBuilder::default();
            with_set(&mut builder, field.payload, 1, depth + 1, |map| {
                look(AttributeRef::Map(map));
            });
        }
        (7, WireType::Bytes) => look(AttributeRef::Bytes(field.payload)),
        _ => look(AttributeRef::Empty),
    }
}

fn double(bytes: &[u8]) -> f64 {
    bytes.try_into().map_or(0.0, f64::from_le_bytes)
}

fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    Fields::new(message).map_while(Result::ok)
}

fn payloads(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    let wanted = move |field: &Field<'_>| field.number == number && field.wire == WireType::Bytes;
    fields(message).filter(wanted).map(|field| field.payload)
}

/// The last field of this number, empty where there is none.
fn payload(message: &[u8], number: u32) -> &[u8] {
    payloads(message, number).last().unwrap_or_default()
}

fn text(message: &[u8], number: u32) -> Cow<'_, str> {
    String::from_utf8_lossy(payload(message, number))
}
