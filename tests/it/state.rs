// SPDX-License-Identifier: Apache-2.0

//! `aggregate` with `storage`: totals are those of everything that was acknowledged, through kills and restarts.

use super::kit::points::Point;
use super::kit::{Gateway, OtlpSink, SOON, free_port, http};
use prost::Message;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tidegate::receivers::uds::proto::{EventAck, EventBatch, Instrument, Kind};

/// One point of a sum: since when, at what time, its value.
fn sum(name: &str, temporality: u8, start: u64, time: u64, value: u64) -> String {
    let point = format!(r#"{{"asInt":"{value}","startTimeUnixNano":"{start}","timeUnixNano":"{time}"}}"#);
    // So much that snapshots are made while it runs.
    let pad = "x".repeat(1500);
    format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"{name}","description":"{pad}","sum":{{"isMonotonic":true,"aggregationTemporality":{temporality},"dataPoints":[{point}]}}}}]}}]}}]}}"#
    )
}

const DELTA: u8 = 1;
const CUMULATIVE: u8 = 2;

fn post(port: u16, body: &str) -> bool {
    http::post(port, "/v1/metrics", "application/json", body.as_bytes())
        .is_ok_and(|answer| answer.status == 200)
}

fn count(value: u64) -> EventBatch {
    EventBatch {
        acknowledge: true,
        kinds: vec![Kind {
            name: "events".to_owned(),
            instrument: Instrument::Counter.into(),
            ..Kind::default()
        }],
        events: vec![0],
        integers: vec![value],
        ..EventBatch::default()
    }
}

/// Sends one batch of events on a connection of its own and waits for the answer.
fn send_events(socket: &Path, batch: &EventBatch) -> Option<EventAck> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(SOON)).ok()?;
    stream.write_all(&batch.encode_length_delimited_to_vec()).ok()?;
    let mut length = [0];
    stream.read_exact(&mut length).ok()?;
    let mut answer = vec![0; length[0].into()];
    stream.read_exact(&mut answer).ok()?;
    EventAck::decode(&*answer).ok()
}

/// The points of a metric that arrived at the sink, in their order.
fn arrived(sink: &OtlpSink, name: &str) -> Vec<Point> {
    let all = sink.points().into_iter();
    all.filter(|point| point.name == name).collect()
}

struct Scene {
    sink: OtlpSink,
    storage: tempfile::TempDir,
    input: u16,
    yaml: String,
}

fn scene(fsync: &str) -> Scene {
    let (sink, storage, input) = (OtlpSink::start(), tempfile::tempdir().unwrap(), free_port());
    let yaml = format!(
        "extensions:
  file_storage: {{directory: {:?}, fsync: {fsync}, segment_size: 64KiB, max_size: 64KiB}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
  uds: {{stream: {{path: {:?}}}}}
processors:
  aggregate:
    interval: 20ms
    storage: file_storage
    rules:
      - {{match: {{name: \"*\"}}, by: []}}
exporters:
  otlphttp: {{endpoint: {:?}}}
service:
  extensions: [health_check, file_storage]
  pipelines:
    metrics: {{receivers: [otlp, uds], processors: [aggregate], exporters: [otlphttp]}}
",
        storage.path(),
        storage.path().join("events.sock"),
        sink.endpoint(),
    );
    Scene {
        sink,
        storage,
        input,
        yaml,
    }
}

#[test]
fn totals_are_those_of_all_that_was_acknowledged_through_sixty_kills() {
    const ROUNDS: usize = 60;
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let scene = scene("always");
    let socket = scene.storage.path().join("events.sock");
    // A sender of deltas repeats what was not acknowledged, as SDKs do: it must count once.
    let (deltas, total) = (AtomicU64::new(0), AtomicU64::new(0));
    // A sender of a counter goes on counting whether it is heard or not.
    let (acknowledged, told) = (AtomicU64::new(0), AtomicU64::new(0));
    // Events that were sent, and those of them that were acknowledged.
    let (events_sent, events_taken) = (AtomicU64::new(0), AtomicU64::new(0));
    // A busy machine needs more rounds for numbers that say something.
    let is_enough =
        || deltas.load(SeqCst) > 30 && acknowledged.load(SeqCst) > 100 && events_taken.load(SeqCst) > 200;
    let mut round = 0;
    while round < ROUNDS || (!is_enough() && round < 5 * ROUNDS) {
        let gateway = Gateway::start(&scene.yaml);
        let life = Duration::from_micros(rng.random_range(0..60_000));
        let (killed, begin) = (AtomicBool::new(false), Instant::now());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !killed.load(SeqCst) {
                    let at = deltas.load(SeqCst);
                    let value = at % 17 + 1;
                    if post(scene.input, &sum("deltas", DELTA, 10 + at, 11 + at, value)) {
                        deltas.fetch_add(1, SeqCst);
                        total.fetch_add(value, SeqCst);
                    }
                }
            });
            scope.spawn(|| {
                while !killed.load(SeqCst) {
                    let at = told.fetch_add(3, SeqCst) + 3;
                    if post(scene.input, &sum("counter", CUMULATIVE, 5, 10 + at, at)) {
                        acknowledged.store(at, SeqCst);
                    }
                }
            });
            scope.spawn(|| {
                while !killed.load(SeqCst) {
                    events_sent.fetch_add(7, SeqCst);
                    if send_events(&socket, &count(7)).is_some_and(|answer| answer.accepted == 1) {
                        events_taken.fetch_add(7, SeqCst);
                    }
                }
            });
            while begin.elapsed() < life {
                std::thread::yield_now();
            }
            match round % 10 {
                9 => drop(gateway.stop()),
                _ => gateway.kill(),
            }
            killed.store(true, SeqCst);
        });
        round += 1;
    }
    // The last delta may have been taken in without an answer: its sender repeats it.
    let gateway = Gateway::start(&scene.yaml);
    let at = deltas.load(SeqCst);
    assert!(post(
        scene.input,
        &sum("deltas", DELTA, 10 + at, 11 + at, at % 17 + 1)
    ));
    let total = total.load(SeqCst) + at % 17 + 1;
    // Requests overtake each other on their way.
    let last = |name: &str| {
        let points = arrived(&scene.sink, name).into_iter();
        let last = points.max_by_key(|point| point.time_ns);
        last.map_or(0, |point| point.number() as u64)
    };
    let begin = Instant::now();
    while last("deltas") != total {
        let all = || -> Vec<_> {
            let points = arrived(&scene.sink, "deltas").into_iter();
            points
                .map(|point| (point.start_time_ns, point.number()))
                .collect()
        };
        assert!(begin.elapsed() < SOON, "{total} deltas at {at}, and {:?}", all());
        std::thread::sleep(Duration::from_millis(10));
    }
    let counter = last("counter");
    assert!(
        (acknowledged.load(SeqCst)..=told.load(SeqCst)).contains(&counter),
        "{counter}"
    );
    let events = last("events");
    assert!(
        (events_taken.load(SeqCst)..=events_sent.load(SeqCst)).contains(&events),
        "{events} of {events_taken:?} to {events_sent:?}"
    );
    println!("{at} deltas, a counter of {counter}, events of {events} in {round} lives");
    assert!(
        at > 30 && counter > 100 && events > 200,
        "too few to say anything"
    );
    for name in ["deltas", "counter", "events"] {
        let mut points = arrived(&scene.sink, name);
        // Requests overtake each other on their way.
        points.sort_by_key(|point| point.time_ns);
        let falls = points.windows(2).any(|pair| pair[1].number() < pair[0].number());
        assert!(!falls, "{name} fell");
        let begins = points[0].start_time_ns;
        let other = points.iter().find(|point| point.start_time_ns != begins);
        assert!(
            other.is_none(),
            "{name} has another start after a kill: {begins}, {other:?}"
        );
    }
    gateway.stop();
}
