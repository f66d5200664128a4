// SPDX-License-Identifier: Apache-2.0

//! The pushing exporter in the graph. It reserves capacity on admission, and queues consumed batches in memory, on
//! disk, or both.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use tidegate_wal::{Done, NotKept};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tracing::warn;

use super::ack_guard::WriteFailure;
use super::backpressure::Backpressure;
use super::capacity::{CapacityError, QueueCapacity, QueuePermit};
use super::config::{Delivery, OnFull, QueueConfig, StorageMode};
use super::driver::RunningParts;
use super::export_request::ExportRequest;
use super::health::{DestinationHealth, OUTAGE};
use super::leadership::{Leadership, Role};
use super::machine::Machine;
use super::notices::Notices;
use super::outcome::Outcome;
use super::recovery::Recovery;
use super::shape::Shape;
use super::spill::{AppendOptions, Placement, Spill};
use super::stored;
use super::temporality::Conversion;
use crate::batch::{Batch, Batching, Signal};
use crate::component::{
    ComponentError, Consumer, Context, Exporter, ExporterContext, Flow, Ledger, Lifecycle, Opening,
    PushOutcome, Reason, Refused,
};

/// The retry delay while the gateway stops. The retry goes to the next gateway.
const STOPPING_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The retry delay after a failure of the storage.
const STORAGE_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The protocol of an exporter: one attempt. The destination adds the queue, retries, the time limit and ledgers.
#[async_trait]
pub trait Attempt: Send + Sync + 'static {
    /// Opens connections or files before the first attempt. An error stops the gateway's start.
    async fn open(&self) -> Result<(), String> {
        Ok(())
    }

    /// The destination's address for logs, without user, password or query. Empty if it has no address.
    fn endpoint(&self) -> String {
        String::new()
    }

    /// The answers that deny access, as `retry_on_failure::retry_on_status` takes them.
    fn denying_statuses(&self) -> &'static str {
        "[401, 403]"
    }

    /// Whether another instance may run at the same time, with the same options in part. Not so for files and plugins.
    fn may_overlap(&self) -> bool {
        true
    }

    /// Tries to deliver. A dropped future cancels the attempt (time limit, shutdown). Several attempts run at
    /// once.
    async fn send(&self, export: ExportRequest) -> Outcome;

    /// Closes connections or files after the last attempt, by `deadline`.
    async fn close(&self, _deadline: Instant) {}
}

/// Takes the batches that a retired destination could not deliver before its stop. They stay in the same ledgers.
pub type DrainHandler = Box<dyn Fn(Batch) + Send + Sync>;

/// A pushing exporter: `A` implements the protocol, and this type implements the rest.
pub struct Destination<A> {
    inner: Arc<DestinationInner<A>>,
    task: Mutex<Option<JoinHandle<()>>>,
    leadership: Leadership,
}

pub(super) struct DestinationInner<A> {
    pub(super) context: Context,
    pub(super) ledgers: [Option<Arc<Ledger>>; 3],
    pub(super) attempt: A,
    pub(super) capacity: Arc<QueueCapacity>,
    backpressure: Arc<Backpressure>,
    pub(super) machine: Mutex<Machine<ExportRequest>>,
    pub(super) wake: Arc<Notify>,
    /// Set at the start.
    pub(super) running: OnceLock<RunningParts>,
    pub(super) ended: AtomicBool,
    pub(super) timeout: Option<Duration>,
    pub(super) notices: Notices,
    pub(super) standing: DestinationHealth,
    pub(super) recovery: Recovery,
    pub(super) ending: Ending,
    /// Set at the start, where the queue has storage.
    pub(super) spill: OnceLock<Spill>,
    /// Sets `spill`.
    pub(super) opening: Opening,
    pub(super) conversion: Option<Arc<Conversion>>,
    shape: Shape,
    /// Takes the remaining batches at the stop. `retire` sets it.
    pub(super) drain_handler: OnceLock<DrainHandler>,
    stopping: AtomicBool,
    pub(super) queue: QueueConfig,
    batching: Option<Batching>,
}

/// Item counts after the begin of the stop.
#[derive(Default)]
pub(super) struct Ending {
    pub(super) delivered: AtomicUsize,
    pub(super) lost: AtomicUsize,
    /// Items that a successor took.
    pub(super) handed_over: AtomicUsize,
}

impl<A: Attempt> Destination<A> {
    /// Creates a destination that is not started yet.
    pub fn new(context: ExporterContext, delivery: &Delivery, attempt: A) -> Self {
        let (sizer, size) = delivery.queue.capacity();
        let max_bytes = delivery.queue.max_bytes.as_usize();
        let inner = DestinationInner {
            capacity: QueueCapacity::new(sizer, size, max_bytes, context.base.shared.clone()),
            backpressure: Arc::default(),
            machine: Mutex::new(Machine::new(delivery.rules(), rand::random())),
            wake: Arc::default(),
            running: OnceLock::new(),
            stopping: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            conversion: Conversion::new(
                delivery,
                context.ledger(Signal::Metrics),
                context.base.shared.memory.bounds_of_tables(),
            )
            .map(Arc::new),
            shape: delivery.shape,
            drain_handler: OnceLock::new(),
            queue: delivery.queue.clone(),
            spill: OnceLock::new(),
            opening: Opening::default(),
            batching: delivery.queue.batching(),
            timeout: delivery.timeout,
            notices: Notices::default(),
            standing: DestinationHealth::new(
                context.base.path.clone(),
                attempt.endpoint(),
                context.base.shared.clone(),
                OUTAGE,
            ),
            recovery: Recovery::default(),
            ending: Ending::default(),
            context: context.base,
            ledgers: context.ledgers,
            attempt,
        };
        Self {
            inner: Arc::new(inner),
            task: Mutex::default(),
            leadership: Leadership::default(),
        }
    }

    /// Exports only while this replica leads the cluster with this id. `None`: always.
    ///
    /// # Errors
    /// The service has no cluster extension with this id.
    pub fn only_leader(self, cluster: Option<&str>) -> Result<Self, ComponentError> {
        let conversion = self.inner.conversion.as_ref();
        let is_delta = conversion.is_some_and(|conversion| conversion.wants_deltas());
        if let Some(conversion) = conversion.filter(|_| cluster.is_some()) {
            conversion.keep_silent();
        }
        let leadership = Leadership::of(&self.inner.context, cluster, is_delta)?;
        Ok(Self { leadership, ..self })
    }
}

#[cfg(test)]
impl<A: Attempt> Destination<A> {
    pub(super) fn inner(&self) -> &Arc<DestinationInner<A>> {
        &self.inner
    }
}

impl<A: Attempt> Destination<A> {
    /// Takes the destination out of use, so that another one may have its name. At the stop, the handler receives
    /// the remaining batches instead of a drop. The standing is no longer shown.
    pub fn retire(&self, drain_handler: DrainHandler) {
        // The first handler stays.
        let _ = self.inner.drain_handler.set(drain_handler);
        self.inner.machine().keep_what_is_left();
        self.inner.standing.leave();
    }
}

#[async_trait]
impl<A: Attempt> Lifecycle for Destination<A> {
    async fn start(&self) -> Result<(), ComponentError> {
        let opened = self.inner.attempt.open().await;
        opened.map_err(|message| self.inner.context.error(message))?;
        self.inner.ignite();
        self.inner.open_spill().await?;
        let task = tokio::spawn(self.inner.clone().run());
        *self.task.lock() = Some(task);
        Ok(())
    }

    async fn stop(&self, deadline: Instant) {
        // The successor can't open the log before this instance closes it.
        self.inner.opening.ended().await;
        let waiting = self.inner.waiting();
        self.inner.log_drain(waiting, deadline);
        self.inner.stopping.store(true, Relaxed);
        self.inner.machine().drain(deadline);
        self.inner.wake.notify_one();
        let task = self.task.lock().take();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            warn!(component = %self.inner.context.path, %error, "delivery ended unexpectedly");
        }
        self.inner.ended.store(true, SeqCst);
        self.inner.give_up();
        self.inner.close_spill().await;
        self.inner.log_end(waiting);
        self.inner.attempt.close(deadline).await;
    }

    fn opens_log(&self) -> bool {
        self.inner.has_storage()
    }
}

impl<A: Attempt> Exporter for Destination<A> {
    /// Only one instance may have the queue on disk open.
    fn may_overlap(&self) -> bool {
        self.inner.queue.storage.is_none() && self.inner.attempt.may_overlap()
    }

    fn retire(&self, heir: Arc<dyn Consumer>) {
        if self.inner.queue.storage.is_some() || self.inner.queue.wait_for_result {
            // The heir finds the batches on disk, or the senders have them until they get an answer.
            return;
        }
        let ledgers = self.inner.ledgers.clone();
        Self::retire(
            self,
            Box::new(move |batch| {
                let (signal, items) = (batch.signal(), batch.items());
                if heir.push(batch).is_err()
                    && let Some(ledger) = &ledgers[signal as usize]
                {
                    ledger.drop_items(Reason::Shutdown, items);
                }
            }),
        );
    }
}

impl<A: Attempt> Consumer for Destination<A> {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        if batch.items() == 0 || self.leadership.role(batch.signal()) != Role::Export {
            return Ok(());
        }
        flow.keep_in_memory()?;
        let inner = &*self.inner;
        let error = match inner.reserve(batch) {
            Ok(_) if inner.stopping.load(Relaxed) => {
                return Err(inner.refuse("is stopping", STOPPING_RETRY_AFTER));
            }
            Ok(placement) => {
                flow.keep_permit(inner.owner(), placement);
                return Ok(());
            }
            Err(error) => error,
        };
        match (inner.queue.on_full, error) {
            (OnFull::Drop, _) => Ok(()),
            (OnFull::Refuse, CapacityError::Full) => {
                if inner.queue.block_on_overflow {
                    flow.block();
                }
                // A sender that waits here asks again, and is not refused.
                let waits = flow.blocks() && flow.is_waited_for();
                if let Some(running) = inner.running.get().filter(|_| !waits) {
                    running.refuse(batch.signal(), batch.items());
                }
                let delay = inner.capacity.retry_delay(batch, Instant::now());
                Err(inner.refuse("has a full sending queue", delay))
            }
            (OnFull::Refuse, CapacityError::TooLarge) => Err(inner.refuse_for_good(batch)),
            (OnFull::Refuse, CapacityError::Storage(why)) => {
                let why = format!("{}: storage: {why}", inner.context.path);
                Err(Refused::busy(why, STORAGE_RETRY_AFTER))
            }
        }
    }

    fn consume(&self, mut batch: Batch, flow: &mut Flow) {
        let inner = &self.inner;
        let placement: Option<Placement> = flow.take(inner.owner());
        if batch.items() == 0 {
            return;
        }
        match self.leadership.role(batch.signal()) {
            Role::Export => {}
            Role::Follow => return inner.drop_as_follower(inner.pass_over(batch, flow)),
            Role::Drop => return inner.drop_as_follower(batch),
        }
        let placement = placement.map_or_else(|| inner.reserve(&batch), Ok);
        if inner.batching.is_some() {
            batch.batching.clone_from(&inner.batching);
        }
        match placement {
            Ok(placement) => inner.take(batch, placement, flow),
            Err(CapacityError::Storage(why)) => {
                inner.lose_batch(&batch, Reason::QueueFull, &format!("storage: {why}"));
            }
            Err(CapacityError::Full | CapacityError::TooLarge) => {
                inner.lose_batch(&batch, Reason::QueueFull, "the sending queue is full");
            }
        }
    }

    fn decodes(&self) -> bool {
        self.inner.conversion.is_some() || self.inner.shape != Shape::NONE
    }
}

impl<A: Attempt> DestinationInner<A> {
    pub(super) fn has_storage(&self) -> bool {
        self.queue.storage.is_some()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Items that are not delivered or dropped yet.
    pub(super) fn waiting(&self) -> u64 {
        let on_disk_only = self.spill.get().map_or(0, Spill::backlog);
        self.machine().held_items() as u64 + on_disk_only
    }

    /// Moves the position in the streams of a batch past it, and returns the points that it would have exported.
    fn pass_over(&self, batch: Batch, flow: &mut Flow) -> Batch {
        let Some(conversion) = &self.conversion else {
            return batch;
        };
        let _passing = conversion.pass();
        conversion.convert(batch, None, flow)
    }

    /// Drops a batch that the leader exports.
    fn drop_as_follower(&self, batch: Batch) {
        let ledger = self.ledgers[batch.signal() as usize].iter();
        ledger.for_each(|ledger| ledger.drop_items(Reason::NotLeader, batch.items()));
    }

    fn reserve(&self, batch: &Batch) -> Result<Placement, CapacityError> {
        match self.spill.get() {
            None => self.capacity.reserve(batch).map(Placement::Memory),
            Some(spill) => spill.admit(&self.capacity, batch),
        }
    }

    /// Puts a batch where its placement says.
    fn take(self: &Arc<Self>, batch: Batch, placement: Placement, flow: &mut Flow) {
        let journals =
            !matches!(placement, Placement::Memory(_)) && self.queue.storage_mode == StorageMode::Always;
        let mut cursor = Vec::new();
        let _passing = self.conversion.as_ref().map(|conversion| conversion.pass());
        let batch = match &self.conversion {
            Some(conversion) => conversion.convert(batch, journals.then_some(&mut cursor), flow),
            None => batch,
        };
        let batch = self.shape.apply(batch);
        if batch.items() == 0 && cursor.is_empty() {
            return;
        }
        match (placement, self.spill.get()) {
            (Placement::Both(mut permit, share), Some(spill)) => {
                let batch = stored::encode(batch);
                let failure = WriteFailure::default();
                let options = AppendOptions {
                    share: Some(share),
                    claimed: true,
                    done: Some(self.wait_for(spill, failure.clone(), flow)),
                    failure,
                };
                permit.set_ack(spill.append(&batch, &cursor, options));
                self.enqueue(batch, permit, flow);
            }
            (Placement::Disk(share), Some(spill)) => {
                let options = AppendOptions {
                    share: Some(share),
                    claimed: batch.items() == 0,
                    done: Some(self.wait_for(spill, WriteFailure::default(), flow)),
                    ..AppendOptions::default()
                };
                spill.append(&stored::encode(batch), &cursor, options);
                if self.ended.load(SeqCst) {
                    self.lose_unstored(spill);
                } else {
                    self.wake.notify_one();
                }
            }
            (Placement::Memory(permit) | Placement::Both(permit, _), _) => {
                self.enqueue(batch, permit, flow);
            }
            (Placement::Disk(_), None) => {
                self.lose_batch(&batch, Reason::QueueFull, "the queue has no storage");
            }
        }
    }

    fn enqueue(self: &Arc<Self>, batch: Batch, mut permit: QueuePermit, flow: &mut Flow) {
        // The batch only carried the positions of its streams.
        if batch.items() == 0 {
            return;
        }
        permit.fit(&batch);
        if self.queue.wait_for_result {
            let (answer, result) = oneshot::channel();
            permit.answer_to(answer);
            flow.wait_for(result);
        } else if flow.is_waited_for() && self.backpressure.is_due(self.capacity.used_bytes()) {
            let (answer, result) = oneshot::channel();
            permit.answer_to(answer);
            let backpressure = self.backpressure.clone();
            flow.delay_answer(async move { backpressure.wait(result).await });
        }
        self.queue(ExportRequest::new(batch), permit);
    }

    /// Delays the answer until the batch is written. A failed write, or the end of the storage thread, refuses the
    /// batch if the mode promises storage. Without the promise, the batch returns to memory. A closed log always
    /// refuses it, because nobody takes the batch back into memory.
    fn wait_for(&self, spill: &Spill, failure: WriteFailure, flow: &mut Flow) -> Done {
        let (answer, result) = oneshot::channel();
        flow.wait_for(result);
        let (promises, path) = (spill.promises(), self.context.path.clone());
        Done(Box::new(move |written: Result<(), NotKept>| {
            if written.is_err() {
                failure.set();
            }
            let written = match written {
                Err(why) if promises || why == NotKept::Closed => Err(format!("{path}: storage: {why}")),
                _ => Ok(PushOutcome::default()),
            };
            // The sender may have stopped waiting, so an error does not matter.
            let _ = answer.send(written.map_err(|why| Refused::busy(why, STORAGE_RETRY_AFTER)));
        }))
    }

    fn refuse(&self, why: &str, delay: Duration) -> Refused {
        Refused::busy(format!("{} {why}", self.context.path), delay)
    }

    fn refuse_for_good(&self, batch: &Batch) -> Refused {
        Refused::too_large(format!(
            "{}: a batch of {} {} in {} bytes does not fit its sending queue even when that is empty: send smaller ones",
            self.context.path,
            batch.items(),
            batch.signal().items(),
            batch.bytes()
        ))
    }

    fn owner(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
