// SPDX-License-Identifier: Apache-2.0

//! The thread that pushes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::resource::v1::Resource;
use tokio::runtime::Runtime;

use super::build::{OtelBuilder, OtelError, Temporality};
use super::delta::Baseline;
use super::encode::{Times, attribute, nanos, points, request};
use super::send::Sender;
use crate::ExportError;
use crate::cells::Cells;

/// A caller that waits for a push, and whether it is the last one.
struct Asked {
    within: Duration,
    is_last: bool,
    answer: mpsc::SyncSender<Result<(), String>>,
}

/// The thread's other end.
pub(super) struct Pusher {
    asks: mpsc::SyncSender<Asked>,
    pub(super) failed: Arc<AtomicU64>,
    pub(super) rejected: Arc<AtomicU64>,
}

/// Those who may wait for a push at a time.
const WAITING: usize = 16;

impl Pusher {
    pub(super) fn start(builder: OtelBuilder, cells: Arc<Cells>) -> Result<Self, OtelError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let sender = {
            let _inside = runtime.enter();
            Sender::new(&builder, "/v1/metrics")?
        };
        let (asks, asked) = mpsc::sync_channel(WAITING);
        let (failed, rejected) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let push = Push {
            resource: resource(&builder.resource),
            sender,
            runtime,
            cells,
            temporality: builder.temporality,
            baseline: Baseline::default(),
            start: nanos(SystemTime::now()),
            since: nanos(SystemTime::now()),
            failed: failed.clone(),
            rejected: rejected.clone(),
            has_complained: AtomicBool::new(false),
        };
        let thread = std::thread::Builder::new().name("metrics-otlp".to_owned());
        thread.spawn(move || push.run(&asked, builder.interval, builder.timeout))?;
        Ok(Self {
            asks,
            failed,
            rejected,
        })
    }

    pub(super) fn push(&self, within: Duration, is_last: bool) -> Result<(), ExportError> {
        let (answer, answered) = mpsc::sync_channel(1);
        let gone = || ExportError::Peer("the registry was shut down, or this is a forked process".to_owned());
        let asked = Asked {
            within,
            is_last,
            answer,
        };
        self.asks.try_send(asked).map_err(|_| gone())?;
        match answered.recv_timeout(within + Duration::from_secs(1)) {
            Ok(result) => result.map_err(ExportError::Peer),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(ExportError::Timeout),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }
}

/// The state of the thread.
struct Push {
    runtime: Runtime,
    sender: Sender,
    resource: Resource,
    cells: Arc<Cells>,
    temporality: Temporality,
    baseline: Baseline,
    /// When the registry was made.
    start: u64,
    /// Since when points count.
    since: u64,
    failed: Arc<AtomicU64>,
    rejected: Arc<AtomicU64>,
    has_complained: AtomicBool,
}

impl Push {
    fn run(mut self, asked: &mpsc::Receiver<Asked>, interval: Duration, timeout: Duration) {
        loop {
            match asked.recv_timeout(interval) {
                Ok(asked) => {
                    // The caller may have stopped waiting.
                    let _ = asked.answer.send(self.push(asked.within));
                    if asked.is_last {
                        return;
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => drop(self.push(timeout)),
                // The registry is gone, and what it held since the last push with it: a last one.
                Err(mpsc::RecvTimeoutError::Disconnected) => return drop(self.push(timeout)),
            }
        }
    }

    fn push(&mut self, within: Duration) -> Result<(), String> {
        let families = self.cells.gather();
        if points(&families) == 0 {
            return Ok(());
        }
        let now = nanos(SystemTime::now());
        let total = Times {
            start: self.start,
            now,
        };
        let request = match self.temporality {
            Temporality::Cumulative => request(&self.resource, &families, self.temporality, total, total),
            Temporality::Delta => {
                let since = Times {
                    start: self.since,
                    now,
                };
                let grown = self.baseline.since(families.clone());
                request(&self.resource, &grown, self.temporality, since, total)
            }
        };
        let result = self.runtime.block_on(self.sender.send(request, within));
        match result {
            Ok(rejected) => {
                self.rejected.fetch_add(rejected, Relaxed);
                if self.temporality == Temporality::Delta {
                    self.baseline.set(families);
                    self.since = now;
                }
                self.has_complained.store(false, Relaxed);
                Ok(())
            }
            Err(error) => {
                self.failed.fetch_add(1, Relaxed);
                if !self.has_complained.swap(true, Relaxed) {
                    crate::report::error(&format!(
                        "metrics were not pushed: {error}; the next push will carry them"
                    ));
                }
                Err(error)
            }
        }
    }
}

/// The resource as the protocol has it.
fn resource(own: &[(String, String)]) -> Resource {
    let resource = crate::instance::resource(own);
    Resource {
        attributes: resource
            .iter()
            .map(|(key, value)| attribute(key.as_str(), &value.as_str()))
            .collect(),
        ..Resource::default()
    }
}
