// SPDX-License-Identifier: Apache-2.0

//! Options, and what a plugin is given of every kind of payload.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{
    Attributes, Data, EventKind, Events, Histogram, Instrument, Lease, Metric, Point, Resource, Schema,
    Scope, Series, Source, SourceId, Temporality, Value, Values,
};
use tidegate_plugin::host::Values as Column;
use tidegate_plugin::{Answer, Instrument as PluginInstrument, Takes};

use super::convert::{Converted, convert};
use super::{FACTORY, PluginExporterConfig, outcome};
use crate::batch::{Batch, Points, convert::points as decode};
use crate::component::Reason;
use crate::component::testing::settings;
use crate::delivery::{ExportRequest, Loss, Outcome};
use crate::exporters::testing::names_mistakes;

fn attributes(pairs: &[(&str, &str)]) -> Attributes {
    pairs.iter().copied().collect()
}

fn kind(name: &str, instrument: Instrument) -> EventKind {
    EventKind {
        name: name.into(),
        description: "what it is".into(),
        unit: "By".into(),
        instrument,
        attributes: attributes(&[("category", "TRANSFER")]),
    }
}

/// Of a schema of three kinds the last and the first occur, and one that is not there.
fn events() -> Events {
    let resource = Resource {
        attributes: attributes(&[("service.name", "shop")]),
        schema_url: "".into(),
    };
    Events {
        source: Arc::new(Source {
            id: SourceId::next(),
            resource: Arc::new(resource),
            scope: Arc::default(),
            attributes: attributes(&[("agent_name", "a-1")]),
            lease: Arc::new(Lease::new(Duration::from_secs(1), 0)),
        }),
        schema: Arc::new(Schema {
            kinds: vec![
                kind("first", Instrument::Counter),
                kind("second", Instrument::Gauge),
                kind("third", Instrument::Histogram),
            ],
        }),
        kinds: vec![2, 0, 9, 2],
        values: Values::U64(vec![10, 20, 30, 40]),
        times: None,
        weights: Some(vec![1.0, 2.0, 3.0, 4.0]),
        observed: 5,
    }
}

fn point(name: &str, data: Data, value: Value) -> Point {
    let metric = Metric {
        name: name.into(),
        description: "".into(),
        unit: "s".into(),
        data,
        metadata: Attributes::default(),
    };
    Point {
        series: Arc::new(Series {
            resource: Arc::default(),
            scope: Arc::new(Scope::default()),
            metric: Arc::new(metric),
            attributes: attributes(&[("category", "C"), ("k", "v")]),
        }),
        start: 1,
        time: 7,
        value,
        exemplars: Vec::new(),
    }
}

/// One point of every sort that matters.
fn points() -> Vec<Point> {
    let sum = |monotonic, temporality| Data::Sum {
        monotonic,
        temporality,
    };
    let (delta, cumulative) = (Temporality::Delta, Temporality::Cumulative);
    let histogram = Value::Histogram(Box::new(Histogram {
        count: 1,
        sum: Some(1.0),
        min: None,
        max: None,
        bounds: Arc::from([1.0].as_slice()),
        counts: vec![1, 0],
    }));
    vec![
        point("gauge", Data::Gauge, Value::Int(3)),
        point("counter", sum(true, delta), Value::Int(4)),
        point("updown", sum(false, delta), Value::Int(-5)),
        point("double", Data::Gauge, Value::Double(0.5)),
        point("total", sum(true, cumulative), Value::Int(6)),
        point("histogram", Data::Histogram { temporality: delta }, histogram),
        point("nothing", Data::Gauge, Value::NoRecordedValue),
    ]
}

fn of_points() -> Batch {
    Batch::new(Points {
        points: points().into(),
    })
}

fn converted(batch: Batch, takes: Takes) -> Converted {
    convert(&ExportRequest::new(batch), takes)
}

#[test]
fn events_keep_their_columns_and_tell_of_the_kinds_that_occur() {
    let Converted { batch, unsupported } = converted(Batch::new(events()), Takes::EVENTS);
    assert_eq!((batch.items, unsupported, batch.otlp.len()), (3, 1, 0));
    let [events] = &batch.events[..] else {
        panic!("one source");
    };
    assert!(events.is_sound());
    assert_eq!(&*events.source, "a-1");
    let pairs: Vec<_> = events
        .attributes
        .iter()
        .map(|(key, value)| (&**key, &**value))
        .collect();
    assert_eq!(pairs, [("service.name", "shop"), ("agent_name", "a-1")]);
    let kinds: Vec<_> = events
        .kinds
        .iter()
        .map(|kind| (&*kind.name, kind.instrument))
        .collect();
    assert_eq!(
        kinds,
        [
            ("third", PluginInstrument::Histogram),
            ("first", PluginInstrument::Counter)
        ]
    );
    assert_eq!(
        (&*events.kinds[0].category, &*events.kinds[0].unit),
        ("TRANSFER", "By")
    );
    assert_eq!(events.kind, [0, 1, 0]);
    assert_eq!(events.values, Column::U64(vec![10, 20, 40]));
    assert_eq!(events.times_ns, [5, 5, 5]);
    assert_eq!(events.weights, Some(vec![1.0, 2.0, 4.0]));
}

#[test]
fn a_plugin_that_takes_no_events_gets_delta_points() {
    let Converted { batch, unsupported } = converted(Batch::new(events()), Takes::METRICS);
    assert_eq!((batch.events.len(), unsupported), (0, 0));
    let encoded = crate::batch::wire::check(crate::batch::Signal::Metrics, batch.otlp).unwrap();
    assert_eq!(encoded.items() as u64, batch.items);
    let names: Vec<_> = decode(&encoded)
        .unwrap()
        .iter()
        .map(|point| point.series.metric.name.clone())
        .collect();
    assert_eq!(names.len(), 2, "one a kind: {names:?}");
}

#[test]
fn a_plugin_that_takes_only_events_gets_points_as_events() {
    let encoded = Batch::new(crate::batch::convert::encode_points(&points()));
    for batch in [of_points(), encoded] {
        let Converted { batch, unsupported } = converted(batch, Takes::EVENTS);
        assert_eq!((batch.items, unsupported), (4, 3));
        assert!(batch.events.iter().all(tidegate_plugin::host::Events::is_sound));
        let kinds: Vec<_> = batch.events.iter().flat_map(|events| &events.kinds).collect();
        let found: Vec<_> = kinds.iter().map(|kind| (&*kind.name, kind.instrument)).collect();
        let expected = [
            ("gauge", PluginInstrument::Gauge),
            ("counter", PluginInstrument::Counter),
            ("updown", PluginInstrument::UpDownCounter),
            ("double", PluginInstrument::Gauge),
        ];
        assert_eq!(found, expected);
        assert_eq!((&*kinds[0].category, &*kinds[0].unit), ("C", "s"));
        let values: Vec<_> = batch.events.iter().map(|events| events.values.clone()).collect();
        assert_eq!(values, [Column::U64(vec![3, 4]), Column::F64(vec![-5.0, 0.5])]);
        assert_eq!(batch.events[0].times_ns, [7, 7]);
    }
}

#[test]
fn both_forms_go_in_one_call_where_both_are_taken() {
    let mut export = ExportRequest::new(Batch::new(events()));
    crate::delivery::machine::Load::join(&mut export, ExportRequest::new(of_points()));
    crate::delivery::machine::Load::join(&mut export, ExportRequest::new(of_points()));
    let Converted { batch, unsupported } = convert(&export, Takes::METRICS.and(Takes::EVENTS));
    assert_eq!((batch.items, unsupported, batch.events.len()), (3 + 14, 1, 1));
    let encoded = crate::batch::wire::check(crate::batch::Signal::Metrics, batch.otlp).unwrap();
    assert_eq!(encoded.items(), 14, "requests one after another are one");
}

#[test]
fn an_answer_never_settles_more_than_was_asked() {
    let unsupported = || Loss {
        items: 1,
        reason: Reason::Unsupported,
        why: "no form".to_owned(),
    };
    let partial = Answer::Partial {
        lost_items: u64::MAX,
        why: "all".to_owned(),
    };
    let Outcome::Parts(parts) = outcome(partial, unsupported(), 4) else {
        panic!("parts");
    };
    let losses: Vec<_> = parts
        .losses
        .iter()
        .map(|loss| (loss.items, loss.reason))
        .collect();
    assert_eq!(losses, [(3, Reason::Rejected), (1, Reason::Unsupported)]);
    assert_eq!(
        outcome(Answer::Ok, unsupported(), 4),
        Outcome::Partly(unsupported())
    );
}

#[test]
fn the_configuration_is_text_or_json_and_never_printed() {
    let config = |yaml: &str| {
        let config: Arc<PluginExporterConfig> =
            settings::<PluginExporterConfig>(&format!("{{path: a.so, config: {yaml}}}")).get();
        assert!(!format!("{:?}", config.config).contains("hunter2"));
        config.config.0.expose().to_owned()
    };
    assert_eq!(config("hunter2"), "hunter2");
    assert_eq!(config("0660"), "0660");
    assert_eq!(
        config("{password: hunter2, list: [1, 2.5, true, null, '3'], inner: {a: .inf}}"),
        r#"{"inner":{"a":".inf"},"list":[1,2.5,true,null,"3"],"password":"hunter2"}"#
    );
}

#[test]
fn mistakes_are_named() {
    let table = [
        ("{}", "one of `name` and `path` must be specified"),
        ("{name: ../x}", "letters, digits, `_` and `-`"),
        ("{path: a.so, directories: [/x]}", "can't be combined with `path`"),
        ("{name: a, timeout: 0s}", "every call of a plugin is bounded"),
        ("{name: a, version: new}", "is not a range of versions"),
        ("{name: a, version: {}}", "expected a range of versions"),
        ("{name: a, isolation: docker}", "expected one of none, process"),
        (
            "{name: a, directories: [/nowhere]}",
            "looked for /nowhere/libtidegate_exporter_a.so",
        ),
        ("{path: /nowhere/a.so}", "/nowhere/a.so: No such file"),
        (
            "{path: a.so, temporality: delta, only_leader: a, sending_queue: {storage: b, storage_mode: always}}",
            "can't be combined with delta temporality",
        ),
    ];
    names_mistakes(&FACTORY, &table);
}
