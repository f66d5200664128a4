// SPDX-License-Identifier: Apache-2.0

//! Three servers with routes to each other. Each of them may keep a copy of a stream.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::{Duration, Instant};

use async_nats::jetstream;
use tidegate_nats::{NatsConfig, NatsEngine};
use tidegate_runtime::testing::free_port_of;

use crate::kit::{CLUSTER, DEADLINE, Server};

/// The stream of the cluster.
pub(crate) const STREAM: &str = "tidegate_test";

pub(crate) struct RoutedServers([Server; 3]);

/// A loopback address that no other process uses, so that a free port stays free. A server keeps its port while it is dead.
fn own_host() -> String {
    static LAST: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{low}.{}", high | 128, LAST.fetch_add(1, Relaxed) + 1)
}

impl RoutedServers {
    /// Three servers that run.
    pub(crate) fn running() -> Self {
        let places = [(); 3].map(|()| {
            let host = own_host();
            let ports = [(); 2].map(|()| free_port_of(&host));
            (host, ports)
        });
        let routes = places
            .each_ref()
            .map(|(host, [_, port])| format!("\"nats://{host}:{port}\""))
            .join(", ");
        let names = ["0", "1", "2"];
        let mut servers: [Server; 3] = std::array::from_fn(|at| {
            let (host, [port, routed]) = &places[at];
            let settings = format!(
                "server_name: \"{}\"\ncluster {{ name: test, listen: \"{host}:{routed}\", routes: [{routes}] }}",
                names[at]
            );
            Server::at(host, *port, &settings)
        });
        servers.iter_mut().for_each(Server::start);
        Self(servers)
    }

    /// Options that lead to all servers.
    pub(crate) fn config(&self, replicas: usize) -> NatsConfig {
        NatsConfig {
            servers: self.0.iter().map(Server::url).collect(),
            replicas,
            ..NatsConfig::default()
        }
    }

    /// An engine of a stream with three replicas.
    pub(crate) fn engine(&self) -> NatsEngine {
        NatsEngine::start(self.config(3), CLUSTER).unwrap()
    }

    /// A client of any server that runs, without the engine.
    pub(crate) async fn client(&self) -> jetstream::Context {
        let servers: Vec<async_nats::ServerAddr> = self
            .0
            .iter()
            .map(|server| server.url().parse().unwrap())
            .collect();
        let client = async_nats::connect(&servers[..]).await.unwrap();
        let mut context = jetstream::new(client);
        context.set_timeout(DEADLINE);
        context
    }

    /// Waits until all three servers have the whole stream, and kills the one that leads it. Gives its number.
    pub(crate) async fn kill_leader(&mut self) -> usize {
        let leader = self.leader().await;
        self.0[leader].kill();
        leader
    }

    pub(crate) fn start(&mut self, number: usize) {
        self.0[number].start();
    }

    /// The server that leads the stream, when all three have it.
    pub(crate) async fn leader(&self) -> usize {
        let client = self.client().await;
        let begin = Instant::now();
        loop {
            if let Some(leader) = whole_stream(&client).await {
                return leader.parse().unwrap();
            }
            assert!(begin.elapsed() < DEADLINE, "not all servers have the stream");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// The leader of a stream that all three servers have.
async fn whole_stream(client: &jetstream::Context) -> Option<String> {
    let stream = client.get_stream(STREAM).await.ok()?;
    let group = stream.cached_info().cluster.clone()?;
    let mut others = group.replicas.iter();
    let are_current = others.all(|peer| peer.current && !peer.offline && peer.lag.unwrap_or(0) == 0);
    group.leader.filter(|_| are_current && group.replicas.len() == 2)
}
