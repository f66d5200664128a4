//! From readings of tables to an exposition that is never invalid: one family a name, one sample an identity.
//!
//! What a series looks like (family, label text) is worked out once, when it is first seen, and kept; a scrape
//! copies that text and formats the number. A series that would break the exposition is refused whole, counted,
//! and named with the series whose place it wanted.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tidegate_engine::{Reading, Series, Value};

use super::family::Families;
use super::format::Format;
use super::labels::{LabelSources, Labels};
use super::name::Naming;
use super::samples::push_samples;
use super::target::{TARGET_INFO, push_target_info};

/// Scrapes after which the text of a series that is no longer read is forgotten.
const FORGET_AFTER: u64 = 8;

/// What is the same for every series.
#[derive(Clone, Debug, Default)]
pub struct Style {
    /// How names are made.
    pub naming: Naming,
    /// What becomes a label.
    pub labels: LabelSources,
    /// Write timestamps.
    pub timestamps: bool,
}

/// A series that can't be exposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The metric that is left out.
    pub metric: Arc<str>,
    /// Who sends it.
    pub owner: Arc<str>,
    /// Why, with the owner of what it collides with.
    pub why: String,
}

/// Renders scrapes in one format.
pub struct Renderer {
    format: Format,
    style: Style,
    scrape: u64,
    families: Families,
    /// Text by series, keyed by the address that the entry itself keeps alive.
    texts: HashMap<usize, SeriesText, RandomState>,
    identities: HashMap<(usize, Arc<str>), usize, RandomState>,
    conflicts: Vec<Conflict>,
}

struct SeriesText {
    series: Arc<Series>,
    owner: Arc<str>,
    /// Family and label text; `None` when it is refused.
    place: Option<(usize, Arc<str>)>,
    seen: u64,
}

impl Renderer {
    /// Without any series yet.
    pub fn new(format: Format, style: Style) -> Self {
        Self {
            format,
            families: Families::new(format, style.naming.clone()),
            style,
            scrape: 0,
            texts: HashMap::default(),
            identities: HashMap::default(),
            conflicts: Vec::new(),
        }
    }

    /// Begins a scrape.
    pub fn begin(&mut self) {
        self.scrape += 1;
        self.families.begin();
    }

    /// Adds a series to the scrape. `owner` is the table's owner, for messages.
    pub fn add(&mut self, owner: &Arc<str>, reading: Reading<'_>) {
        if matches!(reading.value, Value::NoRecordedValue) {
            return;
        }
        let key = Arc::as_ptr(reading.series) as usize;
        if !self.texts.contains_key(&key) {
            let place = self.place(key, owner, reading.series);
            self.texts.insert(
                key,
                SeriesText {
                    series: reading.series.clone(),
                    owner: owner.clone(),
                    place,
                    seen: 0,
                },
            );
        }
        let Some(known) = self.texts.get_mut(&key) else {
            return;
        };
        // A table shows a series once; should two tables share one, the first wins.
        if std::mem::replace(&mut known.seen, self.scrape) == self.scrape {
            return;
        }
        let Some((family, labels)) = &known.place else {
            return;
        };
        if let Some(family) = self.families.get_mut(*family) {
            let time = self.style.timestamps.then_some(reading.time);
            push_samples(
                &mut family.body,
                self.format,
                &family.name,
                family.kind,
                labels,
                &reading,
                time,
            );
        }
    }

    /// Ends the scrape: the whole exposition.
    pub fn finish(&mut self) -> String {
        let order = self.families.in_order();
        let bytes: usize = order
            .iter()
            .map(|family| family.header.len() + family.body.len())
            .sum();
        let mut page = String::with_capacity(bytes + 256);
        for family in order {
            page.push_str(&family.header);
            page.push_str(&family.body);
        }
        if !self.families.has(&self.style.naming.own(TARGET_INFO)) {
            let live = |text: &&SeriesText| text.seen == self.scrape && text.place.is_some();
            let resources = self.texts.values().filter(live).map(|text| &text.series.resource);
            push_target_info(&mut page, self.format, &self.style.naming, resources);
        }
        if self.format == Format::OpenMetrics {
            page.push_str("# EOF\n");
        }
        self.forget();
        page
    }

    /// Conflicts found since the last call, each once.
    pub fn take_conflicts(&mut self) -> Vec<Conflict> {
        std::mem::take(&mut self.conflicts)
    }

    /// Works out family and labels of a new series.
    fn place(&mut self, key: usize, owner: &Arc<str>, series: &Arc<Series>) -> Option<(usize, Arc<str>)> {
        let placed = self.try_place(key, owner, series);
        match placed {
            Ok(place) => Some(place),
            Err(why) => {
                self.conflicts.push(Conflict {
                    metric: series.metric.name.clone(),
                    owner: owner.clone(),
                    why,
                });
                None
            }
        }
    }

    fn try_place(
        &mut self,
        key: usize,
        owner: &Arc<str>,
        series: &Series,
    ) -> Result<(usize, Arc<str>), String> {
        let family = self.families.of(owner, &series.metric)?;
        let labels = Labels::of(series, &self.style.naming, &self.style.labels);
        let labels: Arc<str> = labels.render().into();
        match self.identities.get(&(family, labels.clone())) {
            Some(other) => Err(self.rivalry(owner, *other)),
            None => {
                self.identities.insert((family, labels.clone()), key);
                if let Some(family) = self.families.get_mut(family) {
                    family.live += 1;
                }
                Ok((family, labels))
            }
        }
    }

    /// Why a series of `owner` can't be shown beside another of the same name and labels.
    fn rivalry(&self, owner: &Arc<str>, other: usize) -> String {
        match self.texts.get(&other) {
            Some(other) if other.owner != *owner => format!(
                "{} has a series of the same name and labels; a series has one writer only",
                other.owner
            ),
            other => format!(
                "another resource has a series of the same name and labels ({:?}); \
                 add a resource attribute as a label to tell them apart",
                other.map(|other| &other.series.resource.attributes)
            ),
        }
    }

    /// Forgets series that have not been read for some scrapes, and families without series.
    fn forget(&mut self) {
        if !self.scrape.is_multiple_of(FORGET_AFTER) {
            return;
        }
        let oldest = self.scrape - FORGET_AFTER;
        let (identities, families) = (&mut self.identities, &mut self.families);
        self.texts.retain(|_, text| {
            // What was refused is looked at again: the place may have become free.
            let keep = text.seen > oldest && text.place.is_some();
            if let (false, Some((family, labels))) = (keep, &text.place) {
                identities.remove(&(*family, labels.clone()));
                if let Some(family) = families.get_mut(*family) {
                    family.live -= 1;
                }
            }
            keep
        });
        self.families.forget();
    }
}

#[cfg(test)]
mod tests;
