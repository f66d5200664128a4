// SPDX-License-Identifier: Apache-2.0

//! All machines together with a simulated broker: producers restart and overlap, replicas are killed, and the broker loses
//! messages. Time is virtual.

mod act;
mod producer;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_engine::{MergedLimits, UnixNanos, Value};

use self::act::{Act, Forgotten, act};
use self::producer::{Fate, LEVEL, Model, Process, SERIES, STREAM, StreamSender, value};
use crate::testing::{Broker, BrokerFaults, ClientId, SeededRandom};
use crate::{
    ClusterLeader, ClusterStore, LeaderConfig, PageReader, ReaderConfig, ReplicaState, StoreEvent, Subject,
};

const CLUSTER: &str = "simulated";
const PARTITIONS: u16 = 2;
const PRODUCERS: usize = 3;
/// Processes with one identity that report totals to any producer.
const SENDERS: usize = 2;
const SECOND: u64 = 1_000_000_000;
const STEP: u64 = SECOND / 10;
const BEGIN: u64 = 1_700_000_000 * SECOND;

/// Longer than two times the time after which anything is folded, read again or sent again.
const QUIET: u64 = 120 * SECOND;

/// A replica: its reader and its leader are two clients.
struct Replica {
    client: ClientId,
    reader: PageReader,
    leader: ClusterLeader,
    /// The values that it has shown.
    shown: [Option<(UnixNanos, Value)>; LEVEL],
}

impl Replica {
    fn new(client: ClientId) -> Self {
        let merged = MergedLimits {
            lease_ns: 3 * SECOND,
            ..MergedLimits::default()
        };
        let reader = ReaderConfig {
            partitions: PARTITIONS,
            merged,
            expected_for: Duration::from_secs(20),
            ..ReaderConfig::new(CLUSTER)
        };
        let leader = LeaderConfig {
            term: Duration::from_secs(4),
            grace: Duration::from_secs(6),
            fold_after: Duration::from_secs(20),
            reconnect: Duration::from_secs(9),
            audit_interval: Duration::from_secs(15),
            retry: Duration::from_secs(1),
            ..LeaderConfig::new(CLUSTER, &format!("replica {client}"))
        };
        Self {
            client,
            reader: PageReader::new(reader, Vec::new(), &Arc::default()).unwrap(),
            leader: ClusterLeader::new(leader),
            shown: Default::default(),
        }
    }

    /// Start and value of each series.
    fn read(&mut self) -> [Option<(UnixNanos, Value)>; SERIES.len()] {
        let mut shown: [Option<(UnixNanos, Value)>; SERIES.len()] = Default::default();
        self.reader.merged().read(&mut |reading| {
            let name = &*reading.series.metric.name;
            let at = SERIES.iter().position(|known| *known == name).unwrap();
            assert!(shown[at].is_none(), "{name} is there twice");
            shown[at] = Some((reading.start, reading.value.clone()));
        });
        shown
    }

    /// Nothing that is shown falls, and nothing is more than there is.
    fn check(&mut self, now: UnixNanos, model: &Model) {
        if !self.reader.is_ready(now) {
            return;
        }
        let shown = self.read();
        for (at, before) in self.shown.iter_mut().enumerate() {
            let most = model
                .get(&at)
                .map_or(0.0, |total| weight(&value(at, &total.observed)));
            if let Some((_, value)) = &shown[at] {
                assert!(weight(value) <= most, "{}: {value:?}, at most {most}", SERIES[at]);
            }
            if let Some((start, old)) = &*before {
                let Some((now_start, new)) = &shown[at] else {
                    panic!("{} is gone", SERIES[at]);
                };
                assert!(
                    weight(new) >= weight(old),
                    "{}: {old:?}, then {new:?}",
                    SERIES[at]
                );
                assert!(now_start <= start, "the start of {} moved", SERIES[at]);
            }
            before.clone_from(&shown[at]);
        }
    }
}

/// The number, or the number of observations.
fn weight(value: &Value) -> f64 {
    match value {
        Value::Histogram(histogram) => histogram.count as f64,
        value => value.as_f64().unwrap(),
    }
}

struct World {
    now: UnixNanos,
    broker: Broker,
    random: SeededRandom,
    processes: Vec<Process>,
    replicas: Vec<Replica>,
    model: Model,
    senders: Vec<StreamSender>,
    /// The number of lives that senders have had.
    lives: usize,
    clients: ClientId,
    /// Clients without a connection, and when they get one again.
    cut_off: Vec<(ClientId, UnixNanos)>,
    /// The number of operations in the state of the broker that was kept.
    kept: Option<usize>,
}

impl World {
    fn new(seed: u64, replicas: usize) -> Self {
        let mut world = Self {
            now: BEGIN,
            broker: Broker::new(CLUSTER, seed),
            random: SeededRandom::new(!seed),
            processes: Vec::new(),
            replicas: Vec::new(),
            model: Model::new(),
            senders: Vec::new(),
            lives: 0,
            clients: 0,
            cut_off: Vec::new(),
            kept: None,
        };
        for _ in 0..SENDERS {
            let sender = world.new_sender();
            world.senders.push(sender);
        }
        (0..PRODUCERS).for_each(|producer| world.start_process(producer));
        (0..replicas).for_each(|_| world.start_replica());
        world
    }

    /// A new life of a sender. Its clock goes its own way.
    fn new_sender(&mut self) -> StreamSender {
        let life = self.lives;
        self.lives += 1;
        let start = self.now - self.random.below(100 * SECOND) * 64 + life as u64;
        StreamSender {
            life,
            start,
            total: 0,
        }
    }

    fn restart_sender(&mut self, at: usize) {
        self.senders[at] = self.new_sender();
    }

    /// Two numbers: the second is that of the leader of a replica.
    fn new_client(&mut self) -> ClientId {
        self.clients += 2;
        self.clients
    }

    /// Starts a process of a producer. Its clock may be behind that of an earlier one.
    fn start_process(&mut self, producer: usize) {
        let client = self.new_client();
        let skew = self.random.below(4 * SECOND) as i64 - 2 * SECOND as i64;
        let nonce = self.random.number() as u32;
        self.processes.push(Process::new(client, producer, skew, nonce));
    }

    fn start_replica(&mut self) {
        let client = self.new_client();
        self.replicas.push(Replica::new(client));
    }

    /// The last process of a producer that lives.
    fn process(&mut self, producer: usize) -> Option<&mut Process> {
        let lives = |process: &&mut Process| process.producer == producer && process.fate == Fate::Lives;
        self.processes.iter_mut().rfind(lives)
    }

    fn run_for(&mut self, time: u64) {
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.now;
        let cut_off = std::mem::take(&mut self.cut_off).into_iter();
        let (over, rest): (Vec<_>, Vec<_>) = cut_off.partition(|(_, until)| *until <= now);
        self.cut_off = rest;
        for (client, _) in over {
            self.broker.connect(client);
            let process = self.processes.iter_mut().find(|process| process.client == client);
            if let Some(process) = process {
                let clock = process.clock(now);
                process.sender.reconnected(clock);
            }
        }
        self.broker.advance(now);
        for process in &mut self.processes {
            process.update_if_due(now, &mut self.model);
        }
        for (client, event) in self.broker.due() {
            self.dispatch(client, event);
        }
        self.poll();
        self.end_processes();
        if now.is_multiple_of(SECOND) {
            self.replicas
                .iter_mut()
                .for_each(|replica| replica.reader.tick(now));
        }
        for replica in &mut self.replicas {
            replica.check(now, &self.model);
        }
    }

    fn dispatch(&mut self, client: ClientId, event: StoreEvent) {
        let now = self.now;
        if let Some(process) = self.processes.iter_mut().find(|process| process.client == client) {
            if let StoreEvent::Done(id, result) = event {
                let clock = process.clock(now);
                process.sender.answer(id, result, clock);
            }
            return;
        }
        for replica in &mut self.replicas {
            if replica.client == client {
                return replica.reader.event(event, now);
            }
            if replica.client + 1 == client {
                return replica.leader.event(event, &mut replica.reader, now);
            }
        }
    }

    fn poll(&mut self) {
        let now = self.now;
        for process in &mut self.processes {
            let clock = process.clock(now);
            while let Some((id, call)) = process.sender.poll(clock) {
                self.broker.client(process.client).start(id, call);
            }
        }
        for replica in &mut self.replicas {
            while let Some((id, call)) = replica.reader.poll() {
                self.broker.client(replica.client).start(id, call);
            }
            while let Some((id, call)) = replica.leader.poll(&mut replica.reader, now) {
                self.broker.client(replica.client + 1).start(id, call);
            }
        }
    }

    /// Removes the processes that have come to their end.
    fn end_processes(&mut self) {
        let broker = &mut self.broker;
        self.processes.retain(|process| {
            let is_over = match process.fate {
                Fate::Lives => false,
                Fate::Dies => process.is_settled(),
                Fate::Stops => process.sender.is_finished(),
            };
            if is_over {
                broker.forget_client(process.client);
            }
            !is_over
        });
    }

    /// Whether the first replica, which is never killed, knows all that the broker has.
    fn is_remembered(&self) -> bool {
        self.broker.has_all(self.replicas[0].client)
    }

    /// The replicas show the values of the model, to the bit, and miss no producer.
    fn assert_equal(&mut self) {
        let mut expected: [Option<(UnixNanos, Value)>; SERIES.len()] = Default::default();
        for (at, total) in &self.model {
            expected[*at] = Some((total.start, value(*at, &total.observed)));
        }
        let levels = self.processes.iter().filter_map(|process| process.level);
        let level = levels.reduce(|sum, level| sum + level);
        let producers: BTreeSet<_> = self.processes.iter().map(|process| process.producer).collect();
        for replica in &mut self.replicas {
            let status = replica.reader.status(self.now);
            assert_eq!(status.state, ReplicaState::Fresh, "replica {}", replica.client);
            assert_eq!(
                (status.reporting, status.expected),
                (producers.len(), producers.len())
            );
            let mut shown = replica.read();
            let shown_level = shown[LEVEL].take().map(|(_, value)| value);
            assert_eq!(shown_level, level.map(Value::Int), "replica {}", replica.client);
            assert_eq!(shown, expected, "replica {}", replica.client);
        }
    }

    /// All ended runs are folded: the broker has the pages of living processes only.
    fn assert_folded(&self) {
        let processes = self.processes.iter();
        let living: BTreeSet<_> = processes.filter_map(|process| process.sender.run()).collect();
        for stored in self.broker.messages() {
            if let Some(Subject::Page { run, .. }) = Subject::parse(CLUSTER, &stored.message.subject) {
                assert!(living.contains(&run), "a page of the ended run {run:?}");
            }
        }
    }

    fn records_stored(&self) -> u64 {
        self.replicas
            .iter()
            .map(|replica| replica.leader.stats().stored)
            .sum()
    }
}

/// A history, and then quiet.
fn simulate(seed: u64, replicas: usize, faults: BrokerFaults, acts: &[Act]) {
    let mut world = World::new(seed, replicas);
    world.broker.faults = faults;
    world.run_for(3 * SECOND);
    acts.iter().for_each(|act| world.act(act));
    world.broker.faults = BrokerFaults {
        max_delay: faults.max_delay,
        ..BrokerFaults::default()
    };
    world.run_for(QUIET);
    assert!(world.processes.iter().all(|process| process.fate == Fate::Lives));
    // A replica that has not seen any of it.
    world.start_replica();
    let stored = world.records_stored();
    world.run_for(15 * SECOND);
    world.assert_equal();
    world.assert_folded();
    assert_eq!(world.records_stored(), stored, "the records are at rest");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn replicas_never_fall_and_equal_the_model_at_rest(
        seed in any::<u64>(),
        replicas in 2usize..=3,
        (lost_requests, lost_answers, repeated) in (0u64..200, 0u64..200, 0u64..300),
        max_delay in 1..(7 * SECOND / 10),
        acts in prop::collection::vec(act(), 0..40),
    ) {
        let faults = BrokerFaults { lost_requests, lost_answers, repeated, max_delay };
        simulate(seed, replicas, faults, &acts);
    }
}

#[test]
fn a_surge_counts_both_runs_and_a_goodbye_folds_one() {
    let acts = [
        Act::Observe(0, 0, 5),
        Act::Surge(0),
        Act::Observe(0, 0, 7),
        Act::Wait(30),
        Act::End(0, true),
        Act::Wait(200),
    ];
    simulate(1, 2, BrokerFaults::default(), &acts);
}

#[test]
fn a_sender_that_changes_producers_counts_once_over_their_ends() {
    // The first sender goes to another producer and ends there. Both producers end after it.
    let acts = [
        Act::Observe(0, STREAM, 10),
        Act::Wait(30),
        Act::Observe(1, STREAM, 4),
        Act::Wait(30),
        Act::Restart(0, true),
        Act::Expire(0, STREAM),
        Act::Restart(1, false),
        Act::Wait(300),
        Act::Observe(2, STREAM, 6),
        Act::Wait(30),
    ];
    simulate(3, 2, BrokerFaults::default(), &acts);
}

#[test]
fn a_level_goes_when_its_run_ends_or_its_series_expires() {
    let acts = [
        Act::Observe(0, LEVEL, 5),
        Act::Observe(1, LEVEL, 3),
        Act::Observe(2, LEVEL, 4),
        Act::Wait(30),
        Act::End(0, false),
        Act::Expire(1, LEVEL),
        Act::Wait(30),
    ];
    simulate(2, 2, BrokerFaults::default(), &acts);
}

#[test]
fn totals_of_runs_that_end_around_a_put_back_come_back() {
    for stops in [false, true] {
        let mut world = World::new(4, 2);
        world.run_for(3 * SECOND);
        for act in [
            Act::Observe(0, 0, 5),
            Act::Observe(1, 0, 4),
            Act::Wait(30),
            Act::KeepState,
            Act::CutOffReplica(1),
            Act::Observe(0, 0, 7),
            Act::Observe(1, 0, 6),
            Act::Wait(20),
            Act::End(0, stops),
            Act::Wait(10),
        ] {
            world.act(&act);
        }
        while !world.is_remembered() {
            world.run_for(STEP);
        }
        world.act(&Act::PutBack);
        assert_eq!(world.kept, None, "it has happened");
        // The other run ends before it connects again.
        world.act(&Act::End(1, stops));
        world.run_for(45 * SECOND);
        // A replica that knows only what the store has.
        world.act(&Act::KillReplica(0));
        world.run_for(5 * SECOND);
        world.assert_equal();
    }
}

#[test]
fn records_that_the_broker_forgets_come_back() {
    let mut world = World::new(1, 2);
    for act in [
        Act::Observe(0, 0, 5),
        Act::Wait(30),
        Act::End(0, false),
        Act::Wait(400),
    ] {
        world.act(&act);
    }
    let forgotten = Forgotten::Records;
    world.broker.forget_subjects(|subject| forgotten.has(subject));
    world.run_for(40 * SECOND);
    let restored = world
        .replicas
        .iter()
        .map(|replica| replica.leader.stats().restored);
    assert!(restored.sum::<u64>() > 0);
    world.act(&Act::KillReplica(0));
    world.run_for(5 * SECOND);
    world.assert_equal();
    let records = world
        .broker
        .messages()
        .filter(|stored| stored.message.subject.contains(".r."));
    assert_eq!(records.count(), 1);
}
