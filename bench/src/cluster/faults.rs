// SPDX-License-Identifier: Apache-2.0

//! Fault: kills, pauses and acts of agents, in an order that depends on a seed only.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::Cluster;
use super::fleet::AgentAct;
use crate::BenchError;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    KillReplica,
    KillServer,
    PauseReplica,
    Agent(AgentAct),
}

/// The acts of agents that are faults.
const ACTS: [AgentAct; 5] = [
    AgentAct::Restart,
    AgentAct::SetBack,
    AgentAct::Resume,
    AgentAct::Surge,
    AgentAct::Leave,
];

/// The mean times between two faults of a kind. Each time is between half and one and a half of it.
const KILLED_REPLICA: Duration = Duration::from_secs(5);
const KILLED_SERVER: Duration = Duration::from_secs(20);
const PAUSED_REPLICA: Duration = Duration::from_secs(25);
const ACT: Duration = Duration::from_secs(1);

/// The most time until a killed replica starts again, and a killed server.
const MAX_DOWN: Duration = Duration::from_secs(1);
const MAX_SERVER_DOWN: Duration = Duration::from_secs(3);
/// A pause may be longer than `max_lag` of the replicas.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Without a broker, a replica must have copied its peer before the peer is harmed. So long after a pause it has.
const COPYING: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug)]
enum Repair {
    StartReplica(usize),
    StartServer,
    Continue(usize),
}

/// Injects faults.
pub(super) struct FaultInjector {
    random: SmallRng,
    due: Vec<(Fault, Instant)>,
    repairs: Vec<(Instant, Repair)>,
    /// The number of faults of each kind.
    pub(super) counts: BTreeMap<Fault, u64>,
}

impl FaultInjector {
    pub(super) fn new(seed: u64, now: Instant) -> Self {
        let kinds = [
            Fault::KillReplica,
            Fault::KillServer,
            Fault::PauseReplica,
            Fault::Agent(AgentAct::Restart),
        ];
        let mut injector = Self {
            random: SmallRng::seed_from_u64(seed),
            due: Vec::new(),
            repairs: Vec::new(),
            counts: BTreeMap::new(),
        };
        injector.due = kinds.map(|kind| (kind, now + injector.pause(kind))).into();
        injector
    }

    /// The time until the next fault of a kind.
    fn pause(&mut self, kind: Fault) -> Duration {
        let mean = match kind {
            Fault::KillReplica => KILLED_REPLICA,
            Fault::KillServer => KILLED_SERVER,
            Fault::PauseReplica => PAUSED_REPLICA,
            Fault::Agent(_) => ACT,
        };
        mean.mul_f64(self.random.random_range(0.5..1.5))
    }

    /// Injects all faults that are due, and repairs.
    pub(super) fn step(&mut self, cluster: &mut Cluster, now: Instant) -> Result<(), BenchError> {
        self.repair(cluster, |at| at <= now)?;
        for place in 0..self.due.len() {
            let (kind, at) = self.due[place];
            if at <= now {
                self.due[place].1 = now + self.pause(kind);
                self.inject(kind, cluster)?;
            }
        }
        Ok(())
    }

    /// Repairs everything.
    pub(super) fn end(&mut self, cluster: &mut Cluster) -> Result<(), BenchError> {
        self.repair(cluster, |_| true)
    }

    fn repair(&mut self, cluster: &mut Cluster, is_due: impl Fn(Instant) -> bool) -> Result<(), BenchError> {
        let repairs: Vec<_> = self.repairs.extract_if(.., |(at, _)| is_due(*at)).collect();
        for (_, repair) in repairs {
            match repair {
                Repair::StartReplica(number) => cluster.replicas[number].start()?,
                Repair::StartServer => cluster.start_server()?,
                Repair::Continue(number) => {
                    cluster.replicas[number].member.pause(false)?;
                    if cluster.broker.is_none() {
                        let soonest = Instant::now() + COPYING;
                        self.due.iter_mut().for_each(|(_, at)| *at = soonest.max(*at));
                    }
                }
            }
        }
        Ok(())
    }

    /// Repairs something within a time.
    fn repair_within(&mut self, most: Duration, repair: Repair) {
        let wait = most.mul_f64(self.random.random());
        self.repairs.push((Instant::now() + wait, repair));
    }

    fn inject(&mut self, kind: Fault, cluster: &mut Cluster) -> Result<(), BenchError> {
        let number = self.random.random_range(0..cluster.replicas.len());
        let has_happened = match kind {
            Fault::KillReplica if cluster.may_harm(number) => {
                cluster.replicas[number].kill(&cluster.violations);
                // A replica that is killed in its pause does not continue.
                self.repairs
                    .retain(|(_, repair)| !matches!(repair, Repair::Continue(one) if *one == number));
                self.repair_within(MAX_DOWN, Repair::StartReplica(number));
                true
            }
            Fault::PauseReplica if cluster.may_harm(number) && cluster.replicas[number].member.runs() => {
                cluster.replicas[number].member.pause(true)?;
                self.repair_within(MAX_PAUSE, Repair::Continue(number));
                true
            }
            Fault::KillServer => match &mut cluster.broker {
                Some(broker) if broker.member.is_alive() => {
                    broker.member.kill();
                    self.repair_within(MAX_SERVER_DOWN, Repair::StartServer);
                    true
                }
                _ => false,
            },
            Fault::Agent(_) => {
                let act = ACTS[self.random.random_range(0..ACTS.len())];
                let place = self.random.random_range(0..cluster.fleet.len());
                self.count(Fault::Agent(act), cluster.fleet.act(place, act));
                return Ok(());
            }
            _ => false,
        };
        self.count(kind, has_happened);
        Ok(())
    }

    fn count(&mut self, kind: Fault, has_happened: bool) {
        *self.counts.entry(kind).or_default() += u64::from(has_happened);
    }
}
