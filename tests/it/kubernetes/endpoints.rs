// SPDX-License-Identifier: Apache-2.0

//! `loadbalancing` with the endpoints of a service. Both sinks are compared with the counters of the gateway.

use serde_json::{Value, json};

use super::{ApiServer, logs, send};
use crate::kit::{Gateway, OtlpSink, SOON, free_port, wait_until};

/// The slice of the service with these addresses, and whether they are ready.
fn slice(endpoints: &[(&str, bool)]) -> Value {
    let endpoint =
        |(address, ready): &(&str, bool)| json!({"addresses": [address], "conditions": {"ready": ready}});
    let endpoints: Vec<_> = endpoints.iter().map(endpoint).collect();
    json!({
        "metadata": {
            "name": "gateways-1", "namespace": "x", "labels": {"kubernetes.io/service-name": "gateways"},
        },
        "addressType": "IPv4", "endpoints": endpoints,
    })
}

/// The log records of a sink.
fn records(sink: &OtlpSink) -> usize {
    let resources = sink.logs().into_iter().flat_map(|logs| logs.resource_logs);
    resources.count()
}

fn endpoints(gateway: &Gateway) -> f64 {
    gateway.own_metric("tidegate_loadbalancing_endpoints", &[])
}

fn is_failing(gateway: &Gateway) -> bool {
    gateway.own_metric("tidegate_loadbalancing_resolver_failing", &[]) == 1.0
}

#[test]
fn load_balancing_follows_the_ready_endpoints_of_a_service() {
    // Both addresses have this port.
    let first = OtlpSink::start_on(free_port());
    let (mut api, receiver) = (ApiServer::start(), free_port());
    let second = OtlpSink::start_at("127.0.0.2", first.port());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    std::fs::write(&path, api.kubeconfig()).unwrap();
    api.server.apply_quietly(
        "endpointslices",
        &slice(&[("127.0.0.1", true), ("127.0.0.2", false)]),
    );
    let gateway = Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\"}}}}}}}}
exporters:
  loadbalancing:
    resolver: {{k8s: {{service: gateways.x, ports: [{}], timeout: 30s, kubeconfig_file: {}}}}}
    protocol: {{otlp: {{tls: {{insecure: true}}}}}}
service: {{pipelines: {{logs: {{receivers: [otlp], exporters: [loadbalancing]}}}}}}
",
        first.port(),
        path.display()
    ));
    let one = || send(receiver, "/v1/logs", &logs(Vec::new()));
    one();
    first.wait_until("the ready endpoint gets the record", |sink| records(sink) == 1);
    assert_eq!(endpoints(&gateway), 1.0);
    // The other one becomes ready, and this one no longer is.
    api.server.apply(
        "endpointslices",
        &slice(&[("127.0.0.1", false), ("127.0.0.2", true)]),
    );
    wait_until(SOON, "new data goes to the other endpoint", || {
        one();
        records(&second) > 0
    });
    let items = |flow| {
        let labels = ["component=\"exporters::loadbalancing\"", "signal=\"logs\"", flow];
        gateway.own_metric("tidegate_component_items_total", &labels)
    };
    let both_agree = || {
        wait_until(SOON, "both ends count the same", || {
            let received = (records(&first) + records(&second)) as f64;
            items("flow=\"in\"") == received && items("flow=\"out\"") == received
        });
    };
    both_agree();
    let before = records(&first);
    (0..5).for_each(|_| one());
    // A lost server keeps the list, and is shown.
    api.server.stop();
    wait_until(SOON, "the trouble is shown", || is_failing(&gateway));
    let health = gateway.health().expect("an answer");
    assert_eq!(health.status, 200);
    let text = health.text();
    assert!(text.contains("exporters::loadbalancing"), "{text}");
    (0..5).for_each(|_| one());
    both_agree();
    assert_eq!(records(&first), before, "it is not ready");
    // The server comes back with both, and without the events in between.
    api.server.apply_quietly(
        "endpointslices",
        &slice(&[("127.0.0.1", true), ("127.0.0.2", true)]),
    );
    api.server.forget_events();
    api.restart();
    wait_until(SOON, "both are used and the trouble is over", || {
        endpoints(&gateway) == 2.0 && !is_failing(&gateway)
    });
    gateway.stop();
}
