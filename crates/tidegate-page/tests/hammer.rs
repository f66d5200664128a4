// SPDX-License-Identifier: Apache-2.0

//! Readers against a writer that never rests.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use common::{LABELS, NAME, consistent, entry, quantiles};
use tidegate_page::{Entry, FindError, Page, ReadError, Reader, State};

const READERS: usize = 3;

/// Consistent snapshots that each reader must get.
const SNAPSHOTS: u64 = 200_000;

/// The least number of different reads among them.
const DISTINCT: u64 = 2_000;

#[test]
fn every_snapshot_is_of_one_moment() {
    let directory = tempfile::tempdir().unwrap();
    let mut page = Page::create(directory.path().join("page"), 4, 0o600).unwrap();
    page.publish(1, &[entry(1, &quantiles(1))]);
    let reader = Reader::open(page.path()).unwrap();
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                // A panic in between would leave the writer waiting for this reader.
                let outcome = snapshots(&reader);
                done.fetch_add(1, Ordering::SeqCst);
                outcome.unwrap();
            });
        }
        let mut n = 1;
        while done.load(Ordering::SeqCst) < READERS {
            n += 1;
            page.publish(n, &[entry(n, &quantiles(n))]);
        }
    });
}

/// Reads until it has enough; the error is what should not have been read.
fn snapshots(reader: &Reader) -> Result<(), String> {
    let handle = loop {
        match reader.find(NAME, LABELS) {
            Ok(handle) => break handle,
            Err(FindError::Busy) => thread::yield_now(),
            Err(FindError::NotFound) => return Err("not found".into()),
        }
    };
    let (mut got, mut newest, mut distinct) = (0_u64, 0, 0);
    while got < SNAPSHOTS || distinct < DISTINCT {
        match reader.read(&handle) {
            Ok(snapshot) if !consistent(&snapshot) => return Err(format!("of two moments: {snapshot:?}")),
            Ok(snapshot) if snapshot.seq < newest => return Err(format!("{} after {newest}", snapshot.seq)),
            Ok(snapshot) => {
                got += 1;
                distinct += u64::from(snapshot.seq > newest);
                newest = snapshot.seq;
                // The writer may be waiting for this processor.
                if got % 1024 == 0 {
                    thread::yield_now();
                }
            }
            // The writer was descheduled half-way.
            Err(ReadError::Busy) => thread::yield_now(),
            Err(other) => return Err(other.to_string()),
        }
    }
    Ok(())
}

/// One slot changes its entry repeatedly: a reader with a handle reads its own entry or gets an error.
#[test]
fn a_handle_never_reads_the_entry_of_another() {
    let directory = tempfile::tempdir().unwrap();
    let mut page = Page::create(directory.path().join("page"), 1, 0o600).unwrap();
    let reader = Reader::open(page.path()).unwrap();
    let done = AtomicUsize::new(0);
    let owners = [("positive", 1.0), ("negative", -1.0)];
    let of = |index: usize, n: u64| Entry {
        name: owners[index].0,
        state: State::Fresh,
        value: Some(owners[index].1 * n as f64),
        seq: n,
        ..Entry::default()
    };
    thread::scope(|scope| {
        for (name, sign) in owners {
            let (reader, done) = (&reader, &done);
            scope.spawn(move || {
                let outcome = own_values(reader, name, sign);
                done.fetch_add(1, Ordering::SeqCst);
                outcome.unwrap();
            });
        }
        let mut n = 0;
        while done.load(Ordering::SeqCst) < owners.len() {
            n += 1;
            // Each owner stays for a while, so that readers find it.
            let index = (n / 64 % 2) as usize;
            let done = page.publish(n, &[of(index, n)]);
            assert_eq!((done.written, done.refused_full), (1, 0));
        }
    });
}

fn own_values(reader: &Reader, name: &str, sign: f64) -> Result<(), String> {
    let (mut own, mut told) = (0, 0);
    while own < 5_000 || told < 20 {
        let Ok(handle) = reader.find(name, "") else {
            thread::yield_now();
            continue;
        };
        loop {
            match reader.read(&handle) {
                Ok(read) if read.value == Some(sign * read.seq as f64) => own += 1,
                Ok(read) => return Err(format!("{name}: {read:?}")),
                Err(ReadError::Busy) => thread::yield_now(),
                Err(ReadError::Moved | ReadError::Gone) => break,
                Err(ReadError::Malformed) => return Err("malformed".into()),
            }
        }
        told += 1;
    }
    Ok(())
}
