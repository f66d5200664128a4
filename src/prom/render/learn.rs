//! Taking up series: their family, their labels, their place among the others.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tidegate_engine::{Data, Place, Resource, Series, UnixNanos};

use super::conflict::{Conflicts, Refused, Taken, Why};
use super::family::Families;
use super::origin::{Origins, Watch};
use super::records::Record;
use super::source::{Glance, New, Reader, Sources};
use super::texts::Texts;
use super::{Style, encode};
use crate::prom::catalog::{Life, Senders, differing};
use crate::prom::format::Format;
use crate::prom::labels::Labels;
use crate::prom::name::Spelling;

/// Takes up series.
pub(super) struct Learning<'a> {
    pub(super) format: Format,
    pub(super) style: &'a Style,
    pub(super) sources: &'a Sources,
    pub(super) families: &'a mut Families,
    pub(super) texts: &'a mut Texts,
    pub(super) origins: &'a mut Origins,
    pub(super) conflicts: &'a mut Conflicts,
    pub(super) senders: &'a Senders,
    pub(super) reader: Reader<'a>,
    pub(super) now: UnixNanos,
    pub(super) notes: Notes,
}

/// What has been found out on the way.
#[derive(Default)]
pub(super) struct Notes {
    /// Families of metrics, by source and address; who is asked about is alive.
    of_metric: HashMap<(u16, usize), Result<u32, Arc<Taken>>, RandomState>,
    /// Origins by resource in the same way. Each is joined once for being here.
    of_resource: HashMap<(u16, usize), u32, RandomState>,
    /// The last series and its text, which is joined once for being here.
    last: Option<(Arc<Series>, u32)>,
    /// Series whose text is older than that of the last one of their family, by family, and since when they were
    /// left out.
    late: HashMap<u32, Vec<Late>, RandomState>,
}

struct Late {
    record: Record,
    new: New,
    before: Option<Before>,
}

/// A series was left out before.
pub(super) struct Before {
    since: UnixNanos,
    is_told: bool,
}

impl Learning<'_> {
    /// Looks again at a series that was left out.
    pub(super) fn retry(&mut self, (mut refused, may_fit): (Refused, bool)) {
        let Some(mine) = self.standing(refused.source, refused.place) else {
            return;
        };
        let has_room = may_fit
            || refused.rival.is_some_and(|(source, place)| {
                !self.reader.glance(source, place).is_shown() || self.would_yield((source, place), &mine)
            });
        if has_room && (mine.is_some() || refused.rival.is_none()) {
            let before = Before {
                since: refused.since,
                is_told: refused.is_told,
            };
            let new = New {
                source: refused.source,
                place: refused.place,
                series: refused.series,
            };
            return self.take(new, Some(before));
        }
        let is_alive = self.collides(&mine, refused.rival);
        if is_alive && !refused.is_alive {
            refused.since = self.now;
        }
        refused.is_alive = is_alive;
        self.conflicts.refuse(refused);
    }

    /// How a series stands: `None` where it has gone, `Some(None)` where it has no value.
    fn standing(&mut self, source: u16, place: u64) -> Option<Option<Life>> {
        match self.reader.glance(source, place) {
            Glance::Gone => None,
            Glance::Silent(_) => Some(None),
            Glance::Shown(series, times) => {
                let table = self.reader.table(source).map(|table| &**table);
                Some(Some(self.senders.life(&series.resource, times, table)))
            }
        }
    }

    /// Whether the owner of a place gives way to a series of this life.
    fn would_yield(&mut self, (source, place): (u16, u64), mine: &Option<Life>) -> bool {
        let Some(mine) = mine else { return false };
        match self.standing(source, place) {
            Some(Some(owner)) => owner.gives_way_to(mine, self.now),
            Some(None) | None => true,
        }
    }

    /// Whether a series that is left out reports beside the one that has its place.
    fn collides(&mut self, mine: &Option<Life>, rival: Option<(u16, u64)>) -> bool {
        let Some((source, place)) = rival else { return true };
        let owner = self.standing(source, place).flatten();
        mine.zip(owner)
            .is_some_and(|(mine, owner)| mine.collides_with(&owner, self.now))
    }

    /// Takes up a series. `before`: it was left out before.
    pub(super) fn take(&mut self, new: New, before: Option<Before>) {
        let family = match self.family(&new) {
            Ok(family) => family,
            Err(taken) => return self.refuse(new, Why::Family(taken), None, before),
        };
        let Some(text) = self.text(&new.series) else {
            return self.refuse(new, Why::Full, None, before);
        };
        match self.known(family, text, &new) {
            Known::No => self.place(family, text, new, before),
            Known::Same => self.texts.leave(text),
            Known::Other(owner) => {
                self.texts.leave(text);
                self.lose(new, owner, before);
            }
        }
    }

    /// Leaves a series out that another one keeps from its place.
    fn lose(&mut self, new: New, owner: (u16, u64), before: Option<Before>) {
        let why = self.rivalry(owner, &new);
        self.refuse(new, why, Some(owner), before);
    }

    fn refuse(&mut self, new: New, why: Why, rival: Option<(u16, u64)>, before: Option<Before>) {
        let mine = self.standing(new.source, new.place).flatten();
        let is_alive = self.collides(&mine, rival);
        let refused = Refused {
            owner: self.sources.owner(new.source),
            source: new.source,
            place: new.place,
            series: new.series,
            why,
            since: before.as_ref().map_or(self.now, |before| before.since),
            rival,
            is_alive,
            is_told: before.is_some_and(|before| before.is_told),
        };
        self.conflicts.refuse(refused);
    }

    /// Puts a series among the others of its family.
    fn place(&mut self, family: u32, text: u32, new: New, before: Option<Before>) {
        let record = Record {
            place: new.place,
            text,
            origin: self.origin(&new),
        };
        let Some(known) = self.families.get_mut(family) else {
            return;
        };
        if !known.series.push(record) {
            let late = self.notes.late.entry(family).or_default();
            late.push(Late { record, new, before });
        }
    }

    /// Whether the family has this text already. What has ended, or gone quiet, makes room for it.
    fn known(&mut self, family: u32, text: u32, new: &New) -> Known {
        let known = self.families.get_mut(family);
        let Some(other) = known.and_then(|known| known.series.find(text)).copied() else {
            return Known::No;
        };
        let source = self.origins.source(other.origin).unwrap_or(u16::MAX);
        let owner = (source, other.place);
        if owner == (new.source, new.place) {
            return Known::Same;
        }
        let glance = self.reader.glance(source, other.place);
        let mine = self.standing(new.source, new.place).flatten();
        if !matches!(glance, Glance::Gone) && !self.would_yield(owner, &mine) {
            return Known::Other(owner);
        }
        let origin = self.origin(new);
        let known = self.families.get_mut(family);
        if let Some(record) = known.and_then(|known| known.series.find(text)) {
            (record.place, record.origin) = (new.place, origin);
        }
        self.origins.leave(other.origin);
        self.supersede(owner, glance, new);
        Known::Same
    }

    /// Remembers a series whose place another one has got: it may come back.
    fn supersede(&mut self, (source, place): (u16, u64), glance: Glance, by: &New) {
        if let Glance::Shown(series, _) | Glance::Silent(series) = glance {
            let old = New {
                source,
                place,
                series,
            };
            self.lose(old, (by.source, by.place), None);
        }
    }

    /// Why a series is left out while `owner` has its place.
    fn rivalry(&mut self, (source, place): (u16, u64), new: &New) -> Why {
        let differ: Arc<str> = match self.reader.glance(source, place) {
            Glance::Shown(owner, _) | Glance::Silent(owner) => differing(&owner, &new.series).into(),
            Glance::Gone => Arc::default(),
        };
        match source == new.source {
            true => Why::Twin(differ),
            false => Why::Rival(self.sources.owner(source), differ),
        }
    }

    /// The text of a series' labels, joined.
    fn text(&mut self, series: &Arc<Series>) -> Option<u32> {
        if let Some((last, text)) = &self.notes.last
            && has_same_labels(last, series)
        {
            self.texts.join_again(*text);
            return Some(*text);
        }
        let labels = Labels::of(series, &self.style.naming, &self.style.labels);
        let text = self.texts.join(&encode(labels, self.format)).ok()?;
        self.texts.join_again(text);
        let before = self.notes.last.replace((series.clone(), text));
        before.into_iter().for_each(|(_, text)| self.texts.leave(text));
        Some(text)
    }

    fn origin(&mut self, new: &New) -> u32 {
        let resource = &new.series.resource;
        let (style, format) = (self.style, self.format);
        let spelling = Spelling::of(&new.series.metric);
        let text_of_target = |resource: &Resource, spelling| style.text_of_target(resource, spelling, format);
        let key = (new.source, Arc::as_ptr(resource).addr());
        let (origins, senders, now) = (&mut *self.origins, self.senders, self.now);
        let table = self.reader.table(new.source);
        let origin = *(self.notes.of_resource.entry(key)).or_insert_with(|| {
            if let Some(table) = table {
                senders.meet(resource, table, Place::from_bits(new.place), now);
            }
            origins.join(
                new.source,
                (resource, spelling),
                Watch { senders, now },
                text_of_target,
            )
        });
        origins.join_again(origin);
        origin
    }

    fn family(&mut self, new: &New) -> Result<u32, Arc<Taken>> {
        let metric = &new.series.metric;
        let key = (new.source, Arc::as_ptr(metric).addr());
        if let Some(known) = self.notes.of_metric.get(&key) {
            return known.clone();
        }
        let owner = self.sources.owner(new.source);
        let family = self.families.of(&owner, metric, self.now).map_err(Arc::new);
        self.notes.of_metric.insert(key, family.clone());
        family
    }

    /// Puts what came late in its place; gives back room that was taken in advance, and names that nobody got.
    pub(super) fn finish(mut self) {
        for (family, late) in std::mem::take(&mut self.notes.late) {
            self.merge(family, late);
        }
        let mut is_one_empty = false;
        for number in self.notes.of_metric.into_values().flatten() {
            if let Some(family) = self.families.get_mut(number) {
                family.series.fit();
                is_one_empty |= family.series.is_empty();
            }
        }
        if is_one_empty {
            self.families.close_empty();
        }
        let origins = self.notes.of_resource.into_values();
        origins.for_each(|origin| self.origins.leave(origin));
        let text = self.notes.last.into_iter();
        text.for_each(|(_, text)| self.texts.leave(text));
        self.texts.fit();
    }

    fn merge(&mut self, family: u32, mut late: Vec<Late>) {
        late.sort_by_key(|late| late.record.text);
        let mut merged: Vec<Late> = Vec::with_capacity(late.len());
        for mut late in late {
            // Of several that are the same the first has the place, unless it gives way.
            let Some(first) = merged
                .last_mut()
                .filter(|first| first.record.text == late.record.text)
            else {
                merged.push(late);
                continue;
            };
            let place = |late: &Late| (late.new.source, late.new.place);
            let is_same = place(first) == place(&late);
            let mine = self.standing(late.new.source, late.new.place).flatten();
            if !is_same && self.would_yield(place(first), &mine) {
                std::mem::swap(first, &mut late);
            }
            let owner = place(first);
            self.origins.leave(late.record.origin);
            self.texts.leave(late.record.text);
            if !is_same {
                self.lose(late.new, owner, late.before);
            }
        }
        let merged = merged.into_iter().map(|late| late.record).collect();
        if let Some(family) = self.families.get_mut(family) {
            family.series.merge(merged);
        }
    }
}

/// Whether a family has a text.
enum Known {
    No,
    /// It is the same series.
    Same,
    /// The one at this place of this source has it.
    Other((u16, u64)),
}

/// Whether the labels of two series come to the same text.
fn has_same_labels(one: &Series, other: &Series) -> bool {
    // Which name is reserved depends on the type.
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
