// SPDX-License-Identifier: Apache-2.0

//! The answer of a group: the number of sources that report, and the statistics of its values.

use std::sync::Arc;
use std::time::Duration;

use super::super::across::quantile as rank_of;
use super::super::member::{Member, reduce};
#[cfg(feature = "tables")]
use super::super::silent::SilenceReason;
use super::super::sketch::Sketch;
#[cfg(feature = "tables")]
use super::super::source::Liveness;
use super::super::window::Moments;
use super::super::{Across, Answer, Declaration, Function, OnStale};
use super::{CompositeGroup, GroupSource};
use crate::freshness::Freshness;
use crate::{Attributes, Quantile, UnixNanos};

/// The sources that are expected and those that report.
#[derive(Debug, Default)]
struct Census {
    expected: usize,
    reporting: usize,
    /// A loss on the way, or a series that its living source has omitted.
    is_partial: bool,
    /// Whether some of them say nothing while nothing happens: events, deltas.
    may_be_idle: bool,
    /// Living series that several processes report as one.
    interleaved: usize,
    /// By the place of the source.
    alive: Vec<bool>,
    /// The number of its living series, in the same order.
    live: Vec<u32>,
}

impl Census {
    /// Whether the source in this slot is alive, and has a living series if it needs one.
    fn reports(&self, at: u32, source: &GroupSource) -> bool {
        let at = at as usize;
        self.alive[at] && (source.counts_without_series() || self.live[at] > 0)
    }
}

/// The statistics of a group's values.
#[derive(Debug)]
pub(in crate::composite) struct GroupStatistics {
    pub(in crate::composite) value: Option<f64>,
    pub(in crate::composite) moments: Moments,
    quantiles: Vec<Quantile>,
    /// Whether there is an observation in the window, or a level.
    pub(in crate::composite) any: bool,
    error: Option<Arc<str>>,
}

impl CompositeGroup {
    pub(in crate::composite) fn answer(&mut self, declaration: &Declaration, now: UnixNanos) -> Answer {
        let census = self.census(now);
        let statistics = match declaration.across {
            Some(across) if across != Across::Pool => self.across(declaration, across, &census, now),
            _ => self.together(declaration, &census, now),
        };
        // Every push contains a steady series, so its silence does not mean that it is idle. Only a group with other series
        // can be idle.
        let any = statistics.any || (census.expected > 0 && !census.may_be_idle);
        let collision = declaration.collision(census.interleaved);
        // The sources of an earlier run may still live, and have not reported yet.
        let is_unknown = census.expected == 0 && self.awaits_sources;
        let is_partial = census.is_partial || collision.is_some() || is_unknown;
        let state = Freshness::of(any, census.expected, census.reporting, is_partial);
        let answer = statistics.answer(declaration, &self.series.attributes, state, &mut self.held);
        Answer {
            age: (self.newest > 0).then(|| Duration::from_nanos(now.saturating_sub(self.newest))),
            sources_expected: census.expected,
            sources_reporting: census.reporting,
            has_left: census.expected == 0 && self.has_left(),
            collision,
            ..answer
        }
    }

    fn census(&self, now: UnixNanos) -> Census {
        let mut census = Census {
            alive: self.sources.by_slot(|source| source.liveness.is_alive(now)),
            ..Census::default()
        };
        census.live = vec![0; census.alive.len()];
        for (_, member) in self.members.iter() {
            if self.is_live(member, &census, now) {
                census.live[member.source as usize] += 1;
                census.interleaved += usize::from(self.is_interleaved(member, now));
            }
            census.may_be_idle |= !member.can_be_omitted();
        }
        let begin = self.cut.begin(now).max(1);
        for (at, source) in self.sources.iter() {
            let (liveness, live) = (&source.liveness, census.live[at as usize]);
            let is_alive = census.alive[at as usize];
            if liveness.is_gone() {
                continue;
            }
            census.may_be_idle |= source.counts_without_series();
            census.is_partial |= liveness.lost_at() >= begin;
            census.is_partial |= is_alive && live < source.members;
            census.reporting += usize::from(census.reports(at, source));
            census.expected += usize::from(source.is_expected());
        }
        census
    }

    /// The expected sources that do not report, and the reasons.
    #[cfg(feature = "tables")]
    pub(in crate::composite) fn silent(&self, now: UnixNanos) -> Vec<(SilenceReason, Liveness)> {
        let census = self.census(now);
        let sources = self.sources.iter();
        let silent = sources.filter(|(at, source)| source.is_expected() && !census.reports(*at, source));
        let silent = silent.map(|(at, source)| {
            let liveness = source.liveness.clone();
            let reason = match (liveness.is_down(), census.alive[at as usize]) {
                (true, _) => SilenceReason::Down,
                (false, false) => SilenceReason::Overdue,
                (false, true) => SilenceReason::WithoutSeries,
            };
            (reason, liveness)
        });
        silent.collect()
    }

    fn is_interleaved(&self, member: &Member, now: UnixNanos) -> bool {
        let source = self.sources.get(member.source);
        let lease = source.map_or(0, |source| source.liveness.lease_ns());
        member.interleaved > 0 && now.saturating_sub(member.interleaved) <= lease
    }

    fn is_live(&self, member: &Member, census: &Census, now: UnixNanos) -> bool {
        let is_alive = census.alive.get(member.source as usize) == Some(&true);
        let source = self.sources.get(member.source);
        let has_omitted = |source: &GroupSource| source.liveness.has_omitted(member.push, member.seen, now);
        is_alive && !member.is_stalled && !(member.can_be_omitted() && source.is_some_and(has_omitted))
    }

    /// Each series has a value of its own.
    fn across(
        &mut self,
        declaration: &Declaration,
        across: Across,
        census: &Census,
        now: UnixNanos,
    ) -> GroupStatistics {
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
        GroupStatistics {
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
    fn together(&mut self, declaration: &Declaration, census: &Census, now: UnixNanos) -> GroupStatistics {
        let live = self.live(census, now);
        let is_level = |at: &&u32| self.members.get(**at).is_some_and(Member::is_level);
        let levels: Vec<u32> = live.iter().filter(is_level).copied().collect();
        match levels[..] {
            [] => self.pooled(declaration, now),
            [one] if live.len() == 1 => self.lone(one, declaration, now),
            _ => GroupStatistics {
                value: None,
                moments: Moments::NONE,
                quantiles: Vec::new(),
                any: true,
                error: Some(self.conflict(&levels, declaration)),
            },
        }
    }

    fn pooled(&mut self, declaration: &Declaration, now: UnixNanos) -> GroupStatistics {
        let cut = self.cut;
        let mut moments = Moments::NONE;
        let mut distribution: Option<Sketch> = None;
        for (window, _) in self.windows() {
            moments.add(&window.read(now));
            if declaration.is_sketched() {
                let sketch = window.distribution(now);
                match &mut distribution {
                    Some(all) => all.merge(&sketch),
                    none => *none = Some(sketch),
                }
            }
        }
        statistics(moments, distribution.as_ref(), declaration, cut.covered_s(now))
    }

    /// A gauge that is alone: its samples in the window, or the level that it keeps.
    fn lone(&mut self, at: u32, declaration: &Declaration, now: UnixNanos) -> GroupStatistics {
        let Some(member) = self.members.get_mut(at) else {
            return self.pooled(declaration, now);
        };
        let (moments, distribution) = member.samples(declaration.is_sketched(), now);
        let covered_s = self.cut.covered_s(now);
        statistics(moments, distribution.as_ref(), declaration, covered_s)
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

impl GroupStatistics {
    /// The answer of a group in this state. `held` is its last value. Nothing is known of its sources.
    pub(in crate::composite) fn answer(
        self,
        declaration: &Declaration,
        attributes: &Attributes,
        state: Freshness,
        held: &mut Option<f64>,
    ) -> Answer {
        let idle = || {
            let is_alive = !state.is_unusable();
            (declaration.function.is_additive() && is_alive && self.error.is_none()).then_some(0.0)
        };
        let value = self.value.or_else(idle).filter(|_| !state.is_unusable());
        *held = value.or(*held);
        let stands_in = declaration.on_stale == OnStale::Last && state.is_unusable();
        // Levels of sources that have ended say nothing of now.
        let (moments, quantiles) = if state.is_unusable() {
            (Moments::NONE, Vec::new())
        } else {
            (self.moments, self.quantiles)
        };
        let some = |value: f64| (moments.count > 0.0).then_some(value);
        Answer {
            attributes: attributes.clone(),
            value: value.or(held.filter(|_| stands_in)),
            count: moments.count,
            sum: moments.sum,
            min: some(moments.min),
            max: some(moments.max),
            avg: some(moments.sum / moments.count),
            quantiles,
            last: some(moments.last),
            window: declaration.window,
            age: None,
            state,
            sources_expected: 0,
            sources_reporting: 0,
            has_left: false,
            error: self.error,
            collision: None,
        }
    }
}

/// The statistics of a window that covers this many seconds.
pub(in crate::composite) fn statistics(
    moments: Moments,
    distribution: Option<&Sketch>,
    declaration: &Declaration,
    covered_s: f64,
) -> GroupStatistics {
    let spread = distribution.map(Sketch::spread);
    let quantile = |rank: f64| {
        let value = spread.as_ref()?.quantile(rank)?;
        Some(moments.bound(value))
    };
    let ranks = declaration.quantiles.iter();
    let quantiles = ranks.filter_map(|rank| {
        let value = quantile(*rank)?;
        Some(Quantile {
            quantile: *rank,
            value,
        })
    });
    GroupStatistics {
        value: match declaration.function {
            Function::Quantile(rank) => quantile(rank),
            function => reduce(function, &moments, covered_s),
        },
        quantiles: quantiles.collect(),
        any: moments.count > 0.0,
        moments,
        error: None,
    }
}
