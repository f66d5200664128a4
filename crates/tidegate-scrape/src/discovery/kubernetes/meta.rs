// SPDX-License-Identifier: Apache-2.0

//! Labels of targets that all roles have, and the objects that they come from.

use std::collections::HashMap;

use tidegate_kubernetes::{Body, Controller, KubeObject, Metadata, TextMap};

use super::Attached;
use crate::discovery::ADDRESS;
use crate::labels::Labels;

/// The labels of a target in the making. Of equal names, the last one counts.
#[derive(Clone, Default)]
pub(super) struct MetaLabels(Vec<(String, String)>);

impl MetaLabels {
    /// Adds `__meta_kubernetes_` and the name.
    pub(super) fn add(&mut self, name: &str, value: &str) {
        self.0
            .push((format!("__meta_kubernetes_{name}"), value.to_owned()));
    }

    /// The same, if there is a value.
    pub(super) fn add_some(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    /// Adds a label that is not of Kubernetes.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.0.push((name.to_owned(), value.to_owned()));
    }

    pub(super) fn address(&mut self, address: String) {
        self.0.push((ADDRESS.to_owned(), address));
    }

    /// Adds the texts of a map as `{prefix}_{name}` and `{prefix}{present}_{name}`.
    pub(super) fn add_map(&mut self, prefix: &str, present: &str, map: &TextMap) {
        for (name, value) in map.iter() {
            let name = label_name(name);
            self.add(&format!("{prefix}_{name}"), value);
            self.add(&format!("{prefix}{present}_{name}"), "true");
        }
    }

    /// Adds labels of an object of a role.
    pub(super) fn add_labels(&mut self, role: &str, metadata: &Metadata) {
        self.add_map(&format!("{role}_label"), "present", &metadata.labels);
    }

    /// Adds name, labels and annotations of an object of a role.
    pub(super) fn add_metadata(&mut self, role: &str, metadata: &Metadata) {
        self.add(&format!("{role}_name"), &metadata.name);
        self.add_labels(role, metadata);
        self.add_map(&format!("{role}_annotation"), "present", &metadata.annotations);
    }

    /// These labels with those of a target.
    pub(super) fn with(&self, add: impl FnOnce(&mut Self)) -> Labels {
        let mut all = self.clone();
        add(&mut all);
        all.0.into_iter().collect()
    }
}

/// A name with `_` for each character that a label of Prometheus can't have.
pub(super) fn label_name(name: &str) -> String {
    let valid = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' {
            c
        } else {
            '_'
        }
    };
    name.chars().map(valid).collect()
}

/// A host with a port.
pub(super) fn join(host: &str, port: u16) -> String {
    format!("{}:{port}", bracketed(host))
}

/// A host as an address without a port: IPv6 addresses have brackets.
pub(super) fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

/// The objects of all watches of a discovery.
pub(super) struct Objects<'a> {
    /// In the order of the watches, and of namespaces and names.
    all: Vec<&'a KubeObject>,
    pods: HashMap<(&'a str, &'a str), &'a KubeObject>,
    services: HashMap<(&'a str, &'a str), &'a KubeObject>,
    nodes: HashMap<&'a str, &'a KubeObject>,
    namespaces: HashMap<&'a str, &'a KubeObject>,
    /// The names of Deployments by their ReplicaSets.
    deployments: HashMap<(&'a str, &'a str), &'a str>,
    /// The names of CronJobs by their Jobs.
    cron_jobs: HashMap<(&'a str, &'a str), &'a str>,
    attached: Attached,
}

impl<'a> Objects<'a> {
    pub(super) fn new(all: impl Iterator<Item = &'a KubeObject>, attached: Attached) -> Self {
        let mut objects = Self {
            all: all.collect(),
            pods: HashMap::new(),
            services: HashMap::new(),
            nodes: HashMap::new(),
            namespaces: HashMap::new(),
            deployments: HashMap::new(),
            cron_jobs: HashMap::new(),
            attached,
        };
        for object in &objects.all {
            let Metadata {
                namespace,
                name,
                controller,
                ..
            } = &object.metadata;
            match object.body {
                Body::Pod(_) => drop(objects.pods.insert((namespace, name), object)),
                Body::Service(_) => drop(objects.services.insert((namespace, name), object)),
                Body::Node(_) => drop(objects.nodes.insert(name, object)),
                Body::Namespace => drop(objects.namespaces.insert(name, object)),
                Body::Workload => {
                    // ReplicaSets are watched for their Deployments, and Jobs for their CronJobs.
                    let Some(controller) = controller else { continue };
                    let owners = match &*controller.kind {
                        "Deployment" => &mut objects.deployments,
                        "CronJob" => &mut objects.cron_jobs,
                        _ => continue,
                    };
                    owners.insert((namespace, name), &controller.name);
                }
                _ => {}
            }
        }
        objects
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'a KubeObject> {
        self.all.iter().copied()
    }

    pub(super) fn pod(&self, namespace: &str, name: &str) -> Option<&'a KubeObject> {
        self.pods.get(&(namespace, name)).copied()
    }

    pub(super) fn service(&self, namespace: &str, name: &str) -> Option<&'a KubeObject> {
        self.services.get(&(namespace, name)).copied()
    }

    /// Whether the node of a pod is needed and not there: the selectors of nodes leave it out.
    pub(super) fn lacks_node(&self, name: &str) -> bool {
        self.attached.node && !self.nodes.contains_key(name)
    }

    /// Adds the names of the workloads of a pod with this controller, as far as they are wanted.
    pub(super) fn add_workload(&self, labels: &mut MetaLabels, namespace: &str, controller: &Controller) {
        let key = (namespace, &*controller.name);
        match &*controller.kind {
            "ReplicaSet" if self.attached.deployment => {
                labels.add_some("pod_deployment_name", self.deployments.get(&key).copied());
            }
            "Job" => {
                if self.attached.job {
                    labels.add("pod_job_name", &controller.name);
                }
                if self.attached.cron_job {
                    labels.add_some("pod_cronjob_name", self.cron_jobs.get(&key).copied());
                }
            }
            _ => {}
        }
    }

    /// Adds the labels of a node, if they are wanted.
    pub(super) fn add_node(&self, labels: &mut MetaLabels, name: &str) {
        let node = self.nodes.get(name).filter(|_| self.attached.node);
        if let Some(node) = node {
            labels.add("node_name", name);
            labels.add_labels("node", &node.metadata);
        }
    }

    /// Adds the name of the namespace of an object, and its labels and annotations if they are wanted.
    pub(super) fn add_namespace(&self, labels: &mut MetaLabels, metadata: &Metadata) {
        labels.add("namespace", &metadata.namespace);
        let namespace = self
            .namespaces
            .get(&*metadata.namespace)
            .filter(|_| self.attached.namespace);
        if let Some(namespace) = namespace {
            labels.add_labels("namespace", &namespace.metadata);
            labels.add_map("namespace_annotation", "present", &namespace.metadata.annotations);
        }
    }
}
