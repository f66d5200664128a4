// SPDX-License-Identifier: Apache-2.0

//! Options of the `kafka` engine, and its start.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_cluster::ClusterEngine;
use tidegate_kafka::{KafkaAuth, KafkaConfig, KafkaEngine, KafkaTls};

use crate::config::{ByteSize, Node, Problems, Secret};

crate::options! {
    /// `kafka`: a compacted topic. The engine creates it.
    pub struct KafkaOptions {
        /// Brokers to ask first, as `host:port`.
        pub brokers: Vec<String> = vec!["localhost:9092".to_owned()],
        /// Name of the topic. Unset: `tidegate.` and the name of the cluster.
        pub topic: Option<String> = None,
        /// Number of brokers that keep each partition of a new topic. Unset: as the brokers have it.
        pub replication_factor: Option<u8> = None,
        /// User for SASL. Unset: the brokers do not ask.
        pub sasl: Option<KafkaSaslOptions> = None,
        /// TLS to the brokers. Unset: connections are not encrypted.
        pub tls: Option<KafkaTlsOptions> = None,
        /// Name of this client in the logs and quotas of the brokers.
        pub client_id: String = "tidegate".to_owned(),
        /// Most time for a connection to one broker.
        pub connect_timeout: Duration = Duration::from_secs(5),
        /// Most time for an answer of a broker, and for a transaction. It is at least `connect_timeout`.
        pub request_timeout: Duration = Duration::from_secs(10),
        /// Most bytes of the list of pages, and of each of the two lists of records.
        pub max_index_bytes: ByteSize = ByteSize::mib(64),
    }
    check = KafkaOptions::check
}

crate::options! {
    /// `sasl` of `kafka`.
    pub struct KafkaSaslOptions {
        /// Mechanism.
        pub mechanism: SaslMechanism = required,
        /// Name of the user. `OAUTHBEARER` has none.
        pub username: Option<String> = None,
        /// Password of the user. `OAUTHBEARER` has none.
        pub password: Option<Secret> = None,
        /// File with the token of `OAUTHBEARER`. It is read for each connection.
        pub token_file: Option<PathBuf> = None,
    }
    check = KafkaSaslOptions::check
}

crate::choices! {
    /// A mechanism of SASL.
    pub enum SaslMechanism {
        /// The brokers get the password itself. Use TLS with it.
        Plain = "PLAIN",
        /// The brokers get a proof of the password, with SHA-256.
        ScramSha256 = "SCRAM-SHA-256",
        /// The brokers get a proof of the password, with SHA-512.
        ScramSha512 = "SCRAM-SHA-512",
        /// The brokers get a token. Use TLS with it.
        OauthBearer = "OAUTHBEARER",
    }
}

crate::options! {
    /// `tls` of `kafka`. The engine looks at changed files once a minute.
    pub struct KafkaTlsOptions {
        /// PEM file with the authorities that the gateway trusts. Unset: those of the system.
        pub ca_file: Option<PathBuf> = None,
        /// Whether the gateway trusts the authorities of the system as well.
        pub include_system_ca_certs_pool: bool = false,
        /// PEM file with the client certificate.
        pub cert_file: Option<PathBuf> = None,
        /// PEM file with the private key of the client certificate.
        pub key_file: Option<PathBuf> = None,
        /// Name that the certificate of a broker must have. Unset: the host of its address.
        pub server_name_override: Option<String> = None,
        /// Whether the gateway takes any certificate, for tests.
        pub insecure_skip_verify: bool = false,
    }
}

impl KafkaOptions {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if let Err(error) = self.engine(1).validate() {
            cx.at(at).error(error.to_string());
        }
        let sends_secret = |sasl: &KafkaSaslOptions| {
            matches!(sasl.mechanism, SaslMechanism::Plain | SaslMechanism::OauthBearer)
        };
        if self.tls.is_none() && self.sasl.as_ref().is_some_and(sends_secret) {
            cx.at(at.child("sasl"))
                .warning("without `tls`, this mechanism shows the secret to everybody on the network");
        }
    }

    fn engine(&self, partitions: u16) -> KafkaConfig {
        KafkaConfig {
            topic: self.topic.clone(),
            partitions,
            replication_factor: self.replication_factor,
            auth: self.sasl.as_ref().map(KafkaSaslOptions::engine),
            tls: self.tls.as_ref().map(KafkaTlsOptions::engine),
            client_id: self.client_id.clone(),
            connect_timeout: self.connect_timeout,
            request_timeout: self.request_timeout,
            max_index_bytes: usize::try_from(self.max_index_bytes.bytes()).unwrap_or(usize::MAX),
            ..KafkaConfig::new(self.brokers.clone())
        }
    }
}

impl KafkaSaslOptions {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let (has_user, has_password) = (self.username.is_some(), self.password.is_some());
        let needs_token = self.mechanism == SaslMechanism::OauthBearer;
        if needs_token && (has_user || has_password || self.token_file.is_none()) {
            cx.at(at).error("`OAUTHBEARER` needs `token_file` alone");
        }
        if !needs_token && (!has_user || !has_password || self.token_file.is_some()) {
            cx.at(at).error(format!(
                "`{}` needs `username` and `password` alone",
                self.mechanism
            ));
        }
    }

    fn engine(&self) -> KafkaAuth {
        // The check has found those that the mechanism needs.
        let username = self.username.clone().unwrap_or_default();
        let password = self.password.clone().unwrap_or_default();
        match self.mechanism {
            SaslMechanism::Plain => KafkaAuth::Plain { username, password },
            SaslMechanism::ScramSha256 => KafkaAuth::ScramSha256 { username, password },
            SaslMechanism::ScramSha512 => KafkaAuth::ScramSha512 { username, password },
            SaslMechanism::OauthBearer => KafkaAuth::OauthBearer {
                token_file: self.token_file.clone().unwrap_or_default(),
            },
        }
    }
}

impl KafkaTlsOptions {
    fn engine(&self) -> KafkaTls {
        KafkaTls {
            ca_file: self.ca_file.clone(),
            include_system_ca_certs_pool: self.include_system_ca_certs_pool,
            cert_file: self.cert_file.clone(),
            key_file: self.key_file.clone(),
            server_name_override: self.server_name_override.clone(),
            insecure_skip_verify: self.insecure_skip_verify,
        }
    }
}

/// Starts the engine of a cluster.
pub(super) fn start(
    options: &KafkaOptions,
    cluster: &str,
    partitions: u16,
) -> Result<Arc<dyn ClusterEngine>, String> {
    let engine = KafkaEngine::start(options.engine(partitions), cluster);
    Ok(Arc::new(engine.map_err(|error| error.to_string())?))
}
