// SPDX-License-Identifier: Apache-2.0

//! Requests whose elements take a byte or two on the wire and many in memory.

use std::time::Duration;

use bytes::Bytes;

use crate::BenchError;
use crate::abuse::field::AttackedGateway;
use crate::abuse::proto::{field as part, fixed, gauge, request, sample, varint, written};
use crate::abuse::wire::{Harm, HttpAnswer, Tally, WRITE, WRITE_2, protobuf};
use crate::otlp::Compression;
use crate::otlp::Protocol;
use crate::otlp::client::{Client, SendOutcome};

/// Data of a metric that is a histogram, and the parts of its points.
const HISTOGRAM: u64 = 9;
const BUCKETS: u64 = 6;
const BOUNDS: u64 = 7;
/// Of a point of a gauge: exemplars and attributes.
const EXEMPLARS: u64 = 5;
const ATTRIBUTES: u64 = 7;
/// Of a series of a remote write: labels, exemplars, histograms.
const LABELS: u64 = 1;
const WRITTEN_EXEMPLARS: u64 = 3;
const WRITTEN_HISTOGRAMS: u64 = 4;

/// A request with a point that has `count` empty parts.
fn hollow(number: u64, count: usize) -> Vec<u8> {
    let parts = part(number, []).repeat(count);
    let point = [fixed(3, super::now()), fixed(6, 1), parts].concat();
    request("abuse.elements", &gauge(&part(1, point)))
}

/// A request with a histogram of `count` empty buckets.
fn bucketed(count: usize) -> Vec<u8> {
    let buckets = part(BUCKETS, vec![0; 8 * (count + 1)]);
    let bounds: Vec<u8> = (0..count)
        .flat_map(|bound| (bound as f64).to_le_bytes())
        .collect();
    let point = [fixed(3, super::now()), fixed(4, 0), buckets, part(BOUNDS, bounds)].concat();
    request("abuse.buckets", &part(HISTOGRAM, part(1, point)))
}

/// A request with a point of `count` empty attributes, in zstd.
pub(super) fn bomb(count: usize) -> Result<Bytes, BenchError> {
    Compression::Zstd.pack(hollow(ATTRIBUTES, count).into())
}

/// Attributes of a bomb.
pub(super) fn count(field: &AttackedGateway) -> usize {
    field.pick(30_000_000, 3_000_000)
}

pub(super) fn over_http(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let (body, tally) = (bomb(count(field))?, Tally::default());
    field.crowd(2, |_, _| field.push(&protobuf("zstd"), &body, 1, &tally));
    Ok(tally.finish())
}

pub(super) fn over_grpc(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let body = Bytes::from(hollow(ATTRIBUTES, count(field)));
    let tally = Tally::default();
    field.crowd(2, |_, _| {
        // Of a call that is taken the point is rejected, as its answer says, which is not looked at.
        tally.note(grpc(field, Compression::Zstd, body.clone()), 0);
    });
    Ok(tally.finish())
}

/// Sends a message over gRPC on a connection of its own; the answer as HTTP would say it.
pub(super) fn grpc(
    field: &AttackedGateway,
    compression: Compression,
    body: Bytes,
) -> Result<HttpAnswer, BenchError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let call = async {
        let client = Client::connect(field.ports.grpc, Protocol::Grpc, compression, 1, 1).await?;
        let packed = client.pack(body)?;
        Ok::<_, BenchError>(client.send(0, packed).await)
    };
    let said = runtime.block_on(async { tokio::time::timeout(field.patience(), call).await })??;
    let status = match said {
        SendOutcome::Taken => 200,
        SendOutcome::Refused => 503,
        SendOutcome::Failed(why) if why.starts_with("status ") => 400,
        SendOutcome::Failed(why) => return Err(why.into()),
    };
    Ok(HttpAnswer {
        status,
        retry_after: None,
        body: Vec::new(),
    })
}

pub(super) fn as_json(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let points = field.pick(15_000_000, 1_500_000);
    let list = vec!["{}"; points].join(",");
    let body = format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"abuse.json","gauge":{{"dataPoints":[{list}]}}}}]}}]}}]}}"#
    );
    let tally = Tally::default();
    field.crowd(1, |_, _| {
        field.push(
            "content-type: application/json\r\n",
            body.as_bytes(),
            points as u64,
            &tally,
        );
    });
    Ok(tally.finish())
}

/// Sends remote writes one after the other.
fn writes(field: &AttackedGateway, headers: &str, bodies: &[Vec<u8>]) -> Result<Harm, BenchError> {
    let mut packed = Vec::new();
    for body in bodies {
        packed.push(snap::raw::Encoder::new().compress_vec(body)?);
    }
    let tally = Tally::default();
    field.crowd(2, |_, turn| {
        field.write(headers, &packed[turn % packed.len()], 1, &tally);
        std::thread::sleep(Duration::from_millis(20));
    });
    let mut harm = tally.finish();
    // A histogram beside the sample is another point, and of what is refused a part may have been taken.
    harm.uncertain += harm.accepted + 2 * (harm.refused + harm.malformed);
    Ok(harm)
}

/// A series of a remote write that has `count` parts of no content, and a sample.
fn hollow_series(number: u64, content: &[u8], count: usize) -> Vec<u8> {
    let rest = [
        part(number, content).repeat(count),
        sample(super::now() / 1_000_000),
    ]
    .concat();
    written(&[("__name__", "abuse_write")], &rest)
}

pub(super) fn in_a_write(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let count = field.pick(15_000_000, 1_500_000);
    writes(field, WRITE, &[hollow_series(LABELS, &[], count)])
}

pub(super) fn parts(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let count = field.pick(15_000_000, 1_500_000);
    // A native histogram with a run of buckets, each a byte: `positive_deltas`.
    let deltas = part(12, vec![0; count]);
    let spans = part(11, [vec![0x10], varint(count as u64)].concat());
    let histogram = [spans, deltas].concat();
    writes(
        field,
        WRITE,
        &[
            hollow_series(WRITTEN_EXEMPLARS, &[], count),
            hollow_series(WRITTEN_HISTOGRAMS, &[], count),
            hollow_series(WRITTEN_HISTOGRAMS, &histogram, 1),
        ],
    )
}

/// A remote write of version 2 whose series refer to these symbols, behind the first, which is empty.
fn referring(symbols: &[&str], series: impl Iterator<Item = Vec<u64>>) -> Vec<u8> {
    const SYMBOLS: u64 = 4;
    const SERIES: u64 = 5;
    let mut body = part(SYMBOLS, []);
    for symbol in symbols {
        body.extend(part(SYMBOLS, symbol));
    }
    for references in series {
        let labels: Vec<u8> = references.into_iter().flat_map(varint).collect();
        let rest = sample(super::now() / 1_000_000);
        body.extend(part(SERIES, [part(LABELS, labels), rest].concat()));
    }
    body
}

pub(super) fn symbols(field: &AttackedGateway) -> Result<Harm, BenchError> {
    const NAME: [&str; 2] = ["__name__", "abuse_symbols"];
    // A series whose labels all have one long value.
    let names: Vec<String> = (0..field.pick(49_000, 5_000))
        .map(|name| format!("n{name}"))
        .collect();
    let long = "y".repeat(field.pick(16 << 20, 1 << 20));
    let mut all = vec![NAME[0], NAME[1], &long];
    all.extend(names.iter().map(String::as_str));
    let labels = (0..names.len() as u64).flat_map(|name| [name + 4, 3]);
    let one = referring(&all, [[1, 2].into_iter().chain(labels).collect()].into_iter());
    // 64 KiB of series that each have a long value, and differ in a short one.
    let long = "y".repeat(30 << 10);
    let numbers: Vec<String> = (0..1_800).map(|number| format!("{number}")).collect();
    let mut all = vec![NAME[0], NAME[1], "long", &long, "number"];
    all.extend(numbers.iter().map(String::as_str));
    let series = (0..numbers.len() as u64).map(|number| vec![1, 2, 3, 4, 5, number + 6]);
    let many = referring(&all, series);
    let bodies = [(one, 1), (many, numbers.len() as u64)];
    let mut packed = Vec::new();
    for (body, samples) in bodies {
        packed.push((snap::raw::Encoder::new().compress_vec(&body)?, samples));
    }
    let tally = Tally::default();
    field.crowd(2, |_, turn| {
        let (body, samples) = &packed[turn % packed.len()];
        match field.write_once(WRITE_2, body, field.patience()) {
            // A table that is full takes some of the series.
            Ok(answer) if answer.status == 400 && *samples > 1 => tally.doubt(*samples),
            answer => tally.note(answer, *samples),
        }
        std::thread::sleep(Duration::from_millis(20));
    });
    Ok(tally.finish())
}

/// A request whose resource comes in two pieces, with `metrics` metrics of no content.
fn in_pieces(metrics: usize) -> Vec<u8> {
    let scope = part(2, part(2, []).repeat(metrics));
    part(1, [part(1, []), part(1, []), scope].concat())
}

pub(super) fn pieces(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let bodies = [
        in_pieces(field.pick((1 << 20) + 1, (1 << 17) + 1)),
        in_pieces(30_000),
        in_pieces(300_000),
    ];
    let tally = Tally::default();
    field.crowd(8, |thread, turn| {
        field.push(&protobuf(""), &bodies[(thread + turn) % bodies.len()], 0, &tally);
    });
    Ok(tally.finish())
}

pub(super) fn buckets(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let bodies = [
        hollow(EXEMPLARS, field.pick(30_000_000, 3_000_000)),
        bucketed(field.pick(3_500_000, 350_000)),
    ];
    let mut packed = Vec::new();
    for body in bodies {
        packed.push(Compression::Zstd.pack(body.into())?);
    }
    let tally = Tally::default();
    field.crowd(2, |_, turn| {
        field.push(&protobuf("zstd"), &packed[turn % packed.len()], 1, &tally);
    });
    Ok(tally.finish())
}
