// SPDX-License-Identifier: Apache-2.0

//! The windows of a composite from many producers, put together.
//!
//! The state is a set of sub-windows by producer, epoch and start. The one with the highest sequence counts. So the
//! order of arrival, repetition and lost pages make no difference, and all readers compute the same bits.

mod runs;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use self::runs::{ProducerCensus, Runs};
use self::window::MergedWindow;
use super::export::Unshareable;
use super::group::value::statistics;
use super::groups::weight;
use super::sub_window::SubWindow;
use super::window::{Cut, Moments};
use super::{Answer, Declaration, Function, MEMORY};
use crate::budget::{Budget, Reservation};
use crate::freshness::Freshness;
use crate::grouping::overflow_attributes;
use crate::lease::nanos;
use crate::{Attributes, ProducerId, UnixNanos, clock};

/// One life of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProducerRun {
    /// The producer.
    pub producer: ProducerId,
    /// The number of this life, which no other life of the producer has.
    pub epoch: u64,
}

/// The limits of what producers may say.
#[derive(Clone, Copy, Debug)]
pub struct WindowMergeLimits {
    /// How far the clock of a producer may be ahead of ours, and its heartbeats behind it (default: 5 s).
    pub tolerance: Duration,
    /// A producer reports for this long after a heartbeat (default: 3 s).
    pub lease: Duration,
    /// The most runs whose heartbeats are known (default: 10,000).
    pub max_runs: usize,
}

impl Default for WindowMergeLimits {
    fn default() -> Self {
        Self {
            tolerance: Duration::from_secs(5),
            lease: Duration::from_secs(3),
            max_runs: 10_000,
        }
    }
}

/// The effect of a sub-window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubWindowOutcome {
    /// It counts.
    New,
    /// It is known, or older than the known one.
    Known,
    /// It has left the window. Pages carry whole windows, so that happens all the time.
    Expired,
}

/// The reason why a sub-window or a heartbeat is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubWindowRefused {
    /// The clock of its producer is ahead.
    #[error("the clock of a producer is {0:?} ahead: synchronise it")]
    Future(Duration),
    /// Its borders are not ours.
    #[error("a producer divides the window in another way: declare the same `window` everywhere")]
    Unaligned,
    /// Its numbers contradict each other, or it has no distribution.
    #[error("a producer sends no valid sub-window: declare the same function and quantiles everywhere")]
    Malformed,
    /// It needs a place beyond `max_groups` or `max_runs`, its attributes are too long, or memory is short.
    #[error(
        "a run, a group, its attributes or its values exceed a limit: raise `max_groups` or the memory limit, or \
         group `by` fewer or shorter attributes"
    )]
    Full,
}

/// The number of refused sub-windows and heartbeats, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowRefusals {
    /// Of producers whose clock is ahead.
    pub future: u64,
    /// With other borders.
    pub unaligned: u64,
    /// Without valid numbers.
    pub malformed: u64,
    /// Beyond the limits.
    pub full: u64,
}

/// The windows of all groups of a composite, from many producers.
///
/// Times of producers are those of the wall clock. `now` is a time of [`clock::now`].
#[derive(Debug)]
pub struct MergedWindows {
    declaration: Declaration,
    cut: Cut,
    limits: WindowMergeLimits,
    budget: Arc<Budget>,
    runs: Runs,
    groups: BTreeMap<Attributes, MergedWindow>,
    refusals: WindowRefusals,
    /// The newest refusal and its time.
    refused: Option<(UnixNanos, SubWindowRefused)>,
}

impl MergedWindows {
    /// Without any values yet. `budget` bounds its memory, together with all other users of the budget.
    ///
    /// # Errors
    /// The windows of several processes do not make one.
    pub fn new(
        declaration: Declaration,
        limits: WindowMergeLimits,
        budget: Arc<Budget>,
    ) -> Result<Self, Unshareable> {
        declaration.check_shareable()?;
        Ok(Self {
            cut: Cut::of(declaration.window).shared(),
            declaration,
            limits,
            budget,
            runs: Runs::default(),
            groups: BTreeMap::new(),
            refusals: WindowRefusals::default(),
            refused: None,
        })
    }

    /// Its declaration.
    pub fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// Sets the producers that are expected even if none of their runs is known. Every known run that has not ended is
    /// expected anyway.
    pub fn expect(&mut self, producers: BTreeSet<ProducerId>) {
        self.runs.expect(producers);
    }

    /// Notes a heartbeat that a run sent at `sent`. Each page is a heartbeat. A lease begins when its heartbeat is sent,
    /// so a late heartbeat proves little.
    ///
    /// # Errors
    /// The clock of the producer is ahead, or there are too many runs.
    pub fn beat(
        &mut self,
        run: ProducerRun,
        sent: UnixNanos,
        now: UnixNanos,
    ) -> Result<(), SubWindowRefused> {
        let noted = self.check_future(sent, now).and_then(|()| {
            let begun = clock::steady(sent.saturating_add(nanos(self.limits.tolerance)));
            let is_recent = now.saturating_sub(begun) <= nanos(MEMORY);
            let has_room = !is_recent || self.runs.beat(run, begun.min(now), self.limits.max_runs);
            has_room.then_some(()).ok_or(SubWindowRefused::Full)
        });
        noted.map_err(|refused| self.refuse(refused, now))
    }

    /// Notes that a run has reported its end. It ignores later heartbeats of the run, which were on their way.
    pub fn end(&mut self, run: ProducerRun, now: UnixNanos) {
        self.runs.end(run, now, self.limits.max_runs);
    }

    /// Takes a sub-window of a group from a page with this sequence number.
    ///
    /// # Errors
    /// It is not valid, or a limit is reached.
    pub fn take(
        &mut self,
        run: ProducerRun,
        sequence: u64,
        attributes: &Attributes,
        sub_window: &SubWindow,
        now: UnixNanos,
    ) -> Result<SubWindowOutcome, SubWindowRefused> {
        let taken = self.check(sub_window, now).and_then(|()| {
            if sub_window.start < self.cut.begin(clock::wall(now)) {
                return Ok(SubWindowOutcome::Expired);
            }
            let is_sketched = self.declaration.is_sketched();
            let budget = self.budget.clone();
            let group = self.group(attributes)?;
            group.take(run, sequence, sub_window, is_sketched, &budget)
        });
        taken.map_err(|refused| self.refuse(refused, now))
    }

    /// One answer for each group, by attributes; a single `absent` one where there are none. `sources` are the
    /// producers.
    pub fn answers(&mut self, now: UnixNanos) -> Vec<Answer> {
        let recent = |(at, _): &(UnixNanos, _)| now.saturating_sub(*at) <= nanos(self.declaration.window);
        let reading = WindowReading {
            declaration: &self.declaration,
            cut: self.cut,
            wall: clock::wall(now),
            range: self.range(now),
            census: self.runs.census(now, nanos(self.limits.lease)),
            omitted: self.refused.filter(recent).map(|(_, refused)| refused),
        };
        let groups = self.groups.iter_mut().filter(|(_, window)| !window.is_empty());
        let answers = groups.map(|(attributes, window)| reading.answer(attributes, window));
        let mut answers: Vec<Answer> = answers.collect();
        if answers.is_empty() {
            answers.push(reading.absent());
        }
        answers
    }

    /// Removes sub-windows outside the window, also those that a clock that was set back puts into the future. Removes
    /// groups without a producer, and runs without a recent heartbeat. Call it about once a second.
    pub fn expire(&mut self, now: UnixNanos) {
        self.runs.expire(now, nanos(MEMORY));
        let range = self.range(now);
        let (runs, lease) = (&self.runs, nanos(self.limits.lease));
        let missing = runs.missing(now, lease);
        self.groups
            .retain(|_, window| window.expire(&range, |run| missing.contains(run)));
    }

    /// Where sub-windows begin that count now.
    fn range(&self, now: UnixNanos) -> RangeInclusive<UnixNanos> {
        let wall = clock::wall(now);
        self.cut.begin(wall)..=wall.saturating_add(nanos(self.limits.tolerance))
    }

    /// The number of refused sub-windows and heartbeats, by reason.
    pub fn refusals(&self) -> WindowRefusals {
        self.refusals
    }

    fn check(&self, sub_window: &SubWindow, now: UnixNanos) -> Result<(), SubWindowRefused> {
        let needs_distribution = self.declaration.is_sketched() && sub_window.count > 0.0;
        if !sub_window.is_sound() || (needs_distribution && sub_window.distribution.is_none()) {
            return Err(SubWindowRefused::Malformed);
        }
        let length = self.cut.part_ns();
        if !sub_window.start.is_multiple_of(length) || sub_window.end - sub_window.start > length {
            return Err(SubWindowRefused::Unaligned);
        }
        self.check_future(sub_window.start, now)
    }

    fn check_future(&self, time: UnixNanos, now: UnixNanos) -> Result<(), SubWindowRefused> {
        let ahead = Duration::from_nanos(time.saturating_sub(clock::wall(now)));
        if ahead > self.limits.tolerance {
            return Err(SubWindowRefused::Future(ahead));
        }
        Ok(())
    }

    /// The group of these attributes. A group beyond `max_groups` has no place in the overflow group, where its
    /// sub-windows would replace those of others.
    fn group(&mut self, attributes: &Attributes) -> Result<&mut MergedWindow, SubWindowRefused> {
        if !self.groups.contains_key(attributes) {
            let is_overflow = *attributes == overflow_attributes();
            let text = attributes.bytes();
            if (self.groups.len() >= self.declaration.max_groups && !is_overflow)
                || self.budget.is_too_long(text)
            {
                return Err(SubWindowRefused::Full);
            }
            let bytes = MergedWindow::BYTES + weight(attributes);
            let reservation = Reservation::new(&self.budget, bytes, 0).ok_or(SubWindowRefused::Full)?;
            self.groups
                .insert(attributes.clone(), MergedWindow::new(reservation));
        }
        self.groups.get_mut(attributes).ok_or(SubWindowRefused::Full)
    }

    fn refuse(&mut self, refused: SubWindowRefused, now: UnixNanos) -> SubWindowRefused {
        let counter = match refused {
            SubWindowRefused::Future(_) => &mut self.refusals.future,
            SubWindowRefused::Unaligned => &mut self.refusals.unaligned,
            SubWindowRefused::Malformed => &mut self.refusals.malformed,
            SubWindowRefused::Full => &mut self.refusals.full,
        };
        *counter += 1;
        self.refused = Some((now, refused));
        refused
    }
}

/// The part of a reading that is equal for all groups at an instant.
struct WindowReading<'a> {
    declaration: &'a Declaration,
    cut: Cut,
    /// Now, by the wall clock.
    wall: UnixNanos,
    /// Where sub-windows begin that count.
    range: RangeInclusive<UnixNanos>,
    census: ProducerCensus,
    /// The reason why values are dropped, if any are.
    omitted: Option<SubWindowRefused>,
}

impl WindowReading<'_> {
    fn answer(&self, attributes: &Attributes, window: &mut MergedWindow) -> Answer {
        let range = &self.range;
        let moments = window.read(range);
        let is_sketched = self.declaration.is_sketched();
        let sketch = is_sketched.then(|| window.distribution(range));
        let covered_s = self.cut.covered_s(self.wall);
        let mut statistics = statistics(moments, sketch.as_ref(), self.declaration, covered_s);
        if self.declaration.function == Function::Rate && statistics.any {
            statistics.value = Some(self.rate(window, range));
        }
        let (last, newest) = window.last(range);
        let state = self.state(statistics.any);
        let answer = statistics.answer(self.declaration, attributes, state, &mut window.held);
        let age = newest.map(|newest| Duration::from_nanos(self.wall.saturating_sub(newest)));
        let last = answer.last.and(last);
        self.with_sources(Answer { last, age, ..answer })
    }

    /// The sum per second. The last page of a producer is up to an interval old: its values divide by the time that it
    /// has reported of. Those of a producer that no longer reports divide by the time until now.
    fn rate(&self, window: &MergedWindow, range: &RangeInclusive<UnixNanos>) -> f64 {
        let per_second = window.sums(range).into_iter().map(|(producer, sum, end)| {
            let is_reporting = self.census.reporting.contains(&producer);
            let end = if is_reporting { end } else { self.wall };
            let covered = end.saturating_sub(*range.start()).max(self.cut.part_ns());
            sum / (covered as f64 / 1e9)
        });
        per_second.fold(0.0, |sum, rate| sum + rate)
    }

    fn state(&self, any: bool) -> Freshness {
        let (expected, reporting) = (self.census.expected, self.census.reporting.len());
        Freshness::of(any, expected, reporting, self.omitted.is_some())
    }

    fn absent(&self) -> Answer {
        let nothing = statistics(Moments::NONE, None, self.declaration, 1.0);
        let attributes = Attributes::default();
        let answer = nothing.answer(self.declaration, &attributes, Freshness::Absent, &mut None);
        self.with_sources(answer)
    }

    fn with_sources(&self, answer: Answer) -> Answer {
        Answer {
            sources_expected: self.census.expected,
            sources_reporting: self.census.reporting.len(),
            collision: self
                .omitted
                .map(|refused| format!("values are dropped: {refused}").into()),
            ..answer
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
