// SPDX-License-Identifier: Apache-2.0

//! The current table of pods, kept by a task that all pipelines of a processor share.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tidegate_kubernetes::{
    AccessError, ApiClient, ApiServer, Cluster, ObjectKind, Scope, SharedWatch, WatchStatus, in_cluster,
    kubeconfig,
};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::config::{AuthType, K8sAttributesConfig};
use super::rules::PodRules;
use super::table::{Objects, PodTable, TableBuilder};
use crate::component::{Context, worker};

/// The shortest time between two tables.
const MIN_INTERVAL: Duration = Duration::from_millis(200);

/// The time between two tables is so many times that of making one.
const BUILD_SHARE: u32 = 20;

/// The time after which a failed table is made again, and the files of a pod are looked for.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The time that other objects have after the pods. A gateway without a right on them still finds pods.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(5);

/// The way to the API server.
#[derive(Clone)]
pub(super) enum ApiAccess {
    /// The account of this pod. Its files may come after the start.
    OfPod,
    /// This server.
    Server(Box<ApiServer>),
}

impl ApiAccess {
    /// # Errors
    /// The kubeconfig file is unusable.
    pub(super) fn new(config: &K8sAttributesConfig) -> Result<Self, AccessError> {
        if config.auth_type != AuthType::KubeConfig {
            return Ok(Self::OfPod);
        }
        let context = Some(config.context.as_str()).filter(|name| !name.is_empty());
        let server = kubeconfig(&kubeconfig_path(&config.kube_config_path), context)?;
        Ok(Self::Server(Box::new(server)))
    }

    fn client(&self) -> Result<ApiClient, String> {
        let server = match self {
            Self::Server(server) => (**server).clone(),
            Self::OfPod => in_cluster().map_err(|error| match error {
                AccessError::NoPod => "this is not a pod: set `auth_type: kubeConfig`".to_owned(),
                other => other.to_string(),
            })?,
        };
        ApiClient::new(server).map_err(|error| error.to_string())
    }
}

/// The file that kubectl would use.
fn kubeconfig_path(configured: &str) -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if !configured.is_empty() {
        return configured.into();
    }
    match (variable("KUBECONFIG"), variable("HOME")) {
        (Some(path), _) => path.into(),
        (None, home) => Path::new(&home.unwrap_or_default()).join(".kube/config"),
    }
}

/// What a view needs.
pub(super) struct ViewOptions {
    pub(super) access: ApiAccess,
    pub(super) scopes: Vec<Scope>,
    pub(super) rules: Arc<PodRules>,
    pub(super) grace: Duration,
}

/// The parts of a view that its task and its users share.
struct Published {
    table: RwLock<Arc<PodTable>>,
    is_synced: watch::Sender<bool>,
    /// Why the API server can't be reached.
    trouble: Mutex<String>,
}

/// The current table. Its task ends with its last user.
pub(super) struct PodView {
    published: Arc<Published>,
    _stop: DropGuard,
}

/// The views of a gateway, by the ids of their processors.
#[derive(Default)]
struct Views(Mutex<HashMap<Arc<str>, Weak<PodView>>>);

impl PodView {
    /// The view of a processor, which its first pipeline starts. It runs as a task of the current runtime.
    pub(super) fn shared(base: &Context, options: impl FnOnce() -> ViewOptions) -> Arc<Self> {
        let views = base.shared.parts.get(Views::default);
        let mut views = views.0.lock();
        if let Some(known) = views.get(&base.id).and_then(Weak::upgrade) {
            return known;
        }
        let view = Arc::new(Self::start(base, options()));
        views.insert(base.id.clone(), Arc::downgrade(&view));
        view
    }

    fn start(base: &Context, options: ViewOptions) -> Self {
        let published = Arc::new(Published {
            table: RwLock::default(),
            is_synced: watch::Sender::new(false),
            trouble: Mutex::default(),
        });
        let task = ViewTask {
            base: base.clone(),
            options,
            published: published.clone(),
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(task.run()).await });
        Self {
            published,
            _stop: stop.drop_guard(),
        }
    }

    pub(super) fn table(&self) -> Arc<PodTable> {
        self.published.table.read().clone()
    }

    /// Waits until all pods are known.
    ///
    /// # Errors
    /// They are not known in time. The text is the reason, if it is known.
    pub(super) async fn synced(&self, timeout: Duration) -> Result<(), String> {
        let mut is_synced = self.published.is_synced.subscribe();
        let waited = tokio::time::timeout(timeout, is_synced.wait_for(|is_synced| *is_synced)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            _ => Err(self.published.trouble.lock().clone()),
        }
    }
}

struct ViewTask {
    base: Context,
    options: ViewOptions,
    published: Arc<Published>,
}

/// A watch with the state that a user has seen.
struct Watching {
    kind: ObjectKind,
    watch: Arc<SharedWatch>,
    status: watch::Receiver<WatchStatus>,
}

impl ViewTask {
    async fn run(self) {
        let client = self.client().await;
        let memory = self.base.shared.memory.clone();
        let cluster = Cluster::shared(client, &memory);
        let watching = self.options.scopes.iter().map(|scope| {
            let watch = cluster.watch(scope.clone());
            Watching {
                kind: scope.kind,
                status: watch.status(),
                watch,
            }
        });
        let mut watching: Vec<_> = watching.collect();
        *self.published.trouble.lock() = "the API server has not sent the pods".to_owned();
        wait_for_lists(&mut watching).await;
        let builder = TableBuilder::new(self.options.rules.clone(), memory, self.options.grace);
        self.keep(watching, builder).await;
    }

    /// The files of a pod may come after the start, so this waits for them.
    async fn client(&self) -> ApiClient {
        loop {
            match self.options.access.client() {
                Ok(client) => return client,
                Err(why) => {
                    tracing::warn!(processor = %self.base.id, "resources get no attributes of pods: {why}");
                    *self.published.trouble.lock() = why;
                }
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Makes a table after each change.
    async fn keep(&self, mut watching: Vec<Watching>, mut builder: TableBuilder) {
        loop {
            watching.iter_mut().for_each(|one| one.status.mark_unchanged());
            let objects: Vec<Objects> = watching
                .iter()
                .map(|one| (one.kind, one.watch.snapshot()))
                .collect();
            let begun = Instant::now();
            let building = worker::in_background(move || {
                let built = builder.build(&objects, begun);
                (builder, built)
            });
            let Ok((back, built)) = building.await else { return };
            builder = back;
            let pause = match built {
                Ok(table) => {
                    self.publish(table, builder.pods());
                    (begun.elapsed() * BUILD_SHARE).max(MIN_INTERVAL)
                }
                Err(error) => {
                    tracing::warn!(processor = %self.base.id, "the pods stay as they were: {error}");
                    RETRY_INTERVAL
                }
            };
            tokio::time::sleep(pause).await;
            let changes = watching.iter_mut().map(|one| Box::pin(one.status.changed()));
            let first_change = first(changes.collect());
            match builder.next_end() {
                Some(end) => {
                    let _ = tokio::time::timeout_at(end.into(), first_change).await;
                }
                None => first_change.await,
            }
        }
    }

    fn publish(&self, table: PodTable, pods: usize) {
        metrics::gauge!("tidegate_k8sattributes_pods", "processor" => self.base.id.clone()).set(pods as f64);
        let old = std::mem::replace(&mut *self.published.table.write(), Arc::new(table));
        drop(old);
        if !self.published.is_synced.send_replace(true) {
            tracing::info!(processor = %self.base.id, pods, "all pods are known");
        }
    }
}

/// Waits for the pods, then a short time for the others.
async fn wait_for_lists(watching: &mut [Watching]) {
    async fn wait(watching: &mut [Watching], is_wanted: impl Fn(ObjectKind) -> bool) {
        for one in watching.iter_mut().filter(|one| is_wanted(one.kind)) {
            let _ = one.status.wait_for(|status| status.is_synced).await;
        }
    }
    wait(watching, |kind| kind == ObjectKind::Pod).await;
    let others = wait(watching, |kind| kind != ObjectKind::Pod);
    let _ = tokio::time::timeout(OTHERS_TIMEOUT, others).await;
}

/// Waits for the first of several futures.
async fn first<F: Future + Unpin>(mut futures: Vec<F>) {
    std::future::poll_fn(|cx| {
        let mut all = futures.iter_mut();
        if all.any(|future| std::pin::Pin::new(future).poll(cx).is_ready()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}
