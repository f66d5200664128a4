// SPDX-License-Identifier: Apache-2.0

//! `kubernetes_sd_configs`: targets from objects of Kubernetes, whose watches all jobs share.

mod endpoints;
mod ingress;
mod meta;
mod node;
mod pod;
mod server;
mod service;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tidegate_kubernetes::{AccessError, ApiClient, Cluster, ObjectKind, Scope, SharedWatch, own_namespace};
use tidegate_pipeline::component::{Account, Held};

use super::group::{ListError, Listed, label_bytes};
use super::{DiscoveryError, Reporter};
use crate::config::kubernetes::{KubernetesRole, KubernetesSdConfig, KubernetesSelector};
use crate::labels::Labels;
use meta::Objects;

/// The shortest time between two lists of targets, so that a busy cluster does not keep a thread busy.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The time after which targets without memory are listed again, and the files of a pod are looked for.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Whose labels or names the targets have too.
#[derive(Clone, Copy, Debug, Default)]
struct Attached {
    node: bool,
    namespace: bool,
    deployment: bool,
    job: bool,
    cron_job: bool,
}

/// The way to the API server.
struct ApiAccess {
    client: ApiClient,
    shown_url: String,
    /// The namespaces of the targets. `None`: all of them.
    namespaces: Option<Vec<String>>,
}

impl ApiAccess {
    /// # Errors
    /// This is not a pod, or the kubeconfig or a TLS file is unusable.
    fn new(config: &KubernetesSdConfig) -> Result<Self, DiscoveryError> {
        let server = server::of(config)?;
        let shown_url = server.url.to_string();
        Ok(Self {
            client: ApiClient::new(server)?,
            shown_url,
            namespaces: namespaces(config)?,
        })
    }

    /// The account of this pod. Its files may come after the start, so this waits for them.
    async fn of_pod(config: &KubernetesSdConfig, to: &Reporter) -> Self {
        loop {
            match Self::new(config) {
                Ok(access) => return access,
                Err(error) => to.failed("kubernetes", &error),
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}

pub(super) struct KubernetesDiscovery {
    /// `None`: the account of this pod. A configuration for it is valid outside a pod too.
    access: Option<ApiAccess>,
    config: KubernetesSdConfig,
    role: KubernetesRole,
    selectors: Vec<KubernetesSelector>,
    attached: Attached,
}

impl KubernetesDiscovery {
    /// # Errors
    /// The kubeconfig or a TLS file is unusable.
    pub(super) fn new(config: &KubernetesSdConfig) -> Result<Self, DiscoveryError> {
        let is_of_pod = config.api_server.is_none() && config.kubeconfig_file.is_none();
        let access = (!is_of_pod).then(|| ApiAccess::new(config)).transpose()?;
        Ok(Self {
            access,
            config: config.clone(),
            role: config.role,
            selectors: config.selectors.clone(),
            attached: Attached {
                node: config.attach_metadata.node,
                namespace: config.attach_metadata.namespace,
                deployment: config.attach_metadata.deployment,
                job: config.attach_metadata.job,
                cron_job: config.attach_metadata.cronjob,
            },
        })
    }

    pub(super) async fn run(self, to: Reporter) {
        let Self {
            access,
            config,
            role,
            selectors,
            attached,
        } = self;
        let access = match access {
            Some(access) => access,
            None => ApiAccess::of_pod(&config, &to).await,
        };
        let ApiAccess {
            client,
            shown_url,
            namespaces,
        } = access;
        let cluster = Cluster::shared(client, &to.memory);
        let scopes = scopes(role, namespaces.as_deref(), &selectors, attached);
        let watches: Vec<_> = scopes.into_iter().map(|scope| cluster.watch(scope)).collect();
        let mut states: Vec<_> = watches.iter().map(|watch| watch.status()).collect();
        for state in &mut states {
            // The list of targets is not complete before.
            let _ = state.wait_for(|status| status.is_synced).await;
        }
        loop {
            for state in &mut states {
                state.mark_unchanged();
            }
            match targets(&watches, role, attached, &to.memory).await {
                Ok(listed) => {
                    if !to.report_with(listed.labels, vec![listed.room]).await {
                        return;
                    }
                    tokio::time::sleep(MIN_INTERVAL).await;
                }
                Err(error) => {
                    to.failed("kubernetes", &format_args!("{shown_url}: {error}"));
                    tokio::time::sleep(RETRY_INTERVAL).await;
                    continue;
                }
            }
            let changes = states.iter_mut().map(|state| Box::pin(state.changed()));
            select_first(changes.collect()).await;
        }
    }
}

/// A client of the API server in the options of a discovery.
///
/// # Errors
/// This is not a pod, or the kubeconfig or a TLS file is unusable.
pub(crate) fn api_client(config: &KubernetesSdConfig) -> Result<ApiClient, DiscoveryError> {
    Ok(ApiClient::new(server::of(config)?)?)
}

/// Waits for the first of several futures.
pub(crate) async fn select_first<F: Future + Unpin>(mut futures: Vec<F>) {
    std::future::poll_fn(|cx| {
        let is_ready = futures
            .iter_mut()
            .any(|future| std::pin::Pin::new(future).poll(cx).is_ready());
        if is_ready {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}

fn namespaces(config: &KubernetesSdConfig) -> Result<Option<Vec<String>>, AccessError> {
    let mut names = config.namespaces.names.clone();
    if config.namespaces.own_namespace {
        names.push(own_namespace()?);
    }
    names.sort_unstable();
    names.dedup();
    Ok(Some(names).filter(|names| !names.is_empty()))
}

/// The kinds of objects that a role needs, each with the role of its selector.
fn kinds(role: KubernetesRole) -> &'static [(ObjectKind, KubernetesRole)] {
    const PODS: (ObjectKind, KubernetesRole) = (ObjectKind::Pod, KubernetesRole::Pod);
    const SERVICES: (ObjectKind, KubernetesRole) = (ObjectKind::Service, KubernetesRole::Service);
    match role {
        KubernetesRole::Pod => &[PODS],
        KubernetesRole::Service => &[SERVICES],
        KubernetesRole::Endpoints => &[(ObjectKind::Endpoints, KubernetesRole::Endpoints), SERVICES, PODS],
        KubernetesRole::EndpointSlice => &[
            (ObjectKind::EndpointSlice, KubernetesRole::EndpointSlice),
            SERVICES,
            PODS,
        ],
        KubernetesRole::Node => &[(ObjectKind::Node, KubernetesRole::Node)],
        KubernetesRole::Ingress => &[(ObjectKind::Ingress, KubernetesRole::Ingress)],
    }
}

/// The objects to watch.
fn scopes(
    role: KubernetesRole,
    namespaces: Option<&[String]>,
    selectors: &[KubernetesSelector],
    attached: Attached,
) -> Vec<Scope> {
    let mut scopes = Vec::new();
    let mut add = |kind: ObjectKind, selected: Option<KubernetesRole>| {
        let selector = selectors.iter().find(|selector| Some(selector.role) == selected);
        let scope = |namespace: Option<&String>| Scope {
            kind,
            namespace: namespace.cloned(),
            label_selector: selector.map_or_else(String::new, |selector| selector.label.clone()),
            field_selector: selector.map_or_else(String::new, |selector| selector.field.clone()),
        };
        match namespaces.filter(|_| kind.is_namespaced()) {
            Some(names) => scopes.extend(names.iter().map(|name| scope(Some(name)))),
            None => scopes.push(scope(None)),
        }
    };
    for (kind, selected) in kinds(role) {
        add(*kind, Some(*selected));
    }
    let has_pods = !matches!(
        role,
        KubernetesRole::Service | KubernetesRole::Node | KubernetesRole::Ingress
    );
    if attached.node && has_pods {
        add(ObjectKind::Node, Some(KubernetesRole::Node));
    }
    if attached.deployment && has_pods {
        add(ObjectKind::ReplicaSet, None);
    }
    // The name of the Job itself is in the pod.
    if attached.cron_job && has_pods {
        add(ObjectKind::Job, None);
    }
    if attached.namespace && role != KubernetesRole::Node {
        add(ObjectKind::Namespace, None);
    }
    scopes
}

/// The targets of the objects as they are now.
async fn targets(
    watches: &[Arc<SharedWatch>],
    role: KubernetesRole,
    attached: Attached,
    memory: &Arc<Account>,
) -> Result<Listed, String> {
    let objects: Vec<_> = watches.iter().flat_map(|watch| watch.snapshot()).collect();
    let held = Held::new(memory.clone());
    let made = tokio::task::spawn_blocking(move || {
        let objects = Objects::new(objects.iter().map(|object| &***object), attached);
        listed(&objects, role, held).map_err(|error| error.to_string())
    });
    made.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// The most targets of a discovery.
const MAX_TARGETS: usize = 1_000_000;

/// Takes the labels of a target. It stops the targets when there are too many.
type EachTarget<'a> = &'a mut dyn FnMut(Labels) -> ControlFlow<()>;

/// Makes the targets twice: the first time to weigh them.
fn listed(objects: &Objects<'_>, role: KubernetesRole, held: Held) -> Result<Listed, ListError> {
    let (mut count, mut weight) = (0, 0_usize);
    let weighed = each_target(objects, role, &mut |labels| {
        count += 1;
        let bytes = labels.iter().map(|(name, value)| label_bytes(name, value.len()));
        weight = weight.saturating_add(bytes.sum());
        if count <= MAX_TARGETS && held.could_ever_grow(weight) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    if weighed.is_break() {
        return Err(ListError::NeverFits);
    }
    let make = || {
        let mut all = Vec::with_capacity(count);
        let _ = each_target(objects, role, &mut |labels| {
            all.push(labels);
            ControlFlow::Continue(())
        });
        all
    };
    Listed::of_records(count, weight, make, held)
}

/// Gives the labels of each target to `each`.
fn each_target(objects: &Objects<'_>, role: KubernetesRole, each: EachTarget<'_>) -> ControlFlow<()> {
    match role {
        KubernetesRole::Pod => pod::targets(objects, each),
        KubernetesRole::Service => service::targets(objects, each),
        KubernetesRole::Endpoints => endpoints::of_endpoints(objects, each),
        KubernetesRole::EndpointSlice => endpoints::of_slices(objects, each),
        KubernetesRole::Node => node::targets(objects, each),
        KubernetesRole::Ingress => ingress::targets(objects, each),
    }
}
