// SPDX-License-Identifier: Apache-2.0

//! Objects of Kubernetes in memory, kept current by one watch for all that use them.
//!
//! A [`Cluster`] is an API server. [`Cluster::watch`] gives the shared watch of a [`Scope`]: a kind, perhaps within one
//! namespace and with selectors. The watch lists the objects page by page, then follows the server's events. It starts
//! with its first user and ends with its last.
//!
//! Objects are compact copies with the fields that their users need. Each has a reservation on the account of memory for
//! its whole life. Pages and events are read piece by piece: an object over a limit is skipped and counted. Decision 0035
//! gives the reasons.

#![forbid(unsafe_code)]

mod access;
mod client;
mod cluster;
mod data;
mod error;
mod follower;
mod kind;
mod lease;
mod metrics;
mod objects;
mod pieces;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod watcher;

pub use access::{AccessError, in_cluster, kubeconfig, own_namespace};
pub use client::{ApiClient, ApiCredentials, ApiServer, SecretText};
pub use cluster::{Cluster, SharedWatch};
pub use data::{DataKind, NamedValue};
pub use error::WatchError;
pub use follower::ObjectFollower;
pub use kind::{ObjectKind, Scope, namespaced};
pub use lease::{LeaseElector, LeaseOptions, LeaseTimes};
pub use objects::core::{
    BalancerIngress, Condition, Container, ContainerPort, ContainerStatus, DaemonEndpoint, DaemonEndpoints,
    KubeNode, LoadBalancer, NodeAddress, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus, Service, ServicePort,
    ServiceSpec, ServiceStatus, WantedNode,
};
pub use objects::network::{
    EndpointAddress, EndpointConditions, EndpointPort, EndpointSlice, EndpointSubset, Endpoints, Ingress,
    IngressPath, IngressPaths, IngressRule, IngressSpec, IngressTls, ObjectReference, SliceEndpoint,
    SlicePort,
};
pub use objects::{Body, Controller, KubeObject, Metadata, TextMap};
pub use store::{StoredObject, WatchLimits, WatchStatus};
