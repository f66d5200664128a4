// SPDX-License-Identifier: Apache-2.0

//! The state of a renderer without requests of pages.

use super::*;

const SECOND: u64 = 1_000_000_000;
/// When all series are gone through the next time.
const LATER: u64 = NOW + 31 * SECOND;

/// A gauge `x` of this owner.
fn gauge(owner: &str) -> [(Arc<Series>, Value); 1] {
    let series = series("x", "", Data::Gauge, &[], &[("owner", owner)]);
    [(series, Value::Int(1))]
}

fn omitted(renderer: &Renderer, reason: OmissionReason) -> u64 {
    let counts = renderer.counts();
    let others = OmissionReason::ALL.into_iter().filter(|other| *other != reason);
    assert!(
        others.into_iter().all(|other| counts[other as usize] == 0),
        "{counts:?}"
    );
    counts[reason as usize]
}

#[test]
fn collisions_are_known_and_reported_once_without_a_page() {
    let mut tables = vec![table("a"), table("b"), table("c")];
    put(&tables[0], &gauge("same"));
    put(&tables[1], &gauge("same"));
    let clash = |user| {
        (
            series("x", "", Data::Summary, &[], &[("user", user)]),
            Value::Summary(Box::default()),
        )
    };
    let mut renderer = renderer(Format::Text);
    renderer.register_series(&tables, NOW);
    assert_eq!(omitted(&renderer, OmissionReason::DuplicateIdentity), 1);
    let told = renderer.take_conflicts();
    let named: Vec<_> = told
        .iter()
        .map(|one| (&*one.owner, one.rival.as_deref(), one.series))
        .collect();
    assert_eq!(named, [("b", Some("a"), 1)]);

    put(&tables[2], &[clash("1"), clash("2")]);
    renderer.register_series(&tables, NOW + SECOND);
    let told = renderer.take_conflicts();
    let named: Vec<_> = told
        .iter()
        .map(|one| (&*one.owner, one.rival.as_deref(), one.series))
        .collect();
    assert_eq!(named, [("c", Some("a"), 2)], "both series of it in one");
    let counts = renderer.counts();
    assert_eq!(counts.iter().sum::<u64>(), 3);
    assert_eq!(counts[OmissionReason::TypeClash as usize], 2);

    tables.pop();
    renderer.register_series(&tables, NOW + 2 * SECOND);
    assert_eq!(
        omitted(&renderer, OmissionReason::DuplicateIdentity),
        1,
        "they went with their table"
    );
    tables.remove(0);
    renderer.register_series(&tables, NOW + 3 * SECOND);
    assert_eq!(
        (
            omitted(&renderer, OmissionReason::DuplicateIdentity),
            renderer.conflicts()
        ),
        (0, vec![])
    );
    assert_eq!(renderer.take_conflicts(), [], "none is new");
    assert!(text(&mut renderer, &tables).contains("x{owner=\"same\"} 1\n"));
}

#[test]
fn what_was_omitted_and_ends_is_no_longer_counted() {
    let tables = [table("a"), table("b")];
    put(&tables[0], &gauge("same"));
    put(&tables[1], &gauge("same"));
    let mut renderer = renderer(Format::Text);
    renderer.register_series(&tables, NOW);
    let later = NOW + 3600 * SECOND;
    (0..1000).for_each(|tick| tables[1].expire(later + tick * SECOND));
    renderer.register_series(&tables, NOW + SECOND);
    assert_eq!(omitted(&renderer, OmissionReason::DuplicateIdentity), 0);
}

#[test]
fn values_without_a_word_are_found_without_a_page() {
    let tables = [table("a")];
    let info = |value| {
        let mut series = (*series("x_info", "", Data::Gauge, &[], &[("a", "b")])).clone();
        let metadata = [("prometheus.type", "info")].into_iter().collect();
        Arc::make_mut(&mut series.metric).metadata = metadata;
        [(Arc::new(series), Value::Int(value))]
    };
    put(&tables[0], &info(5));
    let mut renderer = renderer(Format::OpenMetrics);
    renderer.register_series(&tables, NOW);
    renderer.register_series(&tables, LATER);
    assert_eq!(omitted(&renderer, OmissionReason::UnrepresentableValue), 1);
    let told = renderer.take_conflicts();
    assert_eq!((told.len(), told[0].series, &*told[0].owner), (1, 1, "a"));
    put_at(&tables[0], &info(6), LATER);
    renderer.register_series(&tables, LATER + 31 * SECOND);
    assert_eq!(renderer.take_conflicts(), [], "reported once");
    put_at(&tables[0], &info(1), LATER + 31 * SECOND);
    renderer.register_series(&tables, LATER + 62 * SECOND);
    assert_eq!(omitted(&renderer, OmissionReason::UnrepresentableValue), 0);
}

#[test]
fn nothing_is_held_of_ended_series_without_a_page() {
    let tables = [table("a")];
    put(&tables[0], &gauge("a"));
    let mut renderer = renderer(Format::Text);
    renderer.register_series(&tables, NOW);
    assert_eq!(renderer.families.iter().count(), 1);
    let later = NOW + 3600 * SECOND;
    (0..1000).for_each(|tick| tables[0].expire(later + tick * SECOND));
    renderer.register_series(&tables, later);
    assert_eq!(renderer.families.iter().count(), 0);
    assert!(renderer.interner.is_empty() && renderer.targets.is_empty());
}

#[test]
fn what_was_learnt_between_two_pages_is_on_the_second() {
    let tables = [table("a")];
    put(&tables[0], &gauge("a"));
    let mut renderer = renderer(Format::Text);
    let first = renderer.render(&tables, NOW);
    put_at(
        &tables[0],
        &[(gauge("a")[0].0.clone(), Value::Int(2))],
        NOW + SECOND,
    );
    renderer.register_series(&tables, NOW + SECOND);
    let second = renderer.render(&tables, NOW + SECOND);
    assert!(String::from_utf8_lossy(&second.body).contains("} 2\n") && second.version > first.version);
    renderer.register_series(&tables, NOW + 40 * SECOND);
    let same = renderer.render(&tables, NOW + 41 * SECOND);
    assert!(Arc::ptr_eq(&same, &second), "registration changes nothing");
}

#[test]
fn the_owner_that_is_named_has_a_series_now() {
    let mut tables = vec![table("a"), table("b"), table("c")];
    put(&tables[0], &gauge("a"));
    put(&tables[1], &gauge("b"));
    let clash = (
        series("x", "", Data::Summary, &[], &[]),
        Value::Summary(Box::default()),
    );
    put(&tables[2], &[clash]);
    let mut renderer = renderer(Format::Text);
    let rival = |renderer: &mut Renderer, tables: &[Arc<Table>]| {
        renderer.check(tables, NOW);
        let omitted = renderer.conflicts();
        assert_eq!((omitted.len(), &*omitted[0].owner), (1, "c"));
        omitted[0].rival.clone().unwrap()
    };
    assert_eq!(&*rival(&mut renderer, &tables), "a");
    let first = tables.remove(0);
    assert_eq!(&*rival(&mut renderer, &tables), "b");
    tables.push(first);
    assert_eq!(&*rival(&mut renderer, &tables), "b", "as long as it has one");
}
