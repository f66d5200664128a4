//! `storage`: what the state is made of, on disk before it is shown or acknowledged.
//!
//! Every batch that a rule takes something of is appended as it came, and taken in by the log's thread when it is kept;
//! a snapshot of the table takes the place of what it covers. A restart restores the snapshot and takes in again what
//! came after it, so that totals are those of everything that was acknowledged.
//!
//! | bytes | |
//! | --- | --- |
//! | 1 | 1: an OTLP request, 2: events |
//! | 8 | when it was taken in, nanoseconds since 1970 |
//! | | the batch |

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Buf, Bytes};
use smallvec::SmallVec;
use tidegate_engine::{Events, UnixNanos, clock};
use tidegate_wal::{Append, Done, Joins, Purpose, Saving, Share, State, Store};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::intake::Intake;
use crate::batch::{Batch, Encoded, Payload, Signal};
use crate::component::{Answer, ComponentError, Context, Flow, Ledger, Reason, Refused, unix_now};

/// When a sender that found the disk full should come back.
const RETRY_AFTER: Duration = Duration::from_secs(1);

const REQUEST: u8 = 1;
const EVENTS: u8 = 2;

/// What the record around a batch takes, and the head of its payload.
const RECORD_BYTES: u64 = 256;

/// The log of one table.
pub(super) struct Journal {
    /// Id of the storage extension.
    storage: String,
    /// The processor in this pipeline: what its directory is called, and its messages.
    owner: Arc<str>,
    state: Arc<JournaledState>,
    store: OnceLock<Store>,
}

/// The state that the log restores, replays into and takes snapshots of.
struct JournaledState {
    intake: Arc<Intake>,
    ledger: Arc<Ledger>,
}

impl Journal {
    pub(super) fn new(storage: String, intake: Arc<Intake>, ledger: Arc<Ledger>) -> Self {
        Self {
            storage,
            owner: intake.table.owner().clone(),
            state: Arc::new(JournaledState { intake, ledger }),
            store: OnceLock::new(),
        }
    }

    /// Takes up what a former run left.
    pub(super) async fn open(&self, context: &Context) -> Result<(), ComponentError> {
        let storage = context.storage("storage", &self.storage)?;
        let (owner, directory) = (self.owner.clone(), storage.directory_of(&self.owner));
        let shown = directory.display().to_string();
        let state = self.state.clone();
        let opening = tokio::task::spawn_blocking(move || {
            let quota = storage.quota.clone();
            Store::open(
                owner,
                &directory,
                &storage.rules,
                quota,
                Arc::default(),
                Some(state),
            )
        });
        let opened = opening.await.map_err(|error| context.error(error.to_string()))?;
        let (store, recovered) =
            opened.map_err(|error| context.error(format!("storage: `{shown}`: {error}")))?;
        recovered.tell_damage(&self.owner);
        let series = self.state.intake.table.len();
        info!(component = &*self.owner, series, "the state is taken up");
        // Started once.
        let _ = self.store.set(store);
        Ok(())
    }

    /// Writes what is there, with a snapshot, and ends.
    pub(super) async fn close(self: Arc<Self>) {
        let closing = tokio::task::spawn_blocking(move || self.store.get().map(Store::close));
        if closing.await.is_err() {
            warn!("closing the journal panicked (a bug)");
        }
    }

    /// Sets room aside on the disk.
    pub(super) fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        let bytes = batch.bytes() as u64 + RECORD_BYTES;
        let refuse = |why| Refused::busy(format!("{}: storage: {why}", self.owner), RETRY_AFTER);
        let store = self.store.get().ok_or_else(|| refuse("not open"))?;
        match store.reserve(bytes) {
            Ok(Some(share)) => {
                flow.keep_permit(self.number(), share);
                Ok(())
            }
            Ok(None) => Err(refuse("full, or it fails")),
            Err(_) => Err(Refused::too_large(format!(
                "{}: storage: {bytes} bytes are more than it may hold",
                self.owner
            ))),
        }
    }

    /// Appends a batch, to be taken in when it is kept. Gives the rest of the batch, which is sent on.
    pub(super) fn take(&self, batch: &Batch, flow: &mut Flow) -> Option<Payload> {
        let share: Option<Share> = flow.take(self.number());
        let rest = self.state.intake.rest(&batch.payload);
        let passes = rest.as_ref().map_or(0, Payload::items);
        if passes == batch.items() {
            return rest;
        }
        let items = batch.items() - passes;
        let Some(store) = self.store.get() else {
            self.state.ledger.drop_items(Reason::Shutdown, items);
            return rest;
        };
        let now = unix_now();
        let (state, payload) = (self.state.clone(), batch.payload.clone());
        let answer = flow.is_waited_for().then(|| {
            let (answer, result) = oneshot::channel();
            flow.wait_for(result);
            answer
        });
        store.append(Append {
            tag: Signal::Metrics as u8,
            items,
            payload: to_bytes(&batch.payload, clock::wall(now)),
            purpose: Purpose::State,
            done: Some(Done(Box::new(move |kept| {
                state.kept(kept, &payload, now, answer)
            }))),
            share,
        });
        rest
    }

    /// Tells its admissions from those of others.
    fn number(&self) -> usize {
        Arc::as_ptr(&self.state).addr()
    }
}

fn to_bytes(payload: &Payload, now: UnixNanos) -> SmallVec<[Bytes; 2]> {
    let mut head = Vec::new();
    let encoded = match payload {
        Payload::Events(events) => {
            head.push(EVENTS);
            head.extend(now.to_le_bytes());
            events.save(&mut head);
            None
        }
        payload => {
            head.push(REQUEST);
            head.extend(now.to_le_bytes());
            Some(payload.encode())
        }
    };
    // Requests one behind the other are one request: their repeated fields add up.
    let parts = encoded.into_iter().flat_map(|encoded| encoded.parts);
    std::iter::once(head.into())
        .chain(parts.map(|part| part.bytes))
        .collect()
}

impl JournaledState {
    /// A batch was written, or could not be.
    fn kept(
        &self,
        kept: Result<(), String>,
        payload: &Payload,
        now: UnixNanos,
        answer: Option<oneshot::Sender<Answer>>,
    ) {
        let mut flow = Flow::default();
        let answered = match (kept, &answer) {
            // The sender has it and comes again.
            (Err(why), Some(_)) => {
                let items = payload.items() - self.intake.rest(payload).map_or(0, |rest| rest.items());
                self.ledger.drop_items(Reason::StorageFailed, items);
                Err(Refused::busy(
                    format!("{}: storage: {why}", self.intake.table.owner()),
                    RETRY_AFTER,
                ))
            }
            // Without a promise, data stays in memory when the disk fails, while there is room.
            (Ok(()), _) | (Err(_), None) => {
                // What passes has passed.
                self.intake.take(payload, now, &self.ledger, &mut flow);
                Ok(flow.outcome())
            }
        };
        // A caller that no longer waits need not know.
        let _ = answer.map(|answer| answer.send(answered));
    }

    /// Takes in a batch of a former run, whose books are closed. `None`: not written by this version.
    fn take_again(&self, mut payload: &[u8]) -> Option<()> {
        let form = payload.try_get_u8().ok()?;
        let now = clock::steady(payload.try_get_u64_le().ok()?);
        let (payload, source) = match form {
            EVENTS => {
                let events = Events::load(payload, now)?;
                let source = events.source.id;
                (Payload::from(events), Some(source))
            }
            REQUEST => {
                let request = Bytes::copy_from_slice(payload);
                (Encoded::one(Signal::Metrics, request, 0).into(), None)
            }
            _ => return None,
        };
        let intake = &self.intake;
        intake.take(&payload, now, &Ledger::default(), &mut Flow::default());
        source.into_iter().for_each(|source| intake.table.let_go(source));
        Some(())
    }
}

impl State for JournaledState {
    /// Nothing is shown that a kill could take back: a counter that falls reads as one that has restarted.
    fn joins(&self) -> Joins {
        Joins::WhenKept
    }

    fn restore(&self, snapshot: &[u8]) {
        let component = &**self.intake.table.owner();
        match self.intake.table.restore(snapshot) {
            Some(restored) => info!(
                component,
                series = restored.series,
                streams = restored.streams,
                outdated = restored.outdated,
                "a snapshot is restored"
            ),
            None => warn!(
                component,
                "the snapshot is of another version: what it holds can't be used"
            ),
        }
    }

    fn replay(&self, payload: &[u8]) {
        if self.take_again(payload).is_none() {
            let component = &**self.intake.table.owner();
            warn!(
                component,
                "a stored batch is of another version: it is not taken in"
            );
        }
    }

    fn save(&self, _: &mut dyn FnMut()) -> Saving {
        // Nobody else takes anything in: this is the log's thread.
        let frozen = self.intake.table.freeze();
        Box::new(move |to| frozen.write(to))
    }
}
