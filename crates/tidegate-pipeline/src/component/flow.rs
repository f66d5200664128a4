// SPDX-License-Identifier: Apache-2.0

//! The protocol of a push: every destination on the path of a batch admits it before any of them consumes it. So all
//! destinations get a batch or none does.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::Generation;
use crate::batch::Batch;

/// The answer to a push that no destination took: the sender keeps the data and may retry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// The component that refused and its reason, for the error message of the sender.
    pub reason: String,
    /// The delay before a retry; `None` = never, because the data itself is refused.
    pub retry_after: Option<Duration>,
    /// Whether only the size is refused. Parts of the data may be accepted.
    pub is_too_large: bool,
}

impl Refused {
    /// Refuses because there is no capacity now.
    pub fn busy(reason: impl Into<String>, retry_after: Duration) -> Self {
        Self {
            reason: reason.into(),
            retry_after: Some(retry_after),
            is_too_large: false,
        }
    }

    /// Refuses because the data is never acceptable as it is.
    pub fn permanent(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            retry_after: None,
            is_too_large: false,
        }
    }

    /// Refuses because the data is larger than the whole capacity.
    pub fn too_large(reason: impl Into<String>) -> Self {
        Self {
            is_too_large: true,
            ..Self::permanent(reason)
        }
    }
}

/// A permit that a component reserved for one push. A drop without use releases the capacity.
struct Admission {
    owner: usize,
    permit: Box<dyn Any + Send>,
}

/// The state of one push on its path through the graph: the reserved capacity, and the outcome so far.
#[derive(Default)]
pub struct Flow {
    admissions: SmallVec<[Admission; 2]>,
    rejected_items: usize,
    rejected_why: Option<String>,
    waits: SmallVec<[oneshot::Receiver<PushAnswer>; 1]>,
    delays: SmallVec<[Pin<Box<dyn Future<Output = ()> + Send>>; 1]>,
    is_waited_for: bool,
    blocks: bool,
    is_short_of_memory: bool,
    lacked_memory: bool,
    /// The generation of the graph that the push belongs to, from its first downstream to the end of `consume`.
    pub(super) generation: Option<Arc<Generation>>,
    /// Time spent below the current component, if it is measured.
    pub(super) below: Duration,
}

impl Flow {
    /// Keeps a permit until [`Self::take`] or the end of the push. `owner` identifies the component, for example
    /// by the address of its state.
    pub fn keep_permit(&mut self, owner: usize, permit: impl Any + Send) {
        let permit = Box::new(permit);
        self.admissions.push(Admission { owner, permit });
    }

    /// Takes the oldest permit of `owner` in this push. Each call takes one permit.
    pub fn take<R: Any>(&mut self, owner: usize) -> Option<R> {
        let mut all = self.admissions.iter();
        let at = all.position(|admission| admission.owner == owner)?;
        let permit = self.admissions.remove(at).permit.downcast();
        permit.ok().map(|permit| *permit)
    }

    /// Drops the permits that were kept after `mark`, for a branch that refused.
    pub fn undo_to(&mut self, mark: usize) {
        self.admissions.truncate(mark);
    }

    /// The number of permits held, for [`Self::undo_to`].
    pub fn mark(&self) -> usize {
        self.admissions.len()
    }

    /// Counts items that the push accepted from the peer but that are invalid (OTLP `partial_success`). The
    /// component that rejects them also counts them in its ledger.
    pub fn reject(&mut self, items: usize, why: impl FnOnce() -> String) {
        if items > 0 {
            self.rejected_items += items;
            self.rejected_why.get_or_insert_with(why);
        }
    }

    /// Delays the answer to the peer until `answer` resolves: a write or a delivery is in progress.
    pub fn wait_for(&mut self, answer: oneshot::Receiver<PushAnswer>) {
        self.waits.push(answer);
    }

    /// Delays the answer to the peer by `delay`, for backpressure. The data is already accepted.
    pub fn delay_answer(&mut self, delay: impl Future<Output = ()> + Send + 'static) {
        self.delays.push(Box::pin(delay));
    }

    /// Creates a push whose sender waits for [`Self::settled`] and keeps refused data until then.
    pub fn waited_for() -> Self {
        Self {
            is_waited_for: true,
            ..Self::default()
        }
    }

    /// Whether the sender keeps the data until the answer. If not, the component that has taken the data must not
    /// lose it.
    pub fn is_waited_for(&self) -> bool {
        self.is_waited_for
    }

    /// Asks the sender to wait here instead of retrying later.
    pub fn block(&mut self) {
        self.blocks = true;
    }

    /// Whether the sender waits until the refusal ends.
    pub fn blocks(&self) -> bool {
        self.blocks
    }

    /// Calls `admit` while the gateway is above its soft limit. Components that keep data in memory refuse then.
    /// Returns `None` if one did.
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

    /// Checks the memory, for components that keep the data in memory.
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
    ///
    /// # Errors
    /// An answer is a refusal, or the gateway stops before it comes.
    pub async fn settled(mut self) -> Result<PushOutcome, Refused> {
        // The components have the batch: a reload need not wait for the answer.
        self.generation = None;
        for wait in std::mem::take(&mut self.waits) {
            // The component that owes the answer has ended, because the gateway stops.
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

/// The retry delay after a refusal for lack of memory.
const MEMORY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The retry delay while the gateway stops. The retry goes to the next gateway.
const STOPPING_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The final result of a push, from the component that the sender waits for.
pub type PushAnswer = Result<PushOutcome, Refused>;

/// The outcome of an accepted push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushOutcome {
    /// Items that were rejected because they are invalid.
    pub rejected_items: usize,
    /// The reason for the first rejected item.
    pub message: String,
}

/// The input of processors, exporters, connectors, edges and fan-outs.
///
/// A push is two calls. Neither blocks nor waits: long work is queued by `consume`.
pub trait Consumer: Send + Sync {
    /// Reserves capacity for `batch` in every destination below. The batch has its present size; later edits may
    /// change it, and a queue counts the size that it takes. A refusal leaves nothing reserved and has no effect that a
    /// caller can observe.
    ///
    /// # Errors
    /// A destination below has no capacity, or a component refuses the data itself.
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused>;

    /// Takes the batch. Callers call it only after `admit` succeeded in the same push. It can't refuse: items that
    /// it can't keep count as dropped, by reason.
    fn consume(&self, batch: Batch, flow: &mut Flow);

    /// Whether this consumer, or one below, decodes or walks through the data. The cost is time and memory in
    /// proportion to the elements.
    fn decodes(&self) -> bool {
        true
    }

    /// Whether a table here or below absorbs the data, so that known series need no more memory.
    fn absorbs(&self) -> bool {
        false
    }

    /// Admits and consumes a batch, for callers that don't wait for its delivery.
    ///
    /// # Errors
    /// Those of [`Self::admit`].
    fn push(&self, batch: Batch) -> Result<PushOutcome, Refused> {
        let mut flow = Flow::default();
        self.admit(&batch, &mut flow)?;
        self.consume(batch, &mut flow);
        Ok(flow.outcome())
    }
}
