// SPDX-License-Identifier: Apache-2.0

//! One group of a composite: its sources, its series, and the values in its window.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::across::quantile as rank_of;
use super::member::{Member, MemberId, MemberKind, reduce};
use super::sketch::Sketch;
use super::slab::Slab;
use super::source::Liveness;
use super::window::{Cut, Moments, Window};
use super::{Across, Answer, Declaration, Function, OnStale};
use crate::budget::Reservation;
use crate::freshness::Freshness;
use crate::{Attributes, Quantile, Series, UnixNanos};

/// The time for which a living source without series is tracked, in nanoseconds (1 min): its scrape may turn out to
/// have failed.
const EMPTY_NS: u64 = 60_000_000_000;

#[derive(Debug)]
pub(super) struct CompositeGroup {
    pub(super) series: Arc<Series>,
    cut: Cut,
    /// The window of pooled observations.
    pool: Option<Window>,
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

/// The sources that are expected and those that report.
#[derive(Debug, Default)]
struct Census {
    expected: usize,
    reporting: usize,
    /// A loss on the way, or a series that its living source has left out.
    is_partial: bool,
    /// Whether some of them say nothing while nothing happens: events, deltas.
    may_be_idle: bool,
    /// Living series that several processes report as one.
    interleaved: usize,
    /// By the place of the source.
    alive: Vec<bool>,
}

/// The statistics of a group's values.
#[derive(Debug)]
struct Told {
    value: Option<f64>,
    moments: Moments,
    quantiles: Vec<Quantile>,
    /// Whether there is an observation in the window, or a level.
    any: bool,
    error: Option<Arc<str>>,
}

impl CompositeGroup {
    pub(super) fn new(series: Arc<Series>, cut: Cut, reservation: Reservation) -> Self {
        Self {
            series,
            cut,
            pool: None,
            sources: Slab::default(),
            index: HashMap::new(),
            members: Slab::default(),
            next_member: 1,
            newest: 0,
            held: None,
            has_left: false,
            is_unclear: false,
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
    pub(super) fn see(&mut self, member: MemberId, push: u64, now: UnixNanos, is_stalled: bool) -> bool {
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
        let cut = self.cut;
        let pool = self.pool.get_or_insert_with(|| Window::new(cut, has_sketches));
        pool.add(now, moments);
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

    /// Lets go sources that have gone or of which nothing was heard for `memory_ns`.
    pub(super) fn prune(&mut self, now: UnixNanos, memory_ns: u64) {
        let (mut has_left, mut is_unclear) = (false, false);
        let mut gone = Vec::new();
        for (at, source) in self.sources.iter() {
            let liveness = &source.liveness;
            let is_forgotten = liveness.is_forgotten(now, memory_ns);
            let is_empty = source.members == 0 && !source.is_standing() && liveness.is_alive(now);
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
    }

    /// Updates the reservation to the size of its sketches.
    pub(super) fn weigh(&mut self) {
        let pool = self.pool.as_ref().map_or(0, Window::bytes_of_sketches);
        let members = self.members.iter().map(|(_, member)| member.bytes_of_sketches());
        let bytes = pool + members.sum::<usize>();
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
        let pool = self.pool.as_mut();
        self.sources.is_empty() && pool.is_none_or(|pool| pool.read(now).count == 0.0)
    }

    /// Whether it had targets, and every one has left discovery.
    pub(super) fn has_left(&self) -> bool {
        let mut sources = self.sources.iter();
        let is_left = sources.all(|(_, source)| source.liveness.has_left());
        is_left && !self.is_unclear && (self.has_left || !self.sources.is_empty())
    }

    pub(super) fn answer(&mut self, declaration: &Declaration, now: UnixNanos) -> Answer {
        let census = self.census(now);
        let told = match declaration.across {
            Some(across) if across != Across::Pool => self.across(declaration, across, &census, now),
            _ => self.together(declaration, &census, now),
        };
        // Every push contains a steady series, so its silence does not mean that it is idle. Only a group with other series
        // can be idle.
        let any = told.any || (census.expected > 0 && !census.may_be_idle);
        let collision = declaration.collision(census.interleaved);
        let is_partial = census.is_partial || collision.is_some();
        let state = Freshness::of(any, census.expected, census.reporting, is_partial);
        let idle = || {
            let is_alive = !state.says_nothing();
            (declaration.function.is_additive() && is_alive && told.error.is_none()).then_some(0.0)
        };
        let value = told.value.or_else(idle).filter(|_| !state.says_nothing());
        self.held = value.or(self.held);
        let stands_in = declaration.on_stale == OnStale::Last && state.says_nothing();
        // Levels of sources that have ended say nothing of now.
        let (moments, quantiles) = if state.says_nothing() {
            (Moments::NONE, Vec::new())
        } else {
            (told.moments, told.quantiles)
        };
        let some = |value: f64| (moments.count > 0.0).then_some(value);
        Answer {
            attributes: self.attributes().clone(),
            value: value.or(self.held.filter(|_| stands_in)),
            count: moments.count,
            sum: moments.sum,
            min: some(moments.min),
            max: some(moments.max),
            avg: some(moments.sum / moments.count),
            quantiles,
            last: some(moments.last),
            window: declaration.window,
            age: (self.newest > 0).then(|| Duration::from_nanos(now.saturating_sub(self.newest))),
            state,
            sources_expected: census.expected,
            sources_reporting: census.reporting,
            has_left: census.expected == 0 && self.has_left(),
            error: told.error,
            collision,
        }
    }

    fn census(&self, now: UnixNanos) -> Census {
        let mut census = Census {
            alive: self.sources.by_place(|source| source.liveness.is_alive(now)),
            ..Census::default()
        };
        let mut live = vec![0u32; census.alive.len()];
        for (_, member) in self.members.iter() {
            if self.is_live(member, &census, now) {
                live[member.source as usize] += 1;
                census.interleaved += usize::from(self.is_interleaved(member, now));
            }
            census.may_be_idle |= !member.can_be_left_out();
        }
        let begin = self.cut.begin(now).max(1);
        for (at, source) in self.sources.iter() {
            let (liveness, live) = (&source.liveness, live[at as usize]);
            let is_alive = census.alive[at as usize];
            let has_series = source.is_standing() || source.members > 0;
            if liveness.is_gone() {
                continue;
            }
            census.may_be_idle |= source.is_standing();
            census.is_partial |= liveness.lost_at() >= begin;
            census.is_partial |= is_alive && live < source.members;
            census.reporting += usize::from(is_alive && (source.is_standing() || live > 0));
            census.expected += usize::from(has_series || liveness.failed_at(source.emptied));
        }
        census
    }

    fn is_interleaved(&self, member: &Member, now: UnixNanos) -> bool {
        let source = self.sources.get(member.source);
        let lease = source.map_or(0, |source| source.liveness.lease_ns());
        member.interleaved > 0 && now.saturating_sub(member.interleaved) <= lease
    }

    fn is_live(&self, member: &Member, census: &Census, now: UnixNanos) -> bool {
        let is_alive = census.alive.get(member.source as usize) == Some(&true);
        let source = self.sources.get(member.source);
        let has_left_out = |source: &GroupSource| source.liveness.has_left_out(member.push, member.seen, now);
        is_alive && !member.is_stalled && !(member.can_be_left_out() && source.is_some_and(has_left_out))
    }

    /// Each series has a value of its own.
    fn across(&mut self, declaration: &Declaration, across: Across, census: &Census, now: UnixNanos) -> Told {
        let live: Vec<u32> = self.live(census, now);
        let mut values = Vec::with_capacity(live.len());
        let (mut any, mut last, mut newest) = (false, 0.0, 0);
        for at in live {
            let Some(member) = self.members.get_mut(at) else {
                continue;
            };
            let reduced = member.reduce(declaration.function, self.cut, now);
            any |= reduced.any;
            if let Some(value) = reduced.value {
                values.push(value);
                if member.newest >= newest {
                    (newest, last) = (member.newest, value);
                }
            }
        }
        values.sort_by(f64::total_cmp);
        let moments = Moments {
            count: values.len() as f64,
            // The sum of nothing is a negative zero in Rust.
            sum: values.iter().fold(0.0, |sum, value| sum + value),
            min: values.first().copied().unwrap_or(f64::INFINITY),
            max: values.last().copied().unwrap_or(f64::NEG_INFINITY),
            last,
        };
        let quantile = |rank: &f64| Quantile {
            quantile: *rank,
            value: rank_of(&values, *rank),
        };
        Told {
            value: across.combine(&values),
            quantiles: if values.is_empty() {
                Vec::new()
            } else {
                declaration.quantiles.iter().map(quantile).collect()
            },
            moments,
            any,
            error: None,
        }
    }

    fn live(&self, census: &Census, now: UnixNanos) -> Vec<u32> {
        let members = self.members.iter();
        let live = members.filter(|(_, member)| self.is_live(member, census, now));
        live.map(|(at, _)| at).collect()
    }

    /// All observations are in one window, or there is a single gauge.
    fn together(&mut self, declaration: &Declaration, census: &Census, now: UnixNanos) -> Told {
        let live = self.live(census, now);
        let is_level = |at: &&u32| self.members.get(**at).is_some_and(Member::is_level);
        let levels: Vec<u32> = live.iter().filter(is_level).copied().collect();
        match levels[..] {
            [] => self.pooled(declaration, now),
            [one] if live.len() == 1 => self.lone(one, declaration, now),
            _ => Told {
                value: None,
                moments: Moments::NONE,
                quantiles: Vec::new(),
                any: true,
                error: Some(self.conflict(&levels, declaration)),
            },
        }
    }

    fn pooled(&mut self, declaration: &Declaration, now: UnixNanos) -> Told {
        let Some(window) = &mut self.pool else {
            return told(Moments::NONE, None, declaration, self.cut, now);
        };
        let moments = window.read(now);
        let distribution = declaration.is_sketched().then(|| window.distribution(now));
        told(moments, distribution, declaration, self.cut, now)
    }

    /// A gauge that is alone: its samples in the window, or the level that it keeps.
    fn lone(&mut self, at: u32, declaration: &Declaration, now: UnixNanos) -> Told {
        let Some(member) = self.members.get_mut(at) else {
            return self.pooled(declaration, now);
        };
        let (moments, distribution) = member.samples(declaration.is_sketched(), now);
        told(moments, distribution, declaration, self.cut, now)
    }

    fn conflict(&self, levels: &[u32], declaration: &Declaration) -> Arc<str> {
        let name = |at: &u32| self.members.get(*at).and_then(Member::name);
        let names: Vec<String> = levels.iter().filter_map(name).take(2).collect();
        let series = match names.len() {
            2 => names.join(" and "),
            _ => "a gauge and other series".to_owned(),
        };
        let name = &declaration.name;
        format!(
            "`{name}` joins gauge series ({series}): set `across` to sum, avg, min, max, count or quantile, \
             or tell them apart by `by`"
        )
        .into()
    }
}

/// The statistics of a window.
fn told(
    moments: Moments,
    distribution: Option<Sketch>,
    declaration: &Declaration,
    cut: Cut,
    now: UnixNanos,
) -> Told {
    let spread = distribution.as_ref().map(Sketch::spread);
    let quantile = |rank: f64| {
        let told = spread.as_ref()?.quantile(rank)?;
        Some(moments.bound(told))
    };
    let ranks = declaration.quantiles.iter();
    let quantiles = ranks.filter_map(|rank| {
        let value = quantile(*rank)?;
        Some(Quantile {
            quantile: *rank,
            value,
        })
    });
    Told {
        value: match declaration.function {
            Function::Quantile(rank) => quantile(rank),
            function => reduce(function, &moments, cut.covered_s(now)),
        },
        quantiles: quantiles.collect(),
        any: moments.count > 0.0,
        moments,
        error: None,
    }
}

impl GroupSource {
    /// Whether it counts without any series: a source of events is known before its first event.
    fn is_standing(&self) -> bool {
        !matches!(self.liveness, Liveness::Points(_))
    }
}
