// SPDX-License-Identifier: Apache-2.0

//! `leader`: a Lease of Kubernetes elects the replica that exports.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_kubernetes::{LeaseElector, LeaseOptions, LeaseTimes, namespaced};

use crate::component::{Context, Election};
use crate::config::{Node, Problems};

crate::options! {
    /// `leader`: the holder of a Lease of Kubernetes exports with `only_leader`.
    pub struct LeaderOptions {
        /// Namespace and name of the Lease: `monitoring/tidegate`. The gateway creates it.
        pub lease: String = required,
        /// File with the address and the credentials of the API server. Unset: those of this pod.
        pub kubeconfig_file: Option<PathBuf> = None,
    }
    check = LeaderOptions::check
}

impl LeaderOptions {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if namespaced(&self.lease).is_none() {
            cx.at(at.child("lease"))
                .help("name the namespace and the Lease, such as `monitoring/tidegate`")
                .error(format!("`{}` is not a Lease", self.lease));
        }
    }

    /// The namespace, and the name in it.
    fn names(&self) -> (&str, &str) {
        namespaced(&self.lease).unwrap_or_default()
    }
}

/// The election of this gateway.
pub(super) struct LeaseElection {
    lease: String,
    base: Context,
    elector: LeaseElector,
}

impl LeaseElection {
    /// Starts as a task of the current runtime.
    pub(super) fn start(options: &LeaderOptions, base: &Context) -> Arc<Self> {
        let (namespace, name) = options.names();
        let host = rustix::system::uname();
        let lease = LeaseOptions {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            // No other process has this name.
            identity: format!(
                "{}_{:016x}",
                host.nodename().to_string_lossy(),
                rand::random::<u64>()
            ),
            kubeconfig_file: options.kubeconfig_file.clone(),
            times: LeaseTimes::default(),
        };
        Arc::new(Self {
            lease: options.lease.clone(),
            base: base.clone(),
            elector: LeaseElector::start(lease, &base.shared.memory),
        })
    }

    pub(super) async fn stop(&self) {
        self.elector.stop().await;
        self.base.shared.health.trouble(&self.path(), None);
    }

    fn path(&self) -> String {
        format!("{}::leader", self.base.path)
    }
}

impl Election for LeaseElection {
    fn stand(&self, is_able: bool) {
        self.elector.stand(is_able);
        self.base
            .shared
            .health
            .trouble(&self.path(), self.elector.trouble());
    }

    fn is_leading(&self) -> bool {
        self.elector.is_leading()
    }

    fn status(&self) -> Value {
        json!({"lease": self.lease, "holder": self.elector.holder(), "trouble": self.elector.trouble()})
    }
}
