//! The receiver with real store files of our own writer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::{Point, Value};
use tidegate_ring::{DEFAULT_BOUNDS_US, MpStoreWriter, StoreIdentity};

use super::FACTORY;
use super::config::Config;
use crate::batch::Payload;
use crate::component::testing::{Sink, eventually, settings};

const TX_BYTES: u16 = 0;
const XFER_TIME: u16 = 6;

fn points(sink: &Sink) -> Vec<Point> {
    let points = |batch: &crate::batch::Batch| match &batch.payload {
        Payload::Points(points) => points.points.to_vec(),
        _ => panic!("points expected"),
    };
    sink.batches().iter().flat_map(points).collect()
}

fn last(sink: &Sink, name: &str, histogram: bool) -> Option<Value> {
    let is = |point: &&Point| {
        &*point.series.metric.name == name && matches!(point.value, Value::Histogram(_)) == histogram
    };
    points(sink).iter().rfind(is).map(|point| point.value.clone())
}

#[tokio::test]
async fn totals_follow_the_store_and_end_with_the_agent() {
    let directory = tempfile::tempdir().unwrap();
    let sink = Sink::new();
    let yaml = format!(
        "{{directories: [{}], poll_interval: 1ms, liveness_interval: 20ms}}",
        directory.path().display()
    );
    let receiver = (FACTORY.build)(&settings::<Config>(&yaml), sink.receiver_context("nixl_mp")).unwrap();
    receiver.start().await.unwrap();

    let identity = StoreIdentity {
        pid: 7,
        instance: 0,
        agent_name: "a".into(),
        hostname: "h".into(),
        local_rank: Some("3".into()),
    };
    let mut writer = MpStoreWriter::create(directory.path(), &identity, &DEFAULT_BOUNDS_US).unwrap();
    writer.record(TX_BYTES, 100);
    eventually("the first total", || last(&sink, "agent_tx_bytes", false) == Some(Value::Int(100)));
    writer.record(TX_BYTES, 11);
    writer.record(XFER_TIME, 30);
    eventually("the next total", || last(&sink, "agent_tx_bytes", false) == Some(Value::Int(111)));
    eventually("the last value", || last(&sink, "agent_tx_last_bytes", false) == Some(Value::Int(11)));
    eventually("the histogram", || {
        matches!(last(&sink, "agent_xfer_time_us", true), Some(Value::Histogram(h)) if h.count == 1 && h.sum == Some(30.0))
    });
    let sample = points(&sink).pop().unwrap();
    let rank = sample.series.attributes.get("local_rank");
    assert_eq!(rank.and_then(|rank| rank.as_str()), Some("3"));
    assert!(sample.start == 0 || sample.start <= sample.time);

    let seen = sink.items();
    drop(writer);
    eventually("the end of every series", || {
        let ended = points(&sink).iter().filter(|p| p.value == Value::NoRecordedValue).count();
        ended == 21 + 6 + 2
    });
    assert_eq!(sink.items(), seen + 29, "an ended store is not sent again");
    receiver.stop(Instant::now() + Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_refused_total_is_offered_again() {
    let directory = tempfile::tempdir().unwrap();
    let sink: Arc<Sink> = Sink::new();
    sink.refuse(2);
    let yaml = format!("{{directories: [{}], poll_interval: 1ms}}", directory.path().display());
    let receiver = (FACTORY.build)(&settings::<Config>(&yaml), sink.receiver_context("nixl_mp")).unwrap();
    receiver.start().await.unwrap();
    let identity = StoreIdentity {
        pid: 7,
        instance: 0,
        agent_name: "a".into(),
        hostname: "h".into(),
        local_rank: None,
    };
    let mut writer = MpStoreWriter::create(directory.path(), &identity, &DEFAULT_BOUNDS_US).unwrap();
    writer.record(TX_BYTES, 5);
    eventually("the total arrives", || last(&sink, "agent_tx_bytes", false) == Some(Value::Int(5)));
    receiver.stop(Instant::now() + Duration::from_secs(5)).await;
}
