// SPDX-License-Identifier: Apache-2.0

//! Real clients against real sockets, into a sink that refuses on request.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::NumberDataPoint;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use serde_json::{Value, json};
use tidegate_requests::{gauge, int, request};
use tokio::net::{TcpStream, UnixStream};
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;
use tonic_types::StatusExt;

use super::*;
use crate::batch::{Batch, Payload};
use crate::component::testing::{Sink, context, settings};
use crate::component::{Consumer, Entry, EntryCounts, Flow, ReceiverContext, Refused};

mod auth;
mod connections;
mod refused;
mod taken;

const BOTH: &str = "protocols: {grpc: {endpoint: '127.0.0.1:0'}, http: {endpoint: '127.0.0.1:0'}}";

struct Gateway {
    sink: Arc<Sink>,
    counts: Arc<EntryCounts>,
    otlp: Otlp,
}

impl Gateway {
    async fn start(yaml: &str) -> Self {
        let sink = Sink::new();
        let counts = Arc::<EntryCounts>::default();
        let entries = Signal::ALL.map(|signal| Some(Entry::new(signal, sink.clone(), counts.clone())));
        let otlp = otlp(yaml, entries);
        otlp.start().await.unwrap();
        Self { sink, counts, otlp }
    }

    fn endpoint(&self, at: usize) -> Endpoint {
        self.otlp.endpoint(at)
    }

    async fn channel(&self) -> Channel {
        channel(&self.endpoint(0)).await
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
        post(&self.endpoint(1), path, headers, body.into()).await
    }
}

impl Otlp {
    /// gRPC comes before HTTP.
    fn endpoint(&self, at: usize) -> Endpoint {
        self.servers()[at].local().clone()
    }
}

fn otlp(yaml: &str, entries: [Option<Entry>; 3]) -> Otlp {
    let cx = ReceiverContext {
        base: context("receivers", "otlp"),
        entries,
    };
    let config = settings::<OtlpReceiverConfig>(yaml).get::<OtlpReceiverConfig>();
    Otlp {
        ingest: Ingest::new(&config, &cx),
        config,
        base: cx.base,
        servers: Mutex::default(),
    }
}

async fn channel(endpoint: &Endpoint) -> Channel {
    match endpoint {
        Endpoint::Tcp { .. } => Channel::from_shared(format!("http://{endpoint}"))
            .unwrap()
            .connect()
            .await
            .unwrap(),
        Endpoint::Unix(path) => {
            let path = path.clone();
            let connect = tower::service_fn(move |_| {
                let path = path.clone();
                async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
            });
            Channel::from_static("http://localhost")
                .connect_with_connector(connect)
                .await
                .unwrap()
        }
    }
}

struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Reply {
    fn json(&self) -> Value {
        assert_eq!(self.headers["content-type"], "application/json");
        serde_json::from_slice(&self.body).unwrap()
    }

    fn rpc_status(&self) -> tonic_types::pb::Status {
        assert_eq!(self.headers["content-type"], "application/x-protobuf");
        tonic_types::pb::Status::decode(&*self.body).unwrap()
    }
}

async fn post(endpoint: &Endpoint, path: &str, headers: &[(&str, &str)], body: Bytes) -> Reply {
    let mut request = Request::post(path).header("host", "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(endpoint, request.body(Full::new(body)).unwrap()).await
}

async fn send(endpoint: &Endpoint, request: Request<Full<Bytes>>) -> Reply {
    match endpoint {
        Endpoint::Tcp { host, port } => {
            exchange(TcpStream::connect((host.as_str(), *port)).await.unwrap(), request).await
        }
        Endpoint::Unix(path) => exchange(UnixStream::connect(path).await.unwrap(), request).await,
    }
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Reply
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let response = sender.send_request(request).await.unwrap();
    let (parts, body) = response.into_parts();
    Reply {
        status: parts.status,
        headers: parts.headers,
        body: body.collect().await.unwrap().to_bytes(),
    }
}

const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");
const JSON: (&str, &str) = ("content-type", "application/json");

fn metrics(points: usize) -> ExportMetricsServiceRequest {
    let point = NumberDataPoint {
        time_unix_nano: 1,
        ..int(42)
    };
    request(Vec::new(), "", [gauge("m", vec![point; points])])
}

fn traces() -> ExportTraceServiceRequest {
    let span = Span {
        name: "s".to_owned(),
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        ..Default::default()
    };
    let scope = ScopeSpans {
        spans: vec![span; 2],
        ..Default::default()
    };
    let resource = ResourceSpans {
        scope_spans: vec![scope],
        ..Default::default()
    };
    ExportTraceServiceRequest {
        resource_spans: vec![resource],
    }
}

fn logs() -> ExportLogsServiceRequest {
    let scope = ScopeLogs {
        log_records: vec![LogRecord::default(); 3],
        ..Default::default()
    };
    let resource = ResourceLogs {
        scope_logs: vec![scope],
        ..Default::default()
    };
    ExportLogsServiceRequest {
        resource_logs: vec![resource],
    }
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// Signal and bytes of what arrived.
fn arrived(sink: &Sink) -> Vec<(Signal, Vec<u8>)> {
    let encoded = |batch: Batch| match batch.payload {
        Payload::Encoded(encoded) => (encoded.signal, encoded.parts[0].bytes.to_vec()),
        other => panic!("unexpected {other:?}"),
    };
    sink.batches().into_iter().map(encoded).collect()
}

fn all_three() -> Vec<(Signal, Vec<u8>)> {
    vec![
        (Signal::Metrics, metrics(1).encode_to_vec()),
        (Signal::Traces, traces().encode_to_vec()),
        (Signal::Logs, logs().encode_to_vec()),
    ]
}

async fn export_all_three(channel: Channel, compression: Option<CompressionEncoding>) {
    let mut metrics_client = MetricsServiceClient::new(channel.clone());
    let mut trace_client = TraceServiceClient::new(channel.clone());
    let mut logs_client = LogsServiceClient::new(channel);
    if let Some(compression) = compression {
        metrics_client = metrics_client.send_compressed(compression);
        trace_client = trace_client.send_compressed(compression);
        logs_client = logs_client.send_compressed(compression);
    }
    let answer = metrics_client.export(metrics(1)).await.unwrap().into_inner();
    assert_eq!(answer.partial_success, None);
    assert_eq!(
        trace_client
            .export(traces())
            .await
            .unwrap()
            .into_inner()
            .partial_success,
        None
    );
    assert_eq!(
        logs_client
            .export(logs())
            .await
            .unwrap()
            .into_inner()
            .partial_success,
        None
    );
}
