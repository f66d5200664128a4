//! What processors make, for the check that no two make the same.

use std::sync::Arc;

use tidegate_engine::{Grouping, Instrument};

/// A metric that a processor makes: what tells its series from those of another maker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Name of the metric.
    pub name: Arc<str>,
    /// What its series are.
    pub instrument: Instrument,
    /// Names of the attributes that its series have, sorted; empty: it is one series.
    pub labels: Vec<Arc<str>>,
}

impl Made {
    /// `None` where the input decides which attributes there are.
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
