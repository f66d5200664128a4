//! Taking up series: their family, their labels, their place among the others.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tidegate_engine::{Data, Resource, Seen, Series, UnixNanos};

use super::conflict::{Conflicts, Refused, Taken, Why};
use super::family::Families;
use super::origin::Origins;
use super::records::Record;
use super::source::{New, Reader, Sources};
use super::texts::Texts;
use super::{Style, encode};
use crate::prom::format::Format;
use crate::prom::labels::Labels;

/// Takes up series.
pub(super) struct Learning<'a> {
    pub(super) format: Format,
    pub(super) style: &'a Style,
    pub(super) sources: &'a Sources,
    pub(super) families: &'a mut Families,
    pub(super) texts: &'a mut Texts,
    pub(super) origins: &'a mut Origins,
    pub(super) conflicts: &'a mut Conflicts,
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
    since: Option<UnixNanos>,
}

impl Learning<'_> {
    /// Looks again at a series that was left out.
    pub(super) fn retry(&mut self, (refused, may_fit): (Refused, bool)) {
        let is_there = !matches!(self.reader.at(refused.source, refused.place), Seen::Gone);
        self.reader.release();
        match (is_there, may_fit) {
            (false, _) => {}
            (true, false) => self.conflicts.refuse(refused, false),
            (true, true) => self.take(
                New {
                    source: refused.source,
                    place: refused.place,
                    series: refused.series,
                },
                Some(refused.since),
            ),
        }
    }

    /// Takes up a series. `since`: it was left out before, since then.
    pub(super) fn take(&mut self, new: New, since: Option<UnixNanos>) {
        let family = match self.family(&new) {
            Ok(family) => family,
            Err(taken) => return self.refuse(new, Why::Family(taken), since),
        };
        let Some(text) = self.text(&new.series) else {
            return self.refuse(new, Why::Full, since);
        };
        match self.known(family, text, &new) {
            Known::No => self.place(family, text, new, since),
            Known::Same => self.texts.leave(text),
            Known::Other(why) => {
                self.texts.leave(text);
                self.refuse(new, why, since);
            }
        }
    }

    fn refuse(&mut self, new: New, why: Why, since: Option<UnixNanos>) {
        let refused = Refused {
            owner: self.sources.owner(new.source),
            source: new.source,
            place: new.place,
            series: new.series,
            why,
            since: since.unwrap_or(self.now),
        };
        self.conflicts.refuse(refused, since.is_none());
    }

    /// Puts a series among the others of its family.
    fn place(&mut self, family: u32, text: u32, new: New, since: Option<UnixNanos>) {
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
            late.push(Late { record, new, since });
        }
    }

    /// Whether the family has this text already. What has ended makes room for it.
    fn known(&mut self, family: u32, text: u32, new: &New) -> Known {
        let known = self.families.get_mut(family);
        let Some(other) = known.and_then(|known| known.series.find(text)).copied() else {
            return Known::No;
        };
        let source = self.origins.source(other.origin).unwrap_or(u16::MAX);
        if (source, other.place) == (new.source, new.place) {
            return Known::Same;
        }
        let is_there = !matches!(self.reader.at(source, other.place), Seen::Gone);
        self.reader.release();
        if is_there {
            return Known::Other(self.rivalry(source, new.source));
        }
        let origin = self.origin(new);
        let known = self.families.get_mut(family);
        if let Some(record) = known.and_then(|known| known.series.find(text)) {
            (record.place, record.origin) = (new.place, origin);
        }
        self.origins.leave(other.origin);
        Known::Same
    }

    fn rivalry(&self, source: u16, other: u16) -> Why {
        match source == other {
            true => Why::Twin,
            false => Why::Rival(self.sources.owner(source)),
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
        let text_of_target = |resource: &Resource| style.text_of_target(resource, format);
        let key = (new.source, Arc::as_ptr(resource).addr());
        let origins = &mut *self.origins;
        let origin = *(self.notes.of_resource.entry(key))
            .or_insert_with(|| origins.join(new.source, resource, text_of_target));
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
        let mut merged: Vec<Record> = Vec::with_capacity(late.len());
        for Late { record, new, since } in late {
            // The first of several that are the same has the place.
            let Some(first) = merged.last().filter(|first| first.text == record.text) else {
                merged.push(record);
                continue;
            };
            let source = self.origins.source(first.origin).unwrap_or(u16::MAX);
            let is_same = (source, first.place) == (new.source, new.place);
            self.origins.leave(record.origin);
            self.texts.leave(record.text);
            if !is_same {
                let why = self.rivalry(source, new.source);
                self.refuse(new, why, since);
            }
        }
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
    /// Another one has it.
    Other(Why),
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
        && one.attributes == other.attributes
}
