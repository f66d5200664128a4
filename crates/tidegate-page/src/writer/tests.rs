// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::entry::State;
use crate::error::{FindError, ReadError};
use crate::reader::Reader;

struct Fixture {
    _directory: tempfile::TempDir,
    page: Page,
    reader: Reader,
}

fn fixture(capacity: u32) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let page = Page::create(directory.path().join("page"), capacity, 0o600).unwrap();
    let reader = Reader::open(page.path()).unwrap();
    Fixture {
        _directory: directory,
        page,
        reader,
    }
}

fn entry(name: &str, value: f64) -> Entry<'_> {
    Entry {
        name,
        state: State::Fresh,
        value: Some(value),
        ..Entry::default()
    }
}

impl Fixture {
    fn value(&self, name: &str) -> Option<f64> {
        let handle = self.reader.find(name, "").ok()?;
        self.reader.read(&handle).unwrap().value
    }

    fn lock_word(&self, slot: u32) -> u64 {
        let words = slot_words(&self.page.map, self.page.geometry, slot).unwrap();
        words[0].load(Ordering::Relaxed)
    }
}

#[test]
fn a_publication_sets_what_is_given_and_frees_the_rest() {
    let mut f = fixture(4);
    let first = f.page.publish(10, &[entry("a", 1.0), entry("b", 2.0)]);
    assert_eq!((first.written, first.removed), (2, 0));
    assert_eq!((f.value("a"), f.value("b")), (Some(1.0), Some(2.0)));
    let b = f.reader.find("b", "").unwrap();
    let second = f.page.publish(20, &[entry("a", 1.0), entry("c", 3.0)]);
    let expected = Published {
        written: 1,
        unchanged: 1,
        removed: 1,
        ..Published::default()
    };
    assert_eq!(second, expected);
    assert_eq!(f.reader.read(&b), Err(ReadError::Gone));
    assert_eq!(f.reader.find("b", ""), Err(FindError::NotFound));
    assert_eq!((f.reader.heartbeat(), f.reader.used()), (Some(20), 2));
}

#[test]
fn a_slot_that_does_not_change_is_not_written() {
    let mut f = fixture(2);
    f.page.publish(1, &[entry("a", 1.0), entry("b", 1.0)]);
    let before = (f.lock_word(0), f.lock_word(1), f.reader.layout_seq());
    let done = f.page.publish(2, &[entry("a", 1.0), entry("b", 2.0)]);
    assert_eq!((done.written, done.unchanged), (1, 1));
    assert_eq!(
        (f.lock_word(0), f.lock_word(1), f.reader.layout_seq()),
        (before.0, before.1 + 2, before.2)
    );
    assert_eq!(f.reader.heartbeat(), Some(2));
}

#[test]
fn the_layout_sequence_changes_with_the_directory_only() {
    let mut f = fixture(2);
    let mut seen = vec![f.reader.layout_seq()];
    f.page.set(&entry("a", 1.0)).unwrap();
    seen.push(f.reader.layout_seq());
    f.page.set(&entry("a", 2.0)).unwrap();
    assert_eq!(Some(&f.reader.layout_seq()), seen.last());
    assert!(f.page.remove("a", ""));
    seen.push(f.reader.layout_seq());
    assert!(!f.page.remove("a", ""));
    assert_eq!(Some(&f.reader.layout_seq()), seen.last());
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
}

#[test]
fn a_full_page_returns_an_error_and_keeps_its_entries() {
    let mut f = fixture(2);
    let done = f.page.publish(
        1,
        &[entry("a", 1.0), entry("b", 2.0), entry("c", 3.0), entry("d", 4.0)],
    );
    assert_eq!((done.written, done.refused_full), (2, 2));
    assert_eq!(f.page.set(&entry("c", 3.0)), Err(SetError::Full { capacity: 2 }));
    assert_eq!(f.page.set(&entry("a", 5.0)), Ok(true));
    assert_eq!((f.value("a"), f.value("c")), (Some(5.0), None));
    assert_eq!(f.page.used(), 2);
}

#[test]
fn a_full_page_takes_new_entries_for_old_ones_in_one_publication() {
    let mut f = fixture(2);
    f.page.publish(1, &[entry("a", 1.0), entry("b", 2.0)]);
    let done = f
        .page
        .publish(2, &[entry("c", 3.0), entry("d", 4.0), entry("e", 5.0)]);
    let expected = Published {
        written: 2,
        removed: 2,
        refused_full: 1,
        ..Published::default()
    };
    assert_eq!(done, expected);
    assert_eq!(
        (f.value("c"), f.value("d"), f.value("e")),
        (Some(3.0), Some(4.0), None)
    );
    let again = f.page.publish(3, &[entry("c", 3.0), entry("d", 4.0)]);
    assert_eq!((again.unchanged, again.removed), (2, 0));
}

#[test]
fn a_round_by_itself_takes_them_in_the_next_one() {
    let mut f = fixture(1);
    f.page.publish(1, &[entry("a", 1.0)]);
    let mut round = f.page.round();
    assert_eq!(round.set(&entry("b", 2.0)), Err(SetError::Full { capacity: 1 }));
    let done = round.finish(2);
    assert_eq!((done.refused_full, done.removed), (1, 1));
    let mut round = f.page.round();
    assert_eq!(round.set(&entry("b", 2.0)), Ok(true));
    round.finish(3);
    assert_eq!(f.value("b"), Some(2.0));
}

#[test]
fn an_unfinished_round_frees_nothing() {
    let mut f = fixture(2);
    f.page.publish(1, &[entry("a", 1.0)]);
    drop(f.page.round());
    assert_eq!((f.value("a"), f.reader.heartbeat()), (Some(1.0), Some(1)));
}

#[test]
fn of_two_entries_of_one_identity_the_first_stays() {
    let mut f = fixture(3);
    for now in 1..4 {
        let done = f
            .page
            .publish(now, &[entry("a", 1.0), entry("a", 2.0), entry("b", 3.0)]);
        assert_eq!(done.refused_duplicate, 1);
        assert_eq!(done.written, if now == 1 { 2 } else { 0 });
        assert_eq!(f.value("a"), Some(1.0));
    }
}

#[test]
fn wrong_entries_are_counted_and_the_others_are_set() {
    let mut f = fixture(4);
    let long = "x".repeat(513);
    let five = [(0.5, 1.0); 5];
    let quantiles = Entry {
        quantiles: &five,
        ..entry("q", 1.0)
    };
    let wrong_labels = Entry {
        labels: "k=\"\0\"",
        ..entry("l", 1.0)
    };
    let entries = [
        entry(&long, 1.0),
        entry("", 1.0),
        quantiles,
        wrong_labels,
        entry("a", 1.0),
    ];
    let done = f.page.publish(1, &entries);
    let expected = Published {
        written: 1,
        refused_too_long: 1,
        refused_invalid: 3,
        ..Published::default()
    };
    assert_eq!(done, expected);
    assert_eq!(f.value("a"), Some(1.0));
}

#[test]
fn name_and_labels_are_distinguished() {
    let mut f = fixture(4);
    let pairs = [("ab", "c"), ("a", "bc"), ("abc", "")];
    for (index, (name, labels)) in pairs.into_iter().enumerate() {
        let entry = Entry {
            labels,
            ..entry(name, index as f64)
        };
        assert_eq!(f.page.set(&entry), Ok(true));
    }
    for (index, (name, labels)) in pairs.into_iter().enumerate() {
        let handle = f.reader.find(name, labels).unwrap();
        assert_eq!(f.reader.read(&handle).unwrap().value, Some(index as f64));
    }
}

#[test]
fn freed_slots_are_given_again_lowest_first() {
    let mut f = fixture(8);
    let names: Vec<String> = (0..8).map(|i| format!("n{i}")).collect();
    let entries: Vec<Entry<'_>> = names.iter().map(|name| entry(name, 1.0)).collect();
    f.page.publish(1, &entries);
    f.page.publish(2, &entries[6..]);
    f.page.set(&entry("new", 2.0)).unwrap();
    assert_eq!(f.page.slot_of("new", ""), Some(0));
    assert_eq!(f.page.slot_of("n6", ""), Some(6));
}

#[test]
fn a_word_left_odd_is_healed_by_the_next_write() {
    let mut f = fixture(1);
    f.page.set(&entry("a", 1.0)).unwrap();
    let words = slot_words(&f.page.map, f.page.geometry, 0).unwrap();
    words[0].fetch_add(1, Ordering::Relaxed);
    f.page.set(&entry("a", 2.0)).unwrap();
    assert_eq!((f.value("a"), f.lock_word(0) % 2), (Some(2.0), 0));
}
