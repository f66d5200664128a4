//! Batches that took long, for anyone who traces them. Nothing is timed where nobody does.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::batch::Signal;

/// What took long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A receiver's push through the graph, until every destination had taken the batch or one refused it.
    Push,
    /// The way of a destination's oldest batch from its arrival in the gateway to the end of an attempt to deliver it.
    Deliver,
}

/// A batch that took longer than the threshold.
#[derive(Clone, Debug)]
pub struct Slow {
    /// `receivers::otlp`, `exporters::otlphttp/vendor`.
    pub component: Arc<str>,
    /// Which part of its way is meant.
    pub stage: Stage,
    /// What it carried.
    pub signal: Signal,
    /// How many points, spans or log records.
    pub items: usize,
    /// When the stage began.
    pub started: Instant,
    /// When the attempt began, where one was made.
    pub attempted: Option<Instant>,
    /// When it was over.
    pub ended: Instant,
    /// What went wrong, if anything.
    pub error: Option<String>,
}

/// Hears of what took long. Called on the data path: it must not block.
pub trait Observer: Send + Sync {
    /// Once a slow batch.
    fn slow(&self, slow: Slow);
}

/// Whether somebody wants to know, and from which duration on.
#[derive(Default)]
pub struct Slowness {
    /// Spans that are pushed, and a page that lists them.
    observers: [OnceLock<(Duration, Box<dyn Observer>)>; 2],
}

impl Slowness {
    /// Tells `observer` of what takes at least `threshold`, from now on; only the first two calls count.
    pub fn observe(&self, threshold: Duration, observer: Box<dyn Observer>) {
        let mut observer = Some((threshold, observer));
        for place in &self.observers {
            if let Some(next) = observer.take() {
                observer = place.set(next).err();
            }
        }
    }

    /// The time now, if somebody wants to know.
    pub fn start(&self) -> Option<Instant> {
        self.observers[0].get().map(|_| Instant::now())
    }

    /// Tells of what began at `started`, if it has taken long; `describe` gets `started` and the time now.
    pub fn end(&self, started: Option<Instant>, describe: impl FnOnce(Instant, Instant) -> Slow) {
        let Some(started) = started else { return };
        let now = Instant::now();
        let took = now.saturating_duration_since(started);
        let wants = self.observers.iter().filter_map(OnceLock::get);
        let Some(least) = wants.clone().map(|(threshold, _)| *threshold).min() else {
            return;
        };
        if took < least {
            return;
        }
        let slow = describe(started, now);
        wants
            .filter(|(threshold, _)| took >= *threshold)
            .for_each(|(_, observer)| observer.slow(slow.clone()));
    }
}
