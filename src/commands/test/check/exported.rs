// SPDX-License-Identifier: Apache-2.0

//! The data that has left exporters since the start of a test, decoded once, as far as its expectations ask for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_engine::{Data, Point, Series, Temporality, Value};

use crate::batch::{Payload, Signal, convert, json};
use crate::commands::test::file::Expectation;

/// What is kept of one exporter, at most.
#[derive(Clone, Copy)]
struct ExportLimits {
    /// Series with their newest points.
    series: usize,
    /// Bytes of requests as OTLP/JSON.
    text_bytes: usize,
}

impl Default for ExportLimits {
    fn default() -> Self {
        Self {
            series: 200_000,
            text_bytes: 256 << 20,
        }
    }
}

/// The data of the exporters that the expectations of a test name.
pub(in crate::commands::test) struct Exported(BTreeMap<String, ExporterData>);

impl Exported {
    /// No data yet. Data that no expectation asks for is not kept.
    pub(in crate::commands::test) fn for_all<'a>(
        expectations: impl IntoIterator<Item = &'a Expectation>,
    ) -> Self {
        let mut exporters: BTreeMap<String, ExporterData> = BTreeMap::new();
        for expected in expectations {
            if let Some(exporter) = &expected.exporter {
                let data = exporters.entry(exporter.clone()).or_default();
                data.wants_series |= !expected.points.is_empty();
                data.wants_texts |= !expected.contains.is_empty() || !expected.absent.is_empty();
            }
        }
        Self(exporters)
    }

    /// Takes payloads with the ids of their exporters.
    pub(in crate::commands::test) fn take(&mut self, payloads: Vec<(String, Payload)>) {
        for (exporter, payload) in payloads {
            if let Some(data) = self.0.get_mut(&exporter) {
                data.take(&payload);
            }
        }
    }

    /// The data of an exporter. `None`: no expectation names it.
    pub(super) fn of(&self, exporter: &str) -> Option<&ExporterData> {
        self.0.get(exporter)
    }
}

/// The data of one exporter.
#[derive(Default)]
pub(super) struct ExporterData {
    wants_series: bool,
    wants_texts: bool,
    /// The number of points, spans and log records.
    pub(super) items: usize,
    series: BTreeMap<Arc<Series>, ReceivedSeries>,
    has_more_series: bool,
    texts: Vec<String>,
    /// The bytes of all texts, also of those that are not kept.
    text_bytes: usize,
    limits: ExportLimits,
}

impl ExporterData {
    fn take(&mut self, payload: &Payload) {
        self.items += payload.items();
        if self.wants_series {
            for point in points(payload) {
                self.add_point(point);
            }
        }
        if self.wants_texts
            && let Ok(text) = json::to_json(&payload.encode())
        {
            self.add_text(text);
        }
    }

    fn add_point(&mut self, point: Point) {
        if let Some(known) = self.series.get_mut(&point.series) {
            known.add(point);
        } else if self.series.len() < self.limits.series {
            self.series.insert(point.series.clone(), ReceivedSeries { point });
        } else {
            self.has_more_series = true;
        }
    }

    fn add_text(&mut self, text: String) {
        self.text_bytes += text.len();
        if self.text_bytes <= self.limits.text_bytes {
            self.texts.push(text);
        }
    }

    /// The series.
    ///
    /// # Errors
    /// There were too many to keep them all.
    pub(super) fn series(&self) -> Result<Vec<&ReceivedSeries>, String> {
        if self.has_more_series {
            let max = self.limits.series;
            return Err(format!(
                "the exporter got more than {max} series: split the test, or let it send fewer"
            ));
        }
        Ok(self.series.values().collect())
    }

    /// The requests as OTLP/JSON.
    ///
    /// # Errors
    /// There were too many to keep them all.
    pub(super) fn texts(&self) -> Result<&[String], String> {
        if self.text_bytes > self.limits.text_bytes {
            let mebibytes = self.limits.text_bytes >> 20;
            return Err(format!(
                "the requests of the exporter have more than {mebibytes} MiB as OTLP/JSON: split the test, or let it send less"
            ));
        }
        Ok(&self.texts)
    }
}

/// The points of metrics.
fn points(payload: &Payload) -> Vec<Point> {
    match payload {
        Payload::Points(points) => points.points.to_vec(),
        Payload::Events(events) => convert::events_to_points(events),
        Payload::Encoded(encoded) if encoded.signal == Signal::Metrics => {
            convert::points(encoded).unwrap_or_default()
        }
        Payload::Encoded(_) => Vec::new(),
    }
}

/// The newest state of a series at an exporter.
pub(super) struct ReceivedSeries {
    pub(super) point: Point,
}

impl ReceivedSeries {
    pub(super) fn data(&self) -> Data {
        self.point.series.metric.data
    }

    /// Adds a point that came later. Its time can be older.
    fn add(&mut self, point: Point) {
        if self.data().temporality() == Temporality::Delta {
            let before = std::mem::replace(&mut self.point, point);
            add_delta(&mut self.point.value, &before.value);
        } else if point.time >= self.point.time {
            self.point = point;
        }
    }
}

/// Adds an earlier delta to a later one.
fn add_delta(value: &mut Value, before: &Value) {
    match (value, before) {
        (Value::Histogram(now), Value::Histogram(before)) => {
            now.count += before.count;
            now.sum = now.sum.zip(before.sum).map(|(now, before)| now + before);
        }
        (Value::ExponentialHistogram(now), Value::ExponentialHistogram(before)) => {
            now.count += before.count;
            now.sum = now.sum.zip(before.sum).map(|(now, before)| now + before);
        }
        (value, before) => {
            if let (Some(now), Some(before)) = (value.as_f64(), before.as_f64()) {
                *value = Value::Double(now + before);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_engine::{Attributes, Metric};

    use super::*;
    use crate::batch::Points;

    /// A point of a series of delta temporality.
    fn point(series: &str, value: i64) -> Point {
        let metric = Metric {
            name: "m".into(),
            description: "".into(),
            unit: "".into(),
            data: Data::Sum {
                monotonic: true,
                temporality: Temporality::Delta,
            },
            metadata: Attributes::default(),
        };
        let series = Series {
            resource: Arc::default(),
            scope: Arc::default(),
            metric: Arc::new(metric),
            attributes: [("series", series)].into_iter().collect(),
        };
        Point {
            series: Arc::new(series),
            start: 1,
            time: 2,
            value: Value::Int(value),
            exemplars: Vec::new(),
        }
    }

    fn data(wants: (bool, bool)) -> Exported {
        let (wants_series, wants_texts) = wants;
        let asked = ExporterData {
            wants_series,
            wants_texts,
            limits: ExportLimits {
                series: 2,
                text_bytes: 1_000,
            },
            ..ExporterData::default()
        };
        Exported([("asked".to_owned(), asked)].into())
    }

    fn payload(points: impl IntoIterator<Item = Point>) -> Payload {
        let points = points.into_iter().collect();
        Payload::from(Points { points })
    }

    #[test]
    fn only_data_that_an_expectation_asks_for_is_kept() {
        let mut exported = data((true, false));
        let batch = || payload([point("a", 1), point("b", 5)]);
        for exporter in ["asked", "other", "asked"] {
            exported.take(vec![(exporter.to_owned(), batch())]);
        }
        assert!(exported.of("other").is_none());
        let asked = exported.of("asked").unwrap();
        assert_eq!((asked.items, asked.texts().unwrap().len()), (4, 0));
        let values: Vec<_> = asked
            .series()
            .unwrap()
            .iter()
            .map(|one| one.point.value.as_f64())
            .collect();
        assert_eq!(values, [Some(2.0), Some(10.0)], "deltas add up");
    }

    #[test]
    fn series_and_requests_beyond_a_limit_are_an_error() {
        let mut exported = data((true, true));
        let mut take = |points: Vec<Point>| {
            exported.take(vec![("asked".to_owned(), payload(points))]);
            let asked = exported.of("asked").unwrap();
            (asked.series().is_ok(), asked.texts().is_ok())
        };
        assert_eq!(take(vec![point("a", 1), point("b", 1)]), (true, true));
        let (has_all_series, _) = take(vec![point("a", 1), point("c", 1)]);
        assert!(!has_all_series, "`c` is the third");
        for _ in 0..9 {
            take(vec![point("a", 1)]);
        }
        assert_eq!(take(vec![point("a", 1)]), (false, false));
    }
}
