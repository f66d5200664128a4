// SPDX-License-Identifier: Apache-2.0

//! Pods, services and nodes.

use serde::Deserialize;

use super::affinity::node_of_affinity;
use super::read::or_default;
use super::{Weigh, weigh};

/// Declares objects of the API. A field is named as there, and absent or null fields have their default.
macro_rules! api_struct {
    ($(#[$meta:meta])* $name:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty = $key:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
        #[serde(default)]
        pub struct $name {
            $($(#[$field_meta])* #[serde(rename = $key, deserialize_with = "or_default")] pub $field: $type,)*
        }
    };
}
pub(crate) use api_struct;

api_struct! {
    /// A pod.
    Pod {
        /// Its specification.
        spec: PodSpec = "spec",
        /// Its state.
        status: PodStatus = "status",
    }
}

api_struct! {
    /// The specification of a pod.
    PodSpec {
        /// The name of its node. Empty: the pod is not scheduled.
        node_name: Box<str> = "nodeName",
        /// The only node that it may run on, as its affinity names it. Pods of DaemonSets have one.
        wanted_node: WantedNode = "affinity",
        /// Its host name. Empty: its own name.
        hostname: Box<str> = "hostname",
        /// Whether it has the addresses of its node.
        host_network: bool = "hostNetwork",
        /// Its containers.
        containers: Box<[Container]> = "containers",
        /// Its init containers.
        init_containers: Box<[Container]> = "initContainers",
    }
}

/// The name of the only node that a pod may run on. Empty: it may run on several.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(transparent)]
pub struct WantedNode(#[serde(deserialize_with = "node_of_affinity")] pub Box<str>);

api_struct! {
    /// A container of a pod.
    Container {
        /// Its name.
        name: Box<str> = "name",
        /// Its image.
        image: Box<str> = "image",
        /// Its ports.
        ports: Box<[ContainerPort]> = "ports",
    }
}

api_struct! {
    /// A port of a container.
    ContainerPort {
        /// Its name.
        name: Box<str> = "name",
        /// Its number.
        port: u16 = "containerPort",
        /// Its protocol.
        protocol: Box<str> = "protocol",
    }
}

api_struct! {
    /// The state of a pod.
    PodStatus {
        /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        phase: Box<str> = "phase",
        /// The address of the pod. Empty: it has none.
        pod_ip: Box<str> = "podIP",
        /// The address of its node.
        host_ip: Box<str> = "hostIP",
        /// When its node took it, as RFC 3339 has it. Empty: no node has.
        started: Box<str> = "startTime",
        /// Its conditions.
        conditions: Box<[Condition]> = "conditions",
        /// The states of its containers.
        container_statuses: Box<[ContainerStatus]> = "containerStatuses",
        /// The states of its init containers.
        init_container_statuses: Box<[ContainerStatus]> = "initContainerStatuses",
    }
}

api_struct! {
    /// A condition, such as `Ready`.
    Condition {
        /// Its name.
        kind: Box<str> = "type",
        /// `True`, `False` or `Unknown`.
        status: Box<str> = "status",
    }
}

api_struct! {
    /// The state of a container.
    ContainerStatus {
        /// The name of the container.
        name: Box<str> = "name",
        /// Its id, such as `containerd://4a...`.
        container_id: Box<str> = "containerID",
        /// How often it was started again.
        restarts: u32 = "restartCount",
    }
}

api_struct! {
    /// A service.
    Service {
        /// Its specification.
        spec: ServiceSpec = "spec",
        /// Its state.
        status: ServiceStatus = "status",
    }
}

api_struct! {
    /// The specification of a service.
    ServiceSpec {
        /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
        kind: Box<str> = "type",
        /// Its address in the cluster.
        cluster_ip: Box<str> = "clusterIP",
        /// The DNS name that it stands for.
        external_name: Box<str> = "externalName",
        /// The wanted address of its load balancer.
        load_balancer_ip: Box<str> = "loadBalancerIP",
        /// `SingleStack`, `PreferDualStack` or `RequireDualStack`.
        family_policy: Box<str> = "ipFamilyPolicy",
        /// `IPv4`, `IPv6` or both, the main one first.
        families: Box<[Box<str>]> = "ipFamilies",
        /// Its ports.
        ports: Box<[ServicePort]> = "ports",
    }
}

api_struct! {
    /// A port of a service.
    ServicePort {
        /// Its name.
        name: Box<str> = "name",
        /// Its number.
        port: u16 = "port",
        /// Its protocol.
        protocol: Box<str> = "protocol",
    }
}

api_struct! {
    /// The state of a service.
    ServiceStatus {
        /// Its load balancer.
        load_balancer: LoadBalancer = "loadBalancer",
    }
}

api_struct! {
    /// The load balancer of a service.
    LoadBalancer {
        /// Its points of ingress.
        ingress: Box<[BalancerIngress]> = "ingress",
    }
}

api_struct! {
    /// A point of ingress of a load balancer.
    BalancerIngress {
        /// Its address. Empty: it has a host name only.
        ip: Box<str> = "ip",
    }
}

api_struct! {
    /// A node.
    KubeNode {
        /// Its specification.
        spec: NodeSpec = "spec",
        /// Its state.
        status: NodeStatus = "status",
    }
}

api_struct! {
    /// The specification of a node.
    NodeSpec {
        /// The name of the node at the provider of the cloud.
        provider_id: Box<str> = "providerID",
    }
}

api_struct! {
    /// The state of a node.
    NodeStatus {
        /// Its addresses.
        addresses: Box<[NodeAddress]> = "addresses",
        /// The ports of its daemons.
        daemon_endpoints: DaemonEndpoints = "daemonEndpoints",
        /// Its conditions.
        conditions: Box<[Condition]> = "conditions",
    }
}

api_struct! {
    /// An address of a node.
    NodeAddress {
        /// `InternalIP`, `Hostname` or the like.
        kind: Box<str> = "type",
        /// The address.
        address: Box<str> = "address",
    }
}

api_struct! {
    /// The ports of the daemons of a node.
    DaemonEndpoints {
        /// That of the kubelet.
        kubelet: DaemonEndpoint = "kubeletEndpoint",
    }
}

api_struct! {
    /// The port of a daemon.
    DaemonEndpoint {
        /// Its number.
        port: u16 = "Port",
    }
}

weigh!(Pod { spec, status });
weigh!(PodSpec {
    node_name,
    wanted_node,
    hostname,
    containers,
    init_containers
});

impl Weigh for WantedNode {
    fn weight(&self) -> usize {
        self.0.weight()
    }
}

weigh!(Container { name, image, ports });
weigh!(ContainerPort { name, protocol });
weigh!(PodStatus {
    phase,
    pod_ip,
    host_ip,
    started,
    conditions,
    container_statuses,
    init_container_statuses
});
weigh!(Condition { kind, status });
weigh!(ContainerStatus { name, container_id });
weigh!(Service { spec, status });
weigh!(ServiceSpec {
    kind,
    cluster_ip,
    external_name,
    load_balancer_ip,
    family_policy,
    families,
    ports
});
weigh!(ServiceStatus { load_balancer });
weigh!(LoadBalancer { ingress });
weigh!(BalancerIngress { ip });
weigh!(ServicePort { name, protocol });
weigh!(KubeNode { spec, status });
weigh!(NodeSpec { provider_id });
weigh!(NodeStatus {
    addresses,
    conditions
});
weigh!(NodeAddress { kind, address });
