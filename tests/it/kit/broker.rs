// SPDX-License-Identifier: Apache-2.0

//! A real broker that is the store of a cluster.

use super::kafka_broker::KafkaBroker;
use super::nats_server::NatsServer;

/// The store of a cluster.
pub(crate) enum Broker {
    Nats(NatsServer),
    Kafka(KafkaBroker),
}

impl Broker {
    pub(crate) fn nats() -> Self {
        Self::Nats(NatsServer::start())
    }

    pub(crate) fn kafka() -> Self {
        Self::Kafka(KafkaBroker::start())
    }

    /// The engine of the extension `cluster`.
    pub(crate) fn engine(&self) -> String {
        match self {
            Self::Nats(server) => format!("{{nats: {{servers: [\"{}\"]}}}}", server.url()),
            Self::Kafka(broker) => format!("{{kafka: {{brokers: [\"{}\"]}}}}", broker.address()),
        }
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::Nats(server) => server.kill(),
            Self::Kafka(broker) => broker.kill(),
        }
    }

    /// Starts it after [`Self::kill`], with its port and its data.
    pub(crate) fn restart(&mut self) {
        match self {
            Self::Nats(server) => server.restart(),
            Self::Kafka(broker) => broker.restart(),
        }
    }
}
