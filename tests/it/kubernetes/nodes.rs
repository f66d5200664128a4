// SPDX-License-Identifier: Apache-2.0

//! A replica that expects the nodes of a DaemonSet. The command, the warnings of answers and the counters agree.

use serde_json::{Value, json};
use std::os::unix::net::UnixDatagram;

use super::ApiServer;
use crate::kit::command::asking;
use crate::kit::{Gateway, QueryApi, SOON, free_port, wait_until};

fn pod(node: &str) -> Value {
    json!({
        "metadata": {
            "name": format!("agent-{node}"), "namespace": "monitoring",
            "ownerReferences": [{"kind": "DaemonSet", "name": "agent", "uid": "u", "controller": true}],
        },
        "spec": {"nodeName": node},
    })
}

fn producers(gateway: &Gateway) -> [f64; 2] {
    ["expected", "reporting"].map(|state| {
        let state = format!("state=\"{state}\"");
        gateway.own_metric("tidegate_cluster_producers", &[&state])
    })
}

/// What `tidegate cluster status` prints.
fn status(admin: u16) -> String {
    let mut command = asking(admin, &["cluster", "status"]);
    let output = command.output().expect("a command");
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_node_that_never_reported_is_missing_while_its_pod_exists() {
    let (api, admin) = (ApiServer::start(), free_port());
    let directory = tempfile::tempdir().unwrap();
    let [file, socket] = ["kubeconfig", "statsd.sock"].map(|name| directory.path().join(name));
    std::fs::write(&file, api.kubeconfig()).unwrap();
    for node in ["node-a", "node-b"] {
        api.server.apply_quietly("pods", &pod(node));
    }
    let gateway = Gateway::start(&format!(
        "extensions:
  cluster: {{name: test, engine: {{local: {{}}}}}}
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  uds: {{datagram: {{path: \"{}\"}}}}
  partials: {{cluster: cluster, expect_from: {{daemonset: monitoring/agent, kubeconfig_file: {}}}}}
processors:
  aggregate: {{rules: [{{match: {{name: hits}}, by: []}}]}}
exporters:
  partials: {{cluster: cluster, producer: node-a}}
  nop: {{}}
service:
  extensions: [health_check, cluster, admin]
  pipelines:
    metrics/produce: {{receivers: [uds], processors: [aggregate], exporters: [partials]}}
    metrics/show: {{receivers: [partials], exporters: [nop]}}
",
        socket.display(),
        file.display()
    ));
    let sender = UnixDatagram::unbound().expect("a socket");
    sender.send_to(b"hits:7|c", &socket).expect("taken");
    wait_until(SOON, "one of two nodes reports", || {
        producers(&gateway) == [2.0, 1.0]
    });
    let text = status(admin);
    for part in ["partial", "reporting 1/2", "node-a", "node-b"] {
        assert!(text.contains(part), "{part} not in {text}");
    }
    let answer = QueryApi::at(admin).api("/api/v1/query", &[("query", "hits_total")]);
    let warnings = answer["warnings"].to_string();
    let expected = "1 of 2 producers report, without node-b";
    assert!(warnings.contains(expected), "{warnings}");
    // The node goes, and so does its pod.
    api.server.delete("pods", "monitoring", "agent-node-b");
    wait_until(SOON, "all nodes report", || producers(&gateway) == [1.0, 1.0]);
    wait_until(SOON, "the replica is fresh", || status(admin).contains("fresh"));
    assert!(!status(admin).contains("node-b"));
    gateway.stop();
}
