// SPDX-License-Identifier: Apache-2.0

//! Queues of queries: each kind of query has its own places, so that heavy ones never delay the others. Within a
//! queue, clients take turns, so a client with many queries waits only for itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_promql::Patience;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::component::account::SenderKey;
use crate::component::worker::in_background;
use crate::component::{Account, Held};
use crate::net::pages::MAX_CONNECTIONS;
use crate::net::shares::{Most, NoShare, Share, Shares};

/// The limit of concurrent queries over a range, a subquery or every series.
pub(super) const HEAVY: usize = 2;

/// Queries of the present, at a time.
const LIGHT: usize = 2;

/// Queries of autoscalers, at a time.
const SCALERS: usize = 2;

/// Requests that may wait for a place of a queue. A dashboard asks some 30 queries at once.
const WAITING: Most = Most {
    of_all: 256,
    of_one: 128,
};

/// Readers that keep a connection and wait for composites to change: half of the connections that the server has.
const WATCHING: Most = Most {
    of_all: MAX_CONNECTIONS / 2,
    of_one: MAX_CONNECTIONS / 4,
};

/// Streams of gRPC: KEDA keeps one open for each object that it scales.
const FOLLOWING: Most = Most {
    of_all: 2048,
    of_one: 1024,
};

/// A stream of gRPC keeps so much of its request without a reservation: enough for a `Watch`, and for a trigger with 16
/// composites. Autoscalers come above the memory limit, too. All streams together are 64 MiB at most. A memory limit below
/// 1 GiB lowers both.
pub(super) const FREE_BYTES: usize = 32 << 10;

/// A stream keeps so much without a reservation under any memory limit.
const LEAST_FREE_BYTES: usize = 8 << 10;

/// The most bytes that all of these streams keep beyond that. A memory limit below 1 GiB lowers it, too.
const KEPT_BYTES: usize = 64 << 20;

/// The divisor of the memory limit that gives the lower value.
const KEPT_SHARE: usize = 16;

/// Streams of autoscalers that compute their value, at a time.
const STREAMS: usize = 2;

/// A place of a reader that keeps its connection or stream.
pub(super) type ConnectionShare = Share;

/// The memory of what a stream keeps of its request, until the drop.
#[derive(Debug)]
pub(super) struct RequestShare {
    _share: Share,
    _held: Held,
}

/// A kind of query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryKind {
    /// A query over a range, a subquery or every series.
    Heavy,
    /// A query of the current values of its series.
    Light,
    /// An autoscaler asks.
    Scaler,
    /// The stream of an autoscaler asks again and again.
    Stream,
}

/// The queues of all kinds.
pub(super) struct QueryQueues {
    /// The component that counts refused queries.
    component: Arc<str>,
    heavy: QueryQueue,
    light: QueryQueue,
    scalers: QueryQueue,
    streams: QueryQueue,
    /// The time limit of a query, including its time in the queue.
    timeout: Duration,
    /// Queries that are not heavy and have no answer yet.
    urgent: Arc<AtomicUsize>,
    watching: Arc<Shares>,
    following: Arc<Shares>,
    /// Bytes that streams of gRPC keep of their requests.
    kept: Arc<Shares>,
}

/// A query that heavy ones let pass.
struct Urgent(Arc<AtomicUsize>);

impl Drop for Urgent {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

struct QueryQueue {
    places: Arc<Semaphore>,
    /// The most waiting queries.
    most: Most,
    waiting: Arc<Shares>,
    turns: Mutex<HashMap<ClientKey, InTurn>>,
}

/// A client. All clients that the gateway can't identify count as one.
type ClientKey = Option<SenderKey>;

/// The queries of a client that wait.
struct InTurn {
    waiting: usize,
    /// The first of them has it while it waits for a place.
    turn: Arc<Semaphore>,
}

/// The reason why a query is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotComputed {
    /// Too many queries wait.
    #[error("{0} queries already wait: try again later")]
    Crowded(usize),
    /// Too many queries of the same client wait.
    #[error("{0} queries of this client already wait: try again later")]
    CrowdedByClient(usize),
    /// Too many readers wait for changes.
    #[error("{0} readers already wait for changes: try again later")]
    Watched(usize),
    /// Too many readers of the same client wait for changes.
    #[error("{0} readers of this client already wait for changes: try again later")]
    WatchedByClient(usize),
    /// A watch keeps much of its request, and memory is short.
    #[error("this watch needs more memory than is free: name fewer labels or signals, or try again later")]
    WatchMemory,
    /// The query is heavy, and memory is short.
    #[error(
        "this query needs more memory than is free: ask for a shorter range or fewer series, or try again later"
    )]
    Memory,
    /// The query exceeded its time limit.
    #[error("the query exceeded its time limit")]
    Timeout,
    /// The query panicked.
    #[error("the query failed because of a bug: report it with the log of the gateway")]
    Bug,
}

impl NotComputed {
    /// The reason, as the counter of refused queries names it.
    const fn name(&self) -> &'static str {
        match self {
            Self::Crowded(_) => "waiting",
            Self::CrowdedByClient(_) => "client_waiting",
            Self::Watched(_) => "watching",
            Self::WatchedByClient(_) => "client_watching",
            Self::Memory | Self::WatchMemory => "memory",
            Self::Timeout => "timeout",
            Self::Bug => "bug",
        }
    }
}

impl QueryQueues {
    pub(super) fn of(component: &Arc<str>, timeout: Duration) -> Self {
        Self {
            component: component.clone(),
            heavy: QueryQueue::new(HEAVY, WAITING),
            light: QueryQueue::new(LIGHT, WAITING),
            scalers: QueryQueue::new(SCALERS, WAITING),
            // Each stream asks one query at a time.
            streams: QueryQueue::new(STREAMS, FOLLOWING),
            timeout,
            urgent: Arc::default(),
            watching: Arc::default(),
            following: Arc::default(),
            kept: Arc::default(),
        }
    }

    /// Counts a refused query.
    pub(super) fn refused(&self, why: NotComputed) -> NotComputed {
        metrics::counter!(
            "tidegate_queries_refused_total",
            "component" => self.component.clone(),
            "reason" => why.name()
        )
        .increment(1);
        why
    }

    /// Does the work in the background when a place of its kind is free. When the caller stops waiting, so does the
    /// patience, by which the work ends soon; its place is free only then.
    pub(super) async fn compute<T: Send + 'static>(
        &self,
        kind: QueryKind,
        client: ClientKey,
        patience: Patience,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotComputed> {
        let queue = match kind {
            QueryKind::Heavy => &self.heavy,
            QueryKind::Light => &self.light,
            QueryKind::Scaler => &self.scalers,
            QueryKind::Stream => &self.streams,
        };
        let _waits = WhoWaits(patience);
        let urgent = (kind != QueryKind::Heavy).then(|| {
            self.urgent.fetch_add(1, Relaxed);
            Urgent(self.urgent.clone())
        });
        let place = queue.enter(client).await.map_err(|why| self.refused(why))?;
        if kind == QueryKind::Heavy {
            self.let_pass().await;
        }
        let computed = in_background(move || {
            let _until_done = (place, urgent);
            work()
        });
        computed.await.map_err(|_| self.refused(NotComputed::Bug))
    }

    /// Does work that ends soon in the background, as [`QueryQueues::compute`] does, within the time of a query.
    pub(super) async fn compute_in_time<T: Send + 'static>(
        &self,
        kind: QueryKind,
        client: ClientKey,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotComputed> {
        let computed = self.compute(kind, client, Patience::default(), work);
        let computed = tokio::time::timeout(self.timeout, computed).await;
        computed.unwrap_or_else(|_| Err(self.refused(NotComputed::Timeout)))
    }

    /// The place of a reader that waits for changes on a connection of its own, until it is dropped.
    pub(super) fn watch(&self, client: ClientKey) -> Result<Arc<ConnectionShare>, NotComputed> {
        self.take_share(&self.watching, client, WATCHING)
    }

    /// The place of a stream of gRPC, which has its connection together with others, until it is dropped.
    pub(super) fn follow(&self, client: ClientKey) -> Result<Arc<ConnectionShare>, NotComputed> {
        self.take_share(&self.following, client, FOLLOWING)
    }

    /// The memory of a stream of gRPC that keeps `bytes` of its request; `None`: so few need no reservation.
    pub(super) fn keep(
        &self,
        client: ClientKey,
        bytes: usize,
        memory: &Arc<Account>,
    ) -> Result<Option<RequestShare>, NotComputed> {
        let part = memory.limit() / KEPT_SHARE;
        let free = FREE_BYTES.min(part / FOLLOWING.of_all);
        if bytes <= free.max(LEAST_FREE_BYTES) {
            return Ok(None);
        }
        let of_all = KEPT_BYTES.min(part);
        let most = Most {
            of_all,
            of_one: of_all / 2,
        };
        let Ok(share) = self.kept.take(bytes, client, most) else {
            return Err(self.refused(NotComputed::WatchMemory));
        };
        let mut held = Held::new(memory.clone()).of(client);
        if held.try_grow_quietly(bytes).is_err() {
            return Err(self.refused(NotComputed::WatchMemory));
        }
        held.fill(bytes);
        Ok(Some(RequestShare {
            _share: share,
            _held: held,
        }))
    }

    fn take_share(
        &self,
        of: &Arc<Shares>,
        client: ClientKey,
        most: Most,
    ) -> Result<Arc<ConnectionShare>, NotComputed> {
        let place = of.take(1, client, most).map_err(|why| {
            self.refused(match why {
                NoShare::Full => NotComputed::Watched(most.of_all),
                NoShare::OfSender => NotComputed::WatchedByClient(most.of_one),
            })
        })?;
        Ok(Arc::new(place))
    }

    /// Waits a little for those that are not heavy: all queries need the same lock, and a heavy one holds it for long.
    async fn let_pass(&self) {
        const LOOK_EVERY: Duration = Duration::from_millis(2);
        const LOOKS: usize = 50;
        for _ in 0..LOOKS {
            if self.urgent.load(Relaxed) == 0 {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    #[cfg(test)]
    pub(super) async fn occupy(&self, kind: QueryKind) -> OwnedSemaphorePermit {
        let (queue, places) = match kind {
            QueryKind::Heavy => (&self.heavy, HEAVY),
            QueryKind::Light => (&self.light, LIGHT),
            QueryKind::Scaler => (&self.scalers, SCALERS),
            QueryKind::Stream => (&self.streams, STREAMS),
        };
        let places = u32::try_from(places).unwrap();
        queue.places.clone().acquire_many_owned(places).await.unwrap()
    }
}

/// Cancels the patience on drop.
struct WhoWaits(Patience);

impl Drop for WhoWaits {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// A query that waits for the turn of its client, or has it.
struct InLine<'a> {
    queue: &'a QueryQueue,
    client: ClientKey,
    turn: Arc<Semaphore>,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let mut turns = self.queue.turns.lock();
        if let Some(in_turn) = turns.get_mut(&self.client) {
            in_turn.waiting -= 1;
            if in_turn.waiting == 0 {
                turns.remove(&self.client);
            }
        }
    }
}

impl QueryQueue {
    fn new(places: usize, most: Most) -> Self {
        Self {
            places: Arc::new(Semaphore::new(places)),
            most,
            waiting: Arc::default(),
            turns: Mutex::default(),
        }
    }

    /// One query of each client waits for a place, the others of the client for that one.
    async fn enter(&self, client: ClientKey) -> Result<OwnedSemaphorePermit, NotComputed> {
        let _waits = self.waiting.take(1, client, self.most).map_err(|why| match why {
            NoShare::Full => NotComputed::Crowded(self.most.of_all),
            NoShare::OfSender => NotComputed::CrowdedByClient(self.most.of_one),
        })?;
        let waiting = self.wait_for_turn(client);
        // Neither semaphore is ever closed.
        let _is_next = waiting.turn.acquire().await;
        let place = self.places.clone().acquire_owned().await;
        place.map_err(|_| NotComputed::Crowded(self.most.of_all))
    }

    fn wait_for_turn(&self, client: ClientKey) -> InLine<'_> {
        let mut turns = self.turns.lock();
        let in_turn = turns.entry(client).or_insert_with(|| InTurn {
            waiting: 0,
            turn: Arc::new(Semaphore::new(1)),
        });
        in_turn.waiting += 1;
        InLine {
            queue: self,
            client,
            turn: in_turn.turn.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
