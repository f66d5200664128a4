// SPDX-License-Identifier: Apache-2.0

//! `/debug`: the series that the exposition omits, the reason, their rival, and the time since then. It also lists
//! metrics with the metadata of another sender.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};
use tidegate_engine::{Overflow, Stats, UnixNanos};

use crate::prom::{Conflict, Difference};

/// The omissions of one format.
pub(super) struct FormatOmissions {
    /// The name of the format.
    pub(super) format: String,
    pub(super) omitted: Vec<Conflict>,
    pub(super) differences: Vec<Difference>,
}

/// The page. It lists facts that several formats share once.
pub(super) fn page(exporter: &str, found: Vec<FormatOmissions>, own: &Stats) -> Value {
    let mut omitted: BTreeMap<_, (Conflict, Vec<String>)> = BTreeMap::new();
    let mut differences: BTreeMap<(Box<str>, Arc<str>), Difference> = BTreeMap::new();
    for found in found {
        for conflict in found.omitted {
            let key = (
                conflict.metric.clone(),
                conflict.owner.clone(),
                conflict.why.clone(),
            );
            let (known, formats) = omitted.entry(key).or_insert((conflict.clone(), Vec::new()));
            known.since = known.since.min(conflict.since);
            known.series = known.series.max(conflict.series);
            formats.push(found.format.clone());
        }
        for difference in found.differences {
            let key = (difference.family.clone(), difference.owner.clone());
            differences.entry(key).or_insert(difference);
        }
    }
    let omitted: Value = omitted.into_values().map(of_conflict).collect();
    let overflowed = Overflow::ALL.iter().zip(own.overflowed_streams);
    json!({
        "exporter": exporter,
        "omitted": omitted,
        // The old name of `omitted`, until the next release.
        "left_out": omitted,
        "described_differently": differences.into_values().map(of_difference).collect::<Value>(),
        "overflowed_streams": overflowed.map(|(why, streams)| (why.name(), streams)).collect::<BTreeMap<_, _>>(),
    })
}

fn of_conflict((conflict, formats): (Conflict, Vec<String>)) -> Value {
    json!({
        "metric": &*conflict.metric,
        "reason": conflict.reason.name(),
        "owner": &*conflict.owner,
        "rival": conflict.rival.as_deref(),
        "why": conflict.why,
        "series": conflict.series,
        "since": time(conflict.since),
        "formats": formats,
    })
}

fn of_difference(difference: Difference) -> Value {
    json!({
        "family": &*difference.family,
        "owner": &*difference.owner,
        "shown": &*difference.shown,
        "differs_in": difference.what,
        "since": time(difference.since),
    })
}

fn time(nanos: UnixNanos) -> String {
    let time = UNIX_EPOCH + Duration::from_nanos(nanos);
    humantime::format_rfc3339_millis(time).to_string()
}
