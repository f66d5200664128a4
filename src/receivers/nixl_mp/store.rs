// SPDX-License-Identifier: Apache-2.0

//! One store: it is read, compared with the last reading, and its changes are sent.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::{Histogram, Point, Series, UnixNanos, Value};
use tidegate_ring::{Error, MpStore, Snapshot};

use super::series::{self, KindSeries};
use crate::batch::{Batch, Points};
use crate::component::{Entry, wall_now};
use crate::receivers::pods;

/// The agent is gone and its totals were taken.
pub(super) const ENDED: &str = "ended";

/// A refused push is tried again after this at the earliest; the store itself keeps the totals meanwhile.
const REFUSED_RETRY: Duration = Duration::from_millis(20);

/// The memory of a store in bytes: its series, its sent totals, and the mapping.
pub(super) const BYTES: usize = 40 << 10;

/// The result of a reading.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    Stays,
    /// The store has ended, for this reason.
    Ended(&'static str),
}

/// An open store.
pub(super) struct Store {
    store: MpStore,
    series: Vec<KindSeries>,
    start: UnixNanos,
    /// The totals that the pipelines have accepted.
    sent: Option<Snapshot>,
    bounds: Arc<[f64]>,
    moved: Instant,
    due: Instant,
}

impl Store {
    pub(super) fn open(path: &Path, now: Instant) -> Result<Self, Error> {
        let store = MpStore::open(path)?;
        let start = start_of(path).unwrap_or_else(wall_now);
        let series = series::all(&pods::resource_of(path), store.identity());
        Ok(Self {
            store,
            series,
            start,
            sent: None,
            bounds: Arc::from([]),
            moved: now,
            due: now,
        })
    }

    pub(super) fn agent(&self) -> &str {
        &self.store.identity().agent_name
    }

    /// Sends the changes. If nothing changes, it checks every `liveness` whether the agent lives.
    pub(super) fn poll(&mut self, entry: &Entry, now: Instant, liveness: Duration) -> ReadOutcome {
        if now < self.due {
            return ReadOutcome::Stays;
        }
        let snapshot = match self.store.snapshot() {
            Ok(snapshot) => snapshot,
            Err(error) => return self.end(entry, error.reason()),
        };
        let still = self
            .sent
            .as_ref()
            .is_some_and(|sent| sent.last_update_ns == snapshot.last_update_ns);
        if !still {
            self.moved = now;
            return self.send(entry, snapshot, now);
        }
        if now.duration_since(self.moved) >= liveness {
            self.moved = now;
            if matches!(self.store.alive(), Ok(false)) {
                return self.end(entry, ENDED);
            }
        }
        ReadOutcome::Stays
    }

    fn send(&mut self, entry: &Entry, snapshot: Snapshot, now: Instant) -> ReadOutcome {
        let points = self.changes(&snapshot);
        match push(entry, points) {
            Ok(()) => self.sent = Some(snapshot),
            Err(delay) => self.due = now + delay,
        }
        ReadOutcome::Stays
    }

    /// Points for every number that is not what was sent last; all of them the first time.
    fn changes(&mut self, snapshot: &Snapshot) -> Vec<Point> {
        let time = wall_now();
        let mut points = Vec::new();
        for (kind, series) in (0u16..).zip(&self.series) {
            let index = usize::from(kind);
            let (sent, start) = (self.sent.as_ref(), self.start);
            let mut point = |series: &Arc<Series>, start, value| {
                points.push(Point {
                    series: series.clone(),
                    start,
                    time,
                    value,
                    exemplars: Vec::new(),
                });
            };
            let count = snapshot.counters.get(index);
            let moved = sent.is_none_or(|sent| sent.counters.get(index) != count);
            if moved && let Some(count) = count {
                point(&series.total, start, whole(*count));
            }
            if let (true, Some(last), Some(value)) = (moved, &series.last, snapshot.gauges.get(index)) {
                point(last, 0, whole(*value));
            }
            if let (true, Some(distribution)) = (moved, &series.distribution)
                && let Some(value) = histogram(snapshot, kind, &mut self.bounds)
            {
                point(distribution, start, value);
            }
        }
        points
    }

    /// Ends every series. Aggregated counts stay, and gauges disappear.
    fn end(&mut self, entry: &Entry, reason: &'static str) -> ReadOutcome {
        let time = wall_now();
        let all = self.series.iter().flat_map(|kind| {
            [Some(&kind.total), kind.last.as_ref(), kind.distribution.as_ref()]
                .into_iter()
                .flatten()
        });
        let points = all
            .map(|series| Point {
                series: series.clone(),
                start: self.start,
                time,
                value: Value::NoRecordedValue,
                exemplars: Vec::new(),
            })
            .collect();
        match push(entry, points) {
            Ok(()) => ReadOutcome::Ended(reason),
            Err(delay) => {
                self.due = Instant::now() + delay;
                ReadOutcome::Stays
            }
        }
    }
}

/// `Err` is the time to wait. The entry counts points that are refused permanently, and the receiver does not offer
/// them again.
fn push(entry: &Entry, points: Vec<Point>) -> Result<(), Duration> {
    if points.is_empty() {
        return Ok(());
    }
    match entry.push(Batch::new(Points {
        points: points.into(),
    })) {
        Ok(_) => Ok(()),
        Err(refused) => match refused.retry_after {
            Some(delay) => Err(delay.max(REFUSED_RETRY)),
            None => {
                tracing::error!(
                    why = refused.reason,
                    "the pipelines refuse this store permanently"
                );
                Ok(())
            }
        },
    }
}

fn histogram(snapshot: &Snapshot, kind: u16, bounds: &mut Arc<[f64]>) -> Option<Value> {
    let found = snapshot.histogram(kind)?;
    if **bounds != *found.bounds {
        *bounds = found.bounds.into();
    }
    Some(Value::Histogram(Box::new(Histogram {
        count: found.count(),
        sum: Some(found.sum as f64),
        min: None,
        max: None,
        bounds: bounds.clone(),
        counts: found.buckets.to_vec(),
    })))
}

/// OTLP's integers are signed; a total beyond 2^63 stays a number, with a double's precision.
fn whole(value: u64) -> Value {
    i64::try_from(value).map_or(Value::Double(value as f64), Value::Int)
}

/// `nixl.<pid>.<CLOCK_REALTIME ns at first use>.<instance>.mmap`: when the store began.
fn start_of(path: &Path) -> Option<UnixNanos> {
    path.file_name()?.to_str()?.split('.').nth(2)?.parse().ok()
}
