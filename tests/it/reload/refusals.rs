// SPDX-License-Identifier: Apache-2.0

//! Configurations that can't run, after which the old one runs on.

use super::state::with_durable_totals;
use super::*;
use std::net::TcpListener;

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
    let mut sender = sender.reconnected(ports.input);
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

/// One edit changes a rule and moves a listener to a port that is in use. The listener is the last to start.
fn leaves_totals(durable: impl Fn(&str) -> String) {
    let (ports, sink) = (ports(), OtlpSink::start());
    let base = durable(&config(ports, &sink.endpoint(), BASE));
    let live = Live::start(ports.admin, &base);
    let mut sender = Sender::connect(ports.input);
    sender.send().expect("an answer");
    has_total(ports, sender.sent);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = listener.local_addr().expect("its address").to_string();
    let renamed = base.replace("{name: hits}, ", "{name: hits}, name: strokes, ");
    assert_ne!(renamed, base);
    for _ in 0..2 {
        let why = live.refuses(&renamed.replace(&format!("127.0.0.1:{}", ports.input), &taken));
        assert!(why.contains(&taken), "{why}");
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
fn a_configuration_that_can_not_start_leaves_the_totals_of_rules_that_it_changes() {
    leaves_totals(str::to_owned);
}

#[test]
fn a_configuration_that_can_not_start_leaves_the_stored_totals_of_rules_that_it_changes() {
    leaves_totals(with_durable_totals);
}
