// SPDX-License-Identifier: Apache-2.0

//! TLS and SASL for the library.

use std::path::{Path, PathBuf};

use krafka::KrafkaError;
use krafka::auth::{AuthConfig, OAuthBearerToken, TlsConfig};
use tidegate_config::Secret;

use crate::connection::Connection;
use crate::{KafkaSaslConfig, KafkaTlsConfig, SaslMechanism};

/// The security of the configuration; `None`: plain connections without a user.
pub(super) fn auth(connection: &Connection) -> Option<AuthConfig> {
    let tls = connection.encryption().map(tls);
    match (connection.sasl.as_ref().map(sasl), tls) {
        (Some(sasl), Some(tls)) => Some(sasl.with_tls(tls)),
        (Some(sasl), None) => Some(sasl),
        (None, Some(tls)) => Some(AuthConfig::ssl(tls)),
        (None, None) => None,
    }
}

fn sasl(sasl: &KafkaSaslConfig) -> AuthConfig {
    // The check has found those that the mechanism needs.
    let username = sasl.username.as_deref().unwrap_or_default();
    let password = sasl.password.as_ref().map_or("", Secret::expose);
    match sasl.mechanism {
        SaslMechanism::Plain => AuthConfig::sasl_plain(username, password),
        SaslMechanism::ScramSha256 => AuthConfig::sasl_scram_sha256(username, password),
        SaslMechanism::ScramSha512 => AuthConfig::sasl_scram_sha512(username, password),
        SaslMechanism::OauthBearer => {
            let file = sasl.token_file.clone().unwrap_or_default();
            AuthConfig::sasl_oauthbearer_provider(move || token(file.clone()))
        }
    }
}

async fn token(file: PathBuf) -> krafka::Result<OAuthBearerToken> {
    let name = file.display().to_string();
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(file)).await;
    match read {
        Ok(Ok(text)) => Ok(OAuthBearerToken::new(text.trim())),
        Ok(Err(error)) => Err(KrafkaError::auth(format!("{name}: {error}"))),
        Err(error) => Err(KrafkaError::auth(format!("{name}: {error}"))),
    }
}

fn tls(tls: &KafkaTlsConfig) -> TlsConfig {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut config = if tls.insecure_skip_verify {
        TlsConfig::insecure()
    } else {
        TlsConfig::new()
    };
    if let Some(file) = &tls.ca_file {
        config = config.with_ca_cert(text(file));
    }
    if tls.ca_file.is_none() || tls.include_system_ca_certs_pool {
        config = config.with_native_roots();
    }
    if let (Some(cert), Some(key)) = (&tls.cert_file, &tls.key_file) {
        config = config.with_client_cert(text(cert), text(key));
    }
    if let Some(name) = &tls.server_name_override {
        config = config.with_sni_hostname(name);
    }
    config
}
