// SPDX-License-Identifier: Apache-2.0

//! Reads of many messages.

mod newest;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_cluster::{CallId, ReadScope, StoreError, StoreEvent, StoreReply, Subject};
use tokio::sync::{mpsc, oneshot};

use self::newest::NewestMessages;
use crate::client::{Client, ClientError, LogReader};
use crate::record::LogRecord;
use crate::records::RecordRequest;
use crate::shared::{EngineState, Link};

/// How long one poll waits.
const POLL: Duration = Duration::from_millis(500);

/// The same for [`QUESTION_TIME`] after a question for the ends of the log: the next question must not wait long for its
/// answer.
const QUESTION_POLL: Duration = Duration::from_millis(50);

/// Readers come more often than this. Without readers, short polls would only cost the brokers requests.
const QUESTION_TIME: Duration = Duration::from_mins(2);

/// The same before the ends of the log are read. The end of a transaction has no record, so a poll does not end with it.
const FIRST_POLL: Duration = Duration::from_millis(20);

/// The time between two questions for the ends of the log.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Ends that were asked for longer ago say nothing of what is pending now. The process was suspended, the network was cut, or
/// the read is slow.
const MAX_GOAL_AGE: Duration = Duration::from_millis(1500);

/// A read goes on after errors for this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause after an error.
const PAUSE: Duration = Duration::from_millis(200);

/// The ends of the log at one moment. A reader that has read up to them knew everything then. It seldom reads up to the
/// present end where many write.
struct ReadGoal {
    ends: HashMap<i32, i64>,
    asked: Instant,
    /// The last question that was asked before; 0: none.
    question: u64,
    is_reached: bool,
}

impl ReadGoal {
    async fn ask(client: &Client, partitions: &[i32], question: u64) -> Result<Self, ClientError> {
        let asked = Instant::now();
        Ok(Self {
            ends: client.ends(partitions).await?,
            asked,
            question,
            is_reached: false,
        })
    }

    /// Whether it still says what the log has.
    fn is_current(&self, now: Instant) -> bool {
        now.duration_since(self.asked) <= MAX_GOAL_AGE
    }
}

/// One read of a session.
pub(crate) struct ReadTask {
    pub(crate) shared: Arc<EngineState>,
    pub(crate) id: CallId,
    pub(crate) scope: ReadScope,
    pub(crate) events: mpsc::Sender<StoreEvent>,
}

impl ReadTask {
    /// Reads until the end, or until the connection is lost.
    pub(crate) async fn run(self, client: &Arc<Client>, link: &mut Link) -> Result<StoreReply, StoreError> {
        // The log has earlier records of a subject too. A read of the present totals gives the last ones only.
        let wanted = match self.scope {
            ReadScope::Everything => None,
            ReadScope::Retained => Some(self.last_offsets().await?),
        };
        tokio::select! {
            result = self.read(client, wanted) => {
                if result.is_err() {
                    // The machine reads again at once, and the next reader is a client that knows of no failure before.
                    tokio::time::sleep(PAUSE).await;
                }
                result
            }
            () = link.lost(client) => {
                Err(StoreError::Unavailable("the connection to Kafka is lost".to_owned()))
            }
        }
    }

    async fn last_offsets(&self) -> Result<HashMap<String, i64>, StoreError> {
        let (answer, offsets) = oneshot::channel();
        let request = RecordRequest::Offsets(answer);
        let ended = || StoreError::Unavailable("the engine has ended the call".to_owned());
        self.shared.retained.send(request).await.map_err(|_| ended())?;
        offsets.await.map_err(|_| ended())?
    }

    async fn read(
        &self,
        client: &Client,
        wanted: Option<HashMap<String, i64>>,
    ) -> Result<StoreReply, StoreError> {
        let partitions = self.shared.layout.scope(self.scope);
        let failed = |error| self.shared.failed(error);
        let mut reader = client.reader(&partitions).await.map_err(failed)?;
        let questions = self.shared.questions.asked();
        let newest_question = || *questions.borrow();
        let goal = ReadGoal::ask(client, &partitions, newest_question()).await;
        let mut goal = goal.map_err(failed)?;
        let mut worked = Instant::now();
        // The time of the last question.
        let mut questioned = (goal.question > 0).then_some(worked);
        // Until the first goal is reached.
        let mut newest = Some(NewestMessages::default());
        loop {
            let wait = match goal.is_reached {
                true if questioned.is_some_and(|at| at.elapsed() < QUESTION_TIME) => QUESTION_POLL,
                true => POLL,
                false => FIRST_POLL,
            };
            match self
                .turn(&mut reader, wait, wanted.as_ref(), newest.as_mut())
                .await
            {
                Ok(true) => {}
                Ok(false) => return Ok(StoreReply::ReadEnd),
                Err(error) if worked.elapsed() >= PATIENCE => return Err(failed(error)),
                Err(error) => {
                    tracing::debug!(%error, "a read from Kafka goes on after an error");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            }
            if !goal.is_reached && self.pending(&reader, &goal.ends).await.map_err(failed)? == 0 {
                goal.is_reached = true;
                if let Some(mut newest) = newest.take()
                    && !self.give_all(&mut newest).await
                {
                    return Ok(StoreReply::ReadEnd);
                }
                if self.scope == ReadScope::Retained {
                    return Ok(StoreReply::ReadEnd);
                }
                let now = Instant::now();
                if goal.is_current(now) {
                    self.send(StoreEvent::Current(self.id, Duration::ZERO, now)).await;
                }
                if goal.question > 0 {
                    let confirmed = StoreEvent::Confirmed(self.id, Duration::ZERO, goal.question);
                    self.send(confirmed).await;
                }
            }
            let is_asked = goal.is_reached && newest_question() > goal.question;
            if !is_asked && goal.asked.elapsed() < REPORT_INTERVAL {
                worked = Instant::now();
                continue;
            }
            // A broker that does not answer is not current: the reader must not believe that it knows everything.
            match ReadGoal::ask(client, &partitions, newest_question()).await {
                Ok(next) => {
                    worked = Instant::now();
                    if next.question > goal.question {
                        questioned = Some(worked);
                    }
                    goal = next;
                }
                Err(error) if worked.elapsed() >= PATIENCE => return Err(failed(error)),
                Err(error) => tracing::debug!(%error, "Kafka does not give the ends of the topic"),
            }
        }
    }

    /// Reads the next records, and gives their messages or keeps them in `newest`. `false`: nobody takes them.
    async fn turn(
        &self,
        reader: &mut LogReader,
        wait: Duration,
        wanted: Option<&HashMap<String, i64>>,
        mut newest: Option<&mut NewestMessages>,
    ) -> Result<bool, ClientError> {
        let records = reader.poll(wait).await?;
        if let Some((partition, offset)) = reader.skipped.take() {
            self.shared.note_skipped(partition, offset);
        }
        for record in records {
            self.index(&record);
            // A page that is gone now is given all the same. The total that has replaced it is in another partition, of which
            // this read may not know yet.
            let Some(stored) = record.stored() else { continue };
            let first = wanted.map(|wanted| wanted.get(&stored.message.subject).copied().unwrap_or(0));
            if first.is_some_and(|first| record.offset < first) {
                continue;
            }
            self.shared.note_received(stored.message.body.len());
            let is_taken = match &mut newest {
                Some(newest) => {
                    newest.insert(stored);
                    !newest.is_full() || self.give_all(newest).await
                }
                None => self.send(StoreEvent::Read(self.id, stored)).await,
            };
            if !is_taken {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives the kept messages. `false`: nobody takes them.
    async fn give_all(&self, newest: &mut NewestMessages) -> bool {
        for stored in newest.take() {
            if !self.send(StoreEvent::Read(self.id, stored)).await {
                return false;
            }
        }
        true
    }

    fn index(&self, record: &LogRecord) {
        let Some(text) = record.subject() else { return };
        let Some(subject) = Subject::parse(&self.shared.layout.cluster, text) else {
            return;
        };
        let mut index = self.shared.index.lock();
        let has_room = if record.body.is_some() {
            index.note(&subject, record.sequence())
        } else {
            index.forget(&subject, record.sequence());
            true
        };
        drop(index);
        if !has_room && let Some(more) = self.shared.index_log.ready() {
            tracing::warn!(
                more,
                "the list of pages is full: purges do not remove further pages. Raise `max_index_bytes`"
            );
        }
    }

    /// The number of records up to these ends. Records that the cleaner has removed count too, until the read is there.
    async fn pending(&self, reader: &LogReader, ends: &HashMap<i32, i64>) -> Result<u64, ClientError> {
        let positions = reader.positions().await?;
        let pending = ends.iter().map(|(partition, end)| {
            let position = positions.get(partition).copied().unwrap_or(0);
            u64::try_from(end.saturating_sub(position)).unwrap_or(0)
        });
        Ok(pending.fold(0, u64::saturating_add))
    }

    async fn send(&self, event: StoreEvent) -> bool {
        self.events.send(event).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_ends_of_the_log_say_nothing_of_the_present() {
        let asked = Instant::now();
        let goal = ReadGoal {
            ends: HashMap::new(),
            asked,
            question: 0,
            is_reached: false,
        };
        assert!(goal.is_current(asked + Duration::from_millis(1400)));
        // The process was suspended: the answer waited in a buffer.
        assert!(!goal.is_current(asked + Duration::from_secs(4)));
    }
}
