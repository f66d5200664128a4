// SPDX-License-Identifier: Apache-2.0

//! Reloads as the operator, the senders and the readers see them: what changes is applied, all else runs on, and nothing is
//! lost or doubled.

use super::kit::{Gateway, OtlpSink, SOON, free_port, http, wait_for, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// Points a request.
const POINTS: u64 = 5;

/// A sender that never opens a second connection: a connection that a reload cuts is an error.
struct Sender {
    stream: TcpStream,
    sent: u64,
}

impl Sender {
    fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a listener");
        stream.set_read_timeout(Some(SOON)).expect("a timeout");
        Self { stream, sent: 0 }
    }

    /// Sends gauges of the next numbers, and as many hits, and waits for the answer.
    fn send(&mut self) -> Result<(), String> {
        let body = request(self.sent..self.sent + POINTS);
        let head = format!(
            "POST /v1/metrics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let written = self.stream.write_all((head + &body).as_bytes());
        written.map_err(|error| format!("writing: {error}"))?;
        let status = self.answer()?;
        if status != 200 {
            return Err(format!("the answer is {status}"));
        }
        self.sent += POINTS;
        Ok(())
    }

    /// Reads an answer to its end. Returns its status.
    fn answer(&mut self) -> Result<u16, String> {
        let mut read = Vec::new();
        let mut byte = [0];
        while !read.ends_with(b"\r\n\r\n") {
            let count = self
                .stream
                .read(&mut byte)
                .map_err(|error| format!("reading: {error}"))?;
            if count == 0 {
                return Err("the connection was closed".to_owned());
            }
            read.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&read).to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.trim().parse().expect("a number"));
        let mut body = vec![0; length];
        self.stream
            .read_exact(&mut body)
            .map_err(|error| format!("reading: {error}"))?;
        let status = head.split(' ').nth(1).expect("a status line");
        Ok(status.parse().expect("a status"))
    }
}

fn request(numbers: std::ops::Range<u64>) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock")
        .as_nanos();
    let hits = numbers.end - numbers.start;
    let points: Vec<_> = numbers
        .map(|number| format!(r#"{{"asInt":"{number}","timeUnixNano":"{now}"}}"#))
        .collect();
    format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[
        {{"name":"n","gauge":{{"dataPoints":[{}]}}}},
        {{"name":"hits","sum":{{"aggregationTemporality":1,"isMonotonic":true,"dataPoints":[
            {{"asInt":"{hits}","timeUnixNano":"{now}"}}]}}}}]}}]}}]}}"#,
        points.join(",")
    )
}

/// A gateway whose configuration the test changes.
struct Live {
    gateway: Gateway,
    admin: u16,
}

impl Live {
    fn start(admin: u16, config: &str) -> Self {
        Self {
            gateway: Gateway::start(config),
            admin,
        }
    }

    /// The past reloads, newest first.
    fn reloads(&self) -> Vec<Value> {
        let answer = http::get(self.admin, "/api/v1/status/config").expect("an answer");
        let list = answer.json()["data"]["reloads"].take();
        serde_json::from_value(list).expect("a list")
    }

    /// The time of the start, in seconds since 1970, as `top` reads it.
    fn started(&self) -> f64 {
        let answer = http::get(self.admin, "/api/v1/status/graph").expect("an answer");
        answer.json()["data"]["started"].as_f64().expect("a number")
    }

    fn write(&self, config: &str) {
        fs::write(self.gateway.path("config.yaml"), config).expect("a file of the test");
    }

    /// Writes a configuration, sends SIGHUP, and returns the result of the reload.
    fn apply(&self, config: &str) -> Value {
        let last = self.reloads().first().cloned();
        self.write(config);
        self.gateway.signal(Signal::HUP);
        wait_for(SOON, "the reload is over", || {
            let newest = self.reloads().first().cloned();
            newest.filter(|newest| Some(newest) != last.as_ref())
        })
    }

    /// The same for one that must run. Returns the lines about changes.
    fn applies(&self, config: &str) -> Vec<String> {
        let result = self.apply(config);
        assert_eq!(result["success"], true, "{result}\n{config}");
        assert_eq!(result["cause"], "SIGHUP");
        serde_json::from_value(result["changed"].clone()).expect("lines")
    }

    /// The same for one that must not run. Returns the error.
    fn refuses(&self, config: &str) -> String {
        let result = self.apply(config);
        assert_eq!(result["success"], false, "{result}\n{config}");
        assert_eq!(
            self.gateway.own_metric("tidegate_config_reload_success", &[]),
            0.0
        );
        result["error"].as_str().expect("an error").to_owned()
    }
}

/// The parts of a configuration that differ.
#[derive(Clone, Copy)]
struct Variant {
    /// Options of the exporter to the sink.
    exporter: &'static str,
    /// Options of the aggregate.
    aggregate: &'static str,
    /// Options of the page.
    page: &'static str,
    /// Processors before the exporter.
    processors: &'static str,
    /// More pipelines.
    pipelines: &'static str,
}

const BASE: Variant = Variant {
    exporter: "",
    aggregate: "interval: 1s",
    page: "",
    processors: "",
    pipelines: "",
};

const VARIANTS: [Variant; 6] = [
    Variant {
        processors: "attributes",
        ..BASE
    },
    Variant {
        exporter: "timeout: 7s",
        ..BASE
    },
    Variant {
        aggregate: "interval: 2s",
        processors: "attributes",
        ..BASE
    },
    Variant {
        page: "const_labels: {cluster: a}",
        ..BASE
    },
    Variant {
        pipelines: "metrics/more: {receivers: [otlp], exporters: [debug]}",
        exporter: "timeout: 9s",
        ..BASE
    },
    BASE,
];

#[derive(Clone, Copy)]
struct Ports {
    input: u16,
    admin: u16,
    page: u16,
}

fn ports() -> Ports {
    Ports {
        input: free_port(),
        admin: free_port(),
        page: free_port(),
    }
}

fn config(ports: Ports, sink: &str, variant: Variant) -> String {
    let Ports { input, admin, page } = ports;
    let Variant {
        exporter,
        aggregate,
        page: of_page,
        processors,
        pipelines,
    } = variant;
    format!(
        "extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
processors:
  attributes: {{actions: [{{key: k, value: v, action: insert}}]}}
  aggregate:
    rules: [{{match: {{name: hits}}, instrument: counter, by: []}}]
    {aggregate}
exporters:
  debug: {{}}
  otlphttp: {{endpoint: \"{sink}\", {exporter}}}
  prometheus: {{endpoint: \"127.0.0.1:{page}\", {of_page}}}
service:
  extensions: [health_check, admin]
  pipelines:
    metrics: {{receivers: [otlp], processors: [{processors}], exporters: [otlphttp]}}
    metrics/page: {{receivers: [otlp], processors: [aggregate], exporters: [prometheus]}}
    {pipelines}
"
    )
}

/// The counter on the page; `None` while the page can't be read.
fn hits(page: u16) -> Option<u64> {
    let answer = http::get(page, "/metrics")
        .ok()
        .filter(|answer| answer.status == 200)?;
    let text = answer.text();
    let line = text.lines().find(|line| line.starts_with("hits_total"))?;
    let value: f64 = line.rsplit(' ').next()?.parse().ok()?;
    Some(value as u64)
}

/// How often each number arrived.
fn arrived(sink: &OtlpSink) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for point in sink.points_of("n") {
        *counts.entry(point.number() as u64).or_default() += 1;
    }
    counts
}

/// Whether all numbers below `sent` arrived, each once.
fn all_arrived(sink: &OtlpSink, sent: u64) -> bool {
    arrived(sink).len() as u64 == sent
}

#[test]
fn the_time_since_the_start_survives_reloads() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let live = Live::start(ports.admin, &config(ports, &sink.endpoint(), BASE));
    let started = live.started();
    for variant in &VARIANTS[..2] {
        live.applies(&config(ports, &sink.endpoint(), *variant));
        assert_eq!(live.started().to_bits(), started.to_bits());
    }
}

#[test]
fn reloads_under_load_lose_and_double_nothing_and_cut_no_connection() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let of = |variant| config(ports, &sink.endpoint(), variant);
    let live = Live::start(ports.admin, &of(BASE));
    let over = Arc::new(AtomicBool::new(false));
    let is_over = over.clone();
    let sending = thread::spawn(move || {
        let mut sender = Sender::connect(ports.input);
        while !is_over.load(SeqCst) {
            sender.send().unwrap_or_else(|why| panic!("{why}"));
        }
        sender.sent
    });
    let is_over = over.clone();
    let reading = thread::spawn(move || {
        let (mut last, mut reads) = (0, 0);
        while !is_over.load(SeqCst) {
            if let Some(now) = hits(ports.page) {
                assert!(now >= last, "the counter fell from {last} to {now}");
                (last, reads) = (now, reads + 1);
            }
        }
        reads
    });
    for _ in 0..3 {
        for variant in VARIANTS {
            let changes = live.applies(&of(variant));
            assert!(
                changes.iter().all(|line| !line.contains("receivers::")),
                "{changes:?}"
            );
            live.refuses("receivers: {otlp: {protocol: wrong}}");
        }
    }
    over.store(true, SeqCst);
    let sent = sending.join().expect("a sender without errors");
    assert!(reading.join().expect("a counter that does not fall") > 0);
    sink.wait_until("all arrived", |sink| all_arrived(sink, sent));
    let doubled: Vec<_> = arrived(&sink)
        .into_iter()
        .filter(|(_, count)| *count != 1)
        .collect();
    assert!(doubled.is_empty(), "numbers that arrived twice: {doubled:?}");
    wait_until(SOON, "the page has all hits", || hits(ports.page) == Some(sent));
    let gateway = &live.gateway;
    // Each request has one point of hits beside the numbers.
    let accepted = sent + sent / POINTS;
    assert_eq!(
        gateway.own_metric("otelcol_receiver_accepted_metric_points", &[]) as u64,
        accepted
    );
    assert_eq!(
        gateway.own_metric("tidegate_dropped_items_total", &["otlphttp"]),
        0.0
    );
    wait_until(SOON, "nothing is held", || {
        gateway.own_metric("tidegate_held_items", &["otlphttp"]) == 0.0
    });
    let delivered = gateway.own_metric(
        "tidegate_component_items_total",
        &["exporters::otlphttp", "flow=\"out\""],
    );
    assert_eq!(delivered as u64, accepted);
    live.gateway.stop();
}

#[test]
fn a_configuration_that_can_not_start_changes_nothing() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let of = |variant| config(ports, &sink.endpoint(), variant);
    let live = Live::start(ports.admin, &of(BASE));
    let mut sender = Sender::connect(ports.input);
    sender.send().expect("an answer");
    let pushed = r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"pushed","sum":{
        "aggregationTemporality":1,"isMonotonic":true,"dataPoints":[{"asInt":"3","timeUnixNano":"1"}]}}]}]}]}"#;
    let answer = http::post(ports.input, "/v1/metrics", "application/json", pushed.as_bytes());
    assert_eq!(answer.expect("an answer").status, 200);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("its address");
    let second = |kind: &str| {
        let listens = format!(
            "receivers:
  {kind}: {{protocols: {{http: {{endpoint: \"{taken}\"}}}}}}
"
        );
        of(BASE).replace("receivers:\n", &listens).replace(
            "receivers: [otlp], processors: []",
            &format!("receivers: [otlp, {kind}], processors: []"),
        )
    };
    let why = live.refuses(&second("otlp/second"));
    assert!(why.contains(&taken.to_string()), "{why}");
    sender.send().expect("the old connection");
    // A replaced receiver stops first, and is built again.
    let moved = of(BASE).replace(&format!("127.0.0.1:{}", ports.input), &taken.to_string());
    let why = live.refuses(&moved);
    assert!(why.contains(&taken.to_string()), "{why}");
    let mut sender = Sender {
        sent: sender.sent,
        ..Sender::connect(ports.input)
    };
    sender.send().expect("the old listener");
    let taken_page = of(BASE).replace(&format!("127.0.0.1:{}", ports.page), &taken.to_string());
    let why = live.refuses(&taken_page);
    assert!(why.contains(&taken.to_string()), "{why}");
    wait_until(SOON, "the page is back with all hits", || {
        hits(ports.page) == Some(sender.sent)
    });
    // Series that were pushed to the page are on it still, without another push.
    let pushed = http::get(ports.page, "/metrics").expect("a page").text();
    assert!(
        pushed.lines().any(|line| line.starts_with("pushed_total ")),
        "{pushed}"
    );
    // A limit of a configuration that does not run does not hold.
    let limited = taken_page
        .replace(
            "processors:\n",
            "processors:\n  memory_limiter: {check_interval: 1s, limit_mib: 1}\n",
        )
        .replace("processors: []", "processors: [memory_limiter]");
    live.refuses(&limited);
    sender.send().expect("memory is not short");
    let telemetry = of(BASE) + "  telemetry: {resource: {a: b}}\n";
    let why = live.refuses(&telemetry);
    assert!(
        why.contains("service::telemetry::resource can't change while the gateway runs"),
        "{why}"
    );
    let log = live.gateway.stderr().text();
    assert!(
        log.contains("SIGHUP: the new configuration does not run, the old one runs on:"),
        "{log}"
    );
    let admin = of(BASE).replace(&format!("{{endpoint: \"127.0.0.1:{}\"}}", ports.admin), "{}");
    let why = live.refuses(&admin);
    assert!(why.contains("extensions::admin"), "{why}");
    sender.send().expect("an answer");
    sink.wait_until("all arrived", |sink| all_arrived(sink, sender.sent));
    let lines = live.applies(&of(BASE));
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!(
        live.gateway.own_metric("tidegate_config_reload_success", &[]),
        1.0
    );
    live.gateway.stop();
}

#[test]
fn a_listener_moves_and_a_receiver_goes() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let of = |variant| config(ports, &sink.endpoint(), variant);
    let live = Live::start(ports.admin, &of(BASE));
    let mut sender = Sender::connect(ports.input);
    sender.send().expect("an answer");
    let moved = free_port();
    let lines = live.applies(&of(BASE).replace(
        &format!("127.0.0.1:{}", ports.input),
        &format!("127.0.0.1:{moved}"),
    ));
    assert_eq!(lines, ["rebuilt receivers::otlp"]);
    assert!(TcpStream::connect(("127.0.0.1", ports.input)).is_err());
    let mut sender = Sender {
        sent: sender.sent,
        ..Sender::connect(moved)
    };
    sender.send().expect("an answer");
    // Another id takes the port over.
    let renamed = of(BASE)
        .replace("  otlp: {protocols", "  otlp/renamed: {protocols")
        .replace("receivers: [otlp]", "receivers: [otlp/renamed]")
        .replace(
            &format!("127.0.0.1:{}", ports.input),
            &format!("127.0.0.1:{moved}"),
        );
    let lines = live.applies(&renamed);
    assert_eq!(
        lines,
        ["added receivers::otlp/renamed", "removed receivers::otlp"]
    );
    let mut sender = Sender {
        sent: sender.sent,
        ..Sender::connect(moved)
    };
    sender.send().expect("an answer");
    sink.wait_until("all arrived", |sink| all_arrived(sink, sender.sent));
    wait_until(SOON, "the page has all hits", || {
        hits(ports.page) == Some(sender.sent)
    });
    // What the removed receiver counted stays.
    let gateway = &live.gateway;
    let accepted =
        |receiver: &str| gateway.own_metric("otelcol_receiver_accepted_metric_points", &[receiver]) as u64;
    let all = accepted("receiver=\"otlp\"") + accepted("receiver=\"otlp/renamed\"");
    assert_eq!(all, sender.sent + sender.sent / POINTS);
    live.gateway.stop();
}

#[test]
fn ports_move_between_components_of_different_types() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let plain = config(ports, &sink.endpoint(), BASE);
    let live = Live::start(ports.admin, &plain);
    let mut sender = Sender::connect(ports.input);
    sender.send().expect("an answer");
    // A receiver and an exporter exchange their ports.
    let exchanged = Ports {
        input: ports.page,
        page: ports.input,
        ..ports
    };
    let lines = live.applies(&config(exchanged, &sink.endpoint(), BASE));
    assert_eq!(
        lines,
        ["rebuilt exporters::prometheus", "rebuilt receivers::otlp"]
    );
    let mut sender = Sender {
        sent: sender.sent,
        ..Sender::connect(exchanged.input)
    };
    sender.send().expect("an answer");
    wait_until(SOON, "the page has all hits", || {
        hits(exchanged.page) == Some(sender.sent)
    });
    // The port of an extension goes to a receiver, and back.
    let port = free_port();
    let zpages = plain
        .replace(
            "extensions: {admin",
            &format!("extensions: {{zpages: {{endpoint: \"127.0.0.1:{port}\"}}, admin"),
        )
        .replace("[health_check, admin]", "[health_check, admin, zpages]");
    let second =
        format!("receivers:\n  otlp/b: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\"}}}}}}\n");
    let receiver = plain.replace("receivers:\n", &second).replace(
        "metrics: {receivers: [otlp]",
        "metrics: {receivers: [otlp, otlp/b]",
    );
    live.applies(&zpages);
    let shows = || http::get(port, "/debug/servicez").is_ok_and(|answer| answer.status == 200);
    assert!(shows());
    let lines = live.applies(&receiver);
    assert_eq!(lines, ["added receivers::otlp/b", "removed extensions::zpages"]);
    Sender::connect(port).send().expect("an answer");
    live.applies(&zpages);
    assert!(shows());
    live.gateway.stop();
}

#[test]
fn gauges_of_removed_components_end_and_their_counts_stay() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let plain = config(ports, &sink.endpoint(), BASE);
    let more = plain.replace("processors: []", "processors: [attributes]");
    let live = Live::start(ports.admin, &more);
    Sender::connect(ports.input).send().expect("an answer");
    let shows = |metric: &str| {
        let is_meant = |line: &str| line.starts_with(metric) && line.contains("attributes@metrics\"");
        live.gateway.own_metrics().lines().any(is_meant)
    };
    assert!(shows("tidegate_held_items{"));
    let lines = live.applies(&plain);
    assert_eq!(lines, ["removed processors::attributes@metrics"]);
    wait_until(SOON, "its gauge ends", || !shows("tidegate_held_items{"));
    assert!(shows("tidegate_component_items_total{"));
    live.applies(&more);
    wait_until(SOON, "its gauge begins again", || shows("tidegate_held_items{"));
    live.gateway.stop();
}

/// The vendor's address is wrong. The operator mends it: the queue goes to the right address.
#[test]
fn a_queue_follows_the_mended_address_of_its_vendor() {
    for storage in [false, true] {
        let (ports, sink) = (ports(), OtlpSink::start());
        let of = |endpoint: &str| {
            let queue = if storage {
                "sending_queue: {storage: file_storage}, "
            } else {
                ""
            };
            let exporter = format!("otlphttp: {{endpoint: \"{endpoint}\", {queue}");
            let plain = config(ports, endpoint, BASE);
            plain
                .replace(&format!("otlphttp: {{endpoint: \"{endpoint}\", "), &exporter)
                .replace(
                    "extensions: {admin",
                    "extensions: {file_storage: {directory: state, create_directory: true}, admin",
                )
                .replace("[health_check, admin]", "[health_check, admin, file_storage]")
        };
        let dead = format!("http://127.0.0.1:{}", free_port());
        let live = Live::start(ports.admin, &of(&dead));
        let mut sender = Sender::connect(ports.input);
        for _ in 0..10 {
            sender.send().expect("an answer");
        }
        let held = || live.gateway.own_metric("tidegate_held_items", &["otlphttp"]) as u64;
        assert_eq!(held(), sender.sent + sender.sent / POINTS);
        let lines = live.applies(&of(&sink.endpoint()));
        assert_eq!(lines, ["rebuilt exporters::otlphttp"]);
        sender.send().expect("the connection of before");
        sink.wait_until("all arrived", |sink| all_arrived(sink, sender.sent));
        assert!(
            arrived(&sink).values().all(|count| *count == 1),
            "storage: {storage}"
        );
        wait_until(SOON, "nothing is held", || held() == 0);
        assert_eq!(
            live.gateway
                .own_metric("tidegate_dropped_items_total", &["otlphttp"]),
            0.0
        );
        live.gateway.stop();
    }
}

/// A change of the rules keeps the totals of the rules that stay, with `storage` and without.
#[test]
fn totals_of_unchanged_rules_survive_a_change_of_others() {
    let hits_rule = "{match: {name: hits}, instrument: counter, by: []}";
    for storage in [false, true] {
        let (ports, sink) = (ports(), OtlpSink::start());
        let of = |rules: &str| {
            let option = if storage {
                "    storage: file_storage\n"
            } else {
                ""
            };
            let config = config(ports, &sink.endpoint(), BASE).replace(
                &format!("    rules: [{hits_rule}]\n"),
                &format!("    rules: [{rules}]\n{option}"),
            );
            if !storage {
                return config;
            }
            config
                .replace(
                    "extensions: {admin",
                    "extensions: {file_storage: {directory: state, create_directory: true}, admin",
                )
                .replace("[health_check, admin]", "[health_check, admin, file_storage]")
        };
        let live = Live::start(ports.admin, &of(hits_rule));
        let mut sender = Sender::connect(ports.input);
        sender.send().expect("an answer");
        let more = format!("{hits_rule}, {{match: {{name: n}}, name: newest, instrument: gauge, by: []}}");
        let lines = live.applies(&of(&more));
        assert_eq!(lines, ["rebuilt processors::aggregate@metrics/page"]);
        assert_eq!(hits(ports.page), Some(sender.sent), "storage: {storage}");
        sender.send().expect("an answer");
        wait_until(SOON, "the page has all hits", || {
            hits(ports.page) == Some(sender.sent)
        });
        let newest = http::get(ports.page, "/metrics").expect("a page").text();
        assert!(newest.lines().any(|line| line.starts_with("newest ")), "{newest}");
        live.gateway.stop();
    }
}

#[test]
fn a_post_reloads_for_clients_that_authenticate() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let plain = config(ports, &sink.endpoint(), BASE);
    let guarded = plain
        .replace(
            "extensions: {admin: {",
            "extensions: {bearertokenauth: {token: secret}, admin: {auth: {authenticator: bearertokenauth}, ",
        )
        .replace("[health_check, admin]", "[health_check, bearertokenauth, admin]");
    let gateway = Gateway::start(&guarded);
    let post = |headers: &[(&str, &str)]| {
        http::request("POST", ports.admin, "/-/reload", headers, b"").expect("an answer")
    };
    assert_eq!(post(&[]).status, 401);
    let token = [("authorization", "Bearer secret")];
    // A change of what the admin extension uses would end its history.
    fs::write(
        gateway.path("config.yaml"),
        guarded.replace("token: secret", "token: other"),
    )
    .expect("a file of the test");
    let answer = post(&token);
    assert_eq!(answer.status, 500);
    let why = "extensions::bearertokenauth, which extensions::admin uses, can't change";
    assert!(answer.text().contains(why), "{}", answer.text());
    let get = http::request("GET", ports.admin, "/-/reload", &token, b"").expect("an answer");
    assert_eq!(get.status, 405);
    let changed = guarded.replace("processors: []", "processors: [attributes]");
    fs::write(gateway.path("config.yaml"), changed).expect("a file of the test");
    let answer = post(&token);
    assert_eq!(answer.status, 200);
    assert!(
        answer.text().contains("added processors::attributes@metrics"),
        "{}",
        answer.text()
    );
    fs::write(gateway.path("config.yaml"), "receivers: {otlp: {x: 1}}").expect("a file of the test");
    let answer = post(&token);
    assert_eq!(answer.status, 500);
    assert!(answer.text().contains("config.yaml:1"), "{}", answer.text());
    gateway.stop();
    let gateway = Gateway::start(&plain);
    let answer = post(&[]);
    assert_eq!(answer.status, 403);
    assert!(answer.text().contains("SIGHUP"), "{}", answer.text());
    gateway.stop();
}

#[test]
fn a_reload_that_waits_for_the_drain_of_another_one_is_logged() {
    let ports = ports();
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let first = config(ports, &nobody, BASE);
    let mut live = Live::start(ports.admin, &first);
    Sender::connect(ports.input).send().expect("the queue has room");
    // The exporter goes without a successor: it tries to send what it has.
    live.applies(&first.replace("exporters: [otlphttp]", "exporters: [debug]"));
    live.gateway.signal(Signal::HUP);
    let line = live.gateway.wait_for_log("a reload waits");
    assert!(line.contains("SIGHUP"), "{line}");
    live.gateway.stop();
}

#[test]
fn watched_files_are_applied_when_they_change() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let of = |variant| config(ports, &sink.endpoint(), variant);
    let mut gateway = Gateway::start_with(&of(BASE), |command| {
        command.arg("--watch-config");
    });
    let line = gateway.wait_for_log("watching the files of the configuration");
    assert!(line.contains("config.yaml") && line.contains("1s"), "{line}");
    let live = Live {
        gateway,
        admin: ports.admin,
    };
    live.write(&of(VARIANTS[0]));
    let result = wait_for(SOON, "the change is applied", || live.reloads().first().cloned());
    assert_eq!(result["cause"], "--watch-config");
    assert_eq!(
        result["changed"],
        serde_json::json!(["added processors::attributes@metrics"])
    );
    live.gateway.stop();
}
