// SPDX-License-Identifier: Apache-2.0

//! Connections of attackers and of honest clients, and what was answered.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use parking_lot::Mutex;
use prost::Message;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use super::result::CheckLine;
use crate::BenchError;

/// Where honest clients come from.
pub(super) const HONEST: u8 = 1;
/// Where attackers come from, unless they come from everywhere: a limit for each address does not touch honest clients.
pub(super) const ATTACKER: u8 = 66;

/// A connection from 127.0.0.`from` to a port of the gateway; reads and writes give up after `patience`.
pub(super) fn connected(from: u8, port: u16, patience: Duration) -> Result<TcpStream, BenchError> {
    let address = |host, port| SocketAddrV4::new([127, 0, 0, host].into(), port);
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    bind(&socket, &SocketAddr::V4(address(from, 0)))?;
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Send, Some(patience))?;
    connect(&socket, &SocketAddr::V4(address(1, port)))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// An answer over HTTP.
#[derive(Debug)]
pub(super) struct HttpAnswer {
    pub(super) status: u16,
    pub(super) retry_after: Option<Duration>,
    pub(super) body: Vec<u8>,
}

/// A request by POST.
pub(super) fn post(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut request = head(path, headers, length);
    request.extend_from_slice(body);
    request
}

/// The head of a request by POST that promises `length` bytes; `headers` are lines that end with CR LF.
pub(super) fn head(path: &str, headers: &str, length: usize) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}content-length: {length}\r\n\r\n")
        .into_bytes()
}

/// A request by GET.
pub(super) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").into_bytes()
}

/// Headers of OTLP as protobuf, with this content coding unless it is empty.
pub(super) fn protobuf(coding: &str) -> String {
    let coding = match coding {
        "" => String::new(),
        coding => format!("content-encoding: {coding}\r\n"),
    };
    format!("content-type: application/x-protobuf\r\n{coding}")
}

/// Headers of a remote write, version 1.
pub(super) const WRITE: &str = "content-type: application/x-protobuf\r\ncontent-encoding: snappy\r\n\
    x-prometheus-remote-write-version: 0.1.0\r\n";

/// Headers of a remote write, version 2.
pub(super) const WRITE_2: &str = "content-type: application/x-protobuf;proto=io.prometheus.write.v2.Request\r\n\
    content-encoding: snappy\r\nx-prometheus-remote-write-version: 2.0.0\r\n";

/// Sends a request and reads its answer.
pub(super) fn exchange(stream: &mut BufReader<TcpStream>, request: &[u8]) -> Result<HttpAnswer, BenchError> {
    // A refusal may come before the end of the body: the answer counts.
    let sent = stream.get_mut().write_all(request);
    let answer = receive(stream);
    match (sent, answer) {
        (_, Ok(answer)) => Ok(answer),
        (Err(error), Err(_)) => Err(error.into()),
        (Ok(()), Err(error)) => Err(error),
    }
}

/// Reads an answer.
pub(super) fn receive(stream: &mut BufReader<TcpStream>) -> Result<HttpAnswer, BenchError> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| format!("no answer but {line:?}"))?;
    let (mut length, mut retry_after) = (None, None);
    loop {
        line.clear();
        if stream.read_line(&mut line)? <= 2 {
            break;
        }
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = Some(value.parse()?),
            "retry-after" => retry_after = value.parse().ok().map(Duration::from_secs),
            _ => {}
        }
    }
    let mut body = Vec::new();
    match length {
        Some(length) => stream.take(length).read_to_end(&mut body)?,
        // A chunked answer ends with its connection; the tests need no more of it.
        None => 0,
    };
    Ok(HttpAnswer {
        status,
        retry_after,
        body,
    })
}

/// A request on a connection of its own.
pub(super) fn once(
    from: u8,
    port: u16,
    patience: Duration,
    request: &[u8],
) -> Result<HttpAnswer, BenchError> {
    exchange(&mut BufReader::new(connected(from, port, patience)?), request)
}

/// The answers that an attacker got.
#[derive(Debug, Default)]
pub(super) struct Harm {
    /// Points of requests that were taken.
    pub(super) accepted: u64,
    /// Points of which the answer is not known, or that a partial success named.
    pub(super) uncertain: u64,
    /// Requests with data that memory or processors were too short for: 413, 429, 503.
    pub(super) refused: u64,
    /// Requests that could not be read or taken: 400.
    pub(super) malformed: u64,
    /// Requests without an answer.
    pub(super) unanswered: u64,
    /// The demands of this attack beyond those of all attacks.
    pub(super) lines: Vec<CheckLine>,
}

/// The same, from many threads.
#[derive(Default)]
pub(super) struct Tally(Mutex<Harm>);

impl Tally {
    /// Notes the answer to a request of OTLP with `points` points.
    pub(super) fn note(&self, answer: Result<HttpAnswer, BenchError>, points: u64) {
        let mut harm = self.0.lock();
        match answer {
            Ok(answer) if answer.status / 100 == 2 => {
                let response = ExportMetricsServiceResponse::decode(answer.body.as_slice()).ok();
                let partial = response.and_then(|response| response.partial_success);
                let rejected = partial.map_or(0, |partial| partial.rejected_data_points.max(0) as u64);
                harm.accepted += points - rejected.min(points);
                harm.uncertain += rejected;
            }
            Ok(answer) if matches!(answer.status, 413 | 429 | 503) => harm.refused += 1,
            Ok(answer) if answer.status == 400 => harm.malformed += 1,
            Ok(_) => {}
            Err(_) => {
                harm.unanswered += 1;
                harm.uncertain += points;
            }
        }
    }

    /// Notes that some of `points` points were taken, or none.
    pub(super) fn doubt(&self, points: u64) {
        self.0.lock().uncertain += points;
    }

    pub(super) fn finish(self) -> Harm {
        self.0.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_answer_that_comes_before_the_body_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, peer) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 64]).unwrap();
            let refusal = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 3\r\ncontent-length: 2\r\n\r\nno";
            stream.write_all(refusal.as_bytes()).unwrap();
            peer
        });
        let answer = once(ATTACKER, port, Duration::from_secs(30), &post("/", "", &[0; 100])).unwrap();
        assert_eq!(answer.status, 503);
        assert_eq!(answer.retry_after, Some(Duration::from_secs(3)));
        assert_eq!(answer.body, b"no");
        assert_eq!(server.join().unwrap().ip().to_string(), "127.0.0.66");
    }

    #[test]
    fn answers_are_distinguished() {
        let answer = |status| {
            Ok(HttpAnswer {
                status,
                retry_after: None,
                body: Vec::new(),
            })
        };
        let tally = Tally::default();
        tally.note(answer(200), 7);
        tally.note(answer(503), 7);
        tally.note(answer(400), 7);
        tally.note(answer(400), 7);
        tally.note(answer(401), 7);
        tally.note(Err("it broke".into()), 5);
        let harm = tally.finish();
        assert_eq!(
            (harm.accepted, harm.uncertain, harm.refused, harm.unanswered),
            (7, 5, 1, 1)
        );
        assert_eq!(harm.malformed, 2);
    }
}
