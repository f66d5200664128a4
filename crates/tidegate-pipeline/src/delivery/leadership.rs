// SPDX-License-Identifier: Apache-2.0

//! Exporters of a cluster: one replica exports at a time.

use std::sync::Arc;

use crate::batch::Signal;
use crate::component::{Cluster, ComponentError, Context};

/// Whether this replica exports metrics.
#[derive(Default)]
pub(super) struct Leadership(Option<Arc<Cluster>>);

impl Leadership {
    /// Exports metrics while this replica leads the cluster with this id. `None`: always.
    pub(super) fn of(context: &Context, cluster: Option<&str>) -> Result<Self, ComponentError> {
        let cluster = cluster.map(|id| context.cluster("only_leader", id));
        cluster.transpose().map(Self)
    }

    /// Traces and logs are never merged: each replica has its own, and exports them.
    pub(super) fn exports(&self, signal: Signal) -> bool {
        let cluster = self.0.as_ref().filter(|_| signal == Signal::Metrics);
        cluster.is_none_or(|cluster| cluster.is_leading())
    }
}
