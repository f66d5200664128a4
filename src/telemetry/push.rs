// SPDX-License-Identifier: Apache-2.0

//! Pushes metrics by OTLP. OpenTelemetry's SDK collects the counts of components.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use tidegate_runtime::Every;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::SCOPE;
use super::config::Periodic;
use super::graph_metrics::MetricsPublisher;
use super::instruments::Instruments;

/// Disables the SDK's own timer, because the ledgers are published before each push.
const NEVER: Duration = Duration::from_secs(u32::MAX as u64);
/// The interval between log lines about an unreachable peer.
const FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The time limit of the last push at the stop.
const LAST_PUSH: Duration = Duration::from_secs(1);

/// A running reader that pushes.
pub(super) struct Pusher {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Pusher {
    /// Pushes a last time, with a time limit.
    pub(super) async fn stop(mut self) {
        self.stop.send_replace(true);
        if tokio::time::timeout(LAST_PUSH, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

/// A reader that pushes, before it starts.
pub(super) struct Push {
    endpoint: String,
    interval: Duration,
    provider: SdkMeterProvider,
    failure_log: Every,
}

impl Push {
    /// Creates a reader, and the recorder that it reads.
    pub(super) fn new(config: &Periodic, resource: Resource) -> Result<(Self, Instruments), String> {
        let mut otlp = config
            .exporter
            .otlp()
            .ok_or("a periodic reader without an exporter")?;
        otlp.timeout = config.timeout.unwrap_or(otlp.timeout);
        let reader = PeriodicReader::builder(otlp.metrics()?)
            .with_interval(NEVER)
            .build();
        let provider = SdkMeterProvider::builder()
            .with_reader(reader)
            .with_resource(resource)
            .build();
        let instruments = Instruments::new(provider.meter(SCOPE));
        let push = Self {
            endpoint: otlp.endpoint,
            interval: config.interval.0,
            provider,
            failure_log: Every::new(FAILURE_LOG_INTERVAL),
        };
        Ok((push, instruments))
    }

    pub(super) fn start(self, publisher: Arc<MetricsPublisher>) -> Pusher {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(self.run(publisher, stopped));
        Pusher { stop, task }
    }

    async fn run(self, publisher: Arc<MetricsPublisher>, mut stopped: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            let over = tokio::select! {
                _ = ticks.tick() => false,
                _ = stopped.changed() => true,
            };
            publisher.publish();
            self.push().await;
            if over {
                return;
            }
        }
    }

    async fn push(&self) {
        let provider = self.provider.clone();
        let flushed = tokio::task::spawn_blocking(move || provider.force_flush()).await;
        let error = match flushed {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        metrics::counter!("tidegate_telemetry_push_failures_total", "signal" => "metrics").increment(1);
        if self.failure_log.ready().is_some() {
            tracing::warn!(endpoint = %self.endpoint, %error, "tidegate's own metrics could not be pushed");
        }
    }
}
