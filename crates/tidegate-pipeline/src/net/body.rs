// SPDX-License-Identifier: Apache-2.0

//! Reading bodies. A request body has limits on its size, its time and its memory. The body of an answer to our
//! request has a limit on its size.
//!
//! A body reserves little more memory than its received bytes, whatever length it declares. While memory is short,
//! slow bodies lose their reservation to fast ones.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

use tokio::time::Instant;

use super::refused::{Of, Why};
use crate::component::account::{Account, Arriving, Ceiling, Held, Late, NoRoom, Pauses};

/// The limits of a request body.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// The largest body in bytes, before and after decompression.
    pub max_bytes: usize,
    /// The longest pause within a body. This long after its start, a body must also have arrived at [`SLOWEST`] on
    /// average.
    pub idle_timeout: Duration,
}

/// A memory limit below this is low: large bodies are refused unless configured.
pub const LITTLE_MEMORY_BYTES: usize = 1 << 30;

/// The largest HTTP body with a low memory limit: the Collector's default.
pub const MAX_BODY_OF_LITTLE_MEMORY: usize = 20 << 20;

/// The least average rate of a body, in bytes per second. A slower sender could hold a request for hours.
pub const SLOWEST: f64 = 1024.0;

/// The least average rate while memory is short, in bytes per second.
const PACE: f64 = (1 << 20) as f64;

/// The longest pause within a body while memory is short.
const GRACE: Duration = Duration::from_secs(1);

impl BodyLimits {
    /// Limits with the given size and a pause of at most 30 s.
    pub const fn of(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// The factor between received bytes and the allocation, whatever length is declared. With huge pages, all
/// allocated memory is resident.
const AHEAD: usize = 4;

/// The reservation before the first bytes of a body. Nothing is allocated yet, so it is small.
const UNSEEN_BYTES: usize = 4 << 10;

/// The least reservation after the first bytes.
const FIRST_BYTES: usize = 64 << 10;

/// The reservation after `arrived` bytes of a body with the declared length `promised`, if there is one.
fn claim(promised: Option<usize>, arrived: usize) -> usize {
    match promised {
        Some(promised) if arrived == 0 => promised.min(UNSEEN_BYTES),
        Some(promised) => promised
            .min(arrived.saturating_mul(AHEAD).max(FIRST_BYTES))
            .max(arrived),
        // The buffer grows by doubling.
        None => arrived.saturating_mul(2),
    }
}

/// Reserves memory for the beginning of a body, if memory for all of it is free.
///
/// # Errors
/// Memory is short.
pub async fn begin_body(held: &mut Held, promised: Option<usize>) -> Result<(), NoRoom> {
    held.begin(promised.unwrap_or(0), claim(promised, 0)).await
}

/// The error of reading a body.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The body is larger than the limit.
    #[error("the body is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit_bytes: usize,
    },
    /// Nothing arrived for [`BodyLimits::idle_timeout`].
    #[error("the body did not arrive in time")]
    TimedOut,
    /// The memory account refused more bytes for it.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// It came so slowly that others have its room now.
    #[error("the gateway is over its memory limit, and the body arrived too slowly to keep its memory")]
    TooSlow,
    /// The connection broke, or the framing is wrong.
    #[error("the body ended early: {0}")]
    Broken(String),
}

impl BodyError {
    /// The reason of the refusal.
    pub fn why(&self) -> Why {
        match self {
            Self::TooLarge { .. } => Why::Short(Of::TooLarge),
            Self::TimedOut => Why::Short(Of::IdleBody),
            Self::NoRoom(_) => Why::Short(Of::Body),
            Self::TooSlow => Why::Short(Of::SlowBody),
            Self::Broken(_) => Why::Body,
        }
    }
}

/// Reads a whole body.
///
/// # Errors
/// The body does not arrive, or memory is short.
pub async fn read_body<B>(body: B, limits: BodyLimits, held: &mut Held) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let limit_bytes = limits.max_bytes;
    let promised = promised(&body);
    if promised.is_some_and(|promised| promised > limit_bytes) {
        return Err(BodyError::TooLarge { limit_bytes });
    }
    let mut whole = Run::default();
    let mut chunks = Chunks::under(body, limits.idle_timeout, held);
    while let Some(chunk) = chunks.next().await? {
        if chunk.len() > limit_bytes.saturating_sub(whole.len()) {
            return Err(BodyError::TooLarge { limit_bytes });
        }
        whole.take(chunk, promised, held).await?;
    }
    held.keep(whole.len());
    Ok(whole.freeze())
}

/// Reads the whole answer to our request. `held` has its memory reservation. The caller sets a timeout.
///
/// Each piece is copied into one buffer at once. A list of pieces would take 40 bytes for each, and would keep the
/// read buffers of the connection.
///
/// # Errors
/// The connection breaks, or the body is larger than `limit_bytes`.
pub async fn read_answer<B>(mut body: B, limit_bytes: usize, held: &mut Held) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| BodyError::Broken(error.to_string()))?;
        // Trailers carry no data.
        let Ok(piece) = frame.into_data() else { continue };
        if piece.len() > limit_bytes.saturating_sub(whole.len()) {
            return Err(BodyError::TooLarge { limit_bytes });
        }
        whole.extend_from_slice(&piece);
        held.keep(whole.len());
    }
    Ok(whole.freeze())
}

/// The declared length of a body.
pub fn promised<B: Body>(body: &B) -> Option<usize> {
    let promised = body.size_hint().lower();
    (promised > 0).then(|| usize::try_from(promised).unwrap_or(usize::MAX))
}

/// A piece of this size that is a whole body is not copied. It may keep the read buffer of its connection, which
/// is not much larger then.
const WHOLE_BYTES: usize = 128 << 10;

/// Joins the pieces of a body. A large body in one piece is not copied. All others are copied, because a small
/// piece keeps the whole read buffer of its connection.
#[derive(Default)]
pub struct Run {
    /// The only piece so far, if it is large.
    first: Bytes,
    /// All pieces otherwise.
    all: BytesMut,
}

impl Run {
    /// Appends a piece of a body with `promised` bytes in total.
    pub fn push(&mut self, piece: Bytes, promised: usize) {
        if self.is_empty() && piece.len() >= WHOLE_BYTES {
            self.first = piece;
            return;
        }
        let arrived = self.len() + piece.len();
        if arrived > self.all.capacity() {
            let wanted = promised.min(arrived.saturating_mul(AHEAD)).max(arrived);
            self.all.reserve(wanted - self.all.len());
        }
        self.all.extend_from_slice(&std::mem::take(&mut self.first));
        self.all.extend_from_slice(&piece);
    }

    /// Appends a piece after a reservation, for which it may wait briefly.
    ///
    /// # Errors
    /// Memory is short.
    pub async fn take(
        &mut self,
        piece: Bytes,
        promised: Option<usize>,
        held: &mut Held,
    ) -> Result<(), NoRoom> {
        let arrived = self.len() + piece.len();
        let claim = claim(promised, arrived);
        // The old buffer stays resident for a while beside the larger one. A body that fits only without the old
        // buffer is accepted anyway.
        let copied = if arrived > self.all.capacity() {
            self.len()
        } else {
            0
        };
        let both = claim.saturating_add(copied);
        let copied = if held.could_ever_grow(both.saturating_sub(held.bytes())) {
            copied
        } else {
            0
        };
        held.grow_in_time(claim + copied).await?;
        held.fill_to(arrived);
        self.push(piece, promised.unwrap_or_default());
        held.shrink(copied);
        Ok(())
    }

    /// The bytes so far.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether nothing has come yet.
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// The content so far.
    pub fn as_slice(&self) -> &[u8] {
        if self.first.is_empty() {
            &self.all
        } else {
            &self.first
        }
    }

    /// The whole content.
    pub fn freeze(self) -> Bytes {
        if self.first.is_empty() {
            self.all.freeze()
        } else {
            self.first
        }
    }
}

/// The pieces of a body, as long as they arrive fast enough.
pub struct Chunks<B> {
    body: B,
    idle_timeout: Duration,
    /// The total time of waiting for the sender.
    waited: Duration,
    received: usize,
    arriving: Arriving,
}

impl<B> Chunks<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    /// Starts reading. The account of `held` reserves memory for each piece.
    pub fn under(body: B, idle_timeout: Duration, held: &Held) -> Self {
        Self::new(body, idle_timeout, held.account().clone(), held.ceiling())
    }

    /// Like [`Self::under`], with any ceiling.
    pub fn new(body: B, idle_timeout: Duration, account: Arc<Account>, ceiling: Ceiling) -> Self {
        Self {
            body,
            idle_timeout,
            waited: Duration::ZERO,
            received: 0,
            arriving: Arriving::on(account, ceiling),
        }
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// `TimedOut`: nothing arrives in time. `TooSlow`: memory is short, and the body arrives slowly.
    /// `Broken`: the connection breaks, or the framing is wrong.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        let since = Instant::now();
        let pauses = Pauses {
            usual: self.patience(self.idle_timeout, SLOWEST),
            while_short: self.patience(GRACE, PACE),
        };
        let body = &mut self.body;
        let data = async {
            loop {
                match body.frame().await? {
                    Ok(frame) => {
                        if let Ok(data) = frame.into_data() {
                            return Some(Ok(data));
                        }
                    }
                    Err(error) => return Some(Err(BodyError::Broken(error.to_string()))),
                }
            }
        };
        let data = match self.arriving.wait_for(data, since, pauses).await {
            Ok(None) => return Ok(None),
            Ok(Some(data)) => data?,
            Err(Late::TimedOut) => return Err(BodyError::TimedOut),
            Err(Late::WhileShort) => return Err(BodyError::TooSlow),
        };
        self.received = self.received.saturating_add(data.len());
        self.waited += since.elapsed();
        Ok(Some(data))
    }

    /// The longest wait for the next piece, given the longest pause `idle` and the least average rate `pace`.
    fn patience(&self, idle: Duration, pace: f64) -> Duration {
        let paid_for = Duration::from_secs_f64(self.received as f64 / pace);
        (idle + paid_for).saturating_sub(self.waited).min(idle)
    }
}

#[cfg(test)]
mod tests;
