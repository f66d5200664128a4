//! What a table's series are made of: which metrics, labels and sources make how many.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use super::Table;
use crate::key::{Key, KeyMap};
use crate::streams::lock;
use crate::{AttributeRef, Attributes, Resource, Series};

/// Something, and how many there are of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// What.
    pub name: String,
    /// How many.
    pub count: usize,
}

/// What the series of some tables are made of; each list has the largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cardinality {
    /// Output series.
    pub series: usize,
    /// Bytes of output series and input streams, estimated.
    pub bytes: usize,
    /// Different pairs of label and value.
    pub pairs: usize,
    /// Metrics by series.
    pub metrics: Vec<Count>,
    /// Labels, of points and resources, by different values.
    pub labels: Vec<Count>,
    /// Labels with a value, by series that have them: `key=value`.
    pub values: Vec<Count>,
    /// Sources, by input streams that feed some series: `key=value,...`.
    pub sources: Vec<Count>,
}

#[derive(Default)]
struct Census {
    metrics: HashMap<Arc<str>, usize>,
    labels: HashMap<String, usize>,
    /// By the key of a pair, how many series have it.
    pairs: KeyMap<usize>,
    sources: HashMap<String, usize>,
}

/// What the series of `tables` are made of, with the `top` largest of everything. Looks at every series twice.
pub fn cardinality(tables: &[Arc<Table>], top: usize) -> Cardinality {
    let mut census = Census::default();
    let mut all = Cardinality::default();
    for table in tables {
        all.series += table.len();
        all.bytes += table.bytes();
        table
            .cells
            .each_metric(|name, series| *census.metrics.entry(name.clone()).or_default() += series);
        table.cells.each(|cell| census.see(&cell.series));
        table.each_source(|name, streams| *census.sources.entry(name).or_default() += streams);
    }
    all.pairs = census.pairs.len();
    all.values = census.values(tables, top);
    let metrics = census.metrics.into_iter();
    all.metrics = largest(metrics.map(|(name, series)| (name.to_string(), series)), top);
    all.labels = largest(census.labels, top);
    all.sources = largest(census.sources, top);
    all
}

fn pairs(series: &Series) -> impl Iterator<Item = (&str, AttributeRef<'_>)> {
    series.attributes.iter().chain(series.resource.attributes.iter())
}

impl Census {
    fn see(&mut self, series: &Series) {
        for pair in pairs(series) {
            let count = self.pairs.entry(Key::of_value(&pair)).or_default();
            *count += 1;
            if *count == 1 {
                *self.labels.entry(pair.0.to_owned()).or_default() += 1;
            }
        }
    }

    /// The names of the most frequent pairs, of which only the keys are kept while counting.
    fn values(&self, tables: &[Arc<Table>], top: usize) -> Vec<Count> {
        let mut counts: Vec<usize> = self.pairs.values().copied().collect();
        counts.sort_unstable_by_key(|count| Reverse(*count));
        let least = counts.get(top.saturating_sub(1)).copied().unwrap_or(0);
        let mut named: KeyMap<(String, usize)> = KeyMap::default();
        for table in tables {
            table.cells.each(|cell| {
                for pair in pairs(&cell.series) {
                    let key = Key::of_value(&pair);
                    let count = self.pairs.get(&key).copied().unwrap_or(0);
                    // Of many that are equal some will do.
                    if count >= least && (count > least || named.len() < 2 * top) {
                        named
                            .entry(key)
                            .or_insert_with(|| (format!("{}={}", pair.0, pair.1), count));
                    }
                }
            });
        }
        largest(named.into_values(), top)
    }
}

fn largest(counts: impl IntoIterator<Item = (String, usize)>, top: usize) -> Vec<Count> {
    let counts = counts.into_iter().map(|(name, count)| Count { name, count });
    let mut counts: Vec<Count> = counts.collect();
    counts.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    counts.truncate(top);
    counts
}

/// A source as text.
fn name_of_source(resource: &Resource, attributes: &Attributes) -> String {
    resource.attributes.merge(attributes).to_string()
}

impl Table {
    fn each_source(&self, mut each: impl FnMut(String, usize)) {
        for (resource, streams) in lock(&self.book).each() {
            each(name_of_source(resource, &Attributes::default()), streams);
        }
        let sources: Vec<_> = self.sources().values().cloned().collect();
        for source in sources {
            let (source, streams) = lock(&source).count();
            each(name_of_source(&source.resource, &source.attributes), streams);
        }
    }
}
