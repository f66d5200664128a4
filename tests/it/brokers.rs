// SPDX-License-Identifier: Apache-2.0

//! Producers and replicas on a real broker, NATS or Kafka, through the kills of each of them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;

use super::kit::{Broker, Gateway, QueryApi, SOON, free_port, http, wait_for, wait_until};

/// A gateway that counts `hits` and publishes its totals.
struct Producer {
    gateway: Gateway,
    sender: UnixDatagram,
}

impl Producer {
    fn start(broker: &Broker, name: &str) -> Self {
        let gateway = Gateway::start(&format!(
            "extensions:
  cluster: {{name: test, engine: {}}}
receivers:
  uds: {{datagram: {{path: statsd.sock}}}}
processors:
  aggregate: {{rules: [{{match: {{name: hits}}, by: []}}]}}
exporters:
  partials: {{cluster: cluster, producer: {name}, interval: 200ms}}
service:
  extensions: [health_check, cluster]
  pipelines:
    metrics: {{receivers: [uds], processors: [aggregate], exporters: [partials]}}
",
            broker.engine()
        ));
        let sender = UnixDatagram::unbound().expect("a socket");
        Self { gateway, sender }
    }

    fn hit(&self, count: u32) {
        let path = self.gateway.path("statsd.sock");
        let sent = self.sender.send_to(format!("hits:{count}|c").as_bytes(), path);
        sent.expect("the gateway takes it");
    }

    fn own(&self, name: &str) -> f64 {
        self.gateway.own_metric(name, &["exporter=\"partials\""])
    }
}

/// A gateway that shows the totals of all producers, on a page and to queries.
struct Replica {
    gateway: Gateway,
    page: u16,
    api: QueryApi,
}

impl Replica {
    fn start(broker: &Broker) -> Self {
        Self::start_with(broker, "max_lag: 2s")
    }

    /// `options`: more of the receiver.
    fn start_with(broker: &Broker, options: &str) -> Self {
        let [page, admin] = [free_port(), free_port()];
        let gateway = Gateway::start(&format!(
            "extensions:
  cluster: {{name: test, engine: {}}}
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  partials: {{cluster: cluster, {options}}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{page}\", enable_open_metrics: true}}
service:
  extensions: [health_check, cluster, admin]
  pipelines:
    metrics: {{receivers: [partials], exporters: [prometheus]}}
",
            broker.engine()
        ));
        let api = QueryApi::at(admin);
        Self { gateway, page, api }
    }

    /// Waits until the page shows the total, and asks for the same by a query.
    fn shows(&self, total: u32) {
        let line = format!("\nhits_total {total}\n");
        wait_until(SOON, &format!("the page shows {total}"), || {
            http::get(self.page, "/metrics").is_ok_and(|page| page.text().contains(&line))
        });
        self.api.wait_for_value("hits_total", f64::from(total));
    }

    fn own(&self, name: &str) -> f64 {
        self.gateway.own_metric(name, &["receiver=\"partials\""])
    }

    /// The total on its page, which is asked for while the replica is suspended. `None`: the answer is 503.
    fn total_after_a_pause(&self, meanwhile: impl FnOnce()) -> Option<f64> {
        self.gateway.signal(Signal::STOP);
        meanwhile();
        let mut stream = TcpStream::connect(("127.0.0.1", self.page)).expect("the kernel accepts");
        let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("it is sent");
        self.gateway.signal(Signal::CONT);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        if answer.starts_with("HTTP/1.1 503") {
            return None;
        }
        let mut lines = answer.lines();
        let total = lines.find_map(|line| line.strip_prefix("hits_total "));
        Some(total.expect("the total").parse().expect("a number"))
    }

    /// The line with the start time of the total.
    fn created(&self) -> String {
        let accept = ("accept", "application/openmetrics-text;version=1.0.0");
        wait_for(SOON, "the page has a start time", || {
            let page = http::request("GET", self.page, "/metrics", &[accept], b"").ok()?;
            let text = page.text();
            let line = text.lines().find(|line| line.starts_with("hits_created "));
            line.map(str::to_owned)
        })
    }

    /// The status codes of its page and of its health check.
    fn statuses(&self) -> [u16; 2] {
        let page = http::get(self.page, "/metrics").expect("a page").status;
        [page, self.gateway.health().expect("a health check").status]
    }
}

#[test]
fn totals_on_nats_are_exact_after_kills_of_each_part() {
    totals_are_exact_after_kills_of_each_part(Broker::nats());
}

#[test]
fn totals_on_kafka_are_exact_after_kills_of_each_part() {
    totals_are_exact_after_kills_of_each_part(Broker::kafka());
}

fn totals_are_exact_after_kills_of_each_part(mut broker: Broker) {
    let first = Producer::start(&broker, "node-a");
    let second = Producer::start(&broker, "node-b");
    let replicas = [(); 2].map(|()| Replica::start(&broker));
    first.hit(7);
    second.hit(5);
    replicas.iter().for_each(|replica| replica.shows(12));
    // The earliest start of all runs, on both replicas and through all kills.
    let created = replicas[0].created();
    assert_eq!(replicas[1].created(), created);

    broker.kill();
    first.hit(100);
    wait_until(SOON, "the producer says that a page waits", || {
        first.own("tidegate_partials_waiting_pages") >= 1.0
    });
    for replica in &replicas {
        wait_until(SOON, "the page and the health check refuse old totals", || {
            replica.statuses() == [503, 503]
        });
        wait_until(SOON, "its own metric says so", || {
            replica.own("tidegate_cluster_ready") == 0.0
        });
    }
    broker.restart();
    replicas.iter().for_each(|replica| replica.shows(112));
    wait_until(SOON, "the page and the health check are well again", || {
        replicas[0].statuses() == [200, 200]
    });
    wait_until(SOON, "no page waits any more", || {
        first.own("tidegate_partials_waiting_pages") == 0.0
    });

    // Its total is on both pages, so nothing is lost with it.
    second.gateway.kill();
    let second = Producer::start(&broker, "node-b");
    second.hit(1_000);
    replicas.iter().for_each(|replica| replica.shows(1_112));

    let [kept, killed] = replicas;
    killed.gateway.kill();
    first.hit(10_000);
    let new = Replica::start(&broker);
    for replica in [&kept, &new] {
        replica.shows(11_112);
        assert_eq!(replica.created(), created);
        assert_eq!(replica.own("tidegate_cluster_refused_total"), 0.0);
        assert_eq!(replica.own("tidegate_cluster_losses_total"), 0.0);
    }
    assert!(first.own("tidegate_partials_stored_pages_total") >= 3.0);
    for gateway in [first.gateway, second.gateway, kept.gateway, new.gateway] {
        gateway.stop();
    }
}

#[test]
fn no_counter_falls_for_a_reader_that_changes_its_replica_on_nats() {
    no_counter_falls_for_a_reader_that_changes_its_replica(Broker::nats());
}

#[test]
fn no_counter_falls_for_a_reader_that_changes_its_replica_on_kafka() {
    no_counter_falls_for_a_reader_that_changes_its_replica(Broker::kafka());
}

/// One replica is behind the other for less than `max_lag`, so it may answer. Each answer must have what the other one has
/// shown before.
fn no_counter_falls_for_a_reader_that_changes_its_replica(mut broker: Broker) {
    const ROUNDS: u32 = 8;
    let producer = Producer::start(&broker, "node-a");
    let options = "linearizable_reads: true, max_lag: 20s";
    let [ahead, behind] = [(); 2].map(|()| Replica::start_with(&broker, options));
    producer.hit(1);
    [&ahead, &behind].into_iter().for_each(|replica| replica.shows(1));
    for total in 2..2 + ROUNDS {
        let shown = behind.total_after_a_pause(|| {
            producer.hit(1);
            ahead.shows(total);
        });
        assert_eq!(
            shown,
            Some(f64::from(total)),
            "the other replica has shown {total}"
        );
        let queried = behind.api.value("hits_total");
        assert_eq!(queried, Some(f64::from(total)));
    }
    let reads = |result: &str| {
        let labels = ["receiver=\"partials\"", &format!("result=\"{result}\"")];
        behind
            .gateway
            .own_metric("tidegate_cluster_linearizable_reads_total", &labels)
    };
    assert!(reads("confirmed") >= f64::from(2 * ROUNDS));
    assert_eq!(reads("failed"), 0.0);

    // The replica can't ask the store, so it does not answer, although it is not behind for `max_lag`.
    broker.kill();
    assert_eq!(behind.total_after_a_pause(|| ()), None);
    wait_until(SOON, "it counts the read", || reads("failed") > 0.0);
    broker.restart();
    [&ahead, &behind]
        .into_iter()
        .for_each(|replica| replica.shows(1 + ROUNDS));
    for gateway in [producer.gateway, ahead.gateway, behind.gateway] {
        gateway.stop();
    }
}
