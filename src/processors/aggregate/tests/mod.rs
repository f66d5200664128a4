// SPDX-License-Identifier: Apache-2.0

//! The rule set `nixl`, the output, the state and the counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::{Data, EventKind, Histogram, Instrument, Reading, Table, Temporality, Value};

mod bounds;
mod journal;
mod succession;

use super::*;
use crate::batch::{Payload, Points, convert};
use crate::component::Reason;
use crate::component::testing::{Sink, settings};
use crate::processors::testing::{encoded, events, kind, point, processor_context};

const STATUSES: [&str; 12] = [
    "not_posted",
    "invalid_param",
    "backend",
    "not_found",
    "mismatch",
    "not_allowed",
    "repost_active",
    "unknown",
    "not_supported",
    "remote_disconnect",
    "canceled",
    "no_telemetry",
];

struct Rig {
    aggregate: Aggregate,
    sink: Arc<Sink>,
    ledger: Arc<Ledger>,
    base: Context,
}

fn rig(yaml: &str) -> Rig {
    let sink = Sink::new();
    let (cx, base, ledger) = processor_context("aggregate", &sink);
    let config = settings::<AggregateConfig>(yaml).get();
    Rig {
        aggregate: Aggregate::new(config, cx).unwrap(),
        sink,
        ledger,
        base,
    }
}

impl Rig {
    fn push(&self, payload: impl Into<Payload>) {
        let batch = Batch::new(payload);
        self.ledger.enter(batch.items());
        self.aggregate.push(batch).unwrap();
    }
}

/// Name, attributes and kind of data as text -> value.
fn show(table: &Table) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    table.read(unix_now(), &mut |reading: Reading<'_>| {
        let pairs = reading.series.attributes.iter();
        let labels: Vec<String> = pairs
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap()))
            .collect();
        let total = if matches!(reading.series.metric.data, Data::Sum { .. }) {
            "_total"
        } else {
            ""
        };
        let name = format!("{}{total}{{{}}}", reading.series.metric.name, labels.join(","));
        assert_eq!(&*reading.series.metric.unit, "");
        all.insert(name, reading.value.clone());
    });
    all
}

/// The 21 kinds of a version-4 ring, in the order of their types.
fn nixl_kinds() -> Vec<EventKind> {
    let amounts = [
        "tx_bytes",
        "rx_bytes",
        "tx_requests_num",
        "rx_requests_num",
        "memory_registered",
        "memory_deregistered",
    ];
    let times = ["xfer_time", "xfer_post_time"];
    let plain =
        |name: &&str, instrument| kind(&format!("agent_{name}"), instrument, &[("category", "TRANSFER")]);
    let mut kinds: Vec<EventKind> = amounts
        .iter()
        .map(|name| plain(name, Instrument::Counter))
        .collect();
    kinds.extend(times.iter().map(|name| plain(name, Instrument::Histogram)));
    kinds.extend(STATUSES.iter().map(|status| {
        kind(
            &format!("agent_err_{status}"),
            Instrument::Counter,
            &[("category", "ERROR"), ("status", status)],
        )
    }));
    kinds.push(plain(&"telemetry_events_dropped", Instrument::Counter));
    kinds
}

/// The events of the capture nixl-cu12-1.5.1.few-cap4096.live.agent_a, as (type, value).
const CAPTURE: [(u16, u64); 13] = [
    (4, 65536),
    (7, 387),
    (6, 82759),
    (0, 1024),
    (2, 1),
    (7, 380),
    (6, 380),
    (1, 2048),
    (3, 1),
    (7, 19),
    (6, 19),
    (0, 3072),
    (2, 1),
];

fn agent(name: &str) -> String {
    format!("{name}{{agent_name=agent_a,hostname=vm}}")
}

#[test]
fn the_nixl_rules_show_what_nixls_own_exporter_does() {
    let rig = rig("rules: nixl");
    rig.push(events("agent_a", nixl_kinds(), &CAPTURE));
    rig.push(events("agent_b", nixl_kinds(), &[(4, 65536), (11, 3)]));
    let all = show(&rig.aggregate.absorber.table);
    let expected = [
        ("agent_tx_bytes_total", 4096),
        ("agent_rx_bytes_total", 2048),
        ("agent_tx_requests_num_total", 2),
        ("agent_rx_requests_num_total", 1),
        ("agent_memory_registered_total", 65536),
        ("agent_memory_deregistered_total", 0),
        ("agent_xfer_time_total", 83158),
        ("agent_xfer_post_time_total", 786),
        ("agent_telemetry_events_dropped_total", 0),
        ("agent_tx_last_bytes", 3072),
        ("agent_rx_last_bytes", 2048),
        ("agent_memory_registered_last_bytes", 65536),
        ("agent_memory_deregistered_last_bytes", 0),
        ("agent_xfer_time", 19),
        ("agent_xfer_post_time", 19),
    ];
    for (name, value) in expected {
        assert_eq!(all.get(&agent(name)), Some(&Value::Int(value)), "{name}");
    }
    for status in STATUSES {
        let of = |agent: &str| {
            &all[&format!("agent_errors_total{{agent_name={agent},hostname=vm,status={status}}}")]
        };
        let of_b = if status == "not_found" { 3 } else { 0 };
        assert_eq!(
            (of("agent_a"), of("agent_b")),
            (&Value::Int(0), &Value::Int(of_b))
        );
    }
    let Value::Histogram(times) = &all[&agent("agent_xfer_time_us")] else {
        panic!("not a histogram")
    };
    let mut expected = Histogram::empty(times.bounds.clone());
    [82759.0, 380.0, 19.0]
        .iter()
        .for_each(|time| expected.observe(*time, 1));
    assert_eq!((&**times, times.bounds.len()), (&expected, 18));
    let Value::Histogram(unused) = &all["agent_xfer_post_time_us{agent_name=agent_b,hostname=vm}"] else {
        panic!("not a histogram")
    };
    assert_eq!((unused.count, unused.sum), (0, Some(0.0)));
    assert_eq!(
        all["nixl_node_memory_registered_total{hostname=vm}"],
        Value::Int(131_072)
    );
    assert_eq!(
        all["nixl_node_errors_total{hostname=vm,status=not_found}"],
        Value::Int(3)
    );
    let families: BTreeSet<&str> = all.keys().filter_map(|name| name.split('{').next()).collect();
    let of_node = families
        .iter()
        .filter(|name| name.starts_with("nixl_node_"))
        .count();
    assert_eq!((of_node, families.len()), (10, 28));
    assert_eq!(rig.ledger.balance().held(), 0);
    assert_eq!((rig.ledger.balance().absorbed, rig.sink.items()), (15, 0));
}

#[test]
fn multi_process_stores_give_the_series_that_rings_give() {
    stores_like_rings("");
}

/// They have no gauge of a counter's name.
#[test]
fn cells_of_the_nixl_plugin_give_the_series_that_rings_give() {
    stores_like_rings("_last");
}

/// Totals give what the events give; the gauges of the last times have this suffix.
fn stores_like_rings(last_time: &str) {
    let (rings, stores) = (rig("rules: nixl"), rig("rules: nixl"));
    rings.push(events("agent_a", nixl_kinds(), &CAPTURE));
    let temporality = Temporality::Cumulative;
    let counter = Data::Sum {
        monotonic: true,
        temporality,
    };
    let labels = [
        ("agent_name", "agent_a"),
        ("hostname", "vm"),
        ("pid", "7"),
        ("agent_instance", "0"),
    ];
    let mut points = Vec::new();
    for (number, kind) in nixl_kinds().iter().enumerate() {
        let values: Vec<u64> = CAPTURE
            .iter()
            .filter(|(of, _)| usize::from(*of) == number)
            .map(|(_, v)| *v)
            .collect();
        let status = kind
            .attributes
            .get("status")
            .and_then(tidegate_engine::AttributeRef::as_str)
            .map(|status| ("status", status));
        let labels: Vec<_> = labels.into_iter().chain(status).collect();
        let total = Value::Int(values.iter().sum::<u64>() as i64);
        points.push(point(&kind.name, counter, &labels, total));
        let last = Value::Int(values.last().copied().unwrap_or(0) as i64);
        let gauge = match (number, kind.name.strip_suffix("_bytes")) {
            (0 | 1, Some(stem)) => Some(format!("{stem}_last_bytes")),
            (4 | 5, _) => Some(format!("{}_last_bytes", kind.name)),
            (6 | 7, _) => Some(format!("{}{last_time}", kind.name)),
            _ => None,
        };
        points.extend(gauge.map(|name| point(&name, Data::Gauge, &labels, last)));
        if kind.instrument == Instrument::Histogram {
            let bounds = [
                10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 2.5e4, 5e4, 1e5, 2.5e5, 5e5,
                1e6, 5e6, 1e7,
            ];
            let mut histogram = Histogram::empty(Arc::from(bounds));
            values
                .iter()
                .for_each(|value| histogram.observe(*value as f64, 1));
            let value = Value::Histogram(Box::new(histogram));
            points.push(point(
                &format!("{}_us", kind.name),
                Data::Histogram { temporality },
                &labels,
                value,
            ));
        }
    }
    stores.push(Points {
        points: points.into(),
    });
    assert_eq!(
        show(&stores.aggregate.absorber.table),
        show(&rings.aggregate.absorber.table)
    );
    assert_eq!(stores.sink.items(), 0);
}

const BY_POD: &str = "{rules: [{match: {name: taken}, by: [pod], name: out}]}";

#[test]
fn what_no_rule_takes_passes_as_it_came() {
    let rig = rig(BY_POD);
    rig.push(encoded(&[("other", 1), ("another", 2)]));
    rig.push(encoded(&[("taken", 1), ("other", 2)]));
    rig.push(encoded(&[("taken", 3)]));
    let kinds = vec![
        kind("taken", Instrument::Counter, &[]),
        kind("other", Instrument::Counter, &[]),
    ];
    rig.push(events("a", kinds, &[(0, 1), (1, 2), (0, 3)]));
    let batches = rig.sink.batches();
    let kinds: Vec<(&str, usize)> = batches
        .iter()
        .map(|batch| match &batch.payload {
            Payload::Encoded(_) => ("encoded", batch.items()),
            Payload::Points(_) => ("points", batch.items()),
            Payload::Events(_) => ("events", batch.items()),
        })
        .collect();
    assert_eq!(kinds, [("encoded", 2), ("encoded", 1), ("events", 1)]);
    assert_eq!(rig.sink.events(), [("other".to_owned(), 2.0)]);
    assert_eq!(rig.ledger.balance().absorbed, 4);
}

#[test]
fn rejected_points_are_reported_by_name() {
    let rig = rig("{rules: [{match: {name: '*'}}]}");
    let counter = Data::Sum {
        monotonic: true,
        temporality: Temporality::Cumulative,
    };
    let sound = point("hits", counter, &[], Value::Int(3));
    let negative = point("misses", counter, &[], Value::Int(-3));
    let mut late = sound.clone();
    // More than was known of a later time.
    (late.time, late.value) = (sound.time - 1, Value::Int(4));
    let mut ahead = sound.clone();
    (ahead.time, ahead.value) = (unix_now() + 660_000_000_000, Value::Int(999));
    for (points, first) in [
        (
            Payload::from(Points {
                points: [sound.clone(), negative.clone(), late.clone(), ahead.clone()].into(),
            }),
            "`misses`: the value breaks the rules of its kind of metric",
        ),
        (
            convert::encode_points(&[sound, negative, late, ahead]).into(),
            "`hits`: not newer than the previous point",
        ),
    ] {
        let outcome = rig.aggregate.push(Batch::new(points)).unwrap();
        assert_eq!(outcome.rejected_items, 3);
        // The first of them is named. A request has the points of a metric together.
        assert_eq!(outcome.message, first);
    }
    let dropped = rig.ledger.balance().dropped;
    let of = |reason: Reason| dropped[reason as usize];
    assert_eq!(
        (of(Reason::Invalid), of(Reason::Late), of(Reason::Future)),
        (2, 2, 2)
    );
    let mut shown = Vec::new();
    let table = &rig.aggregate.absorber.table;
    table.read(unix_now(), &mut |reading| shown.push(reading.value.clone()));
    assert_eq!(shown, [Value::Int(3)]);
}

#[test]
fn future_points_are_refused_restamped_or_passed_on_unmatched() {
    let push = |future: &str| {
        let rig = rig(&format!(
            "{{rules: [{{match: {{name: level}}}}], future: {future}}}"
        ));
        let before = unix_now();
        let mut ahead = point("level", Data::Gauge, &[], Value::Int(7));
        ahead.time = before + 660_000_000_000;
        let mut other = point("other", Data::Gauge, &[], Value::Int(8));
        other.time = ahead.time;
        rig.push(convert::encode_points(&[ahead, other]));
        assert_eq!(rig.sink.items(), 1, "the other one passes");
        let mut times = Vec::new();
        rig.aggregate
            .absorber
            .table
            .read(unix_now(), &mut |reading| times.push(reading.time));
        let of_arrival = times.iter().filter(|time| (before..=unix_now()).contains(time));
        (
            of_arrival.count(),
            times.len(),
            rig.ledger.balance().dropped[Reason::Future as usize],
        )
    };
    assert_eq!(push("{}"), (0, 0, 1));
    assert_eq!(push("{action: arrival}"), (1, 1, 0));
    assert_eq!(push("{tolerance: 15m}"), (0, 1, 0));
}

#[test]
fn batches_that_end_here_do_not_wait_for_those_behind() {
    let rig = rig(BY_POD);
    rig.sink.refuse(1);
    let taken = || events("a", vec![kind("taken", Instrument::Counter, &[])], &[(0, 1)]);
    let other = || events("a", vec![kind("other", Instrument::Counter, &[])], &[(0, 1)]);
    rig.push(taken());
    assert!(rig.aggregate.push(Batch::new(other())).is_err());
    assert!(rig.aggregate.push(Batch::new(other())).is_ok());
}

#[tokio::test]
async fn the_state_is_pushed_at_each_interval_and_at_the_end() {
    let rig = rig("{rules: [{match: {name: taken}, by: [], name: out}], interval: 10ms}");
    rig.aggregate.start().await.unwrap();
    let table = rig.aggregate.table().unwrap();
    rig.push(events(
        "a",
        vec![kind("taken", Instrument::Counter, &[])],
        &[(0, 5)],
    ));
    let mut values = BTreeMap::new();
    table.read(unix_now(), &mut |reading| {
        drop(values.insert(reading.series.metric.name.clone(), reading.value.clone()));
    });
    assert_eq!(values["out"], Value::Int(5));
    while rig.sink.items() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    rig.push(events(
        "b",
        vec![kind("taken", Instrument::Counter, &[])],
        &[(0, 2)],
    ));
    rig.aggregate.stop(Instant::now() + Duration::from_secs(10)).await;
    let last = rig.sink.batches().pop().unwrap();
    assert_eq!(last.snapshot_of.as_ref(), Some(table.owner()));
    let Payload::Points(last) = last.payload else {
        panic!("not points")
    };
    assert_eq!(
        (last.points[0].value.clone(), last.points.len()),
        (Value::Int(7), 1)
    );
    assert_eq!(rig.ledger.balance().made, rig.sink.items() as u64);
}

#[test]
fn mistakes_in_rules_are_found_where_they_are() {
    let wrong = "
rules:
  - nixI
  - {match: {name: 'regex:('}, by: [a], without: [b], bounds: [2, 1]}
  - {match: {}, instrument: countr}
interval: 0s
";
    let mut problems = crate::config::Problems::default();
    let node = crate::config::parse_text("a.yaml", wrong, &mut problems).unwrap();
    let _: Option<AggregateConfig> = crate::config::Decode::decode(&node, &mut problems);
    let text = problems.to_string();
    for expected in [
        "a.yaml:3:5",
        "a.yaml:4:",
        "not a regular expression",
        "exclude each other",
        "ascending",
        "did you mean `counter`",
        "`name` must be specified",
    ] {
        assert!(text.contains(expected), "{expected} not in {text}");
    }
}
