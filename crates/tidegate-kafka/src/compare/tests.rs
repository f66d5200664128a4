// SPDX-License-Identifier: Apache-2.0

//! Writers against a simulated log. They crash between any two steps, the cleaner works at any moment, and the clock moves.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::record::sequence;

/// The term of each lease.
const TERM: i64 = 10;

/// After this time the broker aborts a transaction that nobody ended.
const TIMEOUT: i64 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryState {
    Open,
    Committed,
    Aborted,
    /// The end of a transaction.
    Marker,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    offset: i64,
    subject: usize,
    millis: i64,
    term: Option<i64>,
    state: EntryState,
    /// The expected sequence of its writer.
    expected: u64,
    /// When the broker took it.
    taken: i64,
}

impl Entry {
    fn current(&self) -> CurrentRecord {
        CurrentRecord {
            sequence: sequence(self.millis, self.offset),
            millis: self.millis,
            term: self.term,
        }
    }
}

/// One partition and the coordinator of transactions.
#[derive(Debug, Default)]
struct SimulatedLog {
    entries: Vec<Entry>,
    next: i64,
    epochs: BTreeMap<usize, u32>,
    now: i64,
    /// All committed records, which no cleaner removes.
    history: Vec<Entry>,
}

impl SimulatedLog {
    fn fence(&mut self, subject: usize) -> u32 {
        let epoch = self.epochs.entry(subject).or_default();
        *epoch += 1;
        let epoch = *epoch;
        self.end_open(subject, EntryState::Aborted);
        epoch
    }

    /// `false`: the writer has no open transaction.
    fn end_open(&mut self, subject: usize, state: EntryState) -> bool {
        let is_open = |entry: &&mut Entry| entry.subject == subject && entry.state == EntryState::Open;
        let Some(entry) = self.entries.iter_mut().find(is_open) else {
            return false;
        };
        entry.state = state;
        let entry = *entry;
        if state == EntryState::Committed {
            self.history.push(entry);
        }
        self.push(Entry {
            state: EntryState::Marker,
            ..entry
        });
        true
    }

    fn push(&mut self, entry: Entry) -> i64 {
        let offset = self.next;
        self.next += 1;
        self.entries.push(Entry { offset, ..entry });
        offset
    }

    fn append(&mut self, writer: &Writer, least: i64) -> Option<Appended> {
        if self.epochs.get(&writer.subject) != Some(&writer.epoch) {
            return None;
        }
        let millis = (self.now + writer.skew).max(least);
        let offset = self.push(Entry {
            offset: 0,
            subject: writer.subject,
            millis,
            term: writer.is_lease.then_some(TERM),
            state: EntryState::Open,
            expected: writer.expected,
            taken: self.now,
        });
        Some(Appended {
            offset,
            millis,
            broker_millis: self.now,
        })
    }

    fn end(&mut self, writer: &Writer, state: EntryState) -> bool {
        self.epochs.get(&writer.subject) == Some(&writer.epoch) && self.end_open(writer.subject, state)
    }

    /// The last committed record below `end`. `None`: an open transaction hides what follows it.
    fn read(&self, subject: usize, end: i64) -> Option<Option<CurrentRecord>> {
        let mut last = None;
        for entry in self.entries.iter().filter(|entry| entry.offset < end) {
            match entry.state {
                EntryState::Open => return None,
                EntryState::Committed if entry.subject == subject => last = Some(entry.current()),
                _ => {}
            }
        }
        Some(last)
    }

    /// Removes what the cleaner may remove: before the first open transaction, all that is aborted or replaced.
    fn compact(&mut self) {
        let is_open = |entry: &&Entry| entry.state == EntryState::Open;
        let stable = self
            .entries
            .iter()
            .find(is_open)
            .map_or(self.next, |entry| entry.offset);
        let entries = self.entries.clone();
        let is_replaced = |entry: &Entry| {
            entries.iter().any(|later| {
                later.offset > entry.offset
                    && later.offset < stable
                    && later.subject == entry.subject
                    && later.state == EntryState::Committed
            })
        };
        self.entries.retain(|entry| {
            entry.offset >= stable || (entry.state == EntryState::Committed && !is_replaced(entry))
        });
    }

    fn advance(&mut self, millis: i64) {
        self.now += millis;
        let is_late = |entry: &&Entry| entry.state == EntryState::Open && entry.taken + TIMEOUT <= self.now;
        let late: Vec<usize> = self
            .entries
            .iter()
            .filter(is_late)
            .map(|entry| entry.subject)
            .collect();
        for subject in late {
            // The coordinator raises the epoch, so the writer can't go on.
            self.fence(subject);
        }
    }
}

/// A writer of one subject, which learns of the current record from conflicts.
#[derive(Debug)]
struct Writer {
    subject: usize,
    is_lease: bool,
    /// The error of its estimate of the clock of the broker.
    skew: i64,
    expected: u64,
    epoch: u32,
    compare: Option<Compare>,
}

impl Writer {
    /// Takes one step. `false`: it failed, or it has to wait.
    fn step(&mut self, log: &mut SimulatedLog) -> bool {
        let expected = self.expected;
        let mut compare = self.compare.take().unwrap_or_else(|| Compare::new(expected));
        let is_over = match compare.step() {
            CompareStep::Fence => {
                self.epoch = log.fence(self.subject);
                compare.fenced();
                false
            }
            CompareStep::FindEnd => {
                compare.found_end(log.next);
                false
            }
            CompareStep::Read(end) => {
                if let Some(current) = log.read(self.subject, end) {
                    compare.read(current);
                }
                false
            }
            CompareStep::Append(least) => match log.append(self, least) {
                Some(appended) => {
                    compare.appended(&appended);
                    false
                }
                None => true,
            },
            CompareStep::Commit => {
                let is_committed = log.end(self, EntryState::Committed);
                if is_committed {
                    compare.ended();
                }
                !is_committed
            }
            CompareStep::Abort => {
                log.end(self, EntryState::Aborted);
                compare.ended();
                false
            }
            CompareStep::Stored(sequence) => {
                let stored = log
                    .history
                    .iter()
                    .any(|entry| entry.current().sequence == sequence);
                assert!(stored, "a stored record is committed");
                self.expected = sequence;
                true
            }
            CompareStep::Conflict => {
                let current = compare.current.map_or(0, |current| current.sequence);
                assert_ne!(current, 0, "nobody removes a record");
                // A lease of another holder is asked for as if it were free.
                self.expected = if self.is_lease { 0 } else { current };
                true
            }
        };
        if !is_over {
            self.compare = Some(compare);
        }
        !is_over
    }
}

/// Each record replaces the one that its writer knew, or a lease that had ended.
fn check(log: &SimulatedLog) -> Result<(), TestCaseError> {
    let mut last: BTreeMap<usize, Entry> = BTreeMap::new();
    for entry in &log.history {
        if let Some(before) = last.insert(entry.subject, *entry) {
            let (before, sequence) = (before.current(), entry.current().sequence);
            prop_assert!(sequence > before.sequence, "sequences grow: {entry:?}");
            let is_known = entry.expected == before.sequence;
            let has_ended = entry.expected == 0
                && before
                    .term
                    .is_some_and(|term| before.millis + term <= entry.taken);
            prop_assert!(is_known || has_ended, "{entry:?} replaces {before:?}");
        } else {
            prop_assert_eq!(entry.expected, 0);
        }
    }
    for (subject, entry) in last {
        // A reader that comes now finds the same, unless an open transaction is before it.
        if let Some(current) = log.read(subject, log.next) {
            prop_assert_eq!(current, Some(entry.current()));
        }
    }
    Ok(())
}

#[derive(Clone, Debug)]
enum Act {
    Step(usize),
    Crash(usize),
    Compact,
    Advance(i64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        20 => (0..5_usize).prop_map(Act::Step),
        2 => (0..5_usize).prop_map(Act::Crash),
        2 => Just(Act::Compact),
        2 => (0..TERM).prop_map(Act::Advance),
    ]
}

/// `PROPTEST_CASES` asks for more cases.
fn config() -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig {
        cases: config.cases.max(2_000),
        ..config
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_record_gets_lost_whatever_writers_and_the_cleaner_do(
        acts in prop::collection::vec(act(), 1..300),
        skews in prop::collection::vec(-2..3_i64, 5),
    ) {
        let mut log = SimulatedLog { now: 1_000, ..SimulatedLog::default() };
        let mut writers: Vec<Writer> = (0..5).map(|number| Writer {
            // Three writers of a record, and two that want a lease.
            subject: usize::from(number > 2),
            is_lease: number > 2,
            skew: skews[number],
            expected: 0,
            epoch: 0,
            compare: None,
        }).collect();
        for act in acts {
            match act {
                Act::Step(number) => { writers[number].step(&mut log); }
                Act::Crash(number) => {
                    writers[number].compare = None;
                    writers[number].expected = 0;
                }
                Act::Compact => log.compact(),
                Act::Advance(millis) => log.advance(millis),
            }
            check(&log)?;
        }
    }
}

#[test]
fn a_writer_alone_stores_its_record() {
    let mut log = SimulatedLog::default();
    let mut writer = Writer {
        subject: 0,
        is_lease: false,
        skew: 0,
        expected: 0,
        epoch: 0,
        compare: None,
    };
    while writer.step(&mut log) {}
    assert_eq!(log.history.len(), 1);
    let first = writer.expected;
    while writer.step(&mut log) {}
    assert!(writer.expected > first);
}

#[test]
fn a_lease_is_free_at_its_end_and_not_before() {
    for (elapsed, is_free) in [(TERM - 1, false), (TERM, true)] {
        let mut compare = Compare::new(0);
        compare.fenced();
        compare.found_end(1);
        compare.read(Some(CurrentRecord {
            sequence: 7,
            millis: 100,
            term: Some(TERM),
        }));
        assert_eq!(compare.step(), CompareStep::Append(101));
        compare.appended(&Appended {
            offset: 1,
            millis: 101,
            broker_millis: 100 + elapsed,
        });
        let end = if is_free {
            CompareStep::Commit
        } else {
            CompareStep::Abort
        };
        assert_eq!(compare.step(), end);
    }
}

#[test]
fn a_record_that_is_no_lease_does_not_end() {
    let mut compare = Compare::new(0);
    compare.fenced();
    compare.found_end(1);
    compare.read(Some(CurrentRecord {
        sequence: 7,
        millis: 100,
        term: None,
    }));
    assert_eq!(compare.step(), CompareStep::Conflict);
}

#[test]
fn a_missing_record_is_a_conflict_once_the_broker_takes_another_one() {
    let mut compare = Compare::new(7);
    compare.fenced();
    compare.found_end(1);
    compare.read(None);
    assert_eq!(compare.step(), CompareStep::Append(0));
    compare.appended(&Appended {
        offset: 1,
        millis: 5,
        broker_millis: 5,
    });
    assert_eq!(compare.step(), CompareStep::Abort);
    compare.ended();
    assert_eq!(compare.step(), CompareStep::Conflict);
}
