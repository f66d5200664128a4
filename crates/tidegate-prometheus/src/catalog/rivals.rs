// SPDX-License-Identifier: Apache-2.0

//! The difference between two series with the same name and labels.

use std::collections::BTreeSet;

use tidegate_engine::{Attributes, Series};

/// Attributes that are named; there may be any number.
const NAMED: usize = 8;

/// The keys of the attributes by which two series differ, for people: `service.version, k8s.pod.uid`. Empty: none.
pub fn differing(one: &Series, other: &Series) -> String {
    let mut keys = BTreeSet::new();
    differing_keys(&one.resource.attributes, &other.resource.attributes, &mut keys);
    differing_keys(&one.attributes, &other.attributes, &mut keys);
    differing_keys(&one.scope.attributes, &other.scope.attributes, &mut keys);
    let of_scope = [
        ("the scope's name", one.scope.name != other.scope.name),
        ("the scope's version", one.scope.version != other.scope.version),
        (
            "the scope's schema_url",
            one.scope.schema_url != other.scope.schema_url,
        ),
    ];
    let of_scope = of_scope.into_iter().filter(|(_, differs)| *differs);
    keys.extend(of_scope.map(|(what, _)| what.to_owned()));
    if keys.is_empty() && one.metric.name != other.metric.name {
        keys.insert("the metric's name".to_owned());
    }
    let more = keys.len().saturating_sub(NAMED);
    let mut named: Vec<String> = keys.into_iter().take(NAMED).collect();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    named.join(", ")
}

fn differing_keys(one: &Attributes, other: &Attributes, keys: &mut BTreeSet<String>) {
    let mut missing = |some: &Attributes, others: &Attributes| {
        let differ = some.iter().filter(|(key, value)| others.get(key) != Some(*value));
        keys.extend(differ.map(|(key, _)| key.to_owned()));
    };
    missing(one, other);
    missing(other, one);
}
