// SPDX-License-Identifier: Apache-2.0

//! The options of the engine.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_config::Secret;

/// Why the engine can't start.
#[derive(Debug, thiserror::Error)]
pub enum KafkaError {
    /// The list of brokers is empty.
    #[error("`brokers` is empty: name at least one broker as `host:port`")]
    NoBrokers,
    /// A broker without a host or a port.
    #[error("`{0}` in `brokers` is not a host and a port, such as `kafka:9092`")]
    Broker(String),
    /// No copy of a partition.
    #[error("`replication_factor` is 0: a partition has at least 1 copy")]
    NoCopies,
    /// No time to connect or to answer.
    #[error("`connect_timeout` and `request_timeout` must be greater than 0")]
    NoTime,
    /// The cluster has no partition.
    #[error("`partitions` is 0: a cluster has at least 1 partition")]
    NoPartitions,
    /// Kafka does not take the name.
    #[error("`{0}` is not a name of a topic: set `topic` to 1 to 249 letters, digits, `.`, `_` and `-`")]
    Topic(String),
    /// A certificate without its key, or a key without its certificate.
    #[error("`cert_file` and `key_file` belong together: set both or none")]
    HalfIdentity,
    /// The caller runs outside a tokio runtime.
    #[error("the engine needs a tokio runtime")]
    NoRuntime,
}

/// Who the engine is for the brokers.
#[derive(Clone, Debug)]
pub enum KafkaAuth {
    /// SASL PLAIN. Use it with TLS only: the brokers get the password itself.
    Plain {
        /// The user.
        username: String,
        /// The password.
        password: Secret,
    },
    /// SASL SCRAM-SHA-256.
    ScramSha256 {
        /// The user.
        username: String,
        /// The password.
        password: Secret,
    },
    /// SASL SCRAM-SHA-512.
    ScramSha512 {
        /// The user.
        username: String,
        /// The password.
        password: Secret,
    },
    /// SASL OAUTHBEARER.
    OauthBearer {
        /// The file with the token. The engine reads it for each connection, so another program may renew it.
        token_file: PathBuf,
    },
}

/// TLS between the engine and the brokers. The engine looks at changed files once a minute.
#[derive(Clone, Debug, Default)]
pub struct KafkaTls {
    /// Trust these authorities instead of the system's, PEM.
    pub ca_file: Option<PathBuf>,
    /// Trust the system's authorities as well where `ca_file` is given (default: false).
    pub include_system_ca_certs_pool: bool,
    /// Client certificate chain, PEM.
    pub cert_file: Option<PathBuf>,
    /// Private key of the client certificate, PEM.
    pub key_file: Option<PathBuf>,
    /// The name that the certificates of the brokers must carry, where it is not their host.
    pub server_name_override: Option<String>,
    /// TLS without a check of the certificates of the brokers (default: false). For tests.
    pub insecure_skip_verify: bool,
}

/// The options of the engine.
#[derive(Clone, Debug)]
pub struct KafkaConfig {
    /// Brokers to ask first, as `host:port`.
    pub brokers: Vec<String>,
    /// The topic (default: `tidegate.` and the name of the cluster). The engine creates it if it is absent.
    pub topic: Option<String>,
    /// The number of partitions of the cluster (default: 1). The topic has two more.
    pub partitions: u16,
    /// The copies of each partition of a new topic (default: what the brokers have as their default).
    pub replication_factor: Option<u8>,
    /// SASL; `None`: the brokers do not ask.
    pub auth: Option<KafkaAuth>,
    /// TLS; `None`: plain connections.
    pub tls: Option<KafkaTls>,
    /// The name of this client in the logs and quotas of the brokers (default: `tidegate`).
    pub client_id: String,
    /// The time for a connection to a broker (default: 5 s).
    pub connect_timeout: Duration,
    /// The time for an answer of a broker (default: 10 s). It must not be shorter than `connect_timeout`.
    pub request_timeout: Duration,
    /// The most bytes of the list of known pages, and of each of the two lists of known records (default: 64 MiB). Pages
    /// beyond it stay in the topic when their run is folded. Records beyond it are not writable.
    pub max_index_bytes: usize,
}

impl KafkaConfig {
    /// The defaults.
    pub fn new(brokers: Vec<String>) -> Self {
        Self {
            brokers,
            topic: None,
            partitions: 1,
            replication_factor: None,
            auth: None,
            tls: None,
            client_id: "tidegate".to_owned(),
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(10),
            max_index_bytes: 64 << 20,
        }
    }

    /// The topic of a cluster.
    pub(crate) fn topic_of(&self, cluster: &str) -> String {
        let named = self.topic.clone();
        named.unwrap_or_else(|| format!("tidegate.{cluster}"))
    }

    /// Checks what no broker is needed for.
    ///
    /// # Errors
    /// An option is wrong.
    pub fn validate(&self) -> Result<(), KafkaError> {
        if self.brokers.is_empty() {
            return Err(KafkaError::NoBrokers);
        }
        if let Some(broker) = self.brokers.iter().find(|broker| !is_broker(broker)) {
            return Err(KafkaError::Broker(broker.clone()));
        }
        if self.partitions == 0 {
            return Err(KafkaError::NoPartitions);
        }
        if self.replication_factor == Some(0) {
            return Err(KafkaError::NoCopies);
        }
        if self.connect_timeout.is_zero() || self.request_timeout.is_zero() {
            return Err(KafkaError::NoTime);
        }
        let is_half = |tls: &KafkaTls| tls.cert_file.is_some() != tls.key_file.is_some();
        if self.tls.as_ref().is_some_and(is_half) {
            return Err(KafkaError::HalfIdentity);
        }
        match &self.topic {
            Some(topic) if !is_topic(topic) => Err(KafkaError::Topic(topic.clone())),
            Some(_) | None => Ok(()),
        }
    }

    /// The same, with the name of the cluster.
    pub(crate) fn check(&self, cluster: &str) -> Result<(), KafkaError> {
        self.validate()?;
        let topic = self.topic_of(cluster);
        if is_topic(&topic) {
            Ok(())
        } else {
            Err(KafkaError::Topic(topic))
        }
    }
}

fn is_broker(address: &str) -> bool {
    let parts = address.rsplit_once(':');
    parts.is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains([',', ' ']) && port.parse::<u16>().is_ok()
    })
}

fn is_topic(name: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && !matches!(name, "." | "..") && name.bytes().all(is_legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> KafkaConfig {
        KafkaConfig::new(vec!["localhost:9092".to_owned()])
    }

    #[test]
    fn a_topic_has_the_name_of_its_cluster() {
        assert_eq!(config().topic_of("prod-a"), "tidegate.prod-a");
        assert!(config().check("prod-a").is_ok());
        assert!(matches!(config().check("prod a"), Err(KafkaError::Topic(_))));
        let topic = Some("metrics".to_owned());
        assert!(KafkaConfig { topic, ..config() }.check("prod a").is_ok());
    }

    #[test]
    fn options_that_no_broker_could_serve_are_refused() {
        assert!(matches!(
            KafkaConfig::new(Vec::new()).check("c"),
            Err(KafkaError::NoBrokers)
        ));
        for broker in ["", "kafka", ":9092", "a:9092,b:9092"] {
            let config = KafkaConfig::new(vec![broker.to_owned()]);
            assert!(
                matches!(config.validate(), Err(KafkaError::Broker(_))),
                "{broker}"
            );
        }
        let none = KafkaConfig {
            replication_factor: Some(0),
            ..config()
        };
        assert!(matches!(none.validate(), Err(KafkaError::NoCopies)));
        let none = KafkaConfig {
            request_timeout: Duration::ZERO,
            ..config()
        };
        assert!(matches!(none.validate(), Err(KafkaError::NoTime)));
        let none = KafkaConfig {
            partitions: 0,
            ..config()
        };
        assert!(matches!(none.check("c"), Err(KafkaError::NoPartitions)));
        let tls = KafkaTls {
            cert_file: Some("cert.pem".into()),
            ..KafkaTls::default()
        };
        let half = KafkaConfig {
            tls: Some(tls),
            ..config()
        };
        assert!(matches!(half.check("c"), Err(KafkaError::HalfIdentity)));
    }

    #[test]
    fn a_password_is_not_printed() {
        let config = KafkaConfig {
            auth: Some(KafkaAuth::Plain {
                username: "u".to_owned(),
                password: Secret::new("hunter2"),
            }),
            ..config()
        };
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
