// SPDX-License-Identifier: Apache-2.0

//! Fault: kills, pauses, cuts and acts of agents, in an order that depends on a seed only.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use super::Cluster;
use super::broker::Broker;
use super::fleet::AgentAct;
use super::options::Options;
use super::schedule::{CUT, FULL, Fault, PUT_BACK, STOP, Schedule};
use crate::BenchError;

/// The acts of agents that are faults.
const ACTS: [AgentAct; 5] = [
    AgentAct::Restart,
    AgentAct::SetBack,
    AgentAct::Resume,
    AgentAct::Surge,
    AgentAct::Leave,
];

/// The file of all faults.
const LOG: &str = "faults.log";

/// The most time until a killed replica starts again, and a killed server.
const MAX_DOWN: Duration = Duration::from_secs(1);
const MAX_SERVER_DOWN: Duration = Duration::from_secs(3);
/// A pause may be longer than `max_lag` of the replicas.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Without a broker, a replica must have copied its peer before the peer is harmed. So long after a pause it has.
const COPYING: Duration = Duration::from_secs(3);

/// Between two attempts to do something that was not possible.
const RETRY: Duration = Duration::from_secs(1);

/// No fault happens for this long before the store is put back. Replicas have read all that ended runs have stored.
const QUIET: Duration = Duration::from_secs(15);

/// So long after a repair, all replicas have read what the store has.
const REST: Duration = Duration::from_secs(5);

/// Replicas keep their memory for this long after it. They fold ended runs, which only replicas know, after 1 min and the lease
/// at the latest.
const RESTORING: Duration = Duration::from_secs(75);

/// Replicas may show different totals of ended runs for this long after it: 25 s after one of them is ready again.
const DIFFERING: Duration = Duration::from_secs(45);

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    Fault(Fault),
    Act(AgentAct),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repair {
    StartReplica(usize),
    StartServer(usize),
    Continue(usize),
    Reconnect(usize),
    Empty,
}

/// Injects faults.
pub(super) struct FaultInjector {
    random: SmallRng,
    schedule: Schedule,
    /// The faults and repairs, with their times.
    log: File,
    begun: Instant,
    repairs: Vec<(Instant, Repair)>,
    /// The state of the store to which it is put back then.
    earlier: Option<(Instant, TempDir)>,
    /// The store was put back, and replicas may not lose their memory until then.
    restored_at: Option<Instant>,
    /// When something was repaired last.
    repaired_at: Option<Instant>,
    /// The last step, and the time so far in which replicas and servers could have faults: all but that around a `put-back`.
    last_step: Instant,
    pub(super) exposed: Duration,
    /// The number of events of each kind.
    pub(super) counts: BTreeMap<Event, u64>,
}

impl FaultInjector {
    pub(super) fn new(options: &Options, logs: &Path, now: Instant) -> Result<Self, BenchError> {
        let mut random = SmallRng::seed_from_u64(options.seed);
        let schedule = Schedule::new(&options.faults, options.time, now, &mut random);
        Ok(Self {
            random,
            schedule,
            log: File::create(logs.join(LOG))?,
            begun: now,
            repairs: Vec::new(),
            earlier: None,
            restored_at: None,
            repaired_at: None,
            last_step: now,
            exposed: Duration::ZERO,
            // A kind that does not happen has a row.
            counts: options
                .faults
                .iter()
                .filter(|fault| **fault != Fault::Agents)
                .map(|fault| (Event::Fault(*fault), 0))
                .collect(),
        })
    }

    /// Notes a fault or a repair.
    fn note(&mut self, what: &str) -> Result<(), BenchError> {
        let seconds = self.begun.elapsed().as_secs_f64();
        Ok(writeln!(self.log, "{seconds:.1} s: {what}")?)
    }

    /// Injects all faults that are due, and repairs.
    pub(super) fn step(&mut self, cluster: &mut Cluster, now: Instant) -> Result<(), BenchError> {
        self.repair(cluster, |at| at <= now)?;
        self.put_back(cluster, now)?;
        if self.may_inject(Fault::KillReplica, now) {
            self.exposed += now.saturating_duration_since(self.last_step);
        }
        self.last_step = now;
        for fault in self.schedule.take(now, &mut self.random) {
            let has_happened = self.may_inject(fault, now) && self.inject(fault, cluster)?;
            if has_happened {
                self.note(&format!("{} has happened", fault.name()))?;
            }
            match fault {
                Fault::Agents => {}
                // A server that takes long to start would have its next fault at once.
                Fault::KillServer | Fault::Fill if !has_happened => {}
                fault if !has_happened => self.schedule.retry(fault, now + RETRY),
                // It is counted later.
                Fault::PutBack => {}
                fault => self.count(Event::Fault(fault)),
            }
        }
        Ok(())
    }

    /// Repairs everything, and waits until replicas may lose their memory.
    pub(super) fn end(&mut self, cluster: &mut Cluster) -> Result<(), BenchError> {
        self.earlier = None;
        while !self.repairs.is_empty() {
            self.repair(cluster, |_| true)?;
            cluster.step()?;
        }
        while self.is_restoring(Instant::now()) {
            cluster.step()?;
        }
        Ok(())
    }

    /// Nothing happens before the store is put back. After that, only agents act for some time.
    fn may_inject(&self, fault: Fault, now: Instant) -> bool {
        let is_quiet = self.earlier.as_ref().is_some_and(|(due, _)| now + QUIET >= *due);
        !is_quiet && (fault == Fault::Agents || !self.is_restoring(now))
    }

    fn is_restoring(&self, now: Instant) -> bool {
        self.restored_at.is_some_and(|at| now < at)
    }

    fn repair(&mut self, cluster: &mut Cluster, is_due: impl Fn(Instant) -> bool) -> Result<(), BenchError> {
        let repairs: Vec<_> = self.repairs.extract_if(.., |(at, _)| is_due(*at)).collect();
        if !repairs.is_empty() {
            self.repaired_at = Some(Instant::now());
        }
        for (_, repair) in repairs {
            self.note(&format!("{repair:?}"))?;
            match repair {
                Repair::StartReplica(number) => cluster.replicas[number].start()?,
                Repair::StartServer(number) => cluster.brokers[number].start()?,
                Repair::Continue(number) => {
                    cluster.replicas[number].member.pause(false)?;
                    self.wait_for_copies(cluster);
                }
                Repair::Reconnect(number) => {
                    cluster.cut(number, false)?;
                    cluster.replicas[number].note_server();
                    self.wait_for_copies(cluster);
                }
                Repair::Empty => {
                    // It may not answer in this moment.
                    if cluster.brokers.iter_mut().any(|broker| broker.empty().is_err()) {
                        self.repairs.push((Instant::now() + RETRY, Repair::Empty));
                    }
                }
            }
        }
        Ok(())
    }

    fn wait_for_copies(&mut self, cluster: &Cluster) {
        if !cluster.has_broker() {
            self.schedule.delay(Instant::now() + COPYING);
        }
    }

    /// Repairs something within a time.
    fn repair_within(&mut self, most: Duration, repair: Repair) {
        let wait = most.mul_f64(self.random.random());
        self.repairs.push((Instant::now() + wait, repair));
    }

    /// Repairs something between two times.
    fn repair_between(&mut self, [least, most]: [Duration; 2], repair: Repair) {
        let wait = least + (most - least).mul_f64(self.random.random());
        self.repairs.push((Instant::now() + wait, repair));
    }

    /// Puts the store back if that is due, and all replicas have everything.
    fn put_back(&mut self, cluster: &mut Cluster, now: Instant) -> Result<(), BenchError> {
        let is_rested = self.repaired_at.is_none_or(|at| now >= at + REST);
        let may = is_rested && self.repairs.is_empty() && cluster.is_whole();
        if let Some((_, earlier)) = self.earlier.take_if(|(due, _)| may && *due <= now)
            && let Some(broker) = cluster.only_broker()
        {
            broker.put_back(earlier.path())?;
            self.restored_at = Some(now + RESTORING);
            cluster.fleet.model.lock().differ_until = Some(Instant::now() + DIFFERING);
            for replica in &mut cluster.replicas {
                replica.note_server();
                replica.expect_losses();
            }
            self.count(Event::Fault(Fault::PutBack));
            self.note("the store is put back")?;
        }
        Ok(())
    }

    /// Injects a fault. `false`: the cluster must not have it now.
    fn inject(&mut self, fault: Fault, cluster: &mut Cluster) -> Result<bool, BenchError> {
        match fault {
            Fault::KillReplica | Fault::PauseReplica | Fault::StopReplica | Fault::Cut => {
                self.harm(fault, cluster)
            }
            Fault::KillServer => Ok(self.kill_server(cluster)),
            Fault::Fill => self.fill(cluster),
            Fault::PutBack => self.keep_state(cluster),
            Fault::Agents => {
                let act = ACTS[self.random.random_range(0..ACTS.len())];
                let agent = self.random.random_range(0..cluster.fleet.len());
                let has_happened = cluster.fleet.act(agent, act);
                if has_happened {
                    self.count(Event::Act(act));
                }
                Ok(has_happened)
            }
        }
    }

    /// A replica that may have the fault now, from a random one on.
    fn target(&mut self, fault: Fault, cluster: &Cluster) -> Option<usize> {
        let count = cluster.replicas.len();
        let first = self.random.random_range(0..count);
        let mut replicas = (first..first + count).map(|number| number % count);
        replicas.find(|number| {
            let may = match fault {
                Fault::Cut => !cluster.is_cut(*number),
                _ => cluster.replicas[*number].member.runs(),
            };
            may && cluster.may_harm(*number)
        })
    }

    /// Kills, suspends or cuts off a replica.
    fn harm(&mut self, fault: Fault, cluster: &mut Cluster) -> Result<bool, BenchError> {
        let Some(number) = self.target(fault, cluster) else {
            return Ok(false);
        };
        self.note(&format!("{} of replica-{number}", fault.name()))?;
        match fault {
            Fault::Cut => {
                cluster.cut(number, true)?;
                self.repair_between(CUT, Repair::Reconnect(number));
            }
            Fault::PauseReplica => {
                cluster.replicas[number].member.pause(true)?;
                self.repair_within(MAX_PAUSE, Repair::Continue(number));
            }
            Fault::StopReplica => {
                cluster.replicas[number].member.pause(true)?;
                self.repair_between([STOP, STOP], Repair::Continue(number));
            }
            _ => {
                cluster.replicas[number].kill(&cluster.violations);
                self.repair_within(MAX_DOWN, Repair::StartReplica(number));
            }
        }
        Ok(true)
    }

    fn kill_server(&mut self, cluster: &mut Cluster) -> bool {
        // Of several servers, a minority may be down. One with a full disk does not start.
        let may = cluster.has_broker() && !self.is_full() && cluster.brokers.iter().all(Broker::is_ready);
        if may {
            let number = self.random.random_range(0..cluster.brokers.len());
            cluster.brokers[number].kill();
            self.repair_within(MAX_SERVER_DOWN, Repair::StartServer(number));
        }
        may
    }

    /// Whether the store is full.
    fn is_full(&self) -> bool {
        self.repairs.iter().any(|(_, repair)| *repair == Repair::Empty)
    }

    fn fill(&mut self, cluster: &mut Cluster) -> Result<bool, BenchError> {
        let may = !self.is_full() && self.earlier.is_none();
        match cluster.only_broker() {
            Some(broker) if may => {
                broker.fill()?;
                self.repair_between(FULL, Repair::Empty);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Keeps the state of the store, to which it is put back later.
    fn keep_state(&mut self, cluster: &mut Cluster) -> Result<bool, BenchError> {
        let now = Instant::now();
        let may = self.earlier.is_none() && !self.is_full();
        match cluster.only_broker() {
            Some(broker) if may => {
                self.earlier = Some((now + PUT_BACK, broker.keep_state()?));
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn count(&mut self, event: Event) {
        *self.counts.entry(event).or_default() += 1;
    }
}
