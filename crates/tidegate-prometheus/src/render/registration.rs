// SPDX-License-Identifier: Apache-2.0

//! Registers series: finds their family, interns their labels and inserts them.
//!
//! Invariants: a family has at most one record of a text; both are the place of a series. A series that is known is in
//! the records of its family, among the late series of the pass, or among the conflicts. Late series wait for `finish`,
//! because one merge costs less than many insertions.
//!
//! Ownership: a record and a late series hold one reference to their text and one to their origin. Conflicts hold none.
//! The cache holds one more to each of its origins and to its last text. `finish` releases these.
//!
//! Locks: the caller has the renderer for itself. The order of the other locks is the senders, then a table, because
//! [`Senders`] reads tables under its own lock. So `glance` releases its table before the senders are asked.

mod late;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use tidegate_engine::{Data, Key, Resource, Series, UnixNanos};

use self::late::Late;
use super::conflict::{Conflicts, Refused, Taken, Why};
use super::family::Families;
use super::interner::LabelInterner;
use super::records::Record;
use super::source::{Glance, New, PageSources, SourceReader};
use super::targets::{Liveness, TargetTable};
use super::{Style, encode};
use crate::catalog::{ContestOutcome, Contests, LastLifetime, Lifetime, Senders, Times, differing};
use crate::format::Format;
use crate::labels::PrometheusLabels;
use crate::name::Spelling;

/// The most rounds per look in the search for owners. Two are enough unless clocks differ.
const MAX_ROUNDS: usize = 4;

/// A pass that registers the series of a look. It borrows the parts of the renderer and ends with `finish`.
pub(super) struct SeriesRegistration<'a> {
    pub(super) format: Format,
    pub(super) style: &'a Style,
    pub(super) sources: &'a PageSources,
    pub(super) families: &'a mut Families,
    pub(super) interner: &'a mut LabelInterner,
    pub(super) targets: &'a mut TargetTable,
    pub(super) conflicts: &'a mut Conflicts,
    pub(super) contests: &'a mut Contests<SeriesPosition>,
    pub(super) senders: &'a Senders,
    pub(super) reader: SourceReader<'a>,
    pub(super) now: UnixNanos,
    /// Whether a place has another owner than before.
    pub(super) has_changed: bool,
    /// Series that were omitted, and own their place since the outcome for another series.
    pub(super) found_owners: BTreeSet<SeriesPosition>,
    pub(super) cache: RegistrationCache,
}

/// Lookups of one pass. Series of one resource or metric come together, so most lookups repeat.
#[derive(Default)]
pub(super) struct RegistrationCache {
    /// The families of metrics, by source and address. Only living metrics are looked up.
    of_metric: HashMap<(u16, usize), Result<u32, Arc<Taken>>, RandomState>,
    /// Origins of resources, by the same kind of key. The cache holds one reference to each.
    of_resource: HashMap<(u16, usize), u32, RandomState>,
    /// The last series and its text. The cache holds one reference to the text.
    last: Option<(Arc<Series>, u32)>,
    /// Series whose text is older than that of the last one of their family, by family, and since when they were
    /// omitted.
    late: HashMap<u32, Vec<Late>, RandomState>,
}

/// A series was omitted before.
pub(super) struct Before {
    since: UnixNanos,
    is_reported: bool,
}

impl SeriesRegistration<'_> {
    /// Looks again at a series that was omitted.
    pub(super) fn retry(&mut self, (mut refused, may_fit): (Refused, bool)) {
        let member = (refused.source, refused.place);
        let lifetime = match self.reader.glance(refused.source, refused.place) {
            Glance::Gone => {
                let contest = refused.contest.into_iter();
                return contest.for_each(|place| self.contests.remove_contender(place, member));
            }
            Glance::Silent(_) => None,
            Glance::Shown(series, times) => Some(self.lifetime(member, &series.resource, times)),
        };
        let outcome = refused.contest.map(|place| self.resolve(place));
        let has_place = match (outcome, refused.contest) {
            (Some(Some(outcome)), _) => outcome.owner == member,
            // None of them has a value, or the others have gone.
            (Some(None), Some(place)) => self.contests.owner(place).is_none(),
            _ => may_fit,
        };
        if has_place {
            self.has_changed = true;
            self.found_owners.remove(&member);
            let before = Before {
                since: refused.since,
                is_reported: refused.is_reported,
            };
            let new = New {
                source: refused.source,
                place: refused.place,
                series: refused.series,
            };
            return self.register(new, Some(before));
        }
        let is_alive = outcome.is_none_or(|outcome| self.collides(lifetime, outcome));
        if is_alive && !refused.is_alive {
            refused.since = self.now;
        }
        refused.is_alive = is_alive;
        if let Some(owner) = outcome.flatten().map(|outcome| outcome.owner)
            && refused.rival != Some(owner)
        {
            refused.rival = Some(owner);
            // The target may be another one too, made for the new owner.
            let spelling = Spelling::of(&refused.series.metric);
            self.targets.add_resource(&refused.series.resource, spelling);
            refused.why = self.rivalry(owner, refused.source, &refused.series);
        }
        self.conflicts.refuse(refused);
    }

    /// Looks again at what has got a place by a judgement about another series, whose own judgement may find others.
    pub(super) fn retry_owners(&mut self) {
        for _ in 0..MAX_ROUNDS {
            let owners = std::mem::take(&mut self.found_owners);
            if owners.is_empty() {
                return;
            }
            let those = self.conflicts.take_those(&owners);
            those.into_iter().for_each(|refused| self.retry(refused));
        }
    }

    /// Decides which series has a place now.
    fn resolve(&mut self, place: Key) -> Option<ContestOutcome<SeriesPosition>> {
        let before = self.contests.owner(place);
        let (reader, senders, now) = (&mut self.reader, self.senders, self.now);
        let outcome = self.contests.resolve(place, (senders, now), |member| {
            lifetime_now(reader, senders, member, now)
        })?;
        if before != Some(outcome.owner) {
            self.found_owners.insert(outcome.owner);
        }
        Some(outcome)
    }

    fn lifetime(&mut self, member: SeriesPosition, resource: &Resource, times: Times) -> Lifetime {
        lifetime(&self.reader, self.senders, member, (resource, times), self.now)
    }

    /// Whether a series that is omitted reports beside the one that has its place.
    fn collides(&self, lifetime: Option<Lifetime>, outcome: Option<ContestOutcome<SeriesPosition>>) -> bool {
        lifetime
            .zip(outcome)
            .is_some_and(|(lifetime, owner)| lifetime.collides_with(&owner.lifetime, self.now))
    }

    /// Registers a series. `before`: it was omitted before.
    pub(super) fn register(&mut self, new: New, before: Option<Before>) {
        let family = match self.family(&new) {
            Ok(family) => family,
            Err(taken) => return self.refuse(new, Why::Family(taken), None, before),
        };
        let Some(text) = self.text(&new.series) else {
            return self.refuse(new, Why::Full, None, before);
        };
        match self.known(family, text, &new) {
            TextMatch::No => self.insert(family, text, new, before),
            TextMatch::Same => self.interner.release(text),
            TextMatch::Other(owner, place) => {
                self.interner.release(text);
                self.lose(new, (owner, place), before);
            }
        }
    }

    /// Leaves a series out that another one keeps from its place.
    fn lose(&mut self, new: New, (owner, place): (SeriesPosition, Key), before: Option<Before>) {
        let why = self.rivalry(owner, new.source, &new.series);
        let spelling = Spelling::of(&new.series.metric);
        self.targets.add_resource(&new.series.resource, spelling);
        self.refuse(new, why, Some((owner, place)), before);
    }

    fn refuse(&mut self, new: New, why: Why, contest: Option<(SeriesPosition, Key)>, before: Option<Before>) {
        let is_alive = contest.is_none_or(|(_, place)| {
            let (reader, senders) = (&mut self.reader, self.senders);
            let lifetime = lifetime_now(reader, senders, (new.source, new.place), self.now);
            let outcome = self.resolve(place);
            self.collides(lifetime.flatten(), outcome)
        });
        let refused = Refused {
            owner: self.sources.owner(new.source),
            source: new.source,
            place: new.place,
            series: new.series,
            why,
            since: before.as_ref().map_or(self.now, |before| before.since),
            contest: contest.map(|(_, place)| place),
            rival: contest.map(|(rival, _)| rival),
            is_alive,
            is_reported: before.is_some_and(|before| before.is_reported),
        };
        self.conflicts.refuse(refused);
    }

    /// Puts a series among the others of its family.
    fn insert(&mut self, family: u32, text: u32, new: New, before: Option<Before>) {
        let record = Record {
            place: new.place,
            text,
            origin: self.origin(&new),
        };
        let Some(known) = self.families.get_mut(family) else {
            return;
        };
        if !known.series.push(record) {
            let late = self.cache.late.entry(family).or_default();
            late.push(Late { record, new, before });
        }
    }

    /// The key of the place of a series with this family and text.
    fn key_of(&self, family: u32, text: u32) -> Key {
        let name = self.families.get(family).map(|family| &*family.name);
        Key::of_value(&(name, self.interner.get(text)))
    }

    /// Whether the family has this text already. A series that has ended, or gives way, makes room for it.
    fn known(&mut self, family: u32, text: u32, new: &New) -> TextMatch {
        let known = self.families.get_mut(family);
        let Some(other) = known.and_then(|known| known.series.find(text)).copied() else {
            return TextMatch::No;
        };
        let owner = (self.targets.source(other.origin).unwrap_or(u16::MAX), other.place);
        let me = (new.source, new.place);
        if owner == me {
            return TextMatch::Same;
        }
        let place = self.key_of(family, text);
        self.contests.add_contender(place, owner, me);
        let glance = self.reader.glance(owner.0, owner.1);
        let is_mine = match self.resolve(place) {
            Some(outcome) => outcome.owner == me,
            None => matches!(glance, Glance::Gone),
        };
        if !is_mine {
            return TextMatch::Other(owner, place);
        }
        let origin = self.origin(new);
        let known = self.families.get_mut(family);
        if let Some(record) = known.and_then(|known| known.series.find(text)) {
            (record.place, record.origin) = (new.place, origin);
        }
        self.targets.release(other.origin);
        self.has_changed = true;
        self.found_owners.remove(&me);
        match glance {
            // The series may return.
            Glance::Shown(series, _) | Glance::Silent(series) => {
                let old = New {
                    source: owner.0,
                    place: owner.1,
                    series,
                };
                self.lose(old, (me, place), None);
            }
            Glance::Gone => {}
        }
        TextMatch::Same
    }

    /// The reason why a series is omitted while `owner` has its place.
    fn rivalry(&mut self, (source, place): SeriesPosition, own_source: u16, series: &Series) -> Why {
        let differ: Arc<str> = match self.reader.glance(source, place) {
            Glance::Shown(owner, _) | Glance::Silent(owner) => differing(&owner, series).into(),
            Glance::Gone => Arc::default(),
        };
        if source == own_source {
            Why::Twin(differ)
        } else {
            Why::Rival(self.sources.owner(source), differ)
        }
    }

    /// The number of a series' encoded labels, with a reference for the caller.
    fn text(&mut self, series: &Arc<Series>) -> Option<u32> {
        if let Some((last, text)) = &self.cache.last
            && has_same_labels(last, series)
        {
            self.interner.add_ref(*text);
            return Some(*text);
        }
        let labels = PrometheusLabels::of(series, &self.style.naming, &self.style.labels);
        let text = self.interner.intern(&encode(labels, self.format)).ok()?;
        self.interner.add_ref(text);
        let before = self.cache.last.replace((series.clone(), text));
        before
            .into_iter()
            .for_each(|(_, text)| self.interner.release(text));
        Some(text)
    }

    fn origin(&mut self, new: &New) -> u32 {
        let resource = &new.series.resource;
        let (style, format) = (self.style, self.format);
        let spelling = Spelling::of(&new.series.metric);
        let text_of_target = |resource: &Resource, spelling| style.text_of_target(resource, spelling, format);
        let key = (new.source, Arc::as_ptr(resource).addr());
        let (targets, senders, now) = (&mut *self.targets, self.senders, self.now);
        let origin = *(self.cache.of_resource.entry(key)).or_insert_with(|| {
            targets.acquire(
                new.source,
                (resource, spelling),
                Liveness { senders, now },
                text_of_target,
            )
        });
        targets.add_ref(origin);
        origin
    }

    fn family(&mut self, new: &New) -> Result<u32, Arc<Taken>> {
        let metric = &new.series.metric;
        let key = (new.source, Arc::as_ptr(metric).addr());
        if let Some(known) = self.cache.of_metric.get(&key) {
            return known.clone();
        }
        let owner = self.sources.owner(new.source);
        let family = self.families.of(&owner, metric, self.now).map_err(Arc::new);
        self.cache.of_metric.insert(key, family.clone());
        family
    }

    /// Inserts late series, and releases unused reservations of space and names. Returns whether a place has a new
    /// owner.
    pub(super) fn finish(mut self) -> bool {
        for (family, late) in std::mem::take(&mut self.cache.late) {
            self.merge(family, late);
        }
        let mut is_one_empty = false;
        for number in self.cache.of_metric.into_values().flatten() {
            if let Some(family) = self.families.get_mut(number) {
                family.series.fit();
                is_one_empty |= family.series.is_empty();
            }
        }
        if is_one_empty {
            self.families.close_empty();
        }
        let origins = self.cache.of_resource.into_values();
        origins.for_each(|origin| self.targets.release(origin));
        let text = self.cache.last.into_iter();
        text.for_each(|(_, text)| self.interner.release(text));
        self.interner.fit();
        self.has_changed
    }
}

/// The position of a series: its source, and its place there.
pub(super) type SeriesPosition = (u16, u64);

/// The standing of a series; `None`: it has gone.
fn lifetime_now(
    reader: &mut SourceReader<'_>,
    senders: &Senders,
    member: SeriesPosition,
    now: UnixNanos,
) -> Option<LastLifetime> {
    match reader.glance(member.0, member.1) {
        Glance::Gone => None,
        Glance::Silent(_) => Some(None),
        Glance::Shown(series, times) => {
            let lifetime = lifetime(reader, senders, member, (&series.resource, times), now);
            Some(Some(lifetime))
        }
    }
}

fn lifetime(
    reader: &SourceReader<'_>,
    senders: &Senders,
    (source, place): SeriesPosition,
    (resource, times): (&Resource, Times),
    now: UnixNanos,
) -> Lifetime {
    match reader.table(source) {
        Some(table) => senders.lifetime(resource, times, table, place),
        None => Lifetime::of_composite(now, place),
    }
}

/// Whether a family has a text.
enum TextMatch {
    No,
    /// It is the same series.
    Same,
    /// Another series has it, at this place of the page.
    Other(SeriesPosition, Key),
}

/// Whether the labels of two series come to the same text.
fn has_same_labels(one: &Series, other: &Series) -> bool {
    // The reserved names depend on the type.
    let reserves = |series: &Series| match series.metric.data {
        Data::Histogram { .. } | Data::ExponentialHistogram { .. } => 1,
        Data::Summary => 2,
        Data::Gauge | Data::Sum { .. } => 0,
    };
    Arc::ptr_eq(&one.resource, &other.resource)
        && Arc::ptr_eq(&one.scope, &other.scope)
        && reserves(one) == reserves(other)
        && Spelling::of(&one.metric) == Spelling::of(&other.metric)
        && one.attributes == other.attributes
}
