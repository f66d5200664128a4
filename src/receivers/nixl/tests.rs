// SPDX-License-Identifier: Apache-2.0

//! The receiver with real ring files of our own writer.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::Source;
use tidegate_ring::{Category, Event, Layout, Writer, inspect};

use super::FACTORY;
use super::config::NixlConfig;
use crate::batch::Payload;
use crate::component::testing::{Sink, context, eventually, settings};
use crate::component::{Context, Receiver, ReceiverContext};

const TX_BYTES: u16 = 0;
const XFER_TIME: u16 = 6;
const NOT_FOUND: u16 = 11;

fn event(kind: u16, value: u64) -> Event {
    Event {
        kind,
        value,
        timestamp_us: 1_700_000_000_000_000,
    }
}

async fn start(directory: &Path, options: &str, sink: &Arc<Sink>) -> Arc<dyn Receiver> {
    start_in(&context("receivers", "nixl"), directory, options, sink).await
}

/// A receiver of the gateway of `base`.
async fn start_in(base: &Context, directory: &Path, options: &str, sink: &Arc<Sink>) -> Arc<dyn Receiver> {
    let yaml = format!(
        "{{directories: [{}], poll_interval: 1ms{options}}}",
        directory.display()
    );
    let cx = ReceiverContext {
        base: base.clone(),
        ..sink.receiver_context("nixl")
    };
    let receiver = (FACTORY.build)(&settings::<NixlConfig>(&yaml), cx).unwrap();
    receiver.start().await.unwrap();
    receiver
}

async fn stop(receiver: Arc<dyn Receiver>) {
    receiver.stop(Instant::now() + Duration::from_secs(60)).await;
}

/// A reload that builds the receiver again with other options.
async fn rebuild(
    base: &Context,
    old: Arc<dyn Receiver>,
    directory: &Path,
    options: &str,
    sink: &Arc<Sink>,
) -> Arc<dyn Receiver> {
    old.stop(Instant::now() + Duration::from_secs(60)).await;
    start_in(base, directory, options, sink).await
}

/// The source of each batch.
fn sources(sink: &Sink) -> Vec<Arc<Source>> {
    let batches = sink.batches().into_iter();
    let sources = batches.map(|batch| match batch.payload {
        Payload::Events(events) => events.source.clone(),
        _ => panic!("events"),
    });
    sources.collect()
}

#[tokio::test]
async fn rings_of_every_version_are_drained_as_they_come() {
    let directory = tempfile::tempdir().unwrap();
    let sink = Sink::new();
    let receiver = start(directory.path(), "", &sink).await;
    for (count, layout) in (1..).zip(Layout::ALL) {
        let path = directory.path().join(layout.label());
        let mut writer = Writer::create(&path, layout, 64).unwrap();
        writer.push_all(&[event(TX_BYTES, 4096), event(XFER_TIME, 7), event(NOT_FOUND, 1)]);
        eventually("the ring is drained", || sink.items() == 3 * count);
        eventually("its slots are free again", || {
            inspect(&path).unwrap().readable() == 0
        });
    }
    stop(receiver).await;
    let expected = [
        ("agent_tx_bytes", 4096.0),
        ("agent_xfer_time", 7.0),
        ("agent_err_not_found", 1.0),
    ];
    let events = sink.events();
    for three in events.chunks(3) {
        assert!(
            three
                .iter()
                .map(|(name, value)| (name.as_str(), *value))
                .eq(expected),
            "{three:?}"
        );
    }
}

#[tokio::test]
async fn refused_events_stay_in_the_ring_until_they_are_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let sink = Sink::new();
    // On a busy machine, much time may pass before the ring is looked at.
    sink.refuse(usize::MAX);
    let mut writer = Writer::create(directory.path().join("a"), Layout::V4, 8).unwrap();
    writer.push_all(&[event(TX_BYTES, 1), event(TX_BYTES, 2)]);
    let receiver = start(directory.path(), "", &sink).await;
    eventually("it was refused", || sink.refusals_left() < usize::MAX);
    assert_eq!(writer.unread(), 2, "a refused event left the ring");
    sink.refuse(0);
    eventually("it is accepted", || sink.items() == 2);
    stop(receiver).await;
    assert_eq!(writer.unread(), 0);
}

#[tokio::test]
async fn peeking_leaves_the_ring_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let sink = Sink::new();
    let path = directory.path().join("a");
    let mut writer = Writer::create(&path, Layout::V4, 8).unwrap();
    writer.push_all(&[event(TX_BYTES, 1), event(TX_BYTES, 2)]);
    let receiver = start(directory.path(), ", consume: false", &sink).await;
    eventually("the events were seen", || sink.items() == 2);
    stop(receiver).await;
    assert_eq!(inspect(&path).unwrap().readable(), 2);
    assert_eq!(sink.items(), 2, "events were seen twice");
}

#[tokio::test]
async fn only_selected_events_are_handed_on_and_all_are_taken() {
    let directory = tempfile::tempdir().unwrap();
    let sink = Sink::new();
    let mut writer = Writer::create(directory.path().join("a"), Layout::V1, 16).unwrap();
    writer.push_all(&[event(TX_BYTES, 1), event(XFER_TIME, 2), event(NOT_FOUND, 1)]);
    writer.push_named("my_backend_event", Category::Backend, event(0, 9));
    writer.flush();
    let options = ", categories: [TRANSFER, BACKEND], events: ['agent_tx_*', 'my_*']";
    let receiver = start(directory.path(), options, &sink).await;
    eventually("the ring is empty", || writer.unread() == 0);
    stop(receiver).await;
    assert_eq!(
        sink.events(),
        [
            ("agent_tx_bytes".to_owned(), 1.0),
            ("my_backend_event".to_owned(), 9.0)
        ]
    );
}

#[tokio::test]
async fn events_carry_nixls_labels_category_and_status() {
    let directory = tempfile::tempdir().unwrap();
    let sink = Sink::new();
    let mut writer = Writer::create(directory.path().join("agent 7"), Layout::V3, 16).unwrap();
    writer.push_all(&[event(NOT_FOUND, 1)]);
    let receiver = start(directory.path(), ", hostname: gpu-1", &sink).await;
    eventually("the event arrives", || sink.items() == 1);
    stop(receiver).await;
    let batches = sink.batches();
    let crate::batch::Payload::Events(events) = &batches[0].payload else {
        panic!("events")
    };
    let labels = |attributes: &tidegate_engine::Attributes| -> Vec<(String, String)> {
        let text = |v: tidegate_engine::AttributeRef<'_>| v.as_str().unwrap_or_default().to_owned();
        attributes
            .iter()
            .map(|(key, value)| (key.to_string(), text(value)))
            .collect()
    };
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(
        labels(&events.source.attributes),
        [pair("agent_name", "agent 7"), pair("hostname", "gpu-1")]
    );
    let kind = &events.schema.kinds[usize::from(events.kinds[0])];
    assert_eq!(
        labels(&kind.attributes),
        [pair("category", "ERROR"), pair("status", "not_found")]
    );
}

/// A ring of half its capacity a flush, flushed again and again: whatever the timing, nothing may be lost.
#[tokio::test]
async fn every_flush_of_a_full_ring_is_drained_before_the_next() {
    const FLUSHES: u64 = 30;
    let directory = tempfile::tempdir().unwrap();
    let sink = Sink::new();
    let receiver = start(directory.path(), "", &sink).await;
    let mut writer = Writer::create(directory.path().join("a"), Layout::V4, 4096).unwrap();
    let flush: Vec<_> = (0..4095).map(|value| event(TX_BYTES, value)).collect();
    for _ in 0..FLUSHES {
        assert_eq!(writer.push_all(&flush), flush.len(), "the ring was not empty yet");
        eventually("the flush is drained", || writer.unread() == 0);
    }
    stop(receiver).await;
    assert_eq!(sink.items() as u64, FLUSHES * 4095);
    assert_eq!(writer.dropped(), 0);
}

#[tokio::test]
async fn files_that_are_not_rings_are_left_alone_and_become_rings_later() {
    let directory = tempfile::tempdir().unwrap();
    let sink = Sink::new();
    let junk = directory.path().join("junk");
    fs::write(&junk, "not a ring at all, but longer than a header is").unwrap();
    let receiver = start(directory.path(), ", scan_interval: 10ms", &sink).await;
    let mut good = Writer::create(directory.path().join("good"), Layout::V4, 8).unwrap();
    good.push_all(&[event(TX_BYTES, 1)]);
    eventually("the good one is drained", || sink.items() == 1);
    assert_eq!(
        fs::read_to_string(&junk).unwrap(),
        "not a ring at all, but longer than a header is"
    );
    let mut writer = Writer::create(&junk, Layout::V4, 8).unwrap();
    writer.push_all(&[event(TX_BYTES, 2)]);
    eventually("it is a ring now", || sink.items() == 2);
    stop(receiver).await;
}

#[tokio::test]
async fn notices_end_with_the_receiver() {
    let directory = tempfile::tempdir().unwrap();
    let (base, sink) = (context("receivers", "nixl"), Sink::new());
    let receiver = start_in(&base, &directory.path().join("missing"), "", &sink).await;
    eventually("the directory is missing", || {
        !base.shared.notices.list().is_empty()
    });
    stop(receiver).await;
    let left = base.shared.notices.list();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_rebuilt_receiver_goes_on_with_the_sources_of_its_rings() {
    let directory = tempfile::tempdir().unwrap();
    let (base, sink) = (context("receivers", "nixl"), Sink::new());
    let ring = |name| Writer::create(directory.path().join(name), Layout::V4, 8).unwrap();
    let old = start_in(&base, directory.path(), "", &sink).await;
    let mut stays = ring("stays");
    stays.push_all(&[event(TX_BYTES, 1)]);
    eventually("the first ring is drained", || sink.items() == 1);
    let mut goes = ring("goes");
    goes.push_all(&[event(TX_BYTES, 2)]);
    eventually("the second ring is drained", || sink.items() == 2);
    old.stop(Instant::now() + Duration::from_secs(60)).await;
    let before = sources(&sink);
    assert!(
        before.iter().all(|source| !source.lease.is_ended()),
        "a gateway that stops needs them"
    );
    fs::remove_file(directory.path().join("goes")).unwrap();
    let new = start_in(&base, directory.path(), "", &sink).await;
    drop(old);
    stays.push_all(&[event(TX_BYTES, 3)]);
    eventually("the new receiver drains it", || sink.items() == 3);
    assert!(Arc::ptr_eq(&sources(&sink)[2], &before[0]));
    assert!(!before[0].lease.is_ended());
    assert!(before[1].lease.is_ended(), "its ring is gone");
    stop(new).await;
    assert!(before[0].lease.is_ended(), "nobody has taken it");
}

/// A reload that fails after the start of a receiver with another host name.
#[tokio::test]
async fn a_restored_receiver_goes_on_with_the_sources_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let (base, sink) = (context("receivers", "nixl"), Sink::new());
    let mut ring = Writer::create(directory.path().join("a"), Layout::V4, 8).unwrap();
    let old = start_in(&base, directory.path(), "", &sink).await;
    ring.push_all(&[event(TX_BYTES, 1)]);
    eventually("a batch of the first", || sink.items() == 1);
    old.stop(Instant::now() + Duration::from_secs(60)).await;
    let failed = start_in(&base, directory.path(), ", hostname: other", &sink).await;
    ring.push_all(&[event(TX_BYTES, 2)]);
    eventually("a batch of the second", || sink.items() == 2);
    failed.stop(Instant::now() + Duration::from_secs(60)).await;
    let restored = start_in(&base, directory.path(), "", &sink).await;
    ring.push_all(&[event(TX_BYTES, 3)]);
    eventually("a batch of the third", || sink.items() == 3);
    drop((old, failed));
    let all = sources(&sink);
    assert!(Arc::ptr_eq(&all[2], &all[0]));
    assert!(!all[0].lease.is_ended() && all[1].lease.is_ended());
    stop(restored).await;
}

#[tokio::test]
async fn other_labels_and_own_names_begin_other_sources() {
    let directory = tempfile::tempdir().unwrap();
    let (base, sink) = (context("receivers", "nixl"), Sink::new());
    let mut ring = Writer::create(directory.path().join("a"), Layout::V1, 8).unwrap();
    ring.push_all(&[event(TX_BYTES, 1)]);
    let first = start_in(&base, directory.path(), "", &sink).await;
    eventually("a batch of the first", || sink.items() == 1);
    let second = rebuild(&base, first, directory.path(), ", hostname: other", &sink).await;
    ring.push_all(&[event(TX_BYTES, 2)]);
    ring.push_named("my_backend_event", Category::Backend, event(0, 9));
    ring.flush();
    eventually("events of the second", || sink.items() == 3);
    let third = rebuild(&base, second, directory.path(), ", hostname: other", &sink).await;
    ring.push_all(&[event(TX_BYTES, 3)]);
    eventually("a batch of the third", || sink.items() == 4);
    let all = sources(&sink);
    let (first, last) = (&all[0], &all[all.len() - 1]);
    assert!(first.lease.is_ended() && !last.lease.is_ended());
    let second = &all[1];
    assert!(second.id != first.id && second.id != last.id);
    assert!(second.lease.is_ended(), "its kinds may have other numbers now");
    stop(third).await;
}
