// SPDX-License-Identifier: Apache-2.0

//! Runs that may be folded, and losses of the store.

use super::*;
use crate::reader::producers::PAGE_BYTES;

#[test]
fn a_purge_does_not_go_beyond_the_pages_of_the_present_read() {
    let mut reader = caught_up([page(1, 8, 7), page(2, 9, 7)]);
    let id = reader.read.unwrap();
    reader.event(StoreEvent::Done(id, Ok(StoreReply::ReadEnd)), NOW);
    // The store was put back. It may give the later sequences to other messages.
    let (id, _) = reader.poll().unwrap();
    reader.event(StoreEvent::Read(id, page(1, 4, 6)), NOW);
    reader.event(StoreEvent::Current(id, Duration::ZERO, Instant::now()), NOW);
    let over = reader.over_runs(NOW + 3600 * SECOND, 0, 0, 0);
    assert_eq!(over, [(run(1, 5), 4), (run(2, 5), 0)]);
}

#[test]
fn noted_pages_take_a_share_of_the_memory_of_merged_series() {
    let mut reader = caught_up([]);
    let most = 2 * PAGE_BYTES;
    reader.set_max_bytes(PAGES_SHARE * most);
    for number in 1..=4 {
        let writer = PageWriter::new(&producer(1));
        let stored = message(1, number, PageKind::Page, u64::from(number), writer);
        reader.take(&stored, false, NOW).unwrap();
    }
    assert_eq!(reader.producers.set_max_page_bytes(most), most);
    reader.producers.forget(&run(1, 5), u64::MAX);
    assert_eq!(reader.producers.set_max_page_bytes(most), 0);
}

#[test]
fn a_run_with_a_refused_total_is_not_folded_here() {
    let config = ReaderConfig {
        merged: MergedLimits {
            max_series: 0,
            ..MergedLimits::default()
        },
        ..ReaderConfig::new("c")
    };
    let mut reader = PageReader::new(config, Vec::new(), &Arc::default()).unwrap();
    reader.take(&page(1, 1, 1), false, NOW).unwrap();
    assert_eq!(reader.stats().refused, 1);
    assert!(reader.over_runs(NOW + 3600 * SECOND, 0, 0, 0).is_empty());
}

#[test]
fn a_silent_run_is_over_sooner_after_a_loss_without_noted_pages() {
    let mut reader = reader();
    reader.producers.set_max_page_bytes(0);
    reader.take(&page(1, 10, 1), false, NOW).unwrap();
    let over = |reader: &PageReader, seconds: u64| {
        let (grace, age, reconnect) = (60 * SECOND, 900 * SECOND, 15 * SECOND);
        let now = NOW + seconds * SECOND;
        reader.over_runs(now, grace, age, reconnect).len()
    };
    assert_eq!((over(&reader, 899), over(&reader, 901)), (0, 1));
    let other = StoredMessage {
        time: NOW + 1,
        ..page(2, 7, 1)
    };
    reader.take(&other, false, NOW).unwrap();
    assert_eq!(reader.stats().losses, 1);
    // The lease, and the time of a goodbye.
    assert_eq!((over(&reader, 62), over(&reader, 64)), (0, 2));
}

#[test]
fn a_sequence_that_comes_again_shows_a_loss() {
    let mut reader = caught_up([page(1, 10, 1)]);
    let later = |sequence, time| StoredMessage {
        time,
        ..page(1, sequence, 1)
    };
    reader.take(&later(9, NOW - 1), false, NOW).unwrap();
    assert_eq!(reader.stats().losses, 0, "a late message");
    reader.take(&later(7, NOW + 1), false, NOW).unwrap();
    assert_eq!(reader.stats().losses, 1);
    reader.take(&later(8, NOW + 2), false, NOW).unwrap();
    assert_eq!(reader.stats().losses, 1);
}
