// SPDX-License-Identifier: Apache-2.0

//! Gateways that are killed again and again.

use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

#[test]
fn what_was_acknowledged_survives_two_hundred_kills() {
    const ROUNDS: usize = 200;
    /// The points that say something. A busy machine needs more rounds for them.
    const ENOUGH: usize = 1000;
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let (sink, storage) = (OtlpSink::start(), tempfile::tempdir().unwrap());
    let queue = Queue {
        exporter: "otlphttp",
        options: "storage: file_storage, queue_size: 8",
        fsync: "always",
        ..PLAIN
    };
    let (mut next, mut acknowledged) = (0, BTreeSet::new());
    let mut round = 0;
    while round < ROUNDS || (acknowledged.len() <= ENOUGH && round < 5 * ROUNDS) {
        // In every other round the peer is down, so that data is carried over several kills.
        let down = round % 2 == 0;
        let fault = if down { Fault::Refuse } else { Fault::None };
        let proxy = Proxy::start(sink.port(), fault);
        let hop = start(
            &format!("http://127.0.0.1:{}", proxy.port()),
            storage.path(),
            &queue,
        );
        let killed = AtomicBool::new(false);
        let life = Duration::from_micros(rng.random_range(0..30_000));
        let (input, begin) = (hop.input, Instant::now());
        let (sent, taken) = std::thread::scope(|scope| {
            let senders: Vec<_> = (0..3u64)
                .map(|sender| {
                    let (killed, first) = (&killed, next + sender * 1_000_000);
                    scope.spawn(move || {
                        let (mut at, mut taken) = (first, Vec::new());
                        while !killed.load(SeqCst) {
                            if send(input, at..at + POINTS) {
                                taken.extend(at..at + POINTS);
                            }
                            at += POINTS;
                        }
                        (at - first, taken)
                    })
                })
                .collect();
            while begin.elapsed() < life {
                std::thread::yield_now();
            }
            hop.gateway.kill();
            killed.store(true, SeqCst);
            let ended = senders.into_iter().map(|sender| sender.join().expect("no panic"));
            ended.fold((0, Vec::new()), |(sent, mut taken), (more, took)| {
                taken.extend(took);
                (sent + more, taken)
            })
        });
        assert!(sent < 1_000_000);
        acknowledged.extend(taken);
        next += 3_000_000;
        round += 1;
    }
    let hop = start(&sink.endpoint(), storage.path(), &queue);
    hop.wait_for_idle();
    let arrived = arrived(&sink);
    let missing: Vec<_> = acknowledged.difference(&arrived).collect();
    println!("{} acknowledged, {} arrived", acknowledged.len(), arrived.len());
    assert!(
        acknowledged.len() > ENOUGH,
        "too few to say anything: {}",
        acknowledged.len()
    );
    assert!(missing.is_empty(), "acknowledged and lost: {missing:?}");
    hop.gateway.stop();
    let left: Vec<_> = segments(storage.path());
    assert!(left.len() <= 1, "unneeded segments: {left:?}");
}

/// A request with a counter that stood at `at` at the time `at`, since `start`.
fn counter(start: u64, at: u64) -> String {
    let point = format!(r#"{{"asInt":"{at}","startTimeUnixNano":"{start}","timeUnixNano":"{at}"}}"#);
    format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"c","sum":{{"isMonotonic":true,"aggregationTemporality":2,"dataPoints":[{point}]}}}}]}}]}}]}}"#
    )
}

#[test]
fn deltas_made_of_a_counter_are_whole_through_kills() {
    const ROUNDS: usize = 40;
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let (sink, storage) = (OtlpSink::start(), tempfile::tempdir().unwrap());
    let input = free_port();
    let yaml = |endpoint: &str| {
        format!(
            "extensions:
  file_storage: {{directory: {:?}, fsync: never, segment_size: 64KiB}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
exporters:
  otlphttp:
    endpoint: {endpoint:?}
    temporality: delta
    retry_on_failure: {{initial_interval: 10ms, max_interval: 50ms}}
    sending_queue: {{storage: file_storage, queue_size: 8}}
service:
  extensions: [health_check, file_storage]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [otlphttp]}}}}
",
            storage.path()
        )
    };
    // It counts since long before the gateway, so its first word is where deltas begin.
    let (first, mut at, mut acknowledged) = (1000, 1000, 0);
    for round in 0..ROUNDS {
        let down = round % 2 == 1;
        let proxy = Proxy::start(sink.port(), if down { Fault::Refuse } else { Fault::None });
        let gateway = Gateway::start(&yaml(&format!("http://127.0.0.1:{}", proxy.port())));
        // The first life ends after the first word, which is all that is known then.
        let words = if round == 0 { 1 } else { rng.random_range(0..200) };
        for _ in 0..words {
            let body = counter(5, at);
            let answer = http::post(input, "/v1/metrics", "application/json", body.as_bytes());
            assert_eq!(answer.expect("it lives").status, 200);
            acknowledged = at;
            at += rng.random_range(1..50);
        }
        gateway.kill();
    }
    let gateway = Gateway::start(&yaml(&sink.endpoint()));
    gateway.wait_for_idle();
    // Points that were delivered just before a kill come again.
    let deltas: BTreeSet<_> = sink
        .points()
        .iter()
        .map(|point| (point.start_time_ns, point.time_ns, point.number() as u64))
        .collect();
    let mut reached = first;
    for (start, time, value) in deltas {
        assert_eq!(start, reached, "a gap, or something twice");
        assert_eq!(value, time - start);
        reached = time;
    }
    assert_eq!(reached, acknowledged);
    gateway.stop();
}
