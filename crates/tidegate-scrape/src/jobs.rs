// SPDX-License-Identifier: Apache-2.0

//! Jobs that come, change and go while the receiver runs. Each has a pool. A change of one job touches no other.

mod limits;

use std::collections::{BTreeMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use md5::{Digest, Md5};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::client::Client;
use super::config::PrometheusReceiverConfig;
use super::config::scrape::ScrapeConfig;
use super::discovery::{Discoveries, DiscoveryError};
use super::job::Job;
use super::limiter::ScrapeLimiter;
use super::metrics::{JobLabels, ScrapeMetrics};
use super::pool::{Change, Pool, PoolControl};
use super::scrape::Workshop;
use super::target;
use tidegate_config::{Decode, Problems, parse_text};
use tidegate_pipeline::component::shared::Registry;
use tidegate_pipeline::component::targets::ScrapePool;
use tidegate_pipeline::component::{Context, Entry, Held};
use tidegate_pipeline::delivery::response::shorten;

/// The most notices of a source of jobs.
const MAX_NOTICES: usize = 200;

/// The most problems of a job that are shown.
const MAX_SHOWN: usize = 5;

/// The longest description of a job in bytes.
const MAX_JOB_BYTES: usize = 256 << 10;

/// The approximate bytes of a job without its rules: its clients, discoveries and tasks.
const JOB_BYTES: usize = 64 << 10;

/// The approximate bytes of a rule: a compiled expression with its caches.
const RULE_BYTES: usize = 16 << 10;

/// The factor between the program of an expression and its compiled forms.
const EXPRESSION_FACTOR: usize = 4;

/// The bytes to read a description, for each of its bytes: values with their positions.
const READ_FACTOR: usize = 32;

/// Makes pools of jobs.
pub(super) struct JobBuilder {
    receiver: Arc<str>,
    /// The path of the receiver, for notices.
    path: Arc<str>,
    entry: Entry,
    limiter: Arc<ScrapeLimiter>,
    seed: u64,
    labels: Arc<JobLabels>,
    /// The notices of each source of jobs.
    notices: Mutex<BTreeMap<&'static str, Vec<String>>>,
}

/// The parts of a job that stay when it changes: its counters, and the list of its targets for display.
#[derive(Clone)]
pub(super) struct JobParts {
    metrics: Arc<ScrapeMetrics>,
    shown: Arc<ListedPool>,
}

/// The targets of a job on the list for display. They leave it with the last owner: the job, or a loop that still ends.
pub(super) struct ListedPool {
    pool: Arc<ScrapePool>,
    list: Registry<ScrapePool>,
}

impl ListedPool {
    fn new(name: &str, list: Registry<ScrapePool>) -> Self {
        let pool = Arc::new(ScrapePool::new(name.into()));
        list.add(pool.clone());
        Self { pool, list }
    }
}

impl Deref for ListedPool {
    type Target = ScrapePool;

    fn deref(&self) -> &ScrapePool {
        &self.pool
    }
}

impl Drop for ListedPool {
    fn drop(&mut self) {
        self.list.remove(&self.pool);
    }
}

impl JobBuilder {
    pub(super) fn new(base: &Context, entry: Entry, limiter: Arc<ScrapeLimiter>) -> Self {
        Self {
            receiver: base.id.clone(),
            path: base.path.clone(),
            entry,
            limiter,
            seed: target::seed(),
            labels: JobLabels::of(base),
            notices: Mutex::default(),
        }
    }

    pub(super) fn limiter(&self) -> &Arc<ScrapeLimiter> {
        &self.limiter
    }

    /// Replaces the notices of a source of jobs.
    pub(super) fn report(&self, source: &'static str, now: Vec<String>) {
        let mut notices = self.notices.lock();
        notices.insert(source, limited(now));
        let all = notices.values().flatten().cloned().collect();
        self.limiter.shared.notices.set(&self.path, all);
    }

    /// The metrics of a job, or of a source of jobs.
    pub(super) fn metrics(&self, name: &str) -> ScrapeMetrics {
        self.labels
            .metrics(self.receiver.clone(), name.into(), self.entry.clone())
    }

    /// The parts of a new job.
    pub(super) fn parts(&self, name: &str) -> JobParts {
        let metrics = self.metrics(name);
        let list = self.limiter.shared.scrape_pools.clone();
        JobParts {
            metrics: Arc::new(metrics),
            shown: Arc::new(ListedPool::new(name, list)),
        }
    }

    /// The pool of a job.
    ///
    /// # Errors
    /// A file of its options is unusable, or its API server is not known.
    pub(super) fn pool(
        &self,
        job: &ScrapeConfig,
        config: &PrometheusReceiverConfig,
        parts: JobParts,
        held: Option<Held>,
    ) -> Result<Pool, DiscoveryError> {
        let resolved = Job::new(job, config);
        let workshop = Workshop {
            client: Client::new(&resolved.http)?,
            job: resolved,
            metrics: parts.metrics,
            limiter: self.limiter.clone(),
            seed: self.seed,
            shown: parts.shown,
        };
        Ok(Pool::new(Arc::new(workshop), Discoveries::new(job)?, held))
    }
}

/// Notices within the limit.
fn limited(mut notices: Vec<String>) -> Vec<String> {
    let others = notices.len().saturating_sub(MAX_NOTICES);
    if others > 0 {
        notices.truncate(MAX_NOTICES);
        notices.push(format!("{others} more notices about objects"));
    }
    notices
}

/// A job as others describe it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DescribedJob {
    /// Its name.
    pub(super) name: String,
    /// Its options as JSON.
    pub(super) options: String,
    /// What it is from, for messages.
    pub(super) source: String,
    /// The namespace of its object. Empty: no object describes it.
    pub(super) namespace: String,
}

/// Adds what all jobs of a source have, after their options are read.
pub(super) type Finish = Arc<dyn Fn(&mut ScrapeConfig) + Send + Sync>;

type Fingerprint = [u8; 16];

/// A job of the set.
struct RunningJob {
    parts: JobParts,
    /// The options that the pool has, or that were refused. `None`: the job is gone.
    fingerprint: Option<Fingerprint>,
    /// What is wrong with the options, or has no effect.
    problems: Vec<String>,
    control: Option<PoolControl>,
}

/// The jobs from one source.
pub(super) struct JobSet {
    builder: Arc<JobBuilder>,
    config: Arc<PrometheusReceiverConfig>,
    finish: Finish,
    stopping: CancellationToken,
    tasks: TaskTracker,
    jobs: BTreeMap<String, RunningJob>,
}

/// The result of a change of the set.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// What is wrong with jobs, or has no effect.
    pub(super) problems: Vec<String>,
    /// Whether a job lacks memory or a file, so that another attempt makes sense.
    pub(super) needs_retry: bool,
}

impl JobSet {
    pub(super) fn new(
        builder: Arc<JobBuilder>,
        config: Arc<PrometheusReceiverConfig>,
        finish: Finish,
        (stopping, tasks): (CancellationToken, TaskTracker),
    ) -> Self {
        Self {
            builder,
            config,
            finish,
            stopping,
            tasks,
            jobs: BTreeMap::new(),
        }
    }

    /// Makes the set the same as these jobs. Jobs with unchanged options go on undisturbed.
    pub(super) async fn apply(&mut self, wanted: &[&DescribedJob]) -> Applied {
        let mut applied = Applied::default();
        let fixed = &self.config.config.scrape_configs;
        let is_fixed = |name: &str| fixed.iter().any(|job| job.job_name == name);
        let is_running = |name: &str| {
            let job = self.jobs.get(name);
            job.is_some_and(|job| job.fingerprint.is_some())
        };
        let wanted = limits::within_limits(wanted, is_fixed, is_running, &mut applied.problems);
        let names: HashSet<_> = wanted.iter().map(|job| job.name.as_str()).collect();
        for job in wanted {
            self.apply_one(job, &mut applied).await;
        }
        for (name, job) in &mut self.jobs {
            if !names.contains(name.as_str()) {
                job.end().await;
            }
        }
        self.remove_ended();
        applied
    }

    async fn apply_one(&mut self, job: &DescribedJob, applied: &mut Applied) {
        let fingerprint: Fingerprint = Md5::digest(job.options.as_bytes()).into();
        let known = self.jobs.get(&job.name);
        if let Some(known) = known.filter(|known| known.fingerprint == Some(fingerprint)) {
            applied.problems.extend(known.problems.iter().cloned());
            return;
        }
        let parts = known.map(|known| known.parts.clone());
        let parts = parts.unwrap_or_else(|| self.builder.parts(&job.name));
        let (builder, config, finish) = (self.builder.clone(), self.config.clone(), self.finish.clone());
        let (described, parts_of_pool) = (job.clone(), parts.clone());
        let prepared = tokio::task::spawn_blocking(move || {
            prepare(&builder, &config, &finish, &described, parts_of_pool)
        });
        let Ok(prepared) = prepared.await else {
            return; // The gateway stops.
        };
        let Prepared {
            pool,
            problems,
            needs_retry,
        } = prepared;
        applied.problems.extend(problems.iter().cloned());
        if needs_retry {
            // The job goes on as it was. The next attempt may succeed.
            applied.needs_retry = true;
            return;
        }
        let entry = self.jobs.entry(job.name.clone()).or_insert(RunningJob {
            parts,
            fingerprint: None,
            problems: Vec::new(),
            control: None,
        });
        match pool {
            Some(pool) => entry.run(pool, &self.stopping, &self.tasks).await,
            None => entry.end().await,
        }
        entry.fingerprint = Some(fingerprint);
        entry.problems = problems;
    }

    /// Forgets jobs whose last loop has ended.
    fn remove_ended(&mut self) {
        self.jobs.retain(|_, job| {
            let control = job.control.as_ref();
            let is_idle = control.is_none_or(|control| control.is_idle.load(Relaxed));
            job.fingerprint.is_some() || !is_idle
        });
    }

    /// Whether jobs that are gone still end their series.
    pub(super) fn has_ending(&self) -> bool {
        self.jobs.values().any(|job| job.fingerprint.is_none())
    }
}

impl RunningJob {
    async fn run(&mut self, pool: Pool, stopping: &CancellationToken, tasks: &TaskTracker) {
        match &self.control {
            // A closed channel means that the gateway stops.
            Some(control) => drop(control.changes.send(Change::Replace(Box::new(pool))).await),
            None => self.control = Some(pool.start(stopping, tasks)),
        }
    }

    async fn end(&mut self) {
        let was_there = self.fingerprint.take().is_some();
        if let Some(control) = self.control.as_ref().filter(|_| was_there) {
            let _ = control.changes.send(Change::End).await;
        }
    }
}

/// The pool of a job, if its options are valid.
struct Prepared {
    pool: Option<Pool>,
    problems: Vec<String>,
    /// Whether the same options may be usable later.
    needs_retry: bool,
}

impl Prepared {
    fn refused(job: &DescribedJob, why: &str) -> Self {
        Self {
            pool: None,
            problems: vec![format!(
                "{}: job {}: {why}; the job is skipped",
                job.source, job.name
            )],
            needs_retry: false,
        }
    }

    /// The job can't have these options now. The next attempt may succeed.
    fn deferred(job: &DescribedJob, why: &str) -> Self {
        let problem = format!(
            "{}: job {}: {why}; the gateway tries again, and a running job goes on as before",
            job.source, job.name
        );
        Self {
            pool: None,
            problems: vec![problem],
            needs_retry: true,
        }
    }
}

/// Reads the options of a job and makes its pool. This takes time: do not call it on a runtime thread.
fn prepare(
    builder: &JobBuilder,
    config: &PrometheusReceiverConfig,
    finish: &Finish,
    job: &DescribedJob,
    parts: JobParts,
) -> Prepared {
    if job.options.len() > MAX_JOB_BYTES {
        return Prepared::refused(job, &format!("its options have more than {MAX_JOB_BYTES} bytes"));
    }
    let mut held = Held::new(builder.limiter.shared.memory.clone());
    let no_memory = || Prepared::deferred(job, "memory for it is short now");
    if held.try_grow(job.options.len() * READ_FACTOR).is_err() {
        return no_memory();
    }
    let (mut options, problems, expression_bytes) = match read_options(job, config) {
        Ok(read) => read,
        Err(why) => return Prepared::refused(job, &why),
    };
    finish(&mut options);
    let rules = options.relabel_configs.len() + options.metric_relabel_configs.len();
    let bytes = JOB_BYTES + rules * RULE_BYTES + job.options.len() + EXPRESSION_FACTOR * expression_bytes;
    if held.try_grow_to(bytes).is_err() {
        return no_memory();
    }
    held.keep(bytes);
    match builder.pool(&options, config, parts, Some(held)) {
        Ok(pool) => Prepared {
            pool: Some(pool),
            problems,
            needs_retry: false,
        },
        // A file may be there again at the next attempt.
        Err(error) => Prepared::deferred(job, &error.to_string()),
    }
}

/// The options of a job, what has no effect in them, and the bytes of their expressions.
fn read_options(
    job: &DescribedJob,
    config: &PrometheusReceiverConfig,
) -> Result<(ScrapeConfig, Vec<String>, usize), String> {
    let mut problems = Problems::default();
    let node = parse_text(&job.name, &job.options, &mut problems);
    let options = node.and_then(|node| {
        let options = ScrapeConfig::decode(&node, &mut problems)?;
        options.check_with(&config.config.global, &node, &mut problems);
        Some(options)
    });
    let said = problems.sorted().into_iter().take(MAX_SHOWN);
    let said: Vec<_> = said.map(shown).collect();
    match options.filter(|_| !problems.has_errors()) {
        None => Err(said.join("; ")),
        Some(options) => {
            let of_job = |problem: &String| format!("{}: job {}: {problem}", job.source, job.name);
            Ok((
                options,
                said.iter().map(of_job).collect(),
                problems.expression_bytes(),
            ))
        }
    }
}

fn shown(problem: &tidegate_config::Problem) -> String {
    let place = if problem.path.is_empty() {
        String::new()
    } else {
        format!("{}: ", problem.path)
    };
    let help = problem.help.as_ref();
    let help = help.map_or_else(String::new, |help| format!(" ({help})"));
    shorten(&format!("{place}{}{help}", problem.message))
}

/// The options of a job as the receiver reads them.
#[cfg(test)]
pub(super) fn options_for_test(job: &DescribedJob, config: &PrometheusReceiverConfig) -> ScrapeConfig {
    let (options, problems, _) = read_options(job, config).expect("valid options");
    assert_eq!(problems, Vec::<String>::new());
    options
}
