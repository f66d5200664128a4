// SPDX-License-Identifier: Apache-2.0

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::composite::merged;
use crate::{
    Across, Added, AttributeFilter, Data, Distribution, Feed, FeedKind, Freshness, Function, Metric, Pattern,
    Point, Series, Temporality, clock,
};

const SECOND: u64 = 1_000_000_000;
const NOW: UnixNanos = 1_700_000_000 * SECOND;

fn declare(function: Function) -> Declaration {
    Declaration {
        max_groups: 10,
        // No source is stale: answers of stale groups have no statistics.
        lease: Some(Duration::from_hours(1)),
        ..merged::tests::declare(function)
    }
}

fn group(model: &str) -> Attributes {
    [("model", model)].into_iter().collect()
}

/// A run of a process with one composite, and a source for each of two groups.
struct Run {
    number: u64,
    set: Arc<CompositeSet>,
    feeds: [Feed; 2],
}

impl Run {
    fn new(number: u64, declaration: Declaration, now: UnixNanos) -> Self {
        let composite = Arc::new(Composite::new(declaration));
        let feeds = ["a", "b"].map(|name| composite.feed("x", &group(name), FeedKind::Observations, now));
        Self {
            number,
            set: Arc::new(CompositeSet::new(vec![composite])),
            feeds,
        }
    }

    fn observe(&self, place: usize, value: f64, now: UnixNanos) {
        // A sampled event counts as several.
        let added = Added {
            count: 2.5,
            sum: value * 2.5,
            min: value,
            max: value,
            last: value,
            distribution: Distribution::Last,
        };
        self.set.list()[0].add(&self.feeds[place], now, &added);
    }

    fn save(&self, since: UnixNanos, now: UnixNanos) -> Option<Vec<u8>> {
        self.set.save(self.number, since, now)
    }

    /// Takes records up. Gives the number of groups that continue.
    fn restore<'a>(&self, records: impl IntoIterator<Item = &'a Vec<u8>>, now: UnixNanos) -> usize {
        let mut saved = SavedWindows::new(self.set.clone());
        for record in records {
            saved.load(record, now).unwrap();
        }
        saved.restore(now)
    }

    fn counts(&self, now: UnixNanos) -> Vec<(f64, f64)> {
        let answers = self.set.list()[0].read(now);
        answers.iter().map(|answer| (answer.count, answer.sum)).collect()
    }
}

/// A restart, or a save, after some time.
#[derive(Clone, Debug)]
enum Act {
    Observe(usize, i32),
    /// The sub-windows since the last save become a record.
    Save,
    /// One record has all windows, and replaces all before.
    Snapshot,
    /// The next run takes the records up. All that was observed is saved before.
    Restart,
}

fn acts() -> impl Strategy<Value = Vec<(u64, Act)>> {
    let act = prop_oneof![
        8 => (0..2_usize, -1000..1000).prop_map(|(place, value)| Act::Observe(place, value)),
        3 => Just(Act::Save),
        1 => Just(Act::Snapshot),
        1 => Just(Act::Restart),
    ];
    prop::collection::vec((0..1500_u64, act), 1..80)
}

proptest! {
    #[test]
    fn records_of_all_runs_answer_as_one_run(acts in acts()) {
        let steady = Run::new(1, declare(Function::Avg), NOW);
        let mut own = Run::new(1, declare(Function::Avg), NOW);
        let (mut now, mut saved) = (NOW, 0);
        let mut records: Vec<Vec<u8>> = Vec::new();
        for (ms, act) in acts {
            now += ms * 1_000_000;
            match act {
                Act::Observe(place, value) => {
                    for run in [&steady, &own] {
                        run.observe(place, f64::from(value), now);
                    }
                }
                Act::Save => {
                    records.extend(own.save(saved.max(1), now));
                    saved = now;
                }
                Act::Snapshot => {
                    records = own.save(0, now).into_iter().collect();
                    saved = now;
                }
                Act::Restart => {
                    records.extend(own.save(saved.max(1), now));
                    let next = Run::new(own.number + 1, declare(Function::Avg), now);
                    next.restore(&records, now);
                    (own, saved) = (next, now);
                }
            }
            let [truth, answers] = [&steady, &own].map(|run| run.set.list()[0].read(now));
            for (truth, answer) in truth.iter().zip(&answers) {
                prop_assert_eq!(&answer.attributes, &truth.attributes);
                prop_assert_eq!((answer.count, answer.min, answer.max), (truth.count, truth.min, truth.max));
                prop_assert!((answer.sum - truth.sum).abs() < 1e-6);
                prop_assert_eq!(answer.last, truth.last);
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in any::<prop::sample::Index>()) {
        let run = Run::new(1, declare(Function::Avg), NOW);
        let _ = SavedWindows::new(run.set.clone()).load(&bytes, NOW);
        run.observe(0, 1.0, NOW);
        let mut sound = run.save(0, NOW).unwrap();
        let at = cut.index(sound.len());
        let _ = SavedWindows::new(run.set.clone()).load(&sound[..at], NOW);
        sound[at] ^= bytes.first().copied().unwrap_or(1).max(1);
        let mut saved = SavedWindows::new(run.set.clone());
        let _ = saved.load(&sound, NOW);
        saved.restore(NOW);
    }
}

#[test]
fn a_later_record_of_a_sub_window_replaces_the_earlier_one() {
    let run = Run::new(1, declare(Function::Avg), NOW);
    run.observe(0, 1.0, NOW);
    let first = run.save(1, NOW).unwrap();
    run.observe(0, 2.0, NOW);
    let second = run.save(NOW, NOW).unwrap();
    let next = Run::new(2, declare(Function::Avg), NOW);
    assert_eq!(next.restore([&first, &second], NOW), 1);
    assert_eq!(next.counts(NOW)[0], (5.0, 7.5));
}

#[test]
fn a_wall_clock_that_is_set_back_replaces_nothing() {
    let run = Run::new(1, declare(Function::Avg), NOW);
    run.observe(0, 1.0, NOW);
    let first = run.save(1, NOW).unwrap();
    // One second later, the wall clock shows the same time.
    let later = NOW + SECOND;
    clock::set_ahead(-(SECOND.cast_signed()));
    run.observe(0, 2.0, later);
    let second = run.save(later, later).unwrap();
    let next = Run::new(2, declare(Function::Avg), later);
    assert_eq!(next.restore([&first, &second], later), 1);
    assert_eq!(next.counts(later)[0], (5.0, 7.5));
}

#[test]
fn values_without_a_sum_continue() {
    let run = Run::new(1, declare(Function::Count), NOW);
    run.observe(0, f64::NAN, NOW);
    let record = run.save(0, NOW).unwrap();
    let next = Run::new(2, declare(Function::Count), NOW);
    assert_eq!(next.restore([&record], NOW), 1);
    assert_eq!(next.counts(NOW)[0].0, 2.5);
}

#[test]
fn a_total_that_an_earlier_run_has_counted_counts_once() {
    let point = |value, start, time| Point {
        series: Arc::new(Series {
            resource: Arc::default(),
            scope: Arc::default(),
            metric: Arc::new(Metric {
                name: "x".into(),
                description: "".into(),
                unit: "".into(),
                data: Data::Sum {
                    monotonic: true,
                    temporality: Temporality::Cumulative,
                },
                metadata: Attributes::default(),
            }),
            attributes: group("a"),
        }),
        start,
        time,
        value: Value::Int(value),
        exemplars: Vec::new(),
    };
    let run = Run::new(1, declare(Function::Sum), NOW);
    let begun = NOW - SECOND;
    run.set.observe_all(&[point(100, begun, NOW)], NOW);
    assert_eq!(run.counts(NOW)[0].1, 100.0);
    let record = run.save(0, NOW).unwrap();
    let later = NOW + 2 * SECOND;
    let next = Run::new(2, declare(Function::Sum), later);
    next.restore([&record], later);
    // The first total after the restart is where increases begin.
    next.set.observe_all(&[point(101, begun, later)], later);
    assert_eq!(next.counts(later)[0].1, 100.0);
    next.set
        .observe_all(&[point(105, begun, later + SECOND)], later + SECOND);
    assert_eq!(next.counts(later + SECOND)[0].1, 104.0);
}

#[test]
fn an_expression_has_no_windows_to_save() {
    let run = Run::new(1, declare(Function::Avg), NOW);
    run.observe(0, 1.0, NOW);
    assert!(run.save(0, NOW).is_some());
    let mut declaration = declare(Function::Max);
    declaration.across = Some(Across::Max);
    let by_series = Run::new(1, declaration, NOW);
    by_series.observe(0, 1.0, NOW);
    assert_eq!(by_series.save(0, NOW), None);
}

#[test]
fn nothing_is_saved_where_nothing_came() {
    let run = Run::new(1, declare(Function::Avg), NOW);
    assert_eq!(run.save(0, NOW), None);
    run.observe(0, 1.0, NOW);
    assert!(run.save(NOW - SECOND, NOW).is_some());
    let later = NOW + SECOND;
    assert_eq!(run.save(later, later), None, "it is saved already");
}

#[test]
fn windows_of_another_input_do_not_continue() {
    let run = Run::new(1, declare(Function::Avg), NOW);
    run.observe(0, 1.0, NOW);
    let record = run.save(0, NOW).unwrap();
    let changed = |change: fn(&mut Declaration)| {
        let mut declaration = declare(Function::Avg);
        change(&mut declaration);
        Run::new(2, declaration, NOW).restore([&record], NOW)
    };
    assert_eq!(changed(|_| ()), 1);
    assert_eq!(
        changed(|one| one.function = Function::Max),
        1,
        "of the same values"
    );
    assert_eq!(changed(|one| one.window = Duration::from_mins(1)), 1);
    let others: [fn(&mut Declaration); 6] = [
        |one| one.name = "d".into(),
        |one| one.metric = Pattern::parse("x*").unwrap(),
        |one| one.grouping = Grouping::without(["model"]),
        |one| one.quantiles = [].into(),
        |one| one.across = Some(Across::Max),
        |one| one.attributes = AttributeFilter(vec![("zone".into(), Pattern::parse("z").unwrap())]),
    ];
    for other in others {
        assert_eq!(changed(other), 0);
    }
}

#[test]
fn sub_windows_that_have_left_the_window_do_not_come_back() {
    let run = Run::new(1, declare(Function::Avg), NOW);
    run.observe(0, 1.0, NOW);
    let record = run.save(0, NOW).unwrap();
    let later = NOW + 11 * SECOND;
    let next = Run::new(2, declare(Function::Avg), later);
    assert_eq!(next.restore([&record], later), 0);
    assert_eq!(clock::wall(later), later, "the clocks of the test agree");
}

#[test]
fn bytes_of_another_version_are_refused() {
    let run = Run::new(1, declare(Function::Avg), NOW);
    let mut saved = SavedWindows::new(run.set.clone());
    assert_eq!(saved.load(&[VERSION + 1], NOW), None);
    assert_eq!(saved.load(&[], NOW), None);
    assert_eq!(saved.load(&[VERSION], NOW), Some(()));
}

#[test]
fn a_restored_group_is_partial_until_a_source_reports() {
    let run = Run::new(1, declare(Function::Avg), NOW);
    run.observe(0, 1.0, NOW);
    let record = run.save(0, NOW).unwrap();
    let composite = Arc::new(Composite::new(declare(Function::Avg)));
    let set = Arc::new(CompositeSet::new(vec![composite.clone()]));
    let mut saved = SavedWindows::new(set);
    saved.load(&record, NOW).unwrap();
    assert_eq!(saved.restore(NOW), 1);
    let before = composite.read(NOW).remove(0);
    assert_eq!((before.state, before.value), (Freshness::Partial, Some(1.0)));
    let _feed = composite.feed("x", &group("a"), FeedKind::Observations, NOW);
    let after = composite.read(NOW).remove(0);
    assert_eq!((after.state, after.value), (Freshness::Fresh, Some(1.0)));
}

#[test]
fn a_rate_is_partial_for_one_window_after_a_restart() {
    let run = Run::new(1, declare(Function::Rate), NOW);
    run.observe(0, 4.0, NOW);
    let record = run.save(0, NOW).unwrap();
    // Values that came in the 5 s between the runs are in no window.
    let later = NOW + 5 * SECOND;
    let next = Run::new(2, declare(Function::Rate), later);
    let composite = &next.set.list()[0];
    composite.observes_from(later);
    assert_eq!(next.restore([&record], later), 1);
    next.observe(0, 4.0, later + SECOND);
    let read = |now| {
        let answer = composite.read(now).remove(0);
        (answer.state, answer.sum)
    };
    let before_the_gap = NOW + 9 * SECOND;
    assert_eq!(read(before_the_gap), (Freshness::Partial, 20.0));
    let in_the_gap = NOW + 11 * SECOND;
    assert_eq!(read(in_the_gap), (Freshness::Partial, 10.0));
    assert_eq!(read(later + 10 * SECOND), (Freshness::Fresh, 10.0));
}
