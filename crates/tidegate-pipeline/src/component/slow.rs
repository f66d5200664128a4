// SPDX-License-Identifier: Apache-2.0

//! Slow batches, for observers that trace them. Without observers, nothing is timed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::batch::Signal;

/// The stage that took long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A push of a receiver through the graph, until every destination has taken the batch or one has refused it.
    Push,
    /// The time from the arrival of a destination's oldest batch to the end of an attempt to deliver it.
    Deliver,
}

/// A batch that took longer than the threshold.
#[derive(Clone, Debug)]
pub struct Slow {
    /// The path of the component: `receivers::otlp`, `exporters::otlphttp/vendor`.
    pub component: Arc<str>,
    /// The slow stage.
    pub stage: Stage,
    /// The signal of the batch.
    pub signal: Signal,
    /// The number of points, spans or log records.
    pub items: usize,
    /// The start of the stage.
    pub started: Instant,
    /// The start of the attempt; `None` without an attempt.
    pub attempted: Option<Instant>,
    /// The end of the stage.
    pub ended: Instant,
    /// The error, if the stage failed.
    pub error: Option<String>,
}

/// Receives slow batches. The data path calls it, so it must not block.
pub trait Observer: Send + Sync {
    /// Receives one slow batch.
    fn slow(&self, slow: Slow);
}

/// The observers of slow batches, with their thresholds.
#[derive(Default)]
pub struct Slowness {
    has_observers: AtomicBool,
    observers: ArcSwap<Observers>,
    /// Held during a change, so that `has_observers` always agrees with the list after it.
    changing: Mutex<()>,
}

type Observers = Vec<(Duration, Arc<dyn Observer>)>;

impl Slowness {
    /// Adds an observer of stages that take at least `threshold`.
    pub fn observe(&self, threshold: Duration, observer: Arc<dyn Observer>) {
        self.change(|all| all.push((threshold, observer)));
    }

    /// Removes an observer.
    pub fn forget(&self, observer: &Arc<dyn Observer>) {
        self.change(|all| all.retain(|(_, one)| !Arc::ptr_eq(one, observer)));
    }

    fn change(&self, change: impl FnOnce(&mut Observers)) {
        let _one_at_a_time = self.changing.lock();
        let mut all = Observers::clone(&self.observers.load());
        change(&mut all);
        let has_observers = !all.is_empty();
        self.observers.store(Arc::new(all));
        self.has_observers.store(has_observers, Relaxed);
    }

    /// The current time, if there is an observer.
    pub fn start(&self) -> Option<Instant> {
        self.has_observers.load(Relaxed).then(Instant::now)
    }

    /// Reports a stage that began at `started`, if it was slow. `describe` gets `started` and the current time.
    pub fn end(&self, started: Option<Instant>, describe: impl FnOnce(Instant, Instant) -> Slow) {
        let Some(started) = started else { return };
        let now = Instant::now();
        let took = now.saturating_duration_since(started);
        let observers = self.observers.load();
        let mut wanting = observers
            .iter()
            .filter(|(threshold, _)| took >= *threshold)
            .peekable();
        if wanting.peek().is_none() {
            return;
        }
        let slow = describe(started, now);
        wanting.for_each(|(_, observer)| observer.slow(slow.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Noted(Mutex<Vec<usize>>);

    impl Observer for Noted {
        fn slow(&self, slow: Slow) {
            self.0.lock().push(slow.items);
        }
    }

    #[test]
    fn an_observer_takes_the_place_of_one_that_is_forgotten() {
        let slowness = Slowness::default();
        assert_eq!(slowness.start(), None);
        let end = |items| {
            slowness.end(slowness.start(), |started, ended| Slow {
                component: "receivers::otlp".into(),
                stage: Stage::Push,
                signal: Signal::Logs,
                items,
                started,
                attempted: None,
                ended,
                error: None,
            });
        };
        let [first, second, distant] = [(); 3].map(|()| Arc::new(Noted::default()));
        let of = |noted: &Arc<Noted>| noted.0.lock().clone();
        slowness.observe(Duration::from_hours(1), distant.clone());
        let observer: Arc<dyn Observer> = first.clone();
        slowness.observe(Duration::ZERO, observer.clone());
        end(1);
        slowness.forget(&observer);
        slowness.observe(Duration::ZERO, second.clone());
        end(2);
        assert_eq!(
            (of(&first), of(&second), of(&distant)),
            (vec![1], vec![2], Vec::new())
        );
        let others: [Arc<dyn Observer>; 2] = [second, distant];
        for one in &others {
            slowness.forget(one);
        }
        assert_eq!(slowness.start(), None, "nothing is timed without observers");
    }
}
