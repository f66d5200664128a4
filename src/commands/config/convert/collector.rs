// SPDX-License-Identifier: Apache-2.0

//! Files of an OpenTelemetry Collector: components that tidegate has stay as they are.

use super::references::{ComponentKey, pipelines, remove_references};
use super::report::Report;
use super::vendors;
use crate::commands::load::Kinds;
use crate::config::{Class, ComponentId, Entry, Node, NodeValue, Registry, instead};

/// For components that nobody knows.
const UNKNOWN: &str = "keep a Collector for it, or choose one that `tidegate components` lists";

/// The configuration without the components that tidegate has not.
pub(super) fn draft(mut root: Node, report: &mut Report) -> Node {
    vendors::replace(&mut root, report);
    let classes = Class::ALL.into_iter();
    let removed: Vec<_> = classes
        .flat_map(|class| remove_foreign(&mut root, class, report))
        .collect();
    add_lost_sampling(&mut root, &removed, report);
    remove_references(&mut root, &removed);
    remove_profiles(&mut root, report);
    root
}

/// Removes the components of a class whose types tidegate has not.
fn remove_foreign(root: &mut Node, class: Class, report: &mut Report) -> Vec<ComponentKey> {
    let registry = Kinds;
    let kinds = registry.kinds(class);
    let mut removed = Vec::new();
    let section = root.get_mut(class.section()).map(Node::value_mut);
    let Some(NodeValue::Map(entries)) = section else {
        return removed;
    };
    entries.retain(|entry| {
        // A malformed id is reported with the options.
        let id = entry.key.parse::<ComponentId>();
        let Some(id) = id.ok().filter(|id| !kinds.contains(&id.kind.as_str())) else {
            return true;
        };
        let instead = instead(class, &id.kind).unwrap_or(UNKNOWN);
        report.add(&entry.value, format!("not in tidegate: {instead}"));
        removed.push((class, entry.key.clone()));
        false
    });
    removed
}

/// Processors that pass a part of the traces or logs, without underscores.
const SAMPLERS: [&str; 2] = ["probabilisticsampler", "tailsampling"];

/// Names the pipelines that no longer sample: their exporters get more items, which can cost more.
fn add_lost_sampling(root: &mut Node, removed: &[ComponentKey], report: &mut Report) {
    for pipeline in pipelines(root).into_iter().flatten() {
        let items = pipeline.value.get("processors").and_then(Node::as_list);
        for item in items.unwrap_or_default() {
            if let Some(id) = item.as_str().filter(|id| is_lost_sampler(id, removed)) {
                let message = format!(
                    "the pipeline `{}` loses the sampling of `{id}`: its exporters get all items; sample in the SDKs, \
                     or keep a Collector in front",
                    pipeline.key
                );
                report.add(item, message);
            }
        }
    }
}

fn is_lost_sampler(id: &str, removed: &[ComponentKey]) -> bool {
    let kind = id.split('/').next().unwrap_or_default().replace('_', "");
    let mut removed = removed.iter();
    SAMPLERS.contains(&kind.as_str())
        && removed.any(|(class, removed)| *class == Class::Processor && removed == id)
}

/// The gateway would ignore these pipelines.
fn remove_profiles(root: &mut Node, report: &mut Report) {
    let is_of_profiles = |entry: &Entry| entry.key.split('/').next() == Some("profiles");
    let Some(entries) = pipelines(root) else { return };
    for entry in entries.iter().filter(|entry| is_of_profiles(entry)) {
        let message =
            "not in tidegate: keep a Collector for profiles; tidegate carries metrics, traces and logs";
        report.add(&entry.value, message);
    }
    entries.retain(|entry| !is_of_profiles(entry));
}
