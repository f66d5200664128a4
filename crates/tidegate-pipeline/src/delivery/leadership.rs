// SPDX-License-Identifier: Apache-2.0

//! Exporters of a cluster: one replica exports at a time.

use std::sync::Arc;

use crate::batch::Signal;
use crate::component::{Cluster, ComponentError, Context, DeltaTurn};

/// What a destination does with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It exports the batch.
    Export,
    /// It moves its position in the streams past the batch, which another replica exports.
    Follow,
    /// It drops the batch.
    Drop,
}

/// The role of this replica among those of a cluster.
#[derive(Default)]
pub(super) struct Leadership {
    cluster: Option<Arc<Cluster>>,
    /// Whether it exports deltas. A leader has turns then, so that the next one knows the totals that it has exported.
    is_delta: bool,
}

impl Leadership {
    /// Exports metrics while this replica leads the cluster with this id. `None`: always.
    pub(super) fn of(
        context: &Context,
        cluster: Option<&str>,
        is_delta: bool,
    ) -> Result<Self, ComponentError> {
        let cluster = cluster.map(|id| context.cluster("only_leader", id)).transpose()?;
        if let Some(cluster) = cluster.as_ref().filter(|_| is_delta) {
            cluster.note_deltas();
        }
        Ok(Self { cluster, is_delta })
    }

    /// Traces and logs are never merged: each replica has its own, and exports them.
    pub(super) fn role(&self, signal: Signal) -> Role {
        let Some(cluster) = self.cluster.as_ref().filter(|_| signal == Signal::Metrics) else {
            return Role::Export;
        };
        if self.is_delta {
            return match cluster.turn() {
                DeltaTurn::Export => Role::Export,
                DeltaTurn::Follow => Role::Follow,
                DeltaTurn::Hold => Role::Drop,
            };
        }
        if cluster.is_leading() {
            Role::Export
        } else {
            Role::Drop
        }
    }
}
