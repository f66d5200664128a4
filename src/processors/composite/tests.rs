// SPDX-License-Identifier: Apache-2.0

//! The composites see the data of a pipeline, and do not change it.

mod kept;
mod rates;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::{Freshness, Instrument, Value};

use super::webhook::WebhookConfig;
use super::*;
use crate::component::testing::{Sink, settings};
use crate::processors::testing::{encoded, events, kind, processor_context};

const YAML: &str = "
composites:
  - {name: xfer_max, metric: agent_xfer_time, function: max, window: 10s, by: [agent_name]}
  - {name: everything, metric: 'agent_*', function: count}
interval: 10ms
";

/// Starts a processor, and lists its composites as the service does.
async fn start(processor: &Composites) {
    processor.start().await.unwrap();
    let all = &processor.base.shared.composites;
    processor.composites().iter().for_each(|one| all.add(one.clone()));
}

#[tokio::test]
async fn everything_passes_and_is_seen_on_the_way() {
    let sink = Sink::new();
    let (cx, base, ledger) = processor_context("composite", &sink);
    let composites = Composites::new(settings::<CompositeProcessorConfig>(YAML).get(), cx).unwrap();
    start(&composites).await;
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
    assert_eq!(
        values,
        [(Some(90.0), Freshness::Fresh), (Some(2.0), Freshness::Fresh)]
    );

    let mut live = Vec::new();
    composites.table.read(unix_now(), &mut |reading| {
        live.push((reading.series.metric.name.clone(), reading.value.clone()));
    });
    assert_eq!(
        live,
        [
            ("xfer_max".into(), Value::Double(90.0)),
            ("everything".into(), Value::Double(2.0))
        ]
    );

    composites.stop(Instant::now() + Duration::from_secs(10)).await;
    let last = sink.batches().pop().unwrap();
    assert_eq!(last.snapshot_of.as_ref(), Some(composites.table.owner()));
    let Payload::Points(last) = last.payload else {
        panic!("{last:?}")
    };
    assert_eq!(
        last.points
            .iter()
            .map(|point| &*point.series.metric.name)
            .collect::<Vec<_>>(),
        ["xfer_max", "everything"]
    );
    assert!(ledger.balance().made >= 2);
}

#[tokio::test]
async fn a_composite_that_matches_nothing_suggests_a_name_that_arrived() {
    let yaml = "
composites:
  - {name: p99, metric: infer_latency_seconds, function: quantile, quantile: 0.99}
  - {name: answered, metric: infer_requests_total, function: rate}
  - {name: depth, metric: infer_queue, function: last, across: sum}
  - {name: doubled, expr: 'infer_queues * 2'}
  - {name: everything, metric: 'inferred*', function: count}
";
    let sink = Sink::new();
    let (cx, _, _) = processor_context("composite", &sink);
    let composites = Composites::new(settings::<CompositeProcessorConfig>(yaml).get(), cx).unwrap();
    let kinds = vec![kind("infer_requests", Instrument::Counter, &[])];
    composites
        .push(Batch::new(events("a", kinds, &[(0, 5)])))
        .unwrap();
    composites
        .push(Batch::new(encoded(&[("infer.latency", 3), ("infer_queue", 3)])))
        .unwrap();
    composites.arrived.suggest(composites.set.list());
    let warnings = match_warnings(&composites.set);
    let about = |name: &str| {
        let of = format!("the composite `{name}`");
        warnings.iter().find(|warning| warning.starts_with(&of))
    };
    for (name, near) in [("p99", "infer.latency"), ("answered", "infer_requests")] {
        let expected = format!("arrived; did you mean `{near}`?");
        assert!(
            about(name).is_some_and(|warning| warning.ends_with(&expected)),
            "{warnings:?}"
        );
    }
    assert_eq!(about("depth"), None);
    assert!(
        about("everything").is_some_and(|warning| warning.ends_with("arrived")),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn after_a_match_further_composites_get_suggestions_from_known_names() {
    let others = (0..10).map(|number| {
        format!("  - {{name: c{number}, metric: metric_{number}, function: last, across: sum}}\n")
    });
    let yaml = format!(
        "composites:\n{}  - {{name: depth, metric: infer_queues, function: last, across: sum}}\n",
        others.collect::<String>()
    );
    let sink = Sink::new();
    let (cx, _, _) = processor_context("composite", &sink);
    let composites = Composites::new(settings::<CompositeProcessorConfig>(&yaml).get(), cx).unwrap();
    let suggested = || {
        composites.arrived.suggest(composites.set.list());
        let depth = composites.set.list()[10].match_tracker();
        depth.reason("infer_queues").unwrap()
    };
    for name in ["infer_queue", "metric_0"] {
        composites.arrived.note(name);
    }
    let reason = suggested();
    assert!(reason.ends_with("arrived"), "{reason}");
    composites.push(Batch::new(encoded(&[("metric_0", 3)]))).unwrap();
    let reason = suggested();
    assert!(reason.ends_with("did you mean `infer_queue`?"), "{reason}");
}

/// Says how much there is of everything that is asked for; no table has seen its sources.
struct Constant(Arc<Mutex<Result<f64, String>>>);

impl crate::component::Evaluate for Constant {
    fn evaluate(
        &self,
        query: &tidegate_promql::Query,
        _: UnixNanos,
    ) -> Result<crate::component::Evaluation, String> {
        assert!(matches!(&*query.names().join(" "), "queue_depth" | "ns_depth"));
        let value = self.0.lock().clone()?;
        let labels = [("model".to_owned(), "m".to_owned())].into_iter().collect();
        Ok(crate::component::Evaluation {
            values: vec![(labels, value)],
            ..crate::component::Evaluation::default()
        })
    }

    fn names_of_gauge(&self, name: &str) -> Vec<String> {
        vec![format!("ns_{name}")]
    }
}

#[tokio::test]
async fn an_expression_finds_a_composite_by_its_query_name() {
    let yaml = "
composites:
  - {name: depth, metric: queue.depth, function: last, across: sum}
  - {name: doubled, expr: 'ns_depth * 2'}
interval: 100ms
";
    let sink = Sink::new();
    let (cx, base, _) = processor_context("composite", &sink);
    let value = Arc::new(Mutex::new(Ok(7.0)));
    let constant = Arc::new(crate::component::Evaluator(Arc::new(Constant(value))));
    base.shared.evaluators.add(constant);
    let composites = Composites::new(settings::<CompositeProcessorConfig>(yaml).get(), cx).unwrap();
    composites
        .push(Batch::new(encoded(&[("queue.depth", 3)])))
        .unwrap();
    start(&composites).await;
    let doubled = base.shared.composites.list().remove(1);
    doubled.composite().compute(unix_now());
    let answer = doubled.composite().answers(unix_now()).remove(0);
    assert_eq!((answer.value, answer.sources_expected), (Some(7.0), 1));
    composites.stop(Instant::now()).await;
}

/// Finds a number of a source that died at this time. Its receiver repeats the number.
struct OfDead(UnixNanos);

impl crate::component::Evaluate for OfDead {
    fn evaluate(
        &self,
        _: &tidegate_promql::Query,
        _: UnixNanos,
    ) -> Result<crate::component::Evaluation, String> {
        let source = crate::component::SelectedSource {
            key: tidegate_engine::Key::of_value(&1),
            seen: self.0,
            lease: 15_000_000_000,
            is_dead: true,
        };
        Ok(crate::component::Evaluation {
            values: vec![(tidegate_promql::Labels::default(), 7.0)],
            sources: vec![source],
            ..crate::component::Evaluation::default()
        })
    }

    fn names_of_gauge(&self, name: &str) -> Vec<String> {
        vec![name.to_owned()]
    }
}

#[tokio::test]
async fn the_number_of_a_dead_source_is_not_fresh_after_ten_minutes() {
    let yaml = "composites: [{name: peak, expr: 'max(gpu_peak) or vector(0)'}]";
    let sink = Sink::new();
    let (cx, base, _) = processor_context("composite", &sink);
    let composites = Composites::new(settings::<CompositeProcessorConfig>(yaml).get(), cx).unwrap();
    let died = unix_now() - 601_000_000_000;
    let evaluator = crate::component::Evaluator(Arc::new(OfDead(died)));
    base.shared.evaluators.add(Arc::new(evaluator));
    start(&composites).await;
    let peak = base.shared.composites.list().remove(0);
    peak.composite().compute(unix_now());
    let answer = peak.composite().answers(unix_now()).remove(0);
    assert_eq!((answer.state, answer.value), (Freshness::Stale, None));
    assert_eq!((answer.sources_expected, answer.sources_reporting), (1, 0));
    composites.stop(Instant::now()).await;
}

/// An exporter that shows nothing.
struct Nothing(Arc<Table>);

impl crate::prom::catalog::Exposes for Nothing {
    fn live(&self) -> Vec<Arc<Table>> {
        Vec::new()
    }

    fn own(&self) -> &Arc<Table> {
        &self.0
    }
}

#[tokio::test]
async fn an_expression_finds_its_sources_by_exporter_names() {
    let yaml = "composites: [{name: doubled, expr: 'ns_depth * 2'}]";
    let sink = Sink::new();
    let (cx, base, _) = processor_context("composite", &sink);
    let mut style = crate::prom::Style::default();
    style.naming.namespace = "ns".to_owned();
    let own = Table::new("prometheus", Vec::new(), Limits::default());
    let exporter = Arc::new(Nothing(Arc::new(own)));
    crate::prom::catalog::View::of(&base.shared).expose("prometheus".into(), style, exporter);
    let value = Arc::new(Mutex::new(Ok(7.0)));
    let constant = Arc::new(crate::component::Evaluator(Arc::new(Constant(value))));
    base.shared.evaluators.add(constant);
    let composites = Composites::new(settings::<CompositeProcessorConfig>(yaml).get(), cx).unwrap();
    composites
        .push(Batch::new(encoded(&[("depth", 3), ("queue.depth", 3)])))
        .unwrap();
    start(&composites).await;
    let doubled = base.shared.composites.list().remove(0);
    doubled.composite().compute(unix_now());
    let answer = doubled.composite().answers(unix_now()).remove(0);
    assert_eq!((answer.value, answer.sources_expected), (Some(7.0), 1));
    composites.stop(Instant::now()).await;
}

#[tokio::test]
async fn an_expression_lives_as_long_as_the_sources_it_selects() {
    let yaml = "
composites:
  - {name: depth, expr: 'sum by (model) (queue_depth{zone!=\"other\"})', lease: 5s, thresholds: [{above: 5}]}
interval: 100ms
";
    let sink = Sink::new();
    let (cx, base, _) = processor_context("composite", &sink);
    let composites = Composites::new(settings::<CompositeProcessorConfig>(yaml).get(), cx).unwrap();
    start(&composites).await;
    let watched = base.shared.composites.list().remove(0);
    let current = || watched.composite().read(unix_now()).remove(0);
    let mut crossings = watched.crossings();
    while current().error.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(current().error.unwrap().contains("needs the `admin` extension"));
    let value = Arc::new(Mutex::new(Ok(7.0)));
    let constant = Arc::new(crate::component::Evaluator(Arc::new(Constant(value.clone()))));
    base.shared.evaluators.add(constant);
    composites
        .push(Batch::new(encoded(&[("queue.depth", 3)])))
        .unwrap();
    composites.push(Batch::new(encoded(&[("unrelated", 3)]))).unwrap();
    while current().value != Some(7.0) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let crossing = tokio::time::timeout(Duration::from_secs(30), crossings.recv()).await;
    let crossing = crossing.expect("in time").unwrap();
    assert_eq!(
        (crossing.is_crossed, crossing.group.answer.value),
        (true, Some(7.0))
    );
    let answer = current();
    assert_eq!((answer.state, answer.sources_expected), (Freshness::Fresh, 1));
    assert_eq!(answer.attributes, [("model", "m")].into_iter().collect());
    let mut shown = Vec::new();
    composites
        .table
        .read(unix_now(), &mut |reading| shown.push(reading.value.clone()));
    assert_eq!(shown, [Value::Double(7.0)]);
    // Its source is overdue: the value that the tables still hold does not count.
    while current().state != Freshness::Stale {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(current().value, None);
    composites
        .push(Batch::new(encoded(&[("queue.depth", 3)])))
        .unwrap();
    assert_eq!(current().value, Some(7.0));
    *value.lock() = Err("too many samples".to_owned());
    while current().error.as_deref() != Some("too many samples") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(current().value, None);
    composites.stop(Instant::now() + Duration::from_secs(10)).await;
}

#[test]
fn mistakes_are_found_where_they_are() {
    let wrong = "
composites:
  - {name: a, metric: 'regex:[', function: max, window: 1ms}
  - {name: b, metric: m, function: median}
  - {name: a, metric: m, function: max, by: [x], without: [y]}
  - {name: d, metric: m, function: last}
  - {name: e, metric: m, function: max, across_quantile: 0.5, lease: 0s}
  - {name: f, metric: m}
  - {name: g, expr: 'sum(m)', by: [x]}
";
    let mut problems = crate::config::Problems::default();
    let node = crate::config::parse_text("a.yaml", wrong, &mut problems).unwrap();
    let _: Option<CompositeProcessorConfig> = crate::config::Decode::decode(&node, &mut problems);
    let text = problems.to_string();
    for expected in [
        "a.yaml:3:",
        "not a regular expression",
        "at least 100ms",
        "a.yaml:4:",
        "exclude each other",
        "a.yaml:6:",
        "`across: sum` is the total of the last value of each series",
        "goes together with `across: quantile`",
        "a.yaml:7:",
        "a.yaml:8:",
        "`function` is missing",
        "a.yaml:9:",
        "can't be combined with `expr`",
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
    let _: Option<CompositeProcessorConfig> = crate::config::Decode::decode(&node, &mut problems);
    assert!(
        problems.to_string().contains("`a` is declared twice"),
        "{problems}"
    );
}

/// A peer that answers each post with the next of some statuses (then 200), and keeps what it got.
async fn peer(statuses: &'static [u16]) -> (String, tokio::sync::mpsc::Receiver<serde_json::Value>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (to, from) = tokio::sync::mpsc::channel(16);
    tokio::spawn(async move {
        let mut statuses = statuses.iter().copied();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut text = String::new();
            let body = loop {
                let mut buffer = [0; 4096];
                let read = stream.read(&mut buffer).await.unwrap();
                text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
                let Some((head, body)) = text.split_once("\r\n\r\n") else {
                    continue;
                };
                assert!(
                    head.starts_with("POST /hook ") && head.contains("x-key: secret"),
                    "{head}"
                );
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "));
                if body.len() == length.unwrap().parse::<usize>().unwrap() {
                    break serde_json::from_str(body).unwrap();
                }
            };
            let status = statuses.next().unwrap_or(200);
            let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
            if status == 200 {
                to.try_send(body).unwrap();
            }
        }
    });
    (url, from)
}

#[tokio::test]
async fn a_crossing_is_posted_and_posted_again_until_it_is_taken() {
    let (url, mut posted) = peer(&[503, 429]).await;
    let yaml = format!(
        "
composites:
  - name: xfer_max
    metric: agent_xfer_time
    function: max
    by: [agent_name]
    thresholds:
      - name: slow
        above: 50
        clear: 20
        webhook:
          endpoint: {url}
          headers: {{x-key: secret}}
          retry_on_failure: {{initial_interval: 1ms, max_interval: 1ms}}
      - {{below: 0.5}}
"
    );
    let sink = Sink::new();
    let (cx, _, _) = processor_context("composite", &sink);
    let composites = Composites::new(settings::<CompositeProcessorConfig>(&yaml).get(), cx).unwrap();
    start(&composites).await;
    let kinds = || vec![kind("agent_xfer_time", Instrument::Histogram, &[])];
    composites
        .push(Batch::new(events("a", kinds(), &[(0, 5)])))
        .unwrap();
    composites
        .push(Batch::new(events("b", kinds(), &[(0, 90)])))
        .unwrap();
    let message = tokio::time::timeout(Duration::from_secs(30), posted.recv()).await;
    let message = message.expect("in time").unwrap();
    assert_eq!(
        (&message["composite"], &message["threshold"]),
        (&"xfer_max".into(), &"slow".into())
    );
    assert_eq!(
        (&message["state"], &message["at"], &message["clear"]),
        (&"crossed".into(), &50.0.into(), &20.0.into())
    );
    assert_eq!(message["shown"]["labels"]["agent_name"], "b");
    assert_eq!(message["shown"]["value"], 90.0);
    composites.stop(Instant::now() + Duration::from_secs(10)).await;
    assert!(posted.try_recv().is_err(), "once, and nothing of the other group");
}

#[test]
fn a_partial_queue_of_a_webhook_keeps_one_consumer() {
    let yaml = "{endpoint: \"http://a\", sending_queue: {queue_size: 5}, retry_on_failure: {multiplier: 2}}";
    let options = settings::<WebhookConfig>(yaml).get::<WebhookConfig>();
    let (queue, retry) = (&options.sending_queue, &options.retry_on_failure);
    assert_eq!((queue.queue_size.get(), queue.num_consumers.get()), (5, 1));
    assert_eq!(retry.initial_interval, Duration::from_millis(500));
}

#[test]
fn thresholds_that_can_not_be_are_found() {
    let of = |options: &str| {
        let yaml = format!("composites: [{{name: a, metric: m, function: max, {options}}}]");
        let mut problems = crate::config::Problems::default();
        let node = crate::config::parse_text("a.yaml", &yaml, &mut problems).unwrap();
        let _: Option<CompositeProcessorConfig> = crate::config::Decode::decode(&node, &mut problems);
        problems.to_string()
    };
    let has = |options: &str, expected: &str| {
        let problems = of(options);
        assert!(problems.contains(expected), "{expected} not in {problems}");
    };
    has("thresholds: [{above: 1, below: 2}]", "either `above` or `below`");
    has("thresholds: [{above: 1, clear: 2}]", "near side of above 1");
    has(
        "thresholds: [{above: 1}, {name: above 1, above: 1, clear: 0}]",
        "declared twice",
    );
    has("quantile: 0.5", "goes together with `function: quantile`");
    has("quantiles: [99]", "between 0 and 1");
    assert_eq!(
        of("thresholds: [{below: 1, clear: 2}], quantiles: [0.99], on_stale: last"),
        ""
    );
}
