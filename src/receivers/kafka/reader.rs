// SPDX-License-Identifier: Apache-2.0

//! The task of the receiver: it joins the group, fetches, gives messages to queues and commits.
//!
//! The memory of a fetch is reserved before it begins. Messages that a fetch has brought take their part of that reservation
//! with them, and the next fetch waits until it is whole again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_kafka::Connection;
use tidegate_kafka::transport::{
    GroupError, GroupMember, GroupOptions, IncomingMessage, Marks, PartitionKey, Polled, Waker,
};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::partition_queue::{PartitionQueue, PartitionQueueContext, Work, is_due};
use crate::component::{Ceiling, Held, Shared};
use crate::receivers::messages::Why;

/// How long a poll waits for messages.
const POLL: Duration = Duration::from_secs(1);

/// The interval at which memory is asked for again.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// How long the reader waits after an error, at first and at most.
const ERROR_WAIT: Duration = Duration::from_millis(500);
const MAX_ERROR_WAIT: Duration = Duration::from_secs(10);

/// The interval at which topics and partitions are looked for.
const DISCOVERY: Duration = Duration::from_secs(30);

/// The same while a topic does not exist.
const DISCOVERY_OF_ABSENT: Duration = Duration::from_secs(2);

/// The most time for a commit.
const COMMIT_TIME: Duration = Duration::from_secs(5);

/// How long queues may finish their messages at the stop.
const QUEUE_TIME: Duration = Duration::from_secs(1);

pub(super) struct Reader {
    pub(super) connection: Connection,
    pub(super) group: GroupOptions,
    pub(super) commit_interval: Duration,
    pub(super) queues: Arc<PartitionQueueContext>,
    pub(super) shared: Arc<Shared>,
    /// The deadline of the stop, once it begins.
    pub(super) stopping: watch::Receiver<Option<Instant>>,
}

/// The state while the reader is a member of the group.
struct Membership {
    member: GroupMember,
    marks: Marks,
    waker: Waker,
    queues: HashMap<PartitionKey, PartitionQueue>,
    /// The memory of the next fetch.
    held: Held,
    next_discovery: Instant,
    next_commit: Instant,
    error_wait: Duration,
    noted: Mutex<Option<Instant>>,
}

impl Reader {
    pub(super) async fn run(mut self) {
        let mut wait = ERROR_WAIT;
        while !self.is_stopping() {
            let mut stopping = self.stopping.clone();
            let opened = tokio::select! {
                opened = GroupMember::open(&self.connection, self.group.clone()) => opened,
                _ = stopping.wait_for(Option::is_some) => return,
            };
            match opened {
                Ok(member) => {
                    wait = ERROR_WAIT;
                    self.serve(member).await;
                }
                Err(error) => self.note(&error),
            }
            self.sleep(wait).await;
            wait = (2 * wait).min(MAX_ERROR_WAIT);
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.borrow().is_some()
    }

    async fn sleep(&mut self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            _ = self.stopping.wait_for(Option::is_some) => {}
        }
    }

    fn note(&self, error: &GroupError) {
        warn!(receiver = &*self.queues.receiver, %error, "Kafka can't be read: the receiver tries again");
    }

    /// Reads until the stop, or until only a new member can help.
    async fn serve(&mut self, member: GroupMember) {
        let now = Instant::now();
        let mut membership = Membership {
            marks: member.marks(),
            waker: member.waker(),
            member,
            queues: HashMap::new(),
            held: Held::under(Ceiling::Soft, self.shared.memory.clone()),
            next_discovery: now,
            next_commit: now + self.commit_interval,
            error_wait: ERROR_WAIT,
            noted: Mutex::default(),
        };
        while !self.is_stopping() {
            let mut stopping = self.stopping.clone();
            let turn = tokio::select! {
                turn = self.turn(&mut membership) => turn,
                _ = stopping.wait_for(Option::is_some) => break,
            };
            match turn {
                Ok(()) => membership.error_wait = ERROR_WAIT,
                Err(error) => {
                    self.note(&error);
                    if error.is_fatal {
                        break;
                    }
                    let wait = membership.error_wait;
                    membership.error_wait = (2 * wait).min(MAX_ERROR_WAIT);
                    self.sleep(wait).await;
                }
            }
        }
        self.leave(membership).await;
    }

    /// Ends the queues, commits and leaves the group.
    async fn leave(&self, membership: Membership) {
        let deadline = *self.stopping.borrow();
        let deadline = deadline.unwrap_or_else(|| Instant::now() + COMMIT_TIME);
        let left = || deadline.saturating_duration_since(Instant::now());
        let queue_time = QUEUE_TIME.min(left() / 2);
        let ends = membership
            .queues
            .into_values()
            .map(|queue| tokio::spawn(queue.end(queue_time)));
        for end in ends.collect::<Vec<_>>() {
            // It only waits.
            let _ = end.await;
        }
        membership.member.close(left()).await;
    }

    /// One round: topics, memory, a poll, queues, a commit.
    async fn turn(&self, membership: &mut Membership) -> Result<(), GroupError> {
        self.discover(membership).await?;
        let polled = if self.has_room(membership) {
            membership.member.poll(POLL).await
        } else {
            membership.poll_without_fetch().await
        };
        let result = match polled {
            Ok(Polled::Messages(messages)) => self.distribute(membership, messages).await,
            Ok(Polled::Skipped { place, first, next }) => {
                self.skipped(&place, first, next);
                Ok(())
            }
            Err(error) => Err(error),
        };
        membership.tend_queues().await;
        self.commit(membership).await;
        result
    }

    async fn discover(&self, membership: &mut Membership) -> Result<(), GroupError> {
        let now = Instant::now();
        if now < membership.next_discovery {
            return Ok(());
        }
        membership.next_discovery = now + DISCOVERY_OF_ABSENT;
        let absent = membership.member.discover().await?;
        if absent.is_empty() {
            membership.next_discovery = now + DISCOVERY;
        } else if is_due(&membership.noted) {
            let (receiver, topics) = (&*self.queues.receiver, absent.join(", "));
            info!(
                receiver,
                topics, "topics do not exist yet: the receiver waits for them"
            );
        }
        Ok(())
    }

    /// Reserves the memory of the next fetch.
    fn has_room(&self, membership: &mut Membership) -> bool {
        let room = membership.member.room();
        if membership.held.try_grow_to(room).is_ok() {
            return true;
        }
        if is_due(&membership.noted) {
            let receiver = &*self.queues.receiver;
            if membership
                .held
                .could_ever_grow(room.saturating_sub(membership.held.bytes()))
            {
                warn!(
                    receiver,
                    bytes = room,
                    "memory is short: the receiver fetches later"
                );
            } else {
                warn!(
                    receiver,
                    bytes = room,
                    "the memory limit is too low to fetch: raise it, or reduce `max_batch_size`"
                );
            }
        }
        false
    }

    /// Gives messages to the queues of their partitions.
    async fn distribute(
        &self,
        membership: &mut Membership,
        messages: Vec<IncomingMessage>,
    ) -> Result<(), GroupError> {
        for messages in by_partition(messages) {
            let Some(first) = messages.first() else { continue };
            let (place, offset) = (first.place.clone(), first.offset);
            let Some(number) = membership.member.number(&place) else {
                continue;
            };
            let bytes: usize = messages.iter().map(|message| message.bytes).sum();
            let held = membership.hand_over(bytes, &self.shared);
            let queue = self.queue_of(membership, &place, number);
            if queue.take(Work { messages, held }).is_err() {
                // It was full, which a pause prevents, or its task has ended. The messages come again.
                if queue.is_closed() {
                    membership.queues.remove(&place);
                    self.note_end(&place);
                }
                membership.member.seek(&place, offset).await?;
                continue;
            }
            if queue.is_full() {
                queue.set_paused(true);
                membership.member.pause(&place).await;
            }
        }
        Ok(())
    }

    /// Logs the end of a queue. At the stop, queues end by themselves.
    fn note_end(&self, place: &PartitionKey) {
        if !self.is_stopping() {
            let (receiver, topic, partition) = (&*self.queues.receiver, &*place.topic, place.partition);
            error!(
                receiver,
                topic, partition, "the queue of a partition ended (a bug): the receiver starts a new one"
            );
        }
    }

    /// The queue of a partition; a new one if the partition has a new number.
    fn queue_of<'m>(
        &self,
        membership: &'m mut Membership,
        place: &PartitionKey,
        number: u64,
    ) -> &'m PartitionQueue {
        let is_old = |queue: &PartitionQueue| queue.number != number;
        if membership.queues.get(place).is_some_and(is_old)
            && let Some(old) = membership.queues.remove(place)
        {
            old.abandon();
        }
        let (marks, waker) = (membership.marks.clone(), membership.waker.clone());
        membership.queues.entry(place.clone()).or_insert_with(|| {
            let (context, stopping) = (self.queues.clone(), self.stopping.clone());
            PartitionQueue::start(context, place.clone(), number, marks, waker, stopping)
        })
    }

    fn skipped(&self, place: &PartitionKey, first: i64, next: i64) {
        let messages = u64::try_from(next - first).unwrap_or(0);
        self.queues.decoder.fail(&place.topic, messages as usize);
        let error = "the batch can't be decoded, or is larger than `max_batch_size`";
        self.queues.skip(place, first, messages, Why::Batch, error);
    }

    /// Commits what is marked, at its interval. An error is not a reason to stop: the next commit has the same marks.
    async fn commit(&self, membership: &mut Membership) {
        let now = Instant::now();
        if now < membership.next_commit && !self.queues.commits_at_once {
            return;
        }
        membership.next_commit = now + self.commit_interval;
        let committed = tokio::time::timeout(COMMIT_TIME, membership.member.commit()).await;
        let receiver = &*self.queues.receiver;
        match committed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(receiver, %error, "offsets are not committed: messages may come again"),
            Err(_) => warn!(
                receiver,
                "the brokers do not answer a commit: messages may come again"
            ),
        }
    }
}

impl Membership {
    /// Moves a part of the reservation to messages.
    fn hand_over(&mut self, bytes: usize, shared: &Shared) -> Held {
        let mut held = Held::under(Ceiling::Soft, shared.memory.clone());
        self.held.shrink(bytes.min(self.held.bytes()));
        held.promise(bytes);
        held
    }

    /// Stays in the group while there is no memory for a fetch.
    async fn poll_without_fetch(&mut self) -> Result<Polled, GroupError> {
        let places = self.member.owned_partitions();
        for place in &places {
            self.member.pause(place).await;
        }
        let polled = self.member.poll(ROOM_WAIT).await;
        for place in &places {
            if !self.queues.get(place).is_some_and(PartitionQueue::is_paused) {
                self.member.resume(place).await;
            }
        }
        polled
    }

    /// Ends the queues of partitions that are gone, and fetches again for those that have room.
    async fn tend_queues(&mut self) {
        let queues = std::mem::take(&mut self.queues);
        for (place, queue) in queues {
            if self.member.number(&place) != Some(queue.number) {
                queue.abandon();
                continue;
            }
            if queue.is_paused() && !queue.is_full() {
                queue.set_paused(false);
                self.member.resume(&place).await;
            }
            self.queues.insert(place, queue);
        }
    }
}

/// Messages by partition, each in its order.
fn by_partition(messages: Vec<IncomingMessage>) -> Vec<Vec<IncomingMessage>> {
    let mut numbers: HashMap<PartitionKey, usize> = HashMap::new();
    let mut groups: Vec<Vec<IncomingMessage>> = Vec::new();
    for message in messages {
        let number = *numbers.entry(message.place.clone()).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(number) {
            group.push(message);
        }
    }
    groups
}
