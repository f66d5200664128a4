// SPDX-License-Identifier: Apache-2.0

//! Producers that should report because a DaemonSet of Kubernetes has a pod for their node.
//!
//! The pods tell which nodes these are: the controller of the DaemonSet makes a pod for each node that it selects, and
//! removes it with the node. A pod that waits for its node names it in its affinity.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_cluster::ProducerName;
use tidegate_kubernetes::{Body, ObjectFollower, ObjectKind, Scope, StoredObject, namespaced};
use tokio::sync::watch;

use crate::component::{Cluster, Context, Held, NoRoom};
use crate::config::{Node, Problems};

/// The memory of a name beside its text: in the sets of the receiver, of the reader and of its composites.
const NAME_BYTES: usize = 256;

/// The time after which names without memory are read again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

crate::options! {
    /// `expect_from`.
    pub(super) struct ExpectFrom {
        /// Namespace and name of the DaemonSet: `monitoring/tidegate-agent`.
        pub daemonset: String = required,
        /// Label selector of its pods, such as `app=agent`. It keeps other pods of the namespace out of memory.
        pub label_selector: String = String::new(),
        /// File with the address and the credentials of the API server. Unset: those of this pod.
        pub kubeconfig_file: Option<PathBuf> = None,
    }
    check = ExpectFrom::check
}

impl ExpectFrom {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if namespaced(&self.daemonset).is_none() {
            cx.at(at.child("daemonset"))
                .help("name the namespace and the DaemonSet, such as `monitoring/tidegate-agent`")
                .error(format!("`{}` is not a DaemonSet", self.daemonset));
        }
    }

    /// The namespace, and the name in it.
    fn names(&self) -> (&str, &str) {
        namespaced(&self.daemonset).unwrap_or_default()
    }

    fn scope(&self) -> Scope {
        Scope {
            namespace: Some(self.names().0.to_owned()),
            label_selector: self.label_selector.clone(),
            ..Scope::all(ObjectKind::Pod)
        }
    }

    /// The node of a pod of the DaemonSet.
    fn node<'a>(&self, object: &'a StoredObject) -> Option<&'a str> {
        let (namespace, name) = self.names();
        let metadata = &object.metadata;
        let controller = metadata.controller.as_ref()?;
        let is_ours = &*controller.kind == "DaemonSet" && &*controller.name == name;
        match &object.body {
            Body::Pod(pod) if is_ours && &*metadata.namespace == namespace => {
                let nodes = [&pod.spec.node_name, &pod.spec.wanted_node.0];
                nodes
                    .into_iter()
                    .map(|node| &**node)
                    .find(|node| !node.is_empty())
            }
            _ => None,
        }
    }

    /// The first nodes in the order of their names, and the number of those that the limit leaves no room for.
    fn nodes(&self, objects: &[Arc<StoredObject>], limit: usize) -> (BTreeSet<ProducerName>, usize) {
        let nodes: BTreeSet<&str> = objects.iter().filter_map(|object| self.node(object)).collect();
        // The names of nodes are names of producers. Other texts are not from an API server.
        let names = nodes
            .iter()
            .filter_map(|node| ProducerName::of_gateway(node).ok());
        let names: BTreeSet<_> = names.take(limit).collect();
        let rest = nodes.len().saturating_sub(limit);
        (names, rest)
    }
}

/// The nodes that should report.
#[derive(Default)]
pub(super) struct ExpectedNodes {
    pub(super) names: BTreeSet<ProducerName>,
    _held: Option<Held>,
}

/// Follows the pods of a DaemonSet.
pub(super) struct NodeFollower {
    options: ExpectFrom,
    limit: usize,
    base: Context,
    cluster: Arc<Cluster>,
    nodes: watch::Sender<Arc<ExpectedNodes>>,
}

impl NodeFollower {
    /// Until the nodes are known, answers of the cluster have a warning.
    pub(super) fn new(options: ExpectFrom, limit: usize, base: Context, cluster: Arc<Cluster>) -> Self {
        let warning = format!(
            "the cluster `{}` may be partial: the nodes of the DaemonSet {} are not known",
            cluster.name(),
            options.daemonset
        );
        cluster.warn(&path(&base), Some(warning));
        Self {
            options,
            limit,
            base,
            cluster,
            nodes: watch::Sender::default(),
        }
    }

    /// The nodes, and their changes.
    pub(super) fn nodes(&self) -> watch::Receiver<Arc<ExpectedNodes>> {
        self.nodes.subscribe()
    }

    /// Runs until it is dropped.
    pub(super) async fn run(self) {
        let file = self.options.kubeconfig_file.as_deref();
        let memory = &self.base.shared.memory;
        let failed = |why: &str| {
            tracing::warn!(
                component = &*self.base.path,
                "the nodes that should report are not known: {why}"
            );
            self.set_trouble(Some(why.to_owned()));
        };
        let mut follower = ObjectFollower::until_open(file, &self.options.scope(), memory, failed).await;
        loop {
            let mut trouble = follower.trouble().map(|why| why.to_string());
            let mut has_memory = true;
            if let Some(objects) = follower.objects()
                && let Err(error) = self.publish(&objects)
            {
                has_memory = false;
                trouble = Some(error.to_string());
            }
            self.set_trouble(trouble);
            let change = follower.changed();
            if has_memory {
                change.await;
            } else {
                // The time is over, or there is a change: both read again.
                let _ = tokio::time::timeout(RETRY_INTERVAL, change).await;
            }
        }
    }

    fn publish(&self, objects: &[Arc<StoredObject>]) -> Result<(), NoRoom> {
        let mut held = Held::new(self.base.shared.memory.clone());
        let pods = objects.iter().filter_map(|object| self.options.node(object));
        held.try_grow(pods.map(|node| node.len() + NAME_BYTES).sum())?;
        let (names, rest) = self.options.nodes(objects, self.limit);
        held.keep(names.iter().map(|name| name.as_str().len() + NAME_BYTES).sum());
        self.notice(names.len(), rest);
        self.nodes.send_if_modified(|nodes| {
            let is_new = nodes.names != names;
            if is_new {
                *nodes = Arc::new(ExpectedNodes {
                    names,
                    _held: Some(held),
                });
            }
            is_new
        });
        self.cluster.warn(&path(&self.base), None);
        Ok(())
    }

    fn notice(&self, nodes: usize, rest: usize) {
        let daemonset = &self.options.daemonset;
        let mut notices = Vec::new();
        if nodes == 0 {
            notices.push(format!(
                "the DaemonSet {daemonset} has no pods, so no node should report: check `expect_from`"
            ));
        }
        if rest > 0 {
            notices.push(format!(
                "{rest} nodes of the DaemonSet {daemonset} are not expected: raise `max_producers`"
            ));
        }
        self.base.shared.notices.set(&path(&self.base), notices);
    }

    /// Shows why the nodes may be old.
    fn set_trouble(&self, trouble: Option<String>) {
        self.base.shared.health.trouble(&path(&self.base), trouble);
    }
}

/// The name of the option in reports.
fn path(base: &Context) -> String {
    format!("{}::expect_from", base.path)
}

/// Removes all reports.
pub(super) fn clear(base: &Context, cluster: &Cluster) {
    let path = path(base);
    cluster.warn(&path, None);
    base.shared.health.trouble(&path, None);
    base.shared.notices.set(&path, Vec::new());
}
