// SPDX-License-Identifier: Apache-2.0

//! Elections at an API server.

use std::path::Path;

use serde_json::json;

use super::*;
use crate::testing::FakeApiServer;

/// Short durations. A Lease has whole seconds, so it is free after 1 s at the earliest.
const TIMES: LeaseTimes = LeaseTimes {
    duration: Duration::from_millis(1_000),
    renew_deadline: Duration::from_millis(500),
    retry_period: Duration::from_millis(20),
};

/// Durations in which a busy process always renews. [`until`] gives up long before a Lease of this duration ends.
const LONG_TIMES: LeaseTimes = LeaseTimes {
    duration: Duration::from_secs(120),
    renew_deadline: Duration::from_secs(60),
    retry_period: Duration::from_millis(20),
};

struct Scene {
    server: FakeApiServer,
    directory: tempfile::TempDir,
}

impl Scene {
    async fn new() -> Self {
        let server = FakeApiServer::start().await;
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("config"), server.kubeconfig()).unwrap();
        Self { server, directory }
    }

    fn file(&self) -> std::path::PathBuf {
        Path::new(self.directory.path()).join("config")
    }

    fn elector(&self, identity: &str) -> LeaseElector {
        self.elector_with(identity, TIMES)
    }

    fn elector_with(&self, identity: &str, times: LeaseTimes) -> LeaseElector {
        let options = LeaseOptions {
            namespace: "x".to_owned(),
            name: "l".to_owned(),
            identity: identity.to_owned(),
            kubeconfig_file: Some(self.file()),
            times,
        };
        LeaseElector::start(options, &Arc::default())
    }

    fn lease(&self) -> Value {
        self.server.object("leases", "x", "l").unwrap_or_default()
    }
}

/// Waits for a condition. All of these stand, and at most one of them leads.
async fn until(what: &str, electors: &[&LeaseElector], holds: impl Fn() -> bool) {
    let begun = Instant::now();
    loop {
        electors.iter().for_each(|elector| elector.stand(true));
        let leading = electors.iter().filter(|elector| elector.is_leading());
        assert!(leading.count() <= 1, "{what}: two lead");
        if holds() {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn one_of_several_leads_and_the_next_one_when_it_stops() {
    let scene = Scene::new().await;
    let electors = ["a", "b", "c"].map(|identity| scene.elector_with(identity, LONG_TIMES));
    let all: Vec<_> = electors.iter().collect();
    until("one leads", &all, || all.iter().any(|one| one.is_leading())).await;
    let leader = electors.iter().position(LeaseElector::is_leading).unwrap();
    assert_eq!(scene.lease()["spec"]["leaseTransitions"], 0);
    until("the others know it", &all, || {
        let holder = ["a", "b", "c"][leader];
        all.iter().all(|one| one.holder() == holder)
    })
    .await;
    // It releases the Lease, so the next one need not wait for its end.
    electors[leader].stop().await;
    let others: Vec<_> = all
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != leader)
        .map(|(_, one)| *one)
        .collect();
    until("another leads", &others, || {
        others.iter().any(|one| one.is_leading())
    })
    .await;
    assert_eq!(scene.lease()["spec"]["leaseTransitions"], 1);
}

#[tokio::test]
async fn a_renewal_that_comes_after_the_stop_does_not_keep_the_lease() {
    let scene = Scene::new().await;
    let elector = scene.elector_with("a", LONG_TIMES);
    until("it leads", &[&elector], || elector.is_leading()).await;
    scene.server.delay_writes(Duration::from_millis(200));
    until("it renews", &[&elector], || scene.server.waiting_writes() > 0).await;
    elector.stop().await;
    assert_eq!(scene.lease()["spec"]["holderIdentity"], "");
}

#[tokio::test]
async fn a_release_pauses_after_each_conflict() {
    let scene = Scene::new().await;
    let elector = scene.elector_with("a", LONG_TIMES);
    until("it leads", &[&elector], || elector.is_leading()).await;
    scene.server.refuse_writes();
    let begun = Instant::now();
    elector.stop().await;
    let conflicts = scene.server.conflicts();
    let pauses = begun.elapsed().as_millis() / CONFLICT_PAUSE.as_millis();
    assert!(conflicts > 0 && pauses + 2 >= conflicts as u128, "{conflicts}");
}

#[tokio::test]
async fn of_two_that_write_the_same_version_one_leads() {
    let scene = Scene::new().await;
    // Both read before one of them writes, so both see that the Lease does not exist.
    scene.server.delay_writes(Duration::from_millis(200));
    let electors = [scene.elector("a"), scene.elector("b")];
    let all = [&electors[0], &electors[1]];
    until("one leads", &all, || all.iter().any(|one| one.is_leading())).await;
    until("the writes conflict", &all, || scene.server.conflicts() > 0).await;
    until("it goes on", &all, || scene.server.count("leases/l") > 20).await;
}

#[tokio::test]
async fn a_leader_that_loses_the_server_stops_before_another_begins() {
    let mut scene = Scene::new().await;
    let first = scene.elector("a");
    until("it leads", &[&first], || first.is_leading()).await;
    scene.server.stop();
    until("it stops", &[&first], || !first.is_leading()).await;
    assert!(first.trouble().is_some());
    // The other one reaches the server, and the first one no longer does.
    drop(first);
    scene.server.restart().await;
    let second = scene.elector("b");
    let begun = Instant::now();
    until("the other leads", &[&second], || second.is_leading()).await;
    // It has seen the Lease unchanged for its time.
    assert!(begun.elapsed() >= TIMES.duration, "{:?}", begun.elapsed());
    assert!(second.trouble().is_none());
}

#[tokio::test]
async fn a_process_that_no_longer_stands_gives_the_lease_back() {
    let scene = Scene::new().await;
    let first = scene.elector("a");
    until("it leads", &[&first], || first.is_leading()).await;
    first.stand(false);
    let second = scene.elector("b");
    until("the other leads", &[&second], || second.is_leading()).await;
    assert!(!first.is_leading());
}

#[tokio::test]
async fn labels_of_a_lease_stay_and_other_answers_are_errors() {
    let scene = Scene::new().await;
    let metadata = json!({"name": "l", "namespace": "x", "labels": {"a": "b"}});
    scene
        .server
        .apply_quietly("leases", &json!({"metadata": metadata, "spec": {}}));
    let elector = scene.elector("a");
    until("it leads", &[&elector], || elector.is_leading()).await;
    assert_eq!(scene.lease()["metadata"]["labels"]["a"], "b");
    scene
        .server
        .apply_quietly("leases", &json!({"metadata": metadata, "spec": "?"}));
    until("it stops", &[&elector], || !elector.is_leading()).await;
    let trouble = elector.trouble().unwrap_or_default();
    assert!(trouble.contains("not a Lease"), "{trouble}");
}
