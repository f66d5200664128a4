// SPDX-License-Identifier: Apache-2.0

//! A member of a group of consumers, for the `kafka` receiver.
//!
//! A fetch brings one batch of messages from each broker, whatever their sizes are. So [`GroupMember::room`] bounds what a
//! poll takes: the library decompresses a batch before anybody can count it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use krafka::consumer::{
    AutoOffsetReset, Consumer, ConsumerRecord, IsolationLevel, PartitionAssignmentStrategy,
};
use krafka::{CloseOptions, Kafka, KrafkaError};
use parking_lot::Mutex;

use super::ownership::{Listener, Marks, Ownership, PartitionKey, commit};
use crate::client;
use crate::connection::Connection;

/// The most messages of a poll of the library. It decodes all messages of a batch before the first poll returns: their form
/// there is not counted, and may take up to 32 times the bytes of the batch.
const MESSAGES: i32 = 1_000;

/// The bytes of an answer beside its batch.
const ANSWER_EXTRA: usize = 64 << 10;

/// The bytes of a message in the library, beside its content.
const MESSAGE_BYTES: usize = 256;

/// The bytes of a header in a message, beside its content.
const HEADER_BYTES: usize = 64;

/// The least size of answers that the library takes: those about topics and groups are not batches.
const MIN_ANSWER_BYTES: usize = 4 << 20;

/// How long the end of a probe may take.
const PROBE_CLOSE_TIME: Duration = Duration::from_secs(1);

/// How partitions are assigned to the members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Ranges of each topic.
    Range,
    /// Partitions in turn.
    RoundRobin,
    /// Partitions stay where they are, as far as possible.
    CooperativeSticky,
}

/// The options of a member.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// The group.
    pub group: String,
    /// A name for a member that keeps its partitions over a restart.
    pub instance: Option<String>,
    /// The rack of the member, to read from replicas close to it.
    pub rack: Option<String>,
    /// The topics.
    pub topics: Vec<String>,
    /// The names of the headers that messages keep. Of several headers with one name, they keep the first.
    pub headers: Vec<String>,
    /// Whether a partition without a committed offset is read from its beginning.
    pub from_beginning: bool,
    /// The time without a heartbeat after which the member is out.
    pub session_timeout: Duration,
    /// The interval of heartbeats.
    pub heartbeat_interval: Duration,
    /// The ways to assign partitions, the preferred one first.
    pub assignors: Vec<Assignor>,
    /// The bytes that a broker waits for.
    pub min_fetch_bytes: i32,
    /// How long it waits for them.
    pub max_fetch_wait: Duration,
    /// The most bytes of a batch of messages, as it is stored and after it is decompressed.
    pub max_batch_bytes: usize,
}

/// Why a member can't go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct GroupError {
    /// The reason.
    pub why: String,
    /// Whether only a new member can help.
    pub is_fatal: bool,
}

impl From<KrafkaError> for GroupError {
    fn from(error: KrafkaError) -> Self {
        let advice = match &error {
            KrafkaError::Auth { .. } => ": check `auth` and `tls`",
            KrafkaError::Broker { code, .. } if format!("{code:?}").ends_with("AuthorizationFailed") => {
                ": the user needs the ACL `Read` on the group and on the topics"
            }
            _ => "",
        };
        Self {
            why: format!("{error}{advice}"),
            is_fatal: error.is_fatal(),
        }
    }
}

/// A message of a topic.
#[derive(Clone, Debug)]
pub struct IncomingMessage {
    /// Its partition.
    pub place: PartitionKey,
    /// Its offset.
    pub offset: i64,
    /// The epoch of the leader of its batch.
    pub epoch: Option<i32>,
    /// Its content; `None`: it has none.
    pub value: Option<Bytes>,
    /// Its headers that [`GroupOptions::headers`] names.
    pub headers: Vec<(String, Option<Bytes>)>,
    /// Its memory, about.
    pub bytes: usize,
}

/// The result of a poll.
#[derive(Debug)]
pub enum Polled {
    /// Messages, in the order of their partitions.
    Messages(Vec<IncomingMessage>),
    /// A batch can't be decoded. The member reads on behind it.
    Skipped {
        /// The partition.
        place: PartitionKey,
        /// The offset of the first message of the batch.
        first: i64,
        /// The offset behind it.
        next: i64,
    },
}

/// A member of a group.
pub struct GroupMember {
    kafka: Kafka,
    consumer: Arc<Consumer>,
    options: GroupOptions,
    ownership: Arc<Mutex<Ownership>>,
    /// The topics that exist, with the numbers of their partitions.
    known: BTreeMap<String, usize>,
    brokers: usize,
}

/// Ends a poll early.
#[derive(Clone)]
pub struct Waker(Arc<Consumer>);

impl Waker {
    /// Ends the poll that waits, or the next one.
    pub fn wake(&self) {
        self.0.wakeup();
    }
}

impl GroupMember {
    /// Connects to the brokers. The first polls join the group.
    ///
    /// # Errors
    /// No broker answers, or they refuse the user.
    pub async fn open(connection: &Connection, options: GroupOptions) -> Result<Self, GroupError> {
        let answer = options.max_batch_bytes.saturating_add(ANSWER_EXTRA);
        let builder = client::builder(connection).max_response_size(answer.max(MIN_ANSWER_BYTES));
        let kafka = builder.connect().await?;
        let listener = Listener::default();
        let assignor = |assignor: &Assignor| match assignor {
            Assignor::Range => PartitionAssignmentStrategy::Range,
            Assignor::RoundRobin => PartitionAssignmentStrategy::RoundRobin,
            Assignor::CooperativeSticky => PartitionAssignmentStrategy::CooperativeSticky,
        };
        let least = options.min_fetch_bytes.max(1);
        let mut consumer = kafka
            .consumer(&*options.group)
            .auto_offset_reset(reset(options.from_beginning))
            .enable_auto_commit(false)
            .isolation_level(IsolationLevel::ReadCommitted)
            .fetch_min_bytes(least)
            .fetch_max_bytes(least)
            .max_partition_fetch_bytes(least)
            .fetch_max_wait(options.max_fetch_wait)
            .max_poll_records(MESSAGES)
            .max_buffered_records(0)
            .max_decompressed_size(options.max_batch_bytes)
            .session_timeout(options.session_timeout)
            .heartbeat_interval(options.heartbeat_interval)
            .partition_assignment_strategies(options.assignors.iter().map(assignor))
            .rebalance_listener(listener.clone())
            .metrics_push(false);
        if let Some(instance) = &options.instance {
            consumer = consumer.group_instance_id(instance.clone());
        }
        if let Some(rack) = &options.rack {
            consumer = consumer.client_rack(rack.clone());
        }
        let consumer = Arc::new(consumer.build().await?);
        // It is set only here.
        let _ = listener.consumer.set(Arc::downgrade(&consumer));
        Ok(Self {
            kafka,
            consumer,
            options,
            ownership: listener.ownership,
            known: BTreeMap::new(),
            brokers: 1,
        })
    }

    /// Looks for topics that are new and for topics with more partitions, and joins the group for them. Returns the topics that
    /// do not exist.
    ///
    /// # Errors
    /// The brokers do not answer.
    pub async fn discover(&mut self) -> Result<Vec<String>, GroupError> {
        let (mut known, mut absent) = (BTreeMap::new(), Vec::new());
        for topic in &self.options.topics {
            let found = match self.consumer.fetch_metadata(Some(topic.as_str())).await {
                Ok(found) => found,
                Err(KrafkaError::UnknownTopic { .. }) => {
                    absent.push(topic.clone());
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            self.brokers = found.brokers.len().max(1);
            let partitions = found
                .topics
                .first()
                .map_or(0, |topic| topic.partitions_iter().count());
            if partitions == 0 {
                absent.push(topic.clone());
            } else {
                known.insert(topic.clone(), partitions);
            }
        }
        if known != self.known && !known.is_empty() {
            if !self.known.is_empty() {
                // Only a new member makes the leader look at the partitions again.
                self.consumer.unsubscribe().await?;
            }
            self.consumer.subscribe(known.keys()).await?;
            self.known = known;
        }
        Ok(absent)
    }

    /// The bytes to reserve for a poll: a batch of each broker, as it is stored and decompressed, and the messages that the poll
    /// returns. The form of a batch in the library is not part of it.
    pub fn room(&self) -> usize {
        let batches = 2 * self.options.max_batch_bytes + ANSWER_EXTRA;
        let message = MESSAGE_BYTES + self.options.headers.len() * HEADER_BYTES;
        self.brokers * batches + 2 * MESSAGES as usize * message
    }

    /// The next messages. Waits at most `wait` for the first one. The call may be dropped only before [`Self::close`].
    ///
    /// # Errors
    /// The brokers do not answer, or refuse the member.
    pub async fn poll(&self, wait: Duration) -> Result<Polled, GroupError> {
        let mut records = match self.consumer.poll(wait).await {
            Ok(records) => records,
            Err(KrafkaError::Wakeup) => Vec::new(),
            Err(error) => return self.skip(error).await,
        };
        if records.len() >= MESSAGES as usize {
            // The others that the library has decoded: a partition that is paused would keep them.
            records.extend(self.consumer.poll(Duration::ZERO).await.unwrap_or_default());
        }
        let messages = records
            .into_iter()
            .map(|record| message(record, &self.options.headers));
        Ok(Polled::Messages(messages.collect()))
    }

    /// Goes behind a batch that can't be decoded: it would stop its partition for ever.
    async fn skip(&self, error: KrafkaError) -> Result<Polled, GroupError> {
        let mut topics = self.known.keys();
        let place = topics.find_map(|topic| {
            let (partition, first) = client::undecodable(&error, topic)?;
            Some((topic, partition, first))
        });
        let Some((topic, partition, first)) = place else {
            return Err(error.into());
        };
        let next = self.next_decodable(topic, partition, first).await?;
        self.consumer.seek(topic, partition, next).await?;
        let place = PartitionKey {
            topic: topic.as_str().into(),
            partition,
        };
        Ok(Polled::Skipped { place, first, next })
    }

    async fn next_decodable(&self, topic: &str, partition: i32, first: i64) -> Result<i64, GroupError> {
        let probe = self
            .kafka
            .consumer_without_group()
            .auto_offset_reset(AutoOffsetReset::Earliest)
            .enable_auto_commit(false)
            .isolation_level(IsolationLevel::ReadCommitted)
            .fetch_max_bytes(1)
            .max_partition_fetch_bytes(1)
            .max_poll_records(1)
            .max_buffered_records(1)
            .max_decompressed_size(self.options.max_batch_bytes)
            .metrics_push(false)
            .build()
            .await?;
        probe.assign(topic, vec![partition]).await?;
        let next = client::next_decodable(&probe, topic, partition, first).await;
        let _ = probe
            .close_with(CloseOptions::new().timeout(PROBE_CLOSE_TIME))
            .await;
        Ok(next?)
    }

    /// The number of a partition that the member owns. A partition that was gone has another one.
    pub fn number(&self, place: &PartitionKey) -> Option<u64> {
        self.ownership.lock().number(place)
    }

    /// The partitions that the member owns.
    pub fn owned_partitions(&self) -> Vec<PartitionKey> {
        self.ownership.lock().owned_partitions()
    }

    /// What marks messages.
    pub fn marks(&self) -> Marks {
        Marks(self.ownership.clone())
    }

    /// Reads a partition from this offset again.
    ///
    /// # Errors
    /// The member does not own the partition.
    pub async fn seek(&self, place: &PartitionKey, offset: i64) -> Result<(), GroupError> {
        Ok(self.consumer.seek(&place.topic, place.partition, offset).await?)
    }

    /// Commits what is marked.
    ///
    /// # Errors
    /// The brokers do not answer, or the member is out of the group. The next commit has the same marks.
    pub async fn commit(&self) -> Result<(), GroupError> {
        let offsets = self.ownership.lock().uncommitted(None);
        if offsets.is_empty() {
            return Ok(());
        }
        commit(&self.consumer, &offsets).await?;
        self.ownership.lock().committed(&offsets);
        Ok(())
    }

    /// Stops fetching a partition.
    pub async fn pause(&self, place: &PartitionKey) {
        self.consumer.pause(&place.topic, &[place.partition]).await;
    }

    /// Fetches a partition again.
    pub async fn resume(&self, place: &PartitionKey) {
        self.consumer.resume(&place.topic, &[place.partition]).await;
    }

    /// What ends a poll early.
    pub fn waker(&self) -> Waker {
        Waker(self.consumer.clone())
    }

    /// Commits what is marked and leaves the group.
    pub async fn close(self, timeout: Duration) {
        let options = CloseOptions::new().timeout(timeout);
        if let Err(error) = self.consumer.close_with(options).await {
            tracing::warn!(%error, "the group is left without a commit: messages come again");
        }
    }
}

fn reset(from_beginning: bool) -> AutoOffsetReset {
    if from_beginning {
        AutoOffsetReset::Earliest
    } else {
        AutoOffsetReset::Latest
    }
}

/// The first header of each wanted name. The list is a new one: that of the library may be much longer.
fn wanted_headers(headers: &[(String, Option<Bytes>)], wanted: &[String]) -> Vec<(String, Option<Bytes>)> {
    let first = |name: &String| headers.iter().find(|(known, _)| known == name).cloned();
    wanted.iter().filter_map(first).collect()
}

fn message(record: ConsumerRecord, wanted: &[String]) -> IncomingMessage {
    let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    // Contents are slices of the batch: it stays in memory with all of them, as long as one message lives.
    let all = record.headers.iter();
    let content: usize = all.map(|(name, value)| name.len() + length(value)).sum();
    let headers = wanted_headers(&record.headers, wanted);
    let beside = MESSAGE_BYTES + headers.len() * HEADER_BYTES;
    IncomingMessage {
        bytes: beside + length(&record.key) + length(&record.value) + content,
        place: PartitionKey {
            topic: record.topic,
            partition: record.partition,
        },
        offset: record.offset,
        epoch: record.leader_epoch,
        value: record.value,
        headers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_the_first_header_of_each_wanted_name() {
        let header = |name: &str, value: &'static str| (name.to_owned(), Some(Bytes::from(value)));
        let mut headers = vec![header("other", "a"), header("tenant", "b")];
        headers.extend((0..1_000).map(|_| header("tenant", "c")));
        let wanted = ["tenant".to_owned(), "absent".to_owned()];
        let kept = wanted_headers(&headers, &wanted);
        assert_eq!(kept, [header("tenant", "b")]);
        assert!(kept.capacity() < 10, "{}", kept.capacity());
        assert!(wanted_headers(&headers, &[]).is_empty());
    }
}
