// SPDX-License-Identifier: Apache-2.0

//! A cluster in one process: a producer and a replica in one gateway, and the command that shows both.

use std::os::unix::net::UnixDatagram;

use serde_json::Value as Json;

use super::kit::gateway::tidegate;
use super::kit::{Gateway, SOON, free_port, http, wait_until};

#[test]
fn a_producer_and_a_replica_of_one_gateway_show_one_total() {
    let [admin, page] = [free_port(), free_port()];
    let sockets = tempfile::tempdir().expect("a folder");
    let socket = sockets.path().join("statsd.sock");
    let gateway = Gateway::start(&format!(
        "extensions:
  cluster: {{name: test, engine: {{local: {{}}}}}}
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  uds: {{datagram: {{path: \"{}\"}}}}
  partials: {{cluster: cluster, expect: [missing]}}
processors:
  aggregate: {{rules: [{{match: {{name: hits}}, by: []}}]}}
exporters:
  partials: {{cluster: cluster, producer: node-a}}
  prometheus: {{endpoint: \"127.0.0.1:{page}\"}}
service:
  extensions: [health_check, cluster, admin]
  pipelines:
    metrics/produce: {{receivers: [uds], processors: [aggregate], exporters: [partials]}}
    metrics/show: {{receivers: [partials], exporters: [prometheus]}}
",
        socket.display()
    ));
    let sender = UnixDatagram::unbound().expect("a socket");
    sender.send_to(b"hits:7|c", &socket).expect("taken");
    wait_until(SOON, "the page shows the total", || {
        http::get(page, "/metrics").is_ok_and(|page| page.text().contains("\nhits_total 7\n"))
    });
    let status = |more: &[&str]| {
        let mut command = tidegate();
        command.args(["cluster", "status", "--endpoint", &format!("127.0.0.1:{admin}")]);
        let output = command.args(more).output().expect("a command");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        text
    };
    wait_until(SOON, "the status shows the producer", || {
        let json: Json = serde_json::from_str(&status(&["--output", "json"])).expect("JSON");
        let replica = &json["cluster"]["components"]["receivers::partials"];
        replica["producers"][0]["reporting"] == true && replica["state"] == "partial"
    });
    let text = status(&[]);
    for part in [
        "cluster: cluster test, partitions 1, connected",
        "node-a",
        "missing",
    ] {
        assert!(text.contains(part), "{part} not in {text}");
    }
    let ready = gateway.own_metric("tidegate_cluster_ready", &["receiver=\"partials\""]);
    assert_eq!(ready, 1.0);
    gateway.stop();
}
