// SPDX-License-Identifier: Apache-2.0

//! Producers that a DaemonSet lets expect, with an API server.

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_kubernetes::testing::FakeApiServer;

use super::*;
use crate::component::Shared;

/// A pod of a DaemonSet in the namespace `x`. Without a node, it waits for the node `wanted`.
fn pod(name: &str, set: &str, node: &str, wanted: &str) -> Value {
    let field = json!({"key": "metadata.name", "operator": "In", "values": [wanted]});
    json!({
        "metadata": {
            "name": name, "namespace": "x",
            "ownerReferences": [{"kind": "DaemonSet", "name": set, "uid": "u", "controller": true}],
        },
        "spec": {
            "nodeName": node,
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [field]}],
            }}},
        },
    })
}

/// A replica of an empty cluster that runs.
struct Scene {
    api: FakeApiServer,
    receiver: Partials,
    shared: Arc<Shared>,
    cluster: Arc<Cluster>,
    _sink: Arc<Sink>,
    _directory: TempDir,
}

impl Scene {
    /// `more` are options beside the DaemonSet `x/agent`.
    async fn start(api: FakeApiServer, more: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        std::fs::write(&path, api.kubeconfig()).unwrap();
        let sink = Sink::new();
        let cx = sink.receiver_context("partials");
        let shared = cx.base.shared.clone();
        let cluster = add_cluster(&shared);
        cluster.set_engine(Some(Arc::new(LocalEngine::new())));
        let yaml = format!(
            "{{cluster: cluster, expect_from: {{daemonset: x/agent, kubeconfig_file: '{}'}}{more}}}",
            path.display()
        );
        let settings = settings::<PartialsReceiverConfig>(&yaml);
        let receiver = Partials::new(settings.get(), cx).unwrap();
        receiver.start().await.unwrap();
        Self {
            api,
            receiver,
            shared,
            cluster,
            _sink: sink,
            _directory: directory,
        }
    }

    fn missing(&self) -> Value {
        self.cluster.status()["components"]["receivers::partials"]["missing"].take()
    }

    fn trouble(&self) -> bool {
        let troubles = self.shared.health.troubles();
        troubles.contains_key("receivers::partials::expect_from")
    }

    fn notices(&self) -> String {
        format!("{:?}", self.shared.notices.list())
    }

    async fn until(&self, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{}, {}, {:?}",
                self.missing(),
                self.notices(),
                self.cluster.warnings()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn until_missing(&self, expected: &[&str]) {
        self.until(|| self.missing() == json!(expected)).await;
    }
}

#[tokio::test]
async fn nodes_with_a_pod_of_the_daemon_set_are_missing_until_they_report() {
    let api = FakeApiServer::start().await;
    api.apply_quietly("pods", &pod("agent-1", "agent", "node-b", "node-b"));
    api.apply_quietly("pods", &pod("agent-2", "agent", "", "node-c"));
    api.apply_quietly("pods", &pod("other-1", "other", "node-d", "node-d"));
    api.apply_quietly("pods", &json!({"metadata": {"name": "job-1", "namespace": "x"}}));
    let scene = Scene::start(api, ", expect: [a]").await;
    scene.until_missing(&["a", "node-b", "node-c"]).await;
    let warning = "the cluster `test` is partial: 0 of 3 producers report, without a, node-b, node-c";
    scene.until(|| scene.cluster.warnings() == [warning]).await;
    // A pod that waited runs. A node comes, and one goes.
    scene
        .api
        .apply("pods", &pod("agent-2", "agent", "node-c", "node-c"));
    scene
        .api
        .apply("pods", &pod("agent-3", "agent", "node-a", "node-a"));
    scene.api.delete("pods", "x", "agent-1");
    scene.until_missing(&["a", "node-a", "node-c"]).await;
    assert_eq!(scene.api.count("/api/v1/namespaces/x/pods?"), 2);
    scene.receiver.stop(Instant::now()).await;
    assert!(scene.cluster.warnings().is_empty());
    let Scene { receiver, shared, .. } = scene;
    drop(receiver);
    let begun = Instant::now();
    while shared.memory.reserved_bytes() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_lost_api_server_keeps_the_nodes_and_is_shown() {
    let api = FakeApiServer::start().await;
    api.apply_quietly("pods", &pod("agent-1", "agent", "node-b", "node-b"));
    let mut scene = Scene::start(api, "").await;
    scene.until_missing(&["node-b"]).await;
    assert!(!scene.trouble());
    scene.api.stop();
    scene.until(|| scene.trouble()).await;
    assert_eq!(scene.missing(), json!(["node-b"]));
    scene.api.delete_quietly("pods", "x", "agent-1");
    scene
        .api
        .apply_quietly("pods", &pod("agent-2", "agent", "node-c", "node-c"));
    scene.api.forget_events();
    scene.api.restart().await;
    scene.until_missing(&["node-c"]).await;
    scene.until(|| !scene.trouble()).await;
}

#[tokio::test]
async fn answers_have_a_warning_until_the_nodes_are_known() {
    let mut api = FakeApiServer::start().await;
    api.apply_quietly("pods", &pod("agent-1", "agent", "node-b", "node-b"));
    api.stop();
    let mut scene = Scene::start(api, "").await;
    let warning = "the cluster `test` may be partial: the nodes of the DaemonSet x/agent are not known";
    scene.until(|| scene.trouble()).await;
    assert_eq!(scene.cluster.warnings(), [warning]);
    scene.api.restart().await;
    scene.until_missing(&["node-b"]).await;
    scene
        .until(|| !scene.cluster.warnings().contains(&warning.to_owned()))
        .await;
}

#[tokio::test]
async fn a_daemon_set_without_pods_and_one_with_too_many_are_named() {
    let api = FakeApiServer::start().await;
    let scene = Scene::start(api, ", max_producers: 1").await;
    scene
        .until(|| scene.notices().contains("x/agent has no pods"))
        .await;
    for node in ["node-a", "node-b", "node-c"] {
        scene.api.apply("pods", &pod(node, "agent", node, node));
    }
    scene.until_missing(&["node-a"]).await;
    scene
        .until(|| scene.notices().contains("2 nodes of the DaemonSet x/agent"))
        .await;
}

#[test]
fn a_daemon_set_needs_a_namespace_and_a_name() {
    for name in ["agent", "x/", "/agent", "x/y/agent"] {
        let yaml = format!("{{cluster: c, expect_from: {{daemonset: {name}}}}}");
        let error = options::<PartialsReceiverConfig>(&yaml).unwrap_err();
        assert!(error.contains("is not a DaemonSet"), "{name}: {error}");
    }
}
