// SPDX-License-Identifier: Apache-2.0

//! The endpoints of a service of Kubernetes.

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_kubernetes::testing::FakeApiServer;
use tidegate_kubernetes::{KubeObject, ObjectKind, StoredObject};

use super::super::config::K8s;
use super::super::k8s::ServiceEndpoints;
use super::*;
use crate::component::testing::options;

/// A slice of the service `gateways` with endpoints.
fn slice(name: &str, kind: &str, endpoints: &[Value]) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "x", "labels": {"kubernetes.io/service-name": "gateways"}},
        "addressType": kind, "endpoints": endpoints, "ports": [{"port": 9}],
    })
}

fn ready(address: &str) -> Value {
    json!({"addresses": [address], "conditions": {"ready": true}})
}

fn found(yaml: &str, slices: &[Value]) -> Vec<String> {
    let config: K8s = options(yaml).unwrap();
    let objects = slices.iter().map(|slice| {
        let json = slice.to_string();
        let object = KubeObject::from_json(ObjectKind::EndpointSlice, json.as_bytes()).unwrap();
        StoredObject::without_watch(object)
    });
    let objects: Vec<_> = objects.collect();
    ServiceEndpoints::new(config)
        .ready(&objects)
        .into_iter()
        .collect()
}

#[test]
fn ready_addresses_with_each_port_are_the_endpoints() {
    let unready = json!({"addresses": ["10.0.0.9"], "conditions": {"ready": false, "serving": true}});
    let unknown = json!({"addresses": ["10.0.0.3", "10.0.0.4"]});
    let slices = [
        slice("a", "IPv4", &[ready("10.0.0.2"), unready, ready("10.0.0.1")]),
        slice("b", "IPv4", &[unknown, ready("10.0.0.1")]),
    ];
    let expected = ["10.0.0.1:4317", "10.0.0.2:4317", "10.0.0.3:4317"];
    assert_eq!(found("{service: gateways.x}", &slices), expected);
    let expected = ["10.0.0.7:1", "10.0.0.7:2"];
    let slices = [slice("a", "IPv4", &[ready("10.0.0.7")])];
    assert_eq!(
        found("{service: gateways.x, ports: [1, \"2\"]}", &slices),
        expected
    );
}

#[test]
fn a_pod_with_two_addresses_is_one_endpoint() {
    let both = [
        slice("six", "IPv6", &[ready("fd00::1")]),
        slice("four", "IPv4", &[ready("10.0.0.1")]),
    ];
    assert_eq!(found("{service: gateways.x}", &both), ["10.0.0.1:4317"]);
    assert_eq!(found("{service: gateways.x}", &both[..1]), ["[fd00::1]:4317"]);
    let names = [slice(
        "names",
        "FQDN",
        &[ready("a.example.com"), ready("not a name")],
    )];
    assert_eq!(found("{service: gateways.x}", &names), ["a.example.com:4317"]);
}

#[test]
fn slices_of_other_services_and_addresses_that_are_none_do_not_count() {
    let mut other = slice("a", "IPv4", &[ready("10.0.0.1")]);
    other["metadata"]["labels"] = json!({"kubernetes.io/service-name": "gateways-2"});
    let odd = slice(
        "b",
        "IPv4",
        &[ready("10.0.0.1:80"), json!({"addresses": []}), ready("")],
    );
    assert!(found("{service: gateways.x}", &[other, odd]).is_empty());
}

#[test]
fn host_names_of_a_stateful_set_may_be_the_endpoints() {
    let named = |address: &str, name: Value| json!({"addresses": [address], "hostname": name});
    let slices = [
        slice("six", "IPv6", &[named("fd00::1", json!("gw-1"))]),
        slice(
            "four",
            "IPv4",
            &[named("10.0.0.1", json!("gw-1")), named("10.0.0.2", json!(null))],
        ),
    ];
    let names = found("{service: gateways.x, return_hostnames: true}", &slices);
    assert_eq!(names, ["gw-1.gateways.x:4317"]);
}

#[test]
fn of_thousands_of_addresses_the_first_ones_stay() {
    let endpoints: Vec<_> = (0..2000)
        .rev()
        .map(|number| ready(&format!("10.0.{}.{}", number / 250, 1 + number % 250)))
        .collect();
    let found = found("{service: gateways.x}", &[slice("a", "IPv4", &endpoints)]);
    assert_eq!(found.len(), 1025);
    assert_eq!(found[0], "10.0.0.100:4317");
}

/// An API server, and a bench of an exporter that watches it.
struct Scene {
    api: FakeApiServer,
    bench: Bench,
    _directory: TempDir,
}

impl Scene {
    /// A service with one ready address, at which a sink listens. The start of the exporter waits for it.
    async fn start(sink: &Sink) -> Self {
        Self::with_timeout(sink, "30s").await
    }

    /// The same with the longest time for which the start waits.
    async fn with_timeout(sink: &Sink, timeout: &str) -> Self {
        let api = FakeApiServer::start().await;
        api.apply_quietly("endpointslices", &slice("a", "IPv4", &[ready("127.0.0.1")]));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        std::fs::write(&path, api.kubeconfig()).unwrap();
        let options = format!(
            "resolver: {{k8s: {{service: gateways.x, ports: [{}], kubeconfig_file: '{}', timeout: {timeout}}}}}, \
             protocol: {{otlp: {{tls: {{insecure: true}}}}}}",
            sink.port(),
            path.display()
        );
        let bench = Bench::build(&FACTORY, &format!("{{{options}}}")).unwrap();
        Self {
            api,
            bench,
            _directory: directory,
        }
    }

    fn trouble(&self) -> String {
        let troubles = self.bench.shared.health.troubles();
        troubles.into_values().next().unwrap_or_default()
    }

    async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{what}: {:?}",
                self.trouble()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn the_first_list_is_used_from_the_start() {
    let sink = Sink::start(|_, _| grpc_ok()).await;
    let scene = Scene::start(&sink).await;
    scene.bench.exporter.start().await.unwrap();
    scene.bench.push(batch());
    balance_when(&scene.bench.ledgers[1], |balance| balance.left == ALL).await;
    assert_eq!(
        scene
            .api
            .count("labelSelector=kubernetes.io%2Fservice-name%3Dgateways"),
        scene.api.requests().len()
    );
    scene.bench.stop().await;
}

#[tokio::test]
async fn a_lost_server_keeps_the_endpoints_and_is_shown() {
    let sink = Sink::start(|_, _| grpc_ok()).await;
    let mut scene = Scene::start(&sink).await;
    scene.bench.exporter.start().await.unwrap();
    scene.api.stop();
    scene
        .until("the trouble is shown", || !scene.trouble().is_empty())
        .await;
    scene.bench.push(batch());
    balance_when(&scene.bench.ledgers[1], |balance| balance.left == ALL).await;
    scene.api.restart().await;
    scene
        .until("the trouble is over", || scene.trouble().is_empty())
        .await;
    scene.bench.stop().await;
}

#[tokio::test]
async fn endpoints_that_come_late_are_used_without_a_restart() {
    let sink = Sink::start(|_, _| grpc_ok()).await;
    let mut scene = Scene::with_timeout(&sink, "100ms").await;
    scene.api.stop();
    scene.bench.exporter.start().await.unwrap();
    let refused = scene.bench.exporter.push(batch()).unwrap_err();
    assert!(refused.reason.contains("has no endpoints"), "{refused}");
    scene.api.restart().await;
    scene
        .until("the endpoint is there", || {
            scene.bench.exporter.push(batch()).is_ok()
        })
        .await;
    balance_when(&scene.bench.ledgers[1], |balance| balance.left == ALL).await;
    scene.bench.stop().await;
}

#[tokio::test]
async fn the_last_endpoints_stay_while_none_is_ready() {
    let sink = Sink::start(|_, _| grpc_ok()).await;
    let scene = Scene::start(&sink).await;
    scene.bench.exporter.start().await.unwrap();
    let unready = json!({"addresses": ["127.0.0.1"], "conditions": {"ready": false}});
    scene.api.apply("endpointslices", &slice("a", "IPv4", &[unready]));
    scene
        .until("it is shown", || scene.trouble().contains("is ready"))
        .await;
    scene.bench.push(batch());
    balance_when(&scene.bench.ledgers[1], |balance| balance.left == ALL).await;
    scene.api.delete("endpointslices", "x", "a");
    scene
        .until("it is shown", || scene.trouble().contains("check its name"))
        .await;
    scene
        .api
        .apply("endpointslices", &slice("a", "IPv4", &[ready("127.0.0.1")]));
    scene
        .until("the trouble is over", || scene.trouble().is_empty())
        .await;
    scene.bench.stop().await;
}
