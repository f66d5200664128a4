// SPDX-License-Identifier: Apache-2.0

//! The driver runs the machine on tokio: it makes attempts, updates ledgers, and moves data between memory and
//! disk.
//!
//! Invariants:
//!
//! - The machine learns the end of each attempt. `Flight` reports it when it is dropped, so a panic and a cancelled
//!   task report too. The machine ignores the end of an attempt that it has given up.
//! - The thread that polls an action carries it out. A thread that brings a batch or an outcome polls at once. The
//!   task of `run` does the work that depends on time, and is the only one that drains.
//! - No batch stays in the machine after the stop. `stop` sets `ended` before it gives up all requests. `queue`
//!   enqueues before it reads `ended`. So at least one of the two gives up a batch that comes last.
//!
//! Ownership: the machine owns the requests and their permits until an action settles or keeps them. An attempt has a
//! copy of the load and no permit. `RunningParts` owns the tasks of the attempts, and `run` ends them.
//!
//! Lock order: the `pass` of the conversion (if a caller has it), `attempts`, the machine, all others. A runtime that
//! shuts down drops an attempt within `spawn_on`, and the drop locks the machine. So no action is carried out while the
//! machine is locked. Under its lock the machine drops permits, which take the locks of the queue's drain rates and of
//! the store. No lock is held across an await.

mod logging;
mod storage;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tracing::warn;

use super::capacity::QueuePermit;
use super::destination::{Attempt, DestinationInner};
use super::export_request::{BatchKey, ExportRequest};
use super::gauges::Gauges;
use super::machine::{Action, Load, Machine};
use super::outcome::{Loss, Outcome};
use crate::batch::{Batch, Signal};
use crate::component::slow::{Slow, Stage};
use crate::component::{Ledger, Reason};

/// An attempt in progress. The machine learns its end in every case, including a panic.
struct Flight<A: Attempt> {
    inner: Arc<DestinationInner<A>>,
    id: u64,
    signal: Signal,
    began: Instant,
    /// Whether it is the first attempt to send its request.
    is_first: bool,
    outcome: Option<Outcome>,
}

impl<A: Attempt> Flight<A> {
    async fn run(mut self, export: ExportRequest) {
        let running = self.inner.running.get().filter(|_| self.is_first);
        if let Some(bytes) = running.and_then(|running| running.send_bytes.as_ref()) {
            bytes.record(export.encoded_bytes() as f64);
        }
        self.outcome = Some(self.inner.attempt(export).await);
        let inner = self.inner.clone();
        drop(self);
        inner.go_on();
    }
}

impl<A: Attempt> Drop for Flight<A> {
    fn drop(&mut self) {
        // The end may have interrupted the attempt anywhere, so the driver must continue.
        let is_whole = self.outcome.is_some();
        let outcome = self.outcome.take();
        let outcome = outcome.unwrap_or_else(|| Outcome::permanent("the attempt was broken off (a bug)"));
        let now = Instant::now();
        if let Some(running) = self.inner.running.get() {
            running.fly(self.signal, -1);
            if is_whole {
                running.record_send(self.signal, now.saturating_duration_since(self.began), now);
            }
        }
        self.inner.machine().finish(now, self.id, outcome);
        if !is_whole {
            self.inner.wake.notify_one();
        }
    }
}

/// The parts of a destination while it runs.
pub(super) struct RunningParts {
    runtime: Handle,
    /// Attempts in progress.
    attempts: Mutex<JoinSet<()>>,
    /// The gauges of each signal in use, by `Signal as usize`.
    gauges: [Option<Gauges>; 3],
    /// The items and bytes of each request. Bytes are recorded only with detailed metrics.
    send_size: metrics::Histogram,
    send_bytes: Option<metrics::Histogram>,
    /// Items on disk, if the queue has storage.
    backlog: Option<metrics::Gauge>,
    /// The next time at which the driver looks for work.
    next_check: Mutex<Instant>,
}

impl RunningParts {
    /// Counts the begin (1) or the end (-1) of an attempt.
    fn fly(&self, signal: Signal, change: i64) {
        if let Some(gauges) = &self.gauges[signal as usize] {
            gauges.fly(change);
        }
    }

    fn record_send(&self, signal: Signal, took: Duration, now: Instant) {
        if let Some(gauges) = &self.gauges[signal as usize] {
            gauges.record_send(took, now);
        }
    }

    /// Counts items that the full queue refuses.
    pub(super) fn refuse(&self, signal: Signal, items: usize) {
        if let Some(gauges) = &self.gauges[signal as usize] {
            gauges.refuse(items);
        }
    }

    fn attempts(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.attempts.lock()
    }

    /// Sets the next time at which the driver looks for work.
    fn set_next_check(&self, at: Instant) {
        *self.next_check.lock() = at;
    }

    fn next_check(&self) -> Instant {
        *self.next_check.lock()
    }
}

impl<A: Attempt> DestinationInner<A> {
    /// Prepares the destination to run on the current runtime.
    pub(super) fn ignite(&self) {
        let exporter = self.context.id.to_string();
        let histogram = |name| metrics::histogram!(name, "exporter" => exporter.clone());
        let wants_details = self.context.shared.wants_details();
        let running = RunningParts {
            runtime: Handle::current(),
            attempts: Mutex::default(),
            gauges: Signal::ALL.map(|signal| {
                let used = self.ledgers[signal as usize].is_some();
                used.then(|| Gauges::new(&self.context.shared, &exporter, signal))
            }),
            send_size: histogram("otelcol_exporter_queue_batch_send_size"),
            send_bytes: wants_details.then(|| histogram("otelcol_exporter_queue_batch_send_size_bytes")),
            backlog: self.has_storage().then(|| {
                metrics::gauge!("tidegate_storage_backlog_items", "component" => self.context.path.to_string())
            }),
            next_check: Mutex::new(Instant::now()),
        };
        // The destination starts only once.
        let _ = self.running.set(running);
    }

    /// Does the work that depends on time: retries, batches that wait for others, the disk, the drain. A caller
    /// that brings a batch or an outcome handles it itself.
    pub(super) async fn run(self: Arc<Self>) {
        let Some(running) = self.running.get() else { return };
        while let Some(next_check) = self.turn(running) {
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep_until(next_check.into()) => {}
            }
        }
        self.give_up();
        let mut attempts = std::mem::take(&mut *running.attempts());
        attempts.shutdown().await;
        self.show(running);
    }

    fn show(&self, running: &RunningParts) {
        running
            .gauges
            .iter()
            .flatten()
            .for_each(|gauges| gauges.show(&self.capacity));
        if let (Some(gauge), Some(spill)) = (&running.backlog, self.spill.get()) {
            gauge.set(spill.waiting() as f64);
        }
    }

    /// Does the work that is due. Returns the time of the next turn; `None` = the drain is complete.
    fn turn(self: &Arc<Self>, running: &RunningParts) -> Option<Instant> {
        /// The longest pause between two turns.
        const IDLE: Duration = Duration::from_hours(1);
        /// The longest pause with data on disk, so that a failed disk is retried.
        const BACKLOG: Duration = Duration::from_secs(1);
        /// The longest pause with converted streams, which expire. Tests can't wait ten minutes.
        const STREAMS: Duration = if cfg!(test) {
            Duration::from_millis(20)
        } else {
            Duration::from_mins(10)
        };
        let now = Instant::now();
        if let Some(outage) = self.standing.overdue(now) {
            self.log_outage(&outage);
        }
        if let Some(conversion) = &self.conversion {
            conversion.expire();
        }
        let has_backlog = self.spill.get().is_some_and(|spill| self.read_back(spill));
        self.act(running, now);
        let machine = self.machine();
        let deadline = machine.deadline();
        let over = deadline.is_some_and(|deadline| machine.is_empty() || deadline <= now);
        let wake_at = machine
            .wake_at(now)
            .into_iter()
            .chain(deadline)
            .chain(self.standing.due())
            .min();
        let rest = match (has_backlog, &self.conversion) {
            (true, _) => BACKLOG,
            (false, Some(_)) => STREAMS,
            (false, None) => IDLE,
        };
        let rest = now + rest;
        let next_check = wake_at.map_or(rest, |at| at.min(rest));
        // The lock of the machine is still held, so the next change sees this time.
        running.set_next_check(next_check);
        (!over).then_some(next_check)
    }

    /// Handles a change without a wake-up of the driver. Only the driver drains.
    pub(super) fn go_on(self: &Arc<Self>) {
        let is_draining = self.machine().deadline().is_some();
        let Some(running) = self.running.get().filter(|_| !is_draining) else {
            return self.wake.notify_one();
        };
        let now = Instant::now();
        self.act(running, now);
        let is_sooner = || {
            let wake_at = self.machine().wake_at(now);
            wake_at.is_some_and(|at| at < running.next_check())
        };
        if self.spill.get().is_some() || is_sooner() {
            self.wake.notify_one();
        }
    }

    /// Carries out the actions that the machine wants now.
    fn act(self: &Arc<Self>, running: &RunningParts, now: Instant) {
        while let Some(action) = self.next_action(now) {
            self.carry_out(now, action, running);
        }
        self.show(running);
    }

    /// Returns the next action and releases the lock. A runtime that shuts down ends an attempt within `spawn`,
    /// which takes the lock again.
    fn next_action(&self, now: Instant) -> Option<Action<ExportRequest>> {
        self.machine().poll(now)
    }

    fn carry_out(self: &Arc<Self>, now: Instant, action: Action<ExportRequest>, running: &RunningParts) {
        match action {
            Action::Send { id, load, is_first } => {
                running.fly(load.signal(), 1);
                if is_first {
                    running.send_size.record(load.items() as f64);
                }
                let flight = Flight {
                    inner: self.clone(),
                    id,
                    signal: load.signal(),
                    began: now,
                    is_first,
                    outcome: None,
                };
                let mut attempts = running.attempts();
                while attempts.try_join_next().is_some() {}
                attempts.spawn_on(flight.run(load), &running.runtime);
            }
            other => self.record(now, other),
        }
    }

    fn record(&self, now: Instant, action: Action<ExportRequest>) {
        match action {
            Action::Send { .. } => {}
            Action::Gathered {
                metrics,
                trigger,
                items,
                load,
            } => {
                metrics.count(trigger, items);
                if let (Some(bytes), Some(load)) = (&metrics.bytes, load) {
                    bytes.record(load.encoded_bytes() as f64);
                }
            }
            Action::Delivered { batch_key, items } => {
                self.with_ledger(&batch_key, |ledger| ledger.leave(items));
                if items > 0 {
                    self.log_back(self.standing.delivered(now));
                }
                if self.is_stopping() {
                    self.ending.delivered.fetch_add(items, Relaxed);
                }
                self.log_recovery(now);
            }
            Action::Dropped { batch_key, loss } => {
                if loss.reason == Reason::Rejected {
                    self.log_back(self.standing.answered(now));
                }
                self.lose(now, &batch_key, &loss);
            }
            Action::Denied {
                items,
                is_retried,
                why,
            } => self.log_denied(now, items, is_retried, &why),
            Action::Kept { load, permits } => self.keep(&load, &permits),
            Action::Noted { items, note } => {
                if let Some(items) = self.notices.note("noted", items, now) {
                    let component = &*self.context.path;
                    let endpoint = self.endpoint();
                    warn!(component, endpoint, items, %note, "delivered, with a remark");
                }
            }
            Action::Retrying { items, delay, why } => self.log_retry(now, items, delay, &why),
        }
    }

    fn endpoint(&self) -> Option<&str> {
        Some(&*self.standing.endpoint).filter(|endpoint| !endpoint.is_empty())
    }

    /// Puts a batch into the machine, with its permit.
    pub(super) fn queue(self: &Arc<Self>, export: ExportRequest, permit: QueuePermit) {
        let permits = [Arc::new(permit)].into_iter().collect();
        self.machine().enqueue(Instant::now(), export, permits);
        if self.ended.load(SeqCst) {
            self.give_up();
            // The log may be closed: then nobody else collects the batch.
            if let Some(spill) = self.spill.get() {
                self.lose_unstored(spill);
            }
        } else {
            self.go_on();
        }
    }

    pub(super) fn lose_batch(&self, batch: &Batch, reason: Reason, why: &str) {
        let loss = Loss {
            items: batch.items(),
            reason,
            why: why.to_owned(),
        };
        self.lose(Instant::now(), &BatchKey::of(batch), &loss);
    }

    fn lose(&self, now: Instant, batch_key: &BatchKey, loss: &Loss) {
        self.with_ledger(batch_key, |ledger| ledger.drop_items(loss.reason, loss.items));
        if self.is_stopping() {
            self.ending.lost.fetch_add(loss.items, Relaxed);
        }
        self.log_recovery(now);
        if let Some(items) = self.notices.note(loss.reason.name(), loss.items, now) {
            let (component, signal) = (&*self.context.path, batch_key.signal.name());
            let endpoint = self.endpoint();
            warn!(component, endpoint, signal, items, reason = loss.reason.name(), error = %loss.why, "dropped");
        }
    }

    fn with_ledger(&self, batch_key: &BatchKey, note: impl FnOnce(&Ledger)) {
        if let Some(ledger) = &self.ledgers[batch_key.signal as usize] {
            note(ledger);
        }
    }

    /// Makes one attempt, and reports it if its oldest batch is slow.
    async fn attempt(&self, export: ExportRequest) -> Outcome {
        let slowness = &self.context.shared.slowness;
        let Some(attempted) = slowness.start() else {
            return self.send(export).await;
        };
        let (oldest, signal, items) = (export.oldest(), export.signal(), export.items());
        let outcome = self.send(export).await;
        slowness.end(Some(oldest), |started, ended| Slow {
            component: self.context.path.clone(),
            stage: Stage::Deliver,
            signal,
            items,
            started,
            attempted: Some(attempted),
            ended,
            error: outcome.error().map(str::to_owned),
        });
        outcome
    }

    async fn send(&self, export: ExportRequest) -> Outcome {
        let Some(timeout) = self.timeout else {
            return self.attempt.send(export).await;
        };
        match tokio::time::timeout(timeout, self.attempt.send(export)).await {
            Ok(outcome) => outcome,
            Err(_) => Outcome::TimedOut {
                why: format!("no answer within {timeout:?}"),
            },
        }
    }

    /// Keeps the held requests, or counts them as lost by the shutdown.
    pub(super) fn give_up(&self) {
        let now = Instant::now();
        self.machine().abandon();
        while let Some(action) = self.next_action(now) {
            self.record(now, action);
        }
    }

    pub(super) fn machine(&self) -> MutexGuard<'_, Machine<ExportRequest>> {
        self.machine.lock()
    }
}
