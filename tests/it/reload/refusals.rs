// SPDX-License-Identifier: Apache-2.0

//! Configurations that can't run, after which the old one runs on.

use super::state::with_durable_totals;
use super::*;
use std::net::TcpListener;

/// A user that does not exist.
const NOBODY: &str = "nobody-has-this-name";

/// A configuration with a socket instead of an address. No check finds fault with it, and it can't start: its owner does not
/// exist.
fn unstartable(live: &Live, config: &str, port: u16) -> String {
    let address = format!("endpoint: \"127.0.0.1:{port}\"");
    assert!(config.contains(&address), "{config}");
    let socket = live.gateway.path("late.sock");
    let listens = format!(
        "endpoint: \"unix:{}\", socket: {{owner: {NOBODY}}}",
        socket.display()
    );
    config.replace(&address, &listens)
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
    // Taken addresses and unusable certificates are found before anything stops.
    let input = format!("127.0.0.1:{}", ports.input);
    let moved = of(BASE).replace(&input, &taken.to_string());
    let why = live.refuses(&moved);
    assert!(why.contains(&taken.to_string()), "{why}");
    let twice = second("otlp/second").replace(&taken.to_string(), &input);
    let why = live.refuses(&twice);
    assert!(why.contains("listens there too"), "{why}");
    let tls = "tls: {cert_file: /nonexistent/a.pem, key_file: /nonexistent/a.pem}";
    let unsafe_input = of(BASE).replace(&format!("{input}\""), &format!("{input}\", {tls}"));
    let why = live.refuses(&unsafe_input);
    assert!(why.contains("/nonexistent/a.pem"), "{why}");
    sender.send().expect("the old connection");
    // A replaced receiver stops first, and is built again.
    let why = live.refuses(&unstartable(&live, &of(BASE), ports.input));
    assert!(why.contains(NOBODY), "{why}");
    let mut sender = sender.reconnected(ports.input);
    sender.send().expect("the old listener");
    let unstartable_page = unstartable(&live, &of(BASE), ports.page);
    let why = live.refuses(&unstartable_page);
    assert!(why.contains(NOBODY), "{why}");
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
    let limited = unstartable_page
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
    wait_until(SOON, "the log says that it is the same", || {
        live.gateway.stderr().find("nothing has changed").is_some()
    });
    live.gateway.stop();
}

/// Its first listener runs already when the second one fails.
#[test]
fn a_receiver_with_two_listeners_is_back_after_each_failed_start() {
    let (ports, sink, grpc) = (ports(), OtlpSink::start(), free_port());
    let protocols = format!("protocols: {{grpc: {{endpoint: \"127.0.0.1:{grpc}\"}}, ");
    let base = config(ports, &sink.endpoint(), BASE).replace("protocols: {", &protocols);
    let live = Live::start(ports.admin, &base);
    let second_fails = unstartable(&live, &base, ports.input);
    let mut sender = Sender::connect(ports.input);
    for _ in 0..10 {
        let why = live.refuses(&second_fails);
        assert!(why.contains(NOBODY), "{why}");
        sender = sender.reconnected(ports.input);
        sender.send().expect("the old listener");
        TcpStream::connect(("127.0.0.1", grpc)).expect("the old listener of gRPC");
    }
    let log = live.gateway.stderr().text();
    assert!(!log.contains("could not be restored"), "{log}");
    sink.wait_until("all arrived", |sink| all_arrived(sink, sender.sent));
    live.gateway.stop();
}

/// How often each number is in the lines of a file.
fn numbers_in(path: &std::path::Path) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    let text = fs::read_to_string(path).unwrap_or_default();
    // The gateway may be writing the last line.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines() {
        let request: Value = serde_json::from_str(line).expect("a whole line of JSON");
        let metrics: Vec<_> =
            ["resourceMetrics", "scopeMetrics", "metrics"]
                .iter()
                .fold(vec![&request], |of, key| {
                    let lists = of.into_iter().filter_map(|one| one[*key].as_array());
                    lists.flatten().collect()
                });
        for point in metrics
            .iter()
            .filter_map(|metric| metric["gauge"]["dataPoints"].as_array())
            .flatten()
        {
            let number = point["asInt"]
                .as_str()
                .expect("a number")
                .parse()
                .expect("a number");
            *counts.entry(number).or_default() += 1;
        }
    }
    counts
}

#[test]
fn a_file_keeps_its_lines_across_failed_starts_and_all_reloads() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let of = |path: &str, options: &str| {
        let exporter = format!("  file: {{path: \"{path}\", flush_interval: 0s{options}}}\n  debug:");
        let plain = config(ports, &sink.endpoint(), BASE);
        plain
            .replace("  debug:", &exporter)
            .replace("exporters: [otlphttp]", "exporters: [otlphttp, file]")
    };
    let live = Live::start(ports.admin, &of("out.jsonl", ""));
    let path = live.gateway.path("out.jsonl");
    let mut sender = Sender::connect(ports.input);
    let wait_for_file = |sent| {
        wait_until(SOON, "the file has all numbers", || {
            numbers_in(&path).len() as u64 == sent
        });
    };
    let mut send = || {
        sender.send().expect("an answer");
        wait_for_file(sender.sent);
    };
    send();
    // A second gateway with the same file.
    let more = format!(
        "receivers: {{nop: {{}}}}
exporters: {{file: {{path: \"{}\"}}}}
service: {{pipelines: {{metrics: {{receivers: [nop], exporters: [file]}}}}}}",
        path.display()
    );
    let (code, said) = Gateway::launch(&more, |_| {}).wait(SOON);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("another process writes this file: choose another path"),
        "{said}"
    );
    send();
    // The exporter is built again, and another component can't start.
    let changed = of("out.jsonl", ", mode: \"0640\"");
    let why = live.refuses(&unstartable(&live, &changed, ports.page));
    assert!(why.contains(NOBODY), "{why}");
    send();
    let why = live.refuses(&of("out.jsonl", ", format: proto"));
    assert!(why.contains("another format or compression"), "{why}");
    send();
    // An option changes, and then only the pipelines.
    assert_eq!(live.applies(&changed), ["rebuilt exporters::file"]);
    send();
    let logs = "    logs: {receivers: [otlp], exporters: [file]}\n";
    let lines = live.applies(&(changed.clone() + logs));
    assert!(lines.contains(&"rebuilt exporters::file".to_owned()), "{lines:?}");
    // The receiver has got a signal, and closes its connections.
    let mut sender = sender.reconnected(ports.input);
    sender.send().expect("an answer");
    wait_for_file(sender.sent);
    // Another file, and the first one again.
    live.applies(&of("other.jsonl", ""));
    let mut sender = sender.reconnected(ports.input);
    live.applies(&of("out.jsonl", ""));
    sender.send().expect("an answer");
    wait_for_file(sender.sent);
    let doubled: Vec<_> = numbers_in(&path)
        .into_iter()
        .filter(|(_, count)| *count != 1)
        .collect();
    assert!(doubled.is_empty(), "numbers that are there twice: {doubled:?}");
    live.gateway.stop();
}

/// Checks that the page and a query have the same total of the hits.
fn has_total(ports: Ports, total: u64) {
    assert_eq!(hits(ports.page), Some(total));
    let answer = http::get(ports.admin, "/api/v1/query?query=sum(hits_total)");
    let answer = answer.expect("an answer").json();
    let shown = &answer["data"]["result"][0]["value"][1];
    assert_eq!(shown.as_str(), Some(total.to_string().as_str()), "{answer}");
}

/// One edit changes a rule and a listener that can't start. The listener is the last to start.
fn leaves_totals(durable: impl Fn(&str) -> String) {
    let (ports, sink) = (ports(), OtlpSink::start());
    let base = durable(&config(ports, &sink.endpoint(), BASE));
    let live = Live::start(ports.admin, &base);
    let mut sender = Sender::connect(ports.input);
    sender.send().expect("an answer");
    has_total(ports, sender.sent);
    let renamed = base.replace("{name: hits}, ", "{name: hits}, name: strokes, ");
    assert_ne!(renamed, base);
    for _ in 0..2 {
        let why = live.refuses(&unstartable(&live, &renamed, ports.input));
        assert!(why.contains(NOBODY), "{why}");
        has_total(ports, sender.sent);
    }
    let mut sender = sender.reconnected(ports.input);
    sender.send().expect("the old listener");
    wait_until(SOON, "the page has all hits", || {
        hits(ports.page) == Some(sender.sent)
    });
    has_total(ports, sender.sent);
    live.gateway.stop();
}

#[test]
fn a_failed_start_leaves_the_totals_of_rules_that_it_changes() {
    leaves_totals(str::to_owned);
}

#[test]
fn a_failed_start_leaves_the_stored_totals_of_changed_rules() {
    leaves_totals(with_durable_totals);
}
