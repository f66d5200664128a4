// SPDX-License-Identifier: Apache-2.0

//! The roles `endpoints` and `endpointslice`: a target for each address and port of a service. Further ports of its pods
//! are targets too.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use tidegate_kubernetes::{
    Body, Container, ContainerPort, EndpointAddress, EndpointPort, EndpointSlice, EndpointSubset, Endpoints,
    KubeObject, ObjectReference, Pod, SliceEndpoint, SlicePort,
};

use super::EachTarget;
use super::meta::{MetaLabels, Objects, bracketed, join};
use super::pod::{add_container, add_pod, bool_text, containers};

/// The label of a slice that names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

pub(super) fn of_endpoints(objects: &Objects<'_>, each: EachTarget<'_>) -> ControlFlow<()> {
    for object in objects.iter() {
        if let Body::Endpoints(endpoints) = &object.body {
            let service = objects.service(&object.metadata.namespace, &object.metadata.name);
            let common = common(objects, object, "endpoints", service);
            let mut service = ServiceTargets::new(objects, common, each);
            service.add_endpoints(endpoints)?;
            service.add_further_ports()?;
        }
    }
    ControlFlow::Continue(())
}

pub(super) fn of_slices(objects: &Objects<'_>, each: EachTarget<'_>) -> ControlFlow<()> {
    for object in objects.iter() {
        if let Body::EndpointSlice(slice) = &object.body {
            let name = object.metadata.labels.get(SERVICE_NAME);
            let service = name.and_then(|name| objects.service(&object.metadata.namespace, name));
            if service.is_some_and(|service| is_of_second_family(slice, service)) {
                continue;
            }
            let mut common = common(objects, object, "endpointslice", service);
            common.add("endpointslice_address_type", &slice.address_type);
            let mut service = ServiceTargets::new(objects, common, each);
            service.add_slice(slice)?;
            service.add_further_ports()?;
        }
    }
    ControlFlow::Continue(())
}

/// Whether a slice has the addresses of the second family of its service. The slices of the first one have the same pods.
fn is_of_second_family(slice: &EndpointSlice, service: &KubeObject) -> bool {
    let Body::Service(service) = &service.body else {
        return false;
    };
    let has_both = matches!(
        &*service.spec.family_policy,
        "PreferDualStack" | "RequireDualStack"
    );
    let first = service.spec.families.first();
    has_both && first.is_some_and(|first| *first != slice.address_type)
}

/// The labels of an object and of its service.
fn common(
    objects: &Objects<'_>,
    object: &KubeObject,
    role: &str,
    service: Option<&KubeObject>,
) -> MetaLabels {
    let metadata = &object.metadata;
    let mut labels = MetaLabels::default();
    objects.add_namespace(&mut labels, metadata);
    labels.add_metadata(role, metadata);
    if let Some(service) = service {
        labels.add_metadata("service", &service.metadata);
    }
    labels
}

/// A pod of a service.
struct ServicePod<'a> {
    object: &'a KubeObject,
    pod: &'a Pod,
    /// Its ports by number.
    ports: HashMap<u16, (&'a Container, bool, &'a ContainerPort)>,
    /// The ports of the service that lead to it.
    used: HashSet<u16>,
}

/// The targets of a service.
struct ServiceTargets<'a, 'e> {
    objects: &'a Objects<'a>,
    common: MetaLabels,
    /// In the order of their first targets.
    pods: Vec<ServicePod<'a>>,
    /// The positions in `pods`.
    positions: HashMap<(&'a str, &'a str), usize>,
    each: EachTarget<'e>,
}

impl<'a, 'e> ServiceTargets<'a, 'e> {
    fn new(objects: &'a Objects<'a>, common: MetaLabels, each: EachTarget<'e>) -> Self {
        Self {
            objects,
            common,
            pods: Vec::new(),
            positions: HashMap::new(),
            each,
        }
    }

    fn add_endpoints(&mut self, endpoints: &Endpoints) -> ControlFlow<()> {
        for EndpointSubset {
            addresses,
            not_ready_addresses,
            ports,
        } in &endpoints.subsets
        {
            for port in ports {
                for (addresses, ready) in [(addresses, "true"), (not_ready_addresses, "false")] {
                    for address in addresses {
                        self.add_endpoint(address, port, ready)?;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn add_endpoint(
        &mut self,
        address: &EndpointAddress,
        port: &EndpointPort,
        ready: &str,
    ) -> ControlFlow<()> {
        let mut labels = self.common.clone();
        labels.address(join(&address.ip, port.port));
        labels.add("endpoint_port_name", &port.name);
        labels.add("endpoint_port_protocol", &port.protocol);
        labels.add("endpoint_ready", ready);
        labels.add("endpoint_hostname", &address.hostname);
        labels.add_some("endpoint_node_name", address.node_name.as_deref());
        let target = address.target.as_ref();
        add_target(&mut labels, "endpoint", target);
        let node = address.node_name.as_deref();
        let node = node.or_else(|| of_kind(target, "Node").map(|target| &*target.name));
        self.add(labels, target, node, Some(port.port))
    }

    fn add_slice(&mut self, slice: &EndpointSlice) -> ControlFlow<()> {
        for endpoint in &slice.endpoints {
            for port in &slice.ports {
                for address in &endpoint.addresses {
                    self.add_slice_endpoint(address, endpoint, port)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn add_slice_endpoint(
        &mut self,
        address: &str,
        endpoint: &SliceEndpoint,
        port: &SlicePort,
    ) -> ControlFlow<()> {
        let mut labels = self.common.clone();
        labels.address(
            port.port
                .map_or_else(|| bracketed(address), |port| join(address, port)),
        );
        let number = port.port.map(|port| port.to_string());
        let conditions = &endpoint.conditions;
        let texts = [
            ("port", number.as_deref()),
            ("port_name", port.name.as_deref()),
            ("port_protocol", port.protocol.as_deref()),
            ("port_app_protocol", port.app_protocol.as_deref()),
            ("endpoint_conditions_ready", conditions.ready.map(bool_text)),
            ("endpoint_conditions_serving", conditions.serving.map(bool_text)),
            (
                "endpoint_conditions_terminating",
                conditions.terminating.map(bool_text),
            ),
            ("endpoint_hostname", endpoint.hostname.as_deref()),
            ("endpoint_node_name", endpoint.node_name.as_deref()),
            ("endpoint_zone", endpoint.zone.as_deref()),
        ];
        for (name, value) in texts {
            labels.add_some(&format!("endpointslice_{name}"), value);
        }
        labels.add_map("endpointslice_endpoint_topology", "_present", &endpoint.topology);
        let target = endpoint.target.as_ref();
        add_target(&mut labels, "endpointslice", target);
        let node = of_kind(target, "Node").map(|target| &*target.name);
        let node = node.or(endpoint.node_name.as_deref());
        self.add(labels, target, node, port.port)
    }

    /// Adds a target with the labels of its node and its pod.
    fn add(
        &mut self,
        mut labels: MetaLabels,
        target: Option<&ObjectReference>,
        node: Option<&str>,
        port: Option<u16>,
    ) -> ControlFlow<()> {
        self.objects.add_node(&mut labels, node.unwrap_or_default());
        let pod = of_kind(target, "Pod").and_then(|target| self.objects.pod(&target.namespace, &target.name));
        if let Some(object) = pod
            && let Body::Pod(pod) = &object.body
        {
            add_pod(self.objects, &mut labels, &object.metadata, pod);
            let pod = self.service_pod(object, pod);
            pod.used.extend(port);
            if let Some((container, is_init, port)) = port.and_then(|port| pod.ports.get(&port)) {
                add_container(&mut labels, container, *is_init, port);
            }
        }
        (self.each)(labels.with(|_| {}))
    }

    fn service_pod(&mut self, object: &'a KubeObject, pod: &'a Pod) -> &mut ServicePod<'a> {
        let key = (&*object.metadata.namespace, &*object.metadata.name);
        let next = self.pods.len();
        let position = *self.positions.entry(key).or_insert(next);
        if position == next {
            self.pods.push(ServicePod {
                object,
                pod,
                ports: ports_of(pod),
                used: HashSet::new(),
            });
        }
        &mut self.pods[position]
    }

    /// Adds the ports of pods that are not ports of the service.
    fn add_further_ports(self) -> ControlFlow<()> {
        for ServicePod {
            object, pod, used, ..
        } in &self.pods
        {
            if pod.status.pod_ip.is_empty() {
                continue;
            }
            for (container, is_init) in containers(pod) {
                for port in container.ports.iter().filter(|port| !used.contains(&port.port)) {
                    (self.each)(self.common.with(|labels| {
                        labels.address(join(&pod.status.pod_ip, port.port));
                        add_container(labels, container, is_init, port);
                        add_pod(self.objects, labels, &object.metadata, pod);
                    }))?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

fn of_kind<'a>(target: Option<&'a ObjectReference>, kind: &str) -> Option<&'a ObjectReference> {
    target.filter(|target| &*target.kind == kind)
}

/// The ports of a pod. If several containers have a port, the last one counts.
fn ports_of(pod: &Pod) -> HashMap<u16, (&Container, bool, &ContainerPort)> {
    let mut ports = HashMap::new();
    for (container, is_init) in containers(pod) {
        // Of equal ports of a container, the first one counts.
        let of_container = container.ports.iter().rev();
        ports.extend(of_container.map(|port| (port.port, (container, is_init, port))));
    }
    ports
}

fn add_target(labels: &mut MetaLabels, role: &str, target: Option<&ObjectReference>) {
    if let Some(target) = target {
        labels.add(&format!("{role}_address_target_kind"), &target.kind);
        labels.add(&format!("{role}_address_target_name"), &target.name);
    }
}
