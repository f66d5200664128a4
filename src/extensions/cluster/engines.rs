// SPDX-License-Identifier: Apache-2.0

//! The options that differ from those of an engine's crate, and the start of the engines.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_cluster::ClusterEngine;
use tidegate_cluster::local::LocalEngine;
use tidegate_direct::{
    DirectClientTls, DirectConfig, DirectEngine, DirectServerTls, ReplicaAddresses, ServeConfig,
};
use tidegate_kafka::KafkaEngine;
use tidegate_nats::NatsEngine;

use super::config::EngineConfig;
use crate::config::{ByteSize, Node, Problems, Secret};

crate::options! {
    /// `local`. It has no options.
    pub struct LocalConfig {}
}

crate::options! {
    /// `direct`: the replicas keep the store themselves. Each of them has all of it.
    pub struct DirectOptions {
        /// Hosts and ports of all replicas. The own address may be among them. Exclusive with `dns`.
        pub replicas: Vec<String> = Vec::new(),
        /// Host name and port whose addresses are those of the replicas. It is looked up every 5 s.
        pub dns: Option<String> = None,
        /// Store of this gateway, if it is a replica. Unset: it only sends.
        pub serve: Option<ServeOptions> = None,
        /// Bearer token that all gateways of the cluster share.
        pub token: Option<Secret> = None,
        /// TLS to the replicas. Unset: connections are not encrypted.
        pub tls: Option<DirectClientTls> = None,
        /// Timeout of a call.
        pub timeout: Duration = Duration::from_secs(5),
    }
    check = DirectOptions::check
}

crate::options! {
    /// `serve`: the store of a replica.
    pub struct ServeOptions {
        /// IP address and port to listen on.
        pub endpoint: String = required,
        /// Name of the replica. No other replica has it, and it stays the same over restarts. The smallest name decides.
        pub name: String = required,
        /// Most bytes of all messages, compressed.
        pub max_bytes: ByteSize = ByteSize::mib(256),
        /// Most time that a new replica waits for peers that it can't reach, before it is ready.
        pub sync_timeout: Duration = Duration::from_secs(30),
        /// TLS of the server. Unset: connections are not encrypted.
        pub tls: Option<DirectServerTls> = None,
    }
    check = ServeOptions::check
}

impl DirectOptions {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.replicas.is_empty() == self.dns.is_none() {
            cx.at(at).error("give either `replicas` or `dns`");
        }
    }

    fn engine(&self) -> Result<DirectConfig, String> {
        let addresses = match &self.dns {
            Some(name) => ReplicaAddresses::dns(name),
            None => ReplicaAddresses::Endpoints(self.replicas.clone()),
        };
        Ok(DirectConfig {
            serve: self.serve.as_ref().map(ServeOptions::engine).transpose()?,
            token: self.token.clone(),
            tls: self.tls.clone(),
            timeout: self.timeout,
            ..DirectConfig::new(addresses)
        })
    }
}

impl ServeOptions {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if let Err(error) = self.address() {
            cx.at(at.child("endpoint")).error(error);
        }
    }

    fn address(&self) -> Result<SocketAddr, String> {
        let endpoint = &self.endpoint;
        endpoint
            .parse()
            .map_err(|_| format!("`{endpoint}` is not an IP address and a port, such as 0.0.0.0:4320"))
    }

    fn engine(&self) -> Result<ServeConfig, String> {
        Ok(ServeConfig {
            tls: self.tls.clone(),
            max_bytes: usize::try_from(self.max_bytes.bytes()).unwrap_or(usize::MAX),
            sync_timeout: self.sync_timeout,
            ..ServeConfig::new(&self.name, self.address()?)
        })
    }
}

/// Starts the engine that the options name. Each engine has a branch here.
pub(super) fn start(
    config: &EngineConfig,
    cluster: &str,
    partitions: u16,
) -> Result<Arc<dyn ClusterEngine>, String> {
    if let Some(nats) = &config.nats {
        let engine = NatsEngine::start(nats.clone(), cluster);
        return Ok(Arc::new(engine.map_err(|error| error.to_string())?));
    }
    if let Some(kafka) = &config.kafka {
        let engine = KafkaEngine::start(kafka.clone(), cluster, partitions);
        return Ok(Arc::new(engine.map_err(|error| error.to_string())?));
    }
    if let Some(direct) = &config.direct {
        let engine = DirectEngine::start(direct.engine()?, cluster);
        return Ok(Arc::new(engine.map_err(|error| error.to_string())?));
    }
    Ok(Arc::new(LocalEngine::new()))
}
