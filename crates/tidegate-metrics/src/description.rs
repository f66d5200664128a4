// SPDX-License-Identifier: Apache-2.0

//! Names and meanings of instruments, and the checks of both.

use std::sync::Arc;

pub use tidegate_model::{GaugeMode, Kind};

use crate::{RegisterError, buckets};

/// The finest resolution of an exponential histogram: buckets a power of two, as a power of two.
pub const MAX_SCALE: i8 = 20;

/// The name and the meaning of an instrument.
///
/// Instruments ignore settings that belong to another kind only (bounds, gauge mode).
///
/// ```
/// # use tidegate_metrics::{Description, buckets};
/// let latency = Description::new("request_latency", "Time to the first token").unit("s").bounds(buckets::LATENCY);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Description {
    /// Name without unit and type: those become part of it where a reader wants that (`_seconds`, `_total`).
    pub name: String,
    /// One sentence for people.
    pub help: String,
    /// UCUM unit: `s`, `By`, `1`, `{requests}`; may be empty.
    pub unit: String,
    /// Upper bounds of a classic histogram's buckets.
    pub bounds: Arc<[f64]>,
    /// Makes a histogram exponential; resolution that it starts with.
    pub max_scale: Option<i8>,
    /// How the values of several processes become one.
    pub mode: GaugeMode,
    /// Whether observations remember the span that they were made in.
    pub exemplars: bool,
}

impl Description {
    /// An instrument of this name.
    pub fn new(name: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            help: help.into(),
            unit: String::new(),
            bounds: buckets::LATENCY.into(),
            max_scale: None,
            mode: GaugeMode::LiveSum,
            exemplars: false,
        }
    }

    /// Measured in this UCUM unit.
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = unit.into();
        self
    }

    /// A histogram with these upper bounds; without, those of [`buckets::LATENCY`].
    pub fn bounds(mut self, bounds: impl Into<Arc<[f64]>>) -> Self {
        self.bounds = bounds.into();
        self
    }

    /// An exponential histogram, as fine as possible to begin with.
    pub fn exponential(mut self) -> Self {
        self.max_scale = Some(MAX_SCALE);
        self
    }

    /// How the values of several processes become one; without, the sum of those that live.
    pub fn mode(mut self, mode: GaugeMode) -> Self {
        self.mode = mode;
        self
    }

    /// Observations remember the span that they were made in.
    pub fn exemplars(mut self) -> Self {
        self.exemplars = true;
        self
    }

    pub(crate) fn spec(&self, kind: Kind, constant: &[(&str, &str)], labels: &[&str]) -> FamilySpec {
        FamilySpec {
            name: self.name.clone(),
            help: self.help.clone(),
            unit: self.unit.clone(),
            kind,
            constant: constant
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            exemplars: self.exemplars,
        }
    }

    /// The histogram that it describes.
    pub(crate) fn histogram(&self) -> Kind {
        match self.max_scale {
            Some(max_scale) => Kind::ExponentialHistogram { max_scale },
            None => Kind::Histogram {
                bounds: self.bounds.clone(),
            },
        }
    }
}

/// A family as a registry is asked for it: the description and both kinds of labels.
#[derive(Clone, Debug, PartialEq)]
pub struct FamilySpec {
    /// See [`Description::name`]; with all prefixes.
    pub name: String,
    /// See [`Description::help`].
    pub help: String,
    /// See [`Description::unit`].
    pub unit: String,
    /// The kind of instrument.
    pub kind: Kind,
    /// Labels that all its series have.
    pub constant: Vec<(String, String)>,
    /// Names of the labels that tell its series apart.
    pub labels: Vec<String>,
    /// See [`Description::exemplars`].
    pub exemplars: bool,
}

impl FamilySpec {
    /// Checks everything that can be checked without knowing other families. Every registry does so, those that keep
    /// nothing too: a mistake shows wherever the code runs.
    ///
    /// # Errors
    /// The mistake that the check found.
    pub fn check(&self) -> Result<(), RegisterError> {
        if !is_metric_name(&self.name) {
            return Err(RegisterError::BadName(self.name.clone()));
        }
        let names: Vec<&str> = self.label_names().collect();
        for (at, label) in names.iter().enumerate() {
            let reserved = label.starts_with("__") || (*label == "le" && self.kind.is_histogram());
            if !is_label_name(label) || reserved {
                return Err(RegisterError::BadLabel {
                    metric: self.name.clone(),
                    label: (*label).to_owned(),
                });
            }
            if names[..at].contains(label) {
                return Err(RegisterError::DuplicateLabel {
                    metric: self.name.clone(),
                    label: (*label).to_owned(),
                });
            }
        }
        match &self.kind {
            Kind::Histogram { bounds } if !buckets::are_valid(bounds) => {
                Err(RegisterError::BadBounds(self.name.clone()))
            }
            Kind::Summary => Err(RegisterError::Summary(self.name.clone())),
            _ => Ok(()),
        }
    }

    /// All label names: those of the constant labels first.
    pub fn label_names(&self) -> impl Iterator<Item = &str> {
        let constant = self.constant.iter().map(|(key, _)| key.as_str());
        constant.chain(self.labels.iter().map(String::as_str))
    }
}

fn is_metric_name(name: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | ':');
    let has_more_than_underscores = name.contains(|c: char| c.is_ascii_alphanumeric());
    name.starts_with(is_first)
        && has_more_than_underscores
        && name
            .chars()
            .all(|c| is_first(c) || c.is_ascii_digit() || c == '.')
}

fn is_label_name(name: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(is_first) && name.chars().all(|c| is_first(c) || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        name: &str,
        kind: Kind,
        constant: &[(&str, &str)],
        labels: &[&str],
    ) -> Result<(), RegisterError> {
        Description::new(name, "").spec(kind, constant, labels).check()
    }

    #[test]
    fn names_are_what_every_reader_takes() {
        for good in ["a", "http.server.duration", "_a1", "vllm:ttft"] {
            assert_eq!(check(good, Kind::Counter, &[], &[]), Ok(()), "{good}");
        }
        for bad in ["", "1a", "a b", "ä", "___", ".a", "a-b", "a\nb"] {
            let expected = Err(RegisterError::BadName(bad.into()));
            assert_eq!(check(bad, Kind::Counter, &[], &[]), expected, "{bad}");
        }
    }

    #[test]
    fn labels_are_valid_and_there_once() {
        let kind = || Kind::Histogram { bounds: [1.0].into() };
        assert_eq!(check("a", kind(), &[("x", "")], &["y"]), Ok(()));
        for bad in ["", "1", "a.b", "__name__", "le", "ü"] {
            let is_bad = |constant: &[(&str, &str)], labels: &[&str]| {
                matches!(
                    check("a", kind(), constant, labels),
                    Err(RegisterError::BadLabel { .. })
                )
            };
            assert!(is_bad(&[(bad, "")], &[]) && is_bad(&[], &[bad]), "{bad}");
        }
        assert_eq!(check("a", Kind::Counter, &[], &["le"]), Ok(()));
        let twice = check("a", Kind::Counter, &[("x", "1")], &["x"]);
        assert!(matches!(twice, Err(RegisterError::DuplicateLabel { .. })));
        let bounds = Kind::Histogram {
            bounds: [2.0, 1.0].into(),
        };
        assert_eq!(
            check("a", bounds, &[], &[]),
            Err(RegisterError::BadBounds("a".into()))
        );
    }

    #[test]
    fn the_sdk_records_no_summaries() {
        let refused = Err(RegisterError::Summary("a".into()));
        assert_eq!(check("a", Kind::Summary, &[], &[]), refused);
    }
}
