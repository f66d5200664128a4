// SPDX-License-Identifier: Apache-2.0

//! All agents: a task for each, on one thread.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle as Thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidegate_cluster::ClusterEngine;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::agent::{AgentRun, Order, RunCounts, RunEnd, RunSetup};
use super::check::Violations;
use super::model::Model;
use super::options::Options;
use super::schedule::Fault;
use super::store::Store;
use crate::BenchError;

/// The agents that share a connection.
const AGENTS_A_CONNECTION: usize = 50;

/// Acts that wait at an agent. Further ones do not happen.
const MAX_ACTS: usize = 2;

/// Two runs of an agent live side by side for this long.
const SURGE: Duration = Duration::from_secs(5);

/// The largest step of a clock, in nanoseconds (1 h).
const MAX_STEP_NS: i64 = 3_600_000_000_000;

/// The events of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AgentAct {
    /// A new run counts from 0.
    Restart,
    /// A new run counts from 0, and its clock is behind that of the last one.
    SetBack,
    /// A new run continues the totals of one that was killed in the middle of its work.
    Resume,
    /// A new run begins before the old one ends.
    Surge,
    /// The agent leaves, and one with another name comes.
    Leave,
    /// It counts nothing more.
    Freeze,
    /// It publishes its last pages and ends.
    End,
}

/// The agents.
pub(super) struct Fleet {
    pub(super) model: Arc<Mutex<Model>>,
    acts: Vec<mpsc::Sender<AgentAct>>,
    /// Agents that are frozen or have ended.
    done: Receiver<()>,
    engines: Vec<Arc<dyn ClusterEngine>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<Thread<()>>,
}

impl Fleet {
    pub(super) fn start(
        agents: usize,
        store: &Store,
        options: &Options,
        violations: &Violations,
    ) -> Result<Self, BenchError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let entered = runtime.enter();
        let connections = (0..agents.div_ceil(AGENTS_A_CONNECTION)).map(|_| store.connect());
        let engines = connections.collect::<Result<Vec<_>, _>>()?;
        let model = Arc::new(Mutex::new(Model::new()));
        let (sender, done) = sync_channel(agents);
        let loses_claims = options.faults.contains(&Fault::PutBack);
        let acts = (0..agents).map(|place| {
            let (acts, receiver) = mpsc::channel(MAX_ACTS);
            let agent = Agent {
                place,
                successors: 0,
                skew: 0,
                interval: options.interval,
                updates: options.updates,
                loses_claims,
                random: SmallRng::seed_from_u64(options.seed ^ ((place as u64 + 1) << 32)),
                engine: engines[place / AGENTS_A_CONNECTION].clone(),
                model: model.clone(),
                done: sender.clone(),
            };
            let violations = violations.clone();
            runtime.spawn(async move {
                if let Err(error) = agent.run(receiver).await {
                    violations.add(format!("agent {place}: {error}"));
                }
            });
            acts
        });
        let acts = acts.collect();
        drop(entered);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            // It stops when the other half is dropped, too.
            let _ = runtime.block_on(stopped);
        });
        Ok(Self {
            model,
            acts,
            done,
            engines,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.acts.len()
    }

    /// An agent acts. `false`: it has not done its last acts yet.
    pub(super) fn act(&self, place: usize, act: AgentAct) -> bool {
        self.acts[place].try_send(act).is_ok()
    }

    /// All agents act, after their other acts. Gives the number of those that are not done at the deadline.
    pub(super) fn all(&self, act: AgentAct, patience: Duration) -> usize {
        // An agent that has ended has said why.
        let asked = self
            .acts
            .iter()
            .filter(|acts| acts.blocking_send(act).is_ok())
            .count();
        let deadline = Instant::now() + patience;
        let done = (0..asked).take_while(|_| {
            let rest = deadline.saturating_duration_since(Instant::now());
            self.done.recv_timeout(rest).is_ok()
        });
        self.len() - done.count()
    }

    /// Bytes of pages that were sent, compressed, and connections that were made.
    pub(super) fn sent(&self) -> (u64, u64) {
        let statuses = self.engines.iter().map(|engine| engine.status());
        statuses.fold((0, 0), |(bytes, connections), status| {
            (bytes + status.sent_bytes, connections + status.connections)
        })
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic of it is printed.
            let _ = thread.join();
        }
    }
}

/// The place of an agent. After an agent has left, another one has it.
struct Agent {
    place: usize,
    /// The number of agents that left this place.
    successors: u32,
    skew: i64,
    interval: Duration,
    updates: Duration,
    /// Whether the store may lose the claim of a run.
    loses_claims: bool,
    random: SmallRng,
    engine: Arc<dyn ClusterEngine>,
    model: Arc<Mutex<Model>>,
    done: SyncSender<()>,
}

/// A run that lives.
struct Running {
    orders: mpsc::Sender<Order>,
    task: JoinHandle<Result<RunCounts, BenchError>>,
}

impl Running {
    async fn end(self, end: RunEnd) -> Result<RunCounts, BenchError> {
        self.orders.send(Order::End(end)).await?;
        self.task.await?
    }
}

impl Agent {
    async fn run(mut self, mut acts: mpsc::Receiver<AgentAct>) -> Result<(), BenchError> {
        let mut running = self.begin(RunCounts::new())?;
        while let Some(act) = acts.recv().await {
            match act {
                AgentAct::End => {
                    running.end(RunEnd::Stopped).await?;
                    self.done.try_send(())?;
                    return Ok(());
                }
                AgentAct::Freeze => {
                    let (reply, frozen) = oneshot::channel();
                    running.orders.send(Order::Freeze(reply)).await?;
                    frozen.await?;
                    self.done.try_send(())?;
                }
                act => running = self.follow(act, running).await?,
            }
        }
        Ok(())
    }

    /// Ends a run and begins the next one.
    async fn follow(&mut self, act: AgentAct, running: Running) -> Result<Running, BenchError> {
        let end = if self.random.random_bool(0.5) {
            RunEnd::Killed
        } else {
            RunEnd::Stopped
        };
        match act {
            // Decision 0031: start times must not stay if a claim is lost and a clock was set back.
            AgentAct::Resume if self.skew == 0 || !self.loses_claims => {
                let counts = running.end(RunEnd::Kept).await?;
                return self.begin(counts);
            }
            AgentAct::Surge => {
                let next = self.begin(RunCounts::new())?;
                tokio::time::sleep(SURGE).await;
                running.end(end).await?;
                return Ok(next);
            }
            AgentAct::SetBack => self.skew -= self.random.random_range(0..MAX_STEP_NS),
            AgentAct::Leave => self.successors += 1,
            _ => {}
        }
        running.end(end).await?;
        self.begin(RunCounts::new())
    }

    fn begin(&mut self, counts: RunCounts) -> Result<Running, BenchError> {
        let setup = RunSetup {
            agent: format!("agent-{}-{}", self.place, self.successors).into(),
            skew: self.skew,
            interval: self.interval,
            updates: self.updates,
            counts,
            random: SmallRng::seed_from_u64(self.random.random()),
        };
        let run = AgentRun::new(setup, self.engine.open(), self.model.clone())?;
        let (orders, receiver) = mpsc::channel(1);
        let task = tokio::spawn(run.run(receiver));
        Ok(Running { orders, task })
    }
}
