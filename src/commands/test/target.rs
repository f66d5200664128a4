// SPDX-License-Identifier: Apache-2.0

//! The targets of scrapes: the points of a page, of a failed scrape, and of a target that leaves discovery.

use std::sync::Arc;

use tidegate_engine::{Attributes, Data, Metric, Point, Resource, Series, UnixNanos, Value};
use tidegate_exposition::Format;

use super::file::TestInput;
use crate::component::unix_now;
use crate::prom::model::{INSTANCE, JOB, LabelSet};
use crate::prom::scrape::{ScrapeDecoder, Settings, Target};

/// A target of scrapes.
pub(super) struct ScrapedTarget {
    pub(super) receiver: String,
    pub(super) source: String,
    labels: TargetLabels,
    decoder: ScrapeDecoder,
    /// When a scrape failed last.
    pub(super) failed: Option<UnixNanos>,
    /// Whether there is a series `up` of it.
    has_up: bool,
    /// Whether it has left discovery.
    pub(super) is_gone: bool,
}

impl ScrapedTarget {
    pub(super) fn new(input: &TestInput, receiver: &str) -> Self {
        let labels = input.labels.iter();
        let labels = labels.map(|(name, value)| (name.to_owned(), value.clone()));
        let labels = TargetLabels(labels.collect());
        Self {
            receiver: receiver.to_owned(),
            source: input.source.clone(),
            decoder: ScrapeDecoder::new(Settings::default(), Box::new(labels.clone())),
            labels,
            failed: None,
            has_up: false,
            is_gone: false,
        }
    }

    /// The points of a page. With `says_up`, they say that the scrape has succeeded.
    pub(super) fn page(&mut self, page: &str, says_up: bool) -> Result<Vec<Point>, String> {
        let mut points = Vec::new();
        let read = self
            .decoder
            .page(Format::Text, page.as_bytes(), unix_now(), &mut points);
        read.map_err(|failed| failed.to_string())?;
        if says_up {
            points.push(self.up(Value::Double(1.0)));
        }
        Ok(points)
    }

    /// The points of a failed scrape: `up`, and the end of the series.
    pub(super) fn fail(&mut self) -> Vec<Point> {
        let now = unix_now();
        let mut points = vec![self.up(Value::Double(0.0))];
        self.decoder.end(now, &mut points);
        self.failed = Some(now);
        points
    }

    /// The points of a target that leaves discovery: the end of its series.
    pub(super) fn leave(&mut self) -> Vec<Point> {
        let mut points = Vec::new();
        self.decoder.end(unix_now(), &mut points);
        if self.has_up {
            points.push(self.up(Value::NoRecordedValue));
        }
        (self.has_up, self.is_gone) = (false, true);
        points
    }

    /// A point of its series `up`, which has the resource of the other series.
    fn up(&mut self, value: Value) -> Point {
        self.has_up = true;
        let [job, instance] = TARGET.map(|name| self.labels.get(name));
        let known = self.decoder.resource(job, instance);
        let resource = known.unwrap_or_else(|| {
            Arc::new(Resource {
                attributes: self.labels.resource(job, instance),
                schema_url: Arc::default(),
            })
        });
        let others = self.labels.0.iter();
        let others = others.filter(|(name, _)| !TARGET.contains(&name.as_str()));
        let series = Series {
            resource,
            scope: Arc::default(),
            metric: Arc::new(Metric {
                name: "up".into(),
                description: Arc::default(),
                unit: Arc::default(),
                data: Data::Gauge,
                metadata: Attributes::default(),
            }),
            attributes: others
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect(),
        };
        Point {
            series: Arc::new(series),
            start: 0,
            time: unix_now(),
            value,
            exemplars: Vec::new(),
        }
    }
}

/// The labels that name a target. They are the resource of its series.
const TARGET: [&str; 2] = [JOB, INSTANCE];

/// The labels that a target adds to the series of its page.
#[derive(Clone)]
struct TargetLabels(Vec<(String, String)>);

impl TargetLabels {
    fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known.as_str() == name);
        found.map_or("", |(_, value)| value.as_str())
    }
}

impl Target for TargetLabels {
    fn relabel(&mut self, labels: &mut LabelSet) -> bool {
        for (name, value) in &self.0 {
            labels.set(name, value.as_str());
        }
        true
    }

    fn resource(&self, job: &str, instance: &str) -> Attributes {
        let pairs = [("service.name", job), ("service.instance.id", instance)];
        pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_engine::Number;

    use super::super::testing::decoded;
    use super::*;

    /// The names and numbers of points. The end of a series has none.
    fn seen(points: &[Point]) -> Vec<(&str, Option<f64>)> {
        let points = points.iter();
        let number = |point: &Point| point.value.number().map(Number::as_f64);
        points
            .map(|point| (&*point.series.metric.name, number(point)))
            .collect()
    }

    #[test]
    fn a_failed_scrape_ends_the_series_and_says_that_the_target_is_down() {
        let input: TestInput = decoded("{source: a, text: '', labels: {job: j, instance: i, zone: z}}");
        let mut target = ScrapedTarget::new(&input, "prometheus");
        let page = target.page("depth 3\n", true).expect("a page");
        assert_eq!(seen(&page), [("depth", Some(3.0)), ("up", Some(1.0))]);
        assert_eq!(page[0].series.resource, page[1].series.resource);
        assert_eq!(page[0].series.attributes, page[1].series.attributes);
        assert_eq!(seen(&target.fail()), [("up", Some(0.0)), ("depth", None)]);
        assert_eq!(seen(&target.fail()), [("up", Some(0.0))]);
        assert_eq!(seen(&target.leave()), [("up", None)]);
        assert!(target.leave().is_empty());
    }
}
