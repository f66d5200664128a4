// SPDX-License-Identifier: Apache-2.0

//! A running job: discovered targets get a loop each. Loops of vanished targets end by themselves.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::discovery::{DiscoveredTargets, Discoveries, Room};
use super::labels::Labels;
use super::metrics::ScrapeMetrics;
use super::scrape::{Order, Scraper, Workshop};
use super::target::{Target, pairs};
use tidegate_pipeline::component::targets::Pairs;

/// The loops of a job.
pub(super) struct Pool {
    workshop: Arc<Workshop>,
    discoveries: Discoveries,
}

/// A loop, and its last order.
struct Handle {
    target: Target,
    orders: watch::Sender<Order>,
}

struct RunningPool {
    workshop: Arc<Workshop>,
    stopping: CancellationToken,
    found: Vec<DiscoveredTargets>,
    loops: JoinSet<()>,
    /// By the target's hash.
    handles: HashMap<u64, Handle>,
    /// The hashes of the targets of running loops.
    hashes: HashMap<Id, u64>,
}

impl Pool {
    pub(super) fn new(workshop: Arc<Workshop>, discoveries: Discoveries) -> Self {
        Self {
            workshop,
            discoveries,
        }
    }

    /// Runs until `stopping`, and until the last loop has ended.
    pub(super) fn start(self, stopping: &CancellationToken, tasks: &TaskTracker) {
        let (metrics, memory) = (&self.workshop.metrics, &self.workshop.limiter.shared.memory);
        let findings = self.discoveries.start(metrics, memory, stopping, tasks);
        let running = RunningPool {
            workshop: self.workshop,
            stopping: stopping.clone(),
            found: Vec::new(),
            loops: JoinSet::new(),
            handles: HashMap::new(),
            hashes: HashMap::new(),
        };
        tasks.spawn(running.run(findings));
    }
}

impl RunningPool {
    async fn run(mut self, mut findings: mpsc::Receiver<(usize, DiscoveredTargets)>) {
        let stopping = self.stopping.clone();
        loop {
            tokio::select! {
                () = stopping.cancelled() => break,
                Some((source, found)) = findings.recv() => {
                    self.note(source, found);
                    while let Ok((source, found)) = findings.try_recv() {
                        self.note(source, found);
                    }
                    self.sync().await;
                }
                Some(ended) = self.loops.join_next_with_id() => self.ended(ended),
                else => break,
            }
        }
        // Discoveries that want to report something are not kept waiting.
        drop(findings);
        while self.loops.join_next().await.is_some() {}
    }

    fn note(&mut self, source: usize, found: DiscoveredTargets) {
        if self.found.len() <= source {
            self.found.resize(source + 1, DiscoveredTargets::default());
        }
        self.found[source] = found;
    }

    /// Starts loops for new targets, and ends those of vanished ones.
    async fn sync(&mut self) {
        let (found, workshop) = (self.found.clone(), self.workshop.clone());
        let made = tokio::task::spawn_blocking(move || {
            let targets = Targets::of(&found, &workshop);
            found.iter().flat_map(|found| &found.rooms).for_each(Room::fill);
            targets
        })
        .await;
        let Ok(Targets {
            targets,
            dropped,
            invalid,
        }) = made
        else {
            return; // The gateway stops.
        };
        self.workshop.metrics.targets_dropped(dropped.len());
        self.workshop.shown.set_dropped(dropped);
        self.workshop.metrics.targets_invalid(invalid);
        let too_many = self
            .workshop
            .job
            .limits
            .targets
            .filter(|limit| targets.len() > *limit);
        let forced: Option<Arc<str>> = too_many.map(|limit| {
            let targets = targets.len();
            format!("target_limit exceeded (number of targets: {targets}, limit: {limit})").into()
        });
        let wanted = Order::Scrape { forced };
        let labels: HashSet<&Labels> = targets.values().map(|target| &target.labels).collect();
        for (hash, handle) in &self.handles {
            if targets.contains_key(hash) {
                handle.send(wanted.clone());
                continue;
            }
            // The target with the same labels continues its series, so they don't end.
            let replaced = labels.contains(&handle.target.labels);
            handle.send(Order::Leave { replaced });
        }
        for (hash, target) in targets {
            if !self.handles.contains_key(&hash) {
                self.begin(target, wanted.clone());
            }
        }
    }

    fn begin(&mut self, target: Target, order: Order) {
        let (orders, receiver) = watch::channel(order);
        let scraper = Scraper::new(self.workshop.clone(), target.clone());
        self.workshop.shown.add(target.hash, scraper.shown());
        let stopping = self.stopping.clone();
        let task = self.loops.spawn(scraper.run(receiver, stopping)).id();
        self.hashes.insert(task, target.hash);
        self.handles.insert(target.hash, Handle { target, orders });
    }

    /// A loop has ended: its target is gone. Where the target came back at that very moment, or the loop broke, it is
    /// begun again.
    fn ended(&mut self, ended: Result<(Id, ()), tokio::task::JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => {
                tracing::error!(%error, "a scrape loop ended by a panic");
                error.id()
            }
        };
        let hash = self.hashes.remove(&id);
        if let Some(handle) = hash.and_then(|hash| self.handles.remove(&hash)) {
            self.workshop.shown.remove(handle.target.hash);
            let order = handle.orders.borrow().clone();
            if matches!(order, Order::Scrape { .. }) {
                self.begin(handle.target, order);
            }
        }
    }
}

impl Handle {
    fn send(&self, order: Order) {
        self.orders.send_if_modified(|last| {
            let is_new = *last != order;
            *last = order;
            is_new
        });
    }
}

/// The discovered targets after relabelling. Equal targets are one.
struct Targets {
    targets: HashMap<u64, Target>,
    dropped: Vec<Pairs>,
    invalid: usize,
}

impl Targets {
    fn of(found: &[DiscoveredTargets], workshop: &Workshop) -> Self {
        let mut all = Self {
            targets: HashMap::new(),
            dropped: Vec::new(),
            invalid: 0,
        };
        for labels in found.iter().flat_map(|found| found.labels.iter()) {
            all.add(labels, workshop, &workshop.metrics);
        }
        all
    }

    fn add(&mut self, labels: &Labels, workshop: &Workshop, metrics: &ScrapeMetrics) {
        let discovered = Target::discovered(labels.clone(), &workshop.job);
        match Target::of(discovered.clone(), &workshop.job) {
            Ok(Some(target)) => {
                self.targets.insert(target.hash, target);
            }
            Ok(None) => self.dropped.push(pairs(&discovered)),
            Err(error) => {
                self.invalid += 1;
                metrics.bad_target(&error);
            }
        }
    }
}
