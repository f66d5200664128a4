// SPDX-License-Identifier: Apache-2.0

//! What every client of the brokers needs to know: the engine of a cluster, and the transport of telemetry.

use std::time::Duration;

use crate::{KafkaError, KafkaSaslConfig, KafkaTlsConfig};

/// The warning about a secret that is not encrypted.
pub const SHOWN_SECRET: &str = "without `tls`, this mechanism shows the secret to everybody on the network";

/// How a client reaches the brokers.
#[derive(Clone, Debug, PartialEq)]
pub struct Connection {
    /// Brokers to ask first, as `host:port`.
    pub brokers: Vec<String>,
    /// Name of the client in the logs and quotas of the brokers.
    pub client_id: String,
    /// User. `None`: the brokers do not ask.
    pub sasl: Option<KafkaSaslConfig>,
    /// TLS. `None`: connections are not encrypted.
    pub tls: Option<KafkaTlsConfig>,
    /// Most time for a connection to one broker.
    pub connect_timeout: Duration,
    /// Most time for an answer of a broker.
    pub request_timeout: Duration,
    /// Whether the brokers may create a topic that is absent, if their settings allow it.
    pub creates_topics: bool,
}

impl Connection {
    /// Checks the options without a connection.
    ///
    /// # Errors
    /// Options that are not valid or contradict each other.
    pub fn validate(&self) -> Result<(), KafkaError> {
        if self.brokers.is_empty() {
            return Err(KafkaError::NoBrokers);
        }
        self.brokers
            .iter()
            .try_for_each(|address| check_broker(address))?;
        if self.connect_timeout.is_zero() || self.request_timeout.is_zero() {
            return Err(KafkaError::Timeout);
        }
        let is_half = |tls: &KafkaTlsConfig| tls.cert_file.is_some() != tls.key_file.is_some();
        if self.tls.as_ref().is_some_and(is_half) {
            return Err(KafkaError::Certificate);
        }
        self.sasl.as_ref().map_or(Ok(()), KafkaSaslConfig::validate)
    }

    /// Whether the brokers get a secret over connections that are not encrypted.
    pub fn shows_secret(&self) -> bool {
        self.encryption().is_none() && self.sasl.as_ref().is_some_and(KafkaSaslConfig::sends_secret)
    }

    /// The TLS of connections; `None`: they are not encrypted.
    pub(crate) fn encryption(&self) -> Option<&KafkaTlsConfig> {
        self.tls.as_ref().filter(|tls| !tls.insecure)
    }
}

fn check_broker(address: &str) -> Result<(), KafkaError> {
    if address.contains('@') {
        return Err(KafkaError::BrokerCredentials);
    }
    let is_valid = address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains([',', ' ', '/']) && port.parse::<u16>().is_ok()
    });
    if is_valid {
        return Ok(());
    }
    Err(KafkaError::Broker(address.to_owned()))
}

#[cfg(test)]
mod tests {
    use tidegate_config::Secret;

    use super::*;
    use crate::SaslMechanism;

    #[test]
    fn an_address_that_is_no_host_and_port_is_refused() {
        for address in ["", "kafka", ":9092", "a:9092,b:9092", "kafka://a:9092"] {
            let refused = check_broker(address);
            assert!(matches!(refused, Err(KafkaError::Broker(_))), "{address}");
        }
        let error = check_broker("u:hunter2@kafka:9092").unwrap_err();
        assert!(!error.to_string().contains("hunter2"));
    }

    #[test]
    fn a_secret_is_shown_only_without_encryption() {
        let sasl = KafkaSaslConfig {
            mechanism: SaslMechanism::Plain,
            username: Some("u".to_owned()),
            password: Some(Secret::new("hunter2")),
            token_file: None,
        };
        let tls = |insecure| KafkaTlsConfig {
            insecure,
            ..KafkaTlsConfig::default()
        };
        for (tls, shows) in [(None, true), (Some(tls(true)), true), (Some(tls(false)), false)] {
            let connection = Connection {
                brokers: vec!["kafka:9092".to_owned()],
                client_id: String::new(),
                sasl: Some(sasl.clone()),
                tls,
                connect_timeout: Duration::from_secs(1),
                request_timeout: Duration::from_secs(1),
                creates_topics: false,
            };
            assert!(connection.validate().is_ok());
            assert_eq!(connection.shows_secret(), shows);
        }
    }
}
