// SPDX-License-Identifier: Apache-2.0

//! Options of connections and of paths.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Shorter than the default of every option below.
const SOON: Duration = Duration::from_secs(40);
const EXPORT: &str = "http://localhost/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

async fn connect(gateway: &Gateway) -> TcpStream {
    match gateway.endpoint(0) {
        Endpoint::Tcp { host, port } => TcpStream::connect((host.as_str(), port)).await.unwrap(),
        Endpoint::Unix(path) => panic!("unexpected {}", path.display()),
    }
}

/// A call without its body.
fn call() -> Request<()> {
    let request = Request::post(EXPORT)
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    request.body(()).unwrap()
}

#[tokio::test]
async fn every_signal_has_a_path_of_its_own() {
    let paths = "metrics_url_path: /own/metrics, traces_url_path: /own/traces, logs_url_path: /own/logs";
    let gateway = Gateway::start(&format!(
        "protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}, http: {{endpoint: '127.0.0.1:0', {paths}}}}}"
    ))
    .await;
    for (signal, body) in all_three() {
        let default = format!("/v1/{signal}");
        let reply = gateway.post(&default, &[PROTOBUF], body.clone()).await;
        assert_eq!(reply.status, StatusCode::NOT_FOUND, "{default}");
        let own = format!("/own/{signal}");
        let reply = gateway.post(&own, &[PROTOBUF], body).await;
        assert_eq!(reply.status, StatusCode::OK, "{own}");
    }
    assert_eq!(arrived(&gateway.sink), all_three());
}

#[tokio::test]
async fn a_client_that_never_ends_its_headers_is_cut() {
    let options = "protocols: {http: {endpoint: '127.0.0.1:0', read_header_timeout: 50ms}}";
    let gateway = Gateway::start(options).await;
    let begun = Instant::now();
    let mut stream = connect(&gateway).await;
    stream.write_all(b"POST /v1/metrics HTTP/1.1\r\n").await.unwrap();
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(SOON, stream.read_to_end(&mut answer)).await;
    ended.expect("the default is 60 s").expect("an end");
    assert!(begun.elapsed() >= Duration::from_millis(50), "it ends early");
    assert_eq!(String::from_utf8_lossy(&answer), "");
}

#[tokio::test]
async fn a_connection_ends_at_its_age_and_a_running_call_after_the_grace() {
    for (options, is_whole, least) in [
        ("max_connection_age: 500ms", true, 500),
        (
            "max_connection_age: 500ms, max_connection_age_grace: 500ms",
            false,
            1000,
        ),
    ] {
        let gateway = Gateway::start(&format!(
            "protocols: {{grpc: {{endpoint: '127.0.0.1:0', keepalive: {{server_parameters: {{{options}}}}}}}}}"
        ))
        .await;
        let begun = Instant::now();
        let (mut client, connection) = h2::client::handshake(connect(&gateway).await).await.unwrap();
        let ended = tokio::spawn(connection);
        // Without its end, the call runs until the server gives it up.
        let (answer, _body) = client.send_request(call(), is_whole).unwrap();
        let ended = tokio::time::timeout(SOON, ended).await;
        assert!(ended.is_ok(), "{options}: it stays open");
        assert!(
            begun.elapsed() >= Duration::from_millis(least),
            "{options}: it ends early"
        );
        let answer = tokio::time::timeout(SOON, answer).await.expect("an outcome");
        assert_eq!(answer.is_ok(), is_whole, "{options}: {answer:?}");
    }
}

#[tokio::test]
async fn a_call_that_runs_at_the_age_of_its_connection_is_answered() {
    let options = "protocols: {grpc: {endpoint: '127.0.0.1:0', keepalive: {server_parameters: {max_connection_age: 1s}}}}";
    let gateway = Gateway::start(options).await;
    let (mut client, connection) = h2::client::handshake(connect(&gateway).await).await.unwrap();
    tokio::spawn(connection);
    let (answer, mut body) = client.send_request(call(), false).unwrap();
    let asked_to_close = async {
        while std::future::poll_fn(|cx| client.poll_ready(cx)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let asked = tokio::time::timeout(SOON, asked_to_close).await;
    assert!(asked.is_ok(), "the server asks the client to close");
    // An empty message.
    body.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
    let answer = tokio::time::timeout(SOON, answer).await.expect("an answer");
    assert_eq!(answer.unwrap().status(), StatusCode::OK);
}
