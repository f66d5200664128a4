// SPDX-License-Identifier: Apache-2.0

//! The messages of producers, as other programs and other versions read and write them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_nats::HeaderMap;
use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as OtlpNumber;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Metric};
use prost::Message as _;
use tidegate_cluster::testing::{COUNTER, sender_config, series};
use tidegate_cluster::{
    PageReader, PageSender, ProducerName, ReaderConfig, ReplicaState, SenderConfig, SentItem,
};
use tidegate_engine::{MergeMode, MergedLimits, Point, UnixNanos, Value, clock};

use crate::kit::{CLUSTER, Server, Session};

/// A producer that has published these totals.
async fn publish(server: &Server, name: &str, totals: &[(String, i64)]) -> PageSender {
    let config = SenderConfig {
        max_series: 1000,
        ..sender_config(CLUSTER, ProducerName::new(name).unwrap())
    };
    publish_with(server, config, totals).await
}

async fn publish_with(server: &Server, config: SenderConfig, totals: &[(String, i64)]) -> PageSender {
    let engine = server.engine();
    let mut session = Session::open(&engine);
    let mut sender = PageSender::new(config);
    let now = clock::now();
    let items = totals.iter().map(|(name, total)| {
        let point = Point {
            series: Arc::new(series(name, COUNTER)),
            start: start(*total),
            time: clock::wall(now),
            value: Value::Int(*total),
            exemplars: Vec::new(),
        };
        SentItem::Value(MergeMode::Add, point)
    });
    sender.update(items.collect::<Vec<_>>(), now);
    while let Some((id, call)) = sender.poll(now) {
        let result = session.call(call).await;
        sender.answer(id, result, now);
    }
    sender
}

/// A start time that only the series with this total has.
fn start(total: i64) -> UnixNanos {
    1_700_000_000_000_000_000 + total as u64
}

/// The series of a page: start time and value by name.
fn decode(headers: &HeaderMap, payload: &Bytes, read: &mut BTreeMap<String, (u64, i64)>) {
    assert_eq!(headers.get("Content-Encoding").unwrap().as_str(), "zstd");
    let body = zstd::stream::decode_all(&payload[..]).unwrap();
    let request = ExportMetricsServiceRequest::decode(&body[..]).unwrap();
    let scopes = request
        .resource_metrics
        .into_iter()
        .flat_map(|one| one.scope_metrics);
    for metric in scopes.flat_map(|scope| scope.metrics) {
        let (name, value) = total(metric);
        assert_eq!(read.insert(name, value), None, "a series is there once");
    }
}

/// The one point of a counter.
fn total(metric: Metric) -> (String, (u64, i64)) {
    let Some(Data::Sum(sum)) = metric.data else {
        panic!("{metric:?}");
    };
    assert!(sum.is_monotonic);
    assert_eq!(sum.aggregation_temporality(), AggregationTemporality::Cumulative);
    let [point] = &sum.data_points[..] else {
        panic!("{sum:?}");
    };
    let Some(OtlpNumber::AsInt(value)) = point.value else {
        panic!("{point:?}");
    };
    assert!(point.time_unix_nano > point.start_time_unix_nano);
    (metric.name, (point.start_time_unix_nano, value))
}

#[tokio::test(flavor = "multi_thread")]
async fn another_otlp_decoder_reads_pages_with_their_totals_and_starts() {
    let server = Server::running("");
    let totals: Vec<_> = (1..=300)
        .map(|total| (format!("counter_{total}"), total))
        .collect();
    publish(&server, "node", &totals).await;
    let stream = server.client().await.get_stream("tidegate_test").await.unwrap();
    let mut read = BTreeMap::new();
    let mut pages = 0;
    for sequence in 1..=stream.cached_info().state.last_sequence {
        // A later message has replaced the others.
        let Ok(message) = stream.get_raw_message(sequence).await else {
            continue;
        };
        let is_page = message.subject.starts_with("tg.test.p.") && !message.subject.ends_with(".0");
        if is_page {
            pages += 1;
            decode(&message.headers, &message.payload, &mut read);
        }
    }
    let published = totals
        .iter()
        .map(|(name, total)| (name.clone(), (start(*total), *total)));
    assert_eq!(read, published.collect::<BTreeMap<_, _>>());
    assert_eq!(pages, 2, "256 series in a page");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_newer_version_is_skipped_and_its_producer_named() {
    let server = Server::running("");
    publish(&server, "old", &[("requests".to_owned(), 7)]).await;
    publish(&server, "new", &[("requests".to_owned(), 5)]).await;
    let client = server.client().await;
    let stream = client.get_stream("tidegate_test").await.unwrap();
    let page = stream
        .get_last_raw_message_by_subject("tg.test.p.00.new.*.1")
        .await;
    let mut page = page.unwrap();
    page.headers.insert("tg-v", "2");
    let sent = client.publish_with_headers(page.subject, page.headers, page.payload);
    sent.await.unwrap().await.unwrap();

    let engine = server.engine();
    let mut session = Session::open(&engine);
    let config = ReaderConfig {
        merged: MergedLimits {
            lease_ns: u64::MAX / 4,
            ..MergedLimits::default()
        },
        ..ReaderConfig::new(CLUSTER)
    };
    let mut reader = PageReader::new(config, Vec::new(), &Arc::default()).unwrap();
    let (id, call) = reader.poll().unwrap();
    assert_eq!(session.start(call), id);
    while reader.status(clock::now()).state == ReplicaState::CatchingUp {
        let event = session.next().await.unwrap();
        reader.event(event, clock::now());
    }
    let now = clock::now();
    let status = reader.status(now);
    assert_eq!((status.reporting, status.expected), (2, 2));
    assert_eq!(status.state, ReplicaState::Partial);
    let newer = reader.producers(now).filter(|status| status.counts.newer == 1);
    let names: Vec<_> = newer.map(|status| status.name.as_str().to_owned()).collect();
    assert_eq!(names, ["new"]);
    let mut shown = Vec::new();
    reader
        .merged()
        .read(&mut |reading| shown.push(reading.value.clone()));
    assert_eq!(shown, [Value::Int(7)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_with_another_number_of_partitions_publishes_nothing() {
    let server = Server::running("");
    let totals = [("requests".to_owned(), 7)];
    let first = publish(&server, "first", &totals).await;
    assert_eq!(first.mismatch(), None);
    let config = SenderConfig {
        partitions: 2,
        ..sender_config(CLUSTER, ProducerName::new("other").unwrap())
    };
    let other = publish_with(&server, config, &totals).await;
    let error = other.mismatch().unwrap().to_string();
    assert!(
        error.contains("the cluster has 1: set `partitions: 1`"),
        "{error}"
    );
    let engine = server.engine();
    let read = Session::open(&engine).everything().await;
    let mut subjects = read.iter().map(|stored| &stored.message.subject);
    assert!(subjects.all(|subject| !subject.contains("other")), "{read:?}");
}
