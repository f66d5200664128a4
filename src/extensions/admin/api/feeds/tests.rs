// SPDX-License-Identifier: Apache-2.0

//! Tests of the stream of status pages.

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

use super::reader::{ALIVE, publish};
use super::*;
use crate::component::Shared;

fn page(topic: &str, data: &str) -> Event {
    Event::named(topic, data)
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_stream_of_a_reader_that_reads_nothing() {
    let (shared, stopping, feeds) = (Shared::default(), CancellationToken::new(), Feeds::new());
    let (to, mut events) = backlog(&shared, composites::last_word);
    let topics = [&feeds.topics[0], &feeds.topics[1]];
    let reader = feeds.subscribe(&topics);
    let large = page(DEFAULT, &"x".repeat(MAX_BYTES));
    feeds.publish(&topics, vec![large.clone(), large]);
    let stop = stopping.clone();
    let mut publishing = tokio::spawn(async move { publish_until(&stop, reader, to).await });
    // The first page fills the backlog, so that the task waits for the reader.
    let waits = timeout(INTERVAL, &mut publishing).await;
    assert!(waits.is_err());
    stopping.cancel();
    timeout(INTERVAL, publishing).await.unwrap().unwrap();
    assert!(events.next().await.is_some());
    assert!(events.next().await.is_none());
}

/// The next body of a stream, if it comes before the next tick.
async fn body(answer: &mut Answer) -> Option<Bytes> {
    let frame = timeout(INTERVAL, answer.body_mut().frame()).await.ok()??;
    frame.unwrap().into_data().ok()
}

#[tokio::test(start_paused = true)]
async fn readers_share_the_bytes_of_a_page_and_get_only_changes() {
    let (shared, stopping, feeds) = (Shared::default(), CancellationToken::new(), Feeds::new());
    let topics = [&feeds.topics[0], &feeds.topics[1]];
    let open = |_| {
        let (to, events) = backlog(&shared, composites::last_word);
        let (stopping, reader) = (stopping.clone(), feeds.subscribe(&topics));
        tokio::spawn(async move { publish_until(&stopping, reader, to).await });
        pages::events(events)
    };
    let mut streams: Vec<Answer> = (0..20).map(open).collect();
    feeds.publish(&topics, vec![page("one", "1"), page("two", "2")]);
    let mut shared_bodies = Vec::new();
    for stream in &mut streams {
        shared_bodies.push([body(stream).await.unwrap(), body(stream).await.unwrap()]);
    }
    let [one, two] = &shared_bodies[0];
    assert_eq!(&one[..], b"event: one\ndata: 1\n\n");
    for [same_one, same_two] in &shared_bodies {
        assert_eq!(
            [same_one.as_ptr(), same_two.as_ptr()],
            [one.as_ptr(), two.as_ptr()]
        );
    }
    feeds.publish(&topics, vec![page("one", "1"), page("two", "3")]);
    for stream in &mut streams {
        assert_eq!(&body(stream).await.unwrap()[..], b"event: two\ndata: 3\n\n");
    }
    assert_eq!(body(&mut streams[0]).await, None, "no page comes twice");
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_changes_shows_that_it_is_alive() {
    let (shared, feeds) = (Shared::default(), Feeds::new());
    let (to, mut events) = backlog(&shared, composites::last_word);
    let (quiet, other) = (&feeds.topics[0], &feeds.topics[1]);
    let (reader, _other_reader) = (feeds.subscribe(&[quiet]), feeds.subscribe(&[other]));
    tokio::spawn(async move { publish(reader, &to).await });
    // Ticks of other topics wake the reader, and send it nothing.
    for second in 0..ALIVE.as_secs() {
        feeds.publish(&[other], vec![page("other", &second.to_string())]);
        let early = timeout(INTERVAL * 9 / 10, events.next()).await;
        assert!(early.is_err(), "{second} s");
    }
    let alive = timeout(2 * INTERVAL, events.next()).await.unwrap();
    assert_eq!(alive, Some(Event::alive()));
}

#[tokio::test(start_paused = true)]
async fn a_stream_shows_that_it_is_alive_only_after_a_silence() {
    let (shared, feeds) = (Shared::default(), Feeds::new());
    let (to, mut events) = backlog(&shared, composites::last_word);
    let topics = [&feeds.topics[0]];
    let reader = feeds.subscribe(&topics);
    tokio::spawn(async move { publish(reader, &to).await });
    tokio::time::sleep(ALIVE / 2).await;
    let began = Instant::now();
    feeds.publish(&topics, vec![page(DEFAULT, "1")]);
    assert_eq!(events.next().await, Some(page(DEFAULT, "1")));
    for silences in 1..3 {
        assert_eq!(events.next().await, Some(Event::alive()));
        let (least, took) = (ALIVE * silences, began.elapsed());
        assert!(took >= least && took < least + INTERVAL, "{took:?}");
    }
}

#[test]
fn a_page_is_new_only_if_it_differs_and_is_kept_only_for_readers() {
    let feeds = Feeds::new();
    let feed = &feeds.topics[0];
    assert!(feeds.begins());
    assert!(!feeds.begins(), "one task runs");
    let mut reader = feeds.subscribe(&[feed]);
    let newest = &mut reader.topics[0];
    assert_eq!(feeds.without_page().len(), 1);
    for (data, is_new) in [("a", true), ("a", false), ("b", true)] {
        feeds.publish(&[feed], vec![page(DEFAULT, data)]);
        assert_eq!(reader.ticks.has_changed().unwrap(), is_new, "{data}");
        reader.ticks.mark_unchanged();
        assert_eq!(*newest.borrow_and_update(), Some(page(DEFAULT, data)));
    }
    assert!(feeds.without_page().is_empty());
    assert!(!feeds.ends());
    drop(reader);
    assert!(feeds.ends());
    assert!(feed.newest.borrow().is_none());
    assert!(feeds.begins());
}
