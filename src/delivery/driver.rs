//! Runs the machine on tokio: carries out attempts, keeps the books, moves data between memory and disk.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tracing::{info, warn};

use super::destination::{Attempt, Inner};
use super::machine::{Action, Load, Machine};
use super::outcome::{Loss, Outcome};
use super::parcel::{Lane, Parcel};
use super::room::{Charge, Reservation};
use super::spill::{How, Spill};
use crate::batch::{Batch, Signal};
use crate::component::slow::{Slow, Stage};
use crate::component::{Ledger, Reason};

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
    pub(super) async fn run(self: Arc<Self>) {
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
        /// What is on disk is looked after by then: a disk that failed is tried again.
        const BACKLOG: Duration = Duration::from_secs(1);
        while attempts.try_join_next().is_some() {}
        let now = Instant::now();
        let has_backlog = self.spill.get().is_some_and(|spill| self.read_back(spill));
        while let Some(action) = self.next_action(now) {
            self.carry_out(now, action, attempts);
        }
        let machine = self.machine();
        let deadline = machine.deadline();
        let over = deadline.is_some_and(|deadline| machine.is_empty() || deadline <= now);
        let wake_at = machine.wake_at(now).into_iter().chain(deadline).min();
        let rest = now + if has_backlog { BACKLOG } else { IDLE };
        (!over).then(|| wake_at.map_or(rest, |at| at.min(rest)))
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
            Action::Kept { load, charge } => self.keep(now, &load, &charge),
            Action::Retrying { items, delay, why } => {
                if let Some(items) = self.notices.note("retry", items, now) {
                    let component = &*self.context.path;
                    info!(component, items, ?delay, error = %why, "sending failed, will retry");
                }
            }
        }
    }

    /// Takes what the disk gave back into memory, and asks for more if there is room. Whether there is more.
    fn read_back(&self, spill: &Spill) -> bool {
        let mut post = spill.collect();
        for (signal, items) in Signal::ALL
            .into_iter()
            .zip(post.lost)
            .filter(|(_, items)| *items > 0)
        {
            let loss = Loss {
                items: usize::try_from(items).unwrap_or(usize::MAX),
                reason: Reason::Damaged,
                why: "what was stored is damaged".to_owned(),
            };
            self.lose(Instant::now(), &Lane::plain(signal), &loss);
        }
        let draining = self.machine().deadline().is_some();
        for (parcel, ticket) in std::mem::take(&mut post.parcels) {
            match ticket {
                Some(ticket) if draining => ticket.keep(),
                ticket => {
                    let Some(batch) = parcel.batches().first() else {
                        continue;
                    };
                    let mut reservation = self.room.force(batch);
                    ticket
                        .into_iter()
                        .for_each(|ticket| reservation.set_ticket(ticket));
                    self.queue(parcel, reservation);
                }
            }
        }
        spill.taken(&post);
        if !draining && spill.has_backlog() && self.room.is_roomy() {
            spill.ask();
        }
        spill.has_backlog()
    }

    /// Leaves a request to the heir, or to the next run: what is on disk stays there, the rest is written.
    fn keep(&self, now: Instant, load: &Parcel, charge: &Charge) {
        let tickets: Vec<_> = charge
            .iter()
            .filter_map(|reservation| reservation.ticket())
            .collect();
        if let Some(heir) = self.heir.get() {
            return load.batches().iter().cloned().for_each(heir);
        }
        let Some(spill) = self.spill.get() else { return };
        if !tickets.is_empty() && tickets.len() == charge.len() {
            tickets.into_iter().for_each(|ticket| ticket.keep());
        } else {
            // Tickets of joined batches are settled when the charge goes; the store writes this before.
            load.batches()
                .iter()
                .for_each(|batch| drop(spill.append(batch, &[], How::default())));
        }
        if let Some(items) = self.notices.note("kept", load.items(), now) {
            let component = &*self.context.path;
            info!(component, items, "kept on disk for the next run");
        }
    }

    /// Puts a batch into the machine, with the room that it has.
    pub(super) fn queue(&self, parcel: Parcel, reservation: Reservation) {
        let charge = [Arc::new(reservation)].into_iter().collect();
        self.machine().enqueue(Instant::now(), parcel, charge);
        match self.ended.load(SeqCst) {
            true => self.give_up(),
            false => self.wake.notify_one(),
        }
    }

    /// Ends the disk's part, after everything else has. What could not be written is lost.
    pub(super) async fn close_spill(self: &Arc<Self>) {
        let inner = self.clone();
        // An error is a panic, which the log has.
        let _ = tokio::task::spawn_blocking(move || {
            let Some(spill) = inner.spill.get() else { return };
            spill.close();
            for (parcel, ticket) in spill.collect().parcels {
                match (ticket, parcel.batches().first()) {
                    (Some(ticket), _) => ticket.keep(),
                    (None, Some(batch)) => {
                        inner.lose_batch(batch, Reason::Shutdown, "it could not be stored")
                    }
                    (None, None) => {}
                }
            }
        })
        .await;
    }

    pub(super) fn lose_batch(&self, batch: &Batch, reason: Reason, why: &str) {
        let loss = Loss {
            items: batch.items(),
            reason,
            why: why.to_owned(),
        };
        self.lose(Instant::now(), &Lane::of(batch), &loss);
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

    /// Keeps what is still held, or books it as lost by the shutdown.
    pub(super) fn give_up(&self) {
        let now = Instant::now();
        self.machine().abandon();
        while let Some(action) = self.next_action(now) {
            self.book(now, action);
        }
    }

    fn gauges(&self) -> (metrics::Gauge, metrics::Gauge) {
        let exporter = self.context.id.to_string();
        let size = metrics::gauge!("otelcol_exporter_queue_size", "exporter" => exporter.clone());
        let capacity = metrics::gauge!("otelcol_exporter_queue_capacity", "exporter" => exporter);
        (size, capacity)
    }

    pub(super) fn machine(&self) -> MutexGuard<'_, Machine<Parcel>> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
