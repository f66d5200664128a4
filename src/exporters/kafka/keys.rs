// SPDX-License-Identifier: Apache-2.0

//! The division of a request into messages by their keys, in one walk.
//!
//! A message of a trace is made when it is sent. So a large resource that many traces share is in memory once for each
//! message in flight, and not once for each trace.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::map_hash;
use crate::batch::wire::edit::push_message;
use crate::batch::wire::proto::{Fields, WireType};
use crate::batch::wire::walk::HEADER;
use crate::batch::{Batch, Encoded, Payload, Signal, wire};
use crate::delivery::ExportRequest;
use crate::exporters::progress::MessagePart;

/// What decides the key of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyRule {
    /// Messages have no key.
    None,
    /// The hash of the attributes of the resource.
    Resource,
    /// The trace id in hexadecimal digits; empty without a trace.
    Trace,
    /// The same, but records without a trace have no key.
    TraceIfAny,
}

/// The content of a message.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// A request as it is.
    Whole(Encoded),
    /// Spans or log records of a request.
    Some(Arc<Index>, Vec<u32>),
}

/// A message that is not made yet.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) key: Option<Bytes>,
    pub(super) content: Content,
}

/// Spans or log records, with the messages around them.
#[derive(Debug)]
pub(super) struct Index {
    signal: Signal,
    /// The fields of each `Resource*` without its scopes.
    resources: Vec<Bytes>,
    /// The number of its resource, and the fields of each `Scope*` without its items.
    scopes: Vec<(u32, Bytes)>,
    /// The number of its scope, and the item.
    items: Vec<(u32, Bytes)>,
}

/// The bytes of an item or a resource beside its content, about: its entries in an [`Index`] and in the list of its message,
/// and a key and a [`Piece`] if it is alone. Vectors may have twice the room that they need.
const ENTRY_BYTES: usize = 384;

/// The bytes of tags and lengths around an item or a head.
const FRAME_BYTES: usize = 12;

/// A field number of OTLP: the children of a request, a resource and a scope.
const RESOURCES: u32 = 1;
const CHILDREN: u32 = 2;

/// Divides a request.
pub(super) fn divide(rule: KeyRule, encoded: Encoded) -> Vec<Piece> {
    match rule {
        KeyRule::None => vec![Piece {
            key: None,
            content: Content::Whole(encoded),
        }],
        KeyRule::Resource => by_resource(&encoded),
        KeyRule::Trace => by_trace(&encoded, true),
        KeyRule::TraceIfAny => by_trace(&encoded, false),
    }
}

/// The memory for a division, in bytes.
pub(super) fn room(rule: KeyRule, export: &ExportRequest) -> usize {
    let entries: usize = match rule {
        KeyRule::None => return 0,
        KeyRule::Resource => export.batches().iter().map(resources).sum(),
        KeyRule::Trace | KeyRule::TraceIfAny => export.batches().iter().map(Batch::items).sum(),
    };
    export.encoded_bytes() + entries * ENTRY_BYTES
}

/// The most resources of a batch.
fn resources(batch: &Batch) -> usize {
    match &batch.payload {
        Payload::Encoded(encoded) => {
            let parts = encoded.parts.iter();
            parts.map(|part| children(&part.bytes, RESOURCES).count()).sum()
        }
        // They have no resource without an item.
        Payload::Events(_) | Payload::Points(_) => batch.items(),
    }
}

fn by_resource(encoded: &Encoded) -> Vec<Piece> {
    let mut groups = Groups::default();
    let mut requests: Vec<Vec<u8>> = Vec::new();
    for part in &encoded.parts {
        for resource in children(&part.bytes, RESOURCES) {
            let header = children(resource, HEADER).last().unwrap_or_default();
            let key = map_hash::of_resource(header);
            let group = groups.number(&key);
            requests.resize_with(groups.keys.len(), Vec::new);
            if let Some(request) = requests.get_mut(group) {
                push_message(request, RESOURCES, resource);
            }
        }
    }
    let pieces = groups.keys.into_iter().zip(requests);
    let pieces = pieces.filter_map(|(key, request)| {
        // The request was checked when it came in, so its resources are valid too.
        let encoded = wire::check(encoded.signal, request.into()).ok()?;
        Some(Piece {
            key: Some(key),
            content: Content::Whole(encoded),
        })
    });
    pieces.collect()
}

fn by_trace(encoded: &Encoded, has_empty_key: bool) -> Vec<Piece> {
    let number = if encoded.signal == Signal::Traces { 1 } else { 9 };
    let mut index = Index::new(encoded);
    let mut groups = Groups::default();
    let mut places: Vec<Vec<u32>> = Vec::new();
    for part in &encoded.parts {
        for resource in children(&part.bytes, RESOURCES) {
            let mut around = None;
            for scope in children(resource, CHILDREN) {
                let mut scope_number = None;
                for item in children(scope, CHILDREN) {
                    let scope_number = *scope_number.get_or_insert_with(|| {
                        let around = *around.get_or_insert_with(|| index.push_resource(resource));
                        index.push_scope(around, scope)
                    });
                    let group = groups.number(trace(item, number));
                    places.resize_with(groups.keys.len(), Vec::new);
                    if let Some(place) = places.get_mut(group) {
                        place.push(index.items.len() as u32);
                    }
                    index.items.push((scope_number, part.bytes.slice_ref(item)));
                }
            }
        }
    }
    let index = Arc::new(index);
    let pieces = groups.keys.into_iter().zip(places);
    let pieces = pieces.map(|(key, place)| Piece {
        key: (has_empty_key || !key.is_empty()).then(|| hexadecimal(&key)),
        content: Content::Some(index.clone(), place),
    });
    pieces.collect()
}

/// Numbers keys in the order of their first appearance.
#[derive(Default)]
struct Groups {
    keys: Vec<Bytes>,
    numbers: HashMap<Bytes, usize>,
}

impl Groups {
    fn number(&mut self, key: &[u8]) -> usize {
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        let key = Bytes::copy_from_slice(key);
        let number = self.keys.len();
        self.keys.push(key.clone());
        self.numbers.insert(key, number);
        number
    }
}

/// The trace of an item; empty if it has none.
fn trace(item: &[u8], number: u32) -> &[u8] {
    let trace = children(item, number).last().unwrap_or_default();
    if trace.iter().all(|byte| *byte == 0) {
        return &[];
    }
    trace
}

fn hexadecimal(bytes: &[u8]) -> Bytes {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| DIGITS[usize::from(half & 15)];
    let digits = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]);
    digits.collect::<Vec<_>>().into()
}

/// The messages under a field number.
fn children(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    let fields = Fields::new(message).map_while(Result::ok);
    let wanted = fields.filter(move |field| field.number == number && field.wire == WireType::Bytes);
    wanted.map(|field| field.payload)
}

/// The fields of a message without its children. All fields of OTLP there are messages or text.
fn head(message: &[u8]) -> Bytes {
    let mut head = Vec::new();
    for field in Fields::new(message).map_while(Result::ok) {
        if field.number != CHILDREN && field.wire == WireType::Bytes {
            push_message(&mut head, field.number, field.payload);
        }
    }
    head.into()
}

impl Index {
    fn new(encoded: &Encoded) -> Self {
        Self {
            signal: encoded.signal,
            resources: Vec::new(),
            scopes: Vec::new(),
            items: Vec::with_capacity(encoded.items()),
        }
    }

    /// Adds a resource. Only those with items get here, so that empty ones take no memory.
    fn push_resource(&mut self, resource: &[u8]) -> u32 {
        self.resources.push(head(resource));
        self.resources.len() as u32 - 1
    }

    /// Adds a scope with items.
    fn push_scope(&mut self, resource: u32, scope: &[u8]) -> u32 {
        self.scopes.push((resource, head(scope)));
        self.scopes.len() as u32 - 1
    }

    /// The items at these places as a request.
    fn request(&self, places: &[u32]) -> Vec<u8> {
        let mut request = Vec::with_capacity(self.bytes(places));
        for run in runs(places, |place| self.resource_of(place)) {
            let Some(resource) = places.get(run.clone()) else {
                continue;
            };
            let number = resource.first().map_or(0, |place| self.resource_of(*place));
            let mut message = self
                .resources
                .get(number as usize)
                .map_or_else(Vec::new, |head| head.to_vec());
            for run in runs(resource, |place| self.scope_of(place)) {
                let Some(scope) = resource.get(run) else { continue };
                push_message(&mut message, CHILDREN, &self.scope(scope));
            }
            push_message(&mut request, RESOURCES, &message);
        }
        request
    }

    /// Items of one scope, in it.
    fn scope(&self, places: &[u32]) -> Vec<u8> {
        let number = places.first().map_or(0, |place| self.scope_of(*place));
        let scope = self.scopes.get(number as usize);
        let mut message = scope.map_or_else(Vec::new, |(_, head)| head.to_vec());
        for place in places {
            if let Some((_, item)) = self.items.get(*place as usize) {
                push_message(&mut message, CHILDREN, item);
            }
        }
        message
    }

    fn scope_of(&self, place: u32) -> u32 {
        self.items.get(place as usize).map_or(0, |(scope, _)| *scope)
    }

    fn resource_of(&self, place: u32) -> u32 {
        let scope = self.scopes.get(self.scope_of(place) as usize);
        scope.map_or(0, |(resource, _)| *resource)
    }

    /// The most bytes of a request of the items at these places.
    fn bytes(&self, places: &[u32]) -> usize {
        let (mut bytes, mut last) = (0, None);
        for place in places {
            let around = (self.resource_of(*place), self.scope_of(*place));
            if last.is_none_or(|(resource, _)| resource != around.0) {
                let head = self.resources.get(around.0 as usize);
                bytes += FRAME_BYTES + head.map_or(0, Bytes::len);
            }
            if last != Some(around) {
                let scope = self.scopes.get(around.1 as usize);
                bytes += FRAME_BYTES + scope.map_or(0, |(_, head)| head.len());
            }
            let item = self.items.get(*place as usize);
            bytes += FRAME_BYTES + item.map_or(0, |(_, item)| item.len());
            last = Some(around);
        }
        bytes
    }
}

/// Runs of neighbours with an equal number.
fn runs(places: &[u32], number: impl Fn(u32) -> u32) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut last = None;
    for (at, place) in places.iter().enumerate() {
        let number = Some(number(*place));
        match runs.last_mut() {
            Some(run) if last == number => run.end = at + 1,
            _ => runs.push(at..at + 1),
        }
        last = number;
    }
    runs
}

impl Piece {
    /// The most bytes of its content in protobuf.
    pub(super) fn bytes(&self) -> usize {
        match &self.content {
            Content::Whole(encoded) => encoded.bytes(),
            Content::Some(index, places) => index.bytes(places),
        }
    }

    /// Whether its content must be made: it is not there as one run of bytes.
    pub(super) fn needs_encoding(&self) -> bool {
        match &self.content {
            Content::Whole(encoded) => encoded.parts.len() > 1,
            Content::Some(..) => true,
        }
    }

    /// Its content as a request.
    pub(super) fn encoded(&self) -> Encoded {
        match &self.content {
            Content::Whole(encoded) => encoded.clone(),
            Content::Some(index, places) => {
                Encoded::one(index.signal, index.request(places).into(), places.len())
            }
        }
    }
}

impl MessagePart for Piece {
    fn items(&self) -> usize {
        match &self.content {
            Content::Whole(encoded) => encoded.items(),
            Content::Some(_, places) => places.len(),
        }
    }

    fn bytes(&self) -> usize {
        match &self.content {
            Content::Whole(encoded) => encoded.bytes(),
            // It is one resource or trace at most, and the bytes come when the message is made.
            Content::Some(..) => 0,
        }
    }

    fn halves(&self) -> Option<[Self; 2]> {
        let half = self.items() / 2;
        if half == 0 {
            return None;
        }
        let contents = match &self.content {
            Content::Whole(encoded) => {
                let (left, right) = encoded.split_at(half)?;
                [left, right].map(Content::Whole)
            }
            Content::Some(index, places) => {
                let (left, right) = places.split_at_checked(half)?;
                [left, right].map(|places| Content::Some(index.clone(), places.to_vec()))
            }
        };
        Some(contents.map(|content| Self {
            key: self.key.clone(),
            content,
        }))
    }
}

#[cfg(test)]
mod tests;
