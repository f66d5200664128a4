// SPDX-License-Identifier: Apache-2.0

//! Against an HTTP server: what goes over the wire, and what every kind of answer leads to.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Response;
use tidegate_engine::{Data, Metric, Point, Resource, Scope, Series, Value};

use super::FACTORY;
use crate::batch::{Batch, Points};
use crate::component::Reason;
use crate::delivery::testing::balance_when;
use crate::exporters::testing::{Answer, Bench, Body, Seen, Sink, answer, names_mistakes};
use crate::prom::remote::testing::Request;
use crate::prom::remote::{VERSION_HEADER, Version, WRITTEN_HEADERS};

async fn bench(sink: &Sink, more: &str) -> Bench {
    let options = format!("endpoint: \"http://{}/api/v1/push\"{more}", sink.address());
    Bench::start(&FACTORY, &options).await
}

/// A point of each gauge at a time in milliseconds.
fn gauges(names: &[String], time_ms: u64) -> Batch {
    let (resource, scope) = (Arc::new(Resource::default()), Arc::new(Scope::default()));
    let point = |name: &String| Point {
        series: Arc::new(Series {
            resource: resource.clone(),
            scope: scope.clone(),
            metric: Arc::new(Metric {
                name: name.as_str().into(),
                description: "".into(),
                unit: "".into(),
                data: Data::Gauge,
                metadata: Default::default(),
            }),
            attributes: Default::default(),
        }),
        start: 0,
        time: time_ms * 1_000_000,
        value: Value::Int(time_ms as i64),
        exemplars: Vec::new(),
    };
    Batch::new(Points {
        points: names.iter().map(point).collect(),
    })
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("g{n}")).collect()
}

fn version(seen: &Seen) -> Version {
    Version::of_content_type(seen.header("content-type")).expect("one of the two")
}

fn read(seen: &Seen) -> Request {
    Request::of(version(seen), &seen.message)
}

fn samples(seen: &Seen) -> usize {
    read(seen).series.iter().map(|series| series.samples.len()).sum()
}

fn written(status: u16, samples: usize) -> Response<Body> {
    let mut response = answer(status, "as far as it goes");
    for (name, count) in WRITTEN_HEADERS.into_iter().zip([samples, 0, 0]) {
        response.headers_mut().insert(name, count.into());
    }
    response
}

#[tokio::test]
async fn requests_of_each_version_have_its_headers() {
    let sink = Sink::start(|_, seen| written(204, samples(seen))).await;
    let one = bench(&sink, ", headers: {x-scope-orgid: me}").await;
    one.push(gauges(&names(1), 7));
    balance_when(&one.ledgers[0], |b| b.left == 1).await;
    let two = bench(&sink, ", protobuf_message: io.prometheus.write.v2.Request").await;
    two.push(gauges(&names(1), 8));
    balance_when(&two.ledgers[0], |b| b.left == 1).await;
    let seen = sink.seen();
    let said = |seen: &Seen| {
        ["content-type", VERSION_HEADER, "content-encoding", "user-agent"]
            .map(|name| seen.header(name).to_owned())
    };
    let agent = concat!("tidegate/", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        said(&seen[0]),
        ["application/x-protobuf", "0.1.0", "snappy", agent]
    );
    let content_type = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
    assert_eq!(said(&seen[1]), [content_type, "2.0.0", "snappy", agent]);
    assert_eq!(
        (seen[0].path.as_str(), seen[0].header("x-scope-orgid")),
        ("/api/v1/push", "me")
    );
    assert_eq!(read(&seen[0]).samples("g0{}"), [(7, 7.0)]);
    assert_eq!(read(&seen[1]).samples("g0{}"), [(8, 8.0)]);
    one.stop().await;
    two.stop().await;
}

/// The samples of every series that arrived, in the order of their arrival.
fn arrived(sink: &Sink, is_taken: impl Fn(usize, &Seen) -> bool) -> BTreeMap<String, Vec<i64>> {
    let mut all = BTreeMap::<String, Vec<i64>>::new();
    for (n, seen) in sink.seen().iter().enumerate() {
        for series in read(seen).series.iter().filter(|_| is_taken(n, seen)) {
            let times = series.samples.iter().map(|(time, _, _)| *time);
            all.entry(series.name.clone()).or_default().extend(times);
        }
    }
    all
}

#[tokio::test]
async fn samples_arrive_in_order_and_once_although_shards_fail() {
    // Two of three requests fail at first.
    fn fails(n: usize) -> bool {
        n < 60 && !n.is_multiple_of(3)
    }
    let sink = Sink::start(|n, _| answer(if fails(n) { 503 } else { 204 }, "")).await;
    let bench = bench(&sink, ", sending_queue: {num_consumers: 4}").await;
    let names = names(40);
    for time in 1..=20 {
        bench.push(gauges(&names, time));
    }
    balance_when(&bench.ledgers[0], |b| b.left == 800).await;
    let arrived = arrived(&sink, |n, _| !fails(n));
    assert_eq!(arrived.len(), 40);
    for (series, times) in arrived {
        assert_eq!(times, (1..=20).collect::<Vec<_>>(), "{series}");
    }
    bench.stop().await;
}

#[tokio::test]
async fn what_is_refused_is_found_and_the_rest_passes() {
    let is_bad: fn(&Seen) -> bool = |seen| read(seen).names().contains(&"g13{}");
    let sink = Sink::start(|_, seen| {
        if read(seen).names().contains(&"g13{}") {
            answer(400, "g13 is bad")
        } else {
            answer(200, "")
        }
    })
    .await;
    let bench = bench(&sink, "").await;
    bench.push(gauges(&names(100), 1));
    let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
    assert_eq!(
        (balance.left, balance.dropped[Reason::Rejected as usize]),
        (99, 1)
    );
    let arrived = arrived(&sink, |_, seen| !is_bad(seen));
    assert_eq!(arrived.values().filter(|times| **times == [1]).count(), 99);
    bench.stop().await;
}

#[tokio::test]
async fn a_receiver_that_refuses_everything_is_not_asked_for_every_series() {
    let sink = Sink::start(|_, _| answer(400, "no")).await;
    let bench = bench(&sink, ", max_batch_request_parallelism: 1").await;
    bench.push(gauges(&names(1000), 1));
    let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
    assert_eq!(balance.dropped[Reason::Rejected as usize], 1000);
    assert!(sink.seen().len() <= 65, "{}", sink.seen().len());
    bench.stop().await;
}

#[tokio::test]
async fn requests_respect_the_limits_of_options_and_receiver() {
    let sink = Sink::start(|_, seen| answer(if samples(seen) > 5 { 413 } else { 204 }, "")).await;
    let bench = bench(
        &sink,
        ", max_batch_size_bytes: 2000, max_batch_request_parallelism: 2",
    )
    .await;
    bench.push(gauges(&names(100), 1));
    balance_when(&bench.ledgers[0], |b| b.left == 100).await;
    let seen = sink.seen();
    assert!(seen.iter().all(|seen| seen.message.len() <= 2000));
    assert!(seen.iter().any(|seen| samples(seen) > 5));
    bench.stop().await;
}

#[tokio::test]
async fn samples_that_a_receiver_did_not_write_are_counted_and_not_resent() {
    let sink = Sink::start(|_, seen| written(400, samples(seen) - 1)).await;
    let more = ", protobuf_message: io.prometheus.write.v2.Request, max_batch_request_parallelism: 1";
    let bench = bench(&sink, more).await;
    bench.push(gauges(&names(10), 1));
    let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
    assert_eq!((balance.left, balance.dropped[Reason::Rejected as usize]), (9, 1));
    assert_eq!(sink.seen().len(), 1);
    bench.stop().await;
}

/// Answers 2.0 like receivers that don't know it, and takes 1.0.
async fn old_receivers() -> [Sink; 3] {
    let answers: [Answer; 3] = [
        |_, seen| answer(if version(seen) == Version::Two { 415 } else { 204 }, ""),
        |_, seen| answer(if version(seen) == Version::Two { 400 } else { 204 }, ""),
        // It decodes nothing and notices nothing.
        |_, _| answer(200, ""),
    ];
    let [a, b, c] = answers;
    [Sink::start(a).await, Sink::start(b).await, Sink::start(c).await]
}

#[tokio::test]
async fn auto_falls_back_to_the_first_version_and_stays_there() {
    for sink in old_receivers().await {
        let bench = bench(&sink, ", protobuf_message: auto").await;
        for time in 1..4 {
            bench.push(gauges(&names(30), time));
            balance_when(&bench.ledgers[0], |b| b.left == 30 * time).await;
        }
        let seen = sink.seen();
        let twos = seen.iter().filter(|seen| version(seen) == Version::Two).count();
        assert!((1..=5).contains(&twos), "{twos}");
        let arrived = arrived(&sink, |_, seen| version(seen) == Version::One);
        assert!(arrived.values().all(|times| *times == [1, 2, 3]) && arrived.len() == 30);
        bench.stop().await;
    }
}

#[tokio::test]
async fn without_auto_an_unrecognised_message_does_not_count_as_written() {
    let sink = Sink::start(|_, _| answer(200, "")).await;
    let bench = bench(&sink, ", protobuf_message: io.prometheus.write.v2.Request").await;
    bench.push(gauges(&names(3), 1));
    let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
    assert_eq!((balance.left, balance.dropped[Reason::Rejected as usize]), (0, 3));
    bench.stop().await;
}

#[tokio::test]
async fn a_busy_receiver_is_retried_after_its_delay() {
    let sink = Sink::start(|n, _| match n {
        0 => {
            let mut busy = answer(429, "");
            busy.headers_mut().insert("retry-after", "1".parse().unwrap());
            busy
        }
        _ => answer(204, ""),
    })
    .await;
    let bench = bench(&sink, ", max_batch_request_parallelism: 1").await;
    let begin = std::time::Instant::now();
    bench.push(gauges(&names(2), 1));
    balance_when(&bench.ledgers[0], |b| b.left == 2).await;
    assert!(begin.elapsed().as_secs_f64() >= 1.0);
    bench.stop().await;
}

#[test]
fn mistakes_are_named() {
    let endpoint = "endpoint: \"http://localhost:9090/api/v1/write\"";
    let table = [
        ("{}", "`endpoint` must be specified"),
        (
            &format!("{{{endpoint}, headers: {{Content-Type: x}}}}"),
            "sets this header itself",
        ),
        (
            &format!("{{{endpoint}, external_labels: {{\"a.b\": x}}}}"),
            "not a label name",
        ),
        (
            &format!("{{{endpoint}, convert_histograms_to_nhcb: true}}"),
            "no custom buckets",
        ),
        (
            &format!("{{{endpoint}, sending_queue: {{}}, remote_write_queue: {{}}}}"),
            "can't be combined",
        ),
        (
            &format!("{{{endpoint}, sending_queue: {{storage: file_storage, storage_mode: spill}}}}"),
            "order of samples",
        ),
        (
            &format!("{{{endpoint}, translation_strategy: NoTranslation, add_metric_suffixes: true}}"),
            "contradicts `translation_strategy`",
        ),
    ];
    names_mistakes(&FACTORY, &table.map(|(options, error)| (options, error)));
}

#[tokio::test]
async fn translated_samples_are_on_the_account_until_they_are_written() {
    let sink = Sink::start(|n, _| answer(if n == 0 { 503 } else { 204 }, "")).await;
    let retry = ", retry_on_failure: {initial_interval: 60s}";
    let bench = Bench::build(
        &FACTORY,
        &format!("{{endpoint: \"http://{}/\"{retry}}}", sink.address()),
    )
    .unwrap();
    bench.exporter.start().await.unwrap();
    let memory = bench.shared.memory.clone();
    bench.push(gauges(&names(500), 1));
    let queued = memory.reserved_bytes();
    let holds_more = || !sink.seen().is_empty() && memory.reserved_bytes() > queued + 50_000;
    for _ in 0..6000 {
        if holds_more() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    // The first attempt has failed, and the next one goes on with the rest.
    assert!(holds_more(), "{queued}, then {}", memory.reserved_bytes());
    bench.stop().await;
    drop(bench);
    assert_eq!(memory.reserved_bytes(), 0);
}
