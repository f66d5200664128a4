// SPDX-License-Identifier: Apache-2.0

//! `k8sattributes`: adds the attributes of the pod that a resource comes from.
//!
//! A task watches pods and the objects around them (`view`), and makes a table of their attributes by their keys
//! (`table`, `pod`). The path of data identifies the pod of a resource (`association`) and adds what it lacks
//! (`enrich`). It looks up one key and holds no lock.

mod association;
mod config;
mod counters;
mod enrich;
mod pod;
mod resource;
mod rules;
mod table;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use parking_lot::RwLock;
use tidegate_engine::{Resource, Schema, Series, Source};
use tidegate_kubernetes::Scope;

use self::config::K8sAttributesConfig;
use self::counters::MatchCounters;
use self::enrich::{Enricher, WireEnricher};
use self::rules::PodRules;
use self::table::PodTable;
use self::view::{ApiAccess, PodView, ViewOptions};
use super::sources::EditedSources;
use crate::batch::wire::walk;
use crate::batch::{Batch, Payload, Points, Signal};
use crate::component::{
    ComponentError, ConfigType, Consumer, Context, ErrorDoc, Factory, Flow, Held, Ledger, Lifecycle,
    Processor, ProcessorContext, ProcessorFactory, Reason, Refused, Stability,
};

/// The errors of `k8sattributes`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "The API of Kubernetes can't be reached, or the gateway is not in a pod.",
        "resources get no attributes of pods",
        "Check `auth_type`, the service account and its role. The line has the cause.",
    ),
    ErrorDoc::logged(
        "The table of pods can't be built, for example because memory is short.",
        "the pods stay as they were",
        "Raise the memory limit, or restrict the pods with `filter`.",
    ),
    ErrorDoc::logged(
        "The variable of `filter::node_from_env_var` is not set. The gateway does not start.",
        "is not set: set it to `spec.nodeName` in the manifest of the pod",
        "Set the variable to `spec.nodeName` in the manifest of the pod.",
    ),
];

/// The factory of `k8sattributes`.
pub static FACTORY: ProcessorFactory = Factory {
    kind: "k8sattributes",
    aliases: &["k8s_attributes"],
    stability: &[
        (Signal::Metrics, Stability::Alpha),
        (Signal::Traces, Stability::Alpha),
        (Signal::Logs, Stability::Alpha),
    ],
    help: "adds the attributes of the pods of Kubernetes that data comes from",
    errors: &[ERRORS],
    config: ConfigType::of::<K8sAttributesConfig>(),
    build: |settings, cx| Ok(Arc::new(K8sAttributes::new(settings.get(), cx)?)),
};

struct K8sAttributes {
    config: Arc<K8sAttributesConfig>,
    rules: Arc<PodRules>,
    access: ApiAccess,
    scopes: Vec<Scope>,
    base: Context,
    /// `None`: the processor does not run.
    view: RwLock<Option<Arc<PodView>>>,
    sources: EditedSources,
    counters: MatchCounters,
    next: Arc<dyn Consumer>,
    ledger: Arc<Ledger>,
}

impl K8sAttributes {
    fn new(config: Arc<K8sAttributesConfig>, cx: ProcessorContext) -> Result<Self, ComponentError> {
        let rules = PodRules::new(&config).map_err(|error| cx.base.error(error.to_string()))?;
        let (access, scopes) = if config.passthrough {
            (ApiAccess::OfPod, Vec::new())
        } else {
            let access = ApiAccess::new(&config).map_err(|error| cx.base.error(error.to_string()))?;
            let scopes = rules.scopes(&config.filter);
            (access, scopes.map_err(|error| cx.base.error(error.to_string()))?)
        };
        Ok(Self {
            config,
            rules: Arc::new(rules),
            access,
            scopes,
            counters: MatchCounters::new(&cx.base.id),
            base: cx.base,
            view: RwLock::default(),
            sources: EditedSources::default(),
            next: cx.next,
            ledger: cx.ledger,
        })
    }

    /// The table of now. `None`: only addresses are added.
    fn table(&self) -> Option<Arc<PodTable>> {
        if self.config.passthrough {
            return None;
        }
        let view = self.view.read().clone();
        Some(view.map(|view| view.table()).unwrap_or_default())
    }

    fn view_options(&self) -> ViewOptions {
        ViewOptions {
            access: self.access.clone(),
            scopes: self.scopes.clone(),
            rules: self.rules.clone(),
            grace: self.config.pod_delete_grace_period,
        }
    }
}

#[async_trait]
impl Lifecycle for K8sAttributes {
    async fn start(&self) -> Result<(), ComponentError> {
        if self.config.passthrough {
            return Ok(());
        }
        let view = PodView::shared(&self.base, || self.view_options());
        *self.view.write() = Some(view.clone());
        if !self.config.wait_for_metadata {
            return Ok(());
        }
        let timeout = self.config.wait_for_metadata_timeout;
        let synced = view.synced(timeout).await;
        synced.map_err(|why| {
            let message = format!(
                "wait_for_metadata: the pods are not known after {timeout:?}: {why}. Check the address and the rights, or \
                 raise `wait_for_metadata_timeout`"
            );
            self.base.error(message)
        })
    }

    async fn stop(&self, _deadline: Instant) {
        self.view.write().take();
    }
}

impl Processor for K8sAttributes {
    fn edits(&self) -> bool {
        true
    }
}

impl Consumer for K8sAttributes {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        self.next.admit(batch, flow)
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        let table = self.table();
        let enricher = Enricher {
            rules: &self.rules,
            table: table.as_deref(),
            peer: batch.peer,
            counters: &self.counters,
        };
        // Until the next component has the batch: then the batch itself is on the account.
        let mut held = Held::new(self.base.shared.memory.clone());
        let payload = match batch.payload {
            Payload::Encoded(encoded) => {
                let mut visitor = WireEnricher {
                    enricher: &enricher,
                    held: &mut held,
                };
                match walk::edit(&encoded, &mut visitor) {
                    Ok(edited) => edited.into(),
                    Err(_) => return self.ledger.drop_items(Reason::Invalid, encoded.items()),
                }
            }
            Payload::Events(events) => {
                let version = table.as_ref().map_or(0, |table| table.version);
                let edit = |source: &Source, schema: &Schema| {
                    let resource = Arc::new(enricher.enriched(&source.resource)?);
                    let source = source.clone();
                    Some((Source { resource, ..source }, schema.clone()))
                };
                Payload::Events(self.sources.apply_version(version, events, edit))
            }
            Payload::Points(points) => enriched_points(&points, &enricher, &mut held).into(),
        };
        held.fill_to(held.bytes());
        self.next.consume(Batch { payload, ..batch }, flow);
    }

    fn absorbs(&self) -> bool {
        self.next.absorbs()
    }
}

/// The points with the attributes of their pods. Consecutive points share their resource.
fn enriched_points(points: &Points, enricher: &Enricher<'_>, held: &mut Held) -> Points {
    let mut last: Option<(Arc<Resource>, Option<Arc<Resource>>)> = None;
    let enriched = points.points.iter().map(|point| {
        let resource = match &last {
            Some((known, enriched)) if Arc::ptr_eq(known, &point.series.resource) => enriched.clone(),
            _ => {
                let enriched = enricher.enriched_within(&point.series.resource, held);
                let enriched = enriched.map(Arc::new);
                last = Some((point.series.resource.clone(), enriched.clone()));
                enriched
            }
        };
        let mut point = point.clone();
        if let Some(resource) = resource {
            let series = (*point.series).clone();
            point.series = Arc::new(Series { resource, ..series });
        }
        point
    });
    Points {
        points: enriched.collect(),
    }
}
