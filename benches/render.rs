// SPDX-License-Identifier: Apache-2.0

//! The cost of a scrape: a table read and rendered, once its series are known.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tidegate::prom::{Format, Renderer, Style};
use tidegate_engine::{
    Attributes, Data, Grouping, Histogram, Limits, Metric, Pattern, Point, Resource, Rule, Scope, Series,
    Table, Temporality, Value,
};

const NOW: u64 = 1_700_000_000_000_000_000;

/// Metrics an agent has: of ten, eight are counters, one is a gauge and one a histogram.
const METRICS: usize = 10;

/// Series by scrape: a node, and the most that one gateway is meant to show.
const SIZES: [usize; 2] = [1_000, 100_000];

const BOUNDS: [f64; 8] = [10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3];

fn metric(number: usize) -> Arc<Metric> {
    let temporality = Temporality::Cumulative;
    let (name, data) = match number {
        0 => ("agent_xfer_time_us".to_owned(), Data::Histogram { temporality }),
        1 => ("agent_tx_last_bytes".to_owned(), Data::Gauge),
        _ => {
            let monotonic = true;
            (
                format!("agent_counter_{number}"),
                Data::Sum {
                    monotonic,
                    temporality,
                },
            )
        }
    };
    Arc::new(Metric {
        name: name.into(),
        description: "What it is".into(),
        unit: "".into(),
        data,
        metadata: Attributes::default(),
    })
}

fn value(data: Data, number: usize) -> Value {
    match data {
        Data::Histogram { .. } => Value::Histogram(Box::new(Histogram {
            count: 9 * number as u64,
            sum: Some(number as f64 * 1.5),
            min: None,
            max: None,
            bounds: Arc::from(BOUNDS),
            counts: vec![number as u64; BOUNDS.len() + 1],
        })),
        Data::Gauge => Value::Double(number as f64 / 3.0),
        _ => Value::Int(number as i64 * 4096),
    }
}

/// A table of `count` series: agents with a resource each, all metrics of an agent one after the other.
fn table(count: usize, rule: Rule) -> Arc<Table> {
    let limits = Limits {
        series: count + 2,
        streams: count + 2,
        ..Limits::default()
    };
    let table = Table::new("bench", vec![rule], limits);
    let metrics: Vec<_> = (0..METRICS).map(metric).collect();
    let mut resource = Arc::default();
    for number in 0..count {
        let (agent, metric) = (number / METRICS, &metrics[number % METRICS]);
        if number % METRICS == 0 {
            let id = format!("worker-{agent}");
            let attributes = [("service.name", "vllm"), ("service.instance.id", id.as_str())];
            resource = Arc::new(Resource {
                attributes: attributes.into_iter().collect(),
                schema_url: "".into(),
            });
        }
        let point = Point {
            series: self::series(agent, &resource, metric),
            start: NOW,
            time: NOW + 1,
            value: value(metric.data, number + 1),
            exemplars: Vec::new(),
        };
        table.observe(&point, NOW);
    }
    assert_eq!(table.len(), count);
    Arc::new(table)
}

/// A scrape after one value has changed: the page is rendered again.
fn scrape(renderer: &mut Renderer, tables: &[Arc<Table>], time: &mut u64) -> usize {
    *time += 1;
    let point = Point {
        series: series(0, &Arc::default(), &metric(2)),
        start: NOW,
        time: *time,
        value: Value::Int(*time as i64),
        exemplars: Vec::new(),
    };
    tables[0].observe(&point, *time);
    renderer.render(tables, *time).body.len()
}

fn series(agent: usize, resource: &Arc<Resource>, metric: &Arc<Metric>) -> Arc<Series> {
    let attributes = [
        ("agent_name", format!("agent_{agent}")),
        ("hostname", "node-17".to_owned()),
    ];
    Arc::new(Series {
        resource: resource.clone(),
        scope: Arc::new(Scope::default()),
        metric: metric.clone(),
        attributes: attributes.into_iter().collect(),
    })
}

fn render(c: &mut Criterion) {
    let live = || Rule {
        grouping: Grouping::by(["agent_name", "hostname"]),
        ..Rule::new(Pattern::Glob("*".into()))
    };
    for (from, rule) in [("live", live as fn() -> Rule), ("pushed", Rule::newest)] {
        let mut group = c.benchmark_group(format!("render/{from}"));
        for series in SIZES {
            let tables = [table(series, rule())];
            group.throughput(Throughput::Elements(series as u64));
            for (name, format) in [
                ("text", Format::Text),
                ("openmetrics", Format::OpenMetrics),
                ("protobuf", Format::Protobuf),
            ] {
                let mut renderer = Renderer::new(format, Style::default());
                let mut time = NOW + 2;
                scrape(&mut renderer, &tables, &mut time);
                group.bench_function(format!("{name}/{series}"), |b| {
                    b.iter(|| black_box(scrape(&mut renderer, &tables, &mut time)));
                });
            }
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = render
}
criterion_main!(benches);
