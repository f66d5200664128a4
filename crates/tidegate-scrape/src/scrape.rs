// SPDX-License-Identifier: Apache-2.0

//! The loop of one target. It scrapes at every tick of its interval, never concurrently, and reports the result.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tidegate_exposition::Format;
use tidegate_runtime::USER_AGENT as OUR_NAME;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::client::{self, Client, FetchError, Packed};
use super::config::scrape::Protocol;
use super::job::Job;
use super::jobs::ListedPool;
use super::limiter::{PageReservation, ScrapeLimiter};
use super::metrics::{ScrapeMetrics, TargetHealth};
use super::target::{Target, pairs};
use super::ticks::{MILLISECOND, aligned, nanos, now};
use super::weight::weight;
use super::work::{Done, Pending, ScrapeFailure, Work};
use tidegate_pipeline::component::targets::{LastScrape, ScrapeTarget};
use tidegate_pipeline::component::worker::Slot;
use tidegate_pipeline::component::{Ceiling, Held, unix_now};

/// The common parts of a job's loops.
pub(super) struct Workshop {
    pub(super) job: Job,
    pub(super) client: Client,
    pub(super) metrics: Arc<ScrapeMetrics>,
    pub(super) limiter: Arc<ScrapeLimiter>,
    pub(super) seed: u64,
    /// The job's targets, for those who show them.
    pub(super) shown: Arc<ListedPool>,
}

impl Workshop {
    /// A page of this size or larger fails.
    pub(super) fn body_bytes(&self) -> usize {
        self.job.limits.body_bytes(self.limiter.shared.memory.limit())
    }
}

/// An order to a loop.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Order {
    /// Go on.
    Scrape {
        /// Every scrape fails, for this reason.
        forced: Option<Arc<str>>,
    },
    /// The target is gone.
    Leave {
        /// Another target has its labels.
        replaced: bool,
    },
}

/// The next step of a loop.
enum Step {
    Leave,
    Scrape(tokio::time::Instant),
}

/// A page as it came.
pub(super) struct ScrapedPage {
    pub(super) packed: Packed,
    pub(super) content_type: Option<String>,
    pub(super) reservation: PageReservation,
}

/// The loop of one target.
pub(super) struct Scraper {
    workshop: Arc<Workshop>,
    target: Target,
    shown: Arc<ScrapeTarget>,
    headers: HeaderMap,
    health: TargetHealth,
    /// Elsewhere while a page is being read.
    work: Option<Work>,
    has_scraped: bool,
    aligned: Option<u64>,
}

impl Scraper {
    pub(super) fn new(workshop: Arc<Workshop>, target: Target) -> Self {
        Self {
            headers: headers(&workshop.job, &target),
            health: TargetHealth::new(workshop.metrics.clone()),
            work: None,
            has_scraped: false,
            aligned: None,
            workshop,
            shown: Arc::new(ScrapeTarget::new(
                pairs(&target.labels),
                pairs(&target.discovered),
                target.url.to_string(),
                target.interval,
                target.timeout,
            )),
            target,
        }
    }

    /// The target, for those who show it.
    pub(super) fn shown(&self) -> Arc<ScrapeTarget> {
        self.shown.clone()
    }

    /// Runs until the target is gone, and its series have been ended, or until `stopping`. When the gateway stops,
    /// series are not ended: it may be back before the next scrape is due.
    pub(super) async fn run(mut self, mut orders: watch::Receiver<Order>, stopping: CancellationToken) {
        let offset = self.target.offset(unix_now(), self.workshop.seed);
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + offset, self.target.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let step = tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                // An error says that the job has ended, and with it its loops.
                left = orders.wait_for(|order| matches!(order, Order::Leave { .. })) => match left {
                    Ok(_) => Step::Leave,
                    Err(_) => return,
                },
                tick = ticks.tick() => Step::Scrape(tick),
            };
            match step {
                Step::Leave if self.has_left(&mut orders, &mut ticks, &stopping).await => return,
                Step::Leave => {}
                Step::Scrape(tick) => {
                    let forced = match &*orders.borrow() {
                        Order::Scrape { forced } => forced.clone(),
                        Order::Leave { .. } => continue,
                    };
                    let time = self.time(tick.elapsed());
                    self.scrape(time, forced, tick + self.target.interval, &stopping)
                        .await;
                }
            }
        }
    }

    /// Waits like Prometheus, in case the target returns: for a little more than two ticks. Then its series end at
    /// the time of the first missing scrape. Returns false if the target has returned.
    async fn has_left(
        &mut self,
        orders: &mut watch::Receiver<Order>,
        ticks: &mut Interval,
        stopping: &CancellationToken,
    ) -> bool {
        if !self.has_scraped {
            return true;
        }
        let extra = self.target.interval / 10;
        let wait = async {
            ticks.tick().await;
            let ended = now();
            ticks.tick().await;
            tokio::time::sleep(extra).await;
            ended
        };
        let ended = tokio::select! {
            biased;
            () = stopping.cancelled() => return true,
            back = orders.wait_for(|order| matches!(order, Order::Scrape { .. })) => return back.is_err(),
            ended = wait => ended,
        };
        if *orders.borrow() == (Order::Leave { replaced: false }) {
            let deadline = tokio::time::Instant::now() + self.target.interval;
            let done = self.work(move |work| work.end(ended)).await;
            self.retry_pending(done, deadline, stopping).await;
        }
        true
    }

    /// The time that the points of a scrape have that is so late.
    fn time(&mut self, late: Duration) -> u64 {
        let now = now();
        let first = || now.saturating_sub(nanos(late) / MILLISECOND * MILLISECOND);
        let last = self.aligned.unwrap_or_else(first);
        let (due, time) = aligned(last, now, self.target.interval);
        self.aligned = Some(due);
        time
    }

    async fn scrape(
        &mut self,
        time: u64,
        forced: Option<Arc<str>>,
        next: tokio::time::Instant,
        stopping: &CancellationToken,
    ) {
        let workshop = self.workshop.clone();
        let (limiter, metrics) = (&workshop.limiter, &workshop.metrics);
        // Held until the pipelines have taken the points: while they refuse, no more pages are fetched than have places.
        let Some(Ok(_place)) = stopping.run_until_cancelled(limiter.scrapes.acquire()).await else {
            return;
        };
        if limiter.shared.memory.is_over(Ceiling::Hard) {
            metrics.scrape_failed(
                "memory",
                &self.target.url,
                &"the memory limiter refuses more data",
            );
            return;
        }
        metrics.scrape();
        let started = Instant::now();
        let fetched = match forced {
            Some(why) => Err(ScrapeFailure::Forced(why)),
            None => match stopping
                .run_until_cancelled(fetch(&workshop, &self.target, &self.headers))
                .await
            {
                Some(fetched) => fetched.map_err(ScrapeFailure::Fetch),
                None => return,
            },
        };
        self.has_scraped = true;
        let done = self.work(move |work| work.page(fetched, time, started)).await;
        self.shown.scraped(LastScrape {
            time,
            duration: started.elapsed(),
            error: match &done {
                Some(done) => done.failure.as_ref().map(|(_, why)| why.clone()),
                None => Some("a worker ended by a panic".to_owned()),
            },
        });
        match done.as_ref().map(|done| &done.failure) {
            Some(None) => self.health.up(&self.target.url),
            Some(Some((reason, why))) => self.health.failed(reason, &self.target.url, why),
            None => self.health.down(),
        }
        self.retry_pending(done, next, stopping).await;
    }

    /// Runs work in proportion to a page on a background thread.
    async fn work(&mut self, job: impl FnOnce(&mut Work) -> Done + Send + 'static) -> Option<Done> {
        let workshop = self.workshop.clone();
        let mut work = match self.work.take() {
            Some(work) => work,
            None => Work::new(workshop.clone(), self.target.clone()),
        };
        let slot = Slot::get_in_any_case().await.ok()?;
        let done = slot.run(move || {
            let done = job(&mut work);
            (work, done)
        });
        match done.await {
            Ok((work, done)) => {
                self.work = Some(work);
                Some(done)
            }
            Err(error) => {
                let metrics = &self.workshop.metrics;
                metrics.scrape_failed("internal", &self.target.url, &error);
                None
            }
        }
    }

    /// Offers again until `next` what no pipeline took.
    async fn retry_pending(
        &mut self,
        done: Option<Done>,
        next: tokio::time::Instant,
        stopping: &CancellationToken,
    ) {
        let metrics = self.workshop.metrics.clone();
        let Some(done) = done else { return };
        let mut pending = done.pending;
        while let Some(Pending { batch, refused, held }) = pending.take() {
            let points = batch.items();
            let now = tokio::time::Instant::now();
            let is_last = stopping.is_cancelled() || now >= next;
            let Some(delay) = refused.retry_after.filter(|_| !is_last) else {
                metrics.lost(points, "refused", &refused.reason);
                return;
            };
            let until = (now + delay).min(next);
            stopping
                .run_until_cancelled(tokio::time::sleep_until(until))
                .await;
            let again = self.work(move |work| work.push(batch, held)).await;
            match again {
                Some(done) => pending = done.pending,
                None => metrics.lost(points, "internal", &"a worker ended by a panic"),
            }
        }
    }
}

impl Workshop {
    /// The format of an answer; `None` if neither the answer nor the options name one.
    pub(super) fn format(&self, content_type: Option<&str>) -> Option<Format> {
        let said = content_type.and_then(Format::of_content_type);
        said.or_else(|| {
            self.job.fallback.map(|protocol| match protocol {
                Protocol::Proto => Format::Protobuf,
                Protocol::Text004 | Protocol::Text100 => Format::Text,
                Protocol::OpenMetrics001 | Protocol::OpenMetrics100 => Format::OpenMetrics,
            })
        })
    }
}

/// A target's page, in time.
async fn fetch(workshop: &Workshop, target: &Target, headers: &HeaderMap) -> Result<ScrapedPage, FetchError> {
    let timeout = target.timeout;
    let fetched = tokio::time::timeout(timeout, async {
        let response = workshop.client.get(&target.url, headers).await?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        let mut reservation = PageReservation::new(workshop.limiter.clone());
        let limit = workshop.body_bytes();
        let account = (workshop.limiter.shared.memory.clone(), workshop.limiter.ceiling);
        let packed = client::read(response, limit, timeout, account, |bytes| {
            reservation.arrived(bytes)
        })
        .await?;
        reservation.has_arrived();
        Ok(ScrapedPage {
            packed,
            content_type,
            reservation,
        })
    });
    fetched.await.unwrap_or(Err(FetchError::TimedOut(timeout)))
}

/// The headers of every request to a target.
fn headers(job: &Job, target: &Target) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let coding = if job.enable_compression {
        "gzip, zstd"
    } else {
        "identity"
    };
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(coding));
    headers.insert(USER_AGENT, HeaderValue::from_static(OUR_NAME));
    let seconds = target.timeout.as_secs_f64().to_string();
    let texts = [
        (ACCEPT, job.accept()),
        (
            HeaderName::from_static("x-prometheus-scrape-timeout-seconds"),
            seconds,
        ),
    ];
    // Both are of characters that headers may have.
    let values = texts
        .into_iter()
        .filter_map(|(name, text)| Some((name, HeaderValue::try_from(text).ok()?)));
    headers.extend(values);
    headers
}

/// Bytes of a page, unpacked, with the room that they and their points take.
pub(super) struct Unpacked {
    pub(super) bytes: Bytes,
    reservation: PageReservation,
    weight: usize,
}

impl Unpacked {
    /// The reservation of its points, the only remaining part.
    pub(super) fn into_points(self) -> Held {
        self.reservation.into_points(self.weight)
    }
}

impl ScrapedPage {
    /// Unpacks it, within the job's limit and the room that there is.
    pub(super) fn unpack(self, limit_bytes: usize, format: Option<Format>) -> Result<Unpacked, FetchError> {
        let mut reservation = self.reservation;
        let packed_bytes = self.packed.bytes.len();
        let left = reservation.left().saturating_add(packed_bytes).saturating_add(1);
        let unpacked = self.packed.unpack(limit_bytes.min(left), reservation.held());
        let bytes = unpacked.map_err(|error| match error {
            FetchError::TooLarge(_) if left < limit_bytes => FetchError::NoRoom,
            error => error,
        })?;
        reservation.unpacked(bytes.len());
        // The decoded lines need a reservation too. A page without a format fails undecoded.
        let weight = format.map_or(0, |format| weight(format, &bytes));
        reservation.held().try_grow(weight)?;
        Ok(Unpacked {
            bytes,
            reservation,
            weight,
        })
    }
}
