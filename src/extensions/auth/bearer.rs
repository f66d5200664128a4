//! `bearertokenauth`: tokens (RFC 6750), in any header and behind any scheme.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::{SecretFile, digest, secret_file};
use crate::batch::ClientMetadata;
use crate::component::auth::{Authenticator, Credentials, Services, Unauthenticated};
use crate::component::{
    ComponentError, ConfigType, Context, Extension, ExtensionFactory, Factory, Lifecycle,
};
use crate::config::{Node, Problems, Secret};

crate::options! {
    /// Options of the `bearertokenauth` extension.
    pub struct Config {
        /// What stands before the token; empty: nothing.
        pub scheme: String = "Bearer".to_owned(),
        /// The header that has it.
        pub header: String = "Authorization".to_owned(),
        /// The token.
        pub token: Option<Secret> = None,
        /// Several: each lets a sender in; we send the first.
        pub tokens: Vec<Secret> = Vec::new(),
        /// A file with a token a line, instead; it is read again when it changes.
        pub filename: Option<PathBuf> = None,
    }
    check = Config::check
}

impl Config {
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
            cx.at(at.child("header")).error("this is no header name");
        }
    }
}

/// The factory of `bearertokenauth`.
pub static FACTORY: ExtensionFactory = Factory {
    kind: "bearertokenauth",
    aliases: &["bearer_token_auth"],
    signals: &[],
    help: "tokens: of those who may send (receivers), or ours (exporters)",
    config: ConfigType::of::<Config>(),
    build: |settings, cx| {
        let config = settings.get::<Config>();
        let header = HeaderName::try_from(config.header.as_str());
        Ok(Arc::new(BearerAuth {
            tokens: Arc::new(Tokens {
                header: header.map_err(|error| cx.error(error.to_string()))?,
                prefix: match config.scheme.as_str() {
                    "" => String::new(),
                    scheme => format!("{scheme} "),
                },
                fixed: config.token.iter().chain(&config.tokens).cloned().collect(),
                file: config.filename.as_deref().map(secret_file),
                scheme: config.scheme.clone(),
            }),
            base: cx,
        }))
    },
};

struct BearerAuth {
    tokens: Arc<Tokens>,
    base: Context,
}

#[async_trait]
impl Lifecycle for BearerAuth {
    /// What can't be read now would refuse everybody later.
    async fn start(&self) -> Result<(), ComponentError> {
        let all = self.tokens.all().map_err(|error| self.base.error(error))?;
        match all.is_empty() {
            true => Err(self.base.error("there is no token in the file")),
            false => Ok(()),
        }
    }
}

impl Extension for BearerAuth {
    fn services(&self) -> Services {
        Services {
            authenticator: Some(self.tokens.clone()),
            credentials: Some(self.tokens.clone()),
        }
    }
}

struct Tokens {
    header: HeaderName,
    prefix: String,
    scheme: String,
    fixed: Vec<Secret>,
    file: Option<SecretFile>,
}

impl Tokens {
    fn all(&self) -> Result<Vec<Secret>, String> {
        let Some(file) = &self.file else {
            return Ok(self.fixed.clone());
        };
        let text = file.current()?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        Ok(lines.map(Secret::new).collect())
    }

    /// The token that a header holds.
    fn of<'a>(&self, header: &'a HeaderValue) -> Option<&'a str> {
        let text = header.to_str().ok()?;
        let (prefix, token) = text.split_at_checked(self.prefix.len())?;
        // Schemes are not told apart by case (RFC 9110, 11.1).
        prefix.eq_ignore_ascii_case(&self.prefix).then_some(token)
    }
}

#[async_trait]
impl Authenticator for Tokens {
    async fn check(&self, headers: &HeaderMap) -> Result<(), Unauthenticated> {
        let header = headers
            .get(&self.header)
            .ok_or(Unauthenticated("no authorization was sent"))?;
        let token = self
            .of(header)
            .ok_or(Unauthenticated("the authorization has another scheme"))?;
        let tokens = self.all().map_err(|error| {
            tracing::error!(error, "nobody can be let in");
            Unauthenticated("the gateway can't check tokens now")
        })?;
        let sent = digest(token.as_bytes());
        match tokens
            .iter()
            .any(|known| digest(known.expose().as_bytes()) == sent)
        {
            true => Ok(()),
            false => Err(Unauthenticated("unknown token")),
        }
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

impl Credentials for Tokens {
    fn apply(&self, headers: &mut HeaderMap, _: Option<&ClientMetadata>) -> Result<(), String> {
        let all = self.all()?;
        let token = all.first().ok_or("there is no token in the file")?;
        let value = HeaderValue::try_from(format!("{}{}", self.prefix, token.expose()));
        let mut value = value.map_err(|_| "the token has characters that no header may have")?;
        value.set_sensitive(true);
        headers.insert(self.header.clone(), value);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
