// SPDX-License-Identifier: Apache-2.0

//! The way to the collector: gRPC or HTTP.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
#[cfg(feature = "tracing")]
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, trace_service_client::TraceServiceClient,
};
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};

use super::build::{OtelBuilder, OtelError, Protocol};

/// The limit on the bytes of an answer.
const MAX_ANSWER: usize = 64 * 1024;

/// The way to the collector.
pub(super) enum Sender {
    Grpc(Channel, HeaderMap),
    Http(Box<Post>),
}

/// Where and how requests are posted.
pub(super) struct Post {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    uri: Uri,
    headers: HeaderMap,
}

impl Sender {
    /// Connects with the first push; HTTP goes to `path`. Within a runtime.
    pub(super) fn new(builder: &OtelBuilder, path: &str) -> Result<Self, OtelError> {
        let bad = || OtelError::Endpoint(builder.endpoint.clone());
        let uri: Uri = builder.endpoint.parse().map_err(|_| bad())?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.authority().is_none() {
            return Err(bad());
        }
        let headers = headers(&builder.headers)?;
        match builder.protocol {
            Protocol::Grpc => {
                let is_secure = uri.scheme_str() == Some("https");
                let mut endpoint = Endpoint::from(uri).connect_timeout(builder.timeout);
                if is_secure {
                    let tls = ClientTlsConfig::new().with_native_roots();
                    endpoint = endpoint.tls_config(tls).map_err(|_| bad())?;
                }
                Ok(Self::Grpc(endpoint.connect_lazy(), headers))
            }
            Protocol::Http => {
                let endpoint = builder.endpoint.trim_end_matches('/');
                let full = match (builder.is_full, endpoint.strip_suffix("/v1/metrics")) {
                    (true, Some(base)) => format!("{base}{path}"),
                    (true, None) => endpoint.to_owned(),
                    (false, _) => format!("{endpoint}{path}"),
                };
                let uri = full.parse().map_err(|_| bad())?;
                let connector = HttpsConnectorBuilder::new()
                    .with_native_roots()?
                    .https_or_http()
                    .enable_http1()
                    .build();
                Ok(Self::Http(Box::new(Post {
                    client: Client::builder(TokioExecutor::new()).build(connector),
                    uri,
                    headers,
                })))
            }
        }
    }

    /// Pushes; how many points were rejected.
    pub(super) async fn send(
        &self,
        request: ExportMetricsServiceRequest,
        within: Duration,
    ) -> Result<u64, String> {
        let sent = async {
            match self {
                Self::Grpc(channel, headers) => grpc(channel, headers, request).await,
                Self::Http(to) => http(to.client.request(to.post(&request))).await,
            }
        };
        let answer = tokio::time::timeout(within, sent)
            .await
            .map_err(|_| "timed out".to_owned())??;
        let rejected = answer
            .partial_success
            .map_or(0, |partial| partial.rejected_data_points);
        Ok(rejected.max(0) as u64)
    }
}

#[cfg(feature = "tracing")]
impl Sender {
    /// Pushes spans; those that are rejected are lost.
    pub(super) async fn send_spans(
        &self,
        spans: ExportTraceServiceRequest,
        within: Duration,
    ) -> Result<(), String> {
        let sent = async {
            match self {
                Self::Grpc(channel, headers) => {
                    let mut request = tonic::Request::new(spans);
                    *request.metadata_mut() = MetadataMap::from_headers(headers.clone());
                    let answer = TraceServiceClient::new(channel.clone()).export(request).await;
                    answer.map(drop).map_err(|status| status.to_string())
                }
                Self::Http(to) => taken(to.client.request(to.post(&spans))).await.map(drop),
            }
        };
        tokio::time::timeout(within, sent)
            .await
            .map_err(|_| "timed out".to_owned())?
    }
}

impl Post {
    fn post(&self, message: &impl Message) -> Request<Full<Bytes>> {
        let mut post = Request::new(Full::new(Bytes::from(message.encode_to_vec())));
        *post.method_mut() = Method::POST;
        *post.uri_mut() = self.uri.clone();
        *post.headers_mut() = self.headers.clone();
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        post.headers_mut().insert(CONTENT_TYPE, protobuf);
        post
    }
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

async fn grpc(
    channel: &Channel,
    headers: &HeaderMap,
    request: ExportMetricsServiceRequest,
) -> Result<ExportMetricsServiceResponse, String> {
    let mut request = tonic::Request::new(request);
    *request.metadata_mut() = MetadataMap::from_headers(headers.clone());
    let answer = MetricsServiceClient::new(channel.clone()).export(request).await;
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| status.to_string())
}

async fn http(
    answer: hyper_util::client::legacy::ResponseFuture,
) -> Result<ExportMetricsServiceResponse, String> {
    // Taken is taken, whatever else is said.
    Ok(ExportMetricsServiceResponse::decode(taken(answer).await?).unwrap_or_default())
}

/// The body of an answer that says that a request was taken.
async fn taken(answer: hyper_util::client::legacy::ResponseFuture) -> Result<Bytes, String> {
    let answer = answer.await.map_err(|error| error.to_string())?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    if !status.is_success() {
        return Err(format!("answered {status}"));
    }
    Ok(body)
}

fn headers(pairs: &[(String, String)]) -> Result<HeaderMap, OtelError> {
    pairs
        .iter()
        .map(|(name, value)| {
            let bad = || OtelError::Header(name.clone());
            let parsed: HeaderName = name.to_ascii_lowercase().parse().map_err(|_| bad())?;
            let mut value: HeaderValue = value.parse().map_err(|_| bad())?;
            value.set_sensitive(true);
            Ok((parsed, value))
        })
        .collect()
}
