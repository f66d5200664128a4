// SPDX-License-Identifier: Apache-2.0

//! `k8s`: the ready endpoints of a service, by its slices of endpoints. A watch brings each change at once.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_kubernetes::{
    Body, EndpointSlice, ObjectFollower, ObjectKind, Scope, SliceEndpoint, StoredObject, own_namespace,
};
use tokio::sync::oneshot;
use tracing::warn;

use super::config::{K8s, Port};
use super::peers::{MAX_ADDRESSES, Peers};

/// The label of a slice that names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The types of addresses. An endpoint may have one of each, so only those of the first type that is there count.
const ADDRESS_TYPES: [&str; 3] = ["IPv4", "IPv6", "FQDN"];

/// The time after which endpoints that could not be used are tried again: a file of `tls` was not readable.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The most bytes of a host name.
const MAX_HOSTNAME_BYTES: usize = 253;

/// A service, and the endpoints that are wanted of it.
pub(super) struct ServiceEndpoints {
    config: K8s,
    name: String,
    namespace: String,
}

impl ServiceEndpoints {
    pub(super) fn new(config: K8s) -> Self {
        let (name, namespace) = config.names();
        let (name, namespace) = (name.to_owned(), namespace.map(str::to_owned));
        let namespace = namespace.or_else(|| own_namespace().ok());
        Self {
            name,
            namespace: namespace.unwrap_or_else(|| "default".to_owned()),
            config,
        }
    }

    fn scope(&self) -> Scope {
        Scope {
            namespace: Some(self.namespace.clone()),
            label_selector: format!("{SERVICE_NAME}={}", self.name),
            ..Scope::all(ObjectKind::EndpointSlice)
        }
    }

    /// The endpoints in the slices of the service that are ready. Of too many hosts, some more than are used.
    pub(super) fn ready(&self, objects: &[Arc<StoredObject>]) -> BTreeSet<String> {
        let slices: Vec<_> = objects.iter().filter_map(|object| self.slice(object)).collect();
        let mut hosts = ADDRESS_TYPES.iter().map(|wanted| {
            let slices = slices.iter().filter(|slice| &*slice.address_type == *wanted);
            let endpoints = slices.flat_map(|slice| &*slice.endpoints);
            let mut hosts = BTreeSet::new();
            for endpoint in endpoints.filter(|endpoint| is_ready(endpoint)) {
                hosts.extend(self.host(endpoint));
                if hosts.len() > MAX_ADDRESSES + 1 {
                    hosts.pop_last();
                }
            }
            hosts
        });
        let hosts = hosts.find(|hosts| !hosts.is_empty()).unwrap_or_default();
        let ports = &self.config.ports;
        let with_ports = |host: &String| {
            let with_port = |port: &Port| format!("{host}:{}", port.0);
            ports.iter().map(with_port).collect::<Vec<_>>()
        };
        hosts.iter().flat_map(with_ports).collect()
    }

    fn slice<'a>(&self, object: &'a StoredObject) -> Option<&'a EndpointSlice> {
        match &object.body {
            Body::EndpointSlice(slice)
                if object.metadata.labels.get(SERVICE_NAME) == Some(self.name.as_str()) =>
            {
                Some(slice)
            }
            _ => None,
        }
    }

    /// The host of an endpoint, as it is before a port. Its further addresses lead to the same endpoint.
    fn host(&self, endpoint: &SliceEndpoint) -> Option<String> {
        if self.config.return_hostnames {
            let hostname = endpoint.hostname.as_deref().filter(|name| is_hostname(name))?;
            return Some(format!("{hostname}.{}.{}", self.name, self.namespace));
        }
        let address = endpoint.addresses.first()?;
        match address.parse() {
            Ok(IpAddr::V6(address)) => Some(format!("[{address}]")),
            Ok(IpAddr::V4(address)) => Some(address.to_string()),
            Err(_) => is_hostname(address).then(|| address.clone().into()),
        }
    }

    /// Why no endpoint is ready.
    fn without_endpoints(&self, slices: usize) -> String {
        let service = format!("{}.{}", self.name, self.namespace);
        if slices == 0 {
            return format!("the service `{service}` has no endpoints: check its name");
        }
        let why = if self.config.return_hostnames {
            ", or they have no host names: `return_hostnames` needs a headless service of a StatefulSet"
        } else {
            ""
        };
        format!("no endpoint of the service `{service}` is ready{why}")
    }
}

/// Whether an endpoint takes requests. Unknown counts as ready, as the API says.
fn is_ready(endpoint: &SliceEndpoint) -> bool {
    endpoint.conditions.ready != Some(false)
}

fn is_hostname(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    (1..=MAX_HOSTNAME_BYTES).contains(&text.len()) && text.bytes().all(is_plain)
}

/// Follows the endpoints of a service. `known` gets a sign when they are used for the first time.
pub(super) async fn follow(peers: Arc<Peers>, config: K8s, known: oneshot::Sender<()>) {
    let service = ServiceEndpoints::new(config);
    let failed = |why: &str| {
        warn!(
            component = peers.path(),
            "the endpoints of the service are not known: {why}"
        );
        peers.set_trouble(Some(why.to_owned()));
    };
    let file = service.config.kubeconfig_file.as_deref();
    let mut follower = ObjectFollower::until_open(file, &service.scope(), peers.account(), failed).await;
    let mut known = Some(known);
    loop {
        let mut trouble = follower.trouble().map(|why| why.to_string());
        let (mut empty, mut is_used) = (None, true);
        if let Some(objects) = follower.objects() {
            let ready = service.ready(&objects);
            empty = ready.is_empty().then(|| service.without_endpoints(objects.len()));
            // Without a ready endpoint, the last ones stay: their queues keep the data until others take it.
            if empty.is_none() {
                let endpoints = peers.bounded(&service.name, ready.into_iter().collect());
                if let Err(error) = peers.change(endpoints).await {
                    warn!(component = peers.path(), %error, "new endpoints are not used");
                    is_used = false;
                    trouble = Some(error.to_string());
                }
            }
            if let Some(known) = known.take() {
                // The start may have stopped waiting.
                let _ = known.send(());
            }
        }
        peers.set_trouble(trouble.or(empty));
        let change = follower.changed();
        if is_used {
            change.await;
        } else {
            // The time is over, or there is a change: both try again.
            let _ = tokio::time::timeout(RETRY_INTERVAL, change).await;
        }
    }
}
