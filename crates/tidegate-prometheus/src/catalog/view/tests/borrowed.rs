// SPDX-License-Identifier: Apache-2.0

//! A replica that starts takes the history of another one.

use tidegate_promql::Patience;

use super::super::borrowed::{Borrowed, HistoryPage, MergedTables, SeriesPosition};
use super::super::millis;
use super::*;
use crate::remote::read::ReadError;

const COUNTER: Data = Data::Sum {
    monotonic: true,
    temporality: Temporality::Cumulative,
};

/// A replica with a merged table and one of its own.
struct Replica {
    view: Arc<View>,
    merged: Arc<Table>,
    local: Arc<Table>,
}

impl Replica {
    fn new() -> Self {
        Self::with_interval(1000)
    }

    fn with_interval(interval_ms: i64) -> Self {
        Self::of(view_with(interval_ms))
    }

    fn of((view, shared): (Arc<View>, Arc<Shared>)) -> Self {
        Self {
            view,
            merged: table(&shared),
            local: table(&shared),
        }
    }

    fn tables(&self) -> MergedTables {
        MergedTables::of(std::slice::from_ref(&self.merged))
    }

    /// Counts and records at each of these seconds.
    fn run(&self, seconds: std::ops::Range<u64>) {
        for second in seconds {
            let now = START + second * SECOND;
            put(&self.merged, "hits", COUNTER, Value::Int(10 * second as i64), now);
            put(&self.local, "own", COUNTER, Value::Int(second as i64), now);
            histogram(&self.merged, second + 1, now);
            record(&self.view, now);
        }
    }

    fn pages(&self) -> Vec<HistoryPage> {
        let (mut pages, mut at) = (Vec::new(), Some(SeriesPosition::default()));
        while let Some(place) = at {
            let page = self
                .view
                .lend(&self.tables(), 0, place, &Patience::default())
                .unwrap();
            at = page.next;
            pages.push(page);
        }
        pages
    }

    fn borrow(&self, other: &Self, second: u64, lag_ms: i64) -> Borrowed {
        let (mut all, now) = (Borrowed::default(), millis(START + second * SECOND));
        let pages = other.pages();
        for page in &pages {
            all += self.borrow_page(now, lag_ms, &page.request).unwrap();
        }
        self.view.extend_history(self.tables(), pages[0].begins.unwrap());
        all
    }

    fn borrow_page(&self, now: i64, lag_ms: i64, request: &[u8]) -> Result<Borrowed, ReadError> {
        self.view.borrow_page(&self.tables(), now, lag_ms, request)
    }

    fn ask(&self, query: &str, second: u64) -> Option<f64> {
        ask(&self.view, query, START + second * SECOND)
    }
}

#[test]
fn a_replica_that_starts_answers_like_the_other_one() {
    let (old, new) = (Replica::new(), Replica::new());
    old.run(0..40);
    new.run(30..40);
    let borrowed = new.borrow(&old, 40, 5000);
    assert!(
        borrowed.series > 5 && borrowed.samples == 24 * borrowed.series,
        "{borrowed:?}"
    );
    assert_eq!(borrowed.omitted_samples, 0);
    for query in [
        "hits_total offset 20s",
        "rate(hits_total[35s])",
        "increase(hits_total[10s] offset 16s)",
        "histogram_count(rate(wait[35s]))",
        "histogram_sum(wait offset 20s)",
        "histogram_quantile(0.5, wait_bucket offset 20s)",
        "wait_count offset 39s",
    ] {
        let expected = old.ask(query, 39);
        assert!(expected.is_some(), "{query}");
        assert_eq!(new.ask(query, 39), expected, "{query}");
    }
    assert_eq!(
        new.ask("count_over_time(hits_total[60s])", 39),
        Some(34.0),
        "a gap of the lag and an interval"
    );
    assert_eq!(new.ask("resets(hits_total[60s])", 39), Some(0.0));
    assert_eq!(
        new.ask("count_over_time(own_total[60s])", 39),
        Some(10.0),
        "not merged"
    );
    let begins = |query: &str| {
        let (_, warnings) = ask_with_notes(&new.view, query, START + 39 * SECOND);
        warnings.before_history().map(|before| before.begins)
    };
    assert_eq!(begins("rate(hits_total[35s])"), None);
    assert_eq!(begins("rate(hits_total[70s])"), Some(millis(START)));
    assert_eq!(begins("rate(own_total[35s])"), Some(millis(START + 30 * SECOND)));
    // Another time gives nothing more.
    assert_eq!(new.borrow(&old, 40, 5000).samples, 0);
    new.run(40..42);
    assert_eq!(new.ask("hits_total offset 20s", 41), Some(210.0));
}

#[test]
fn a_counter_does_not_fall_where_the_history_of_a_replica_ahead_ends() {
    let (old, new) = (Replica::new(), Replica::new());
    old.run(0..40);
    // It shows what the other one showed 4 s ago.
    for second in 30..40 {
        let now = START + second * SECOND;
        put(
            &new.merged,
            "hits",
            COUNTER,
            Value::Int(10 * (second as i64 - 4)),
            now,
        );
        record(&new.view, now);
    }
    new.borrow(&old, 40, 5000);
    assert_eq!(new.ask("resets(hits_total[60s])", 39), Some(0.0));
    assert_eq!(
        new.ask("hits_total offset 20s", 39),
        Some(190.0),
        "of the other one"
    );
    assert_eq!(new.ask("hits_total offset 9s", 39), Some(260.0), "its own");
}

#[test]
fn a_counter_does_not_fall_although_values_are_younger_than_their_ticks() {
    const INTERVAL: u64 = 15 * SECOND;
    let [old, new] = [(); 2].map(|()| Replica::with_interval(15_000));
    let start = START.next_multiple_of(INTERVAL);
    let show = |replica: &Replica, second: u64, now: u64| {
        put(
            &replica.merged,
            "hits",
            COUNTER,
            Value::Int(10 * second as i64),
            now,
        );
        record(&replica.view, now);
    };
    // It reads at the end of each tick, and the other one at the begin, 4 s behind.
    for tick in 0..6 {
        show(&old, 15 * tick + 14, start + (tick + 1) * INTERVAL - SECOND / 10);
    }
    let now = start + 6 * INTERVAL + SECOND / 10;
    show(&new, 90 - 4, now);
    for page in old.pages() {
        new.borrow_page(millis(now), 5000, &page.request).unwrap();
    }
    let asked = |query| ask(&new.view, query, now);
    assert!(asked("count_over_time(hits_total[2m])") > Some(4.0));
    assert_eq!(asked("resets(hits_total[2m])"), Some(0.0));
}

#[test]
fn the_history_begins_at_a_clock_that_was_set_back_before_it() {
    let (old, new) = (Replica::new(), Replica::new());
    old.run(0..40);
    new.run(30..40);
    new.borrow(&old, 40, 5000);
    let begins = |second: u64| {
        let query = "rate(hits_total[35s])";
        let (_, warnings) = ask_with_notes(&new.view, query, START + second * SECOND);
        warnings.before_history().map(|before| before.begins)
    };
    assert_eq!(begins(39), None);
    record(&new.view, START + 20 * SECOND);
    assert_eq!(begins(20), Some(millis(START + 20 * SECOND)));
}

#[test]
fn a_longer_history_begins_after_fetched_samples_that_have_gone() {
    let shared = context("extensions", "admin").shared;
    let view = View::of(&shared);
    let limits = HistoryLimits {
        interval_ms: 1000,
        span_ms: 60_000,
        max_bytes: 256 << 20,
    };
    view.keep_past(KeptPast {
        follows_needs: true,
        ..KeptPast::fixed(limits)
    });
    let (old, new) = (Replica::new(), Replica::of((view, shared)));
    old.run(0..40);
    new.run(30..40);
    new.borrow(&old, 40, 5000);
    new.run(40..90);
    let _need = new.view.need_past(600_000);
    new.run(90..91);
    let query = "rate(hits_total[85s])";
    let (_, warnings) = ask_with_notes(&new.view, query, START + 90 * SECOND);
    let begins = warnings.before_history().map(|before| before.begins);
    assert_eq!(begins, Some(millis(START + 29 * SECOND)));
}

#[test]
fn many_series_come_in_pages_that_each_are_bounded() {
    let (old, new) = (Replica::new(), Replica::new());
    for second in 0..60 {
        let now = START + second * SECOND;
        for n in 0..4000 {
            gauge(
                &old.merged,
                &format!("level_{n}"),
                (n * 7919 + second as i64 * 104_729) % 1_000_003,
                now,
            );
        }
        record(&old.view, now);
    }
    let pages = old.pages();
    assert!(pages.len() > 2, "{}", pages.len());
    assert!(pages.iter().all(|page| page.request.len() < 2 << 20));
    let now = START + 60 * SECOND;
    (0..4000).for_each(|n| gauge(&new.merged, &format!("level_{n}"), 1, now));
    record(&new.view, now);
    let borrowed = new.borrow(&old, 60, 0);
    assert_eq!(
        (borrowed.series, borrowed.samples),
        (4000, 4000 * 58),
        "the first is too old, and the last too new"
    );
}

#[test]
fn series_and_samples_without_a_place_are_counted() {
    let (old, new) = (Replica::new(), Replica::new());
    old.run(0..40);
    let borrowed = new.borrow(&old, 40, 0);
    assert!(
        borrowed.series == 0 && borrowed.omitted_series > 5,
        "{borrowed:?}"
    );
    let now = START + 40 * SECOND;
    put(&new.merged, "hits", COUNTER, Value::Int(400), now);
    record(&new.view, now);
    new.view.bound_past(0);
    let borrowed = new.borrow(&old, 40, 0);
    assert_eq!((borrowed.samples, borrowed.omitted_samples), (0, 39));
}

#[test]
fn a_page_that_is_none_is_refused() {
    let new = Replica::new();
    new.run(0..1);
    for request in [&b"\x0a\xff\xff\xff"[..], b"\x0a\x02\x0a\x7f", b"<html>"] {
        assert!(new.borrow_page(0, 0, request).is_err(), "{request:?}");
    }
    for text in ["", "1", "1.2.3", "-1.2", "a.b", "99999999999.1"] {
        assert!(text.parse::<SeriesPosition>().is_err(), "{text}");
    }
    assert_eq!("3.256".parse::<SeriesPosition>().unwrap().to_string(), "3.256");
    let beyond = "4000000000.4000000000".parse().unwrap();
    let page = new
        .view
        .lend(&new.tables(), 0, beyond, &Patience::default())
        .unwrap();
    assert!(page.request.is_empty() && page.next.is_none());
}
