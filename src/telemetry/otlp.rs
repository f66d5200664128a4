// SPDX-License-Identifier: Apache-2.0

//! The destination of own telemetry: the `otlp` block of a reader or processor. Its spelling is that of
//! OpenTelemetry's declarative configuration, which the Collector uses too.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{
    Compression, LogExporter, MetricExporter, Protocol as Wire, SpanExporter, WithExportConfig,
    WithHttpConfig, WithTonicConfig,
};
use opentelemetry_sdk::metrics::Temporality;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};

use super::config::NoEffect;
use crate::component::Held;
use crate::config::{Decode, Node, Problems, Secret, TypeHelp, YamlType};
use crate::net::client::{MAX_HEAD_BYTES, UseTls, http_client};
use crate::net::headers::{self, Headers};
use crate::net::tls::{ALPN_GRPC, ALPN_HTTP, TlsClientConfig};
use crate::net::{Connector, read_answer};

/// The largest answer to a push that is read, in bytes. Answers are short.
const MAX_ANSWER_BYTES: usize = 1 << 20;

crate::options! {
    /// An OTLP destination of tidegate's own telemetry.
    pub struct Otlp {
        /// Transport of requests.
        pub protocol: Protocol = Protocol::Grpc,
        /// URL of the peer: `http://host:4317`, or `https://...` for TLS. For `http/protobuf` the whole URL,
        /// `http://host:4318/v1/metrics`. Without a scheme it is `https`, or `http` with `insecure: true`.
        pub endpoint: String = required,
        /// The gateway uses no TLS for an endpoint without a scheme.
        pub insecure: bool = false,
        /// Headers of every request.
        pub headers: Headers = Headers::new(),
        /// Additional headers, as `name=value,name=value`; `headers` overrides them.
        pub headers_list: Option<Secret> = None,
        /// Compression of requests.
        pub compression: Coding = Coding::None,
        /// Timeout of a push.
        pub timeout: Millis = Millis::of(10_000),
        /// PEM file of the authorities to trust instead of the system's.
        pub certificate: Option<std::path::PathBuf> = None,
        /// PEM file of the client certificate.
        pub client_certificate: Option<std::path::PathBuf> = None,
        /// PEM file of the client certificate's private key.
        pub client_key: Option<std::path::PathBuf> = None,
        /// The same three files, with the option names of newer versions of the declarative configuration.
        pub tls: Option<PushTls> = None,
        /// Temporality of metrics: totals since the start, or since the previous push.
        pub temporality_preference: TemporalityPreference = TemporalityPreference::Cumulative,
        /// Accepted, without effect: histograms of the gateway have fixed bounds.
        pub default_histogram_aggregation: NoEffect = NoEffect,
    }
    check = Otlp::check
}

crate::choices! {
    /// OTLP transports.
    pub enum Protocol {
        /// gRPC.
        Grpc = "grpc" | "grpc/protobuf",
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

crate::choices! {
    /// Totals of metrics.
    pub enum TemporalityPreference {
        /// Since the start.
        Cumulative = "cumulative" | "Cumulative",
        /// Counters and histograms since the previous push.
        Delta = "delta" | "Delta",
        /// As `delta`, except for values that the gateway reads at each push: these are since the start.
        LowMemory = "low_memory" | "lowmemory" | "LowMemory",
    }
}

crate::options! {
    /// Files of a TLS client.
    pub struct PushTls {
        /// PEM file of the authorities to trust instead of the system's.
        pub ca_file: Option<std::path::PathBuf> = None,
        /// PEM file of the client certificate.
        pub cert_file: Option<std::path::PathBuf> = None,
        /// PEM file of the client certificate's private key.
        pub key_file: Option<std::path::PathBuf> = None,
        /// The gateway uses no TLS for an endpoint without a scheme.
        pub insecure: bool = false,
    }
}

/// A duration in milliseconds, as in the declarative configuration. Durations such as `10s` are accepted too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis(pub Duration);

impl Millis {
    /// A duration of `ms` milliseconds.
    pub const fn of(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }
}

impl Decode for Millis {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        match node.scalar().map(|scalar| scalar.kind) {
            Some(crate::config::ScalarKind::Int(_)) => u32::decode(node, cx).map(|ms| Self::of(ms.into())),
            _ => Duration::decode(node, cx).map(Self),
        }
    }

    fn type_help() -> TypeHelp {
        let milliseconds = u32::type_help().accepts;
        TypeHelp::like("number of milliseconds, or duration", "60000 or 60s")
            .accepting(YamlType::AnyOf(vec![milliseconds, YamlType::duration()]))
    }

    fn show(&self) -> String {
        self.0.as_millis().to_string()
    }
}

impl Otlp {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if let Err(error) = self.url() {
            cx.at(at.child("endpoint")).error(error);
        }
        headers::check(&self.headers, at.child("headers"), cx);
        headers::check(&self.further_headers(), at.child("headers_list"), cx);
    }

    /// The headers from `headers` and those from `headers_list`.
    fn all_headers(&self) -> Headers {
        let mut all = self.headers.clone();
        all.0.extend(self.further_headers().0);
        all
    }

    /// The headers from `headers_list` that `headers` does not override. The first of a name counts.
    fn further_headers(&self) -> Headers {
        let list = self.headers_list.as_ref().map_or("", Secret::expose);
        let mut further = Headers::new();
        for (name, value) in list.split(',').filter_map(|pair| pair.split_once('=')) {
            let name = name.trim();
            if self.headers.get(name).is_none() && further.get(name).is_none() {
                let value = Secret::new(value.trim());
                further.0.push((name.to_owned(), value));
            }
        }
        further
    }

    /// The endpoint with its scheme.
    fn address(&self) -> String {
        let insecure = self.insecure || self.tls.as_ref().is_some_and(|tls| tls.insecure);
        match (self.endpoint.contains("://"), insecure) {
            (true, _) => self.endpoint.clone(),
            (false, true) => format!("http://{}", self.endpoint),
            (false, false) => format!("https://{}", self.endpoint),
        }
    }

    fn url(&self) -> Result<http::Uri, String> {
        let uri: http::Uri = self
            .address()
            .parse()
            .map_err(|error| format!("not a URL: {error}"))?;
        match uri.scheme_str() {
            Some("http" | "https") => Ok(uri),
            _ => Err("expected a URL that begins with http:// or https://".to_owned()),
        }
    }

    /// Creates an exporter of metrics. It keeps using the current runtime.
    pub(super) fn metrics(&self) -> Result<MetricExporter, String> {
        let built = match self.protocol {
            Protocol::Grpc => {
                let builder = MetricExporter::builder().with_temporality(self.temporality());
                self.grpc(builder.with_tonic())?.build()
            }
            Protocol::Http => {
                let builder = MetricExporter::builder().with_temporality(self.temporality());
                self.http(builder.with_http())?.build()
            }
        };
        built.map_err(|error| error.to_string())
    }

    fn temporality(&self) -> Temporality {
        match self.temporality_preference {
            TemporalityPreference::Cumulative => Temporality::Cumulative,
            TemporalityPreference::Delta => Temporality::Delta,
            TemporalityPreference::LowMemory => Temporality::LowMemory,
        }
    }

    /// Creates an exporter of log records. It keeps using the current runtime.
    pub(super) fn logs(&self) -> Result<LogExporter, String> {
        let built = match self.protocol {
            Protocol::Grpc => self.grpc(LogExporter::builder().with_tonic())?.build(),
            Protocol::Http => self.http(LogExporter::builder().with_http())?.build(),
        };
        built.map_err(|error| error.to_string())
    }

    /// Creates an exporter of spans. It keeps using the current runtime.
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
            .with_metadata(MetadataMap::from_headers(headers::build(&self.all_headers())));
        Ok(match self.compression {
            Coding::None => builder,
            Coding::Gzip => builder.with_compression(Compression::Gzip),
        })
    }

    fn http<B: WithHttpConfig + WithExportConfig>(&self, builder: B) -> Result<B, String> {
        let plain = |(name, value): (&str, &Secret)| (name.to_owned(), value.expose().to_owned());
        let builder = builder
            .with_protocol(Wire::HttpBinary)
            .with_http_client(SdkHttpClient::new(self)?)
            .with_endpoint(self.address())
            .with_timeout(self.timeout.0)
            .with_headers(self.all_headers().iter().map(plain).collect());
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
        // tonic refuses `https` unless it does TLS itself, but our connector does it.
        let endpoint =
            Endpoint::from_shared(format!("http://{authority}")).map_err(|error| error.to_string())?;
        let endpoint = endpoint.origin(url).http2_max_header_list_size(MAX_HEAD_BYTES);
        Ok(endpoint.connect_with_connector_lazy(connector))
    }

    fn connector(&self, use_tls: UseTls, alpn: &[&[u8]]) -> Result<Connector, String> {
        let newer = self.tls.clone().unwrap_or_default();
        let tls = TlsClientConfig {
            ca_file: self.certificate.clone().or(newer.ca_file),
            cert_file: self.client_certificate.clone().or(newer.cert_file),
            key_file: self.client_key.clone().or(newer.key_file),
            ..TlsClientConfig::default()
        };
        Connector::new(None, use_tls, &tls, alpn).map_err(|error| error.to_string())
    }
}

/// The SDK's HTTP client with our own connector. The SDK's exporters run on their own threads, requests on the
/// runtime.
#[derive(Clone)]
struct SdkHttpClient {
    http: hyper_util::client::legacy::Client<Connector, Full<Bytes>>,
    runtime: tokio::runtime::Handle,
    timeout: Duration,
}

impl SdkHttpClient {
    fn new(config: &Otlp) -> Result<Self, String> {
        let connector = config.connector(UseTls::ByScheme, ALPN_HTTP)?;
        Ok(Self {
            http: http_client().build(connector),
            runtime: tokio::runtime::Handle::current(),
            timeout: config.timeout.0,
        })
    }
}

impl std::fmt::Debug for SdkHttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl HttpClient for SdkHttpClient {
    async fn send_bytes(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, HttpError> {
        let Self { http, timeout, .. } = self.clone();
        let exchange = async move {
            let (head, body) = http.request(request.map(Full::new)).await?.into_parts();
            // There is one small answer at a time, so it needs no reservation.
            let mut held = Held::ours(Arc::default());
            let body = read_answer(body, MAX_ANSWER_BYTES, &mut held).await?;
            Ok::<_, HttpError>(http::Response::from_parts(head, body))
        };
        self.runtime
            .spawn(async move { tokio::time::timeout(timeout, exchange).await? })
            .await?
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::component::testing::options;

    #[tokio::test]
    async fn the_answer_to_a_push_is_read_in_pieces_and_its_head_is_bounded() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/logs", listener.local_addr().unwrap());
        let served = tokio::spawn(async move {
            for head_bytes in [1_usize, 200 << 10] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await;
                let value = "x".repeat(head_bytes);
                let head = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\na: {value}\r\n\r\n"
                );
                let body = "1\r\ny\r\n".repeat(10_000) + "0\r\n\r\n";
                // A client that has read enough closes the connection.
                let _ = stream.write_all((head + &body).as_bytes()).await;
            }
        });
        let yaml = format!("{{endpoint: \"{url}\", protocol: http/protobuf}}");
        let client = SdkHttpClient::new(&options::<Otlp>(&yaml).unwrap()).unwrap();
        let push = || http::Request::post(&*url).body(Bytes::new()).unwrap();
        let answer = client.send_bytes(push()).await.unwrap();
        assert_eq!(answer.body().len(), 10_000);
        assert!(client.send_bytes(push()).await.is_err());
        served.await.unwrap();
    }

    #[test]
    fn headers_override_those_of_the_list_in_any_case() {
        let yaml = "{endpoint: \"http://a:4318/v1/logs\", protocol: http/protobuf, headers: {Tenant: eu}, \
                    headers_list: \"tenant=us,zone=1,Zone=2\"}";
        let all = options::<Otlp>(yaml).unwrap().all_headers();
        let pairs: Vec<_> = all.iter().map(|(name, value)| (name, value.expose())).collect();
        assert_eq!(pairs, [("Tenant", "eu"), ("zone", "1")]);
    }
}
