// SPDX-License-Identifier: Apache-2.0

//! A stream with three replicas, while the servers that lead it are killed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_cluster::{LeaseRequest, StoreCall, StoreError, StoreMessage, StoreReply};
use tidegate_engine::clock;
use tidegate_nats::NatsEngine;

use crate::kit::{CLUSTER, DEADLINE, Session, message, status_when};
use crate::routed::{RoutedServers, STREAM};
use crate::world::{Producer, Replica, World};

/// Makes a call until the store answers.
async fn answered(session: &mut Session, call: &StoreCall) -> Result<StoreReply, StoreError> {
    let begin = Instant::now();
    loop {
        match session.call(call.clone()).await {
            Err(StoreError::Unavailable(error)) => assert!(begin.elapsed() < DEADLINE, "{error}"),
            result => return result,
        }
    }
}

/// Writes a record, and gives its sequence.
async fn write(session: &mut Session, body: &Bytes, call: StoreCall) -> u64 {
    match answered(session, &call).await {
        Ok(StoreReply::Stored(sequence)) => sequence,
        // An earlier try had its effect, and the answer was lost.
        Err(StoreError::Conflict(Some(current))) if current.message.body == *body => current.sequence,
        result => panic!("{result:?}"),
    }
}

/// Checks that a write with an old sequence is refused, and that the record is this one.
async fn assert_refused(session: &mut Session, call: StoreCall, (body, sequence): (&Bytes, u64)) {
    match answered(session, &call).await {
        Err(StoreError::Conflict(Some(current))) => {
            assert_eq!((&current.message.body, current.sequence), (body, sequence));
        }
        result => panic!("{result:?}"),
    }
}

fn record(body: impl Into<Bytes>, expected: u64) -> StoreCall {
    StoreCall::CompareAndSet(message("r.00.n", body), expected)
}

fn lease(holder: &'static str, expected: u64) -> StoreCall {
    StoreCall::Lease(LeaseRequest {
        message: message("k.leader", holder),
        expected,
        term: Duration::from_hours(1),
    })
}

/// Each writer publishes pages: some replace pages of the round before.
async fn publish(writers: &mut [Session], round: u32, stored: &mut BTreeMap<String, Bytes>) {
    for number in round * 10..round * 10 + 20 {
        for (writer, session) in writers.iter_mut().enumerate() {
            let page = message(&format!("p.00.n{writer}.1.{number}"), format!("{round} {number}"));
            session.publish(&page).await;
            note(stored, page);
        }
    }
}

fn note(stored: &mut BTreeMap<String, Bytes>, message: StoreMessage) {
    stored.insert(message.subject, message.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_keep_what_was_acknowledged_while_leaders_die() {
    let mut servers = RoutedServers::running();
    let engines = [servers.engine(), servers.engine()];
    let mut writers = engines.each_ref().map(Session::open);
    let mut stored = BTreeMap::new();
    publish(&mut writers, 0, &mut stored).await;
    let first: Bytes = "0".into();
    let mut sequence = write(&mut writers[0], &first, record(first.clone(), 0)).await;
    let holder: Bytes = "a".into();
    let mut held = write(&mut writers[0], &holder, lease("a", 0)).await;
    for round in 1..=2 {
        let leader = servers.kill_leader().await;
        publish(&mut writers, round, &mut stored).await;
        let (body, before): (Bytes, _) = (round.to_string().into(), sequence);
        sequence = write(&mut writers[0], &body, record(body.clone(), before)).await;
        assert_refused(&mut writers[1], record("late", before), (&body, sequence)).await;
        assert_refused(&mut writers[1], lease("b", 0), (&holder, held)).await;
        held = write(&mut writers[0], &holder, lease("a", held)).await;
        servers.start(leader);
    }
    note(&mut stored, message("r.00.n", "2"));
    note(&mut stored, message("k.leader", "a"));
    servers.leader().await;
    for engine in [servers.engine(), servers.engine()] {
        let read = Session::open(&engine).everything().await;
        let read = read
            .into_iter()
            .map(|stored| (stored.message.subject, stored.message.body));
        assert_eq!(read.collect::<BTreeMap<_, _>>(), stored);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_on_three_servers_reaches_its_totals_while_leaders_die() {
    let mut servers = RoutedServers::running();
    let mut world = World {
        producers: (0..2)
            .map(|number| Producer::new(servers.engine(), number, number))
            .collect(),
        replicas: ["a", "b"].map(|name| Replica::new(servers.engine(), name)).into(),
    };
    for _ in 0..2 {
        world.grow().await;
        let leader = servers.kill_leader().await;
        world.grow().await;
        servers.start(leader);
    }
    let total = world.total();
    let is_over = |world: &World| {
        let now = clock::now();
        let leading = world
            .replicas
            .iter()
            .filter(|replica| replica.leader.is_leading(now));
        world.show(total) && leading.count() == 1
    };
    world
        .run_until("equal totals and one leader", false, is_over)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_with_one_replica_is_refused_until_it_has_three() {
    let servers = RoutedServers::running();
    let one = NatsEngine::start(servers.config(1), CLUSTER).unwrap();
    Session::open(&one).publish(&message("p.00.n.1.1", "x")).await;
    let three = servers.engine();
    let is_refused =
        |error: &Option<String>| error.as_ref().is_some_and(|error| error.contains("num_replicas"));
    let status = status_when(&three, "refused", |status| is_refused(&status.last_error)).await;
    assert!(!status.is_connected);
    let error = status.last_error.unwrap();
    for part in [
        "is 1, but must be 3",
        "`nats stream edit tidegate_test --replicas=3`",
        "`replicas: 1`",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let client = servers.client().await;
    let stream = client.get_stream(STREAM).await.unwrap();
    let mut config = stream.cached_info().config.clone();
    config.num_replicas = 3;
    client.update_stream(config).await.unwrap();
    status_when(&three, "connected", |status| status.is_connected).await;
    assert_eq!(Session::open(&three).everything().await.len(), 1);
}
