// SPDX-License-Identifier: Apache-2.0

//! Addresses for listening and connecting: `host:port`, or the path of a Unix socket.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tidegate_config::{Decode, Node, Problems, TypeHelp, YamlType, wrong_type};

/// An address in the spelling of the configuration.
///
/// `host:port`, `:port` (all interfaces), `[::1]:port`, `unix:/path`, `unix:///path`, or a plain `/path`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A TCP address. An empty host means all interfaces.
    Tcp {
        /// A name or address, without brackets.
        host: String,
        /// The port; 0 lets the system choose.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

tidegate_config::choices! {
    /// The Collector's `transport` next to an endpoint. It must agree with the endpoint, which implies it.
    pub enum Transport {
        /// TCP over either version of IP.
        Tcp = "tcp" | "tcp4" | "tcp6",
        /// A Unix stream socket.
        Unix = "unix",
    }
}

/// The error of an endpoint's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The text has only a host.
    #[error("missing port: write host:port, for example localhost:4317")]
    NoPort,
    /// The text has only a number.
    #[error("missing host: write host:port, for example localhost:{0}")]
    NoHost(u16),
    /// The text after the last colon is not a port.
    #[error("{0:?} is not a port: a port is a number from 0 to 65535")]
    BadPort(String),
    /// An IPv6 address without brackets, or brackets that don't close.
    #[error("an IPv6 address goes in brackets, for example [::1]:4317")]
    Brackets,
    /// A URL where an address belongs.
    #[error("an address must not begin with `{0}://`: write host:port or unix:/path")]
    Scheme(String),
    /// The path after `unix:` is missing.
    #[error("missing path of the Unix socket: write unix:/path")]
    NoPath,
    /// An abstract socket.
    #[error("abstract Unix sockets are not supported since they have no owner and no mode: give a path")]
    Abstract,
}

impl Endpoint {
    /// A TCP endpoint on the loopback interface.
    pub fn localhost(port: u16) -> Self {
        Self::Tcp {
            host: "localhost".to_owned(),
            port,
        }
    }

    /// The path of a Unix endpoint.
    pub fn unix_path(&self) -> Option<&Path> {
        match self {
            Self::Tcp { .. } => None,
            Self::Unix(path) => Some(path),
        }
    }

    /// Whether only this machine can connect to it, over TCP.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Tcp { host, .. } => {
                host == "localhost"
                    || host
                        .parse::<IpAddr>()
                        .is_ok_and(|ip| ip.to_canonical().is_loopback())
            }
            Self::Unix(_) => false,
        }
    }

    /// The transport of the endpoint.
    pub fn transport(&self) -> Transport {
        match self {
            Self::Tcp { .. } => Transport::Tcp,
            Self::Unix(_) => Transport::Unix,
        }
    }

    /// Reports a `transport` that contradicts the endpoint. For the `check` of an options table.
    pub fn check_transport(&self, transport: Option<Transport>, at: &Node, cx: &mut Problems) {
        if transport.is_some_and(|said| said != self.transport()) {
            cx.at(at.child("transport"))
                .help("`transport: unix` goes with a path, `transport: tcp` with host:port")
                .error(format!("the endpoint {self} is not of this transport"));
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if text.starts_with('/') {
            return Ok(Self::Unix(text.into()));
        }
        match text.strip_prefix("unix:") {
            Some(rest) => parse_unix(rest.strip_prefix("//").unwrap_or(rest)),
            None => parse_tcp(text),
        }
    }
}

fn parse_unix(path: &str) -> Result<Endpoint, EndpointError> {
    match path.as_bytes().first() {
        None => Err(EndpointError::NoPath),
        Some(b'@' | 0) => Err(EndpointError::Abstract),
        Some(_) => Ok(Endpoint::Unix(path.into())),
    }
}

fn parse_tcp(text: &str) -> Result<Endpoint, EndpointError> {
    if let Some((scheme, _)) = text.split_once("://") {
        return Err(EndpointError::Scheme(scheme.to_owned()));
    }
    let lone = || text.parse().map_or(EndpointError::NoPort, EndpointError::NoHost);
    let (host, port) = text.rsplit_once(':').ok_or_else(lone)?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').ok_or(EndpointError::Brackets)?,
        None if host.contains([':', ']']) => return Err(EndpointError::Brackets),
        None => host,
    };
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port
        .parse()
        .ok()
        .filter(|_| digits)
        .ok_or_else(|| EndpointError::BadPort(port.to_owned()))?;
    Ok(Endpoint::Tcp {
        host: host.to_owned(),
        port,
    })
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl From<std::net::SocketAddr> for Endpoint {
    fn from(address: std::net::SocketAddr) -> Self {
        Self::Tcp {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }
}

impl Decode for Endpoint {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let Some(scalar) = node.scalar() else {
            return wrong_type(node, cx);
        };
        scalar
            .text
            .parse()
            .map_err(|error: EndpointError| cx.at(node).error(error.to_string()))
            .ok()
    }

    fn type_help() -> TypeHelp {
        TypeHelp::like("endpoint", "localhost:4317 or unix:/run/otlp.sock").accepting(YamlType::Text)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Result<Endpoint, EndpointError> {
        Ok(Endpoint::Tcp {
            host: host.to_owned(),
            port,
        })
    }

    #[test]
    fn every_spelling_is_read_and_written_back() {
        let unix = || Ok(Endpoint::Unix("/run/a.sock".into()));
        let table = [
            ("localhost:4317", tcp("localhost", 4317), "localhost:4317"),
            (":4317", tcp("", 4317), ":4317"),
            ("[::1]:0", tcp("::1", 0), "[::1]:0"),
            ("unix:/run/a.sock", unix(), "unix:/run/a.sock"),
            ("unix:///run/a.sock", unix(), "unix:/run/a.sock"),
            ("/run/a.sock", unix(), "unix:/run/a.sock"),
        ];
        for (text, expected, shown) in table {
            assert_eq!(text.parse::<Endpoint>(), expected, "{text}");
            assert_eq!(expected.unwrap().to_string(), shown);
        }
    }

    #[test]
    fn every_mistake_has_its_own_message() {
        let table = [
            ("localhost", EndpointError::NoPort),
            ("9464", EndpointError::NoHost(9464)),
            ("localhost:", EndpointError::BadPort(String::new())),
            ("localhost:http", EndpointError::BadPort("http".to_owned())),
            ("localhost:+1", EndpointError::BadPort("+1".to_owned())),
            ("localhost:65536", EndpointError::BadPort("65536".to_owned())),
            ("::1:4317", EndpointError::Brackets),
            ("[::1:4317", EndpointError::Brackets),
            ("http://localhost:4318", EndpointError::Scheme("http".to_owned())),
            ("unix:", EndpointError::NoPath),
            ("unix:@name", EndpointError::Abstract),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<Endpoint>(), Err(expected), "{text}");
        }
    }
}
