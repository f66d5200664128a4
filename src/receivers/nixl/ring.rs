// SPDX-License-Identifier: Apache-2.0

//! One ring: drained into batches of events, with its metrics.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::{Attributes, Events, Lease, Scope, Source, SourceId, Values};
use tidegate_ring::{Batch as Columns, Error, KINDS, Mode, Options, Poll, Reader, Reset};

use super::kinds::{Kinds, Selection};
use super::left::{LeftSource, LeftSources};
use super::metrics::{Names, RingMetrics};
use super::poll_interval::PollInterval;
use crate::batch::Batch;
use crate::component::{Entry, unix_now};
use crate::receivers::left::Left;
use crate::receivers::pods;
use crate::receivers::printable::printable_path;

/// The retry delay for refused events. The ring itself is the queue meanwhile.
const REFUSED_RETRY: Duration = Duration::from_millis(20);
/// A ring whose lock another consumer holds is asked again this often.
const LOCK_RETRY: Duration = Duration::from_secs(1);

/// A ring that could not be polled for this long no longer counts as alive. NIXL keeps no heartbeat, so a readable
/// ring is the only sign of its agent.
const LEASE: Duration = Duration::from_secs(5);

/// Events a batch at most: a whole ring of NIXL's default size, whose columns and slots stay in a core's own cache on
/// the way from ring to table.
const MAX_EVENTS: usize = 4_096;

/// The memory of a ring in bytes: its names and kinds, its metrics, and the mapped page.
pub(super) const BYTES: usize = 32 << 10;

/// The memory of a name that no other ring has, in bytes. A ring may have 256 of them.
const NAME_BYTES: usize = 512;

/// The parts of the receiver that the drain of a ring needs.
pub(super) struct DrainContext {
    /// `nixl/node`.
    pub(super) receiver: Arc<str>,
    pub(super) entry: Entry,
    pub(super) selection: Selection,
    pub(super) hostname: Arc<str>,
    pub(super) names: Arc<Names>,
    /// The sources of the receivers before this one, until the first look at the directories.
    pub(super) before: Vec<Arc<Left<LeftSources>>>,
}

/// An open ring.
pub(super) struct Ring {
    reader: Reader,
    agent: Arc<str>,
    source: Arc<Source>,
    kinds: Kinds,
    pace: PollInterval,
    metrics: RingMetrics,
    next_lock: Instant,
    /// The time of the next poll.
    pub(super) due: Instant,
}

/// The result of a poll.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PollOutcome {
    /// Keep looking.
    Stays,
    /// The file is gone and everything in it was taken: forget the ring.
    Gone,
}

impl Ring {
    pub(super) fn open(
        path: &Path,
        consume: bool,
        poll: Duration,
        context: &DrainContext,
    ) -> Result<Self, Error> {
        let reader = Reader::open(
            path,
            Options {
                consume,
                max_events: MAX_EVENTS,
            },
        )?;
        let agent: Arc<str> = path.file_name().unwrap_or_default().to_string_lossy().into();
        let geometry = reader.geometry();
        tracing::info!(
            receiver = &*context.receiver,
            ring = %printable_path(path),
            version = geometry.layout.label(),
            capacity = geometry.capacity,
            owner_uid = reader.owner_uid(),
            mode = ?reader.mode(),
            "ring opened"
        );
        let mut metrics = RingMetrics::new(&context.receiver, &agent, &context.names);
        metrics.opened(&reader);
        let new = source(path, &agent, &context.hostname);
        let take = |left: &mut LeftSources| left.take(path, reader.id(), &new);
        let left = context
            .before
            .iter()
            .find_map(|before| before.take(take).flatten());
        let now = Instant::now();
        Ok(Self {
            source: left.unwrap_or_else(|| Arc::new(new)),
            kinds: Kinds::new(),
            pace: PollInterval::new(poll),
            next_lock: now + LOCK_RETRY,
            due: now,
            reader,
            agent,
            metrics,
        })
    }

    /// Drains the ring and determines the next poll.
    pub(super) fn poll(
        &mut self,
        columns: &mut Columns,
        context: &DrainContext,
        now: Instant,
    ) -> PollOutcome {
        self.ask_for_lock(now);
        let poll = match self.reader.read(columns) {
            Ok(poll) => {
                self.source.lease.touch(unix_now());
                poll
            }
            Err(error) => {
                self.metrics.failed(&error);
                self.due = now + LOCK_RETRY;
                return PollOutcome::Stays;
            }
        };
        let (mut fill, mut more) = (0.0, false);
        match poll {
            Poll::Events(found) => {
                fill = found.readable as f64 / found.capacity as f64;
                more = found.readable > columns.len() as u64;
                self.metrics.filled(fill, found.full);
                if found.full {
                    self.source.lease.lost(unix_now());
                }
                if !self.hand_on(columns, context) {
                    // The delay of the refusal is ignored: asking costs almost nothing, and the ring fills
                    // meanwhile.
                    self.due = now + REFUSED_RETRY;
                    return PollOutcome::Stays;
                }
            }
            Poll::Idle => self.metrics.filled(0.0, false),
            Poll::Settling | Poll::Unreadable(_) => {}
            Poll::Reset { reason, lost } => self.reset(reason, lost),
            Poll::Gone(reason) => {
                let receiver = &*context.receiver;
                tracing::info!(receiver, ring = %printable_path(self.reader.path()), reason = reason.reason(), "ring closed");
                self.metrics.closed(reason);
                self.source.lease.end();
                return PollOutcome::Gone;
            }
        }
        let pause = self.pace.after(fill);
        // The other rings have their turn before the rest of this one.
        self.due = if more { now } else { now + pause };
        PollOutcome::Stays
    }

    /// Pushes the columns, and removes them from the ring after acceptance. Returns false after a refusal.
    fn hand_on(&mut self, columns: &mut Columns, context: &DrainContext) -> bool {
        self.kinds.follow(self.reader.names(), &context.selection);
        let taken = columns.len();
        let events = self.events(columns, &context.selection);
        let wanted = events.len();
        if wanted > 0
            && let Err(refused) = context.entry.push(Batch::new(events))
        {
            if refused.retry_after.is_some() {
                return false;
            }
            self.metrics.rejected(&refused.reason, wanted);
        }
        self.reader.commit();
        self.metrics.took(taken, taken - wanted);
        true
    }

    /// Makes the columns' contents a batch.
    fn events(&self, columns: &mut Columns, selection: &Selection) -> Events {
        let to_nanos = |us: &u64| us.saturating_mul(1_000);
        let stamped = !columns.timestamps_us.is_empty();
        let mut events = Events {
            source: self.source.clone(),
            schema: self.kinds.schema.clone(),
            kinds: std::mem::take(&mut columns.kinds),
            values: Values::U64(std::mem::take(&mut columns.values)),
            times: stamped.then(|| columns.timestamps_us.iter().map(to_nanos).collect()),
            weights: None,
            observed: unix_now(),
        };
        if !selection.is_all() {
            self.select(&mut events);
        }
        events
    }

    /// Drops what `categories` and `events` don't name.
    fn select(&self, events: &mut Events) {
        let keep: Vec<bool> = events.kinds.iter().map(|kind| self.kinds.wants(*kind)).collect();
        retain(&mut events.kinds, &keep);
        if let Values::U64(values) = &mut events.values {
            retain(values, &keep);
        }
        if let Some(times) = &mut events.times {
            retain(times, &keep);
        }
    }

    fn reset(&mut self, reason: Reset, lost: u64) {
        tracing::warn!(
            receiver = self.metrics.receiver(),
            ring = %printable_path(self.reader.path()),
            reason = reason.reason(),
            lost,
            "the ring has changed; reading continues from its new state"
        );
        if lost > 0 {
            self.source.lease.lost(unix_now());
        }
        self.metrics.reset(reason, lost);
        self.metrics.opened(&self.reader);
    }

    fn ask_for_lock(&mut self, now: Instant) {
        if self.reader.mode() != Mode::PeekLocked || now < self.next_lock {
            return;
        }
        self.next_lock = now + LOCK_RETRY;
        if let Ok(true) = self.reader.try_consume() {
            let receiver = self.metrics.receiver();
            tracing::info!(receiver, ring = %printable_path(self.reader.path()), "the other consumer is gone: consuming now");
            self.metrics.opened(&self.reader);
        }
    }

    /// The approximate memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let own_names = self.reader.names().len().saturating_sub(KINDS.len());
        BYTES + own_names * NAME_BYTES
    }

    /// The source, for the next receiver.
    pub(super) fn into_left(self) -> LeftSource {
        // A ring's own names are numbered in the order in which they come.
        let is_plain = self.reader.names().len() == KINDS.len();
        LeftSource {
            file: is_plain.then(|| self.reader.id()),
            source: self.source,
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.reader.path()
    }

    pub(super) fn agent(&self) -> &str {
        &self.agent
    }
}

fn retain<T: Copy>(column: &mut Vec<T>, keep: &[bool]) {
    let mut kept = keep.iter();
    column.retain(|_| kept.next().copied().unwrap_or(false));
}

/// Only NIXL's own labels, so that series equal those of its own exporter. The resource has the pod.
fn source(path: &Path, agent: &str, hostname: &str) -> Source {
    Source {
        id: SourceId::next(),
        resource: pods::resource_of(path),
        scope: Arc::new(Scope::default()),
        attributes: [("agent_name", agent), ("hostname", hostname)]
            .into_iter()
            .collect::<Attributes>(),
        lease: Arc::new(Lease::new(LEASE, unix_now())),
    }
}
