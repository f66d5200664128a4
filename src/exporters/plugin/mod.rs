// SPDX-License-Identifier: Apache-2.0

//! `plugin`: exports with a shared object from a third party, in the gateway or in a separate process.
//!
//! The destination has the queue, the retries and the splitting. The plugin gets one request at a time, on its own
//! thread, and every call has a time limit (`tidegate_plugin::host::Worker`).

mod config;
mod convert;
mod notes;
#[cfg(test)]
mod tests;

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use tidegate_plugin::host::{
    Description, Instance, Library, Process, Refusal, Setup, Trouble, Wanted, Worker,
};
use tidegate_plugin::{Answer, Takes};
use tokio::task::JoinHandle;
use tracing::warn;

use crate::batch::Signal;
use crate::component::{
    ComponentError, ConfigType, Context, ErrorDoc, ExporterContext, ExporterFactory, Factory, Reason,
    Stability,
};
use crate::delivery::errors::DELIVERY_ERRORS;
use crate::delivery::{Attempt, Destination, ExportRequest, INLINE_BYTES, Loss, Outcome, Parts, apart};
use config::Isolation;
pub use config::PluginExporterConfig;
use convert::{Converted, convert, takers};

/// The errors of `plugin`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "A call of the plugin takes too long.",
        "a call of the plugin takes too long: no other call begins until it returns",
        "Correct the plugin, or raise its timeout.",
    ),
    ErrorDoc::logged(
        "The plugin can't flush its data at the stop.",
        "the plugin did not flush its data",
        "Read `answer` in the line, and correct the plugin.",
    ),
    ErrorDoc::logged(
        "The plugin does not end in time.",
        "the plugin did not end in time; the gateway no longer waits for it",
        "Correct the plugin, or raise `service::drain_timeout`.",
    ),
];

/// The factory of `plugin`.
pub static FACTORY: ExporterFactory = Factory {
    kind: "plugin",
    aliases: &[],
    stability: &[
        (Signal::Metrics, Stability::Alpha),
        (Signal::Traces, Stability::Alpha),
        (Signal::Logs, Stability::Alpha),
    ],
    help: "exports with a plugin: a shared object written in C, C++, Rust or another language with its ABI",
    errors: &[ERRORS, DELIVERY_ERRORS],
    config: ConfigType::of::<PluginExporterConfig>(),
    build: |settings, cx| {
        let config = settings.get::<PluginExporterConfig>();
        let plugin = Plugin::new(config.clone(), &cx)?;
        let destination = Destination::new(cx, &config.delivery(), plugin);
        Ok(Arc::new(destination.only_leader(config.only_leader.as_deref())?))
    },
};

/// The number of crashes of the plugin's process after which the batch in progress is dropped as their cause.
const MAX_CRASHES: u32 = 3;

/// The time for starting a process and loading a plugin, beyond the calls.
const START_ALLOWANCE: Duration = Duration::from_secs(2);

/// The least wait for the plugin's last calls, however late the stop is.
const CLOSE_ALLOWANCE: Duration = Duration::from_millis(100);

struct Plugin {
    config: Arc<PluginExporterConfig>,
    wanted: Wanted,
    base: Context,
    /// Signals that pipelines send here.
    signals: Vec<Signal>,
    running: OnceLock<Arc<RunningPlugin>>,
    flusher: Mutex<Option<JoinHandle<()>>>,
}

/// A plugin that has been created.
struct RunningPlugin {
    worker: Worker,
    takes: Takes,
    /// Exported since the last flush.
    dirty: AtomicBool,
}

impl Plugin {
    /// Checks what can be known without running code of the plugin.
    fn new(config: Arc<PluginExporterConfig>, cx: &ExporterContext) -> Result<Self, ComponentError> {
        let refused = |refusal: Refusal| cx.base.error(refusal.to_string());
        let wanted = config.wanted().map_err(refused)?;
        wanted.inspect().map_err(refused)?;
        let signals = Signal::ALL.into_iter();
        Ok(Self {
            wanted,
            config,
            base: cx.base.clone(),
            signals: signals.filter(|signal| cx.ledger(*signal).is_some()).collect(),
            running: OnceLock::new(),
            flusher: Mutex::default(),
        })
    }

    async fn start(&self) -> Result<(Worker, Description), Refusal> {
        let (wanted, limit) = (self.wanted.clone(), self.config.timeout);
        let setup = Setup {
            id: self.base.id.to_string(),
            config: self.config.config.0.expose().to_owned(),
        };
        let (name, notes) = (&self.base.id, notes::listener(self.base.clone()));
        match self.config.isolation {
            Isolation::None => {
                let make = move || {
                    let library = Library::open(&wanted)?;
                    let instance = Instance::create(&library, &setup)?;
                    Ok((instance, library.description().clone()))
                };
                Worker::start(name, limit, notes, make).await
            }
            Isolation::Process => {
                // The worker limits its calls. A call may have to start the process first.
                let patience = limit * 2 + START_ALLOWANCE;
                let memory = self.config.memory_limit.bytes();
                let make = move || Process::start(Box::new(move || host(memory)), wanted, setup, limit);
                Worker::start(name, patience, notes, make).await
            }
        }
    }

    /// Whether it takes all that is sent here.
    fn check(&self, found: &Description) -> Result<(), String> {
        let takes = |signal: &Signal| takers(*signal).iter().any(|taken| found.takes.has(*taken));
        match self.signals.iter().find(|signal| !takes(signal)) {
            None => Ok(()),
            Some(signal) => Err(format!(
                "the plugin `{}` {} takes no {signal}, and a {signal} pipeline sends here",
                found.name, found.version
            )),
        }
    }

    fn start_flushing(&self, running: &Arc<RunningPlugin>) {
        let interval = self.config.flush_interval;
        if interval.is_zero() {
            return;
        }
        let (running, component) = (running.clone(), self.base.path.clone());
        let flushing = tokio::spawn(async move {
            loop {
                tokio::time::sleep(interval).await;
                if running.dirty.swap(false, Relaxed) {
                    running.flush(&component).await;
                }
            }
        });
        *self.flusher() = Some(flushing);
    }

    fn flusher(&self) -> parking_lot::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.flusher.lock()
    }
}

impl RunningPlugin {
    async fn flush(&self, component: &str) {
        let reply = self.worker.flush().await;
        if reply == Ok(Answer::Ok) {
            return;
        }
        self.dirty.store(true, Relaxed);
        // Calls without an answer are reported already.
        if let Ok(answer) = reply {
            warn!(component, %answer, "the plugin did not flush its data");
        }
    }
}

/// This binary again, as the process of a plugin.
fn host(memory_limit: u64) -> Command {
    // The binary that runs, whatever has been installed in its place since.
    let mut command = Command::new("/proc/self/exe");
    command.args(["plugin-host", "--memory-limit", &memory_limit.to_string()]);
    // The allocator would reserve a gigabyte of writable memory at once, which counts against the limit.
    command.env("MIMALLOC_ARENA_EAGER_COMMIT", "0");
    command
}

#[async_trait]
impl Attempt for Plugin {
    fn may_overlap(&self) -> bool {
        false
    }

    async fn open(&self) -> Result<(), String> {
        let (worker, found) = self.start().await.map_err(|refusal| refusal.to_string())?;
        let running = Arc::new(RunningPlugin {
            worker,
            takes: found.takes,
            dirty: AtomicBool::new(false),
        });
        // Opened once. The close ends it, also if it takes the wrong signals.
        let _ = self.running.set(running.clone());
        self.check(&found)?;
        notes::loaded(&self.base, &self.wanted.path, &found, self.config.isolation);
        self.start_flushing(&running);
        Ok(())
    }

    async fn send(&self, export: ExportRequest) -> Outcome {
        let Some(running) = self.running.get() else {
            return Outcome::permanent("the plugin is not loaded");
        };
        let (is_long, takes) = (export.joined_bytes() > INLINE_BYTES, running.takes);
        let convert = move || (convert(&export, takes), export);
        let (Converted { batch, unsupported }, export) = match apart(is_long, convert).await {
            Ok(converted) => converted,
            Err(why) => return Outcome::permanent(why),
        };
        let unsupported = Loss {
            items: unsupported,
            reason: Reason::Unsupported,
            why: "the plugin takes events only: gauges and delta sums (see `temporality`)".to_owned(),
        };
        if batch.items == 0 {
            return Outcome::Partly(unsupported);
        }
        running.dirty.store(true, Relaxed);
        match running.worker.export(batch).await {
            Ok(answer) => outcome(
                answer,
                unsupported,
                export.batches().iter().map(crate::batch::Batch::items).sum(),
            ),
            Err(trouble) => failed(&trouble, &export),
        }
    }

    async fn close(&self, deadline: Instant) {
        let flusher = self.flusher().take();
        if let Some(flusher) = flusher {
            flusher.abort();
            // Cancelled, as asked for.
            let _ = flusher.await;
        }
        let Some(running) = self.running.get() else { return };
        let deadline = deadline.max(Instant::now() + CLOSE_ALLOWANCE);
        if let Err(trouble) = running.worker.close(deadline).await {
            let component = &*self.base.path;
            warn!(component, error = %trouble, "the plugin did not end in time; the gateway no longer waits for it");
        }
    }
}

/// The outcome of an answer to a request of `items` items.
fn outcome(answer: Answer, unsupported: Loss, items: usize) -> Outcome {
    match answer {
        Answer::Ok if unsupported.items == 0 => Outcome::Done,
        Answer::Ok => Outcome::Partly(unsupported),
        Answer::Partial { lost_items, why } => {
            let most = items.saturating_sub(unsupported.items);
            let rejected = Loss {
                items: usize::try_from(lost_items).unwrap_or(usize::MAX).min(most),
                reason: Reason::Rejected,
                why,
            };
            let losses = [rejected, unsupported].into_iter();
            Outcome::Parts(Parts {
                losses: losses.filter(|loss| loss.items > 0).collect(),
                ..Parts::default()
            })
        }
        Answer::Retry { after, why } => Outcome::Retry { after, why },
        Answer::Refused { why } => Outcome::Permanent { why },
        Answer::Invalid { why } => Outcome::Refused { why },
        Answer::TooLarge { why } => Outcome::TooLarge { why },
    }
}

/// The outcome of a call without an answer: a retry, unless the request crashes the plugin's process.
fn failed(trouble: &Trouble, export: &ExportRequest) -> Outcome {
    let why = trouble.to_string();
    match trouble {
        Trouble::Crashed(_) => {
            let crashes = export.attempt_state().get::<AtomicU32>().unwrap_or_else(|| {
                let crashes = Arc::new(AtomicU32::new(0));
                export.attempt_state().set(crashes.clone());
                crashes
            });
            match crashes.fetch_add(1, Relaxed) + 1 {
                MAX_CRASHES.. => Outcome::permanent(format!("{why}; {MAX_CRASHES} times with this request")),
                _ => Outcome::Retry { after: None, why },
            }
        }
        Trouble::Down { again, .. } => Outcome::Retry {
            after: Some(*again),
            why,
        },
        Trouble::TimedOut(_) | Trouble::Stuck(_) | Trouble::Closed => Outcome::retry(why),
    }
}
