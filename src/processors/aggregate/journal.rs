// SPDX-License-Identifier: Apache-2.0

//! `storage`: the input of the state, on disk before the state is shown or acknowledged.
//!
//! Every batch with points for a rule is appended unchanged. The log's thread absorbs it when the write is done. A
//! snapshot of the table replaces the records that it covers. A restart restores the snapshot and absorbs the
//! later records again. So the totals are those of all acknowledged data.
//!
//! New rules may drop series that a snapshot has. A log that a reload opens therefore writes no snapshot until the reload
//! is over: a return to the old rules finds the old snapshot and all records.
//!
//! | bytes | |
//! | --- | --- |
//! | 1 | 1: an OTLP request, 2: events |
//! | 8 | time of the absorption, nanoseconds since 1970 |
//! | | the batch |

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use smallvec::SmallVec;
use tidegate_engine::{Events, UnixNanos, clock};
use tidegate_wal::{Append, Done, Joins, NotKept, Purpose, Saving, Share, State};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::super::state_log::{NoSpace, OpenedIn, StateLog};
use super::absorber::{Absorber, PointOrigin};
use crate::batch::{Batch, Encoded, Payload, Signal};
use crate::component::{ComponentError, Context, Flow, Ledger, PushAnswer, Reason, Refused, unix_now};

/// The retry delay for a sender while the disk is full.
const RETRY_AFTER: Duration = Duration::from_secs(1);

const REQUEST: u8 = 1;
const EVENTS: u8 = 2;

/// The log of one table.
pub(super) struct Journal {
    log: StateLog,
    state: Arc<JournaledState>,
}

/// The state that the log restores, replays into and snapshots.
struct JournaledState {
    absorber: Arc<Absorber>,
    ledger: Arc<Ledger>,
    opened_in: OpenedIn,
}

impl Journal {
    pub(super) fn new(storage: String, absorber: Arc<Absorber>, ledger: Arc<Ledger>) -> Self {
        Self {
            log: StateLog::new(storage, absorber.table.owner().clone()),
            state: Arc::new(JournaledState {
                absorber,
                ledger,
                opened_in: OpenedIn::default(),
            }),
        }
    }

    /// Restores the state that a previous run left.
    pub(super) async fn open(&self, context: &Context) -> Result<(), ComponentError> {
        self.state.opened_in.note(context);
        self.log.open(context, self.state.clone()).await?;
        let series = self.state.absorber.table.len();
        info!(component = &**self.log.owner(), series, "the state is restored");
        Ok(())
    }

    /// Writes pending records and a snapshot, and closes the log.
    pub(super) async fn close(&self) {
        self.log.close().await;
    }

    /// Reserves disk space.
    pub(super) fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        let owner = self.log.owner();
        match self.log.reserve(batch.bytes() as u64) {
            Ok(share) => {
                flow.keep_permit(self.number(), share);
                Ok(())
            }
            Err(why @ NoSpace::TooLarge(_)) => Err(Refused::too_large(format!("{owner}: storage: {why}"))),
            Err(why) => Err(Refused::busy(format!("{owner}: storage: {why}"), RETRY_AFTER)),
        }
    }

    /// Appends a batch, which is absorbed after the write. Returns the part that passes.
    pub(super) fn take(&self, batch: &Batch, flow: &mut Flow) -> Option<Payload> {
        let share: Option<Share> = flow.take(self.number());
        let rest = self.state.absorber.rest(&batch.payload);
        let passes = rest.as_ref().map_or(0, Payload::items);
        if passes == batch.items() {
            return rest;
        }
        let items = batch.items() - passes;
        let now = unix_now();
        let (state, payload) = (self.state.clone(), batch.payload.clone());
        let origin = PointOrigin {
            is_snapshot: false,
            lease: batch.lease.clone(),
        };
        let answer = flow.is_waited_for().then(|| {
            let (answer, result) = oneshot::channel();
            flow.wait_for(result);
            answer
        });
        let Some(store) = self.log.store() else {
            self.state
                .kept(Err(NotKept::Closed), (&payload, origin), now, answer);
            return rest;
        };
        store.append(Append {
            tag: Signal::Metrics as u8,
            items,
            payload: to_bytes(&batch.payload, clock::wall(now)),
            purpose: Purpose::State,
            done: Some(Done(Box::new(move |kept| {
                state.kept(kept, (&payload, origin), now, answer);
            }))),
            share,
        });
        rest
    }

    /// The owner number of its admissions.
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
    // Concatenated requests are one request, because their repeated fields add up.
    let parts = encoded.into_iter().flat_map(|encoded| encoded.parts);
    std::iter::once(head.into())
        .chain(parts.map(|part| part.bytes))
        .collect()
}

impl JournaledState {
    /// Completes a batch after its write, or after a failure.
    fn kept(
        &self,
        kept: Result<(), NotKept>,
        (payload, origin): (&Payload, PointOrigin),
        now: UnixNanos,
        answer: Option<oneshot::Sender<PushAnswer>>,
    ) {
        let mut flow = Flow::default();
        let answered = match (kept, &answer) {
            // Nothing may change the state after its last snapshot.
            (Err(why @ NotKept::Closed), _) => Err(self.refuse(payload, Reason::Shutdown, &why)),
            // The sender still has the data and will retry.
            (Err(why), Some(_)) => Err(self.refuse(payload, Reason::StorageFailed, &why)),
            // Without a promise to store, data stays in memory if the disk fails and memory allows.
            (Ok(()), _) | (Err(_), None) => {
                // The part that passes has passed already.
                self.absorber.take(payload, now, origin, &self.ledger, &mut flow);
                Ok(flow.outcome())
            }
        };
        // The receiver may have stopped waiting, so an error does not matter.
        let _ = answer.map(|answer| answer.send(answered));
    }

    /// Counts the part of a batch that the rules take as dropped.
    fn refuse(&self, payload: &Payload, reason: Reason, why: &NotKept) -> Refused {
        let items = payload.items() - self.absorber.rest(payload).map_or(0, |rest| rest.items());
        self.ledger.drop_items(reason, items);
        let owner = self.absorber.table.owner();
        Refused::busy(format!("{owner}: storage: {why}"), RETRY_AFTER)
    }

    /// Absorbs a batch of a previous run without counting it again. `None`: another version wrote it.
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
        let absorber = &self.absorber;
        let origin = PointOrigin::default();
        absorber.take(&payload, now, origin, &Ledger::default(), &mut Flow::default());
        source
            .into_iter()
            .for_each(|source| absorber.table.let_go(source));
        Some(())
    }
}

impl State for JournaledState {
    /// Shows no data that a kill could revoke, because a counter that falls looks like a restart.
    fn joins(&self) -> Joins {
        Joins::WhenKept
    }

    fn restore(&self, snapshot: &[u8]) {
        let component = &**self.absorber.table.owner();
        match self.absorber.table.restore(snapshot) {
            Some(restored) => info!(
                component,
                series = restored.series,
                streams = restored.streams,
                outdated = restored.outdated,
                "a snapshot is restored"
            ),
            None => warn!(
                component,
                "the snapshot has another version: its contents can't be used"
            ),
        }
    }

    fn replay(&self, payload: &[u8]) {
        if self.take_again(payload).is_none() {
            let component = &**self.absorber.table.owner();
            warn!(component, "a stored batch has another version and is ignored");
        }
    }

    fn may_save(&self) -> bool {
        self.opened_in.is_over()
    }

    fn save(&self, _: &mut dyn FnMut()) -> Saving {
        // This is the log's thread, the only one that absorbs data.
        let frozen = self.absorber.table.freeze();
        Box::new(move |to| frozen.write(to))
    }
}
