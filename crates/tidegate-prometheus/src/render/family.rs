// SPDX-License-Identifier: Apache-2.0

//! Families of an exposition: each name has one type, and no sample name belongs to two of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_engine::{Attributes, Data, Metric, UnixNanos};
use tidegate_exposition::lines::push_escaped;

use super::conflict::{Conflict, Difference, OmissionReason, Taken};
use super::kind::{self, Type};
use super::records::{Record, Records};
use crate::escaping::is_legacy_metric_name;
use crate::format::{Format, OPENMETRICS_NAME};
use crate::name::{Naming, Spelling};

/// All series of one name and type.
#[derive(Debug)]
pub(super) struct PageFamily {
    /// The name in text format, escaped if it must be quoted.
    pub(super) name: Box<str>,
    /// Whether the name must be quoted, within the braces.
    pub(super) is_quoted: bool,
    pub(super) of_type: Type,
    /// The sender of the first series, or of another one after it has gone.
    pub(super) owner: Arc<str>,
    /// The metric of the first series, for HELP and UNIT.
    pub(super) metric: Arc<Metric>,
    pub(super) series: Records,
    pub(super) omitted: Omitted,
    /// Its size on the last page, in bytes.
    pub(super) size: usize,
}

/// Counts the series of a family whose value the format can't represent.
#[derive(Debug, Default)]
pub(super) struct Omitted {
    /// The number of series on the last page.
    pub(super) series: u32,
    /// The increase over the largest earlier page.
    more: u32,
    most: u32,
    /// Since when there are such, or none.
    since: UnixNanos,
    /// The source of the last series.
    pub(super) source: u16,
}

impl Omitted {
    /// Records the number of series on a page.
    pub(super) fn note(&mut self, series: u32, now: UnixNanos) {
        if (self.series == 0) != (series == 0) {
            self.since = now;
        }
        self.series = series;
        self.more = series.saturating_sub(self.most);
        self.most += self.more;
    }

    /// The number of series that the last page counted for the first time. Series have no identity here, so they
    /// count as the same unless their number grows.
    pub(super) fn take_more(&mut self) -> u64 {
        std::mem::take(&mut self.more).into()
    }
}

impl PageFamily {
    pub(super) fn new(name: &str, of_type: Type, owner: Arc<str>, metric: Arc<Metric>) -> Self {
        let mut escaped = String::new();
        push_escaped(&mut escaped, name);
        Self {
            name: escaped.into(),
            is_quoted: !is_legacy_metric_name(name),
            of_type,
            owner,
            metric,
            series: Records::default(),
            omitted: Omitted::default(),
            size: 0,
        }
    }

    /// Replaces the owner by one with a series, if the owner has none any more.
    pub(super) fn find_owner(&mut self, owner_of: impl Fn(&Record) -> Arc<str>) {
        let mut owners = self.series.iter().map(owner_of);
        let Some(first) = owners.next() else { return };
        if first != self.owner && owners.all(|owner| owner != self.owner) {
            self.owner = first;
        }
    }

    /// The conflict that reports the series omitted from the last page.
    pub(super) fn omitted(&self, format: Format, owner: Arc<str>) -> Conflict {
        Conflict {
            reason: OmissionReason::UnrepresentableValue,
            metric: self.metric.name.clone(),
            owner,
            rival: None,
            why: format!(
                "{format:?} has no {} of this value",
                kind::word(self.of_type, format)
            ),
            series: self.omitted.series.into(),
            since: self.omitted.since,
        }
    }

    /// The family of targets, which belongs to no metric.
    pub(super) fn of_targets(name: String, format: Format) -> (String, Self) {
        let base = name.strip_suffix("_info").filter(|base| !base.is_empty());
        let (name, of_type) = match base.filter(|_| format == Format::OpenMetrics) {
            Some(base) => (base.to_owned(), Type::Info),
            None => (name, Type::Gauge),
        };
        let metric = Metric {
            name: "".into(),
            description: "Target metadata".into(),
            unit: "".into(),
            data: Data::Gauge,
            metadata: Attributes::default(),
        };
        let family = Self::new(&name, of_type, Arc::default(), Arc::new(metric));
        (name, family)
    }
}

/// The families that have series, by name.
pub(super) struct Families {
    format: Format,
    naming: Naming,
    list: Vec<Option<PageFamily>>,
    free: Vec<u32>,
    names: BTreeMap<Box<str>, u32>,
    /// Metrics that are shown with foreign metadata, by family and owner.
    differences: BTreeMap<(Box<str>, Arc<str>), Difference>,
    unreported: Vec<Difference>,
}

/// Differences beyond are not noted: there are enough to see that something is wrong.
const MAX_DIFFERENCES: usize = 1000;

/// All suffixes of sample names.
const SUFFIXES: [&str; 6] = ["_total", "_created", "_bucket", "_sum", "_count", "_info"];

impl Families {
    pub(super) fn new(format: Format, naming: Naming) -> Self {
        Self {
            format,
            naming,
            list: Vec::new(),
            free: Vec::new(),
            names: BTreeMap::new(),
            differences: BTreeMap::new(),
            unreported: Vec::new(),
        }
    }

    pub(super) fn get(&self, number: u32) -> Option<&PageFamily> {
        self.list.get(number as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut PageFamily> {
        self.list.get_mut(number as usize)?.as_mut()
    }

    /// Shows every family, by name.
    pub(super) fn in_order(&mut self, mut each: impl FnMut(&str, &mut PageFamily)) {
        for (name, number) in &self.names {
            if let Some(Some(family)) = self.list.get_mut(*number as usize) {
                each(name, family);
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &PageFamily)> {
        let family = |number: &u32| self.list.get(*number as usize)?.as_ref();
        self.names
            .iter()
            .filter_map(move |(name, number)| Some((&**name, family(number)?)))
    }

    /// The family of a metric, created if it is new. `Err` if another type has the name.
    pub(super) fn of(
        &mut self,
        owner: &Arc<str>,
        metric: &Arc<Metric>,
        now: UnixNanos,
    ) -> Result<u32, Taken> {
        let named = self.name(metric);
        let (name, of_type) = named.map_err(|(reason, why)| Taken::Nameless(reason, why))?;
        if let Some(number) = self.names.get(name.as_str()).copied()
            && let Some(family) = self.get(number)
        {
            if family.of_type != of_type {
                return Err(self.taken(&name, family));
            }
            if let Some(what) = difference(&family.metric, metric) {
                let shown = family.owner.clone();
                self.note(name.into(), owner.clone(), shown, what, now);
            }
            return Ok(number);
        }
        if let Some(owner) = self.owner_of(&name, of_type) {
            return Err(owner);
        }
        Ok(self.open(owner, name, of_type, metric))
    }

    fn note(
        &mut self,
        family: Box<str>,
        owner: Arc<str>,
        shown: Arc<str>,
        what: &'static str,
        since: UnixNanos,
    ) {
        let key = (family.clone(), owner.clone());
        if self.differences.len() < MAX_DIFFERENCES && !self.differences.contains_key(&key) {
            let difference = Difference {
                family,
                owner,
                shown,
                what,
                since,
            };
            self.unreported.push(difference.clone());
            self.differences.insert(key, difference);
        }
    }

    /// The differences found since the last call.
    pub(super) fn take_differences(&mut self) -> Vec<Difference> {
        std::mem::take(&mut self.unreported)
    }

    /// The current differences.
    pub(super) fn differences(&self) -> impl Iterator<Item = &Difference> {
        self.differences.values()
    }

    /// The name of a metric's family, and its type.
    fn name(&self, metric: &Metric) -> Result<(String, Type), (OmissionReason, &'static str)> {
        let kind = kind::of(metric, self.format);
        let (of_type, kind) = kind.map_err(|why| (OmissionReason::NoTemporality, why))?;
        let is_openmetrics = self.format == Format::OpenMetrics;
        let own_name = metric.metadata.get(OPENMETRICS_NAME).filter(|_| is_openmetrics);
        let raw = own_name
            .and_then(tidegate_engine::AttributeRef::as_str)
            .unwrap_or(&metric.name);
        let full = self.naming.spelt(Spelling::of(metric), raw, &metric.unit, kind);
        let full = full.ok_or((
            OmissionReason::Nameless,
            "its name has no character that the page can show",
        ))?;
        let without = |suffix: &str| {
            let base = full.strip_suffix(suffix).filter(|base| !base.is_empty());
            base.map(str::to_owned)
        };
        Ok(match of_type {
            // A counter's family is without the suffix, its samples have it. Where names have none, a sample must
            // not be called otherwise than in the other formats: it is of unknown type then.
            Type::Counter if is_openmetrics => match without("_total") {
                Some(base) => (base, Type::Counter),
                None => (full, Type::Unknown),
            },
            Type::Info => match without("_info") {
                Some(base) => (base, Type::Info),
                None => (full, Type::Gauge),
            },
            of_type => (full, of_type),
        })
    }

    /// The owner of one of the names that this family would have.
    pub(super) fn owner_of(&self, name: &str, of_type: Type) -> Option<Taken> {
        let suffixes = kind::suffixes(of_type, self.format).iter();
        let mut names = suffixes
            .map(|suffix| format!("{name}{suffix}"))
            .chain([name.to_owned()]);
        names.find_map(|sample| Some(self.taken(&sample, self.holder(&sample)?)))
    }

    /// The family that a sample of this name belongs to.
    fn holder(&self, sample: &str) -> Option<&PageFamily> {
        let named = |name: &str| self.get(*self.names.get(name)?);
        named(sample).or_else(|| {
            SUFFIXES.iter().find_map(|suffix| {
                let family = named(sample.strip_suffix(suffix)?)?;
                let has = kind::suffixes(family.of_type, self.format).contains(suffix);
                has.then_some(family)
            })
        })
    }

    fn taken(&self, sample: &str, by: &PageFamily) -> Taken {
        Taken::By {
            sample: sample.into(),
            family: by.name.clone(),
            kind: kind::word(by.of_type, self.format),
            owner: by.owner.clone(),
        }
    }

    fn open(&mut self, owner: &Arc<str>, name: String, of_type: Type, metric: &Arc<Metric>) -> u32 {
        let family = PageFamily::new(&name, of_type, owner.clone(), metric.clone());
        let number = self.free.pop().unwrap_or(self.list.len() as u32);
        match self.list.get_mut(number as usize) {
            Some(place) => *place = Some(family),
            None => self.list.push(Some(family)),
        }
        self.names.insert(name.into(), number);
        number
    }

    /// Gives up the names of families without series.
    pub(super) fn close_empty(&mut self) {
        let (list, free) = (&mut self.list, &mut self.free);
        self.names.retain(|_, number| {
            let place = list.get_mut(*number as usize);
            let empty = place.and_then(|place| place.take_if(|family| family.series.is_empty()));
            free.extend(empty.is_some().then_some(*number));
            empty.is_none()
        });
        let names = &self.names;
        self.differences
            .retain(|(family, _), _| names.contains_key(family));
    }
}

/// The difference between a metric's metadata and the shown one. Missing metadata differs from nothing.
fn difference(shown: &Metric, metric: &Metric) -> Option<&'static str> {
    let differ = |a: &str, b: &str| !b.is_empty() && a != b;
    let help = differ(&shown.description, &metric.description);
    match (help, differ(&shown.unit, &metric.unit)) {
        (true, true) => Some("description and unit"),
        (true, false) => Some("description"),
        (false, true) => Some("unit"),
        (false, false) => None,
    }
}
