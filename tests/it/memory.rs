// SPDX-License-Identifier: Apache-2.0

//! A gateway gives back the memory that it took for a burst.

use super::kit::{Gateway, SOON, free_port, wait_until};
use prost::Message;
use std::io::{Read, Write};
use std::net::TcpStream;
use tidegate_requests::{attribute, gauge, int, request};

/// Requests of a burst, and the bytes of each: few enough that no thread is started for them, whose end would give back
/// what it took.
const REQUESTS: usize = 400;
const BYTES: usize = 500_000;
/// The least memory that the burst takes, in MiB.
const TAKEN: u64 = 96;

#[test]
fn memory_of_a_burst_is_given_back_while_nothing_happens() {
    let port = free_port();
    let gateway = Gateway::start(&format!(
        "
receivers: {{otlp: {{protocols: {{http: {{endpoint: 127.0.0.1:{port}}}}}}}}}
exporters: {{debug: }}
service: {{pipelines: {{metrics: {{receivers: [otlp], exporters: [debug]}}}}}}
"
    ));
    let before = gateway.memory_mib("VmRSS");
    burst(port);
    let peak = gateway.memory_mib("VmHWM");
    assert!(peak >= before + TAKEN, "{before} MiB, then {peak}: no burst");
    // Nothing is asked of it meanwhile: it must do so by itself. Threads keep some for what comes next.
    wait_until(SOON, "what is resident falls back", || {
        gateway.memory_mib("VmRSS") <= before + (peak - before) / 2
    });
    gateway.stop();
}

/// Requests that all have begun before the first of them ends.
fn burst(port: u16) {
    let resource = vec![attribute("ballast", "x".repeat(BYTES))];
    let body = request(resource, "", [gauge("g", [int(1)])]).encode_to_vec();
    let (last, most) = body.split_last().expect("it is not empty");
    let begin = |_| {
        let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        write!(
            connection,
            "POST /v1/metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/x-protobuf\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        )
        .and_then(|()| connection.write_all(most))
        .expect("it takes them");
        connection
    };
    let mut begun: Vec<TcpStream> = (0..REQUESTS).map(begin).collect();
    for connection in &mut begun {
        connection.write_all(&[*last]).expect("it takes them");
    }
    for mut connection in begun {
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}
