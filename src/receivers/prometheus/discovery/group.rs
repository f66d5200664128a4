//! Groups of targets as files and services list them, in JSON or YAML.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::ADDRESS;
use crate::config::{Decode, Ordered, Problems, parse_text};
use crate::receivers::prometheus::config::discovery::StaticConfig;
use crate::receivers::prometheus::labels::Labels;

/// The label that says which file a target comes from.
pub(super) const META_FILE: &str = "__meta_filepath";
/// The label that says which service a target comes from.
pub(super) const META_URL: &str = "__meta_url";

/// Largest list of targets: a hundred thousand of them.
pub(super) const MAX_LIST_BYTES: usize = 32 << 20;

/// Targets with labels in common.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    #[serde(default)]
    pub(super) targets: Vec<String>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
}

impl Group {
    /// The labels of each target; `meta` says where they come from.
    pub(super) fn into_labels(self, meta: &[(&str, &str)]) -> Vec<Labels> {
        let common: Labels = self
            .labels
            .iter()
            .map(|(name, value)| (name, value.as_str()))
            .collect();
        let of = |address: String| {
            let mut labels = common.clone();
            for (name, value) in meta {
                labels.set(name, *value);
            }
            labels.set(ADDRESS, address);
            labels
        };
        self.targets.into_iter().map(of).collect()
    }
}

/// Reads JSON.
pub(super) fn from_json(text: &[u8]) -> Result<Vec<Group>, String> {
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

/// Reads YAML.
pub(super) fn from_yaml(name: &str, text: &str) -> Result<Vec<Group>, String> {
    let mut problems = Problems::default();
    let Some(node) = parse_text(name, text, &mut problems) else {
        return match problems.has_errors() {
            true => Err(problems.to_string()),
            false => Ok(Vec::new()),
        };
    };
    let groups: Option<Vec<StaticConfig>> = Vec::decode(&node, &mut problems);
    let groups = groups.filter(|_| !problems.has_errors());
    let groups = groups.ok_or_else(|| problems.to_string())?;
    let of = |group: StaticConfig| {
        let Ordered(labels) = group.labels;
        Group {
            targets: group.targets,
            labels: labels.into_iter().map(|(name, value)| (name, value.0)).collect(),
        }
    };
    Ok(groups.into_iter().map(of).collect())
}
