// SPDX-License-Identifier: Apache-2.0

//! Slow batches, for observers that trace them. Without observers, nothing is timed.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

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
    /// The span exporter, and a page with a list.
    observers: [OnceLock<(Duration, Box<dyn Observer>)>; 2],
}

impl Slowness {
    /// Adds an observer of stages that take at least `threshold`. Only the first two calls have an effect.
    pub fn observe(&self, threshold: Duration, observer: Box<dyn Observer>) {
        let mut observer = Some((threshold, observer));
        for place in &self.observers {
            if let Some(next) = observer.take() {
                observer = place.set(next).err();
            }
        }
    }

    /// The current time, if there is an observer.
    pub fn start(&self) -> Option<Instant> {
        self.observers[0].get().map(|_| Instant::now())
    }

    /// Reports a stage that began at `started`, if it was slow. `describe` gets `started` and the current time.
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
