// SPDX-License-Identifier: Apache-2.0

//! A connection of the stream socket: messages in, acknowledgements out.

mod frames;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use prost::{DecodeError, Message};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use self::frames::Frames;
use super::config::StreamConfig;
use super::proto::{EventAck, EventBatch};
use super::session::{Session, SessionError, Taken};
use super::silence::Silence;
use super::sink::{EventSink, LIGHT_EVENTS, MEMORY_POLL};
use super::weigh::{Weighed, columns, count_events, weigh};
use crate::component::account::Pauses;
use crate::component::unix_now;
use crate::component::worker::Slot;
use crate::component::{Held, PushOutcome, Refused};
use crate::net::http::READER_STALL;
use crate::net::server::{Ended, count_ended};
use crate::net::{Connection, Peer};

/// Messages up to this size are weighed and decoded on the spot: columns of numbers take less than a millisecond...
const INLINE_MAX_BYTES: usize = 256 << 10;

/// ...or this many bytes of kinds and sources, which may have an attribute in every two of them.
const INLINE_MAX_DECLARED: usize = 16 << 10;

/// The largest decoded message without a reservation, in bytes. The messages of 512 connections take 8 MiB.
const FREE_BYTES: usize = 16 << 10;

/// A wait for a total of this many bytes has an end. For less, the sender keeps its events until memory is free.
const LARGE: usize = 1 << 20;

/// The longest of these waits. Meanwhile the connection keeps the received part of the message.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The longest wait of a complete message for memory to decode it. Others wait for the memory that it takes.
const LONGEST_HOLD: Duration = Duration::from_secs(30);

/// The longest pauses within a message.
const PAUSES: Pauses = Pauses {
    usual: Duration::from_secs(30),
    while_short: Duration::from_secs(1),
};

/// The reason why a connection is closed.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error(
        "a message of {length} bytes is larger than `max_frame_size` ({limit} bytes): send smaller batches, or raise it"
    )]
    TooLarge { length: u64, limit: usize },
    #[error("invalid length: the stream is not a sequence of length-delimited messages")]
    NoLength,
    #[error("not a tidegate.v1.EventBatch: {0}")]
    NotABatch(#[from] DecodeError),
    #[error("not a tidegate.v1.EventBatch: {0}")]
    NoMessage(&'static str),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("a message of {0} bytes exceeds the free memory: send it again later, or raise the memory limit")]
    NoRoom(usize),
    /// A complete message that could not be decoded, with its number of events.
    #[error("{why}")]
    Undecoded { events: usize, why: Box<StreamError> },
    #[error("an incomplete message got no more data for {:?}", PAUSES.usual)]
    Paused,
    #[error("memory is short, and an incomplete message got no more data for {:?}", PAUSES.while_short)]
    TooSlow,
    #[error("the connection is silent: {0:?}")]
    Silent(Ended),
    #[error("the receiver stops")]
    Stopping,
    #[error("the receiver stops while a message waits for room")]
    StoppedWaiting,
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
}

/// Serves a connection until its peer closes it or breaks the rules, or the receiver stops.
pub(super) async fn serve(connection: Connection, sink: Arc<EventSink>, config: Arc<StreamConfig>) {
    let peer = match connection.peer {
        Peer::Unix(credentials) if config.peer_credentials => credentials,
        _ => None,
    };
    let component = &*connection.component;
    let mut serving = Serving {
        frames: Frames {
            stream: connection.stream,
            buffer: BytesMut::new(),
            limit: config.max_frame_size.as_usize(),
            closed: false,
            held: sink.hold(),
            went_on: Instant::now(),
            waiting: None,
            arriving: None,
            silence: Silence::new(connection.crowd),
            stopping: connection.stopping.clone(),
        },
        session: Session::new(peer, config.max_kinds.get(), sink.source_timeout),
        declared: sink.hold(),
        max_kinds: config.max_kinds.get().into(),
        sink: sink.clone(),
        endpoint: connection.endpoint,
        stopping: connection.stopping,
    };
    match serving.run().await {
        Ok(()) => {}
        Err(StreamError::Io(error)) => tracing::debug!(component, ?peer, %error, "event connection broke"),
        Err(error @ StreamError::Stopping) => {
            tracing::debug!(component, ?peer, %error, "event connection ends");
        }
        // A message without events counts as one.
        Err(StreamError::Undecoded { events, why }) => sink.lose(events.max(1), "memory", &why),
        Err(error @ (StreamError::NoRoom(_) | StreamError::TooSlow)) => sink.lose(1, "memory", &error),
        Err(error) => sink.lose(1, "malformed", &error),
    }
}

struct Serving {
    frames: Frames,
    session: Session,
    /// The reservation of the connection's declared kinds and sources, until it closes.
    declared: Held,
    max_kinds: usize,
    sink: Arc<EventSink>,
    /// The endpoint of the listener, as a label.
    endpoint: Arc<str>,
    stopping: CancellationToken,
}

impl Serving {
    async fn run(&mut self) -> Result<(), StreamError> {
        // An open connection is a sign of life, well within the time after which its sources would count as gone.
        let mut alive = tokio::time::interval((self.sink.source_timeout / 3).max(Duration::from_millis(1)));
        let stopping = self.stopping.clone();
        loop {
            let closed = self.frames.closed;
            let next = tokio::select! {
                next = self.frames.next() => next,
                () = stopping.cancelled(), if !closed => {
                    self.frames.close()?;
                    continue;
                }
                _ = alive.tick() => {
                    self.session.touch(unix_now());
                    continue;
                }
            };
            let next = match next {
                Err(StreamError::Silent(why)) => {
                    count_ended(&self.endpoint, why);
                    // The peer may have sent something at this moment.
                    self.frames.close()?;
                    continue;
                }
                next => next?,
            };
            let Some(frame) = next else {
                return Ok(());
            };
            let Decoded {
                batch,
                decoding,
                slot,
            } = self.decode(frame).await?;
            let taken = self.take(batch, slot).await;
            self.declared.keep(self.session.bytes());
            taken?;
            drop(decoding);
            stopping
                .run_until_cancelled(self.sink.memory_is_available())
                .await;
            self.frames.silence.has_declared = self.session.has_kinds();
            // Until now it was not the peer's turn.
            self.frames.went_on = Instant::now();
        }
    }

    /// Decodes a message after a reservation of its decoded form.
    async fn decode(&mut self, frame: Bytes) -> Result<Decoded, StreamError> {
        let slot = slot_if(frame.len() > INLINE_MAX_BYTES).await?;
        let weigh = move || (weigh(&frame), frame);
        let ((weighed, frame), slot) = work(slot, weigh).await?;
        let weighed = weighed.map_err(StreamError::NoMessage)?;
        if weighed.kinds > self.max_kinds {
            return Err(SessionError::too_many_kinds(self.max_kinds).into());
        }
        let room = self.room_for(&weighed, slot).await;
        let (mut decoding, mut slot) = room.map_err(|why| undecoded(why, &frame))?;
        if slot.is_none() {
            slot = slot_if(weighed.declared > INLINE_MAX_DECLARED).await?;
        }
        let (batch, slot) = work(slot, move || EventBatch::decode(frame)).await?;
        let batch = batch?;
        if decoding.bytes() > 0 {
            // Most numbers take less than their maximum.
            let takes = weighed.decoded_declared + columns(&batch);
            decoding.keep(decoding.bytes().min(takes));
        }
        Ok(Decoded {
            batch,
            decoding,
            slot,
        })
    }

    /// Reserves memory for the decoded message and for its kept parts. Meanwhile the message waits undecoded, and
    /// the sender keeps the later ones.
    async fn room_for(
        &mut self,
        weighed: &Weighed,
        mut slot: Option<Slot>,
    ) -> Result<(Held, Option<Slot>), StreamError> {
        let mut decoding = self.sink.hold();
        if weighed.decoded > FREE_BYTES {
            slot = make_room_in(slot, &mut decoding, weighed.decoded, &self.stopping).await?;
        }
        // Repeated declarations take no more memory, but that is known only afterwards.
        let declared = self.session.bytes() + weighed.kept;
        slot = make_room_in(slot, &mut self.declared, declared, &self.stopping).await?;
        Ok((decoding, slot))
    }

    /// Passes a batch to the session, in the current slot, or in a new slot if it has many events.
    async fn enter(
        &mut self,
        batch: EventBatch,
        mut slot: Option<Slot>,
    ) -> Result<(Result<Taken, SessionError>, Option<Slot>), StreamError> {
        if slot.is_none() {
            slot = slot_if(batch.events.len() > LIGHT_EVENTS).await?;
        }
        let now = unix_now();
        if slot.is_none() {
            return Ok((self.session.take(batch, now), None));
        }
        let mut session = self.session.lend();
        let enter = move || (session.take(batch, now), session);
        let ((taken, session), slot) = work(slot, enter).await?;
        self.session = session;
        Ok((taken, slot))
    }

    async fn take(&mut self, batch: EventBatch, slot: Option<Slot>) -> Result<(), StreamError> {
        let (sequence, acknowledge, events) = (batch.sequence, batch.acknowledge, batch.events.len());
        let (taken, slot) = self.enter(batch, slot).await?;
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) => {
                // The answer may take long to be read.
                drop(slot);
                self.sink.lose(events, "malformed", &error);
                self.acknowledge(
                    acknowledge,
                    EventAck {
                        sequence,
                        ..rejection(events, error.to_string())
                    },
                )
                .await?;
                return if error.is_fatal() {
                    Err(error.into())
                } else {
                    Ok(())
                };
            }
        };
        let (flawed, why) = taken.rejected.unwrap_or_default();
        let sound = taken.events.len();
        let slot = slot.filter(|_| sound > 0);
        let answer = if taken.events.is_empty() {
            Ok(PushOutcome::default())
        } else if acknowledge {
            // A sender that waits for an answer keeps its batch itself; for others we keep it and stop reading.
            let batch = crate::batch::Batch::new(taken.events);
            self.sink.send(batch, slot).await
        } else {
            let (sink, stopping) = (&self.sink, &self.stopping);
            sink.push_until_taken(taken.events, slot, stopping).await
        };
        let ack = match answer {
            Ok(outcome) => acceptance(sound, flawed, why, outcome),
            Err(refused) => refusal(events, refused),
        };
        let comes_again = acknowledge && ack.retry_after_ms > 0;
        if flawed > 0 && !comes_again {
            self.sink.lose(flawed, "invalid", &why);
        }
        self.acknowledge(acknowledge, EventAck { sequence, ..ack }).await
    }

    async fn acknowledge(&mut self, wanted: bool, ack: EventAck) -> Result<(), StreamError> {
        if wanted {
            let bytes = ack.encode_length_delimited_to_vec();
            let written = self.frames.stream.write_all(&bytes);
            // One that reads no acknowledgements holds a place and its events.
            timeout(READER_STALL, written).await.map_err(io::Error::from)??;
        }
        Ok(())
    }
}

impl Drop for Serving {
    /// The sources end with the connection, or with a receiver that stops.
    fn drop(&mut self) {
        if self.stopping.is_cancelled() {
            self.sink.stopped.add(self.session.lend(), self.declared.take());
        }
    }
}

fn acceptance(sound: usize, flawed: usize, why: &str, outcome: PushOutcome) -> EventAck {
    let unwanted = outcome.rejected_items.min(sound);
    let message = if flawed > 0 {
        why.to_owned()
    } else {
        outcome.message
    };
    EventAck {
        accepted: (sound - unwanted) as u64,
        rejected: (flawed + unwanted) as u64,
        message,
        ..EventAck::default()
    }
}

fn refusal(events: usize, refused: Refused) -> EventAck {
    match refused.retry_after {
        None => rejection(events, refused.reason),
        Some(delay) => EventAck {
            message: refused.reason,
            retry_after_ms: u64::try_from(delay.as_millis()).unwrap_or(u64::MAX).max(1),
            ..EventAck::default()
        },
    }
}

fn rejection(events: usize, message: String) -> EventAck {
    EventAck {
        rejected: events as u64,
        message,
        ..EventAck::default()
    }
}

/// A decoded message.
struct Decoded {
    batch: EventBatch,
    /// Room for all of it.
    decoding: Held,
    /// The slot of a long decoding, for the next step.
    slot: Option<Slot>,
}

/// The error of a complete message, and its loss if memory is the reason.
fn undecoded(why: StreamError, message: &[u8]) -> StreamError {
    if !matches!(why, StreamError::NoRoom(_) | StreamError::StoppedWaiting) {
        return why;
    }
    StreamError::Undecoded {
        events: count_events(message),
        why: Box::new(why),
    }
}

/// A place for long work. Connections are limited in number, so they wait as long as it takes.
async fn slot_if(is_long: bool) -> Result<Option<Slot>, StreamError> {
    if is_long {
        Ok(Some(Slot::get_in_any_case().await.map_err(io::Error::other)?))
    } else {
        Ok(None)
    }
}

/// Does work in its place, which is there for more, or on the spot.
async fn work<T: Send + 'static>(
    slot: Option<Slot>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<(T, Option<Slot>), StreamError> {
    let Some(slot) = slot else {
        return Ok((work(), None));
    };
    let (done, slot) = slot.run_on(work).await.map_err(io::Error::other)?;
    Ok((done, Some(slot)))
}

/// Reserves memory like [`make_room`], without keeping a slot during the wait.
async fn make_room_in(
    slot: Option<Slot>,
    held: &mut Held,
    bytes: usize,
    stopping: &CancellationToken,
) -> Result<Option<Slot>, StreamError> {
    if slot.is_none() || held.try_grow_to(bytes).is_err() {
        let is_long = slot.is_some();
        drop(slot);
        // The message is here already: it takes memory while it waits for more.
        let waiting = make_room(held, bytes, Instant::now(), stopping);
        let waited = timeout(LONGEST_HOLD, waiting).await;
        match waited.unwrap_or(Err(StreamError::NoRoom(bytes))) {
            Err(StreamError::Stopping) => return Err(StreamError::StoppedWaiting),
            room => room?,
        }
        return slot_if(is_long).await;
    }
    Ok(slot)
}

/// Reserves at least this total, and waits for it; unread data stays with the sender. It gives up if the total can
/// never fit, 2 s after it `began` to wait for much, and when the receiver stops.
async fn make_room(
    held: &mut Held,
    bytes: usize,
    began: Instant,
    stopping: &CancellationToken,
) -> Result<(), StreamError> {
    loop {
        let more = bytes.saturating_sub(held.bytes());
        if !held.could_ever_grow(more) || (bytes >= LARGE && began.elapsed() >= LONGEST_WAIT) {
            return Err(StreamError::NoRoom(bytes));
        }
        if held.grow_in_time(bytes).await.is_ok() {
            return Ok(());
        }
        if stopping.is_cancelled() {
            return Err(StreamError::Stopping);
        }
        tokio::time::sleep(MEMORY_POLL).await;
    }
}

#[cfg(test)]
mod tests;
