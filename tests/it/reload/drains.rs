// SPDX-License-Identifier: Apache-2.0

//! What leaves a graph hands on what it holds before the components stop that take it.

use super::*;

/// Requests a round that wait in the queue on disk while the address is wrong.
const REQUESTS: u64 = 3;

/// `aggregate/first` keeps its state in memory and emits only at its stop. `aggregate` and the queue keep theirs on disk.
fn stored(ports: Ports, endpoint: &str, has_first: bool) -> String {
    let Ports { input, admin, page } = ports;
    let (first, interval) = if has_first {
        ("aggregate/first, ", "1s")
    } else {
        ("", "2s")
    };
    format!(
        "extensions:
  file_storage: {{directory: state, create_directory: true}}
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
processors:
  aggregate/first:
    interval: 1h
    rules: [{{match: {{name: hits}}, name: partial, instrument: counter, by: []}}]
  aggregate:
    interval: {interval}
    storage: file_storage
    rules:
      - {{match: {{name: partial}}, name: hits, instrument: counter, by: []}}
      - {{match: {{name: hits}}, name: hits, instrument: counter, by: []}}
exporters:
  otlphttp: {{endpoint: \"{endpoint}\", sending_queue: {{storage: file_storage}}}}
  prometheus: {{endpoint: \"127.0.0.1:{page}\"}}
service:
  extensions: [health_check, admin, file_storage]
  pipelines:
    metrics: {{receivers: [otlp], exporters: [otlphttp]}}
    metrics/page: {{receivers: [otlp], processors: [{first}aggregate], exporters: [prometheus]}}
"
    )
}

#[test]
fn removed_components_drain_into_an_aggregate_with_storage() {
    const ROUNDS: u64 = 4;
    let (ports, sink) = (ports(), OtlpSink::start());
    let dead = format!("http://127.0.0.1:{}", free_port());
    let (with_first, without) = (stored(ports, &dead, true), stored(ports, &sink.endpoint(), false));
    let live = Live::start(ports.admin, &with_first);
    let items = |component: &str, flow: &str| {
        let component = format!("component=\"{component}\"");
        let metric = "tidegate_component_items_total";
        live.gateway.own_metric(metric, &[&component, flow]) as u64
    };
    let held = |part: &str| live.gateway.own_metric("tidegate_held_items", &[part]) as u64;
    let mut sender = Sender::connect(ports.input);
    for round in 0..ROUNDS {
        if round > 0 {
            live.applies(&with_first);
        }
        for _ in 0..REQUESTS {
            sender.send().expect("an answer");
        }
        // Each request has one point of hits beside the numbers.
        assert_eq!(held("exporters::otlphttp"), REQUESTS * (POINTS + 1));
        let lines = live.applies(&without);
        let removed = "removed processors::aggregate/first@metrics/page".to_owned();
        assert!(lines.contains(&removed), "{lines:?}");
        wait_until(SOON, "the page has the hits that were in memory", || {
            hits(ports.page) == Some(sender.sent)
        });
        sender.send().expect("an answer");
        wait_until(SOON, "the queue is empty", || held("exporters::otlphttp") == 0);
    }
    sink.wait_until("all arrived", |sink| all_arrived(sink, sender.sent));
    wait_until(SOON, "the page has all hits", || {
        hits(ports.page) == Some(sender.sent)
    });
    let requests = sender.sent / POINTS;
    let accepted = sender.sent + requests;
    let (exporter, first) = ("exporters::otlphttp", "processors::aggregate/first@metrics/page");
    assert_eq!(items(exporter, "flow=\"in\""), accepted);
    assert_eq!(items(exporter, "flow=\"out\""), accepted);
    assert_eq!(items(exporter, "flow=\"restored\""), 0);
    assert_eq!(items(first, "flow=\"absorbed\""), ROUNDS * REQUESTS);
    assert_eq!(items(first, "flow=\"made\""), ROUNDS, "one last emission a round");
    // Of each last emission and of each request without `aggregate/first` comes one point.
    let absorbed = items("processors::aggregate@metrics/page", "flow=\"absorbed\"");
    assert_eq!(absorbed, ROUNDS + (requests - ROUNDS * REQUESTS));
    for component in ["processors::aggregate", exporter] {
        let dropped = live
            .gateway
            .own_metric("tidegate_dropped_items_total", &[component]);
        assert_eq!(dropped, 0.0, "{component}");
        assert_eq!(held(component), 0, "{component}");
    }
    assert!(all_arrived(&sink, sender.sent), "no number came late");
    live.gateway.stop();
}

/// Nobody succeeds the exporter, and nobody listens at its address before the reload.
#[test]
fn a_removed_exporter_sends_its_queue_before_it_ends() {
    let (ports, port) = (ports(), free_port());
    let quick = Variant {
        exporter: "retry_on_failure: {initial_interval: 10ms, max_interval: 50ms}",
        ..BASE
    };
    let first = config(ports, &format!("http://127.0.0.1:{port}"), quick);
    let live = Live::start(ports.admin, &first);
    let mut sender = Sender::connect(ports.input);
    for _ in 0..10 {
        sender.send().expect("an answer");
    }
    let accepted = sender.sent + sender.sent / POINTS;
    let held = || live.gateway.own_metric("tidegate_held_items", &["otlphttp"]) as u64;
    assert_eq!(held(), accepted);
    let lines = live.applies(&first.replace("exporters: [otlphttp]", "exporters: [debug]"));
    assert_eq!(lines, ["added exporters::debug", "removed exporters::otlphttp"]);
    let sink = OtlpSink::start_on(port);
    sink.wait_until("all arrived", |sink| all_arrived(sink, sender.sent));
    let items = |name: &str, labels: &[&str]| live.gateway.own_metric(name, labels) as u64;
    wait_until(SOON, "all count as sent", || {
        let labels = ["exporters::otlphttp", "flow=\"out\""];
        items("tidegate_component_items_total", &labels) == accepted
    });
    assert_eq!(items("tidegate_dropped_items_total", &["otlphttp"]), 0);
    live.gateway.stop();
}
