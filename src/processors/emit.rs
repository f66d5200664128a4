//! What processors with a state share: telling readers about their table, and pushing on what it shows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_engine::{Data, Point, Reading, Table, UnixNanos, clock};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::batch::{Batch, Points};
use crate::component::unix_now;
use crate::component::worker::in_background;
use crate::component::{Consumer, Flow, Ledger};

/// Points a batch: large enough to share its costs, small enough to be queued whole.
const BATCH_POINTS: usize = 8192;

/// How often state is looked through for what has expired.
const EXPIRY_CHECK: Duration = Duration::from_secs(1);

/// Hands on what a table shows.
pub(super) struct Emitter {
    pub(super) table: Arc<Table>,
    pub(super) next: Arc<dyn Consumer>,
    pub(super) ledger: Arc<Ledger>,
}

impl Emitter {
    /// An empty batch by which readers of tables find this one.
    pub(super) fn announce(&self) {
        self.push(Vec::new());
    }

    /// Hands on everything that the table shows now. What is refused is not lost: the next snapshot contains it.
    pub(super) fn emit(&self, now: UnixNanos) {
        for points in snapshot(&self.table, now) {
            self.push(points);
        }
    }

    fn push(&self, points: Vec<Point>) {
        let items = points.len();
        let batch = Batch::new(Points {
            points: points.into(),
            table: Some(self.table.clone()),
        });
        let mut flow = Flow::default();
        if self.next.admit(&batch, &mut flow).is_ok() {
            self.ledger.make(items);
            self.next.consume(batch, &mut flow);
        }
    }
}

fn snapshot(table: &Table, now: UnixNanos) -> Vec<Vec<Point>> {
    let mut batches: Vec<Vec<Point>> = Vec::new();
    table.read(now, &mut |reading| {
        let full = batches.last().is_none_or(|batch| batch.len() >= BATCH_POINTS);
        if full {
            batches.push(Vec::new());
        }
        if let Some(batch) = batches.last_mut() {
            batch.push(point(reading, now));
        }
    });
    batches
}

fn point(reading: Reading<'_>, now: UnixNanos) -> Point {
    // A total is true until now, whenever it last grew; a gauge was true when it was measured.
    let time = match reading.series.metric.data {
        Data::Gauge => reading.time,
        _ => clock::wall(now).max(reading.time),
    };
    Point {
        series: reading.series.clone(),
        start: reading.start,
        time,
        value: reading.value.clone(),
        exemplars: reading.exemplars.to_vec(),
    }
}

/// Does what takes as long as there are series, where it keeps no thread of the runtime from those who wait for it.
async fn apart<T: Send + Sync + 'static>(with: Arc<T>, work: fn(&T, UnixNanos)) {
    // A panic has been printed; the next round is tried all the same.
    let _ = in_background(move || work(&with, unix_now())).await;
}

/// A task that emits at an interval and lets state expire. `stop` ends it.
#[derive(Default)]
pub(super) struct Ticker(Mutex<Option<(watch::Sender<bool>, JoinHandle<()>)>>);

impl Ticker {
    /// Starts it. `expire` is called about once a second.
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
            // The first tick of an interval comes at once.
            emissions.tick().await;
            loop {
                tokio::select! {
                    _ = emissions.tick() => apart(emitter.clone(), Emitter::emit).await,
                    _ = checks.tick() => apart(expire.clone(), |expire, now| expire(now)).await,
                    _ = stopped.changed() => break,
                }
            }
            // What came since the last interval.
            apart(emitter, Emitter::emit).await;
        });
        *self.0.lock() = Some((stop, task));
    }

    /// Stops it after a last emission, at the latest at `deadline`.
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
    use tidegate_engine::{Limits, Rule, Value};

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
            expire.note()
        });
        emitted.are_of_the_background().await;
        expired.are_of_the_background().await;
        ticker.stop(Instant::now() + Duration::from_secs(30)).await;
    }
}
