// SPDX-License-Identifier: Apache-2.0

//! Too many of everything: series, sources, long names.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::clocks::with_rate;
use super::now;
use crate::BenchError;
use crate::abuse::field::{AttackedGateway, Setup};
use crate::abuse::proto::{counter, field as part, gauge, point, request};
use crate::abuse::wire::{ATTACKER, Harm, Tally, once, post, protobuf};
use crate::otlp::OtlpSink;

/// With a limit for each source.
pub(super) const SOURCES: Setup = Setup {
    processors: (
        "  aggregate: {expiry: 10s, max_streams_per_source: 100, rules: [{match: {name: '*'}, by: [host]}]}",
        ", aggregate",
    ),
    ..Setup::PLAIN
};

/// Attackers without an answer try again after this.
const PAUSE: Duration = Duration::from_millis(50);

fn rng(thread: usize, turn: usize) -> SmallRng {
    SmallRng::seed_from_u64((thread << 32 | turn) as u64)
}

/// Points of one metric, each with another value of its attribute.
fn points(count: usize, mut value: impl FnMut(usize) -> String) -> Vec<u8> {
    let time = now();
    (0..count)
        .flat_map(|number| point(time, "random", &value(number)))
        .collect()
}

/// So many series of a metric, which stay.
pub(super) fn seed(field: &AttackedGateway, name: &str, series: usize) -> Result<Harm, BenchError> {
    const PORTION: usize = 1_000;
    let tally = Tally::default();
    for first in (0..series).step_by(PORTION) {
        let points = points(PORTION, |number| format!("{:0100}", first + number));
        let body = request(name, &gauge(&points));
        field.push(&protobuf(""), &body, PORTION as u64, &tally);
    }
    Ok(tally.finish())
}

pub(super) fn streams(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let count = field.pick(50_000, 1_000);
    let tally = Tally::default();
    field.crowd(2, |thread, turn| {
        let mut rng = rng(thread, turn);
        let points = points(count, |_| format!("{:016x}", rng.random::<u64>()));
        let body = request("abuse.streams", &gauge(&points));
        field.push(&protobuf(""), &body, count as u64, &tally);
        std::thread::sleep(PAUSE);
    });
    Ok(tally.finish())
}

pub(super) fn labels(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let count = field.pick(500, 100);
    let tally = Tally::default();
    field.crowd(2, |thread, turn| {
        let mut rng = rng(thread, turn);
        let points = points(count, |_| format!("{:020000}", rng.random::<u64>()));
        let body = request("abuse.labels", &gauge(&points));
        field.push(&protobuf(""), &body, count as u64, &tally);
        std::thread::sleep(PAUSE);
    });
    Ok(tally.finish())
}

/// With a destination that takes deltas, and composites of the attacker's counters and of the honest one.
pub(super) const DELTAS: Setup = Setup {
    processors: (
        concat!(
            "  composite: {composites: [",
            "{name: honest_rate, metric: honest.pushes, function: rate, window: 5s}, ",
            "{name: abuse_rate, metric: abuse.deltas, function: rate, window: 5s, by: [random]}]}",
        ),
        ", composite",
    ),
    exporters: (
        "  otlp: {endpoint: '127.0.0.1:SINK', tls: {insecure: true}, temporality: delta, sending_queue: {on_full: drop}}",
        ", otlp",
    ),
    ..Setup::PLAIN
};

/// Counters with long labels, of which deltas are made, and a rate for each label.
pub(super) fn deltas(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let count = field.pick(500, 100);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let _sink = runtime.block_on(OtlpSink::on(field.ports.sink))?;
    let tally = Tally::default();
    field.crowd(2, |thread, turn| {
        let mut rng = rng(thread, turn);
        let points = points(count, |_| format!("{:020000}", rng.random::<u64>()));
        let body = request("abuse.deltas", &counter(&points));
        field.push(&protobuf(""), &body, count as u64, &tally);
        std::thread::sleep(PAUSE);
    });
    Ok(with_rate(field, tally.finish()))
}

pub(super) fn names(field: &AttackedGateway) -> Result<Harm, BenchError> {
    let count = field.pick(100, 10);
    let tally = Tally::default();
    field.crowd(2, |thread, turn| {
        let mut rng = rng(thread, turn);
        let body: Vec<u8> = (0..count)
            .flat_map(|_| {
                let name = format!("abuse{:065000}", rng.random::<u64>());
                request(&name, &gauge(&point(now(), "host", "a")))
            })
            .collect();
        field.push(&protobuf(""), &body, count as u64, &tally);
        std::thread::sleep(PAUSE);
    });
    Ok(tally.finish())
}

pub(super) fn sources(field: &AttackedGateway) -> Result<Harm, BenchError> {
    /// Streams of a source, as many as it may have.
    const STREAMS: usize = 100;
    let count = field.pick(100, 4);
    let tally = Tally::default();
    field.crowd(4, |thread, turn| {
        let mut rng = rng(thread, turn);
        let body: Vec<u8> = (0..count)
            .flat_map(|_| {
                let id = format!("{:016x}", rng.random::<u64>());
                of_a_source(&id, STREAMS)
            })
            .collect();
        let request = post("/v1/metrics", &protobuf(""), &body);
        let from = 2 + ((thread * 61 + turn) % 240) as u8;
        let points = (count * STREAMS) as u64;
        tally.note(
            once(
                if from == ATTACKER { 2 } else { from },
                field.ports.otlp,
                field.patience(),
                &request,
            ),
            points,
        );
        std::thread::sleep(PAUSE);
    });
    Ok(tally.finish())
}

/// Points of a resource that has this instance.
fn of_a_source(instance: &str, streams: usize) -> Vec<u8> {
    let attribute = |key: &str, value: &str| {
        let attribute = [part(1, key), part(2, part(1, value))].concat();
        part(1, attribute)
    };
    let resource = [
        attribute("service.name", "abuse"),
        attribute("service.instance.id", instance),
    ];
    let metric = [
        part(1, "abuse.sources"),
        gauge(&points(streams, |number| number.to_string())),
    ];
    let metrics = part(2, part(2, metric.concat()));
    part(1, [part(1, resource.concat()), metrics].concat())
}
