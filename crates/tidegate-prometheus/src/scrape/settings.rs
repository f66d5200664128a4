// SPDX-License-Identifier: Apache-2.0

//! The settings of a receiver for a target, and its results of a page.

use std::sync::Arc;

use tidegate_engine::{Attributes, Scope};
use tidegate_exposition::{Options, ParseError};

use crate::escaping::{is_legacy_label_name, is_legacy_metric_name};
use crate::model::{LabelSet, MAX_LABELS, MAX_TEXT_BYTES, NAME, Resolution};

/// The limits of a target's pages. 0 means no limit.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Native or classic histograms.
    pub parser: Options,
    /// Whether times on the page count.
    pub honor_timestamps: bool,
    /// Whether series that have times on the page end when they are not on it any more.
    pub track_timestamps_staleness: bool,
    /// Samples of a page, after relabelling.
    pub sample_limit: usize,
    /// The most labels of a series after relabelling, including its name. A line may have [`MAX_LABELS`], or this
    /// limit if it is larger.
    pub label_limit: usize,
    /// Bytes of a label's name.
    pub label_name_length_limit: usize,
    /// Bytes of a label's value.
    pub label_value_length_limit: usize,
    /// Buckets of a native histogram. It is made coarser as far as that helps.
    pub native_histogram_bucket_limit: usize,
    /// The finest schema of native histograms; finer ones are made coarser.
    pub native_histogram_max_schema: i32,
    /// Whether names may only have letters, digits and underscores, those of metrics colons as well.
    pub legacy_names: bool,
    /// The scope of series that don't name theirs.
    pub scope: Arc<Scope>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            parser: Options::default(),
            honor_timestamps: true,
            track_timestamps_staleness: false,
            sample_limit: 0,
            label_limit: 0,
            label_name_length_limit: 0,
            label_value_length_limit: 0,
            native_histogram_bucket_limit: 0,
            native_histogram_max_schema: Resolution::MAX_SCHEMA,
            legacy_names: false,
            scope: Arc::default(),
        }
    }
}

impl Settings {
    /// Whether a page with these counts is kept.
    #[inline]
    pub(super) fn check(&self, counts: &Counts) -> Result<(), Failure> {
        match self.sample_limit {
            limit if limit > 0 && counts.stored > limit => Err(Failure::SampleLimit(limit)),
            _ => Ok(()),
        }
    }

    /// Checks the bytes of a line's name and labels. A longer line is not parsed.
    pub(super) fn check_length(&self, bytes: usize) -> Result<(), Failure> {
        if bytes <= MAX_TEXT_BYTES {
            Ok(())
        } else {
            Err(Failure::TextLimit)
        }
    }

    /// Checks the number of a line's labels before relabelling.
    pub(super) fn check_count(&self, labels: usize) -> Result<(), Failure> {
        let limit = self.label_limit.max(MAX_LABELS);
        if labels <= limit {
            Ok(())
        } else {
            Err(Failure::LabelLimit(limit))
        }
    }

    fn invalid_name<'a>(&self, labels: &'a LabelSet) -> Option<&'a str> {
        if !self.legacy_names {
            return None;
        }
        let metric = Some(labels.get(NAME)).filter(|name| !is_legacy_metric_name(name));
        let mut names = labels.iter().map(|(name, _)| name);
        metric.or_else(|| names.find(|name| !is_legacy_label_name(name)))
    }

    /// Whether a series may have these labels.
    pub(super) fn check_labels(&self, labels: &LabelSet) -> Result<(), Failure> {
        if let Some(name) = self.invalid_name(labels) {
            return Err(Failure::InvalidName(name.to_owned()));
        }
        let exceeds = |limit: usize, len: usize| limit > 0 && len > limit;
        if exceeds(self.label_limit, labels.len()) {
            return Err(Failure::LabelLimit(self.label_limit));
        }
        for (name, value) in labels.iter() {
            if exceeds(self.label_name_length_limit, name.len()) {
                return Err(Failure::LabelNameLength(name.to_owned()));
            }
            if exceeds(self.label_value_length_limit, value.len()) {
                return Err(Failure::LabelValueLength(name.to_owned()));
            }
        }
        Ok(())
    }
}

/// The receiver's knowledge of a target.
pub trait Target: Send {
    /// Relabels the labels of a new line, and adds the target's own labels. False drops the line. It is called
    /// once for each line, and again after a long absence or a change of the family's type.
    fn relabel(&mut self, labels: &mut LabelSet) -> bool;

    /// The attributes of the resource that has this job and instance, besides those of `target_info`.
    fn resource(&self, job: &str, instance: &str) -> Attributes;
}

/// The counts of a page's samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// On the page: `scrape_samples_scraped`.
    pub samples: usize,
    /// After relabelling: `scrape_samples_post_metric_relabeling`.
    pub kept: usize,
    /// Lines that were not known: `scrape_series_added`.
    pub series_added: usize,
    /// Dropped: of a line that was there before on the page, with another value or without a time of its own.
    pub duplicates: usize,
    /// Dropped: before what the series has already.
    pub out_of_order: usize,
    /// Dropped: before 1970, or more than ten minutes ahead.
    pub out_of_bounds: usize,
    /// Dropped: of a kind that OpenTelemetry does not have, or of a histogram or summary that is incomplete.
    pub unusable: usize,
    /// The samples that the sample limit counts.
    pub(super) stored: usize,
}

/// A page that counts for nothing, and how far it was read.
#[derive(Debug, thiserror::Error)]
#[error("{failure}")]
pub struct Failed {
    /// The reason.
    pub failure: Failure,
    /// The counts until the failure.
    pub counts: Counts,
}

/// The reason why a page is discarded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The page can't be parsed.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// A line has a label twice.
    #[error("duplicate label `{0}`")]
    DuplicateLabel(String),
    /// Relabelling has taken the name away.
    #[error("a metric has no name after relabelling")]
    NoName,
    /// A name that the scheme does not allow.
    #[error("`{0}` is not a valid name of a metric or label")]
    InvalidName(String),
    /// The page has more samples than allowed.
    #[error("the page has more than {0} samples")]
    SampleLimit(usize),
    /// A line has more labels than allowed.
    #[error("a series has more than {0} labels")]
    LabelLimit(usize),
    /// A longer name with labels than any page has.
    #[error("the name and labels of a series have more than {} KiB", MAX_TEXT_BYTES >> 10)]
    TextLimit,
    /// A longer label name than allowed.
    #[error("the name of label `{0}` is too long")]
    LabelNameLength(String),
    /// A longer label value than allowed.
    #[error("the value of label `{0}` is too long")]
    LabelValueLength(String),
    /// A histogram has more buckets than allowed, even after merging.
    #[error("a native histogram has more than {0} buckets")]
    BucketLimit(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_held_to_the_old_rules_where_that_is_wanted() {
        let labels = |pairs: &[(&str, &str)]| pairs.iter().copied().collect::<LabelSet>();
        let table = [
            (labels(&[(NAME, "a:b"), ("c", "1")]), Ok(())),
            (labels(&[(NAME, "a.b")]), Err("a.b")),
            (labels(&[(NAME, "a"), ("b.c", "1")]), Err("b.c")),
            (labels(&[(NAME, "a"), ("b:c", "1")]), Err("b:c")),
        ];
        let old = Settings {
            legacy_names: true,
            ..Settings::default()
        };
        for (labels, expected) in table {
            let expected = expected.map_err(|name: &str| Failure::InvalidName(name.to_owned()));
            assert_eq!(old.check_labels(&labels), expected);
            assert_eq!(Settings::default().check_labels(&labels), Ok(()));
        }
    }
}
