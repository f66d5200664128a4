// SPDX-License-Identifier: Apache-2.0

//! Families: the content of the metadata lines, and the role of samples in a family.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tidegate_engine::{Data, Metric};
use tidegate_exposition::{MetricType, Text};

use crate::model;

/// The number of families that are kept beyond twice the seen ones.
const SPARE: usize = 1024;

/// The state of a family when a line was resolved. After a change, the line is resolved again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FamilyRef {
    family: u32,
    version: u32,
}

/// No family. Such lines are resolved again when there is a new family.
const NONE: u32 = u32::MAX;

/// Independent of families.
const ANY: u32 = u32::MAX - 1;

impl FamilyRef {
    /// A line that no family can change.
    pub(super) const ANY: Self = Self {
        family: ANY,
        version: 0,
    };
}

#[derive(Debug)]
struct ScrapedFamily {
    name: Box<str>,
    kind: MetricType,
    help: Box<str>,
    unit: Box<str>,
    /// Changes when lines must be resolved again.
    version: u32,
    page: u32,
}

/// The part of a family that a sample belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FamilyPart {
    Number,
    Bucket,
    Quantile,
    Sum,
    Count,
    Created,
}

/// A name, and what its family says of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) family: FamilyRef,
    pub(super) kind: MetricType,
    pub(super) part: FamilyPart,
    /// Bytes of the name that are the suffix of its part.
    pub(super) suffix: usize,
}

/// Types, suffixes, and the parts that they mean together.
const PARTS: [(MetricType, &str, FamilyPart); 22] = [
    (MetricType::Unknown, "", FamilyPart::Number),
    (MetricType::Gauge, "", FamilyPart::Number),
    (MetricType::StateSet, "", FamilyPart::Number),
    (MetricType::Info, "", FamilyPart::Number),
    (MetricType::Info, "_info", FamilyPart::Number),
    (MetricType::Counter, "", FamilyPart::Number),
    (MetricType::Counter, "_total", FamilyPart::Number),
    (MetricType::Counter, "_created", FamilyPart::Created),
    (MetricType::Histogram, "_bucket", FamilyPart::Bucket),
    (MetricType::Histogram, "_sum", FamilyPart::Sum),
    (MetricType::Histogram, "_count", FamilyPart::Count),
    (MetricType::Histogram, "_created", FamilyPart::Created),
    (MetricType::GaugeHistogram, "_bucket", FamilyPart::Bucket),
    (MetricType::GaugeHistogram, "_gsum", FamilyPart::Sum),
    (MetricType::GaugeHistogram, "_gcount", FamilyPart::Count),
    // The name in protobuf.
    (MetricType::GaugeHistogram, "_sum", FamilyPart::Sum),
    (MetricType::GaugeHistogram, "_count", FamilyPart::Count),
    (MetricType::GaugeHistogram, "", FamilyPart::Number),
    (MetricType::Summary, "", FamilyPart::Quantile),
    (MetricType::Summary, "_sum", FamilyPart::Sum),
    (MetricType::Summary, "_count", FamilyPart::Count),
    (MetricType::Summary, "_created", FamilyPart::Created),
];

/// The families of a target.
#[derive(Debug, Default)]
pub(super) struct Families {
    families: Vec<ScrapedFamily>,
    names: HashMap<Box<str>, u32, RandomState>,
    /// The family of the last metadata line.
    current: Option<u32>,
    /// The number of families ever added.
    added: u32,
    /// The version that was given last. None is given twice.
    version: u32,
    /// The number of the page, and the number of its families.
    page: u32,
    seen: usize,
    /// Metrics that series have, so that series of one metric share it.
    metrics: HashMap<(Box<str>, Data), Arc<Metric>, RandomState>,
}

impl Families {
    /// A page has ended.
    pub(super) fn end_page(&mut self) {
        if self.families.len() > 2 * self.seen + SPARE {
            // The remaining families return with the next page.
            self.families.clear();
            self.names.clear();
        }
        self.current = None;
        self.page = self.page.wrapping_add(1);
        self.seen = 0;
    }

    /// Whether a line that was resolved with this family still means the same.
    #[inline]
    pub(super) fn is_current(&self, family: FamilyRef) -> bool {
        match family.family {
            ANY => true,
            NONE => family.version == self.added,
            at => self
                .families
                .get(at as usize)
                .is_some_and(|now| now.version == family.version),
        }
    }

    pub(super) fn set_type(&mut self, name: Text<'_>, kind: MetricType) {
        let version = self.version.wrapping_add(1);
        let family = self.of(name);
        if family.kind != kind {
            (family.kind, family.version) = (kind, version);
            self.version = version;
        }
    }

    /// Series that exist keep the text that they were made with.
    pub(super) fn set_help(&mut self, name: Text<'_>, help: Text<'_>) {
        let family = self.of(name);
        if family.help.as_bytes() != help.raw() {
            family.help = help.get().into();
        }
    }

    pub(super) fn set_unit(&mut self, name: Text<'_>, unit: Text<'_>) {
        let version = self.version.wrapping_add(1);
        let family = self.of(name);
        if family.unit.as_bytes() != unit.raw() {
            (family.unit, family.version) = (unit.get().into(), version);
            self.version = version;
        }
    }

    /// The family of a metadata line, made when it is new.
    fn of(&mut self, name: Text<'_>) -> &mut ScrapedFamily {
        let page = self.page;
        let name = name.get();
        let at = match self
            .current
            .filter(|at| *self.families[*at as usize].name == *name)
        {
            Some(at) => at,
            None => match self.names.get(&*name) {
                Some(at) => *at,
                None => self.add(&name),
            },
        };
        self.current = Some(at);
        let family = &mut self.families[at as usize];
        if std::mem::replace(&mut family.page, page) != page {
            self.seen += 1;
        }
        family
    }

    fn add(&mut self, name: &str) -> u32 {
        // A page is far shorter than 4 GiB.
        let at = self.families.len() as u32;
        self.added = self.added.wrapping_add(1);
        self.version = self.version.wrapping_add(1);
        self.families.push(ScrapedFamily {
            name: name.into(),
            kind: MetricType::Unknown,
            help: "".into(),
            unit: "".into(),
            version: self.version,
            page: self.page.wrapping_sub(1),
        });
        self.names.insert(name.into(), at);
        at
    }

    /// The role of a sample with this name: in the family of the last metadata line if the name fits. Otherwise in
    /// the family with this name, with or without a suffix.
    pub(super) fn named(&self, name: &str) -> Named {
        let suffixes = PARTS.iter().map(|(_, suffix, _)| *suffix);
        let bases = suffixes.filter_map(|suffix| self.names.get(name.strip_suffix(suffix)?).copied());
        let found = self
            .current
            .into_iter()
            .chain(bases)
            .find_map(|at| self.part(at, name));
        found.unwrap_or(Named {
            family: FamilyRef {
                family: NONE,
                version: self.added,
            },
            kind: MetricType::Unknown,
            part: FamilyPart::Number,
            suffix: 0,
        })
    }

    /// A native histogram of this name: it is called as its family is.
    pub(super) fn named_native(&self, name: &str) -> Named {
        let family = self.names.get(name).map(|at| (*at, &self.families[*at as usize]));
        Named {
            family: match family {
                Some((family, ScrapedFamily { version, .. })) => FamilyRef {
                    family,
                    version: *version,
                },
                None => FamilyRef {
                    family: NONE,
                    version: self.added,
                },
            },
            kind: MetricType::Histogram,
            part: FamilyPart::Number,
            suffix: 0,
        }
    }

    fn part(&self, at: u32, name: &str) -> Option<Named> {
        let family = self.families.get(at as usize)?;
        let suffix = name.strip_prefix(&*family.name)?;
        let is_it =
            |(kind, known, _): &&(MetricType, &str, FamilyPart)| *kind == family.kind && *known == suffix;
        let (kind, suffix, part) = PARTS.iter().find(is_it)?;
        Some(Named {
            family: FamilyRef {
                family: at,
                version: family.version,
            },
            kind: *kind,
            part: *part,
            suffix: suffix.len(),
        })
    }

    /// The metric of this name, shared by all series that have it.
    pub(super) fn metric(&mut self, name: &str, named: Named, data: Data) -> Arc<Metric> {
        let family = self.families.get(named.family.family as usize);
        let (help, unit) = family.map_or(("", ""), |family| (&*family.help, &*family.unit));
        let made = model::metric(name, named.kind, data, help, unit);
        let known = self
            .metrics
            .entry((name.into(), data))
            .or_insert_with(|| Arc::new(made.clone()));
        if **known != made {
            *known = Arc::new(made);
        }
        known.clone()
    }

    /// Forgets metrics that no series has.
    pub(super) fn sweep(&mut self) {
        self.metrics.retain(|_, metric| Arc::strong_count(metric) > 1);
    }
}
