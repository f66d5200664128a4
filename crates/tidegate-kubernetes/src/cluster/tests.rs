// SPDX-License-Identifier: Apache-2.0

mod over_tls;

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::client::{ApiCredentials, SecretText};
use crate::testing::FakeApiServer;

fn pod(namespace: &str, name: &str, label: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace, "labels": {"l": label}}})
}

fn cluster(server: &FakeApiServer) -> Arc<Cluster> {
    let limits = WatchLimits {
        object_bytes: 10_000,
        ..WatchLimits::default()
    };
    let client = ApiClient::new(server.server()).unwrap();
    Cluster::with_limits(client, &Arc::default(), limits)
}

fn shown(watch: &SharedWatch) -> Vec<String> {
    let shown = |object: &Arc<StoredObject>| {
        let metadata = &object.metadata;
        let label = metadata.labels.get("l").unwrap_or_default();
        format!("{}/{}={label}", metadata.namespace, metadata.name)
    };
    watch.snapshot().iter().map(shown).collect()
}

/// Waits for a condition.
async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn has(watch: &SharedWatch, expected: &[&str]) {
    let begun = std::time::Instant::now();
    while shown(watch) != expected {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{:?} is not {expected:?}",
            shown(watch)
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A watch of pods that is up to date.
async fn watched(server: &FakeApiServer) -> Arc<SharedWatch> {
    let watch = cluster(server).watch(Scope::all(ObjectKind::Pod));
    watch.status().wait_for(|status| status.is_synced).await.unwrap();
    eventually("the watch begins", || server.count("watch=1") == 1).await;
    watch
}

#[tokio::test]
async fn a_list_comes_in_pages_and_is_complete_after_the_last() {
    let server = FakeApiServer::start().await;
    server.limit_pages(2);
    for name in ["a", "b", "c", "d", "e"] {
        server.apply_quietly("pods", &pod("x", name, "1"));
    }
    let watch = watched(&server).await;
    assert_eq!(shown(&watch), ["x/a=1", "x/b=1", "x/c=1", "x/d=1", "x/e=1"]);
    assert_eq!(server.count("limit=500"), 3);
    assert_eq!(server.count("continue="), 2);
    assert_eq!(server.count("allowWatchBookmarks=true&resourceVersion=5"), 1);
}

#[tokio::test]
async fn events_change_the_objects() {
    let server = FakeApiServer::start().await;
    let watch = watched(&server).await;
    server.apply("pods", &pod("x", "a", "1"));
    server.apply("pods", &pod("x", "b", "1"));
    has(&watch, &["x/a=1", "x/b=1"]).await;
    server.apply("pods", &pod("x", "a", "2"));
    server.delete("pods", "x", "b");
    has(&watch, &["x/a=2"]).await;
}

#[tokio::test]
async fn a_watch_goes_on_from_the_last_bookmark_after_its_end() {
    let server = FakeApiServer::start().await;
    let watch = watched(&server).await;
    server.apply_quietly("nodes", &pod("", "n", "1"));
    server.bookmark("pods");
    server.apply("pods", &pod("x", "a", "1"));
    has(&watch, &["x/a=1"]).await;
    server.end_watches("pods");
    eventually("it is asked again", || server.count("watch=1") == 2).await;
    assert_eq!(server.count("resourceVersion=2"), 1);
    server.apply("pods", &pod("x", "b", "1"));
    has(&watch, &["x/a=1", "x/b=1"]).await;
    assert_eq!(server.count("limit=500"), 1, "no second list");
}

#[tokio::test]
async fn lost_events_lead_to_a_new_list() {
    let server = FakeApiServer::start().await;
    server.apply_quietly("pods", &pod("x", "gone", "1"));
    let watch = watched(&server).await;
    // In the stream.
    server.delete_quietly("pods", "x", "gone");
    server.apply_quietly("pods", &pod("x", "a", "1"));
    server.send_event(
        "pods",
        "ERROR",
        &json!({"kind": "Status", "code": 410, "message": "too old"}),
    );
    has(&watch, &["x/a=1"]).await;
    eventually("the watch begins again", || server.count("watch=1") == 2).await;
    // As the status of the answer.
    server.delete_quietly("pods", "x", "a");
    server.forget_events();
    server.end_watches("pods");
    has(&watch, &[]).await;
    assert_eq!(server.count("limit=500"), 3);
    // An event that is not JSON.
    eventually("the watch begins again", || server.count("watch=1") == 4).await;
    server.apply_quietly("pods", &pod("x", "b", "1"));
    server.send_bytes("pods", b"{nonsense}\n");
    has(&watch, &["x/b=1"]).await;
}

#[tokio::test]
async fn a_server_that_restarts_is_found_again() {
    let mut server = FakeApiServer::start().await;
    server.apply_quietly("pods", &pod("x", "a", "1"));
    let watch = watched(&server).await;
    server.stop();
    server.apply("pods", &pod("x", "b", "1"));
    assert_eq!(shown(&watch), ["x/a=1"], "the objects stay");
    server.restart().await;
    has(&watch, &["x/a=1", "x/b=1"]).await;
    assert!(watch.status().borrow().is_synced);
}

#[tokio::test]
async fn a_server_that_is_away_at_first_leaves_the_watch_incomplete() {
    let mut server = FakeApiServer::start().await;
    server.stop();
    let watch = cluster(&server).watch(Scope::all(ObjectKind::Pod));
    assert!(!watch.status().borrow().is_synced);
    server.restart().await;
    watch.status().wait_for(|status| status.is_synced).await.unwrap();
    assert!(shown(&watch).is_empty());
}

#[tokio::test]
async fn events_may_come_in_any_pieces() {
    let server = FakeApiServer::start().await;
    let watch = watched(&server).await;
    let mut object = pod("x", "a", "1");
    object["metadata"]["resourceVersion"] = json!("9");
    let line = format!("{}\n\n", json!({"type": "ADDED", "object": object}));
    for piece in line.as_bytes().chunks(10) {
        server.send_bytes("pods", piece);
        tokio::task::yield_now().await;
    }
    has(&watch, &["x/a=1"]).await;
}

#[tokio::test]
async fn an_oversized_object_is_refused_and_the_watch_goes_on() {
    let server = FakeApiServer::start().await;
    server.apply_quietly("pods", &pod("x", "listed", &"y".repeat(20_000)));
    server.apply_quietly("pods", &pod("x", "a", "1"));
    let watch = watched(&server).await;
    assert_eq!(shown(&watch), ["x/a=1"]);
    server.apply("pods", &pod("x", "b", &"y".repeat(200_000)));
    server.apply("pods", &pod("x", "c", "1"));
    has(&watch, &["x/a=1", "x/c=1"]).await;
    assert_eq!(server.count("watch=1"), 1, "it is the same watch");
}

#[tokio::test]
async fn a_token_may_change_while_the_watch_runs() {
    let server = FakeApiServer::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, "one\n").unwrap();
    server.demand("one");
    let mut with_token = server.server();
    with_token.credentials = Some(ApiCredentials::Word(
        "Bearer".into(),
        SecretText::File(path.clone()),
    ));
    let cluster = Cluster::shared(ApiClient::new(with_token).unwrap(), &Arc::default());
    let watch = cluster.watch(Scope::all(ObjectKind::Pod));
    watch.status().wait_for(|status| status.is_synced).await.unwrap();
    server.demand("two");
    eventually("the watch begins", || server.count("watch=1") >= 1).await;
    server.end_watches("pods");
    eventually("the old token is refused", || server.count("watch=1") >= 2).await;
    std::fs::write(&path, "two").unwrap();
    server.apply("pods", &pod("x", "a", "1"));
    has(&watch, &["x/a=1"]).await;
    assert_eq!(server.count("limit=500"), 1);
}

#[tokio::test]
async fn users_of_one_server_share_their_watches() {
    let server = FakeApiServer::start().await;
    let account = Arc::<Account>::default();
    let shared = || Cluster::shared(ApiClient::new(server.server()).unwrap(), &account);
    let [one, two] = [shared(), shared()];
    let watches = [&one, &two, &two].map(|cluster| cluster.watch(Scope::all(ObjectKind::Pod)));
    watches[2]
        .status()
        .wait_for(|status| status.is_synced)
        .await
        .unwrap();
    eventually("the watch begins", || server.count("watch=1") == 1).await;
    assert_eq!(server.requests().len(), 2, "{:?}", server.requests());
    let other = Cluster::shared(ApiClient::new(server.server()).unwrap(), &Arc::default());
    assert!(!Arc::ptr_eq(&one, &other), "its objects are on another account");
    drop(watches);
    let again = one.watch(Scope::all(ObjectKind::Pod));
    again.status().wait_for(|status| status.is_synced).await.unwrap();
    assert_eq!(
        server.count("limit=500"),
        2,
        "the first watch ended with its last user"
    );
}

#[tokio::test]
async fn lists_of_one_kind_come_one_after_the_other() {
    let server = FakeApiServer::start().await;
    let cluster = cluster(&server);
    let scope = |namespace: &str| Scope {
        namespace: Some(namespace.to_owned()),
        ..Scope::all(ObjectKind::Pod)
    };
    server.apply_quietly("pods", &pod("b", "p", "1"));
    let watches = ["a", "b", "c", "d"].map(|name| cluster.watch(scope(name)));
    for watch in &watches {
        watch.status().wait_for(|status| status.is_synced).await.unwrap();
    }
    assert_eq!(shown(&watches[1]), ["b/p=1"]);
    assert!(shown(&watches[0]).is_empty());
    assert_eq!(server.most_lists(), 1);
}
