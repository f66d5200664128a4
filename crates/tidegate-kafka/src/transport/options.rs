// SPDX-License-Identifier: Apache-2.0

//! Options that the exporter and the receiver share, with the Collector's names.

use tidegate_config::{Node, Problems, Secret};

use crate::{Connection, KafkaSaslConfig, KafkaTlsConfig, SHOWN_SECRET, SaslMechanism};

tidegate_config::options! {
    /// `auth`.
    pub struct KafkaAuthConfig {
        /// User for SASL.
        pub sasl: Option<KafkaSaslConfig> = None,
        /// Old form of `sasl` with the mechanism `PLAIN`.
        pub plain_text: Option<PlainTextConfig> = None,
        /// Old form of `tls` at the top.
        pub tls: Option<KafkaTlsConfig> = None,
    }
    refused = REFUSED;
}

tidegate_config::options! {
    /// `plain_text`.
    pub struct PlainTextConfig {
        /// Name of the user.
        pub username: String = required,
        /// Password of the user.
        pub password: Secret = required,
    }
}

const REFUSED: &[(&str, &str)] = &[("kerberos", "use `sasl` or client certificates in `tls`")];

/// Topics, by `Signal as usize`.
pub const TOPICS: [&str; 3] = ["otlp_metrics", "otlp_spans", "otlp_logs"];

impl KafkaAuthConfig {
    /// The user, in either form.
    pub fn user(&self) -> Option<KafkaSaslConfig> {
        let plain = self.plain_text.as_ref().map(|plain| KafkaSaslConfig {
            mechanism: SaslMechanism::Plain,
            username: Some(plain.username.clone()),
            password: Some(plain.password.clone()),
            token_file: None,
        });
        self.sasl.clone().or(plain)
    }

    /// TLS to the brokers: `tls` at the top, or its old form here.
    pub fn tls_beside(&self, tls: Option<&KafkaTlsConfig>) -> Option<KafkaTlsConfig> {
        tls.or(self.tls.as_ref()).cloned()
    }

    /// Reports the mistakes of a connection with this user, and old options that the exporter and the receiver share.
    pub fn check(&self, connection: &Connection, at: &Node, cx: &mut Problems) {
        if let Err(error) = connection.validate() {
            cx.at(at).error(error.to_string());
        }
        if connection.shows_secret() {
            cx.at(at.child("auth")).warning(SHOWN_SECRET);
        }
        if self.sasl.is_some() && self.plain_text.is_some() {
            cx.at(at.child("auth"))
                .error("give either `sasl` or `plain_text`");
        }
        for name in ["topic", "encoding"] {
            if at.get(name).is_some() {
                cx.at(at.child(name))
                    .warning("is deprecated: set it in `metrics`, `traces` and `logs`");
            }
        }
    }
}
