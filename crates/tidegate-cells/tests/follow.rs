// SPDX-License-Identifier: Apache-2.0

//! A follower always has the same values as a new reader of the directory, and knows which of them have changed.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_cells::{
    Directory, FamilySpec, Follower, GaugeMode, Kind, Limits, Options, Snapshot, Store, Value,
};

#[derive(Clone, Debug)]
enum Step {
    Start,
    Die(usize),
    Fold,
    Count(usize, u8, u64),
    Set(usize, u8, usize, f64),
    Observe(usize, u8, bool, f64),
    Grow(usize, u8, f64),
    Remove(usize, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let store = 0..4_usize;
    let step = prop_oneof![
        2 => Just(Step::Start),
        1 => store.clone().prop_map(Step::Die),
        1 => Just(Step::Fold),
        4 => (store.clone(), 0..6_u8, 0..9_u64).prop_map(|(s, l, n)| Step::Count(s, l, n)),
        4 => (store.clone(), 0..3_u8, 0..5_usize, -9.0..9.0).prop_map(|(s, l, m, v)| Step::Set(s, l, m, v)),
        4 => (store.clone(), 0..3_u8, any::<bool>(), -1.0..9.0).prop_map(|(s, l, b, v)| Step::Observe(s, l, b, v)),
        2 => (store.clone(), 0..3_u8, 0.001..1e6).prop_map(|(s, l, v)| Step::Grow(s, l, v)),
        1 => (store, 0..6_u8).prop_map(|(s, l)| Step::Remove(s, l)),
    ];
    prop::collection::vec(step, 1..40)
}

const MODES: [GaugeMode; 5] = [
    GaugeMode::All,
    GaugeMode::LiveSum,
    GaugeMode::Max,
    GaugeMode::LiveMin,
    GaugeMode::MostRecent,
];

fn family(store: &Store, name: &str, kind: Kind) -> tidegate_cells::Family {
    store.family(&FamilySpec::new(name, kind).labels(["l"])).unwrap()
}

fn take(directory: &std::path::Path, stores: &mut Vec<Store>, step: &Step) {
    let of = |stores: &[Store], at: &usize| stores.get(*at).cloned();
    match step {
        Step::Start if stores.len() < 4 => {
            let options = Options {
                max_series: 4,
                ..Options::default()
            };
            stores.push(Store::create(directory, options).unwrap());
        }
        Step::Die(at) if *at < stores.len() => drop(stores.remove(*at)),
        Step::Fold => {
            let mut reader = Directory::open(directory, Limits::default()).unwrap();
            reader.fold(Duration::ZERO).unwrap();
        }
        Step::Count(at, label, n) => {
            if let Some(store) = of(stores, at) {
                let counts = family(&store, "counts", Kind::Counter);
                counts.with(&[&label.to_string()]).counter().unwrap().add(*n);
            }
        }
        Step::Set(at, label, mode, value) => {
            if let Some(store) = of(stores, at) {
                let mode = MODES[*mode];
                let gauge = family(&store, &format!("{mode:?}"), Kind::Gauge(mode));
                gauge.with(&[&label.to_string()]).float().unwrap().set(*value);
            }
        }
        Step::Observe(at, label, wide, value) => {
            if let Some(store) = of(stores, at) {
                let bounds: &[f64] = if at % 2 == usize::from(*wide) {
                    &[1.0, 5.0]
                } else {
                    &[1.0, 2.0, 5.0]
                };
                let spec = FamilySpec::new(
                    "sizes",
                    Kind::Histogram {
                        bounds: bounds.into(),
                    },
                )
                .labels(["l"]);
                // One store has one set of bounds.
                if let Ok(sizes) = store.family(&spec) {
                    sizes
                        .with(&[&label.to_string()])
                        .histogram()
                        .unwrap()
                        .observe(*value);
                }
            }
        }
        Step::Grow(at, label, value) => {
            if let Some(store) = of(stores, at) {
                let times = family(&store, "times", Kind::ExponentialHistogram { max_scale: 20 });
                times
                    .with(&[&label.to_string()])
                    .exponential()
                    .unwrap()
                    .observe(*value);
            }
        }
        Step::Remove(at, label) => {
            if let Some(store) = of(stores, at) {
                family(&store, "counts", Kind::Counter).remove(&[&label.to_string()]);
            }
        }
        _ => {}
    }
}

type Flat = BTreeMap<(String, String), (Value, u64)>;

fn flat(snapshot: &Snapshot) -> Flat {
    let families = snapshot.families.iter();
    let series = families.flat_map(|family| family.series.iter().map(|series| (&family.spec, series)));
    series
        .map(|(spec, series)| {
            let key = (
                format!("{} {:?}", spec.name, spec.kind),
                format!("{:?}", series.labels),
            );
            (key, (series.value.clone(), series.overflowed))
        })
        .collect()
}

/// Adding doubles in another order changes their last bits.
fn alike(a: &Flat, b: &Flat) -> bool {
    let near = |a: f64, b: f64| a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0);
    let same = |a: &Value, b: &Value| match (a, b) {
        (Value::Histogram { buckets: a, sum: x }, Value::Histogram { buckets: b, sum: y }) => {
            a == b && near(*x, *y)
        }
        (Value::Gauge { value: x, .. }, Value::Gauge { value: y, .. }) => near(*x, *y),
        (Value::Exponential(a), Value::Exponential(b)) => {
            let sums = near(a.sum.unwrap(), b.sum.unwrap());
            a.scale == b.scale && a.positive == b.positive && a.negative == b.negative && sums
        }
        (a, b) => a == b,
    };
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|((a, x), (b, y))| a == b && same(&x.0, &y.0) && x.1 == y.1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_knows_what_a_new_reader_finds(steps in steps()) {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path();
        let mut follower = Follower::new(Directory::open(directory, Limits::default()).unwrap());
        let mut stores = Vec::new();
        let mut before = Flat::default();
        for step in &steps {
            take(directory, &mut stores, step);
            let changes = follower.look();
            prop_assert!(changes.problems.is_empty(), "{:?}", changes.problems);
            let now = flat(follower.merged());
            let fresh = Directory::open(directory, Limits::default()).unwrap().scan();
            let fresh = flat(&fresh.merged);
            prop_assert!(alike(&now, &fresh), "after {step:?}:\n{now:#?}\nfresh: {fresh:#?}");
            if !changes.all {
                let told = changes.series.iter().map(|(family, series)| {
                    let family = &follower.merged().families[*family];
                    let labels = format!("{:?}", family.series[*series].labels);
                    (format!("{} {:?}", family.spec.name, family.spec.kind), labels)
                });
                let told: std::collections::BTreeSet<_> = told.collect();
                let differ = now.iter().filter(|(key, value)| before.get(*key) != Some(*value));
                let differ: std::collections::BTreeSet<_> = differ.map(|(key, _)| key.clone()).collect();
                prop_assert_eq!(told, differ);
            }
            before = now;
        }
    }
}

#[test]
fn an_unchanged_series_is_not_reported_again() {
    let temporary = tempfile::tempdir().unwrap();
    let store = Store::create(temporary.path(), Options::default()).unwrap();
    let family = store.family(&FamilySpec::new("counts", Kind::Counter)).unwrap();
    let counter = family.with(&[]).counter().unwrap();
    let mut follower = Follower::new(Directory::open(temporary.path(), Limits::default()).unwrap());
    assert!(follower.look().all);
    let changes = follower.look();
    assert!(!changes.all && changes.series.is_empty());
    counter.add(2);
    assert_eq!(follower.look().series, [(0, 0)]);
    assert_eq!(follower.merged().value("counts", &[]), Some(&Value::Counter(2)));
    assert!(follower.look().series.is_empty());
}

#[test]
fn what_all_have_alike_outlives_them() {
    let temporary = tempfile::tempdir().unwrap();
    let resource = |rank: &str| {
        let resource = [("service.name", "llm"), ("rank", rank)];
        resource
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .to_vec()
    };
    let store = |rank| {
        let options = Options {
            resource: resource(rank),
            ..Options::default()
        };
        Store::create(temporary.path(), options).unwrap()
    };
    let stores = [store("0"), store("1")];
    let mut reader = Directory::open(temporary.path(), Limits::default()).unwrap();
    assert_eq!(reader.scan().resource, resource("0")[..1]);
    drop(stores);
    reader.fold(Duration::ZERO).unwrap();
    let mut follower = Follower::new(Directory::open(temporary.path(), Limits::default()).unwrap());
    follower.look();
    assert!(follower.processes().is_empty());
    assert_eq!(follower.resource(), &resource("0")[..1]);
}
