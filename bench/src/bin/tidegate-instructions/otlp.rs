// SPDX-License-Identifier: Apache-2.0

//! Requests of OTLP: checked, taken into a table, edited.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint};
use prost::Message;
use tidegate::batch::Batch;
use tidegate::component::{
    Consumer, Context, Flow, Ledger, ProcessorContext, ProcessorFactory, Refused, Shared,
};
use tidegate::config::{Problems, parse_text};
use tidegate::processors;
use tidegate_otlp::{Signal, wire};
use tidegate_requests::{attribute, counter, int};

use crate::{Workload, WorkloadError};

/// Points of a request, of counters with ten points each.
pub(crate) const POINTS: usize = 1_000;
const POINTS_A_METRIC: usize = 10;
/// Points of the one counter that `filter` drops.
pub(crate) const FILTERED: usize = POINTS_A_METRIC;

const TIME: u64 = 1_700_000_000_000_000_000;

fn point(number: usize, round: u64) -> NumberDataPoint {
    let keys = ["host", "gpu", "model", "rank", "phase"];
    NumberDataPoint {
        attributes: keys
            .iter()
            .map(|key| attribute(key, format!("{key}-{number}")))
            .collect(),
        start_time_unix_nano: TIME,
        time_unix_nano: TIME + round * 1_000_000_000,
        ..int((number as u64 + 1_000 * round) as i64)
    }
}

/// A request as an SDK sends it: one resource, one scope, running totals that are higher each round.
fn request(round: u64) -> Bytes {
    let metric = |first: usize| {
        let points = (first..first + POINTS_A_METRIC).map(|number| point(number, round));
        Metric {
            unit: "{request}".to_owned(),
            ..counter(format!("engine.requests_{first}"), points)
        }
    };
    let resource = vec![attribute("service.name", "engine")];
    let metrics = (0..POINTS).step_by(POINTS_A_METRIC).map(metric);
    let request = tidegate_requests::request(resource, "engine", metrics);
    request.encode_to_vec().into()
}

/// The work of a hop on a request before it forwards it: check the request, and count its points.
pub(crate) fn check() -> Result<Box<dyn Workload>, WorkloadError> {
    Ok(Box::new(Check(request(0))))
}

struct Check(Bytes);

impl Workload for Check {
    fn run(&mut self) -> usize {
        let checked = wire::check(Signal::Metrics, self.0.clone());
        checked.map_or(0, |request| request.items())
    }
}

/// Points of known series into the table of `aggregate`.
pub(crate) fn aggregate() -> Result<Box<dyn Workload>, WorkloadError> {
    let end = Arc::<End>::default();
    let options = r#"{rules: [{match: {name: "*"}}]}"#;
    let (entry, ledger) = processor(&processors::aggregate::FACTORY, options, end)?;
    let absorbed = move || ledger.balance().absorbed as usize;
    Ok(Box::new(Push::new(entry, Box::new(absorbed))))
}

/// An attribute put in everywhere and one metric dropped, on the wire.
pub(crate) fn edit() -> Result<Box<dyn Workload>, WorkloadError> {
    let end = Arc::<End>::default();
    let options = "{metrics: {exclude: {match_type: strict, metric_names: [engine.requests_0]}}}";
    let (filter, _) = processor(&processors::filter::FACTORY, options, end.clone())?;
    let options = "{actions: [{key: phase, action: delete}, {key: cluster, value: east-1, action: insert}]}";
    let (attributes, _) = processor(&processors::attributes::FACTORY, options, filter)?;
    let passed = move || end.items.load(Ordering::Relaxed);
    Ok(Box::new(Push::new(attributes, Box::new(passed))))
}

/// A request a round, pushed into processors.
struct Push {
    entry: Arc<dyn Consumer>,
    round: u64,
    next: Option<Batch>,
    /// Items that have arrived so far.
    arrived: Box<dyn Fn() -> usize>,
}

impl Push {
    fn new(entry: Arc<dyn Consumer>, arrived: Box<dyn Fn() -> usize>) -> Self {
        Self {
            entry,
            round: 0,
            next: None,
            arrived,
        }
    }
}

impl Workload for Push {
    fn prepare(&mut self) -> Result<(), WorkloadError> {
        self.round += 1;
        let request = wire::check(Signal::Metrics, request(self.round))?;
        self.next = Some(Batch::new(request));
        Ok(())
    }

    fn run(&mut self) -> usize {
        let before = (self.arrived)();
        let pushed = self.next.take().map(|batch| self.entry.push(batch));
        match pushed {
            Some(Ok(_)) => (self.arrived)() - before,
            _ => 0,
        }
    }
}

/// A processor as configured, and its books.
pub(crate) fn processor(
    factory: &ProcessorFactory,
    options: &str,
    next: Arc<dyn Consumer>,
) -> Result<(Arc<dyn Consumer>, Arc<Ledger>), WorkloadError> {
    let mut problems = Problems::default();
    let node = parse_text("options", options, &mut problems);
    let settings = node.and_then(|node| (factory.config.decode)(&node, &mut problems));
    let settings = settings
        .filter(|_| !problems.has_errors())
        .ok_or_else(|| problems.to_string())?;
    let ledger = Arc::<Ledger>::default();
    let context = ProcessorContext {
        replaced: Vec::new(),
        base: Context {
            path: factory.kind.into(),
            id: factory.kind.into(),
            shared: Arc::<Shared>::default(),
        },
        pipeline: "metrics".into(),
        signal: Signal::Metrics,
        next,
        ledger: ledger.clone(),
    };
    Ok(((factory.build)(&settings, context)?, ledger))
}

/// The end of the path, where what arrives is counted.
#[derive(Default)]
pub(crate) struct End {
    items: AtomicUsize,
}

impl Consumer for End {
    fn admit(&self, _: &Batch, _: &mut Flow) -> Result<(), Refused> {
        Ok(())
    }

    fn consume(&self, batch: Batch, _: &mut Flow) {
        self.items.fetch_add(batch.items(), Ordering::Relaxed);
    }
}
