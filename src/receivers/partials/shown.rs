// SPDX-License-Identifier: Apache-2.0

//! The merged series as a table, which pages, queries and exporters read.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_engine::{Data, Key, Merged, Outcome, PointSample, Series, Table, UnixNanos, Value, clock};

/// Copies merged series into a table.
pub(super) struct ShownSeries {
    table: Arc<Table>,
    /// The last round that had each series.
    known: HashMap<Key, u64>,
    round: u64,
    /// Series that the table did not take, in all rounds.
    refused: u64,
}

impl ShownSeries {
    pub(super) fn new(table: Arc<Table>) -> Self {
        Self {
            table,
            known: HashMap::new(),
            round: 0,
            refused: 0,
        }
    }

    /// Shows the present values, and removes the series that have none any more.
    pub(super) fn show(&mut self, merged: &mut Merged, now: UnixNanos) {
        self.round += 1;
        let (round, known, time) = (self.round, &mut self.known, clock::wall(now));
        let mut session = self.table.session(now);
        merged.read(&mut |reading| {
            let sample = PointSample {
                start: start_of(reading.series, reading.start),
                // A merged value is valid until now, whenever a producer has reported last.
                time,
                value: reading.value,
                exemplars: &[],
            };
            let key = Key::of(reading.series);
            let outcome = session.observe_as(key, sample, &mut || Some(reading.series.clone()));
            if matches!(outcome, Outcome::Absorbed) {
                known.insert(key, round);
            } else {
                self.refused += 1;
            }
        });
        let gone = known.extract_if(|_, seen| *seen != round);
        for (key, _) in gone {
            let sample = PointSample {
                start: 0,
                time,
                value: &Value::NoRecordedValue,
                exemplars: &[],
            };
            session.observe_as(key, sample, &mut || None);
        }
        drop(session);
        self.table.expire(now);
    }

    /// Series that the table did not take, in all rounds.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }
}

/// The start of a total. A level has none: the start of its runs comes and goes with them, and the table would take it
/// for another process.
fn start_of(series: &Series, start: UnixNanos) -> UnixNanos {
    match series.metric.data {
        Data::Gauge | Data::Sum { monotonic: false, .. } => 0,
        _ => start,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_engine::{
        Attributes, Limits, MergeMode, MergedLimits, Metric, ProducerId, Rule, RunReport, Temporality,
    };

    use super::*;
    use crate::component::unix_now;

    const SECOND: u64 = 1_000_000_000;

    fn series(name: &str, monotonic: bool) -> Arc<Series> {
        let temporality = Temporality::Cumulative;
        Arc::new(Series {
            resource: Arc::default(),
            scope: Arc::default(),
            metric: Arc::new(Metric {
                name: name.into(),
                description: "".into(),
                unit: "".into(),
                data: Data::Sum {
                    monotonic,
                    temporality,
                },
                metadata: Attributes::default(),
            }),
            attributes: Attributes::default(),
        })
    }

    fn take(merged: &mut Merged, series: &Arc<Series>, producer: u8, start: u64, value: i64, now: u64) {
        let mode = match series.metric.data {
            Data::Sum { monotonic: true, .. } => MergeMode::Add,
            _ => MergeMode::Level,
        };
        let id = ProducerId([producer; 16]);
        merged.touch(id, start, now, now).unwrap();
        let report = RunReport {
            producer: id,
            epoch: start,
            start,
            sequence: start + now,
            time: now,
            mode,
            value: Value::Int(value),
        };
        let key = Key::of(series);
        merged.take(key, || series.clone(), report).unwrap();
    }

    fn shown(table: &Table, now: u64) -> Vec<(String, u64, i64)> {
        let mut all = Vec::new();
        table.read(now, &mut |reading| {
            let Value::Int(value) = reading.value else {
                panic!()
            };
            all.push((reading.series.metric.name.to_string(), reading.start, *value));
        });
        all.sort();
        all
    }

    #[test]
    fn a_total_keeps_its_value_when_an_earlier_run_comes_to_be_known() {
        let table = Arc::new(Table::new("test", vec![Rule::newest()], Limits::default()));
        let (mut merged, mut shows) = (
            Merged::new(MergedLimits::default()),
            ShownSeries::new(table.clone()),
        );
        let (now, hits) = (unix_now(), series("hits", true));
        for (step, (start, value, total)) in [
            (500, 10, 10),
            (300, 5, 15),
            (400, 7, 22),
            (300, 6, 23),
            (100, 1, 24),
        ]
        .into_iter()
        .enumerate()
        {
            let now = now + step as u64 * SECOND;
            take(&mut merged, &hits, 1, start, value, now);
            shows.show(&mut merged, now);
            let first = [500, 300, 300, 300, 100][step];
            assert_eq!(shown(&table, now), [("hits".to_owned(), first, total)]);
        }
        assert_eq!(shows.refused(), 0);
    }

    #[test]
    fn a_level_goes_and_comes_back_without_counting_twice() {
        let table = Arc::new(Table::new("test", vec![Rule::newest()], Limits::default()));
        let (mut merged, mut shows) = (
            Merged::new(MergedLimits::default()),
            ShownSeries::new(table.clone()),
        );
        let (begin, depth) = (unix_now(), series("depth", false));
        for (after, producers, expected) in [
            (0, &[1, 2][..], Some(20)),
            (5, &[2], Some(10)),
            (6, &[1, 2], Some(20)),
            (20, &[], None),
            (21, &[1], Some(10)),
        ] {
            let now = begin + after * SECOND;
            for producer in producers {
                take(&mut merged, &depth, *producer, u64::from(*producer), 10, now);
            }
            merged.sweep(now, now);
            shows.show(&mut merged, now);
            let expected: Vec<_> = expected
                .map(|value| ("depth".to_owned(), 0, value))
                .into_iter()
                .collect();
            assert_eq!(shown(&table, now), expected, "after {after} s");
        }
    }
}
