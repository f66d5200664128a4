//! Where a series comes from: its rule, its sources, when it last began anew, and how far it can be trusted.

use std::collections::HashMap;
use std::sync::Arc;

use super::Table;
use super::cell::CellRef;
use super::events::SourceState;
use super::source_registry::SourceNumber;
use crate::lease::nanos;
use crate::streams::lock;
use crate::trust::State;
use crate::{Attributes, Series, UnixNanos, Value, clock};

/// Where a series comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The component that writes it.
    pub owner: Arc<str>,
    /// Which of the table's rules made it.
    pub rule: Option<usize>,
    /// Since when it counts; 0 = unknown.
    pub start: UnixNanos,
    /// When the value last changed or was confirmed; 0 = never.
    pub time: UnixNanos,
    /// Its value.
    pub value: Value,
    /// How far it can be trusted.
    pub state: State,
    /// Sources that feed it and have not ended.
    pub expected: usize,
    /// Those of them that are alive.
    pub reporting: usize,
    /// Who feeds it; not more than were asked for.
    pub feeders: Vec<Feeder>,
    /// How many there are.
    pub feeders_total: usize,
}

/// Something that feeds a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Feeder {
    /// The source, by its attributes.
    pub source: Attributes,
    /// How many of its streams end in this series.
    pub streams: usize,
    /// When it was last known to be alive.
    pub seen: UnixNanos,
    /// When it last began anew; 0 = unknown.
    pub start: UnixNanos,
    /// What it said last, where that is one number.
    pub said: Option<f64>,
    /// Whether it is alive, overdue, or has left.
    pub life: Life,
}

/// Where a feeder is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Life {
    /// Its lease is overdue.
    Overdue,
    /// It is there, but the times of its latest points lie behind its newest point or too far ahead: they are not taken.
    Astray,
    /// It is there.
    Alive,
    /// It has ended; what it counted stays.
    Left,
}

impl Life {
    /// The name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overdue => "overdue",
            Self::Astray => "astray",
            Self::Alive => "alive",
            Self::Left => "left",
        }
    }
}

impl Table {
    /// Where `series` comes from, with at most `most` of its feeders: the overdue ones first, then those that live. A
    /// source of points lives by its own cadence. Looks at every stream of the table. `None`: the table has no such series.
    pub fn explain(&self, series: &Series, now: UnixNanos, most: usize) -> Option<Explanation> {
        self.flush();
        let at = self.cells.find(series)?;
        let (start, time, value, is_shown) = {
            let mut cursor = self.cells.cursor();
            let cell = cursor.get(at)?;
            cell.state.settle();
            let state = &cell.state;
            (state.start, state.time, state.value.clone(), state.is_shown())
        };
        let mut patience = nanos(self.limits.lease);
        let mut newest = time;
        let mut feeders = self.feeders(at, now, (&mut newest, &mut patience));
        feeders.sort_by_key(|feeder| feeder.life);
        let of = |life: Life| feeders.iter().filter(|feeder| feeder.life == life).count();
        let reporting = of(Life::Alive);
        let expected = reporting + of(Life::Overdue) + of(Life::Astray);
        // Where the wall clock was set, a sender may be right by either.
        let is_recent = clock::wall(now).min(now).saturating_sub(newest) <= patience;
        let feeders_total = feeders.len();
        feeders.truncate(most);
        Some(Explanation {
            owner: self.owner.clone(),
            rule: self.rules.iter().position(|rule| rule.could_make(series)),
            start,
            time,
            value,
            state: State::of(is_shown && is_recent && expected > 0, expected, reporting, false),
            expected,
            reporting,
            feeders,
            feeders_total,
        })
    }

    /// One a source, however many of its streams end in this series. `newest` becomes the time of their newest point by
    /// our clock, `patience` the longest lease among them.
    fn feeders(
        &self,
        at: CellRef,
        now: UnixNanos,
        (newest, patience): (&mut UnixNanos, &mut u64),
    ) -> Vec<Feeder> {
        let mut of_points: HashMap<SourceNumber, Feeder> = HashMap::new();
        self.streams.each(|stream, seen| {
            if !stream.targets.iter().any(|target| target.cell == at) {
                return;
            }
            *newest = stream
                .progress
                .newest_by_our_clock()
                .min(clock::wall(seen).max(seen))
                .max(*newest);
            let said = stream.progress.last().value().and_then(|value| value.as_f64());
            let feeder = of_points.entry(stream.source).or_insert_with(|| Feeder {
                source: Attributes::default(),
                streams: 0,
                seen,
                start: 0,
                said,
                life: Life::Overdue,
            });
            feeder.streams += 1;
            feeder.seen = feeder.seen.max(seen);
            feeder.start = feeder.start.max(stream.progress.start);
            feeder.said = said.filter(|_| feeder.streams == 1);
            if stream.progress.stands_still() {
                feeder.life = Life::Astray;
            }
        });
        let registry = lock(&self.registry);
        let named = of_points.into_iter();
        let named = named.map(|(number, feeder)| {
            let (resource, cadence) = registry.source(number).unwrap_or_default();
            let lease = cadence.lease_ns();
            *patience = (*patience).max(lease);
            // It may send this series less often than others.
            let heard = feeder.seen.max(cadence.heard());
            Feeder {
                life: match (now.saturating_sub(heard) <= lease, feeder.life) {
                    (true, Life::Astray) => Life::Astray,
                    (true, _) => Life::Alive,
                    (false, _) => Life::Overdue,
                },
                source: resource.attributes.clone(),
                ..feeder
            }
        });
        let mut feeders: Vec<Feeder> = named.collect();
        drop(registry);
        let sources: Vec<_> = self.sources().values().cloned().collect();
        for shared in sources {
            let state = lock(&shared);
            let streams = state.feeds(at);
            if streams > 0 {
                feeders.push(Feeder::of_events(&state, streams, now));
            }
        }
        feeders
    }
}

impl Feeder {
    fn of_events(state: &SourceState, streams: usize, now: UnixNanos) -> Self {
        let source = state.source();
        let life = match (source.lease.is_ended(), source.lease.is_alive(now)) {
            (true, _) => Life::Left,
            (false, true) if state.is_ahead() => Life::Astray,
            (false, true) => Life::Alive,
            (false, false) => Life::Overdue,
        };
        Self {
            source: source.resource.attributes.merge(&source.attributes),
            streams,
            seen: source.lease.touched(),
            start: 0,
            said: None,
            life,
        }
    }
}
