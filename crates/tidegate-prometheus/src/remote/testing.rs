// SPDX-License-Identifier: Apache-2.0

//! For tests: requests as plain values.

use std::collections::BTreeMap;

use super::Version;
use super::histogram::Native;
use super::read::{Metadata, SeriesIn, Visitor, read};

/// A series as it came over the wire.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plain {
    /// `name{a="b"}`, in the order in which the labels came.
    pub name: String,
    /// Time, value, start.
    pub samples: Vec<(i64, f64, i64)>,
    /// The native histograms.
    pub histograms: Vec<Native>,
    /// Labels, value, time.
    pub exemplars: Vec<(String, f64, i64)>,
    /// Kind, help, unit.
    pub metadata: Option<(&'static str, String, String)>,
}

/// A request as it came over the wire.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// The series, in the order of the request.
    pub series: Vec<Plain>,
    /// Of 1.0, by family.
    pub metadata: BTreeMap<String, (&'static str, String, String)>,
}

impl Request {
    /// Reads an uncompressed one.
    pub fn of(version: Version, bytes: &[u8]) -> Self {
        let mut request = Self::default();
        read(version, bytes, &mut request).expect("a request");
        request
    }

    /// Times and values of a series that must be there.
    pub fn samples(&self, name: &str) -> Vec<(i64, f64)> {
        let found = self.series.iter().filter(|series| series.name == name);
        let samples = found.flat_map(|series| &series.samples);
        samples.map(|(time, value, _)| (*time, *value)).collect()
    }

    /// The names of all series.
    pub fn names(&self) -> Vec<&str> {
        self.series.iter().map(|series| series.name.as_str()).collect()
    }
}

fn braces(labels: &[(&str, &str)]) -> String {
    let labels: Vec<_> = labels
        .iter()
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    format!("{{{}}}", labels.join(","))
}

fn metadata(metadata: &Metadata<'_>) -> (&'static str, String, String) {
    (
        metadata.kind.name(),
        metadata.help.to_owned(),
        metadata.unit.to_owned(),
    )
}

impl<'a> Visitor<'a> for Request {
    fn series(&mut self, series: &mut SeriesIn<'a>) {
        assert!(
            series.labels.is_sorted_by(|a, b| a.0 < b.0),
            "{:?}",
            series.labels
        );
        assert!(
            series
                .labels
                .iter()
                .all(|(name, value)| !name.is_empty() && !value.is_empty())
        );
        let is_name = |label: &&(&str, &str)| label.0 == "__name__";
        let name = series
            .labels
            .iter()
            .find(is_name)
            .expect("every series has a name")
            .1;
        let others: Vec<_> = series
            .labels
            .iter()
            .filter(|label| !is_name(label))
            .copied()
            .collect();
        let exemplars = series.each_exemplar();
        self.series.push(Plain {
            name: format!("{name}{}", braces(&others)),
            samples: series
                .samples
                .iter()
                .map(|sample| (sample.time, sample.value, sample.start))
                .collect(),
            histograms: series.histograms.clone(),
            exemplars: exemplars
                .map(|(exemplar, labels)| (braces(labels), exemplar.value, exemplar.time))
                .collect(),
            metadata: series.metadata.as_ref().map(metadata),
        });
    }

    fn absurd(&mut self, series: &SeriesIn<'a>) {
        panic!("a series of {:?}", series.extent);
    }

    fn metadata(&mut self, family: Metadata<'a>) {
        self.metadata.insert(family.family.to_owned(), metadata(&family));
    }
}
