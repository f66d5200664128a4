// SPDX-License-Identifier: Apache-2.0

use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;
use crate::{Description, Prometheus};

/// Asks once; status and body.
fn get(server: &HttpServer, request: &str, accept: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    write!(
        stream,
        "{request} HTTP/1.1\r\nhost: a\r\naccept: {accept}\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer[9..12].parse().unwrap();
    (status, answer)
}

fn server() -> (Arc<Prometheus>, HttpServer) {
    let registry = Arc::new(Prometheus::new());
    registry.counter(&Description::new("a", "A"), &[]).unwrap().add(3);
    let server = serve_http(registry.clone(), "127.0.0.1:0").unwrap();
    (registry, server)
}

#[test]
fn metrics_are_what_the_reader_takes() {
    let (_registry, server) = server();
    let (status, answer) = get(&server, "GET /metrics", "*/*");
    assert_eq!(status, 200);
    assert!(answer.contains("content-type: text/plain; version=0.0.4") && answer.contains("\na_total 3\n"));
    let (_, answer) = get(
        &server,
        "GET /metrics?x=y",
        "application/openmetrics-text; version=1.0.0",
    );
    assert!(answer.contains("content-type: application/openmetrics-text") && answer.ends_with("# EOF\n"));
    let (status, answer) = get(&server, "HEAD /metrics", "*/*");
    assert!(status == 200 && !answer.contains("a_total"));
}

#[test]
fn health_is_that_of_all_endpoints_and_life_is_its_own() {
    let (_registry, server) = server();
    assert_eq!(get(&server, "GET /health", "*/*").0, 200);
    server.health().set_endpoint("gene\"rate\n", false);
    let (status, answer) = get(&server, "GET /health", "*/*");
    assert_eq!(status, 503);
    assert!(
        answer.contains(r#""endpoints":{"gene\"rate\u000a":"notready"}"#),
        "{answer}"
    );
    assert_eq!(get(&server, "GET /live", "*/*").0, 200);
    server.health().set_endpoint("gene\"rate\n", true);
    assert_eq!(get(&server, "GET /health", "*/*").0, 200);
    server.health().set_ready(false);
    assert_eq!(get(&server, "GET /health", "*/*").0, 503);
}

#[test]
fn nothing_else_is_served_and_malformed_requests_do_no_harm() {
    let (_registry, server) = server();
    assert_eq!(get(&server, "GET /", "*/*").0, 404);
    assert_eq!(get(&server, "POST /metrics", "*/*").0, 405);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(&[0xff; 100_000]).ok();
    // Idle connections take no room from others.
    let _idle: Vec<_> = (0..20)
        .map(|_| TcpStream::connect(server.address()).unwrap())
        .collect();
    assert_eq!(get(&server, "GET /live", "*/*").0, 200);
    let address = server.address();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
}
