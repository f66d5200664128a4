//! Label sets as the query language knows them, and matchers over them.

use std::sync::Arc;

use promql_parser::label::{MatchOp, Matcher as Parsed};

/// The label that holds the metric's name.
pub const NAME: &str = "__name__";

/// Labels in the order of their names; no name twice, no empty value. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Arc<[(Arc<str>, Arc<str>)]>);

impl Default for Labels {
    fn default() -> Self {
        Self(Arc::from([]))
    }
}

impl<K: Into<Arc<str>>, V: Into<Arc<str>>> FromIterator<(K, V)> for Labels {
    /// Of several values for one name the last one stays; an empty value is none.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter().map(|(name, value)| (name.into(), value.into()));
        let mut pairs: Vec<(Arc<str>, Arc<str>)> = pairs.collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.reverse();
        pairs.dedup_by(|next, kept| next.0 == kept.0);
        pairs.reverse();
        pairs.retain(|(_, value)| !value.is_empty());
        Self(pairs.into())
    }
}

impl Labels {
    /// The value of a label; empty where there is none, as PromQL has it.
    pub fn get(&self, name: &str) -> &str {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(name));
        at.ok()
            .and_then(|at| self.0.get(at))
            .map_or("", |(_, value)| value)
    }

    /// Names and values in the order of names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Arc<str>)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// Only the labels whose names `keep` accepts.
    pub fn filter(&self, keep: impl Fn(&str) -> bool) -> Self {
        match self.0.iter().all(|(name, _)| keep(name)) {
            true => self.clone(),
            false => Self(self.0.iter().filter(|(name, _)| keep(name)).cloned().collect()),
        }
    }

    /// Without the metric's name.
    pub fn nameless(&self) -> Self {
        self.filter(|name| name != NAME)
    }

    /// With one label set; empty removes it.
    pub fn with(&self, name: &str, value: &str) -> Self {
        let own = self.0.iter().filter(|(known, _)| **known != *name).cloned();
        own.chain([(name.into(), value.into())]).collect()
    }
}

/// What a selector asks of one label.
#[derive(Clone, Debug)]
pub struct Matcher(Parsed);

impl Matcher {
    pub(super) fn new(parsed: Parsed) -> Self {
        Self(parsed)
    }

    /// Which label.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The one value that it accepts, if it is that plain.
    pub fn equals(&self) -> Option<&str> {
        matches!(self.0.op, MatchOp::Equal).then_some(&*self.0.value)
    }

    /// Whether it accepts a series with these labels.
    pub fn accepts(&self, labels: &Labels) -> bool {
        self.0.is_match(labels.get(self.name()))
    }
}

/// The one metric name that these ask for, if they do.
pub(super) fn name(matchers: &[Matcher]) -> Option<&str> {
    let of_name = matchers.iter().filter(|matcher| matcher.name() == NAME);
    of_name.filter_map(Matcher::equals).next()
}
