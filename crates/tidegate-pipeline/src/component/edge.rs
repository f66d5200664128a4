// SPDX-License-Identifier: Apache-2.0

//! The edge between two components, which keeps the ledgers, and the fan-out to several consumers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use metrics::Histogram;
use parking_lot::Mutex;

use super::account::{Ceiling, Held};
use super::slow::{Slow, Stage};
use super::tap::TapPoint;
use super::worker::{Overloaded, Slot};
use super::{Consumer, Flow, Ledger, PushOutcome, Refused, Shared};
use crate::batch::{Batch, Signal};

/// The edge from one component to the next. Items that pass it leave the first ledger and enter the second.
pub struct Edge {
    from: Option<Arc<Ledger>>,
    to: Arc<Ledger>,
    target: Arc<dyn Consumer>,
    /// Whether the target edits, so that its output may differ from the contents of a table.
    edits: bool,
    clock: Clock,
    /// Copies batches of this edge, for people who debug.
    tap: Option<Arc<TapPoint>>,
}

/// Whether an edge measures the time of its target.
enum Clock {
    Off,
    /// The edge measures, so that the component before does not count this time as its own.
    Running,
    /// The edge also records the time that the target itself spends.
    Recording(Histogram),
}

impl Edge {
    /// Creates an edge. `from` is `None` if the sender counts elsewhere (receivers, fan-outs).
    pub fn new(from: Option<Arc<Ledger>>, to: Arc<Ledger>, target: Arc<dyn Consumer>) -> Self {
        Self {
            from,
            to,
            target,
            edits: false,
            clock: Clock::Off,
            tap: None,
        }
    }

    /// Adds the point that copies what enters the target.
    pub fn tapped(self, tap: Arc<TapPoint>) -> Self {
        Self {
            tap: Some(tap),
            ..self
        }
    }

    /// Sets whether the target edits: then a batch that passes no longer counts as the contents of a table.
    pub fn editing(self, edits: bool) -> Self {
        Self { edits, ..self }
    }

    /// Adds a clock. With `own`, the edge records the time that the target itself spends.
    pub fn timed(self, own: Option<Histogram>) -> Self {
        Self {
            clock: own.map_or(Clock::Running, Clock::Recording),
            ..self
        }
    }

    /// Consumes the batch, and adds the time of the target to `flow.below`.
    fn timely(&self, batch: Batch, flow: &mut Flow) {
        let before = std::mem::take(&mut flow.below);
        let started = Instant::now();
        self.target.consume(batch, flow);
        let took = started.elapsed();
        if let Clock::Recording(own) = &self.clock {
            own.record(took.saturating_sub(flow.below).as_secs_f64());
        }
        flow.below = before + took;
    }
}

impl Consumer for Edge {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        self.target.admit(batch, flow)
    }

    fn consume(&self, mut batch: Batch, flow: &mut Flow) {
        let items = batch.items();
        if let Some(from) = &self.from {
            from.leave(items);
        }
        self.to.enter(items);
        if self.edits {
            batch.snapshot_of = None;
        }
        if let Some(tap) = &self.tap {
            tap.pass(&batch);
        }
        match self.clock {
            Clock::Off => self.target.consume(batch, flow),
            Clock::Running | Clock::Recording(_) => self.timely(batch, flow),
        }
    }

    fn decodes(&self) -> bool {
        self.target.decodes()
    }

    fn absorbs(&self) -> bool {
        self.target.absorbs()
    }
}

/// Hands the same immutable batch to several consumers: either all of them admit it, or none gets it.
pub struct FanOut {
    from: Option<Arc<Ledger>>,
    targets: Box<[Arc<dyn Consumer>]>,
}

impl FanOut {
    /// Returns one consumer for all `targets`. A single target without a ledger in between is returned as it is.
    pub fn to(from: Option<Arc<Ledger>>, mut targets: Vec<Arc<dyn Consumer>>) -> Arc<dyn Consumer> {
        match targets.pop() {
            Some(only) if targets.is_empty() && from.is_none() => only,
            last => {
                targets.extend(last);
                Arc::new(Self {
                    from,
                    targets: targets.into(),
                })
            }
        }
    }
}

impl Consumer for FanOut {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        let mark = flow.mark();
        for target in &self.targets {
            target.admit(batch, flow).inspect_err(|_| flow.undo_to(mark))?;
        }
        Ok(())
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        if let Some(from) = &self.from {
            from.leave(batch.items());
        }
        let Some((last, others)) = self.targets.split_last() else {
            return;
        };
        for target in others {
            target.consume(batch.clone(), flow);
        }
        last.consume(batch, flow);
    }

    fn decodes(&self) -> bool {
        self.targets.iter().any(|target| target.decodes())
    }

    fn absorbs(&self) -> bool {
        self.targets.iter().any(|target| target.absorbs())
    }
}

/// The entry of one signal of a receiver into the graph. It exists if a pipeline takes this signal from the
/// receiver.
#[derive(Clone)]
pub struct Entry {
    signal: Signal,
    target: Arc<dyn Consumer>,
    counts: Arc<EntryCounts>,
    over: Option<Arc<EntryCounts>>,
    watched: Option<Watched>,
}

fn overloaded() -> Refused {
    /// The sender may retry after this delay.
    const RETRY_AFTER: Duration = Duration::from_secs(1);
    Refused::busy(Overloaded.to_string(), RETRY_AFTER)
}

/// The result of an offer to the pipelines.
enum Offered {
    Taken(Flow),
    Refused(Refused),
    /// A destination asks the sender to wait here.
    Blocked(Batch, Option<Held>),
}

fn offer(target: &dyn Consumer, batch: Batch, held: Option<Held>) -> Offered {
    let mut flow = Flow::waited_for();
    match target.admit(&batch, &mut flow) {
        Ok(()) => {
            target.consume(batch, &mut flow);
            // The destinations that keep the batch reserve its memory themselves.
            drop(held);
            Offered::Taken(flow)
        }
        Err(refused) if flow.blocks() && refused.retry_after.is_some() => Offered::Blocked(batch, held),
        Err(refused) => Offered::Refused(refused),
    }
}

/// The receiver whose slow pushes are reported.
#[derive(Clone)]
struct Watched {
    receiver: Arc<str>,
    shared: Arc<Shared>,
}

/// The item counts of a receiver.
#[derive(Debug, Default)]
pub struct EntryCounts {
    /// The same counts by transport, if the receiver has several.
    pub transports: Mutex<Vec<(&'static str, Arc<EntryCounts>)>>,
    /// Items that the pipelines accepted.
    pub accepted: AtomicU64,
    /// Items that the pipelines refused. The sender still has them.
    pub refused: AtomicU64,
    /// Items that the receiver could not decode.
    pub failed: AtomicU64,
}

impl Entry {
    /// Creates an entry into `target`.
    pub fn new(signal: Signal, target: Arc<dyn Consumer>, counts: Arc<EntryCounts>) -> Self {
        Self {
            signal,
            target,
            counts,
            over: None,
            watched: None,
        }
    }

    /// Returns an entry that also counts for one transport, such as `grpc` or `http`.
    pub fn over(&self, transport: &'static str) -> Self {
        let mut known = self.counts.transports.lock();
        let counts = match known.iter().find(|(name, _)| *name == transport) {
            Some((_, counts)) => counts.clone(),
            None => {
                let counts = Arc::<EntryCounts>::default();
                known.push((transport, counts.clone()));
                counts
            }
        };
        drop(known);
        Self {
            over: Some(counts),
            ..self.clone()
        }
    }

    fn count(&self, what: impl Fn(&EntryCounts) -> &AtomicU64, items: usize) {
        for counts in std::iter::once(&self.counts).chain(&self.over) {
            what(counts).fetch_add(items as u64, Relaxed);
        }
    }

    /// Reports slow pushes under the name of this receiver.
    pub fn watched(self, receiver: Arc<str>, shared: Arc<Shared>) -> Self {
        Self {
            watched: Some(Watched { receiver, shared }),
            ..self
        }
    }

    /// Whether a component decodes the data of this entry; see [`Consumer::decodes`].
    pub fn decodes(&self) -> bool {
        self.target.decodes()
    }

    /// The memory limit for a request that enters here.
    pub fn ceiling(&self) -> Ceiling {
        if self.target.absorbs() {
            Ceiling::Hard
        } else {
            Ceiling::Soft
        }
    }

    /// The signal of this entry.
    pub fn signal(&self) -> Signal {
        self.signal
    }

    /// Pushes a batch into every pipeline, for receivers whose peers wait for no answer.
    ///
    /// # Errors
    /// A destination refuses the batch. No pipeline has it then.
    pub fn push(&self, batch: Batch) -> Result<PushOutcome, Refused> {
        let (items, started) = (batch.items(), self.start(&batch));
        let answer = self.target.push(batch);
        self.end(items, started, answer)
    }

    /// Pushes a batch into every pipeline and returns when the peer may be answered. It waits for writes to
    /// storage, and for delivery if a destination asks for that.
    ///
    /// Dropping the future ends the wait only. The pipelines keep the batch.
    ///
    /// # Errors
    /// A destination refuses the batch or fails to store or deliver it, or the gateway stops.
    /// The peer must keep the data.
    pub async fn send(&self, batch: Batch) -> Result<PushOutcome, Refused> {
        self.send_held(batch, None, None).await
    }

    /// Like [`Self::send`], with a reservation that lasts until the pipelines have taken the batch. With a slot,
    /// the pipelines decode the batch in that slot.
    ///
    /// # Errors
    /// Those of [`Self::send`], and with a slot: the gateway has too much work waiting.
    pub async fn send_held(
        &self,
        mut batch: Batch,
        mut held: Option<Held>,
        mut slot: Option<Slot>,
    ) -> Result<PushOutcome, Refused> {
        /// The interval between two offers to a destination that blocks.
        const ASK_AGAIN: Duration = Duration::from_millis(10);
        let (items, started) = (batch.items(), self.start(&batch));
        let answer = loop {
            let is_long = slot.is_some();
            let offered = match slot {
                None => Ok(offer(&*self.target, batch, held)),
                Some(slot) => {
                    let target = self.target.clone();
                    slot.run(move || offer(&*target, batch, held)).await
                }
            };
            match offered {
                Ok(Offered::Taken(flow)) => break flow.settled().await,
                Ok(Offered::Refused(refused)) => break Err(refused),
                Ok(Offered::Blocked(again, room)) => (batch, held) = (again, room),
                Err(Overloaded) => break Err(overloaded()),
            }
            tokio::time::sleep(ASK_AGAIN).await;
            slot = match is_long.then(|| Slot::get(held.as_ref())) {
                None => None,
                Some(slot) => match slot.await {
                    Ok(slot) => Some(slot),
                    Err(Overloaded) => break Err(overloaded()),
                },
            };
        };
        self.end(items, started, answer)
    }

    fn start(&self, batch: &Batch) -> Option<Instant> {
        debug_assert_eq!(batch.signal(), self.signal);
        self.watched
            .as_ref()
            .and_then(|watched| watched.shared.slowness.start())
    }

    fn end(
        &self,
        items: usize,
        started: Option<Instant>,
        answer: Result<PushOutcome, Refused>,
    ) -> Result<PushOutcome, Refused> {
        let answer = answer.map(|outcome| PushOutcome {
            // Several destinations may have rejected the same items.
            rejected_items: outcome.rejected_items.min(items),
            ..outcome
        });
        match &answer {
            Ok(_) => self.count(|counts| &counts.accepted, items),
            Err(_) => self.count(|counts| &counts.refused, items),
        }
        if let Some(watched) = &self.watched {
            watched.shared.slowness.end(started, |started, ended| {
                watched.slow(self.signal, items, (started, ended), answer.as_ref().err())
            });
        }
        answer
    }

    /// Counts items that the receiver could not decode.
    pub fn fail(&self, items: usize) {
        self.count(|counts| &counts.failed, items);
    }
}

impl Watched {
    fn slow(
        &self,
        signal: Signal,
        items: usize,
        (started, ended): (Instant, Instant),
        refused: Option<&Refused>,
    ) -> Slow {
        Slow {
            component: self.receiver.clone(),
            stage: Stage::Push,
            signal,
            items,
            started,
            attempted: None,
            ended,
            error: refused.map(|refused| refused.reason.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Points;
    use crate::component::testing::Sink;

    #[test]
    fn edited_points_are_no_longer_the_contents_of_a_table() {
        let sink = Sink::new();
        for edits in [false, true] {
            let edge = Edge::new(None, Arc::default(), sink.clone()).editing(edits);
            let points = Points {
                points: Arc::from([]),
            };
            let batch = Batch {
                snapshot_of: Some("processors::aggregate@metrics".into()),
                ..Batch::new(points)
            };
            edge.push(batch).unwrap();
        }
        let batches = sink.batches();
        let named: Vec<bool> = batches.iter().map(|batch| batch.snapshot_of.is_some()).collect();
        assert_eq!(named, [true, false]);
    }
}
