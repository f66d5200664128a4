// SPDX-License-Identifier: Apache-2.0

//! Writers and a reader in one process: the reader sees each recorded value.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::time::Duration;

use tidegate_cells::{
    Directory, Error, FamilySpec, GaugeMode, Kind, Limits, OVERFLOW_LABEL, Options, Store, Value,
};

fn options(max_series: usize) -> Options {
    Options {
        max_series,
        ..Options::default()
    }
}

fn record(store: &Store) {
    let family = |name: &str, kind| {
        store
            .family(&FamilySpec::new(name, kind).labels(["model"]))
            .unwrap()
    };
    let of = |name, kind| family(name, kind).with(&["llama"]);
    of("requests", Kind::Counter).counter().unwrap().add(3);
    of("seconds", Kind::FloatCounter).float().unwrap().add(0.5);
    of("running", Kind::UpDownCounter).up_down().unwrap().add(-2);
    of("usage", Kind::Gauge(GaugeMode::Max))
        .float()
        .unwrap()
        .set(0.25);
    let bounds = [1.0, 2.0].into();
    let histogram = of("latency", Kind::Histogram { bounds }).histogram().unwrap();
    [0.5, 1.0, 1.5, 9.0]
        .iter()
        .for_each(|value| histogram.observe(*value));
    let exponential = of("sizes", Kind::ExponentialHistogram { max_scale: 20 })
        .exponential()
        .unwrap();
    [1.0, 1000.0, -4.0, 0.0]
        .iter()
        .for_each(|value| exponential.observe(*value));
    let summary = of("tokens", Kind::Summary).summary().unwrap();
    summary.observe(2.0);
    summary.observe(3.0);
}

#[test]
fn what_was_recorded_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create(directory.path(), options(10)).unwrap();
    record(&store);
    let memory = Store::in_memory(options(10));
    record(&memory);
    let scan = Directory::open(directory.path(), Limits::default())
        .unwrap()
        .scan();
    assert_eq!(scan.problems, []);
    assert_eq!(scan.processes.len(), 1);
    assert!(scan.processes[0].alive);
    for snapshot in [&scan.merged, &store.read(), &memory.read()] {
        let value = |name| snapshot.value(name, &[("model", "llama")]).unwrap().clone();
        assert_eq!(value("requests"), Value::Counter(3));
        assert_eq!(value("seconds"), Value::FloatCounter(0.5));
        assert_eq!(value("running"), Value::UpDownCounter(-2));
        assert_eq!(
            value("usage"),
            Value::Gauge {
                value: 0.25,
                set_ns: 0
            }
        );
        assert_eq!(
            value("latency"),
            Value::Histogram {
                buckets: vec![2, 1, 1],
                sum: 12.0
            }
        );
        assert_eq!(value("tokens"), Value::Summary { count: 2, sum: 5.0 });
        let Value::Exponential(sizes) = value("sizes") else {
            panic!("no exponential histogram");
        };
        assert_eq!((sizes.count, sizes.zero_count, sizes.sum), (4, 1, Some(997.0)));
        assert_eq!((sizes.positive.count(), sizes.negative.count()), (2, 1));
    }
}

#[test]
fn what_finds_no_room_is_in_the_overflow_series_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create(directory.path(), options(2)).unwrap();
    let family = store
        .family(&FamilySpec::new("requests", Kind::Counter).labels(["user"]))
        .unwrap();
    for user in 0..10_000 {
        family.with(&[&user.to_string()]).counter().unwrap().add(1);
    }
    family.with(&[]).counter().unwrap().add(5);
    let mut reader = Directory::open(directory.path(), Limits::default()).unwrap();
    let scan = reader.scan();
    assert_eq!(
        scan.merged.value("requests", &[("user", "1")]),
        Some(&Value::Counter(1))
    );
    assert_eq!(scan.merged.value("requests", &[("user", "2")]), None);
    assert_eq!(
        scan.merged.value("requests", &[OVERFLOW_LABEL]),
        Some(&Value::Counter(9_998 + 5))
    );
    assert_eq!(store.refused().series, 9_998);
    assert_eq!(store.refused().invalid, 1);
    assert_eq!(scan.processes[0].refused, store.refused());
}

#[test]
fn a_name_has_one_specification() {
    let store = Store::in_memory(Options::default());
    let spec = FamilySpec::new("a", Kind::Counter);
    store.family(&spec).unwrap().with(&[]).counter().unwrap().add(1);
    store.family(&spec).unwrap().with(&[]).counter().unwrap().add(1);
    assert_eq!(store.read().value("a", &[]), Some(&Value::Counter(2)));
    let other = store.family(&FamilySpec::new("a", Kind::Summary)).unwrap_err();
    assert!(
        matches!(
            other,
            Error::Conflict {
                existing: "counter",
                ..
            }
        ),
        "{other}"
    );
    assert!(store.family(&spec).unwrap().with(&[]).float().is_err());
}

#[test]
fn the_dead_count_once_whether_folded_or_not() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        record(&Store::create(directory.path(), Options::default()).unwrap());
    }
    let mut reader = Directory::open(directory.path(), Limits::default()).unwrap();
    let check = |reader: &mut Directory, files: usize| {
        let scan = reader.scan();
        assert_eq!(scan.problems, []);
        assert_eq!(scan.processes.len(), files);
        let value = |name| scan.merged.value(name, &[("model", "llama")]).unwrap().clone();
        assert_eq!(value("requests"), Value::Counter(9));
        assert_eq!(
            value("usage"),
            Value::Gauge {
                value: 0.25,
                set_ns: 0
            }
        );
        assert_eq!(
            value("latency"),
            Value::Histogram {
                buckets: vec![6, 3, 3],
                sum: 36.0
            }
        );
    };
    check(&mut reader, 3);
    let folded = reader.fold(Duration::from_hours(1)).unwrap();
    assert_eq!((folded.processes.len(), folded.removed), (3, 0));
    check(&mut reader, 3);
    let folded = reader.fold(Duration::ZERO).unwrap();
    assert_eq!((folded.processes.len(), folded.removed), (0, 3));
    check(&mut reader, 0);
    // Their names leave the list.
    reader.fold(Duration::ZERO).unwrap();
    check(&mut reader, 0);
    let left: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
