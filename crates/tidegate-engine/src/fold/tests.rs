// SPDX-License-Identifier: Apache-2.0

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::{Attributes, Lease, Schema, Source, SourceId};

fn events(kinds: Vec<u16>, values: Vec<u64>, times: Option<Vec<UnixNanos>>, observed: UnixNanos) -> Events {
    let source = Arc::new(Source {
        id: SourceId::next(),
        resource: Arc::default(),
        scope: Arc::default(),
        attributes: Attributes::default(),
        lease: Arc::new(Lease::new(std::time::Duration::from_secs(1), 0)),
    });
    Events {
        source,
        schema: Arc::new(Schema::default()),
        kinds,
        values: Values::U64(values),
        times,
        weights: None,
        observed,
    }
}

/// The statistics of a kind, by its number: of every third the sum, the last value, everything.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kept {
    Sum,
    Last,
    All,
}

fn kept(kind: u16) -> Kept {
    [Kept::Sum, Kept::Last, Kept::All][usize::from(kind) % 3]
}

/// Few of many kinds, so that they come again, and the last ones.
const KINDS: u16 = TOUCH_FROM as u16 + 10;

fn kind() -> impl Strategy<Value = u16> {
    prop_oneof![0..9u16, KINDS - 3..KINDS + 2]
}

/// Among them those that are not valid, and those whose sum exceeds a word.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![0..100u64, MAX_WHOLE_VALUE - 3..MAX_WHOLE_VALUE + 1]
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![0..9u64, Just(1_700_000_000_000_000_000), LAST - 5..LAST - 3]
}

/// Count, sum, smallest, largest and last value, and newest time.
type Model = (u64, u128, u64, u64, u64, u64);

fn check(folded: &Folded, kept: Kept, (count, sum, min, max, last, time): Model) {
    assert_eq!(folded.time, time);
    let whole = |number: u128| Number::from(number);
    if kept != Kept::Last {
        assert!(folded.sum.same(whole(sum)), "{folded:?} instead of {sum}");
    }
    if kept != Kept::Sum {
        assert!(
            folded.last.same(whole(last.into())),
            "{folded:?} instead of {last}"
        );
    }
    if kept == Kept::All {
        let of_all = (folded.count, folded.min, folded.max);
        assert_eq!(of_all, (count as f64, min as f64, max as f64));
    }
}

proptest! {
    /// A drain reports each value once: for each kind, the values since the last drain.
    #[test]
    fn a_drain_says_what_was_added(
        batches in prop::collection::vec(
            (prop::collection::vec((kind(), value(), time()), 0..300), any::<bool>(), any::<bool>()),
            1..6,
        ),
    ) {
        let mut folds = Folds::default();
        folds.grow(5);
        folds.grow(KINDS.into());
        for kind in 0..KINDS {
            match kept(kind) {
                Kept::Sum => {}
                Kept::Last => folds.keep_last(kind),
                Kept::All => folds.detail(kind.into()),
            }
        }
        let mut model: HashMap<u16, Model> = HashMap::new();
        for (batch, has_times, is_drained) in batches {
            let observed = batch.first().map_or(0, |event| event.2);
            let mut invalid = 0;
            for (kind, value, time) in &batch {
                if *kind >= KINDS || *value >= MAX_WHOLE_VALUE {
                    invalid += 1;
                    continue;
                }
                let (count, sum, min, max, last, newest) = model.entry(*kind).or_insert((0, 0, u64::MAX, 0, 0, 0));
                *count += 1;
                *sum += u128::from(*value);
                (*min, *max, *last) = (*value.min(min), *value.max(max), *value);
                *newest = if has_times { *time } else { observed }.max(*newest);
            }
            let kinds = batch.iter().map(|event| event.0).collect();
            let values = batch.iter().map(|event| event.1).collect();
            let times = has_times.then(|| batch.iter().map(|event| event.2).collect());
            let added = folds.add(&events(kinds, values, times, observed), |_| false);
            prop_assert_eq!(added, invalid);
            prop_assert_eq!(folds.is_clean(), model.is_empty());
            if is_drained {
                folds.drain(|kind, folded, _| {
                    let expected = model.remove(&(kind as u16)).expect("a kind comes once");
                    check(&folded, kept(kind as u16), expected);
                });
                prop_assert!(model.is_empty() && folds.is_clean());
            }
        }
    }
}

#[test]
fn a_kind_that_has_a_sum_already_keeps_it_when_more_is_asked() {
    let mut folds = Folds::default();
    folds.grow(1);
    folds.add(&events(vec![0, 0], vec![3, 4], None, 7), |_| false);
    folds.detail(0);
    folds.add(&events(vec![0], vec![5], None, 6), |_| false);
    let mut drained = Vec::new();
    folds.drain(|kind, folded, _| drained.push((kind, folded.sum, folded.time)));
    assert_eq!(drained, [(0, Number::Int(12), 7)]);
}

#[test]
fn a_time_that_can_not_be_is_the_latest_that_can() {
    let mut folds = Folds::default();
    folds.grow(2);
    folds.keep_last(1);
    folds.add(&events(vec![0, 1], vec![3, 4], None, u64::MAX), |_| false);
    let mut drained = Vec::new();
    folds.drain(|kind, folded, _| drained.push((kind, folded.time)));
    assert_eq!(drained, [(0, LAST - 3), (1, LAST - 3)]);
}

#[test]
fn fractions_of_weighted_observations_are_kept_for_the_next_drain() {
    let mut folds = Folds::default();
    folds.grow(1);
    let id = folds.observe(0, Arc::new(BucketTable::new(Arc::from([1.0]))));
    folds.grow_doubles(|_| false);
    let mut drained = Vec::new();
    for _ in 0..3 {
        folds.add_double(0, 0.5, 2.5, 7);
        folds.drain(|_, _, sets| drained.push(sets.counts(id)[0]));
    }
    assert_eq!(drained, [2, 3, 2]);
    assert!(!folds.add_double(0, -1.0, 1.0, 7) && !folds.add_double(0, f64::NAN, 1.0, 7));
}

#[test]
fn events_without_times_have_the_wall_clocks_time_of_their_arrival() {
    const HOUR: u64 = 3_600_000_000_000;
    // The next call of `now` sets the offset right again.
    let now = crate::clock::now();
    crate::clock::set_ahead(HOUR.cast_signed());
    let wall = now + HOUR;
    let batch = events(vec![0, 1], vec![3, 4], None, now);
    let timed = events(vec![0, 1], vec![3, 4], Some(vec![7]), now);
    assert_eq!([batch.arrived(), batch.time(1)], [wall, wall]);
    assert_eq!([timed.time(0), timed.time(1)], [7, wall]);
    let doubles = Events {
        values: Values::F64(vec![3.0, 4.0]),
        ..batch.clone()
    };
    for events in [batch, doubles] {
        let mut folds = Folds::default();
        folds.grow(2);
        folds.keep_last(1);
        folds.add(&events, |_| false);
        let mut times = Vec::new();
        folds.drain(|_, folded, _| times.push(folded.time));
        assert_eq!(times, [wall, wall]);
    }
}
