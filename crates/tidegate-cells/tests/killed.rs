// SPDX-License-Identifier: Apache-2.0

//! Processes that are killed at any moment: writers lose no acknowledged count, and the process that folds counts
//! nothing twice.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use common::{count, counter, reader, role, scan, spawn};
use tidegate_cells::{FamilySpec, Kind, Options, Store, Value};

/// A generator of numbers from a seed that the test prints.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let seed = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_nanos() as u64;
        println!("seed {seed}");
        Random(seed | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Registers a series, counts, and says so by a byte, over and over.
fn write(path: &Path) {
    let store = Store::create(path, Options::default()).unwrap();
    let requests = counter(&store, "requests");
    let labelled = FamilySpec::new("labelled", Kind::Counter).labels(["a label"]);
    let labelled = store.family(&labelled).unwrap();
    let sizes = FamilySpec::new("sizes", Kind::ExponentialHistogram { max_scale: 20 });
    let sizes = store.family(&sizes).unwrap().with(&[]).exponential().unwrap();
    let mut out = std::io::stdout();
    for number in 0_u64.. {
        requests.add(1);
        labelled
            .with(&[&format!("{number:0200}")])
            .counter()
            .unwrap()
            .add(1);
        // Ever wider, so that the scale falls again and again.
        sizes.observe(1.0 + (number * number) as f64);
        out.write_all(b"+").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn a_killed_writer_loses_nothing() {
    const TEST: &str = "a_killed_writer_loses_nothing";
    if let Some((_, path)) = role() {
        return write(&path);
    }
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random::new();
    let mut reader = reader(directory.path());
    let (mut said, mut before) = (0_u64, 0);
    const WRITERS: u64 = 20;
    for _ in 0..WRITERS {
        let mut writer = spawn(TEST, "write", directory.path());
        let mut out = writer.stdout.take().unwrap();
        let mut first = [0];
        while first != *b"+" {
            out.read_exact(&mut first).unwrap();
        }
        let until = Instant::now() + Duration::from_micros(random.below(10_000));
        while Instant::now() < until {
            let now = count(&reader.scan(), "requests");
            assert!(now >= before, "a counter fell from {before} to {now}");
            before = now;
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        let mut rest = Vec::new();
        out.read_to_end(&mut rest).unwrap();
        said += 1 + rest.iter().filter(|byte| **byte == b'+').count() as u64;
        if random.below(2) == 0 {
            reader.fold(Duration::ZERO).unwrap();
        }
        let scan = reader.scan();
        assert_eq!(scan.problems, []);
        let now = count(&scan, "requests");
        assert!(now >= before, "a counter fell from {before} to {now}");
        before = now;
    }
    let scan = scan(directory.path());
    let Some(labelled) = scan.merged.family("labelled") else {
        panic!("no family");
    };
    let in_labels = labelled.series.iter().map(|series| match series.value {
        Value::Counter(count) => count,
        _ => 0,
    });
    // Each may have been killed after it had counted and before it had said so.
    let possible = said..=said + WRITERS;
    assert!(
        possible.contains(&count(&scan, "requests")),
        "{said} {}",
        count(&scan, "requests")
    );
    assert!(possible.contains(&in_labels.sum()), "{said}");
    assert!(
        possible.contains(&count(&scan, "sizes")),
        "{said} {}",
        count(&scan, "sizes")
    );
}

#[test]
fn a_killed_fold_loses_and_doubles_nothing() {
    const TEST: &str = "a_killed_fold_loses_and_doubles_nothing";
    if let Some((_, path)) = role() {
        let mut out = std::io::stdout();
        out.write_all(b"+").unwrap();
        out.flush().unwrap();
        loop {
            reader(&path).fold(Duration::ZERO).unwrap();
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random::new();
    let mut expected = 0;
    let mut observer = reader(directory.path());
    for round in 1..=20_u64 {
        for _ in 0..5 {
            let store = Store::create(directory.path(), Options::default()).unwrap();
            counter(&store, "requests").add(round);
            expected += round;
        }
        let mut folder = spawn(TEST, "fold", directory.path());
        let mut out = folder.stdout.take().unwrap();
        let mut first = [0];
        while first != *b"+" {
            out.read_exact(&mut first).unwrap();
        }
        let until = Instant::now() + Duration::from_micros(random.below(3_000));
        while Instant::now() < until {
            assert_eq!(count(&observer.scan(), "requests"), expected);
        }
        folder.kill().unwrap();
        folder.wait().unwrap();
        assert_eq!(
            count(&scan(directory.path()), "requests"),
            expected,
            "round {round}"
        );
    }
    let mut last = reader(directory.path());
    last.fold(Duration::ZERO).unwrap();
    last.fold(Duration::ZERO).unwrap();
    assert_eq!(count(&scan(directory.path()), "requests"), expected);
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 2, "what was half made is tidied up");
}
