// SPDX-License-Identifier: Apache-2.0

//! The memory that tables take, and the sources that feed them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use super::Table;
use super::source_registry::SourceNumber;
use crate::streams::lock;
use crate::{Attributes, Resource};

/// A name, and the number of its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// The name of the thing that is counted.
    pub name: String,
    /// The number.
    pub count: usize,
}

/// The memory of some tables, and their largest sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Bytes of output series and input streams, estimated.
    pub bytes: usize,
    /// Sources by input streams that feed some series, the largest first: `key=value,...`.
    pub sources: Vec<Count>,
}

/// The memory that `tables` take, and the `top` sources that feed most of their series.
pub fn holdings(tables: &[Arc<Table>], top: usize) -> Holdings {
    let mut streams: HashMap<String, usize> = HashMap::new();
    for table in tables {
        table.each_source(|name, more| *streams.entry(name).or_default() += more);
    }
    let counts = streams.into_iter().map(|(name, count)| Count { name, count });
    let mut sources: Vec<Count> = counts.collect();
    sources.sort_by(|a, b| (Reverse(a.count), &a.name).cmp(&(Reverse(b.count), &b.name)));
    sources.truncate(top);
    Holdings {
        bytes: tables.iter().map(|table| table.bytes()).sum(),
        sources,
    }
}

/// A source as text.
fn name_of_source(resource: &Resource, attributes: &Attributes) -> String {
    resource.attributes.merge(attributes).to_string()
}

impl Table {
    fn each_source(&self, mut each: impl FnMut(String, usize)) {
        // Streams without a matching rule are tracked too, for the next table in the chain; they do not count here.
        let mut feeding: HashMap<SourceNumber, usize> = HashMap::new();
        self.streams.each(|stream, _| {
            if !stream.fed().is_empty() {
                *feeding.entry(stream.source).or_default() += 1;
            }
        });
        for (number, streams) in feeding {
            // The source may have left since.
            if let Some((resource, _)) = lock(&self.registry).source(number) {
                each(name_of_source(&resource, &Attributes::default()), streams);
            }
        }
        let sources: Vec<_> = self.sources().values().cloned().collect();
        for source in sources {
            let (source, streams) = lock(&source).count();
            each(name_of_source(&source.resource, &source.attributes), streams);
        }
    }
}
