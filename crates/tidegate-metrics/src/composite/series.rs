// SPDX-License-Identifier: Apache-2.0

//! Watches a series: it finds the new values since the last look and tells them to all watchers.

use std::sync::{Arc, MutexGuard, PoisonError};

use tidegate_engine as engine;
use tidegate_engine::{Added, Distribution, UnixNanos};

use crate::handle::Instrument;
use crate::side::Side;
use crate::value::{HistogramValue, Value};

/// An idle gauge is observed again after this time, so that its mean is one over time.
const GAUGE_EVERY_NS: u64 = 20_000_000;

/// Receives what is new.
pub(super) type Listener = Box<dyn FnMut(UnixNanos, Option<&Added<'_>>) + Send>;

/// The last seen value of a series, and its listeners.
#[derive(Default)]
pub(crate) struct Watch {
    seen: Option<Seen>,
    told: UnixNanos,
    listeners: Vec<(u64, Listener)>,
    next: u64,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("listeners", &self.listeners.len())
            .finish_non_exhaustive()
    }
}

/// A value in a form that differences can be made of.
#[derive(Debug)]
enum Seen {
    Total(f64),
    Whole(u64),
    Level(f64),
    Explicit(engine::Histogram),
    Exponential(engine::ExponentialHistogram),
}

fn lock(side: &Side) -> MutexGuard<'_, Watch> {
    side.watched.watch.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A watcher of a series, until this is dropped.
pub(super) struct Watching {
    side: Arc<Side>,
    number: u64,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.side.watched.unwatch();
        // A listener may own what listens elsewhere: it is dropped without the lock.
        let gone = {
            let mut watch = lock(&self.side);
            let at = watch
                .listeners
                .iter()
                .position(|(number, _)| *number == self.number);
            at.map(|at| watch.listeners.swap_remove(at))
        };
        drop(gone);
    }
}

impl Watching {
    /// Whether it is this series that is watched.
    pub(super) fn is_of(&self, side: &Arc<Side>) -> bool {
        Arc::ptr_eq(&self.side, side)
    }
}

/// Tells `listener` from now on what is new of a series; unless `from_now`, what was recorded before is new as well.
/// `None`: there is nothing to watch.
pub(super) fn listen<H: Instrument>(handle: &H, mut listener: Listener, from_now: bool) -> Option<Watching> {
    let side = handle.side()?.0.clone();
    let mut watch = lock(&side);
    side.watched.watch();
    let now = super::now();
    let range = if from_now || watch.seen.is_some() {
        None
    } else {
        side.watched.take_range()
    };
    // Changes before this watcher came are not reported to it.
    update_watchers(handle, &side, &mut watch, now);
    if let Some(seen) = watch.seen.as_ref().filter(|_| !from_now) {
        seen.compare(&seen.nothing(), range, side.watched.last(), u64::MAX, |added| {
            listener(now, added);
            true
        });
    } else if let Some(Seen::Level(level)) = watch.seen
        && !level.is_nan()
    {
        listener(now, Some(&one(level)));
    }
    let number = watch.next;
    watch.next += 1;
    watch.listeners.push((number, listener));
    drop(watch);
    Some(Watching { side, number })
}

/// Reads a series, and notifies its watchers of what is new.
pub(super) fn update<H: Instrument>(handle: &H, now: UnixNanos) {
    if let Some(side) = handle.side() {
        update_watchers(handle, side.0, &mut lock(side.0), now);
    }
}

fn update_watchers<H: Instrument>(handle: &H, side: &Side, watch: &mut Watch, now: UnixNanos) {
    let Some(value) = handle.read() else { return };
    let mut read = Seen::of(value);
    if let Some(seen) = &watch.seen {
        read.leave_uncounted(seen);
    }
    let Some(seen) = watch.seen.replace(read) else {
        return;
    };
    // After the value: the next look reports extremes of values that are not in it.
    let range = side.watched.take_range();
    let Some(next) = &watch.seen else { return };
    let told = watch.told;
    let listeners = &mut watch.listeners;
    let tell = |added: Option<&Added<'_>>| {
        listeners
            .iter_mut()
            .for_each(|(_, listener)| listener(now, added));
        added.is_some()
    };
    let was_told = next.compare(&seen, range, side.watched.last(), now.saturating_sub(told), tell);
    if was_told {
        watch.told = now;
    }
}

impl Seen {
    fn of(value: Value) -> Self {
        match value {
            Value::Counter(value) => Self::Whole(value),
            Value::FloatCounter(value) => Self::Total(value),
            Value::UpDownCounter(value) => Self::Level(value as f64),
            Value::Gauge(value) => Self::Level(value),
            Value::Histogram(value) => Self::Explicit(explicit(value)),
            Value::Exponential(value) => Self::Exponential(value),
        }
    }

    /// Leaves what the sum has grown without a new count to the next look. A thread adds to the sum and counts one after the
    /// other, and a look may come between.
    fn leave_uncounted(&mut self, before: &Self) {
        match (self, before) {
            (Self::Explicit(read), Self::Explicit(before)) if read.count == before.count => {
                read.sum = before.sum;
            }
            (Self::Exponential(read), Self::Exponential(before)) if read.count == before.count => {
                read.sum = before.sum;
            }
            _ => {}
        }
    }

    /// Its value before anything was recorded.
    fn nothing(&self) -> Self {
        match self {
            Self::Total(_) => Self::Total(0.0),
            Self::Whole(_) => Self::Whole(0),
            Self::Level(_) => Self::Level(0.0),
            Self::Explicit(value) => Self::Explicit(engine::Histogram::empty(value.bounds.clone())),
            Self::Exponential(value) => Self::Exponential(engine::ExponentialHistogram {
                sum: Some(0.0),
                scale: value.scale,
                ..engine::ExponentialHistogram::default()
            }),
        }
    }

    /// Tells what is new since `before`.
    fn compare(
        &self,
        before: &Self,
        range: Option<(f64, f64)>,
        last: f64,
        silent_ns: u64,
        tell: impl FnOnce(Option<&Added<'_>>) -> bool,
    ) -> bool {
        match (self, before) {
            (Self::Whole(value), Self::Whole(before)) => {
                let grown = value.wrapping_sub(*before) as f64;
                tell((grown > 0.0).then(|| one(grown)).as_ref())
            }
            (Self::Total(value), Self::Total(before)) => {
                let grown = value - before;
                tell((grown > 0.0).then(|| one(grown)).as_ref())
            }
            (Self::Level(value), Self::Level(before)) => {
                let is_news = value != before || range.is_some() || silent_ns >= GAUGE_EVERY_NS;
                let (min, max) = range.unwrap_or((*value, *value));
                let level = Added {
                    min: min.min(*value),
                    max: max.max(*value),
                    ..one(*value)
                };
                tell((is_news && !value.is_nan()).then_some(&level))
            }
            (Self::Explicit(value), Self::Explicit(before)) => match value.since(before) {
                Some(grown) => {
                    let distribution = Distribution::Explicit(&grown);
                    tell(observed(grown.count, grown.sum, range, last, distribution).as_ref())
                }
                None => tell(None),
            },
            (Self::Exponential(value), Self::Exponential(before)) => match value.since(before) {
                Some(grown) => {
                    let distribution = Distribution::Exponential(&grown);
                    tell(observed(grown.count, grown.sum, range, last, distribution).as_ref())
                }
                None => tell(None),
            },
            _ => tell(None),
        }
    }
}

fn one(value: f64) -> Added<'static> {
    Added {
        count: 1.0,
        sum: value,
        min: value,
        max: value,
        last: value,
        distribution: Distribution::Last,
    }
}

/// The values that a histogram has counted since the last look.
fn observed(
    count: u64,
    sum: Option<f64>,
    range: Option<(f64, f64)>,
    last: f64,
    distribution: Distribution<'_>,
) -> Option<Added<'_>> {
    let sum = sum.unwrap_or_default();
    match (count, range) {
        (0, None) => None,
        // Of values that were counted at the last look.
        (0, Some((min, max))) => Some(Added {
            count: 0.0,
            sum: 0.0,
            min,
            max,
            last,
            distribution: Distribution::Last,
        }),
        (count, range) => {
            // Counted, but not compared yet: the next look has the extremes.
            let mean = sum / count as f64;
            let (min, max) = range.unwrap_or((mean, mean));
            Some(Added {
                count: count as f64,
                sum,
                min,
                max,
                last: if range.is_some() { last } else { mean },
                // A single value is known exactly.
                distribution: if count == 1 {
                    Distribution::Last
                } else {
                    distribution
                },
            })
        }
    }
}

fn explicit(value: HistogramValue) -> engine::Histogram {
    engine::Histogram {
        count: value.count(),
        sum: Some(value.sum),
        min: None,
        max: None,
        bounds: value.bounds,
        counts: value.counts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(count: u64, sum: f64) -> Seen {
        Seen::Explicit(engine::Histogram {
            count,
            sum: Some(sum),
            min: None,
            max: None,
            bounds: Vec::from([10.0]).into(),
            counts: vec![count, 0],
        })
    }

    #[test]
    fn a_look_between_the_sum_and_the_count_loses_nothing() {
        let mut told = Vec::new();
        let mut before = seen(1, 5.0);
        for mut read in [seen(1, 7.0), seen(2, 7.0), seen(3, 7.0), seen(3, 10.0)] {
            read.leave_uncounted(&before);
            read.compare(&before, None, 0.0, 0, |added| {
                told.extend(added.map(|added| (added.count, added.sum)));
                added.is_some()
            });
            before = read;
        }
        let mut all = seen(4, 10.0);
        all.leave_uncounted(&before);
        all.compare(&before, None, 0.0, 0, |added| {
            told.extend(added.map(|added| (added.count, added.sum)));
            added.is_some()
        });
        assert_eq!(told, [(1.0, 2.0), (1.0, 0.0), (1.0, 3.0)]);
    }
}
