// SPDX-License-Identifier: Apache-2.0

//! Options of the engine.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_config::{ByteSize, Node, Problems, Secret};

use crate::connection::NatsConnection;

tidegate_config::options! {
    /// `nats`: a stream of NATS JetStream. The engine creates it.
    pub struct NatsConfig {
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
        /// Token of the login, instead of a user and a password.
        pub token: Option<Secret> = None,
        /// Seed of an NKey.
        pub nkey: Option<Secret> = None,
        /// TLS. Unset: only if a server demands it, with the authorities of the system.
        pub tls: Option<NatsTlsConfig> = None,
        /// Most time for a connection to one server.
        pub connect_timeout: Duration = Duration::from_secs(5),
    }
    check = NatsConfig::check
}

tidegate_config::options! {
    /// `tls` of `nats`. The files are read for each connection.
    pub struct NatsTlsConfig {
        /// PEM file with the authorities that the gateway trusts. Unset: those of the system.
        pub ca_file: Option<PathBuf> = None,
        /// PEM file with the client certificate.
        pub cert_file: Option<PathBuf> = None,
        /// PEM file with the private key of the client certificate.
        pub key_file: Option<PathBuf> = None,
    }
}

/// Why options are refused.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// No server is given.
    #[error("`servers` is empty: name at least one server")]
    NoServers,
    /// A URL is not valid.
    #[error("`servers`: `{0}` is not a URL such as `nats://nats:4222`")]
    Server(String),
    /// A URL contains credentials, which logs would show.
    #[error("`servers`: a URL must not contain a user or a password: use `username` and `password`")]
    ServerCredentials,
    /// There are several credentials.
    #[error("set only one of `credentials_file`, `username`, `token` and `nkey`")]
    Credentials,
    /// A name without a password, or a password without a name.
    #[error("`username` and `password` must be set together")]
    Password,
    /// A certificate without a key, or a key without a certificate.
    #[error("`cert_file` and `key_file` must be set together")]
    Certificate,
    /// JetStream has streams with 1 to 5 replicas.
    #[error("`replicas` is {0}: it must be between 1 and 5")]
    Replicas(usize),
    /// The name of the stream has characters that NATS refuses.
    #[error("`stream`: `{0}` has a space or one of `. * > / \\`")]
    StreamName(String),
    /// The call is outside a tokio runtime.
    #[error("the engine needs a tokio runtime")]
    Runtime,
}

impl NatsConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if let Err(error) = self.validate() {
            cx.at(at).error(error.to_string());
        }
    }

    /// How to reach the servers.
    pub(crate) fn connection(&self) -> NatsConnection {
        NatsConnection {
            servers: self.servers.clone(),
            credentials_file: self.credentials_file.clone(),
            username: self.username.clone(),
            password: self.password.clone(),
            token: self.token.clone(),
            nkey: self.nkey.clone(),
            tls: self.tls.clone(),
            connect_timeout: self.connect_timeout,
        }
    }

    /// Checks the options without a connection.
    ///
    /// # Errors
    /// Options that are not valid or contradict each other.
    pub fn validate(&self) -> Result<(), NatsError> {
        self.connection().validate()?;
        if !(1..=5).contains(&self.replicas) {
            return Err(NatsError::Replicas(self.replicas));
        }
        match &self.stream {
            Some(name) if !is_stream_name(name) => Err(NatsError::StreamName(name.clone())),
            _ => Ok(()),
        }
    }
}

/// Whether a stream or a consumer may have this name.
pub(crate) fn is_stream_name(name: &str) -> bool {
    let is_refused =
        |c: char| c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '>' | '/' | '\\');
    !name.is_empty() && !name.contains(is_refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let secret = || Some(Secret::new("hunter2"));
        let with = |change: fn(&mut NatsConfig)| {
            let mut config = NatsConfig::default();
            change(&mut config);
            config
        };
        let valid = with(|config| config.username = Some("u".to_owned()));
        let valid = NatsConfig {
            password: secret(),
            ..valid
        };
        assert!(valid.validate().is_ok());
        assert!(!format!("{valid:?}").contains("hunter2"));
        let token = secret();
        let both = NatsConfig { token, ..valid };
        assert!(matches!(both.validate(), Err(NatsError::Credentials)));
        let cases: [fn(&mut NatsConfig); 5] = [
            |config| config.username = Some("u".to_owned()),
            |config| config.replicas = 0,
            |config| config.stream = Some("a.b".to_owned()),
            |config| config.stream = Some(String::new()),
            |config| {
                config.tls = Some(NatsTlsConfig {
                    key_file: Some("key.pem".into()),
                    ..NatsTlsConfig::default()
                });
            },
        ];
        for case in cases {
            assert!(with(case).validate().is_err());
        }
    }
}
