// SPDX-License-Identifier: Apache-2.0

//! The work on a page: decompress, decode, report, push. It takes long, so it runs on a background thread.

use std::sync::Arc;
use std::time::Instant;

use tidegate_engine::{Point, Scope, UnixNanos, Value};
use tidegate_exposition::{NativeHistograms, Options};

use super::client::FetchError;
use super::identity::Identity;
use super::job::Job;
use super::limiter::RetainedMemory;
use super::relabel::Validation;
use super::report::{Report, Scraped};
use super::scrape::{ScrapedPage, Workshop};
use super::target::Target;
use tidegate_pipeline::batch::{Batch, Points};
use tidegate_pipeline::component::{Held, Refused};
use tidegate_pipeline::delivery::response::shorten;
use tidegate_prometheus::scrape::{self, Counts, Failed, ScrapeDecoder, Settings};

/// The scope of series that don't name theirs.
const SCOPE: &str = "tidegate/receiver/prometheus";

/// The reason why a scrape failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScrapeFailure {
    /// The scrape was skipped.
    #[error("{0}")]
    Forced(Arc<str>),
    /// No page came.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The format of the page is unknown.
    #[error("the content type `{text}` names no format", text = shorten(.0))]
    ContentType(String),
    /// The page can't be taken.
    #[error(transparent)]
    Page(#[from] Failed),
    /// Memory for its series is short.
    #[error(
        "the series of all targets take more than half of the memory limit: raise it, or scrape fewer series"
    )]
    Series,
}

impl ScrapeFailure {
    /// The `reason` of a counter.
    fn reason(&self) -> &'static str {
        match self {
            Self::Forced(_) => "target_limit",
            Self::Fetch(error) => error.reason(),
            Self::ContentType(_) => "content_type",
            Self::Series => "memory",
            Self::Page(failed) => match failed.failure {
                scrape::Failure::SampleLimit(_) => "sample_limit",
                scrape::Failure::LabelLimit(_)
                | scrape::Failure::TextLimit
                | scrape::Failure::LabelNameLength(_)
                | scrape::Failure::LabelValueLength(_) => "label_limit",
                scrape::Failure::BucketLimit(_) => "bucket_limit",
                _ => "page",
            },
        }
    }
}

/// The result of a scrape.
pub(super) struct Done {
    /// The reason and the message of a failure.
    pub(super) failure: Option<(&'static str, String)>,
    /// The batch that no pipeline accepted.
    pub(super) pending: Option<Pending>,
}

/// A batch that no pipeline accepted.
pub(super) struct Pending {
    pub(super) batch: Batch,
    pub(super) refused: Refused,
    /// The reservation of its points.
    pub(super) held: Option<Held>,
}

/// The state of a target between scrapes.
pub(super) struct Work {
    workshop: Arc<Workshop>,
    decoder: ScrapeDecoder,
    kept: RetainedMemory,
    report: Report,
    /// The number of points of the last page.
    expected: usize,
}

impl Work {
    pub(super) fn new(workshop: Arc<Workshop>, target: Target) -> Self {
        let scope = Arc::new(Scope {
            name: SCOPE.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            ..Scope::default()
        });
        let report = Report::new(&workshop.job, &target, scope.clone());
        let identity = Identity::new(workshop.clone(), target);
        Self {
            decoder: ScrapeDecoder::new(settings(&workshop.job, scope), Box::new(identity)),
            kept: RetainedMemory::new(workshop.limiter.clone()),
            report,
            workshop,
            expected: 0,
        }
    }

    /// Takes a page; one that did not come ends what the target had.
    pub(super) fn page(
        &mut self,
        fetched: Result<ScrapedPage, ScrapeFailure>,
        time: UnixNanos,
        started: Instant,
    ) -> Done {
        let mut points = Vec::with_capacity(self.expected);
        let mut scraped = Scraped {
            body_bytes: Some(0),
            ..Scraped::default()
        };
        let mut held = None;
        let read = fetched.and_then(|page| {
            let (counts, of_points) = self.read(page, time, &mut points, &mut scraped)?;
            held = Some(of_points);
            Ok(counts)
        });
        let counts = match &read {
            Ok(counts) => *counts,
            Err(failure) => {
                // A series of the last page that this page lacks has ended in any case.
                points.retain(|point| point.value == Value::NoRecordedValue);
                self.decoder.end(time, &mut points);
                match failure {
                    ScrapeFailure::Page(failed) => failed.counts,
                    ScrapeFailure::Series => {
                        self.decoder.forget();
                        // An empty size always fits.
                        let _ = self.kept.set_used(0);
                        self.expected = 0;
                        Counts::default()
                    }
                    _ => Counts::default(),
                }
            }
        };
        let failure = read
            .as_ref()
            .err()
            .map(|failure| (failure.reason(), failure.to_string()));
        if let Err(ScrapeFailure::Fetch(FetchError::TooLarge(_))) = read {
            scraped.body_bytes = None;
        }
        if failure.is_none() {
            self.note(&counts);
            self.expected = points.len() + 8;
        }
        scraped.up = failure.is_none();
        (scraped.samples, scraped.kept) = (counts.samples, counts.kept);
        scraped.added = counts.series_added;
        scraped.duration = started.elapsed();
        // A reader that misses a series looks at `up` after that. So a failure comes before the ends of the series.
        let ends = if failure.is_some() {
            std::mem::take(&mut points)
        } else {
            Vec::new()
        };
        let resource = self.decoder.resource(self.report.job(), self.report.instance());
        if let Some(resource) = resource {
            self.report.follow(&resource, time, &mut points);
        }
        points.extend(self.report.points(&scraped, time));
        points.extend(ends);
        Done {
            failure,
            ..self.push(batch(points), held)
        }
    }

    /// Ends everything: the target is gone.
    pub(super) fn end(&mut self, time: UnixNanos) -> Done {
        let mut points = Vec::new();
        self.decoder.end(time, &mut points);
        points.extend(self.report.end(time));
        self.push(batch(points), None)
    }

    /// Offers points to the pipelines, with their reservation until acceptance.
    pub(super) fn push(&mut self, batch: Batch, held: Option<Held>) -> Done {
        let pushed = self.workshop.metrics.entry().push(batch.clone());
        Done {
            failure: None,
            pending: pushed.err().map(|refused| Pending { batch, refused, held }),
        }
    }

    fn read(
        &mut self,
        page: ScrapedPage,
        time: UnixNanos,
        points: &mut Vec<Point>,
        scraped: &mut Scraped,
    ) -> Result<(Counts, Held), ScrapeFailure> {
        let format = self.workshop.format(page.content_type.as_deref());
        let said = page.content_type.clone().unwrap_or_default();
        let page = page.unpack(self.workshop.body_bytes(), format)?;
        scraped.body_bytes = Some(page.bytes.len());
        // A page of nothing is a sound one, whatever it says that it is.
        let format = match format {
            None if page.bytes.is_empty() => tidegate_exposition::Format::Text,
            None => return Err(ScrapeFailure::ContentType(said)),
            Some(format) => format,
        };
        let read = self.decoder.page(format, &page.bytes, time, points);
        // Also after a failure of the page, because its lines are known now.
        if self.kept.set_used(self.decoder.bytes()) {
            Ok((read?, page.into_points()))
        } else {
            Err(ScrapeFailure::Series)
        }
    }

    /// Samples of a page that are dropped while the rest of it is taken.
    fn note(&self, counts: &Counts) {
        let left_out = [
            ("duplicate", counts.duplicates),
            ("out_of_order", counts.out_of_order),
            ("out_of_bounds", counts.out_of_bounds),
            ("unusable", counts.unusable),
        ];
        for (reason, samples) in left_out {
            self.workshop.metrics.left_out(samples, reason);
        }
    }
}

fn batch(points: Vec<Point>) -> Batch {
    Batch::new(Points {
        points: points.into(),
    })
}

fn settings(job: &Job, scope: Arc<Scope>) -> Settings {
    let native = match (job.native_histograms, job.classic_histograms_too) {
        (false, _) => NativeHistograms::Classic,
        (true, false) => NativeHistograms::Native,
        (true, true) => NativeHistograms::Both,
    };
    let limits = job.limits;
    Settings {
        parser: Options {
            native_histograms: native,
        },
        honor_timestamps: job.honor_timestamps,
        track_timestamps_staleness: job.track_timestamps_staleness,
        sample_limit: limits.samples.unwrap_or(0),
        label_limit: limits.labels.unwrap_or(0),
        label_name_length_limit: limits.label_name_bytes.unwrap_or(0),
        label_value_length_limit: limits.label_value_bytes.unwrap_or(0),
        native_histogram_bucket_limit: limits.native_buckets.unwrap_or(0),
        native_histogram_max_schema: limits.native_schema,
        legacy_names: job.validation == Validation::Legacy,
        scope,
    }
}
