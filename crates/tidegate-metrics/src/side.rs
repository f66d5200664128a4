// SPDX-License-Identifier: Apache-2.0

//! The data that a series keeps beside its cell: its identity, extremes for watchers, exemplars.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::description::{FamilySpec, Kind};
use crate::span::SpanRef;
use crate::value::Exemplar;
use crate::watched::SeriesWatch;

/// The label of the series that all beyond the limit share.
pub(crate) const OVERFLOW: (&str, &str) = ("otel_metric_overflow", "true");

/// Which instrument a handle is of.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    spec: Arc<FamilySpec>,
    /// `None`: what all series beyond the limit share.
    values: Option<Box<[Box<str>]>>,
}

impl Info {
    pub(crate) fn new(spec: &Arc<FamilySpec>, values: &[&str]) -> Self {
        Self {
            spec: spec.clone(),
            values: Some(values.iter().map(|value| (*value).into()).collect()),
        }
    }

    /// The identity of the series that all series beyond the limit share.
    pub(crate) fn overflow(spec: &Arc<FamilySpec>) -> Self {
        Self {
            spec: spec.clone(),
            values: None,
        }
    }

    /// The family as it was registered: name with all prefixes, help, unit, kind, constant labels.
    pub fn family(&self) -> &FamilySpec {
        &self.spec
    }

    /// Name with all prefixes.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// All labels: the constant ones first. Of the series that all beyond the limit share, what tells that.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_own = self.values.is_some();
        let constant = self.spec.constant.iter().filter(move |_| is_own);
        let own = self.spec.labels.iter().zip(self.values.iter().flatten());
        let overflow = (!is_own).then_some(OVERFLOW);
        let constant = constant.map(|(key, value)| (key.as_str(), value.as_str()));
        constant
            .chain(own.map(|(key, value)| (key.as_str(), &**value)))
            .chain(overflow)
    }

    /// Its labels for readers. A label without a value is as good as none, for all of them.
    pub(crate) fn shown_labels(&self) -> Vec<(String, String)> {
        let labels = self.labels().filter(|(_, value)| !value.is_empty());
        labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) info: Info,
    pub(crate) watched: SeriesWatch,
    exemplars: Box<[Mutex<Option<Exemplar>>]>,
}

impl Side {
    pub(crate) fn new(info: Info) -> Self {
        let slots = match (&info.spec.kind, info.spec.exemplars) {
            (_, false) => 0,
            (Kind::Histogram { bounds }, true) => bounds.len() + 1,
            (_, true) => 1,
        };
        Self {
            info,
            watched: Default::default(),
            exemplars: (0..slots).map(|_| Mutex::default()).collect(),
        }
    }

    /// Remembers the span of a value. If another thread is doing so, its span stays: no thread waits.
    pub(crate) fn remember(&self, value: f64, span: SpanRef) {
        let bucket = match &self.info.spec.kind {
            Kind::Histogram { bounds } => bounds.partition_point(|bound| *bound < value),
            _ => 0,
        };
        let Some(slot) = self.exemplars.get(bucket) else {
            return;
        };
        if let Ok(mut slot) = slot.try_lock() {
            *slot = Some(Exemplar {
                value,
                span,
                time: SystemTime::now(),
            });
        }
    }

    pub(crate) fn exemplars(&self) -> Vec<Exemplar> {
        let read = |slot: &Mutex<_>| *slot.lock().unwrap_or_else(PoisonError::into_inner);
        self.exemplars.iter().filter_map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Description;

    fn side(exemplars: bool) -> Side {
        let mut description = Description::new("a", "").bounds([1.0, 2.0]);
        description.exemplars = exemplars;
        let spec = description.spec(description.histogram(), &[("b", "c")], &["d"]);
        Side::new(Info::new(&Arc::new(spec), &["e"]))
    }

    #[test]
    fn each_bucket_remembers_its_newest_span() {
        let side = side(true);
        let span = |id| SpanRef::new([id; 16], [id; 8]).unwrap();
        for (value, id) in [(0.5, 1), (1.0, 2), (9.0, 3)] {
            side.remember(value, span(id));
        }
        let told: Vec<_> = side.exemplars().iter().map(|e| (e.value, e.span)).collect();
        assert_eq!(told, [(1.0, span(2)), (9.0, span(3))]);
    }

    #[test]
    fn a_series_knows_all_its_labels() {
        let side = side(false);
        let labels: Vec<_> = side.info.labels().collect();
        assert_eq!(labels, [("b", "c"), ("d", "e")]);
    }
}
