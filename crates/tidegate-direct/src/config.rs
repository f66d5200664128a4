// SPDX-License-Identifier: Apache-2.0

//! The options of the engine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_cluster::{MessageStoreLimits, PageLimits};
use tidegate_config::Secret;
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

/// The options of a process of the cluster.
#[derive(Clone, Debug)]
pub struct DirectConfig {
    /// The addresses of all replicas. The own address of a replica may be among them.
    pub replicas: ReplicaAddresses,
    /// The store of this process; `None`: it only sends.
    pub serve: Option<ServeConfig>,
    /// The bearer token that all processes of the cluster share; `None`: there is none.
    pub token: Option<Secret>,
    /// TLS to the replicas; `None`: connections are not encrypted.
    pub tls: Option<DirectClientTls>,
    /// The most bytes of a body, before and after compression (default: 1 MiB).
    pub max_body_bytes: usize,
    /// The timeout of a call (default: 5 s).
    pub timeout: Duration,
    /// The interval at which replicas compare what they have, and at which connections are checked (default: 1 s).
    pub sync_interval: Duration,
}

impl DirectConfig {
    /// The defaults for a process that only sends.
    pub fn new(replicas: ReplicaAddresses) -> Self {
        Self {
            replicas,
            serve: None,
            token: None,
            tls: None,
            max_body_bytes: PageLimits::default().max_body_bytes,
            timeout: Duration::from_secs(5),
            sync_interval: Duration::from_secs(1),
        }
    }
}

/// The places of the replicas.
#[derive(Clone, Debug)]
pub enum ReplicaAddresses {
    /// Hosts and ports, such as `tidegate-0.tidegate:4320`.
    Endpoints(Vec<String>),
    /// A name whose addresses are those of the replicas.
    Dns {
        /// The host and the port, such as `tidegate-headless:4320`.
        name: String,
        /// The time between two lookups (default: 5 s).
        interval: Duration,
    },
}

impl ReplicaAddresses {
    /// A name that is looked up at the default interval.
    pub fn dns(name: &str) -> Self {
        Self::Dns {
            name: name.to_owned(),
            interval: Duration::from_secs(5),
        }
    }
}

/// The options of a replica.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The name of the replica, which no other replica has and which stays the same over restarts. The smallest decides.
    pub name: String,
    /// The address to listen on.
    pub listen: SocketAddr,
    /// TLS of the server; `None`: connections are not encrypted.
    pub tls: Option<DirectServerTls>,
    /// The most bytes of all messages, compressed (default: 256 MiB).
    pub max_bytes: usize,
    /// The most calls at a time (default: 64). Others wait. A call counts when its body has arrived. Bodies that arrive have
    /// room for 1 MiB of each call, and those from one address have half of it.
    pub max_concurrent_calls: usize,
    /// The most connections (default: 4096). Further ones are closed.
    pub max_connections: usize,
    /// A new replica waits this long for peers that it can't reach, before it is ready (default: 30 s).
    pub sync_timeout: Duration,
}

impl ServeConfig {
    /// The defaults.
    pub fn new(name: &str, listen: SocketAddr) -> Self {
        Self {
            name: name.to_owned(),
            listen,
            tls: None,
            max_bytes: MessageStoreLimits::default().max_bytes,
            max_concurrent_calls: 64,
            max_connections: 4096,
            sync_timeout: Duration::from_secs(30),
        }
    }
}

tidegate_config::options! {
    /// `tls` of `direct`.
    pub struct DirectClientTls {
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

tidegate_config::options! {
    /// `tls` of `serve`.
    pub struct DirectServerTls {
        /// PEM file with the certificate chain.
        pub cert_file: PathBuf = required,
        /// PEM file with the private key.
        pub key_file: PathBuf = required,
        /// PEM file with the authorities that must have signed the certificates of clients.
        pub client_ca_file: Option<PathBuf> = None,
    }
}

/// Why an engine does not start.
#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    /// No address of a replica is given.
    #[error("`replicas` has no address: give the addresses of the replicas, or a DNS name")]
    NoReplicas,
    /// An address is not valid.
    #[error("`{0}` is not an address of a replica: give a host and a port")]
    Address(String),
    /// A token has characters that no header may have.
    #[error("the token has characters that no HTTP header may have: use printable ASCII characters only")]
    Token,
    /// A certificate or key can't be read.
    #[error("can't read `{file}`: {error}")]
    File {
        /// The file.
        file: PathBuf,
        /// The error.
        error: std::io::Error,
    },
    /// Of a certificate and its key, one is missing.
    #[error("give both `cert_file` and `key_file`, or none of them")]
    HalfIdentity,
    /// The setup of TLS is refused.
    #[error("TLS: {0}")]
    Tls(tonic::transport::Error),
    /// The address can't be listened on.
    #[error("can't listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error.
        error: std::io::Error,
    },
}

fn read(file: &PathBuf) -> Result<Vec<u8>, DirectError> {
    std::fs::read(file).map_err(|error| DirectError::File {
        file: file.clone(),
        error,
    })
}

impl DirectClientTls {
    /// Reads the files.
    pub(crate) fn load(&self, host: &str) -> Result<ClientTlsConfig, DirectError> {
        let name = self.server_name_override.as_deref().unwrap_or(host);
        let mut tls = ClientTlsConfig::new().domain_name(name);
        if let Some(file) = &self.ca_file {
            tls = tls.ca_certificate(Certificate::from_pem(read(file)?));
        }
        if self.ca_file.is_none() || self.include_system_ca_certs_pool {
            tls = tls.with_native_roots();
        }
        match (&self.cert_file, &self.key_file) {
            (None, None) => Ok(tls),
            (Some(cert), Some(key)) => Ok(tls.identity(Identity::from_pem(read(cert)?, read(key)?))),
            _ => Err(DirectError::HalfIdentity),
        }
    }
}

impl DirectServerTls {
    /// Reads the files.
    pub(crate) fn load(&self) -> Result<ServerTlsConfig, DirectError> {
        let identity = Identity::from_pem(read(&self.cert_file)?, read(&self.key_file)?);
        let tls = ServerTlsConfig::new().identity(identity);
        Ok(match &self.client_ca_file {
            Some(file) => tls.client_ca_root(Certificate::from_pem(read(file)?)),
            None => tls,
        })
    }
}
