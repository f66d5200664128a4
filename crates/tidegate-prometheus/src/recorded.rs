// SPDX-License-Identifier: Apache-2.0

//! The series that rules record. Queries and pages read them in a table. Pipelines get the samples of each evaluation.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_engine::{Attributes, Data, Limits, Point, Resource, Rule, Scope, Series, Table, UnixNanos};
use tidegate_exposition::MetricType;
use tidegate_pipeline::batch::{Batch, Points};
use tidegate_pipeline::component::{Entry, Shared};
use tidegate_promql::{Labels, Millis, NAME};

use crate::model::{is_stale, metric, nanos, number};

/// The points of a batch.
const BATCH_POINTS: usize = 8192;

/// The most series of a table. `max_series` of the extension bounds those that have a value.
const MAX_SERIES: usize = 10_000_000;

/// A series whose rule no longer runs leaves the table after this time. A rule that runs ends its series itself.
const EXPIRY: Duration = Duration::from_hours(24);

/// A rule that is silent for this long is overdue, until its own interval is known.
const LEASE: Duration = Duration::from_mins(5);

/// The recorded series of all extensions, by their ids.
#[derive(Default)]
struct AllRecorded(Mutex<HashMap<String, Weak<RecordedSeries>>>);

/// The recorded series of one extension. Instances of the extension that follow each other share them.
pub struct RecordedSeries {
    table: Arc<Table>,
    max_series: AtomicUsize,
    /// The series of labels that have a value now.
    known: Mutex<HashMap<Labels, Arc<Series>>>,
    resource: Arc<Resource>,
    scope: Arc<Scope>,
    entries: Mutex<Vec<(u64, Entry)>>,
}

/// Recorded samples that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostSamples {
    /// Samples of new series above the limit.
    pub over_limit: usize,
    /// Samples that a pipeline refused. Queries see them.
    pub refused: usize,
}

impl RecordedSeries {
    /// The recorded series of the extension with this id.
    pub fn of(shared: &Shared, extension: &str) -> Arc<Self> {
        let all = shared.parts.get(AllRecorded::default);
        let mut all = all.0.lock();
        if let Some(known) = all.get(extension).and_then(Weak::upgrade) {
            return known;
        }
        let limits = Limits {
            series: MAX_SERIES,
            streams: MAX_SERIES,
            expiry: EXPIRY,
            lease: LEASE,
            ..Limits::default()
        };
        let table = Table::new(format!("extensions::{extension}"), vec![Rule::newest()], limits);
        let recorded = Arc::new(Self {
            table: Arc::new(table.bounded_by(shared.memory.bounds_of_tables())),
            max_series: AtomicUsize::new(usize::MAX),
            known: Mutex::default(),
            resource: Arc::default(),
            scope: Arc::default(),
            entries: Mutex::default(),
        });
        all.insert(extension.to_owned(), Arc::downgrade(&recorded));
        recorded
    }

    /// The recorded series of an extension that exists; `None`: there is no such extension.
    pub fn find(shared: &Shared, extension: &str) -> Option<Arc<Self>> {
        let all = shared.parts.get(AllRecorded::default);
        all.0.lock().get(extension).and_then(Weak::upgrade)
    }

    /// Sets the limit of series that have a value at a time.
    pub fn limit(&self, max_series: usize) {
        self.max_series.store(max_series, Relaxed);
    }

    /// The table of the series.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The number of series that have a value now.
    pub fn len(&self) -> usize {
        self.known.lock().len()
    }

    /// Whether no series has a value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pushes the samples of later evaluations into this entry, until [`RecordedSeries::detach`] with the same number.
    pub fn attach(&self, number: u64, entry: Entry) {
        self.entries.lock().push((number, entry));
    }

    /// Ends the pushes into an entry.
    pub fn detach(&self, number: u64) {
        self.entries.lock().retain(|(other, _)| *other != number);
    }

    /// Takes samples: labels with the name, the time, and the value. A stale marker ends its series.
    pub fn append<'a>(
        &self,
        samples: impl IntoIterator<Item = (&'a Labels, Millis, f64)>,
        now: UnixNanos,
    ) -> LostSamples {
        let mut lost = LostSamples::default();
        let points = self.points(samples, &mut lost);
        {
            let mut session = self.table.session(now);
            for point in &points {
                session.observe(point);
            }
        }
        lost.refused = self.push(&points);
        lost
    }

    fn points<'a>(
        &self,
        samples: impl IntoIterator<Item = (&'a Labels, Millis, f64)>,
        lost: &mut LostSamples,
    ) -> Vec<Point> {
        let most = self.max_series.load(Relaxed);
        let mut known = self.known.lock();
        let mut points = Vec::new();
        for (labels, time, value) in samples {
            let Some(time) = nanos(time) else { continue };
            let is_end = is_stale(value);
            let found = if is_end {
                known.remove(labels)
            } else {
                known.get(labels).cloned()
            };
            let series = match found {
                Some(series) => series,
                None if is_end => continue,
                None if known.len() >= most => {
                    lost.over_limit += 1;
                    continue;
                }
                None => {
                    let series = Arc::new(self.series(labels));
                    known.insert(labels.clone(), series.clone());
                    series
                }
            };
            points.push(Point {
                series,
                start: 0,
                time,
                value: number(value),
                exemplars: Vec::new(),
            });
        }
        points
    }

    /// The labels of a sample stay attributes of its point. As a resource, `job` and `instance` would make a rule a
    /// source that seems alive while it reads what a dead one left.
    fn series(&self, labels: &Labels) -> Series {
        let attributes = labels.iter().filter(|(name, _)| ***name != *NAME);
        let attributes: Attributes = attributes.map(|(name, value)| (&**name, &**value)).collect();
        Series {
            resource: self.resource.clone(),
            scope: self.scope.clone(),
            metric: Arc::new(metric(labels.get(NAME), MetricType::Gauge, Data::Gauge, "", "")),
            attributes,
        }
    }

    /// Pushes points into all entries. Returns the number of points that some pipeline refused.
    fn push(&self, points: &[Point]) -> usize {
        let entries = self.entries.lock().clone();
        let mut refused = 0;
        for chunk in points.chunks(BATCH_POINTS) {
            let points: Arc<[Point]> = chunk.into();
            for (_, entry) in &entries {
                let batch = Batch {
                    // Exporters that read the table need no copy.
                    snapshot_of: Some(self.table.owner().clone()),
                    is_snapshot: true,
                    ..Batch::new(Points {
                        points: points.clone(),
                    })
                };
                if entry.push(batch).is_err() {
                    refused += chunk.len();
                }
            }
        }
        refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::View;
    use crate::model::STALE_NAN;
    use tidegate_promql::{Instant, Query};

    fn labels(name: &str, zone: &str) -> Labels {
        [(NAME, name), ("job", "web"), ("zone", zone)]
            .into_iter()
            .collect()
    }

    fn value(shared: &Shared, query: &str, now: UnixNanos) -> Instant {
        let query = Query::parse(query).unwrap();
        let view = View::of(shared);
        let asked = view.ask(now, &query.selections());
        query.instant(&asked, crate::catalog::millis(now)).unwrap()
    }

    #[test]
    fn queries_see_recorded_series_until_their_markers() {
        const NOW: UnixNanos = 1_700_000_000_000_000_000;
        let shared = Shared::default();
        let recorded = RecordedSeries::of(&shared, "rules");
        shared.tables.add(recorded.table().clone());
        let time = crate::catalog::millis(NOW);
        let lost = recorded.append([(&labels("a:b:sum", "x"), time, 3.0)], NOW);
        assert_eq!(lost, LostSamples::default());
        let Instant::Vector(found) = value(&shared, "a:b:sum{job=\"web\",zone=\"x\"}", NOW) else {
            panic!("a vector")
        };
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].1.float(), Some(3.0));
        recorded.append(
            [(&labels("a:b:sum", "x"), time + 1, f64::from_bits(STALE_NAN))],
            NOW + 1_000_000,
        );
        assert!(recorded.is_empty());
        let ended = value(&shared, "a:b:sum", NOW + 2_000_000);
        assert_eq!(ended, Instant::Vector(Vec::new()));
    }

    #[test]
    fn new_series_above_the_limit_are_lost_and_counted() {
        const NOW: UnixNanos = 1_700_000_000_000_000_000;
        let shared = Shared::default();
        let recorded = RecordedSeries::of(&shared, "rules");
        recorded.limit(1);
        let time = crate::catalog::millis(NOW);
        let (first, second) = (labels("a", "x"), labels("a", "y"));
        let lost = recorded.append([(&first, time, 1.0), (&second, time, 2.0)], NOW);
        assert_eq!(lost.over_limit, 1);
        assert_eq!(recorded.len(), 1);
        assert!(Arc::ptr_eq(
            &recorded,
            &RecordedSeries::find(&shared, "rules").unwrap()
        ));
        assert!(RecordedSeries::find(&shared, "other").is_none());
    }
}
