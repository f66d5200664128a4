// SPDX-License-Identifier: Apache-2.0

//! Matches the items of a batch against a selection, with as few comparisons as possible: a resource, a scope
//! and a metric's name are each matched once.

use opentelemetry_proto::tonic::common::v1::AnyValue;
use prost::Message;
use smallvec::SmallVec;
use tidegate_engine::{AttributeValue, Attributes, Scope};

use super::selection::{IncludeExclude, Selection};
use crate::batch::convert::value_from_proto;
use crate::batch::wire::attributes::{AttributeSet, WireAttributes};
use crate::batch::wire::edit::Editor;
use crate::batch::wire::proto::{Field, Fields, varint};
use crate::batch::wire::walk::{HEADER, Header, Item};
use crate::processors::actions::Decoded;

/// An item that may be selected. Properties that its kind does not have are 0 or empty.
pub(in crate::processors) trait Candidate {
    /// The name of the metric or span.
    fn name(&self) -> &[u8];
    /// Its own attributes.
    fn attributes(&self) -> Box<dyn AttributeSet + '_>;
    /// `SpanKind` of a span.
    fn span_kind(&self) -> i32 {
        0
    }
    /// `SeverityNumber` of a log record.
    fn severity_number(&self) -> i32 {
        0
    }
    /// The severity text of a log record.
    fn severity_text(&self) -> &[u8] {
        b""
    }
    /// The body of a log record.
    fn body(&self) -> AttributeValue {
        AttributeValue::Empty
    }
}

/// The matcher of one batch, fed in the order of its items: it caches the results for the current resource,
/// scope and name.
pub(in crate::processors) struct Matcher<'a> {
    include: Option<SelectionMatcher<'a>>,
    /// An item that satisfies one of them does not match.
    excludes: SmallVec<[SelectionMatcher<'a>; 2]>,
}

/// `include`, or a part of `exclude`.
struct SelectionMatcher<'a> {
    selection: &'a Selection,
    /// Whether the resource, and the scope, satisfy it.
    around: [bool; 2],
    /// The position of the last name asked for, and the answer. It is reset with every resource, so that it can't
    /// outlive the bytes.
    name: Option<(*const [u8], bool)>,
}

impl<'a> Matcher<'a> {
    pub(in crate::processors) fn new(selects: &'a IncludeExclude) -> Self {
        Self {
            include: selects.include.as_ref().map(SelectionMatcher::new),
            excludes: selects.excludes.iter().map(SelectionMatcher::new).collect(),
        }
    }

    fn sides(&mut self) -> impl Iterator<Item = &mut SelectionMatcher<'a>> {
        self.include.iter_mut().chain(&mut self.excludes)
    }

    /// Begins the items of a resource.
    pub(in crate::processors) fn resource(&mut self, resource: &dyn AttributeSet) {
        self.sides().for_each(|side| side.resource(resource));
    }

    /// Like [`Self::resource`], for an encoded resource.
    pub(in crate::processors) fn wire_resource(&mut self, resource: &Header<'_>, editor: &Editor<'_>) {
        /// Field number of `Resource.attributes`.
        const ATTRIBUTES: u32 = 1;
        self.resource(&WireAttributes::read_or_none(resource, ATTRIBUTES, editor));
    }

    /// Begins the items of a scope.
    pub(in crate::processors) fn scope(&mut self, scope: &Scope) {
        self.named_scope(scope.name.as_bytes(), scope.version.as_bytes());
    }

    /// Like [`Self::scope`], for the encoded message with a scope and its items.
    pub(in crate::processors) fn wire_scope(&mut self, around: &[u8]) {
        if !self.sides().any(|side| side.selection.needs_scope()) {
            return;
        }
        let scope = last(around, HEADER).map_or(&[][..], |field| field.payload);
        let of = |number| last(scope, number).map_or(&[][..], |field| field.payload);
        self.named_scope(of(1), of(2));
    }

    fn named_scope(&mut self, name: &[u8], version: &[u8]) {
        for side in self.sides() {
            side.around[1] = side.selection.scope(name, version);
        }
    }

    /// Whether an item matches.
    pub(in crate::processors) fn item(&mut self, item: &dyn Candidate) -> bool {
        let included = self.include.as_mut().is_none_or(|side| side.satisfied(item));
        included && !self.excludes.iter_mut().any(|side| side.satisfied(item))
    }
}

impl<'a> SelectionMatcher<'a> {
    fn new(selection: &'a Selection) -> Self {
        let mut side = Self {
            selection,
            around: [true; 2],
            name: None,
        };
        side.resource(&Decoded::new(&Attributes::default()));
        side
    }

    fn resource(&mut self, resource: &dyn AttributeSet) {
        self.name = None;
        self.around = [
            self.selection.resource(resource),
            // Items before the first scope have a scope without a name.
            self.selection.scope(b"", b""),
        ];
    }

    fn satisfied(&mut self, item: &dyn Candidate) -> bool {
        let selection = self.selection;
        if self.around.contains(&false) {
            return false;
        }
        let name = item.name();
        let allowed = match self.name {
            Some((known, answer)) if std::ptr::eq(known, name) => answer,
            _ => {
                let answer = selection.name(name);
                self.name = Some((name, answer));
                answer
            }
        };
        allowed && selection.item(item)
    }
}

/// A metric without points, which has only a name.
pub(in crate::processors) struct Named<'a>(pub(in crate::processors) &'a [u8]);

impl Candidate for Named<'_> {
    fn name(&self) -> &[u8] {
        self.0
    }

    fn attributes(&self) -> Box<dyn AttributeSet + '_> {
        Box::new(Decoded::new(&Attributes::default()))
    }
}

/// A metric's point or an event's kind, decoded.
pub(in crate::processors) struct MeasuredItem<'a> {
    pub(in crate::processors) name: &'a str,
    pub(in crate::processors) attributes: &'a Attributes,
}

impl Candidate for MeasuredItem<'_> {
    fn name(&self) -> &[u8] {
        self.name.as_bytes()
    }

    fn attributes(&self) -> Box<dyn AttributeSet + '_> {
        Box::new(Decoded::new(self.attributes))
    }
}

/// An encoded item.
pub(in crate::processors) struct OnWire<'a, 'e> {
    pub(in crate::processors) item: &'a Item<'a>,
    pub(in crate::processors) editor: &'a Editor<'e>,
}

/// Field numbers in `Span` and `LogRecord`.
const SPAN_KIND: u32 = 6;
const SEVERITY_NUMBER: u32 = 2;
const SEVERITY_TEXT: u32 = 3;
const BODY: u32 = 5;

impl OnWire<'_, '_> {
    fn number(&self, number: u32) -> i32 {
        let field = last(self.item.message, number);
        let value = field
            .and_then(|field| varint(field.payload))
            .map_or(0, |(value, _)| value);
        // Enumerations have 32 bits; protobuf truncates longer values.
        value as i32
    }
}

impl Candidate for OnWire<'_, '_> {
    fn name(&self) -> &[u8] {
        self.item.name
    }

    fn attributes(&self) -> Box<dyn AttributeSet + '_> {
        let number = self.item.kind.attributes_field();
        Box::new(WireAttributes::read(self.item.message, number, self.editor))
    }

    fn span_kind(&self) -> i32 {
        self.number(SPAN_KIND)
    }

    fn severity_number(&self) -> i32 {
        self.number(SEVERITY_NUMBER)
    }

    fn severity_text(&self) -> &[u8] {
        last(self.item.message, SEVERITY_TEXT).map_or(&[], |field| field.payload)
    }

    fn body(&self) -> AttributeValue {
        last(self.item.message, BODY).map_or(AttributeValue::Empty, |field| {
            value_from_proto(AnyValue::decode(field.payload).ok())
        })
    }
}

/// The last field of a number: the one that counts.
fn last(message: &[u8], number: u32) -> Option<Field<'_>> {
    Fields::new(message)
        .map_while(Result::ok)
        .filter(|field| field.number == number)
        .last()
}
