// SPDX-License-Identifier: Apache-2.0

//! One group of a composite: its sources, its series, and the values in its window.

pub(super) mod value;

use std::collections::HashMap;
use std::sync::Arc;

use super::member::{Member, MemberId, MemberKind};
use super::sketch::Sketch;
use super::slab::Slab;
use super::source::Liveness;
#[cfg(feature = "tables")]
use super::sub_window::SubWindow;
use super::window::{Cut, Moments, Window};
use crate::budget::Reservation;
#[cfg(feature = "tables")]
use crate::clock;
use crate::{Attributes, Series, UnixNanos};

/// The time for which a living source without series is tracked, in nanoseconds (1 min): its scrape may turn out to
/// have failed.
const EMPTY_NS: u64 = 60_000_000_000;

/// The runs that observed the values of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowOrigin {
    ThisRun,
    EarlierRuns,
}

#[derive(Debug)]
pub(super) struct CompositeGroup {
    pub(super) series: Arc<Series>,
    cut: Cut,
    /// The window of pooled observations.
    pool: Option<Window>,
    /// The same of earlier runs of this process, until they leave the window.
    restored: Option<Box<Window>>,
    sources: Slab<GroupSource>,
    /// Sources by the address of their liveness.
    index: HashMap<usize, u32>,
    members: Slab<Member>,
    next_member: u64,
    newest: UnixNanos,
    /// The last value there was.
    held: Option<f64>,
    /// A target has left discovery.
    has_left: bool,
    /// A source was forgotten that has never said that it goes.
    is_unclear: bool,
    /// An earlier run fed it, and no source has reported yet.
    pub(super) awaits_sources: bool,
    /// When a total whose earlier increases are unknown came into its empty window; 0: none did.
    pub(super) observed_since: UnixNanos,
    /// The composite has removed it: later data belongs to the next group of these attributes.
    pub(super) is_removed: bool,
    /// The budget's reservation for its text and window, and for its sketches. `None`: [`Self::hand_on`] gave it away.
    reservation: Option<Reservation>,
}

/// A source of a group.
#[derive(Debug)]
struct GroupSource {
    liveness: Liveness,
    members: u32,
    /// When the last of its series ended.
    emptied: UnixNanos,
}

impl CompositeGroup {
    pub(super) fn new(series: Arc<Series>, cut: Cut, reservation: Reservation) -> Self {
        Self {
            series,
            cut,
            pool: None,
            restored: None,
            sources: Slab::default(),
            index: HashMap::new(),
            members: Slab::default(),
            next_member: 1,
            newest: 0,
            held: None,
            has_left: false,
            is_unclear: false,
            awaits_sources: false,
            observed_since: 0,
            is_removed: false,
            reservation: Some(reservation),
        }
    }

    pub(super) fn attributes(&self) -> &Attributes {
        &self.series.attributes
    }

    /// Adds a source whose liveness decides whether the group is idle or stale. Returns its number.
    pub(super) fn join(&mut self, liveness: &Liveness) -> u32 {
        if self.sources.is_empty() {
            (self.has_left, self.is_unclear) = (false, false);
            self.awaits_sources = false;
        }
        let sources = &mut self.sources;
        *self.index.entry(liveness.address()).or_insert_with(|| {
            sources.insert(GroupSource {
                liveness: liveness.clone(),
                members: 0,
                emptied: 0,
            })
        })
    }

    /// Adds a series of a source.
    pub(super) fn enter(&mut self, liveness: &Liveness, kind: MemberKind) -> MemberId {
        let source = self.join(liveness);
        if let Some(source) = self.sources.get_mut(source) {
            source.members += 1;
        }
        let id = self.next_member;
        self.next_member += 1;
        let at = self.members.insert(Member::new(id, source, kind));
        MemberId { at, id }
    }

    /// A series has ended, or is forgotten.
    pub(super) fn leave(&mut self, member: MemberId, now: UnixNanos) {
        if self.member(member).is_none() {
            return;
        }
        let left = self.members.remove(member.at);
        let source = left.and_then(|left| self.sources.get_mut(left.source));
        if let Some(source) = source {
            source.members = source.members.saturating_sub(1);
            source.emptied = now;
        }
    }

    /// Notes that a series was in this push. `is_stalled`: its points are refused all the same. `false`: the
    /// group does not know it any more.
    pub(super) fn mark_seen(
        &mut self,
        member: MemberId,
        push: u64,
        now: UnixNanos,
        is_stalled: bool,
    ) -> bool {
        let Some(member) = self.member(member) else {
            return false;
        };
        (member.push, member.seen, member.is_stalled) = (push, now, is_stalled);
        true
    }

    /// Notes that a series is stalled: the times of its points are too far ahead.
    pub(super) fn stall(&mut self, member: MemberId) {
        if let Some(member) = self.member(member) {
            member.is_stalled = true;
        }
    }

    /// Notes that the first total of a series was reported. What it counted in the window before is unknown. If the window has
    /// data of other series, the group stays as it is: else each new series would make it partial for a window.
    #[cfg(feature = "tables")]
    pub(super) fn note_first_total(&mut self, now: UnixNanos) {
        if self.newest < self.cut.begin(now) {
            self.observed_since = now;
        }
    }

    /// A series has the level of the newest of these samples.
    pub(super) fn level(&mut self, member: MemberId, now: UnixNanos, samples: &Moments) {
        self.newest = self.newest.max(now);
        if let Some(member) = self.member(member) {
            member.level(now, samples);
        }
    }

    /// Another process than before reported its level as this series.
    pub(super) fn interleave(&mut self, member: MemberId, now: UnixNanos) {
        if let Some(member) = self.member(member) {
            member.interleaved = now;
        }
    }

    /// Adds the observations or the increase of a series.
    pub(super) fn observe(
        &mut self,
        member: MemberId,
        now: UnixNanos,
        moments: &Moments,
        sketch: impl FnOnce(&mut Sketch),
        has_sketches: bool,
    ) {
        match self.member(member).and_then(Member::window) {
            Some(window) => {
                window.add(now, moments);
                window.sketch(now, sketch);
                self.newest = self.newest.max(now);
            }
            None => {
                self.add(now, moments, has_sketches);
                self.sketch(now, sketch);
            }
        }
    }

    /// Adds observations to the window of all.
    pub(super) fn add(&mut self, now: UnixNanos, moments: &Moments, has_sketches: bool) {
        self.newest = self.newest.max(now);
        self.pool(has_sketches).add(now, moments);
    }

    /// The window of pooled observations of this run.
    pub(super) fn pool(&mut self, has_sketches: bool) -> &mut Window {
        let cut = self.cut;
        self.pool.get_or_insert_with(|| Window::new(cut, has_sketches))
    }

    /// The windows of pooled observations, the older one first.
    pub(super) fn windows(&mut self) -> impl Iterator<Item = (&mut Window, WindowOrigin)> {
        let restored = self.restored.as_deref_mut();
        let earlier = restored.map(|window| (window, WindowOrigin::EarlierRuns));
        let own = self.pool.as_mut().map(|window| (window, WindowOrigin::ThisRun));
        earlier.into_iter().chain(own)
    }

    /// Adds the observations of an earlier run, which begin at `start` by our clock. `false`: no memory is left for them.
    #[cfg(feature = "tables")]
    pub(super) fn restore(
        &mut self,
        start: UnixNanos,
        saved: &SubWindow,
        has_sketches: bool,
        now: UnixNanos,
    ) -> bool {
        let cut = self.cut;
        let distribution = saved.sketch().filter(|_| has_sketches);
        let window_bytes = if self.restored.is_some() {
            0
        } else {
            cut.bytes(has_sketches)
        };
        // The lists of a sketch may double when they grow.
        let sketch_bytes = distribution.as_ref().map_or(0, |sketch| 2 * sketch.bytes());
        let reservation = self.reservation.as_ref();
        if reservation.is_some_and(|reservation| !reservation.may_grow(window_bytes + sketch_bytes)) {
            return false;
        }
        let window = self
            .restored
            .get_or_insert_with(|| Box::new(Window::new(cut, has_sketches)));
        window.add(start, &saved.moments());
        if let Some(distribution) = distribution {
            window.sketch(start, |sketch| sketch.merge(&distribution));
        }
        self.awaits_sources = self.sources.is_empty();
        self.newest = self.newest.max(clock::steady(saved.end).min(now));
        self.weigh();
        true
    }

    /// Whether one of its series is a level.
    #[cfg(feature = "tables")]
    pub(super) fn has_level(&self) -> bool {
        self.members.iter().any(|(_, member)| member.is_level())
    }

    /// Lets `add` update the distribution of the window at `now`, if quantiles are wanted.
    pub(super) fn sketch(&mut self, now: UnixNanos, add: impl FnOnce(&mut Sketch)) {
        if let Some(pool) = &mut self.pool {
            pool.sketch(now, add);
        }
    }

    /// The same for the window of a series, if it has one of its own.
    pub(super) fn sketch_of(
        &mut self,
        member: Option<MemberId>,
        now: UnixNanos,
        add: impl FnOnce(&mut Sketch),
    ) {
        let Some(id) = member else {
            return self.sketch(now, add);
        };
        if let Some(window) = self.member(id).and_then(Member::window) {
            window.sketch(now, add);
        }
    }

    /// Whether it has no series yet.
    pub(super) fn has_no_series(&self) -> bool {
        self.members.is_empty()
    }

    fn member(&mut self, id: MemberId) -> Option<&mut Member> {
        self.members.get_mut(id.at).filter(|member| member.id == id.id)
    }

    /// Removes sources that have gone or that have been silent for `memory_ns`, and a restored window that has ended.
    pub(super) fn prune(&mut self, now: UnixNanos, memory_ns: u64) {
        let (mut has_left, mut is_unclear) = (false, false);
        let mut gone = Vec::new();
        for (at, source) in self.sources.iter() {
            let liveness = &source.liveness;
            let is_forgotten = liveness.is_forgotten(now, memory_ns);
            let is_empty = source.members == 0 && !source.counts_without_series() && liveness.is_alive(now);
            let is_idle = is_empty && now.saturating_sub(source.emptied) > EMPTY_NS;
            if liveness.is_gone() || is_forgotten || is_idle {
                has_left |= liveness.has_left();
                is_unclear |= !liveness.is_gone() && is_forgotten;
                gone.push((at, liveness.address()));
            }
        }
        self.has_left |= has_left;
        self.is_unclear |= is_unclear;
        for (at, address) in gone {
            self.sources.remove(at);
            self.index.remove(&address);
            self.members.retain(|member| member.source != at);
        }
        self.members.shrink();
        self.sources.shrink();
        if self.index.is_empty() {
            self.index.shrink_to_fit();
        }
        let ended = self.restored.take_if(|window| window.read(now).count == 0.0);
        if ended.is_some() {
            self.weigh();
        }
    }

    /// Updates the reservation to the size of its sketches and of the restored window.
    pub(super) fn weigh(&mut self) {
        let pool = self.pool.as_ref().map_or(0, Window::bytes_of_sketches);
        let restored = self.restored.as_ref().map_or(0, |window| window.bytes());
        let members = self.members.iter().map(|(_, member)| member.bytes_of_sketches());
        let bytes = pool + restored + members.sum::<usize>();
        if let Some(reservation) = &mut self.reservation {
            reservation.hold(bytes);
        }
    }

    /// Hands on the reservation of its text to a holder of that text.
    pub(super) fn hand_on(&mut self) -> Option<Reservation> {
        let mut reservation = self.reservation.take()?;
        reservation.hold(0);
        Some(reservation)
    }

    /// Whether the window is empty and the group has no source.
    pub(super) fn is_over(&mut self, now: UnixNanos) -> bool {
        self.sources.is_empty() && self.windows().all(|(window, _)| window.read(now).count == 0.0)
    }

    /// Whether it had targets, and every one has left discovery.
    pub(super) fn has_left(&self) -> bool {
        let mut sources = self.sources.iter();
        let is_left = sources.all(|(_, source)| source.liveness.has_left());
        is_left && !self.is_unclear && (self.has_left || !self.sources.is_empty())
    }
}

impl GroupSource {
    /// Whether it counts without any series: a source of events is known before its first event.
    fn counts_without_series(&self) -> bool {
        !matches!(self.liveness, Liveness::Points(_))
    }

    /// Whether it has not gone, and has series or has lost them by a failed scrape.
    fn is_expected(&self) -> bool {
        let has_series = self.counts_without_series() || self.members > 0;
        !self.liveness.is_gone() && (has_series || self.liveness.failed_at(self.emptied))
    }
}
