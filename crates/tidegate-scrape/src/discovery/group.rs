// SPDX-License-Identifier: Apache-2.0

//! Groups of targets in JSON or YAML, from files and services.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;

use super::ADDRESS;
use crate::config::discovery::StaticConfig;
use crate::labels::Labels;
use tidegate_config::{Decode, MAX_NODES, Ordered, Problems, parse_text};
use tidegate_pipeline::component::{Held, NoRoom};

/// The label with the file of a target.
pub(super) const META_FILE: &str = "__meta_filepath";
/// The label with the service of a target.
pub(super) const META_URL: &str = "__meta_url";

/// Largest list of targets: a hundred thousand of them.
pub(super) const MAX_LIST_BYTES: usize = 32 << 20;

/// A language of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Json,
    Yaml,
}

impl Language {
    /// The bytes allocated to read a list of this length.
    fn cost(self, bytes: usize) -> usize {
        match self {
            // `{},` is a group of 48 bytes, in a list that grows by doubling.
            Self::Json => bytes.saturating_mul(32),
            // The text is copied, and it has at most this many values, each with its position.
            Self::Yaml => {
                let values = bytes.saturating_mul(32).min(MAX_NODES * 512);
                bytes.saturating_mul(4).saturating_add(values)
            }
        }
    }

    fn read(self, name: &str, text: &[u8]) -> Result<Vec<Group>, String> {
        match self {
            Self::Json => from_json(text),
            Self::Yaml => from_yaml(name, std::str::from_utf8(text).map_err(|_| "not UTF-8")?),
        }
    }
}

/// The overhead of a label in bytes: two texts with their allocations.
const LABEL_BYTES: usize = 80;

/// The labels of a target are kept as they are found, by its file and for its job, as they are before relabelling, and as the
/// target has them; they are copied once more while targets are compared.
const COPIES: usize = 5;

/// The approximate overhead of a target from DNS or Kubernetes in bytes: its scrape loop, client and state.
const TARGET_BYTES: usize = 8 << 10;

/// The bytes of a label with a value of this length.
pub(super) fn label_bytes(name: &str, value_bytes: usize) -> usize {
    LABEL_BYTES + name.len() + value_bytes
}

/// The targets of a list, and their room.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) labels: Vec<Labels>,
    pub(super) room: Room,
}

/// The room of targets that others list, while they are in force.
#[derive(Clone, Debug)]
pub(in super::super) struct Room(Arc<Mutex<Held>>);

impl Room {
    /// Records that all copies of the labels exist.
    pub(in super::super) fn fill(&self) {
        let mut held = self.0.lock();
        let reserved = held.bytes();
        held.keep(reserved);
    }
}

/// The reason why a list is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListError {
    /// The memory limit is too low for it.
    #[error(
        "the list of targets never fits into the memory limit: raise it, or list fewer targets and labels"
    )]
    NeverFits,
    /// The memory for it is not free now.
    #[error("the list of targets has no room now: {0}")]
    NoRoom(#[from] NoRoom),
    /// The list is invalid.
    #[error("{0}")]
    Wrong(String),
}

impl Listed {
    /// Reads a list. `held` is the reservation of its text, if there is one. This is slow: don't call it on a
    /// runtime thread. Each target repeats the labels of its group, so a short list may become large, and its size
    /// is reserved first.
    ///
    /// # Errors The list is invalid, or memory is short.
    pub(super) fn read(
        (name, text): (&str, &[u8]),
        language: Language,
        meta: &[(&str, &str)],
        mut held: Held,
    ) -> Result<Self, ListError> {
        grow(&mut held, language.cost(text.len()))?;
        let groups = language.read(name, text).map_err(ListError::Wrong)?;
        let weight = groups.iter().map(|group| group.weight(meta));
        let weight = weight.fold(0, usize::saturating_add);
        let labelled = |group: Group| group.into_labels(meta);
        let make = || groups.into_iter().flat_map(labelled).collect();
        Self::make(weight, weight.saturating_mul(COPIES), make, held)
    }

    /// Makes `count` targets with labels of `weight` bytes.
    ///
    /// # Errors Memory for them and for their scrapes is short.
    pub(super) fn of_records(
        targets: usize,
        weight: usize,
        make: impl FnOnce() -> Vec<Labels>,
        held: Held,
    ) -> Result<Self, ListError> {
        let beside = targets.saturating_mul(TARGET_BYTES);
        let all = weight.saturating_mul(COPIES).saturating_add(beside);
        Self::make(weight, all, make, held)
    }

    /// Makes labels of `weight` bytes after the reservation of `all` bytes.
    fn make(
        weight: usize,
        all: usize,
        make: impl FnOnce() -> Vec<Labels>,
        mut held: Held,
    ) -> Result<Self, ListError> {
        grow(&mut held, all)?;
        let labels = make();
        held.keep(weight);
        grow(&mut held, all - weight)?;
        let room = Room(Arc::new(Mutex::new(held)));
        Ok(Self { labels, room })
    }
}

/// Reserves more bytes. A size that never fits must not make memory short for others.
fn grow(held: &mut Held, bytes: usize) -> Result<(), ListError> {
    if !held.could_ever_grow(bytes) {
        return Err(ListError::NeverFits);
    }
    Ok(held.try_grow(bytes)?)
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
    /// Bytes that its targets take with their labels, once.
    fn weight(&self, meta: &[(&str, &str)]) -> usize {
        let of_label = |name: &str, value: &str| label_bytes(name, value.len());
        let common = self.labels.iter().map(|(name, value)| of_label(name, value));
        let meta = meta.iter().map(|(name, value)| of_label(name, value));
        let common = common.chain(meta).fold(0, usize::saturating_add);
        let addresses = self.targets.iter().map(|address| of_label(ADDRESS, address));
        let all = addresses.fold(0, usize::saturating_add);
        all.saturating_add(common.saturating_mul(self.targets.len()))
    }

    /// The labels of each target; `meta` names their source.
    pub(super) fn into_labels(self, meta: &[(&str, &str)]) -> Vec<Labels> {
        let common = self
            .labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        // An address that is replaced needs no larger list of labels.
        let common = common.chain(meta.iter().copied()).chain([(ADDRESS, "-")]);
        let common: Labels = common.collect();
        let of = |address: String| {
            let mut labels = common.clone();
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
        return if problems.has_errors() {
            Err(problems.to_string())
        } else {
            Ok(Vec::new())
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
