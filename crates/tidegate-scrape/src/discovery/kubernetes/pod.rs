// SPDX-License-Identifier: Apache-2.0

//! The role `pod`: a target for each port of each container.

use std::ops::ControlFlow;

use tidegate_kubernetes::{Body, Container, ContainerPort, ContainerStatus, Metadata, Pod};

use super::EachTarget;
use super::meta::{MetaLabels, Objects, bracketed, join};

pub(super) fn targets(objects: &Objects<'_>, each: EachTarget<'_>) -> ControlFlow<()> {
    for object in objects.iter() {
        let Body::Pod(pod) = &object.body else { continue };
        // A pod that starts, or that was evicted, has no address.
        if pod.status.pod_ip.is_empty() || objects.lacks_node(&pod.spec.node_name) {
            continue;
        }
        let mut common = MetaLabels::default();
        objects.add_namespace(&mut common, &object.metadata);
        add_pod(objects, &mut common, &object.metadata, pod);
        objects.add_node(&mut common, &pod.spec.node_name);
        of_pod(&common, pod, each)?;
    }
    ControlFlow::Continue(())
}

fn of_pod(common: &MetaLabels, pod: &Pod, each: EachTarget<'_>) -> ControlFlow<()> {
    let ip = &*pod.status.pod_ip;
    for (container, is_init) in containers(pod) {
        let mut common = common.clone();
        common.add("pod_container_id", container_id(pod, container, is_init));
        common.add("pod_container_name", &container.name);
        common.add("pod_container_image", &container.image);
        common.add("pod_container_init", bool_text(is_init));
        if container.ports.is_empty() {
            each(common.with(|labels| labels.address(bracketed(ip))))?;
        }
        for port in &container.ports {
            each(common.with(|labels| {
                labels.address(join(ip, port.port));
                add_port(labels, port);
            }))?;
        }
    }
    ControlFlow::Continue(())
}

/// The containers, init containers last, and whether they are such.
pub(super) fn containers(pod: &Pod) -> impl Iterator<Item = (&Container, bool)> {
    let usual = pod.spec.containers.iter().map(|container| (container, false));
    let init = pod.spec.init_containers.iter().map(|container| (container, true));
    usual.chain(init)
}

fn container_id<'a>(pod: &'a Pod, container: &Container, is_init: bool) -> &'a str {
    let statuses = if is_init {
        &pod.status.init_container_statuses
    } else {
        &pod.status.container_statuses
    };
    let mut statuses = statuses.iter();
    let status = statuses.find(|status: &&ContainerStatus| status.name == container.name);
    status.map_or("", |status| &status.container_id)
}

fn add_port(labels: &mut MetaLabels, port: &ContainerPort) {
    labels.add("pod_container_port_name", &port.name);
    labels.add("pod_container_port_number", &port.port.to_string());
    labels.add("pod_container_port_protocol", &port.protocol);
}

/// Adds a port of a container to a target of an endpoint.
pub(super) fn add_container(
    labels: &mut MetaLabels,
    container: &Container,
    is_init: bool,
    port: &ContainerPort,
) {
    labels.add("pod_container_name", &container.name);
    labels.add("pod_container_image", &container.image);
    labels.add("pod_container_init", bool_text(is_init));
    add_port(labels, port);
}

pub(super) fn bool_text(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

/// Adds the labels of a pod.
pub(super) fn add_pod(objects: &Objects<'_>, labels: &mut MetaLabels, metadata: &Metadata, pod: &Pod) {
    labels.add_metadata("pod", metadata);
    labels.add("pod_ip", &pod.status.pod_ip);
    labels.add("pod_ready", &readiness(pod));
    labels.add("pod_phase", &pod.status.phase);
    labels.add("pod_node_name", &pod.spec.node_name);
    labels.add("pod_host_ip", &pod.status.host_ip);
    labels.add("pod_uid", &metadata.uid);
    if let Some(controller) = &metadata.controller {
        labels.add("pod_controller_kind", &controller.kind);
        labels.add("pod_controller_name", &controller.name);
        objects.add_workload(labels, &metadata.namespace, controller);
    }
}

fn readiness(pod: &Pod) -> String {
    let mut conditions = pod.status.conditions.iter();
    let ready = conditions.find(|condition| &*condition.kind == "Ready");
    ready.map_or_else(|| "unknown".to_owned(), |ready| ready.status.to_lowercase())
}
