// SPDX-License-Identifier: Apache-2.0

//! Every point that was sent is delivered, dropped with its reason and counted, or still held: through refusals, broken
//! connections, full and damaged disks, stops and kills. Every point carries a number of its own.

mod disk;
mod kills;

use super::kit::proxy::{Fault, Proxy};
use super::kit::{Gateway, OtlpSink, SOON, Trouble, free_port, http, wait_until};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// Points a request.
const POINTS: u64 = 10;

/// A request of OTLP/JSON with points of these numbers.
fn request(numbers: std::ops::Range<u64>) -> String {
    let mut points = String::new();
    for number in numbers {
        let comma = if points.is_empty() { "" } else { "," };
        let _ = write!(points, "{comma}{{\"asInt\":\"{number}\",\"timeUnixNano\":\"1\"}}");
    }
    format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"n","gauge":{{"dataPoints":[{points}]}}}}]}}]}}]}}"#
    )
}

/// Whether the gateway took a request.
fn send(port: u16, numbers: std::ops::Range<u64>) -> bool {
    let body = request(numbers);
    let answer = http::post(port, "/v1/metrics", "application/json", body.as_bytes());
    answer.is_ok_and(|answer| answer.status == 200)
}

/// The numbers that arrived.
fn arrived(sink: &OtlpSink) -> BTreeSet<u64> {
    sink.points().iter().map(|point| point.number() as u64).collect()
}

struct Hop {
    gateway: Gateway,
    input: u16,
}

/// How the queue is to be.
struct Queue<'a> {
    exporter: &'a str,
    options: &'a str,
    fsync: &'a str,
    /// The time limit of a request.
    timeout: &'a str,
}

const PLAIN: Queue<'_> = Queue {
    exporter: "otlphttp",
    options: "",
    fsync: "never",
    timeout: "300ms",
};

fn start(endpoint: &str, storage: &Path, queue: &Queue<'_>) -> Hop {
    let input = free_port();
    let Queue {
        exporter,
        options,
        fsync,
        timeout,
    } = queue;
    let endpoint = match *exporter {
        "otlp" => endpoint.trim_start_matches("http://"),
        _ => endpoint,
    };
    let yaml = format!(
        "extensions:
  file_storage: {{directory: {storage:?}, fsync: {fsync}, segment_size: 64KiB}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
exporters:
  {exporter}:
    endpoint: {endpoint:?}
    tls: {{insecure: true}}
    timeout: {timeout}
    retry_on_failure: {{initial_interval: 10ms, max_interval: 50ms}}
    sending_queue: {{num_consumers: 4, {options}}}
service:
  extensions: [health_check, file_storage]
  pipelines:
    metrics: {{receivers: [otlp], exporters: [{exporter}]}}
"
    );
    let gateway = Gateway::start(&yaml);
    Hop { gateway, input }
}

/// The counts of the exporter.
#[derive(Debug, Default, PartialEq)]
struct ItemCounts {
    entered: u64,
    restored: u64,
    delivered: u64,
    dropped: u64,
    held: u64,
}

impl Hop {
    fn item_counts(&self) -> ItemCounts {
        let metric = |name, labels: &[&str]| {
            let whose: Vec<_> = ["component=\"exporters::otlp", "metrics"]
                .into_iter()
                .chain(labels.iter().copied())
                .collect();
            self.gateway.own_metric(name, &whose) as u64
        };
        ItemCounts {
            entered: metric("tidegate_component_items_total", &["flow=\"in\""]),
            restored: metric("tidegate_component_items_total", &["flow=\"restored\""]),
            delivered: metric("tidegate_component_items_total", &["flow=\"out\""]),
            dropped: metric("tidegate_dropped_items_total", &[]),
            held: metric("tidegate_held_items", &[]),
        }
    }

    /// Waits until nothing is held any more.
    fn wait_for_idle(&self) -> ItemCounts {
        self.gateway.wait_for_idle();
        self.item_counts()
    }
}

/// A fault, and what is to be seen when it is over.
struct Case {
    name: &'static str,
    troubles: fn() -> Vec<Trouble>,
    fault: Fault,
    /// Whether everything arrives in the end; otherwise some is dropped, and counted.
    all_arrive: bool,
}

fn times(count: usize, trouble: Trouble) -> Vec<Trouble> {
    std::iter::repeat_with(|| trouble.clone()).take(count).collect()
}

const CASES: &[Case] = &[
    Case {
        name: "answers 429 or RESOURCE_EXHAUSTED with a delay",
        troubles: || times(20, Trouble::RetryAfter(Duration::from_millis(1))),
        fault: Fault::None,
        all_arrive: true,
    },
    Case {
        name: "answers 503 or UNAVAILABLE",
        troubles: || times(20, Trouble::UNAVAILABLE),
        fault: Fault::None,
        all_arrive: true,
    },
    Case {
        name: "finds some requests too large",
        troubles: || times(5, Trouble::TooLarge),
        fault: Fault::None,
        all_arrive: true,
    },
    Case {
        name: "finds everything wrong, for a while",
        troubles: || times(500, Trouble::INVALID),
        fault: Fault::None,
        all_arrive: false,
    },
    Case {
        name: "rejects a part of what it takes",
        troubles: || times(3, Trouble::Partial(4, "four are too many".into())),
        fault: Fault::None,
        all_arrive: true,
    },
    Case {
        name: "answers too late",
        troubles: || times(4, Trouble::Delay(Duration::from_millis(600))),
        fault: Fault::None,
        all_arrive: true,
    },
    Case {
        name: "closes every connection",
        troubles: Vec::new,
        fault: Fault::Refuse,
        all_arrive: true,
    },
    Case {
        name: "is half open: never reads, never answers",
        troubles: Vec::new,
        fault: Fault::Silence,
        all_arrive: true,
    },
    Case {
        name: "resets in the middle of a request",
        troubles: Vec::new,
        fault: Fault::ResetAfter(100),
        all_arrive: true,
    },
    Case {
        name: "takes requests and loses the answers",
        troubles: Vec::new,
        fault: Fault::LoseAnswer,
        all_arrive: true,
    },
];

/// One fault against one queue: the counts and the sink agree on what became of every point.
fn conserves(case: &Case, queue: &Queue<'_>) {
    let what = format!("{} over {} with `{}`", case.name, queue.exporter, queue.options);
    let (sink, storage) = (OtlpSink::start(), tempfile::tempdir().unwrap());
    sink.trouble((case.troubles)());
    let is_late = |trouble: &Trouble| matches!(trouble, Trouble::Delay(_));
    let waits = case.fault != Fault::None || (case.troubles)().iter().any(is_late);
    // Where every answer comes, a request that a busy machine lets come again would change the counts.
    let timeout = if waits { PLAIN.timeout } else { "30s" };
    let proxy = Proxy::start(sink.port(), case.fault);
    let hop = start(
        &format!("http://127.0.0.1:{}", proxy.port()),
        storage.path(),
        &Queue { timeout, ..*queue },
    );
    let requests = 30;
    for n in 0..requests {
        assert!(send(hop.input, n * POINTS..(n + 1) * POINTS), "{what}: refused");
    }
    if case.fault != Fault::None {
        wait_until(SOON, "the fault is met", || proxy.broken() >= 2);
        proxy.set(Fault::None);
    }
    let sent = requests * POINTS;
    let counts = hop.wait_for_idle();
    assert_eq!(counts.entered, sent, "{what}");
    assert_eq!(counts.delivered + counts.dropped, sent, "{what}: {counts:?}");
    let arrived = arrived(&sink);
    let rejected = (case.troubles)().into_iter().map(|trouble| match trouble {
        Trouble::Partial(count, _) => count as u64,
        _ => 0,
    });
    let rejected: u64 = rejected.sum();
    if case.all_arrive {
        assert_eq!(arrived, (0..sent).collect(), "{what}");
        assert_eq!(counts.dropped, rejected, "{what}");
    } else {
        assert!(counts.dropped > 0, "{what}: {counts:?}");
        assert_eq!(arrived.len() as u64, counts.delivered, "{what}");
    }
    hop.gateway.stop();
}

#[test]
fn every_fault_is_conserved_by_every_queue() {
    const ALWAYS: &str = "storage: file_storage";
    const SPILL: &str = "storage: file_storage, storage_mode: spill, queue_size: 5";
    let queues = [
        ("otlphttp", ""),
        ("otlp", ""),
        ("otlphttp", ALWAYS),
        ("otlp", SPILL),
    ];
    std::thread::scope(|scope| {
        for (exporter, options) in queues {
            scope.spawn(move || {
                for case in CASES {
                    conserves(
                        case,
                        &Queue {
                            exporter,
                            options,
                            ..PLAIN
                        },
                    );
                }
            });
        }
    });
}

#[test]
fn batches_for_an_unresolved_name_wait_until_the_stop_or_beyond_on_disk() {
    let storage = tempfile::tempdir().unwrap();
    let nowhere = "http://no-such-host.invalid:4318";
    for (options, kept) in [("", false), ("storage: file_storage", true)] {
        let hop = start(nowhere, storage.path(), &Queue { options, ..PLAIN });
        for n in 0..5 {
            assert!(send(hop.input, n * POINTS..(n + 1) * POINTS));
        }
        assert_eq!((hop.item_counts().held, hop.item_counts().dropped), (50, 0));
        let log = hop.gateway.stop();
        assert_eq!(log.contains("kept on disk"), kept, "{log}");
        assert_eq!(
            log.contains("reason=\"shutdown\"") || log.contains("reason=shutdown"),
            !kept,
            "{log}"
        );
    }
    let sink = OtlpSink::start();
    let hop = start(
        &sink.endpoint(),
        storage.path(),
        &Queue {
            options: "storage: file_storage",
            ..PLAIN
        },
    );
    let counts = hop.wait_for_idle();
    assert_eq!((counts.restored, counts.delivered), (50, 50));
    assert_eq!(arrived(&sink), (0..50).collect());
    hop.gateway.stop();
}

fn segments(storage: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for directory in std::fs::read_dir(storage).unwrap() {
        for file in std::fs::read_dir(directory.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "seg") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
