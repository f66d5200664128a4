// SPDX-License-Identifier: Apache-2.0

//! `fork`: a child never counts in its parent's file, and no count of it is lost.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{count, counter, fork, scan};
use tidegate_cells::{FamilySpec, GaugeMode, Kind, Options, Store, Value};

fn store(path: &Path) -> Store {
    Store::create(path, Options::default()).unwrap()
}

#[test]
fn a_child_counts_in_a_file_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let requests = counter(&store, "requests");
    let usage = store
        .family(&FamilySpec::new("usage", Kind::Gauge(GaugeMode::All)))
        .unwrap();
    let usage = usage.with(&[]).float().unwrap();
    let sizes = FamilySpec::new("sizes", Kind::ExponentialHistogram { max_scale: 20 });
    let sizes = store.family(&sizes).unwrap().with(&[]).exponential().unwrap();
    requests.add(10);
    usage.set(1.0);
    sizes.observe(3.0);
    let parent = store.identity().unwrap();
    fork(|| {
        assert_eq!(requests.get(), 0, "it starts from nothing");
        requests.add(5);
        usage.set(2.0);
        sizes.observe(3.0);
        counter(&store, "of the child").add(1);
        assert_eq!(store.identity().unwrap().pid, std::process::id());
        // Its own child.
        fork(|| requests.add(100)).join();
        assert_eq!(requests.get(), 5);
    })
    .join();
    assert_eq!((requests.get(), usage.get()), (10, 1.0));
    assert_eq!(store.read().value("of the child", &[]), None);
    let scan = scan(directory.path());
    assert_eq!(scan.processes.len(), 3);
    assert_eq!(scan.processes.iter().filter(|process| process.alive).count(), 1);
    assert_eq!(
        (
            count(&scan, "requests"),
            count(&scan, "of the child"),
            count(&scan, "sizes")
        ),
        (115, 1, 2)
    );
    let of_parent = scan.merged.value("usage", &[("pid", &parent.pid.to_string())]);
    assert_eq!(
        of_parent,
        Some(&Value::Gauge {
            value: 1.0,
            set_ns: 0
        })
    );
    assert_eq!(scan.merged.family("usage").unwrap().series.len(), 3);
    let Some(Value::Exponential(sizes)) = scan.merged.value("sizes", &[]) else {
        panic!("no sizes");
    };
    assert_eq!(
        (sizes.scale, sizes.sum),
        (20, Some(6.0)),
        "the child's buckets have a scale too"
    );
}

#[test]
fn a_child_that_records_nothing_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let requests = counter(&store, "requests");
    requests.add(1);
    fork(|| drop((store.clone(), requests.clone()))).join();
    assert_eq!(scan(directory.path()).processes.len(), 1);
    requests.add(1);
    assert_eq!(count(&scan(directory.path()), "requests"), 2);
}

#[test]
fn a_child_does_not_keep_its_parent_alive() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let _store = store(&path);
    let is_open = || {
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let mut files = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        files.any(|file| file.starts_with(&path))
    };
    assert!(is_open());
    // The locks of a parent that is killed last as long as the copies of its descriptors.
    fork(|| assert!(!is_open())).join();
}

#[test]
fn forks_amid_recording_and_registering_lose_nothing() {
    const THREADS: usize = 3;
    const CHILDREN: u64 = 24;
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let memory = Store::in_memory(Options::default());
    let stop = AtomicBool::new(false);
    let recorded = AtomicU64::new(0);
    let record = |store: &Store, number: u64| {
        let family = |name, kind| store.family(&FamilySpec::new(name, kind)).unwrap().with(&[]);
        family("requests", Kind::Counter).counter().unwrap().add(1);
        let bounds = [0.5].into();
        family("latency", Kind::Histogram { bounds })
            .histogram()
            .unwrap()
            .observe(1.0);
        let sizes = family("sizes", Kind::ExponentialHistogram { max_scale: 20 });
        sizes.exponential().unwrap().observe(1.0 + number as f64);
        let labelled = FamilySpec::new("labelled", Kind::Counter).labels(["n"]);
        let labelled = store.family(&labelled).unwrap();
        labelled
            .with(&[&(number % 500).to_string()])
            .counter()
            .unwrap()
            .add(1);
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    record(&store, number);
                    record(&memory, number);
                    recorded.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..CHILDREN {
            fork(|| {
                (0..50).for_each(|number| record(&store, number));
                // Its locks may have been held by a thread that this process does not have.
                (0..50).for_each(|number| record(&memory, number));
            })
            .join();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let expected = recorded.into_inner() + CHILDREN * 50;
    let scan = scan(directory.path());
    assert_eq!(scan.processes.len() as u64, CHILDREN + 1);
    for name in ["requests", "latency", "sizes"] {
        assert_eq!(count(&scan, name), expected, "{name}");
    }
    let labelled = scan.merged.family("labelled").unwrap().series.iter();
    let labelled: u64 = labelled
        .map(|series| match series.value {
            Value::Counter(count) => count,
            _ => 0,
        })
        .sum();
    assert_eq!(labelled, expected);
}

#[test]
fn a_child_without_a_file_keeps_its_counts_until_it_has_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cells");
    let store = store(&path);
    let family = |name, kind| store.family(&FamilySpec::new(name, kind)).unwrap().with(&[]);
    let requests = counter(&store, "requests");
    let seconds = family("seconds", Kind::FloatCounter).float().unwrap();
    let sizes = family("sizes", Kind::ExponentialHistogram { max_scale: 10 })
        .exponential()
        .unwrap();
    let usage = family("usage", Kind::Gauge(GaugeMode::MostRecent))
        .float()
        .unwrap();
    requests.add(1);
    std::fs::remove_dir_all(&path).unwrap();
    fork(|| {
        requests.add(2);
        seconds.add(0.5);
        sizes.observe(7.0);
        usage.set(9.0);
        assert!(store.is_detached());
        assert_eq!(store.identity(), None);
        // More records than there was room for.
        let many = FamilySpec::new("many", Kind::Counter).labels(["n"]);
        let many = store.family(&many).unwrap();
        (0..1500).for_each(|n| many.with(&[&format!("{n:0100}")]).counter().unwrap().add(1));
        std::fs::create_dir(&path).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let hammer = scope.spawn(|| {
                let mut more = 0_u32;
                while !stop.load(Ordering::Relaxed) {
                    requests.add(1);
                    seconds.add(1.0);
                    sizes.observe(f64::from(more));
                    more += 1;
                }
                u64::from(more)
            });
            counter(&store, "registered").add(1);
            assert!(!store.is_detached());
            stop.store(true, Ordering::Relaxed);
            let more = hammer.join().unwrap();
            let scan = scan(&path);
            assert_eq!(count(&scan, "requests"), 2 + more);
            assert_eq!(
                scan.merged.value("seconds", &[]),
                Some(&Value::FloatCounter(0.5 + more as f64))
            );
            assert_eq!(count(&scan, "sizes"), 1 + more);
            assert_eq!((count(&scan, "usage"), count(&scan, "registered")), (9, 1));
            let many = &scan.merged.family("many").unwrap().series;
            assert!(many.len() == 1500 && many.iter().all(|series| series.value == Value::Counter(1)));
        });
    })
    .join();
}

/// The space of 500 short-lived processes: at most 8 MB, since /dev/shm of a container has 64 MiB.
#[test]
fn processes_that_live_for_a_moment_take_little_room() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let counter = store.family(&FamilySpec::new("requests", Kind::Counter)).unwrap();
    let bounds = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
    let kind = Kind::Histogram {
        bounds: bounds.to_vec().into(),
    };
    let histogram = store.family(&FamilySpec::new("wait", kind)).unwrap();
    const PROCESSES: u64 = 500;
    for _ in 0..PROCESSES {
        fork(|| {
            counter.with(&[]).counter().unwrap().add(1);
            histogram.with(&[]).histogram().unwrap().observe(0.3);
        })
        .join();
    }
    let files = std::fs::read_dir(directory.path()).unwrap();
    let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes <= 8_000_000, "{bytes} bytes");
    let scan = scan(directory.path());
    assert_eq!(
        (count(&scan, "requests"), count(&scan, "wait")),
        (PROCESSES, PROCESSES)
    );
}
