// SPDX-License-Identifier: Apache-2.0

//! Writes of records by compare-and-set. A task per partition does them one after another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use tidegate_cluster::{StoreError, StoreMessage, StoreReply};
use tokio::sync::{mpsc, oneshot};

use crate::client::{Client, ClientError, NewRecord};
use crate::compare::{Compare, CompareStep};
use crate::record::TERM;
use crate::shared::{EngineState, Link};
use crate::view::RecordView;

/// Another writer of the same subject may interrupt a call this often.
const ATTEMPTS: u32 = 5;

/// The longest pause before the next attempt, in milliseconds.
const MAX_PAUSE: u64 = 100;

/// A record to write, and what it replaces.
#[derive(Clone, Debug)]
pub(crate) struct ComparedRecord {
    pub(crate) message: StoreMessage,
    pub(crate) expected: u64,
    /// The term of a lease.
    pub(crate) term: Option<Duration>,
}

/// A request to the task of a partition.
pub(crate) enum RecordRequest {
    Compare(ComparedRecord, oneshot::Sender<Result<StoreReply, StoreError>>),
    /// The offsets of the last records.
    Offsets(oneshot::Sender<Result<HashMap<String, i64>, StoreError>>),
}

/// Carries out the requests for a partition.
pub(crate) async fn run(
    shared: Arc<EngineState>,
    partition: i32,
    mut link: Link,
    mut requests: mpsc::Receiver<RecordRequest>,
) {
    let mut task = RecordTask::new(shared.clone(), partition);
    loop {
        tokio::select! {
            // The engine has the other end of the link, and this task an end of its own queue.
            changed = link.0.changed() => match changed {
                Ok(()) => task.forget(),
                Err(_) => return,
            },
            Some(request) = requests.recv() => {
                // The caller has waited for a connection. The requests behind this one must not wait for it.
                let client = link.present();
                let work = tokio::spawn(async move {
                    task.carry_out(client, request).await;
                    task
                });
                // A panic ends this request only.
                task = match work.await {
                    Ok(task) => task,
                    Err(_) => RecordTask::new(shared.clone(), partition),
                };
            }
        }
    }
}

struct RecordTask {
    shared: Arc<EngineState>,
    partition: i32,
    view: RecordView,
    /// The connection that the view is from.
    client: Option<Arc<Client>>,
}

impl RecordRequest {
    /// Whether nobody waits for the answer.
    fn is_given_up(&self) -> bool {
        match self {
            Self::Compare(_, answer) => answer.is_closed(),
            Self::Offsets(answer) => answer.is_closed(),
        }
    }
}

impl RecordTask {
    fn new(shared: Arc<EngineState>, partition: i32) -> Self {
        let max_bytes = shared.config.max_index_bytes.as_usize();
        Self {
            view: RecordView::new(shared.layout.clone(), partition, max_bytes),
            client: None,
            partition,
            shared,
        }
    }

    async fn carry_out(&mut self, client: Option<Arc<Client>>, request: RecordRequest) {
        if request.is_given_up() {
            return;
        }
        let client = client.ok_or_else(|| self.shared.outage());
        // The caller may be gone at the end.
        match request {
            RecordRequest::Compare(record, answer) => {
                let result = match client {
                    Ok(client) => self.compare(&client, record).await,
                    Err(error) => Err(error),
                };
                let _ = answer.send(result);
            }
            RecordRequest::Offsets(answer) => {
                let result = match client {
                    Ok(client) => self.offsets(&client).await,
                    Err(error) => Err(error),
                };
                let _ = answer.send(result);
            }
        }
    }

    fn forget(&mut self) {
        self.view.reset();
        self.client = None;
    }

    fn follow(&mut self, client: &Arc<Client>) {
        if !self
            .client
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, client))
        {
            self.view.reset();
            self.client = Some(client.clone());
        }
    }

    async fn compare(
        &mut self,
        client: &Arc<Client>,
        record: ComparedRecord,
    ) -> Result<StoreReply, StoreError> {
        self.follow(client);
        for _ in 1..ATTEMPTS {
            match self.attempt(client, &record).await {
                Err(ClientError::Fenced) => {
                    let pause = rand::rng().random_range(1..=MAX_PAUSE);
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                result => return self.answer(client, &record, result).await,
            }
        }
        let result = self.attempt(client, &record).await;
        self.answer(client, &record, result).await
    }

    async fn answer(
        &self,
        client: &Client,
        record: &ComparedRecord,
        result: Result<CompareStep, ClientError>,
    ) -> Result<StoreReply, StoreError> {
        let subject = &record.message.subject;
        match result {
            Ok(CompareStep::Stored(sequence)) => {
                self.shared.note_sent(record.message.body.len());
                Ok(StoreReply::Stored(sequence))
            }
            Ok(_) => match self.view.message(client, subject, self.wait()).await {
                Ok(current) => Err(StoreError::Conflict(current.map(Box::new))),
                Err(error) => Err(self.shared.failed(error)),
            },
            Err(error) => Err(self.shared.failed(error)),
        }
    }

    /// Takes the steps of one compare-and-set. The result is the last step.
    async fn attempt(
        &mut self,
        client: &Client,
        record: &ComparedRecord,
    ) -> Result<CompareStep, ClientError> {
        let subject = &record.message.subject;
        let mut compare = Compare::new(record.expected);
        let transaction = client.transaction(subject).await?;
        compare.fenced();
        loop {
            match compare.step() {
                CompareStep::Fence | CompareStep::FindEnd => {
                    compare.found_end(self.end(client).await?);
                }
                CompareStep::Read(end) => {
                    self.view.read_to(client, end, self.wait()).await?;
                    compare.read(self.view.current(subject)?);
                }
                CompareStep::Append(least) => {
                    let appended = transaction.append(self.new_record(record), least).await?;
                    compare.appended(&appended);
                }
                CompareStep::Commit => {
                    transaction.commit().await?;
                    compare.ended();
                }
                CompareStep::Abort => {
                    transaction.abort().await?;
                    compare.ended();
                }
                last @ (CompareStep::Stored(_) | CompareStep::Conflict) => return Ok(last),
            }
        }
    }

    fn new_record(&self, record: &ComparedRecord) -> NewRecord {
        let mut headers = record.message.headers.clone();
        if let Some(term) = record.term {
            headers.push((TERM.to_owned(), term.as_millis().to_string()));
        }
        NewRecord {
            partition: self.partition,
            key: record.message.subject.clone(),
            headers,
            body: Some(record.message.body.clone()),
        }
    }

    async fn offsets(&mut self, client: &Arc<Client>) -> Result<HashMap<String, i64>, StoreError> {
        self.follow(client);
        let read = match self.end(client).await {
            Ok(end) => self.view.read_to(client, end, self.wait()).await,
            Err(error) => Err(error),
        };
        read.map_err(|error| self.shared.failed(error))?;
        Ok(self.view.offsets())
    }

    async fn end(&self, client: &Client) -> Result<i64, ClientError> {
        let ends = client.ends(&[self.partition]).await?;
        let end = ends.get(&self.partition).copied();
        end.ok_or_else(|| ClientError::Kafka("the broker does not give the end of the topic".to_owned()))
    }

    fn wait(&self) -> Duration {
        self.shared.config.request_timeout
    }
}
