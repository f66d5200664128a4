// SPDX-License-Identifier: Apache-2.0

//! Compact copies of objects: the fields that users need, and none of the others.

mod affinity;
pub(crate) mod core;
mod custom;
pub(crate) mod network;
mod read;
mod weight;

pub(crate) use read::{
    ListHead, ReadEvent, Version, identity, list_head, object, status_message, watch_event,
};
pub(crate) use weight::Weigh;
use weight::weigh;

use serde::Deserialize;

use self::core::{KubeNode, Pod, Service};
use self::network::{EndpointSlice, Endpoints, Ingress};
use read::{controller_of, or_default};

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeObject {
    /// Its metadata.
    pub metadata: Metadata,
    /// The rest of it.
    pub body: Body,
}

/// An object without its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A pod.
    Pod(Box<Pod>),
    /// A service.
    Service(Box<Service>),
    /// Endpoints of a service.
    Endpoints(Endpoints),
    /// A slice of endpoints of a service.
    EndpointSlice(EndpointSlice),
    /// A node.
    Node(Box<KubeNode>),
    /// An ingress.
    Ingress(Ingress),
    /// A namespace. Only its metadata is of use.
    Namespace,
    /// A ReplicaSet, Deployment, StatefulSet, DaemonSet or Job. Only its metadata is of use.
    Workload,
    /// The `spec` of a custom object as JSON.
    Custom(Box<str>),
}

/// The metadata of an object.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Metadata {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its namespace. Empty: it has none.
    #[serde(deserialize_with = "or_default")]
    pub namespace: Box<str>,
    /// Its unique id.
    #[serde(deserialize_with = "or_default")]
    pub uid: Box<str>,
    /// When it was created, as RFC 3339 has it. Only pods have it here.
    #[serde(rename = "creationTimestamp", deserialize_with = "or_default")]
    pub created: Box<str>,
    /// Its labels. ReplicaSets have none here: those of their pods and Deployments are of use.
    #[serde(deserialize_with = "or_default")]
    pub labels: TextMap,
    /// Its annotations. ReplicaSets have none here.
    #[serde(deserialize_with = "or_default")]
    pub annotations: TextMap,
    /// The object that controls it.
    #[serde(rename = "ownerReferences", deserialize_with = "controller_of")]
    pub controller: Option<Controller>,
}

/// The controller of an object, such as the ReplicaSet of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Controller {
    /// Its kind.
    pub kind: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its unique id.
    pub uid: Box<str>,
}

impl Metadata {
    /// Drops the fields that no user of the kind needs.
    fn trim(&mut self, kind: crate::ObjectKind) {
        if kind != crate::ObjectKind::Pod {
            self.created = Box::default();
        }
        if kind == crate::ObjectKind::ReplicaSet {
            self.labels = TextMap::default();
            self.annotations = TextMap::default();
        }
    }
}

/// Names with values, in the order of the names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextMap(Box<[(Box<str>, Box<str>)]>);

impl TextMap {
    /// Names and values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.binary_search_by(|(known, _)| (**known).cmp(name));
        found.ok().map(|at| &*self.0[at].1)
    }
}

impl KubeObject {
    /// Reads an object of a kind from JSON.
    ///
    /// # Errors
    /// It is not an object of this kind. The message says why.
    pub fn from_json(kind: crate::ObjectKind, json: &[u8]) -> Result<Self, String> {
        object(kind, json)
            .map(|(object, _)| object)
            .map_err(|error| error.to_string())
    }

    /// The key of the object among those of its kind.
    pub(crate) fn key(&self) -> Box<str> {
        key(&self.metadata.namespace, &self.metadata.name)
    }
}

/// The key of an object. A `/` is in no name.
pub(crate) fn key(namespace: &str, name: &str) -> Box<str> {
    format!("{namespace}/{name}").into()
}

weigh!(KubeObject { metadata, body });
weigh!(Metadata {
    name,
    namespace,
    uid,
    created,
    labels,
    annotations,
    controller
});
weigh!(Controller { kind, name, uid });

impl Weigh for TextMap {
    fn weight(&self) -> usize {
        self.0.weight()
    }
}

impl Weigh for Body {
    fn weight(&self) -> usize {
        match self {
            Self::Pod(pod) => pod.weight(),
            Self::Service(service) => service.weight(),
            Self::Endpoints(endpoints) => endpoints.weight(),
            Self::EndpointSlice(slice) => slice.weight(),
            Self::Node(node) => node.weight(),
            Self::Ingress(ingress) => ingress.weight(),
            Self::Namespace | Self::Workload => 0,
            Self::Custom(spec) => spec.weight(),
        }
    }
}

#[cfg(test)]
mod tests;
