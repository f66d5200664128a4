// SPDX-License-Identifier: Apache-2.0

//! `sigv4auth`: signs requests to Amazon's services (Signature Version 4).
//!
//! Keys come from a credentials file, the environment (`AWS_ACCESS_KEY_ID` and its siblings) or
//! `~/.aws/credentials`, in this order. Files are read again after changes, which renews short-lived keys.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use http::{HeaderName, Uri};
use ring::hmac;

use super::LOOK;
use crate::batch::ClientMetadata;
use crate::component::auth::Credentials;
use crate::component::files;
use crate::component::services::Services;
use crate::component::{
    ComponentError, ConfigType, Context, ErrorDoc, Extension, ExtensionFactory, Factory, Lifecycle, Stability,
};
use crate::config::{Node, Problems};
use crate::net::reload::Reloading;

crate::options! {
    /// Options of the `sigv4auth` extension.
    pub struct SigV4Config {
        /// Region of the service, for example `eu-central-1`.
        pub region: String = required,
        /// Name of the service in signatures: `monitoring`, `aps`, `logs` or `xray`.
        pub service: String = "monitoring".to_owned(),
        /// File with profiles and keys, in the format of the `aws` command.
        pub credentials_file: Option<PathBuf> = None,
        /// Profile in that file.
        pub profile: String = "default".to_owned(),
    }
    check = SigV4Config::check
}

impl SigV4Config {
    fn check(&self, at: &Node, cx: &mut Problems) {
        for (name, value) in [("region", &self.region), ("service", &self.service)] {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
            if value.is_empty() || !value.chars().all(plain) {
                cx.at(at.child(name)).error("must be letters, digits and `-`");
            }
        }
    }
}

/// The errors of `sigv4auth`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "There are no keys. The requests of the exporter fail, and are tried again.",
        "there are no keys: set `credentials_file` or AWS_ACCESS_KEY_ID",
        "Set `credentials_file`, or the variables of AWS.",
    ),
    ErrorDoc::logged(
        "The file has no such profile, or the profile has no keys.",
        "with aws_access_key_id and aws_secret_access_key",
        "Correct `profile`, or add the keys to the file.",
    ),
];

/// The factory of `sigv4auth`.
pub static FACTORY: ExtensionFactory = Factory {
    kind: "sigv4auth",
    aliases: &["sigv4_auth"],
    stability: Stability::Beta,
    help: "signs requests to Amazon's services",
    errors: &[ERRORS],
    config: ConfigType::of::<SigV4Config>(),
    build: |settings, cx| {
        let config = settings.get::<SigV4Config>();
        Ok(Arc::new(SigV4Auth {
            signer: Arc::new(Signer {
                keys: Keys::of(&config),
                region: config.region.clone(),
                service: config.service.clone(),
            }),
            base: cx,
        }))
    },
};

struct SigV4Auth {
    signer: Arc<Signer>,
    base: Context,
}

#[async_trait]
impl Lifecycle for SigV4Auth {
    /// Reads the keys now, because unreadable ones would fail every request later.
    async fn start(&self) -> Result<(), ComponentError> {
        let keys = self.signer.keys.current();
        keys.map(drop).map_err(|error| self.base.error(error))
    }
}

impl Extension for SigV4Auth {
    fn services(&self) -> Services {
        Services {
            credentials: Some(self.signer.clone()),
            ..Services::default()
        }
    }
}

/// The signing keys.
#[derive(Debug)]
struct Keys {
    id: String,
    secret: String,
    /// The session token of short-lived keys.
    token: Option<String>,
}

impl Keys {
    fn of(config: &SigV4Config) -> Reloading<Arc<Self>, String> {
        let of_user = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".aws/credentials"));
        let (file, profile) = (config.credentials_file.clone(), config.profile.clone());
        let watched = file.clone().or(of_user.clone());
        Reloading::new(watched, Some(LOOK), move || {
            if let (None, Some(keys)) = (&file, Self::from_environment(|name| std::env::var(name).ok())) {
                return Ok(Arc::new(keys));
            }
            let path = file.as_ref().or(of_user.as_ref());
            let path = path.ok_or("there are no keys: set `credentials_file` or AWS_ACCESS_KEY_ID")?;
            let text = files::read_text(path);
            let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
            let keys = Self::from_profiles(&text, &profile);
            let keys = keys.ok_or_else(|| {
                format!(
                    "{}: no profile `{profile}` with aws_access_key_id and aws_secret_access_key",
                    path.display()
                )
            })?;
            Ok(Arc::new(keys))
        })
    }

    fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        Some(Self {
            id: variable("AWS_ACCESS_KEY_ID")?,
            secret: variable("AWS_SECRET_ACCESS_KEY")?,
            token: variable("AWS_SESSION_TOKEN").filter(|token| !token.is_empty()),
        })
    }

    fn from_profiles(text: &str, profile: &str) -> Option<Self> {
        let lines = text.lines().map(str::trim);
        let header = format!("[{profile}]");
        let mut of_profile = lines
            .skip_while(|line| *line != header)
            .skip(1)
            .take_while(|line| !line.starts_with('['))
            .filter_map(|line| line.split_once('='))
            .map(|(key, value)| (key.trim(), value.trim().to_owned()))
            .collect::<std::collections::HashMap<_, _>>();
        Some(Self {
            id: of_profile.remove("aws_access_key_id")?,
            secret: of_profile.remove("aws_secret_access_key")?,
            token: of_profile.remove("aws_session_token"),
        })
    }
}

struct Signer {
    keys: Reloading<Arc<Keys>, String>,
    region: String,
    service: String,
}

const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

impl Credentials for Signer {
    fn apply(&self, _: &mut HeaderMap, _: Option<&ClientMetadata>) -> Result<(), String> {
        Ok(())
    }

    fn signs_requests(&self) -> bool {
        true
    }

    fn sign(&self, method: &str, uri: &Uri, headers: &mut HeaderMap, body: &[u8]) -> Result<(), String> {
        self.sign_at(SystemTime::now(), method, uri, headers, body)
    }
}

impl Signer {
    fn sign_at(
        &self,
        now: SystemTime,
        method: &str,
        uri: &Uri,
        headers: &mut HeaderMap,
        body: &[u8],
    ) -> Result<(), String> {
        let keys = self.keys.current()?;
        let time: String = humantime::format_rfc3339_seconds(now)
            .to_string()
            .replace(['-', ':'], "");
        let value = |text: &str| HeaderValue::try_from(text).map_err(|error| error.to_string());
        headers.insert(HOST, value(&host(uri))?);
        headers.insert(DATE, value(&time)?);
        if let Some(token) = &keys.token {
            let mut token = value(token)?;
            token.set_sensitive(true);
            headers.insert(TOKEN, token);
        }
        let mut signed: Vec<_> = [CONTENT_TYPE, HOST, DATE, TOKEN]
            .into_iter()
            .filter_map(|name| Some((name.clone(), headers.get(&name)?.to_str().ok()?.trim().to_owned())))
            .collect();
        signed.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        let names: Vec<_> = signed.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let lines: String = signed
            .iter()
            .map(|(name, value)| format!("{name}:{value}\n"))
            .collect();
        let canonical = format!(
            "{method}\n{}\n{}\n{lines}\n{names}\n{}",
            uri.path(),
            query(uri),
            hex(ring::digest::digest(&ring::digest::SHA256, body).as_ref())
        );
        let day = time.get(..8).unwrap_or_default();
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let digest = ring::digest::digest(&ring::digest::SHA256, canonical.as_bytes());
        let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(digest.as_ref()));
        let mut key = format!("AWS4{}", keys.secret).into_bytes();
        for part in [day, &self.region, &self.service, "aws4_request"] {
            key = mac(&key, part);
        }
        let signature = hex(&mac(&key, &to_sign));
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            keys.id
        );
        let mut authorization = value(&authorization)?;
        authorization.set_sensitive(true);
        headers.insert(AUTHORIZATION, authorization);
        Ok(())
    }
}

/// The host as in the request: with the port if that is not the default of the scheme.
fn host(uri: &Uri) -> String {
    let port = uri.port_u16().filter(|port| match uri.scheme_str() {
        Some("https") => *port != 443,
        _ => *port != 80,
    });
    let host = uri.host().unwrap_or_default();
    port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// The parameters in the order of their names.
fn query(uri: &Uri) -> String {
    let mut parameters: Vec<_> = uri.query().unwrap_or_default().split('&').collect();
    parameters.sort_unstable();
    let whole = parameters.into_iter().filter(|parameter| !parameter.is_empty());
    let whole = whole.map(|parameter| {
        if parameter.contains('=') {
            parameter.to_owned()
        } else {
            format!("{parameter}=")
        }
    });
    whole.collect::<Vec<_>>().join("&")
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
