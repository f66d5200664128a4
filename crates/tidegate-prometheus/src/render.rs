// SPDX-License-Identifier: Apache-2.0

//! Renders tables to an exposition that is always valid: each name has one family, each identity has one sample.
//!
//! The family and the label text of a series are computed once, when the table reports its arrival, with or without
//! requests of pages. They are kept in the order of the exposition. A page walks these lists, copies the
//! text and formats the value, which it reads by its place. Nothing is hashed, allocated or sorted. A series that
//! would break the exposition is omitted, counted, and reported with the series that has its place.
//!
//! Each series of a page, including a whole histogram, shows one moment. Different series may differ by the time
//! of the rendering (50 ms a million). Tables are read 32 series at a time, so a writer waits for no page.

mod bounds;
mod column;
mod conflict;
mod encoder;
pub mod exemplar;
mod family;
pub(crate) mod histogram;
mod interner;
pub(crate) mod kind;
mod protobuf;
mod records;
mod registration;
mod source;
mod style;
mod targets;
mod text;
mod walk;

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use tidegate_engine::{Number, Resource, SlotId, Table, UnixNanos};

use self::conflict::Conflicts;
pub use self::conflict::{Conflict, Counts, Difference, OmissionReason};
use self::encoder::{Encoder, SampleSnapshot, ValueTimes};
use self::family::{Families, PageFamily};
use self::interner::LabelInterner;
use self::protobuf::ProtobufEncoder;
use self::records::Record;
use self::registration::{RegistrationCache, SeriesPosition, SeriesRegistration};
use self::source::{Open, PageSources, ReadDepth, SourceChanges, SourceReader};
pub use self::style::Style;
use self::style::encode;
use self::targets::{Liveness, TargetTable};
use self::text::TextEncoder;
use self::walk::Walk;
use super::catalog::{Contests, Newcomers, Senders};
use super::format::Format;

/// The interval of full passes without page requests, in nanoseconds. Only a full pass finds series that have
/// ended or that a format can't express.
const LOOK_THROUGH_NS: u64 = 30_000_000_000;

/// The largest page that is kept for the next scrape, if nothing changes. A larger one is reused only while
/// another request holds it.
const KEPT_BYTES: usize = 1 << 20;

/// The family of the further attributes of resources, without the namespace.
pub(crate) const TARGET_INFO: &str = "target_info";

/// An exposition.
#[derive(Debug)]
pub struct Page {
    /// The bytes of the page.
    pub body: Bytes,
    /// The number of the page. It equals that of the previous page if nothing has changed.
    pub version: u64,
}

/// The use of the written bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Keep,
    /// Only what could not be written is of interest.
    Drop,
}

/// Renders pages in one format.
pub struct Renderer {
    format: Format,
    style: Style,
    sources: PageSources,
    families: Families,
    interner: LabelInterner,
    targets: TargetTable,
    conflicts: Conflicts,
    contests: Contests<SeriesPosition>,
    senders: Arc<Senders>,
    /// The version of the current content.
    version: u64,
    /// The number of full passes.
    walks: u64,
    /// The version at the last full pass.
    walked_version: u64,
    walked_at: Option<UnixNanos>,
    last: Weak<Page>,
    kept: Option<Arc<Page>>,
    /// The size of the last page, in bytes.
    size: usize,
}

impl Renderer {
    /// A renderer without series.
    pub fn new(format: Format, style: Style) -> Self {
        Self {
            format,
            sources: PageSources::default(),
            families: Families::new(format, style.naming.clone()),
            interner: LabelInterner::default(),
            targets: TargetTable::default(),
            conflicts: Conflicts::default(),
            contests: Contests::default(),
            senders: Arc::default(),
            style,
            version: 0,
            walks: 0,
            walked_version: 0,
            walked_at: None,
            last: Weak::new(),
            kept: None,
            size: 0,
        }
    }

    /// Shares what is known of senders with the other readers of the gateway.
    #[must_use]
    pub fn sharing(self, senders: Arc<Senders>) -> Self {
        Self { senders, ..self }
    }

    /// The current exposition of these tables. It is the previous page if nothing has changed.
    pub fn render(&mut self, tables: &[Arc<Table>], now: UnixNanos) -> Arc<Page> {
        self.read_sources(tables, now, ReadDepth::Values);
        if let Some(last) = self.last.upgrade()
            && last.version == self.version
        {
            return last;
        }
        // Releases the kept page before the next one is written.
        self.kept = None;
        let page = Vec::with_capacity(self.size + self.size / 32);
        let body = self.write(page, now, Use::Keep);
        self.size = body.len();
        let page = Arc::new(Page {
            body: body.into(),
            version: self.version,
        });
        self.last = Arc::downgrade(&page);
        self.kept = (self.size <= KEPT_BYTES).then(|| page.clone());
        page
    }

    /// Registers the series that arrived since the last call or page, without writing a page. Call it about once a
    /// second. After 30 s without a page it makes a full pass.
    pub fn register_series(&mut self, tables: &[Arc<Table>], now: UnixNanos) {
        let walked_at = *self.walked_at.get_or_insert(now);
        if now.saturating_sub(walked_at) < LOOK_THROUGH_NS {
            self.read_sources(tables, now, ReadDepth::Changes);
        } else {
            self.check(tables, now);
        }
    }

    /// Finds out what would be on a page of this moment, and what not, without keeping one.
    pub fn check(&mut self, tables: &[Arc<Table>], now: UnixNanos) {
        self.walked_at = Some(now);
        self.read_sources(tables, now, ReadDepth::Values);
        if self.walked_version != self.version {
            self.write(Vec::new(), now, Use::Drop);
            // Removes ended series.
            self.read_sources(tables, now, ReadDepth::Changes);
        }
    }

    /// The series omitted for the first time since the last call, by metric, owner and reason. Values that can't
    /// be expressed count by their concurrent number.
    pub fn take_conflicts(&mut self) -> Vec<Conflict> {
        self.conflicts.take_unreported()
    }

    /// The number of currently omitted series.
    pub fn counts(&self) -> Counts {
        let mut counts = self.conflicts.counts();
        let omitted = self.families.iter().map(|(_, family)| family.omitted.series);
        counts[OmissionReason::UnrepresentableValue as usize] += omitted.map(u64::from).sum::<u64>();
        counts
    }

    /// The currently omitted series: those without a place, and those whose last value the format can't express.
    pub fn conflicts(&self) -> Vec<Conflict> {
        let families = self.families.iter().map(|(_, family)| family);
        let omitted = families
            .filter(|family| family.omitted.series > 0)
            .map(|family| family.omitted(self.format, self.sources.owner(family.omitted.source)));
        self.conflicts.now().into_iter().chain(omitted).collect()
    }

    /// Metrics that have been found to differ from others of their name since the last call.
    pub fn take_differences(&mut self) -> Vec<Difference> {
        self.families.take_differences()
    }

    /// Metrics that differ from others of their name now.
    pub fn differences(&self) -> Vec<Difference> {
        self.families.differences().cloned().collect()
    }

    fn read_sources(&mut self, tables: &[Arc<Table>], now: UnixNanos, depth: ReadDepth) {
        let changes = self.sources.read(tables, now, depth);
        self.record_senders(&changes, now);
        self.senders.tick(now);
        let has_changed = changes.has_changed || self.conflicts.is_to_try();
        let has_changed = self.apply_changes(changes, now) || has_changed;
        self.version += u64::from(has_changed);
    }

    /// Tells the catalogue the resources of new series.
    fn record_senders(&self, changes: &SourceChanges, now: UnixNanos) {
        let sources = self.sources.open();
        for of_source in changes.series.chunk_by(|a, b| a.source == b.source) {
            let table = of_source
                .first()
                .and_then(|new| sources.get(usize::from(new.source)));
            let Some(table) = table.and_then(Open::table) else {
                continue;
            };
            let mut newcomers = Newcomers::default();
            for new in of_source {
                newcomers.note(&new.series.resource, SlotId::from_bits(new.place));
            }
            self.senders.record_all(table, newcomers, now);
        }
    }

    /// Registers new series, and omitted series that may have a place by now. Returns whether a place has
    /// another owner.
    fn apply_changes(&mut self, changes: SourceChanges, now: UnixNanos) -> bool {
        if !changes.gone.is_empty() {
            self.forget_sources(&changes.gone);
        }
        self.contests.begin_pass();
        let again = self.conflicts.take_some();
        let sources = self.sources.open();
        let mut registration = SeriesRegistration {
            format: self.format,
            style: &self.style,
            sources: &self.sources,
            families: &mut self.families,
            interner: &mut self.interner,
            targets: &mut self.targets,
            conflicts: &mut self.conflicts,
            contests: &mut self.contests,
            senders: &self.senders,
            reader: SourceReader::new(&sources),
            now,
            has_changed: false,
            found_owners: BTreeSet::new(),
            cache: RegistrationCache::default(),
        };
        again.into_iter().for_each(|refused| registration.retry(refused));
        changes
            .series
            .into_iter()
            .for_each(|new| registration.register(new, None));
        registration.retry_owners();
        let has_changed = registration.finish();
        let (style, format, senders) = (&self.style, self.format, &*self.senders);
        let liveness = Liveness { senders, now };
        let encode = |resource: &Resource, spelling| style.text_of_target(resource, spelling, format);
        self.targets.refresh(liveness, encode) || has_changed
    }

    fn forget_sources(&mut self, gone: &[u16]) {
        let (targets, interner) = (&mut self.targets, &mut self.interner);
        self.families.in_order(|_, family| {
            family.series.retain(|record| {
                let source = targets.source(record.origin);
                let is_gone = source.is_none_or(|source| gone.contains(&source));
                if is_gone {
                    targets.release(record.origin);
                    interner.release(record.text);
                }
                !is_gone
            });
        });
        self.conflicts.forget(gone);
        self.contests.forget(|(source, _)| gone.contains(&source));
        self.tidy();
    }

    /// After series have ended: names and room are given up, and series that were omitted are tried again.
    fn tidy(&mut self) {
        self.families.close_empty();
        let (sources, targets) = (&self.sources, &self.targets);
        let owner_of = |record: &Record| sources.owner(targets.source(record.origin).unwrap_or(u16::MAX));
        self.families.in_order(|_, family| family.find_owner(owner_of));
        if let Some(moved) = self.interner.sweep() {
            self.families
                .in_order(|_, family| family.series.renumber(|text| moved.to(text)));
        }
        self.conflicts.try_all_again();
    }

    /// Appends all series to `page`, and records those that have ended.
    fn write(&mut self, page: Vec<u8>, now: UnixNanos, then: Use) -> Vec<u8> {
        (self.walked_version, self.walked_at) = (self.version, Some(now));
        let (body, has_ended) = match self.format {
            Format::Protobuf => self.walk(now, then, |style| ProtobufEncoder::new(page, style)),
            format => self.walk(now, then, |style| TextEncoder::new(page, format, style)),
        };
        if has_ended {
            self.tidy();
        }
        body
    }

    fn walk<'a, S: Encoder>(
        &'a mut self,
        now: UnixNanos,
        then: Use,
        encoder: impl FnOnce(&'a Style) -> S,
    ) -> (Vec<u8>, bool) {
        let Self {
            format,
            style,
            sources,
            families,
            interner,
            targets,
            walks,
            conflicts,
            ..
        } = self;
        *walks += 1;
        let mut encoder = encoder(style);
        let open = sources.open();
        let has_created = match format {
            Format::Text => false,
            Format::OpenMetrics => style.created,
            Format::Protobuf => true,
        };
        let (with_times, with_exemplars) = (has_created || style.timestamps, *format != Format::Text);
        let columns = open
            .iter()
            .map(|source| source.column(with_times, with_exemplars));
        let mut walk = Walk {
            columns: columns.collect(),
            reader: SourceReader::new(&open),
            snapshot: SampleSnapshot::default(),
            with_exemplars,
            page: *walks,
            now,
            gone: Vec::new(),
            has_ended: false,
        };
        families.in_order(|name, family| {
            walk.family(&mut encoder, name, family, targets, interner);
            let more = family.omitted.take_more();
            if more > 0 {
                let owner = sources.owner(family.omitted.source);
                conflicts.add(&family.omitted(*format, owner), more);
            }
            if then == Use::Drop {
                encoder.page().clear();
            }
        });
        let own = style.naming.own(TARGET_INFO);
        let (name, info) = PageFamily::of_targets(own.clone(), *format);
        let shown = targets.shown(*walks);
        match families.owner_of(&name, info.of_type) {
            None => {
                write_targets(&mut encoder, &name, &info, shown);
                conflicts.show_targets();
            }
            Some(taken) => conflicts.hide_targets(own, taken, shown.count() as u64, now),
        }
        encoder.finish();
        (std::mem::take(encoder.page()), walk.has_ended)
    }
}

fn write_targets<'a>(
    encoder: &mut impl Encoder,
    name: &str,
    info: &PageFamily,
    targets: impl Iterator<Item = &'a [u8]>,
) {
    let mut targets = targets.peekable();
    if targets.peek().is_some() {
        encoder.begin(name, info);
        targets.for_each(|labels| _ = encoder.number(info, labels, Number::Int(1), ValueTimes::default()));
        encoder.end(info);
    }
}

#[cfg(test)]
mod tests;
