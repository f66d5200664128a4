// SPDX-License-Identifier: Apache-2.0

//! Heartbeats, refusals and bounds.

use super::*;

fn sub_window(start: UnixNanos, values: &[f64]) -> SubWindow {
    let observer = Observer::new(start);
    values.iter().for_each(|value| observer.observe(start, *value));
    observer.page(start + LENGTH - 1).remove(0)
}

#[test]
fn producers_that_miss_heartbeats_make_the_answer_partial_then_stale() {
    let mut reader = merged(Function::Sum);
    let state = |reader: &mut MergedWindows, now| {
        let answer = reader.answers(now).remove(0);
        (
            answer.state,
            answer.sources_reporting,
            answer.sources_expected,
            answer.value,
        )
    };
    assert_eq!(state(&mut reader, NOW), (Freshness::Absent, 0, 0, None));
    reader.expect([run(1, 1).producer, run(2, 1).producer].into());
    reader.beat(run(1, 1), NOW, NOW).unwrap();
    let value = sub_window(NOW, &[1.0, 2.0]);
    reader.take(run(1, 1), 1, &group("m"), &value, NOW).unwrap();
    assert_eq!(
        state(&mut reader, NOW),
        (Freshness::Partial, 1, 2, Some(3.0)),
        "one never reported"
    );
    reader.beat(run(2, 7), NOW, NOW).unwrap();
    assert_eq!(state(&mut reader, NOW), (Freshness::Fresh, 2, 2, Some(3.0)));
    let later = NOW + 4 * SECOND;
    reader.beat(run(2, 7), later, later).unwrap();
    reader.expire(later);
    assert_eq!(state(&mut reader, later), (Freshness::Partial, 1, 2, Some(3.0)));
    let silent = NOW + 20 * SECOND;
    reader.expire(silent);
    assert_eq!(state(&mut reader, silent), (Freshness::Stale, 0, 2, None));
    // A successor of the first: the second one still misses.
    reader.beat(run(1, 2), silent, silent).unwrap();
    reader.beat(run(2, 7), silent, silent).unwrap();
    reader
        .take(run(1, 2), 1, &group("m"), &sub_window(silent, &[]), silent)
        .unwrap();
    assert_eq!(state(&mut reader, silent), (Freshness::Idle, 2, 2, Some(0.0)));
    // It says that it ends; heartbeats that were on their way change nothing.
    reader.expect(BTreeSet::new());
    reader.end(run(2, 7), silent);
    reader.beat(run(2, 7), silent, silent).unwrap();
    assert_eq!(state(&mut reader, silent), (Freshness::Idle, 1, 1, Some(0.0)));
}

#[test]
fn an_old_page_does_not_count_as_a_heartbeat() {
    let mut reader = merged(Function::Sum);
    reader.beat(run(1, 1), NOW - 60 * SECOND, NOW).unwrap();
    reader.beat(run(2, 1), NOW - 3600 * SECOND, NOW).unwrap();
    let answer = reader.answers(NOW).remove(0);
    assert_eq!((answer.sources_reporting, answer.sources_expected), (0, 1));
}

#[test]
fn sub_windows_that_do_not_fit_are_refused_and_counted() {
    let mut reader = merged(Function::Sum);
    let good = sub_window(NOW, &[1.0]);
    reader.beat(run(1, 1), NOW, NOW).unwrap();
    let mut take = |sub_window: &SubWindow| reader.take(run(1, 1), 1, &group("m"), sub_window, NOW);
    assert_eq!(take(&good), Ok(SubWindowOutcome::New));
    assert_eq!(take(&good), Ok(SubWindowOutcome::Known));
    let moved = |by: i64| SubWindow {
        start: good.start.saturating_add_signed(by * SECOND as i64),
        end: good.end.saturating_add_signed(by * SECOND as i64),
        ..good.clone()
    };
    assert_eq!(take(&moved(5)), Ok(SubWindowOutcome::New));
    assert_eq!(
        take(&moved(6)),
        Err(SubWindowRefused::Future(Duration::from_secs(6)))
    );
    assert_eq!(take(&moved(-9)), Ok(SubWindowOutcome::New));
    assert_eq!(take(&moved(-10)), Ok(SubWindowOutcome::Expired));
    let unaligned = SubWindow {
        start: good.start + 1,
        ..good.clone()
    };
    assert_eq!(take(&unaligned), Err(SubWindowRefused::Unaligned));
    let long = SubWindow {
        end: good.start + LENGTH + 1,
        ..good.clone()
    };
    assert_eq!(take(&long), Err(SubWindowRefused::Unaligned));
    for count in [-1.0, f64::NAN, f64::INFINITY] {
        let malformed = SubWindow {
            count,
            ..good.clone()
        };
        assert_eq!(take(&malformed), Err(SubWindowRefused::Malformed));
    }
    let malformed = SubWindow {
        sum: f64::NAN,
        ..good.clone()
    };
    assert_eq!(take(&malformed), Err(SubWindowRefused::Malformed));
    let bare = SubWindow {
        distribution: None,
        ..good.clone()
    };
    assert_eq!(take(&bare), Err(SubWindowRefused::Malformed));
    let ahead = reader.beat(run(2, 1), NOW + 6 * SECOND, NOW);
    assert!(matches!(ahead, Err(SubWindowRefused::Future(_))));
    let refusals = WindowRefusals {
        future: 2,
        unaligned: 2,
        malformed: 5,
        full: 0,
    };
    assert_eq!(reader.refusals(), refusals);
    let answer = reader.answers(NOW).remove(0);
    assert_eq!(answer.state, Freshness::Partial);
    assert!(answer.collision.unwrap().contains("synchronise"));
}

#[test]
fn of_two_states_with_one_sequence_all_readers_choose_the_same() {
    let states = [sub_window(NOW, &[1.0]), sub_window(NOW, &[2.0])];
    let sums = [[0, 1], [1, 0]].map(|order| {
        let mut reader = merged(Function::Sum);
        reader.beat(run(1, 1), NOW, NOW).unwrap();
        for at in order {
            reader.take(run(1, 1), 5, &group("m"), &states[at], NOW).unwrap();
        }
        reader.answers(NOW).remove(0).sum
    });
    assert_eq!(sums[0], sums[1]);
}

#[test]
fn two_runs_of_a_producer_count_both_in_the_second_of_a_restart() {
    let mut reader = merged(Function::Sum);
    for (epoch, value) in [(1, 5.0), (2, 7.0)] {
        let run = run(1, epoch);
        reader.beat(run, NOW, NOW).unwrap();
        // The sequence of the new run begins again.
        reader
            .take(run, 10 - epoch, &group("m"), &sub_window(NOW, &[value]), NOW)
            .unwrap();
    }
    let answer = reader.answers(NOW).remove(0);
    assert_eq!((answer.value, answer.sources_expected), (Some(12.0), 1));
}

#[test]
fn a_rate_divides_by_the_time_that_a_producer_has_reported_of() {
    let mut reader = merged(Function::Rate);
    let observer = Observer::new(NOW);
    let mut now = NOW;
    for _ in 0..300 {
        now += SECOND / 10;
        observer.observe(now, 5.0);
    }
    reader.beat(run(1, 1), now, now).unwrap();
    for sub_window in observer.page(now) {
        reader.take(run(1, 1), 1, &group("m"), &sub_window, now).unwrap();
    }
    for age in [0, SECOND / 2, 2 * SECOND] {
        let rate = reader.answers(now + age).remove(0).value.unwrap();
        assert!((rate - 50.0).abs() < 2.0, "{rate} after {age} ns");
    }
    let dead = reader.answers(now + 5 * SECOND).remove(0);
    assert_eq!((dead.state, dead.value), (Freshness::Stale, None));
    reader
        .beat(run(2, 1), now + 5 * SECOND, now + 5 * SECOND)
        .unwrap();
    let falling = reader.answers(now + 5 * SECOND).remove(0).value.unwrap();
    assert!(falling < 30.0, "{falling}");
}

#[test]
fn a_clock_that_was_set_back_counts_nothing_again_and_keeps_rates() {
    const HOUR: u64 = 3600 * SECOND;
    let (old, new) = (sub_window(NOW, &[50.0]), sub_window(NOW - HOUR, &[20.0]));
    let mut reader = merged(Function::Rate);
    reader.beat(run(1, 1), NOW, NOW).unwrap();
    reader.take(run(1, 1), 1, &group("m"), &old, NOW).unwrap();
    clock::set_ahead(-HOUR.cast_signed());
    reader.beat(run(1, 2), NOW - HOUR, NOW).unwrap();
    reader.take(run(1, 2), 1, &group("m"), &new, NOW).unwrap();
    reader.expire(NOW);
    let rate = reader.answers(NOW).remove(0).value.unwrap();
    assert!((rate - 2.0).abs() < 0.01, "20 in 10 s, not {rate}");
    // The clock reaches the time of the old values again.
    let later = NOW + HOUR;
    reader.beat(run(1, 2), NOW, later).unwrap();
    assert_eq!(reader.answers(later).remove(0).count, 0.0);
    clock::set_ahead(0);
}

#[test]
fn groups_and_bytes_are_bounded_and_what_has_expired_is_given_back() {
    let bounds = Arc::new(crate::Bounds::default());
    bounds.set_bytes(1 << 20);
    let budget = Arc::new(Budget::of(bounds.clone()));
    let mut reader = MergedWindows::new(
        declare(Function::Sum),
        WindowMergeLimits::default(),
        budget.clone(),
    )
    .unwrap();
    let value = sub_window(NOW, &[1.0, 50.0]);
    let mut take = |producer, model: &str| reader.take(run(producer, 1), 1, &group(model), &value, NOW);
    assert_eq!(
        (take(1, "a"), take(1, "b")),
        (Ok(SubWindowOutcome::New), Ok(SubWindowOutcome::New))
    );
    assert_eq!(take(1, "c"), Err(SubWindowRefused::Full));
    let overflow = overflow_attributes();
    assert_eq!(
        reader.take(run(1, 1), 1, &overflow, &value, NOW),
        Ok(SubWindowOutcome::New)
    );
    bounds.set_bytes(budget.bytes());
    let mut take = |producer, sequence| reader.take(run(producer, 1), sequence, &group("a"), &value, NOW);
    assert_eq!(take(2, 1), Err(SubWindowRefused::Full), "a new run");
    assert_eq!(take(1, 2), Ok(SubWindowOutcome::New), "a known one goes on");
    assert_eq!(reader.refusals().full, 2);
    let taken = budget.bytes();
    reader.answers(NOW);
    assert_eq!(budget.bytes(), taken, "readers take only what was counted");
    reader.expire(NOW + 20 * SECOND);
    assert_eq!((budget.bytes(), reader.answers(NOW).len()), (0, 1));
}

#[test]
fn composites_that_need_the_series_of_all_processes_are_refused() {
    let across = Declaration {
        across: Some(crate::Across::Max),
        ..declare(Function::Max)
    };
    let name: Arc<str> = "c".into();
    assert_eq!(across.check_shareable(), Err(Unshareable::BySeries(name.clone())));
    assert_eq!(
        declare(Function::Last).check_shareable(),
        Err(Unshareable::Last(name))
    );
    let composite = Composite::new(across);
    assert!(composite.export(NOW, 0, &mut |_, _| ()).is_err());
    let gauge = Composite::new(declare(Function::Max));
    let _feed = gauge.feed("x", &group("m"), FeedKind::Level, NOW);
    assert_eq!(gauge.export(NOW, 0, &mut |_, _| panic!()), Ok(1));
}

#[test]
fn a_restored_group_without_sources_goes_with_its_window() {
    let saved = sub_window(NOW, &[1.0, 2.0]);
    let composite = Composite::new(declare(Function::Sum));
    assert!(composite.restore(&group("m"), &saved, NOW + SECOND));
    assert!(
        !composite.restore(&group("m"), &saved, NOW + WINDOW),
        "it is over"
    );
    composite.expire(NOW + SECOND);
    let later = NOW + 2 * SECOND;
    let feed = composite.feed("x", &group("m"), FeedKind::Observations, later);
    assert_eq!(composite.read(later).remove(0).value, Some(3.0));
    drop(feed);
    composite.expire(NOW + WINDOW + SECOND);
    assert_eq!(
        composite.read(NOW + WINDOW + SECOND).remove(0).attributes,
        Attributes::default()
    );
}

#[test]
fn a_restored_window_gives_its_memory_back_when_it_ends() {
    let saved = sub_window(NOW, &[1.0, 2.0]);
    for quantiles in [Vec::new(), vec![0.5]] {
        let declaration = Declaration {
            quantiles: quantiles.into(),
            ..declare(Function::Sum)
        };
        let budget: Arc<Budget> = Arc::default();
        let composite = Composite::new(declaration).bounded_by(budget.clone());
        let _feed = composite.feed("x", &group("m"), FeedKind::Observations, NOW);
        let before = budget.bytes();
        assert!(composite.restore(&group("m"), &saved, NOW + SECOND));
        assert!(budget.bytes() > before);
        composite.expire(NOW + WINDOW + SECOND);
        assert_eq!(budget.bytes(), before);
    }
}

#[test]
fn a_saved_sub_window_without_memory_is_refused_and_counted() {
    let saved = sub_window(NOW, &[1.0, 2.0]);
    for quantiles in [Vec::new(), vec![0.5]] {
        let declaration = Declaration {
            quantiles: quantiles.into(),
            ..declare(Function::Sum)
        };
        let bounds = Arc::new(crate::Bounds::default());
        let budget = Arc::new(Budget::of(bounds.clone()));
        let composite = Composite::new(declaration).bounded_by(budget.clone());
        let _feed = composite.feed("x", &group("m"), FeedKind::Observations, NOW);
        let before = budget.bytes();
        bounds.set_bytes(before);
        assert!(!composite.restore(&group("m"), &saved, NOW + SECOND));
        assert_eq!((budget.bytes(), composite.without_memory()), (before, 1));
        assert_eq!(composite.read(NOW + SECOND).remove(0).count, 0.0);
        bounds.set_bytes(usize::MAX);
        assert!(composite.restore(&group("m"), &saved, NOW + SECOND));
        assert_eq!(composite.read(NOW + SECOND).remove(0).count, 2.0);
    }
}

#[test]
fn borders_are_by_the_wall_clock_whatever_our_clock_says() {
    crate::clock::set_ahead(3_600_123_456_789);
    let observer = Observer::new(NOW);
    observer.observe(NOW, 1.0);
    let page = observer.page(NOW);
    assert_eq!(page.len(), 1);
    let start = page[0].start;
    assert!(start.is_multiple_of(LENGTH) && start.abs_diff(clock::wall(NOW)) <= LENGTH / 2);
    let mut reader = merged(Function::Sum);
    reader.beat(run(1, 1), clock::wall(NOW), NOW).unwrap();
    let taken = reader.take(run(1, 1), 1, &group("m"), &page[0], NOW);
    assert_eq!(taken, Ok(SubWindowOutcome::New));
    assert_eq!(reader.answers(NOW).remove(0).value, Some(1.0));
    let next = Observer::new(NOW);
    observer.composite.save(0, NOW, &mut |attributes, _, saved, _| {
        assert!(next.composite.restore(attributes, &saved, NOW));
    });
    assert_eq!(next.composite.read(NOW).remove(0).count, 1.0);
}
