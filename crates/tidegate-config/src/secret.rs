// SPDX-License-Identifier: Apache-2.0

//! Which values are secrets, by type ([`Secret`]) and by the name of their key.

use std::fmt;

use super::node::Path;
use super::source::REDACTED;

/// A string that no print shows: `Debug` and `Display` give `[REDACTED]`.
///
/// ```
/// use tidegate_config::Secret;
/// let key = Secret::new("hunter2");
/// assert_eq!(format!("{key} {key:?}"), "[REDACTED] [REDACTED]");
/// assert_eq!(key.expose(), "hunter2");
/// ```
#[derive(Clone, Default, Eq, Hash, PartialEq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// Keys whose values are secrets when the key, lower-cased and with `_` for `-`, ends so.
const SECRET_ENDINGS: &[&str] = &[
    "access_key",
    "api_key",
    "apikey",
    "authorization",
    "cookie",
    "credential",
    "credentials",
    "key_pem",
    "passphrase",
    "passwd",
    "password",
    "private_key",
    "secret",
    "secret_key",
    "token",
];

/// Keys below which every value is a secret, except the names in a list of headers.
const SECRET_MAPS: &[&str] = &["headers", "record_headers", "response_headers"];

/// Whether the name of a key promises a secret.
pub(super) fn is_secret_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase().replace('-', "_");
    is_secret_map(&key) || SECRET_ENDINGS.iter().any(|end| key.ends_with(end))
}

/// Whether all values below a key are secrets.
pub(super) fn is_secret_map(key: &str) -> bool {
    SECRET_MAPS.contains(&key.to_ascii_lowercase().replace('-', "_").as_str())
}

/// Words of keys that may name a secret. They suspect more than [`SECRET_ENDINGS`]: `routing_key` as well.
const SUSPICIOUS_WORDS: &[&str] = &[
    "authorization",
    "credential",
    "key",
    "password",
    "secret",
    "token",
];

/// Whether a key may name a secret, for values that no option reads.
pub(super) fn is_suspicious_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    SUSPICIOUS_WORDS.iter().any(|word| key.contains(word))
}

/// Whether a value stands below a key of an option that promises secrets. The name of a header in a list is not a secret.
pub(super) fn is_secret_path(path: &Path) -> bool {
    path.has_option(is_secret_key) && !path.is_name_in_list(is_secret_map)
}

/// Whether a text has a URL with `user:password@` in front of its host, or with a parameter that may be a secret. It may have
/// several URLs. An address without a scheme may have `user:password@` too.
pub(super) fn has_url_credentials(text: &str) -> bool {
    text.split([',', ' ']).any(is_url_with_secret)
}

fn is_url_with_secret(text: &str) -> bool {
    let is_secret = |parameter: &str| {
        let (key, _) = parameter.split_once('=').unwrap_or_default();
        is_secret_key(key) || is_suspicious_key(key) || key == "sig"
    };
    let Some((_, rest)) = text.split_once("://") else {
        let login = text.rsplit_once('@').map_or("", |(login, _)| login);
        return login.contains(':');
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.contains('@') || rest.split(['?', '&', '#']).skip(1).any(is_secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_with_logins_and_secret_parameters_are_found() {
        for text in [
            "https://u:p@a.example/x",
            "see http://a/, http://u@b/",
            "u:p@nats:4222",
            "u:p/w@nats:4222",
            "u:p@a:4222, b:4222",
            "u:p@a:4222,nats://b",
            "https://a.example/x?sig=s",
            "https://a.example/x#access_token=t",
            "https://a.example/x?limit=1&token=t",
        ] {
            assert!(has_url_credentials(text), "{text}");
        }
        for text in [
            "https://a.example/x?limit=1",
            "a.example:4222",
            "someone@a.example",
            "key: someone@a.example",
            "sum by (a) (rate(x[5m])) # a@b",
        ] {
            assert!(!has_url_credentials(text), "{text}");
        }
    }
}
