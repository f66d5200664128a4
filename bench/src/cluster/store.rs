// SPDX-License-Identifier: Apache-2.0

//! The address of the store, for agents and for gateways.

use std::sync::Arc;

use tidegate_cluster::ClusterEngine;
use tidegate_direct::{DirectConfig, DirectEngine, ReplicaAddresses};
use tidegate_kafka::{KafkaConfig, KafkaEngine};
use tidegate_nats::{NatsConfig, NatsEngine};

use super::agent::CLUSTER;
use crate::BenchError;

/// The partitions of the cluster.
const PARTITIONS: u16 = 1;

/// The store, as one process reaches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// The URLs of some of the servers, and how many have a copy of the stream.
    Nats(Vec<String>, usize),
    /// The address of a broker.
    Kafka(String),
    /// The addresses of the replicas.
    Direct(Vec<String>),
}

impl Store {
    /// NATS servers at these ports of the machine.
    pub(super) fn nats(ports: &[u16], replicas: usize) -> Self {
        let urls = ports.iter().map(|port| format!("nats://127.0.0.1:{port}"));
        Self::Nats(urls.collect(), replicas)
    }

    /// A Kafka broker at this port of the machine.
    pub(super) fn kafka(port: u16) -> Self {
        Self::Kafka(format!("127.0.0.1:{port}"))
    }

    /// An engine of agents. Must be called within the runtime.
    pub(super) fn connect(&self) -> Result<Arc<dyn ClusterEngine>, BenchError> {
        Ok(match self {
            Self::Nats(urls, replicas) => {
                let config = NatsConfig {
                    servers: urls.clone(),
                    replicas: *replicas,
                    ..NatsConfig::default()
                };
                Arc::new(NatsEngine::start(config, CLUSTER)?)
            }
            Self::Kafka(address) => {
                let config = KafkaConfig {
                    brokers: vec![address.clone()],
                    ..KafkaConfig::default()
                };
                Arc::new(KafkaEngine::start(config, CLUSTER, PARTITIONS)?)
            }
            Self::Direct(replicas) => {
                let config = DirectConfig::new(ReplicaAddresses::Endpoints(replicas.clone()));
                Arc::new(DirectEngine::start(config, CLUSTER)?)
            }
        })
    }

    /// Whether the replicas confirm each page by the store.
    pub(super) fn confirms(&self) -> bool {
        !matches!(self, Self::Direct(_))
    }

    /// The option `engine` of a producer.
    pub(super) fn of_producer(&self) -> String {
        match self {
            Self::Nats(urls, replicas) => format!(
                "{{nats: {{servers: [\"{}\"], replicas: {replicas}}}}}",
                urls.join("\", \"")
            ),
            Self::Kafka(address) => format!("{{kafka: {{brokers: [\"{address}\"]}}}}"),
            Self::Direct(replicas) => format!("{{direct: {{replicas: [\"{}\"]}}}}", replicas.join("\", \"")),
        }
    }

    /// The option `engine` of a replica. With `direct`, it serves at its own address among those of the replicas.
    pub(super) fn of_replica(&self, number: usize) -> String {
        match self {
            Self::Direct(replicas) => format!(
                "{{direct: {{replicas: [\"{}\"], serve: {{endpoint: \"{}\", name: replica-{number}, sync_timeout: 5s}}}}}}",
                replicas.join("\", \""),
                replicas[number]
            ),
            _ => self.of_producer(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_replica_of_direct_serves() {
        let direct = Store::Direct(vec!["a:1".to_owned(), "b:2".to_owned()]);
        assert_eq!(direct.of_producer(), "{direct: {replicas: [\"a:1\", \"b:2\"]}}");
        assert!(
            direct
                .of_replica(1)
                .contains("serve: {endpoint: \"b:2\", name: replica-1")
        );
        let kafka = Store::Kafka("a:1".to_owned());
        assert_eq!(kafka.of_replica(1), "{kafka: {brokers: [\"a:1\"]}}");
    }
}
