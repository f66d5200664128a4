//! Real clients against real sockets, into a sink that refuses when told to.

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
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, number_data_point,
};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use serde_json::{Value, json};
use tokio::net::{TcpStream, UnixStream};
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;
use tonic_types::StatusExt;

use super::*;
use crate::batch::{Batch, Payload};
use crate::component::testing::{Sink, context, settings};
use crate::component::{Consumer, Entry, EntryCounts, Flow, ReceiverContext, Refused};

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
        self.otlp.servers()[at].local().clone()
    }

    async fn channel(&self) -> Channel {
        channel(&self.endpoint(0)).await
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
        post(&self.endpoint(1), path, headers, body.into()).await
    }
}

fn otlp(yaml: &str, entries: [Option<Entry>; 3]) -> Otlp {
    let cx = ReceiverContext {
        base: context("receivers", "otlp"),
        entries,
    };
    Otlp {
        config: settings::<Config>(yaml).get(),
        ingest: Arc::new(Ingest::new(&cx)),
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
        value: Some(number_data_point::Value::AsInt(42)),
        ..Default::default()
    };
    let gauge = Gauge {
        data_points: vec![point; points],
    };
    let metric = Metric {
        name: "m".to_owned(),
        data: Some(Data::Gauge(gauge)),
        ..Default::default()
    };
    let scope = ScopeMetrics {
        metrics: vec![metric],
        ..Default::default()
    };
    let resource = ResourceMetrics {
        scope_metrics: vec![scope],
        ..Default::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![resource],
    }
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

#[tokio::test]
async fn grpc_takes_every_signal_in_every_compression_byte_for_byte() {
    for compression in [
        None,
        Some(CompressionEncoding::Gzip),
        Some(CompressionEncoding::Zstd),
    ] {
        let gateway = Gateway::start(BOTH).await;
        export_all_three(gateway.channel().await, compression).await;
        assert_eq!(arrived(&gateway.sink), all_three(), "{compression:?}");
        assert_eq!(gateway.sink.items(), 1 + 2 + 3);
        assert_eq!(gateway.counts.accepted.load(SeqCst), 6);
        assert_eq!(gateway.otlp.base.shared.memory.held_bytes(), 0, "let go again");
    }
}

#[tokio::test]
async fn a_message_larger_than_a_frame_and_a_window_arrives_whole() {
    let gateway = Gateway::start(BOTH).await;
    let mut client = MetricsServiceClient::new(gateway.channel().await);
    client.export(metrics(400_000)).await.unwrap();
    let (_, bytes) = &arrived(&gateway.sink)[0];
    assert!(bytes.len() > net::http::HTTP2_STREAM_WINDOW_BYTES as usize);
    assert_eq!(gateway.sink.items(), 400_000);
}

#[tokio::test]
async fn http_takes_every_signal_in_every_coding_byte_for_byte() {
    type Pack = fn(&[u8]) -> Vec<u8>;
    let zlib: Pack = |data| {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    };
    let codings: [(&str, Pack); 4] = [
        ("identity", |data| data.to_vec()),
        ("gzip", gzip),
        ("deflate", zlib),
        ("zstd", |data| zstd::stream::encode_all(data, 0).unwrap()),
    ];
    for (coding, pack) in codings {
        let gateway = Gateway::start(BOTH).await;
        for (signal, body) in all_three() {
            let path = format!("/v1/{signal}");
            let reply = gateway
                .post(&path, &[PROTOBUF, ("content-encoding", coding)], pack(&body))
                .await;
            assert_eq!((reply.status, reply.body.len()), (StatusCode::OK, 0), "{coding}");
            assert_eq!(reply.headers["content-type"], "application/x-protobuf");
        }
        assert_eq!(arrived(&gateway.sink), all_three(), "{coding}");
    }
}

#[tokio::test]
async fn unix_sockets_take_every_signal_over_both_protocols() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let yaml = format!(
        "protocols: {{grpc: {{endpoint: '{}', transport: unix}}, http: {{endpoint: 'unix:{}'}}}}",
        at("grpc.sock"),
        at("http.sock"),
    );
    let gateway = Gateway::start(&yaml).await;
    export_all_three(gateway.channel().await, None).await;
    for (signal, body) in all_three() {
        let reply = gateway.post(&format!("/v1/{signal}"), &[PROTOBUF], body).await;
        assert_eq!(reply.status, StatusCode::OK);
    }
    assert_eq!(arrived(&gateway.sink), [all_three(), all_three()].concat());
    gateway.otlp.stop(Instant::now() + Duration::from_secs(10)).await;
    assert!(!Path::new(&at("grpc.sock")).exists());
}

#[tokio::test]
async fn json_becomes_protobuf_and_the_answer_is_json() {
    let gateway = Gateway::start(BOTH).await;
    let body = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [
        {"name": "m", "gauge": {"dataPoints": [{"timeUnixNano": "1", "asInt": "42"}]}}
    ]}]}]});
    let content_type = ("content-type", "Application/JSON; charset=utf-8");
    let reply = gateway
        .post("/v1/metrics", &[content_type], body.to_string())
        .await;
    assert_eq!((reply.status, reply.json()), (StatusCode::OK, json!({})));
    let (_, bytes) = &arrived(&gateway.sink)[0];
    assert_eq!(ExportMetricsServiceRequest::decode(&**bytes).unwrap(), metrics(1));

    let reply = gateway
        .post("/v1/metrics", &[JSON], "{\"resourceMetrics\": 7}")
        .await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    let status = reply.json();
    assert_eq!(status["code"], Code::InvalidArgument as i32);
    assert_eq!(
        status["details"][0]["@type"],
        "type.googleapis.com/google.rpc.BadRequest"
    );
    assert_eq!(gateway.counts.failed.load(SeqCst), 1);
}

#[tokio::test]
async fn an_empty_request_succeeds_and_goes_nowhere() {
    let gateway = Gateway::start(BOTH).await;
    let mut client = MetricsServiceClient::new(gateway.channel().await);
    client
        .export(ExportMetricsServiceRequest::default())
        .await
        .unwrap();
    assert_eq!(
        gateway.post("/v1/logs", &[PROTOBUF], Bytes::new()).await.status,
        StatusCode::OK
    );
    assert_eq!(
        gateway.post("/v1/traces", &[JSON], "{}").await.status,
        StatusCode::OK
    );
    assert!(gateway.sink.batches().is_empty());
}

#[tokio::test]
async fn undecodable_data_is_400_or_invalid_argument_with_a_bad_request() {
    let gateway = Gateway::start(BOTH).await;
    let reply = gateway.post("/v1/metrics", &[PROTOBUF], &b"\x0a\xff"[..]).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    let status = reply.rpc_status();
    assert_eq!(status.code, Code::InvalidArgument as i32);
    assert_eq!(
        status.details[0].type_url,
        "type.googleapis.com/google.rpc.BadRequest"
    );

    let mut client = tonic::client::Grpc::new(gateway.channel().await);
    client.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static(
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    );
    // A string where a message belongs: field 1, three bytes that are no message.
    let noise = Noise { inner: vec![0xff; 3] };
    let codec = tonic_prost::ProstCodec::<Noise, ExportMetricsServiceResponse>::default();
    let error = client
        .unary(tonic::Request::new(noise), path, codec)
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert_eq!(
        error
            .get_error_details()
            .bad_request()
            .unwrap()
            .field_violations
            .len(),
        1
    );
    assert_eq!(gateway.counts.failed.load(SeqCst), 2);
}

/// Looks like a request from outside.
#[derive(Clone, PartialEq, Message)]
struct Noise {
    #[prost(bytes = "vec", tag = "1")]
    inner: Vec<u8>,
}

#[tokio::test]
async fn oversize_is_413_or_resource_exhausted_before_and_after_decompression() {
    let yaml = "protocols: {grpc: {endpoint: '127.0.0.1:0', max_recv_msg_size_mib: 1}, \
                http: {endpoint: '127.0.0.1:0', max_request_body_size: 1MiB}}";
    let gateway = Gateway::start(yaml).await;
    let large = metrics(60_000);
    assert!(large.encoded_len() > 1 << 20);
    let packed = gzip(&large.encode_to_vec());
    assert!(packed.len() < 1 << 20, "a small body that unpacks to a large one");

    let plain = MetricsServiceClient::new(gateway.channel().await);
    for mut client in [plain.clone(), plain.send_compressed(CompressionEncoding::Gzip)] {
        let error = client.export(large.clone()).await.unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted);
        assert_eq!(error.get_error_details().retry_info(), None, "not worth a retry");
    }
    let reply = gateway
        .post("/v1/metrics", &[PROTOBUF, ("content-encoding", "gzip")], packed)
        .await;
    assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(reply.rpc_status().code, Code::ResourceExhausted as i32);
    assert!(gateway.sink.batches().is_empty());
    assert_eq!(gateway.otlp.base.shared.memory.held_bytes(), 0);
}

#[tokio::test]
async fn a_body_whose_length_is_too_large_is_413_without_being_read() {
    let gateway =
        Gateway::start("protocols: {http: {endpoint: '127.0.0.1:0', max_request_body_size: 100}}").await;
    let Endpoint::Tcp { host, port } = gateway.endpoint(0) else {
        panic!("not TCP");
    };
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = TcpStream::connect((host, port)).await.unwrap();
    let head = "POST /v1/metrics HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: 101\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 413");
}

#[tokio::test]
async fn a_bomb_is_stopped_at_the_limit() {
    let gateway =
        Gateway::start("protocols: {http: {endpoint: '127.0.0.1:0', max_request_body_size: 1MiB}}").await;
    let zeros = vec![0; 64 << 20];
    let bombs = [
        ("gzip", gzip(&zeros)),
        ("zstd", zstd::stream::encode_all(&*zeros, 0).unwrap()),
    ];
    for (coding, bomb) in bombs {
        assert!(bomb.len() < 100_000);
        let endpoint = gateway.endpoint(0);
        let reply = post(
            &endpoint,
            "/v1/logs",
            &[PROTOBUF, ("content-encoding", coding)],
            bomb.into(),
        )
        .await;
        assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE, "{coding}");
    }
}

#[tokio::test]
async fn a_busy_pipeline_says_when_to_come_back() {
    let gateway = Gateway::start(BOTH).await;
    gateway.sink.refuse(3);
    let mut client = MetricsServiceClient::new(gateway.channel().await);
    let error = client.export(metrics(1)).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let retry = error.get_error_details().retry_info().unwrap().retry_delay;
    assert_eq!(retry, Some(Duration::from_millis(1)));

    let reply = gateway
        .post("/v1/metrics", &[PROTOBUF], metrics(1).encode_to_vec())
        .await;
    assert_eq!(
        (reply.status, &reply.headers["retry-after"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap())
    );
    let status = reply.rpc_status();
    assert_eq!(status.code, Code::Unavailable as i32);
    assert_eq!(
        status.details[0].type_url,
        "type.googleapis.com/google.rpc.RetryInfo"
    );

    let body = json!({"resourceLogs": [{"scopeLogs": [{"logRecords": [{}]}]}]}).to_string();
    let reply = gateway.post("/v1/logs", &[JSON], body).await;
    assert_eq!(reply.json()["details"][0]["retryDelay"], "0.001000000s");
    assert_eq!(gateway.counts.refused.load(SeqCst), 3);

    client.export(metrics(1)).await.unwrap();
    assert_eq!(gateway.sink.items(), 1);
}

#[tokio::test]
async fn over_the_memory_limit_requests_are_refused_before_they_are_read() {
    let gateway = Gateway::start(BOTH).await;
    gateway.otlp.base.shared.memory.set_over_limit(true);
    let mut client = MetricsServiceClient::new(gateway.channel().await);
    let error = client.export(metrics(1)).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.get_error_details().retry_info().is_some());
    let reply = gateway
        .post("/v1/metrics", &[PROTOBUF], metrics(1).encode_to_vec())
        .await;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(reply.headers.contains_key("retry-after"));
    gateway.otlp.base.shared.memory.set_over_limit(false);
    client.export(metrics(1)).await.unwrap();
}

/// Takes a batch but rejects one item of it, or refuses for good.
struct Picky {
    takes: bool,
}

impl Consumer for Picky {
    fn admit(&self, _: &Batch, _: &mut Flow) -> Result<(), Refused> {
        match self.takes {
            true => Ok(()),
            false => Err(Refused::permanent("never")),
        }
    }

    fn consume(&self, _: Batch, flow: &mut Flow) {
        flow.reject(1, || "a name is empty".to_owned());
    }
}

async fn picky(takes: bool) -> Otlp {
    let entry = |signal| Some(Entry::new(signal, Arc::new(Picky { takes }), Arc::default()));
    let otlp = otlp(BOTH, [entry(Signal::Metrics), entry(Signal::Traces), None]);
    otlp.start().await.unwrap();
    otlp
}

#[tokio::test]
async fn rejected_points_are_a_partial_success() {
    let otlp = picky(true).await;
    let (grpc, http) = (
        otlp.servers()[0].local().clone(),
        otlp.servers()[1].local().clone(),
    );
    let mut client = MetricsServiceClient::new(channel(&grpc).await);
    let partial = client
        .export(metrics(3))
        .await
        .unwrap()
        .into_inner()
        .partial_success
        .unwrap();
    assert_eq!(
        (partial.rejected_data_points, partial.error_message.as_str()),
        (1, "a name is empty")
    );

    let reply = post(
        &http,
        "/v1/metrics",
        &[PROTOBUF],
        metrics(3).encode_to_vec().into(),
    )
    .await;
    assert_eq!(reply.status, StatusCode::OK);
    let answer = ExportMetricsServiceResponse::decode(&*reply.body).unwrap();
    assert_eq!(answer.partial_success, Some(partial));

    let span = json!({"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "s"}]}]}]}).to_string();
    let reply = post(&http, "/v1/traces", &[JSON], span.into()).await;
    let expected = json!({"partialSuccess": {"rejectedSpans": "1", "errorMessage": "a name is empty"}});
    assert_eq!(reply.json(), expected);
}

#[tokio::test]
async fn a_refusal_for_good_is_not_retryable() {
    let otlp = picky(false).await;
    let (grpc, http) = (
        otlp.servers()[0].local().clone(),
        otlp.servers()[1].local().clone(),
    );
    let mut client = MetricsServiceClient::new(channel(&grpc).await);
    assert_eq!(
        client.export(metrics(1)).await.unwrap_err().code(),
        Code::InvalidArgument
    );
    let reply = post(
        &http,
        "/v1/metrics",
        &[PROTOBUF],
        metrics(1).encode_to_vec().into(),
    )
    .await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_signal_that_no_pipeline_wants_is_unimplemented_or_404() {
    let otlp = picky(true).await;
    let (grpc, http) = (
        otlp.servers()[0].local().clone(),
        otlp.servers()[1].local().clone(),
    );
    let mut client = LogsServiceClient::new(channel(&grpc).await);
    assert_eq!(
        client.export(logs()).await.unwrap_err().code(),
        Code::Unimplemented
    );
    let reply = post(&http, "/v1/logs", &[PROTOBUF], logs().encode_to_vec().into()).await;
    assert_eq!(reply.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn wrong_methods_paths_types_and_codings_have_their_own_status() {
    let gateway = Gateway::start(BOTH).await;
    let body = || Bytes::from(metrics(1).encode_to_vec());
    let table: &[(&str, &[(&str, &str)], StatusCode)] = &[
        ("/v1/profiles", &[PROTOBUF], StatusCode::NOT_FOUND),
        ("/v1/metrics", &[], StatusCode::UNSUPPORTED_MEDIA_TYPE),
        (
            "/v1/metrics",
            &[("content-type", "text/plain")],
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
        (
            "/v1/metrics",
            &[PROTOBUF, ("content-encoding", "br")],
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
        (
            "/v1/metrics",
            &[PROTOBUF, ("content-encoding", "gzip")],
            StatusCode::BAD_REQUEST,
        ),
    ];
    for (path, headers, expected) in table {
        let reply = gateway.post(path, headers, body()).await;
        assert_eq!(reply.status, *expected, "{path} {headers:?}");
        assert!(!reply.rpc_status().message.is_empty());
    }
    let get = Request::get("/v1/metrics")
        .header("host", "x")
        .body(Full::default())
        .unwrap();
    let reply = send(&gateway.endpoint(1), get).await;
    assert_eq!(
        (reply.status, &reply.headers["allow"]),
        (StatusCode::METHOD_NOT_ALLOWED, &"POST".parse().unwrap())
    );
}

#[tokio::test]
async fn grpc_says_unimplemented_for_unknown_calls() {
    let gateway = Gateway::start(BOTH).await;
    let mut channel = tonic::client::Grpc::new(gateway.channel().await);
    channel.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/no.such.Service/Call");
    let codec = tonic_prost::ProstCodec::<Noise, Noise>::default();
    let error = channel
        .unary(tonic::Request::new(Noise::default()), path, codec)
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
}

#[tokio::test]
async fn tls_on_both_protocols() {
    let dir = tempfile::tempdir().unwrap();
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let write = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (cert_file, key_file) = (
        write("cert.pem", key.cert.pem()),
        write("key.pem", key.signing_key.serialize_pem()),
    );
    let tls = format!("endpoint: '127.0.0.1:0', tls: {{cert_file: {cert_file}, key_file: {key_file}}}");
    let gateway = Gateway::start(&format!("protocols: {{grpc: {{{tls}}}, http: {{{tls}}}}}")).await;

    let trust = tonic::transport::ClientTlsConfig::new()
        .ca_certificate(tonic::transport::Certificate::from_pem(key.cert.pem()))
        .domain_name("localhost");
    let channel = Channel::from_shared(format!("https://{}", gateway.endpoint(0))).unwrap();
    let channel = channel.tls_config(trust).unwrap().connect().await.unwrap();
    export_all_three(channel, None).await;

    let client = net::TlsClientConfig {
        ca_file: Some(cert_file.into()),
        ..net::TlsClientConfig::default()
    };
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client.build(&[b"http/1.1"]).unwrap()));
    let Endpoint::Tcp { host, port } = gateway.endpoint(1) else {
        panic!("not TCP");
    };
    let stream = TcpStream::connect((host, port)).await.unwrap();
    let stream = connector
        .connect("localhost".try_into().unwrap(), stream)
        .await
        .unwrap();
    let request = Request::post("/v1/metrics")
        .header("host", "localhost")
        .header(PROTOBUF.0, PROTOBUF.1);
    let reply = exchange(
        stream,
        request
            .body(Full::new(metrics(1).encode_to_vec().into()))
            .unwrap(),
    )
    .await;
    assert_eq!(reply.status, StatusCode::OK);
}

#[test]
fn configuration_mistakes_are_told() {
    let table = [
        (
            "",
            "must specify at least one protocol when using the OTLP receiver",
        ),
        (
            "protocols: {}",
            "must specify at least one protocol when using the OTLP receiver",
        ),
        ("protocols: {grpc: {endpoint: localhost}}", "missing port"),
        ("protocols: {grpc: {transport: unix}}", "is not of this transport"),
        (
            "protocols: {grpc: {tls: {cert_file: a}}}",
            "must include both certificate and key",
        ),
        (
            "protocols: {http: {logs_url_path: /v1/metrics}}",
            "another signal has the same path",
        ),
        ("protocols: {htp: {}}", "did you mean `http`?"),
    ];
    for (yaml, expected) in table {
        let mut problems = crate::config::Problems::default();
        let text = if yaml.is_empty() { "{}" } else { yaml };
        let node = crate::config::parse_text("otlp.yaml", text, &mut problems).unwrap();
        (FACTORY.config.decode)(&node, &mut problems);
        assert!(problems.to_string().contains(expected), "{yaml}: {problems}");
    }
}

#[test]
fn null_protocols_mean_their_defaults() {
    let config = settings::<Config>("protocols: {grpc: , http: }").get::<Config>();
    assert_eq!(config.protocols.grpc, Some(GrpcConfig::default()));
    assert_eq!(
        config.protocols.http.as_ref().unwrap().endpoint.to_string(),
        "localhost:4318"
    );
}
