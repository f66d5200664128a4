//! Lanes of queries: each kind of query has places of its own, so that heavy ones never hold up the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tidegate_engine::query::Patience;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::component::worker::in_background;
use crate::net::pages::MAX_CONNECTIONS;

/// Queries that look at a range, a subquery or every series, at a time.
pub(super) const HEAVY: usize = 2;

/// Queries of the present, at a time.
const LIGHT: usize = 2;

/// Queries of autoscalers, at a time.
const SCALERS: usize = 2;

/// Requests that may wait for a place of a lane. A dashboard asks some 30 queries at once.
const MAX_WAITING: usize = 128;

/// Readers that keep a connection and wait for composites to change: half of the connections that the server has.
const MAX_WATCHING: usize = MAX_CONNECTIONS / 2;

/// A kind of query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It looks at a range, at a subquery or at every series.
    Heavy,
    /// It looks at the present of what it asks for.
    Light,
    /// An autoscaler asks.
    Scaler,
}

/// The lanes of all kinds.
pub(super) struct Lanes {
    heavy: Lane,
    light: Lane,
    scalers: Lane,
    /// Queries that are not heavy and have no answer yet.
    urgent: Arc<AtomicUsize>,
    watching: Arc<Semaphore>,
}

/// A query that heavy ones let pass.
struct Urgent(Arc<AtomicUsize>);

impl Drop for Urgent {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

struct Lane {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// Why a query is not computed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotComputed {
    /// Too many queries wait.
    #[error("{MAX_WAITING} queries wait already: try again later")]
    Crowded,
    /// Too many readers wait for changes.
    #[error("{MAX_WATCHING} readers wait for changes already: try again later")]
    Watched,
    /// It panicked.
    #[error("a bug: see the log")]
    Bug,
}

impl Default for Lanes {
    fn default() -> Self {
        Self {
            heavy: Lane::new(HEAVY),
            light: Lane::new(LIGHT),
            scalers: Lane::new(SCALERS),
            urgent: Arc::default(),
            watching: Arc::new(Semaphore::new(MAX_WATCHING)),
        }
    }
}

impl Lanes {
    /// Does the work in the background when a place of its kind is free. When the caller stops waiting, so does the
    /// patience, by which the work ends soon; its place is free only then.
    pub(super) async fn compute<T: Send + 'static>(
        &self,
        kind: Kind,
        patience: Patience,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotComputed> {
        let lane = match kind {
            Kind::Heavy => &self.heavy,
            Kind::Light => &self.light,
            Kind::Scaler => &self.scalers,
        };
        let _waits = WhoWaits(patience);
        let urgent = (kind != Kind::Heavy).then(|| {
            self.urgent.fetch_add(1, Relaxed);
            Urgent(self.urgent.clone())
        });
        let place = lane.enter().await?;
        if kind == Kind::Heavy {
            self.let_pass().await;
        }
        let computed = in_background(move || {
            let _until_done = (place, urgent);
            work()
        });
        computed.await.map_err(|_| NotComputed::Bug)
    }

    /// The place of a reader that waits for changes on a connection of its own, until it is dropped.
    pub(super) fn watch(&self) -> Result<Arc<OwnedSemaphorePermit>, NotComputed> {
        let place = self.watching.clone().try_acquire_owned();
        place.map(Arc::new).map_err(|_| NotComputed::Watched)
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
    pub(super) async fn occupy(&self, kind: Kind) -> OwnedSemaphorePermit {
        let (lane, places) = match kind {
            Kind::Heavy => (&self.heavy, HEAVY),
            Kind::Light => (&self.light, LIGHT),
            Kind::Scaler => (&self.scalers, SCALERS),
        };
        let places = u32::try_from(places).unwrap();
        lane.places.clone().acquire_many_owned(places).await.unwrap()
    }
}

/// Gives the patience up when it goes.
struct WhoWaits(Patience);

impl Drop for WhoWaits {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

impl Lane {
    fn new(places: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(places)),
            waiting: AtomicUsize::new(0),
        }
    }

    async fn enter(&self) -> Result<OwnedSemaphorePermit, NotComputed> {
        struct Waits<'a>(&'a AtomicUsize);
        impl Drop for Waits<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Relaxed);
            }
        }
        let before = self.waiting.fetch_add(1, Relaxed);
        let _waits = Waits(&self.waiting);
        if before >= MAX_WAITING {
            return Err(NotComputed::Crowded);
        }
        // Nobody closes it.
        let place = self.places.clone().acquire_owned().await;
        place.map_err(|_| NotComputed::Crowded)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tidegate_engine::query::QueryError;
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn work_that_nobody_waits_for_ends_and_keeps_its_place_until_then() {
        let lanes = Lanes::default();
        let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..HEAVY {
            let patience = Patience::default();
            let (watched, ended) = (patience.clone(), ended.clone());
            let work = move || {
                let begun = Instant::now();
                while watched.check().is_ok() && begun.elapsed() < SOON {
                    std::thread::sleep(Duration::from_millis(1));
                }
                // Whoever asks next must wait for this.
                std::thread::sleep(Duration::from_millis(50));
                ended.send(watched.check().unwrap_err()).unwrap();
            };
            let computed = lanes.compute(Kind::Heavy, patience, work);
            assert!(timeout(Duration::from_millis(20), computed).await.is_err());
        }
        assert!(ends.try_recv().is_err(), "it still works");
        let next = lanes.compute(Kind::Heavy, Patience::default(), || ());
        timeout(SOON, next).await.expect("a place").unwrap();
        assert_eq!(ends.recv().await, Some(QueryError::Canceled));
    }

    #[tokio::test]
    async fn so_many_wait_and_no_more() {
        let lanes = Arc::new(Lanes::default());
        let heavy = lanes.occupy(Kind::Heavy).await;
        let ask = |kind: Kind| {
            let lanes = lanes.clone();
            tokio::spawn(async move { lanes.compute(kind, Patience::default(), || 7).await })
        };
        let waiting: Vec<_> = (0..MAX_WAITING).map(|_| ask(Kind::Heavy)).collect();
        while lanes.heavy.waiting.load(Relaxed) < MAX_WAITING {
            tokio::task::yield_now().await;
        }
        assert_eq!(ask(Kind::Heavy).await.unwrap(), Err(NotComputed::Crowded));
        for kind in [Kind::Light, Kind::Scaler] {
            assert_eq!(ask(kind).await.unwrap(), Ok(7), "{kind:?}");
        }
        drop(heavy);
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap(), Ok(7));
        }
        assert_eq!(lanes.heavy.waiting.load(Relaxed), 0);
    }
}
