// SPDX-License-Identifier: Apache-2.0

//! Views of what the gateway gives a plugin: borrowed for the time of a call, nothing is copied.
//!
//! Every view is made from a reference to a struct of the ABI. The contract of the header makes its pointers good:
//! the gateway keeps what they lead to unchanged until the call returns, and a view can't outlive its reference.

use std::ffi::c_char;
use std::slice;

use super::{Instrument, Signal};
use crate::abi;

/// The arguments of the creation of an instance.
#[derive(Clone, Copy)]
pub struct Setup<'a>(pub(super) &'a abi::Setup);

impl<'a> Setup<'a> {
    /// The exporter as configured: `plugin/csv`.
    pub fn id(&self) -> &'a str {
        text(self.0, self.0.id)
    }

    /// The exporter's `config`: a text as it is, a mapping or list as JSON.
    pub fn config(&self) -> &'a str {
        text(self.0, self.0.config)
    }
}

/// The payload of one call: OTLP, events of some sources, or both.
#[derive(Clone, Copy)]
pub struct Batch<'a>(pub(super) &'a abi::Batch);

impl<'a> Batch<'a> {
    /// Which telemetry it is.
    pub fn signal(&self) -> Signal {
        Signal::from_number(self.0.signal).unwrap_or(Signal::Metrics)
    }

    /// How many items, in OTLP and events.
    pub fn items(&self) -> u64 {
        self.0.items
    }

    /// The bytes of an OTLP export request; empty where there are only events.
    pub fn otlp(&self) -> &'a [u8] {
        column(self.0, self.0.otlp.data, self.0.otlp.length).unwrap_or_default()
    }

    /// Events by source.
    pub fn events(&self) -> impl Iterator<Item = Events<'a>> + use<'a> {
        let sources = column(self.0, self.0.events, self.0.events_count);
        sources.unwrap_or_default().iter().map(Events)
    }
}

/// Events of one source.
#[derive(Clone, Copy)]
pub struct Events<'a>(&'a abi::Events);

impl<'a> Events<'a> {
    /// The name of the source.
    pub fn source(&self) -> &'a str {
        text(self.0, self.0.source)
    }

    /// Attributes of the resource, then those that the source adds to every event.
    pub fn attributes(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        attributes(self.0, self.0.attributes, self.0.attribute_count)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.count == 0
    }

    /// The events in the order in which they were measured.
    pub fn iter(&self) -> impl Iterator<Item = Event<'a>> + use<'a> {
        let (events, count) = (self.0, self.0.count);
        let kinds = column(events, events.kinds, events.kind_count).unwrap_or_default();
        let kind = column(events, events.kind, count).unwrap_or_default();
        let whole = column(events, events.values_u64, count);
        let doubles = column(events, events.values_f64, count).unwrap_or_default();
        let times = column(events, events.times_ns, count).unwrap_or_default();
        let weights = column(events, events.weights, count);
        kind.iter().enumerate().filter_map(move |(at, kind)| {
            let value = match whole {
                Some(whole) => EventValue::Whole(*whole.get(at)?),
                None => EventValue::Double(*doubles.get(at)?),
            };
            Some(Event {
                kind: EventKind(kinds.get(usize::from(*kind))?),
                value,
                time_ns: *times.get(at)?,
                weight: weights.map_or(Some(1.0), |weights| weights.get(at).copied())?,
            })
        })
    }
}

/// One measurement.
#[derive(Clone, Copy)]
pub struct Event<'a> {
    /// The kind of the event.
    pub kind: EventKind<'a>,
    /// The value.
    pub value: EventValue,
    /// When, in nanoseconds since 1970.
    pub time_ns: u64,
    /// How many measurements it stands for.
    pub weight: f64,
}

/// The value of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EventValue {
    /// A whole number.
    Whole(u64),
    /// A double.
    Double(f64),
}

impl std::fmt::Display for EventValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(value) => value.fmt(f),
            Self::Double(value) => value.fmt(f),
        }
    }
}

/// The kind of an event.
#[derive(Clone, Copy)]
pub struct EventKind<'a>(&'a abi::Kind);

impl<'a> EventKind<'a> {
    /// Metric name.
    pub fn name(&self) -> &'a str {
        text(self.0, self.0.name)
    }

    /// The attribute `category`, empty without.
    pub fn category(&self) -> &'a str {
        text(self.0, self.0.category)
    }

    /// UCUM unit.
    pub fn unit(&self) -> &'a str {
        text(self.0, self.0.unit)
    }

    /// Free text.
    pub fn description(&self) -> &'a str {
        text(self.0, self.0.description)
    }

    /// How values combine.
    pub fn instrument(&self) -> Instrument {
        Instrument::from_number(self.0.instrument).unwrap_or(Instrument::Gauge)
    }

    /// All attributes of the kind.
    pub fn attributes(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        attributes(self.0, self.0.attributes, self.0.attribute_count)
    }
}

fn attributes<'a, T>(
    owner: &'a T,
    data: *const abi::Attribute,
    count: usize,
) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a, T> {
    let all: &'a [abi::Attribute] = column(owner, data, count).unwrap_or_default();
    all.iter()
        .map(move |pair| (text(owner, pair.key), text(owner, pair.value)))
}

/// The text, which the gateway guarantees to be UTF-8; empty otherwise.
fn text<T>(owner: &T, text: abi::Text) -> &str {
    let bytes = column(owner, text.data.cast::<u8>(), text.length);
    std::str::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
}

/// A column that a struct of the ABI points to; `None` where it is null.
fn column<T, V: AbiValue>(_owner: &T, data: *const V, length: usize) -> Option<&[V]> {
    if data.is_null() {
        return None;
    }
    // SAFETY: private to this module, and called only with pointer and length out of one struct of the ABI, which
    // `_owner` is or lies below. The header's contract: what is not null leads to `length` elements that stay
    // unchanged while the struct is borrowed. `V` is a plain struct or number, of which every bit pattern is a value.
    Some(unsafe { slice::from_raw_parts(data, length) })
}

/// Types that columns are made of.
trait AbiValue: Copy {}
impl AbiValue for u8 {}
impl AbiValue for u16 {}
impl AbiValue for u64 {}
impl AbiValue for f64 {}
impl AbiValue for abi::Attribute {}
impl AbiValue for abi::Kind {}
impl AbiValue for abi::Events {}

/// Texts are read as bytes.
const _: () = assert!(size_of::<c_char>() == size_of::<u8>());
