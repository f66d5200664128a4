// SPDX-License-Identifier: Apache-2.0

//! Options of the engines, and their start. Each engine has a crate of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_cluster::ClusterEngine;
use tidegate_cluster::local::LocalEngine;
use tidegate_direct::{
    DirectClientTls, DirectConfig, DirectEngine, DirectServerTls, ReplicaAddresses, ServeConfig,
};
use tidegate_nats::{NatsConfig, NatsEngine, NatsTlsConfig};

use super::config::EngineConfig;
use crate::config::{ByteSize, Node, Problems, Secret};

crate::options! {
    /// `local`. It has no options.
    pub struct LocalConfig {}
}

crate::options! {
    /// `nats`: a stream of NATS JetStream. The engine creates it.
    pub struct NatsOptions {
        /// URLs of servers, without credentials. `tls://` demands TLS.
        pub servers: Vec<String> = vec!["nats://localhost:4222".to_owned()],
        /// Name of the stream. Unset: `tidegate_` and the name of the cluster.
        pub stream: Option<String> = None,
        /// Number of servers that keep the stream, 1 to 5.
        pub replicas: usize = 1,
        /// Most bytes of the stream. A full stream refuses new pages and keeps the old ones. Unset: no limit.
        pub max_bytes: Option<ByteSize> = None,
        /// File with a user JWT and its seed (`.creds`). It is read for each connection.
        pub credentials_file: Option<PathBuf> = None,
        /// Name of the user.
        pub username: Option<String> = None,
        /// Password of the user.
        pub password: Option<Secret> = None,
        /// Token.
        pub token: Option<Secret> = None,
        /// Seed of an NKey.
        pub nkey: Option<Secret> = None,
        /// TLS. Unset: only if a server demands it, with the authorities of the system.
        pub tls: Option<NatsTlsOptions> = None,
        /// Most time for a connection to one server.
        pub connect_timeout: Duration = Duration::from_secs(5),
    }
    check = NatsOptions::check
}

crate::options! {
    /// `tls` of `nats`. The files are read for each connection.
    pub struct NatsTlsOptions {
        /// PEM file with the authorities that the gateway trusts. Unset: those of the system.
        pub ca_file: Option<PathBuf> = None,
        /// PEM file with the client certificate.
        pub cert_file: Option<PathBuf> = None,
        /// PEM file with the private key of the client certificate.
        pub key_file: Option<PathBuf> = None,
    }
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
        pub tls: Option<DirectTlsOptions> = None,
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
        pub tls: Option<ServeTlsOptions> = None,
    }
    check = ServeOptions::check
}

crate::options! {
    /// `tls` of `direct`.
    pub struct DirectTlsOptions {
        /// PEM file with the authorities that the gateway trusts. Unset: those of the system.
        pub ca_file: Option<PathBuf> = None,
        /// Whether the gateway trusts the authorities of the system as well.
        pub include_system_ca_certs_pool: bool = false,
        /// PEM file with the client certificate.
        pub cert_file: Option<PathBuf> = None,
        /// PEM file with the private key of the client certificate.
        pub key_file: Option<PathBuf> = None,
        /// Name that the certificate of a replica must have. Unset: the host of its address.
        pub server_name_override: Option<String> = None,
    }
}

crate::options! {
    /// `tls` of `serve`.
    pub struct ServeTlsOptions {
        /// PEM file with the certificate chain.
        pub cert_file: PathBuf = required,
        /// PEM file with the private key.
        pub key_file: PathBuf = required,
        /// PEM file with the authorities that must have signed the certificates of clients.
        pub client_ca_file: Option<PathBuf> = None,
    }
}

impl NatsOptions {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if let Err(error) = self.engine().validate() {
            cx.at(at).error(error.to_string());
        }
    }

    fn engine(&self) -> NatsConfig {
        NatsConfig {
            servers: self.servers.clone(),
            stream: self.stream.clone(),
            replicas: self.replicas,
            max_bytes: self.max_bytes.map(ByteSize::bytes),
            credentials_file: self.credentials_file.clone(),
            username: self.username.clone(),
            password: self.password.clone(),
            token: self.token.clone(),
            nkey: self.nkey.clone(),
            tls: self.tls.as_ref().map(|tls| NatsTlsConfig {
                ca_file: tls.ca_file.clone(),
                cert_file: tls.cert_file.clone(),
                key_file: tls.key_file.clone(),
            }),
            connect_timeout: self.connect_timeout,
            ..NatsConfig::default()
        }
    }
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
            tls: self.tls.as_ref().map(|tls| DirectClientTls {
                ca_file: tls.ca_file.clone(),
                include_system_ca_certs_pool: tls.include_system_ca_certs_pool,
                cert_file: tls.cert_file.clone(),
                key_file: tls.key_file.clone(),
                server_name_override: tls.server_name_override.clone(),
            }),
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
            tls: self.tls.as_ref().map(|tls| DirectServerTls {
                cert_file: tls.cert_file.clone(),
                key_file: tls.key_file.clone(),
                client_ca_file: tls.client_ca_file.clone(),
            }),
            max_bytes: usize::try_from(self.max_bytes.bytes()).unwrap_or(usize::MAX),
            sync_timeout: self.sync_timeout,
            ..ServeConfig::new(&self.name, self.address()?)
        })
    }
}

/// Starts the engine that the options name. Each engine has a branch here.
pub(super) fn start(config: &EngineConfig, cluster: &str) -> Result<Arc<dyn ClusterEngine>, String> {
    if let Some(nats) = &config.nats {
        let engine = NatsEngine::start(nats.engine(), cluster);
        return Ok(Arc::new(engine.map_err(|error| error.to_string())?));
    }
    if let Some(direct) = &config.direct {
        let engine = DirectEngine::start(direct.engine()?, cluster);
        return Ok(Arc::new(engine.map_err(|error| error.to_string())?));
    }
    Ok(Arc::new(LocalEngine::new()))
}
