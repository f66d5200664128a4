// SPDX-License-Identifier: Apache-2.0

//! Series that several processes report under one identity. Each component that can detect them counts them and
//! logs their names.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tidegate_engine::{Collision, Table, UnixNanos};

/// Counts the colliding streams of a table, and logs one that the table has found since the last call. `label`
/// names the component. Call it about once a second.
pub fn report(table: &Table, label: &(&'static str, String)) {
    let colliding = table.stats().colliding_streams;
    for (collision, streams) in Collision::ALL.into_iter().zip(colliding) {
        let labels = [label.clone(), ("reason", collision.name().to_owned())];
        metrics::counter!("tidegate_colliding_streams_total", &labels).absolute(streams);
    }
    let Some((collision, series)) = table.take_collided() else {
        return;
    };
    tracing::warn!(
        component = label.1,
        metric = %series.metric.name,
        streams = colliding[collision as usize],
        remedy = REMEDY,
        "{}",
        description(collision)
    );
}

const REMEDY: &str = "give each process its own service.instance.id; an aggregate rule with `without: [service.instance.id]` adds them up";

/// The start times of one series in a component that does not aggregate it: the newest run, and its latest point.
#[derive(Debug, Default)]
pub struct Starts {
    newest: AtomicU64,
    spoke: AtomicU64,
    is_known: AtomicBool,
}

impl Starts {
    /// Records a point. Returns true once: an older run has a point later than one of a newer run, so both are
    /// alive. A late point proves nothing. A point later than `latest` proves nothing either: all points until
    /// then would look late.
    pub fn note(&self, start: UnixNanos, time: UnixNanos, latest: UnixNanos) -> bool {
        let newest = self.newest.load(Relaxed);
        if start == 0 || time > latest {
            return false;
        }
        if start < newest {
            return time > self.spoke.load(Relaxed) && !self.is_known.swap(true, Relaxed);
        }
        if start > newest {
            self.newest.store(start, Relaxed);
        }
        self.spoke.fetch_max(time, Relaxed);
        false
    }
}

/// The colliding series in a component that passes points on.
#[derive(Debug)]
pub struct Alternating {
    label: (&'static str, String),
    told: Once,
}

impl Alternating {
    /// Creates the counter. `label` names the component.
    pub fn new(label: (&'static str, String)) -> Self {
        let told = Once::new();
        Self { label, told }
    }

    /// Counts a series, and logs the first one.
    pub fn note(&self, metric: &str) {
        let reason = ("reason", Collision::Interleaved.name().to_owned());
        metrics::counter!("tidegate_colliding_streams_total", &[self.label.clone(), reason]).increment(1);
        self.told.call_once(|| {
            tracing::warn!(
                component = self.label.1,
                metric,
                remedy = REMEDY,
                "several processes report the same series; the gateway passes all samples on, so the series jumps"
            );
        });
    }
}

fn description(collision: Collision) -> &'static str {
    match collision {
        Collision::Interleaved => {
            "several processes report the same series; their start times differ, so the gateway adds them up"
        }
        Collision::Indistinct => {
            "several processes seem to report the same series with the same start time or none; its total may be too high"
        }
        Collision::Forgotten => {
            "a forgotten process reports a series again; its earlier counts are not added"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(points: &[(u64, u64)]) -> usize {
        let starts = Starts::default();
        let found = points
            .iter()
            .filter(|(start, time)| starts.note(*start, *time, 100));
        found.count()
    }

    #[test]
    fn runs_that_alternate_are_reported_once() {
        assert_eq!(seen(&[(1, 10), (2, 11), (1, 12), (2, 13), (1, 14)]), 1);
        assert_eq!(seen(&[(1, 10), (2, 11), (3, 12), (1, 13), (2, 14), (3, 15)]), 1);
    }

    #[test]
    fn points_from_the_future_hide_no_collision() {
        assert_eq!(seen(&[(1, 10), (2, 101), (2, 11), (1, 12)]), 1);
        assert_eq!(seen(&[(2, 11), (1, 101)]), 0);
    }

    #[test]
    fn restarts_and_late_points_are_not_collisions() {
        assert_eq!(
            seen(&[(1, 10), (1, 11), (5, 12), (9, 20), (9, 21)]),
            0,
            "restarts"
        );
        assert_eq!(
            seen(&[(1, 10), (5, 12), (1, 11), (5, 13)]),
            0,
            "its last word came late"
        );
        assert_eq!(seen(&[(0, 10), (5, 12), (0, 13)]), 0, "no start");
        assert_eq!(seen(&[(1, 10), (5, 12), (1, 12)]), 0, "sent again");
    }
}
