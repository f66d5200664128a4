// SPDX-License-Identifier: Apache-2.0

//! Merging against a slow model: every mode of gauges, every instrument, processes dead or alive, folded or not.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{reader, scan};
use proptest::prelude::*;
use tidegate_cells::{FamilySpec, GaugeMode, Identity, Kind, Options, Snapshot, Store, Value};

#[derive(Clone, Debug)]
struct Writer {
    alive: bool,
    /// The counts, settings and observations of each series, by its number. Whole numbers, so that sums are exact.
    values: Vec<(u8, i16)>,
    fold_after: bool,
}

fn writers() -> impl Strategy<Value = Vec<Writer>> {
    let writer = (
        any::<bool>(),
        prop::collection::vec((0..3_u8, any::<i16>()), 1..6),
        any::<bool>(),
    );
    let writer = writer.prop_map(|(alive, values, fold_after)| Writer {
        alive,
        values,
        fold_after,
    });
    prop::collection::vec(writer, 1..7)
}

fn name(mode: GaugeMode) -> String {
    format!("{mode:?}")
}

fn record(store: &Store, values: &[(u8, i16)]) {
    for (series, value) in values {
        let label = series.to_string();
        let labels = [label.as_str()];
        let family = |name: &str, kind| store.family(&FamilySpec::new(name, kind).labels(["n"])).unwrap();
        for mode in GaugeMode::ALL {
            family(&name(mode), Kind::Gauge(mode))
                .with(&labels)
                .float()
                .unwrap()
                .set(f64::from(*value));
        }
        let count = u64::from(value.unsigned_abs());
        family("counter", Kind::Counter)
            .with(&labels)
            .counter()
            .unwrap()
            .add(count);
        family("up_down", Kind::UpDownCounter)
            .with(&labels)
            .up_down()
            .unwrap()
            .add(i64::from(*value));
        let bounds = [-5.0, 100.0].into();
        let histogram = family("histogram", Kind::Histogram { bounds }).with(&labels);
        histogram.histogram().unwrap().observe(f64::from(*value));
        let exponential = family("exponential", Kind::ExponentialHistogram { max_scale: 5 }).with(&labels);
        exponential.exponential().unwrap().observe(f64::from(*value));
        family("summary", Kind::Summary)
            .with(&labels)
            .summary()
            .unwrap()
            .observe(f64::from(*value));
    }
}

/// The last value that each process set, in the order in which the processes were there; alive or dead.
type Set = Vec<(Identity, bool, f64)>;

fn gauge(mode: GaugeMode, set: &Set) -> Option<f64> {
    let counted = set.iter().filter(|(_, alive, _)| *alive || !mode.is_live());
    let mut values = counted.map(|(.., value)| *value);
    match mode {
        GaugeMode::Sum | GaugeMode::LiveSum => values.reduce(|a, b| a + b),
        GaugeMode::Max | GaugeMode::LiveMax => values.reduce(f64::max),
        GaugeMode::Min | GaugeMode::LiveMin => values.reduce(f64::min),
        _ => values.next_back(),
    }
}

fn check(snapshot: &Snapshot, all: &[(Identity, Writer)]) {
    for series in 0..3_u8 {
        let label = series.to_string();
        let of = |writer: &Writer| -> Vec<i16> {
            let of = writer.values.iter().filter(|(number, _)| *number == series);
            of.map(|(_, value)| *value).collect()
        };
        let observed: Vec<i16> = all.iter().flat_map(|(_, writer)| of(writer)).collect();
        let value = |name: &str| snapshot.value(name, &[("n", &label)]).cloned();
        let any = |value: Value| (!observed.is_empty()).then_some(value);
        let sum: i64 = observed.iter().map(|value| i64::from(*value)).sum();
        let absolute: u64 = observed.iter().map(|value| u64::from(value.unsigned_abs())).sum();
        let within = |low: i32, high: i32| {
            let inside = observed
                .iter()
                .filter(|value| (low..=high).contains(&i32::from(**value)));
            inside.count() as u64
        };
        let buckets = vec![within(i32::MIN, -5), within(-4, 100), within(101, i32::MAX)];
        let count = observed.len() as u64;
        assert_eq!(value("counter"), any(Value::Counter(absolute)));
        assert_eq!(value("up_down"), any(Value::UpDownCounter(sum)));
        assert_eq!(
            value("histogram"),
            any(Value::Histogram {
                buckets,
                sum: sum as f64
            })
        );
        assert_eq!(
            value("summary"),
            any(Value::Summary {
                count,
                sum: sum as f64
            })
        );
        let exponential = value("exponential").map(|value| match value {
            Value::Exponential(value) => (
                value.zero_count,
                value.positive.count(),
                value.negative.count(),
                value.sum.unwrap(),
            ),
            other => panic!("{other:?}"),
        });
        let sides = (
            within(0, 0),
            within(1, i32::MAX),
            within(i32::MIN, -1),
            sum as f64,
        );
        assert_eq!(exponential, (!observed.is_empty()).then_some(sides));
        let set: Set = all
            .iter()
            .filter_map(|(identity, writer)| Some((*identity, writer.alive, f64::from(*of(writer).last()?))))
            .collect();
        for mode in GaugeMode::ALL {
            if mode.is_per_process() {
                check_per_process(snapshot, mode, &label, &set, all);
                continue;
            }
            let found = value(&name(mode)).map(|value| match value {
                Value::Gauge { value, .. } => value,
                other => panic!("{other:?}"),
            });
            assert_eq!(found, gauge(mode, &set), "{mode:?} of {set:?}");
        }
    }
}

/// All writers are of one process: one that lives has its number alone, else one of the dead.
fn check_per_process(
    snapshot: &Snapshot,
    mode: GaugeMode,
    label: &str,
    set: &Set,
    all: &[(Identity, Writer)],
) {
    let mut expected = BTreeMap::new();
    let first = all
        .iter()
        .map(|(identity, writer)| (writer.alive, *identity))
        .max();
    for (identity, alive, value) in set {
        if *alive || !mode.is_live() {
            let own = Some((*alive, *identity)) == first;
            let pid = if own {
                identity.pid.to_string()
            } else {
                identity.to_string()
            };
            expected.insert(pid, *value);
        }
    }
    let family = snapshot.family(&name(mode));
    let series = family.iter().flat_map(|family| &family.series);
    let series = series.filter(|series| series.label("n") == Some(label));
    let found: BTreeMap<String, f64> = series
        .map(|series| match series.value {
            Value::Gauge { value, .. } => (series.label("pid").unwrap().to_owned(), value),
            ref other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(found, expected, "{mode:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn as_the_model_has_it(writers in writers()) {
        let directory = tempfile::tempdir().unwrap();
        let mut living = Vec::new();
        let mut all = Vec::new();
        let mut same_reader = reader(directory.path());
        for writer in writers {
            let store = Store::create(directory.path(), Options::default()).unwrap();
            record(&store, &writer.values);
            all.push((store.identity().unwrap(), writer.clone()));
            if writer.alive {
                living.push(store);
            } else {
                drop(store);
            }
            if writer.fold_after {
                same_reader.fold(Duration::ZERO).unwrap();
            }
            check(&same_reader.scan().merged, &all);
        }
        check(&scan(directory.path()).merged, &all);
        // All of them die.
        drop(living);
        all.iter_mut().for_each(|(_, writer)| writer.alive = false);
        check(&same_reader.scan().merged, &all);
        same_reader.fold(Duration::ZERO).unwrap();
        check(&same_reader.scan().merged, &all);
    }
}

#[test]
fn other_units_and_modes_stay_families_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let store = || Store::create(directory.path(), Options::default()).unwrap();
    let (one, other) = (store(), store());
    let set = |store: &Store, name: &str, unit: &str, mode: GaugeMode, value: f64| {
        let spec = FamilySpec::new(name, Kind::Gauge(mode)).unit(unit);
        let family = store.family(&spec).unwrap();
        family.with(&[]).float().unwrap().set(value);
    };
    set(&one, "age", "s", GaugeMode::Sum, 1.0);
    set(&other, "age", "ms", GaugeMode::Sum, 2.0);
    set(&one, "depth", "", GaugeMode::LiveSum, 3.0);
    set(&other, "depth", "", GaugeMode::Max, 4.0);
    set(&one, "same", "s", GaugeMode::Sum, 5.0);
    set(&other, "same", "s", GaugeMode::Sum, 6.0);
    let found = scan(directory.path());
    let mut values = Vec::new();
    for family in &found.merged.families {
        for series in &family.series {
            if let Value::Gauge { value, .. } = series.value {
                values.push((family.spec.name.as_str(), family.spec.unit.as_str(), value));
            }
        }
    }
    values.sort_by(|a, b| a.2.total_cmp(&b.2));
    let expected = [
        ("age", "s", 1.0),
        ("age", "ms", 2.0),
        ("depth", "", 3.0),
        ("depth", "", 4.0),
        ("same", "s", 11.0),
    ];
    assert_eq!(values, expected);
}

#[test]
fn histograms_of_other_bounds_meet_at_those_they_share() {
    let directory = tempfile::tempdir().unwrap();
    let observe = |bounds: &[f64], values: &[f64]| {
        let store = Store::create(directory.path(), Options::default()).unwrap();
        let family = store
            .family(&FamilySpec::new(
                "latency",
                Kind::Histogram {
                    bounds: bounds.into(),
                },
            ))
            .unwrap();
        values
            .iter()
            .for_each(|value| family.with(&[]).histogram().unwrap().observe(*value));
        store
    };
    let first = observe(&[1.0, 2.0, 4.0], &[0.5, 1.5, 3.0, 9.0]);
    let second = observe(&[2.0, 3.0, 4.0, 8.0], &[1.0, 2.5, 3.5, 5.0, 9.0]);
    let check = || {
        let scan = scan(directory.path());
        let family = scan.merged.family("latency").unwrap();
        assert_eq!(
            family.spec.kind,
            Kind::Histogram {
                bounds: [2.0, 4.0].into()
            }
        );
        let expected = Value::Histogram {
            buckets: vec![3, 3, 3],
            sum: 35.0,
        };
        assert_eq!(family.series[0].value, expected);
    };
    check();
    drop((first, second));
    reader(directory.path()).fold(Duration::ZERO).unwrap();
    check();
}
