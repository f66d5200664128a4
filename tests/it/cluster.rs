// SPDX-License-Identifier: Apache-2.0

//! Producers and replicas. The answers of replicas are compared with the counters of both ends.

mod deltas;
mod history;
mod leaders;
mod limits;
mod others;
mod streams;

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::Value as Json;
use tempfile::TempDir;

use super::kit::command::asking;
use super::kit::{Gateway, OtlpSink, QueryApi, SOON, free_port, http, wait_until};

/// The total that replicas show.
const TOTAL: f64 = 7.0;

/// Sends [`TOTAL`] to the `uds` receiver of a gateway.
fn send_total(socket: &Path) {
    let sender = UnixDatagram::unbound().expect("a socket");
    sender.send_to(b"hits:7|c", socket).expect("taken");
}

/// Whether a page of `prometheus` shows the total.
fn shows_total(page: u16) -> bool {
    http::get(page, "/metrics").is_ok_and(|page| page.text().contains("\nhits_total 7\n"))
}

/// The producer sends one series and the replica merges it, by the counters of both. Neither refuses anything.
fn assert_counters_agree(producer: &Gateway, replica: &Gateway) {
    let sent = |name: &str| producer.own_metric(name, &["exporter=\"partials\""]);
    let merged = |name: &str| replica.own_metric(name, &["receiver=\"partials\""]);
    let reporting = ["receiver=\"partials\"", "state=\"reporting\""];
    wait_until(SOON, "both ends count one series of one producer", || {
        sent("tidegate_partials_series") == 1.0
            && merged("tidegate_cluster_series") == 1.0
            && replica.own_metric("tidegate_cluster_producers", &reporting) == 1.0
    });
    wait_until(SOON, "the producer counts its pages", || {
        sent("tidegate_partials_stored_pages_total") > 0.0
    });
    let stored = sent("tidegate_partials_stored_pages_total");
    wait_until(SOON, "the replica has merged as many pages", || {
        merged("tidegate_cluster_pages_total") >= stored
    });
    assert_eq!(sent("tidegate_partials_refused_series_total"), 0.0);
    for name in [
        "tidegate_cluster_refused_total",
        "tidegate_cluster_unreadable_messages_total",
    ] {
        assert_eq!(merged(name), 0.0, "{name}");
    }
}

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
    send_total(&socket);
    wait_until(SOON, "the page shows the total", || shows_total(page));
    let status = |more: &[&str]| {
        let mut command = asking(admin, &["cluster", "status"]);
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
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_secs();
    let times = [("start", now - 3600), ("end", now)].map(|(name, time)| (name, time.to_string()));
    let mut form = vec![("query", "hits_total"), ("step", "60")];
    form.extend(times.iter().map(|(name, time)| (*name, time.as_str())));
    let answer = QueryApi::at(admin).api("/api/v1/query_range", &form);
    let warnings = answer["warnings"].to_string();
    for part in [
        "the cluster `test` is partial: 1 of 2 producers report, without missing",
        "the history of this gateway begins at 20",
    ] {
        assert!(warnings.contains(part), "{part} not in {warnings}");
    }
    let text = status(&[]);
    for part in [
        "cluster: cluster test, partitions 1, connected",
        "node-a",
        "missing",
    ] {
        assert!(text.contains(part), "{part} not in {text}");
    }
    let explained = asking(admin, &["explain", "hits_total"])
        .output()
        .expect("a command");
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    for part in ["1 of 1 source reporting", "{producer=\"node-a\"}", "alive"] {
        assert!(explained.contains(part), "{part} not in {explained}");
    }
    let ready = gateway.own_metric("tidegate_cluster_ready", &["receiver=\"partials\""]);
    assert_eq!(ready, 1.0);
    assert_counters_agree(&gateway, &gateway);
    gateway.stop();
}

/// The engine of a gateway of a cluster without a broker. `more`: further options.
fn direct_engine([one, other]: [u16; 2], more: &str) -> String {
    format!("{{direct: {{replicas: [\"127.0.0.1:{one}\", \"127.0.0.1:{other}\"], token: secret{more}}}}}")
}

/// A replica. Without a broker, `name` orders it among its peers.
struct Replica {
    name: &'static str,
    page: u16,
    api: QueryApi,
    peers: [u16; 2],
    /// Where it exports to while it leads.
    sink: OtlpSink,
}

/// The replicas `a` and `b`, which are not running yet.
fn replicas() -> [Replica; 2] {
    let peers = [free_port(), free_port()];
    ["a", "b"].map(|name| Replica {
        name,
        page: free_port(),
        api: QueryApi::at(free_port()),
        peers,
        sink: OtlpSink::start(),
    })
}

impl Replica {
    fn start(&self, own: u16) -> Gateway {
        self.start_with(&self.engine(own), "temporality: cumulative")
    }

    /// Its engine without a broker.
    fn engine(&self, own: u16) -> String {
        let serve = format!(
            ", serve: {{endpoint: \"127.0.0.1:{own}\", name: {}, sync_timeout: 1s}}",
            self.name
        );
        direct_engine(self.peers, &serve)
    }

    /// `options`: more of the exporter to [`Self::sink`].
    fn start_with(&self, engine: &str, options: &str) -> Gateway {
        Gateway::start(&format!(
            "extensions:
  cluster: {{name: test, engine: {engine}}}
  admin: {{endpoint: \"127.0.0.1:{}\"}}
receivers:
  partials: {{cluster: cluster, interval: 1s}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{}\"}}
  otlphttp: {{endpoint: {:?}, only_leader: cluster, {options}}}
service:
  extensions: [health_check, cluster, admin]
  pipelines:
    metrics: {{receivers: [partials], exporters: [prometheus, otlphttp]}}
",
            self.api.port(),
            self.page,
            self.sink.endpoint()
        ))
    }

    /// Waits until the page and the answer to a query show the total.
    fn wait_for_total(&self) {
        wait_until(SOON, "the page shows the total", || shows_total(self.page));
        self.api.wait_for_value("hits_total", TOTAL);
    }
}

/// A gateway that sends its totals to replicas.
struct Producer {
    gateway: Gateway,
    sockets: TempDir,
}

impl Producer {
    /// It sends to replicas without a broker.
    fn start(peers: [u16; 2]) -> Self {
        Self::start_with(&direct_engine(peers, ""))
    }

    fn start_with(engine: &str) -> Self {
        let sockets = tempfile::tempdir().expect("a folder");
        let gateway = Gateway::start(&format!(
            "extensions:
  cluster: {{name: test, engine: {engine}}}
receivers:
  uds: {{datagram: {{path: \"{}/statsd.sock\"}}}}
processors:
  aggregate: {{rules: [{{match: {{name: '*'}}, by: []}}]}}
exporters:
  partials: {{cluster: cluster, producer: node-a}}
service:
  extensions: [health_check, cluster]
  pipelines:
    metrics: {{receivers: [uds], processors: [aggregate], exporters: [partials]}}
",
            sockets.path().display()
        ));
        Self { gateway, sockets }
    }

    fn send_total(&self) {
        send_total(&self.sockets.path().join("statsd.sock"));
    }

    /// Sends a gauge of [`TOTAL`].
    fn send_gauge(&self) {
        let sender = UnixDatagram::unbound().expect("a socket");
        let socket = self.sockets.path().join("statsd.sock");
        sender.send_to(b"depth:7|g", socket).expect("taken");
    }
}

#[test]
fn a_replica_that_was_killed_learns_the_totals_from_the_other() {
    let replicas = replicas();
    let peers = replicas[0].peers;
    let [first, second] = [0, 1].map(|index| replicas[index].start(peers[index]));
    let producer = Producer::start(peers);
    producer.send_total();
    for (replica, gateway) in replicas.iter().zip([&first, &second]) {
        replica.wait_for_total();
        assert_counters_agree(&producer.gateway, gateway);
    }
    // The producer ends, so only the replicas know its total.
    producer.gateway.stop();
    first.kill();
    let again = replicas[0].start(peers[0]);
    replicas[0].wait_for_total();
    wait_until(SOON, "the new replica counts the series", || {
        let merged = |name: &str| again.own_metric(name, &["receiver=\"partials\""]);
        merged("tidegate_cluster_series") == 1.0 && merged("tidegate_cluster_pages_total") > 0.0
    });
    assert!(
        shows_total(replicas[1].page),
        "the other replica shows it all the time"
    );
    again.stop();
    second.stop();
}

#[test]
fn a_replica_that_starts_again_shows_gauges_that_have_not_changed() {
    /// A run is dead without a message for 3 s.
    const LEASE: Duration = Duration::from_secs(3);
    let replicas = replicas();
    let peers = replicas[0].peers;
    let [first, second] = [0, 1].map(|index| replicas[index].start(peers[index]));
    let producer = Producer::start(peers);
    producer.send_gauge();
    let depth = |page: &str| page.contains("\ndepth 7\n");
    for replica in &replicas {
        replica.api.wait_for_value("depth", TOTAL);
    }
    let sent = Instant::now();
    wait_until(SOON, "the page is older than a lease", || {
        sent.elapsed() > 2 * LEASE
    });
    first.kill();
    let again = replicas[0].start(peers[0]);
    wait_until(SOON, "it shows the gauge from the first page on", || {
        let page = http::get(replicas[0].page, "/metrics").expect("it answers");
        assert!(page.status == 503 || depth(&page.text()), "{}", page.text());
        page.status == 200
    });
    replicas[0].api.wait_for_value("depth", TOTAL);
    assert_counters_agree(&producer.gateway, &again);
    // Without its producer, the gauge goes on both.
    producer.gateway.kill();
    for replica in &replicas {
        wait_until(SOON, "the gauge of a dead producer goes", || {
            http::get(replica.page, "/metrics").is_ok_and(|page| page.status == 200 && !depth(&page.text()))
        });
        assert_eq!(replica.api.value("depth"), None);
    }
    again.stop();
    second.stop();
}

#[test]
fn a_replica_that_was_suspended_never_shows_an_old_total() {
    let replicas = replicas();
    let peers = replicas[0].peers;
    let [suspended, other] = [0, 1].map(|index| replicas[index].start(peers[index]));
    let producer = Producer::start(peers);
    producer.send_total();
    replicas.iter().for_each(Replica::wait_for_total);
    suspended.signal(Signal::STOP);
    let stopped = Instant::now();
    producer.send_total();
    let new = |page: &str| page.contains(&format!("\nhits_total {}\n", 2.0 * TOTAL));
    wait_until(SOON, "the other replica shows the new total", || {
        http::get(replicas[1].page, "/metrics").is_ok_and(|page| new(&page.text()))
    });
    // Longer than `max_lag`, which is 5 s.
    wait_until(SOON, "the other replica is ahead for long", || {
        stopped.elapsed() > Duration::from_secs(6)
    });
    suspended.signal(Signal::CONT);
    wait_until(
        SOON,
        "the replica shows the new total, and nothing before",
        || {
            let page = http::get(replicas[0].page, "/metrics").expect("it answers");
            assert!(page.status == 503 || new(&page.text()), "{}", page.text());
            page.status == 200
        },
    );
    producer.gateway.stop();
    suspended.stop();
    other.stop();
}
