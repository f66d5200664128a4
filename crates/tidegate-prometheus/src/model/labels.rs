// SPDX-License-Identifier: Apache-2.0

//! The labels of a series.

/// The most bytes of names, values and other text of a series. Prometheus's own limits are far lower (names and
/// values of labels have some hundred bytes).
pub const MAX_TEXT_BYTES: usize = 64 << 10;

/// The most labels of a series or an exemplar. Prometheus's series have about ten.
pub const MAX_LABELS: usize = 1024;

/// The label that holds the metric's name.
pub const NAME: &str = "__name__";

/// The label that says what a target is for.
pub const JOB: &str = "job";

/// The label that says which target it is.
pub const INSTANCE: &str = "instance";

/// A label set in the order of the names. A label without a value is the same as no label.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelSet(Vec<(String, String)>);

impl LabelSet {
    /// The labels of a line of a page. An empty value there removes the target's own label if labels of the page
    /// are honoured; [`Self::end_empty`] removes empty labels.
    pub fn of_page<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self(ordered(pairs.collect()))
    }

    /// Takes labels without a value away.
    pub fn end_empty(&mut self) {
        self.0.retain(|(_, value)| !value.is_empty());
    }

    /// The value of a label, or an empty string.
    pub fn get(&self, name: &str) -> &str {
        match self.find(name) {
            Ok(at) => &self.0[at].1,
            Err(_) => "",
        }
    }

    /// Whether there is such a label.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    /// Gives a label a value; an empty one takes it away.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        let value = value.into();
        match self.find(name) {
            Ok(at) if value.is_empty() => drop(self.0.remove(at)),
            Ok(at) => self.0[at].1 = value,
            Err(_) if value.is_empty() => {}
            Err(at) => self.0.insert(at, (name.to_owned(), value)),
        }
    }

    /// Gives a label a value unless it has one.
    pub fn set_default(&mut self, name: &str, value: &str) {
        if !self.has(name) {
            self.set(name, value);
        }
    }

    /// Keeps the labels for whose names `keep` is true.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| keep(name));
    }

    /// Names and values in the order of the names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The number of labels.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The labels as `a=1,b=2`.
    #[cfg(any(test, feature = "testing"))]
    pub fn pairs(&self) -> String {
        let pairs: Vec<_> = self
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        pairs.join(",")
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.as_str().cmp(name))
    }
}

/// The last value of a name counts.
impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for LabelSet {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter().map(|(name, value)| (name.into(), value.into()));
        let mut labels = Self(ordered(pairs.collect()));
        labels.end_empty();
        labels
    }
}

/// In the order of the names, each of which has the last of its values.
fn ordered(mut labels: Vec<(String, String)>) -> Vec<(String, String)> {
    labels.sort_by(|a, b| a.0.cmp(&b.0));
    labels.dedup_by(|next, before| {
        let is_same = next.0 == before.0;
        if is_same {
            std::mem::swap(next, before);
        }
        is_same
    });
    labels
}
