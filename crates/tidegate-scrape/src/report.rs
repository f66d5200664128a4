// SPDX-License-Identifier: Apache-2.0

//! The series that every scrape adds about itself, such as `up`.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Attributes, Data, Metric, Point, Resource, Scope, Series, UnixNanos, Value};

use super::identity;
use super::job::Job;
use super::target::{INSTANCE, JOB, Target};

/// The data about a scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Scraped {
    /// Whether the scrape succeeded.
    pub(super) up: bool,
    /// The duration, including the decoding.
    pub(super) duration: Duration,
    /// Samples on the page.
    pub(super) samples: usize,
    /// Samples that relabelling left.
    pub(super) kept: usize,
    /// Series that were not there the last time.
    pub(super) added: usize,
    /// The decompressed size of the page; `None` if it was too large.
    pub(super) body_bytes: Option<usize>,
}

/// Name, unit and description; Prometheus's texts are not ours to copy.
const ALWAYS: [(&str, &str, &str); 5] = [
    ("up", "", "Whether the last scrape of the target gave something"),
    ("scrape_duration_seconds", "s", "How long the last scrape took"),
    ("scrape_samples_scraped", "", "Samples on the last page"),
    (
        "scrape_samples_post_metric_relabeling",
        "",
        "Samples of the last page that relabelling left",
    ),
    (
        "scrape_series_added",
        "",
        "Series that the last page brought and those before had not",
    ),
];

const EXTRA: [(&str, &str, &str); 3] = [
    (
        "scrape_timeout_seconds",
        "s",
        "How long an answer of the target may take",
    ),
    (
        "scrape_sample_limit",
        "",
        "Samples that a page of the target may have, 0 where there is no limit",
    ),
    (
        "scrape_body_size_bytes",
        "By",
        "Size of the last page unpacked, -1 where it was too large",
    ),
];

/// The series of one target's scrapes.
pub(super) struct Report {
    job: String,
    instance: String,
    series: Vec<Arc<Series>>,
    /// Whether there is anything to end.
    is_begun: bool,
    timeout: Duration,
    sample_limit: usize,
}

impl Report {
    pub(super) fn new(job: &Job, target: &Target, scope: Arc<Scope>) -> Self {
        let labels = target.labels.iter().chain(external(job, target));
        let attributes: Attributes = labels
            .filter(|(name, _)| ![JOB, INSTANCE].contains(name))
            .collect();
        let (name, instance) = (target.labels.get(JOB), target.labels.get(INSTANCE));
        let resource = Arc::new(Resource {
            attributes: identity::resource(name, instance, target),
            schema_url: Arc::default(),
        });
        let extra = if job.extra_metrics { EXTRA.as_slice() } else { &[] };
        let series = ALWAYS.iter().chain(extra).map(|(name, unit, description)| {
            Arc::new(Series {
                resource: resource.clone(),
                scope: scope.clone(),
                metric: Arc::new(Metric {
                    name: (*name).into(),
                    description: (*description).into(),
                    unit: (*unit).into(),
                    data: Data::Gauge,
                    metadata: Attributes::default(),
                }),
                attributes: attributes.clone(),
            })
        });
        Self {
            job: name.to_owned(),
            instance: instance.to_owned(),
            series: series.collect(),
            is_begun: false,
            timeout: target.timeout,
            sample_limit: job.limits.samples.unwrap_or(0),
        }
    }

    /// The label `job` of the target.
    pub(super) fn job(&self) -> &str {
        &self.job
    }

    /// The label `instance` of the target.
    pub(super) fn instance(&self) -> &str {
        &self.instance
    }

    /// Stays with the resource of the page's series, which `target_info` may change: the series of the one before end.
    pub(super) fn follow(&mut self, resource: &Arc<Resource>, time: UnixNanos, points: &mut Vec<Point>) {
        let is_other = |series: &Arc<Series>| series.resource != *resource;
        if !self.series.first().is_some_and(is_other) {
            return;
        }
        if self.is_begun {
            points.extend(self.end(time));
        }
        for series in &mut self.series {
            *series = Arc::new(Series {
                resource: resource.clone(),
                ..Series::clone(series)
            });
        }
    }

    /// The points about a scrape.
    #[expect(clippy::cast_precision_loss, reason = "no page has 2^52 samples")]
    pub(super) fn points(&mut self, scraped: &Scraped, time: UnixNanos) -> impl Iterator<Item = Point> {
        self.is_begun = true;
        let values = [
            f64::from(u8::from(scraped.up)),
            scraped.duration.as_secs_f64(),
            scraped.samples as f64,
            scraped.kept as f64,
            scraped.added as f64,
            self.timeout.as_secs_f64(),
            self.sample_limit as f64,
            scraped.body_bytes.map_or(-1.0, |bytes| bytes as f64),
        ];
        let values = values.map(Value::Double);
        self.series
            .iter()
            .zip(values)
            .map(move |(series, value)| point(series, value, time))
    }

    /// The end of these series.
    pub(super) fn end(&self, time: UnixNanos) -> impl Iterator<Item = Point> {
        self.series
            .iter()
            .map(move |series| point(series, Value::NoRecordedValue, time))
    }
}

/// Labels of `global` that the target has not.
fn external<'a>(job: &'a Job, target: &'a Target) -> impl Iterator<Item = (&'a str, &'a str)> {
    job.external_labels
        .iter()
        .filter(|(name, _)| !target.labels.has(name))
}

fn point(series: &Arc<Series>, value: Value, time: UnixNanos) -> Point {
    Point {
        series: series.clone(),
        start: 0,
        time,
        value,
        exemplars: Vec::new(),
    }
}
