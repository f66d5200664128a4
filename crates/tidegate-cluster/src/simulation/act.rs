// SPDX-License-Identifier: Apache-2.0

//! The events of a simulated cluster.

use proptest::prelude::*;

use super::producer::{Fate, SERIES, STREAM};
use super::{PRODUCERS, SECOND, SENDERS, STEP, World};
use crate::Subject;
use crate::testing::ClientId;

/// Which subjects the broker forgets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Forgotten {
    Pages,
    Records,
    Claims,
    /// Another replica becomes the leader, while the old one still believes in its lease.
    Lease,
}

impl Forgotten {
    pub(super) fn has(self, subject: &Subject) -> bool {
        match subject {
            Subject::Page { .. } => matches!(self, Self::Pages),
            Subject::Retained { .. } => matches!(self, Self::Records),
            Subject::Producer(_) | Subject::Partitions | Subject::Deltas => matches!(self, Self::Claims),
            Subject::Leader => matches!(self, Self::Lease),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Producer, series, amount. Of the stream, a sender counts and reports its total to the producer.
    Observe(usize, usize, u32),
    Wait(u64),
    /// Producer, series. Of the stream, a sender restarts.
    Expire(usize, usize),
    /// A second process of the producer begins.
    Surge(usize),
    /// The last process of the producer ends, with a goodbye or without.
    End(usize, bool),
    Restart(usize, bool),
    KillReplica(usize),
    CutOffProducer(usize),
    CutOffReplica(usize),
    ForgetTail(usize),
    ForgetSubjects(Forgotten),
    /// A later act puts the store back to the present state.
    KeepState,
    /// The store is put back to the kept state. Some producers connect to it later than others.
    PutBack,
}

pub(super) fn act() -> impl Strategy<Value = Act> {
    let forgotten = prop_oneof![
        Just(Forgotten::Pages),
        Just(Forgotten::Records),
        Just(Forgotten::Claims),
        Just(Forgotten::Lease),
    ];
    prop_oneof![
        12 => (0..PRODUCERS, 0..SERIES.len(), 1u32..20).prop_map(|(producer, series, amount)| {
            Act::Observe(producer, series, amount)
        }),
        8 => (1u64..60).prop_map(Act::Wait),
        2 => (0..PRODUCERS, 0..SERIES.len()).prop_map(|(producer, series)| Act::Expire(producer, series)),
        1 => (0..PRODUCERS).prop_map(Act::Surge),
        2 => (0..PRODUCERS, any::<bool>()).prop_map(|(producer, stops)| Act::End(producer, stops)),
        2 => (0..PRODUCERS, any::<bool>()).prop_map(|(producer, stops)| Act::Restart(producer, stops)),
        2 => (0usize..2).prop_map(Act::KillReplica),
        1 => (0..PRODUCERS).prop_map(Act::CutOffProducer),
        1 => (0usize..3).prop_map(Act::CutOffReplica),
        1 => (1usize..30).prop_map(Act::ForgetTail),
        2 => forgotten.prop_map(Act::ForgetSubjects),
        2 => Just(Act::KeepState),
        2 => Just(Act::PutBack),
    ]
}

impl World {
    pub(super) fn act(&mut self, act: &Act) {
        let now = self.now;
        match *act {
            Act::Observe(producer, STREAM, amount) => self.report_stream(producer, amount),
            Act::Expire(producer, STREAM) => self.restart_sender(producer % SENDERS),
            Act::Observe(producer, series, amount) => {
                if let Some(process) = self.process(producer) {
                    process.observe(series, amount, now);
                }
            }
            Act::Wait(steps) => self.run_for(steps * STEP),
            Act::Expire(producer, series) => {
                let mut model = std::mem::take(&mut self.model);
                if let Some(process) = self.process(producer) {
                    process.expire(series, now, &mut model);
                }
                self.model = model;
            }
            Act::Surge(producer) => self.start_process(producer),
            Act::End(producer, stops) => self.end(producer, stops),
            Act::Restart(producer, stops) => {
                self.end(producer, stops);
                self.start_process(producer);
            }
            Act::KillReplica(at) => {
                // One replica lives.
                let at = 1 + at % (self.replicas.len() - 1);
                let client = self.replicas.remove(at).client;
                self.broker.forget_client(client);
                self.broker.forget_client(client + 1);
                self.start_replica();
            }
            Act::CutOffProducer(producer) => {
                if let Some(client) = self.process(producer).map(|process| process.client) {
                    self.cut_off(client);
                }
            }
            Act::CutOffReplica(at) => {
                let client = self.replicas[at % self.replicas.len()].client;
                self.cut_off(client);
                self.cut_off(client + 1);
            }
            Act::ForgetTail(operations) if self.is_remembered() => self.broker.forget_tail(operations),
            Act::ForgetSubjects(which) if self.is_remembered() => {
                self.broker.forget_subjects(|subject| which.has(subject));
            }
            Act::KeepState => self.kept = Some(self.broker.operations()),
            Act::PutBack if self.is_remembered() => self.put_back(),
            Act::ForgetTail(_) | Act::ForgetSubjects(_) | Act::PutBack => {}
        }
    }

    /// A sender counts, and reports its total to a producer if that lives.
    fn report_stream(&mut self, producer: usize, amount: u32) {
        let sender = &mut self.senders[amount as usize % SENDERS];
        sender.total += amount;
        let report = *sender;
        if let Some(process) = self.process(producer) {
            process.take_report(report);
        }
    }

    /// Ends the last process of a producer. It ends when the broker has all it said, so that the model knows what counts.
    fn end(&mut self, producer: usize, stops: bool) {
        if let Some(process) = self.process(producer) {
            process.fate = if stops { Fate::Stops } else { Fate::Dies };
        }
        // A process that stops passes on its last values first.
        self.run_for(STEP);
        for process in &mut self.processes {
            if process.fate == Fate::Stops {
                process.sender.stop();
            }
        }
    }

    /// A put-back breaks all connections. Processes may end before they connect again.
    fn put_back(&mut self) {
        // An act that forgets the tail may have removed the kept state.
        let operations = self.broker.operations();
        let Some(kept) = self.kept.take().filter(|kept| *kept <= operations) else {
            return;
        };
        let processes = self.processes.iter().map(|process| process.client);
        let replicas = self.replicas.iter().map(|replica| replica.client);
        let replicas = replicas.flat_map(|client| [client, client + 1]);
        let (processes, replicas): (Vec<_>, Vec<_>) = (processes.collect(), replicas.collect());
        for client in processes.iter().chain(&replicas) {
            self.broker.disconnect(*client);
        }
        self.broker.put_back(kept);
        // Those that were cut off before stay so.
        let cut_off: Vec<_> = self.cut_off.iter().map(|(client, _)| *client).collect();
        for client in replicas.into_iter().filter(|client| !cut_off.contains(client)) {
            self.broker.connect(client);
        }
        let now = self.now;
        for replica in &mut self.replicas {
            replica.leader.reconnected(now);
        }
        for client in processes.into_iter().filter(|client| !cut_off.contains(client)) {
            let after = 1 + self.random.below(8 * SECOND);
            self.cut_off.push((client, now + after));
        }
    }

    fn cut_off(&mut self, client: ClientId) {
        self.broker.disconnect(client);
        self.cut_off.push((client, self.now + 8 * SECOND));
    }
}
