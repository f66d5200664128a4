// SPDX-License-Identifier: Apache-2.0

//! A producer and a replica in one gateway, and the command that shows both. Then two replicas without a broker.

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

/// A replica without a broker. `name` orders it among its peers.
struct Replica {
    name: &'static str,
    page: u16,
    peers: [u16; 2],
}

impl Replica {
    fn start(&self, own: u16) -> Gateway {
        let [one, other] = self.peers;
        Gateway::start(&format!(
            "extensions:
  cluster:
    name: test
    engine:
      direct:
        replicas: [\"127.0.0.1:{one}\", \"127.0.0.1:{other}\"]
        token: secret
        serve: {{endpoint: \"127.0.0.1:{own}\", name: {}, sync_timeout: 1s}}
receivers:
  partials: {{cluster: cluster}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{}\"}}
service:
  extensions: [health_check, cluster]
  pipelines:
    metrics: {{receivers: [partials], exporters: [prometheus]}}
",
            self.name, self.page
        ))
    }

    fn shows(&self, line: &str) -> bool {
        http::get(self.page, "/metrics").is_ok_and(|page| page.text().contains(line))
    }
}

#[test]
fn a_replica_that_was_killed_learns_the_totals_from_the_other() {
    let peers = [free_port(), free_port()];
    let replicas = [("a", free_port()), ("b", free_port())].map(|(name, page)| Replica { name, page, peers });
    let [first, second] = [0, 1].map(|index| replicas[index].start(peers[index]));
    let sockets = tempfile::tempdir().expect("a folder");
    let socket = sockets.path().join("statsd.sock");
    let producer = Gateway::start(&format!(
        "extensions:
  cluster:
    name: test
    engine: {{direct: {{replicas: [\"127.0.0.1:{}\", \"127.0.0.1:{}\"], token: secret}}}}
receivers:
  uds: {{datagram: {{path: \"{}\"}}}}
processors:
  aggregate: {{rules: [{{match: {{name: hits}}, by: []}}]}}
exporters:
  partials: {{cluster: cluster, producer: node-a}}
service:
  extensions: [health_check, cluster]
  pipelines:
    metrics: {{receivers: [uds], processors: [aggregate], exporters: [partials]}}
",
        peers[0],
        peers[1],
        socket.display()
    ));
    let sender = UnixDatagram::unbound().expect("a socket");
    sender.send_to(b"hits:7|c", &socket).expect("taken");
    for replica in &replicas {
        wait_until(SOON, "both replicas show the total", || {
            replica.shows("\nhits_total 7\n")
        });
    }
    // The producer ends, so only the replicas know its total.
    producer.stop();
    first.kill();
    let again = replicas[0].start(peers[0]);
    wait_until(SOON, "the new replica shows the total", || {
        replicas[0].shows("\nhits_total 7\n")
    });
    assert!(
        replicas[1].shows("\nhits_total 7\n"),
        "the other replica shows it all the time"
    );
    again.stop();
    second.stop();
}
