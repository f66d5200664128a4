// SPDX-License-Identifier: Apache-2.0

//! Durations and sizes of calls, with the names of OpenTelemetry's HTTP and gRPC instrumentation. They are
//! measured only at level `detailed` of the gateway's own metrics.

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, Method, Request, Response, Uri, Version};
use http_body::Body;
use metrics::{Label, SharedString};
use tonic::Code;

use super::Endpoint;
use super::grpc::{CODE_NAMES, EXPORT_METHODS, GRPC_STATUS, is_call};

/// The label for text that clients choose freely.
const OTHER: &str = "_OTHER";

/// A configured server: ours, or the peer of an exporter.
#[derive(Clone, Debug)]
pub struct Measured {
    address: SharedString,
    /// The port; `None` for a Unix socket.
    port: Option<SharedString>,
    scheme: &'static str,
}

impl Measured {
    /// The labels of our server.
    pub fn server(at: &Endpoint, is_secure: bool) -> Arc<Self> {
        let (address, port) = match at {
            Endpoint::Tcp { host, port } => (host.clone(), Some(port.to_string().into())),
            Endpoint::Unix(path) => (path.display().to_string(), None),
        };
        Arc::new(Self {
            address: address.into(),
            port,
            scheme: if is_secure { "https" } else { "http" },
        })
    }

    /// The labels of the server of a URL.
    pub fn peer(url: &Uri) -> Self {
        let is_secure = url.scheme_str() == Some("https");
        let default = if is_secure { 443 } else { 80 };
        Self {
            address: url.host().unwrap_or_default().to_owned().into(),
            port: Some(url.port_u16().unwrap_or(default).to_string().into()),
            scheme: if is_secure { "https" } else { "http" },
        }
    }

    fn server_labels(&self) -> Vec<Label> {
        let port = self
            .port
            .iter()
            .map(|port| Label::new("server.port", port.clone()));
        let address = Label::new("server.address", self.address.clone());
        std::iter::once(address).chain(port).collect()
    }

    fn http_labels(&self, method: &Method, version: Version, outcome: Label) -> Vec<Label> {
        let mut labels = self.server_labels();
        labels.extend([
            Label::from_static_parts("http.request.method", known_method(method)),
            Label::from_static_parts("network.protocol.name", "http"),
            Label::from_static_parts("network.protocol.version", version_name(version)),
            Label::from_static_parts("url.scheme", self.scheme),
            outcome,
        ]);
        labels
    }

    fn rpc_labels(&self, method: &str, code: Code) -> Vec<Label> {
        let known = EXPORT_METHODS.iter().find(|known| **known == method);
        let mut labels = self.server_labels();
        labels.extend([
            Label::from_static_parts("rpc.system.name", "grpc"),
            Label::from_static_parts("rpc.method", known.map_or(OTHER, |method| &method[1..])),
            Label::from_static_parts("rpc.response.status_code", CODE_NAMES[code as usize]),
        ]);
        labels
    }

    /// Records the end of our HTTP request; `status` is `None` without an answer.
    pub fn http_sent(&self, began: Instant, status: Option<u16>, version: Version, bytes: u64) {
        let outcome = match status {
            Some(status) => Label::new("http.response.status_code", status.to_string()),
            None => Label::from_static_parts("error.type", OTHER),
        };
        let labels = self.http_labels(&Method::POST, version, outcome);
        metrics::histogram!("http.client.request.body.size", labels.clone()).record(bytes as f64);
        metrics::histogram!("http.client.request.duration", labels).record(began.elapsed().as_secs_f64());
    }

    /// Records the end of our gRPC call.
    pub fn rpc_sent(&self, began: Instant, method: &str, code: Code) {
        let labels = self.rpc_labels(method, code);
        metrics::histogram!("rpc.client.call.duration", labels).record(began.elapsed().as_secs_f64());
    }

    /// Begins the measurement of an incoming request.
    pub fn begin<B: Body>(self: &Arc<Self>, request: &Request<B>) -> Call {
        Call {
            server: self.clone(),
            began: Instant::now(),
            is_rpc: is_call(request),
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            version: request.version(),
            bytes: request.body().size_hint().exact(),
        }
    }
}

/// An incoming request, until its answer.
pub struct Call {
    server: Arc<Measured>,
    began: Instant,
    is_rpc: bool,
    method: Method,
    path: String,
    version: Version,
    /// The length of the body, if the client declared it.
    bytes: Option<u64>,
}

impl Call {
    /// Records the answer.
    pub fn end<B>(self, answer: &Response<B>) {
        let took = self.began.elapsed().as_secs_f64();
        if self.is_rpc {
            let labels = self.server.rpc_labels(&self.path, grpc_code(answer.headers()));
            return metrics::histogram!("rpc.server.call.duration", labels).record(took);
        }
        let status = Label::new("http.response.status_code", answer.status().as_str().to_owned());
        let labels = self.server.http_labels(&self.method, self.version, status);
        if let Some(bytes) = self.bytes {
            metrics::histogram!("http.server.request.body.size", labels.clone()).record(bytes as f64);
        }
        metrics::histogram!("http.server.request.duration", labels).record(took);
    }
}

/// The code of an answer. Errors have it in the headers, successes in the trailers.
fn grpc_code(headers: &HeaderMap) -> Code {
    headers
        .get(GRPC_STATUS)
        .map_or(Code::Ok, |code| Code::from_bytes(code.as_bytes()))
}

fn known_method(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
    ];
    let known = KNOWN.into_iter().find(|known| *known == method.as_str());
    known.unwrap_or(OTHER)
}

fn version_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(labels: &[Label]) -> String {
        let one = |label: &Label| format!("{}={}", label.key(), label.value());
        labels.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn clients_make_no_labels_of_their_own() {
        let server = Measured::server(&Endpoint::localhost(4318), false);
        let strange = Method::from_bytes(b"BREW-42").unwrap();
        let status = Label::from_static_parts("http.response.status_code", "405");
        assert_eq!(
            text(&server.http_labels(&strange, Version::HTTP_11, status)),
            "server.address=localhost server.port=4318 http.request.method=_OTHER network.protocol.name=http \
             network.protocol.version=1.1 url.scheme=http http.response.status_code=405"
        );
        assert_eq!(
            text(&server.rpc_labels("/a.B/C42", Code::Unimplemented)),
            "server.address=localhost server.port=4318 rpc.system.name=grpc rpc.method=_OTHER \
             rpc.response.status_code=UNIMPLEMENTED"
        );
        let peer = Measured::peer(&Uri::from_static("https://otlp.example/v1/logs"));
        assert_eq!(
            text(&peer.server_labels()),
            "server.address=otlp.example server.port=443"
        );
        let path = Endpoint::Unix("/run/otlp.sock".into());
        assert_eq!(
            text(&Measured::server(&path, false).server_labels()),
            "server.address=/run/otlp.sock"
        );
    }
}
