// SPDX-License-Identifier: Apache-2.0

//! The laws of merges, for states that came about in any way.

use proptest::prelude::*;

use super::super::series::{MergedSeries, RunFlags, RunIndex};
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Take(&'static str, RunReport),
    Touch(u8, u64),
    End(u8, u64),
    Fold(u8, u64, bool),
}

const NOW: u64 = 100;

fn mode() -> impl Strategy<Value = MergeMode> {
    prop_oneof![
        4 => Just(MergeMode::Add),
        1 => Just(MergeMode::Level),
        1 => Just(MergeMode::Last),
    ]
}

pub(super) fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (0i64..5).prop_map(Value::Int),
        2 => (0u8..5).prop_map(|tenths| Value::Double(f64::from(tenths) * 0.1)),
        1 => Just(Value::Double(-0.0)),
        2 => (0u8..3, 0u8..4).prop_map(|(bounds, value)| {
            let bounds = [&[1.0, 2.0][..], &[2.0], &[]][usize::from(bounds)];
            histogram(bounds, &vec![f64::from(value) * 0.7; value.into()])
        }),
        1 => (-1i32..3, -3i32..3, 1u64..4).prop_map(|(scale, offset, count)| {
            exponential(scale, offset, &[count, 1], count as f64 * 0.1)
        }),
        1 => (0u64..4).prop_map(|count| summary(count, count as f64 * 0.3)),
    ]
}

pub(super) fn any_report() -> impl Strategy<Value = RunReport> {
    (0u8..3, 1u64..6, 0u64..4, 0u64..6, mode(), any_value()).prop_map(
        |(producer, start, sequence, time, mode, value)| RunReport {
            time,
            ..level(mode, producer, start, sequence, value)
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let name = prop_oneof![Just("x"), Just("y")];
    prop_oneof![
        8 => (name, any_report()).prop_map(|(name, report)| Step::Take(name, report)),
        3 => (0u8..3, 1u64..6).prop_map(|(producer, epoch)| Step::Touch(producer, epoch)),
        1 => (0u8..3, 1u64..6).prop_map(|(producer, epoch)| Step::End(producer, epoch)),
        2 => (0u8..3, 1u64..6, any::<bool>()).prop_map(|(producer, epoch, is_over)| {
            Step::Fold(producer, epoch, is_over)
        }),
    ]
}

/// A state as it may have come about. Its leader compacts at once or late.
fn any_state() -> impl Strategy<Value = Merged> {
    (0usize..3, prop::collection::vec(step(), 0..25)).prop_map(|(kept_runs, steps)| {
        let mut merged = Merged::new(MergedLimits {
            kept_runs,
            ..limits()
        });
        for step in steps {
            match step {
                Step::Take(name, report) => drop(take(&mut merged, name, report)),
                Step::Touch(producer, epoch) => merged.touch(id(producer), epoch, NOW - epoch, NOW).unwrap(),
                Step::End(producer, epoch) => merged.end(id(producer), epoch, NOW).unwrap(),
                Step::Fold(producer, epoch, is_over) => {
                    merged.fold(id(producer), epoch, is_over);
                }
            }
        }
        audit(&merged);
        merged
    })
}

fn merged(a: &Merged, b: &Merged) -> Merged {
    let mut all = Merged::new(limits());
    all.merge(a).unwrap();
    // A reader in between must change nothing.
    shown(&mut all);
    all.merge(b).unwrap();
    audit(&all);
    all
}

fn text(merged: &mut Merged) -> String {
    format!("{:?}", shown(merged))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn merging_is_commutative_associative_and_idempotent(
        a in any_state(), b in any_state(), c in any_state(),
    ) {
        let (mut ab, mut ba) = (merged(&a, &b), merged(&b, &a));
        prop_assert_eq!(state(&ab), state(&ba));
        prop_assert_eq!(text(&mut ab), text(&mut ba));
        let (mut left, mut right) = (merged(&ab, &c), merged(&a, &merged(&b, &c)));
        prop_assert_eq!(state(&left), state(&right));
        prop_assert_eq!(text(&mut left), text(&mut right));
        prop_assert_eq!(state(&merged(&a, &a)), state(&a));
        prop_assert_eq!(state(&merged(&ab, &b)), state(&ab));
    }

    /// The model: of each run only the report that all prefer, and the kind of the first run.
    #[test]
    fn the_order_of_reports_of_any_kind_and_bounds_does_not_matter(
        (reports, shuffled) in prop::collection::vec(any_report(), 1..30)
            .prop_flat_map(|reports| (Just(reports.clone()), Just(reports).prop_shuffle())),
        reads in prop::collection::vec(any::<bool>(), 30),
    ) {
        let mut all = [(); 3].map(|()| Merged::new(limits()));
        for merged in &mut all {
            for (producer, epoch) in (0..3).flat_map(|producer| (1..6).map(move |epoch| (producer, epoch))) {
                merged.touch(id(producer), epoch, NOW, NOW).unwrap();
            }
        }
        let [one, other, winners] = &mut all;
        for (report, reads) in reports.iter().zip(&reads) {
            let _ = take(one, "x", report.clone());
            if *reads {
                shown(one);
            }
        }
        shuffled.iter().chain(&reports).for_each(|report| drop(take(other, "x", report.clone())));
        prop_assert_eq!(state(one), state(other));
        prop_assert_eq!(text(one), text(other));
        audit(one);
        let mut newest = BTreeMap::new();
        for report in reports.into_iter().filter_map(RunReport::checked) {
            let place = report.order_key();
            let known = newest.entry(place).or_insert_with(|| report.clone());
            if report.supersedes(known) {
                *known = report;
            }
        }
        let runs: Vec<_> = newest.into_values().collect();
        let Some(first) = runs.iter().min_by_key(|run| (run.start, run.producer, run.mode.is_retained())) else {
            prop_assert_eq!(value(one), None);
            return Ok(());
        };
        let kind = one.series[0].as_ref().unwrap().kind();
        prop_assert_eq!(kind, Some(first.kind()));
        runs.into_iter().for_each(|report| drop(take(winners, "x", report)));
        prop_assert_eq!(state(winners), state(one));
        prop_assert_eq!(text(winners), text(one));
    }
}

#[test]
fn the_parts_of_producers_add_up_to_the_total() {
    let mut merged = Merged::new(MergedLimits {
        kept_runs: 1,
        ..limits()
    });
    // Three runs of one producer, of which two are compacted, and one of another.
    for (start, value) in [(10, 1), (20, 2), (30, 4)] {
        take_all(&mut merged, [report(1, start, 1, value)]);
    }
    take_all(&mut merged, [report(2, 40, 1, 8)]);
    for start in [10, 20, 30] {
        merged.fold(id(1), start, true);
    }
    let shares = merged.shares(Key::of(&identity("x")));
    let of = |share: &ProducerShare| (share.producer, share.runs, share.start, share.time, share.value);
    assert_eq!(
        shares.iter().map(of).collect::<Vec<_>>(),
        [(id(1), 3, 30, 31, Some(7.0)), (id(2), 1, 40, 41, Some(8.0)),]
    );
    assert_eq!(value(&mut merged), Some(Value::Int(15)));
    assert_eq!(merged.shares(Key::of(&identity("y"))), []);
}

#[test]
fn the_part_of_a_producer_is_its_newest_value_or_none() {
    let mut merged = Merged::new(limits());
    for (producer, epoch, number) in [(1, 10, 3), (1, 20, 5), (2, 10, 9)] {
        merged.touch(id(producer), epoch, 20, 20).unwrap();
        take(
            &mut merged,
            "x",
            level(MergeMode::Max, producer, epoch, 1, number),
        )
        .unwrap();
        take(
            &mut merged,
            "level",
            level(MergeMode::Level, producer, epoch, 1, number),
        )
        .unwrap();
    }
    take(&mut merged, "h", report(1, 10, 1, histogram(&[1.0], &[0.5]))).unwrap();
    let parts = |name: &str| {
        let shares = merged.shares(Key::of(&identity(name)));
        shares.iter().map(|share| share.value).collect::<Vec<_>>()
    };
    assert_eq!(parts("x"), [Some(5.0), Some(9.0)]);
    assert_eq!(parts("level"), [Some(8.0), Some(9.0)]);
    assert_eq!(parts("h"), [None]);
}

proptest! {
    /// The guess makes a search shorter, and changes nothing of its result.
    #[test]
    fn a_report_has_the_same_index_by_any_guess(
        runs in prop::collection::btree_set((0..4u8, 1..6u64), 0..12), producer in 0..4u8, start in 1..6u64, guess in 0..14usize,
    ) {
        let mut all = MergedSeries::new(Key::of(&identity("x")), identity("x"));
        for (producer, start) in &runs {
            let report = report(*producer, *start, 1, 1);
            let place = all.index_of(&report, 0);
            all.take(place, report, RunFlags::default());
        }
        let at = runs.range(..(producer, start)).count();
        let is_known = runs.contains(&(producer, start));
        let expected = if is_known { RunIndex::Known(at) } else { RunIndex::New(at) };
        prop_assert_eq!(all.index_of(&report(producer, start, 2, 1), guess), expected);
        let own = runs.iter().filter(|(other, _)| *other == producer).count();
        prop_assert_eq!(all.runs_beside(at, id(producer)), own);
    }
}
