// SPDX-License-Identifier: Apache-2.0

use std::sync::Arc;

use tidegate_engine::{Data, MergeMode, Point, Value, identity_bytes};

use super::*;
use crate::testing::{COUNTER, series};
use crate::{DecodedPage, PageLimits, StoredMessage, decode_page};

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_000 * SECOND;

fn config() -> SenderConfig {
    SenderConfig {
        cluster: "c".to_owned(),
        producer: ProducerName::new("node-1").unwrap(),
        partitions: 1,
        rules: 1,
        interval: Duration::from_secs(1),
        refresh: Duration::from_secs(30),
        max_bytes_per_second: 1 << 20,
        max_series: 1000,
        max_body_bytes: 1 << 20,
        max_in_flight: 16,
        nonce: 0,
    }
}

fn item(name: &str, mode: MergeMode, start: u64, value: impl Into<Value>) -> SentItem {
    let data = if mode.is_retained() { COUNTER } else { Data::Gauge };
    let point = Point {
        series: Arc::new(series(name, data)),
        start,
        time: start + 1,
        value: value.into(),
        exemplars: Vec::new(),
    };
    SentItem::Value(mode, point)
}

fn total(name: &str, start: u64, value: i64) -> SentItem {
    item(name, MergeMode::Add, start, value)
}

/// A published message: the page, the headers and the content.
struct Sent {
    page: u32,
    headers: PageHeaders,
    content: DecodedPage,
}

impl Sent {
    fn of(message: &StoreMessage) -> Self {
        let headers = PageHeaders::parse(&message.headers).unwrap();
        let Some(Subject::Page { page, run, .. }) = Subject::parse("c", &message.subject) else {
            panic!("{}", message.subject);
        };
        assert_eq!(run.epoch, headers.epoch);
        let content = decode_page(&run.producer, &headers, &message.body, PageLimits::default());
        Self {
            page,
            headers,
            content: content.unwrap(),
        }
    }

    /// Start and value of each total.
    fn totals(&self) -> Vec<(String, u64, Value)> {
        let reports = self.content.reports.iter();
        let totals = reports.map(|report| {
            let name = report.series.metric.name.to_string();
            (name, report.report.start, report.report.value.clone())
        });
        totals.collect()
    }
}

/// Makes all calls succeed until there are none.
fn drain(sender: &mut PageSender, now: u64) -> Vec<Sent> {
    let mut sent = Vec::new();
    while let Some((id, call)) = sender.poll(now) {
        if let StoreCall::Publish(message) = call {
            sent.push(Sent::of(&message));
        }
        sender.answer(id, Ok(StoreReply::Stored(1)), now);
    }
    sent
}

/// The pages with series.
fn pages(sent: Vec<Sent>) -> Vec<Sent> {
    sent.into_iter().filter(|sent| sent.page > 0).collect()
}

#[test]
fn a_page_goes_when_it_has_changed_and_at_each_refresh() {
    let mut sender = PageSender::new(config());
    sender.update([total("a", 5, 1)], NOW);
    let sent = drain(&mut sender, NOW);
    assert_eq!(sent.iter().map(|sent| sent.page).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(sent[1].totals(), [("a".to_owned(), 5, Value::Int(1))]);
    assert_eq!(sent[1].headers.epoch, NOW);
    sender.update([total("a", 5, 1)], NOW + SECOND);
    let sent = drain(&mut sender, NOW + SECOND);
    assert_eq!(
        sent.iter().map(|sent| sent.page).collect::<Vec<_>>(),
        [0],
        "a heartbeat"
    );
    sender.update([total("a", 5, 2)], NOW + 2 * SECOND);
    assert_eq!(pages(drain(&mut sender, NOW + 2 * SECOND)).len(), 1);
    assert_eq!(pages(drain(&mut sender, NOW + 30 * SECOND)).len(), 1);
    assert_eq!(pages(drain(&mut sender, NOW + 31 * SECOND)).len(), 0);
    sender.reconnected(NOW + 32 * SECOND);
    assert_eq!(pages(drain(&mut sender, NOW + 32 * SECOND)).len(), 1);
}

#[test]
fn values_that_wait_are_replaced_by_newer_ones() {
    let mut sender = PageSender::new(config());
    drain(&mut sender, NOW);
    for value in 1..100 {
        sender.update([total("a", 5, value)], NOW + value as u64);
        assert_eq!(sender.stats(NOW).waiting, 1);
    }
    let (id, StoreCall::Publish(first)) = sender.poll(NOW + 100).unwrap() else {
        panic!("a page");
    };
    assert_eq!(Sent::of(&first).totals()[0].2, Value::Int(99));
    // While it is on its way, the next one waits.
    sender.update([total("a", 5, 100)], NOW + 101);
    assert_eq!(sender.poll(NOW + 101), None);
    sender.answer(id, Err(StoreError::Unavailable(String::new())), NOW + 102);
    assert_eq!(sender.poll(NOW + 103), None, "it does not repeat at once");
    let sent = pages(drain(&mut sender, NOW + 2 * SECOND));
    assert_eq!((sent.len(), sent[0].totals()[0].2.clone()), (1, Value::Int(100)));
    assert_eq!(sender.stats(NOW).failed, 1);
}

#[test]
fn the_next_run_has_a_higher_number_if_the_clock_was_set_back() {
    let mut sender = PageSender::new(config());
    let (partitions, _) = sender.poll(NOW).unwrap();
    sender.answer(partitions, Ok(StoreReply::Stored(1)), NOW);
    let (id, call) = sender.poll(NOW).unwrap();
    let StoreCall::CompareAndSet(message, 0) = call else {
        panic!("{call:?}");
    };
    let current = StoredMessage {
        message: StoreMessage {
            body: (NOW + 5).to_string().into(),
            ..message
        },
        sequence: 7,
        time: NOW,
    };
    let conflict = StoreError::Conflict(Some(Box::new(current)));
    sender.answer(id, Err(conflict), NOW);
    let (id, call) = sender.poll(NOW).unwrap();
    assert!(matches!(call, StoreCall::CompareAndSet(_, 7)), "{call:?}");
    sender.answer(id, Ok(StoreReply::Stored(8)), NOW);
    assert_eq!(sender.run().unwrap().epoch, NOW + 5 + (1 << 36));
}

#[test]
fn a_total_stays_when_its_series_expires_and_continues() {
    let mut sender = PageSender::new(config());
    sender.update([total("a", 5, 7), total("b", 5, 1)], NOW);
    drain(&mut sender, NOW);
    let (now, a) = (NOW + SECOND, "a".to_owned());
    sender.update([total("b", 5, 2)], now);
    let sent = pages(drain(&mut sender, now));
    assert_eq!(sent[0].totals()[0], (a.clone(), 5, Value::Int(7)), "expired");
    sender.update([total("a", 50, 3), total("b", 5, 2)], now + SECOND);
    let sent = pages(drain(&mut sender, now + SECOND));
    assert_eq!(sent[0].totals()[0], (a, 5, Value::Int(10)), "back");
    assert_eq!(sender.stats(now).carried, 1);
}

#[test]
fn a_level_that_expires_is_named_and_may_come_back() {
    let mut sender = PageSender::new(config());
    let level = || item("g", MergeMode::Last, 5, 7);
    sender.update([level()], NOW);
    drain(&mut sender, NOW);
    sender.update([], NOW + SECOND);
    let sent = pages(drain(&mut sender, NOW + SECOND));
    assert_eq!((sent[0].content.ended.len(), sent[0].totals().len()), (1, 0));
    sender.update([], NOW + 2 * SECOND);
    assert_eq!(pages(drain(&mut sender, NOW + 2 * SECOND)).len(), 0);
    sender.update([level()], NOW + 3 * SECOND);
    let sent = pages(drain(&mut sender, NOW + 3 * SECOND));
    assert_eq!((sent[0].content.ended.len(), sent[0].totals().len()), (0, 1));
}

#[test]
fn a_new_run_makes_room_and_ends_the_old_one_after_its_pages() {
    let mut sender = PageSender::new(SenderConfig {
        max_series: 2,
        ..config()
    });
    sender.update([total("a", 5, 1), total("b", 5, 1)], NOW);
    drain(&mut sender, NOW);
    let now = NOW + 40 * SECOND;
    sender.update([total("b", 5, 2), total("c", 60, 1)], now);
    assert_eq!(sender.stats(now).refused, 1);
    sender.update([total("b", 5, 2), total("c", 60, 1)], now);
    let first = drain(&mut sender, now);
    let run = sender.run().unwrap().epoch;
    assert!(run > NOW);
    let bye = first.last().unwrap();
    assert_eq!((bye.headers.kind, bye.headers.epoch), (PageKind::Bye, NOW));
    sender.update([total("b", 5, 2), total("c", 60, 1)], now + SECOND);
    let sent = pages(drain(&mut sender, now + SECOND));
    let names: Vec<_> = sent[0].totals().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(
        (names, sent[0].headers.epoch),
        (vec!["b".to_owned(), "c".to_owned()], run)
    );
}

#[test]
fn bytes_above_the_limit_wait_and_heartbeats_do_not() {
    let mut sender = PageSender::new(SenderConfig {
        max_bytes_per_second: 100,
        ..config()
    });
    // Two pages of more than 100 bytes each.
    let items = |value| (0..300).map(move |at| total(&format!("series {at}"), 5, value));
    sender.update(items(1), NOW);
    let sent = drain(&mut sender, NOW);
    assert_eq!(sent.iter().map(|sent| sent.page).collect::<Vec<_>>(), [0, 1]);
    let sent = drain(&mut sender, NOW + 2 * SECOND);
    assert_eq!(sent.iter().map(|sent| sent.page).collect::<Vec<_>>(), [0]);
    let stats = sender.stats(NOW + 2 * SECOND);
    assert_eq!((stats.waiting, stats.oldest_wait_ns), (1, 2 * SECOND));
    let later = NOW + 20_000 * SECOND;
    assert!(!pages(drain(&mut sender, later)).is_empty());
    assert!(sender.stats(later).late > 0);
}

#[test]
fn a_page_that_is_too_large_becomes_two_and_the_new_one_goes_first() {
    let mut sender = PageSender::new(SenderConfig {
        max_body_bytes: 2000,
        ..config()
    });
    sender.update((0..40).map(|at| total(&format!("series {at}"), 5, 1)), NOW);
    let sent = pages(drain(&mut sender, NOW));
    assert!(sent.len() > 1);
    assert_eq!(sent.last().unwrap().page, 1);
    assert_eq!(sent.iter().map(|sent| sent.totals().len()).sum::<usize>(), 40);
}

#[test]
fn a_page_that_the_store_refuses_as_too_large_follows_its_halves() {
    let mut sender = PageSender::new(config());
    sender.update((0..4).map(|at| total(&format!("series {at}"), 5, 1)), NOW);
    let (mut refused, mut stored) = (0, Vec::new());
    while let Some((id, call)) = sender.poll(NOW) {
        let mut result = Ok(StoreReply::Stored(1));
        if let StoreCall::Publish(message) = call {
            let sent = Sent::of(&message);
            if sent.page > 0 && refused < 2 {
                refused += 1;
                result = Err(StoreError::TooLarge);
            } else if sent.page > 0 {
                stored.push((sent.page, sent.totals().len()));
            }
        }
        sender.answer(id, result, NOW);
    }
    // Page 2 has half of page 1, and page 3 has half of page 2.
    assert_eq!(stored, [(3, 1), (2, 1), (1, 2)]);
    assert!(sender.is_settled());
}

#[test]
fn a_series_that_becomes_too_large_keeps_its_last_page() {
    let mut sender = PageSender::new(config());
    sender.update([total("a", 5, 1)], NOW);
    drain(&mut sender, NOW);
    sender.update([total("a", 5, 2)], NOW + 1);
    let (id, _) = sender.poll(NOW + 1).unwrap();
    sender.answer(id, Err(StoreError::TooLarge), NOW + 1);
    sender.update([total("a", 5, 3), total("b", 5, 1)], NOW + 2);
    let sent = pages(drain(&mut sender, NOW + 2));
    let names = sent.iter().map(|sent| (sent.page, sent.totals()[0].0.clone()));
    assert_eq!(names.collect::<Vec<_>>(), [(2, "b".to_owned())]);
    assert_eq!(sender.stats(NOW + 2).too_large, 1);
}

#[test]
fn a_stopped_sender_says_goodbye_after_its_last_page() {
    let mut sender = PageSender::new(config());
    sender.update([total("a", 5, 1)], NOW);
    drain(&mut sender, NOW);
    sender.update([total("a", 5, 2)], NOW + 1);
    sender.stop();
    assert!(!sender.is_finished());
    let sent = drain(&mut sender, NOW + 1);
    let kinds: Vec<_> = sent.iter().map(|sent| (sent.page, sent.headers.kind)).collect();
    assert_eq!(kinds, [(1, PageKind::Page), (0, PageKind::Bye)]);
    assert!(sender.is_finished());
    assert_eq!(sender.poll(NOW + 10 * SECOND), None);
}

/// A sender that has stopped, and its goodbye, which has no answer yet.
fn stopped() -> (PageSender, CallId) {
    let mut sender = PageSender::new(config());
    sender.update([total("a", 5, 1)], NOW);
    drain(&mut sender, NOW);
    sender.stop();
    let (id, StoreCall::Publish(bye)) = sender.poll(NOW).unwrap() else {
        panic!("a goodbye");
    };
    assert_eq!(Sent::of(&bye).headers.kind, PageKind::Bye);
    (sender, id)
}

#[test]
fn a_goodbye_before_a_new_connection_is_said_again_after_the_pages() {
    let (mut sender, bye) = stopped();
    sender.reconnected(NOW + SECOND);
    let (partitions, StoreCall::CompareAndSet(..)) = sender.poll(NOW + SECOND).unwrap() else {
        panic!("the number of partitions");
    };
    sender.answer(partitions, Ok(StoreReply::Stored(1)), NOW + SECOND);
    // The new connection takes the goodbye, before or after the pages that the store may have lost.
    sender.answer(bye, Ok(StoreReply::Stored(2)), NOW + SECOND);
    assert!(!sender.is_finished());
    let kinds: Vec<_> = drain(&mut sender, NOW + SECOND)
        .iter()
        .map(|sent| (sent.page, sent.headers.kind))
        .collect();
    assert_eq!(kinds, [(1, PageKind::Page), (0, PageKind::Bye)]);
    assert!(sender.is_finished());
    assert_eq!(sender.stats(NOW + SECOND).waiting, 0);
}

#[test]
fn a_refresh_does_not_overtake_the_last_goodbye() {
    let (mut sender, bye) = stopped();
    let later = NOW + 60 * SECOND;
    assert_eq!(sender.poll(later), None);
    sender.answer(bye, Err(StoreError::Unavailable(String::new())), later);
    let later = later + SECOND;
    let kinds: Vec<_> = drain(&mut sender, later)
        .iter()
        .map(|sent| (sent.page, sent.headers.kind))
        .collect();
    assert_eq!(
        kinds,
        [(1, PageKind::Page), (0, PageKind::Bye)],
        "the pages first"
    );
    assert!(sender.is_finished());
    assert_eq!(sender.stats(later).waiting, 0);
}

/// A report of a stream to this gateway.
fn stream(name: &str, start: u64, time: u64, value: i64) -> SentItem {
    SentItem::Stream(Point {
        series: Arc::new(series(name, COUNTER)),
        start,
        time,
        value: Value::Int(value),
        exemplars: Vec::new(),
    })
}

#[test]
fn a_stream_keeps_the_largest_total_of_each_start_in_a_page_of_its_own() {
    let mut sender = PageSender::new(config());
    let items = [
        total("a", 5, 1),
        stream("a", 7, 10, 100),
        stream("a", 7, 12, 90),
        stream("a", 7, 9, 80),
        stream("a", 20, 21, 4),
    ];
    sender.update(items, NOW);
    assert_eq!(sender.stats(NOW).fallen, 1, "a later total that is smaller");
    let sent = pages(drain(&mut sender, NOW));
    assert_eq!(sent.len(), 2, "older replicas can read the first");
    assert_eq!(sent[0].totals(), [("a".to_owned(), 5, Value::Int(1))]);
    let streams = |value| {
        let values = [(7, value), (20, 4)];
        values.map(|(start, value)| ("a".to_owned(), start, Value::Int(value)))
    };
    assert_eq!(sent[1].totals(), streams(100));
    let producer = crate::name::StreamProducer::of(&series("a", COUNTER)).id;
    let reports = &sent[1].content.reports;
    assert!(reports.iter().all(|report| report.report.producer == producer));
    // An update without the stream takes nothing away.
    sender.update([total("a", 5, 1)], NOW + SECOND);
    assert!(pages(drain(&mut sender, NOW + SECOND)).is_empty());
    sender.update([total("a", 5, 1), stream("a", 7, 30, 130)], NOW + 2 * SECOND);
    let sent = pages(drain(&mut sender, NOW + 2 * SECOND));
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].totals(), streams(130));
}

#[test]
fn streams_without_a_start_or_with_a_wrong_value_are_refused() {
    let mut sender = PageSender::new(config());
    sender.update([stream("a", 0, 1, 1), stream("b", 1, 1, -1)], NOW);
    assert_eq!((sender.stats(NOW).invalid, sender.stats(NOW).series), (2, 0));
}

#[test]
fn streams_beyond_the_bytes_or_starts_are_refused_and_known_ones_stay() {
    let mut sender = PageSender::new(config());
    let one = 512 + identity_bytes(&series("a", COUNTER));
    sender.set_max_stream_bytes(one + one / 2);
    sender.update([stream(&"long".repeat(one), 1, 1, 1)], NOW);
    assert_eq!(
        (sender.stats(NOW).refused, sender.stats(NOW).series),
        (1, 0),
        "its name counts"
    );
    sender.update([stream("a", 1, 1, 1), stream("b", 1, 1, 1)], NOW);
    assert_eq!((sender.stats(NOW).refused, sender.stats(NOW).series), (2, 1));
    sender.update([stream("a", 1, 2, 2)], NOW);
    assert_eq!(sender.stats(NOW).refused, 2, "a number needs no more bytes");
    let mut sender = PageSender::new(config());
    sender.update((1..=300).map(|start| stream("a", start, start, 1)), NOW);
    assert_eq!((sender.stats(NOW).refused, sender.stats(NOW).series), (44, 256));
}

#[test]
fn a_new_run_leaves_silent_streams_and_ended_starts_behind() {
    let mut sender = PageSender::new(config());
    // A sender restarts 40 times, and another one goes on.
    sender.update((1..=40).map(|start| stream("a", start, start + 1, 1)), NOW);
    drain(&mut sender, NOW);
    let later = NOW + 200 * SECOND;
    sender.update([stream("a", 50, 51, 1), stream("b", 1, 2, 3)], later);
    let sent = drain(&mut sender, later);
    assert_eq!(sender.stats(later).runs, 1);
    assert_eq!(
        sender.stats(later).series,
        2,
        "the newest start and the other sender"
    );
    let epochs: Vec<_> = sent.iter().map(|sent| sent.headers.epoch).collect();
    assert_eq!(epochs.last(), Some(&NOW), "the goodbye of the old run is last");
    let last = sent.iter().rfind(|sent| sent.page > 0).unwrap();
    assert_ne!(last.headers.epoch, NOW);
    assert_eq!(last.totals().len(), 2);
}
