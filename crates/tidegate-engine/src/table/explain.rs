// SPDX-License-Identifier: Apache-2.0

//! The explanation of a series: its rule, its sources, the time of its last restart, and its freshness.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::Table;
use super::cell::CellRef;
use super::events::SourceState;
use super::source_registry::SourceNumber;
use crate::freshness::Freshness;
use crate::lease::nanos;
use crate::streams::lock;
use crate::{Attributes, Series, UnixNanos, Value, clock};

/// The explanation of a series: the rule and the sources that make its value.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesExplanation {
    /// The component that writes it.
    pub owner: Arc<str>,
    /// The index of the rule that makes it.
    pub rule: Option<usize>,
    /// The name of the rule, if the table has names for its rules.
    pub rule_name: Option<Arc<str>>,
    /// The time since it counts; 0 = unknown.
    pub start: UnixNanos,
    /// The time of the last change or confirmation of the value; 0 = never.
    pub time: UnixNanos,
    /// Its value.
    pub value: Value,
    /// The freshness of the value.
    pub state: Freshness,
    /// Number of sources that have not ended.
    pub expected: usize,
    /// Number of expected sources that are alive.
    pub reporting: usize,
    /// Its sources, up to the number that the caller asked for.
    pub sources: Vec<SeriesSource>,
    /// Number of all its sources.
    pub sources_total: usize,
}

/// A source of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesSource {
    /// The attributes of the source.
    pub attributes: Attributes,
    /// Number of its streams that end in this series.
    pub streams: usize,
    /// The last time it was alive.
    pub seen: UnixNanos,
    /// The time of its last restart; 0 = unknown.
    pub start: UnixNanos,
    /// Its last value, where that is one number.
    pub last_value: Option<f64>,
    /// Its status.
    pub status: SourceStatus,
}

/// The status of a source, in the order of an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceStatus {
    /// Its lease is overdue.
    Overdue,
    /// Its lease holds, but its latest points are refused: their times are older than its newest point or too far
    /// ahead.
    Stalled,
    /// Its lease holds.
    Alive,
    /// It has ended; the series keeps its counts.
    Left,
}

impl SourceStatus {
    /// The name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overdue => "overdue",
            // Answers have the older name.
            Self::Stalled => "astray",
            Self::Alive => "alive",
            Self::Left => "left",
        }
    }
}

/// Lists the sources of series for a table that does not know them: it gets merged values from a replica.
pub trait SourceList: fmt::Debug + Send + Sync {
    /// The sources of a series; `None`: the list does not know the series.
    fn sources_of(&self, series: &Series, now: UnixNanos) -> Option<Vec<SeriesSource>>;
}

impl Table {
    /// Lets explanations name the sources that `list` has.
    pub fn list_sources_by(&self, list: Arc<dyn SourceList>) {
        *lock(&self.source_list) = Some(list);
    }

    fn listed_sources(&self, series: &Series, now: UnixNanos) -> Option<Vec<SeriesSource>> {
        // The list takes its time: explanations of other series do not wait for it.
        let list = lock(&self.source_list).clone();
        list?.sources_of(series, now)
    }

    /// Explains `series`, with at most `most` of its sources: the overdue sources first, then those that are
    /// alive. The cadence of a source of points sets its lease. Walks all streams of the table. `None`: the
    /// table has no such series.
    pub fn explain(&self, series: &Series, now: UnixNanos, most: usize) -> Option<SeriesExplanation> {
        self.flush();
        let at = self.cells.find(series)?;
        let (start, time, value, is_shown) = {
            let mut cursor = self.cells.cursor();
            let cell = cursor.get(at)?;
            cell.state.refresh();
            let state = &cell.state;
            (state.start, state.time, state.value.clone(), state.is_shown())
        };
        let mut patience = nanos(self.limits.lease);
        let mut newest = time;
        let of_table = self.sources_of(at, now, (&mut newest, &mut patience));
        let mut sources = self.listed_sources(series, now).unwrap_or(of_table);
        sources.sort_by_key(|source| source.status);
        let of = |status: SourceStatus| sources.iter().filter(|source| source.status == status).count();
        let reporting = of(SourceStatus::Alive);
        let expected = reporting + of(SourceStatus::Overdue) + of(SourceStatus::Stalled);
        // After a step of the wall clock, the times of a sender may follow either clock.
        let is_recent = clock::wall(now).min(now).saturating_sub(newest) <= patience;
        let sources_total = sources.len();
        sources.truncate(most);
        let rule = self.rules.iter().position(|rule| rule.could_make(series));
        Some(SeriesExplanation {
            owner: self.owner.clone(),
            rule,
            rule_name: rule.and_then(|rule| self.rule_names.get(rule).cloned()),
            start,
            time,
            value,
            state: Freshness::of(is_shown && is_recent && expected > 0, expected, reporting, false),
            expected,
            reporting,
            sources,
            sources_total,
        })
    }

    /// The sources of a cell, each once even if many of its streams feed the cell. Raises `newest` to the time of their
    /// newest point by our clock, and `patience` to the longest of their leases, in nanoseconds.
    fn sources_of(
        &self,
        at: CellRef,
        now: UnixNanos,
        (newest, patience): (&mut UnixNanos, &mut u64),
    ) -> Vec<SeriesSource> {
        let mut of_points: HashMap<SourceNumber, SeriesSource> = HashMap::new();
        self.streams.each(|stream, seen| {
            if !stream.fed().iter().any(|target| target.cell == at) {
                return;
            }
            *newest = stream
                .tracker
                .newest_by_our_clock()
                .min(clock::wall(seen).max(seen))
                .max(*newest);
            let last_value = stream.tracker.last().value().and_then(|value| value.as_f64());
            let source = of_points.entry(stream.source).or_insert_with(|| SeriesSource {
                attributes: Attributes::default(),
                streams: 0,
                seen,
                start: 0,
                last_value,
                status: SourceStatus::Overdue,
            });
            source.streams += 1;
            source.seen = source.seen.max(seen);
            source.start = source.start.max(stream.tracker.start);
            source.last_value = last_value.filter(|_| source.streams == 1);
            if stream.tracker.is_stalled() {
                source.status = SourceStatus::Stalled;
            }
        });
        let registry = lock(&self.registry);
        let named = of_points.into_iter();
        let named = named.map(|(number, source)| {
            let (resource, cadence) = registry.source(number).unwrap_or_default();
            let lease = cadence.lease_ns();
            *patience = (*patience).max(lease);
            // The source may send this series less often than its other series.
            let heard = source.seen.max(cadence.last_seen());
            SeriesSource {
                status: match (now.saturating_sub(heard) <= lease, source.status) {
                    (true, SourceStatus::Stalled) => SourceStatus::Stalled,
                    (true, _) => SourceStatus::Alive,
                    (false, _) => SourceStatus::Overdue,
                },
                attributes: resource.attributes.clone(),
                ..source
            }
        });
        let mut sources: Vec<SeriesSource> = named.collect();
        drop(registry);
        let of_events: Vec<_> = self.sources().values().cloned().collect();
        for shared in of_events {
            let state = lock(&shared);
            let streams = state.feeds(at);
            if streams > 0 {
                sources.push(SeriesSource::of_events(&state, streams, now));
            }
        }
        sources
    }
}

impl SeriesSource {
    fn of_events(state: &SourceState, streams: usize, now: UnixNanos) -> Self {
        let source = state.source();
        let status = match (source.lease.is_ended(), source.lease.is_alive(now)) {
            (true, _) => SourceStatus::Left,
            (false, true) if state.is_ahead() => SourceStatus::Stalled,
            (false, true) => SourceStatus::Alive,
            (false, false) => SourceStatus::Overdue,
        };
        Self {
            attributes: source.resource.attributes.merge(&source.attributes),
            streams,
            seen: source.lease.touched(),
            start: 0,
            last_value: None,
            status,
        }
    }
}
