// SPDX-License-Identifier: Apache-2.0

//! The calls that change the store.

use std::error::Error;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use async_nats::jetstream::{self, ErrorCode};
use tidegate_cluster::{
    LeaseRequest, PageLimits, RunName, StoreError, StoreMessage, StoreReply, StoredMessage,
};

use crate::codec::{NatsMessage, encode};
use crate::link::NatsLink;
use crate::shared::NatsShared;

/// The header with the term of a lease, in nanoseconds. The record stays when the lease is over.
const TERM: &str = "tg-term";

/// The code of a compare-and-set that another one has just overtaken.
const OVERTAKEN: ErrorCode = ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT;

/// Stores a page.
pub(crate) async fn publish(
    link: &NatsLink,
    shared: &NatsShared,
    message: &StoreMessage,
) -> Result<StoreReply, StoreError> {
    store(link, shared, message, None).await
}

/// Stores a record if its predecessor has the expected sequence.
pub(crate) async fn compare_and_set(
    link: &NatsLink,
    shared: &NatsShared,
    message: &StoreMessage,
    expected: u64,
) -> Result<StoreReply, StoreError> {
    store(link, shared, message, Some(expected)).await
}

/// Takes or extends a lease. The record of a lease that is over counts as gone.
pub(crate) async fn lease(
    link: &NatsLink,
    shared: &NatsShared,
    request: LeaseRequest,
) -> Result<StoreReply, StoreError> {
    let mut message = request.message;
    let term = request.term.as_nanos().to_string();
    message.headers.push((TERM.to_owned(), term));
    match store(link, shared, &message, Some(request.expected)).await {
        Err(StoreError::Conflict(Some(current))) if is_over(&current, shared.clock.now()) => {
            store(link, shared, &message, Some(current.sequence)).await
        }
        result => result,
    }
}

/// Whether the lease of a record is over by the clock of the store. A record without a term is none.
fn is_over(record: &StoredMessage, now: u64) -> bool {
    let headers = &record.message.headers;
    let term = headers.iter().find(|(name, _)| name == TERM);
    let term = term.and_then(|(_, term)| term.parse().ok()).unwrap_or(0);
    record.time.saturating_add(term) <= now
}

/// Removes the pages of a run up to a sequence.
pub(crate) async fn purge(
    link: &NatsLink,
    shared: &NatsShared,
    run: &RunName,
    through: u64,
) -> Result<StoreReply, StoreError> {
    if through == 0 {
        // NATS would take the sequence 1 as no bound and remove all pages.
        return Ok(StoreReply::Purged);
    }
    // NATS keeps the message with the sequence that it gets.
    let purge = link.stream.purge().sequence(through.saturating_add(1));
    let purged = purge.filter(run.filter(&shared.cluster)).await;
    purged.map_err(|error| unavailable(shared, format!("can't remove pages: {error}")))?;
    Ok(StoreReply::Purged)
}

async fn store(
    link: &NatsLink,
    shared: &NatsShared,
    message: &StoreMessage,
    expected: Option<u64>,
) -> Result<StoreReply, StoreError> {
    let (headers, payload) = encode(message, PageLimits::default())?;
    let bytes = payload.len();
    let mut publish = PublishMessage::build().headers(headers).payload(payload);
    if let Some(expected) = expected {
        publish = publish.expected_last_subject_sequence(expected);
    }
    match send(link, &message.subject, publish).await {
        Ok(sequence) => {
            shared.note_sent(bytes);
            Ok(StoreReply::Stored(sequence))
        }
        Err(error) => Err(refusal(link, shared, &message.subject, &error).await),
    }
}

/// Sends a message and waits for its sequence.
async fn send(link: &NatsLink, subject: &str, message: PublishMessage) -> Result<u64, PublishError> {
    let ack = link.context.send_publish(subject.to_owned(), message).await?;
    Ok(ack.await?.sequence)
}

/// The error of a message that the store did not take.
async fn refusal(link: &NatsLink, shared: &NatsShared, subject: &str, error: &PublishError) -> StoreError {
    const TOO_LARGE: [ErrorCode; 2] = [
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM,
        ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM,
    ];
    let cause = error
        .source()
        .and_then(|cause| cause.downcast_ref::<jetstream::Error>());
    let code = cause.map(jetstream::Error::error_code);
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => StoreError::TooLarge,
        PublishErrorKind::WrongLastSequence => conflict(link, shared, subject).await,
        _ if code == Some(OVERTAKEN) => conflict(link, shared, subject).await,
        _ if code.is_some_and(|code| TOO_LARGE.contains(&code)) => StoreError::TooLarge,
        kind => {
            if kind == PublishErrorKind::StreamNotFound {
                link.end();
            }
            unavailable(shared, format!("can't store a message: {error}"))
        }
    }
}

/// The error of a compare-and-set: the current message of the subject.
async fn conflict(link: &NatsLink, shared: &NatsShared, subject: &str) -> StoreError {
    match link.stream.get_last_raw_message_by_subject(subject).await {
        Ok(current) => {
            let current = NatsMessage {
                subject: &current.subject,
                headers: Some(&current.headers),
                payload: current.payload.clone(),
                sequence: current.sequence,
                time: current.time,
            };
            StoreError::Conflict(Some(Box::new(shared.receive(current))))
        }
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => StoreError::Conflict(None),
        Err(error) => unavailable(shared, format!("can't read a record: {error}")),
    }
}

pub(crate) fn unavailable(shared: &NatsShared, error: String) -> StoreError {
    let error = shared.explain(error);
    shared.note_error(error.clone());
    StoreError::Unavailable(error)
}
