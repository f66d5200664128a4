// SPDX-License-Identifier: Apache-2.0

//! Pages of Prometheus: written from a table, and read into points.

use std::fmt::Write;
use std::sync::Arc;

use tidegate::prom::model::LabelSet;
use tidegate::prom::scrape::{ScrapeDecoder, Settings, Target};
use tidegate::prom::{Format, Renderer, Style};
use tidegate_engine::{
    Attributes, Data, Limits, Metric, Pattern, Point, Rule, Series, Table, Temporality, Value,
};

use crate::{Workload, WorkloadError};

/// Series on a page, counters of agents.
pub(crate) const SERIES: usize = 2_000;
const AGENTS: usize = 100;

const TIME: u64 = 1_700_000_000_000_000_000;

/// The text of a table whose series are known and have all got new values.
pub(crate) fn exposition() -> Result<Box<dyn Workload>, WorkloadError> {
    let metrics: Vec<Arc<Metric>> = (0..SERIES / AGENTS).map(metric).collect();
    let series = (0..SERIES).map(|number| series(number % AGENTS, &metrics[number / AGENTS]));
    let rule = Rule::new(Pattern::Glob("*".into()));
    Ok(Box::new(Exposition {
        series: series.collect(),
        tables: [Arc::new(Table::new(
            "instructions",
            vec![rule],
            Limits::default(),
        ))],
        renderer: Renderer::new(Format::Text, Style::default()),
        round: 0,
    }))
}

fn metric(number: usize) -> Arc<Metric> {
    Arc::new(Metric {
        name: format!("agent_counter_{number}").into(),
        description: "What it counts".into(),
        unit: "".into(),
        data: Data::Sum {
            monotonic: true,
            temporality: Temporality::Cumulative,
        },
        metadata: Attributes::default(),
    })
}

fn series(agent: usize, metric: &Arc<Metric>) -> Arc<Series> {
    let attributes = [
        ("agent_name", format!("agent_{agent}")),
        ("hostname", "node-17".to_owned()),
    ];
    Arc::new(Series {
        resource: Arc::default(),
        scope: Arc::default(),
        metric: metric.clone(),
        attributes: attributes.into_iter().collect(),
    })
}

struct Exposition {
    series: Vec<Arc<Series>>,
    tables: [Arc<Table>; 1],
    renderer: Renderer,
    round: u64,
}

impl Workload for Exposition {
    fn prepare(&mut self) -> Result<(), WorkloadError> {
        self.round += 1;
        let time = TIME + self.round * 1_000_000_000;
        let mut session = self.tables[0].session(time);
        for (number, series) in self.series.iter().enumerate() {
            session.observe(&Point {
                series: series.clone(),
                start: TIME,
                time,
                value: Value::Int((number as u64 * 4_096 + self.round) as i64),
                exemplars: Vec::new(),
            });
        }
        Ok(())
    }

    fn run(&mut self) -> usize {
        let time = TIME + self.round * 1_000_000_000 + 1;
        let page = self.renderer.render(&self.tables, time);
        // About 60 bytes a series: a page with fewer has not shown all.
        if page.body.len() > 50 * SERIES { SERIES } else { 0 }
    }
}

/// A page whose lines are known and come in the order of the last page, with new values.
pub(crate) fn scraped() -> Result<Box<dyn Workload>, WorkloadError> {
    Ok(Box::new(Scraped {
        decoder: ScrapeDecoder::new(Settings::default(), Box::new(Labelled)),
        page: String::new(),
        points: Vec::with_capacity(2 * SERIES),
        round: 0,
    }))
}

struct Labelled;

impl Target for Labelled {
    fn relabel(&mut self, labels: &mut LabelSet) -> bool {
        labels.set("job", "agents");
        labels.set("instance", "gpu-node-001.example:9090");
        true
    }

    fn resource(&self, job: &str, instance: &str) -> Attributes {
        [("service.name", job), ("service.instance.id", instance)]
            .into_iter()
            .collect()
    }
}

struct Scraped {
    decoder: ScrapeDecoder,
    page: String,
    points: Vec<Point>,
    round: u64,
}

impl Workload for Scraped {
    fn prepare(&mut self) -> Result<(), WorkloadError> {
        self.round += 1;
        self.points.clear();
        self.page.clear();
        self.page.push_str("# TYPE nixl_bytes_total counter\n");
        for line in 0..SERIES as u64 {
            let value = line * 7_919 + self.round;
            writeln!(
                self.page,
                "nixl_bytes_total{{agent=\"agent-{line:05}\",backend=\"UCX\",node=\"gpu-node-{:03}\"}} {value}.5",
                line / 40
            )?;
        }
        Ok(())
    }

    fn run(&mut self) -> usize {
        let time = TIME + self.round * 1_000_000_000;
        let page = self.page.as_bytes();
        let counts = self
            .decoder
            .page(tidegate_exposition::Format::Text, page, time, &mut self.points);
        match counts {
            Ok(_) => self.points.len(),
            Err(_) => 0,
        }
    }
}
