// SPDX-License-Identifier: Apache-2.0

mod attached;
mod objects;
mod roles;
mod running;

use serde_json::Value;
use tidegate_kubernetes::KubeObject;

use super::*;

/// The targets of objects, in the order of their labels.
fn found(role: KubernetesRole, attached: Attached, objects: &[(ObjectKind, Value)]) -> Vec<Vec<String>> {
    let read = |(kind, json): &(ObjectKind, Value)| {
        KubeObject::from_json(*kind, json.to_string().as_bytes()).unwrap()
    };
    let objects: Vec<_> = objects.iter().map(read).collect();
    let objects = Objects::new(objects.iter(), attached);
    let mut all = Vec::new();
    let _ = each_target(&objects, role, &mut |labels| {
        all.push(shown(&labels));
        ControlFlow::Continue(())
    });
    all.sort();
    all
}

/// Labels as `name=value`, the names without `__meta_kubernetes_`.
fn shown(labels: &Labels) -> Vec<String> {
    let shown = |(name, value): (&str, &str)| {
        let name = name.strip_prefix("__meta_kubernetes_").unwrap_or(name);
        format!("{name}={value}")
    };
    labels.iter().map(shown).collect()
}
