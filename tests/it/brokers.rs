// SPDX-License-Identifier: Apache-2.0

//! Producers and replicas on a real broker, NATS or Kafka, through the kills of each of them.

use std::os::unix::net::UnixDatagram;

use super::kit::kafka_broker::KafkaBroker;
use super::kit::nats_server::NatsServer;
use super::kit::{Gateway, QueryApi, SOON, free_port, http, wait_for, wait_until};

/// The store of a cluster.
enum Broker {
    Nats(NatsServer),
    Kafka(KafkaBroker),
}

impl Broker {
    /// The engine of the extension `cluster`.
    fn engine(&self) -> String {
        match self {
            Self::Nats(server) => format!("{{nats: {{servers: [\"{}\"]}}}}", server.url()),
            Self::Kafka(broker) => format!("{{kafka: {{brokers: [\"{}\"]}}}}", broker.address()),
        }
    }

    fn kill(&mut self) {
        match self {
            Self::Nats(server) => server.kill(),
            Self::Kafka(broker) => broker.kill(),
        }
    }

    fn restart(&mut self) {
        match self {
            Self::Nats(server) => server.restart(),
            Self::Kafka(broker) => broker.restart(),
        }
    }
}

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
        let [page, admin] = [free_port(), free_port()];
        let gateway = Gateway::start(&format!(
            "extensions:
  cluster: {{name: test, engine: {}}}
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  partials: {{cluster: cluster, max_lag: 2s}}
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
    totals_are_exact_after_kills_of_each_part(Broker::Nats(NatsServer::start()));
}

#[test]
fn totals_on_kafka_are_exact_after_kills_of_each_part() {
    totals_are_exact_after_kills_of_each_part(Broker::Kafka(KafkaBroker::start()));
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
