// SPDX-License-Identifier: Apache-2.0

//! Replicas that a Lease elects. The destinations of both are compared with the counters of both.

use super::ApiServer;
use crate::kit::{Gateway, Ledgers, OtlpSink, SOON, wait_for, wait_until};

/// A replica with a store of its own, so that both lead there. It exports its own counter of events.
fn start(api: &ApiServer, sink: &OtlpSink) -> Gateway {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    std::fs::write(&path, api.kubeconfig()).unwrap();
    let gateway = Gateway::start(&format!(
        "extensions:
  cluster: {{name: test, engine: {{local: {{}}}}, leader: {{lease: monitoring/tidegate, kubeconfig_file: {}}}}}
receivers:
  uds: {{datagram: {{path: statsd.sock}}}}
  partials: {{cluster: cluster, interval: 200ms}}
processors:
  aggregate: {{rules: [{{match: {{name: hits}}, by: []}}]}}
exporters:
  partials: {{cluster: cluster, producer: a}}
  otlphttp: {{endpoint: {:?}, only_leader: cluster}}
service:
  extensions: [health_check, cluster]
  pipelines:
    metrics/produce: {{receivers: [uds], processors: [aggregate], exporters: [partials]}}
    metrics/show: {{receivers: [partials], exporters: [otlphttp]}}
",
        path.display(),
        sink.endpoint()
    ));
    // The file is read at the start only.
    drop(directory);
    let sender = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
    sender
        .send_to(b"hits:7|c", gateway.path("statsd.sock"))
        .expect("taken");
    gateway
}

fn leads(gateway: &Gateway) -> bool {
    gateway.own_metric("tidegate_cluster_leader", &[]) == 1.0
}

/// Whether the exporter has dropped several items, and has done nothing else.
fn only_drops(gateway: &Gateway) -> bool {
    let ledgers = Ledgers::of_page(&gateway.own_metrics());
    let counts = ledgers.of("exporters::otlphttp", "metrics");
    matches!(*counts, [("dropped not_leader", dropped), ("in", entered)] if dropped == entered && dropped > 5)
}

#[test]
fn of_replicas_with_stores_of_their_own_one_exports() {
    let (mut api, sinks) = (ApiServer::start(), [OtlpSink::start(), OtlpSink::start()]);
    let gateways = sinks.each_ref().map(|sink| start(&api, sink));
    let leader = wait_for(SOON, "one leads", || gateways.iter().position(leads));
    let other = 1 - leader;
    sinks[leader].wait_until("it exports", |sink| !sink.points_of("hits").is_empty());
    wait_until(SOON, "the other one drops", || only_drops(&gateways[other]));
    assert!(!leads(&gateways[other]));
    assert_eq!(sinks[other].attempts(), 0, "it exports nothing");
    let [first, second] = gateways;
    let (ends, stays) = if leader == 0 {
        (first, second)
    } else {
        (second, first)
    };
    // It releases the Lease, and the other one takes it.
    ends.stop();
    wait_until(SOON, "the other one leads", || leads(&stays));
    sinks[other].wait_until("it exports", |sink| !sink.points_of("hits").is_empty());
    assert_eq!(
        api.server
            .object("leases", "monitoring", "tidegate")
            .expect("a Lease")["spec"]["leaseTransitions"],
        1
    );
    // Without the API server, nobody leads.
    api.server.stop();
    wait_until(SOON, "nobody leads", || !leads(&stays));
    let health = stays.health().expect("an answer").text();
    assert!(health.contains("extensions::cluster::leader"), "{health}");
    stays.stop();
}
