// SPDX-License-Identifier: Apache-2.0

//! Reads: a consumer begins with the last message of each subject. The engine asks for a batch at a time, so a slow state
//! machine slows its own reads only.

mod confirmation;
mod goals;
mod repair;
mod subjects;

use std::collections::VecDeque;
use std::fmt::Display;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, pull};
use async_nats::jetstream::stream::{ConsumerErrorKind, Stream};
use async_nats::jetstream::{ErrorCode, Message};
use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use tidegate_cluster::{CallId, ReadScope, StoreError, StoreEvent, StoreReply};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use self::confirmation::Confirmation;
use self::goals::{GoalProgress, MAX_ANSWER_AGE, ReadGoals};
use self::subjects::SubjectCheck;
use crate::codec::NatsMessage;
use crate::link::NatsLink;
use crate::shared::NatsShared;
use crate::stream::subject_prefix;
use crate::write::unavailable;

/// The most bytes of a batch, if its messages have the largest size that the server allows.
const MAX_BATCH_BYTES: usize = 32 << 20;

/// The most messages of a batch.
const MAX_BATCH: usize = 256;

/// The server ends a batch after this time.
const BATCH_TIME: Duration = Duration::from_secs(1);

/// A server that has not ended a batch after this time does not answer.
const MAX_BATCH_TIME: Duration = Duration::from_secs(4);

/// The server removes a consumer that asks for nothing for this long: the state machine is that slow, or gone.
const INACTIVE_THRESHOLD: Duration = Duration::from_mins(5);

/// A read of everything takes this long at least: a state machine begins one that failed again at once.
const MIN_READ_TIME: Duration = Duration::from_secs(1);

const SESSION_END: &str = "the session has ended";

/// Reads all messages of a scope.
pub(crate) async fn read(
    link: &NatsLink,
    shared: &NatsShared,
    events: &mpsc::Sender<StoreEvent>,
    id: CallId,
    scope: ReadScope,
) -> Result<StoreReply, StoreError> {
    let begin = Instant::now();
    link.repaired.get_or_init(|| repair::repair(link, shared)).await;
    let config = consumer_config(&shared.cluster, scope);
    let result = match link.stream.create_consumer(config).await {
        Ok(consumer) => {
            let result = BatchReader::new(link, shared, events, (id, scope), &consumer, begin)
                .run()
                .await;
            // If this fails, the server removes it later.
            let _ = link.stream.delete_consumer(&consumer.cached_info().name).await;
            result
        }
        Err(error) => {
            if matches!(error.kind(), ConsumerErrorKind::JetStream(cause) if cause.error_code() == ErrorCode::STREAM_NOT_FOUND)
            {
                link.end();
            }
            Err(format!("can't create a consumer: {error}"))
        }
    };
    if result.is_err() {
        shared.note_failed_read(scope);
        sleep_until(begin + MIN_READ_TIME).await;
    }
    let result = result.map_err(|error| unavailable(shared, error));
    result.map(|()| StoreReply::ReadEnd)
}

/// The subjects of a scope.
fn subject_filter(cluster: &str, scope: ReadScope) -> String {
    let prefix = subject_prefix(cluster);
    match scope {
        ReadScope::Everything => format!("{prefix}.>"),
        ReadScope::Retained => format!("{prefix}.r.>"),
    }
}

fn consumer_config(cluster: &str, scope: ReadScope) -> pull::Config {
    pull::Config {
        filter_subject: subject_filter(cluster, scope),
        deliver_policy: DeliverPolicy::LastPerSubject,
        ack_policy: AckPolicy::None,
        inactive_threshold: INACTIVE_THRESHOLD,
        num_replicas: 1,
        memory_storage: true,
        ..pull::Config::default()
    }
}

/// A read on its way.
struct BatchReader<'a> {
    stream: &'a Stream<()>,
    shared: &'a NatsShared,
    events: &'a mpsc::Sender<StoreEvent>,
    id: CallId,
    scope: ReadScope,
    consumer: &'a Consumer<pull::Config>,
    batch: usize,
    /// The messages that the consumer has given. It counts them too.
    given: u64,
    /// The sequence of the last of them in the stream.
    last: u64,
    goals: ReadGoals,
    /// When it began. Each message that it gives was the newest one of its subject then, or is newer.
    begun: Instant,
    subjects: SubjectCheck,
    /// The list of subjects that was asked for.
    listing: Option<BoxFuture<'a, Result<Vec<String>, String>>>,
    confirmation: Confirmation<'a>,
    /// The last answer to a question, which waits while the state machine is slow.
    confirmed: Option<StoreEvent>,
}

impl<'a> BatchReader<'a> {
    fn new(
        link: &'a NatsLink,
        shared: &'a NatsShared,
        events: &'a mpsc::Sender<StoreEvent>,
        (id, scope): (CallId, ReadScope),
        consumer: &'a Consumer<pull::Config>,
        begun: Instant,
    ) -> Self {
        let batch = MAX_BATCH_BYTES / link.connection.client.max_payload().max(1);
        Self {
            stream: &link.stream,
            shared,
            events,
            id,
            scope,
            consumer,
            batch: batch.clamp(1, MAX_BATCH),
            given: 0,
            last: 0,
            goals: ReadGoals::new(consumer.cached_info().num_pending, begun),
            begun,
            subjects: SubjectCheck::default(),
            listing: None,
            confirmation: Confirmation::new(&link.stream, shared.questions.asked()),
            confirmed: None,
        }
    }

    fn is_over(&self) -> bool {
        self.scope == ReadScope::Retained && self.subjects.is_complete()
    }

    /// A read of everything ends with an error only.
    async fn run(mut self) -> Result<(), String> {
        loop {
            self.report();
            if self.is_over() {
                return Ok(());
            }
            self.read_batch().await?;
        }
    }

    /// The messages that have come wait here while the state machine is slow, so that the batch does not time out.
    async fn read_batch(&mut self) -> Result<(), String> {
        let describe = |error: &dyn Display| format!("can't read messages: {error}");
        let asked = Instant::now();
        let batch = self.consumer.batch().max_messages(self.batch).expires(BATCH_TIME);
        let mut messages = batch.messages().await.map_err(|error| describe(&error))?;
        let (mut waiting, mut received) = (VecDeque::new(), 0);
        let (mut is_open, events) = (true, self.events);
        let follows = self.scope == ReadScope::Everything;
        while is_open || !waiting.is_empty() {
            tokio::select! {
                next = messages.next(), if is_open => match next {
                    Some(message) => {
                        waiting.push_back(message.map_err(|error| describe(&error))?);
                        received += 1;
                        is_open = received < self.batch;
                    }
                    None if asked.elapsed() > MAX_BATCH_TIME => {
                        return Err(describe(&"the server does not answer"));
                    }
                    None => is_open = false,
                },
                permit = events.reserve(), if self.confirmed.is_some() || !waiting.is_empty() => {
                    let permit = permit.map_err(|_| SESSION_END)?;
                    if let Some(confirmed) = self.confirmed.take() {
                        permit.send(confirmed);
                    } else if let Some(message) = waiting.pop_front() {
                        permit.send(self.take(&message, asked)?);
                    }
                    self.report();
                    if self.is_over() {
                        return Ok(());
                    }
                    self.confirm();
                }
                () = self.confirmation.next(), if follows => self.confirm(),
                Some(list) = OptionFuture::from(self.listing.as_mut()) => {
                    self.listing = None;
                    self.subjects.list(list?, self.begun);
                    self.report();
                    if self.is_over() {
                        return Ok(());
                    }
                    self.confirm();
                }
            }
        }
        if received < self.batch {
            self.set_goals().await?;
        }
        Ok(())
    }

    /// The server ends a batch also if it is too slow to fill it, so it has to say what is pending. Two answers are a pair.
    async fn set_goals(&mut self) -> Result<(), String> {
        for _ in 0..2 {
            let asked = Instant::now();
            let info = self.consumer.get_info().await;
            let info = info.map_err(|error| format!("can't ask what is pending: {error}"))?;
            self.goals
                .set(info.delivered.consumer_sequence + info.num_pending, asked);
            self.report();
            if !self.goals.is_reached() {
                break;
            }
        }
        Ok(())
    }

    fn take(&mut self, message: &Message, asked: Instant) -> Result<StoreEvent, String> {
        let info = message
            .info()
            .map_err(|error| format!("a message without a position: {error}"))?;
        if info.consumer_sequence != self.given + 1 {
            return Err("the server omitted messages of a read".to_owned());
        }
        (self.given, self.last) = (info.consumer_sequence, info.stream_sequence);
        self.shared.reads.note_given(self.scope, self.last);
        self.goals.offer(self.given + info.pending, asked);
        self.subjects.give(&message.subject);
        let stored = self.shared.receive(NatsMessage {
            subject: &message.subject,
            headers: message.headers.as_ref(),
            payload: message.payload.clone(),
            sequence: info.stream_sequence,
            time: info.published,
        });
        Ok(StoreEvent::Read(self.id, stored))
    }

    /// Answers a question, if all messages until then are given. The answer goes before the next message: to wait for room
    /// here would let the batch time out.
    fn confirm(&mut self) {
        if self.scope != ReadScope::Everything || !self.subjects.is_complete() {
            return;
        }
        if let Some((question, delay)) = self.confirmation.reach(self.last) {
            self.confirmed = Some(StoreEvent::Confirmed(self.id, delay, question));
        }
    }

    /// Says that the read is current. While the state machine is slow, it does without.
    fn report(&mut self) {
        let now = Instant::now();
        let progress = self.goals.reach(self.given, now);
        if self.subjects.is_complete() {
            // The list that is on its way is not needed, and may fail.
            self.listing = None;
        }
        let is_reached = progress != GoalProgress::Waiting;
        if is_reached && !self.subjects.is_complete() && self.listing.is_none() {
            let filter = subject_filter(&self.shared.cluster, self.scope);
            self.listing = Some(list_subjects(self.stream, filter).boxed());
        }
        // A short read has all that there was at its begin.
        let is_listed = self.subjects.take_listed(now, MAX_ANSWER_AGE);
        let delay = match progress {
            GoalProgress::Current(time) if self.subjects.is_complete() => Some(time),
            _ => None,
        };
        let delay = if is_listed { Some(Duration::ZERO) } else { delay };
        if let Some(delay) = delay.filter(|_| self.scope == ReadScope::Everything) {
            self.shared.reads.note_current();
            let _ = self
                .events
                .try_send(StoreEvent::Current(self.id, delay, now.into_std()));
        }
    }
}

/// Asks which subjects there are. A purge may remove some of a list, so each goal has a list of its own.
async fn list_subjects(stream: &Stream<()>, filter: String) -> Result<Vec<String>, String> {
    let describe = |error: &dyn Display| format!("can't list the subjects: {error}");
    let subjects = stream.info_with_subjects(filter).await;
    let subjects = subjects.map_err(|error| describe(&error))?;
    let subjects = subjects.map_ok(|(subject, _)| subject).try_collect();
    subjects.await.map_err(|error| describe(&error))
}
