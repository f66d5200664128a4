// SPDX-License-Identifier: Apache-2.0

//! A running job: discovered targets get a loop each. Loops of vanished targets end by themselves. A job may change while
//! it runs: its new loops continue the series of the old ones.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::discovery::{DiscoveredTargets, Discoveries, Room};
use super::labels::Labels;
use super::metrics::ScrapeMetrics;
use super::scrape::{Order, Scraper, Workshop};
use super::target::{Target, pairs};
use tidegate_pipeline::component::Held;
use tidegate_pipeline::component::targets::Pairs;

/// The loops of a job.
pub(super) struct Pool {
    workshop: Arc<Workshop>,
    discoveries: Discoveries,
    /// The memory of the job itself, if others than the configuration list it.
    held: Option<Held>,
}

/// A change of a running pool.
pub(super) enum Change {
    /// The job is now another one of the same name.
    Replace(Box<Pool>),
    /// The job is gone. Its series end.
    End,
}

/// Changes that wait for a pool.
const QUEUED_CHANGES: usize = 4;

/// The way to a pool whose job may change.
pub(super) struct PoolControl {
    pub(super) changes: mpsc::Sender<Change>,
    /// Whether the job is gone and its last loop has ended.
    pub(super) is_idle: Arc<AtomicBool>,
}

/// A loop, and its last order.
struct Handle {
    target: Target,
    orders: watch::Sender<Order>,
}

struct RunningPool {
    workshop: Arc<Workshop>,
    stopping: CancellationToken,
    tasks: TaskTracker,
    /// Ends the discoveries of the current job.
    discovering: CancellationToken,
    changes: mpsc::Receiver<Change>,
    is_idle: Arc<AtomicBool>,
    /// Whether the job is gone.
    is_ending: bool,
    /// The memory of the current job.
    held: Option<Held>,
    /// The last result of each discovery. `None`: it has not reported yet.
    found: Vec<Option<DiscoveredTargets>>,
    loops: JoinSet<()>,
    /// By the target's hash.
    handles: HashMap<u64, Handle>,
    /// The hashes of the targets of running loops.
    hashes: HashMap<Id, u64>,
    /// The loops of jobs that the current one has replaced.
    retired: HashMap<Id, Handle>,
}

impl Pool {
    pub(super) fn new(workshop: Arc<Workshop>, discoveries: Discoveries, held: Option<Held>) -> Self {
        Self {
            workshop,
            discoveries,
            held,
        }
    }

    /// Runs until `stopping`, or until the control is dropped and the last loop has ended.
    pub(super) fn start(self, stopping: &CancellationToken, tasks: &TaskTracker) -> PoolControl {
        let (sender, changes) = mpsc::channel(QUEUED_CHANGES);
        let is_idle = Arc::<AtomicBool>::default();
        let mut running = RunningPool {
            workshop: self.workshop.clone(),
            stopping: stopping.clone(),
            tasks: tasks.clone(),
            discovering: stopping.child_token(),
            changes,
            is_idle: is_idle.clone(),
            is_ending: false,
            held: None,
            found: Vec::new(),
            loops: JoinSet::new(),
            handles: HashMap::new(),
            hashes: HashMap::new(),
            retired: HashMap::new(),
        };
        let findings = running.take_job(self);
        tasks.spawn(running.run(findings));
        PoolControl {
            changes: sender,
            is_idle,
        }
    }
}

/// The results of discoveries, each with the number of its discovery.
type Findings = mpsc::Receiver<(usize, DiscoveredTargets)>;

impl RunningPool {
    async fn run(mut self, mut findings: Findings) {
        let stopping = self.stopping.clone();
        loop {
            self.is_idle
                .store(self.is_ending && self.loops.is_empty(), Relaxed);
            tokio::select! {
                () = stopping.cancelled() => break,
                Some((source, found)) = findings.recv() => {
                    self.note(source, found);
                    while let Ok((source, found)) = findings.try_recv() {
                        self.note(source, found);
                    }
                    self.sync().await;
                }
                Some(change) = self.changes.recv() => {
                    findings = self.change(change);
                    if self.is_ending {
                        self.sync().await;
                    }
                }
                Some(ended) = self.loops.join_next_with_id() => self.ended(ended),
                else => break,
            }
        }
        // Discoveries that want to report something are not kept waiting.
        drop(findings);
        while self.loops.join_next().await.is_some() {}
    }

    fn change(&mut self, change: Change) -> Findings {
        self.discovering.cancel();
        self.discovering = self.stopping.child_token();
        match change {
            Change::Replace(pool) => {
                self.retire();
                self.take_job(*pool)
            }
            Change::End => {
                self.is_ending = true;
                self.found.clear();
                mpsc::channel(1).1
            }
        }
    }

    /// The loops so far go on until the new job knows its targets.
    fn retire(&mut self) {
        for (id, hash) in self.hashes.drain() {
            if let Some(handle) = self.handles.remove(&hash) {
                self.workshop.shown.remove(hash);
                self.retired.insert(id, handle);
            }
        }
    }

    /// Starts the discoveries of a job. Its loops begin when they find something.
    fn take_job(&mut self, pool: Pool) -> Findings {
        self.is_ending = false;
        self.workshop = pool.workshop;
        self.held = pool.held;
        self.found = vec![None; pool.discoveries.count()];
        let memory = &self.workshop.limiter.shared.memory;
        pool.discoveries
            .start(&self.workshop.metrics, memory, &self.discovering, &self.tasks)
    }

    fn note(&mut self, source: usize, found: DiscoveredTargets) {
        if let Some(last) = self.found.get_mut(source) {
            *last = Some(found);
        }
    }

    /// Starts loops for new targets, and ends those of vanished ones.
    async fn sync(&mut self) {
        // Until all discoveries have reported, a target that is not found yet may come.
        let is_complete = self.is_ending || self.found.iter().all(Option::is_some);
        let found: Vec<_> = self.found.iter().flatten().cloned().collect();
        let workshop = self.workshop.clone();
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
        for handle in self.retired.values() {
            let replaced = labels.contains(&handle.target.labels);
            if replaced || is_complete {
                handle.send(Order::Leave { replaced });
            }
        }
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
        if self.retired.remove(&id).is_some() {
            return;
        }
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
