// SPDX-License-Identifier: Apache-2.0

//! The kinds of faults, and their times. Both depend on the seed only.

use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::SmallRng;

use super::options::EngineChoice;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    KillReplica,
    KillServer,
    /// A replica is suspended for a time that may be longer than `max_lag`.
    PauseReplica,
    /// A replica is suspended for [`STOP`].
    StopReplica,
    /// The network between a replica and the store loses everything.
    Cut,
    /// The store is full.
    Fill,
    /// The store loses what it stored in the last [`PUT_BACK`].
    PutBack,
    /// An agent restarts, leaves or has two runs.
    Agents,
}

/// The least and the most time of a cut, and of a full store.
pub(super) const CUT: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(15)];
pub(super) const FULL: [Duration; 2] = [Duration::from_secs(4), Duration::from_secs(10)];

/// The time of a stop, and the age of the state to which a store is put back.
pub(super) const STOP: Duration = Duration::from_secs(30);
pub(super) const PUT_BACK: Duration = Duration::from_secs(30);

/// The first time at which a store is put back to an earlier state is in the second half of a run, or of this time.
const FIRST_PUT_BACK: Duration = Duration::from_mins(5);

impl Fault {
    pub(super) const ALL: [Self; 8] = [
        Self::KillReplica,
        Self::KillServer,
        Self::PauseReplica,
        Self::StopReplica,
        Self::Cut,
        Self::Fill,
        Self::PutBack,
        Self::Agents,
    ];

    /// The faults of an engine. A Kafka broker has no limit but its disk, which gets full in namespaces only. It promises nothing of
    /// one copy that it loses. A disk is that of one server, so several NATS servers do not have its faults.
    pub(super) fn of(engine: &EngineChoice, servers: usize, namespaces: bool) -> Vec<Self> {
        let mut faults = Self::ALL.to_vec();
        faults.retain(|fault| match engine {
            EngineChoice::Nats(_) => servers == 1 || !matches!(fault, Self::Fill | Self::PutBack),
            EngineChoice::Kafka(_) => match fault {
                Self::Fill => namespaces,
                Self::PutBack => false,
                _ => true,
            },
            EngineChoice::Direct => !matches!(fault, Self::Fill | Self::PutBack | Self::KillServer),
        });
        faults
    }

    /// Its name as an option.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::KillReplica => "kill",
            Self::KillServer => "server",
            Self::PauseReplica => "pause",
            Self::StopReplica => "stop",
            Self::Cut => "cut",
            Self::Fill => "full",
            Self::PutBack => "put-back",
            Self::Agents => "agents",
        }
    }

    /// The mean time between two faults of the kind.
    fn mean(self) -> Duration {
        Duration::from_secs(match self {
            Self::KillReplica => 5,
            Self::KillServer => 20,
            Self::PauseReplica => 25,
            Self::StopReplica | Self::Cut | Self::Fill => 40,
            Self::PutBack => 300,
            Self::Agents => 1,
        })
    }
}

/// The next time of each kind.
pub(super) struct Schedule {
    /// The time with faults.
    time: Duration,
    due: Vec<(Fault, Instant)>,
}

impl Schedule {
    pub(super) fn new(faults: &[Fault], time: Duration, now: Instant, random: &mut SmallRng) -> Self {
        let mut schedule = Self {
            time,
            due: Vec::new(),
        };
        for fault in faults {
            let wait = match fault {
                Fault::PutBack => schedule.first_put_back(random),
                // A run that is not much longer than a stop has hardly another fault.
                Fault::StopReplica if time < STOP * 2 => None,
                fault => Some(schedule.wait(*fault, random)),
            };
            schedule.due.extend(wait.map(|wait| (*fault, now + wait)));
        }
        schedule
    }

    /// When the state is taken to which the store is put back. A short run has none.
    fn first_put_back(&self, random: &mut SmallRng) -> Option<Duration> {
        let at = self
            .time
            .min(FIRST_PUT_BACK)
            .mul_f64(random.random_range(0.6..0.75));
        at.checked_sub(PUT_BACK)
    }

    /// The time until the next fault of a kind: between half and one and a half of its mean. A short run has each kind.
    fn wait(&self, fault: Fault, random: &mut SmallRng) -> Duration {
        let most = self.time / 3;
        fault.mean().min(most).mul_f64(random.random_range(0.5..1.5))
    }

    /// The faults that are due. Each gets its next time.
    pub(super) fn take(&mut self, now: Instant, random: &mut SmallRng) -> Vec<Fault> {
        let mut taken = Vec::new();
        for index in 0..self.due.len() {
            let (fault, at) = self.due[index];
            if at <= now {
                self.due[index].1 = now + self.wait(fault, random);
                taken.push(fault);
            }
        }
        taken
    }

    /// A fault was not possible. It is due again then.
    pub(super) fn retry(&mut self, fault: Fault, at: Instant) {
        let due = self.due.iter_mut().filter(|(kind, _)| *kind == fault);
        due.for_each(|(_, next)| *next = at);
    }

    /// Nothing happens before this time.
    pub(super) fn delay(&mut self, soonest: Instant) {
        self.due.iter_mut().for_each(|(_, at)| *at = soonest.max(*at));
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_run_of_two_minutes_has_each_kind_of_fault() {
        for seed in 0..50 {
            let mut random = SmallRng::seed_from_u64(seed);
            let (time, begun) = (Duration::from_mins(2), Instant::now());
            let mut schedule = Schedule::new(&Fault::ALL, time, begun, &mut random);
            let mut taken: Vec<_> = (0..120)
                .flat_map(|second| schedule.take(begun + Duration::from_secs(second), &mut random))
                .collect();
            taken.sort();
            taken.dedup();
            assert_eq!(taken, Fault::ALL, "seed {seed}");
        }
    }

    #[test]
    fn a_short_run_has_no_long_faults() {
        let mut random = SmallRng::seed_from_u64(1);
        let time = Duration::from_secs(20);
        let schedule = Schedule::new(
            &[Fault::PutBack, Fault::StopReplica, Fault::Cut],
            time,
            Instant::now(),
            &mut random,
        );
        assert_eq!(schedule.due.len(), 1);
    }
}
