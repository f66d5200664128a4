// SPDX-License-Identifier: Apache-2.0

//! Encodes values and windows as a page.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_engine::{
    Attributes, Data, ExponentialHistogram, MergeMode, Metric, Point, Series, StreamTotal, SubWindow,
    Temporality, UnixNanos, Value,
};
use tidegate_otlp::convert::encode_points;

use super::{MERGE_KEY, PRODUCER_KEY, Retagger, STREAM, WINDOW};
use crate::ProducerName;

/// Changes attributes.
type Retag = Box<dyn Fn(&Attributes) -> Attributes>;

/// Writes a page or a record.
pub struct PageWriter {
    retagger: Retagger<Retag, Retag>,
    points: Vec<Point>,
}

impl PageWriter {
    /// An empty page of a producer.
    pub fn new(producer: &ProducerName) -> Self {
        let own: Attributes = [(PRODUCER_KEY, producer.as_str())].into_iter().collect();
        let resource: Retag = Box::new(move |attributes| attributes.merge(&own));
        let metric: Retag = Box::new(Attributes::clone);
        Self {
            retagger: Retagger::new(resource, metric),
            points: Vec::new(),
        }
    }

    /// Adds the value of a series.
    pub fn value(
        &mut self,
        series: &Series,
        mode: MergeMode,
        (start, time): (UnixNanos, UnixNanos),
        value: Value,
    ) {
        let merge: Attributes = [(MERGE_KEY, mode.name())].into_iter().collect();
        self.push(series, &merge, start, time, value);
    }

    /// Adds the total of a stream since `start`. It merges with what other producers report of the stream.
    pub fn stream(&mut self, series: &Series, start: UnixNanos, total: &StreamTotal) {
        let merge: Attributes = [(MERGE_KEY, STREAM)].into_iter().collect();
        self.push(series, &merge, start, total.time, total.value.clone());
    }

    /// Adds a group of a composite with its window.
    pub fn window(&mut self, composite: &Arc<str>, group: &Attributes, window: &[SubWindow]) {
        let series = window_series(composite, group);
        let merge: Attributes = [(MERGE_KEY, WINDOW)].into_iter().collect();
        for part in window {
            let value = Value::ExponentialHistogram(Box::new(histogram(part)));
            self.push(&series, &merge, part.start, part.end, value);
        }
    }

    fn push(&mut self, series: &Series, merge: &Attributes, start: UnixNanos, time: UnixNanos, value: Value) {
        self.points.push(Point {
            series: Arc::new(self.retagger.series(series, merge)),
            start,
            time,
            value,
            exemplars: Vec::new(),
        });
    }

    /// The body of the message.
    pub fn finish(self) -> Bytes {
        encode_points(&self.points).joined()
    }
}

/// The series under which a group of a composite travels.
pub(crate) fn window_series(composite: &Arc<str>, group: &Attributes) -> Series {
    Series {
        resource: Arc::default(),
        scope: Arc::default(),
        metric: Arc::new(Metric {
            name: composite.clone(),
            description: "".into(),
            unit: "".into(),
            data: Data::ExponentialHistogram {
                temporality: Temporality::Delta,
            },
            metadata: Attributes::default(),
        }),
        attributes: group.clone(),
    }
}

/// A sub-window as a histogram. Without a distribution, all its values lie in no bucket.
fn histogram(part: &SubWindow) -> ExponentialHistogram {
    let distribution = part.distribution.clone().unwrap_or_else(|| ExponentialHistogram {
        count: part.count.round() as u64,
        ..ExponentialHistogram::default()
    });
    ExponentialHistogram {
        sum: Some(part.sum),
        min: part.min,
        max: part.max,
        ..distribution
    }
}
