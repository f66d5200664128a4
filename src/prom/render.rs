//! From tables to an exposition that is never invalid: one family a name, one sample an identity.
//!
//! What a series looks like in a format (its family, the text of its labels) is worked out once, when the table says
//! that it came, and stands in the family's arena in the order of the exposition. A page walks the arenas, copies that
//! text and formats the value, which it reads by its place: nothing is hashed, allocated or sorted. A series that would
//! break the exposition is left out, counted, and named with the series whose place it wanted.
//!
//! Each series of a page, a whole histogram too, is of one moment; different series are of moments as far apart as the
//! page took to be written (50 ms a million). Tables are read 32 series at a time, so whoever writes to them waits for
//! no page.

mod arena;
mod conflict;
pub(in crate::prom) mod exemplar;
mod family;
pub(in crate::prom) mod histogram;
pub(in crate::prom) mod kind;
mod line;
mod message;
mod origin;
mod sheet;
mod source;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use foldhash::fast::RandomState;
use tidegate_engine::{Number, Resource, Seen, Table, UnixNanos, Value};

pub use self::conflict::{Conflict, Difference};
use self::conflict::{Conflicts, Refused, Taken, Why};
use self::family::{Families, Family};
use self::line::Lines;
use self::message::Messages;
use self::origin::Origins;
use self::sheet::{Sheet, Shot, Times};
use self::source::{New, News, Reader, Sources};
use super::format::Format;
use super::labels::{LabelSources, Labels};
use super::name::Naming;

/// Series that are left out and looked at again on one page, so that no page takes long for them.
const RETRIES: usize = 4096;

/// A page up to this size is kept for the next scrape, in case nothing changes; a larger one only as long as somebody
/// else holds it.
const KEPT_BYTES: usize = 1 << 20;

/// The family of what resources say beyond who they are, behind the namespace.
const TARGET_INFO: &str = "target_info";

/// Room that is there before a series is read, so that no lock is held while the page grows. Labels come on top.
const LINE_ROOM: usize = 512;

/// What is the same for every series.
#[derive(Clone, Debug)]
pub struct Style {
    /// How names are made.
    pub naming: Naming,
    /// What becomes a label.
    pub labels: LabelSources,
    /// Write timestamps.
    pub timestamps: bool,
    /// Write when counters, histograms and summaries began, where that is a sample of its own (OpenMetrics).
    pub created: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            naming: Naming::default(),
            labels: LabelSources::default(),
            timestamps: false,
            created: true,
        }
    }
}

impl Style {
    /// Labels of `target_info`: what the resource says beyond who it is.
    fn labels_of_target(&self, resource: &Resource) -> Option<Labels> {
        const IDENTITY: [&str; 3] = ["service.name", "service.namespace", "service.instance.id"];
        let mut labels = Labels::new(&self.naming);
        let all = resource.attributes.iter();
        let mut others = all.filter(|(key, _)| !IDENTITY.contains(key)).peekable();
        others.peek()?;
        others.for_each(|(key, value)| labels.add(key, value));
        labels.identify(resource);
        Some(labels)
    }
}

/// An exposition.
#[derive(Debug)]
pub struct Page {
    /// What a scraper gets.
    pub body: Bytes,
    /// The same number as the page before of the same renderer where nothing has changed since.
    pub version: u64,
}

/// Renders pages in one format.
pub struct Renderer {
    format: Format,
    style: Style,
    hasher: RandomState,
    sources: Sources,
    families: Families,
    origins: Origins,
    conflicts: Conflicts,
    /// Of the content of the last page.
    version: u64,
    /// How many pages have been written.
    walked: u64,
    last: Weak<Page>,
    kept: Option<Arc<Page>>,
    /// How large the last page was.
    size: usize,
}

impl Renderer {
    /// Without any series yet.
    pub fn new(format: Format, style: Style) -> Self {
        Self {
            format,
            hasher: RandomState::default(),
            sources: Sources::default(),
            families: Families::new(format, style.naming.clone()),
            origins: Origins::default(),
            conflicts: Conflicts::default(),
            style,
            version: 0,
            walked: 0,
            last: Weak::new(),
            kept: None,
            size: 0,
        }
    }

    /// The exposition of these tables as they are now. The same page as the last time where nothing has changed.
    pub fn render(&mut self, tables: &[Arc<Table>], now: UnixNanos) -> Arc<Page> {
        let news = self.sources.look(tables, now);
        let has_changed = news.has_changed || self.conflicts.to_try > 0 || self.walked == 0;
        if let Some(last) = self.last.upgrade()
            && !has_changed
        {
            return last;
        }
        self.learn(news, now);
        self.version += u64::from(has_changed);
        // What was kept makes room before the next one is written.
        self.kept = None;
        let page = Vec::with_capacity(self.size + self.size / 32 + LINE_ROOM);
        let body = match self.format {
            Format::Protobuf => self.walk(now, |style| Messages::new(page, style)),
            format => self.walk(now, |style| Lines::new(page, format, style)),
        };
        self.size = body.len();
        let page = Arc::new(Page {
            body: body.into(),
            version: self.version,
        });
        self.last = Arc::downgrade(&page);
        self.kept = (self.size <= KEPT_BYTES).then(|| page.clone());
        page
    }

    /// How many series were left out for the first time since the last call, and some of them.
    pub fn take_conflicts(&mut self) -> (u64, Vec<Conflict>) {
        self.conflicts.take_fresh()
    }

    /// What is left out now: what has no place, and what had a value on the last page that this format can't say.
    pub fn left_out(&self) -> Vec<Conflict> {
        let unsaid = self.families.iter().filter(|(_, family)| family.unsaid > 0);
        let unsaid = unsaid.map(|(_, family)| Conflict {
            metric: family.metric.name.clone(),
            owner: family.owner.clone(),
            rival: None,
            why: format!(
                "{:?} has no {} of this value",
                self.format,
                family.of_type.word(self.format)
            ),
            series: family.unsaid.into(),
            since: family.unsaid_since,
        });
        self.conflicts.now().into_iter().chain(unsaid).collect()
    }

    /// Metrics that have been found to differ from others of their name since the last call.
    pub fn take_differences(&mut self) -> Vec<Difference> {
        self.families.take_differences()
    }

    /// Metrics that differ from others of their name now.
    pub fn differences(&self) -> Vec<Difference> {
        self.families.differences().cloned().collect()
    }

    /// Takes up what is new, and what was left out and may have a place by now.
    fn learn(&mut self, news: News, now: UnixNanos) {
        if !news.gone.is_empty() {
            self.forget_sources(&news.gone);
        }
        let again = self.take_some_refused();
        let sources = self.sources.open();
        let mut learning = Learning {
            format: self.format,
            style: &self.style,
            hasher: &self.hasher,
            sources: &self.sources,
            families: &mut self.families,
            origins: &mut self.origins,
            conflicts: &mut self.conflicts,
            reader: Reader::new(&sources),
            now,
            of_metric: HashMap::default(),
            of_resource: HashMap::default(),
        };
        again.into_iter().for_each(|refused| learning.retry(refused));
        news.series.into_iter().for_each(|new| learning.take(new, None));
        learning.finish();
    }

    fn forget_sources(&mut self, gone: &[u16]) {
        let (origins, hasher) = (&mut self.origins, &self.hasher);
        let is_gone =
            |origins: &Origins, origin| origins.source(origin).is_none_or(|source| gone.contains(&source));
        self.families.in_order(|_, family| {
            let records = family.series.records();
            let ended: Vec<_> = records
                .filter(|record| record.place.is_some() && is_gone(origins, record.origin))
                .map(|record| (record.at, record.origin))
                .collect();
            ended.iter().for_each(|(_, origin)| origins.leave(*origin));
            let ended: Vec<_> = ended.into_iter().map(|(at, _)| at).collect();
            family.series.bury(hasher, &ended);
        });
        self.families.close_empty();
        self.conflicts
            .refused
            .retain(|refused| !gone.contains(&refused.source));
        self.conflicts.to_try = self.conflicts.refused.len();
    }

    /// Some of what was left out: what may have ended, or may have a place now.
    fn take_some_refused(&mut self) -> Vec<(Refused, bool)> {
        let all = &mut self.conflicts.refused;
        let count = all.len().min(RETRIES);
        let to_try = self.conflicts.to_try.min(count);
        self.conflicts.to_try -= to_try;
        let some = all.drain(..count).enumerate();
        some.map(|(at, refused)| (refused, at < to_try)).collect()
    }

    /// Writes all series.
    fn walk<'a, S: Sheet>(&'a mut self, now: UnixNanos, sheet: impl FnOnce(&'a Style) -> S) -> Vec<u8> {
        let Self {
            style,
            hasher,
            sources,
            families,
            origins,
            conflicts,
            walked,
            ..
        } = self;
        *walked += 1;
        let mut sheet = sheet(style);
        let open = sources.open();
        let mut walk = Walk {
            reader: Reader::new(&open),
            shot: Shot::default(),
            gone: Vec::new(),
            page: *walked,
            now,
            has_ended: false,
        };
        families.in_order(|name, family| walk.family(&mut sheet, name, family, origins, hasher));
        if walk.has_ended {
            families.close_empty();
            conflicts.to_try = conflicts.refused.len();
        }
        let (name, info) = Family::of_targets(style.naming.own(TARGET_INFO), self.format);
        let mut targets = origins.shown(*walked).peekable();
        if targets.peek().is_some() && families.owner_of(&name, info.of_type).is_none() {
            sheet.begin(&name, &info);
            targets.for_each(|labels| _ = sheet.number(&info, labels, Number::Int(1), Times::default()));
            sheet.end(&info);
        }
        sheet.finish();
        std::mem::take(sheet.page())
    }
}

/// One walk over all series.
struct Walk<'a> {
    reader: Reader<'a>,
    shot: Shot,
    /// Series of the present family that have ended.
    gone: Vec<u32>,
    page: u64,
    now: UnixNanos,
    has_ended: bool,
}

impl Walk<'_> {
    fn family<S: Sheet>(
        &mut self,
        sheet: &mut S,
        name: &str,
        family: &mut Family,
        origins: &mut Origins,
        hasher: &RandomState,
    ) {
        let start = sheet.page().len();
        sheet.begin(name, family);
        let (mut shown, mut unsaid) = (0, 0);
        for record in family.series.records() {
            let Some(place) = record.place else { continue };
            let Some(source) = origins.source(record.origin) else {
                continue;
            };
            self.make_room(sheet.page(), family.name.len() + record.text.len() + LINE_ROOM);
            let reading = match self.reader.at(source, place) {
                Seen::Shown(reading) => reading,
                Seen::Hidden => continue,
                Seen::Gone => {
                    self.gone.push(record.at);
                    continue;
                }
            };
            let exemplars = match S::HAS_EXEMPLARS && family.of_type.has_exemplars() {
                true => reading.exemplars,
                false => &[],
            };
            let number = match reading.value {
                Value::Int(number) => Some(Number::Int(*number)),
                Value::Double(number) => Some(Number::Double(*number)),
                Value::NoRecordedValue => continue,
                _ => None,
            };
            let is_said = match number {
                Some(number) if exemplars.is_empty() => {
                    sheet.number(family, record.text, number, (&reading).into())
                }
                _ => {
                    self.shot.take(&reading, exemplars);
                    self.reader.release();
                    sheet.sample(family, record.text, &self.shot)
                }
            };
            if is_said {
                shown += 1;
                origins.show(record.origin, self.page);
            } else {
                unsaid += 1;
            }
        }
        match shown {
            0 => sheet.page().truncate(start),
            _ => sheet.end(family),
        }
        if (family.unsaid == 0) != (unsaid == 0) {
            family.unsaid_since = self.now;
        }
        family.unsaid = unsaid;
        family.size = sheet.page().len() - start;
        if !self.gone.is_empty() {
            self.has_ended = true;
            for at in &self.gone {
                let record = family.series.record(*at);
                record.into_iter().for_each(|record| origins.leave(record.origin));
            }
            family.series.bury(hasher, &self.gone);
            self.gone.clear();
        }
    }

    /// A page that has to grow is copied: not under a lock.
    #[inline]
    fn make_room(&mut self, page: &mut Vec<u8>, room: usize) {
        if page.capacity() - page.len() < room {
            self.reader.release();
            page.reserve(room.max(page.len() / 8));
        }
    }
}

/// Takes up series.
struct Learning<'a> {
    format: Format,
    style: &'a Style,
    hasher: &'a RandomState,
    sources: &'a Sources,
    families: &'a mut Families,
    origins: &'a mut Origins,
    conflicts: &'a mut Conflicts,
    reader: Reader<'a>,
    now: UnixNanos,
    /// What has been found out of metrics, by source and address; who is asked about is alive.
    of_metric: HashMap<(u16, usize), Result<u32, Arc<Taken>>, RandomState>,
    /// Origins by resource in the same way. Each is joined once for being here.
    of_resource: HashMap<(u16, usize), u32, RandomState>,
}

impl Learning<'_> {
    /// Looks again at a series that was left out.
    fn retry(&mut self, (refused, may_fit): (Refused, bool)) {
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

    /// `since`: it was left out before, since then.
    fn take(&mut self, new: New, since: Option<UnixNanos>) {
        if let Err(why) = self.place(&new) {
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
    }

    fn place(&mut self, new: &New) -> Result<(), Why> {
        let number = self.family(new).map_err(Why::Family)?;
        let text = encode(
            Labels::of(&new.series, &self.style.naming, &self.style.labels),
            self.format,
        );
        let Some(family) = self.families.get_mut(number) else {
            return Ok(());
        };
        if let Some(other) = family.series.find(self.hasher, &text)
            && let Some(place) = other.place
        {
            let source = self.origins.source(other.origin).unwrap_or(u16::MAX);
            if (source, place) == (new.source, new.place) {
                return Ok(());
            }
            let is_there = !matches!(self.reader.at(source, place), Seen::Gone);
            self.reader.release();
            if is_there {
                return Err(match source == new.source {
                    true => Why::Twin,
                    false => Why::Rival(self.sources.owner(source)),
                });
            }
            let (at, origin) = (other.at, other.origin);
            self.origins.leave(origin);
            family.series.bury(self.hasher, &[at]);
        }
        let resource = &new.series.resource;
        let (style, format) = (self.style, self.format);
        let text_of_target = |resource: &Resource| {
            let labels = style.labels_of_target(resource);
            labels.map(|labels| encode(labels, format)).unwrap_or_default()
        };
        let key = (new.source, Arc::as_ptr(resource).addr());
        let origins = &mut *self.origins;
        let origin = *(self.of_resource.entry(key))
            .or_insert_with(|| origins.join(new.source, resource, text_of_target));
        origins.join_again(origin);
        let pushed = family.series.push(self.hasher, new.place, origin, &text);
        pushed.map_err(|_| {
            self.origins.leave(origin);
            Why::Full
        })
    }

    fn family(&mut self, new: &New) -> Result<u32, Arc<Taken>> {
        let metric = &new.series.metric;
        let key = (new.source, Arc::as_ptr(metric).addr());
        if let Some(known) = self.of_metric.get(&key) {
            return known.clone();
        }
        let owner = self.sources.owner(new.source);
        let family = self.families.of(&owner, metric, self.now).map_err(Arc::new);
        self.of_metric.insert(key, family.clone());
        family
    }

    /// Gives back room that was taken in advance, and names that nobody got.
    fn finish(self) {
        let mut is_one_empty = false;
        for number in self.of_metric.into_values().flatten() {
            if let Some(family) = self.families.get_mut(number) {
                family.series.fit();
                is_one_empty |= family.series.live() == 0;
            }
        }
        if is_one_empty {
            self.families.close_empty();
        }
        for origin in self.of_resource.into_values() {
            self.origins.leave(origin);
        }
    }
}

/// The text of labels.
fn encode(labels: Labels, format: Format) -> Vec<u8> {
    match format {
        Format::Protobuf => message::labels(&labels.into_pairs()),
        Format::Text | Format::OpenMetrics => labels.render().into_bytes(),
    }
}

#[cfg(test)]
mod tests;
