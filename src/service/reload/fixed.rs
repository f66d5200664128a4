// SPDX-License-Identifier: Apache-2.0

//! The parts of a configuration that can't change while the gateway runs.

use std::collections::BTreeSet;

use super::ReloadError;
use crate::config::{Class, ComponentId, Node, differences};
use crate::extensions;
use crate::service::member::names_any;
use crate::service::plan::Plan;

/// Extensions that can't change while components use them.
const NEED_RESTART: [&str; 3] = [
    extensions::admin::FACTORY.kind,
    extensions::cluster::FACTORY.kind,
    extensions::file_storage::FACTORY.kind,
];

/// The parts of a plan that a reload can't change.
pub fn parts_that_need_a_restart(plan: &Plan) -> Vec<String> {
    let needs = |id: &&ComponentId| {
        let planned = plan.extensions.get(id);
        planned.is_some_and(|planned| NEED_RESTART.contains(&planned.factory.kind))
    };
    let extensions = plan.extension_order.iter().filter(needs);
    let extensions = extensions.map(|id| format!("extensions::{id}"));
    let telemetry = plan
        .telemetry_options
        .as_ref()
        .map(|_| "service::telemetry".to_owned());
    extensions.chain(telemetry).collect()
}

/// A component of a cluster in this section whose options change: other replicas know it as it is.
fn changed_partials<'a>(from: &'a Plan, to: &Plan, section: Class) -> Option<&'a ComponentId> {
    const KIND: &str = crate::exporters::partials::FACTORY.kind;
    let options = |plan: &'a Plan| -> Vec<(&'a ComponentId, &'a Node)> {
        match section {
            Class::Receiver => plan
                .receivers
                .iter()
                .map(|(id, one)| (id, &one.options))
                .collect(),
            _ => plan
                .exporters
                .iter()
                .map(|(id, one)| (id, &one.options))
                .collect(),
        }
    };
    let new = |id: &ComponentId| match section {
        Class::Receiver => to.receivers.get(id).map(|one| &one.options),
        _ => to.exporters.get(id).map(|one| &one.options),
    };
    let mut old = options(from).into_iter().filter(|(id, _)| id.kind == KIND);
    let changed = old.find(|(id, old)| new(id).is_some_and(|new| new != *old));
    changed.map(|(id, _)| id)
}

/// An extension that can't change and names the extension `id`.
fn fixed_user<'a>(from: &'a Plan, id: &ComponentId) -> Option<&'a ComponentId> {
    let named = BTreeSet::from([id.to_string()]);
    let mut users = from.extension_order.iter().filter(|user| *user != id);
    users.find(|user| {
        let planned = from.extensions.get(user);
        planned.is_some_and(|planned| {
            NEED_RESTART.contains(&planned.factory.kind) && names_any(&planned.options, &named)
        })
    })
}

/// Looks for changes that components can't follow while they run.
///
/// # Errors
/// The name of the first such part.
pub(super) fn check(from: &Plan, to: &Plan) -> Result<(), ReloadError> {
    if from.telemetry_options != to.telemetry_options {
        let (old, new) = (from.telemetry_options.as_ref(), to.telemetry_options.as_ref());
        let changed = differences("service::telemetry", old, new);
        // Keys in another order are a change too.
        let changed = match changed.as_slice() {
            [] => "service::telemetry".to_owned(),
            keys => keys.join(", "),
        };
        return Err(ReloadError::NeedsRestart(changed));
    }
    for section in [Class::Receiver, Class::Exporter] {
        if let Some(id) = changed_partials(from, to, section) {
            return Err(ReloadError::NeedsRestart(format!("{}::{id}", section.section())));
        }
    }
    for id in &from.extension_order {
        let Some(old) = from.extensions.get(id) else {
            continue;
        };
        let runs = to.extension_order.contains(id);
        let is_same = runs
            && to
                .extensions
                .get(id)
                .is_some_and(|new| new.options == old.options);
        if !is_same && NEED_RESTART.contains(&old.factory.kind) {
            return Err(ReloadError::NeedsRestart(format!("extensions::{id}")));
        }
        if !is_same && let Some(fixed) = fixed_user(from, id) {
            return Err(ReloadError::NeedsRestart(format!(
                "extensions::{id}, which extensions::{fixed} uses,"
            )));
        }
    }
    Ok(())
}
