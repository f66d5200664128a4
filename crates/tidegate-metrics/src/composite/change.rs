// SPDX-License-Identifier: Apache-2.0

//! Callbacks on plain instruments.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_engine::{Added, Direction, UnixNanos};

use super::live::owned_labels;
use super::series::{Watching, listen, update};
use super::thread::{self, Dispatch, Job, Subscription, Target};
use super::trigger::{Change, Trigger, TriggerState, When};
use super::{CompositeError, Snapshot};
use crate::handle::{Counter, FloatCounter, Gauge, Instrument, UpDownCounter};

/// An instrument with a callback.
struct Plain<H> {
    handle: H,
    labels: Vec<(String, String)>,
    trigger: Trigger,
    callback: Arc<dyn Fn(&Change) + Send + Sync>,
    range: Arc<Mutex<Option<(f64, f64)>>>,
    standing: Mutex<TriggerState>,
    _watching: Watching,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<H: Instrument> Plain<H> {
    /// `None`: a registry that keeps nothing.
    fn new(handle: &H, trigger: Trigger, callback: impl Fn(&Change) + Send + Sync + 'static) -> Option<Self> {
        let range: Arc<Mutex<Option<(f64, f64)>>> = Arc::default();
        let noted = range.clone();
        let note = move |_: UnixNanos, added: Option<&Added<'_>>| {
            if let Some(added) = added {
                let mut range = lock(&noted);
                let (min, max) = range.unwrap_or((f64::INFINITY, f64::NEG_INFINITY));
                *range = Some((min.min(added.min), max.max(added.max)));
            }
        };
        Some(Self {
            _watching: listen(handle, Box::new(note), true)?,
            labels: owned_labels(handle.info()?),
            handle: handle.clone(),
            trigger,
            callback: Arc::new(callback),
            range,
            standing: Mutex::default(),
        })
    }

    /// The extreme that matters to the trigger, and then the value itself: a peak between two looks is not missed.
    fn values(&self, value: f64) -> [Option<f64>; 2] {
        let range = lock(&self.range).take();
        // Of counters these are increases.
        let range = range.filter(|_| !self.is_counter());
        let extreme = range.and_then(|(min, max)| match self.trigger.when {
            When::Beyond(Direction::Above, _) => Some(max),
            When::Beyond(Direction::Below, _) => Some(min),
            When::Moved(_) => None,
        });
        [extreme, Some(value)]
    }

    fn is_counter(&self) -> bool {
        self.handle
            .info()
            .is_some_and(|info| info.family().kind.is_monotonic())
    }
}

impl<H: Instrument> Target for Plain<H> {
    fn is_urgent(&self) -> bool {
        true
    }

    fn turn(&self, now: UnixNanos, dispatch: &mut Dispatch<'_>) {
        update(&self.handle, now);
        let Some(value) = self.handle.read().map(|value| value.as_f64()) else {
            return;
        };
        let mut standing = lock(&self.standing);
        for value in self.values(value).into_iter().flatten() {
            let mut next = *standing;
            let due = next.observe(&self.trigger, Some(value), now);
            let is_told = due.is_none_or(|is_crossed| {
                let callback = self.callback.clone();
                let change = Change {
                    snapshot: Snapshot::of_value(self.labels.clone(), value, (value, value)),
                    value,
                    is_crossed,
                };
                let job: Job = Box::new(move || callback(&change));
                dispatch(job)
            });
            if is_told {
                *standing = next;
            }
        }
    }
}

fn on_change<H: Instrument>(
    handle: &H,
    trigger: Trigger,
    callback: impl Fn(&Change) + Send + Sync + 'static,
) -> Result<Subscription, CompositeError> {
    if !trigger.is_valid() {
        return Err(CompositeError::BadTrigger);
    }
    let Some(plain) = Plain::new(handle, trigger, callback) else {
        return Ok(Subscription::of_nothing());
    };
    let plain = Arc::new(plain);
    let target: Arc<dyn Target> = plain.clone();
    thread::attend(Arc::downgrade(&target));
    Ok(Subscription::new(target))
}

macro_rules! with_callbacks {
    ($($handle:ty),*) => {$(
        impl $handle {
            /// Calls `callback` when the value makes the trigger due, on a thread of its own and a few milliseconds
            /// later, until what it returns is dropped. Values that lasted shorter than that are not missed by
            /// thresholds, unless they come within the trigger's interval.
            ///
            /// # Errors
            /// The trigger is at no number.
            pub fn on_change(
                &self,
                trigger: Trigger,
                callback: impl Fn(&Change) + Send + Sync + 'static,
            ) -> Result<Subscription, CompositeError> {
                on_change(self, trigger, callback)
            }
        }
    )*};
}

with_callbacks!(Counter, FloatCounter, UpDownCounter, Gauge);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Description, MetricsRegistry, Prometheus};

    #[test]
    fn a_peak_between_two_looks_is_reported() {
        let gauge = Prometheus::new().gauge(&Description::new("a", ""), &[]).unwrap();
        let told: Arc<Mutex<Vec<(f64, bool)>>> = Arc::default();
        let heard = told.clone();
        let callback = move |change: &Change| lock(&heard).push((change.value, change.is_crossed));
        let plain = Plain::new(&gauge, Trigger::above(10.0), callback).unwrap();
        let turn = |now| {
            plain.turn(now, &mut |job| {
                job();
                true
            });
        };
        gauge.set(5.0);
        turn(1);
        gauge.set(20.0);
        gauge.set(6.0);
        turn(2);
        turn(3);
        assert_eq!(*lock(&told), [(20.0, true), (6.0, false)]);
    }
}
