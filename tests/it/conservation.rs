//! What was sent is delivered, dropped with its reason and counted, or still held: through refusals, broken
//! connections, full and damaged disks, stops and kills. Every point carries a number of its own.

use super::kit::proxy::{Fault, Proxy};
use super::kit::{Gateway, OtlpSink, SOON, Trouble, free_port, http, wait_until};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tempfile::TempDir;

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
}

const PLAIN: Queue<'_> = Queue {
    exporter: "otlphttp",
    options: "",
    fsync: "never",
};

fn start(endpoint: &str, storage: &Path, queue: &Queue<'_>) -> Hop {
    let input = free_port();
    let Queue {
        exporter,
        options,
        fsync,
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
    timeout: 300ms
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

/// What the exporter's counts say.
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
    fn settle(&self) -> ItemCounts {
        wait_until(SOON, "nothing is held", || self.item_counts().held == 0);
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
    let proxy = Proxy::start(sink.port(), case.fault);
    let hop = start(
        &format!("http://127.0.0.1:{}", proxy.port()),
        storage.path(),
        queue,
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
    let counts = hop.settle();
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
fn a_name_that_can_not_be_resolved_is_held_until_the_stop_and_by_a_queue_on_disk_beyond_it() {
    let storage = tempfile::tempdir().unwrap();
    let nowhere = "http://no-such-host.invalid:4318";
    for (options, kept) in [("", false), ("storage: file_storage", true)] {
        let hop = start(nowhere, storage.path(), &Queue { options, ..PLAIN });
        for n in 0..5 {
            assert!(send(hop.input, n * POINTS..(n + 1) * POINTS));
        }
        assert_eq!((hop.item_counts().held, hop.item_counts().dropped), (50, 0));
        let log = hop.gateway.stop_within(Duration::from_secs(40));
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
    let counts = hop.settle();
    assert_eq!((counts.restored, counts.delivered), (50, 50));
    assert_eq!(arrived(&sink), (0..50).collect());
    hop.gateway.stop();
}

#[test]
fn a_damaged_segment_costs_what_is_in_the_damage_and_a_torn_one_what_nobody_was_promised() {
    let storage = tempfile::tempdir().unwrap();
    let queue = Queue {
        options: "storage: file_storage",
        ..PLAIN
    };
    let hop = start("http://no-such-host.invalid:4318", storage.path(), &queue);
    for n in 0..20 {
        assert!(send(hop.input, n * POINTS..(n + 1) * POINTS));
    }
    hop.gateway.kill();
    let segment = segments(storage.path()).remove(0);
    let mut bytes = std::fs::read(&segment).unwrap();
    let (third, torn) = (bytes.len() / 20 * 3, bytes.len() - 7);
    bytes[third] ^= 1;
    bytes.truncate(torn);
    std::fs::write(&segment, &bytes).unwrap();
    let sink = OtlpSink::start();
    let mut hop = start(&sink.endpoint(), storage.path(), &queue);
    hop.gateway.wait_for_log("part of the stored data is damaged");
    let counts = hop.settle();
    assert_eq!(
        (counts.restored, counts.delivered),
        (180, 180),
        "one record is damaged, one torn"
    );
    assert_eq!(arrived(&sink).len(), 180);
    let lost = hop.gateway.own_metric("tidegate_storage_lost_records_total", &[]);
    assert_eq!(lost, 1.0);
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

/// A file system of a few hundred KiB, where the test may mount one.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(kib: u32) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "tmpfs"])
            .arg(directory.path())
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Self(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_a_full_queue_and_the_gateway_serves_on() {
    let quota = tempfile::tempdir().unwrap();
    // Where no file system can be mounted, a file that must not grow stands for it.
    let disk = SmallDisk::mount(256);
    let storage = disk.as_ref().map_or(quota.path(), |disk| disk.0.path());
    let limit = if disk.is_some() { "10GiB" } else { "256KiB" };
    let (sink, input) = (OtlpSink::start(), free_port());
    let proxy = Proxy::start(sink.port(), Fault::Refuse);
    let yaml = format!(
        "extensions:
  file_storage: {{directory: {storage:?}, fsync: always, segment_size: 64KiB, max_size: {limit}}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
exporters:
  otlphttp:
    endpoint: \"http://127.0.0.1:{}\"
    retry_on_failure: {{initial_interval: 10ms, max_interval: 50ms}}
    sending_queue: {{storage: file_storage, queue_size: 5}}
service:
  extensions: [health_check, file_storage]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [otlphttp]}}}}
",
        proxy.port()
    );
    let hop = Hop {
        gateway: Gateway::start(&yaml),
        input,
    };
    let mut taken = BTreeSet::new();
    let mut refused = 0;
    for n in 0..2000 {
        if send(input, n * POINTS..(n + 1) * POINTS) {
            taken.extend(n * POINTS..(n + 1) * POINTS);
        } else {
            refused += 1;
        }
        if refused > 20 {
            break;
        }
    }
    assert!(refused > 20, "256 KiB have no end");
    assert_eq!(hop.gateway.health().expect("it lives").status, 200);
    proxy.set(Fault::None);
    hop.settle();
    let arrived = arrived(&sink);
    let missing: Vec<_> = taken.difference(&arrived).collect();
    assert!(missing.is_empty(), "acknowledged and lost: {missing:?}");
    // The disk is empty again.
    wait_until(SOON, "it takes data again", || send(input, 1_000_000..1_000_010));
    hop.gateway.stop();
}

#[test]
fn what_was_acknowledged_survives_two_hundred_kills() {
    const ROUNDS: usize = 200;
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let (sink, storage) = (OtlpSink::start(), tempfile::tempdir().unwrap());
    let queue = Queue {
        exporter: "otlphttp",
        options: "storage: file_storage, queue_size: 8",
        fsync: "always",
    };
    let (mut next, mut acknowledged) = (0, BTreeSet::new());
    for round in 0..ROUNDS {
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
    }
    let hop = start(&sink.endpoint(), storage.path(), &queue);
    hop.settle();
    let arrived = arrived(&sink);
    let missing: Vec<_> = acknowledged.difference(&arrived).collect();
    println!("{} acknowledged, {} arrived", acknowledged.len(), arrived.len());
    assert!(
        acknowledged.len() > 1000,
        "too few to say anything: {}",
        acknowledged.len()
    );
    assert!(missing.is_empty(), "acknowledged and lost: {missing:?}");
    hop.gateway.stop();
    let left: Vec<_> = segments(storage.path());
    assert!(left.len() <= 1, "segments that nobody needs: {left:?}");
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
    let held = || gateway.own_metric("tidegate_held_items", &["exporters::otlphttp"]);
    wait_until(SOON, "nothing is held", || held() == 0.0);
    // What was delivered just before a kill comes again.
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
