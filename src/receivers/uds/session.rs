//! The declarations of a connection, and the events of its batches. Without I/O.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::any_value::Value as Inside;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prost::Message;
use tidegate_engine::{Events, Instrument, Kind, Schema, Source, UnixNanos, Values};

use super::proto;
use super::source::new_source;
use crate::batch::convert::attributes_from_proto;
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
    #[error("a connection may declare at most {MAX_SOURCES} sources")]
    Sources,
    /// The columns don't fit each other.
    #[error("{0}")]
    Columns(&'static str),
}

impl SessionError {
    /// The connection declares more kinds than it may.
    pub(super) fn too_many_kinds(max: usize) -> Self {
        Self::Kinds(format!("at most {max} kinds a connection (`max_kinds`)"))
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
        self.learn(batch.first_kind, &batch.kinds)?;
        let source = self.source(batch.source.as_ref())?;
        source.lease.touch(now);
        let columns = Columns::of(&batch)?;
        Ok(columns.sound_ones(source, self.schema.clone(), now))
    }

    fn learn(&mut self, first: u32, kinds: &[proto::Kind]) -> Result<(), SessionError> {
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

fn kind(declared: &proto::Kind) -> Result<Kind, String> {
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
    Ok(Kind {
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn declared(name: &str, instrument: proto::Instrument) -> proto::Kind {
        proto::Kind {
            name: name.to_owned(),
            instrument: instrument.into(),
            ..Default::default()
        }
    }

    fn session() -> Session {
        Session::new(None, 3, Duration::from_secs(1))
    }

    fn batch(kinds: &[&str], first_kind: u32, events: &[u32]) -> proto::EventBatch {
        proto::EventBatch {
            kinds: kinds
                .iter()
                .map(|name| declared(name, proto::Instrument::Counter))
                .collect(),
            first_kind,
            events: events.to_vec(),
            integers: events.iter().map(|kind| u64::from(*kind)).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn later_batches_refer_to_earlier_kinds_and_the_source_stays() {
        let mut session = session();
        let first = session.take(batch(&["a", "b"], 0, &[0, 1]), 1).unwrap().events;
        let second = session.take(batch(&["c"], 2, &[2, 0]), 2).unwrap().events;
        assert_eq!(first.source.id, second.source.id);
        let names: Vec<_> = second.schema.kinds.iter().map(|kind| &*kind.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(second.kinds, [2, 0]);
    }

    #[test]
    fn a_batch_that_is_sent_again_changes_nothing() {
        let mut session = session();
        session.take(batch(&["a", "b"], 0, &[0]), 1).unwrap();
        let again = session.take(batch(&["a", "b"], 0, &[0]), 2).unwrap();
        assert_eq!(again.events.schema.kinds.len(), 2);
    }

    #[test]
    fn kinds_that_change_leave_a_gap_or_are_too_many_end_the_connection() {
        let table = [
            (batch(&["x"], 0, &[]), "is \"a\" already"),
            (batch(&["x"], 2, &[]), "first_kind is 2"),
            (batch(&["b", "c", "d"], 1, &[]), "max_kinds"),
            (batch(&[""], 1, &[]), "no name"),
        ];
        for (refused, why) in table {
            let mut session = session();
            session.take(batch(&["a"], 0, &[]), 1).unwrap();
            let error = session.take(refused, 2).unwrap_err();
            assert!(error.is_fatal() && error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn what_is_declared_weighs_by_its_text_and_attributes_and_once() {
        let mut session = session();
        let mut long = batch(&["a"], 0, &[0]);
        long.kinds[0].description = "d".repeat(100_000);
        session.take(long.clone(), 1).unwrap();
        let of_kind = session.bytes();
        assert!(of_kind > 100_000, "{of_kind}");
        session.take(long, 2).unwrap();
        let of_source = session.bytes();
        let attribute = |number: usize| KeyValue {
            key: number.to_string(),
            ..Default::default()
        };
        let source = proto::Source {
            resource: (0..1000).map(attribute).collect(),
            ..Default::default()
        };
        let mut declares = batch(&[], 0, &[0]);
        declares.source = Some(source);
        session.take(declares.clone(), 3).unwrap();
        assert!(session.bytes() - of_source > 100 * 1000, "{}", session.bytes());
        let all = session.bytes();
        session.take(declares.clone(), 4).unwrap();
        assert_eq!(session.bytes(), all);
        assert!(weight(&declares) <= all);
    }

    #[test]
    fn events_that_make_no_sense_are_left_out_and_counted() {
        let mut session = session();
        let mut mixed = batch(&["a"], 0, &[0, 9, 0, 0]);
        mixed.integers.clear();
        mixed.doubles = vec![1.0, 2.0, -3.0, 4.0];
        mixed.times_unix_nano = vec![11, 12, 13, 14];
        mixed.weights = vec![1.0, 1.0, 1.0, 2.0];
        let taken = session.take(mixed, 1).unwrap();
        assert_eq!(taken.rejected, Some((2, "an event's kind was never declared")));
        assert_eq!(taken.events.values, Values::F64(vec![1.0, 4.0]));
        assert_eq!(taken.events.times, Some(vec![11, 14]));
        assert_eq!(taken.events.weights, Some(vec![1.0, 2.0]));
    }

    #[test]
    fn columns_of_unequal_length_refuse_the_batch_and_not_the_connection() {
        let mut session = session();
        for spoil in [
            (|batch| batch.integers = vec![1]) as fn(&mut proto::EventBatch),
            |batch| batch.doubles = vec![1.0],
            |batch| batch.weights = vec![1.0],
            |batch| batch.times_unix_nano = vec![1, 2, 3],
        ] {
            let mut spoilt = batch(&["a"], 0, &[0, 0]);
            spoil(&mut spoilt);
            assert!(!session.take(spoilt, 1).unwrap_err().is_fatal());
        }
    }

    #[test]
    fn sources_are_distinct_recognised_and_end_with_the_connection() {
        let mut session = session();
        let named = |name: &str| {
            let mut batch = batch(&["a"], 0, &[0]);
            let scope = opentelemetry_proto::tonic::common::v1::InstrumentationScope {
                name: name.to_owned(),
                ..Default::default()
            };
            batch.source = Some(proto::Source {
                scope: Some(scope),
                ..Default::default()
            });
            batch
        };
        let one = session.take(named("one"), 1).unwrap().events.source;
        let two = session.take(named("two"), 1).unwrap().events.source;
        let implied = session.take(batch(&[], 0, &[0]), 1).unwrap().events.source;
        let one_again = session.take(named("one"), 1).unwrap().events.source;
        assert_ne!(one.id, two.id);
        assert_eq!(implied.id, two.id);
        assert_eq!(one_again.id, one.id);
        assert!(!one.lease.is_ended());
        drop(session);
        assert!(one.lease.is_ended() && two.lease.is_ended());
    }

    proptest! {
        #[test]
        fn events_that_come_out_are_consistent_whatever_comes_in(
            kinds in proptest::collection::vec(("[a-c]{0,2}", 0i32..6), 0..5),
            first_kind in 0u32..4,
            events in proptest::collection::vec(0u32..6, 0..6),
            doubles in proptest::collection::vec(any::<f64>(), 0..6),
            integers in proptest::collection::vec(any::<u64>(), 0..6),
            weights in proptest::collection::vec(any::<f64>(), 0..6),
        ) {
            let kinds = kinds
                .into_iter()
                .map(|(name, instrument)| proto::Kind { name, instrument, ..Default::default() })
                .collect();
            let batch = proto::EventBatch {
                kinds, first_kind, events, doubles, integers, weights, ..Default::default()
            };
            let sent = batch.events.len();
            if let Ok(taken) = session().take(batch, 1) {
                let events = taken.events;
                prop_assert_eq!(events.len() + taken.rejected.map_or(0, |(count, _)| count), sent);
                prop_assert_eq!(events.values.len(), events.len());
                prop_assert!(events.weights.is_none_or(|weights| weights.len() == events.kinds.len()));
                prop_assert!(events.kinds.iter().all(|kind| usize::from(*kind) < events.schema.kinds.len()));
            }
        }
    }
}
