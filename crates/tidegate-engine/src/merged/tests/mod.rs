// SPDX-License-Identifier: Apache-2.0

mod laws;
mod levels;
mod limits;
mod model;
mod regressions;
mod streams;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::{Attributes, Data, ExponentialHistogram, Histogram, Metric, Summary};

const TERM: u64 = 10;

fn limits() -> MergedLimits {
    MergedLimits {
        lease_ns: TERM,
        ..MergedLimits::default()
    }
}

fn id(number: u8) -> ProducerId {
    let mut id = [0; 16];
    id[0] = number;
    ProducerId(id)
}

fn identity(name: &str) -> Arc<Series> {
    Arc::new(Series {
        resource: Arc::default(),
        scope: Arc::default(),
        metric: Arc::new(Metric {
            name: name.into(),
            description: "".into(),
            unit: "".into(),
            data: Data::Gauge,
            metadata: Attributes::default(),
        }),
        attributes: Attributes::default(),
    })
}

/// A report of a total. Its run began when the series did.
fn report(producer: u8, start: u64, sequence: u64, value: impl Into<Value>) -> RunReport {
    RunReport {
        producer: id(producer),
        epoch: start,
        start,
        sequence,
        time: start + sequence,
        mode: MergeMode::Add,
        value: value.into(),
    }
}

fn level(mode: MergeMode, producer: u8, epoch: u64, sequence: u64, value: impl Into<Value>) -> RunReport {
    RunReport {
        mode,
        ..report(producer, epoch, sequence, value)
    }
}

fn take(merged: &mut Merged, name: &str, report: RunReport) -> Result<bool, MergeRefusal> {
    let series = identity(name);
    merged.take(Key::of(&series), || series.clone(), report)
}

/// Takes reports of the series `x`.
fn take_all(merged: &mut Merged, reports: impl IntoIterator<Item = RunReport>) {
    for report in reports {
        take(merged, "x", report).unwrap();
    }
}

/// The shown series: start and value by name.
fn shown(merged: &mut Merged) -> BTreeMap<String, (u64, Value)> {
    let mut all = BTreeMap::new();
    merged.read(&mut |reading| {
        let shown = (reading.start, reading.value.clone());
        all.insert(reading.series.metric.name.to_string(), shown);
    });
    all
}

/// The value of the series `x`.
fn value(merged: &mut Merged) -> Option<Value> {
    shown(merged).remove("x").map(|(_, value)| value)
}

/// Gives `to` what a leader publishes of a producer.
fn publish(from: &Merged, producer: u8, to: &mut Merged) {
    let mut all = Vec::new();
    from.retained(id(producer), &mut |key, identity, total| {
        all.push((key, identity.clone(), total));
    });
    for (key, identity, total) in all {
        to.take_retained(key, &identity, total).unwrap();
    }
}

fn histogram(bounds: &[f64], values: &[f64]) -> Value {
    let mut histogram = Histogram::empty(bounds.into());
    values.iter().for_each(|value| histogram.observe(*value, 1));
    Value::Histogram(Box::new(histogram))
}

fn exponential(scale: i32, offset: i32, counts: &[u64], sum: f64) -> Value {
    Value::ExponentialHistogram(Box::new(ExponentialHistogram {
        count: counts.iter().sum(),
        sum: Some(sum),
        scale,
        positive: crate::Buckets {
            offset,
            counts: counts.to_vec(),
        },
        ..ExponentialHistogram::default()
    }))
}

fn summary(count: u64, sum: f64) -> Value {
    Value::Summary(Box::new(Summary {
        count,
        sum,
        quantiles: Vec::new(),
    }))
}

/// A run by name of its series, with whether it is folded.
type KnownRun = (String, String, bool);

/// Everything that merges, in an order of its own. Equal text means equal bits.
fn state(merged: &Merged) -> (Vec<KnownRun>, Vec<String>) {
    let (mut runs, mut others) = (Vec::new(), Vec::new());
    for series in merged.series.iter().flatten() {
        let name = series.identity.metric.name.to_string();
        for run in &series.runs {
            runs.push((name.clone(), format!("{:?}", run.report), run.is_folded));
        }
        others.push(format!(
            "{name} {} {} {:?}",
            series.start, series.time, series.compacted
        ));
    }
    for (producer, leases) in merged.producers.leases() {
        let mut leases: Vec<_> = leases
            .iter()
            .map(|lease| (lease.epoch, lease.life.touched, lease.life.is_ended))
            .collect();
        leases.sort_unstable();
        others.push(format!("{producer} {leases:?}"));
    }
    runs.sort();
    others.sort();
    (runs, others)
}

/// Checks the counted bytes, and that all lists of series agree.
fn audit(merged: &Merged) {
    let mut held = 0;
    for (slot, series) in merged.series.iter().enumerate() {
        let Some(series) = series else { continue };
        assert_eq!(series.bytes(), series.counted_bytes());
        assert_eq!(merged.places.get(&series.key), Some(&(slot as u32)));
        held += series.bytes();
        let runs = series.runs.iter().map(|run| run.report.producer);
        let mut producers: Vec<_> = runs.chain(series.compacted.iter().map(|(id, _)| *id)).collect();
        producers.dedup();
        for producer in producers {
            let listed = &merged.producers.get(producer).unwrap().series;
            assert_eq!(listed.iter().filter(|listed| **listed == slot as u32).count(), 1);
        }
    }
    assert_eq!(merged.held, held);
    let counting = merged
        .series
        .iter()
        .flatten()
        .filter(|series| series.kind().is_some());
    assert_eq!(merged.counting, counting.count());
    assert_eq!(merged.places.len(), merged.series.iter().flatten().count());
}
