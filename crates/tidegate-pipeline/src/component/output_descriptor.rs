// SPDX-License-Identifier: Apache-2.0

//! Descriptors of the metrics that processors produce, for the check that each series has one writer.

use std::sync::Arc;

use tidegate_engine::{Grouping, Instrument};

/// A metric that a processor produces. Equal descriptors may describe the same series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputDescriptor {
    /// The name of the metric.
    pub name: Arc<str>,
    /// Its instrument.
    pub instrument: Instrument,
    /// The sorted names of the attributes that its series have. Empty: the metric is one series.
    pub labels: Vec<Arc<str>>,
}

impl OutputDescriptor {
    /// Creates a descriptor; `None` if the input determines the attributes of the series.
    pub fn new(name: Arc<str>, instrument: Instrument, grouping: &Grouping) -> Option<Self> {
        let Grouping::By(labels) = grouping else {
            return None;
        };
        let mut labels = labels.to_vec();
        labels.sort();
        labels.dedup();
        Some(Self {
            name,
            instrument,
            labels,
        })
    }
}
