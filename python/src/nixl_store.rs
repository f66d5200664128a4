// SPDX-License-Identifier: Apache-2.0

//! NIXL's multi-process stores for Python: `tidegate.ring.Store` builds on this.

use std::path::PathBuf;

use pyo3::prelude::*;
use tidegate_ring::{KINDS, MpStore};

use crate::ring::raise;

/// A multi-process store, open for reading. Any number may read, from any thread.
#[pyclass(frozen, module = "tidegate._tidegate")]
pub(crate) struct NixlStore(MpStore);

/// The totals of one kind of event in a store.
#[pyclass(frozen, get_all, module = "tidegate._tidegate")]
pub(crate) struct NixlTotal {
    name: &'static str,
    unit: &'static str,
    category: &'static str,
    /// Of errors only.
    status: Option<&'static str>,
    total: u64,
    /// The newest value, of kinds that keep it.
    last: Option<u64>,
    /// `(bounds, buckets, sum)`, of kinds that have a histogram; not cumulative, the last bucket is above all bounds.
    histogram: Option<(Vec<f64>, Vec<u64>, u64)>,
}

#[pymethods]
impl NixlStore {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| MpStore::open(&path)).map(Self).map_err(raise)
    }

    /// `(pid, instance, agent_name, hostname, local_rank, owner_uid)`.
    fn identity(&self) -> (i64, u64, String, String, Option<String>, u32) {
        let identity = self.0.identity().clone();
        (
            identity.pid,
            identity.instance,
            identity.agent_name,
            identity.hostname,
            identity.local_rank,
            self.0.owner_uid(),
        )
    }

    /// When it was last updated (`CLOCK_MONOTONIC` of its host, in nanoseconds), and what it has of every kind.
    fn totals(&self, py: Python<'_>) -> PyResult<(u64, Vec<NixlTotal>)> {
        let snapshot = py.detach(|| self.0.snapshot()).map_err(raise)?;
        let counted = KINDS.iter().zip(snapshot.counters).zip(snapshot.gauges);
        let totals = counted.map(|((kind, total), last)| NixlTotal {
            name: kind.name,
            unit: kind.unit,
            category: kind.category.name(),
            status: kind.status,
            total,
            last: kind.last.map(|_| last),
            histogram: kind
                .histogram
                .and_then(|_| snapshot.histogram(kind.id))
                .map(|found| (found.bounds.to_vec(), found.buckets.to_vec(), found.sum)),
        });
        Ok((snapshot.last_update_ns, totals.collect()))
    }

    /// Whether the agent still holds its lock.
    fn alive(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.0.alive()).map_err(raise)
    }

    /// Whether a file of this name may be a store.
    #[staticmethod]
    fn is_name(name: &str) -> bool {
        MpStore::is_store_name(name)
    }
}
