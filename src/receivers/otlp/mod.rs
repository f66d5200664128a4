// SPDX-License-Identifier: Apache-2.0

//! `otlp`: accepts OTLP over gRPC and HTTP (protobuf and JSON), on TCP or Unix sockets, for all three signals.
//!
//! Bodies are checked and counted, not decoded: the bytes of the sender pass unchanged. This module frames gRPC
//! itself (a unary call has five bytes before its message), so that it admits a message by its length before it
//! reads it.

pub mod config;
mod failure;
mod ingest;
mod over_grpc;
mod over_http;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderName, Method, Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tower::{ServiceBuilder, ServiceExt};
use tower_http::compression::CompressionLayer;

use crate::batch::Signal;
use crate::component::{
    ComponentError, ConfigType, Context, ErrorDoc, Factory, Lifecycle, Receiver, ReceiverFactory, Stability,
};
use crate::net::auth::AuthGate;
use crate::net::errors::{AUTH_ERRORS, LISTENER_ERRORS, SOCKET_ERRORS};
use crate::net::http::HttpConfig;
use crate::net::{
    self, ConnectionLimits, Endpoint, Listener, Server, SocketFileConfig, TlsServer, TlsServerConfig, tls,
};
use config::{GrpcConfig, HttpProtocolConfig, OtlpReceiverConfig};
use ingest::Ingest;

/// The errors of `otlp`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::answered(
        "The request can't be decoded, or breaks a rule of OTLP.",
        "400 or `INVALID_ARGUMENT`, with the path of the field",
        "Correct the sender. It must not send the request again.",
    ),
    ErrorDoc::answered(
        "The pipelines reject a part of the request.",
        "200 or `OK`, with the number of rejected items and the reason in `partial_success`",
        "Read the reason. The sender must not send the rejected items again.",
    ),
    ErrorDoc::answered(
        "A queue is full, memory is short, or the body of the request stops.",
        "503 or `UNAVAILABLE`, with the time to wait in `Retry-After` or `RetryInfo`",
        "The sender tries again by itself. Look at `tidegate_memory_refusals_total`, and at the \
         queues of the exporters.",
    ),
    ErrorDoc::answered(
        "The request is larger than the limit of the receiver, the queue or the memory.",
        "413 or `RESOURCE_EXHAUSTED`",
        "Send smaller requests, or raise the limit that the message names.",
    ),
    ErrorDoc::answered(
        "No pipeline takes the signal from the receiver, or the path does not exist.",
        "404 (`NOT_FOUND` in the body) or `UNIMPLEMENTED`",
        "Add the receiver to a pipeline of the signal, or correct the path.",
    ),
    ErrorDoc::answered(
        "The method of OTLP/HTTP is not POST.",
        "405 with `Allow`",
        "Send telemetry with POST.",
    ),
    ErrorDoc::answered(
        "The `Content-Type`, the `Content-Encoding` or the `grpc-encoding` is not supported.",
        "415, or `UNIMPLEMENTED`",
        "Use a type and a coding that the message or `compression_algorithms` lists.",
    ),
    ErrorDoc::answered(
        "A gRPC message is compressed, and the call has no `grpc-encoding`.",
        "`INTERNAL`",
        "Correct the client.",
    ),
    ErrorDoc::answered(
        "The body of the request breaks off.",
        "400 or `CANCELLED`",
        "Check the network, and the proxies between the client and the gateway.",
    ),
];

/// The factory of `otlp`.
pub static FACTORY: ReceiverFactory = Factory {
    kind: "otlp",
    aliases: &[],
    stability: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "takes OTLP over gRPC and HTTP, on TCP or Unix sockets",
    errors: &[ERRORS, AUTH_ERRORS, LISTENER_ERRORS, SOCKET_ERRORS],
    config: ConfigType::of::<OtlpReceiverConfig>(),
    build: |settings, cx| {
        let config = settings.get::<OtlpReceiverConfig>();
        let otlp = Otlp {
            ingest: Ingest::new(&config, &cx),
            config,
            base: cx.base,
            servers: Mutex::default(),
        };
        // Reports a missing authenticator before anything is opened.
        let protocols = &otlp.config.protocols;
        let grpc = protocols.grpc.as_ref().and_then(|grpc| grpc.auth.as_ref());
        let http = protocols.http.as_ref().and_then(|http| http.auth.as_ref());
        AuthGate::of(grpc, &otlp.base)?;
        AuthGate::of(http, &otlp.base)?;
        Ok(Arc::new(otlp))
    },
};

/// Headers that an SDK in a page always sends.
const PAGE_HEADERS: [HeaderName; 3] = [ACCEPT, CONTENT_TYPE, HeaderName::from_static("x-requested-with")];

/// An answer in progress, over either protocol.
type Answering = Pin<Box<dyn Future<Output = Response<AnyBody>> + Send>>;
type AnyBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

fn boxed<B>(body: B) -> AnyBody
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    body.map_err(Into::into).boxed_unsync()
}

struct Otlp {
    config: Arc<OtlpReceiverConfig>,
    base: Context,
    ingest: Ingest,
    servers: Mutex<Vec<Server>>,
}

impl Otlp {
    async fn start_grpc(&self, config: &GrpcConfig) -> Result<Server, ComponentError> {
        let limits = ConnectionLimits::new(config.max_connections.get(), config.max_connections_per_peer)
            .of(&self.base.path)
            .over(self.tls(config.tls.as_ref(), tls::ALPN_GRPC)?);
        let grpc = self.grpc(config)?;
        let listener = self.listen(&config.endpoint, &config.socket).await?;
        let answer = move |request| grpc.clone().answer(request);
        let serving = config
            .serving()
            .of_receiver(&self.base, self.ingest.ceiling(), &listener, &limits);
        Ok(net::http::start(listener, limits, serving, answer))
    }

    async fn start_http(&self, config: &HttpProtocolConfig) -> Result<Server, ComponentError> {
        let limits = ConnectionLimits::new(config.max_connections.get(), config.max_connections_per_peer)
            .of(&self.base.path)
            .over(self.tls(config.tls.as_ref(), tls::ALPN_HTTP)?);
        let answer = self.http(config)?;
        let listener = self.listen(&config.endpoint, &config.socket).await?;
        let serving = config
            .serving()
            .of_receiver(&self.base, self.ingest.ceiling(), &listener, &limits);
        Ok(net::http::start(listener, limits, serving, answer))
    }

    /// Starts both protocols on one port. The content type distinguishes them.
    async fn start_shared(
        &self,
        grpc: &GrpcConfig,
        http: &HttpProtocolConfig,
    ) -> Result<Server, ComponentError> {
        let most = http.max_connections.max(grpc.max_connections).get();
        let per_peer = http.max_connections_per_peer.max(grpc.max_connections_per_peer);
        let limits = ConnectionLimits::new(most, per_peer)
            .of(&self.base.path)
            .over(self.tls(http.tls.as_ref(), tls::ALPN_HTTP)?);
        let listener = self.listen(&http.endpoint, &http.socket).await?;
        let serving = HttpConfig {
            http2_only: false,
            header_timeout: http.header_timeout(),
            // Idle times are the same.
            max_stall: http.serving().max_stall,
            keeps_alive: http.keep_alives_enabled,
            ..grpc.serving()
        };
        let serving = serving.of_receiver(&self.base, self.ingest.ceiling(), &listener, &limits);
        let (over_grpc, over_http) = (self.grpc(grpc)?, self.http(http)?);
        let answer = move |request: Request<Incoming>| {
            let (over_grpc, over_http) = (over_grpc.clone(), over_http.clone());
            async move {
                if net::grpc::is_call(&request) {
                    over_grpc.answer(request).await.map(boxed)
                } else {
                    over_http(request).await
                }
            }
        };
        Ok(net::http::start(listener, limits, serving, answer))
    }

    fn grpc(&self, config: &GrpcConfig) -> Result<Arc<over_grpc::Grpc>, ComponentError> {
        let auth_gate = AuthGate::of(config.auth.as_ref(), &self.base)?;
        let ingest = self.ingest.over("grpc", auth_gate);
        Ok(Arc::new(over_grpc::Grpc::new(ingest, config)))
    }

    fn http(
        &self,
        config: &HttpProtocolConfig,
    ) -> Result<impl Fn(Request<Incoming>) -> Answering + Clone + Send + Sync + 'static, ComponentError> {
        let auth_gate = AuthGate::of(config.auth.as_ref(), &self.base)?;
        let ingest = self.ingest.over("http", auth_gate);
        let http = Arc::new(over_http::Http::new(ingest, config));
        let service = ServiceBuilder::new()
            .option_layer(
                config
                    .cors
                    .as_ref()
                    .and_then(|cors| cors.layer([Method::POST], &PAGE_HEADERS)),
            )
            .layer(CompressionLayer::new().gzip(true))
            .service_fn(move |request| {
                let http = http.clone();
                async move { Ok::<_, Infallible>(http.answer(request).await) }
            });
        Ok(move |request| {
            let answer = service.clone().oneshot(request);
            let answer: Answering = Box::pin(async {
                let answer: Response<_> = answer.await.unwrap_or_else(|never| match never {});
                answer.map(boxed)
            });
            answer
        })
    }

    async fn listen(&self, endpoint: &Endpoint, file: &SocketFileConfig) -> Result<Listener, ComponentError> {
        let listener = Listener::bind(endpoint, file).await;
        listener.map_err(|error| self.base.error(error.to_string()))
    }

    fn tls(
        &self,
        config: Option<&TlsServerConfig>,
        alpn: &[&[u8]],
    ) -> Result<Option<Arc<TlsServer>>, ComponentError> {
        let built = config.map(|config| config.build(alpn)).transpose();
        built.map_err(|error| self.base.error(error.to_string()))
    }

    fn servers(&self) -> parking_lot::MutexGuard<'_, Vec<Server>> {
        self.servers.lock()
    }

    /// Keeps a server that has started. The stop ends it, also if the next one can't start.
    fn keep(&self, protocol: &str, server: Server) {
        tracing::info!(receiver = %self.base.id, endpoint = %server.local(), "listening for OTLP over {protocol}");
        self.servers().push(server);
    }
}

impl Receiver for Otlp {}

#[async_trait]
impl Lifecycle for Otlp {
    fn check_files(&self) -> Result<(), ComponentError> {
        let protocols = &self.config.protocols;
        let grpc = protocols.grpc.as_ref().and_then(|grpc| grpc.tls.as_ref());
        let http = protocols.http.as_ref().and_then(|http| http.tls.as_ref());
        tls::check_files(grpc, &self.base)?;
        tls::check_files(http, &self.base)
    }

    async fn start(&self) -> Result<(), ComponentError> {
        let protocols = &self.config.protocols;
        if let Some((grpc, http)) = protocols.shared() {
            self.keep("gRPC and HTTP", self.start_shared(grpc, http).await?);
            return Ok(());
        }
        if let Some(grpc) = &protocols.grpc {
            self.keep("gRPC", self.start_grpc(grpc).await?);
        }
        if let Some(http) = &protocols.http {
            self.keep("HTTP", self.start_http(http).await?);
        }
        Ok(())
    }

    async fn stop(&self, deadline: Instant) {
        let servers = std::mem::take(&mut *self.servers());
        let stopping: Vec<_> = servers.iter().map(|server| server.stop(deadline)).collect();
        for stopped in stopping {
            stopped.await;
        }
    }
}

#[cfg(test)]
mod tests;
