// SPDX-License-Identifier: Apache-2.0

//! Against a gRPC server made by hand: what goes over the wire, and what every kind of answer leads to.

use http::Response;
use prost::Message;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::FACTORY;
use crate::component::Reason;
use crate::delivery::response::ExportResponse;
use crate::delivery::testing::{Log, balance_when};
use crate::exporters::testing::{
    Bench, Body, Sink, answer, grpc_answer, grpc_failure, grpc_ok, grpc_success, names_mistakes, points,
    values,
};
use crate::net::grpc::Prefix;
use crate::net::{Coding, ConnectionLimits, compress};

fn ok() -> Response<Body> {
    grpc_ok()
}

fn success(message: Vec<u8>) -> Response<Body> {
    grpc_success(message)
}

fn failure(status: Status) -> Response<Body> {
    grpc_failure(status)
}

async fn bench(sink: &Sink, more: &str) -> Bench {
    let options = format!("endpoint: \"http://{}\"{more}", sink.address());
    Bench::start(&FACTORY, &options).await
}

#[tokio::test]
async fn a_request_arrives_as_it_was_under_its_method_with_its_headers() {
    let sink = Sink::start(|_, _| ok()).await;
    let bench = bench(&sink, ", headers: {api-key: hunter2}").await;
    bench.push(points(3));
    balance_when(&bench.ledgers[0], |b| b.left == 3).await;
    let seen = sink.seen();
    assert_eq!(seen.len(), 1);
    let method = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
    assert_eq!(seen[0].path, method);
    assert_eq!(seen[0].header("api-key"), "hunter2");
    assert_eq!(seen[0].header("grpc-encoding"), "gzip");
    assert!(seen[0].header("user-agent").starts_with("tidegate/"));
    assert_eq!(seen[0].header("grpc-timeout"), "5000m");
    assert_eq!(values(&seen[0].message), [0, 1, 2]);
    bench.stop().await;
}

#[tokio::test]
async fn every_compression_is_understood() {
    for compression in ["gzip", "zstd", "snappy", "none"] {
        let sink = Sink::start(|_, _| ok()).await;
        let bench = bench(&sink, &format!(", compression: {compression}")).await;
        bench.push(points(100));
        let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
        assert_eq!((balance.left, balance.dropped_total()), (100, 0), "{compression}");
        let seen = &sink.seen()[0];
        assert_eq!(values(&seen.message).len(), 100, "{compression}");
        assert_eq!(
            seen.header("grpc-encoding"),
            if compression == "none" { "" } else { compression }
        );
        assert!(seen.header("grpc-accept-encoding").contains("gzip"));
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_partial_success_is_read_in_every_coding() {
    for compression in ["gzip", "zstd", "snappy", "none"] {
        let sink = Sink::start(|_, _| success(ExportResponse::rejecting(2, "no").encode_to_vec())).await;
        let bench = bench(&sink, &format!(", compression: {compression}")).await;
        bench.push(points(5));
        let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
        assert_eq!((balance.left, balance.dropped[Reason::Rejected as usize]), (3, 2));
        bench.stop().await;
    }
}

/// Answers that no client can read, with status 0.
const UNREADABLE: [fn() -> Response<Body>; 5] = [
    || grpc_answer(vec![0, 0, 0, 0, 1, 0xff]),
    || grpc_answer(vec![0, 0, 0, 0, 9, 0]),
    || grpc_answer(vec![7, 7]),
    || grpc_answer(vec![0; (1 << 20) + 100]),
    || {
        let mut answer = grpc_answer(vec![1, 0, 0, 0, 1, 0]);
        answer
            .headers_mut()
            .insert("grpc-encoding", "rot13".parse().unwrap());
        answer
    },
];

#[tokio::test]
async fn a_request_with_status_0_is_delivered_whatever_its_answer_says() {
    let sink = Sink::start(|n, _| UNREADABLE[n]()).await;
    let bench = bench(&sink, ", compression: none").await;
    for n in 1..=UNREADABLE.len() as u64 {
        bench.push(points(1));
        let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
        assert_eq!((balance.left, balance.dropped_total()), (n, 0));
    }
    bench.stop().await;
    assert_eq!(sink.seen().len(), UNREADABLE.len());
}

/// The text of one field in the first such line.
fn field_text(log: &Log, message: &str, field: &str) -> String {
    let lines = log.lines(message);
    let first = lines.first().map(|(_, fields)| fields[field].as_str());
    first.flatten().unwrap_or_default().to_owned()
}

/// A message that unpacks to 4 MiB.
fn bomb() -> Vec<u8> {
    let packed = compress(Coding::Gzip, &vec![0; 4 << 20]).unwrap();
    let prefix = Prefix::of(true, packed.len()).unwrap().to_bytes();
    [&prefix[..], &packed].concat()
}

#[tokio::test]
async fn an_answer_that_unpacks_to_too_much_is_logged_and_its_status_decides() {
    let sink = Sink::start(|n, _| {
        let mut response = match n {
            0 => answer(200, bomb()),
            _ => grpc_answer(bomb()),
        };
        let coding = "gzip".parse().unwrap();
        response.headers_mut().insert("grpc-encoding", coding);
        response
    })
    .await;
    let (log, _guard) = Log::capture();
    let bench = bench(&sink, "").await;
    bench.push(points(3));
    let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
    assert_eq!((balance.left, balance.dropped_total()), (3, 0));
    assert_eq!(sink.seen().len(), 2, "without a status it is tried again");
    bench.stop().await;
    let too_large = "the decompressed body is larger than 1048577 bytes";
    let retried = field_text(&log, "sending failed, will retry", "error");
    assert!(
        retried.contains("no gRPC status") && retried.contains(too_large),
        "{retried}"
    );
    let noted = field_text(&log, "delivered, with a remark", "note");
    assert!(noted.contains(too_large), "{noted}");
    assert_eq!(bench.shared.memory.reserved_bytes(), 0);
}

#[tokio::test]
async fn a_head_that_is_too_long_is_not_read_and_its_request_is_tried_again() {
    /// More than is read, more than is read over, and more frames than are looked at.
    const LENGTHS: [usize; 3] = [80_000, 300_000, 1 << 20];
    let sink = Sink::start(|n, _| {
        let mut response = ok();
        let long = "a".repeat(LENGTHS.get(n).copied().unwrap_or(0));
        response.headers_mut().insert("x-long", long.parse().unwrap());
        response
    })
    .await;
    let (log, _guard) = Log::capture();
    let bench = bench(&sink, "").await;
    bench.push(points(3));
    let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
    assert_eq!((balance.left, balance.dropped_total()), (3, 0));
    assert_eq!(sink.seen().len(), LENGTHS.len() + 1);
    bench.stop().await;
    let line = field_text(&log, "sending failed, will retry", "error");
    assert!(line.contains("its head is longer than 64 KiB"), "{line}");
}

#[tokio::test]
async fn a_large_request_arrives_as_it_was() {
    for compression in ["gzip", "none"] {
        let sink = Sink::start(|_, _| ok()).await;
        let bench = bench(&sink, &format!(", compression: {compression}")).await;
        bench.push(points(20_000));
        balance_when(&bench.ledgers[0], |b| b.left == 20_000).await;
        assert_eq!(values(&sink.seen()[0].message), (0..20_000).collect::<Vec<_>>());
        bench.stop().await;
        assert_eq!(bench.shared.memory.reserved_bytes(), 0);
    }
}

#[tokio::test]
async fn a_busy_peer_is_asked_again_and_one_that_refuses_is_not() {
    let sink = Sink::start(|n, _| match n {
        0 => failure(Status::unavailable("starting")),
        1 => {
            let details = ErrorDetails::with_retry_info(Some(std::time::Duration::from_millis(2)));
            failure(Status::with_error_details(
                Code::ResourceExhausted,
                "slow",
                details,
            ))
        }
        2 => ok(),
        _ => failure(Status::permission_denied("bad")),
    })
    .await;
    let bench = bench(&sink, "").await;
    bench.push(points(2));
    balance_when(&bench.ledgers[0], |b| b.left == 2).await;
    bench.push(points(5));
    let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
    assert_eq!(balance.dropped[Reason::Rejected as usize], 5);
    assert_eq!(sink.seen().len(), 4);
    bench.stop().await;
}

#[tokio::test]
async fn denied_requests_are_tried_again_where_that_is_asked_for() {
    for code in ["PERMISSION_DENIED", "7"] {
        let sink = Sink::start(|n, _| match n {
            0..3 => failure(Status::permission_denied("not yet")),
            _ => ok(),
        })
        .await;
        let mut options = format!("endpoint: \"http://{}\"", sink.address());
        options += &format!(
            ", retry_on_failure: {{retry_on_status: [{code}], initial_interval: 1ms, max_interval: 1ms}}"
        );
        let bench = Bench::build(&FACTORY, &format!("{{{options}}}")).unwrap();
        bench.exporter.start().await.unwrap();
        bench.push(points(2));
        let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
        assert_eq!((balance.left, balance.dropped_total()), (2, 0));
        assert_eq!(sink.seen().len(), 4);
        bench.stop().await;
    }
}

#[tokio::test]
async fn what_is_refused_for_its_content_costs_itself_only() {
    let sink = Sink::start(|_, seen| {
        if values(&seen.message).contains(&3) {
            failure(Status::invalid_argument("no threes"))
        } else {
            ok()
        }
    })
    .await;
    let bench = bench(&sink, "").await;
    bench.push(points(5));
    let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
    assert_eq!((balance.left, balance.dropped[Reason::Rejected as usize]), (4, 1));
    bench.stop().await;
}

#[tokio::test]
async fn partial_success_is_counted_and_not_repeated() {
    let sink = Sink::start(|_, _| {
        let answer = ExportResponse::rejecting(2, "no such unit");
        success(answer.encode_to_vec())
    })
    .await;
    let bench = bench(&sink, "").await;
    bench.push(points(5));
    let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
    assert_eq!((balance.left, balance.dropped[Reason::Rejected as usize]), (3, 2));
    bench.stop().await;
    assert_eq!(sink.seen().len(), 1);
}

#[tokio::test]
async fn a_request_that_is_too_large_goes_in_halves() {
    let sink = Sink::start(|_, seen| match values(&seen.message).len() {
        0..=2 => ok(),
        _ => failure(Status::resource_exhausted(
            "grpc: received message larger than max (9 vs. 4)",
        )),
    })
    .await;
    let bench = bench(&sink, "").await;
    bench.push(points(7));
    balance_when(&bench.ledgers[0], |b| b.left == 7).await;
    let mut arrived: Vec<_> = sink.seen().iter().map(|seen| values(&seen.message)).collect();
    arrived.retain(|values| values.len() <= 2);
    let mut arrived = arrived.concat();
    arrived.sort_unstable();
    assert_eq!(arrived, (0..7).collect::<Vec<_>>());
    bench.stop().await;
}

#[tokio::test]
async fn a_server_that_appears_later_gets_everything() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = format!("unix:{}", dir.path().join("otlp.sock").display());
    let bench = Bench::start(&FACTORY, &format!("endpoint: \"{endpoint}\"")).await;
    bench.push(points(4));
    // Some attempts find no server.
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    assert_eq!(bench.ledgers[0].balance().held(), 4);
    let sink = Sink::at(&endpoint, ConnectionLimits::plain(8), |_, _| ok()).await;
    balance_when(&bench.ledgers[0], |b| b.left == 4).await;
    assert_eq!(sink.seen().len(), 1);
    bench.stop().await;
}

#[tokio::test]
async fn tls_is_the_default_and_unknown_certificates_are_not_trusted() {
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (cert, private) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, key.cert.pem()).unwrap();
    std::fs::write(&private, key.signing_key.serialize_pem()).unwrap();
    let server = crate::net::TlsServerConfig {
        cert_file: Some(cert.clone()),
        key_file: Some(private),
        ..Default::default()
    };
    let limits = ConnectionLimits {
        tls: Some(server.build(crate::net::tls::ALPN_HTTP).unwrap()),
        ..ConnectionLimits::plain(8)
    };
    let sink = Sink::at("127.0.0.1:0", limits, |_, _| ok()).await;
    let endpoint = format!("endpoint: \"localhost:{}\"", sink.port());
    let trusting = Bench::start(
        &FACTORY,
        &format!("{endpoint}, tls: {{ca_file: {}}}", cert.display()),
    )
    .await;
    trusting.push(points(1));
    balance_when(&trusting.ledgers[0], |b| b.left == 1).await;
    trusting.stop().await;

    let wary = Bench::start(&FACTORY, &endpoint).await;
    wary.push(points(1));
    wary.exporter
        .stop(std::time::Instant::now() + std::time::Duration::from_millis(300))
        .await;
    assert_eq!(wary.ledgers[0].balance().dropped[Reason::Shutdown as usize], 1);
    assert_eq!(sink.seen().len(), 1);
}

#[tokio::test]
async fn small_batches_are_joined_where_configured() {
    let sink = Sink::start(|_, _| ok()).await;
    let batch = ", sending_queue: {batch: {flush_timeout: 10s, min_size_items: 6, max_size_items: 4}}";
    assert!(Bench::build(&FACTORY, &format!("{{endpoint: \"a:1\"{batch}}}")).is_err());
    let bench = bench(&sink, &batch.replace("max_size_items: 4", "max_size_items: 6")).await;
    (0..3).for_each(|_| bench.push(points(2)));
    balance_when(&bench.ledgers[0], |b| b.left == 6).await;
    let seen = sink.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(values(&seen[0].message), [0, 1, 0, 1, 0, 1]);
    bench.stop().await;
}

#[test]
fn mistakes_are_named() {
    let table = [
        ("{}", "`endpoint` must be specified"),
        ("{endpoint: \"\"}", "requires a non-empty \"endpoint\""),
        ("{endpoint: \"a\"}", "missing port"),
        (
            "{endpoint: \"a:1\", compression: lz4}",
            "expected one of gzip, zstd, snappy, none",
        ),
        (
            "{endpoint: \"a:1\", headers: {\"a b\": x}}",
            "is not a header name",
        ),
        ("{endpoint: \"a:1\", headers: {a-bin: x}}", "binary metadata"),
        (
            "{endpoint: \"a:1\", headers: [{name: a-bin, value: x}]}",
            "headers[0]: binary metadata",
        ),
        (
            "{endpoint: \"a:1\", sending_queue: {drain: true}}",
            "unknown key \"drain\"",
        ),
        (
            "{endpoint: \"a:1\", retry_on_failure: {retry_on_status: [401]}}",
            "this exporter speaks gRPC: name codes such as UNAUTHENTICATED",
        ),
        (
            "{endpoint: \"a:1\", retry_on_failure: {retry_on_status: [OK]}}",
            "is not a failure: expected an HTTP status (300 to 599) or a gRPC code",
        ),
        (
            "{endpoint: \"a:1\", vendor: dynatrace}",
            "takes OTLP over HTTP only",
        ),
        (
            "{endpoint: \"a:1\", retry_on_failure: {max_elapsed_time: 1s}}",
            "must not be less than `initial_interval`",
        ),
    ];
    names_mistakes(&FACTORY, &table);
}

#[tokio::test]
async fn a_value_of_a_header_is_in_no_print() {
    let options = "{endpoint: \"a:1\", headers: {api-key: \"hunter2\\n\"}}";
    let error = Bench::build(&FACTORY, options).err().unwrap_or_default();
    assert!(
        error.contains("characters that a header must not have"),
        "{error}"
    );
    assert!(!error.contains("hunter2"), "{error}");
}
