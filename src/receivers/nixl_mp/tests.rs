// SPDX-License-Identifier: Apache-2.0

//! The receiver with real store files of our own writer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::{Point, Value};
use tidegate_ring::{DEFAULT_BOUNDS_US, MpStoreWriter, StoreIdentity};

use super::config::NixlMpConfig;
use super::{FACTORY, Stores, store};
use crate::batch::{Payload, Signal};
use crate::component::Limit;
use crate::component::testing::{Sink, context, eventually, settings};
use crate::telemetry::testing::recorder;

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
    let receiver =
        (FACTORY.build)(&settings::<NixlMpConfig>(&yaml), sink.receiver_context("nixl_mp")).unwrap();
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
    eventually("the first total", || {
        last(&sink, "agent_tx_bytes", false) == Some(Value::Int(100))
    });
    writer.record(TX_BYTES, 11);
    writer.record(XFER_TIME, 30);
    eventually("the next total", || {
        last(&sink, "agent_tx_bytes", false) == Some(Value::Int(111))
    });
    eventually("the last value", || {
        last(&sink, "agent_tx_last_bytes", false) == Some(Value::Int(11))
    });
    eventually(
        "the histogram",
        || matches!(last(&sink, "agent_xfer_time_us", true), Some(Value::Histogram(h)) if h.count == 1 && h.sum == Some(30.0)),
    );
    let sample = points(&sink).pop().unwrap();
    let rank = sample.series.attributes.get("local_rank");
    assert_eq!(rank.and_then(tidegate_engine::AttributeRef::as_str), Some("3"));
    assert!(sample.start == 0 || sample.start <= sample.time);

    let seen = sink.items();
    drop(writer);
    eventually("the end of every series", || {
        let ended = points(&sink)
            .iter()
            .filter(|p| p.value == Value::NoRecordedValue)
            .count();
        ended == 21 + 6 + 2
    });
    assert_eq!(sink.items(), seen + 29, "an ended store is not sent again");
    receiver.stop(Instant::now() + Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_refused_total_is_offered_again() {
    let directory = tempfile::tempdir().unwrap();
    let sink: Arc<Sink> = Sink::new();
    sink.refuse(2);
    let yaml = format!(
        "{{directories: [{}], poll_interval: 1ms}}",
        directory.path().display()
    );
    let receiver =
        (FACTORY.build)(&settings::<NixlMpConfig>(&yaml), sink.receiver_context("nixl_mp")).unwrap();
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
    eventually("the total arrives", || {
        last(&sink, "agent_tx_bytes", false) == Some(Value::Int(5))
    });
    receiver.stop(Instant::now() + Duration::from_secs(60)).await;
}

#[test]
fn stores_without_room_wait_and_those_that_are_open_are_read() {
    let (recorder, page) = recorder("[]");
    metrics::with_local_recorder(&recorder, || {
        let directory = tempfile::tempdir().unwrap();
        let sink = Sink::new();
        let yaml = format!("{{directories: [{}]}}", directory.path().display());
        let config = settings::<NixlMpConfig>(&yaml).get::<NixlMpConfig>();
        let base = context("receivers", "nixl_mp");
        let memory = base.shared.memory.clone();
        let mut stores = Stores::new(config, base, sink.entry(Signal::Metrics));
        let mut now = Instant::now();
        let mut look = |stores: &mut Stores| {
            now += Duration::from_secs(2);
            let files = stores.watch.scan(now).unwrap();
            stores.adopt(files, now);
            stores.poll(now);
        };
        let create = |pid| {
            let identity = StoreIdentity {
                pid,
                instance: 0,
                agent_name: "a".into(),
                hostname: "h".into(),
                local_rank: None,
            };
            MpStoreWriter::create(directory.path(), &identity, &DEFAULT_BOUNDS_US).unwrap()
        };
        let mut writers: Vec<_> = (1..4).map(create).collect();
        look(&mut stores);
        let of_three = memory.reserved_bytes();
        assert!(of_three > 3 * store::BYTES);
        // A fourth one has room, a fifth one has none: a quarter is added for what the allocator takes.
        memory.add_limit(Limit::of(2 * of_three));
        writers.extend((4..7).map(create));
        look(&mut stores);
        assert_eq!(stores.stores.len(), 4);
        let refused = page.series("tidegate_nixl_mp_rejected_files_total");
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(refused[0].0.contains("reason=\"memory\"") && refused[0].1 == 2.0);
        let unread = || page.series("tidegate_nixl_mp_unread_files")[0].1;
        assert!(unread() == 2.0);
        writers[0].record(TX_BYTES, 5);
        look(&mut stores);
        assert_eq!(last(&sink, "agent_tx_bytes", false), Some(Value::Int(5)));
        memory.remove_limit(Limit::of(2 * of_three));
        look(&mut stores);
        assert_eq!((stores.stores.len(), stores.refused.len()), (6, 0));
        assert!(unread() == 0.0);
        drop(writers);
        for file in std::fs::read_dir(directory.path()).unwrap() {
            let _ = std::fs::remove_file(file.unwrap().path());
        }
        (0..10).for_each(|_| look(&mut stores));
        assert_eq!((stores.stores.len(), memory.reserved_bytes()), (0, 0));
    });
}
