// SPDX-License-Identifier: Apache-2.0

//! Metadata of metrics.

use std::collections::BTreeSet;

use tidegate_exposition::MetricType;
use tidegate_promql::{Patience, QueryError, Selection};

use super::View;
use super::entry::SeriesEntry;
use crate::OPENMETRICS_NAME;

/// The metadata of a metric.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct About {
    /// The name of its family.
    pub name: String,
    /// Its Prometheus type.
    pub kind: &'static str,
    /// Its description.
    pub help: String,
    /// Its unit.
    pub unit: String,
}

impl View {
    /// The metadata of all current metrics.
    ///
    /// # Errors
    /// The reader no longer waits, its time is over, or memory is short.
    pub fn about(&self, patience: &Patience) -> Result<BTreeSet<About>, QueryError> {
        let mut all = BTreeSet::new();
        self.each(&Selection::everything(), patience, &mut |_, entry| {
            all.extend(about(entry));
        })?;
        Ok(all)
    }

    /// The metadata of all current metrics, each with the `job` and `instance` of its target.
    ///
    /// # Errors
    /// The reader no longer waits, its time is over, or memory is short.
    pub fn about_targets(
        &self,
        patience: &Patience,
    ) -> Result<BTreeSet<(String, String, About)>, QueryError> {
        let of_target = |entry: &SeriesEntry| {
            let labels = &entry.numbers.first()?.labels;
            let (job, instance) = (labels.get("job"), labels.get("instance"));
            Some((job.to_owned(), instance.to_owned(), about(entry)?))
        };
        let mut all = BTreeSet::new();
        self.each(&Selection::everything(), patience, &mut |_, entry| {
            all.extend(of_target(entry));
        })?;
        Ok(all)
    }
}

/// `None`: the series shows nothing now.
fn about(entry: &SeriesEntry) -> Option<About> {
    let name = entry.name.as_ref().filter(|_| !entry.numbers.is_empty())?;
    let metric = &entry.series.metric;
    Some(About {
        name: name.to_string(),
        kind: MetricType::of(metric.data).name(),
        help: metric.description.to_string(),
        unit: metric
            .metadata
            .get(OPENMETRICS_NAME)
            .map_or_else(|| metric.unit.to_string(), |_| String::new()),
    })
}
