//! Groups of targets as files and services list them, in JSON or YAML.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::ADDRESS;
use crate::component::{Held, NoRoom};
use crate::config::{Decode, Ordered, Problems, parse_text};
use crate::receivers::prometheus::config::discovery::StaticConfig;
use crate::receivers::prometheus::labels::Labels;

/// The label that says which file a target comes from.
pub(super) const META_FILE: &str = "__meta_filepath";
/// The label that says which service a target comes from.
pub(super) const META_URL: &str = "__meta_url";

/// Largest list of targets: a hundred thousand of them.
pub(super) const MAX_LIST_BYTES: usize = 32 << 20;

/// What a byte of JSON becomes: a label of two bytes is two texts.
pub(super) const JSON_BYTES: usize = 8;

/// What a byte of YAML becomes: each value has its place in the text beside it.
pub(super) const YAML_BYTES: usize = 32;

/// What a label takes beside its bytes: two texts with their allocations.
const LABEL_BYTES: usize = 80;

/// The labels of a target are kept as they are found, as they are before relabelling, and as the target has them; they are
/// copied once more while targets are compared.
const COPIES: usize = 4;

/// The targets of a list, and their room.
#[derive(Debug)]
pub(super) struct Targets {
    pub(super) labels: Vec<Labels>,
    pub(super) held: Held,
}

impl Targets {
    /// Reads a list whose text `held` holds; each of its bytes becomes `each_byte`. Takes its time: not for a runtime
    /// thread. Each target repeats the labels of its group, so that a short list may become large: there must be room for it
    /// first.
    ///
    /// # Errors
    /// The list is wrong, or there is no room.
    pub(super) fn read<T: AsRef<[u8]>>(
        text: T,
        (parse, each_byte): (impl FnOnce(&[u8]) -> Result<Vec<Group>, String>, usize),
        meta: &[(&str, &str)],
        mut held: Held,
    ) -> Result<Self, String> {
        let no_room = |no_room: NoRoom| format!("the list of targets takes too much memory: {no_room}");
        let bytes = text.as_ref().len();
        held.try_grow(bytes.saturating_mul(each_byte)).map_err(no_room)?;
        let groups = parse(text.as_ref())?;
        let weight = groups.iter().map(|group| group.weight(meta));
        let weight = weight.fold(0, usize::saturating_add);
        held.try_grow(weight).map_err(no_room)?;
        let labelled = |group: Group| group.into_labels(meta);
        let labels = groups.into_iter().flat_map(labelled).collect();
        held.settle(weight);
        Ok(Self { labels, held })
    }
}

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
    /// Bytes that its targets take with their labels.
    fn weight(&self, meta: &[(&str, &str)]) -> usize {
        let of_label = |name: &str, value: &str| LABEL_BYTES + name.len() + value.len();
        let common = self.labels.iter().map(|(name, value)| of_label(name, value));
        let meta = meta.iter().map(|(name, value)| of_label(name, value));
        let common = common.chain(meta).fold(0, usize::saturating_add);
        let addresses = self.targets.iter().map(|address| of_label(ADDRESS, address));
        let all = addresses.fold(0, usize::saturating_add);
        let all = all.saturating_add(common.saturating_mul(self.targets.len()));
        all.saturating_mul(COPIES)
    }

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
