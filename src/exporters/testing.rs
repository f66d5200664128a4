// SPDX-License-Identifier: Apache-2.0

//! A server for tests of the OTLP exporters: keeps what it is sent, answers as the test says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{metric, number_data_point};
use parking_lot::Mutex;
use prost::Message;
use tidegate_requests::{gauge, int, request};

use crate::batch::{Batch, Signal, wire};
use crate::component::{Exporter, ExporterContext, ExporterFactory, Ledger, Shared};
use crate::config::{Problems, parse_text};
use crate::delivery::testing::{exporter_context, ledgers};
use crate::net::grpc::{APPLICATION_GRPC, GRPC_STATUS, Prefix};
use crate::net::http::{HttpConfig, start};
use crate::net::{
    Coding, ConnectionLimits, Endpoint, Listener, Server, SocketFileConfig, compress, decompress,
};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) path: String,
    pub(super) version: Version,
    pub(super) headers: HeaderMap,
    /// Decompressed, and without gRPC's frame.
    pub(super) message: Bytes,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

pub(super) type Body = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// The answer to the n-th request.
pub(super) type Answer = fn(usize, &Seen) -> Response<Body>;

pub(super) struct Sink {
    server: Server,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Sink {
    pub(super) async fn start(answer: Answer) -> Self {
        Self::at("127.0.0.1:0", ConnectionLimits::plain(64), answer).await
    }

    pub(super) async fn at(endpoint: &str, limits: ConnectionLimits, answer: Answer) -> Self {
        let endpoint = endpoint.parse().unwrap();
        let listener = Listener::bind(&endpoint, &SocketFileConfig::default())
            .await
            .unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let all = seen.clone();
        let server = start(listener, limits, HttpConfig::default(), move |request| {
            let all = all.clone();
            async move {
                let request = read(request).await;
                let n = {
                    let mut all = all.lock();
                    all.push(request.clone());
                    all.len() - 1
                };
                mirrored(answer(n, &request), &request).await
            }
        });
        Self { server, seen }
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// `127.0.0.1:port`.
    pub(super) fn address(&self) -> String {
        self.server.local().to_string()
    }

    pub(super) fn port(&self) -> u16 {
        match self.server.local() {
            Endpoint::Tcp { port, .. } => *port,
            Endpoint::Unix(_) => 0,
        }
    }
}

async fn read(request: Request<Incoming>) -> Seen {
    let (head, body) = request.into_parts();
    let mut body = body.collect().await.unwrap().to_bytes();
    let coding = ["content-encoding", "grpc-encoding"]
        .iter()
        .find_map(|name| head.headers.get(*name)?.to_str().ok());
    let mut coding = coding.and_then(Coding::named);
    if head.headers.get("content-type") == Some(&APPLICATION_GRPC) {
        let prefix = Prefix::read(&body.split_to(Prefix::BYTES)).unwrap();
        coding = coding.filter(|_| prefix.flag == 1);
    }
    Seen {
        path: head.uri.path().to_owned(),
        version: head.version,
        headers: head.headers,
        message: match coding {
            Some(coding) => decompress(coding, body, 64 << 20).await.unwrap(),
            None => body,
        },
    }
}

/// Go's gRPC servers compress an answer as its request was.
async fn mirrored(answer: Response<Body>, request: &Seen) -> Response<Body> {
    let name = request.header("grpc-encoding").to_owned();
    let coding = match &*name {
        "" => return answer,
        "snappy" => Coding::SnappyFramed,
        name => Coding::named(name).unwrap(),
    };
    let (mut head, body) = answer.into_parts();
    let collected = body.collect().await.unwrap();
    let trailers = collected.trailers().cloned();
    let mut body = collected.to_bytes();
    if Prefix::read(&body).is_some_and(|prefix| prefix.flag == 0)
        && !head.headers.contains_key("grpc-encoding")
    {
        let packed = compress(coding, &body.slice(Prefix::BYTES..)).unwrap();
        let prefix = Prefix::of(true, packed.len()).unwrap().to_bytes();
        body = [&prefix[..], &packed].concat().into();
        head.headers.insert("grpc-encoding", name.parse().unwrap());
    }
    let body = Full::new(body).with_trailers(async { trailers.map(Ok) });
    Response::from_parts(head, body.boxed_unsync())
}

/// A plain answer.
pub(super) fn answer(status: u16, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = status.try_into().unwrap();
    response
}

/// A successful answer: one message, then `grpc-status: 0`.
pub(super) fn grpc_success(message: Vec<u8>) -> Response<Body> {
    let prefix = Prefix::of(false, message.len()).unwrap().to_bytes();
    grpc_answer([&prefix[..], &message].concat())
}

/// An answer of these bytes, then `grpc-status: 0`.
pub(super) fn grpc_answer(bytes: Vec<u8>) -> Response<Body> {
    let framed = Bytes::from(bytes);
    let trailers = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
    let body = Full::new(framed).with_trailers(async { Some(Ok(trailers)) });
    let mut response = Response::new(body.boxed_unsync());
    response.headers_mut().insert("content-type", APPLICATION_GRPC);
    response
}

/// A successful answer without a word.
pub(super) fn grpc_ok() -> Response<Body> {
    grpc_success(Vec::new())
}

/// An error as gRPC has it.
pub(super) fn grpc_failure(status: tonic::Status) -> Response<Body> {
    status
        .into_http::<Full<Bytes>>()
        .map(http_body_util::BodyExt::boxed_unsync)
}

/// An exporter under test with its ledgers.
pub(super) struct Bench {
    pub(super) exporter: Arc<dyn Exporter>,
    pub(super) ledgers: [Arc<Ledger>; 3],
    pub(super) shared: Arc<Shared>,
}

impl Bench {
    /// Built from YAML by its factory, and started. Retries come at once.
    pub(super) async fn start(factory: &ExporterFactory, options: &str) -> Self {
        let retry = "retry_on_failure: {initial_interval: 1ms, max_interval: 1ms, randomization_factor: 0}";
        let bench = Self::build(factory, &format!("{{{options}, {retry}}}")).unwrap();
        bench.exporter.start().await.unwrap();
        bench
    }

    /// Built, or what is wrong.
    pub(super) fn build(factory: &ExporterFactory, options: &str) -> Result<Self, String> {
        let mut problems = Problems::default();
        let node = parse_text("test.yaml", options, &mut problems).expect("YAML");
        let settings = (factory.config.decode)(&node, &mut problems)
            .filter(|_| !problems.has_errors())
            .ok_or_else(|| problems.to_string())?;
        let cx: ExporterContext = exporter_context("exporters::test");
        let (ledgers, shared) = (ledgers(&cx), cx.base.shared.clone());
        let exporter = (factory.build)(&settings, cx).map_err(|error| error.to_string())?;
        Ok(Self {
            exporter,
            ledgers,
            shared,
        })
    }

    pub(super) fn push(&self, batch: Batch) {
        self.ledgers[batch.signal() as usize].enter(batch.items());
        self.exporter.push(batch).unwrap();
    }

    pub(super) async fn stop(&self) {
        self.exporter.stop(Instant::now() + Duration::from_secs(10)).await;
    }
}

/// An encoded gauge with `count` points.
pub(super) fn points(count: i64) -> Batch {
    let request = request(Vec::new(), "", [gauge("g", (0..count).map(int))]);
    let bytes = request.encode_to_vec().into();
    Batch::new(wire::check(Signal::Metrics, bytes).unwrap())
}

/// The values of all points of a request.
pub(super) fn values(request: &[u8]) -> Vec<i64> {
    let request = ExportMetricsServiceRequest::decode(request).unwrap();
    let scopes = request
        .resource_metrics
        .into_iter()
        .flat_map(|resource| resource.scope_metrics);
    let data = scopes
        .flat_map(|scope| scope.metrics)
        .filter_map(|metric| metric.data);
    let points = data.flat_map(|data| match data {
        metric::Data::Gauge(gauge) => gauge.data_points,
        _ => Vec::new(),
    });
    points
        .map(|point| match point.value {
            Some(number_data_point::Value::AsInt(value)) => value,
            _ => -1,
        })
        .collect()
}

/// Each of these options is refused with an error that has these words.
pub(super) fn names_mistakes(factory: &ExporterFactory, table: &[(&str, &str)]) {
    for (options, expected) in table {
        let error = Bench::build(factory, options).err().unwrap_or_default();
        assert!(error.contains(expected), "{options}: {error}");
    }
}
