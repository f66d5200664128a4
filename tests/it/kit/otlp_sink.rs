// SPDX-License-Identifier: Apache-2.0

//! An OTLP endpoint in the test's own process that keeps requests and can be set to refuse them.
//!
//! gRPC and HTTP (`/v1/metrics`, `/v1/traces`, `/v1/logs`, protobuf) share one port.

use super::points::{Point, points};
use super::{SOON, listen, wait_until};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response, Uri};
use opentelemetry_proto::tonic::collector::logs::v1 as logs;
use opentelemetry_proto::tonic::collector::metrics::v1 as metrics;
use opentelemetry_proto::tonic::collector::trace::v1 as trace;
use prost::Message;
use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tonic::codec::CompressionEncoding;
use tonic::{Code, Request, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The fault that the sink applies to one request instead of accepting it.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// Refuses: this code for gRPC, this status for HTTP.
    Refuse(Code, u16),
    /// Says that the request is too large: as Go's gRPC does, or 413.
    TooLarge,
    /// Refuses for now (UNAVAILABLE or 503) and says when to come again.
    RetryAfter(Duration),
    /// Takes the request, but says that this many items were rejected, and why.
    Partial(i64, String),
    /// Takes it, but answers only after this time.
    Delay(Duration),
}

impl Trouble {
    /// UNAVAILABLE or 503: clients must retry.
    pub(crate) const UNAVAILABLE: Self = Self::Refuse(Code::Unavailable, 503);
    /// INVALID_ARGUMENT or 400: clients must not retry.
    pub(crate) const INVALID: Self = Self::Refuse(Code::InvalidArgument, 400);
}

/// The requests so far.
#[derive(Default)]
struct Received {
    metrics: Vec<metrics::ExportMetricsServiceRequest>,
    traces: Vec<trace::ExportTraceServiceRequest>,
    logs: Vec<logs::ExportLogsServiceRequest>,
    headers: Vec<HeaderMap>,
    troubles: VecDeque<Trouble>,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Received>>);

/// The running endpoint; it ends when dropped.
pub(crate) struct OtlpSink {
    shared: Shared,
    port: u16,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl OtlpSink {
    /// Listens on a free port.
    pub(crate) fn start() -> Self {
        Self::start_on(0)
    }

    /// Listens on this port: for an endpoint that comes (back) later.
    pub(crate) fn start_on(port: u16) -> Self {
        Self::start_at("127.0.0.1", port)
    }

    /// Listens on this port of another address of this machine.
    pub(crate) fn start_at(address: &str, port: u16) -> Self {
        let listener = listen(address, port);
        let port = listener.local_addr().expect("an address").port();
        let shared = Shared::default();
        let (stop, stopped) = oneshot::channel();
        let router = router(shared.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a listener");
                // Dropped rather than drained at the end: open connections would keep it.
                tokio::select! {
                    served = axum::serve(listener, router) => served.expect("it serves"),
                    _ = stopped => {}
                }
            });
        });
        Self {
            shared,
            port,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// `http://127.0.0.1:PORT`, for gRPC and for HTTP.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Does this to the next requests, one each, before it takes requests again.
    pub(crate) fn trouble(&self, troubles: impl IntoIterator<Item = Trouble>) {
        self.shared.lock().troubles.extend(troubles);
    }

    /// Takes all further requests.
    pub(crate) fn end_troubles(&self) {
        self.shared.lock().troubles.clear();
    }

    /// The metrics requests taken so far.
    pub(crate) fn metrics(&self) -> Vec<metrics::ExportMetricsServiceRequest> {
        self.shared.lock().metrics.clone()
    }

    /// The trace requests taken so far.
    pub(crate) fn traces(&self) -> Vec<trace::ExportTraceServiceRequest> {
        self.shared.lock().traces.clone()
    }

    /// The log requests taken so far.
    pub(crate) fn logs(&self) -> Vec<logs::ExportLogsServiceRequest> {
        self.shared.lock().logs.clone()
    }

    /// All points taken so far, in order of arrival.
    pub(crate) fn points(&self) -> Vec<Point> {
        points(&self.shared.lock().metrics)
    }

    /// The points of one metric taken so far.
    pub(crate) fn points_of(&self, metric: &str) -> Vec<Point> {
        let mut points = self.points();
        points.retain(|point| point.name == metric);
        points
    }

    /// The headers (or gRPC metadata) of every request so far, refused ones too.
    pub(crate) fn headers(&self) -> Vec<HeaderMap> {
        self.shared.lock().headers.clone()
    }

    /// How many requests came, refused ones too.
    pub(crate) fn attempts(&self) -> usize {
        self.shared.lock().headers.len()
    }

    /// Forgets what came so far.
    pub(crate) fn clear(&self) {
        let mut received = self.shared.lock();
        let troubles = std::mem::take(&mut received.troubles);
        *received = Received {
            troubles,
            ..Received::default()
        };
    }

    /// Waits until `holds` for the sink.
    pub(crate) fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        wait_until(SOON, what, || holds(self));
    }
}

impl Drop for OtlpSink {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One request of any signal.
enum Export {
    Metrics(metrics::ExportMetricsServiceRequest),
    Traces(trace::ExportTraceServiceRequest),
    Logs(logs::ExportLogsServiceRequest),
}

/// How many items were refused, and why, of a request that was taken.
type Rejected = Option<(i64, String)>;

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Received> {
        self.0.lock().expect("no panic inside")
    }

    /// Notes that a request came; what is to happen to it.
    fn arrival(&self, headers: HeaderMap) -> Option<Trouble> {
        let mut received = self.lock();
        received.headers.push(headers);
        received.troubles.pop_front()
    }

    fn keep(&self, export: Export) {
        let mut received = self.lock();
        match export {
            Export::Metrics(request) => received.metrics.push(request),
            Export::Traces(request) => received.traces.push(request),
            Export::Logs(request) => received.logs.push(request),
        }
    }

    /// Takes a request, unless trouble is due: then the trouble that refuses it.
    async fn take(&self, headers: HeaderMap, export: Export) -> Result<Rejected, Trouble> {
        let rejected = match self.arrival(headers) {
            None => None,
            Some(Trouble::Delay(time)) => {
                tokio::time::sleep(time).await;
                None
            }
            Some(Trouble::Partial(count, why)) => Some((count, why)),
            Some(refusal) => return Err(refusal),
        };
        self.keep(export);
        Ok(rejected)
    }

    async fn take_grpc<T>(&self, request: Request<T>, export: fn(T) -> Export) -> Result<Rejected, Status> {
        let (metadata, _, message) = request.into_parts();
        let taken = self.take(metadata.into_headers(), export(message)).await;
        taken.map_err(|trouble| match trouble {
            Trouble::Refuse(code, _) => Status::new(code, "the test wants it so"),
            Trouble::TooLarge => {
                Status::resource_exhausted("grpc: received message larger than max (5 vs. 4)")
            }
            Trouble::RetryAfter(time) => Status::with_error_details(
                Code::Unavailable,
                "come again",
                ErrorDetails::with_retry_info(Some(time)),
            ),
            Trouble::Partial(..) | Trouble::Delay(_) => unreachable!("these don't refuse"),
        })
    }
}

/// Implements one signal's gRPC service for [`Shared`].
macro_rules! service {
    ($module:ident, $service:ident, $server:ident, $request:ident, $response:ident,
     $partial:ident, $rejected:ident, $export:ident) => {
        #[tonic::async_trait]
        impl $module::$server::$service for Shared {
            async fn export(
                &self,
                request: Request<$module::$request>,
            ) -> Result<tonic::Response<$module::$response>, Status> {
                let rejected = self.take_grpc(request, Export::$export).await?;
                let partial_success = rejected.map(|(count, why)| $module::$partial {
                    $rejected: count,
                    error_message: why,
                });
                Ok(tonic::Response::new($module::$response { partial_success }))
            }
        }
    };
}

service!(
    metrics,
    MetricsService,
    metrics_service_server,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
    ExportMetricsPartialSuccess,
    rejected_data_points,
    Metrics
);
service!(
    trace,
    TraceService,
    trace_service_server,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
    ExportTracePartialSuccess,
    rejected_spans,
    Traces
);
service!(
    logs,
    LogsService,
    logs_service_server,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
    ExportLogsPartialSuccess,
    rejected_log_records,
    Logs
);

fn router(shared: Shared) -> axum::Router {
    macro_rules! grpc {
        ($server:path) => {
            <$server>::new(shared.clone())
                .accept_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Zstd)
                .send_compressed(CompressionEncoding::Gzip)
                .send_compressed(CompressionEncoding::Zstd)
                .max_decoding_message_size(usize::MAX)
        };
    }
    let grpc = tonic::service::Routes::new(grpc!(
        metrics::metrics_service_server::MetricsServiceServer<Shared>
    ))
    .add_service(grpc!(trace::trace_service_server::TraceServiceServer<Shared>))
    .add_service(grpc!(logs::logs_service_server::LogsServiceServer<Shared>));
    let http = axum::routing::post(take_http)
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(shared.clone());
    grpc.into_axum_router()
        .layer(axum::middleware::map_request(mirror))
        .route_service("/v1/metrics", http.clone())
        .route_service("/v1/traces", http.clone())
        .route_service("/v1/logs", http)
}

/// Answers are compressed as their requests are, as Go's gRPC servers do it: tonic would choose by what the client
/// accepts. The name by which the client calls the server becomes a header, so that tests see it.
async fn mirror(mut request: axum::extract::Request) -> axum::extract::Request {
    if let Some(authority) = request.uri().authority() {
        let authority = authority.as_str().parse().expect("it came in a header");
        request.headers_mut().insert("x-authority", authority);
    }
    let encoding = request.headers().get("grpc-encoding").cloned();
    match encoding {
        Some(encoding) => drop(request.headers_mut().insert("grpc-accept-encoding", encoding)),
        None => drop(request.headers_mut().remove("grpc-accept-encoding")),
    }
    request
}

async fn take_http(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let export = match decode(uri.path(), &headers, &body) {
        Ok(export) => export,
        Err(why) => return answer(400, None, why.into_bytes()),
    };
    match shared.take(headers, export).await {
        Ok(rejected) => answer(200, None, success(rejected)),
        Err(Trouble::Refuse(_, status)) => answer(status, None, Vec::new()),
        Err(Trouble::TooLarge) => answer(413, None, Vec::new()),
        Err(Trouble::RetryAfter(time)) => answer(503, Some(time), Vec::new()),
        Err(trouble) => unreachable!("{trouble:?} doesn't refuse"),
    }
}

fn answer(status: u16, retry_after: Option<Duration>, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::builder()
        .status(status)
        .header("content-type", "application/x-protobuf");
    if let Some(time) = retry_after {
        response = response.header("retry-after", time.as_secs());
    }
    response.body(body.into()).expect("a response of constants")
}

/// The responses of all three signals have the same bytes.
fn success(rejected: Rejected) -> Vec<u8> {
    let partial_success = rejected.map(|(count, why)| metrics::ExportMetricsPartialSuccess {
        rejected_data_points: count,
        error_message: why,
    });
    metrics::ExportMetricsServiceResponse { partial_success }.encode_to_vec()
}

fn decode(path: &str, headers: &HeaderMap, body: &[u8]) -> Result<Export, String> {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if header("content-type") != Some("application/x-protobuf") {
        return Err(format!("content-type {:?}", header("content-type")));
    }
    let body = decompress(header("content-encoding"), body).map_err(|error| error.to_string())?;
    let body = &body[..];
    match path {
        "/v1/metrics" => Message::decode(body).map(Export::Metrics),
        "/v1/traces" => Message::decode(body).map(Export::Traces),
        _ => Message::decode(body).map(Export::Logs),
    }
    .map_err(|error| error.to_string())
}

fn decompress(encoding: Option<&str>, body: &[u8]) -> std::io::Result<Vec<u8>> {
    match encoding {
        Some("gzip") => {
            let mut plain = Vec::new();
            flate2::read::MultiGzDecoder::new(body).read_to_end(&mut plain)?;
            Ok(plain)
        }
        Some("zstd") => zstd::stream::decode_all(body),
        _ => Ok(body.to_vec()),
    }
}
