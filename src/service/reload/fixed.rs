// SPDX-License-Identifier: Apache-2.0

//! The parts of a configuration that can't change while the gateway runs.

use std::collections::{BTreeMap, BTreeSet};

use super::ReloadError;
use crate::config::{Class, ComponentId, Node, differences};
use crate::extensions;
use crate::service::member::names_any;
use crate::service::plan::{Plan, Planned};

/// Extensions that can't change while components use them.
const NEED_RESTART: [&str; 3] = [
    extensions::admin::FACTORY.kind,
    extensions::cluster::FACTORY.kind,
    extensions::file_storage::FACTORY.kind,
];

/// Components of a cluster, whose options can't change: other replicas know them as they are.
const PARTIALS: &str = crate::exporters::partials::FACTORY.kind;

/// The parts of a plan that a reload can't change.
pub fn parts_that_need_a_restart(plan: &Plan) -> Vec<String> {
    let is_fixed = |id: &&ComponentId| needs_restart(plan, id) || fixed_user(plan, id).is_some();
    let extensions = plan.extension_order.iter().filter(is_fixed);
    let path = |class: Class, id: &ComponentId| format!("{}::{id}", class.section());
    let mut parts: Vec<_> = extensions.map(|id| path(Class::Extension, id)).collect();
    let of_cluster = |id: &&ComponentId| id.kind == PARTIALS;
    let receivers = plan.receivers.keys().filter(of_cluster);
    parts.extend(receivers.map(|id| path(Class::Receiver, id)));
    let exporters = plan.exporters.keys().filter(of_cluster);
    parts.extend(exporters.map(|id| path(Class::Exporter, id)));
    if fixed_telemetry(plan).is_some() {
        parts.push("service::telemetry".to_owned());
    }
    parts
}

/// The options of `service::telemetry` that can't change: all but the levels of the log. `None`: the defaults.
fn fixed_telemetry(plan: &Plan) -> Option<Node> {
    let is_empty = |node: &Node| node.is_null() || node.as_map().is_some_and(<[_]>::is_empty);
    let mut options = plan.telemetry_options.clone()?;
    if let Some(logs) = options.get_mut("logs") {
        logs.take("level");
        logs.take("levels");
        if is_empty(logs) {
            options.take("logs");
        }
    }
    Some(options).filter(|options| !is_empty(options))
}

/// Whether an extension of this plan can't change.
fn needs_restart(plan: &Plan, id: &ComponentId) -> bool {
    let planned = plan.extensions.get(id);
    planned.is_some_and(|planned| NEED_RESTART.contains(&planned.factory.kind))
}

/// A component of a cluster whose options change.
fn changed_partials<'a, F: 'static>(
    from: &'a BTreeMap<ComponentId, Planned<F>>,
    to: &BTreeMap<ComponentId, Planned<F>>,
) -> Option<&'a ComponentId> {
    let mut of_cluster = from.iter().filter(|(id, _)| id.kind == PARTIALS);
    let is_changed = |id: &ComponentId, old: &Node| to.get(id).is_some_and(|new| new.options != *old);
    let changed = of_cluster.find(|(id, old)| is_changed(id, &old.options));
    changed.map(|(id, _)| id)
}

/// An extension that can't change and names the extension `id`.
fn fixed_user<'a>(from: &'a Plan, id: &ComponentId) -> Option<&'a ComponentId> {
    let named = BTreeSet::from([id.to_string()]);
    let mut users = from.extension_order.iter().filter(|user| *user != id);
    users.find(|user| {
        let planned = from.extensions.get(user);
        needs_restart(from, user) && planned.is_some_and(|planned| names_any(&planned.options, &named))
    })
}

/// Looks for changes that components can't follow while they run.
///
/// # Errors
/// The name of the first such part.
pub(super) fn check(from: &Plan, to: &Plan) -> Result<(), ReloadError> {
    let (old, new) = (fixed_telemetry(from), fixed_telemetry(to));
    if old != new {
        let changed = differences("service::telemetry", old.as_ref(), new.as_ref());
        // Keys in another order are a change too.
        let changed = match changed.as_slice() {
            [] => "service::telemetry".to_owned(),
            keys => keys.join(", "),
        };
        return Err(ReloadError::NeedsRestart(changed));
    }
    let of_cluster = [
        (Class::Receiver, changed_partials(&from.receivers, &to.receivers)),
        (Class::Exporter, changed_partials(&from.exporters, &to.exporters)),
    ];
    for (class, changed) in of_cluster {
        if let Some(id) = changed {
            return Err(ReloadError::NeedsRestart(format!("{}::{id}", class.section())));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::testing::plan;

    const YAML: &str = "extensions:
  bearertokenauth: {token: secret}
  admin: {auth: {authenticator: bearertokenauth}}
  cluster: {name: a, engine: {local: {}}}
  health_check: {}
receivers: {nop: {}}
exporters: {partials: {cluster: cluster, producer: a}}
service:
  extensions: [health_check, bearertokenauth, admin, cluster]
  pipelines: {metrics: {receivers: [nop], exporters: [partials]}}";

    #[test]
    fn levels_of_the_log_change_without_a_restart_and_its_encoding_does_not() {
        let of = |telemetry: &str| plan(&format!("{YAML}\n  telemetry: {telemetry}"));
        let plain = plan(YAML);
        for levels in [
            "{logs: {level: debug}}",
            "{logs: {level: warn, levels: {\"receivers::nop\": debug}}}",
            "{logs: {}}",
        ] {
            let other = of(levels);
            assert!(check(&plain, &other).is_ok(), "{levels}");
            assert!(check(&other, &plain).is_ok(), "{levels}");
            let named = parts_that_need_a_restart(&other);
            assert_eq!(named, parts_that_need_a_restart(&plain), "{levels}");
        }
        let from = of("{logs: {level: info, encoding: json}}");
        let named = parts_that_need_a_restart(&from);
        assert!(named.contains(&"service::telemetry".to_owned()), "{named:?}");
        assert!(check(&from, &of("{logs: {encoding: json, levels: {h2: warn}}}")).is_ok());
        let refused = check(&from, &of("{logs: {level: debug, encoding: console}}"));
        let refused = refused.unwrap_err().to_string();
        let expected = "service::telemetry::logs::encoding can't change";
        assert!(refused.starts_with(expected), "{refused}");
    }

    #[test]
    fn every_part_that_a_reload_refuses_is_named_before() {
        let from = plan(YAML);
        let mut named = parts_that_need_a_restart(&from);
        named.sort_unstable();
        let expected = [
            ("extensions::admin", "{auth:", "{allowed_hosts: [a], auth:"),
            ("extensions::bearertokenauth", "token: secret", "token: other"),
            ("extensions::cluster", "name: a", "name: b"),
            ("exporters::partials", "producer: a", "producer: b"),
        ];
        for (part, old, new) in expected {
            let refused = check(&from, &plan(&YAML.replace(old, new)))
                .expect_err(part)
                .to_string();
            assert!(refused.starts_with(part), "{refused}");
        }
        let mut expected = expected.map(|(part, ..)| part);
        expected.sort_unstable();
        assert_eq!(named, expected);
        let free = YAML.replace("[health_check, ", "[");
        assert!(check(&from, &plan(&free)).is_ok());
    }
}
