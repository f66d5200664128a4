// SPDX-License-Identifier: Apache-2.0

//! Groups and series beyond the memory bound.

use super::*;

/// A composite with a budget of `bytes`, and that budget.
fn bounded(declaration: Declaration, bytes: usize) -> (CompositeSet, Arc<Composite>, Arc<Budget>) {
    let bounds = Arc::new(Bounds::default());
    bounds.set_bytes(bytes);
    let budget = Arc::new(Budget::of(bounds));
    let declaration = Declaration {
        max_groups: 1000,
        ..declaration
    };
    let composite = Arc::new(Composite::new(declaration).bounded_by(budget.clone()));
    (CompositeSet::new(vec![composite.clone()]), composite, budget)
}

/// A text that begins with `name`.
fn long(name: usize, length: usize) -> String {
    format!("{name}{}", "x".repeat(length))
}

#[test]
fn groups_of_long_attributes_share_one_when_memory_is_used_up() {
    const MOST: usize = 4 << 20;
    let (set, composite, budget) = bounded(declare(Function::Sum, &["agent"]), MOST);
    for name in 0..200 {
        set.observe_events(&events(&source(&long(name, 20_000)), NOW, &[1]));
    }
    let answers = composite.read(NOW);
    assert!((20..60).contains(&answers.len()), "{}", answers.len());
    let total: f64 = answers.iter().filter_map(|answer| answer.value).sum();
    assert_eq!(total, 200.0, "the sum stays right");
    let without = 200 - (answers.len() - 1) as u64;
    assert_eq!(
        (composite.without_memory(), composite.overflowed_groups()),
        (without, 0)
    );
    assert_eq!(composite.shortfalls().len(), 1);
    // The group of all that find no place comes on top.
    assert!(budget.bytes() > MOST / 2 && budget.bytes() < MOST + (64 << 10));
    composite.expire(NOW + 700 * SECOND);
    assert_eq!(budget.bytes(), 0);
    // One that would take more than a 64th finds no place even then.
    let later = NOW + 700 * SECOND;
    set.observe_events(&events(&source(&long(1, 100_000)), later, &[1]));
    assert_eq!(composite.without_memory(), without + 1);
}

#[test]
fn series_that_are_not_selected_have_no_window_and_take_no_room_for_one() {
    let by_series = Declaration {
        across: Some(Across::Sum),
        ..declare(Function::Max, &[])
    };
    let nobody = AttributeFilter(vec![("pod".into(), Pattern::parse("nobody").unwrap())]);
    let filtered = Declaration {
        attributes: nobody,
        ..by_series.clone()
    };
    let taken = |declaration: Declaration| {
        let (set, _composite, budget) = bounded(declaration, 64 << 20);
        set.observe_all(&[point("xfer_depth", Data::Gauge, 0, NOW, Value::Int(1))], NOW);
        budget.bytes()
    };
    let (with, without) = (taken(by_series), taken(filtered));
    assert!(without > 0 && with > without + 1024, "{with}, {without}");
}

#[test]
fn series_of_long_labels_stay_below_the_bound_and_known_ones_go_on() {
    const MOST: usize = 1 << 20;
    let (set, composite, budget) = bounded(declare(Function::Last, &[]), MOST);
    let say = |name: usize, now: u64| {
        let before = composite.without_memory();
        let gauge = point("xfer_depth", Data::Gauge, 0, now, Value::Int(1));
        let text = long(name, 20_000);
        let series = Series {
            attributes: [("text", &*text)].into_iter().collect(),
            ..Series::clone(&gauge.series)
        };
        let gauge = Point {
            series: Arc::new(series),
            ..gauge
        };
        set.observe_all(&[gauge], now);
        composite.without_memory() == before
    };
    let known: Vec<_> = (0..200).filter(|name| say(*name, NOW)).collect();
    assert!((40..53).contains(&known.len()), "{}", known.len());
    assert!(budget.bytes() <= MOST, "{}", budget.bytes());
    assert!(known.iter().all(|name| say(*name, NOW + SECOND)));
    assert_eq!(composite.without_memory(), 200 - known.len() as u64);
    assert!(composite.shortfalls()[0].contains("no memory"));
    composite.expire(NOW + 700 * SECOND);
    assert_eq!(budget.bytes(), 0);
    assert!(say(1000, NOW + 700 * SECOND));
}
