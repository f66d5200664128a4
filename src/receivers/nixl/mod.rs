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
mod left;
mod metrics;
mod poll_interval;
mod ring;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use crate::batch::Signal;
use crate::component::worker::Worker;
use crate::component::{
    ComponentError, ConfigType, Context, Entry, ErrorDoc, Factory, Lifecycle, Receiver, ReceiverFactory,
    Stability,
};
use crate::receivers::left::Left;
use config::NixlConfig;
use left::LeftSources;

/// The errors of `nixl`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "The gateway may not open a ring.",
        "no permission to",
        "Run the gateway as the user of the agent, or add the capability that the line names.",
    ),
    ErrorDoc::logged(
        "A file is not a ring of NIXL, has an unknown version, or is damaged.",
        "not drained",
        "Run `tidegate ring inspect` on the file. Remove other files from the directory.",
    ),
    ErrorDoc::logged(
        "A ring has changed while the receiver had it open.",
        "the ring has changed; reading continues from its new state",
        "Nothing, if the agent has restarted. Otherwise look for a second reader of the file.",
    ),
    ErrorDoc::logged(
        "The receiver can't read a ring.",
        "a ring could not be read",
        "Run `tidegate ring inspect` on the file, and check the disk or the shared memory.",
    ),
    ErrorDoc::logged(
        "The pipelines refuse events permanently.",
        "the pipelines refuse these events permanently; they are dropped",
        "Look at the limits of the processors. The line has the cause.",
    ),
];

/// The factory of `nixl`.
pub static FACTORY: ReceiverFactory = Factory {
    kind: "nixl",
    aliases: &[],
    stability: &[(Signal::Metrics, Stability::Beta)],
    help: "drains NVIDIA NIXL telemetry rings (versions 1 to 5) out of shared memory",
    errors: &[ERRORS],
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
            left: Arc::default(),
        }))
    },
};

struct Nixl {
    config: Arc<NixlConfig>,
    base: Context,
    entry: Entry,
    worker: Worker,
    /// The sources of its rings, once it has stopped.
    left: Arc<Left<LeftSources>>,
}

impl Receiver for Nixl {}

#[async_trait]
impl Lifecycle for Nixl {
    async fn start(&self) -> Result<(), ComponentError> {
        tracing::info!(receiver = %self.base.id, directories = ?self.config.directories, "watching directories");
        let mut drain = drain::Drain::new(&self.config, &self.base, self.entry.clone(), self.left.clone());
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
