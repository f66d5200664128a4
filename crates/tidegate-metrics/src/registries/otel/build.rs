// SPDX-License-Identifier: Apache-2.0

//! How values are pushed.

use std::io;
use std::time::Duration;

use super::Otel;

/// Why the registry can not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtelError {
    /// The endpoint is not a URL.
    #[error("`{0}` is not an endpoint: expected http://host:port or https://host:port")]
    Endpoint(String),
    /// A header that can't be one.
    #[error("`{0}` is not a header")]
    Header(String),
    /// An environment variable that makes no sense.
    #[error("{name}={value}: expected {expected}")]
    Variable {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// The expected value.
        expected: &'static str,
    },
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// How messages travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC.
    #[default]
    Grpc,
    /// HTTP with protobuf, to `/v1/metrics` below the endpoint.
    Http,
}

/// The range of values that a point covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Temporality {
    /// Everything since the registry was made.
    #[default]
    Cumulative,
    /// The increase since the last accepted push. Up-down counters stay cumulative.
    Delta,
}

/// How values are pushed.
#[derive(Clone, Debug)]
#[must_use]
pub struct OtelBuilder {
    pub(super) endpoint: String,
    /// The endpoint is that of metrics already: nothing is added to its path.
    pub(super) is_full: bool,
    pub(super) protocol: Protocol,
    pub(super) temporality: Temporality,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    pub(super) headers: Vec<(String, String)>,
    pub(super) resource: Vec<(String, String)>,
}

impl Default for OtelBuilder {
    fn default() -> Self {
        Self {
            endpoint: "http://127.0.0.1:4317".to_owned(),
            is_full: false,
            protocol: Protocol::Grpc,
            temporality: Temporality::Cumulative,
            interval: Duration::from_mins(1),
            timeout: Duration::from_secs(10),
            headers: Vec::new(),
            resource: Vec::new(),
        }
    }
}

impl OtelBuilder {
    /// To this collector: `http://host:port`, or `https://host:port` with the system's certificates.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        (self.endpoint, self.is_full) = (endpoint.into(), false);
        self
    }

    /// In this way.
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Since when points count.
    pub fn temporality(mut self, temporality: Temporality) -> Self {
        self.temporality = temporality;
        self
    }

    /// So often.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(Duration::from_millis(1));
        self
    }

    /// A push may take so long.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// With this header (an API key, say).
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The resource has this attribute, whatever the environment says.
    pub fn resource(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.resource.push((key.into(), value.into()));
        self
    }

    /// As the environment variables say, where there are any.
    ///
    /// # Errors
    /// One of them makes no sense.
    pub fn env(self) -> Result<Self, OtelError> {
        self.variables(|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()))
    }

    pub(super) fn variables(mut self, get: impl Fn(&str) -> Option<String>) -> Result<Self, OtelError> {
        if let Some(endpoint) = get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") {
            (self.endpoint, self.is_full) = (endpoint, true);
        } else if let Some(endpoint) = get("OTEL_EXPORTER_OTLP_ENDPOINT") {
            self.endpoint = endpoint;
        }
        let either = |own, general| {
            get(own)
                .map(|value| (own, value))
                .or_else(|| Some((general, get(general)?)))
        };
        let protocol = either(
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
            "OTEL_EXPORTER_OTLP_PROTOCOL",
        );
        if let Some((name, value)) = protocol {
            self.protocol = match value.as_str() {
                "grpc" => Protocol::Grpc,
                "http/protobuf" => Protocol::Http,
                _ => return Err(variable(name, value, "grpc or http/protobuf")),
            };
        }
        if let Some((_, value)) = either("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS") {
            for pair in value.split(',').filter(|pair| !pair.trim().is_empty()) {
                let (name, value) = pair
                    .split_once('=')
                    .ok_or_else(|| OtelError::Header(pair.to_owned()))?;
                self.headers.push((name.trim().to_owned(), decoded(value.trim())));
            }
        }
        if let Some((name, value)) =
            either("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
        {
            self.timeout = millis(name, value)?;
        }
        const INTERVAL: &str = "OTEL_METRIC_EXPORT_INTERVAL";
        if let Some(value) = get(INTERVAL) {
            self = self.interval(millis(INTERVAL, value)?);
        }
        const PREFERENCE: &str = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE";
        if let Some(value) = get(PREFERENCE) {
            self.temporality = match value.to_ascii_lowercase().as_str() {
                "cumulative" => Temporality::Cumulative,
                "delta" | "lowmemory" => Temporality::Delta,
                _ => return Err(variable(PREFERENCE, value, "cumulative, delta or lowmemory")),
            };
        }
        Ok(self)
    }

    /// The registry, which pushes from now on.
    ///
    /// # Errors
    /// The endpoint or a header makes no sense, or no thread can be had.
    pub fn build(self) -> Result<Otel, OtelError> {
        Otel::start(self)
    }
}

fn variable(name: &'static str, value: String, expected: &'static str) -> OtelError {
    OtelError::Variable {
        name,
        value,
        expected,
    }
}

fn millis(name: &'static str, value: String) -> Result<Duration, OtelError> {
    let number = value.trim().parse::<u64>();
    number
        .map(Duration::from_millis)
        .map_err(|_| variable(name, value, "a number of milliseconds"))
}

/// `%20` and the like, as W3C baggage has them.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut decoded: Vec<u8> = parts.next().unwrap_or_default().into();
    for part in parts {
        let digits = part
            .get(..2)
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match digits {
            Some(byte) => {
                decoded.push(byte);
                decoded.extend(part.bytes().skip(2));
            }
            None => {
                decoded.push(b'%');
                decoded.extend(part.bytes());
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
