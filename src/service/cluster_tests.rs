// SPDX-License-Identifier: Apache-2.0

//! Producers and replicas of one cluster in one process, each with a runtime of its own.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use tidegate_cluster::ClusterEngine;
use tidegate_cluster::local::LocalEngine;
use tokio::runtime::{Builder, Runtime};

use super::Running;
use super::testing::{DRAIN, graph, plan};
use crate::component::Shared;
use crate::component::testing::{eventually, free_port};
use crate::net::Endpoint;
use crate::net::pages::testing::fetch;

/// A gateway with a runtime of its own.
struct TestGateway {
    runtime: Runtime,
    running: Running,
    shared: Arc<Shared>,
}

impl TestGateway {
    fn start(yaml: &str, engine: &Arc<dyn ClusterEngine>) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let shared = Arc::new(Shared::default());
        let graph = graph(&plan(yaml), &shared);
        for (_, cluster) in shared.services.clusters() {
            cluster.set_engine(Some(engine.clone()));
        }
        let running = runtime
            .block_on(Running::start(graph, shared.clone(), DRAIN))
            .unwrap();
        Self {
            runtime,
            running,
            shared,
        }
    }

    /// Ends without a goodbye.
    fn kill(self) {
        self.runtime.shutdown_background();
    }

    fn stop(self) {
        self.runtime.block_on(self.running.stop(DRAIN));
    }
}

const COMPOSITES: &str = "[{name: recent_hits, metric: hits, function: sum, window: 60s}]";

fn producer(directory: &Path, name: &str, engine: &Arc<dyn ClusterEngine>) -> TestGateway {
    let socket = directory.join(name);
    // A process that was killed leaves its socket.
    let _ = std::fs::remove_file(&socket);
    let yaml = format!(
        "extensions: {{cluster: {{name: test, engine: {{local: {{}}}}}}}}
receivers: {{uds: {{datagram: {{path: \"{}\"}}}}}}
processors:
  composite: {{composites: {COMPOSITES}}}
  aggregate: {{rules: [{{match: {{name: hits}}, by: []}}, {{match: {{name: depth}}, by: [], aggregation: sum}}]}}
exporters: {{partials: {{cluster: cluster, producer: {name}, interval: 100ms}}}}
service:
  extensions: [cluster]
  pipelines: {{metrics: {{receivers: [uds], processors: [composite, aggregate], exporters: [partials]}}}}",
        socket.display()
    );
    TestGateway::start(&yaml, engine)
}

/// A replica, with its admin endpoint and its page.
struct TestReplica {
    gateway: TestGateway,
    admin: Endpoint,
    page: Endpoint,
}

fn free_endpoint() -> Endpoint {
    Endpoint::Tcp {
        host: "127.0.0.1".to_owned(),
        port: free_port(),
    }
}

impl TestReplica {
    fn start(engine: &Arc<dyn ClusterEngine>) -> Self {
        let (admin, page) = (free_endpoint(), free_endpoint());
        let yaml = format!(
            "extensions:
  cluster: {{name: test, engine: {{local: {{}}}}}}
  admin: {{endpoint: \"{admin}\"}}
receivers: {{partials: {{cluster: cluster, expect: [a, b], composites: {COMPOSITES}}}}}
exporters: {{prometheus: {{endpoint: \"{page}\"}}}}
service:
  extensions: [cluster, admin]
  pipelines: {{metrics: {{receivers: [partials], exporters: [prometheus]}}}}"
        );
        Self {
            gateway: TestGateway::start(&yaml, engine),
            admin,
            page,
        }
    }

    fn get(&self, endpoint: &Endpoint, path: &str) -> (u16, String) {
        self.gateway.runtime.block_on(fetch(endpoint, "GET", path))
    }

    fn data(&self, path: &str) -> Value {
        let (status, body) = self.get(&self.admin, path);
        assert_eq!(status, 200, "{body}");
        let mut answer: Value = serde_json::from_str(&body).unwrap();
        answer["data"].take()
    }

    /// The value of a query with one element; `None`: there is none.
    fn value(&self, query: &str) -> Option<f64> {
        let (status, body) = self.get(&self.admin, &format!("/api/v1/query?query={query}"));
        // On a busy machine a replica may lag for a moment.
        if status == 503 {
            return None;
        }
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        let value = answer["data"]["result"][0]["value"][1].as_str()?;
        Some(value.parse().unwrap())
    }

    fn is_ready(&self) -> bool {
        self.get(&self.admin, "/-/ready").0 == 200
    }

    fn cluster(&self) -> Value {
        self.data("/api/v1/status/cluster")["cluster"].take()
    }
}

fn hit(directory: &Path, producer: &str, times: usize) {
    let socket = UnixDatagram::unbound().unwrap();
    socket.connect(directory.join(producer)).unwrap();
    socket.send(format!("hits:{times}|c").as_bytes()).unwrap();
}

#[test]
fn replicas_show_equal_totals_over_the_restart_of_a_producer() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let engine: Arc<dyn ClusterEngine> = Arc::new(LocalEngine::new());
    let (first, second) = (
        producer(directory, "a", &engine),
        producer(directory, "b", &engine),
    );
    let replicas = [TestReplica::start(&engine), TestReplica::start(&engine)];
    eventually("both replicas are ready", || {
        replicas.iter().all(TestReplica::is_ready)
    });
    let all_show = |query: &str, value: f64| {
        eventually(&format!("both replicas show {query} = {value}"), || {
            replicas.iter().all(|replica| replica.value(query) == Some(value))
        });
    };
    hit(directory, "a", 3);
    hit(directory, "b", 4);
    all_show("hits_total", 7.0);
    all_show("recent_hits", 7.0);
    first.kill();
    let first = producer(directory, "a", &engine);
    hit(directory, "a", 5);
    all_show("hits_total", 12.0);
    eventually("both pages show it", || {
        let mut pages = replicas
            .iter()
            .map(|replica| replica.get(&replica.page, "/metrics").1);
        pages.all(|page| page.contains("\nhits_total 12\n"))
    });
    eventually("one replica leads", || {
        let leads = |replica: &&TestReplica| replica.cluster()["leading"] == true;
        replicas.iter().filter(leads).count() == 1
    });
    // The status is renewed once a second.
    eventually("the status has both producers and both runs of one", || {
        let status = replicas[0].cluster()["components"]["receivers::partials"].take();
        let runs = |at: usize| status["producers"][at]["runs"].as_array().map(Vec::len);
        let name = |at: usize| status["producers"][at]["name"].clone();
        (name(0), runs(0)) == ("a".into(), Some(2)) && (name(1), runs(1)) == ("b".into(), Some(1))
    });

    second.stop();
    first.stop();
    // The totals of ended runs stay.
    all_show("hits_total", 12.0);
    for replica in replicas {
        replica.gateway.stop();
    }
}

#[test]
fn a_replica_without_its_store_answers_503_and_says_why() {
    let engine: Arc<dyn ClusterEngine> = Arc::new(LocalEngine::new());
    let replica = TestReplica::start(&engine);
    eventually("the replica is ready", || replica.is_ready());
    let begun = Instant::now();
    replica
        .gateway
        .shared
        .health
        .hold("receivers::other", Some("catching up"));
    for (endpoint, path) in [
        (&replica.admin, "/-/ready"),
        (&replica.admin, "/api/v1/query?query=1"),
        (&replica.admin, "/api/v1/composites"),
        (&replica.page, "/metrics"),
    ] {
        let (status, body) = replica.get(endpoint, path);
        assert_eq!(status, 503, "{path}: {body}");
        assert!(body.contains("receivers::other: catching up"), "{path}: {body}");
    }
    assert_eq!(replica.get(&replica.admin, "/api/v1/status/cluster").0, 200);
    assert!(begun.elapsed() < DRAIN);
    replica.gateway.stop();
}
