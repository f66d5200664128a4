// SPDX-License-Identifier: Apache-2.0

//! `loadbalancing`: distributes data over several endpoints, and keeps related items together.
//!
//! Each endpoint has its own queue and retries, so a failed share is retried separately. When an endpoint
//! vanishes, the rest of its queue goes to the remaining endpoints.

mod config;
mod k8s;
mod peers;
mod route;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::batch::{Batch, Payload, Signal};
use crate::component::{
    ComponentError, ConfigType, Consumer, ErrorDoc, Exporter, ExporterContext, ExporterFactory, Factory,
    Flow, Lifecycle, Reason, Refused, Stability,
};
use crate::delivery::errors::DELIVERY_ERRORS;
use config::LoadBalancingConfig;
use peers::{Current, Peers, Shares};

/// The errors of `loadbalancing`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "The name of the resolver can't be looked up.",
        "the name can't be looked up",
        "Check the name and the DNS servers. The exporter uses the endpoints that it has.",
    ),
    ErrorDoc::logged(
        "The lookup of the name takes too long.",
        "the lookup of the name timed out",
        "Check the DNS servers, or raise `timeout` of the resolver.",
    ),
    ErrorDoc::logged(
        "A resolved endpoint is not valid.",
        "an endpoint is not used",
        "Correct the endpoint that the line names.",
    ),
    ErrorDoc::logged(
        "The name has more addresses than the exporter uses.",
        "the name has more addresses than the exporter uses",
        "Use several names, with one exporter for each.",
    ),
    ErrorDoc::logged(
        "The endpoints of a service of Kubernetes can't be listed.",
        "the endpoints of the service are not known",
        "Check the service account and its role. The line has the cause.",
    ),
];

/// The factory of `loadbalancing`.
pub static FACTORY: ExporterFactory = Factory {
    kind: "loadbalancing",
    aliases: &["load_balancing"],
    stability: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "distributes data over several OTLP endpoints by a routing key",
    errors: &[ERRORS, DELIVERY_ERRORS],
    config: ConfigType::of::<LoadBalancingConfig>(),
    build: |settings, cx| Ok(Arc::new(LoadBalancing::new(settings.get(), cx)?)),
};

struct LoadBalancing {
    peers: Arc<Peers>,
    lookups: Mutex<Option<JoinHandle<()>>>,
}

impl LoadBalancing {
    fn new(config: Arc<LoadBalancingConfig>, cx: ExporterContext) -> Result<Self, ComponentError> {
        Ok(Self {
            peers: Arc::new(Peers::new(config, cx)?),
            lookups: Mutex::default(),
        })
    }
}

impl Exporter for LoadBalancing {
    fn may_overlap(&self) -> bool {
        self.peers.may_overlap()
    }

    fn retire(&self, heir: Arc<dyn Consumer>) {
        self.peers.retire(&heir);
    }
}

#[async_trait]
impl Lifecycle for LoadBalancing {
    async fn start(&self) -> Result<(), ComponentError> {
        self.peers.start().await?;
        self.peers.clone().watch(&self.lookups).await;
        Ok(())
    }

    async fn stop(&self, deadline: Instant) {
        let lookups = self.lookups.lock().take();
        if let Some(lookups) = lookups {
            lookups.abort();
            // Cancelled, as asked for.
            let _ = lookups.await;
        }
        self.peers.stop(deadline).await;
    }

    fn opens_log(&self) -> bool {
        self.peers.open_logs()
    }
}

/// The split of a batch at its admission.
struct AdmittedSplit {
    batch: Batch,
    shares: Shares,
}

/// Whether nothing between admission and here has changed it.
fn same(a: &Payload, b: &Payload) -> bool {
    match (a, b) {
        (Payload::Encoded(a), Payload::Encoded(b)) => {
            let parts = a.parts.iter().zip(&b.parts);
            a.parts.len() == b.parts.len()
                && parts
                    .into_iter()
                    .all(|(a, b)| a.bytes.as_ptr() == b.bytes.as_ptr() && a.bytes.len() == b.bytes.len())
        }
        (Payload::Events(a), Payload::Events(b)) => Arc::ptr_eq(a, b),
        (Payload::Points(a), Payload::Points(b)) => Arc::ptr_eq(&a.points, &b.points),
        _ => false,
    }
}

impl LoadBalancing {
    fn owner(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Admits a batch at these endpoints. An endpoint that leaves meanwhile refuses its share. Then the batch goes to the
    /// current endpoints.
    fn admit_at(&self, mut endpoints: Arc<Current>, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        let mark = flow.mark();
        loop {
            let shares = self.peers.split_by(&endpoints, batch)?;
            let admitted = shares
                .iter()
                .try_for_each(|(peer, share)| peer.admit(share, flow));
            let Err(refused) = admitted else {
                let batch = batch.clone();
                flow.keep_permit(self.owner(), AdmittedSplit { batch, shares });
                return Ok(());
            };
            flow.undo_to(mark);
            let now = self.peers.current();
            if Arc::ptr_eq(&now, &endpoints) {
                return Err(refused);
            }
            endpoints = now;
        }
    }
}

impl Consumer for LoadBalancing {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        self.admit_at(self.peers.current(), batch, flow)
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        let place: Option<AdmittedSplit> = flow.take(self.owner());
        let admitted = place.filter(|place| same(&place.batch.payload, &batch.payload));
        let shares = match admitted {
            Some(place) => Ok(place.shares),
            None => self.peers.split(&batch),
        };
        match shares {
            Ok(shares) => shares
                .into_iter()
                .for_each(|(peer, share)| peer.consume(share, flow)),
            Err(_) => self.peers.lose(&batch, Reason::Invalid),
        }
    }
}

#[cfg(test)]
mod tests;
