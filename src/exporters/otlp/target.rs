// SPDX-License-Identifier: Apache-2.0

//! The `endpoint` of a gRPC client.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::config::{Decode, Node, Problems, TypeHelp, YamlType, wrong_type};
use crate::net::{Endpoint, EndpointError};

/// An address, and whether its spelling asked for TLS or against it.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::exporters) struct Target {
    /// `http://` says no, `https://` says yes, nothing says neither.
    pub(super) secure: Option<bool>,
    /// The endpoint.
    pub(super) endpoint: Endpoint,
}

/// Prefixes: URL schemes, and gRPC's own prefixes for resolved names.
const SCHEMES: [(&str, Option<bool>); 6] = [
    ("http://", Some(false)),
    ("https://", Some(true)),
    ("dns:///", None),
    ("passthrough:///", None),
    ("dns:", None),
    ("passthrough:", None),
];

impl Target {
    /// The path of a Unix socket.
    pub(super) fn unix_path(&self) -> Option<PathBuf> {
        self.endpoint.unix_path().map(PathBuf::from)
    }

    /// The address.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The name of the server in requests.
    pub(super) fn authority(&self) -> String {
        match &self.endpoint {
            Endpoint::Unix(_) => "localhost".to_owned(),
            tcp => tcp.to_string(),
        }
    }
}

impl FromStr for Target {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if text.starts_with("dns://") && !text.starts_with("dns:///") {
            // The name server to ask: only the system's are asked.
            return Err(EndpointError::Scheme("dns".to_owned()));
        }
        let scheme = SCHEMES
            .iter()
            .find_map(|(prefix, secure)| Some((text.strip_prefix(prefix)?, *secure)));
        let (address, secure) = scheme.unwrap_or((text, None));
        let endpoint = address.trim_end_matches('/').parse()?;
        Ok(Self { secure, endpoint })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.secure {
            Some(true) => write!(f, "https://{}", self.endpoint),
            Some(false) => write!(f, "http://{}", self.endpoint),
            None => self.endpoint.fmt(f),
        }
    }
}

impl Decode for Target {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let Some(scalar) = node.scalar() else {
            return wrong_type(node, cx);
        };
        if scalar.text.is_empty() {
            cx.at(node).error("requires a non-empty \"endpoint\"");
            return None;
        }
        let parsed = scalar.text.parse();
        parsed
            .map_err(|error: EndpointError| cx.at(node).error(error.to_string()))
            .ok()
    }

    fn type_help() -> TypeHelp {
        TypeHelp::like(
            "endpoint",
            "localhost:4317, https://otlp.example.com:443 or unix:/run/otlp.sock",
        )
        .accepting(YamlType::Text)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_says_whether_tls_is_wanted() {
        let table = [
            ("localhost:4317", None, "localhost:4317"),
            ("http://localhost:4317", Some(false), "http://localhost:4317"),
            ("https://a.example:443/", Some(true), "https://a.example:443"),
            ("dns:///a.example:4317", None, "a.example:4317"),
            ("dns:a.example:4317", None, "a.example:4317"),
            ("passthrough:10.0.0.1:4317", None, "10.0.0.1:4317"),
            ("unix:/run/a.sock", None, "unix:/run/a.sock"),
        ];
        for (text, secure, shown) in table {
            let target: Target = text.parse().unwrap();
            assert_eq!(
                (target.secure, target.to_string().as_str()),
                (secure, shown),
                "{text}"
            );
        }
        assert_eq!("localhost".parse::<Target>(), Err(EndpointError::NoPort));
        let server = "dns://8.8.8.8/a.example:4317".parse::<Target>();
        assert!(matches!(server, Err(EndpointError::Scheme(_))), "{server:?}");
    }
}
