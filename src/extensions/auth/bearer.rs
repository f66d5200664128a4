// SPDX-License-Identifier: Apache-2.0

//! `bearertokenauth`: tokens (RFC 6750), in any header and with any scheme.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::{LOOK, digest};
use crate::batch::ClientMetadata;
use crate::component::account::SenderKey;
use crate::component::auth::{Authenticator, Credentials, Unauthenticated};
use crate::component::files;
use crate::component::services::Services;
use crate::component::{
    ComponentError, ConfigType, Context, ErrorDoc, Extension, ExtensionFactory, Factory, Lifecycle, Stability,
};
use crate::config::{Node, Problems, Secret};
use crate::net::reload::Reloading;

crate::options! {
    /// Options of the `bearertokenauth` extension.
    pub struct BearerTokenConfig {
        /// Word before the token. Empty: no word.
        pub scheme: String = "Bearer".to_owned(),
        /// Header that contains the token.
        pub header: String = "Authorization".to_owned(),
        /// The token that exporters send and receivers accept.
        pub token: Option<Secret> = None,
        /// Several tokens. Receivers accept each of them, and exporters send the first.
        pub tokens: Vec<Secret> = Vec::new(),
        /// File with one token per line, instead of `token`. The extension reads it again after a change.
        pub filename: Option<PathBuf> = None,
    }
    check = BearerTokenConfig::check
}

impl BearerTokenConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let ways = [
            self.token.is_some(),
            !self.tokens.is_empty(),
            self.filename.is_some(),
        ];
        if ways.iter().filter(|given| **given).count() != 1 {
            cx.at(at)
                .error("one of `token`, `tokens` and `filename` must be given");
        }
        let empty = |token: &Secret| token.expose().is_empty();
        if self.token.as_ref().is_some_and(empty) || self.tokens.iter().any(empty) {
            cx.at(at).error("a token must not be empty");
        }
        if HeaderName::try_from(self.header.as_str()).is_err() {
            cx.at(at.child("header")).error("this is not a header name");
        }
    }
}

/// The errors of `bearertokenauth`.
const ERRORS: &[ErrorDoc] = &[ErrorDoc::logged(
    "The gateway can't check tokens, for example because a file can't be read.",
    "no request can be authenticated",
    "Correct the file that the line names. Senders get 401 meanwhile.",
)];

/// The factory of `bearertokenauth`.
pub static FACTORY: ExtensionFactory = Factory {
    kind: "bearertokenauth",
    aliases: &["bearer_token_auth"],
    stability: Stability::Beta,
    help: "authenticates with tokens: senders (receivers) or the gateway (exporters)",
    errors: &[ERRORS],
    config: ConfigType::of::<BearerTokenConfig>(),
    build: |settings, cx| {
        let config = settings.get::<BearerTokenConfig>();
        let header = HeaderName::try_from(config.header.as_str());
        Ok(Arc::new(BearerAuth {
            auth: Arc::new(Bearer {
                header: header.map_err(|error| cx.error(error.to_string()))?,
                scheme: config.scheme.clone(),
                tokens: Tokens::of(&config),
            }),
            base: cx,
        }))
    },
};

struct BearerAuth {
    auth: Arc<Bearer>,
    base: Context,
}

#[async_trait]
impl Lifecycle for BearerAuth {
    /// Reads the files now, because an unreadable one would refuse everybody later.
    async fn start(&self) -> Result<(), ComponentError> {
        let tokens = self.auth.tokens.current();
        tokens.map(drop).map_err(|error| self.base.error(error))
    }
}

impl Extension for BearerAuth {
    fn services(&self) -> Services {
        Services {
            authenticator: Some(self.auth.clone()),
            credentials: Some(self.auth.clone()),
            ..Services::default()
        }
    }
}

/// The tokens in force.
struct Tokens {
    /// The digests of all accepted tokens.
    digests: HashSet<[u8; 32]>,
    /// The token that exporters send.
    own: HeaderValue,
}

impl Tokens {
    /// Out of the options, or again out of the file whenever it has changed.
    fn of(config: &BearerTokenConfig) -> Reloading<Arc<Self>, String> {
        let fixed: Vec<_> = config.token.iter().chain(&config.tokens).cloned().collect();
        let (file, prefix) = (config.filename.clone(), prefix(&config.scheme));
        Reloading::new(file.clone(), Some(LOOK), move || match &file {
            None => Self::new(&prefix, fixed.iter().map(Secret::expose)),
            Some(file) => {
                let text = files::read_text(file);
                let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
                Self::new(&prefix, text.lines().map(str::trim))
            }
        })
    }

    fn new<'a>(prefix: &str, tokens: impl Iterator<Item = &'a str>) -> Result<Arc<Self>, String> {
        let tokens: Vec<_> = tokens.filter(|token| !token.is_empty()).collect();
        let first = tokens.first().ok_or("there is no token in the file")?;
        let own = HeaderValue::try_from(format!("{prefix}{first}"));
        let mut own = own.map_err(|_| "the token has characters that no header may have")?;
        own.set_sensitive(true);
        let digests = tokens.iter().map(|token| digest(token.as_bytes()));
        Ok(Arc::new(Self {
            digests: digests.collect(),
            own,
        }))
    }
}

/// The prefix of a token.
fn prefix(scheme: &str) -> String {
    match scheme {
        "" => String::new(),
        scheme => format!("{scheme} "),
    }
}

struct Bearer {
    header: HeaderName,
    scheme: String,
    tokens: Reloading<Arc<Tokens>, String>,
}

impl Bearer {
    /// The token that a header holds.
    fn token<'a>(&self, header: &'a HeaderValue) -> Option<&'a str> {
        let wanted = prefix(&self.scheme);
        let (scheme, token) = header.to_str().ok()?.split_at_checked(wanted.len())?;
        // Schemes are compared without case (RFC 9110, 11.1).
        scheme.eq_ignore_ascii_case(&wanted).then_some(token)
    }
}

#[async_trait]
impl Authenticator for Bearer {
    async fn check(&self, headers: &HeaderMap, _: Option<IpAddr>) -> Result<(), Unauthenticated> {
        let header = headers
            .get(&self.header)
            .ok_or(Unauthenticated::Wrong("no authorization was sent"))?;
        let token = self
            .token(header)
            .ok_or(Unauthenticated::Wrong("the authorization has another scheme"))?;
        let tokens = self.tokens.current().map_err(|error| {
            tracing::error!(error, "no request can be authenticated");
            Unauthenticated::Wrong("the gateway can't check tokens now")
        })?;
        if tokens.digests.contains(&digest(token.as_bytes())) {
            Ok(())
        } else {
            Err(Unauthenticated::Wrong("unknown token"))
        }
    }

    fn identity(&self, headers: &HeaderMap) -> Option<SenderKey> {
        let token = self.token(headers.get(&self.header)?)?;
        Some(SenderKey::of(token))
    }

    fn challenge(&self) -> HeaderValue {
        let scheme = if self.scheme.is_empty() {
            "Bearer"
        } else {
            &self.scheme
        };
        HeaderValue::try_from(format!("{scheme} realm=\"tidegate\""))
            .unwrap_or(HeaderValue::from_static("Bearer"))
    }
}

impl Credentials for Bearer {
    fn apply(&self, headers: &mut HeaderMap, _: Option<&ClientMetadata>) -> Result<(), String> {
        headers.insert(self.header.clone(), self.tokens.current()?.own.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
