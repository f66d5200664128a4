// SPDX-License-Identifier: Apache-2.0

//! The peers themselves, without a gateway between: the reports of the drivers agree with the contents of rings, stores
//! and requests. Whole-gateway tests rest on this.

use super::kit::points::{Point, Value};
use super::kit::script::{NIXL_WHEELS, parse_exposition};
use super::kit::{
    Exporter, OtlpSink, Prometheus, Release, Script, Trouble, VictoriaMetrics, free_port, http,
    promtool_check, promtool_reads,
};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;
use tidegate_ring::{Batch, Event, KINDS, Layout, MpStore, Options, Poll, Reader, Writer};

/// Totals by NIXL's event names, errors by status, without what the driver can't know (times).
type Totals = BTreeMap<String, u64>;

fn reported(agent: &Json) -> Totals {
    let mut totals: Totals = numbers(agent).collect();
    totals.remove("transfers");
    totals.extend(numbers(&agent["errors"]));
    totals.retain(|_, total| *total > 0);
    totals
}

fn numbers(object: &Json) -> impl Iterator<Item = (String, u64)> {
    let fields = object.as_object().expect("an object").iter();
    fields.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?)))
}

fn totals_of_ring(path: &Path) -> Totals {
    let mut reader = Reader::open(path, Options::default()).expect("a ring");
    let mut batch = Batch::default();
    let polled = reader.read(&mut batch).expect("it is readable");
    assert!(matches!(polled, Poll::Events { .. }), "{polled:?}");
    let names = reader.names();
    let mut totals = Totals::new();
    for (kind, value) in batch.kinds.iter().zip(&batch.values) {
        let name = names.status(*kind).unwrap_or_else(|| names.name(*kind));
        *totals.entry(name.to_owned()).or_default() += value;
    }
    without_times(totals)
}

fn totals_of_store(store: &MpStore) -> Totals {
    let snapshot = store.snapshot().expect("it is readable");
    let known = KINDS.iter().zip(snapshot.counters);
    let totals = known.map(|(kind, total)| (kind.status.unwrap_or(kind.name).to_owned(), total));
    without_times(totals.filter(|(_, total)| *total > 0).collect())
}

/// Takes out the times, which must be there.
fn without_times(mut totals: Totals) -> Totals {
    for time in ["agent_xfer_time", "agent_xfer_post_time"] {
        assert!(totals.remove(time) > Some(0), "{time} is missing");
    }
    totals
}

fn rings_hold_what_agents_did(wheel: &str) {
    let rings = TempDir::new().expect("a temporary directory");
    let report = Script::nixl_rings(wheel, rings.path()).json();
    assert_eq!(report["wheel"], wheel);
    for name in ["agent_a", "agent_b"] {
        let agent = &report["agents"][name];
        assert!(agent["agent_tx_bytes"].as_u64() > Some(0), "{report}");
        assert_eq!(
            totals_of_ring(&rings.path().join(name)),
            reported(agent),
            "{wheel} {name}"
        );
    }
}

#[test]
fn rings_of_every_nixl_wheel_hold_what_its_agents_did() {
    for wheel in NIXL_WHEELS {
        rings_hold_what_agents_did(wheel);
    }
}

#[test]
fn stores_hold_what_living_agents_did() {
    let directory = TempDir::new().expect("a temporary directory");
    let (report, held) = Script::nixl_stores(directory.path()).args(["--hold"]).hold();
    let entries = directory.path().read_dir().expect("it is there");
    let paths = entries.map(|entry| entry.expect("it is there").path());
    let is_store = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "mmap");
    let stores: Vec<MpStore> = paths
        .filter(is_store)
        .map(|path| MpStore::open(path).expect("a store"))
        .collect();
    assert_eq!(stores.len(), 2);
    for store in &stores {
        let agent = &report["agents"][&store.identity().agent_name];
        assert_eq!(totals_of_store(store), reported(agent));
        assert!(store.alive().expect("its lock can be tried"));
    }
    held.release();
    assert!(!stores[0].alive().expect("its lock can be tried"));
}

#[test]
fn the_reader_of_the_newest_wheel_reads_a_ring_of_ours() {
    let directory = TempDir::new().expect("a temporary directory");
    let ring = directory.path().join("agent");
    let mut writer = Writer::create(&ring, Layout::V4, 64).expect("a ring");
    for kind in 0..21 {
        let event = Event {
            kind,
            value: 1000 + u64::from(kind),
            timestamp_us: 0,
        };
        assert!(writer.push(event));
    }
    writer.flush();
    let text = Script::nixl("read_ring_with_nixl_reader.py", "1.5.1")
        .args([ring.to_str().expect("a path of text"), "--events", "21"])
        .text();
    let said = |field: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(field));
        lines.map(str::to_owned).collect()
    };
    let names: Vec<&str> = KINDS[..21].iter().map(|kind| kind.name).collect();
    assert_eq!(said("Event name: "), names, "{text}");
    let values: Vec<String> = (1000..1021).map(|value| value.to_string()).collect();
    assert_eq!(said("Value: "), values, "{text}");
    assert_eq!(writer.unread(), 0, "it has consumed them");
}

/// The point as the driver describes it, for a comparison with the point that came.
pub(crate) fn expected(point: &Json, kind: &str, temporality: i32) -> Value {
    let value = || point["value"].as_f64().expect("a number");
    let list = |name: &str| point[name].as_array().expect("a list").iter();
    match kind {
        "gauge" => Value::Gauge(value()),
        "histogram" => Value::Histogram {
            count: point["count"].as_u64().expect("a number"),
            sum: point["sum"].as_f64(),
            min: point["min"].as_f64(),
            max: point["max"].as_f64(),
            bounds: list("bounds").filter_map(Json::as_f64).collect(),
            bucket_counts: list("bucket_counts").filter_map(Json::as_u64).collect(),
            temporality,
        },
        _ => Value::Sum {
            value: value(),
            monotonic: kind == "counter",
            temporality: if kind == "counter" { temporality } else { 2 },
        },
    }
}

/// The newest point that came with the attributes of `point`; requests may overtake each other on their way.
pub(crate) fn last_like<'a>(came: &'a [Point], point: &Json) -> &'a Point {
    let attributes = point["attributes"].as_object().expect("attributes");
    let same = |candidate: &&Point| {
        attributes.len() == candidate.attributes.len()
            && attributes
                .iter()
                .all(|(name, value)| candidate.attributes.get(name).map(String::as_str) == value.as_str())
    };
    came.iter()
        .filter(same)
        .max_by_key(|candidate| candidate.time_ns)
        .unwrap_or_else(|| panic!("{point} is not among {came:?}"))
}

fn the_sdk_pushes_its_values(protocol: &str, temporality: &str) {
    let sink = OtlpSink::start();
    let endpoint = sink.endpoint();
    let report = Script::new("otel_push.py")
        .args([
            "--protocol",
            protocol,
            "--endpoint",
            &endpoint,
            "--compression",
            "gzip",
        ])
        .args(["--temporality", temporality, "--flushes", "2"])
        .json();
    assert_eq!(sink.attempts(), 2);
    let number = if temporality == "delta" { 1 } else { 2 };
    let metrics = report["metrics"].as_array().expect("metrics");
    assert_eq!(metrics.len(), 5);
    for metric in metrics {
        let came = sink.points_of(metric["name"].as_str().expect("a name"));
        for point in metric["points"].as_array().expect("points") {
            let last = last_like(&came, point);
            let kind = metric["kind"].as_str().expect("a kind");
            assert_eq!(last.value, expected(point, kind, number), "{last:?}");
            assert_eq!(metric["unit"], last.unit);
            assert_eq!(last.attribute("service.name"), "pusher");
        }
    }
}

#[test]
fn the_python_sdk_pushes_metrics_as_it_says() {
    for (protocol, temporality) in [("grpc", "cumulative"), ("http", "delta")] {
        the_sdk_pushes_its_values(protocol, temporality);
    }
}

#[test]
fn the_python_sdk_pushes_traces_and_logs() {
    let sink = OtlpSink::start();
    let endpoint = sink.endpoint();
    for (protocol, signal) in [("grpc", "traces"), ("http", "logs")] {
        Script::new("otel_push.py")
            .args(["--protocol", protocol, "--endpoint", &endpoint])
            .args(["--signal", signal])
            .json();
    }
    let traces = sink.traces();
    let span = &traces[0].resource_spans[0].scope_spans[0].spans[0];
    assert_eq!((&*span.name, span.events.len()), ("answer 0", 1));
    let logs = sink.logs();
    let record = &logs[0].resource_logs[0].scope_logs[0].log_records[0];
    assert_eq!(&*record.severity_text, "WARN");
}

#[test]
fn the_sdk_driver_fails_when_the_endpoint_refuses() {
    let sink = OtlpSink::start();
    sink.trouble([Trouble::INVALID]);
    let script = Script::new("otel_push.py");
    let endpoint = sink.endpoint();
    let refused = script
        .args(["--protocol", "http", "--endpoint", &endpoint])
        .text_from(b"");
    let message = refused.expect_err("it is refused");
    assert!(message.contains("1 of 1 requests were not accepted"), "{message}");
}

#[test]
fn a_prometheus_server_answers_and_knows_a_target_that_is_down() {
    let unused = free_port();
    let server = Prometheus::scraping(&[unused]);
    assert_eq!(server.value("sum(vector(1) + 1)"), Some(2.0));
    assert_eq!(server.query("3")[0].value, 3.0);
    assert_eq!(server.value("nothing_of_that_name"), None);
    server.wait_for_value("up{job=\"tidegate\"}", 0.0);
    assert_eq!(server.targets()[0]["health"], "down");
}

#[test]
fn both_prometheus_servers_scrape_the_node_exporter_and_the_pushgateway() {
    let (node, gateway) = (Exporter::node(), Exporter::pushgateway());
    gateway.push("job/batch/instance/a", "# TYPE jobs counter\njobs 3\n");
    let targets = format!("['127.0.0.1:{}', '127.0.0.1:{}']", node.port(), gateway.port());
    for release in Release::ALL {
        let server = Prometheus::start_release(
            release,
            &format!(
                "global: {{{}scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs: [{{job_name: peers, honor_labels: true, static_configs: [{{targets: {targets}}}]}}]
",
                release.native_histograms()
            ),
        );
        server.wait_for_value("jobs{job=\"batch\", instance=\"a\"}", 3.0);
        server.wait_for_value("count(node_load1)", 1.0);
        server.wait_for_scrape();
        assert_eq!(server.metadata("jobs")[0]["type"], "counter", "{release:?}");
    }
}

#[test]
fn the_newest_prometheus_knows_names_of_any_character() {
    let gateway = Exporter::pushgateway();
    gateway.push("job/batch", "# TYPE \"a.b\" gauge\n{\"a.b\",\"c.d\"=\"e\"} 3\n");
    let server = Prometheus::start_release(
        Release::Newest,
        &format!(
            // It asks for such names in the text formats only.
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms, scrape_protocols: [PrometheusText1.0.0]}}
scrape_configs: [{{job_name: peers, static_configs: [{{targets: ['127.0.0.1:{}']}}]}}]
",
            gateway.port()
        ),
    );
    server.wait_for_value("{\"a.b\", \"c.d\"=\"e\"}", 3.0);
}

#[test]
fn victoria_metrics_answers_what_it_was_given() {
    let server = VictoriaMetrics::start();
    let page = "a{b=\"c\"} 1.5\n";
    let taken = http::post(
        server.port(),
        "/api/v1/import/prometheus",
        "text/plain",
        page.as_bytes(),
    );
    assert_eq!(taken.expect("it answers").status, 204);
    server.flush();
    server.wait_for_value("a{b=\"c\"}", 1.5);
    assert_eq!(server.export("a")[0]["values"][0], 1.5);
}

#[test]
fn parsers_tell_good_expositions_from_bad_ones() {
    let good = "# HELP a_total Help.\n# TYPE a_total counter\na_total{b=\"c\"} 1\n";
    assert_eq!(promtool_check(good), Ok(()));
    let families = parse_exposition("text", good).expect("it is valid");
    assert_eq!(families[0]["samples"][0]["labels"]["b"], "c");
    let twice = "# TYPE a counter\na 1\n# TYPE a counter\na 2\n";
    assert!(promtool_check(twice).is_err());
    for release in Release::ALL {
        let unusual = "# TYPE a counter\na 1\n";
        assert_eq!(promtool_reads(release, unusual), Ok(()), "{release:?}");
        assert!(promtool_reads(release, twice).is_err(), "{release:?}");
    }
    assert!(parse_exposition("text", twice).is_err());
    let open = "# TYPE a counter\na_total 1 # {trace_id=\"x\"} 0.5\n# EOF\n";
    let families = parse_exposition("openmetrics", open).expect("it is valid");
    assert_eq!(families[0]["samples"][0]["exemplar"]["value"], 0.5);
    assert!(parse_exposition("openmetrics", "a 1\n").is_err(), "no # EOF");
}
