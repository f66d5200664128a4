// SPDX-License-Identifier: Apache-2.0

//! Resolves an unknown line: its labels, whether it is kept, and its role.

use tidegate_engine::{Data, Series};
use tidegate_exposition::{self as exposition, parse_float};

use super::ScrapeDecoder;
use super::family::{FamilyPart, FamilyRef, Named};
use super::line::What;
use super::series::{LineRole, SeriesShape};
use super::settings::{Counts, Failure};
use crate::model::{LabelSet, NAME, SeriesIdentity, TARGET_INFO};

impl ScrapeDecoder {
    /// Finds out what a line is for and keeps it.
    #[cold]
    pub(super) fn resolve(
        &mut self,
        series: &exposition::ExposedSeries<'_>,
        native: Option<Option<Data>>,
        counts: &mut Counts,
    ) -> Result<u32, Failure> {
        let Some(labels) = self.labelled(series)? else {
            return Ok(self.lines.put(series.raw(), FamilyRef::ANY, What::Dropped));
        };
        counts.series_added += usize::from(self.lines.find(series.raw()).is_none());
        let (family, what) = match labels.get(NAME) {
            TARGET_INFO => (FamilyRef::ANY, self.info(&labels)),
            _ => self.part(&labels, native),
        };
        Ok(self.lines.put(series.raw(), family, what))
    }

    /// The labels of a line after relabelling; `None`: it is dropped.
    pub(super) fn labelled(
        &mut self,
        series: &exposition::ExposedSeries<'_>,
    ) -> Result<Option<LabelSet>, Failure> {
        self.settings.check_length(series.raw().len())?;
        series.labels(&mut self.labels)?;
        self.settings.check_count(self.labels.len())?;
        let (mut labels, duplicate) = self.label_set();
        let is_kept = self.target.relabel(&mut labels);
        labels.end_empty();
        if !is_kept || labels.is_empty() {
            return Ok(None);
        }
        if let Some(name) = duplicate {
            return Err(Failure::DuplicateLabel(name));
        }
        if !labels.has(NAME) {
            return Err(Failure::NoName);
        }
        self.settings.check_labels(&labels)?;
        Ok(Some(labels))
    }

    /// The labels of the line, and one that it has twice. A label that is empty once does not count, even if it
    /// also has a value.
    fn label_set(&self) -> (LabelSet, Option<String>) {
        let mut pairs: Vec<(&str, &str)> = self.labels.iter().collect();
        pairs.sort_unstable();
        let mut twice = None;
        let named = pairs.chunk_by(|a, b| a.0 == b.0);
        let kept = named.filter_map(|pairs| {
            // The empty one is the first.
            let (name, value) = *pairs.first()?;
            if pairs.len() > 1 && !value.is_empty() {
                twice = Some(name.to_owned());
            }
            Some((name, value))
        });
        let labels = LabelSet::of_page(kept);
        (labels, twice)
    }

    fn info(&mut self, labels: &LabelSet) -> What {
        let identity = SeriesIdentity::of(labels, "", &mut self.builder);
        let resource = self.resources.of(identity.job, identity.instance);
        What::Info {
            info: self.resources.add_info(resource, identity.attributes),
        }
    }

    fn part(&mut self, labels: &LabelSet, native: Option<Option<Data>>) -> (FamilyRef, What) {
        let name = labels.get(NAME);
        let named = match native {
            Some(_) => self.families.named_native(name),
            None => self.families.named(name),
        };
        let what = match native {
            Some(Some(data)) => Some(self.native(labels, named, data)),
            Some(None) => None,
            None => self.line(labels, named),
        };
        (named.family, what.unwrap_or(What::Unusable))
    }

    fn native(&mut self, labels: &LabelSet, named: Named, data: Data) -> What {
        let slot = self.slot(labels, labels.get(NAME), named, SeriesShape::Native(data), "");
        let role = LineRole::Native;
        What::Part { slot, role }
    }

    fn line(&mut self, labels: &LabelSet, named: Named) -> Option<What> {
        let data = named.kind.data()?;
        let name = labels.get(NAME);
        let base = name.get(..name.len() - named.suffix)?;
        let own = match named.part {
            FamilyPart::Bucket => "le",
            FamilyPart::Quantile => "quantile",
            _ => "",
        };
        let total;
        let metric = match (data, named.part) {
            (Data::Sum { .. }, FamilyPart::Created) => {
                total = format!("{base}_total");
                &*total
            }
            (Data::Histogram { .. } | Data::Summary, _) => base,
            _ => name,
        };
        let place = match own {
            "" => None,
            own => Some(parse_float(labels.get(own).as_bytes())?),
        };
        let slot = self.slot(labels, metric, named, SeriesShape::Lines(data), own);
        let role = match named.part {
            FamilyPart::Number => LineRole::Number,
            FamilyPart::Sum => LineRole::Sum,
            FamilyPart::Count => LineRole::Count,
            FamilyPart::Created => LineRole::Created,
            FamilyPart::Bucket | FamilyPart::Quantile => self.slots.role_of(slot, place?)?,
        };
        Some(What::Part { slot, role })
    }

    /// The slot of a series, whose labels are these without `own`.
    fn slot(&mut self, labels: &LabelSet, metric: &str, named: Named, shape: SeriesShape, own: &str) -> u32 {
        let metric = self.families.metric(metric, named, shape.data());
        let key = key(labels, &metric, shape, own);
        let identity = SeriesIdentity::of(labels, own, &mut self.builder);
        let resource = self.resources.of(identity.job, identity.instance);
        let (resources, scope) = (&self.resources, &self.settings.scope);
        self.slots.of(&key, resource, shape, || Series {
            resource: resources.get(resource).0.clone(),
            scope: identity.scope.map_or_else(|| scope.clone(), Into::into),
            metric,
            attributes: identity.attributes,
        })
    }
}

/// The key bytes of a series: its kind, its metric's name, its labels except `own`.
fn key(labels: &LabelSet, metric: &tidegate_engine::Metric, shape: SeriesShape, own: &str) -> Vec<u8> {
    /// This byte does not occur in UTF-8.
    const SEPARATOR: u8 = u8::MAX;
    let kind = metric.metadata.encoded();
    let mut key = Vec::with_capacity(128);
    key.push(shape.byte());
    for text in [kind, metric.name.as_bytes(), metric.unit.as_bytes()] {
        key.extend_from_slice(text);
        key.push(SEPARATOR);
    }
    let others = labels.iter().filter(|(name, _)| ![NAME, own].contains(name));
    for text in others.flat_map(|(name, value)| [name, value]) {
        key.extend_from_slice(text.as_bytes());
        key.push(SEPARATOR);
    }
    key
}
