// SPDX-License-Identifier: Apache-2.0

//! The start time of a directory's totals.

use std::os::unix::fs::FileExt;

use super::*;

const HOUR: UnixNanos = 3_600_000_000_000;

/// Lets the file of a process say that it was made at that time.
fn set_created(store: &Store, created_ns: UnixNanos) {
    let name = format!("{}.cells", store.identity().unwrap());
    let path = store.directory().unwrap().join(name);
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut fixed = [0; 56];
    file.read_exact_at(&mut fixed, 0).unwrap();
    fixed[48..].copy_from_slice(&created_ns.to_le_bytes());
    file.write_all_at(&fixed, 0).unwrap();
    file.write_all_at(&crc32(&fixed).to_le_bytes(), 56).unwrap();
}

/// The checksum of a header.
fn crc32(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), bit);
    !bytes.iter().fold(u32::MAX, byte)
}

/// One start must show in every receiver after the first one, over reloads and over restarts. `first` and `later` are the
/// times of the file that is there at the first look, and of one that comes after it.
#[track_caller]
fn check_start(first: Option<UnixNanos>, later: Option<UnixNanos>) {
    let earliest = wall_now() - HOUR;
    for (is_reload, options) in [(true, "{fold: false}"), (true, "{}"), (false, "{}")] {
        let directory = tempfile::tempdir().unwrap();
        let gateway = context("receivers", "shm");
        let new = || {
            let base = if is_reload {
                gateway.clone()
            } else {
                context("receivers", "shm")
            };
            let (sink, config) = (Sink::new(), settings::<ShmConfig>(options).get::<ShmConfig>());
            let patterns = vec![directory.path().display().to_string()];
            let directories = Directories::new(config, patterns, &base, sink.entry(Signal::Metrics));
            (directories, sink)
        };
        let newest = |sink: &Sink| points(sink).pop().unwrap();
        let one = store(directory.path());
        count(&one, "a", 3);
        first.into_iter().for_each(|time| set_created(&one, time));
        let (mut receiver, sink) = new();
        receiver.poll(Instant::now());
        let shown = newest(&sink);
        assert_eq!(shown.value, Value::Int(3));
        assert!((earliest..=shown.time).contains(&shown.start), "{shown:?}");
        let other = later.map(|time| {
            let other = store(directory.path());
            count(&other, "a", 4);
            set_created(&other, time);
            other
        });
        let total = Value::Int(if other.is_some() { 7 } else { 3 });
        receiver.poll(Instant::now() + Duration::from_secs(2));
        assert_eq!(
            (newest(&sink).start, newest(&sink).value),
            (shown.start, total.clone())
        );
        for _ in 0..3 {
            drop(receiver);
            let (next, sink) = new();
            receiver = next;
            receiver.poll(Instant::now());
            assert_eq!(
                (newest(&sink).start, newest(&sink).value),
                (shown.start, total.clone())
            );
        }
    }
}

#[test]
fn the_start_stays_if_the_clock_was_set_back_after_the_first_file() {
    check_start(Some(wall_now() + HOUR), None);
}

#[test]
fn the_start_stays_if_an_older_file_comes_later() {
    const TWO_MS: UnixNanos = 2_000_000;
    let now = wall_now();
    check_start(Some(now), Some(now - TWO_MS));
    check_start(None, Some(now - TWO_MS));
    check_start(Some(now + HOUR), Some(now - TWO_MS));
}

#[test]
fn times_that_no_file_has_do_not_become_the_start() {
    for time in [0, 1, UnixNanos::MAX] {
        check_start(Some(time), None);
        check_start(None, Some(time));
    }
}
