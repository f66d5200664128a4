// SPDX-License-Identifier: Apache-2.0

//! The gauges of a destination's queue, which exist as long as the destination.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::capacity::QueueCapacity;
use crate::batch::Signal;
use crate::component::Shared;
use crate::component::graph_metrics::NO_VALUE;
use crate::component::queue_level::QueueLevel;
use crate::component::send_times::SendTimes;
use crate::component::shared::Registry;

/// The key of gauges: the exporter's name and the signal.
type Key = (String, Signal);

/// The owner of the gauges of each name. An endpoint may return before its old destination has finished.
#[derive(Default)]
struct Owners(Mutex<HashMap<Key, Arc<Mutex<BTreeSet<u64>>>>>);

/// The gauges of one signal. All signals share one queue.
pub(super) struct Gauges {
    key: Key,
    owners: Arc<Owners>,
    /// The numbers of the living destinations of this name. The largest one is the newest.
    living: Arc<Mutex<BTreeSet<u64>>>,
    number: u64,
    size: metrics::Gauge,
    /// The capacity that other signals don't use.
    capacity: metrics::Gauge,
    in_flight: metrics::Gauge,
    /// Attempts in progress.
    flying: Mutex<i64>,
    level: Arc<QueueLevel>,
    levels: Registry<QueueLevel>,
}

impl Gauges {
    /// Creates the gauges, and replaces those of an older destination of this name.
    pub(super) fn new(shared: &Shared, exporter: &str, signal: Signal) -> Self {
        let gauge =
            |name| metrics::gauge!(name, "exporter" => exporter.to_owned(), "data_type" => signal.name());
        let owners = shared.parts.get(Owners::default);
        let key = (exporter.to_owned(), signal);
        let (living, number) = {
            let mut known = owners.0.lock();
            let living = known.entry(key.clone()).or_default().clone();
            let mut numbers = living.lock();
            let own = numbers.last().map_or(0, |newest| newest + 1);
            numbers.insert(own);
            drop(numbers);
            (living, own)
        };
        let level = Arc::new(QueueLevel {
            exporter: exporter.to_owned(),
            signal,
            used: 0.into(),
            capacity: 0.into(),
            refused: 0.into(),
            sends: SendTimes::default(),
        });
        shared.queues.add(level.clone());
        let gauges = Self {
            key,
            owners,
            living,
            number,
            size: gauge("otelcol_exporter_queue_size"),
            capacity: gauge("otelcol_exporter_queue_capacity"),
            in_flight: gauge("otelcol_exporter_in_flight_requests"),
            flying: Mutex::new(0),
            level,
            levels: shared.queues.clone(),
        };
        gauges.fly(0);
        gauges
    }

    pub(super) fn show(&self, queue: &QueueCapacity) {
        let own = queue.used_by(self.key.1);
        let others = queue.used().saturating_sub(own);
        let capacity = queue.limit().saturating_sub(others);
        self.level.used.store(own as u64, Relaxed);
        self.level.capacity.store(capacity as u64, Relaxed);
        self.set(|| {
            self.size.set(own as f64);
            self.capacity.set(capacity as f64);
        });
    }

    /// Adds `change` to the attempts in progress.
    pub(super) fn fly(&self, change: i64) {
        let mut flying = self.flying.lock();
        *flying += change;
        self.set(|| self.in_flight.set(*flying as f64));
    }

    /// Counts items that the full queue refuses.
    pub(super) fn refuse(&self, items: usize) {
        self.level.refused.fetch_add(items as u64, Relaxed);
    }

    /// Records the duration of an attempt that ends at `now`.
    pub(super) fn record_send(&self, took: Duration, now: Instant) {
        self.level.sends.record(took, now);
    }

    /// Sets gauges, unless a newer destination has the name.
    fn set(&self, set: impl FnOnce()) {
        let living = self.living.lock();
        if living.last() == Some(&self.number) {
            set();
        }
    }
}

impl Drop for Gauges {
    fn drop(&mut self) {
        self.levels.remove(&self.level);
        let mut known = self.owners.0.lock();
        let mut living = self.living.lock();
        if living.last() == Some(&self.number) {
            // An older one that still lives sets them again with its next change.
            for gauge in [&self.size, &self.capacity, &self.in_flight] {
                gauge.set(NO_VALUE);
            }
        }
        living.remove(&self.number);
        if living.is_empty() {
            known.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_leave_with_their_destination_and_do_not_hide_its_successors() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let page = recorder.handle();
        let shown = || {
            let text = page.render();
            let mut lines = text.lines();
            let line = lines.find(|line| line.starts_with("otelcol_exporter_in_flight_requests{"))?;
            let (_, value) = line.rsplit_once(' ')?;
            let value: f64 = value.parse().unwrap();
            // `NO_VALUE`, which the pages of the gateway leave out.
            (!value.is_nan()).then_some(value)
        };
        metrics::with_local_recorder(&recorder, || {
            let shared = Shared::default();
            let make = || Gauges::new(&shared, "loadbalancing@a:4317", Signal::Metrics);
            let old = make();
            old.fly(2);
            assert_eq!(shown(), Some(2.0));
            // The endpoint returns while its old destination still has attempts in progress.
            let new = make();
            new.fly(1);
            old.fly(-1);
            assert_eq!(shown(), Some(1.0));
            drop(old);
            new.fly(0);
            assert_eq!(shown(), Some(1.0));
            let third = make();
            drop(third);
            assert_eq!(shown(), None);
            new.fly(1);
            drop(new);
            assert_eq!(shown(), None);
            let last = make();
            last.fly(3);
            assert_eq!(shown(), Some(3.0));
        });
    }
}
