// SPDX-License-Identifier: Apache-2.0

//! `prometheus_cr`: jobs from the objects of the Prometheus operator. The receiver watches the objects, and makes of each
//! the jobs that the operator writes into the configuration of Prometheus. An object that is wrong is skipped with a notice.

mod draft;
mod fields;
mod generate;
mod monitors;
mod rules;
mod scrape_configs;
#[cfg(test)]
mod tests;
mod values;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tidegate_kubernetes::{ApiClient, Cluster, ObjectKind, Scope, SharedWatch, StoredObject, WatchStatus};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::PrometheusReceiverConfig;
use crate::config::kubernetes::KubernetesSdConfig;
use crate::config::operator::{NamespaceSelector, ObjectSelector, PrometheusCrConfig};
use crate::config::scrape::ScrapeConfig;
use crate::discovery::DiscoveryError;
use crate::discovery::kubernetes::{api_client, select_first};
use crate::jobs::{JobBuilder, JobSet};
use draft::Generated;
use tidegate_pipeline::component::Account;
use values::{RETRY_INTERVAL, Values};

/// The shortest time between two turns, so that a busy cluster does not keep a thread busy.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The part that notices are from.
const NAME: &str = "prometheus_cr";

/// Jobs from objects of the Prometheus operator.
pub(super) struct Operator {
    /// The options of the receiver, with the interval of these jobs in `global`.
    config: Arc<PrometheusReceiverConfig>,
    /// `None`: the server of this pod. A configuration for it is valid outside a pod too.
    client: Option<ApiClient>,
    builder: Arc<JobBuilder>,
}

/// Objects by namespace and name.
type ObjectsByName = BTreeMap<(Box<str>, Box<str>), Arc<StoredObject>>;

/// The objects of a kind.
struct KindWatch {
    kind: ObjectKind,
    watches: Vec<Arc<SharedWatch>>,
    /// The namespaces that count, if their labels decide.
    namespaces: Option<Arc<SharedWatch>>,
    /// The jobs and notices of the last turn.
    last: Generated,
}

impl Operator {
    /// # Errors
    /// The kubeconfig or a TLS file is unusable.
    pub(super) fn new(
        config: &PrometheusReceiverConfig,
        builder: Arc<JobBuilder>,
    ) -> Result<Self, DiscoveryError> {
        let mut config = config.clone();
        let global = &mut config.config.global;
        global.scrape_interval = config.prometheus_cr.scrape_interval;
        if global.scrape_timeout > global.scrape_interval {
            global.scrape_timeout = global.scrape_interval;
        }
        let server = config.prometheus_cr.kubernetes();
        let is_of_pod = server.api_server.is_none() && server.kubeconfig_file.is_none();
        let client = (!is_of_pod).then(|| api_client(&server)).transpose()?;
        Ok(Self {
            config: Arc::new(config),
            client,
            builder,
        })
    }

    /// Runs until it is dropped.
    pub(super) async fn run(self, stopping: CancellationToken, tasks: TaskTracker) {
        let Self {
            config,
            client,
            builder,
        } = self;
        let options = config.prometheus_cr.clone();
        let server = options.kubernetes();
        let client = match client {
            Some(client) => client,
            None => client_of_pod(&options, &builder).await,
        };
        let memory = builder.limiter().shared.memory.clone();
        let cluster = Cluster::shared(client, &memory);
        let mut kinds = kinds(&options, &cluster);
        let mut states: Vec<_> = kinds.iter().flat_map(KindWatch::states).collect();
        let mut values = Values::default();
        let finish = move |job: &mut ScrapeConfig| add_server(job, &server);
        let mut jobs = JobSet::new(builder.clone(), config, Arc::new(finish), (stopping, tasks));
        loop {
            states.iter_mut().for_each(watch::Receiver::mark_unchanged);
            values = turn(&mut kinds, &options, values, &cluster, &memory).await;
            let described: Vec<_> = kinds.iter().flat_map(|kind| &kind.last.jobs).collect();
            let applied = jobs.apply(&described).await;
            let notices = kinds.iter().flat_map(|kind| kind.last.notices.iter().cloned());
            builder.report(NAME, notices.chain(applied.problems).collect());
            tokio::time::sleep(MIN_INTERVAL).await;
            let lacks_memory = kinds.iter().any(|kind| kind.last.lacks_memory);
            let is_due = lacks_memory || applied.needs_retry || jobs.has_ending();
            let due = is_due.then_some(RETRY_INTERVAL);
            let due = due.into_iter().chain(values.next_read()).min();
            let changes = states.iter_mut().map(|state| Box::pin(state.changed()));
            let changed = select_first(changes.collect());
            match due {
                Some(due) => drop(tokio::time::timeout(due, changed).await),
                None => changed.await,
            }
        }
    }
}

/// The client of this pod. Its files may come after the start, so this waits for them.
async fn client_of_pod(options: &PrometheusCrConfig, builder: &JobBuilder) -> ApiClient {
    let metrics = builder.metrics(NAME);
    loop {
        match api_client(&options.kubernetes()) {
            Ok(client) => {
                builder.report(NAME, Vec::new());
                return client;
            }
            Err(error) => {
                metrics.discovery_failed("kubernetes", &error);
                builder.report(NAME, vec![format!("prometheus_cr: {error}")]);
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Discoveries without an API server have that of the objects.
fn add_server(options: &mut ScrapeConfig, server: &KubernetesSdConfig) {
    for discovery in &mut options.kubernetes_sd_configs {
        if discovery.api_server.is_none() && discovery.kubeconfig_file.is_none() {
            *discovery = KubernetesSdConfig {
                role: discovery.role,
                namespaces: discovery.namespaces.clone(),
                selectors: std::mem::take(&mut discovery.selectors),
                attach_metadata: discovery.attach_metadata.clone(),
                ..server.clone()
            };
        }
    }
}

fn kinds(options: &PrometheusCrConfig, cluster: &Arc<Cluster>) -> Vec<KindWatch> {
    let all = [
        (
            ObjectKind::PodMonitor,
            &options.pod_monitor_selector,
            &options.pod_monitor_namespace_selector,
        ),
        (
            ObjectKind::ServiceMonitor,
            &options.service_monitor_selector,
            &options.service_monitor_namespace_selector,
        ),
        (
            ObjectKind::ScrapeConfig,
            &options.scrape_config_selector,
            &options.scrape_config_namespace_selector,
        ),
    ];
    let selected = all.into_iter().filter_map(|(kind, selector, namespaces)| {
        let selector = selector.as_ref()?;
        Some(KindWatch::new(kind, selector, namespaces, cluster))
    });
    selected.collect()
}

impl KindWatch {
    fn new(
        kind: ObjectKind,
        selector: &ObjectSelector,
        namespaces: &NamespaceSelector,
        cluster: &Arc<Cluster>,
    ) -> Self {
        let scope = |namespace: Option<String>| Scope {
            namespace,
            label_selector: selector.text(),
            ..Scope::all(kind)
        };
        let names = namespaces.names.iter().cloned().map(Some);
        let everywhere = namespaces.names.is_empty().then_some(None);
        let scopes = names.chain(everywhere).map(scope);
        let text = namespaces.text();
        let namespaces = (!text.is_empty()).then(|| {
            cluster.watch(Scope {
                label_selector: text,
                ..Scope::all(ObjectKind::Namespace)
            })
        });
        Self {
            kind,
            watches: scopes.map(|scope| cluster.watch(scope)).collect(),
            namespaces,
            last: Generated::default(),
        }
    }

    fn states(&self) -> Vec<watch::Receiver<WatchStatus>> {
        let watches = self.watches.iter().chain(&self.namespaces);
        watches.map(|watch| watch.status()).collect()
    }

    /// The objects that count, by namespace and name. `None`: the first lists are not complete. The custom resources may not
    /// be installed, which must not keep the other kinds.
    fn objects(&self) -> Option<ObjectsByName> {
        let is_synced = self.states().iter().all(|state| state.borrow().is_synced);
        if !is_synced {
            return None;
        }
        let namespaces = self.namespaces.as_ref().map(|watch| watch.snapshot());
        let names = namespaces.as_ref().map(|all| {
            let names = all.iter().map(|namespace| &namespace.metadata.name);
            names.collect::<HashSet<_>>()
        });
        let counts = |object: &Arc<StoredObject>| {
            names
                .as_ref()
                .is_none_or(|names| names.contains(&object.metadata.namespace))
        };
        let all = self.watches.iter().flat_map(|watch| watch.snapshot());
        let key =
            |object: &Arc<StoredObject>| (object.metadata.namespace.clone(), object.metadata.name.clone());
        Some(all.filter(counts).map(|object| (key(&object), object)).collect())
    }
}

/// Makes the jobs of all objects as they are now. Values that they name for the first time are read, and then the jobs are
/// made again.
async fn turn(
    kinds: &mut [KindWatch],
    options: &PrometheusCrConfig,
    mut values: Values,
    cluster: &Arc<Cluster>,
    memory: &Arc<Account>,
) -> Values {
    values.begin();
    values.read(cluster).await;
    for kind in kinds {
        let Some(objects) = kind.objects() else {
            continue;
        };
        let objects: Arc<[Arc<StoredObject>]> = objects.into_values().collect();
        for _ in 0..2 {
            let (of, objects, options, account) =
                (kind.kind, objects.clone(), options.clone(), memory.clone());
            let made = tokio::task::spawn_blocking(move || {
                let mut values = values;
                let made = generate::jobs(of, &objects, &options, &mut values, &account);
                (made, values)
            });
            let Ok((made, back)) = made.await else {
                return Values::default(); // The gateway stops.
            };
            values = back;
            kind.last = made;
            if !values.has_wanted() {
                break;
            }
            values.read(cluster).await;
        }
    }
    values.forget_unused();
    values
}
