// SPDX-License-Identifier: Apache-2.0

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
fn events_that_make_no_sense_are_omitted_and_counted() {
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
            kinds, events, doubles, integers, weights, first_kind, ..Default::default()
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
