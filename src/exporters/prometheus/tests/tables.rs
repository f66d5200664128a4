// SPDX-License-Identifier: Apache-2.0

//! Attached tables and pushed points as pages show them.

use super::*;
use crate::batch::convert;
use crate::component::Reason;

#[tokio::test]
async fn points_encoded_or_not_are_shown_and_counted_as_absorbed() {
    let rig = Rig::start("").await;
    rig.push(plain(&[point("hits", COUNTER, 3)]));
    rig.push(convert::encode_points(&[point("heat", Data::Gauge, 40)]));
    let page = rig.scrape().await;
    assert!(
        page.contains("\nhits_total{user=\"a\"} 3\n") && page.contains("\nheat{user=\"a\"} 40\n"),
        "{page}"
    );
    let balance = rig.ledger.balance();
    assert_eq!((balance.entered, balance.absorbed), (2, 2));
    rig.stop().await;
}

#[tokio::test]
async fn a_live_table_is_read_at_each_scrape_and_goes_with_its_processor() {
    let rig = Rig::start("").await;
    let table = live_table("processors::aggregate@metrics", 3);
    rig.attach(&table);
    assert!(rig.scrape().await.contains("hits_total{user=\"a\"} 3\n"));
    table.observe(&point("hits", COUNTER, 8), unix_now());
    assert!(
        rig.scrape().await.contains("hits_total{user=\"a\"} 8\n"),
        "nothing was pushed in between"
    );
    drop(table);
    assert_eq!(rig.scrape().await, "");
    rig.stop().await;
}

#[tokio::test]
async fn a_scrape_waits_until_the_page_has_the_tables_of_the_graph() {
    let rig = Rig::listen("").await;
    let table = live_table("processors::aggregate@metrics", 3);
    let handle = TableHandle::new(&table);
    handle.open();
    let shown = async {
        rig.until_awaited().await;
        rig.exporter.show_tables(vec![handle]);
    };
    let (page, ()) = tokio::join!(rig.scrape(), shown);
    assert!(page.contains("hits_total{user=\"a\"} 3\n"), "{page}");
    rig.stop().await;
}

#[tokio::test]
async fn a_scrape_that_waits_for_tables_is_refused_at_the_stop() {
    let rig = Rig::listen("").await;
    let stopped = async {
        rig.until_awaited().await;
        rig.exporter.stop(Instant::now() + Duration::from_secs(10)).await;
    };
    let ((head, body), ()) = tokio::join!(rig.ask("GET /metrics", ""), stopped);
    assert!(head.starts_with("http/1.1 503"), "{head}");
    assert!(head.contains("\r\nretry-after: "), "{head}");
    let body = String::from_utf8(body).unwrap();
    assert!(body.contains("see the log of the gateway"), "{body}");
}

#[tokio::test]
async fn a_table_is_shown_once_it_is_open_and_its_snapshots_are_not_kept() {
    let rig = Rig::start("").await;
    let table = live_table("processors::aggregate@metrics", 3);
    let handle = TableHandle::new(&table);
    rig.exporter.show_tables(vec![handle.clone()]);
    let snapshot = |owner: &str| Batch {
        snapshot_of: Some(owner.into()),
        ..Batch::new(plain(&[point("hits", COUNTER, 2)]))
    };
    rig.push_batch(snapshot("processors::aggregate@metrics"));
    assert_eq!(rig.scrape().await, "");
    handle.open();
    assert!(rig.scrape().await.contains("hits_total{user=\"a\"} 3\n"));
    assert!(rig.exporter.views.own.is_empty());
    rig.push_batch(snapshot("processors::aggregate@metrics/other"));
    assert_eq!(rig.exporter.views.own.len(), 1);
    assert_eq!(rig.ledger.balance().absorbed, 2);
    rig.stop().await;
}

#[tokio::test]
async fn two_live_tables_with_one_series_show_the_first() {
    let rig = Rig::start("").await;
    let (one, two) = (
        live_table("aggregate@metrics/a", 1),
        live_table("aggregate@metrics/b", 2),
    );
    rig.attach(&one);
    rig.attach(&two);
    let page = rig.scrape().await;
    assert!(page.contains("} 1\n") && !page.contains("} 2\n"), "{page}");
    rig.stop().await;
}

#[tokio::test]
async fn what_no_longer_comes_expires_whether_or_not_anyone_scrapes() {
    let rig = Rig::start("metric_expiration: 2s").await;
    rig.push(plain(&[point("hits", COUNTER, 3)]));
    assert_eq!(rig.exporter.views.own.len(), 1);
    let gone = async {
        while !rig.exporter.views.own.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone)
        .await
        .expect("it expires");
    assert_eq!(rig.scrape().await, "");
    rig.stop().await;
}

/// Another expiry, then the first one again.
#[tokio::test]
async fn counters_go_on_when_reloads_change_limits() {
    const DELTA: Data = Data::Sum {
        monotonic: true,
        temporality: Temporality::Delta,
    };
    let first = point("hits", DELTA, 3);
    let later = |number: u64, value| Point {
        start: first.time + number - 1,
        time: first.time + number,
        value: Value::Int(value),
        ..first.clone()
    };
    let before = Rig::start("").await;
    before.push(plain(&[first.clone(), point("heat", Data::Gauge, 40)]));
    let changed = Rig::replacing(&[&before], "metric_expiration: 20m").await;
    let page = changed.scrape().await;
    assert!(
        page.contains("\nhits_total{user=\"a\"} 3\n") && page.contains("\nheat{user=\"a\"} 40\n"),
        "{page}"
    );
    changed.push(plain(&[later(1, 2)]));
    // A push that ends after the stop.
    before.push(plain(&[later(2, 4)]));
    let again = Rig::replacing(&[&changed, &before], "").await;
    again.push(plain(&[later(3, 8)]));
    let page = again.scrape().await;
    assert!(page.contains("\nhits_total{user=\"a\"} 17\n"), "{page}");
    let balance = again.ledger.balance();
    assert_eq!((balance.entered, balance.absorbed), (5, 5));
    again.stop().await;
}

/// A limit for one series, then room for all.
#[tokio::test]
async fn totals_stay_right_when_reloads_change_the_limit_of_series() {
    let all = ["a", "b", "c"].map(|user| {
        let mut hits = point("hits", COUNTER, 5);
        Arc::make_mut(&mut hits.series).attributes = [("user", user)].into_iter().collect();
        hits
    });
    let before = Rig::start("").await;
    before.push(plain(&all));
    let lower = Rig::replacing(&[&before], "max_series: 1").await;
    let page = lower.scrape().await;
    assert!(
        page.contains("hits_total{user=\"a\"} 5\n")
            && page.contains("hits_total{otel_metric_overflow=\"true\"} 10\n")
            && !page.contains("user=\"b\""),
        "{page}"
    );
    let higher = Rig::replacing(&[&lower, &before], "max_series: 10").await;
    let later = all.map(|point| Point {
        time: point.time + 1,
        value: Value::Int(7),
        ..point
    });
    higher.push(plain(&later));
    let page = higher.scrape().await;
    assert!(
        page.contains("hits_total{user=\"a\"} 7\n")
            && page.contains("hits_total{otel_metric_overflow=\"true\"} 14\n")
            && !page.contains("user=\"b\""),
        "{page}"
    );
    higher.stop().await;
}

#[tokio::test]
async fn a_page_whose_limits_stay_keeps_its_table_in_a_reload() {
    let before = Rig::start("").await;
    before.push(plain(&[point("hits", COUNTER, 3)]));
    let after = Rig::replacing(&[&before], "namespace: site").await;
    assert!(Arc::ptr_eq(&before.exporter.views.own, &after.exporter.views.own));
    let page = after.scrape().await;
    assert!(page.contains("\nsite_hits_total{user=\"a\"} 3\n"), "{page}");
    after.stop().await;
}

#[tokio::test]
async fn series_beyond_a_cap_share_one_and_are_counted() {
    for (cap, why) in [
        ("max_series: 1", Overflow::Series),
        ("max_series_per_metric: 1", Overflow::Metric),
    ] {
        let rig = Rig::start(cap).await;
        let other = |user: &str| {
            let mut other = point("hits", COUNTER, 5);
            Arc::make_mut(&mut other.series).attributes = [("user", user)].into_iter().collect();
            other
        };
        rig.push(plain(&[point("hits", COUNTER, 3), other("b"), other("c")]));
        let page = rig.scrape().await;
        assert!(page.contains("hits_total{user=\"a\"} 3\n"), "{page}");
        assert!(
            page.contains("hits_total{otel_metric_overflow=\"true\"} 10\n"),
            "{page}"
        );
        let balance = rig.ledger.balance();
        assert_eq!((balance.entered, balance.absorbed), (3, 3), "nothing is lost");
        let stats = rig.exporter.views.own.stats();
        assert_eq!(stats.overflowed_streams[why as usize], 2, "{cap}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_series_with_an_end_marker_disappears() {
    let rig = Rig::start("").await;
    let (hits, heat) = (point("hits", COUNTER, 3), point("heat", Data::Gauge, 40));
    rig.push(plain(&[hits.clone(), heat.clone()]));
    assert!(rig.scrape().await.contains("hits_total{user=\"a\"} 3\n"));
    let ended = |point: Point| Point {
        time: point.time + 1,
        value: Value::NoRecordedValue,
        ..point
    };
    rig.push(plain(&[ended(hits.clone()), ended(heat)]));
    assert_eq!(rig.scrape().await, "");
    rig.push(plain(&[Point {
        time: hits.time + 2,
        start: hits.time + 2,
        value: Value::Int(1),
        ..hits
    }]));
    let page = rig.scrape().await;
    assert!(
        page.contains("hits_total{user=\"a\"} 1\n"),
        "it may come back: {page}"
    );
    rig.stop().await;
}

#[tokio::test]
async fn deltas_that_may_fall_are_dropped_and_rejected_to_the_sender() {
    let rig = Rig::start("").await;
    let falling = Data::Sum {
        monotonic: false,
        temporality: Temporality::Delta,
    };
    let hits = point("hits", COUNTER, 3);
    let later = Point {
        time: hits.time + 1,
        ..hits.clone()
    };
    let in_flight = point("in_flight", falling, -2);
    for payload in [
        Payload::from(plain(&[hits, in_flight.clone()])),
        convert::encode_points(&[later, in_flight]).into(),
    ] {
        let batch = Batch::new(payload);
        rig.ledger.enter(batch.items());
        let outcome = rig.exporter.push(batch).unwrap();
        assert_eq!(outcome.rejected_items, 1);
        assert_eq!(
            outcome.message,
            "`in_flight`: a sum of deltas that may fall has no total; put an `aggregate` processor before the exporter"
        );
    }
    let balance = rig.ledger.balance();
    assert_eq!(balance.dropped[Reason::Unsupported as usize], 2);
    let page = rig.scrape().await;
    assert!(
        page.contains("hits_total") && !page.contains("in_flight"),
        "{page}"
    );
    rig.stop().await;
}

#[tokio::test]
async fn namespace_constant_labels_and_times_come_out_as_configured() {
    let mut hit = point("hits", COUNTER, 3);
    hit.time = 1_700_000_000_123_456_789;
    let series = Arc::make_mut(&mut hit.series);
    series.attributes = [("user", "a"), ("cluster", "theirs")].into_iter().collect();
    series.resource = Arc::new(Resource {
        attributes: [("service.name", "s"), ("service.instance.id", "i"), ("pod", "p")]
            .into_iter()
            .collect(),
        schema_url: "".into(),
    });
    let written = |page: String| -> Vec<String> {
        let lines = page.lines().filter(|line| !line.starts_with("# HELP "));
        lines.map(str::to_owned).collect()
    };
    let rig =
        Rig::start("namespace: my.site, const_labels: {cluster: \"a\\\"b\"}, send_timestamps: true").await;
    rig.push(plain(std::slice::from_ref(&hit)));
    assert_eq!(
        written(rig.scrape().await),
        [
            "# TYPE my_site_hits_total counter",
            "my_site_hits_total{cluster=\"a\\\"b\",instance=\"i\",job=\"s\",user=\"a\"} 3 1700000000123",
            "# TYPE my_site_target_info gauge",
            "my_site_target_info{instance=\"i\",job=\"s\",pod=\"p\"} 1",
        ]
    );
    rig.stop().await;
    let rig = Rig::start("").await;
    rig.push(plain(&[hit]));
    assert_eq!(
        written(rig.scrape().await)[..2],
        [
            "# TYPE hits_total counter",
            "hits_total{cluster=\"theirs\",instance=\"i\",job=\"s\",user=\"a\"} 3",
        ]
    );
    rig.stop().await;
}
