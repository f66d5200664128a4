// SPDX-License-Identifier: Apache-2.0

//! The role `node`: the kubelet of each node.

use std::ops::ControlFlow;

use tidegate_kubernetes::{Body, KubeNode, NodeAddress};

use super::EachTarget;
use super::meta::{MetaLabels, Objects, join, label_name};

/// Types of addresses, the most wanted first.
const TYPES: [&str; 6] = [
    "InternalIP",
    "InternalDNS",
    "ExternalIP",
    "ExternalDNS",
    "LegacyHostIP",
    "Hostname",
];

pub(super) fn targets(objects: &Objects<'_>, each: EachTarget<'_>) -> ControlFlow<()> {
    for object in objects.iter() {
        let Body::Node(node) = &object.body else { continue };
        let Some(address) = address(node) else { continue };
        let mut labels = MetaLabels::default();
        labels.add_metadata("node", &object.metadata);
        labels.add("node_provider_id", &node.spec.provider_id);
        for condition in &node.status.conditions {
            let name = label_name(&condition.kind.to_lowercase());
            labels.add(
                &format!("node_condition_{name}"),
                &condition.status.to_lowercase(),
            );
        }
        labels.set("instance", &object.metadata.name);
        // Of the addresses of a type, the first one counts.
        for NodeAddress { kind, address } in node.status.addresses.iter().rev() {
            labels.add(&format!("node_address_{}", label_name(kind)), address);
        }
        let port = node.status.daemon_endpoints.kubelet.port;
        each(labels.with(|labels| labels.address(join(address, port))))?;
    }
    ControlFlow::Continue(())
}

fn address(node: &KubeNode) -> Option<&str> {
    let first = |kind: &&str| {
        let mut addresses = node.status.addresses.iter();
        addresses.find(|address| &*address.kind == *kind)
    };
    let found = TYPES.iter().find_map(first);
    found.map(|found| &*found.address)
}
