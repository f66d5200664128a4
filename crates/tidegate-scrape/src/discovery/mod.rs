// SPDX-License-Identifier: Apache-2.0

//! Target discoveries. Each one runs as a task and sends its complete result to the job. After a failure, the
//! previous result stays in use.

mod dns;
mod file;
mod group;
mod http;
pub(super) mod kubernetes;

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::config::scrape::ScrapeConfig;
use super::labels::Labels;
use super::metrics::ScrapeMetrics;
pub(super) use group::Room;
use group::{Group, META_FILE, META_URL};
use tidegate_kubernetes::AccessError;
use tidegate_pipeline::component::Account;
use tidegate_pipeline::net::TlsError;

/// The result of one discovery.
#[derive(Clone, Default)]
pub(super) struct DiscoveredTargets {
    /// The labels of each target.
    pub(super) labels: Arc<[Labels]>,
    /// The room of those that others list.
    pub(super) rooms: Vec<Room>,
}

/// Why a discovery can't be built.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiscoveryError {
    /// A TLS file is unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The API server of Kubernetes is not known.
    #[error("kubernetes_sd_configs: {0}")]
    Kubernetes(#[from] AccessError),
}

/// The label that holds an address before relabelling.
const ADDRESS: &str = "__address__";

/// Findings on their way to the job.
const QUEUED_FINDINGS: usize = 4;

/// The channel of a discovery to its job, and its log.
struct Reporter {
    source: usize,
    found: mpsc::Sender<(usize, DiscoveredTargets)>,
    metrics: Arc<ScrapeMetrics>,
    /// The account that answers are on.
    memory: Arc<Account>,
}

impl Reporter {
    /// Sends the result. Returns false if the job has ended.
    async fn report(&self, labels: impl IntoIterator<Item = Labels>) -> bool {
        self.report_with(labels, Vec::new()).await
    }

    /// Like [`Self::report`], with a reservation that lasts while the targets are in use.
    async fn report_with(&self, labels: impl IntoIterator<Item = Labels>, rooms: Vec<Room>) -> bool {
        let found = DiscoveredTargets {
            labels: labels.into_iter().collect(),
            rooms,
        };
        self.found.send((self.source, found)).await.is_ok()
    }

    fn failed(&self, mechanism: &'static str, why: &dyn std::fmt::Display) {
        self.metrics.discovery_failed(mechanism, why);
    }
}

/// The discoveries of a job.
pub(super) struct Discoveries {
    fixed: Arc<[Labels]>,
    files: Vec<file::FileDiscovery>,
    services: Vec<http::HttpDiscovery>,
    names: Vec<dns::DnsDiscovery>,
    objects: Vec<kubernetes::KubernetesDiscovery>,
}

impl Discoveries {
    /// The discoveries in the options of a job.
    ///
    /// # Errors
    /// The TLS files of a discovery can't be used, or its API server is not known.
    pub(super) fn new(config: &ScrapeConfig) -> Result<Self, DiscoveryError> {
        let fixed = config.static_configs.iter().flat_map(|fixed| {
            let group = Group {
                targets: fixed.targets.clone(),
                labels: fixed
                    .labels
                    .iter()
                    .map(|(name, value)| (name.to_owned(), value.0.clone()))
                    .collect(),
            };
            group.into_labels(&[])
        });
        let services = config.http_sd_configs.iter().map(http::HttpDiscovery::new);
        let objects = config.kubernetes_sd_configs.iter();
        let objects = objects.map(kubernetes::KubernetesDiscovery::new);
        Ok(Self {
            fixed: fixed.collect(),
            files: config
                .file_sd_configs
                .iter()
                .map(file::FileDiscovery::new)
                .collect(),
            services: services.collect::<Result<_, _>>()?,
            names: config.dns_sd_configs.iter().map(dns::DnsDiscovery::new).collect(),
            objects: objects.collect::<Result<_, _>>()?,
        })
    }

    /// The number of discoveries. Those of fixed targets are one.
    pub(super) fn count(&self) -> usize {
        1 + self.files.len() + self.services.len() + self.names.len() + self.objects.len()
    }

    /// Starts the discoveries. The receiver yields their results, with the number of the discovery.
    pub(super) fn start(
        self,
        metrics: &Arc<ScrapeMetrics>,
        memory: &Arc<Account>,
        stopping: &CancellationToken,
        tasks: &TaskTracker,
    ) -> mpsc::Receiver<(usize, DiscoveredTargets)> {
        let (found, findings) = mpsc::channel(QUEUED_FINDINGS);
        let mut sources = 0;
        let mut reporter = || {
            sources += 1;
            Reporter {
                source: sources - 1,
                found: found.clone(),
                metrics: metrics.clone(),
                memory: memory.clone(),
            }
        };
        let (fixed, to) = (self.fixed, reporter());
        let run = |task| {
            let stopping = stopping.clone();
            tasks.spawn(async move { stopping.run_until_cancelled(task).await });
        };
        // A job without fixed targets reports that there are none, so that all sources have said something.
        run(Box::pin(async move {
            to.report(fixed.iter().cloned()).await;
        }) as std::pin::Pin<Box<dyn Future<Output = ()> + Send>>);
        for files in self.files {
            run(Box::pin(files.run(reporter())));
        }
        for service in self.services {
            run(Box::pin(service.run(reporter())));
        }
        for names in self.names {
            run(Box::pin(names.run(reporter())));
        }
        for objects in self.objects {
            run(Box::pin(objects.run(reporter())));
        }
        findings
    }
}

#[cfg(test)]
mod tests;
