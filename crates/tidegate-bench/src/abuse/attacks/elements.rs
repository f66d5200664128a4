//! Requests whose elements take a byte or two on the wire and many in memory.

use std::time::Duration;

use bytes::Bytes;

use crate::Error;
use crate::abuse::field::Field;
use crate::abuse::proto::{field as part, fixed, gauge, request, sample, written};
use crate::abuse::wire::{Answer, Harm, Tally, protobuf};
use crate::otlp::Compression;
use crate::otlp::Protocol;
use crate::otlp::client::{Answer as Said, Client};

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

/// A request with a point that has so many empty parts.
fn hollow(number: u64, count: usize) -> Vec<u8> {
    let parts = part(number, []).repeat(count);
    let point = [fixed(3, super::now()), fixed(6, 1), parts].concat();
    request("abuse.elements", &gauge(&part(1, point)))
}

/// A request with a histogram of so many empty buckets.
fn bucketed(count: usize) -> Vec<u8> {
    let buckets = part(BUCKETS, vec![0; 8 * (count + 1)]);
    let bounds: Vec<u8> = (0..count)
        .flat_map(|bound| (bound as f64).to_le_bytes())
        .collect();
    let point = [fixed(3, super::now()), fixed(4, 0), buckets, part(BOUNDS, bounds)].concat();
    request("abuse.buckets", &part(HISTOGRAM, part(1, point)))
}

/// A request with a point of so many empty attributes, in zstd.
pub(super) fn bomb(count: usize) -> Result<Bytes, Error> {
    Compression::Zstd.pack(hollow(ATTRIBUTES, count).into())
}

/// Attributes of a bomb.
pub(super) fn count(field: &Field) -> usize {
    field.pick(30_000_000, 3_000_000)
}

pub(super) fn over_http(field: &Field) -> Result<Harm, Error> {
    let (body, tally) = (bomb(count(field))?, Tally::default());
    field.crowd(2, |_, _| field.push(&protobuf("zstd"), &body, 1, &tally));
    Ok(tally.finish())
}

pub(super) fn over_grpc(field: &Field) -> Result<Harm, Error> {
    let body = Bytes::from(hollow(ATTRIBUTES, count(field)));
    let tally = Tally::default();
    field.crowd(2, |_, _| {
        // Of a call that is taken the point is rejected, as its answer says, which is not looked at.
        tally.note(grpc(field, Compression::Zstd, body.clone()), 0);
    });
    Ok(tally.finish())
}

/// Sends a message over gRPC on a connection of its own; the answer as HTTP would say it.
fn grpc(field: &Field, compression: Compression, body: Bytes) -> Result<Answer, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let call = async {
        let client = Client::connect(field.ports.grpc, Protocol::Grpc, compression, 1, 1).await?;
        let packed = client.pack(body)?;
        Ok::<_, Error>(client.send(0, packed).await)
    };
    let said = runtime.block_on(async { tokio::time::timeout(field.patience(), call).await })??;
    let status = match said {
        Said::Taken => 200,
        Said::Refused => 503,
        Said::Failed(why) if why.starts_with("status ") => 400,
        Said::Failed(why) => return Err(why.into()),
    };
    Ok(Answer {
        status,
        retry_after: None,
        body: Vec::new(),
    })
}

pub(super) fn as_json(field: &Field) -> Result<Harm, Error> {
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
fn writes(field: &Field, bodies: &[Vec<u8>]) -> Result<Harm, Error> {
    let mut packed = Vec::new();
    for body in bodies {
        packed.push(snap::raw::Encoder::new().compress_vec(body)?);
    }
    let tally = Tally::default();
    field.crowd(2, |_, turn| {
        field.write(&packed[turn % packed.len()], 1, &tally);
        std::thread::sleep(Duration::from_millis(20));
    });
    let mut harm = tally.finish();
    // A histogram beside the sample is another point, and of what is refused a part may have been taken.
    harm.uncertain += harm.accepted + 2 * harm.refused;
    Ok(harm)
}

/// A series of a remote write that has so many parts of no content, and a sample.
fn hollow_series(number: u64, content: &[u8], count: usize) -> Vec<u8> {
    let rest = [
        part(number, content).repeat(count),
        sample(super::now() / 1_000_000),
    ]
    .concat();
    written(&[("__name__", "abuse_write")], &rest)
}

pub(super) fn in_a_write(field: &Field) -> Result<Harm, Error> {
    let count = field.pick(15_000_000, 1_500_000);
    writes(field, &[hollow_series(LABELS, &[], count)])
}

pub(super) fn parts(field: &Field) -> Result<Harm, Error> {
    let count = field.pick(15_000_000, 1_500_000);
    // A native histogram with a run of buckets, each a byte: `positive_deltas`.
    let deltas = part(12, vec![0; count]);
    let spans = part(
        11,
        [vec![0x10], crate::abuse::proto::varint(count as u64)].concat(),
    );
    let histogram = [spans, deltas].concat();
    writes(
        field,
        &[
            hollow_series(WRITTEN_EXEMPLARS, &[], count),
            hollow_series(WRITTEN_HISTOGRAMS, &[], count),
            hollow_series(WRITTEN_HISTOGRAMS, &histogram, 1),
        ],
    )
}

pub(super) fn buckets(field: &Field) -> Result<Harm, Error> {
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
