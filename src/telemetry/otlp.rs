//! Where own telemetry is pushed to: the `otlp` block of a reader or processor, in the spelling of OpenTelemetry's
//! declarative configuration, which the Collector uses here too.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{
    Compression, MetricExporter, Protocol as Wire, SpanExporter, WithExportConfig, WithHttpConfig,
    WithTonicConfig,
};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};

use crate::config::{Decode, Node, Problems, Secret, TypeHelp, wrong_type};
use crate::net::Connector;
use crate::net::client::UseTls;
use crate::net::headers::{self, Headers};
use crate::net::tls::{ALPN_GRPC, ALPN_HTTP, TlsClientConfig};

/// An answer to a push says little; more than this is not read.
const MAX_ANSWER_BYTES: usize = 1 << 20;

crate::options! {
    /// An OTLP destination of tidegate's own telemetry.
    pub struct Otlp {
        /// How to speak.
        pub protocol: Protocol = Protocol::Grpc,
        /// URL of the peer: `http://host:4317`, or `https://...` for TLS. For `http/protobuf` the whole URL,
        /// `http://host:4318/v1/metrics`.
        pub endpoint: String = required,
        /// Headers of every request: a list of `name` and `value`, or a map.
        pub headers: HeaderList = HeaderList::default(),
        /// Compression of requests.
        pub compression: Coding = Coding::None,
        /// How long a push may take.
        pub timeout: Millis = Millis::of(10_000),
        /// Authorities to trust instead of the system's, a PEM file.
        pub certificate: Option<std::path::PathBuf> = None,
        /// Certificate of ours, a PEM file.
        pub client_certificate: Option<std::path::PathBuf> = None,
        /// The key of that certificate, a PEM file.
        pub client_key: Option<std::path::PathBuf> = None,
    }
    check = Otlp::check
}

crate::choices! {
    /// OTLP transports.
    pub enum Protocol {
        /// gRPC.
        Grpc = "grpc",
        /// HTTP with protobuf bodies.
        Http = "http/protobuf",
    }
}

crate::choices! {
    /// Compression of requests.
    pub enum Coding {
        /// None.
        None = "none",
        /// gzip.
        Gzip = "gzip",
    }
}

/// A time in milliseconds, as the declarative configuration has them; durations such as `10s` are understood too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis(pub Duration);

impl Millis {
    /// So many milliseconds.
    pub const fn of(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }
}

impl Decode for Millis {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        match node.scalar().map(|scalar| scalar.kind) {
            Some(crate::config::Kind::Int(_)) => u32::decode(node, cx).map(|ms| Self::of(ms.into())),
            _ => Duration::decode(node, cx).map(Self),
        }
    }

    fn type_help() -> TypeHelp {
        TypeHelp::like("number of milliseconds, or duration", "60000 or 60s")
    }

    fn show(&self) -> String {
        self.0.as_millis().to_string()
    }
}

crate::options! {
    /// A header in a list.
    pub(super) struct Header {
        /// Its name.
        pub name: String = required,
        /// Its value.
        pub value: Secret = required,
    }
}

/// Headers in either spelling.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeaderList(pub Headers);

impl Decode for HeaderList {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let headers: Headers = match (node.as_list(), node.as_map()) {
            (Some(_), _) => {
                let listed = Vec::<Header>::decode(node, cx)?;
                listed
                    .into_iter()
                    .map(|header| (header.name, header.value))
                    .collect()
            }
            (_, Some(_)) => BTreeMap::decode(node, cx)?,
            _ => return wrong_type(node, cx),
        };
        Some(Self(headers))
    }

    fn type_help() -> TypeHelp {
        TypeHelp::plain("list of headers (name, value), or map of headers")
    }
}

impl Otlp {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if let Err(error) = self.url() {
            cx.at(at.child("endpoint")).error(error);
        }
        headers::check(&self.headers.0, at, cx);
    }

    fn url(&self) -> Result<http::Uri, String> {
        let uri: http::Uri = self
            .endpoint
            .parse()
            .map_err(|error| format!("not a URL: {error}"))?;
        match uri.scheme_str() {
            Some("http" | "https") => Ok(uri),
            _ => Err("expected a URL that begins with http:// or https://".to_owned()),
        }
    }

    /// An exporter of metrics. Within a runtime, which it keeps using.
    pub(super) fn metrics(&self) -> Result<MetricExporter, String> {
        let built = match self.protocol {
            Protocol::Grpc => self.grpc(MetricExporter::builder().with_tonic())?.build(),
            Protocol::Http => self.http(MetricExporter::builder().with_http())?.build(),
        };
        built.map_err(|error| error.to_string())
    }

    /// An exporter of spans. Within a runtime, which it keeps using.
    pub(super) fn spans(&self) -> Result<SpanExporter, String> {
        let built = match self.protocol {
            Protocol::Grpc => self.grpc(SpanExporter::builder().with_tonic())?.build(),
            Protocol::Http => self.http(SpanExporter::builder().with_http())?.build(),
        };
        built.map_err(|error| error.to_string())
    }

    fn grpc<B: WithTonicConfig + WithExportConfig>(&self, builder: B) -> Result<B, String> {
        let builder = builder
            .with_channel(self.channel()?)
            .with_timeout(self.timeout.0)
            .with_metadata(MetadataMap::from_headers(headers::build(&self.headers.0)));
        Ok(match self.compression {
            Coding::None => builder,
            Coding::Gzip => builder.with_compression(Compression::Gzip),
        })
    }

    fn http<B: WithHttpConfig + WithExportConfig>(&self, builder: B) -> Result<B, String> {
        let plain = |(name, value): (&String, &Secret)| (name.clone(), value.expose().to_owned());
        let builder = builder
            .with_protocol(Wire::HttpBinary)
            .with_http_client(Client::new(self)?)
            .with_endpoint(self.endpoint.clone())
            .with_timeout(self.timeout.0)
            .with_headers(self.headers.0.iter().map(plain).collect());
        Ok(match self.compression {
            Coding::None => builder,
            Coding::Gzip => builder.with_compression(Compression::Gzip),
        })
    }

    fn channel(&self) -> Result<Channel, String> {
        let url = self.url()?;
        let secure = url.scheme_str() == Some("https");
        let use_tls = if secure { UseTls::Always } else { UseTls::Never };
        let connector = self.connector(use_tls, ALPN_GRPC)?;
        let authority = url.authority().ok_or("an endpoint without a host")?;
        // tonic refuses `https` unless it does the TLS itself; ours is done by the connector.
        let endpoint =
            Endpoint::from_shared(format!("http://{authority}")).map_err(|error| error.to_string())?;
        Ok(endpoint.origin(url).connect_with_connector_lazy(connector))
    }

    fn connector(&self, use_tls: UseTls, alpn: &[&[u8]]) -> Result<Connector, String> {
        let tls = TlsClientConfig {
            ca_file: self.certificate.clone(),
            cert_file: self.client_certificate.clone(),
            key_file: self.client_key.clone(),
            ..TlsClientConfig::default()
        };
        Connector::new(None, use_tls, &tls, alpn).map_err(|error| error.to_string())
    }
}

/// The SDK's HTTP client, on our own connector. Its exporters run on threads of their own: requests go to the runtime.
#[derive(Clone)]
struct Client {
    http: hyper_util::client::legacy::Client<Connector, Full<Bytes>>,
    runtime: tokio::runtime::Handle,
    timeout: Duration,
}

impl Client {
    fn new(config: &Otlp) -> Result<Self, String> {
        let connector = config.connector(UseTls::ByScheme, ALPN_HTTP)?;
        Ok(Self {
            http: hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector),
            runtime: tokio::runtime::Handle::current(),
            timeout: config.timeout.0,
        })
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, HttpError> {
        let Self { http, timeout, .. } = self.clone();
        let exchange = async move {
            let (head, body) = http.request(request.map(Full::new)).await?.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await?;
            Ok::<_, HttpError>(http::Response::from_parts(head, body.to_bytes()))
        };
        self.runtime
            .spawn(async move { tokio::time::timeout(timeout, exchange).await? })
            .await?
    }
}
