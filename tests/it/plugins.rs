// SPDX-License-Identifier: Apache-2.0

//! Exporter plugins in the real gateway: the example in three languages, and plugins that misbehave in every way.

mod refused;

use super::kit::{Gateway, SOON, free_port, http, plugins, wait_until};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use tempfile::TempDir;
use tidegate_ring::{Event, Layout, Writer};

/// Exporters by the example plugins, in the gateway and each in a process of its own; each writes a file of its name.
const EXAMPLES: [(&str, &str, &str); 6] = [
    ("c", "csv_c", "none"),
    ("cpp", "csv_cpp", "none"),
    ("rust", "csv_rust", "none"),
    ("c-apart", "csv_c", "process"),
    ("cpp-apart", "csv_cpp", "process"),
    ("rust-apart", "csv_rust", "process"),
];

/// A gateway with the examples behind `receiver` (a line of YAML), and the file exporter beside them.
fn with_examples(receiver: &str) -> Gateway {
    let mut exporters = String::from("  file: {path: file.csv, format: csv, flush_interval: 0s}\n");
    for (id, name, isolation) in EXAMPLES {
        let directories = plugins::examples().display();
        exporters += &format!(
            "  plugin/{id}: {{name: {name}, directories: [/nowhere, '{directories}'], version: '1', \
             isolation: {isolation}, config: {id}.csv}}\n"
        );
    }
    let ids = EXAMPLES.map(|(id, _, _)| format!(", plugin/{id}")).concat();
    Gateway::start(&format!(
        "receivers: {{{receiver}}}\nexporters:\n{exporters}
service: {{pipelines: {{metrics: {{receivers: [{}], exporters: [file{ids}]}}}}}}\n",
        receiver.split(':').next().expect("a type")
    ))
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
fn plugins_in_three_languages_write_the_same_lines_in_and_out_of_process() {
    let rings = TempDir::new().expect("a temporary directory");
    let gateway = with_examples(&format!("nixl: {{directories: ['{}']}}", rings.path().display()));
    let mut ring = Writer::create(rings.path().join("agent"), Layout::V1, 1024).expect("a ring");
    let event = |kind, value, micros| Event {
        kind,
        value,
        timestamp_us: 1_700_000_000_000_000 + micros,
    };
    ring.push_all(&[event(0, 4096, 1), event(1, u64::MAX, 2)]);
    let odd = tidegate_ring::Category::Custom;
    assert!(ring.push_named("odd,\"name\"", odd, event(0, 7, 3)));
    ring.flush();
    let many: Vec<_> = (0..500).map(|n| event(0, n, 10 + n)).collect();
    assert_eq!(ring.push_all(&many), many.len());
    let kind = |id| tidegate_ring::NixlKind::by_id(id).expect("NIXL's own");
    let line = |micros: u64, kind: &tidegate_ring::NixlKind, value: u64| {
        format!(
            "{},{},{},{value}\n",
            1_700_000_000_000_000 + micros,
            kind.category,
            kind.name
        )
    };
    let mut expected = "timestamp_us,category,event_name,value\n".to_owned();
    expected += &line(1, kind(0), 4096);
    expected += &line(2, kind(1), u64::MAX);
    expected += "1700000000000003,CUSTOM,\"odd,\"\"name\"\"\",7\n";
    expected.extend((0..500).map(|n| line(10 + n, kind(0), n)));
    for (id, _, _) in EXAMPLES {
        let path = gateway.path(&format!("{id}.csv"));
        wait_until(SOON, "every line is there", || lines(&path) >= 504);
        assert_eq!(fs::read_to_string(&path).expect("it is there"), expected, "{id}");
    }
    for (id, _, isolation) in EXAMPLES {
        let exporter = format!("exporter=\"plugin/{id}\"");
        let isolation = format!("isolation=\"{isolation}\"");
        assert_eq!(
            gateway.own_metric("tidegate_plugin_info", &[&exporter, &isolation]),
            1.0
        );
        // Counted when the plugin has answered, a moment after its lines are there.
        wait_until(SOON, "all is counted as sent", || {
            gateway.own_metric("otelcol_exporter_sent_metric_points", &[&exporter]) == 503.0
        });
        assert!(gateway.own_metric("tidegate_plugin_calls_total", &[&exporter, "result=\"ok\""]) >= 1.0);
    }
    gateway.stop();
}

#[test]
fn doubles_and_names_of_a_socket_become_the_lines_of_the_file_exporter() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = directory.path().join("statsd.sock");
    let gateway = with_examples(&format!("uds: {{datagram: {{path: '{}'}}}}", path.display()));
    let socket = UnixDatagram::unbound().expect("a socket");
    socket.connect(&path).expect("it listens");
    socket
        .send(b"jobs:3|c|#category:A\nload:0.1|g\nlate:12.75|ms|@0.5\n")
        .expect("it is taken");
    let reference = gateway.path("file.csv");
    wait_until(SOON, "the file exporter has written", || lines(&reference) == 4);
    let expected = fs::read_to_string(&reference).expect("it is there");
    assert!(
        expected.contains(",A,jobs,3\n") && expected.contains(",,load,0.1\n"),
        "{expected}"
    );
    for (id, _, _) in EXAMPLES {
        let path = gateway.path(&format!("{id}.csv"));
        wait_until(SOON, "every line is there", || lines(&path) >= 4);
        assert_eq!(fs::read_to_string(&path).expect("it is there"), expected, "{id}");
    }
    gateway.stop();
}

/// A gateway that takes OTLP/JSON and gives it to exporters of `odd` plugins.
struct Odd {
    gateway: Gateway,
    otlp: u16,
    plugin: TempDir,
}

impl Odd {
    /// Exporters `plugin/ID` with these options (YAML of a flow mapping), all fed with metrics.
    fn start(exporters: &[(&str, &str)]) -> Self {
        let plugin = TempDir::new().expect("a temporary directory");
        plugins::odd(&plugin.path().join(plugins::file("odd")), &[]);
        let otlp = free_port();
        let gateway = Gateway::start(&config(otlp, plugin.path(), exporters));
        Self {
            gateway,
            otlp,
            plugin,
        }
    }

    /// Sends a gauge with `points` points.
    fn push(&self, points: usize) {
        let points = vec![r#"{"asInt":"1","timeUnixNano":"1700000000000000000"}"#; points].join(",");
        let body = format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"g","gauge":{{"dataPoints":[{points}]}}}}]}}]}}]}}"#
        );
        let answer = http::post(self.otlp, "/v1/metrics", "application/json", body.as_bytes());
        assert_eq!(answer.expect("an answer").status, 200);
    }

    /// The notes of an exporter's plugin.
    fn notes(&self, id: &str) -> String {
        fs::read_to_string(self.plugin.path().join(id)).unwrap_or_default()
    }

    fn go(&self, id: &str) {
        fs::write(self.plugin.path().join(format!("{id}.go")), "").expect("a file");
    }

    fn calls(&self, id: &str, result: &str) -> f64 {
        let labels = [
            format!("exporter=\"plugin/{id}\""),
            format!("result=\"{result}\""),
        ];
        self.gateway.own_metric(
            "tidegate_plugin_calls_total",
            &[&labels[0], "call=\"export\"", &labels[1]],
        )
    }

    fn sent(&self, id: &str) -> f64 {
        let exporter = format!("exporter=\"plugin/{id}\"");
        self.gateway
            .own_metric("otelcol_exporter_sent_metric_points", &[&exporter])
    }

    fn dropped(&self, id: &str, reason: &str) -> f64 {
        let labels = [format!("plugin/{id}\""), format!("reason=\"{reason}\"")];
        self.gateway
            .own_metric("tidegate_dropped_items_total", &[&labels[0], &labels[1]])
    }
}

fn config(otlp: u16, plugin: &Path, exporters: &[(&str, &str)]) -> String {
    let (mut section, mut ids) = (String::new(), Vec::new());
    for (id, options) in exporters {
        let does = options.split(';').next().unwrap_or_default();
        let more = options.split(';').nth(1).unwrap_or_default();
        section += &format!(
            "  plugin/{id}: {{name: odd, directories: ['{}'], config: '{does} {}', \
             retry_on_failure: {{initial_interval: 10ms, max_interval: 50ms}}{more}}}\n",
            plugin.display(),
            plugin.join(id).display()
        );
        ids.push(format!("plugin/{id}"));
    }
    format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{otlp}'}}}}}}}}
exporters:\n{section}
service: {{drain_timeout: 2s, pipelines: {{metrics: {{receivers: [otlp], exporters: [{}]}}}}}}\n",
        ids.join(", ")
    )
}

#[test]
fn every_answer_leads_to_what_it_says() {
    let odd = Odd::start(&[
        ("partial", "partial"),
        ("deny", "deny"),
        ("small", "small"),
        ("once", "retry-once"),
        ("unknown", "unknown"),
    ]);
    odd.push(5);
    wait_until(SOON, "every exporter is done", || {
        odd.sent("partial") == 3.0
            && odd.dropped("partial", "rejected") == 2.0
            && odd.dropped("deny", "rejected") == 5.0
            && odd.sent("small") == 5.0
            && odd.sent("once") == 5.0
            && odd.dropped("unknown", "rejected") == 5.0
    });
    assert_eq!(odd.notes("once"), "export 5\nexport 5\n");
    let said = odd.gateway.stop();
    assert!(
        said.contains("two are odd") && said.contains("not for me"),
        "{said}"
    );
}

#[test]
fn a_crash_in_a_process_of_its_own_is_counted_and_the_batch_comes_again() {
    let odd = Odd::start(&[
        ("crashing", "crash-until-go;, isolation: process"),
        ("well", "fine"),
    ]);
    odd.push(3);
    wait_until(SOON, "it has crashed", || odd.calls("crashing", "crashed") >= 1.0);
    wait_until(SOON, "health tells", || {
        let health = odd.gateway.health().expect("it answers").json();
        let trouble = &health["troubles"]["exporters::plugin/crashing"];
        trouble
            .as_str()
            .is_some_and(|trouble| trouble.contains("SIGABRT"))
    });
    odd.go("crashing");
    wait_until(SOON, "the batch has arrived", || odd.sent("crashing") == 3.0);
    assert_eq!(odd.sent("well"), 3.0, "the other one never noticed");
    wait_until(SOON, "health forgets it", || {
        let health = odd.gateway.health().expect("it answers").json();
        health["troubles"].is_null()
    });
    let said = odd.gateway.stop();
    assert!(said.contains("SIGABRT"), "{said}");
}

#[test]
fn a_batch_that_always_crashes_the_plugin_is_dropped_before_the_next_try() {
    let odd = Odd::start(&[("crashing", "crash;, isolation: process")]);
    odd.push(3);
    wait_until(SOON, "it is given up", || {
        odd.dropped("crashing", "rejected") == 3.0
    });
    assert_eq!(odd.notes("crashing"), "export 3\n".repeat(3));
    odd.push(4);
    wait_until(SOON, "the next is tried", || {
        odd.notes("crashing").contains("export 4")
    });
    odd.gateway.stop();
}

#[test]
fn a_plugin_that_hangs_is_stuck_for_all_to_see_and_can_come_back() {
    let odd = Odd::start(&[("hanging", "wait;, timeout: 100ms"), ("well", "fine")]);
    let stuck = || {
        odd.gateway
            .own_metric("tidegate_plugin_stuck", &["exporter=\"plugin/hanging\""])
    };
    assert_eq!(stuck(), 0.0);
    odd.push(3);
    wait_until(SOON, "it is stuck", || stuck() == 1.0);
    assert_eq!(odd.calls("hanging", "timed_out"), 1.0);
    wait_until(SOON, "health says so", || {
        let health = odd.gateway.health().expect("it answers");
        assert_eq!(health.status, 200);
        health.text().contains("stuck in a call")
    });
    odd.push(1);
    wait_until(SOON, "the other one works", || odd.sent("well") == 4.0);
    assert_eq!(odd.notes("hanging"), "export 3\n", "no other call");
    odd.go("hanging");
    wait_until(SOON, "both batches are through", || odd.sent("hanging") == 4.0);
    wait_until(SOON, "it is stuck no more", || stuck() == 0.0);
    wait_until(SOON, "health forgets it", || {
        let health = odd.gateway.health().expect("it answers");
        !health.text().contains("troubles")
    });
    odd.gateway.stop();
}

#[test]
fn a_plugin_that_never_returns_does_not_keep_the_gateway_from_stopping() {
    let odd = Odd::start(&[
        ("inside", "hang;, timeout: 100ms"),
        ("outside", "hang;, timeout: 100ms, isolation: process"),
    ]);
    odd.push(3);
    wait_until(SOON, "both have overrun", || {
        odd.calls("inside", "timed_out") >= 1.0 && odd.calls("outside", "timed_out") >= 1.0
    });
    // The drain takes two seconds; then what is held is booked as lost. The calls never return.
    let said = odd.gateway.stop_within(SOON);
    assert!(
        said.contains("reason=\"shutdown\"") || said.contains("shutdown"),
        "{said}"
    );
}

#[test]
fn what_a_plugin_holds_is_flushed_now_and_then_and_at_the_end() {
    for isolation in ["none", "process"] {
        let often = format!("fine;, flush_interval: 10ms, isolation: {isolation}");
        let never = format!("fine;, flush_interval: 0s, isolation: {isolation}");
        let odd = Odd::start(&[("often", &often), ("never", &never)]);
        odd.push(2);
        wait_until(SOON, "it is flushed", || odd.notes("often").contains("flush 1\n"));
        wait_until(SOON, "the other has it", || odd.sent("never") == 2.0);
        assert_eq!(odd.notes("never"), "export 2\n");
        let Odd { gateway, plugin, .. } = odd;
        gateway.stop();
        let said = fs::read_to_string(plugin.path().join("never")).expect("it noted");
        assert_eq!(said, "export 2\nflush 1\ndestroy 1\n", "{isolation}");
    }
}

#[test]
fn the_process_of_a_plugin_does_not_outlive_a_gateway_that_is_killed() {
    let odd = Odd::start(&[("hanging", "hang;, timeout: 1h, isolation: process")]);
    let pid = odd.gateway.pid();
    let children = |pid: u32| -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))
            .expect("it runs")
            .flatten();
        let of_task =
            |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let all: Vec<_> = tasks.map(of_task).collect();
        all.join(" ").split_whitespace().flat_map(str::parse).collect()
    };
    odd.push(1);
    wait_until(SOON, "it hangs", || odd.notes("hanging") == "export 1\n");
    let hosts = children(pid);
    assert_eq!(hosts.len(), 1);
    odd.gateway.kill();
    wait_until(SOON, "its process is gone", || {
        // A zombie holds no memory.
        let status = fs::read_to_string(format!("/proc/{}/status", hosts[0])).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ")
    });
}

#[test]
fn answers_reach_the_log_as_printable_text() {
    let odd = Odd::start(&[
        ("inside", "escapes"),
        ("outside", "escapes;, isolation: process"),
        ("silent", "silent-length"),
    ]);
    odd.push(2);
    wait_until(SOON, "all are refused", || {
        ["inside", "outside", "silent"].map(|id| odd.dropped(id, "rejected")) == [2.0; 3]
    });
    let said = odd.gateway.stop();
    assert!(!said.contains(['\u{1b}', '\0']), "{said:?}");
    for id in ["inside", "outside"] {
        let (component, text) = (format!("exporters::plugin/{id}"), r"\u{1b}[31mred\nand more");
        let mut lines = said.lines();
        let is_refusal = |line: &str| line.contains(&component) && line.contains(text);
        assert!(lines.any(is_refusal), "{id}: {said}");
    }
}

#[test]
fn a_plugin_that_leaks_meets_its_limit_and_the_gateway_does_not() {
    let odd = Odd::start(&[
        ("leaking", "leak;, isolation: process, memory_limit: 256MiB"),
        ("well", "fine"),
    ]);
    // Four calls of 64 MiB do not fit beside the process itself: every few calls it crashes and begins again.
    for _ in 0..12 {
        odd.push(1);
    }
    wait_until(SOON, "it has met its limit", || {
        odd.calls("leaking", "crashed") >= 2.0
    });
    wait_until(SOON, "every batch has arrived all the same", || {
        odd.sent("leaking") == 12.0
    });
    assert_eq!(odd.sent("well"), 12.0);
    assert_eq!(odd.dropped("leaking", "rejected"), 0.0);
    let resident = odd.gateway.memory_mib("VmHWM");
    assert!(resident < 150, "{resident} MiB");
    odd.gateway.stop();
}

#[test]
fn a_gateway_whose_runtime_breaks_ends() {
    let odd = Odd::start(&[("closing", "close-all")]);
    odd.push(1);
    let (status, said) = odd.gateway.wait(SOON);
    assert_eq!(status, None, "a signal ends it: {said}");
    // Without optimisation the standard library may be first to notice that a descriptor is gone.
    let is_told = ["the runtime is broken", "owned file descriptor already closed"];
    assert!(is_told.iter().any(|words| said.contains(words)), "{said}");
}
