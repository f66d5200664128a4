// SPDX-License-Identifier: Apache-2.0

//! Counts, gauges, queues and totals across a reload.

use super::*;
use crate::kit::keda::Keda;
use crate::kit::{Ledgers, Repeated};
use std::io::{BufRead, BufReader};

/// A configuration with an extension that stores in a directory of the gateway.
pub(super) fn with_storage(config: &str) -> String {
    config
        .replace(
            "extensions: {admin",
            "extensions: {file_storage: {directory: state, create_directory: true}, admin",
        )
        .replace("[health_check, admin]", "[health_check, admin, file_storage]")
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

/// A line of debug about the start of a processor.
const STARTING: &str = "starting component=processors::attributes@metrics";

/// A configuration with options of the gateway's own telemetry.
fn with_telemetry(config: &str, options: &str) -> String {
    format!("{config}  telemetry: {{{options}}}\n")
}

#[test]
fn the_level_of_the_command_line_outlasts_reloads() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let plain = config(ports, &sink.endpoint(), BASE);
    let more = plain.replace("processors: []", "processors: [attributes]");
    let gateway = Gateway::start_with(&plain, |command| {
        command.arg("--verbose");
    });
    let live = Live {
        gateway,
        admin: ports.admin,
    };
    let level = "logs: {level: warn}";
    let changed = live.applies(&with_telemetry(&plain, level));
    assert!(changed.is_empty(), "{changed:?}");
    live.applies(&with_telemetry(&more, level));
    wait_until(SOON, "the log has a line of debug", || {
        live.gateway.stderr().find(STARTING).is_some()
    });
    live.gateway.stop();
}

/// A failed reload leaves the level of the log as it is, whatever else its configuration changes.
#[test]
fn the_level_of_the_log_changes_with_a_reload_that_succeeds() {
    const LEVEL: &str = "changed service::telemetry::logs::level";
    let (ports, sink) = (ports(), OtlpSink::start());
    let plain = config(ports, &sink.endpoint(), BASE);
    let more = plain.replace("processors: []", "processors: [attributes]");
    let debug = |config: &str| with_telemetry(config, "logs: {level: debug}");
    let live = Live::start(ports.admin, &plain);
    let logged = |part: &str| live.gateway.stderr().text().matches(part).count();
    let mut reloads = 0;
    // What a reload changes, and how often the processor has started with a line of debug so far.
    let mut applied = |config: &str| {
        let changed = live.applies(config);
        reloads += 1;
        wait_until(SOON, "the log has the reload", || {
            logged("the new configuration runs") == reloads
        });
        (changed.join(", "), logged(STARTING))
    };
    let expected = |changed: &str, lines: usize| (changed.to_owned(), lines);
    let (added, removed) = (
        "added processors::attributes@metrics",
        "removed processors::attributes@metrics",
    );
    assert_eq!(applied(&more), expected(added, 0));
    let why = live.refuses(&with_telemetry(&more, "logs: {level: debug}, resource: {a: b}"));
    let part = "service::telemetry::resource can't change while the gateway runs";
    assert!(why.contains(part), "{why}");
    assert_eq!(applied(&plain), expected(removed, 0));
    assert_eq!(applied(&more), expected(added, 0));
    assert_eq!(applied(&debug(&more)), expected(LEVEL, 0));
    assert_eq!(applied(&debug(&plain)), expected(removed, 0));
    assert_eq!(applied(&debug(&more)), expected(added, 1));
    assert_eq!(applied(&more), expected(LEVEL, 1));
    assert_eq!(applied(&plain), expected(removed, 1));
    assert_eq!(applied(&more), expected(added, 1));
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
            with_storage(&plain.replace(&format!("otlphttp: {{endpoint: \"{endpoint}\", "), &exporter))
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
        wait_until(SOON, "nothing is held", || held() == 0);
        assert!(all_arrived(&sink, sender.sent), "storage: {storage}");
        assert_eq!(
            live.gateway
                .own_metric("tidegate_dropped_items_total", &["otlphttp"]),
            0.0
        );
        live.gateway.stop();
    }
}

/// The rule of the aggregate.
const HITS_RULE: &str = "{match: {name: hits}, instrument: counter, by: []}";

/// A configuration with one more rule, for the newest number.
fn with_newest(config: &str) -> String {
    let more = format!("{HITS_RULE}, {{match: {{name: n}}, name: newest, instrument: gauge, by: []}}");
    let changed = config.replace(HITS_RULE, &more);
    assert_ne!(changed, config);
    changed
}

/// A configuration whose aggregate keeps its state on disk.
pub(super) fn with_durable_totals(config: &str) -> String {
    with_storage(&config.replace("  aggregate:\n", "  aggregate:\n    storage: file_storage\n"))
}

/// A change of the rules keeps the totals of the rules that stay, with `storage` and without.
#[test]
fn totals_of_unchanged_rules_survive_a_change_of_others() {
    for storage in [false, true] {
        let (ports, sink) = (ports(), OtlpSink::start());
        let plain = config(ports, &sink.endpoint(), BASE);
        let base = if storage {
            with_durable_totals(&plain)
        } else {
            plain
        };
        let live = Live::start(ports.admin, &base);
        let mut sender = Sender::connect(ports.input);
        sender.send().expect("an answer");
        let lines = live.applies(&with_newest(&base));
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

/// A configuration with the composite `recent` of the hits, whose windows are on disk.
fn with_durable_composite(config: &str) -> String {
    let options =
        "storage: file_storage, composites: [{name: recent, metric: hits, function: sum, window: 1h}]";
    config
        .replace(
            "  aggregate:\n",
            &format!("  composite: {{{options}}}\n  aggregate:\n"),
        )
        .replace("[aggregate]", "[composite, aggregate]")
}

/// The trigger of a scaler that reads the composite `recent`.
const TRIGGER: [(&str, &str); 2] = [("composite", "recent"), ("target", "1")];

/// An error with the answer, if the condition does not hold.
fn holds(is_right: bool, answer: impl std::fmt::Debug) -> Result<(), String> {
    if is_right {
        Ok(())
    } else {
        Err(format!("{answer:?}"))
    }
}

/// Readers of the total of the hits, by every way to it. Each fails if an answer lacks the total, or has it twice.
fn readers_of(ports: Ports, total: u64) -> Vec<Repeated> {
    let mut keda = Keda::at(ports.admin);
    let page = move || {
        // The listener of the page moves to another instance.
        let shown = hits(ports.page);
        holds(shown.is_none_or(|shown| shown == total), shown)
    };
    let query = move || {
        let answer = http::get(ports.admin, "/api/v1/query?query=sum(hits_total)");
        let answer = answer.expect("an answer").json();
        let value = &answer["data"]["result"][0]["value"][1];
        holds(value.as_str() == Some(total.to_string().as_str()), &answer)
    };
    let composite = move || {
        let answer = http::get(ports.admin, "/api/v1/composites/recent").expect("an answer");
        let is_right = answer.status == 200 && answer.json()[0]["value"] == total as f64;
        holds(is_right, answer.text())
    };
    let list = move || {
        let answer = http::get(ports.admin, "/api/v1/composites").expect("an answer");
        let sets = answer.json();
        let sets = sets.as_array().expect("a list").iter();
        let mut named = sets.filter(|set| set["name"] == "recent");
        let is_one = named.next().is_some_and(|set| set["value"] == total as f64) && named.next().is_none();
        holds(is_one, answer.text())
    };
    let scaler = move || {
        let value = keda.metric(&TRIGGER);
        holds(value == Ok(total as f64), value)
    };
    vec![
        Repeated::start("the page", page),
        Repeated::start("the query", query),
        Repeated::start("the composite", composite),
        Repeated::start("the list of composites", list),
        Repeated::start("KEDA", scaler),
    ]
}

/// The reload starts a page before the aggregate whose table it shows. Readers never miss or double the totals meanwhile, and
/// always find the composite once.
#[test]
fn pages_and_queries_keep_the_totals_while_their_components_are_replaced() {
    for storage in [false, true] {
        let (ports, sink) = (ports(), OtlpSink::start());
        let of = |page| {
            let plain = config(ports, &sink.endpoint(), Variant { page, ..BASE });
            let durable = if storage {
                with_durable_totals(&plain)
            } else {
                with_storage(&plain)
            };
            with_durable_composite(&durable)
        };
        let live = Live::start(ports.admin, &of(""));
        let mut sender = Sender::connect(ports.input);
        sender.send().expect("an answer");
        let mut readers = readers_of(ports, sender.sent);
        for _ in 0..3 {
            let other = of("const_labels: {cluster: a}").replace("window: 1h", "window: 2h");
            let lines = live.applies(&with_newest(&other));
            let expected = [
                "rebuilt exporters::prometheus",
                "rebuilt processors::aggregate@metrics/page",
                "rebuilt processors::composite@metrics/page",
            ];
            assert_eq!(lines, expected);
            assert_eq!(hits(ports.page), Some(sender.sent), "the page is there");
            readers.iter_mut().for_each(Repeated::wait_for_run);
            live.applies(&of(""));
            assert_eq!(hits(ports.page), Some(sender.sent), "the page is there");
            readers.iter_mut().for_each(Repeated::wait_for_run);
        }
        for reader in readers {
            assert!(reader.stop() >= 6, "a run for each reload");
        }
        sender.send().expect("the connection of before");
        wait_until(SOON, "the page has all hits", || {
            hits(ports.page) == Some(sender.sent)
        });
        assert_eq!(Keda::at(ports.admin).metric(&TRIGGER), Ok(sender.sent as f64));
        sink.wait_until("all arrived", |sink| all_arrived(sink, sender.sent));
        let ledgers = Ledgers::at_rest(&live.gateway, live.admin);
        // Each request has one point of hits beside the numbers.
        let accepted = sender.sent + sender.sent / POINTS;
        assert_eq!(ledgers.of("receivers::otlp", "metrics"), [("accepted", accepted)]);
        assert_eq!(
            ledgers.of("exporters::otlphttp", "metrics"),
            [("in", accepted), ("out", accepted)]
        );
        assert_eq!(live.gateway.own_metric("tidegate_dropped_items_total", &[]), 0.0);
        assert!(all_arrived(&sink, sender.sent), "no number came late");
        live.gateway.stop();
    }
}

/// The answer to a query of the counter at a moment, in seconds since 1970.
fn asked_at(admin: u16, time: f64) -> Value {
    let path = format!("/api/v1/query?query=hits_total&time={time:.3}");
    http::get(admin, &path).expect("an answer").json()
}

/// The counter at a moment; `None` if it was not there, or if the past of that moment is not complete.
///
/// # Panics
/// If the query fails, or finds another series.
fn hits_at(admin: u16, time: f64) -> Option<String> {
    let answer = asked_at(admin, time);
    assert_eq!(answer["status"], "success", "{answer}");
    if !answer["warnings"].is_null() {
        return None;
    }
    let result = answer["data"]["result"].as_array().expect("a vector");
    let series = result.first()?;
    assert_eq!(result.len(), 1, "{answer}");
    assert_eq!(series["metric"], serde_json::json!({"__name__": "hits_total"}));
    Some(series["value"][1].as_str().expect("a value").to_owned())
}

/// Reads lines of a stream until one has a text.
fn read_until(events: &mut impl BufRead, text: &str) {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        let count = events.read_line(&mut line).expect("an event");
        assert!(count > 0, "the stream ended before {text}");
    }
}

/// Reads the rest of a stream.
///
/// # Panics
/// If the gateway does not end it.
fn read_to_end(events: &mut impl BufRead) {
    let mut rest = String::new();
    events.read_to_string(&mut rest).expect("the end of the stream");
}

#[test]
fn windows_histories_and_watchers_of_unchanged_parts_go_on() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let of = |exporter| {
        let plain = config(ports, &sink.endpoint(), Variant { exporter, ..BASE });
        let composite = "composite: {composites: [{name: recent, metric: hits, function: sum, window: 1m}]}";
        plain
            .replace("admin: {", "admin: {history: {interval: 100ms}, ")
            .replace("  aggregate:\n", &format!("  {composite}\n  aggregate:\n"))
            .replace("[aggregate]", "[composite, aggregate]")
    };
    let live = Live::start(ports.admin, &of(""));
    let watch = || {
        let mut watch = TcpStream::connect(("127.0.0.1", ports.admin)).expect("a listener");
        watch.set_read_timeout(Some(SOON)).expect("a timeout");
        watch
            .write_all(
                b"GET /api/v1/composites/recent/watch HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
            )
            .expect("a request");
        BufReader::new(watch)
    };
    let mut events = watch();
    let mut sender = Sender::connect(ports.input);
    sender.send().expect("an answer");
    read_until(&mut events, "\"value\":5.0");
    let before = wait_for(SOON, "the past has the first hits", || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
        let now = now.as_secs_f64();
        // Without any sample, no moment is before the history.
        let warnings = asked_at(ports.admin, now - 3600.0)["warnings"].to_string();
        let has_samples = warnings.contains("history");
        let recent = now - 0.5;
        (has_samples && hits_at(ports.admin, recent)? == "5").then_some(recent)
    });

    assert_eq!(live.applies(&of("timeout: 7s")), ["rebuilt exporters::otlphttp"]);
    sender.send().expect("an answer");
    // The watcher has the same connection, and the window has the hits of both requests.
    read_until(&mut events, "\"value\":10.0");
    wait_until(SOON, "the page has all hits", || {
        hits(ports.page) == Some(sender.sent)
    });
    let after = asked_at(ports.admin, before);
    assert_eq!(hits_at(ports.admin, before).as_deref(), Some("5"), "{after}");

    // Another composite of the processor changes neither.
    let other = "window: 1m}, {name: other, metric: hits, function: sum, window: 1m}]";
    let more = of("timeout: 7s").replace("window: 1m}]", other);
    assert_eq!(
        live.applies(&more),
        ["rebuilt processors::composite@metrics/page"]
    );
    sender.send().expect("an answer");
    read_until(&mut events, "\"value\":15.0");

    // The watch of a composite that a reload replaces ends. A new one is that of its successor.
    let replaced = of("timeout: 7s").replace("window: 1m", "window: 2m");
    live.applies(&replaced);
    read_until(&mut events, "event: ended");
    read_until(&mut events, "watch again");
    read_to_end(&mut events);
    let mut events = watch();
    sender.send().expect("an answer");
    read_until(&mut events, "\"value\":5.0");

    // The watch of a composite that a reload removes ends too. The composite is unknown then.
    let lines = live.applies(&replaced.replace("[composite, aggregate]", "[aggregate]"));
    assert_eq!(lines, ["removed processors::composite@metrics/page"]);
    let unknown = http::get(ports.admin, "/api/v1/composites/recent").expect("an answer");
    assert_eq!(unknown.status, 404, "{}", unknown.text());
    read_until(&mut events, "event: ended");
    read_to_end(&mut events);
    live.gateway.stop();
}
