// SPDX-License-Identifier: Apache-2.0

//! Steps of a replica: times, panics, and what it shows.

use bytes::Bytes;
use tidegate_cluster::{
    PageHeaders, PageKind, PageWriter, ReadScope, RunName, StoreError, StoreMessage, StoredMessage, Subject,
};
use tidegate_engine::Rule;

use super::*;
use crate::component::testing::{Sink, add_cluster, settings};

const MINUTE: Duration = Duration::from_mins(1);

/// A replica that reads, and the number of this call.
fn reading() -> (Replica, CallId) {
    let sink = Sink::new();
    let cx = sink.receiver_context("partials");
    let cluster = add_cluster(&cx.base.shared);
    let settings = settings::<PartialsReceiverConfig>("{cluster: cluster}");
    let config = settings.get::<PartialsReceiverConfig>();
    let table = Table::new("partials", vec![Rule::newest()], config.limits());
    let mut replica = Replica::new(cx.base, &config, cluster, Vec::new(), Arc::new(table)).unwrap();
    let (read, _) = replica.step(ReplicaInput::Tick).reader[0].clone();
    (replica, read)
}

/// The body of a message that panics when it is dropped, as a bug would.
struct Trap;

impl AsRef<[u8]> for Trap {
    fn as_ref(&self) -> &[u8] {
        b"trap"
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        panic!("a test wants this panic");
    }
}

fn trap() -> StoredMessage {
    StoredMessage {
        message: StoreMessage {
            subject: "foreign".to_owned(),
            headers: Vec::new(),
            body: Bytes::from_owner(Trap),
        },
        sequence: 1,
        time: 1,
    }
}

fn heartbeat(cluster: &str) -> StoredMessage {
    let producer = ProducerName::new("a").unwrap();
    let headers = PageHeaders {
        kind: PageKind::Page,
        sequence: 1,
        epoch: 5,
        rules: 0,
        interval: Duration::from_secs(1),
    };
    let body = PageWriter::new(&producer).finish();
    let run = RunName { producer, epoch: 5 };
    let subject = Subject::Page {
        partition: 0,
        run,
        page: 0,
    };
    StoredMessage {
        message: StoreMessage {
            subject: subject.text(cluster),
            headers: headers.write(),
            body,
        },
        sequence: 1,
        time: unix_now(),
    }
}

#[test]
fn a_replica_reads_again_though_a_message_before_the_end_panics() {
    let (mut replica, read) = reading();
    let ended = Err(StoreError::Unavailable("the connection is lost".to_owned()));
    let events = vec![StoreEvent::Read(read, trap()), StoreEvent::Done(read, ended)];
    let calls = replica.step(ReplicaInput::Read(events)).reader;
    // Values may be missing.
    assert_eq!(replica.reader.stats().failed, 1);
    assert!(
        matches!(calls[..], [(next, StoreCall::ReadAll(ReadScope::Everything))] if next != read),
        "{calls:?}"
    );
    // The same for the events of the leader.
    let events = vec![StoreEvent::Read(read, trap())];
    assert!(replica.step(ReplicaInput::Lead(events)).reader.is_empty());
}

#[test]
fn calls_from_before_a_panic_are_made() {
    let call = (CallId(1), StoreCall::ReadAll(ReadScope::Everything));
    let mut due = vec![call.clone()];
    let calls = calls_of(|| Some(due.pop().expect("a test wants this panic")));
    assert_eq!(calls, [call]);
}

#[test]
fn a_read_is_current_as_of_the_time_when_the_store_said_it() {
    let (mut replica, read) = reading();
    let mut lag_of = |waited| {
        let said = Instant::now().checked_sub(waited).unwrap();
        let event = StoreEvent::Current(read, Duration::ZERO, said);
        replica.step(ReplicaInput::Read(vec![event]));
        let status = replica.reader.status(unix_now());
        Duration::from_nanos(status.lag_ns.unwrap())
    };
    // A slow replica took it late. Another one waits behind it.
    assert!(lag_of(2 * MINUTE) >= 2 * MINUTE);
    assert!(lag_of(Duration::ZERO) < MINUTE);
}

#[test]
fn a_step_that_ends_after_the_stop_tells_nobody_of_the_replica() {
    let (mut replica, _) = reading();
    let (shared, path) = (replica.base.shared.clone(), replica.base.path.clone());
    assert!(shared.health.unready().is_some(), "it says so before the stop");
    // As the receiver does.
    *replica.has_stopped().lock() = true;
    shared.health.hold(&path, None);
    replica.cluster.report(&path, None);
    replica.reported = None;
    replica.step(ReplicaInput::Tick);
    assert_eq!(shared.health.unready(), None);
    assert_eq!(replica.cluster.status()["components"], serde_json::json!({}));
}

/// Each tick may find newer messages, and that it is too early for another show.
#[test]
fn values_that_are_shown_for_a_question_keep_readers_coming() {
    let (mut replica, read) = reading();
    let events = vec![
        StoreEvent::Read(read, heartbeat(replica.cluster.name())),
        StoreEvent::Current(read, Duration::ZERO, Instant::now()),
        StoreEvent::Confirmed(read, Duration::ZERO, 1),
    ];
    replica.step(ReplicaInput::Read(events));
    assert_eq!((*replica.confirmed.borrow(), replica.last_show.2), (1, 1));
    let age = unix_now().saturating_sub(replica.shown_as_of);
    assert!(age < nanos(MINUTE), "{age} ns");
}
