// SPDX-License-Identifier: Apache-2.0

//! Against an HTTP server: what goes over the wire, and what every kind of answer leads to.

mod vendors;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Response, Version};
use tokio::net::{TcpListener, TcpStream};

use super::FACTORY;
use crate::batch::Signal;
use crate::component::Reason;
use crate::config::Secret;
use crate::delivery::testing::{Log, balance_when, opaque};
use crate::exporters::testing::{Bench, Body, Sink, answer, names_mistakes, points, values};
use crate::net::ConnectionLimits;
use crate::net::tls::TlsServerConfig;

async fn bench(sink: &Sink, more: &str) -> Bench {
    let options = format!("endpoint: \"http://{}/base/\"{more}", sink.address());
    Bench::start(&FACTORY, &options).await
}

fn busy(seconds: &'static str) -> Response<Body> {
    let mut response = answer(503, "");
    response
        .headers_mut()
        .insert(RETRY_AFTER, seconds.parse().unwrap());
    response
}

fn json(status: u16, body: &'static str) -> Response<Body> {
    let mut response = answer(status, body);
    let content_type = "application/json".parse().unwrap();
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

#[tokio::test]
async fn a_request_arrives_as_it_was_below_the_base_with_its_headers() {
    let sink = Sink::start(|_, _| answer(200, "")).await;
    let bench = bench(&sink, ", headers: {api-key: hunter2}").await;
    bench.push(points(3));
    balance_when(&bench.ledgers[0], |b| b.left == 3).await;
    let seen = sink.seen();
    assert_eq!(seen[0].path, "/base/v1/metrics");
    assert_eq!(seen[0].header("content-type"), "application/x-protobuf");
    assert_eq!(seen[0].header("content-encoding"), "gzip");
    assert_eq!(seen[0].header("api-key"), "hunter2");
    assert_eq!(
        seen[0].header("user-agent"),
        concat!("tidegate/", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(values(&seen[0].message), [0, 1, 2]);
    bench.stop().await;
}

#[tokio::test]
async fn headers_in_a_list_arrive_as_those_of_a_map() {
    let sink = Sink::start(|_, _| answer(200, "")).await;
    let more = ", headers: [{name: api-key, value: hunter2}, {name: x-tenant, value: 7}]";
    let bench = bench(&sink, more).await;
    bench.push(points(1));
    balance_when(&bench.ledgers[0], |b| b.left == 1).await;
    let seen = sink.seen();
    assert_eq!(seen[0].header("api-key"), "hunter2");
    assert_eq!(seen[0].header("x-tenant"), "7");
    bench.stop().await;
}

#[tokio::test]
async fn signals_go_to_their_own_endpoints() {
    let sink = Sink::start(|_, _| answer(200, "")).await;
    let more = format!(
        ", logs_endpoint: \"http://{0}/ingest?key=1\", traces_endpoint: \"http://{0}/spans\", compression: none",
        sink.address()
    );
    let bench = bench(&sink, &more).await;
    // One after another, so that the order of the paths shows which signal went there.
    for batch in [
        points(1),
        opaque(Signal::Logs, b"", 1),
        opaque(Signal::Traces, b"", 1),
    ] {
        let ledger = &bench.ledgers[batch.signal() as usize];
        bench.push(batch);
        balance_when(ledger, |b| b.left == 1).await;
    }
    let paths: Vec<_> = sink.seen().into_iter().map(|seen| seen.path).collect();
    assert_eq!(paths, ["/base/v1/metrics", "/ingest", "/spans"]);
    bench.stop().await;
}

#[tokio::test]
async fn json_is_written_and_its_partial_success_read() {
    let sink = Sink::start(|_, _| {
        json(
            200,
            r#"{"partialSuccess":{"rejectedDataPoints":"1","errorMessage":"no"}}"#,
        )
    })
    .await;
    let bench = bench(&sink, ", encoding: json, compression: none").await;
    bench.push(points(3));
    let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
    assert_eq!((balance.left, balance.dropped[Reason::Rejected as usize]), (2, 1));
    let seen = sink.seen();
    assert_eq!(seen[0].header("content-type"), "application/json");
    let body: serde_json::Value = serde_json::from_slice(&seen[0].message).unwrap();
    let metric = &body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0];
    assert_eq!(metric["gauge"]["dataPoints"][2]["asInt"], "2");
    bench.stop().await;
}

#[tokio::test]
async fn a_large_request_arrives_as_it_was() {
    for options in ["compression: gzip", "compression: none", "encoding: json"] {
        let sink = Sink::start(|_, _| answer(200, "")).await;
        let bench = bench(&sink, &format!(", {options}")).await;
        bench.push(points(20_000));
        balance_when(&bench.ledgers[0], |b| b.left == 20_000).await;
        let message = sink.seen()[0].message.clone();
        if options.contains("json") {
            let body: serde_json::Value = serde_json::from_slice(&message).unwrap();
            let metric = &body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0];
            assert_eq!(metric["gauge"]["dataPoints"][19_999]["asInt"], "19999");
        } else {
            assert_eq!(values(&message), (0..20_000).collect::<Vec<_>>());
        }
        bench.stop().await;
        assert_eq!(bench.shared.memory.reserved_bytes(), 0);
    }
}

#[tokio::test]
async fn a_long_answer_in_json_is_not_taken_apart() {
    let sink = Sink::start(|n, _| {
        let status = if n == 0 { 503 } else { 200 };
        let mut response = answer(status, vec![b'['; 70_000]);
        let content_type = "application/json".parse().unwrap();
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    })
    .await;
    let (log, _guard) = Log::capture();
    let bench = bench(&sink, ", encoding: json").await;
    bench.push(points(1));
    let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
    assert_eq!((balance.left, balance.dropped_total()), (1, 0));
    bench.stop().await;
    let noted = log.lines("delivered, with a remark");
    assert_eq!(noted.len(), 1);
    let note = noted[0].1["note"].as_str().unwrap_or_default();
    assert!(note.contains("too large to be read"), "{note}");
}

#[tokio::test]
async fn a_busy_peer_is_retried_after_its_delay_and_a_refusal_is_not() {
    let sink = Sink::start(|n, _| match n {
        0 => busy("1"),
        1 => answer(502, ""),
        2 => answer(200, ""),
        _ => json(403, r#"{"code":7,"message":"bad"}"#),
    })
    .await;
    let bench = bench(&sink, "").await;
    let begin = std::time::Instant::now();
    bench.push(points(2));
    balance_when(&bench.ledgers[0], |b| b.left == 2).await;
    assert!(begin.elapsed().as_secs_f64() >= 1.0, "Retry-After was obeyed");
    bench.push(points(5));
    let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
    assert_eq!(balance.dropped[Reason::Rejected as usize], 5);
    assert_eq!(sink.seen().len(), 4);
    bench.stop().await;
}

#[tokio::test]
async fn what_is_refused_for_its_content_costs_itself_only() {
    let sink = Sink::start(|_, seen| {
        if values(&seen.message).contains(&3) {
            json(400, r#"{"code":3,"message":"no threes"}"#)
        } else {
            answer(200, "")
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
async fn without_isolation_a_refused_request_is_dropped_whole() {
    let sink = Sink::start(|_, _| answer(400, "")).await;
    let bench = bench(&sink, ", sending_queue: {isolate_refused: false}").await;
    bench.push(points(5));
    let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
    assert_eq!(balance.dropped[Reason::Rejected as usize], 5);
    assert_eq!(sink.seen().len(), 1);
    bench.stop().await;
}

#[tokio::test]
async fn a_request_that_is_too_large_goes_in_halves() {
    let sink = Sink::start(|_, seen| match values(&seen.message).len() {
        0..=2 => answer(200, ""),
        _ => answer(413, ""),
    })
    .await;
    let bench = bench(&sink, ", compression: none").await;
    bench.push(points(5));
    balance_when(&bench.ledgers[0], |b| b.left == 5).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_denied_request_is_logged_with_the_peers_text_and_without_the_key() {
    let sink = Sink::start(|_, _| json(401, "{\"error\": \"invalid api key\\nhunter2\"}")).await;
    let bench = bench(&sink, ", headers: {api-key: hunter2}").await;
    bench.push(points(2));
    let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
    assert_eq!(balance.dropped[Reason::Rejected as usize], 2);
    let troubles = bench.shared.health.troubles();
    let trouble = &troubles["exporters::test"];
    let address = sink.address();
    assert!(
        trouble.starts_with(&format!("access to http://{address}/base/ is denied since ")),
        "{trouble}"
    );
    let said = "401 Unauthorized: {\"error\": \"invalid api key\\n[REDACTED]\"}";
    assert!(trouble.ends_with(said), "{trouble}");
    bench.stop().await;
    assert_eq!(sink.seen().len(), 1, "it is not tried again");
}

#[tokio::test]
async fn denied_requests_are_tried_again_where_that_is_asked_for() {
    let sink = Sink::start(|n, _| answer(if n < 3 { 403 } else { 200 }, "")).await;
    let mut options = format!("endpoint: \"http://{}\"", sink.address());
    options += ", retry_on_failure: {retry_on_status: [401, 403], initial_interval: 1ms, max_interval: 1ms}";
    let bench = Bench::build(&FACTORY, &format!("{{{options}}}")).unwrap();
    bench.exporter.start().await.unwrap();
    bench.push(points(2));
    let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
    assert_eq!((balance.left, balance.dropped_total()), (2, 0));
    assert_eq!(sink.seen().len(), 4);
    assert!(bench.shared.health.troubles().is_empty());
    bench.stop().await;
}

#[tokio::test]
async fn every_compression_is_understood() {
    for compression in [
        "gzip",
        "zstd",
        "snappy",
        "x-snappy-framed",
        "deflate",
        "zlib",
        "lz4",
    ] {
        let sink = Sink::start(|_, _| answer(200, "")).await;
        let bench = bench(&sink, &format!(", compression: {compression}")).await;
        bench.push(points(100));
        let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
        assert_eq!((balance.left, balance.dropped_total()), (100, 0), "{compression}");
        let seen = &sink.seen()[0];
        assert_eq!(seen.header("content-encoding"), compression);
        assert_eq!(values(&seen.message).len(), 100, "{compression}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_redirect_and_a_missing_page_are_final() {
    let sink = Sink::start(|n, _| answer(if n == 0 { 302 } else { 404 }, "")).await;
    let bench = bench(&sink, "").await;
    bench.push(points(1));
    balance_when(&bench.ledgers[0], |b| b.dropped[Reason::Rejected as usize] == 1).await;
    bench.push(points(1));
    balance_when(&bench.ledgers[0], |b| b.dropped[Reason::Rejected as usize] == 2).await;
    bench.stop().await;
    assert_eq!(sink.seen().len(), 2);
}

#[tokio::test]
async fn an_endless_answer_is_not_read_to_its_end() {
    let sink = Sink::start(|_, _| answer(200, vec![0; 3 << 20])).await;
    let bench = bench(&sink, "").await;
    bench.push(points(1));
    let balance = balance_when(&bench.ledgers[0], |b| b.held() == 0).await;
    assert_eq!((balance.left, balance.dropped_total()), (1, 0));
    bench.stop().await;
    assert_eq!(sink.seen().len(), 1);
}

#[tokio::test]
async fn a_unix_socket_serves_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = format!("unix:{}", dir.path().join("otlp.sock").display());
    let sink = Sink::at(&endpoint, ConnectionLimits::plain(8), |_, _| answer(200, "")).await;
    let bench = Bench::start(&FACTORY, &format!("endpoint: \"{endpoint}\"")).await;
    bench.push(points(1));
    balance_when(&bench.ledgers[0], |b| b.left == 1).await;
    assert_eq!(sink.seen()[0].path, "/v1/metrics");
    bench.stop().await;
}

/// The port of a proxy before the sink, and the number of its connections.
async fn counted_port(sink: &Sink) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, target) = (listener.local_addr().unwrap().port(), sink.port());
    let connections = Arc::<AtomicUsize>::default();
    let counted = connections.clone();
    tokio::spawn(async move {
        loop {
            let (mut from, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, SeqCst);
            tokio::spawn(async move {
                let mut to = TcpStream::connect(("127.0.0.1", target)).await.unwrap();
                tokio::io::copy_bidirectional(&mut from, &mut to).await
            });
        }
    });
    (port, connections)
}

#[tokio::test]
async fn a_connection_is_kept_and_speaks_http_1_where_http_2_is_not_spoken() {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let protocols: [(&[&[u8]], Version); 3] = [
        (&[b"h2", b"http/1.1"], Version::HTTP_2),
        (&[b"http/1.1"], Version::HTTP_11),
        (&[], Version::HTTP_11),
    ];
    for (spoken, expected) in protocols {
        let tls = TlsServerConfig {
            cert_pem: Some(Secret::new(certificate.pem())),
            key_pem: Some(Secret::new(key.serialize_pem())),
            ..TlsServerConfig::default()
        };
        let limits = ConnectionLimits {
            tls: Some(tls.build(spoken).unwrap()),
            ..ConnectionLimits::plain(8)
        };
        let sink = Sink::at("127.0.0.1:0", limits, |_, _| answer(200, "")).await;
        let (port, connections) = counted_port(&sink).await;
        let options = format!("endpoint: \"https://localhost:{port}\", tls: {{insecure_skip_verify: true}}");
        let bench = Bench::start(&FACTORY, &options).await;
        for sent in 1..=5 {
            bench.push(points(1));
            balance_when(&bench.ledgers[0], |b| b.left == sent).await;
        }
        let versions: Vec<_> = sink.seen().iter().map(|seen| seen.version).collect();
        assert_eq!(versions, [expected; 5]);
        assert_eq!(connections.load(SeqCst), 1, "{expected:?}");
        bench.stop().await;
    }
}

#[test]
fn mistakes_are_named() {
    let table = [
        ("{}", "at least one endpoint must be specified"),
        (
            "{endpoint: \"localhost:4318\"}",
            "begins with http:// or https://",
        ),
        (
            "{endpoint: \"http://a\", encoding: xml}",
            "expected one of proto, json",
        ),
        (
            "{endpoint: \"unix:/a\", logs_endpoint: \"http://a\"}",
            "a Unix socket belongs in `endpoint`",
        ),
        ("{metrics_endpoint: \"http://a\"}", "no endpoint for traces"),
        ("{endpoint: \"http://a\", api_key: k}", "needs `vendor`"),
        (
            "{endpoint: \"http://a\", vendor: grafana_cloud, api_key: k}",
            "must be `instance:token`",
        ),
        (
            "{endpoint: \"http://a\", vendor: aws, api_key: k}",
            "accepts no keys in headers",
        ),
        (
            "{endpoint: \"http://a\", headers: [{name: a, value: x}, {name: A, value: y}]}",
            "headers[1]: the header \"A\" is given more than once",
        ),
        (
            "{endpoint: \"http://a\", headers: {Content-Length: \"5\"}}",
            "the gateway sets the header \"Content-Length\" itself: remove it",
        ),
        (
            "{endpoint: \"http://a\", headers: [{name: a, value: x}, {name: \"a b\", value: y}]}",
            "headers[1]: \"a b\" is not a header name",
        ),
        (
            "{endpoint: \"http://a\", sending_queue: {block_on_overflow: true, on_full: drop}}",
            "can't be combined with `on_full: drop`",
        ),
    ];
    names_mistakes(&FACTORY, &table);
}
