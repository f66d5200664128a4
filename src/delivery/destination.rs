//! Runs the machine on tokio: takes batches from the graph, carries out attempts, keeps the books.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tracing::{info, warn};

use super::config::{Delivery, OnFull};
use super::machine::{Action, Load, Machine};
use super::notices::Notices;
use super::outcome::{Loss, Outcome};
use super::parcel::{Lane, Parcel};
use super::room::{NoRoom, Reservation, Room};
use crate::batch::{Batch, Batching};
use crate::component::slow::{Slow, Stage};
use crate::component::{
    Admission, ComponentError, Consumer, Context, Exporter, ExporterContext, Flow, Ledger, Lifecycle, Reason,
    Refused,
};

/// When a sender that found the gateway stopping should come back: to the next one.
const STOPPING_RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a protocol does: one attempt. Queue, retries, time limit and books are the destination's.
#[async_trait]
pub trait Attempt: Send + Sync + 'static {
    /// Opens what must be open before the first attempt. An error stops the gateway's start.
    async fn open(&self) -> Result<(), String> {
        Ok(())
    }

    /// Tries to deliver. Dropping the future gives up (time limit, shutdown). Several run at once.
    async fn send(&self, parcel: Parcel) -> Outcome;

    /// Closes after the last attempt.
    async fn close(&self) {}
}

/// A pushing exporter: `A` speaks the protocol, everything else is here.
pub struct Destination<A> {
    inner: Arc<Inner<A>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Inner<A> {
    context: Context,
    ledgers: [Option<Arc<Ledger>>; 3],
    attempt: A,
    room: Arc<Room>,
    machine: Mutex<Machine<Parcel>>,
    wake: Notify,
    stopping: AtomicBool,
    ended: AtomicBool,
    on_full: OnFull,
    batching: Option<Batching>,
    timeout: Option<Duration>,
    notices: Notices,
}

impl<A: Attempt> Destination<A> {
    /// A destination that is not started yet.
    pub fn new(context: ExporterContext, delivery: &Delivery, attempt: A) -> Self {
        let (sizer, size) = delivery.queue.capacity();
        let max_bytes = delivery.queue.max_bytes.as_usize();
        let inner = Inner {
            room: Room::new(sizer, size, max_bytes, context.base.shared.clone()),
            machine: Mutex::new(Machine::new(delivery.rules(), rand::random())),
            wake: Notify::new(),
            stopping: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            on_full: delivery.queue.on_full,
            batching: delivery.queue.batching(),
            timeout: delivery.timeout,
            notices: Notices::default(),
            context: context.base,
            ledgers: context.ledgers,
            attempt,
        };
        Self {
            inner: Arc::new(inner),
            task: Mutex::default(),
        }
    }
}

#[async_trait]
impl<A: Attempt> Lifecycle for Destination<A> {
    async fn start(&self) -> Result<(), ComponentError> {
        let opened = self.inner.attempt.open().await;
        opened.map_err(|message| self.inner.context.error(message))?;
        let task = tokio::spawn(self.inner.clone().run());
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        Ok(())
    }

    async fn stop(&self, deadline: Instant) {
        self.inner.stopping.store(true, Relaxed);
        self.inner.machine().drain(deadline);
        self.inner.wake.notify_one();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            warn!(component = %self.inner.context.path, %error, "delivery ended unexpectedly");
        }
        self.inner.ended.store(true, SeqCst);
        self.inner.give_up();
        self.inner.attempt.close().await;
    }
}

impl<A: Attempt> Exporter for Destination<A> {}

impl<A: Attempt> Consumer for Destination<A> {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        if batch.items() == 0 {
            return Ok(());
        }
        let no_room = match self.inner.room.reserve(batch) {
            Ok(_) if self.inner.stopping.load(Relaxed) => {
                return Err(self.inner.refuse("is stopping", STOPPING_RETRY_AFTER));
            }
            Ok(reservation) => {
                let owner = self.inner.owner();
                flow.set_aside(Box::new(Place { owner, reservation }));
                return Ok(());
            }
            Err(no_room) => no_room,
        };
        match (self.inner.on_full, no_room) {
            (OnFull::Drop, _) => Ok(()),
            (OnFull::Refuse, NoRoom::Full) => {
                let delay = self.inner.room.worth_while(batch, Instant::now());
                Err(self.inner.refuse("has a full sending queue", delay))
            }
            (OnFull::Refuse, NoRoom::NeverFits) => Err(self.inner.refuse_for_good(batch)),
        }
    }

    fn consume(&self, mut batch: Batch, flow: &mut Flow) {
        let place = flow.take(self.inner.owner());
        if batch.items() == 0 {
            return;
        }
        let place = place.and_then(|place| place.into_any().downcast::<Place>().ok());
        let reservation = match place {
            Some(place) => Some(place.reservation),
            None => self.inner.room.reserve(&batch).ok(),
        };
        batch.batching = self.inner.batching.or(batch.batching);
        match reservation {
            Some(reservation) => self.inner.enqueue(batch, reservation),
            None => self.inner.drop_full(&batch),
        }
    }
}

/// Room that one push has set aside here.
struct Place {
    owner: usize,
    reservation: Reservation,
}

impl Admission for Place {
    fn owner(&self) -> usize {
        self.owner
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
        self
    }
}

/// An attempt under way. However it ends (also by a panic), the machine hears of it.
struct Flight<A: Attempt> {
    inner: Arc<Inner<A>>,
    id: u64,
    outcome: Option<Outcome>,
}

impl<A: Attempt> Flight<A> {
    async fn run(mut self, parcel: Parcel) {
        self.outcome = Some(self.inner.attempt(parcel).await);
    }
}

impl<A: Attempt> Drop for Flight<A> {
    fn drop(&mut self) {
        let outcome = self.outcome.take();
        let outcome = outcome.unwrap_or_else(|| Outcome::permanent("the attempt was broken off (a bug)"));
        self.inner.machine().finish(Instant::now(), self.id, outcome);
        self.inner.wake.notify_one();
    }
}

impl<A: Attempt> Inner<A> {
    async fn run(self: Arc<Self>) {
        let (size, capacity) = self.gauges();
        capacity.set(self.room.limit() as f64);
        let mut attempts = JoinSet::new();
        while let Some(wake_at) = self.turn(&mut attempts) {
            size.set(self.room.used() as f64);
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep_until(wake_at.into()) => {}
            }
        }
        self.give_up();
        attempts.shutdown().await;
        size.set(self.room.used() as f64);
    }

    /// Does all there is to do now. When to look again; `None` = it is over.
    fn turn(self: &Arc<Self>, attempts: &mut JoinSet<()>) -> Option<Instant> {
        /// Looked at again by then, whatever happens: nothing waits for longer.
        const IDLE: Duration = Duration::from_secs(3600);
        while attempts.try_join_next().is_some() {}
        let now = Instant::now();
        while let Some(action) = self.next_action(now) {
            self.carry_out(now, action, attempts);
        }
        let machine = self.machine();
        let deadline = machine.deadline();
        let over = deadline.is_some_and(|deadline| machine.is_empty() || deadline <= now);
        let wake_at = machine.wake_at(now).into_iter().chain(deadline).min();
        (!over).then(|| wake_at.unwrap_or(now + IDLE))
    }

    /// The lock is let go before the action is carried out: a runtime that shuts down ends an attempt within `spawn`.
    fn next_action(&self, now: Instant) -> Option<Action<Parcel>> {
        self.machine().poll(now)
    }

    fn carry_out(self: &Arc<Self>, now: Instant, action: Action<Parcel>, attempts: &mut JoinSet<()>) {
        match action {
            Action::Send { id, load } => {
                let flight = Flight {
                    inner: self.clone(),
                    id,
                    outcome: None,
                };
                attempts.spawn(flight.run(load));
            }
            booked => self.book(now, booked),
        }
    }

    fn book(&self, now: Instant, action: Action<Parcel>) {
        match action {
            Action::Send { .. } => {}
            Action::Delivered { lane, items } => self.with_ledger(&lane, |ledger| ledger.leave(items)),
            Action::Dropped { lane, loss } => self.lose(now, &lane, &loss),
            Action::Retrying { items, delay, why } => {
                if let Some(items) = self.notices.note("retry", items, now) {
                    let component = &*self.context.path;
                    info!(component, items, ?delay, error = %why, "sending failed, will retry");
                }
            }
        }
    }

    fn lose(&self, now: Instant, lane: &Lane, loss: &Loss) {
        self.with_ledger(lane, |ledger| ledger.drop_items(loss.reason, loss.items));
        if let Some(items) = self.notices.note(loss.reason.name(), loss.items, now) {
            let (component, signal) = (&*self.context.path, lane.signal.name());
            warn!(component, signal, items, reason = loss.reason.name(), error = %loss.why, "dropped");
        }
    }

    fn with_ledger(&self, lane: &Lane, note: impl FnOnce(&Ledger)) {
        if let Some(ledger) = &self.ledgers[lane.signal as usize] {
            note(ledger);
        }
    }

    /// One attempt, and word of it if the oldest batch is long under way by its end.
    async fn attempt(&self, parcel: Parcel) -> Outcome {
        let slowness = &self.context.shared.slowness;
        let Some(attempted) = slowness.start() else {
            return self.send(parcel).await;
        };
        let (oldest, signal, items) = (parcel.oldest(), parcel.signal(), parcel.items());
        let outcome = self.send(parcel).await;
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

    async fn send(&self, parcel: Parcel) -> Outcome {
        let Some(timeout) = self.timeout else {
            return self.attempt.send(parcel).await;
        };
        match tokio::time::timeout(timeout, self.attempt.send(parcel)).await {
            Ok(outcome) => outcome,
            Err(_) => Outcome::retry(format!("no answer within {timeout:?}")),
        }
    }

    fn enqueue(&self, batch: Batch, mut reservation: Reservation) {
        reservation.fit(&batch);
        let charge = [Arc::new(reservation)].into_iter().collect();
        self.machine().enqueue(Instant::now(), Parcel::new(batch), charge);
        match self.ended.load(SeqCst) {
            true => self.give_up(),
            false => self.wake.notify_one(),
        }
    }

    fn drop_full(&self, batch: &Batch) {
        let loss = Loss {
            items: batch.items(),
            reason: Reason::QueueFull,
            why: "the sending queue is full".to_owned(),
        };
        self.lose(Instant::now(), &Lane::of(batch), &loss);
    }

    /// Books what is still held as lost by the shutdown.
    fn give_up(&self) {
        let now = Instant::now();
        self.machine().abandon();
        while let Some(action) = self.next_action(now) {
            self.book(now, action);
        }
    }

    fn refuse(&self, why: &str, delay: Duration) -> Refused {
        Refused::busy(format!("{} {why}", self.context.path), delay)
    }

    fn refuse_for_good(&self, batch: &Batch) -> Refused {
        Refused::permanent(format!(
            "{}: a batch of {} {} in {} bytes does not fit its sending queue even when that is empty",
            self.context.path,
            batch.items(),
            batch.signal().items(),
            batch.bytes()
        ))
    }

    fn gauges(&self) -> (metrics::Gauge, metrics::Gauge) {
        let exporter = self.context.id.to_string();
        let size = metrics::gauge!("otelcol_exporter_queue_size", "exporter" => exporter.clone());
        let capacity = metrics::gauge!("otelcol_exporter_queue_capacity", "exporter" => exporter);
        (size, capacity)
    }

    fn machine(&self) -> MutexGuard<'_, Machine<Parcel>> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owner(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
