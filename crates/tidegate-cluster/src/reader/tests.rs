// SPDX-License-Identifier: Apache-2.0

mod lag;
mod runs;

use std::time::Instant;

use bytes::Bytes;
use tidegate_engine::{
    AttributeFilter, Data, Function, Grouping, MergeMode, OnStale, Pattern, SeriesSource, SourceStatus,
    SubWindow, Temporality, Value,
};

use super::*;
use crate::testing::{COUNTER, series};
use crate::{PageError, PageHeaders, PageKind, PageWriter, StoreMessage, StoreReply, StoredMessage, Subject};

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_700_000_000 * SECOND;

fn producer(number: u8) -> ProducerName {
    ProducerName::new(&format!("node-{number}")).unwrap()
}

fn run(number: u8, epoch: u64) -> RunName {
    RunName {
        producer: producer(number),
        epoch,
    }
}

/// A message of the run 5 of a producer. The sequences of the store and of the producer are equal.
fn message(number: u8, page: u32, kind: PageKind, sequence: u64, writer: PageWriter) -> StoredMessage {
    let subject = Subject::Page {
        partition: 0,
        run: run(number, 5),
        page,
    };
    let headers = PageHeaders {
        kind,
        sequence,
        epoch: 5,
        rules: 0,
        interval: Duration::from_secs(1),
    };
    StoredMessage {
        message: StoreMessage {
            subject: subject.text("c"),
            headers: headers.write(),
            body: writer.finish(),
        },
        sequence,
        time: NOW,
    }
}

fn page(number: u8, sequence: u64, value: i64) -> StoredMessage {
    let mut writer = PageWriter::new(&producer(number));
    writer.value(&series("x", COUNTER), MergeMode::Add, (5, 6), Value::Int(value));
    message(number, 1, PageKind::Page, sequence, writer)
}

fn bye(number: u8, sequence: u64) -> StoredMessage {
    let writer = PageWriter::new(&producer(number));
    message(number, 0, PageKind::Bye, sequence, writer)
}

fn reader() -> PageReader {
    PageReader::new(ReaderConfig::new("c"), Vec::new(), &Arc::default()).unwrap()
}

/// A reader that has read these messages and knows that there are no others.
fn caught_up(messages: impl IntoIterator<Item = StoredMessage>) -> PageReader {
    let mut reader = reader();
    let (id, _) = reader.poll().unwrap();
    for stored in messages {
        reader.event(StoreEvent::Read(id, stored), NOW);
    }
    reader.event(StoreEvent::Current(id, Duration::ZERO, Instant::now()), NOW);
    reader
}

fn shown(reader: &mut PageReader) -> Option<Value> {
    let mut shown = None;
    reader
        .merged()
        .read(&mut |reading| shown = Some(reading.value.clone()));
    shown
}

#[test]
fn pages_add_up_in_any_order_and_repeated() {
    let pages = [page(1, 3, 7), page(2, 2, 5), page(1, 1, 4), page(1, 3, 7)];
    let mut reader = caught_up(pages);
    assert_eq!(shown(&mut reader), Some(Value::Int(12)));
    assert_eq!((reader.stats().pages, reader.status(NOW).reporting), (4, 2));
}

#[test]
fn a_replica_is_ready_when_its_read_is_current_and_until_it_is_behind() {
    let mut reader = reader();
    let (id, call) = reader.poll().unwrap();
    assert_eq!(call, StoreCall::ReadAll(ReadScope::Everything));
    assert_eq!(reader.poll(), None);
    reader.event(StoreEvent::Read(id, page(1, 1, 1)), NOW);
    assert_eq!(reader.status(NOW).state, ReplicaState::CatchingUp);
    reader.event(StoreEvent::Current(id, Duration::ZERO, Instant::now()), NOW);
    assert_eq!(reader.status(NOW).state, ReplicaState::Fresh);
    assert!(reader.is_ready(NOW + 4 * SECOND));
    assert_eq!(reader.status(NOW + 5 * SECOND).state, ReplicaState::Stale);
    // The read broke off and starts again. Old messages do not show that the replica is up to date.
    let error = crate::StoreError::Unavailable(String::new());
    reader.event(StoreEvent::Done(id, Err(error)), NOW + 6 * SECOND);
    let (id, _) = reader.poll().unwrap();
    reader.event(StoreEvent::Read(id, page(1, 1, 1)), NOW + 6 * SECOND);
    assert!(!reader.is_ready(NOW + 6 * SECOND));
}

#[test]
fn a_silent_producer_is_missing_and_one_that_said_goodbye_is_not() {
    let mut reader = caught_up([page(1, 1, 1), page(2, 2, 1)]);
    let status = reader.status(NOW + 4 * SECOND);
    assert_eq!((status.reporting, status.expected), (0, 2));
    assert_eq!(status.state, ReplicaState::Partial);
    let mut reader_of_both = caught_up([page(1, 1, 1), page(2, 2, 1), bye(2, 3)]);
    let status = reader_of_both.status(NOW);
    assert_eq!((status.reporting, status.expected), (1, 1));
    assert_eq!(shown(&mut reader_of_both), Some(Value::Int(2)), "its totals stay");
    reader.expect([producer(3)].into());
    assert_eq!(reader.status(NOW).expected, 3);
}

/// A claim of a run, at a time after the others.
fn claim(number: u8, sequence: u64, after: u64) -> StoredMessage {
    let subject = Subject::Producer(producer(number));
    StoredMessage {
        message: StoreMessage {
            subject: subject.text("c"),
            headers: Vec::new(),
            body: Bytes::new(),
        },
        sequence,
        time: NOW + after * SECOND,
    }
}

#[test]
fn a_producer_is_not_missing_after_its_run_was_folded() {
    let expected = |reader: &PageReader, after: u64| reader.status(NOW + after * SECOND).expected;
    let mut leader = caught_up([claim(1, 1, 0), page(1, 2, 7), bye(1, 3)]);
    leader.fold(&run(1, 5));
    let mut records = leader.missing_records(&producer(1), true).unwrap();
    let record = StoredMessage {
        message: records.remove(0).message,
        sequence: 4,
        time: NOW + 60 * SECOND,
    };
    leader.forget_run(&run(1, 5), 3);
    assert_eq!(expected(&leader, 60), 0, "the leader has folded the run");
    // The order of a first read may be any.
    for order in [[claim(1, 1, 0), record.clone()], [record.clone(), claim(1, 1, 0)]] {
        let reader = caught_up(order);
        assert_eq!(expected(&reader, 60), 0, "the record has the run of the claim");
    }
    let mut again = caught_up([]);
    again.take(&record, false, NOW + 60 * SECOND).unwrap();
    again.take(&claim(1, 5, 61), false, NOW + 61 * SECOND).unwrap();
    assert_eq!(expected(&again, 62), 1, "it has begun another run");
    assert_eq!(expected(&again, 61 + 15 * 60 + 1), 0, "it never sent a page");
}

#[test]
fn a_silent_producer_is_missing_until_its_run_may_be_folded() {
    let reader = caught_up([claim(1, 1, 0), page(1, 2, 7)]);
    let silent = |after: u64| reader.silent(NOW + after * SECOND).len();
    assert_eq!([silent(0), silent(4), silent(15 * 60)], [0, 1, 1]);
    assert_eq!(silent(15 * 60 + 1), 0);
}

#[test]
fn one_producer_does_not_take_the_room_of_the_others() {
    let of_run = |epoch: u64| {
        let mut page = page(1, epoch, 1);
        page.message.subject = page.message.subject.replace(".5.", &format!(".{epoch}."));
        page.message.headers.iter_mut().for_each(|(name, value)| {
            if name == "tg-epoch" {
                *value = epoch.to_string();
            }
        });
        page
    };
    let mut reader = caught_up((10..1_100).map(of_run));
    assert_eq!(reader.stats().refused, 1_090 - 1_024);
    assert_eq!(
        reader.status(NOW).state,
        ReplicaState::Partial,
        "runs are missing"
    );
    reader.take(&page(2, 2_000, 5), false, NOW).unwrap();
    assert_eq!(reader.stats().refused, 1_090 - 1_024, "another producer has room");
}

#[test]
fn a_gauge_that_has_not_changed_for_long_is_read_before_its_heartbeat() {
    let gauge = |number: u8, sequence: u64, value: i64| {
        let mut writer = PageWriter::new(&producer(number));
        let up_down = Data::Sum {
            monotonic: false,
            temporality: Temporality::Cumulative,
        };
        writer.value(&series("x", up_down), MergeMode::Level, (5, 6), Value::Int(value));
        let page = message(number, 1, PageKind::Page, sequence, writer);
        StoredMessage {
            time: NOW - 20 * SECOND,
            ..page
        }
    };
    let beat = |number: u8, sequence: u64| {
        message(
            number,
            0,
            PageKind::Page,
            sequence,
            PageWriter::new(&producer(number)),
        )
    };
    let messages = || {
        [
            gauge(1, 1, 7),
            gauge(2, 2, 1),
            gauge(3, 3, 5),
            beat(1, 4),
            bye(3, 5),
        ]
    };
    let mut reader = caught_up(messages());
    let living = Some(Value::Int(7));
    assert_eq!(shown(&mut reader), living, "2 was killed and 3 has ended");
    // The read breaks off, and another one begins.
    let id = reader.read.unwrap();
    reader.event(StoreEvent::Done(id, Ok(StoreReply::ReadEnd)), NOW);
    let (id, _) = reader.poll().unwrap();
    for stored in messages() {
        reader.event(StoreEvent::Read(id, stored), NOW + SECOND);
    }
    reader.event(
        StoreEvent::Current(id, Duration::ZERO, Instant::now()),
        NOW + SECOND,
    );
    assert_eq!(shown(&mut reader), living);
    reader.tick(NOW + 4 * SECOND);
    assert_eq!(shown(&mut reader), living, "1 may have sent what was not read");
    reader.event(
        StoreEvent::Current(id, Duration::ZERO, Instant::now()),
        NOW + 4 * SECOND,
    );
    reader.tick(NOW + 4 * SECOND);
    assert_eq!(shown(&mut reader), None, "1 is silent");
}

#[test]
fn a_poison_page_counts_once_and_stops_nothing() {
    let poison = |sequence| {
        let mut poison = page(1, sequence, 1);
        poison.message.body = vec![0xff_u8; 10].into();
        poison
    };
    let mut reader = caught_up([poison(1), poison(1), page(2, 2, 5)]);
    assert_eq!(
        (reader.counts(&producer(1)).poisoned, shown(&mut reader)),
        (1, Some(Value::Int(5)))
    );
    assert_eq!(reader.status(NOW).state, ReplicaState::Partial);
    assert_eq!(
        reader.over_runs(NOW + 3600 * SECOND, 0, 0, 0).len(),
        1,
        "nothing folds it"
    );
    assert!(reader.take(&poison(3), false, NOW).is_err());
    assert_eq!(reader.counts(&producer(1)).poisoned, 2);
    reader.take(&page(1, 4, 1), false, NOW).unwrap();
    assert_eq!(reader.status(NOW).state, ReplicaState::Fresh);
}

#[test]
fn a_newer_version_is_skipped_and_makes_the_replica_partial() {
    let mut newer = page(1, 1, 1);
    newer.message.headers[0].1 = "2".to_owned();
    let mut reader = caught_up([newer]);
    let counts = reader.counts(&producer(1));
    assert_eq!((counts.newer, counts.poisoned), (1, 0));
    assert_eq!(reader.status(NOW).state, ReplicaState::Partial);
    assert_eq!(shown(&mut reader), None);
}

#[test]
fn a_record_that_is_not_readable_makes_the_replica_partial() {
    let subject = Subject::Retained {
        partition: 0,
        producer: producer(1),
    };
    let poison = StoredMessage {
        message: StoreMessage {
            subject: subject.text("c"),
            headers: PageHeaders::RETAINED.write(),
            body: vec![0xff_u8; 10].into(),
        },
        sequence: 1,
        time: NOW,
    };
    let reader = caught_up([poison, page(2, 2, 5)]);
    assert_eq!(reader.counts(&producer(1)).poisoned, 1);
    assert_eq!(reader.status(NOW).state, ReplicaState::Partial);
}

#[test]
fn the_sources_of_a_series_are_its_producers() {
    let mut reader = caught_up([page(1, 3, 7), page(2, 4, 5), page(3, 5, 1), bye(3, 6)]);
    let sources = |reader: &PageReader, after: u64| {
        let sources = reader.sources_of(&series("x", COUNTER), NOW + after * SECOND);
        let source = |source: SeriesSource| {
            let name = source.attributes.get("producer").map(|name| name.to_string());
            (name.unwrap(), source.status, source.last_value)
        };
        let mut all: Vec<_> = sources.into_iter().map(source).collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    };
    let expected = |first, second| {
        [
            ("node-1".to_owned(), first, Some(7.0)),
            ("node-2".to_owned(), second, Some(5.0)),
            ("node-3".to_owned(), SourceStatus::Left, Some(1.0)),
        ]
    };
    assert_eq!(
        sources(&reader, 1),
        expected(SourceStatus::Alive, SourceStatus::Alive)
    );
    assert_eq!(
        sources(&reader, 60),
        expected(SourceStatus::Overdue, SourceStatus::Overdue)
    );
    // The total of an ended run stays, and so does the name of its producer.
    reader.fold(&run(3, 5));
    reader.forget_run(&run(3, 5), u64::MAX);
    assert_eq!(sources(&reader, 1)[2].1, SourceStatus::Left);
    assert_eq!(reader.sources_of(&series("y", COUNTER), NOW), []);
}

#[test]
fn messages_of_other_clusters_and_contradictions_are_refused() {
    let mut reader = reader();
    let mut foreign = page(1, 1, 1);
    foreign.message.subject = "tg.other.p.00.node-1.5.1".to_owned();
    assert_eq!(reader.take(&foreign, false, NOW), Err(PageError::Subject));
    let mut epoch = page(1, 1, 1);
    epoch.message.subject = "tg.c.p.00.node-1.6.1".to_owned();
    assert_eq!(reader.take(&epoch, false, NOW), Err(PageError::Contradiction));
    let mut kind = bye(1, 1);
    kind.message.subject = "tg.c.p.00.node-1.5.1".to_owned();
    assert_eq!(reader.take(&kind, false, NOW), Err(PageError::Contradiction));
}

#[test]
fn windows_of_producers_become_one_answer() {
    let declaration = Declaration {
        name: "sum".into(),
        description: "".into(),
        metric: Pattern::parse("x").unwrap(),
        attributes: AttributeFilter::default(),
        expression: None,
        function: Function::Sum,
        across: None,
        window: Duration::from_secs(10),
        quantiles: [].into(),
        on_stale: OnStale::Error,
        grouping: Grouping::by(["model"]),
        max_groups: 10,
        lease: None,
    };
    let mut reader = PageReader::new(ReaderConfig::new("c"), vec![declaration], &Arc::default()).unwrap();
    for (number, sum) in [(1, 2.0), (2, 3.5)] {
        let group = [("model", "m")].into_iter().collect();
        let part = SubWindow {
            start: NOW - SECOND,
            end: NOW,
            count: 1.0,
            sum,
            min: Some(sum),
            max: Some(sum),
            last: None,
            distribution: None,
        };
        let mut writer = PageWriter::new(&producer(number));
        writer.window(&"sum".into(), &group, std::slice::from_ref(&part));
        writer.window(&"other".into(), &group, &[part]);
        let stored = message(number, 1, PageKind::Page, u64::from(number), writer);
        reader.take(&stored, false, NOW).unwrap();
    }
    let answers = reader.answers("sum", NOW).unwrap();
    let values: Vec<_> = answers
        .iter()
        .map(|answer| (answer.value, answer.sources_reporting))
        .collect();
    assert_eq!(values, [(Some(5.5), 2)]);
    assert_eq!(reader.stats().unknown_composites, 2);
    assert_eq!(reader.answers("other", NOW), None);
}
