// SPDX-License-Identifier: Apache-2.0

//! Emission of state: processors with a table push its contents on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_engine::{Table, UnixNanos};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::batch::{Batch, snapshot};
use crate::component::unix_now;
use crate::component::worker::in_background;
use crate::component::{Consumer, Flow, Ledger};

/// The interval of searches for expired state.
const EXPIRY_CHECK: Duration = Duration::from_secs(1);

/// Hands on the contents of a table.
pub(super) struct Emitter {
    pub(super) table: Arc<Table>,
    pub(super) next: Arc<dyn Consumer>,
    pub(super) ledger: Arc<Ledger>,
}

impl Emitter {
    /// Hands on the current contents of the table. A refused batch is not lost, because the next snapshot contains
    /// it.
    pub(super) fn emit(&self, now: UnixNanos) {
        snapshot(&self.table, now).for_each(|batch| self.push(batch));
    }

    fn push(&self, batch: Batch) {
        let mut flow = Flow::default();
        if self.next.admit(&batch, &mut flow).is_ok() {
            self.ledger.make(batch.items());
            self.next.consume(batch, &mut flow);
        }
    }
}

/// Runs work in proportion to the number of series, on a background thread that blocks no runtime thread.
async fn apart<T: Send + Sync + 'static>(with: Arc<T>, work: fn(&T, UnixNanos)) {
    // A panic is in the log. The next round continues.
    let _ = in_background(move || work(&with, unix_now())).await;
}

/// A task that emits at an interval and expires state. `stop` ends it.
#[derive(Default)]
pub(super) struct Ticker(Mutex<Option<(watch::Sender<bool>, JoinHandle<()>)>>);

impl Ticker {
    /// Starts the task, which calls `expire` about once a second.
    pub(super) fn start(
        &self,
        emitter: Arc<Emitter>,
        interval: Duration,
        expire: impl Fn(UnixNanos) + Send + Sync + 'static,
    ) {
        let (stop, mut stopped) = watch::channel(false);
        let expire = Arc::new(expire);
        let task = tokio::spawn(async move {
            let mut emissions = tokio::time::interval(interval);
            let mut checks = tokio::time::interval(EXPIRY_CHECK);
            emissions.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            checks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            // The first tick of an interval is immediate.
            emissions.tick().await;
            loop {
                tokio::select! {
                    _ = emissions.tick() => apart(emitter.clone(), Emitter::emit).await,
                    _ = checks.tick() => apart(expire.clone(), |expire, now| expire(now)).await,
                    _ = stopped.changed() => break,
                }
            }
            // Emits the data since the last interval.
            apart(emitter, Emitter::emit).await;
        });
        *self.0.lock() = Some((stop, task));
    }

    /// Stops the task after a last emission, by `deadline`.
    pub(super) async fn stop(&self, deadline: Instant) {
        let running = self.0.lock().take();
        let Some((stop, mut task)) = running else {
            return;
        };
        stop.send_replace(true);
        if tokio::time::timeout_at(deadline.into(), &mut task).await.is_err() {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_engine::{Data, Limits, Rule, Value};

    use super::*;
    use crate::component::Refused;
    use crate::processors::testing::point;

    /// On which threads it is handed points.
    #[derive(Clone)]
    struct Threads(watch::Sender<Vec<Option<String>>>);

    impl Threads {
        fn note(&self) {
            let name = std::thread::current().name().map(str::to_owned);
            self.0.send_modify(|all| all.push(name));
        }

        async fn are_of_the_background(&self) {
            let mut seen = self.0.subscribe();
            let seen = seen.wait_for(|all| !all.is_empty());
            let seen = tokio::time::timeout(Duration::from_secs(30), seen).await;
            let seen = seen.expect("in time").expect("never closed").clone();
            let is_of_background = |name: &Option<String>| name.as_deref() == Some("tidegate-background");
            assert!(seen.iter().all(is_of_background), "{seen:?}");
        }
    }

    impl Consumer for Threads {
        fn admit(&self, _: &Batch, _: &mut Flow) -> Result<(), Refused> {
            Ok(())
        }

        fn consume(&self, _: Batch, _: &mut Flow) {
            self.note();
        }
    }

    #[tokio::test]
    async fn what_takes_as_long_as_there_are_series_keeps_no_thread_of_the_runtime() {
        let table = Table::new("test", vec![Rule::newest()], Limits::default());
        table.observe(&point("temperature", Data::Gauge, &[], Value::Int(3)), unix_now());
        let (emitted, expired) = (
            Threads(watch::Sender::default()),
            Threads(watch::Sender::default()),
        );
        let emitter = Emitter {
            table: Arc::new(table),
            next: Arc::new(emitted.clone()),
            ledger: Arc::default(),
        };
        let (ticker, expire) = (Ticker::default(), expired.clone());
        ticker.start(Arc::new(emitter), Duration::from_millis(5), move |_| {
            expire.note();
        });
        emitted.are_of_the_background().await;
        expired.are_of_the_background().await;
        ticker.stop(Instant::now() + Duration::from_secs(30)).await;
    }
}
