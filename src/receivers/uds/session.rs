// SPDX-License-Identifier: Apache-2.0

//! The declarations of a connection, and the events of its batches. Without I/O.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::any_value::Value as Inside;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use parking_lot::Mutex;
use prost::Message;
use tidegate_engine::{EventKind, Events, Instrument, Schema, Source, UnixNanos, Values};

use super::proto;
use super::source::new_source;
use crate::batch::convert::attributes_from_proto;
use crate::component::Held;
use crate::net::Credentials;

/// Sources that a connection may declare: a relay speaks for the processes of a node.
const MAX_SOURCES: usize = 256;

/// The reason why a batch, or the whole connection, is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SessionError {
    /// Later batches would refer to kinds that we don't have.
    #[error("{0}")]
    Kinds(String),
    /// Too many sources.
    #[error(
        "the connection declares more than {MAX_SOURCES} sources: open another connection for the others"
    )]
    Sources,
    /// The columns don't fit each other.
    #[error("{0}")]
    Columns(&'static str),
}

impl SessionError {
    /// The connection declares more kinds than it may.
    pub(super) fn too_many_kinds(max: usize) -> Self {
        Self::Kinds(format!(
            "the connection declares more than {max} kinds: open another connection, or raise `max_kinds`"
        ))
    }

    /// Whether what follows on the connection can't be understood either.
    pub(super) fn is_fatal(&self) -> bool {
        !matches!(self, Self::Columns(_))
    }
}

/// The result of a batch.
#[derive(Debug)]
pub(super) struct Taken {
    /// The sound events.
    pub(super) events: Events,
    /// The number of rejected events, and the reason of the first one.
    pub(super) rejected: Option<(usize, &'static str)>,
}

/// The state of a connection.
pub(super) struct Session {
    peer: Option<Credentials>,
    max_kinds: usize,
    source_timeout: Duration,
    schema: Arc<Schema>,
    sources: Vec<(proto::Source, Arc<Source>)>,
    current: usize,
    bytes: usize,
}

impl Session {
    pub(super) fn new(peer: Option<Credentials>, max_kinds: u16, source_timeout: Duration) -> Self {
        Self {
            peer,
            max_kinds: max_kinds.into(),
            source_timeout,
            schema: Arc::default(),
            sources: Vec::new(),
            current: 0,
            bytes: 0,
        }
    }

    /// Moves the state out for use elsewhere. The remaining session has no sources that could end with it.
    pub(super) fn lend(&mut self) -> Self {
        let left = Self {
            peer: self.peer,
            max_kinds: self.max_kinds,
            source_timeout: self.source_timeout,
            schema: Arc::default(),
            sources: Vec::new(),
            current: 0,
            bytes: 0,
        };
        std::mem::replace(self, left)
    }

    /// The connection is open: so are its sources alive.
    pub(super) fn touch(&self, now: UnixNanos) {
        self.sources
            .iter()
            .for_each(|(_, source)| source.lease.touch(now));
    }

    /// Whether it has declared kinds.
    pub(super) fn has_kinds(&self) -> bool {
        !self.schema.kinds.is_empty()
    }

    /// The approximate bytes of the declared kinds and sources.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a batch in.
    pub(super) fn take(&mut self, batch: proto::EventBatch, now: UnixNanos) -> Result<Taken, SessionError> {
        self.add_kinds(batch.first_kind, &batch.kinds)?;
        let source = self.source(batch.source.as_ref())?;
        source.lease.touch(now);
        let columns = Columns::of(&batch)?;
        Ok(columns.sound_ones(source, self.schema.clone(), now))
    }

    fn add_kinds(&mut self, first: u32, kinds: &[proto::Kind]) -> Result<(), SessionError> {
        let refuse = |why: String| Err(SessionError::Kinds(why));
        let known = self.schema.kinds.len();
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        if !kinds.is_empty() && first > known {
            return refuse(format!("first_kind is {first}, but only {known} kinds are known"));
        }
        for (index, declared) in (first..).zip(kinds) {
            let kind = kind(declared).map_err(SessionError::Kinds)?;
            match self.schema.kinds.get(index) {
                Some(known) if *known == kind => {}
                Some(known) => return refuse(format!("kind {index} is {:?} already", known.name)),
                None if index >= self.max_kinds => {
                    return Err(SessionError::too_many_kinds(self.max_kinds));
                }
                None => {
                    self.bytes += of_kind(declared);
                    Arc::make_mut(&mut self.schema).kinds.push(kind);
                }
            }
        }
        Ok(())
    }

    fn source(&mut self, declared: Option<&proto::Source>) -> Result<Arc<Source>, SessionError> {
        let anonymous = proto::Source::default();
        let wanted = match (declared, self.sources.get(self.current)) {
            (None, Some((_, current))) => return Ok(current.clone()),
            (declared, _) => declared.unwrap_or(&anonymous),
        };
        if let Some(at) = self.sources.iter().position(|(known, _)| known == wanted) {
            self.current = at;
        } else if self.sources.len() >= MAX_SOURCES {
            return Err(SessionError::Sources);
        } else {
            let source = Arc::new(new_source(wanted, self.peer, self.source_timeout));
            self.bytes += of_source(wanted);
            self.current = self.sources.len();
            self.sources.push((wanted.clone(), source));
        }
        self.sources
            .get(self.current)
            .map(|(_, source)| source.clone())
            .ok_or(SessionError::Sources)
    }
}

impl Drop for Session {
    /// The connection is gone, and its sources with it.
    fn drop(&mut self) {
        self.sources.iter().for_each(|(_, source)| source.lease.end());
    }
}

/// The sessions of connections that end because the receiver stops, with the reservations of their declarations. Their sources
/// end with the receiver: a gateway that stops drops it after the last export of all processors.
#[derive(Default)]
pub(super) struct StoppedSessions(Mutex<Vec<(Session, Held)>>);

impl StoppedSessions {
    /// Keeps a session.
    pub(super) fn add(&self, session: Session, declared: Held) {
        self.0.lock().push((session, declared));
    }
}

/// The approximate bytes of a batch's kinds and source. Messages are weighed before they are decoded.
#[cfg(test)]
pub(super) fn weight(batch: &proto::EventBatch) -> usize {
    let kinds = batch.kinds.iter().map(of_kind);
    kinds.sum::<usize>() + batch.source.as_ref().map_or(0, of_source)
}

/// The overhead of a kind or a source, in bytes.
pub(super) const FIXED_BYTES: usize = 300;

/// The overhead of an attribute, or of an element of one, in bytes.
pub(super) const ELEMENT_BYTES: usize = 100;

fn of_kind(kind: &proto::Kind) -> usize {
    FIXED_BYTES + 2 * kind.encoded_len() + ELEMENT_BYTES * elements(&kind.attributes)
}

/// A source is kept twice: as it was declared, and as we know it.
fn of_source(source: &proto::Source) -> usize {
    let scope = source
        .scope
        .as_ref()
        .map_or(0, |scope| elements(&scope.attributes));
    let elements = elements(&source.resource) + elements(&source.attributes) + scope;
    2 * (FIXED_BYTES + 2 * source.encoded_len() + ELEMENT_BYTES * elements)
}

fn elements(attributes: &[KeyValue]) -> usize {
    let values = attributes.iter().filter_map(|attribute| attribute.value.as_ref());
    attributes.len() + values.map(elements_of_value).sum::<usize>()
}

/// The elements within a value.
fn elements_of_value(value: &AnyValue) -> usize {
    match &value.value {
        Some(Inside::ArrayValue(list)) => {
            list.values.len() + list.values.iter().map(elements_of_value).sum::<usize>()
        }
        Some(Inside::KvlistValue(map)) => elements(&map.values),
        _ => 0,
    }
}

fn kind(declared: &proto::Kind) -> Result<EventKind, String> {
    let instrument = match declared.instrument() {
        proto::Instrument::Counter => Instrument::Counter,
        proto::Instrument::UpDownCounter => Instrument::UpDownCounter,
        proto::Instrument::Gauge => Instrument::Gauge,
        proto::Instrument::Histogram => Instrument::Histogram,
        proto::Instrument::Unspecified => {
            return Err(format!("kind {:?} has an unknown instrument", declared.name));
        }
    };
    if declared.name.is_empty() {
        return Err("a kind has no name".to_owned());
    }
    Ok(EventKind {
        name: declared.name.as_str().into(),
        description: declared.description.as_str().into(),
        unit: declared.unit.as_str().into(),
        instrument,
        attributes: attributes_from_proto(&declared.attributes),
    })
}

/// The columns of a batch, of equal lengths.
struct Columns<'a> {
    batch: &'a proto::EventBatch,
}

impl<'a> Columns<'a> {
    fn of(batch: &'a proto::EventBatch) -> Result<Self, SessionError> {
        let events = batch.events.len();
        let fits = |length: usize| length == 0 || length == events;
        if !fits(batch.times_unix_nano.len()) || !fits(batch.weights.len()) {
            return Err(SessionError::Columns(
                "a column of times or weights has not one entry an event",
            ));
        }
        if batch.doubles.len() + batch.integers.len() != events || !fits(batch.doubles.len()) {
            return Err(SessionError::Columns(
                "there must be one value an event, in one of the two columns",
            ));
        }
        Ok(Self { batch })
    }

    /// The reason why an event is invalid, or `None`.
    fn flaw(&self, at: usize, kind: u32, schema: &Schema) -> Option<&'static str> {
        let Some(kind) = usize::try_from(kind).ok().and_then(|kind| schema.kinds.get(kind)) else {
            return Some("an event's kind was never declared");
        };
        let double = self.batch.doubles.get(at).copied();
        match kind.instrument {
            Instrument::Counter if double.is_some_and(|value| !(value >= 0.0 && value.is_finite())) => {
                return Some("a counter was incremented by a negative or infinite amount");
            }
            Instrument::UpDownCounter | Instrument::Histogram if double.is_some_and(f64::is_nan) => {
                return Some("a sum or a histogram got a value that is not a number");
            }
            _ => {}
        }
        let weight = self.batch.weights.get(at).copied().unwrap_or(1.0);
        let sound = weight > 0.0 && weight.is_finite();
        (!sound).then_some("a weight is not a positive number")
    }

    fn sound_ones(&self, source: Arc<Source>, schema: Arc<Schema>, now: UnixNanos) -> Taken {
        let batch = self.batch;
        let mut first_flaw = None;
        let mut sound = Vec::with_capacity(batch.events.len());
        let mut kinds = Vec::with_capacity(batch.events.len());
        for (at, kind) in batch.events.iter().enumerate() {
            let flaw = self.flaw(at, *kind, &schema);
            // A schema has at most `u16::MAX` kinds, so that a kind without a flaw fits.
            match u16::try_from(*kind).ok().filter(|_| flaw.is_none()) {
                Some(kind) => {
                    kinds.push(kind);
                    sound.push(at);
                }
                None => first_flaw = first_flaw.or(flaw),
            }
        }
        let rejected = batch.events.len() - sound.len();
        let values = if batch.doubles.is_empty() {
            Values::U64(pick(&batch.integers, &sound))
        } else {
            Values::F64(pick(&batch.doubles, &sound))
        };
        let optional = |present: bool| present.then_some(());
        let events = Events {
            source,
            schema,
            kinds,
            values,
            times: optional(!batch.times_unix_nano.is_empty()).map(|()| pick(&batch.times_unix_nano, &sound)),
            weights: optional(!batch.weights.is_empty()).map(|()| pick(&batch.weights, &sound)),
            observed: now,
        };
        Taken {
            events,
            rejected: first_flaw.map(|why| (rejected, why)),
        }
    }
}

/// The entries at `places`, which are within the column.
fn pick<T: Copy>(column: &[T], places: &[usize]) -> Vec<T> {
    if column.len() == places.len() {
        return column.to_vec();
    }
    places.iter().filter_map(|at| column.get(*at).copied()).collect()
}

#[cfg(test)]
mod tests;
