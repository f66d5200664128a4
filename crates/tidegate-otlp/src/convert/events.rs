// SPDX-License-Identifier: Apache-2.0

//! Events without aggregation, as points: one a kind and batch.
//!
//! Counters become delta sums, observations delta histograms, gauges their last value.

use std::sync::Arc;

use tidegate_engine::rule::DEFAULT_BOUNDS;
use tidegate_engine::{
    Attributes, Data, EventKind, Events, Histogram, Instrument, Metric, Point, Series, Temporality,
    UnixNanos, Value, Values,
};

/// The aggregate of the events of one kind in a batch.
#[derive(Clone)]
struct Fold {
    count: f64,
    sum: f64,
    whole: i128,
    last: f64,
    min: f64,
    max: f64,
    buckets: Vec<f64>,
    first_time: UnixNanos,
    last_time: UnixNanos,
}

/// The points of a batch of events, in the order of the kinds.
pub fn events_to_points(events: &Events) -> Vec<Point> {
    let mut folds: Vec<Option<Fold>> = vec![None; events.schema.kinds.len()];
    for (at, kind) in events.kinds.iter().enumerate() {
        let (Some(place), Some(value)) = (folds.get_mut(usize::from(*kind)), events.values.get(at)) else {
            continue;
        };
        let time = events.time(at);
        place
            .get_or_insert_with(|| Fold::new(time))
            .add(value, events.weight(at), time);
        if let (Some(fold), Values::U64(values)) = (place, &events.values) {
            fold.whole += values.get(at).copied().map_or(0, i128::from);
        }
    }
    let whole = matches!(events.values, Values::U64(_));
    let folded = events.schema.kinds.iter().zip(&folds);
    folded
        .filter_map(|(kind, fold)| Some(point(events, kind, fold.as_ref()?, whole)))
        .collect()
}

impl Fold {
    fn new(time: UnixNanos) -> Self {
        Self {
            count: 0.0,
            sum: 0.0,
            whole: 0,
            last: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            buckets: vec![0.0; DEFAULT_BOUNDS.len() + 1],
            first_time: time,
            last_time: time,
        }
    }

    fn add(&mut self, value: f64, weight: f64, time: UnixNanos) {
        self.count += weight;
        self.sum += value * weight;
        (self.min, self.max, self.last) = (self.min.min(value), self.max.max(value), value);
        let bucket = DEFAULT_BOUNDS.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get_mut(bucket) {
            *bucket += weight;
        }
        (self.first_time, self.last_time) = (self.first_time.min(time), self.last_time.max(time));
    }

    fn total(&self, whole: bool) -> Value {
        match i64::try_from(self.whole) {
            Ok(total) if whole => Value::Int(total),
            _ => Value::Double(self.sum),
        }
    }

    fn histogram(&self) -> Value {
        // Weights are sample rates' inverses; a histogram counts whole observations.
        let counts: Vec<u64> = self.buckets.iter().map(|count| count.round() as u64).collect();
        Value::Histogram(Box::new(Histogram {
            count: counts.iter().sum(),
            sum: Some(self.sum),
            min: Some(self.min),
            max: Some(self.max),
            bounds: Arc::from(DEFAULT_BOUNDS),
            counts,
        }))
    }
}

fn point(events: &Events, kind: &EventKind, fold: &Fold, whole: bool) -> Point {
    let temporality = Temporality::Delta;
    let (data, value) = match kind.instrument {
        Instrument::Counter => (
            Data::Sum {
                monotonic: true,
                temporality,
            },
            fold.total(whole),
        ),
        Instrument::UpDownCounter => (
            Data::Sum {
                monotonic: false,
                temporality,
            },
            fold.total(whole),
        ),
        Instrument::Gauge => (Data::Gauge, Value::Double(fold.last)),
        Instrument::Histogram => (Data::Histogram { temporality }, fold.histogram()),
    };
    let source = &events.source;
    let metric = Metric {
        name: kind.name.clone(),
        description: kind.description.clone(),
        unit: kind.unit.clone(),
        data,
        metadata: Attributes::default(),
    };
    Point {
        series: Arc::new(Series {
            resource: source.resource.clone(),
            scope: source.scope.clone(),
            metric: Arc::new(metric),
            attributes: source.attributes.merge(&kind.attributes),
        }),
        start: fold.first_time,
        time: fold.last_time,
        value,
        exemplars: Vec::new(),
    }
}
