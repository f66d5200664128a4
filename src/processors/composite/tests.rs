//! What composites see, and that they change nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::{Instrument, State, Value};

use super::*;
use crate::batch::Points;
use crate::component::testing::{Sink, settings};
use crate::processors::testing::{encoded, events, kind, processor_context};

const YAML: &str = "
composites:
  - {name: xfer_max, metric: agent_xfer_time, function: max, window: 10s, by: [agent_name]}
  - {name: everything, metric: '*', function: count}
interval: 10ms
";

#[tokio::test]
async fn everything_passes_and_is_seen_on_the_way() {
    let sink = Sink::new();
    let (cx, base, ledger) = processor_context("composite", &sink);
    let composites = Composites::new(settings::<Config>(YAML).get(), cx).unwrap();
    composites.start().await.unwrap();
    let kinds = vec![kind("agent_xfer_time", Instrument::Histogram, &[])];
    composites
        .push(Batch::new(events("a", kinds, &[(0, 5), (0, 90)])))
        .unwrap();
    composites.push(Batch::new(encoded(&[("queue", 3)]))).unwrap();
    let passed: Vec<bool> = sink
        .batches()
        .iter()
        .filter(|batch| batch.items() > 0)
        .map(|batch| !matches!(batch.payload, Payload::Points(_)))
        .collect();
    assert!(passed.starts_with(&[true, true]), "{passed:?}");

    let listed = base.shared.composites.list();
    let answers: Vec<_> = listed
        .iter()
        .flat_map(|watched| watched.composite().read(unix_now()))
        .collect();
    let values: Vec<_> = answers
        .iter()
        .map(|answer| (answer.value, answer.state))
        .collect();
    assert_eq!(values, [(Some(90.0), State::Fresh), (Some(3.0), State::Fresh)]);

    let mut live = Vec::new();
    composites.table.read(unix_now(), &mut |reading| {
        live.push((reading.series.metric.name.clone(), reading.value.clone()))
    });
    assert_eq!(
        live,
        [
            ("xfer_max".into(), Value::Double(90.0)),
            ("everything".into(), Value::Double(3.0))
        ]
    );

    composites.stop(Instant::now() + Duration::from_secs(10)).await;
    let last = sink.batches().pop().unwrap();
    let Payload::Points(Points {
        points,
        table: Some(table),
    }) = last.payload
    else {
        panic!("{last:?}")
    };
    assert!(Arc::ptr_eq(&table, &composites.table));
    assert_eq!(
        points
            .iter()
            .map(|point| &*point.series.metric.name)
            .collect::<Vec<_>>(),
        ["xfer_max", "everything"]
    );
    assert!(ledger.balance().made >= 2 && base.shared.composites.list().is_empty());
}

#[test]
fn mistakes_are_found_where_they_are() {
    let wrong = "
composites:
  - {name: a, metric: 'regex:[', function: max, window: 1ms}
  - {name: b, metric: m, function: median}
  - {name: a, metric: m, function: max, by: [x], without: [y]}
";
    let mut problems = crate::config::Problems::default();
    let node = crate::config::parse_text("a.yaml", wrong, &mut problems).unwrap();
    let _: Option<Config> = crate::config::Decode::decode(&node, &mut problems);
    let text = problems.to_string();
    for expected in [
        "a.yaml:3:",
        "not a regular expression",
        "at least 100ms",
        "a.yaml:4:",
        "exclude each other",
    ] {
        assert!(text.contains(expected), "{expected} not in {text}");
    }
    let twice = wrong
        .replace("'regex:['", "m")
        .replace("1ms", "1s")
        .replace("median", "min")
        .replace(", without: [y]", "");
    let mut problems = crate::config::Problems::default();
    let node = crate::config::parse_text("a.yaml", &twice, &mut problems).unwrap();
    let _: Option<Config> = crate::config::Decode::decode(&node, &mut problems);
    assert!(
        problems.to_string().contains("`a` is declared twice"),
        "{problems}"
    );
}
