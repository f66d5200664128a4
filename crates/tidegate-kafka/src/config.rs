// SPDX-License-Identifier: Apache-2.0

//! Options of the engine. The transport shares those of TLS and SASL.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_config::{ByteSize, Node, Problems, Secret};

use crate::connection::{Connection, SHOWN_SECRET};

tidegate_config::options! {
    /// `kafka`: a compacted topic. The engine creates it.
    pub struct KafkaConfig {
        /// Brokers to ask first, as `host:port`.
        pub brokers: Vec<String> = vec!["localhost:9092".to_owned()],
        /// Name of the topic. Unset: `tidegate.` and the name of the cluster.
        pub topic: Option<String> = None,
        /// Number of brokers that keep each partition of a new topic. Unset: the default of the brokers.
        pub replication_factor: Option<u8> = None,
        /// User for SASL. Unset: the brokers do not ask.
        pub sasl: Option<KafkaSaslConfig> = None,
        /// TLS to the brokers. Unset: connections are not encrypted.
        pub tls: Option<KafkaTlsConfig> = None,
        /// Name of this client in the logs and quotas of the brokers.
        pub client_id: String = "tidegate".to_owned(),
        /// Most time for a connection to one broker.
        pub connect_timeout: Duration = Duration::from_secs(5),
        /// Most time for an answer of a broker, and for a transaction. It is at least `connect_timeout`.
        pub request_timeout: Duration = Duration::from_secs(10),
        /// Most bytes of the list of pages, and of each of the two lists of records. Purges do not remove pages beyond it,
        /// and records beyond it are not writable.
        pub max_index_bytes: ByteSize = ByteSize::mib(64),
    }
    check = KafkaConfig::check
}

tidegate_config::options! {
    /// `sasl` of `kafka`.
    pub struct KafkaSaslConfig {
        /// SASL mechanism of the login.
        pub mechanism: SaslMechanism = required,
        /// Name of the user. `OAUTHBEARER` has none.
        pub username: Option<String> = None,
        /// Password of the user. `OAUTHBEARER` has none.
        pub password: Option<Secret> = None,
        /// File with the token of `OAUTHBEARER`. It is read for each connection.
        pub token_file: Option<PathBuf> = None,
    }
}

tidegate_config::choices! {
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

tidegate_config::options! {
    /// `tls` of `kafka`. The engine looks for changed files once a minute.
    pub struct KafkaTlsConfig {
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
        /// Whether connections are not encrypted, as without `tls`.
        pub insecure: bool = false,
    }
}

/// Why a client does not start.
#[derive(Debug, thiserror::Error)]
pub enum KafkaError {
    /// No broker is given.
    #[error("`brokers` is empty: name at least one broker as `host:port`")]
    NoBrokers,
    /// A broker has no host or no port.
    #[error("`brokers`: `{0}` is not a host and a port, such as `kafka:9092`")]
    Broker(String),
    /// An address contains credentials, which logs would show.
    #[error("`brokers`: an address must not contain a user or a password: use `sasl`")]
    BrokerCredentials,
    /// A partition needs a copy.
    #[error("`replication_factor` is 0: set it to 1 or more, or omit it")]
    ReplicationFactor,
    /// A timeout leaves no time.
    #[error("`connect_timeout` and `request_timeout` must be greater than 0")]
    Timeout,
    /// The cluster has no partition.
    #[error("`partitions` is 0: set it to 1 or more")]
    Partitions,
    /// Kafka refuses the name of the topic.
    #[error("`topic`: `{0}` is not a name of 1 to 249 letters, digits, `.`, `_` and `-`")]
    TopicName(String),
    /// `OAUTHBEARER` needs a token, and no user.
    #[error("`sasl`: `OAUTHBEARER` needs `token_file` alone")]
    Token,
    /// Another mechanism needs a user, and no token.
    #[error("`sasl`: `{0}` needs `username` and `password` alone")]
    Password(SaslMechanism),
    /// A certificate without a key, or a key without a certificate.
    #[error("`tls`: `cert_file` and `key_file` must be set together")]
    Certificate,
    /// The call is outside a tokio runtime.
    #[error("the engine needs a tokio runtime")]
    Runtime,
}

impl KafkaConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if let Err(error) = self.validate() {
            cx.at(at).error(error.to_string());
        }
        if self.connection().shows_secret() {
            cx.at(at.child("sasl")).warning(SHOWN_SECRET);
        }
    }

    /// The part that every client of the brokers has.
    pub(crate) fn connection(&self) -> Connection {
        Connection {
            brokers: self.brokers.clone(),
            client_id: self.client_id.clone(),
            sasl: self.sasl.clone(),
            tls: self.tls.clone(),
            connect_timeout: self.connect_timeout,
            request_timeout: self.request_timeout,
            creates_topics: false,
        }
    }

    /// Checks the options without a connection.
    ///
    /// # Errors
    /// Options that are not valid or contradict each other.
    pub fn validate(&self) -> Result<(), KafkaError> {
        if self.replication_factor == Some(0) {
            return Err(KafkaError::ReplicationFactor);
        }
        self.connection().validate()?;
        self.topic.as_deref().map_or(Ok(()), check_topic)
    }

    /// The same, with the name and the partitions of the cluster.
    pub(crate) fn validate_for(&self, cluster: &str, partitions: u16) -> Result<(), KafkaError> {
        self.validate()?;
        if partitions == 0 {
            return Err(KafkaError::Partitions);
        }
        check_topic(&self.topic_of(cluster))
    }

    /// The topic of a cluster.
    pub(crate) fn topic_of(&self, cluster: &str) -> String {
        let named = self.topic.clone();
        named.unwrap_or_else(|| format!("tidegate.{cluster}"))
    }
}

impl KafkaSaslConfig {
    pub(crate) fn validate(&self) -> Result<(), KafkaError> {
        let (has_user, has_password) = (self.username.is_some(), self.password.is_some());
        let (needs_token, has_token) = (
            self.mechanism == SaslMechanism::OauthBearer,
            self.token_file.is_some(),
        );
        if needs_token && (has_user || has_password || !has_token) {
            return Err(KafkaError::Token);
        }
        if !needs_token && (!has_user || !has_password || has_token) {
            return Err(KafkaError::Password(self.mechanism));
        }
        Ok(())
    }

    /// Whether the brokers get the secret itself.
    pub(crate) fn sends_secret(&self) -> bool {
        matches!(self.mechanism, SaslMechanism::Plain | SaslMechanism::OauthBearer)
    }
}

/// Checks the name of a topic.
///
/// # Errors
/// Kafka refuses the name.
pub fn check_topic(name: &str) -> Result<(), KafkaError> {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let has_length = (1..=249).contains(&name.len()) && !matches!(name, "." | "..");
    if has_length && name.bytes().all(is_legal) {
        return Ok(());
    }
    Err(KafkaError::TopicName(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sasl(mechanism: SaslMechanism) -> KafkaSaslConfig {
        KafkaSaslConfig {
            mechanism,
            username: Some("u".to_owned()),
            password: Some(Secret::new("hunter2")),
            token_file: None,
        }
    }

    #[test]
    fn a_topic_has_the_name_of_its_cluster() {
        let mut config = KafkaConfig::default();
        assert_eq!(config.topic_of("prod-a"), "tidegate.prod-a");
        assert!(config.validate_for("prod-a", 1).is_ok());
        let named = config.validate_for("prod a", 1);
        assert!(matches!(named, Err(KafkaError::TopicName(_))));
        config.topic = Some("metrics".to_owned());
        assert!(config.validate_for("prod a", 1).is_ok());
        let empty = config.validate_for("prod a", 0);
        assert!(matches!(empty, Err(KafkaError::Partitions)));
    }

    #[test]
    fn options_that_no_broker_could_serve_are_refused() {
        let cases: [fn(&mut KafkaConfig); 8] = [
            |config| config.brokers.clear(),
            |config| config.replication_factor = Some(0),
            |config| config.request_timeout = Duration::ZERO,
            |config| config.topic = Some("a b".to_owned()),
            |config| config.tls.get_or_insert_default().cert_file = Some("cert.pem".into()),
            |config| config.sasl = Some(sasl(SaslMechanism::OauthBearer)),
            |config| {
                config.sasl = Some(KafkaSaslConfig {
                    username: None,
                    ..sasl(SaslMechanism::Plain)
                });
            },
            |config| {
                config.sasl = Some(KafkaSaslConfig {
                    token_file: Some("token".into()),
                    ..sasl(SaslMechanism::ScramSha512)
                });
            },
        ];
        for (number, change) in cases.into_iter().enumerate() {
            let mut config = KafkaConfig::default();
            assert!(config.validate().is_ok());
            change(&mut config);
            assert!(config.validate().is_err(), "case {number}");
        }
    }

    #[test]
    fn a_password_is_not_printed() {
        let config = KafkaConfig {
            sasl: Some(sasl(SaslMechanism::Plain)),
            ..KafkaConfig::default()
        };
        assert!(config.validate().is_ok());
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
