// SPDX-License-Identifier: Apache-2.0

//! Bodies that are promised, that come late, in part or not at all, or are not what they should be.

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};

use super::now;
use crate::BenchError;
use crate::abuse::field::AttackedGateway;
use crate::abuse::h2 as h2_bytes;
use crate::abuse::proto::{field as part, fixed, gauge, point, request};
use crate::abuse::wire::{
    ATTACKER, Harm, HttpAnswer, Tally, WRITE, connected, exchange, head, post, protobuf, receive,
};
use crate::otlp::codec::METHOD;

const LARGEST: usize = 64 << 20;
const PATH: &str = "/v1/metrics";
/// One whose promise is let in waits so long.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two small portions.
const TRICKLE: Duration = Duration::from_millis(100);

pub(super) fn promises(field: &AttackedGateway) -> Result<Harm, BenchError> {
    promised(field, field.ports.otlp, PATH, &protobuf(""))
}

pub(super) fn promised_writes(field: &AttackedGateway) -> Result<Harm, BenchError> {
    promised(field, field.ports.write, "/api/v1/write", WRITE)
}

/// Heads that promise a body of which nothing comes.
fn promised(field: &AttackedGateway, port: u16, path: &str, headers: &str) -> Result<Harm, BenchError> {
    let tally = Tally::default();
    field.crowd(40, |thread, turn| {
        let promise = head(path, headers, LARGEST >> ((thread + turn) % 11));
        let Ok(stream) = connected(ATTACKER, port, PATIENCE) else {
            return;
        };
        // Where it is let in, nothing is answered, and it goes.
        if let Ok(answer) = exchange(&mut BufReader::new(stream), &promise) {
            tally.note(Ok(answer), 0);
        }
        std::thread::sleep(TRICKLE);
    });
    Ok(tally.finish())
}

/// Calls over gRPC that say how long their message is, and send nothing of it.
pub(super) fn promised_messages(field: &AttackedGateway) -> Result<Harm, BenchError> {
    field.crowd(40, |thread, turn| {
        let length = LARGEST as u32 >> ((thread + turn) % 11);
        let prefix = framed(0, length, &[]);
        let call = h2_bytes::post(1, METHOD, "application/grpc", &prefix, false);
        let Ok(mut stream) = connected(ATTACKER, field.ports.grpc, PATIENCE) else {
            return;
        };
        if stream.write_all(&[h2_bytes::preface(), call].concat()).is_ok() {
            // Where it is let in, no end comes, and it goes.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
        std::thread::sleep(TRICKLE);
    });
    Ok(Harm::default())
}

pub(super) fn kept_late(field: &AttackedGateway) -> Result<Harm, BenchError> {
    /// Of a body that comes first, which buys patience for the rest.
    const FIRST: usize = 60_000;
    let (pairs, between) = field.pick((20, Duration::from_secs(1)), (4, Duration::from_millis(100)));
    let mut held = Vec::new();
    for pair in 0..pairs {
        for _ in 0..2 {
            // Where the largest has no room, a smaller one may have.
            let length = LARGEST >> (pair % 5);
            let promise = [head(PATH, &protobuf(""), length), vec![0; FIRST]].concat();
            held.extend(begun(field, &promise).map(|stream| (stream, length - FIRST)));
        }
        std::thread::sleep(between);
    }
    let tally = Tally::default();
    let rest = vec![0; LARGEST - FIRST];
    std::thread::scope(|scope| {
        for (mut stream, left) in held {
            let (rest, tally) = (&rest, &tally);
            scope.spawn(move || {
                // Refused requests have an answer to be read.
                let _ = stream.write_all(&rest[..left]);
                if let Ok(answer) = receive(&mut BufReader::new(stream)) {
                    tally.note(Ok(answer), 0);
                }
            });
        }
    });
    Ok(tally.finish())
}

/// A connection over which this went.
fn begun(field: &AttackedGateway, bytes: &[u8]) -> Option<TcpStream> {
    let mut stream = connected(ATTACKER, field.ports.otlp, field.patience()).ok()?;
    stream.write_all(bytes).ok()?;
    Some(stream)
}

/// A request of `points` points.
fn usual(points: usize) -> Vec<u8> {
    let points: Vec<u8> = (0..points)
        .flat_map(|number| point(now(), "number", &number.to_string()))
        .collect();
    request("abuse.bodies", &gauge(&points))
}

pub(super) fn broken_off(field: &AttackedGateway) -> Result<Harm, BenchError> {
    const POINTS: usize = 1_000;
    let body = usual(POINTS);
    let whole = post(PATH, &protobuf(""), &body);
    let head = whole.len() - body.len();
    let tally = Tally::default();
    field.crowd(20, |thread, turn| {
        // After a part of the headers, all of them, half of the body, and all of it.
        let stages = [head / 2, head, head + body.len() / 2, whole.len()];
        let sent = stages[(thread + turn) % stages.len()];
        if begun(field, &whole[..sent]).is_some() && sent == whole.len() {
            tally.note(Err("it hung up".into()), POINTS as u64);
        }
        std::thread::sleep(Duration::from_millis(5));
    });
    Ok(tally.finish())
}

pub(super) fn slow_and_large(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let text = "x".repeat(30 << 20);
    let large = request("abuse.large", &gauge(&point(now(), "text", &text)));
    let promise = head(PATH, &protobuf(""), 1 << 20);
    let tally = Tally::default();
    let end = Instant::now() + field.time();
    field.crowd(field.pick(30, 12), |thread, _| match thread % 3 {
        0 => field.push(&protobuf(""), &large, 1, &tally),
        _ => {
            let Some(mut stream) = begun(field, &promise) else {
                return;
            };
            while Instant::now() < end && stream.write_all(&[0; 2048]).is_ok() {
                std::thread::sleep(TRICKLE);
            }
        }
    });
    Ok(tally.finish())
}

pub(super) fn json(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let around = |inner: String| {
        format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"abuse.json","gauge":{{"dataPoints":[{inner}]}}}}]}}]}}]}}"#
        )
    };
    let depth = field.pick(4 << 20, 1 << 18);
    let digits = "9".repeat(depth);
    let nested = r#"{"arrayValue":{"values":["#.repeat(depth / 25);
    let bodies = [
        "[".repeat(depth),
        r#"{"a":"#.repeat(depth / 5),
        around(format!(r#"{{"attributes":[{{"key":"a","value":{nested}"#)),
        around(format!(r#"{{"asInt":"{digits}"}}"#)),
        around(format!(r#"{{"asDouble":{digits}}}"#)),
        around(r#"{"asDouble":1e999999999}"#.to_owned()),
        around(format!(r#"{{"timeUnixNano":{digits}"#)),
        format!(r#"{{"{digits}":1}}"#),
        "\"".to_owned() + &"\\".repeat(depth),
    ];
    let tally = Tally::default();
    field.crowd(4, |thread, turn| {
        let body = &bodies[(thread + turn) % bodies.len()];
        let request = post(PATH, "content-type: application/json\r\n", body.as_bytes());
        let answer = connected(ATTACKER, field.ports.otlp, field.patience())
            .and_then(|stream| exchange(&mut BufReader::new(stream), &request));
        let is_odd = answer.as_ref().is_ok_and(|answer| answer.status == 200);
        // Text that is not a number, or too large a number, may be a point or not.
        if is_odd {
            tally.note(Err("taken as it is".into()), 1)
        } else {
            tally.note(answer, 1)
        }
        std::thread::sleep(Duration::from_millis(20));
    });
    Ok(tally.finish())
}

/// A message with a length of its own choosing.
pub(super) fn framed(flag: u8, length: u32, message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    framed.put_u8(flag);
    framed.put_u32(length);
    framed.put_slice(message);
    framed.freeze()
}

pub(super) fn grpc_lengths(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let message = request(
        "abuse.grpc",
        &part(5, part(1, [fixed(3, now()), fixed(6, 1)].concat())),
    );
    let length = message.len() as u32;
    let many: Bytes = framed(0, length, &message).repeat(1_000).into();
    let bodies = [
        framed(0, u32::MAX, &[]),
        framed(0, u32::MAX, &message),
        framed(0, length + 1, &message),
        framed(0, length - 1, &message),
        framed(0, 0, &message),
        framed(0, 63 << 20, &message),
        framed(1, length, &message),
        framed(77, length, &message),
        many,
        framed(0, length, &message).slice(..3),
    ];
    let patience = field.pick(Duration::from_secs(1), Duration::from_millis(300));
    let tally = Tally::default();
    field.crowd(8, |thread, turn| {
        let body = bodies[(thread + turn) % bodies.len()].clone();
        // No answer says how many points of these were taken.
        let _ = call(field, "identity", body, patience);
        tally.note(Err("of no length".into()), 1_000);
        std::thread::sleep(Duration::from_millis(5));
    });
    Ok(tally.finish())
}

/// A call with this body, whose message has this coding, on a connection of its own; the answer as HTTP would say it.
pub(super) fn call(
    field: &AttackedGateway,
    coding: &'static str,
    body: Bytes,
    patience: Duration,
) -> Result<HttpAnswer, BenchError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let called = async {
        let stream = connected(ATTACKER, field.ports.grpc, Duration::from_secs(1))?;
        stream.set_nonblocking(true)?;
        let stream = tokio::net::TcpStream::from_std(stream)?;
        let (sender, connection) = h2::client::handshake(stream).await?;
        tokio::spawn(connection);
        let head = http::Request::post(format!("http://127.0.0.1{METHOD}"))
            .header("content-type", "application/grpc")
            .header("grpc-encoding", coding)
            .header("te", "trailers")
            .body(())?;
        let (response, mut stream) = sender.ready().await?.send_request(head, false)?;
        stream.send_data(body, true)?;
        let response = response.await?;
        let mut code = response.headers().get("grpc-status").cloned();
        if code.is_none() {
            let mut body = response.into_body();
            while let Some(data) = body.data().await {
                body.flow_control().release_capacity(data?.len())?;
            }
            let trailers = body.trailers().await?.unwrap_or_default();
            code = trailers.get("grpc-status").cloned();
        }
        let code = code.ok_or("an answer without a status")?;
        Ok::<_, BenchError>(HttpAnswer {
            status: match code.as_bytes() {
                b"0" => 200,
                // Deadline exceeded, resource exhausted, unavailable.
                b"4" | b"8" | b"14" => 503,
                _ => 400,
            },
            retry_after: None,
            body: Vec::new(),
        })
    };
    runtime.block_on(async { tokio::time::timeout(patience, called).await })?
}
