// SPDX-License-Identifier: Apache-2.0

//! Endpoints, slices of endpoints and ingresses.

use serde::Deserialize;

use super::core::api_struct;
use super::read::or_default;
use super::{TextMap, weigh};

api_struct! {
    /// The endpoints of a service.
    Endpoints {
        /// Addresses with their ports.
        subsets: Box<[EndpointSubset]> = "subsets",
    }
}

api_struct! {
    /// Addresses that have the same ports.
    EndpointSubset {
        /// Those that take requests.
        addresses: Box<[EndpointAddress]> = "addresses",
        /// Those that take none now.
        not_ready_addresses: Box<[EndpointAddress]> = "notReadyAddresses",
        /// The ports.
        ports: Box<[EndpointPort]> = "ports",
    }
}

api_struct! {
    /// An address of endpoints.
    EndpointAddress {
        /// The IP address.
        ip: Box<str> = "ip",
        /// Its host name.
        hostname: Box<str> = "hostname",
        /// The node that has it.
        node_name: Option<Box<str>> = "nodeName",
        /// The object that has it.
        target: Option<ObjectReference> = "targetRef",
    }
}

api_struct! {
    /// A port of endpoints.
    EndpointPort {
        /// Its name.
        name: Box<str> = "name",
        /// Its number.
        port: u16 = "port",
        /// Its protocol.
        protocol: Box<str> = "protocol",
    }
}

api_struct! {
    /// The name of another object.
    ObjectReference {
        /// Its kind, such as `Pod`.
        kind: Box<str> = "kind",
        /// Its namespace.
        namespace: Box<str> = "namespace",
        /// Its name.
        name: Box<str> = "name",
    }
}

api_struct! {
    /// A slice of endpoints.
    EndpointSlice {
        /// `IPv4`, `IPv6` or `FQDN`.
        address_type: Box<str> = "addressType",
        /// The endpoints.
        endpoints: Box<[SliceEndpoint]> = "endpoints",
        /// Their ports.
        ports: Box<[SlicePort]> = "ports",
    }
}

api_struct! {
    /// An endpoint of a slice.
    SliceEndpoint {
        /// Its addresses.
        addresses: Box<[Box<str>]> = "addresses",
        /// Its conditions.
        conditions: EndpointConditions = "conditions",
        /// Its host name.
        hostname: Option<Box<str>> = "hostname",
        /// The node that has it.
        node_name: Option<Box<str>> = "nodeName",
        /// Its zone.
        zone: Option<Box<str>> = "zone",
        /// The object that has it.
        target: Option<ObjectReference> = "targetRef",
        /// Its position, as version `v1beta1` had it.
        topology: TextMap = "deprecatedTopology",
    }
}

api_struct! {
    /// The conditions of an endpoint. `None`: unknown.
    EndpointConditions {
        /// Whether it takes requests.
        ready: Option<bool> = "ready",
        /// Whether it is able to serve.
        serving: Option<bool> = "serving",
        /// Whether it ends.
        terminating: Option<bool> = "terminating",
    }
}

api_struct! {
    /// A port of a slice.
    SlicePort {
        /// Its name.
        name: Option<Box<str>> = "name",
        /// Its number.
        port: Option<u16> = "port",
        /// Its protocol.
        protocol: Option<Box<str>> = "protocol",
        /// The protocol of the application.
        app_protocol: Option<Box<str>> = "appProtocol",
    }
}

api_struct! {
    /// An ingress.
    Ingress {
        /// Its specification.
        spec: IngressSpec = "spec",
    }
}

api_struct! {
    /// The specification of an ingress.
    IngressSpec {
        /// The name of its class.
        class_name: Option<Box<str>> = "ingressClassName",
        /// Hosts with TLS.
        tls: Box<[IngressTls]> = "tls",
        /// Hosts with their paths.
        rules: Box<[IngressRule]> = "rules",
    }
}

api_struct! {
    /// Hosts with TLS.
    IngressTls {
        /// Their names, some with `*` as their first part.
        hosts: Box<[Box<str>]> = "hosts",
    }
}

api_struct! {
    /// A host of an ingress.
    IngressRule {
        /// Its name.
        host: Box<str> = "host",
        /// Its paths. `None`: the rule has none.
        http: Option<IngressPaths> = "http",
    }
}

api_struct! {
    /// The paths of a host.
    IngressPaths {
        /// The paths.
        paths: Box<[IngressPath]> = "paths",
    }
}

api_struct! {
    /// A path of a host.
    IngressPath {
        /// The path. Empty: all paths.
        path: Box<str> = "path",
    }
}

weigh!(Endpoints { subsets });
weigh!(EndpointSubset {
    addresses,
    not_ready_addresses,
    ports
});
weigh!(EndpointAddress {
    ip,
    hostname,
    node_name,
    target
});
weigh!(EndpointPort { name, protocol });
weigh!(ObjectReference {
    kind,
    namespace,
    name
});
weigh!(EndpointSlice {
    address_type,
    endpoints,
    ports
});
weigh!(SliceEndpoint {
    addresses,
    hostname,
    node_name,
    zone,
    target,
    topology
});
weigh!(SlicePort {
    name,
    protocol,
    app_protocol
});
weigh!(Ingress { spec });
weigh!(IngressSpec {
    class_name,
    tls,
    rules
});
weigh!(IngressTls { hosts });
weigh!(IngressRule { host, http });
weigh!(IngressPaths { paths });
weigh!(IngressPath { path });
