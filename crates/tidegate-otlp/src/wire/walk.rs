// SPDX-License-Identifier: Apache-2.0

//! A walk over a request: resources, scopes, metrics and items, without building trees.
//!
//! The header of each message (name, attributes) is looked at before its items, wherever it stands among the fields,
//! so any order of fields is the same to a visitor. Messages in several pieces do not occur: see `check`.

use super::WireError;
use super::edit::Editor;
use super::proto::{Field, Fields, WireType};
use crate::{Encoded, Part, Signal};

/// The kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A point of a gauge or a sum.
    Number,
    /// A point of a histogram.
    Histogram,
    /// A point of an exponential histogram.
    ExponentialHistogram,
    /// A point of a summary.
    Summary,
    /// A span.
    Span,
    /// A log record.
    LogRecord,
}

impl ItemKind {
    /// The field number of its attributes.
    #[inline]
    pub fn attributes_field(self) -> u32 {
        match self {
            Self::Number | Self::Summary => 7,
            Self::Histogram | Self::Span => 9,
            Self::ExponentialHistogram => 1,
            Self::LogRecord => 6,
        }
    }
}

/// The view that a visitor has of an item: the messages around it and its own bytes.
pub struct Item<'a> {
    /// Its kind.
    pub kind: ItemKind,
    /// The metric's name; for a span its own name; empty for log records.
    pub name: &'a [u8],
    /// The point, span or log record.
    pub message: &'a [u8],
}

/// A message that describes others: a resource.
pub struct Header<'a> {
    /// Its bytes, empty where it is not there.
    pub message: &'a [u8],
    /// Where it is to be put when it is not there but wanted; its field number is `HEADER`.
    pub missing_at: Option<usize>,
}

/// The field number of a resource in `Resource*` and of a scope in `Scope*`.
pub const HEADER: u32 = 1;

/// A message that holds others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// `Resource*`.
    Resource,
    /// `Scope*`.
    Scope,
    /// `Metric`.
    Metric,
    /// `Gauge`, `Sum`, ..., by its field number in `Metric`.
    Data(u32),
}

/// Looks at a request and says what is to become of it.
pub trait Visitor {
    /// A message that holds others begins; shown as a whole, before anything in it.
    fn begin(&mut self, _level: Level, _message: &[u8]) {}

    /// A resource begins. Edits of its message go to `editor`. False: it goes with all its items.
    fn resource(&mut self, _resource: &Header<'_>, _editor: &mut Editor<'_>) -> bool {
        true
    }

    /// A `Scope*` message begins. False: it goes with all its items.
    fn scope(&mut self, _around: &[u8]) -> bool {
        true
    }

    /// A metric begins. False: it goes with all its points.
    fn metric(&mut self, _name: &[u8]) -> bool {
        true
    }

    /// The same, its message.
    fn whole_metric(&mut self, _metric: &[u8]) -> bool {
        true
    }

    /// A metric without points. False: it goes.
    fn empty_metric(&mut self, _name: &[u8]) -> bool {
        true
    }

    /// An item. False: it goes.
    fn item(&mut self, _item: &Item<'_>, _editor: &mut Editor<'_>) -> bool {
        true
    }
}

/// The request after a visit; unchanged parts are shared. Messages that the visit emptied are gone; messages that were
/// empty before stay.
///
/// # Errors
/// Bytes that are not a request.
pub fn edit(encoded: &Encoded, visitor: &mut dyn Visitor) -> Result<Encoded, WireError> {
    let mut edited = Encoded {
        signal: encoded.signal,
        parts: smallvec::SmallVec::new(),
    };
    for part in &encoded.parts {
        let left = edit_part(encoded.signal, part, visitor)?;
        if left.items > 0 || part.items == 0 || !left.bytes.is_empty() {
            edited.parts.push(left);
        }
    }
    Ok(edited)
}

fn edit_part(signal: Signal, part: &Part, visitor: &mut dyn Visitor) -> Result<Part, WireError> {
    let mut walk = Walk {
        signal,
        editor: Editor::new(&part.bytes),
        visitor,
        items: 0,
        empty: 0,
        removed: 0,
    };
    walk.request(&part.bytes)?;
    let items = walk.items;
    let bytes = walk.editor.finish().unwrap_or_else(|| part.bytes.clone());
    Ok(Part { bytes, items })
}

/// The messages under a field number.
fn messages(message: &[u8], number: u32) -> impl Iterator<Item = Result<Field<'_>, WireError>> {
    let wanted = move |field: &Result<Field<'_>, &'static str>| match field {
        Ok(field) => field.number == number && field.wire == WireType::Bytes,
        Err(_) => true,
    };
    Fields::new(message)
        .filter(wanted)
        .map(|field| field.map_err(WireError::here))
}

/// The name of the first item; empty where it has none.
pub fn first_name(encoded: &Encoded) -> String {
    #[derive(Default)]
    struct First(Option<String>);
    impl Visitor for First {
        fn metric(&mut self, _: &[u8]) -> bool {
            self.0.is_none()
        }

        fn item(&mut self, item: &Item<'_>, _: &mut Editor<'_>) -> bool {
            self.0
                .get_or_insert_with(|| String::from_utf8_lossy(item.name).into_owned());
            false
        }
    }
    let mut first = First::default();
    // The values that were read before an error count.
    let _ = edit(encoded, &mut first);
    first.0.unwrap_or_default()
}

struct Walk<'a, 'v> {
    signal: Signal,
    editor: Editor<'a>,
    visitor: &'v mut dyn Visitor,
    /// Items kept.
    items: usize,
    /// Messages that came in empty and are kept.
    empty: usize,
    /// Messages that the visitor did not keep.
    removed: usize,
}

impl Walk<'_, '_> {
    fn request(&mut self, request: &[u8]) -> Result<(), WireError> {
        self.children(request, 1, |walk, resource| {
            if walk.resource(resource)? {
                walk.children(resource, 2, Self::scope)
            } else {
                walk.remove()
            }
        })
    }

    /// Shows the resource to the visitor, inside a frame of its own where it is there.
    fn resource(&mut self, around: &[u8]) -> Result<bool, WireError> {
        self.visitor.begin(Level::Resource, around);
        let range = self.editor.range_of(around);
        let mut start = range.start;
        for field in Fields::new(around) {
            let field = field.map_err(WireError::here)?;
            if field.number == HEADER && field.wire == WireType::Bytes {
                self.editor.open(start, field.payload);
                let header = Header {
                    message: field.payload,
                    missing_at: None,
                };
                let keep = self.visitor.resource(&header, &mut self.editor);
                self.editor.close(true);
                return Ok(keep);
            }
            start = self.editor.range_of(field.payload).end;
        }
        Ok(self.visitor.resource(
            &Header {
                message: &[],
                missing_at: Some(range.start),
            },
            &mut self.editor,
        ))
    }

    fn scope(&mut self, scope: &[u8]) -> Result<(), WireError> {
        self.visitor.begin(Level::Scope, scope);
        if !self.visitor.scope(scope) {
            return self.remove();
        }
        match self.signal {
            Signal::Metrics => self.children(scope, 2, Self::metric),
            Signal::Traces => self.items(scope, 2, ItemKind::Span, b""),
            Signal::Logs => self.items(scope, 2, ItemKind::LogRecord, b""),
        }
    }

    fn metric(&mut self, metric: &[u8]) -> Result<(), WireError> {
        const DATA: [(u32, ItemKind); 5] = [
            (5, ItemKind::Number),
            (7, ItemKind::Number),
            (9, ItemKind::Histogram),
            (10, ItemKind::ExponentialHistogram),
            (11, ItemKind::Summary),
        ];
        let name = messages(metric, 1)
            .last()
            .transpose()?
            .map_or(&[][..], |field| field.payload);
        if !self.visitor.metric(name) {
            return self.remove();
        }
        self.visitor.begin(Level::Metric, metric);
        if !self.visitor.whole_metric(metric) {
            return self.remove();
        }
        let data = Fields::new(metric).map_while(Result::ok).find_map(|field| {
            let known = DATA.iter().find(|(number, _)| *number == field.number)?;
            (field.wire == WireType::Bytes).then_some(*known)
        });
        // There is one at most: see `check`.
        let (before, empty) = ((self.items, self.removed), self.empty);
        if let Some((number, kind)) = data {
            self.children(metric, number, |walk, data| {
                walk.visitor.begin(Level::Data(number), data);
                walk.items(data, 1, kind, name)
            })?;
        }
        self.empty = empty;
        if (self.items, self.removed) == before {
            self.empty_metric(name)
        } else {
            Ok(())
        }
    }

    fn empty_metric(&mut self, name: &[u8]) -> Result<(), WireError> {
        if self.visitor.empty_metric(name) {
            Ok(())
        } else {
            self.remove()
        }
    }

    fn remove(&mut self) -> Result<(), WireError> {
        self.removed += 1;
        Ok(())
    }

    /// Visits every message under a field number; those that lose all that they had go.
    fn children(
        &mut self,
        message: &[u8],
        number: u32,
        mut visit: impl FnMut(&mut Self, &[u8]) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let mut start = self.editor.range_of(message).start;
        for field in Fields::new(message) {
            let field = field.map_err(WireError::here)?;
            let end = self.editor.range_of(field.payload).end;
            if field.number == number && field.wire == WireType::Bytes {
                let before = (self.items + self.empty, self.removed);
                self.editor.open(start, field.payload);
                let visited = visit(self, field.payload);
                let has_some = self.items + self.empty > before.0;
                let was_empty = !has_some && self.removed == before.1;
                self.empty += usize::from(was_empty);
                self.editor.close(has_some || was_empty);
                visited?;
            }
            start = end;
        }
        Ok(())
    }

    fn items(&mut self, message: &[u8], number: u32, kind: ItemKind, name: &[u8]) -> Result<(), WireError> {
        self.children(message, number, |walk, item| {
            let own_name = match kind {
                ItemKind::Span => messages(item, 5)
                    .last()
                    .transpose()?
                    .map_or(&[][..], |field| field.payload),
                _ => name,
            };
            let item = Item {
                kind,
                name: own_name,
                message: item,
            };
            if walk.visitor.item(&item, &mut walk.editor) {
                walk.items += 1;
            } else {
                walk.removed += 1;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
