// SPDX-License-Identifier: Apache-2.0

//! Credentials from the configuration, or from files that are read again after changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use http::HeaderValue;

use super::client::FetchError;
use super::config::http::{HttpOptions, SECRET_FILE_INTERVAL};
use tidegate_config::Secret;
use tidegate_pipeline::net::reload::Reloading;

/// A text from the configuration or from a file that may change.
pub(super) enum TextSource {
    Fixed(Secret),
    File(Reloading<Arc<str>, String>),
}

impl TextSource {
    pub(super) fn file(path: &Path) -> Self {
        Self::File(Reloading::text(path, SECRET_FILE_INTERVAL))
    }

    fn of(text: Option<&Secret>, file: Option<&PathBuf>) -> Option<Self> {
        let fixed = text.map(|text| Self::Fixed(text.clone()));
        fixed.or_else(|| file.map(|path| Self::file(path)))
    }

    pub(super) fn current(&self) -> Result<Secret, FetchError> {
        match self {
            Self::Fixed(text) => Ok(text.clone()),
            Self::File(file) => {
                let text = file.current().map_err(FetchError::Credentials)?;
                Ok(Secret::new(text.trim()))
            }
        }
    }
}

/// The source of the `Authorization` header.
pub(super) enum Credentials {
    Basic {
        user: Option<TextSource>,
        password: Option<TextSource>,
    },
    Word {
        word: String,
        credentials: Option<TextSource>,
    },
}

impl Credentials {
    pub(super) fn of(options: &HttpOptions) -> Option<Self> {
        if let Some(basic) = &options.basic_auth {
            let user = Secret::new(basic.username.as_str());
            return Some(Self::Basic {
                user: TextSource::of(
                    Some(&user).filter(|user| !user.expose().is_empty()),
                    basic.username_file.as_ref(),
                ),
                password: TextSource::of(basic.password.as_ref(), basic.password_file.as_ref()),
            });
        }
        let authorization = options.authorization.as_ref()?;
        let word = authorization.r#type.trim();
        Some(Self::Word {
            word: if word.is_empty() { "Bearer" } else { word }.to_owned(),
            credentials: TextSource::of(
                authorization.credentials.as_ref(),
                authorization.credentials_file.as_ref(),
            ),
        })
    }

    pub(super) fn header(&self) -> Result<HeaderValue, FetchError> {
        let current = |value: &Option<TextSource>| match value {
            Some(value) => value.current(),
            None => Ok(Secret::default()),
        };
        let text = match self {
            Self::Basic { user, password } => {
                let pair = format!("{}:{}", current(user)?.expose(), current(password)?.expose());
                let encoded = base64::engine::general_purpose::STANDARD.encode(pair);
                format!("Basic {encoded}")
            }
            Self::Word { word, credentials } => format!("{word} {}", current(credentials)?.expose()),
        };
        header_value(&text)
    }
}

/// A header that nothing prints.
pub(super) fn header_value(text: &str) -> Result<HeaderValue, FetchError> {
    let mut value = HeaderValue::try_from(text)
        .map_err(|_| FetchError::Credentials("characters that no header may have".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_become_headers_that_nothing_prints() {
        use super::super::config::http::{Authorization, BasicAuth};
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            Some(path)
        };
        let basic = |username: &str, username_file| HttpOptions {
            basic_auth: Some(BasicAuth {
                username: username.to_owned(),
                username_file,
                password_file: file("password", "secret\n"),
                ..BasicAuth::default()
            }),
            ..HttpOptions::default()
        };
        let bearer = HttpOptions {
            authorization: Some(Authorization {
                credentials: Some(Secret::new("t")),
                ..Authorization::default()
            }),
            ..HttpOptions::default()
        };
        for (options, expected) in [
            (basic("user", None), "Basic dXNlcjpzZWNyZXQ="),
            (basic("", file("user", "user\n")), "Basic dXNlcjpzZWNyZXQ="),
            (bearer, "Bearer t"),
        ] {
            let header = Credentials::of(&options).unwrap().header().unwrap();
            assert_eq!(header, expected);
            assert!(header.is_sensitive());
        }
    }
}
