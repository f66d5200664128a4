// SPDX-License-Identifier: Apache-2.0

//! Endpoints of an HTTP client: URLs that are checked when the configuration is read.

use std::fmt;
use std::path::PathBuf;

use http::Uri;

use tidegate_config::{Decode, Node, Problems, TypeHelp, YamlType, wrong_type};

/// An `http` or `https` URL, or a Unix socket.
#[derive(Clone, Debug, PartialEq)]
pub enum Url {
    /// Over TCP.
    Http(Uri),
    /// Over a Unix socket.
    Unix(PathBuf),
}

impl Url {
    /// The URL without changes.
    pub fn exact(&self) -> Uri {
        match self {
            Self::Http(uri) => uri.clone(),
            Self::Unix(_) => Uri::from_static("http://localhost/"),
        }
    }

    /// `path` below this URL (OTLP/HTTP, "Endpoint URLs"). A query stays at the end.
    pub fn join(&self, path: &str) -> Uri {
        let base = self.exact();
        let query = base.query().map_or_else(String::new, |query| format!("?{query}"));
        let joined = format!("{}{path}{query}", base.path().trim_end_matches('/'));
        let mut parts = base.into_parts();
        parts.path_and_query = joined.parse().ok();
        Uri::from_parts(parts).expect("a URL with host and scheme, with a longer path of allowed characters")
    }

    /// The path of a Unix socket.
    pub fn unix_path(&self) -> Option<PathBuf> {
        match self {
            Self::Http(_) => None,
            Self::Unix(path) => Some(path.clone()),
        }
    }
}

fn parse(text: &str) -> Result<Url, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        return match path {
            "" => Err("missing path of the Unix socket: write unix:/path".to_owned()),
            path => Ok(Url::Unix(path.into())),
        };
    }
    let uri: Uri = text.parse().map_err(|error| format!("not a URL: {error}"))?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(Url::Http(uri)),
        _ => Err("expected a URL that begins with http:// or https://".to_owned()),
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(uri) => uri.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Decode for Url {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let Some(scalar) = node.scalar() else {
            return wrong_type(node, cx);
        };
        parse(&scalar.text).map_err(|error| cx.at(node).error(error)).ok()
    }

    fn type_help() -> TypeHelp {
        TypeHelp::like("URL", "https://otlp.example.com or unix:/run/otlp.sock").accepting(YamlType::Text)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_joined_with_one_slash_and_before_the_query() {
        let table = [
            ("http://a:4318", "http://a:4318/v1/logs"),
            ("https://a/otlp/", "https://a/otlp/v1/logs"),
            ("https://a/otlp?key=1", "https://a/otlp/v1/logs?key=1"),
            ("unix:/run/a.sock", "http://localhost/v1/logs"),
        ];
        for (base, expected) in table {
            assert_eq!(
                parse(base).unwrap().join("/v1/logs").to_string(),
                expected,
                "{base}"
            );
        }
    }

    #[test]
    fn a_text_that_is_not_a_url_gives_an_error() {
        for text in ["localhost:4318", "ftp://a", "", "unix:", "http://"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
