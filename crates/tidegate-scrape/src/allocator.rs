// SPDX-License-Identifier: Apache-2.0

//! `target_allocator`: jobs from the target allocator of the OpenTelemetry operator. Each job asks it for its targets, as
//! `http_sd_configs` do. If the allocator does not answer, the jobs of its last answer go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use serde_json::{Map, Value, json};
use tidegate_runtime::USER_AGENT as OUR_NAME;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::{self, Client, FetchError};
use crate::config::PrometheusReceiverConfig;
use crate::config::allocator::TargetAllocatorConfig;
use crate::config::scrape::ScrapeConfig;
use crate::jobs::{DescribedJob, JobBuilder, JobSet};
use crate::metrics::ScrapeMetrics;
use tidegate_pipeline::component::{Account, Ceiling, Held};
use tidegate_pipeline::net::TlsError;

/// The largest answer with jobs.
const MAX_ANSWER_BYTES: usize = 32 << 20;

/// The bytes to read an answer, for each of its bytes.
const READ_FACTOR: usize = 32;

/// The part that failures are counted for.
const NAME: &str = "target_allocator";

/// What the allocator writes for each secret of its answers over `http`.
const HIDDEN: &str = r#""<secret>""#;

/// Why the client can't be built.
#[derive(Debug, thiserror::Error)]
pub(super) enum AllocatorError {
    /// A TLS file is unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The gateway has no name.
    #[error("this gateway has no name: set `collector_id`, or the environment variable POD_NAME")]
    NoName,
}

/// Jobs from the target allocator.
pub(super) struct Allocator {
    client: Client,
    url: Uri,
    timeout: Duration,
    interval: Duration,
    options: TargetAllocatorConfig,
    collector: String,
    config: Arc<PrometheusReceiverConfig>,
    builder: Arc<JobBuilder>,
    metrics: ScrapeMetrics,
}

impl Allocator {
    /// # Errors
    /// A TLS file is unusable, or the gateway has no name.
    pub(super) fn new(
        options: &TargetAllocatorConfig,
        config: &PrometheusReceiverConfig,
        builder: Arc<JobBuilder>,
    ) -> Result<Self, AllocatorError> {
        let of_pod = || std::env::var("POD_NAME").ok();
        let given = Some(options.collector_id.clone()).filter(|id| !id.is_empty());
        let collector = given.or_else(of_pod).filter(|id| !id.is_empty());
        Ok(Self {
            client: Client::new(&options.http())?,
            // The options have been checked: it is a URL.
            url: options.url("/scrape_configs").parse().unwrap_or_default(),
            timeout: options.timeout,
            interval: options.interval,
            options: options.clone(),
            collector: collector.ok_or(AllocatorError::NoName)?,
            config: Arc::new(config.clone()),
            metrics: builder.metrics(NAME),
            builder,
        })
    }

    /// Runs until it is dropped.
    pub(super) async fn run(self, stopping: CancellationToken, tasks: TaskTracker) {
        let (options, collector) = (self.options.clone(), self.collector.clone());
        let finish = Arc::new(move |job: &mut ScrapeConfig| add_targets(job, &options, &collector));
        let mut jobs = JobSet::new(
            self.builder.clone(),
            self.config.clone(),
            finish,
            (stopping, tasks),
        );
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let asked = tokio::time::timeout(self.timeout, self.ask()).await;
            let answer = asked.unwrap_or_else(|_| Err(FetchError::TimedOut(self.timeout).to_string()));
            match answer {
                Ok((described, _held)) => {
                    let mut problems = without_credentials(&described, &self.options);
                    let described: Vec<_> = described.iter().collect();
                    let applied = jobs.apply(&described).await;
                    problems.extend(applied.problems);
                    self.builder.report(NAME, problems);
                }
                Err(error) => {
                    let why = format_args!("{}: {error}", self.url);
                    self.metrics.discovery_failed(NAME, &why);
                }
            }
        }
    }

    /// The jobs of the next answer, with its reservation.
    async fn ask(&self) -> Result<(Vec<DescribedJob>, Held), String> {
        let said = |error: FetchError| error.to_string();
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(OUR_NAME));
        let response = self.client.get(&self.url, &headers).await.map_err(said)?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()).to_string());
        }
        let memory: &Arc<Account> = &self.builder.limiter().shared.memory;
        let mut held = Held::new(memory.clone());
        let mut arrived = 0;
        let reserve = |bytes| {
            arrived += bytes;
            Ok(client::reserve_arrived(&mut held, arrived)?)
        };
        let account = (memory.clone(), Ceiling::Soft);
        let packed = client::read(response, MAX_ANSWER_BYTES, self.timeout, account, reserve).await;
        let packed = packed.map_err(said)?;
        held.keep(arrived);
        let read = tokio::task::spawn_blocking(move || {
            let text = packed.unpack(MAX_ANSWER_BYTES, &mut held).map_err(said)?;
            let room = held.try_grow(text.len().saturating_mul(READ_FACTOR));
            room.map_err(|error| error.to_string())?;
            Ok((described(&text)?, held))
        });
        read.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}

/// The jobs of an answer.
fn described(text: &[u8]) -> Result<Vec<DescribedJob>, String> {
    let jobs: BTreeMap<String, Map<String, Value>> =
        serde_json::from_slice(text).map_err(|error| format!("not a map of jobs: {error}"))?;
    let shard = std::env::var("SHARD").unwrap_or_else(|_| "0".to_owned());
    let job = |(name, mut options): (String, Map<String, Value>)| {
        options.retain(|key, value| is_of_job(key) && is_set(value));
        options.insert("job_name".to_owned(), json!(name));
        let fallback = options.entry("fallback_scrape_protocol");
        fallback.or_insert_with(|| json!("PrometheusText0.0.4"));
        DescribedJob {
            // The allocator leaves the number of the shard to its clients.
            options: Value::Object(options).to_string().replace("$(SHARD)", &shard),
            name,
            source: NAME.to_owned(),
            namespace: String::new(),
        }
    };
    Ok(jobs.into_iter().map(job).collect())
}

/// Notices of jobs whose credentials the allocator hides, unless the options replace them.
fn without_credentials(described: &[DescribedJob], options: &TargetAllocatorConfig) -> Vec<String> {
    if options.http_scrape_config.is_some() {
        return Vec::new();
    }
    let hidden = described.iter().filter(|job| job.options.contains(HIDDEN));
    let notice = |job: &DescribedJob| {
        format!(
            "{NAME}: job {}: the allocator hides its credentials over http; use an https endpoint with a client certificate",
            job.name
        )
    };
    hidden.map(notice).collect()
}

/// Whether an option is of use. The allocator itself finds the targets.
fn is_of_job(key: &str) -> bool {
    const WITHOUT_EFFECT: &[&str] = &[
        "static_configs",
        "keep_dropped_targets",
        "convert_classic_histograms_to_nhcb",
    ];
    !key.ends_with("_sd_configs") && !WITHOUT_EFFECT.contains(&key)
}

/// Whether an option differs from an absent one. The allocator writes all options of Prometheus.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(values) => !values.is_empty(),
        _ => true,
    }
}

/// Adds the targets to a job, and its HTTP client.
fn add_targets(job: &mut ScrapeConfig, options: &TargetAllocatorConfig, collector: &str) {
    job.http_sd_configs = vec![options.discovery(&job.job_name, collector)];
    let Some(client) = options.http_scrape_config.clone() else {
        return;
    };
    job.basic_auth = client.basic_auth;
    job.authorization = client.authorization;
    job.bearer_token = client.bearer_token;
    job.bearer_token_file = client.bearer_token_file;
    job.tls_config = client.tls_config;
    job.follow_redirects = client.follow_redirects;
    job.enable_http2 = client.enable_http2;
    job.http_headers = client.http_headers;
}

#[cfg(test)]
mod tests;
