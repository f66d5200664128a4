// SPDX-License-Identifier: Apache-2.0

//! `prometheus`: scrapes targets like Prometheus, with its own `scrape_configs`.
//!
//! The discoveries of a job send the targets to its pool, which keeps a loop for each target. A loop fetches its
//! page at every tick, decodes it to points outside of the runtime's threads, and pushes one batch. The batch
//! includes the series about the scrape itself. A refused batch is offered again until the next scrape is due, and
//! then counted as lost.

mod allocator;
mod client;
pub mod config;
mod credentials;
mod discovery;
mod identity;
mod job;
mod jobs;
mod labels;
mod limiter;
mod log_limits;
mod metrics;
mod operator;
mod pool;
mod report;
mod scrape;
mod target;
mod ticks;
mod weight;
mod work;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use allocator::Allocator;
use config::PrometheusReceiverConfig;
use jobs::JobBuilder;
use limiter::ScrapeLimiter;
use operator::Operator;
use pool::Pool;
use tidegate_pipeline::batch::Signal;
use tidegate_pipeline::component::{
    ComponentError, ConfigType, Context, ErrorDoc, Factory, Lifecycle, Receiver, ReceiverContext,
    ReceiverFactory, Stability,
};
use tidegate_prometheus::relabel;

/// The errors of `prometheus`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "A scrape fails. `reason` is, for example, `connection`, `timeout`, `status` or `sample_limit`.",
        "scrape failed: ",
        "Follow the advice in the line. Check the address, the path and the credentials of the target.",
    ),
    ErrorDoc::logged(
        "The pipelines refuse scraped points until the next scrape is due.",
        "scraped points dropped",
        "Look at the queues of the exporters, and at the memory limit.",
    ),
    ErrorDoc::logged(
        "A discovery fails. The targets that it found before stay.",
        "discovery failed; the targets found before stay",
        "Check the address and the credentials of the mechanism that the line names.",
    ),
    ErrorDoc::logged(
        "A discovered address is not valid.",
        "not a target: ",
        "Correct the target, or its `relabel_configs`.",
    ),
    ErrorDoc::logged(
        "A scrape does not end in time at the stop of the gateway.",
        "scrapes did not end in time",
        "Reduce `scrape_timeout`, or raise `service::drain_timeout`.",
    ),
];

/// The factory of `prometheus`.
pub static FACTORY: ReceiverFactory = Factory {
    kind: "prometheus",
    aliases: &[],
    stability: &[(Signal::Metrics, Stability::Beta)],
    help: "scrapes targets as Prometheus does, by its own scrape_configs",
    errors: &[ERRORS],
    config: ConfigType::of::<PrometheusReceiverConfig>(),
    build: |settings, cx| {
        Ok(Arc::new(Prometheus::new(
            &settings.get::<PrometheusReceiverConfig>(),
            &cx,
        )?))
    },
};

struct Prometheus {
    base: Context,
    pools: Mutex<Vec<Pool>>,
    operator: Mutex<Option<Operator>>,
    allocator: Mutex<Option<Allocator>>,
    tasks: TaskTracker,
    stopping: CancellationToken,
}

impl Prometheus {
    fn new(config: &PrometheusReceiverConfig, cx: &ReceiverContext) -> Result<Self, ComponentError> {
        let entry = cx.entry(Signal::Metrics);
        let entry = entry.ok_or_else(|| cx.base.error("only metrics pipelines can use it"))?;
        let limiter = ScrapeLimiter::new(config, cx.base.shared.clone(), entry.ceiling());
        let builder = Arc::new(JobBuilder::new(&cx.base, entry.clone(), Arc::new(limiter)));
        let mut pools = Vec::new();
        for job in &config.config.scrape_configs {
            let pool = builder.pool(job, config, builder.parts(&job.job_name), None);
            pools.push(pool.map_err(|error| cx.base.error(format!("job {:?}: {error}", job.job_name)))?);
        }
        let operator = config
            .prometheus_cr
            .enabled
            .then(|| Operator::new(config, builder.clone()));
        let operator = operator.transpose();
        let operator = operator.map_err(|error| cx.base.error(format!("prometheus_cr: {error}")))?;
        let allocator = config.target_allocator.as_ref();
        let allocator = allocator.map(|options| Allocator::new(options, config, builder));
        let allocator = allocator.transpose();
        let allocator = allocator.map_err(|error| cx.base.error(format!("target_allocator: {error}")))?;
        Ok(Self {
            base: cx.base.clone(),
            pools: Mutex::new(pools),
            operator: Mutex::new(operator),
            allocator: Mutex::new(allocator),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
        })
    }
}

impl Receiver for Prometheus {}

#[async_trait]
impl Lifecycle for Prometheus {
    async fn start(&self) -> Result<(), ComponentError> {
        let pools = std::mem::take(&mut *self.pools.lock());
        for pool in pools {
            pool.start(&self.stopping, &self.tasks);
        }
        let (stopping, tasks) = (&self.stopping, &self.tasks);
        if let Some(operator) = self.operator.lock().take() {
            let running = operator.run(stopping.clone(), tasks.clone());
            tasks.spawn(stopping.clone().run_until_cancelled_owned(running));
        }
        if let Some(allocator) = self.allocator.lock().take() {
            let running = allocator.run(stopping.clone(), tasks.clone());
            tasks.spawn(stopping.clone().run_until_cancelled_owned(running));
        }
        Ok(())
    }

    async fn stop(&self, deadline: Instant) {
        self.stopping.cancel();
        self.tasks.close();
        if tokio::time::timeout_at(deadline.into(), self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(receiver = &*self.base.id, "scrapes did not end in time");
        }
        // What it has reported no longer holds.
        self.base.shared.notices.set(&self.base.path, Vec::new());
    }
}

#[cfg(test)]
mod tests;
