// SPDX-License-Identifier: Apache-2.0

//! Pages, as another program reads them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use krafka::Kafka;
use krafka::consumer::{AutoOffsetReset, IsolationLevel};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as OtlpNumber;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Metric};
use prost::Message as _;
use tidegate_cluster::testing::{COUNTER, sender_config, series};
use tidegate_cluster::{PageSender, ProducerName, SenderConfig, SentItem};
use tidegate_engine::{MergeMode, Point, UnixNanos, Value, clock};

use crate::broker::Broker;
use crate::machine::{Machine, PATIENCE, engine};

const CLUSTER: &str = "otlp";
const SERIES: i64 = 300;

/// A start time that only the series with this total has.
fn start(total: i64) -> UnixNanos {
    1_700_000_000_000_000_000 + total as u64
}

/// Publishes the totals 1 to 300.
async fn publish(address: &str) {
    let engine = engine(address, CLUSTER);
    let mut machine = Machine::new(&engine);
    let mut sender = PageSender::new(SenderConfig {
        max_series: 1000,
        ..sender_config(CLUSTER, ProducerName::new("node").unwrap())
    });
    let now = clock::now();
    let items = (1..=SERIES).map(|total| {
        let point = Point {
            series: Arc::new(series(&format!("counter_{total}"), COUNTER)),
            start: start(total),
            time: clock::wall(now),
            value: Value::Int(total),
            exemplars: Vec::new(),
        };
        SentItem::Value(MergeMode::Add, point)
    });
    sender.update(items, now);
    while let Some((id, call)) = sender.poll(now) {
        let result = machine.insist(call).await;
        sender.answer(id, result, now);
    }
}

/// The bodies of the pages with series. The client of Kafka decompresses them.
async fn pages(address: &str) -> BTreeMap<Bytes, Bytes> {
    let kafka = Kafka::builder(address).connect().await.unwrap();
    let consumer = kafka
        .consumer_without_group()
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .enable_auto_commit(false)
        .isolation_level(IsolationLevel::ReadCommitted)
        .build()
        .await
        .unwrap();
    consumer.assign("tidegate.otlp", vec![0]).await.unwrap();
    let (begin, mut pages, mut failure) = (Instant::now(), BTreeMap::new(), None);
    while pages.len() < 2 {
        assert!(begin.elapsed() < PATIENCE, "{} pages, {failure:?}", pages.len());
        let records = match consumer.poll(Duration::from_secs(1)).await {
            Ok(records) => records,
            // A busy broker may answer too late once.
            Err(error) => {
                failure = Some(error);
                continue;
            }
        };
        for record in records {
            let key = record.key.unwrap();
            if key.starts_with(b"tg.otlp.p.") && !key.ends_with(b".0") {
                pages.insert(key, record.value.unwrap());
            }
        }
    }
    pages
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
    (metric.name, (point.start_time_unix_nano, value))
}

#[tokio::test(flavor = "multi_thread")]
async fn another_otlp_decoder_reads_pages_with_their_totals_and_starts() {
    let address = Broker::shared().address();
    publish(&address).await;
    let mut read = BTreeMap::new();
    for body in pages(&address).await.into_values() {
        let request = ExportMetricsServiceRequest::decode(body).unwrap();
        let scopes = request
            .resource_metrics
            .into_iter()
            .flat_map(|one| one.scope_metrics);
        read.extend(scopes.flat_map(|scope| scope.metrics).map(total));
    }
    let published = (1..=SERIES).map(|total| (format!("counter_{total}"), (start(total), total)));
    assert_eq!(read, published.collect::<BTreeMap<_, _>>());
}
