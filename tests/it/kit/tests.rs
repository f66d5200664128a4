// SPDX-License-Identifier: Apache-2.0

//! The kit tried on itself: what it awaits, sends and keeps.

use super::points::Value;
use super::{OtlpSink, Repeated, SOON, Trouble, free_port, http, wait_for, wait_until};
use axum::http::HeaderMap;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, number_data_point};
use prost::Message;
use std::any::Any;
use std::collections::HashSet;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tonic::codec::CompressionEncoding;
use tonic::{Code, Status};
use tonic_types::StatusExt;

const PROTOBUF: &str = "application/x-protobuf";

fn gauge(value: f64) -> ExportMetricsServiceRequest {
    let point = NumberDataPoint {
        value: Some(number_data_point::Value::AsDouble(value)),
        ..Default::default()
    };
    tidegate_requests::request(Vec::new(), "", [tidegate_requests::gauge("warmth", [point])])
}

fn push_grpc(
    sink: &OtlpSink,
    compression: Option<CompressionEncoding>,
) -> Result<ExportMetricsServiceResponse, Status> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let client = MetricsServiceClient::connect(sink.endpoint()).await;
        let mut client = client.expect("it connects");
        if let Some(encoding) = compression {
            // A server answers with the coding of the request.
            client = client.send_compressed(encoding).accept_compressed(encoding);
        }
        let response = client.export(gauge(1.5)).await?;
        Ok(response.into_inner())
    })
}

fn push_http(sink: &OtlpSink, body: &[u8], encoding: &str) -> http::Response {
    let headers = [("content-type", PROTOBUF), ("content-encoding", encoding)];
    http::request("POST", sink.port(), "/v1/metrics", &headers, body).expect("it answers")
}

#[test]
fn ports_are_free_and_differ() {
    let ports: HashSet<u16> = (0..100).map(|_| free_port()).collect();
    assert_eq!(ports.len(), 100);
    let refused = http::get(free_port(), "/").expect_err("no server listens");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn waiting_ends_with_the_condition_or_names_it() {
    let mut left = 3;
    let count_down = || {
        left -= 1;
        (left == 0).then_some("done")
    };
    assert_eq!(wait_for(SOON, "three polls", count_down), "done");
    let too_late = || wait_until(Duration::from_millis(20), "pigs to fly", || false);
    let panic = catch_unwind(too_late).expect_err("it gives up");
    let message = panic.downcast_ref::<String>().expect("a formatted message");
    assert!(message.contains("pigs to fly"), "{message}");
}

#[test]
fn a_repeated_closure_runs_until_its_stop_or_its_drop() {
    let count = Arc::<AtomicU64>::default();
    let start = || {
        let count = count.clone();
        Repeated::start("counting", move || {
            count.fetch_add(1, SeqCst);
            Ok(())
        })
    };
    let mut repeated = start();
    repeated.wait_for_run();
    let runs = repeated.stop();
    assert!(runs >= 2, "{runs}");
    assert_eq!(count.load(SeqCst), runs, "no run after the stop");
    drop(start());
    assert!(count.load(SeqCst) > runs);
    assert_eq!(Arc::strong_count(&count), 1, "the thread has ended");
}

#[test]
fn an_error_or_panic_of_a_repeated_closure_surfaces_at_a_stop_or_wait() {
    fn message(panic: &(dyn Any + Send)) -> &str {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        text.expect("a text")
    }
    let failing: fn() -> Result<(), String> = || Err("no answer".to_owned());
    let panicking: fn() -> Result<(), String> = || panic!("a wrong answer");
    for (run, part) in [(failing, "no answer"), (panicking, "a wrong answer")] {
        let repeated = Repeated::start("asking", run);
        let at_stop = catch_unwind(AssertUnwindSafe(move || repeated.stop()));
        let mut repeated = Repeated::start("asking", run);
        let at_wait = catch_unwind(AssertUnwindSafe(move || repeated.wait_for_run()));
        for panic in [at_stop.expect_err("it failed"), at_wait.expect_err("it failed")] {
            assert!(message(&*panic).contains(part), "{part}");
        }
    }
}

#[test]
fn the_sink_takes_grpc_plain_and_compressed() {
    let sink = OtlpSink::start();
    let encodings = [CompressionEncoding::Gzip, CompressionEncoding::Zstd];
    for compression in [None].into_iter().chain(encodings.map(Some)) {
        push_grpc(&sink, compression).expect("it is taken");
    }
    assert_eq!(sink.metrics(), vec![gauge(1.5); 3]);
    let encodings: Vec<_> = sink.headers().iter().map(encoding_of).collect();
    assert_eq!(encodings, ["", "gzip", "zstd"]);
}

fn encoding_of(headers: &HeaderMap) -> String {
    let value = headers.get("grpc-encoding");
    value.map_or(String::new(), |value| {
        value.to_str().expect("a header of text").to_owned()
    })
}

#[test]
fn the_sink_takes_http_plain_and_compressed() {
    let sink = OtlpSink::start();
    let plain = gauge(2.5).encode_to_vec();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).expect("memory");
    let gzip = gzip.finish().expect("memory");
    let zstd = zstd::stream::encode_all(&plain[..], 1).expect("memory");
    for (encoding, body) in [("identity", plain), ("gzip", gzip), ("zstd", zstd)] {
        assert_eq!(push_http(&sink, &body, encoding).status, 200, "{encoding}");
    }
    let values: Vec<Value> = sink.points_of("warmth").into_iter().map(|p| p.value).collect();
    assert_eq!(values, vec![Value::Gauge(2.5); 3]);
}

#[test]
fn the_sink_refuses_bodies_that_are_not_otlp() {
    let sink = OtlpSink::start();
    let statuses = [
        push_http(&sink, b"\xff\xff", "identity").status,
        push_http(&sink, b"not gzip", "gzip").status,
        http::post(sink.port(), "/v1/metrics", "text/plain", b"")
            .expect("it answers")
            .status,
    ];
    assert_eq!(statuses, [400, 400, 400]);
    assert!(sink.metrics().is_empty());
}

#[test]
fn troubles_over_grpc_come_in_turn_and_then_requests_are_taken() {
    let sink = OtlpSink::start();
    sink.trouble([
        Trouble::UNAVAILABLE,
        Trouble::RetryAfter(Duration::from_secs(7)),
        Trouble::Partial(3, "too old".to_owned()),
    ]);
    let refused = push_grpc(&sink, None).expect_err("it is refused");
    assert_eq!(refused.code(), Code::Unavailable);
    let later = push_grpc(&sink, None).expect_err("it is refused");
    let delay = later.get_details_retry_info().and_then(|info| info.retry_delay);
    assert_eq!(delay, Some(Duration::from_secs(7)));
    assert!(sink.metrics().is_empty());
    let partial = push_grpc(&sink, None).expect("it is taken").partial_success;
    let partial = partial.expect("a partial success");
    assert_eq!(
        (partial.rejected_data_points, &*partial.error_message),
        (3, "too old")
    );
    let whole = push_grpc(&sink, None).expect("it is taken");
    assert_eq!(whole.partial_success, None);
    assert_eq!((sink.metrics().len(), sink.attempts()), (2, 4));
}

#[test]
fn troubles_over_http_come_in_turn_and_then_requests_are_taken() {
    let sink = OtlpSink::start();
    let body = gauge(1.0).encode_to_vec();
    sink.trouble([
        Trouble::INVALID,
        Trouble::RetryAfter(Duration::from_secs(7)),
        Trouble::Delay(Duration::from_millis(50)),
    ]);
    assert_eq!(push_http(&sink, &body, "identity").status, 400);
    let later = push_http(&sink, &body, "identity");
    assert_eq!((later.status, later.header("Retry-After")), (503, Some("7")));
    let started = Instant::now();
    assert_eq!(push_http(&sink, &body, "identity").status, 200);
    assert!(started.elapsed() >= Duration::from_millis(50));
    assert_eq!((sink.metrics().len(), sink.attempts()), (1, 3));
}

#[test]
fn a_sink_can_come_back_on_its_port() {
    // Nobody else gets this port meanwhile.
    let port = free_port();
    let sink = OtlpSink::start_on(port);
    push_http(&sink, &gauge(1.0).encode_to_vec(), "identity");
    drop(sink);
    assert!(http::get(port, "/").is_err(), "no server listens");
    let sink = OtlpSink::start_on(port);
    push_http(&sink, &gauge(2.0).encode_to_vec(), "identity");
    assert_eq!(sink.metrics(), [gauge(2.0)]);
}
