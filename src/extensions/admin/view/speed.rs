//! How long queries take by how many series there are; run by hand, in release:
//! `cargo test --release -p tidegate --lib view::speed -- --ignored --nocapture`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tidegate_engine::query::Query;
use tidegate_engine::{
    Attributes, Data, Limits, Metric, Point, Resource, Rule, Series, Table, Temporality, Value,
};

use super::{View, millis};
use crate::component::testing::context;
use crate::component::unix_now;
use crate::extensions::admin::HistoryConfig;

/// Series of one name.
const OF_NAME: usize = 100;

const SECOND: u64 = 1_000_000_000;

fn fill(table: &Table, series: usize, now: u64) {
    let resource = Arc::new(Resource {
        attributes: [("service.name", "web")].into_iter().collect(),
        schema_url: "".into(),
    });
    for name in 0..series.div_ceil(OF_NAME) {
        let metric = Arc::new(Metric {
            name: format!("hits_{name}").into(),
            description: "".into(),
            unit: "".into(),
            data: Data::Sum {
                monotonic: true,
                temporality: Temporality::Cumulative,
            },
            metadata: Attributes::default(),
        });
        for n in 0..OF_NAME {
            let point = Point {
                series: Arc::new(Series {
                    resource: resource.clone(),
                    scope: Arc::default(),
                    metric: metric.clone(),
                    attributes: [("pod", format!("p{n}")), ("x", format!("x{}", n % 4))]
                        .into_iter()
                        .collect(),
                }),
                start: 1,
                time: now,
                value: Value::Int((now / SECOND) as i64 % 100_000 + n as i64),
                exemplars: Vec::new(),
            };
            table.observe(&point, now);
        }
    }
}

#[test]
#[ignore = "a measurement, of minutes"]
fn queries_by_how_many_series_there_are() {
    for series in [1000, 100_000, 1_000_000] {
        let limits = Limits {
            series: 2_000_000,
            streams: 2_000_000,
            ..Limits::default()
        };
        let table = Arc::new(Table::new("test", vec![Rule::newest()], limits));
        let shared = context("extensions", "admin").shared;
        shared.tables.add(table.clone());
        let view = View::new(
            shared,
            &HistoryConfig {
                max_bytes: crate::config::ByteSize::mib(4096),
                ..HistoryConfig::default()
            },
        );
        let start = unix_now() - 70 * SECOND;
        let mut passes = Vec::new();
        for pass in 0..8 {
            let now = start + pass * 10 * SECOND;
            fill(&table, series, now);
            let begun = Instant::now();
            view.record(now);
            passes.push(begun.elapsed());
        }
        passes.sort();
        println!("{series} series: a pass {:?}", passes[passes.len() / 2]);
        for (text, runs) in [
            ("sum(hits_7_total)", 101),
            ("sum by (x) (rate(hits_7_total[1m]))", 101),
            ("count({__name__=~\".+\"})", 5),
        ] {
            let mut times: Vec<Duration> = (0..runs).map(|_| ask(&view, text)).collect();
            times.sort();
            println!("  {text}: {:?}, at worst {:?}", times[runs / 2], times[runs - 1]);
        }
        // What was acknowledged is in the next answer within 20 ms, also while the sampler is at work.
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Relaxed) {
                    view.record(unix_now());
                }
            });
            let mut times: Vec<Duration> = (0..501).map(|_| ask(&view, "sum(hits_7_total)")).collect();
            is_done.store(true, Relaxed);
            times.sort();
            println!(
                "  during passes: {:?}, 99% {:?}, at worst {:?}",
                times[250], times[496], times[500]
            );
        });
    }
}

fn ask(view: &View, text: &str) -> Duration {
    let begun = Instant::now();
    let query = Query::parse(text).unwrap();
    let now = unix_now();
    view.refresh(now, query.only_names().as_deref());
    let answer = query.instant(view, millis(now));
    let took = begun.elapsed();
    if let Err(error) = answer {
        println!("  {text}: {error}");
    }
    took
}
