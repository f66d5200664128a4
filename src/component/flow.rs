//! How a batch moves: admitted by every destination of its path first, then consumed by all of them (DESIGN:
//! all or none).

use std::any::Any;
use std::pin::Pin;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::batch::Batch;

/// The answer to a push that no destination took: the sender keeps the data and may come back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// Who refused and why, for the sender's error message.
    pub reason: String,
    /// When it is worth trying again; `None` = never, the data itself is what is refused.
    pub retry_after: Option<Duration>,
    /// Whether only its size is refused: parts of it may be taken.
    pub is_too_large: bool,
}

impl Refused {
    /// No room now.
    pub fn busy(reason: impl Into<String>, retry_after: Duration) -> Self {
        Self {
            reason: reason.into(),
            retry_after: Some(retry_after),
            is_too_large: false,
        }
    }

    /// Never acceptable as it is.
    pub fn permanent(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            retry_after: None,
            is_too_large: false,
        }
    }

    /// There is never room for so much at a time.
    pub fn too_large(reason: impl Into<String>) -> Self {
        Self {
            is_too_large: true,
            ..Self::permanent(reason)
        }
    }
}

/// A permit that a component reserved for one push; dropping it unused releases the capacity.
struct Admission {
    owner: usize,
    permit: Box<dyn Any + Send>,
}

/// One push on its way through the graph: the reserved capacity, and the outcome so far.
#[derive(Default)]
pub struct Flow {
    admissions: SmallVec<[Admission; 2]>,
    rejected_items: usize,
    rejected_why: Option<String>,
    waits: SmallVec<[oneshot::Receiver<Answer>; 1]>,
    delays: SmallVec<[Pin<Box<dyn Future<Output = ()> + Send>>; 1]>,
    is_waited_for: bool,
    blocks: bool,
    is_short_of_memory: bool,
    lacked_memory: bool,
    /// Time spent below the component that has it now, where that is measured.
    pub(super) below: Duration,
}

impl Flow {
    /// Keeps a permit until `take` or the end of the push. `owner` identifies the component, by the address
    /// of its state for example.
    pub fn keep_permit(&mut self, owner: usize, permit: impl Any + Send) {
        let permit = Box::new(permit);
        self.admissions.push(Admission { owner, permit });
    }

    /// Takes back the oldest permit of `owner` in this push. Each call takes one admission.
    pub fn take<R: Any>(&mut self, owner: usize) -> Option<R> {
        let mut all = self.admissions.iter();
        let at = all.position(|admission| admission.owner == owner)?;
        let permit = self.admissions.remove(at).permit.downcast();
        permit.ok().map(|permit| *permit)
    }

    /// Drops the permits that were kept after `mark`: a refused branch undoes itself.
    pub fn undo_to(&mut self, mark: usize) {
        self.admissions.truncate(mark);
    }

    /// How many admissions are held; see `undo_to`.
    pub fn mark(&self) -> usize {
        self.admissions.len()
    }

    /// Notes items that were taken from the peer but are unacceptable in themselves (OTLP `partial_success`).
    /// The component that rejects also counts them in its ledger.
    pub fn reject(&mut self, items: usize, why: impl FnOnce() -> String) {
        if items > 0 {
            self.rejected_items += items;
            self.rejected_why.get_or_insert_with(why);
        }
    }

    /// The peer may be told only when this answers: the data is being written, or its delivery is waited for.
    pub fn wait_for(&mut self, answer: oneshot::Receiver<Answer>) {
        self.waits.push(answer);
    }

    /// Delays the answer to the peer by `delay`, for backpressure: the data is taken already.
    pub fn delay_answer(&mut self, delay: impl Future<Output = ()> + Send + 'static) {
        self.delays.push(Box::pin(delay));
    }

    /// A push whose sender waits for [`Self::settled`] and keeps what is refused until then.
    pub fn waited_for() -> Self {
        Self {
            is_waited_for: true,
            ..Self::default()
        }
    }

    /// Whether the sender has the data until it is told otherwise. If not, the component that has taken it
    /// must not lose it.
    pub fn is_waited_for(&self) -> bool {
        self.is_waited_for
    }

    /// The refusing component wants the sender to wait here instead of coming back.
    pub fn block(&mut self) {
        self.blocks = true;
    }

    /// Whether a refusal is to be waited out.
    pub fn blocks(&self) -> bool {
        self.blocks
    }

    /// Calls `admit` while the gateway is above its soft limit: who would keep the data in memory refuses it.
    /// `None`: somebody did.
    pub fn short_of_memory(
        &mut self,
        admit: impl FnOnce(&mut Self) -> Result<(), Refused>,
    ) -> Option<Result<(), Refused>> {
        let before = std::mem::replace(&mut self.is_short_of_memory, true);
        let admitted = admit(self);
        self.is_short_of_memory = before;
        let lacked = std::mem::take(&mut self.lacked_memory);
        (!lacked).then_some(admitted)
    }

    /// For components that keep what they take in memory.
    ///
    /// # Errors
    /// The gateway is above its soft limit.
    pub fn keep_in_memory(&mut self) -> Result<(), Refused> {
        if !self.is_short_of_memory {
            return Ok(());
        }
        self.lacked_memory = true;
        Err(Refused::busy(
            "the gateway is above its soft memory limit",
            MEMORY_RETRY_AFTER,
        ))
    }

    /// Waits for all answers and delays, then returns the outcome for the peer.
    pub async fn settled(mut self) -> Result<PushOutcome, Refused> {
        for wait in std::mem::take(&mut self.waits) {
            // The component that would answer has ended: the gateway stops.
            let answer = wait.await;
            let stopping = |_| Err(Refused::busy("the gateway is stopping", STOPPING_RETRY_AFTER));
            let outcome = answer.unwrap_or_else(stopping)?;
            self.reject(outcome.rejected_items, || outcome.message);
        }
        for delay in std::mem::take(&mut self.delays) {
            delay.await;
        }
        Ok(self.outcome())
    }

    /// The outcome for the peer, without waiting.
    pub fn outcome(self) -> PushOutcome {
        PushOutcome {
            rejected_items: self.rejected_items,
            message: self.rejected_why.unwrap_or_default(),
        }
    }
}

/// When a sender that found no memory for its data should come back.
const MEMORY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// When a sender that found the gateway stopping should come back: to the next one.
const STOPPING_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The final result of a push, from a component that the sender waits for.
pub type Answer = Result<PushOutcome, Refused>;

/// The outcome of an accepted push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushOutcome {
    /// Items that were refused because they are invalid.
    pub rejected_items: usize,
    /// The reason for the first of them.
    pub message: String,
}

/// Takes batches: processors, exporters, connectors, edges and fan-outs.
///
/// A push is two calls. Neither blocks nor waits: work that takes time is queued behind `consume`.
pub trait Consumer: Send + Sync {
    /// Reserves capacity in every destination below for `batch` (as it is here; later edits may shrink it).
    /// A refusal leaves nothing reserved. It has no side effect that a caller could see.
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused>;

    /// Takes the batch. Called only after `admit` said yes in the same push; can't refuse any more:
    /// what can't be kept now is counted as dropped, by reason.
    fn consume(&self, batch: Batch, flow: &mut Flow);

    /// Whether somebody here or below decodes or walks through what passes, so that it takes time and memory in
    /// proportion to its elements.
    fn decodes(&self) -> bool {
        true
    }

    /// Whether a table here or below takes in what passes, so that known series need no more memory.
    fn absorbs(&self) -> bool {
        false
    }

    /// Both steps, for callers that need not wait for what becomes of the data.
    fn push(&self, batch: Batch) -> Result<PushOutcome, Refused> {
        let mut flow = Flow::default();
        self.admit(&batch, &mut flow)?;
        self.consume(batch, &mut flow);
        Ok(flow.outcome())
    }
}
