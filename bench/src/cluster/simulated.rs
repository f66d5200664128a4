// SPDX-License-Identifier: Apache-2.0

//! What a page costs one replica, and what a replica holds, up to 10,000 nodes. Simulated producers and the state machine of a
//! replica are in one process, without a store, a network and other faces of a gateway. Each producer has 70 series, and each
//! of them changes in every round.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_cluster::{
    CallId, MessageStore, MessageStoreLimits, PageReader, PageSender, ProducerName, ReadScope, ReaderConfig,
    StoreCall, StoreEvent, StoreReply, StoredMessage,
};
use tidegate_engine::{Series, UnixNanos, Value, clock};

use super::agent::{CLUSTER, RunCounts, items, sender_config};
use super::options::MAX_AGENTS;
use super::rows::{Form, ROWS};
use crate::BenchError;
use crate::groups::engine::settled_bytes;
use crate::report::Row;
use crate::stats::Samples;

const SIZES: [usize; 3] = [100, 1_000, 10_000];

/// Rounds after the first one.
const ROUNDS: usize = 5;

/// The interval of the pages.
const INTERVAL: Duration = Duration::from_secs(1);

const MIB: f64 = (1 << 20) as f64;

/// A row for each figure of each size. Each size has a process of its own, so that memory tells of nothing else.
pub(crate) fn run(_: &Path) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for producers in SIZES {
        let output = Command::new(std::env::current_exe()?)
            .args(["-", "replica", &producers.to_string()])
            .output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        let text = String::from_utf8(output.stdout)?;
        let numbers = text.split_whitespace().map(str::parse);
        let numbers: Vec<f64> = numbers.collect::<Result<_, _>>()?;
        let [messages, first_read, store, memory, costs @ ..] = numbers.as_slice() else {
            return Err(format!("not figures: {text}").into());
        };
        let named = |what: &str| format!("{producers} producers: {what}");
        let costs = Samples::new(costs.iter().copied());
        let cores = costs.median() * messages / INTERVAL.as_nanos() as f64;
        rows.extend([
            Row::value(named("messages a round"), *messages, ""),
            Row::median(named("a message"), costs, "ns"),
            Row::value(named("cores, at an interval of 1 s"), cores, ""),
            Row::value(named("first read"), *first_read, "s"),
            Row::value(named("memory of the replica"), *memory, "MiB"),
            Row::value(named("messages in the store"), *store, "MiB"),
        ]);
    }
    Ok(rows)
}

/// Prints the figures of a size: messages of a round, seconds of the first read, MiB of the store and of the replica, and
/// nanoseconds of a message in each round.
pub(crate) fn print_figures(producers: usize) -> Result<(), BenchError> {
    let mut fleet = Fleet::new(producers)?;
    fleet.round()?;
    let empty = settled_bytes();
    let begun = Instant::now();
    let (mut reader, read) = (fleet.reader()?, begun.elapsed());
    let memory = (settled_bytes() - empty) / MIB;
    let mut costs = Vec::new();
    for _ in 0..ROUNDS {
        let messages = fleet.round()?;
        let count = messages.len();
        let begun = Instant::now();
        for stored in messages {
            reader.0.event(StoreEvent::Read(reader.1, stored), fleet.now);
        }
        costs.push((begun.elapsed().as_nanos() / count as u128).to_string());
        fleet.check(&mut reader.0)?;
    }
    let (read, store) = (read.as_secs_f64(), fleet.store.bytes() as f64 / MIB);
    println!("{} {read} {store} {memory} {}", fleet.messages, costs.join(" "));
    black_box(reader);
    Ok(())
}

/// All producers, and the last message of each of their subjects.
struct Fleet {
    producers: Vec<(PageSender, Vec<Arc<Series>>)>,
    store: MessageStore,
    now: UnixNanos,
    /// The totals of each producer.
    counts: RunCounts,
    rounds: u64,
    /// The number of messages of the last round.
    messages: usize,
}

impl Fleet {
    fn new(producers: usize) -> Result<Self, BenchError> {
        let producers = (0..producers).map(|place| {
            let name = format!("agent-{place}");
            let sender = sender_config(ProducerName::new(&name)?, INTERVAL, place as u32);
            let series = ROWS.iter().map(|row| Arc::new(row.series(&name))).collect();
            Ok::<_, BenchError>((PageSender::new(sender), series))
        });
        Ok(Self {
            producers: producers.collect::<Result<_, _>>()?,
            store: MessageStore::new(MessageStoreLimits {
                max_bytes: 4 << 30,
                ..MessageStoreLimits::default()
            }),
            now: clock::now(),
            counts: RunCounts::new(),
            rounds: 0,
            messages: 0,
        })
    }

    /// Each producer adds one to each of its counts, and publishes its pages. Gives the messages of the round.
    fn round(&mut self) -> Result<Vec<StoredMessage>, BenchError> {
        self.now += INTERVAL.as_nanos() as u64;
        self.rounds += 1;
        self.counts.raise(self.now);
        let before = self.store.sequence();
        for (sender, series) in &mut self.producers {
            sender.update(items(series, &self.counts, self.now, |_| true), self.now);
            while let Some((id, call)) = sender.poll(self.now) {
                let result = match call {
                    StoreCall::Publish(message) => self.store.put(message, self.now),
                    StoreCall::CompareAndSet(message, expected) => {
                        self.store.compare_and_put(message, expected, self.now)
                    }
                    call => return Err(format!("a producer makes no such call: {call:?}").into()),
                };
                sender.answer(id, result.map(StoreReply::Stored), self.now);
            }
        }
        let messages: Vec<_> = self.store.after(before).cloned().collect();
        self.messages = messages.len();
        Ok(messages)
    }

    /// A replica that has read all messages of the store, and its read.
    fn reader(&self) -> Result<(PageReader, CallId), BenchError> {
        let config = ReaderConfig {
            max_runs: 2 * MAX_AGENTS,
            ..ReaderConfig::new(CLUSTER)
        };
        let mut reader = PageReader::new(config, Vec::new(), &Arc::default())?;
        let (id, _) = reader.poll().ok_or("a new reader reads")?;
        for stored in self.store.messages(ReadScope::Everything) {
            reader.event(StoreEvent::Read(id, stored.clone()), self.now);
        }
        reader.event(StoreEvent::Current(id, Duration::ZERO, Instant::now()), self.now);
        Ok((reader, id))
    }

    /// An error if the replica has other totals than the producers together.
    fn check(&self, reader: &mut PageReader) -> Result<(), BenchError> {
        let producers = self.producers.len();
        let own = ROWS.iter().filter(|row| row.is_own).count();
        let (mut series, mut wrong) = (0, None);
        reader.merged().read(&mut |reading| {
            series += 1;
            let row = ROWS.iter().find(|row| *row.name == *reading.series.metric.name);
            let Some(row) = row.filter(|row| row.form == Form::Whole) else {
                return;
            };
            let reporters = if row.is_own { 1 } else { producers as u64 };
            let total = Value::Int((self.rounds * reporters).cast_signed());
            if *reading.value != total {
                wrong = Some(format!("{}: {:?} instead of {total:?}", row.name, reading.value));
            }
        });
        let expected = ROWS.len() - own + own * producers;
        match wrong {
            Some(wrong) => Err(wrong.into()),
            None if series == expected => Ok(()),
            None => Err(format!("{series} series instead of {expected}").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_has_the_totals_of_all_simulated_producers() {
        let mut fleet = Fleet::new(20).unwrap();
        fleet.round().unwrap();
        let (mut reader, id) = fleet.reader().unwrap();
        fleet.check(&mut reader).unwrap();
        let messages = fleet.round().unwrap();
        assert!(
            fleet.check(&mut reader).is_err(),
            "it has not read the second round"
        );
        for stored in messages {
            reader.event(StoreEvent::Read(id, stored), fleet.now);
        }
        fleet.check(&mut reader).unwrap();
    }
}
