// SPDX-License-Identifier: Apache-2.0

//! The options of the receiver, and when it may be read.

mod nodes;

use std::time::Duration;

use tidegate_cluster::local::LocalEngine;
use tidegate_cluster::{ClusterEngine, ReplicaState, ReplicaStatus};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::replica::{rest_after, unready};
use super::*;
use crate::component::services::Services;
use crate::component::testing::{Sink, add_cluster, options, settings};
use crate::component::{Confirm, Shared};
use crate::watch::testing::until;

#[test]
fn series_that_take_long_to_show_are_shown_before_they_are_too_old() {
    let max_lag = Duration::from_secs(5);
    let rest = |millis| rest_after(Duration::from_millis(millis), max_lag).as_millis();
    assert_eq!([rest(10), rest(300), rest(2_000)], [100, 2_500, 4_000]);
}

#[test]
fn only_a_replica_that_is_behind_is_not_ready() {
    for (state, expected) in [
        (ReplicaState::CatchingUp, Some("catching up")),
        (ReplicaState::Stale, Some("stale")),
        (ReplicaState::Partial, None),
        (ReplicaState::Fresh, None),
    ] {
        let status = ReplicaStatus {
            state,
            reporting: 0,
            expected: 0,
            lag_ns: None,
        };
        assert_eq!(unready(&status), expected);
    }
}

#[tokio::test]
async fn a_replica_is_held_until_it_has_read_the_store() {
    let sink = Sink::new();
    let cx = sink.receiver_context("partials");
    let shared = cx.base.shared.clone();
    let cluster = add_cluster(&shared);
    let settings = settings::<PartialsReceiverConfig>("{cluster: cluster, expect: [a]}");
    let receiver = Partials::new(settings.get(), cx).unwrap();
    let error = receiver.start().await.unwrap_err();
    assert!(error.message.contains("does not run"), "{error}");
    cluster.set_engine(Some(Arc::new(LocalEngine::new())));
    receiver.start().await.unwrap();
    assert_eq!(
        shared.health.unready().as_deref(),
        Some("receivers::partials: catching up")
    );
    until(|| shared.health.unready().is_none()).await;
    until(|| cluster.status()["components"] != serde_json::json!({})).await;
    let status = cluster.status()["components"]["receivers::partials"].take();
    assert_eq!(status["missing"], serde_json::json!(["a"]), "{status}");
    assert_eq!(
        cluster.warnings(),
        ["the cluster `test` is partial: 0 of 1 producers report, without a"]
    );
    receiver.stop(Instant::now()).await;
    assert!(shared.health.unready().is_none() && !cluster.is_leading());
    assert!(cluster.warnings().is_empty());
}

#[tokio::test]
async fn a_replica_of_a_gateway_that_stops_answers_nobody() {
    let sink = Sink::new();
    let cx = sink.receiver_context("partials");
    let shared = cx.base.shared.clone();
    add_cluster(&shared).set_engine(Some(Arc::new(LocalEngine::new())));
    let settings = settings::<PartialsReceiverConfig>("{cluster: cluster}");
    let receiver = Partials::new(settings.get(), cx).unwrap();
    receiver.start().await.unwrap();
    until(|| shared.health.unready().is_none()).await;
    shared.health.enter(Phase::Stopping);
    let has_stopped = receiver.has_stopped.lock().clone().expect("it has started");
    receiver.stop(Instant::now()).await;
    assert!(*has_stopped.lock(), "a step that still runs tells nobody");
    let expected = "receivers::partials: stopping";
    assert_eq!(refusal(&shared).await.as_deref(), Some(expected));
}

/// Why a reader gets no values now.
async fn refusal(shared: &Shared) -> Option<String> {
    shared.health.begin_confirmed_read().await.err()
}

#[tokio::test]
async fn readers_wait_until_the_store_confirms_the_values() {
    let sink = Sink::new();
    let cx = sink.receiver_context("partials");
    let shared = cx.base.shared.clone();
    let cluster = add_cluster(&shared);
    let engine = Arc::new(LocalEngine::new());
    cluster.set_engine(Some(engine.clone()));
    let options = "{cluster: cluster, linearizable_reads: true, max_lag: 60s}";
    let settings = settings::<PartialsReceiverConfig>(options);
    let receiver = Partials::new(settings.get(), cx).unwrap();
    receiver.start().await.unwrap();
    until(|| shared.health.unready().is_none()).await;
    let asked = engine.questions().unwrap().asked();
    assert_eq!(*asked.borrow(), 0, "nobody has read");
    assert_eq!(refusal(&shared).await, None);
    assert!(*asked.borrow() > 0, "the store was asked");
    // The replica has ended, and its reader is still there.
    let (shown, reads) = reads_of(&engine);
    drop(shown);
    shared.health.confirm_by("receivers::partials", Some(reads));
    let expected = "receivers::partials: the store does not confirm the values";
    assert_eq!(refusal(&shared).await.as_deref(), Some(expected));
    receiver.stop(Instant::now()).await;
    assert_eq!(refusal(&shared).await, None);
}

/// The reads of a replica, and the last question whose answer it shows.
fn reads_of(engine: &Arc<LocalEngine>) -> (watch::Sender<u64>, Arc<StoreReads>) {
    let shown = watch::Sender::new(0);
    let reads = StoreReads {
        receiver: "partials".to_owned(),
        engine: engine.clone(),
        shown: shown.subscribe(),
        patience: Duration::from_secs(60),
    };
    (shown, Arc::new(reads))
}

#[tokio::test(start_paused = true)]
async fn one_answer_is_for_all_readers_that_wait() {
    const READERS: u64 = 100;
    let engine = Arc::new(LocalEngine::new());
    let (shown, reads) = reads_of(&engine);
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let reads = reads.clone();
        readers.spawn(async move { reads.confirm().await });
    }
    let mut asked = engine.questions().unwrap().asked();
    let last = *asked.wait_for(|asked| *asked >= READERS).await.unwrap();
    shown.send_replace(last);
    let confirmed = readers.join_all().await;
    assert_eq!(confirmed, [true; READERS as usize]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_goes_away_leaves_nothing_behind() {
    let engine = Arc::new(LocalEngine::new());
    let (shown, reads) = reads_of(&engine);
    // It asks again each half second.
    let wait = timeout(Duration::from_secs(2), reads.confirm()).await;
    assert!(wait.is_err(), "nobody answers");
    let asked = engine.questions().unwrap().asked();
    let questions = *asked.borrow();
    assert!(questions > 1);
    // Time passes at once while no task works.
    sleep(Duration::from_secs(10)).await;
    assert_eq!(*asked.borrow(), questions, "nobody asks any more");
    assert_eq!(shown.receiver_count(), 1, "only the reads have one");
    assert_eq!(Arc::strong_count(&reads), 1);
}

#[test]
fn replicas_with_a_store_each_can_not_confirm_values() {
    let sink = Sink::new();
    let cx = sink.receiver_context("partials");
    let services = Services {
        cluster: Some(Arc::new(Cluster::new("test", 1).without_store())),
        ..Services::default()
    };
    cx.base.shared.services.add("cluster".to_owned(), services);
    let settings = settings::<PartialsReceiverConfig>("{cluster: cluster, linearizable_reads: true}");
    let error = Partials::new(settings.get(), cx).err().expect("it is refused");
    assert!(error.message.contains("has no store to ask"), "{error}");
}

#[test]
fn composites_that_can_not_be_merged_are_refused_with_the_reason() {
    let declared = |more: &str| {
        let composite = format!("{{name: a, metric: m, window: 10s, {more}}}");
        options::<PartialsReceiverConfig>(&format!("{{cluster: c, composites: [{composite}]}}"))
    };
    assert!(declared("function: sum").is_ok());
    for (more, expected) in [
        ("function: avg, across: sum", "needs the series of all processes"),
        (
            "function: sum, thresholds: [{above: 1, webhook: {endpoint: 'http://a'}}]",
            "each replica would call",
        ),
    ] {
        let error = declared(more).unwrap_err();
        assert!(error.contains(expected), "{more}: {error}");
    }
    let error = options::<PartialsReceiverConfig>("{cluster: c, expect: ['']}").unwrap_err();
    assert!(error.contains("the name is empty"), "{error}");
}
