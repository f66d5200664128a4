// SPDX-License-Identifier: Apache-2.0

//! Messages of a stream, and the room for them.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use proptest::prelude::*;
use tokio::io::AsyncReadExt;

use super::super::FACTORY;
use super::super::config::UdsConfig;
use super::super::proto::Kind;
use super::super::silence::{CROWDED, CROWDED_DECLARED, UNDECLARED};
use super::frames::{READ_BYTES, split};
use super::*;
use crate::batch::Signal;
use crate::component::testing::{Sink, context, settings};
use crate::component::{Account, Ceiling};
use crate::net::Stream;

#[test]
fn a_length_beyond_the_limit_or_beyond_a_varint_is_refused() {
    let mut large = BytesMut::from(&[0xff, 0xff, 0x03][..]);
    assert!(matches!(
        split(&mut large, 1000),
        Err(StreamError::TooLarge {
            length: 65_535,
            limit: 1000
        })
    ));
    let mut noise = BytesMut::from(&[0xff; 16][..]);
    assert!(matches!(split(&mut noise, 1000), Err(StreamError::NoLength)));
}

/// A connection's frames, its peer, and the account.
fn frames() -> (Frames, tokio::net::UnixStream, Arc<Account>) {
    let (ours, peer) = tokio::net::UnixStream::pair().unwrap();
    let account = Arc::new(Account::default());
    let frames = Frames {
        stream: Stream::Unix(ours),
        buffer: BytesMut::new(),
        limit: 8 << 20,
        closed: false,
        held: Held::under(Ceiling::Soft, account.clone()),
        went_on: Instant::now(),
        waiting: None,
        arriving: None,
        silence: Silence::new(Arc::default()),
        stopping: CancellationToken::new(),
    };
    (frames, peer, account)
}

#[tokio::test(start_paused = true)]
async fn half_a_message_waits_30_s_however_often_it_is_polled() {
    let (mut frames, mut peer, _) = frames();
    peer.write_all(&[100, 1, 2, 3]).await.unwrap();
    let began = Instant::now();
    let refused = loop {
        // As the signs of life of an open connection do.
        match timeout(Duration::from_secs(10), frames.next()).await {
            Ok(answer) => break answer.unwrap_err(),
            Err(_) => assert!(began.elapsed() < Duration::from_secs(60)),
        }
    };
    assert!(matches!(refused, StreamError::Paused), "{refused}");
    assert!(began.elapsed() >= PAUSES.usual);
}

#[tokio::test(start_paused = true)]
async fn while_there_is_no_room_to_read_a_connection_is_not_silent() {
    let (mut frames, mut peer, account) = frames();
    account.add_limit(crate::component::Limit::of(1 << 20));
    let mut others = Held::under(Ceiling::Soft, account.clone());
    others.try_grow(800 << 10).unwrap();
    peer.write_all(&[4, 1, 2]).await.unwrap();
    for _ in 0..10 {
        let waiting = timeout(Duration::from_secs(10), frames.next()).await;
        assert!(waiting.is_err(), "{waiting:?}");
    }
    drop(others);
    let waiting = timeout(Duration::from_secs(20), frames.next()).await;
    assert!(waiting.is_err(), "half of it came a moment ago: {waiting:?}");
    peer.write_all(&[3, 4]).await.unwrap();
    assert_eq!(frames.next().await.unwrap().unwrap()[..], [1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn half_a_message_loses_its_room_where_memory_is_short() {
    let (mut frames, mut peer, account) = frames();
    peer.write_all(&[100, 1, 2, 3]).await.unwrap();
    let waiting = timeout(2 * PAUSES.while_short, frames.next()).await;
    assert!(waiting.is_err(), "{waiting:?}");
    account.add_limit(crate::component::Limit::of(1 << 20));
    assert!(
        Held::under(Ceiling::Soft, account.clone())
            .try_grow(2 << 20)
            .is_err()
    );
    let refused = timeout(PAUSES.while_short, frames.next())
        .await
        .unwrap()
        .unwrap_err();
    assert!(matches!(refused, StreamError::TooSlow), "{refused}");
    drop(frames);
    assert_eq!(account.reserved_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_with_kinds_waits_for_ever_and_keeps_no_large_buffer() {
    const LARGE_MESSAGE: usize = 1 << 20;
    let (mut frames, mut peer, account) = frames();
    frames.silence.has_declared = true;
    let mut message = Vec::new();
    prost::encoding::encode_varint(LARGE_MESSAGE as u64, &mut message);
    message.resize(message.len() + LARGE_MESSAGE, 7);
    let sending = tokio::spawn(async move {
        peer.write_all(&message).await.unwrap();
        peer
    });
    let frame = frames.next().await.unwrap().unwrap();
    assert_eq!(frame.len(), LARGE_MESSAGE);
    assert!(account.reserved_bytes() >= LARGE_MESSAGE);
    drop(frame);
    let _peer = sending.await.unwrap();
    let waiting = timeout(10 * PAUSES.usual, frames.next()).await;
    assert!(waiting.is_err(), "{waiting:?}");
    assert!(account.reserved_bytes() <= 2 * READ_BYTES && frames.buffer.capacity() <= 2 * READ_BYTES);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_has_come_waits_30_s_for_room() {
    const MESSAGE: usize = 300 << 10;
    let account = Arc::new(Account::default());
    account.add_limit(crate::component::Limit::of(1 << 20));
    let mut others = Held::new(account.clone());
    others.try_grow(700 << 10).unwrap();
    let stopping = CancellationToken::new();
    let mut held = Held::new(account.clone());
    let began = Instant::now();
    let refused = make_room_in(None, &mut held, MESSAGE, &stopping).await.err();
    assert!(
        matches!(refused, Some(StreamError::NoRoom(MESSAGE))),
        "{refused:?}"
    );
    assert_eq!(began.elapsed().as_secs(), LONGEST_HOLD.as_secs());
    stopping.cancel();
    let refused = make_room_in(None, &mut held, MESSAGE, &stopping).await.err();
    assert!(
        matches!(refused, Some(StreamError::StoppedWaiting)),
        "{refused:?}"
    );
    drop(others);
    assert!(make_room_in(None, &mut held, MESSAGE, &stopping).await.is_ok());
    assert_eq!(account.reserved_bytes(), MESSAGE);
}

/// A connection, and the account.
fn serving() -> (Serving, tokio::net::UnixStream, Arc<Account>) {
    let (mut frames, peer, _) = frames();
    let base = context("receivers", "uds");
    let account = base.shared.memory.clone();
    let sink = EventSink::new(
        &base,
        Sink::new().entry(Signal::Metrics),
        Duration::from_secs(300),
    );
    frames.held = sink.hold();
    let serving = Serving {
        stopping: frames.stopping.clone(),
        frames,
        session: Session::new(None, 100, sink.source_timeout),
        declared: sink.hold(),
        max_kinds: 100,
        sink: Arc::new(sink),
        endpoint: "events.sock".into(),
    };
    (serving, peer, account)
}

/// How long it takes until the connection is to end, and why. Signs of life interrupt it as they do in a connection.
async fn silence(frames: &mut Frames) -> (Ended, Duration) {
    let began = Instant::now();
    loop {
        match timeout(Duration::from_millis(700), frames.next()).await {
            Ok(Err(StreamError::Silent(why))) => return (why, began.elapsed()),
            Ok(other) => panic!("{other:?}"),
            Err(_) => assert!(began.elapsed() < Duration::from_secs(600)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_declares_nothing_ends_after_60_s() {
    let (mut frames, _peer, _) = frames();
    let (why, after) = silence(&mut frames).await;
    assert_eq!((why, after.as_secs()), (Ended::Undeclared, UNDECLARED.as_secs()));
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_makes_room_where_others_wait() {
    for (has_declared, expected) in [(false, CROWDED), (true, CROWDED_DECLARED)] {
        let (mut frames, mut peer, _) = frames();
        let crowd = Arc::new(tokio::sync::Notify::new());
        frames.silence = Silence::new(crowd.clone());
        frames.silence.has_declared = has_declared;
        crowd.notify_one();
        let (why, after) = silence(&mut frames).await;
        assert_eq!((why, after.as_secs()), (Ended::Crowded, expected.as_secs()));
        // The reader accepts the bytes that the peer has sent by then.
        peer.write_all(&[1, 7]).await.unwrap();
        frames.close().unwrap();
        assert_eq!(&*frames.next().await.unwrap().unwrap(), &[7]);
        assert!(frames.next().await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn senders_find_a_place_although_others_connect_and_are_silent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events.sock");
    let yaml = format!("stream: {{path: {}, max_connections: 4}}", path.display());
    let sink = Sink::new();
    let receiver = (FACTORY.build)(&settings::<UdsConfig>(&yaml), sink.receiver_context("uds")).unwrap();
    receiver.start().await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(tokio::net::UnixStream::connect(&path).await.unwrap());
    }
    let mut sender = tokio::net::UnixStream::connect(&path).await.unwrap();
    let batch = EventBatch {
        acknowledge: true,
        ..EventBatch::default()
    };
    let message = batch.encode_length_delimited_to_vec();
    sender.write_all(&message).await.unwrap();
    let answered = timeout(3 * CROWDED, sender.read_u8()).await;
    assert!(answered.is_ok_and(|answer| answer.is_ok()));
}

const ATTRIBUTES: usize = 4000;

/// Five events, and a kind of 8 KiB that takes a quarter of a mebibyte when it is decoded.
fn declaration() -> Bytes {
    let kind = Kind {
        name: "a".to_owned(),
        attributes: vec![KeyValue::default(); ATTRIBUTES],
        ..Default::default()
    };
    let batch = EventBatch {
        kinds: vec![kind],
        events: vec![0; 5],
        integers: vec![1; 5],
        ..Default::default()
    };
    batch.encode_to_vec().into()
}

#[tokio::test]
async fn a_short_declaration_has_room_for_its_decoded_form_and_what_is_kept() {
    let (mut serving, _peer, account) = serving();
    let decoded = serving.decode(declaration()).await.unwrap();
    assert!(decoded.decoding.bytes() >= ATTRIBUTES * size_of::<KeyValue>());
    assert!(serving.declared.bytes() > ATTRIBUTES * 100);
    drop(decoded);
    assert_eq!(account.reserved_bytes(), serving.declared.bytes());
    let few = EventBatch {
        events: vec![0; 100],
        integers: vec![1; 100],
        ..Default::default()
    };
    let decoded = serving.decode(few.encode_to_vec().into()).await.unwrap();
    assert_eq!(decoded.decoding.bytes(), 0, "few numbers need none");
}

#[tokio::test(start_paused = true)]
async fn a_declaration_without_room_waits_undecoded_and_its_events_are_counted() {
    const LIMIT: usize = 16 << 20;
    let (mut serving, _peer, account) = serving();
    account.add_limit(crate::component::Limit::of(LIMIT));
    account.hold(LIMIT);
    let began = Instant::now();
    let refused = serving.decode(declaration()).await.err();
    assert!(
        matches!(refused, Some(StreamError::Undecoded { events: 5, .. })),
        "{refused:?}"
    );
    assert_eq!(began.elapsed().as_secs(), LONGEST_HOLD.as_secs());
    assert_eq!(account.reserved_bytes(), LIMIT, "nothing else is there");
    account.release(LIMIT);
    assert!(serving.decode(declaration()).await.is_ok());
}

proptest! {
    #[test]
    fn messages_come_out_as_they_went_in_however_they_are_cut(
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..8),
        cut in 1usize..50,
    ) {
        let mut wire = Vec::new();
        for message in &messages {
            prost::encoding::encode_varint(message.len() as u64, &mut wire);
            wire.extend_from_slice(message);
        }
        let mut buffer = BytesMut::new();
        let mut found = Vec::new();
        for piece in wire.chunks(cut) {
            buffer.extend_from_slice(piece);
            while let Some(frame) = split(&mut buffer, 300).unwrap() {
                found.push(frame.to_vec());
            }
        }
        prop_assert_eq!(found, messages);
        prop_assert!(buffer.is_empty());
    }
}
