// SPDX-License-Identifier: Apache-2.0

use std::sync::Arc;

use tidegate_engine::{Attributes, MergeMode, Series, StreamTotal, Value};

use super::*;
use crate::name::StreamProducer;
use crate::testing::{Broker, COUNTER, series};
use crate::{ClusterStore, PageHeaders, PageKind, PageWriter, ReaderConfig, StoreMessage};

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_700_000_000 * SECOND;

/// A broker and replicas. The reader of replica `n` is client `2 n`, and its leader is the next one.
struct Cluster {
    now: UnixNanos,
    broker: Broker,
    replicas: Vec<(PageReader, ClusterLeader)>,
}

impl Cluster {
    fn new(replicas: usize) -> Self {
        let replica = |number: usize| {
            let reader = PageReader::new(ReaderConfig::new("c"), Vec::new(), &Arc::default());
            let leader = ClusterLeader::new(LeaderConfig::new("c", &format!("replica {number}")));
            (reader.unwrap(), leader)
        };
        let mut broker = Broker::new("c", 1);
        broker.advance(NOW);
        Self {
            now: NOW,
            broker,
            replicas: (0..replicas).map(replica).collect(),
        }
    }

    fn run_for(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += SECOND;
            let now = self.now;
            self.broker.advance(now);
            for (client, event) in self.broker.due() {
                let (reader, leader) = &mut self.replicas[client as usize / 2];
                if client.is_multiple_of(2) {
                    reader.event(event, now);
                } else {
                    leader.event(event, reader, now);
                }
            }
            for (number, (reader, leader)) in self.replicas.iter_mut().enumerate() {
                let client = 2 * number as u64;
                while let Some((id, call)) = reader.poll() {
                    self.broker.client(client).start(id, call);
                }
                while let Some((id, call)) = leader.poll(reader, now) {
                    self.broker.client(client + 1).start(id, call);
                }
            }
        }
    }

    /// A message of a run of `node`, with this total of a series that began with the run.
    fn publish(&mut self, epoch: u64, page: u32, kind: PageKind, sequence: u64, total: i64) {
        let producer = ProducerName::new("node").unwrap();
        let mut writer = PageWriter::new(&producer);
        if kind == PageKind::Page {
            let times = (epoch, epoch + 1);
            writer.value(&series("x", COUNTER), MergeMode::Add, times, Value::Int(total));
        }
        self.put(&producer, epoch, page, kind, sequence, writer);
    }

    fn put(
        &mut self,
        producer: &ProducerName,
        epoch: u64,
        page: u32,
        kind: PageKind,
        sequence: u64,
        writer: PageWriter,
    ) {
        let producer = producer.clone();
        let run = RunName { producer, epoch };
        let headers = PageHeaders {
            kind,
            sequence,
            epoch,
            rules: 0,
            interval: Duration::from_secs(1),
        };
        self.broker.put(StoreMessage {
            subject: Subject::Page {
                partition: 0,
                run,
                page,
            }
            .text("c"),
            headers: headers.write(),
            body: writer.finish(),
        });
    }

    /// Puts the broker back to an earlier state, which breaks all connections.
    fn put_back(&mut self, operations: usize) {
        let clients = 2 * self.replicas.len() as u64;
        for client in 0..clients {
            self.broker.disconnect(client);
        }
        self.broker.put_back(operations);
        for client in 0..clients {
            self.broker.connect(client);
        }
        let now = self.now;
        for (_, leader) in &mut self.replicas {
            leader.reconnected(now);
        }
    }

    fn subjects(&self) -> Vec<Subject> {
        let subjects = self.broker.messages().map(|stored| &stored.message.subject);
        let subjects = subjects.map(|text| Subject::parse("c", text).unwrap());
        subjects.filter(|subject| *subject != Subject::Leader).collect()
    }

    /// All replicas show the total, and the store has it in the record only.
    #[track_caller]
    fn assert_folded(&mut self, total: i64) {
        assert_eq!(self.shown(), vec![Some(Value::Int(total)); self.replicas.len()]);
        assert_eq!(self.subjects(), [record()]);
    }

    fn shown(&mut self) -> Vec<Option<Value>> {
        let value = |reader: &mut PageReader| {
            let mut value = None;
            reader
                .merged()
                .read(&mut |reading| value = Some(reading.value.clone()));
            value
        };
        self.replicas
            .iter_mut()
            .map(|(reader, _)| value(reader))
            .collect()
    }

    fn leading(&self) -> Vec<bool> {
        let leaders = self.replicas.iter();
        leaders.map(|(_, leader)| leader.is_leading(self.now)).collect()
    }
}

fn record() -> Subject {
    Subject::Retained {
        partition: 0,
        producer: ProducerName::new("node").unwrap(),
    }
}

#[test]
fn one_replica_leads_and_another_follows_when_it_is_gone() {
    let mut cluster = Cluster::new(2);
    cluster.run_for(5);
    assert_eq!(cluster.leading(), [true, false]);
    cluster.run_for(60);
    assert_eq!(cluster.leading(), [true, false]);
    cluster.broker.disconnect(1);
    cluster.run_for(20);
    assert_eq!(cluster.leading(), [false, true]);
}

#[test]
fn a_leader_that_can_not_read_leaves_the_lease_to_a_ready_replica() {
    let mut cluster = Cluster::new(2);
    cluster.run_for(60);
    assert_eq!(cluster.leading(), [true, false]);
    cluster.broker.disconnect(0);
    cluster.run_for(30);
    assert_eq!(cluster.leading(), [false, true]);
    cluster.broker.connect(0);
    cluster.run_for(60);
    assert_eq!(
        cluster.leading(),
        [false, true],
        "a lease moves only when it ends"
    );
}

#[test]
fn a_replica_that_has_not_caught_up_does_not_lead() {
    let mut cluster = Cluster::new(1);
    cluster.broker.disconnect(0);
    cluster.run_for(30);
    assert_eq!(cluster.leading(), [false]);
    cluster.broker.connect(0);
    cluster.run_for(5);
    assert_eq!(cluster.leading(), [true]);
}

#[test]
fn a_silent_run_becomes_a_record_and_its_pages_go() {
    let mut cluster = Cluster::new(2);
    cluster.publish(5, 1, PageKind::Page, 1, 7);
    cluster.run_for(14 * 60);
    assert_eq!(cluster.subjects().len(), 1);
    cluster.run_for(2 * 60);
    assert_eq!(cluster.subjects(), [record()]);
    cluster.publish(9, 1, PageKind::Page, 1, 3);
    cluster.run_for(20 * 60);
    assert_eq!(cluster.shown(), vec![Some(Value::Int(10)); 2]);
    let (_, leader) = &cluster.replicas[0];
    assert_eq!((leader.stats().stored, leader.stats().purged), (2, 2));
    let (_, follower) = &cluster.replicas[1];
    assert_eq!((follower.stats().stored, follower.stats().failed), (0, 0));
}

#[test]
fn a_large_record_of_streams_stops_only_runs_with_streams() {
    let mut cluster = Cluster::new(1);
    // A gateway reports many streams of one record, which has no room for them.
    let gateway = ProducerName::new("gateway").unwrap();
    let (streams, padding) = (series("streams", COUNTER), "x".repeat(50_000));
    let senders = (0..).map(|sender: u32| Series {
        attributes: Attributes::from_iter([("sender", &*format!("{sender}{padding}"))]),
        ..streams.clone()
    });
    let of_one_record =
        senders.filter(|series| StreamProducer::of(series).name == StreamProducer::all()[0].name);
    for (page, series) in (1..).zip(of_one_record.take(24)) {
        let mut writer = PageWriter::new(&gateway);
        let total = StreamTotal::new(NOW, Value::Int(1)).unwrap();
        writer.stream(&series, NOW, &total);
        cluster.put(&gateway, 2, page, PageKind::Page, 1, writer);
    }
    cluster.run_for(5);
    cluster.publish(1, 1, PageKind::Page, 1, 7);
    cluster.run_for(3600);
    let pages_of = |subjects: &[Subject], name: &str| {
        let is_page = |subject: &&Subject| matches!(subject, Subject::Page { run, .. } if run.producer.as_str() == name);
        subjects.iter().filter(is_page).count()
    };
    let subjects = cluster.subjects();
    assert_eq!(
        (pages_of(&subjects, "node"), pages_of(&subjects, "gateway")),
        (0, 24)
    );
    assert!(subjects.contains(&record()));
    assert!(cluster.replicas[0].1.stats().too_large > 0);
}

#[test]
fn a_run_that_said_goodbye_is_folded_soon() {
    let mut cluster = Cluster::new(1);
    cluster.publish(5, 1, PageKind::Page, 1, 7);
    cluster.publish(5, 0, PageKind::Bye, 2, 0);
    cluster.run_for(50);
    assert_eq!(cluster.subjects().len(), 2);
    cluster.run_for(30);
    cluster.assert_folded(7);
}

#[test]
fn a_run_that_was_folded_too_early_may_say_more() {
    let mut cluster = Cluster::new(2);
    cluster.publish(5, 1, PageKind::Page, 1, 7);
    cluster.run_for(17 * 60);
    cluster.publish(5, 1, PageKind::Page, 2, 9);
    cluster.run_for(10);
    assert_eq!(cluster.shown(), vec![Some(Value::Int(9)); 2]);
    cluster.run_for(17 * 60);
    cluster.assert_folded(9);
}

/// Two replicas, and a state of the broker in which a run has the total 7. The leader does not read the total 22, which the
/// run publishes after it.
fn with_a_total_of_one_replica() -> (Cluster, usize) {
    let mut cluster = Cluster::new(2);
    cluster.publish(5, 1, PageKind::Page, 1, 7);
    cluster.run_for(10);
    assert_eq!(cluster.leading(), [true, false]);
    let state = cluster.broker.operations();
    cluster.broker.disconnect(0);
    cluster.publish(5, 1, PageKind::Page, 2, 22);
    cluster.run_for(2);
    assert_eq!(cluster.shown(), [Some(Value::Int(7)), Some(Value::Int(22))]);
    (cluster, state)
}

#[test]
fn a_total_that_one_replica_alone_knows_is_soon_in_the_store() {
    let (mut cluster, state) = with_a_total_of_one_replica();
    cluster.put_back(state);
    cluster.run_for(10);
    assert_eq!(cluster.subjects().len(), 1, "the producer may come back");
    cluster.run_for(20);
    cluster.assert_folded(22);
    let stored = cluster.replicas.iter().map(|(_, leader)| leader.stats().stored);
    assert_eq!(stored.collect::<Vec<_>>(), [0, 1], "the leader did not know it");
}

#[test]
fn a_total_of_a_run_that_said_goodbye_is_in_the_store_sooner() {
    let (mut cluster, state) = with_a_total_of_one_replica();
    cluster.publish(5, 0, PageKind::Bye, 3, 0);
    cluster.run_for(1);
    cluster.put_back(state);
    cluster.run_for(15);
    cluster.assert_folded(22);
}

#[test]
fn a_loss_that_breaks_no_read_is_repaired_as_soon() {
    let (mut cluster, state) = with_a_total_of_one_replica();
    cluster.broker.put_back(state);
    cluster.broker.connect(0);
    cluster.run_for(30);
    cluster.assert_folded(22);
}

#[test]
fn a_run_that_publishes_again_after_a_loss_is_not_folded() {
    let (mut cluster, state) = with_a_total_of_one_replica();
    cluster.put_back(state);
    cluster.run_for(10);
    for sequence in 3..60 {
        cluster.publish(5, 1, PageKind::Page, sequence, 22);
        cluster.run_for(1);
    }
    assert_eq!(cluster.shown(), vec![Some(Value::Int(22)); 2]);
    assert_eq!(cluster.subjects().len(), 1);
    let stored = cluster.replicas.iter().map(|(_, leader)| leader.stats().stored);
    assert_eq!(stored.sum::<u64>(), 0);
}

#[test]
fn a_record_that_the_store_lost_is_put_back_and_counted() {
    let mut cluster = Cluster::new(1);
    cluster.publish(5, 1, PageKind::Page, 1, 7);
    cluster.run_for(17 * 60);
    cluster.broker.forget_subjects(|subject| *subject == record());
    assert!(cluster.subjects().is_empty());
    cluster.run_for(6 * 60);
    assert_eq!(cluster.subjects(), [record()]);
    let (_, leader) = &cluster.replicas[0];
    assert_eq!((leader.stats().stored, leader.stats().restored), (2, 1));
}

#[test]
fn a_record_that_is_not_readable_is_not_replaced() {
    let mut cluster = Cluster::new(1);
    let foreign = StoreMessage {
        subject: record().text("c"),
        headers: vec![("tg-v".to_owned(), "2".to_owned())],
        body: bytes::Bytes::new(),
    };
    cluster.broker.put(foreign.clone());
    cluster.publish(5, 1, PageKind::Page, 1, 7);
    cluster.run_for(20 * 60);
    assert_eq!(cluster.subjects().len(), 2, "the page stays");
    let mut messages = cluster.broker.messages();
    assert!(messages.any(|stored| stored.message == foreign));
    assert!(cluster.replicas[0].1.stats().unreadable > 0);
}

/// Lets a replica claim deltas, and gives the result.
fn claim(cluster: &mut Cluster, replica: usize) -> Option<DeltaClaim> {
    let now = cluster.now;
    let leader = &mut cluster.replicas[replica].1;
    leader.claim_deltas(leader.is_leading(now));
    cluster.run_for(4);
    cluster.replicas[replica].1.delta_claim()
}

fn follows(cluster: &mut Cluster, replica: usize) -> bool {
    let (reader, leader) = &mut cluster.replicas[replica];
    leader.follow_deltas(reader, cluster.now)
}

#[test]
fn the_leader_claims_deltas_and_the_other_replica_follows_each_claim() {
    let mut cluster = Cluster::new(2);
    cluster.run_for(5);
    assert_eq!(cluster.leading(), [true, false]);
    for claims in 1..=3 {
        assert_eq!(claim(&mut cluster, 0), Some(DeltaClaim::Won));
        let other = claim(&mut cluster, 1);
        assert_eq!(other, Some(DeltaClaim::Failed), "it does not lead");
        assert!(follows(&mut cluster, 1) && !follows(&mut cluster, 1));
        assert!(!follows(&mut cluster, 0), "the claim is its own");
        let stats = cluster.replicas[1].1.delta_stats();
        assert_eq!((stats.won, stats.followed), (0, claims));
    }
    assert_eq!(cluster.replicas[0].1.delta_stats().handovers, 0);
    cluster.broker.disconnect(1);
    cluster.run_for(20);
    assert_eq!(cluster.leading(), [false, true]);
    assert_eq!(claim(&mut cluster, 1), Some(DeltaClaim::Won));
    let stats = cluster.replicas[1].1.delta_stats();
    assert_eq!((stats.won, stats.handovers), (1, 1));
}

#[test]
fn a_replica_that_another_election_chose_claims_deltas() {
    let mut cluster = Cluster::new(2);
    cluster.run_for(5);
    assert_eq!(cluster.leading(), [true, false]);
    cluster.replicas[1].1.claim_deltas(true);
    cluster.run_for(4);
    assert_eq!(cluster.replicas[1].1.delta_claim(), Some(DeltaClaim::Won));
    assert!(follows(&mut cluster, 0));
}

#[test]
fn a_handover_counts_once_if_the_answer_to_its_claim_is_late() {
    let mut cluster = Cluster::new(2);
    cluster.run_for(5);
    assert_eq!(claim(&mut cluster, 0), Some(DeltaClaim::Won));
    assert!(follows(&mut cluster, 1));
    cluster.replicas[1].1.claim_deltas(true);
    // The store takes the claim. The next one begins before the answer comes.
    cluster.run_for(1);
    cluster.replicas[1].1.claim_deltas(true);
    cluster.run_for(4);
    assert_eq!(cluster.replicas[1].1.delta_claim(), Some(DeltaClaim::Won));
    cluster.replicas[1].1.claim_deltas(true);
    cluster.run_for(4);
    let stats = cluster.replicas[1].1.delta_stats();
    assert_eq!((stats.won, stats.failed, stats.handovers), (2, 1, 1));
}

#[test]
fn the_time_until_a_replica_follows_the_last_claim_is_a_gap() {
    let mut cluster = Cluster::new(1);
    cluster.run_for(5);
    let mut gap_after = |seconds| {
        cluster.broker.put(StoreMessage {
            subject: Subject::Deltas.text("c"),
            headers: Vec::new(),
            body: "another".into(),
        });
        // Meanwhile, no replica knows the totals.
        cluster.run_for(seconds);
        assert!(follows(&mut cluster, 0));
        let gap = cluster.replicas[0].1.delta_stats().gap_ns;
        for won in [1, 2] {
            assert_eq!(claim(&mut cluster, 0), Some(DeltaClaim::Won), "{won}");
        }
        cluster.replicas[0].1.delta_stats().gap_ns - gap
    };
    // Messages arrive up to 1 s late here.
    assert!((59 * SECOND..=60 * SECOND).contains(&gap_after(60)));
    assert!(gap_after(1) <= SECOND);
    assert_eq!(cluster.replicas[0].1.delta_stats().handovers, 2);
}

#[test]
fn a_leader_follows_a_claim_that_it_has_not_seen_before_its_own() {
    let mut cluster = Cluster::new(1);
    cluster.run_for(5);
    let record = |body: &'static str| StoreMessage {
        subject: Subject::Deltas.text("c"),
        headers: Vec::new(),
        body: body.into(),
    };
    // It reads the claim before it asks.
    cluster.broker.put(record("another"));
    cluster.run_for(1);
    assert_eq!(claim(&mut cluster, 0), Some(DeltaClaim::Lost));
    assert!(follows(&mut cluster, 0));
    assert_eq!(claim(&mut cluster, 0), Some(DeltaClaim::Won));
    // It may not have read the claim when it asks. Then the store refuses.
    cluster.broker.put(record("another"));
    assert_eq!(claim(&mut cluster, 0), Some(DeltaClaim::Lost));
    assert!(follows(&mut cluster, 0));
    // Its own record without an answer needs no turn of another.
    let holder = "replica 0";
    cluster.broker.put(record(holder));
    assert_eq!(claim(&mut cluster, 0), Some(DeltaClaim::Won));
    // The store lost the record.
    cluster
        .broker
        .forget_subjects(|subject| *subject == Subject::Deltas);
    assert_eq!(claim(&mut cluster, 0), Some(DeltaClaim::Won));
    assert_eq!(cluster.replicas[0].1.delta_stats().failed, 0);
}
