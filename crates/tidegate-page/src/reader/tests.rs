// SPDX-License-Identifier: Apache-2.0

use std::os::unix::fs::FileExt;

use proptest::prelude::*;

use super::*;
use crate::entry::{Entry, State};
use crate::error::Reject;
use crate::layout::{MAX_QUANTILES, SLOT_SIZE};
use crate::writer::Page;

fn page_in(directory: &tempfile::TempDir, capacity: u32) -> Page {
    Page::create(directory.path().join("page"), capacity, 0o600).unwrap()
}

fn entry(name: &str) -> Entry<'_> {
    Entry {
        name,
        state: State::Fresh,
        value: Some(1.0),
        ..Entry::default()
    }
}

/// Writes into the file without the writer's knowledge.
fn poke(page: &Page, offset: usize, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(page.path()).unwrap();
    file.write_all_at(bytes, offset as u64).unwrap();
}

fn slot_offset(slot: usize, field: usize) -> usize {
    HEADER_SIZE + slot * SLOT_SIZE + field
}

#[test]
fn both_sides_may_go_from_thread_to_thread() {
    fn shared<T: Send + Sync>() {}
    shared::<Page>();
    shared::<Reader>();
}

#[test]
fn an_odd_word_is_busy_in_bounded_time_and_the_others_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let mut page = page_in(&directory, 2);
    page.publish(1, &[entry("a"), entry("b")]);
    let reader = Reader::open(page.path()).unwrap();
    let (a, b) = (reader.find("a", "").unwrap(), reader.find("b", "").unwrap());
    poke(&page, slot_offset(0, slot::LOCK), &[7]);
    assert_eq!(reader.read(&a), Err(ReadError::Busy));
    assert!(reader.read(&b).is_ok());
    assert_eq!(reader.find("a", ""), Err(FindError::Busy));
    assert_eq!(reader.find("b", ""), Ok(b));
    assert_eq!(reader.list().len(), 1);
}

#[test]
fn entries_of_a_truncated_page_are_gone_and_its_reader_survives() {
    let directory = tempfile::tempdir().unwrap();
    let mut page = page_in(&directory, 2);
    page.publish(1, &[entry("a")]);
    let reader = Reader::open(page.path()).unwrap();
    let a = reader.find("a", "").unwrap();
    let file = OpenOptions::new().write(true).open(page.path()).unwrap();
    let whole = file.metadata().unwrap().len();
    file.set_len(0).unwrap();
    assert_eq!(reader.read(&a), Err(ReadError::Gone));
    assert_eq!(reader.find("a", ""), Err(FindError::NotFound));
    assert_eq!((reader.heartbeat(), reader.list().len()), (None, 0));
    let again = Reader::open(page.path()).unwrap_err();
    assert!(again.to_string().contains("too few for a header"), "{again}");
    file.set_len(whole).unwrap(); // the writer has no guard, and writes when it closes
}

#[test]
fn a_slot_that_was_given_again_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let mut page = page_in(&directory, 1);
    let reader = Reader::open(page.path()).unwrap();
    page.set(&entry("a")).unwrap();
    let first = reader.find("a", "").unwrap();
    page.remove("a", "");
    assert_eq!(reader.read(&first), Err(ReadError::Gone));
    page.set(&entry("b")).unwrap();
    assert_eq!(reader.read(&first), Err(ReadError::Moved));
    page.publish(1, &[entry("a")]);
    assert_eq!(reader.read(&first), Err(ReadError::Moved));
    let second = reader.find("a", "").unwrap();
    assert!(second != first && reader.read(&second).is_ok());
}

#[test]
fn a_file_that_was_replaced_is_noticed_and_its_handles_are_of_no_use() {
    let directory = tempfile::tempdir().unwrap();
    let mut old = page_in(&directory, 1);
    old.publish(5, &[entry("a")]);
    let reader = Reader::open(old.path()).unwrap();
    let handle = reader.find("a", "").unwrap();
    assert!(reader.is_current());
    // As if it had been killed: the file stays, the lock goes.
    let path = old.path().to_owned();
    let kept = directory.path().join("kept");
    std::fs::hard_link(&path, &kept).unwrap();
    old.close().unwrap();
    std::fs::rename(&kept, &path).unwrap();
    assert!(reader.is_current());

    let mut new = page_in(&directory, 1);
    new.publish(6, &[entry("a")]);
    assert!(!reader.is_current());
    let again = Reader::open(&path).unwrap();
    assert!(again.is_current() && again.boot() != reader.boot());
    assert_eq!(again.read(&handle), Err(ReadError::Moved));
    assert!(again.read(&again.find("a", "").unwrap()).is_ok());
}

#[test]
fn a_closed_page_has_no_entries_and_no_heart() {
    let directory = tempfile::tempdir().unwrap();
    let mut page = page_in(&directory, 1);
    let reader = Reader::open(page.path()).unwrap();
    assert_eq!(reader.heartbeat(), None);
    page.publish(1, &[entry("a")]);
    let handle = reader.find("a", "").unwrap();
    page.close().unwrap();
    assert_eq!(reader.read(&handle), Err(ReadError::Gone));
    assert_eq!((reader.heartbeat(), reader.used()), (None, 0));
    assert!(!reader.is_current() && !reader.is_alive(1, Duration::MAX));
}

#[test]
fn the_heart_beats_within_a_time_on_both_sides() {
    let directory = tempfile::tempdir().unwrap();
    let mut page = page_in(&directory, 1);
    page.beat(1_000);
    let reader = Reader::open(page.path()).unwrap();
    let alive = |now, within| reader.is_alive(now, Duration::from_nanos(within));
    assert!(alive(1_000, 0) && alive(1_100, 100) && alive(900, 100));
    assert!(!alive(1_101, 100) && !alive(899, 100));
}

#[test]
fn the_list_tells_names_labels_and_handles() {
    let directory = tempfile::tempdir().unwrap();
    let mut page = page_in(&directory, 9);
    let labelled = Entry {
        labels: "k=\"ü\"",
        ..entry("b")
    };
    page.publish(1, &[entry("a"), labelled]);
    let reader = Reader::open(page.path()).unwrap();
    let list = reader.list();
    let texts: Vec<(&str, &str)> = list.iter().map(|l| (&*l.name, &*l.labels)).collect();
    assert_eq!(texts, [("a", ""), ("b", "k=\"ü\"")]);
    for listed in &list {
        assert_eq!(reader.find(&listed.name, &listed.labels), Ok(listed.handle));
    }
}

#[test]
fn hostile_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let page = page_in(&directory, 3);
    let good = std::fs::read(page.path()).unwrap();
    let path = directory.path().join("hostile");
    let opened = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        match Reader::open(&path) {
            Ok(_) => None,
            Err(Error::Rejected { reject, .. }) => Some(reject),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(opened(&good), None);
    for len in (0..300).chain((300..good.len()).step_by(97)) {
        assert!(opened(&good[..len]).is_some(), "{len} bytes");
    }
    assert_eq!(opened(&[0; 960]), Some(Reject::BadMagic));
    let mut huge = good.clone();
    huge[header::CAPACITY..header::CAPACITY + 4].fill(0xff);
    assert_eq!(opened(&huge), Some(Reject::BadCapacity { capacity: u32::MAX }));
    std::os::unix::fs::symlink(page.path(), directory.path().join("link")).unwrap();
    for not_regular in [directory.path().join("link"), directory.path().to_owned()] {
        let refused = Reader::open(&not_regular).unwrap_err();
        let reject = Reject::NotRegular;
        assert!(
            matches!(refused, Error::Rejected { reject: r, .. } if r == reject),
            "{refused}"
        );
    }
    let absent = Reader::open(directory.path().join("absent")).unwrap_err();
    assert!(matches!(absent, Error::Io { .. }), "{absent}");
}

#[test]
fn a_directory_that_lies_is_bounded_by_the_capacity() {
    let directory = tempfile::tempdir().unwrap();
    let mut page = page_in(&directory, 2);
    page.publish(1, &[entry("a")]);
    poke(&page, header::USED, &[0xff; 8]);
    let reader = Reader::open(page.path()).unwrap();
    assert_eq!(reader.find("b", ""), Err(FindError::NotFound));
    assert_eq!(reader.list().len(), 1);
}

fn bits(number: Option<f64>) -> Option<u64> {
    number.map(f64::to_bits)
}

/// Any bits, not a number included.
fn number() -> impl Strategy<Value = Option<f64>> {
    prop::option::of(any::<u64>().prop_map(f64::from_bits))
}

type Numbers = [Option<f64>; 7];

#[derive(Debug)]
struct Given {
    labels: String,
    state: State,
    numbers: Numbers,
    quantiles: Vec<(f64, f64)>,
    times: [u64; 3],
    newest: Option<u64>,
    sources: [u32; 2],
}

fn given() -> impl Strategy<Value = Given> {
    let numbers = prop::array::uniform7(number());
    let pair = (0.0..=1.0_f64, any::<u64>().prop_map(f64::from_bits));
    let quantiles = prop::collection::vec(pair, 0..=MAX_QUANTILES);
    let state = prop::sample::select(State::ALL.to_vec());
    let rest = (any::<[u64; 3]>(), any::<Option<u64>>(), any::<[u32; 2]>());
    ("[^\0]{0,60}", state, numbers, quantiles, rest).prop_map(|(labels, state, numbers, quantiles, rest)| {
        Given {
            labels,
            state,
            numbers,
            quantiles,
            times: rest.0,
            newest: rest.1,
            sources: rest.2,
        }
    })
}

impl Given {
    fn entry<'a>(&'a self, name: &'a str) -> Entry<'a> {
        let [value, min, avg, max, sum, count, last] = self.numbers;
        Entry {
            name,
            labels: &self.labels,
            state: self.state,
            value,
            min,
            avg,
            max,
            sum,
            count,
            last,
            quantiles: &self.quantiles,
            window: Duration::from_nanos(self.times[0]),
            as_of_ns: self.times[1],
            newest_ns: self.newest,
            sources_expected: self.sources[0],
            sources_reporting: self.sources[1],
            seq: self.times[2],
        }
    }

    fn is(&self, read: &Snapshot) -> bool {
        let numbers = [
            read.value, read.min, read.avg, read.max, read.sum, read.count, read.last,
        ];
        let pairs = |of: &[(f64, f64)]| -> Vec<(u64, u64)> {
            of.iter()
                .map(|(q, value)| (q.to_bits(), value.to_bits()))
                .collect()
        };
        numbers.map(bits) == self.numbers.map(bits)
            && pairs(read.quantiles()) == pairs(&self.quantiles)
            && read.state == self.state
            && [read.window.as_nanos() as u64, read.as_of_ns, read.seq] == self.times
            && read.newest_ns == self.newest
            && [read.sources_expected, read.sources_reporting] == self.sources
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_set_is_what_is_read(rounds in prop::collection::vec(prop::collection::vec(given(), 0..6), 1..4)) {
        let directory = tempfile::tempdir().unwrap();
        let mut page = page_in(&directory, 6);
        let reader = Reader::open(page.path()).unwrap();
        for (round, all) in rounds.iter().enumerate() {
            let names: Vec<String> = (0..all.len()).map(|i| format!("näme{i}")).collect();
            let entries: Vec<Entry<'_>> = all.iter().zip(&names).map(|(given, name)| given.entry(name)).collect();
            let done = page.publish(round as u64 + 1, &entries);
            prop_assert_eq!(done.written + done.unchanged, all.len());
            prop_assert_eq!(reader.used() as usize, all.len());
            for (given, name) in all.iter().zip(&names) {
                let handle = reader.find(name, &given.labels);
                let read = handle.map(|handle| reader.read(&handle));
                prop_assert!(matches!(&read, Ok(Ok(read)) if given.is(read)), "{given:?} became {read:?}");
            }
        }
    }

    #[test]
    fn slots_of_any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), SLOT_SIZE), even in any::<bool>()) {
        let directory = tempfile::tempdir().unwrap();
        let mut page = page_in(&directory, 1);
        page.publish(1, &[entry("a")]);
        let reader = Reader::open(page.path()).unwrap();
        let handle = reader.find("a", "").unwrap();
        poke(&page, slot_offset(0, 0), &bytes);
        if even {
            poke(&page, slot_offset(0, slot::LOCK), &[0]);
            poke(&page, slot_offset(0, slot::GENERATION), &handle.generation.to_le_bytes());
        }
        let _ = reader.read(&handle);
        let _ = reader.find("a", "");
        prop_assert!(reader.list().len() <= 1);
    }
}
