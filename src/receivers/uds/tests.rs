// SPDX-License-Identifier: Apache-2.0

//! Both sockets with real peers, into a sink that refuses on request.

mod datagrams;
mod rebuilt;

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use prost::Message;
use tidegate_engine::{Attributes, Events};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::proto::{EventAck, EventBatch, Instrument, Kind};
use super::*;
use crate::batch::Payload;
use crate::component::testing::{Sink, context, settings};
use crate::component::{Account, Entry, EntryCounts};

struct Gateway {
    sink: Arc<Sink>,
    counts: Arc<EntryCounts>,
    receiver: Arc<dyn Receiver>,
    memory: Arc<Account>,
    dir: tempfile::TempDir,
}

impl Gateway {
    /// `options` go into both blocks.
    async fn start(options: &str) -> Self {
        Self::start_blocks(&["stream", "datagram"], options).await
    }

    async fn start_blocks(blocks: &[&str], options: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let block = |block: &&str| {
            format!(
                "{block}: {{path: {}/{block}.sock, {options}}}",
                dir.path().display()
            )
        };
        let yaml = blocks.iter().map(block).collect::<Vec<_>>().join("\n");
        let sink = Sink::new();
        let (cx, counts) = counted(&sink);
        let memory = cx.base.shared.memory.clone();
        let receiver = (FACTORY.build)(&settings::<UdsConfig>(&yaml), cx).unwrap();
        receiver.start().await.unwrap();
        Self {
            sink,
            counts,
            receiver,
            memory,
            dir,
        }
    }

    fn failed(&self) -> u64 {
        self.counts.failed.load(SeqCst)
    }

    fn path(&self, block: &str) -> PathBuf {
        self.dir.path().join(format!("{block}.sock"))
    }

    async fn stop(&self) {
        self.receiver.stop(Instant::now() + Duration::from_secs(60)).await;
    }

    async fn until(&self, what: &str, done: impl Fn(&Sink) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !done(&self.sink) {
            assert!(Instant::now() < deadline, "timed out waiting until {what}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn all_events(&self) -> Vec<Arc<Events>> {
        let payloads = self.sink.batches().into_iter().map(|batch| batch.payload);
        payloads
            .filter_map(|payload| match payload {
                Payload::Events(events) => Some(events),
                Payload::Encoded(_) | Payload::Points(_) => None,
            })
            .collect()
    }
}

/// A context whose metrics lead to the sink, and its counts.
fn counted(sink: &Arc<Sink>) -> (ReceiverContext, Arc<EntryCounts>) {
    let counts = Arc::<EntryCounts>::default();
    let metrics = Entry::new(Signal::Metrics, sink.clone(), counts.clone());
    let cx = ReceiverContext {
        base: context("receivers", "uds"),
        entries: [Some(metrics), None, None],
    };
    (cx, counts)
}

async fn send(stream: &mut UnixStream, batch: &EventBatch) {
    stream
        .write_all(&batch.encode_length_delimited_to_vec())
        .await
        .unwrap();
}

async fn ack(stream: &mut UnixStream) -> EventAck {
    let length = stream.read_u8().await.unwrap();
    assert!(length < 0x80, "acknowledgements in these tests are short");
    let mut body = vec![0; length.into()];
    stream.read_exact(&mut body).await.unwrap();
    EventAck::decode(&*body).unwrap()
}

fn kind(name: &str, instrument: Instrument) -> Kind {
    Kind {
        name: name.to_owned(),
        instrument: instrument.into(),
        ..Default::default()
    }
}

fn counts(sequence: u64, values: &[u64]) -> EventBatch {
    EventBatch {
        sequence,
        acknowledge: true,
        kinds: vec![kind("requests", Instrument::Counter)],
        events: vec![0; values.len()],
        integers: values.to_vec(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_batch_is_acknowledged_when_the_pipelines_have_it() {
    let gateway = Gateway::start("").await;
    let mut stream = UnixStream::connect(gateway.path("stream")).await.unwrap();
    send(&mut stream, &counts(7, &[1, 2, 3])).await;
    assert_eq!(
        ack(&mut stream).await,
        EventAck {
            sequence: 7,
            accepted: 3,
            ..Default::default()
        }
    );
    let requests = |value| ("requests".to_owned(), value);
    assert_eq!(
        gateway.sink.events(),
        [requests(1.0), requests(2.0), requests(3.0)]
    );
}

#[tokio::test]
async fn a_refused_batch_stays_with_a_sender_that_waits_for_the_answer() {
    let gateway = Gateway::start("").await;
    gateway.sink.refuse(1);
    let mut stream = UnixStream::connect(gateway.path("stream")).await.unwrap();
    send(&mut stream, &counts(1, &[5])).await;
    let refused = ack(&mut stream).await;
    assert_eq!(
        (refused.accepted, refused.rejected, refused.retry_after_ms),
        (0, 0, 1)
    );
    assert_eq!(gateway.sink.items(), 0);
    send(&mut stream, &counts(1, &[5])).await;
    assert_eq!(ack(&mut stream).await.accepted, 1);
    assert_eq!(gateway.sink.items(), 1);
}

#[tokio::test]
async fn without_acknowledgements_a_refused_batch_is_kept_and_pushed_again() {
    let gateway = Gateway::start("").await;
    gateway.sink.refuse(3);
    let mut stream = UnixStream::connect(gateway.path("stream")).await.unwrap();
    for value in 0..4 {
        send(
            &mut stream,
            &EventBatch {
                acknowledge: false,
                ..counts(value, &[value])
            },
        )
        .await;
    }
    gateway
        .until("all batches are in", |sink| sink.items() == 4)
        .await;
    let values: Vec<_> = gateway
        .sink
        .events()
        .into_iter()
        .map(|(_, value)| value)
        .collect();
    assert_eq!(values, [0.0, 1.0, 2.0, 3.0], "in order");
    assert_eq!(gateway.sink.refusals_left(), 0);
}

#[tokio::test]
async fn a_message_of_many_events_is_taken_and_its_kinds_stay_known() {
    let gateway = Gateway::start("").await;
    let mut stream = UnixStream::connect(gateway.path("stream")).await.unwrap();
    // Many events, and more bytes than are decoded on the spot.
    for (sequence, events) in [(1, 20_000), (2, 200_000)] {
        send(&mut stream, &counts(sequence, &vec![1; events])).await;
        assert_eq!(ack(&mut stream).await.accepted, events as u64);
    }
    let known = EventBatch {
        kinds: Vec::new(),
        ..counts(3, &[5])
    };
    send(&mut stream, &known).await;
    assert_eq!(ack(&mut stream).await.accepted, 1);
    gateway.sink.refuse(2);
    let unasked = EventBatch {
        acknowledge: false,
        ..counts(4, &vec![1; 20_000])
    };
    send(&mut stream, &unasked).await;
    gateway
        .until("they are in as well", |sink| sink.items() == 240_001)
        .await;
    let all = gateway.all_events();
    let source = &all[0].source;
    assert!(all.iter().all(|events| events.source.id == source.id));
    assert!(!source.lease.is_ended());
    let many = EventBatch {
        events: vec![9; 20_000],
        ..counts(5, &vec![1; 20_000])
    };
    send(&mut stream, &many).await;
    assert_eq!(ack(&mut stream).await.rejected, 20_000, "none makes sense");
    drop(stream);
    gateway
        .until("the source has ended", |_| source.lease.is_ended())
        .await;
}

#[tokio::test]
async fn events_that_make_no_sense_are_rejected_and_the_rest_taken() {
    let gateway = Gateway::start("").await;
    let mut stream = UnixStream::connect(gateway.path("stream")).await.unwrap();
    send(
        &mut stream,
        &EventBatch {
            events: vec![0, 9],
            ..counts(1, &[1, 2])
        },
    )
    .await;
    let answer = ack(&mut stream).await;
    assert_eq!(
        (answer.accepted, answer.rejected, answer.retry_after_ms),
        (1, 1, 0)
    );
    assert!(answer.message.contains("never declared"), "{}", answer.message);
}

#[tokio::test]
async fn a_wrong_message_ends_the_connection_and_not_the_receiver() {
    let gateway = Gateway::start("").await;
    for noise in [
        &[0xff, 0xff, 0xff, 0xff, 0x7f][..],
        &[0xff; 20],
        &[3, 0xff, 0xff, 0xff],
    ] {
        let mut stream = UnixStream::connect(gateway.path("stream")).await.unwrap();
        stream.write_all(noise).await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0, "closed");
    }
    let mut stream = UnixStream::connect(gateway.path("stream")).await.unwrap();
    send(&mut stream, &counts(1, &[1])).await;
    assert_eq!(ack(&mut stream).await.accepted, 1);
}

#[tokio::test]
async fn what_was_sent_before_the_stop_still_gets_in() {
    let gateway = Gateway::start("").await;
    let mut stream = UnixStream::connect(gateway.path("stream")).await.unwrap();
    let datagram = sender(&gateway.path("datagram"));
    send(&mut stream, &counts(0, &[1])).await;
    assert_eq!(ack(&mut stream).await.accepted, 1);
    for value in 0..100 {
        send(
            &mut stream,
            &EventBatch {
                acknowledge: false,
                ..counts(value, &[value])
            },
        )
        .await;
    }
    datagram.send(b"late:1|c").unwrap();
    gateway.stop().await;
    assert_eq!(gateway.sink.items(), 102);
    assert!(!gateway.path("stream").exists() && !gateway.path("datagram").exists());
    let (events, memory) = (gateway.all_events(), gateway.memory.clone());
    let is_ended = |events: &Arc<Events>| events.source.lease.is_ended();
    assert!(
        !events.iter().any(is_ended),
        "the last exports of processors count them"
    );
    assert!(memory.reserved_bytes() > 0, "what is kept is counted");
    drop(gateway);
    assert!(events.iter().all(is_ended));
    assert_eq!(memory.reserved_bytes(), 0);
}

#[tokio::test]
async fn credentials_become_attributes_of_the_resource() {
    let gateway = Gateway::start("peer_credentials: true").await;
    let mut stream = UnixStream::connect(gateway.path("stream")).await.unwrap();
    send(&mut stream, &counts(1, &[1])).await;
    assert_eq!(ack(&mut stream).await.accepted, 1);
    sender(&gateway.path("datagram")).send(b"x:1|c").unwrap();
    gateway
        .until("the datagram is in", |sink| sink.items() == 2)
        .await;
    let uid = i64::from(rustix::process::getuid().as_raw());
    let expected: Attributes = [
        ("process.pid", i64::from(std::process::id())),
        ("process.user.id", uid),
    ]
    .into_iter()
    .collect();
    for events in gateway.all_events() {
        assert_eq!(events.source.resource.attributes, expected);
    }
}

#[tokio::test]
async fn peers_that_are_not_allowed_are_refused_and_counted() {
    let uid = rustix::process::getuid().as_raw();
    let gateway = Gateway::start(&format!("allowed_uids: [{}]", uid + 1)).await;
    let mut stream = UnixStream::connect(gateway.path("stream")).await.unwrap();
    // It may close before anything is written to it.
    let _ = stream
        .write_all(&counts(1, &[1]).encode_length_delimited_to_vec())
        .await;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer).await;
    assert!(read.is_err() || answer.is_empty());
    sender(&gateway.path("datagram")).send(b"x:1|c").unwrap();
    let failed = || gateway.counts.failed.load(std::sync::atomic::Ordering::Relaxed);
    gateway.until("the datagram is counted", |_| failed() == 1).await;
    let gid = rustix::process::getgid().as_raw();
    for allowed in [
        format!("allowed_uids: [{}, {uid}]", uid + 1),
        format!("allowed_uids: [{}], allowed_gids: [{gid}]", uid + 1),
    ] {
        let gateway = Gateway::start(&allowed).await;
        let mut stream = UnixStream::connect(gateway.path("stream")).await.unwrap();
        send(&mut stream, &counts(1, &[1])).await;
        assert_eq!(ack(&mut stream).await.accepted, 1, "{allowed}");
        sender(&gateway.path("datagram")).send(b"x:1|c").unwrap();
        gateway.until("both are in", |sink| sink.items() == 2).await;
    }
}

#[tokio::test]
async fn a_message_that_can_never_fit_ends_its_connection_and_is_counted() {
    let gateway = Gateway::start("").await;
    gateway.memory.set_default_limit(8 << 20);
    let mut stream = UnixStream::connect(gateway.path("stream")).await.unwrap();
    // A MiB of numbers, which take some 20 MiB as columns.
    let many = counts(1, &vec![1; 500_000]);
    let _ = stream.write_all(&many.encode_length_delimited_to_vec()).await;
    let closed = tokio::time::timeout(Duration::from_secs(60), stream.read(&mut [0])).await;
    assert_eq!(closed.expect("closed").unwrap_or(0), 0);
    gateway
        .until("its events are counted", |_| gateway.failed() == 500_000)
        .await;
    assert_eq!(gateway.memory.reserved_bytes(), 0);
    let mut stream = UnixStream::connect(gateway.path("stream")).await.unwrap();
    send(&mut stream, &counts(1, &[1])).await;
    assert_eq!(ack(&mut stream).await.accepted, 1);
}

#[tokio::test]
async fn what_a_connection_declares_is_on_the_account_until_it_closes() {
    let gateway = Gateway::start("").await;
    let mut stream = UnixStream::connect(gateway.path("stream")).await.unwrap();
    for number in 0..8 {
        let mut batch = counts(number, &[1]);
        batch.source = Some(super::proto::Source {
            scope: Some(InstrumentationScope {
                name: number.to_string().repeat(200_000),
                ..Default::default()
            }),
            ..Default::default()
        });
        send(&mut stream, &batch).await;
        assert_eq!(ack(&mut stream).await.accepted, 1);
    }
    assert!(gateway.memory.reserved_bytes() > 8 * 200_000);
    drop(stream);
    gateway
        .until("all is given back", |_| gateway.memory.reserved_bytes() == 0)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_reads_no_acknowledgements_is_cut_off() {
    let gateway = Gateway::start("").await;
    let mut stream = UnixStream::connect(gateway.path("stream")).await.unwrap();
    let batch = counts(1, &[1]).encode_length_delimited_to_vec();
    // It goes on until its own socket takes no more, and then until it is closed.
    while stream.write_all(&batch).await.is_ok() {}
}

#[tokio::test]
async fn a_stop_waits_for_no_room() {
    let gateway = Gateway::start("").await;
    let mut stream = UnixStream::connect(gateway.path("stream")).await.unwrap();
    send(&mut stream, &counts(1, &[1])).await;
    assert_eq!(ack(&mut stream).await.accepted, 1);
    gateway.memory.set_default_limit(16 << 20);
    gateway.memory.hold(16 << 20);
    send(&mut stream, &counts(2, &vec![1; 100_000])).await;
    let begun = Instant::now();
    gateway.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(20), "before its deadline");
}

fn sender(path: &Path) -> UnixDatagram {
    let socket = UnixDatagram::unbound().unwrap();
    socket.connect(path).unwrap();
    socket
}
