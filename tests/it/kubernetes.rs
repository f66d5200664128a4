// SPDX-License-Identifier: Apache-2.0

//! Components with an API server. `k8sattributes`: data gets the attributes of its pod, and counters agree.

mod endpoints;
mod leader;
mod nodes;
mod rings;

use super::kit::points::attributes_of;
use super::kit::{Gateway, OtlpSink, SOON, free_port, http, wait_until};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use serde_json::{Value, json};
use tidegate_kubernetes::testing::{FakeApiServer, kubeconfig_of};
use tidegate_requests::{attribute, gauge, int, request};
use tokio::runtime::Runtime;

/// An API server with a runtime of its own.
struct ApiServer {
    server: FakeApiServer,
    runtime: Runtime,
}

impl ApiServer {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let server = runtime.block_on(FakeApiServer::start());
        Self { server, runtime }
    }

    fn restart(&mut self) {
        self.runtime.block_on(self.server.restart());
    }

    fn kubeconfig(&self) -> String {
        self.server.kubeconfig()
    }
}

fn pod(name: &str, ip: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "labels": {"app": "web"},
            "creationTimestamp": "2026-01-05T10:00:00Z",
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "uid": "uid-rs", "controller": true}],
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "app", "image": "shop/web:1.2"}]},
        "status": {"podIP": ip, "startTime": "2026-01-05T10:00:01Z"},
    })
}

fn with_objects() -> ApiServer {
    let api = ApiServer::start();
    // Requests of this test come from this address.
    api.server.apply_quietly("pods", &pod("web-1-a", "127.0.0.1"));
    api.server.apply_quietly("pods", &pod("web-1-b", "10.0.0.2"));
    let replica_set = json!({"metadata": {
        "name": "web-1", "namespace": "shop", "uid": "uid-rs",
        "ownerReferences": [{"kind": "Deployment", "name": "web", "uid": "uid-web", "controller": true}],
    }});
    api.server.apply_quietly("replicasets", &replica_set);
    let node = json!({"metadata": {"name": "node-1", "uid": "uid-node", "labels": {"zone": "z1"}}});
    api.server.apply_quietly("nodes", &node);
    api
}

/// A gateway with the processor in all pipelines, behind `batch`.
fn start(api: &ApiServer, receiver: u16, sink: &OtlpSink, options: &str) -> Gateway {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    std::fs::write(&path, api.kubeconfig()).unwrap();
    let pipeline = |signal| {
        format!("{signal}: {{receivers: [otlp], processors: [batch, k8sattributes], exporters: [otlp]}}")
    };
    let gateway = Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\"}}}}}}}}
processors:
  batch: {{timeout: 1ms}}
  k8sattributes: {{auth_type: kubeConfig, kube_config_path: {}, wait_for_metadata: true, {options}}}
exporters: {{otlp: {{endpoint: \"127.0.0.1:{}\", tls: {{insecure: true}}}}}}
service: {{pipelines: {{{}}}}}
",
        path.display(),
        sink.port(),
        ["metrics", "traces", "logs"].map(pipeline).join(", ")
    ));
    // The file is read at the start only.
    drop(directory);
    gateway
}

fn send(receiver: u16, path: &str, body: &[u8]) {
    let answer = http::post(receiver, path, "application/x-protobuf", body);
    assert_eq!(answer.expect("an answer").status, 200);
}

fn resource(attributes: Vec<KeyValue>) -> Option<Resource> {
    Some(Resource {
        attributes,
        ..Resource::default()
    })
}

fn spans(attributes: Vec<KeyValue>) -> Vec<u8> {
    let span = Span {
        name: "s".to_owned(),
        trace_id: vec![1; 16],
        span_id: vec![1; 8],
        ..Span::default()
    };
    let resource_spans = ResourceSpans {
        resource: resource(attributes),
        scope_spans: vec![ScopeSpans {
            spans: vec![span],
            ..ScopeSpans::default()
        }],
        ..ResourceSpans::default()
    };
    let resource_spans = vec![resource_spans];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

fn logs(attributes: Vec<KeyValue>) -> Vec<u8> {
    let resource_logs = ResourceLogs {
        resource: resource(attributes),
        scope_logs: vec![ScopeLogs {
            log_records: vec![LogRecord::default()],
            ..ScopeLogs::default()
        }],
        ..ResourceLogs::default()
    };
    let resource_logs = vec![resource_logs];
    ExportLogsServiceRequest { resource_logs }.encode_to_vec()
}

/// The attributes of all resources that a sink received, as `name=value`.
fn received(sink: &OtlpSink) -> Vec<Vec<String>> {
    let metrics = sink.metrics().into_iter().flat_map(|all| all.resource_metrics);
    let metrics = metrics.map(|of| of.resource);
    let traces = sink.traces().into_iter().flat_map(|all| all.resource_spans);
    let traces = traces.map(|of| of.resource);
    let logs = sink.logs().into_iter().flat_map(|all| all.resource_logs);
    let logs = logs.map(|of| of.resource);
    let shown = |resource: Option<Resource>| {
        let attributes = attributes_of(&resource.unwrap_or_default().attributes);
        let mut shown: Vec<_> = attributes
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        shown.sort();
        shown
    };
    metrics.chain(traces).chain(logs).map(shown).collect()
}

#[test]
fn data_gets_the_attributes_of_its_pod_node_and_deployment() {
    let (api, receiver, sink) = (with_objects(), free_port(), OtlpSink::start());
    let options = "extract: {metadata: [k8s.pod.name, k8s.namespace.name, k8s.node.name, k8s.deployment.name, k8s.container.name],
      labels: [{tag_name: zone, key: zone, from: node}]}";
    let gateway = start(&api, receiver, &sink, options);
    let of_metrics = |attributes| request(attributes, "", [gauge("m", [int(1)])]).encode_to_vec();
    // By the connection, by an attribute, and by an address that no pod has.
    send(
        receiver,
        "/v1/metrics",
        &of_metrics(vec![attribute("k8s.node.name", "mine")]),
    );
    send(
        receiver,
        "/v1/traces",
        &spans(vec![attribute("k8s.pod.ip", "10.0.0.2")]),
    );
    send(
        receiver,
        "/v1/logs",
        &logs(vec![attribute("k8s.pod.ip", "10.9.9.9")]),
    );
    wait_until(SOON, "all three arrive", || received(&sink).len() == 3);
    let of_pod = |name: &str, node: &str, first: &[&str]| {
        let pod = format!("k8s.pod.name={name}");
        let node = format!("k8s.node.name={node}");
        let mut all = vec![
            pod.as_str(),
            &node,
            "k8s.container.name=app",
            "k8s.deployment.name=web",
        ];
        all.extend(["k8s.namespace.name=shop", "zone=z1"]);
        all.extend(first);
        all.sort_unstable();
        all.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let expected = [
        of_pod("web-1-a", "mine", &[]),
        of_pod("web-1-b", "node-1", &["k8s.pod.ip=10.0.0.2"]),
        vec!["k8s.pod.ip=10.9.9.9".to_owned()],
    ];
    assert_eq!(received(&sink), expected);
    let count = |name: &str, labels: &[&str]| gateway.own_metric(name, labels);
    assert_eq!(count("tidegate_k8sattributes_enriched_resources_total", &[]), 2.0);
    let unmatched = "tidegate_k8sattributes_unmatched_resources_total";
    assert_eq!(count(unmatched, &["reason=\"unknown\""]), 1.0);
    assert_eq!(count(unmatched, &["reason=\"not_synced\""]), 0.0);
    assert_eq!(count("tidegate_k8sattributes_pods", &[]), 2.0);
    assert_eq!(count("tidegate_kubernetes_objects", &["kind=\"pods\""]), 2.0);
    assert_eq!(api.server.count("pods?limit"), 1, "all pipelines share a watch");
    // A pod that comes later is found, without a restart.
    api.server.apply("pods", &pod("web-1-c", "10.9.9.9"));
    wait_until(SOON, "the new pod is found", || {
        sink.clear();
        send(
            receiver,
            "/v1/logs",
            &logs(vec![attribute("k8s.pod.ip", "10.9.9.9")]),
        );
        sink.wait_until("the log record arrives", |sink| !sink.logs().is_empty());
        received(&sink)[0].contains(&"k8s.pod.name=web-1-c".to_owned())
    });
    let said = gateway.stop();
    assert!(said.contains("all pods are known"), "{said}");
}

#[test]
fn a_gateway_without_its_pods_in_time_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    let url = format!("http://127.0.0.1:{}", free_port());
    std::fs::write(&path, kubeconfig_of(&url)).unwrap();
    let gateway = Gateway::launch(
        &format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{}\"}}}}}}}}
processors: {{k8sattributes: {{auth_type: kubeConfig, kube_config_path: {}, wait_for_metadata: true,
  wait_for_metadata_timeout: 100ms}}}}
exporters: {{nop: {{}}}}
service: {{pipelines: {{logs: {{receivers: [otlp], processors: [k8sattributes], exporters: [nop]}}}}}}
",
            free_port(),
            path.display()
        ),
        |_| {},
    );
    let (code, said) = gateway.wait(SOON);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("wait_for_metadata: the pods are not known after 100ms"),
        "{said}"
    );
}
