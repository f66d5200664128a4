// SPDX-License-Identifier: Apache-2.0

//! Expositions of readings in the text formats.

mod conflicts;
mod history;
mod messages;
mod owners;
mod registration;
mod rows;
mod targets;
mod validity;
mod walk;

use std::sync::Arc;

use proptest::prelude::*;
use tidegate_engine::{
    Attributes, Buckets, Data, ExponentialHistogram, Histogram, Limits, Metric, Pattern, Point, Quantile,
    Resource, Rule, Scope, Series, Summary, Table, Temporality, Value,
};

use super::*;
use crate::{LabelSources, Naming, OPENMETRICS_NAME, ResourceLabels, Strategy as Translation};

const COUNTER: Data = Data::Sum {
    monotonic: true,
    temporality: Temporality::Cumulative,
};
const HISTOGRAM: Data = Data::Histogram {
    temporality: Temporality::Cumulative,
};

fn series(
    name: &str,
    unit: &str,
    data: Data,
    resource: &[(&str, &str)],
    labels: &[(&str, &str)],
) -> Arc<Series> {
    Arc::new(Series {
        resource: Arc::new(Resource {
            attributes: resource.iter().copied().collect(),
            schema_url: "".into(),
        }),
        scope: Arc::new(Scope::default()),
        metric: Arc::new(Metric {
            name: name.into(),
            description: "What it is".into(),
            unit: unit.into(),
            data,
            metadata: Attributes::default(),
        }),
        attributes: labels.iter().copied().collect(),
    })
}

fn renderer(format: Format) -> Renderer {
    Renderer::new(format, Style::default())
}

const NOW: u64 = 1_500_000_000;

/// A table that shows what is put into it.
fn table(owner: &str) -> Arc<Table> {
    Arc::new(Table::new(owner, vec![Rule::newest()], Limits::default()))
}

fn put(table: &Table, all: &[(Arc<Series>, Value)]) {
    put_at(table, all, NOW);
}

fn put_at(table: &Table, all: &[(Arc<Series>, Value)], time: u64) {
    for (series, value) in all {
        let point = Point {
            series: series.clone(),
            start: 0,
            time,
            value: value.clone(),
            exemplars: Vec::new(),
        };
        table.observe(&point, time);
    }
}

fn text(renderer: &mut Renderer, tables: &[Arc<Table>]) -> String {
    String::from_utf8(renderer.render(tables, NOW).body.to_vec()).unwrap()
}

/// The page of a table that has all this.
fn page(renderer: &mut Renderer, all: &[(Arc<Series>, Value)]) -> String {
    let table = table("test");
    put(&table, all);
    text(renderer, &[table])
}

#[test]
fn counters_and_gauges_look_as_nixls_own_exporter_writes_them() {
    let labels = [("agent_name", "a"), ("hostname", "h")];
    let all = [
        (
            series("agent_tx_bytes", "", COUNTER, &[], &labels),
            Value::Int(9216),
        ),
        (
            series("agent_xfer_time", "", Data::Gauge, &[], &labels),
            Value::Double(7.5),
        ),
        (
            series("agent_xfer_time", "", COUNTER, &[], &labels),
            Value::Int(30),
        ),
    ];
    let expected = "\
# HELP agent_tx_bytes_total What it is
# TYPE agent_tx_bytes_total counter
agent_tx_bytes_total{agent_name=\"a\",hostname=\"h\"} 9216
# HELP agent_xfer_time What it is
# TYPE agent_xfer_time gauge
agent_xfer_time{agent_name=\"a\",hostname=\"h\"} 7.5
# HELP agent_xfer_time_total What it is
# TYPE agent_xfer_time_total counter
agent_xfer_time_total{agent_name=\"a\",hostname=\"h\"} 30
";
    let (mut renderer, table) = (renderer(Format::Text), table("test"));
    put(&table, &all);
    for _ in 0..2 {
        assert_eq!(text(&mut renderer, std::slice::from_ref(&table)), expected);
    }
    assert_eq!(renderer.take_conflicts(), []);
}

#[test]
fn openmetrics_gives_the_gauge_beside_a_counter_its_other_name() {
    let mut gauge = (*series("agent_xfer_time", "", Data::Gauge, &[], &[])).clone();
    let mut metric = (*gauge.metric).clone();
    metric.metadata = [(OPENMETRICS_NAME, "agent_xfer_time_last")].into_iter().collect();
    gauge.metric = Arc::new(metric);
    let counter = series("agent_xfer_time", "", COUNTER, &[], &[]);
    let all = [(Arc::new(gauge), Value::Int(7)), (counter, Value::Int(30))];
    let mut openmetrics = renderer(Format::OpenMetrics);
    let expected = "\
# HELP agent_xfer_time What it is
# TYPE agent_xfer_time counter
agent_xfer_time_total 30
# HELP agent_xfer_time_last What it is
# TYPE agent_xfer_time_last gauge
agent_xfer_time_last 7
# EOF
";
    assert_eq!(page(&mut openmetrics, &all), expected);
    assert!(page(&mut renderer(Format::Text), &all).contains("\nagent_xfer_time 7\n"));
}

#[test]
fn histograms_have_running_buckets_sum_and_count() {
    let value = Value::Histogram(Box::new(Histogram {
        count: 6,
        sum: Some(12.5),
        min: None,
        max: None,
        bounds: Arc::from([1.0, 2.5]),
        counts: vec![1, 2, 3],
    }));
    let all = [(series("d", "s", HISTOGRAM, &[], &[("a", "b")]), value)];
    let text = page(&mut renderer(Format::Text), &all);
    let lines: Vec<_> = text.lines().skip(2).collect();
    assert_eq!(
        lines,
        [
            "d_seconds_bucket{a=\"b\",le=\"1\"} 1",
            "d_seconds_bucket{a=\"b\",le=\"2.5\"} 3",
            "d_seconds_bucket{a=\"b\",le=\"+Inf\"} 6",
            "d_seconds_sum{a=\"b\"} 12.5",
            "d_seconds_count{a=\"b\"} 6",
        ]
    );
    let text = page(&mut renderer(Format::OpenMetrics), &all);
    assert!(text.contains("le=\"1.0\"") && text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn a_page_is_the_same_until_something_changes() {
    let (mut renderer, tables) = (renderer(Format::Text), [table("test")]);
    let of = |value| [(series("x", "", COUNTER, &[], &[("a", "1")]), Value::Int(value))];
    put(&tables[0], &of(1));
    let one = renderer.render(&tables, NOW);
    let same = renderer.render(&tables, NOW + 1);
    assert!(Arc::ptr_eq(&one, &same));
    put_at(&tables[0], &of(2), NOW + 1);
    let other = renderer.render(&tables, NOW + 2);
    assert!(other.version > one.version && other.body != one.body);
}
