// SPDX-License-Identifier: Apache-2.0

//! Senders of totals that change their gateways: each total counts once.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::model::{Form, bits, form, grows, moments, read, records};
use super::*;
use crate::{StreamTotal, Temporality};

const GATEWAYS: usize = 3;

/// The producer of all streams in these tests.
const STREAM: u8 = 9;

/// The run of a gateway.
fn epoch(gateway: usize) -> u64 {
    50 + gateway as u64
}

fn total(time: u64, value: impl Into<Value>) -> StreamTotal {
    StreamTotal::new(time, value.into()).unwrap()
}

/// The report of a gateway about the stream `x`.
fn reported(gateway: usize, start: u64, time: u64, value: impl Into<Value>) -> RunReport {
    total(time, value).report(id(STREAM), epoch(gateway), start)
}

#[test]
fn a_stream_that_changes_gateways_and_returns_counts_once() {
    let mut merged = Merged::new(limits());
    for (gateway, total, shown) in [(0, 100, 100), (1, 150, 150), (0, 160, 160), (1, 150, 160)] {
        take_all(&mut merged, [reported(gateway, 10, 20, total)]);
        assert_eq!(value(&mut merged), Some(Value::Int(shown)));
    }
    // The sender restarts.
    take_all(&mut merged, [reported(1, 30, 31, 7)]);
    assert_eq!(shown(&mut merged)["x"], (10, Value::Int(167)));
}

#[test]
fn the_larger_total_counts_whatever_the_clocks_of_senders_say() {
    let mut merged = Merged::new(limits());
    take_all(
        &mut merged,
        [
            reported(0, 10, 900, 100),
            reported(1, 10, 20, 150),
            reported(0, 10, 950, 100),
        ],
    );
    assert_eq!(value(&mut merged), Some(Value::Int(150)));
}

#[test]
fn a_gateway_that_ends_takes_nothing_from_a_stream_that_left_it() {
    let mut leader = Merged::new(limits());
    take_all(&mut leader, [reported(0, 10, 20, 100), reported(1, 10, 30, 150)]);
    assert_eq!(
        leader.fold(id(STREAM), epoch(0), true),
        0,
        "the other gateway has it"
    );
    assert_eq!(leader.fold(id(STREAM), epoch(1), true), 1);
    let mut fresh = Merged::new(limits());
    publish(&leader, STREAM, &mut fresh);
    assert_eq!(value(&mut fresh), Some(Value::Int(150)));
    take_all(&mut fresh, [reported(2, 10, 40, 155)]);
    assert_eq!(
        value(&mut fresh),
        Some(Value::Int(155)),
        "it comes back after the fold"
    );
}

#[test]
fn only_totals_with_a_start_and_without_falls_are_of_streams() {
    let (cumulative, delta) = (Temporality::Cumulative, Temporality::Delta);
    let sum = |monotonic, temporality| Data::Sum {
        monotonic,
        temporality,
    };
    for (data, start, expected) in [
        (sum(true, cumulative), 1, true),
        (sum(true, cumulative), 0, false),
        (sum(true, delta), 1, false),
        (sum(false, cumulative), 1, false),
        (Data::Gauge, 1, false),
        (Data::Summary, 1, true),
        (
            Data::Histogram {
                temporality: cumulative,
            },
            1,
            true,
        ),
        (Data::Histogram { temporality: delta }, 1, false),
        (
            Data::ExponentialHistogram {
                temporality: cumulative,
            },
            1,
            true,
        ),
    ] {
        assert_eq!(
            StreamTotal::is_known_by(data, start),
            expected,
            "{data:?} {start}"
        );
    }
    assert_eq!(StreamTotal::new(1, Value::Int(-1)), None);
    assert_eq!(StreamTotal::new(1, Value::NoRecordedValue), None);
}

#[test]
fn a_total_that_falls_or_repeats_leaves_the_larger_one() {
    let mut known = total(5, 10);
    assert_eq!(known.join(total(9, 4)), Ordering::Less);
    assert_eq!(known, total(5, 10));
    assert_eq!(known.join(total(9, 10)), Ordering::Equal);
    assert_eq!(known, total(9, 10));
    assert_eq!(known.join(total(3, 12)), Ordering::Greater);
    assert_eq!(known, total(3, 12));
}

/// An event at one of two replicas.
#[derive(Clone, Debug)]
enum StreamAct {
    /// It reads what a gateway has said, perhaps again and late.
    Take(prop::sample::Index),
    /// It folds the run of a gateway, alive or not.
    Fold(usize),
    /// It publishes the retained totals.
    Publish,
    /// It reads published totals, perhaps old ones.
    Read(prop::sample::Index),
}

fn stream_act() -> impl Strategy<Value = (bool, StreamAct)> {
    let act = prop_oneof![
        8 => any::<prop::sample::Index>().prop_map(StreamAct::Take),
        2 => (0..GATEWAYS).prop_map(StreamAct::Fold),
        2 => Just(StreamAct::Publish),
        3 => any::<prop::sample::Index>().prop_map(StreamAct::Read),
    ];
    (any::<bool>(), act)
}

/// What the gateways say about one sender.
struct StreamHistory {
    /// Everything that was ever said, in its order.
    reports: Vec<RunReport>,
    /// What each gateway says at last of each start.
    last: BTreeMap<(usize, u64), StreamTotal>,
    /// The observations since each start that reached any gateway.
    reached: BTreeMap<u64, Vec<f64>>,
}

/// The sender observes, restarts and reports to a gateway, or its report is lost. Its clock goes its own ways.
fn stream_history(form: Form, steps: &[(Option<usize>, bool, u64, Vec<u8>)]) -> StreamHistory {
    let (mut reports, mut last, mut reached) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    let (mut start, mut observed) = (1000, Vec::new());
    for (gateway, restarts, time, more) in steps {
        if *restarts {
            // The clock may have been set back.
            start = if start % 2 == 0 { start - 99 } else { start + 101 };
            observed.clear();
        }
        observed.extend(more.iter().map(|tenths| f64::from(*tenths) * 0.1));
        let Some(gateway) = *gateway else { continue };
        let new = total(*time, form.value(2 * start, &observed));
        let known = last.entry((gateway, start)).or_insert_with(|| new.clone());
        known.join(new);
        reports.push(known.clone().report(id(STREAM), epoch(gateway), start));
        reached.insert(start, observed.clone());
    }
    StreamHistory {
        reports,
        last,
        reached,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// A sender moves between gateways and restarts. Its reports get lost, repeat and come late, and both replicas fold
    /// the runs of gateways at any moment.
    #[test]
    fn any_way_of_a_stream_through_gateways_counts_each_start_once(
        form in form(),
        steps in prop::collection::vec(
            (prop::option::weighted(0.8, 0..GATEWAYS), prop::bool::weighted(0.1), 1u64..500, prop::collection::vec(1u8..70, 0..4)),
            1..40,
        ),
        acts in prop::collection::vec(stream_act(), 1..80),
    ) {
        let StreamHistory { reports, last, reached } = stream_history(form, &steps);
        // Two replicas compact safely only if both know all runs.
        let limits = MergedLimits { kept_runs: 100, ..limits() };
        let mut replicas = [Merged::new(limits), Merged::new(limits)];
        let mut before = [(0, 0.0); 2];
        let mut published = Vec::new();
        for (is_second, act) in acts {
            let merged = &mut replicas[usize::from(is_second)];
            match act {
                StreamAct::Take(which) if !reports.is_empty() => {
                    take(merged, "x", which.get(&reports).clone()).unwrap();
                }
                StreamAct::Fold(gateway) => {
                    let before = bits(merged);
                    merged.fold(id(STREAM), epoch(gateway), true);
                    prop_assert_eq!(bits(merged), before, "a fold changes nothing that is shown");
                }
                StreamAct::Publish => published.extend(records(merged, STREAM)),
                StreamAct::Read(which) if !published.is_empty() => read(merged, which.get(&published)),
                StreamAct::Take(_) | StreamAct::Read(_) => {}
            }
            grows(&mut before[usize::from(is_second)], merged);
        }
        // The first knows all that is in the pages. It folds two gateways, and their pages go.
        let page = |gateway: usize| last.iter().filter(move |((of, _), _)| *of == gateway).map(|((gateway, start), total)| {
            total.clone().report(id(STREAM), epoch(*gateway), *start)
        });
        let [first, second] = &mut replicas;
        (0..GATEWAYS).rev().for_each(|gateway| take_all(first, page(gateway)));
        for gateway in [0, 2] {
            first.fold(id(STREAM), epoch(gateway), true);
        }
        let mut third = Merged::new(limits);
        for merged in [&mut *second, &mut third] {
            records(first, STREAM).iter().for_each(|record| read(merged, record));
            take_all(merged, page(1));
        }
        let expected = bits(first);
        for merged in [&mut *first, second, &mut third] {
            prop_assert_eq!(bits(merged), expected.clone());
            audit(merged);
        }
        // The model.
        prop_assert_eq!(shown(first).remove("x").map(|(start, _)| start), reached.keys().min().copied());
        let (count, sum) = value(first).map_or((None, None), |value| moments(&value));
        let all = || reached.values().flatten();
        prop_assert!(count.is_none_or(|count| count == all().count() as u64));
        prop_assert!(sum.is_none_or(|sum| (sum - all().sum::<f64>()).abs() < 1e-6));
    }
}
