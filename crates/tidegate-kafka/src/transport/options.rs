// SPDX-License-Identifier: Apache-2.0

//! Options that the exporter and the receiver share, with the Collector's names.

use tidegate_config::Secret;

use crate::{KafkaSaslConfig, KafkaTlsConfig, SaslMechanism};

tidegate_config::choices! {
    /// The encoding of messages.
    pub enum TelemetryEncoding {
        /// An OTLP request in protobuf.
        OtlpProto = "otlp_proto",
        /// An OTLP request in JSON.
        OtlpJson = "otlp_json",
    }
}

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
}
