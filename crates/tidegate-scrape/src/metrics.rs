// SPDX-License-Identifier: Apache-2.0

//! The metrics and log lines of a scrape job: its targets by state, its scrapes, and its failures by reason.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::log_limits::{FailureLine, LogLimits, UnnamedTargets};
use tidegate_pipeline::component::{Brief, Context, Entry};

/// The state of a target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TargetState {
    /// The target is not scraped yet.
    Unknown,
    /// The last scrape gave something.
    Up,
    /// The last scrape failed.
    Down,
}

const STATES: [(TargetState, &str); 3] = [
    (TargetState::Unknown, "unknown"),
    (TargetState::Up, "up"),
    (TargetState::Down, "down"),
];

/// The targets by state.
type TargetCounts = [AtomicI64; STATES.len()];

/// The label of jobs without a label of their own.
const OTHERS: &str = "others";

/// The most labels of the jobs of a receiver. Metrics stay for ever, and objects may change their names for ever.
const MAX_LABELS: usize = 10_000;

/// The labels of the jobs of all receivers of a gateway, by receiver.
#[derive(Default)]
struct LabelsOfReceivers(Mutex<HashMap<Arc<str>, Arc<JobLabels>>>);

/// The labels of the jobs of a receiver.
#[derive(Default)]
pub(super) struct JobLabels {
    known: Mutex<HashSet<Arc<str>>>,
    /// The targets of all jobs without a label of their own.
    others: Arc<TargetCounts>,
}

impl JobLabels {
    /// The labels of a receiver. They stay when a reload builds the receiver again, as the metrics do.
    pub(super) fn of(base: &Context) -> Arc<Self> {
        let receivers = base.shared.parts.get(LabelsOfReceivers::default);
        let mut all = receivers.0.lock();
        all.entry(base.id.clone()).or_default().clone()
    }

    /// The metrics of a job. Beyond the limit of labels, jobs share one.
    pub(super) fn metrics(&self, receiver: Arc<str>, job: Arc<str>, entry: Entry) -> ScrapeMetrics {
        let mut known = self.known.lock();
        let is_own = known.contains(&job) || known.len() < MAX_LABELS;
        if is_own {
            known.insert(job.clone());
            return ScrapeMetrics::new(receiver, job, entry);
        }
        ScrapeMetrics {
            label: OTHERS.into(),
            targets: self.others.clone(),
            is_shared: true,
            ..ScrapeMetrics::new(receiver, job, entry)
        }
    }
}

/// The metrics of a job. Log lines of one kind are rate-limited; the counters have every event.
pub(super) struct ScrapeMetrics {
    receiver: Arc<str>,
    /// The name of the job, for log lines.
    job: Arc<str>,
    /// The label `job` of the metrics. Jobs may share one.
    label: Arc<str>,
    entry: Entry,
    targets: Arc<TargetCounts>,
    /// Whether other jobs have the same label.
    is_shared: bool,
    log_limits: Mutex<LogLimits>,
}

impl ScrapeMetrics {
    pub(super) fn new(receiver: Arc<str>, job: Arc<str>, entry: Entry) -> Self {
        Self {
            receiver,
            label: job.clone(),
            job,
            entry,
            targets: Arc::default(),
            is_shared: false,
            log_limits: Mutex::default(),
        }
    }

    /// The entry for the data.
    pub(super) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// A target is in a state, or has left one.
    fn count_target(&self, state: TargetState, change: i64) {
        let at = state as usize;
        let (count, (_, name)) = (&self.targets[at], STATES[at]);
        let now = count.fetch_add(change, Relaxed) + change;
        self.gauge("tidegate_scrape_targets", name, now);
    }

    #[expect(clippy::cast_precision_loss, reason = "no job has 2^52 targets")]
    fn gauge(&self, metric: &'static str, state: &'static str, value: i64) {
        metrics::gauge!(metric, "receiver" => self.receiver.clone(), "job" => self.label.clone(), "state" => state)
            .set(value as f64);
    }

    /// Sets the number of targets that the rules drop.
    pub(super) fn targets_dropped(&self, targets: usize) {
        self.set_targets("dropped", targets);
    }

    /// Sets the number of invalid targets.
    pub(super) fn targets_invalid(&self, targets: usize) {
        self.set_targets("invalid", targets);
    }

    /// Sets a gauge, unless it is of several jobs.
    fn set_targets(&self, state: &'static str, targets: usize) {
        if !self.is_shared {
            let targets = i64::try_from(targets).unwrap_or(i64::MAX);
            self.gauge("tidegate_scrape_targets", state, targets);
        }
    }

    /// A scrape has begun.
    pub(super) fn scrape(&self) {
        metrics::counter!("tidegate_scrapes_total", "receiver" => self.receiver.clone(), "job" => self.label.clone())
            .increment(1);
    }

    /// A scrape gave nothing, and its target stays in its state.
    pub(super) fn scrape_failed(&self, reason: &'static str, target: &dyn Display, why: &dyn Display) {
        self.note_failure(reason, false, target, why);
    }

    /// A scrape gave nothing. `begins`: the last scrape of its target did not fail.
    fn note_failure(&self, reason: &'static str, begins: bool, target: &dyn Display, why: &dyn Display) {
        self.count("tidegate_scrape_failures_total", reason, 1);
        let line = self.log_limits.lock().of_failure(reason, begins, Instant::now());
        let Some(FailureLine { suppressed, others }) = line else {
            return;
        };
        let (receiver, job) = (&*self.receiver, &*self.job);
        let remedy = remedy(reason);
        tracing::warn!(receiver, job, scrape_target = %target, reason, suppressed, others, "scrape failed: {why}{remedy}");
    }

    /// Logs a success after scrapes that failed for `lasted`.
    fn back(&self, target: &dyn Display, lasted: Duration) {
        let line = self.log_limits.lock().of_return(Instant::now());
        if let Some(others) = line {
            let (receiver, job) = (&*self.receiver, &*self.job);
            let after = Brief(lasted);
            tracing::info!(receiver, job, scrape_target = %target, %after, others, "the target is back");
        }
    }

    /// Logs the number of targets that no line has named or counted in time.
    fn log_unnamed(&self) {
        let unnamed = self.log_limits.lock().of_unnamed(Instant::now());
        if let Some(UnnamedTargets { failed, back }) = unnamed {
            let (receiver, job) = (&*self.receiver, &*self.job);
            tracing::info!(
                receiver,
                job,
                failed,
                back,
                "more targets have failed or are back"
            );
        }
    }

    /// Points that no pipeline took in time.
    pub(super) fn lost(&self, points: usize, reason: &'static str, why: &dyn Display) {
        self.entry.fail(points);
        self.count("tidegate_scrape_dropped_points_total", reason, points as u64);
        self.log_throttled(reason, |suppressed| {
            let (receiver, job) = (&*self.receiver, &*self.job);
            tracing::warn!(
                receiver,
                job,
                points,
                reason,
                suppressed,
                "scraped points dropped: {why}"
            );
        });
    }

    /// Parts of a page that can't be kept, while the rest of it is.
    pub(super) fn left_out(&self, points: usize, reason: &'static str) {
        if points > 0 {
            self.entry.fail(points);
            self.count("tidegate_scrape_dropped_points_total", reason, points as u64);
        }
    }

    /// A discovery did not work; its earlier targets stay in force.
    pub(super) fn discovery_failed(&self, mechanism: &'static str, why: &dyn Display) {
        self.count("tidegate_scrape_discovery_failures_total", mechanism, 1);
        self.log_throttled(mechanism, |suppressed| {
            let (receiver, job) = (&*self.receiver, &*self.job);
            tracing::warn!(
                receiver,
                job,
                mechanism,
                suppressed,
                "discovery failed; the targets found before stay: {why}"
            );
        });
    }

    /// Logs an invalid target.
    pub(super) fn bad_target(&self, why: &dyn Display) {
        self.log_throttled("target", |suppressed| {
            let (receiver, job) = (&*self.receiver, &*self.job);
            tracing::warn!(receiver, job, suppressed, "not a target: {why}");
        });
    }

    fn count(&self, metric: &'static str, reason: &'static str, by: u64) {
        metrics::counter!(metric, "receiver" => self.receiver.clone(), "job" => self.label.clone(), "reason" => reason)
            .increment(by);
    }

    /// Logs with `say` unless a line of this kind was logged lately. `say` gets the number of suppressed
    /// lines, and runs without the lock.
    fn log_throttled(&self, kind: &'static str, say: impl FnOnce(usize)) {
        let line = self.log_limits.lock().of_kind(kind, Instant::now());
        if let Some(suppressed) = line {
            say(suppressed);
        }
    }
}

/// The remedy for a failure, if its cause is the configuration.
fn remedy(reason: &str) -> &'static str {
    const REMEDIES: &[(&str, &str)] = &[
        (
            "body_size_limit",
            "; raise `body_size_limit` if the page is expected to be that large",
        ),
        ("content_type", "; set its format with `fallback_scrape_protocol`"),
        ("no_room", "; raise `max_buffered_size`"),
        (
            "sample_limit",
            "; raise `sample_limit`, or drop series by `metric_relabel_configs`",
        ),
        (
            "label_limit",
            "; raise the limit, or drop labels by `metric_relabel_configs`",
        ),
        (
            "target_limit",
            "; raise `target_limit`, or drop targets by `relabel_configs`",
        ),
        (
            "timeout",
            "; raise `scrape_timeout` if the target needs that long",
        ),
    ];
    let found = REMEDIES.iter().find(|(known, _)| *known == reason);
    found.map_or("", |(_, remedy)| remedy)
}

/// The health of one target. The target counts in the metrics until this is dropped.
pub(super) struct TargetHealth {
    metrics: Arc<ScrapeMetrics>,
    state: TargetState,
    /// The time since which its scrapes fail.
    down_since: Option<Instant>,
}

impl TargetHealth {
    /// A target that has not been scraped yet.
    pub(super) fn new(metrics: Arc<ScrapeMetrics>) -> Self {
        metrics.count_target(TargetState::Unknown, 1);
        Self {
            metrics,
            state: TargetState::Unknown,
            down_since: None,
        }
    }

    /// A scrape gave something.
    pub(super) fn up(&mut self, target: &dyn Display) {
        self.set(TargetState::Up);
        if let Some(since) = self.down_since.take() {
            self.metrics.back(target, since.elapsed());
        }
        self.metrics.log_unnamed();
    }

    /// A scrape failed for a reason, which is counted and logged.
    pub(super) fn failed(&mut self, reason: &'static str, target: &dyn Display, why: &dyn Display) {
        let begins = self.down_since.is_none();
        self.down();
        self.metrics.note_failure(reason, begins, target, why);
    }

    /// A scrape failed.
    pub(super) fn down(&mut self) {
        self.set(TargetState::Down);
        self.down_since.get_or_insert_with(Instant::now);
    }

    fn set(&mut self, state: TargetState) {
        if state != self.state {
            self.metrics.count_target(self.state, -1);
            self.metrics.count_target(state, 1);
            self.state = state;
        }
    }
}

impl Drop for TargetHealth {
    fn drop(&mut self) {
        self.metrics.count_target(self.state, -1);
    }
}

#[cfg(test)]
mod tests {
    use tidegate_pipeline::batch::Signal;
    use tidegate_pipeline::component::testing::{Sink, keeps_one_for_each_component};

    use super::*;

    #[test]
    fn a_rebuilt_receiver_counts_the_labels_of_earlier_ones() {
        keeps_one_for_each_component(JobLabels::of);
    }

    /// The failures without a line at the end of these scrapes, each with the number of its target and whether it fails.
    fn suppressed_after(scrapes: &[(usize, bool)]) -> usize {
        let entry = Sink::new().entry(Signal::Metrics);
        let metrics = Arc::new(ScrapeMetrics::new("r".into(), "j".into(), entry));
        let mut targets = [(); 2].map(|()| TargetHealth::new(metrics.clone()));
        for (target, fails) in scrapes {
            if *fails {
                targets[*target].failed("connection", &"target", &"refused");
            } else {
                targets[*target].up(&"target");
            }
        }
        let later = Instant::now() + Duration::from_secs(60);
        let mut limits = metrics.log_limits.lock();
        limits.of_failure("connection", false, later).unwrap().suppressed
    }

    #[test]
    fn a_target_that_begins_to_fail_has_a_line_of_its_own() {
        let both_fail = [(0, true), (0, true), (1, true), (1, true)];
        assert_eq!(
            suppressed_after(&both_fail[..2]),
            1,
            "the second failure of a target"
        );
        assert_eq!(
            suppressed_after(&both_fail[..3]),
            0,
            "the first failure of the other one"
        );
        assert_eq!(suppressed_after(&both_fail), 1);
        let again = [&both_fail[..], &[(1, false), (1, true)]].concat();
        assert_eq!(suppressed_after(&again), 0, "it was up in between");
    }

    #[test]
    fn jobs_beyond_the_limit_share_a_label() {
        let labels = JobLabels::default();
        let entry = Sink::new().entry(Signal::Metrics);
        let metrics = |name: &str| labels.metrics("r".into(), name.into(), entry.clone());
        for at in 0..MAX_LABELS {
            assert_eq!(*metrics(&at.to_string()).label, at.to_string());
        }
        let new = metrics("new");
        assert_eq!((&*new.label, &*new.job), (OTHERS, "new"));
        assert_eq!(*metrics("5").label, *"5", "a known name has its own");
    }
}
