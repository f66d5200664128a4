// SPDX-License-Identifier: Apache-2.0

//! `nixl`: drains the shared-memory rings of NVIDIA NIXL agents, in all versions, as they appear, vanish and
//! restart.
//!
//! One thread serves all rings of a receiver. A drain takes a few system calls and a copy, and a runtime's timer
//! is too coarse for a ring that fills within 10 ms. Events leave a ring only after the pipelines have accepted
//! them. While the pipelines refuse, the ring itself is the queue. The receiver never writes to files that are not
//! rings, and unlinks no file.

pub mod config;
mod drain;
mod kinds;
mod metrics;
mod poll_interval;
mod ring;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use crate::batch::Signal;
use crate::component::worker::Worker;
use crate::component::{
    ComponentError, ConfigType, Context, Entry, Factory, Lifecycle, Receiver, ReceiverFactory, Stability,
};
use config::NixlConfig;

/// The factory of `nixl`.
pub static FACTORY: ReceiverFactory = Factory {
    kind: "nixl",
    aliases: &[],
    signals: &[(Signal::Metrics, Stability::Beta)],
    help: "drains NVIDIA NIXL telemetry rings (versions 1 to 5) out of shared memory",
    config: ConfigType::of::<NixlConfig>(),
    build: |settings, cx| {
        let entry = cx.entry(Signal::Metrics).cloned();
        let entry = entry.ok_or_else(|| cx.base.error("only metrics pipelines can use it"))?;
        let worker = Worker::new("tidegate-nixl");
        Ok(Arc::new(Nixl {
            config: settings.get(),
            base: cx.base,
            entry,
            worker,
        }))
    },
};

struct Nixl {
    config: Arc<NixlConfig>,
    base: Context,
    entry: Entry,
    worker: Worker,
}

impl Receiver for Nixl {}

#[async_trait]
impl Lifecycle for Nixl {
    async fn start(&self) -> Result<(), ComponentError> {
        tracing::info!(receiver = %self.base.id, directories = ?self.config.directories, "watching directories");
        let mut drain = drain::Drain::new(&self.config, &self.base, self.entry.clone());
        self.worker
            .start(move |pause| drain.run(pause))
            .map_err(|error| self.base.error(error.to_string()))
    }

    /// Drains every ring a last time before it returns.
    async fn stop(&self, deadline: Instant) {
        self.worker.stop(deadline).await;
    }
}

#[cfg(test)]
mod tests;
