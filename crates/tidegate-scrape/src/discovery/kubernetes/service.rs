// SPDX-License-Identifier: Apache-2.0

//! The role `service`: a target for each port of each service.

use std::ops::ControlFlow;

use tidegate_kubernetes::{Body, KubeObject, Service};

use super::EachTarget;
use super::meta::{MetaLabels, Objects, join};

pub(super) fn targets(objects: &Objects<'_>, each: EachTarget<'_>) -> ControlFlow<()> {
    for object in objects.iter() {
        if let Body::Service(service) = &object.body {
            of_service(objects, object, service, each)?;
        }
    }
    ControlFlow::Continue(())
}

fn of_service(
    objects: &Objects<'_>,
    object: &KubeObject,
    service: &Service,
    each: EachTarget<'_>,
) -> ControlFlow<()> {
    let metadata = &object.metadata;
    let mut common = MetaLabels::default();
    objects.add_namespace(&mut common, metadata);
    common.add_metadata("service", metadata);
    add_addresses(&mut common, service);
    let host = format!("{}.{}.svc", metadata.name, metadata.namespace);
    for port in &service.spec.ports {
        each(common.with(|labels| {
            labels.address(join(&host, port.port));
            labels.add("service_port_name", &port.name);
            labels.add("service_port_number", &port.port.to_string());
            labels.add("service_port_protocol", &port.protocol);
        }))?;
    }
    ControlFlow::Continue(())
}

fn add_addresses(labels: &mut MetaLabels, service: &Service) {
    let spec = &service.spec;
    labels.add("service_type", &spec.kind);
    match &*spec.kind {
        "ExternalName" => labels.add("service_external_name", &spec.external_name),
        _ => labels.add("service_cluster_ip", &spec.cluster_ip),
    }
    if &*spec.kind == "LoadBalancer" {
        labels.add("service_loadbalancer_ip", &balancer_addresses(service));
    }
}

/// The addresses of a load balancer, or the wanted one while it has none.
fn balancer_addresses(service: &Service) -> String {
    let ingress = service.status.load_balancer.ingress.iter();
    let given: Vec<_> = ingress
        .map(|ingress| &*ingress.ip)
        .filter(|ip| !ip.is_empty())
        .collect();
    if given.is_empty() {
        service.spec.load_balancer_ip.to_string()
    } else {
        given.join(",")
    }
}
