//! Reading bodies. Of a request: never more than the limit, never for ever, and never beyond what the account has room for.
//! Of an answer to a request of ours: never more than the limit.
//!
//! A body reserves little more than what has arrived of it, whatever it promises. While memory is short, those that come
//! slowly lose their room to those that come fast.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

use tokio::time::Instant;

use super::refused::{Of, Why};
use crate::component::account::{Account, Arriving, Ceiling, Held, Late, NoRoom, Pauses};

/// What a request body may cost.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// Most bytes, before and after decompression.
    pub max_bytes: usize,
    /// A body of which nothing arrives for so long is given up; so is one that has not come at [`SLOWEST`] on the
    /// whole, this long after it began.
    pub idle_timeout: Duration,
}

/// Below this limit of memory it is short, and large bodies are refused unless configured.
pub const LITTLE_MEMORY_BYTES: usize = 1 << 30;

/// The largest HTTP body then: the Collector's default.
pub const MAX_BODY_OF_LITTLE_MEMORY: usize = 20 << 20;

/// Bytes a second that a body must come at on the whole. A sender of a byte now and then would hold a request for hours.
pub const SLOWEST: f64 = 1024.0;

/// Bytes a second that a body must come at while memory is short.
const PACE: f64 = (1 << 20) as f64;

/// A body of which nothing arrives for so long is given up while memory is short.
const GRACE: Duration = Duration::from_secs(1);

impl BodyLimits {
    /// At most so many bytes, and half a minute of silence.
    pub const fn of(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// Memory is allocated for so many times what has arrived, whatever length was promised: where the system backs memory
/// by huge pages, what is allocated is resident.
const AHEAD: usize = 4;

/// So much is reserved before anything of a body has come: nothing is allocated for it yet, and promises are cheap to make.
const UNSEEN_BYTES: usize = 4 << 10;

/// So much at least once something has come.
const FIRST_BYTES: usize = 64 << 10;

/// What is reserved for a body of `promised` bytes, or of a length that nobody has said, when `arrived` of it are there.
fn claim(promised: Option<usize>, arrived: usize) -> usize {
    match promised {
        Some(promised) if arrived == 0 => promised.min(UNSEEN_BYTES),
        Some(promised) => promised
            .min(arrived.saturating_mul(AHEAD).max(FIRST_BYTES))
            .max(arrived),
        // A run grows by doubling.
        None => arrived.saturating_mul(2),
    }
}

/// Reserves the beginning of a body, if there is room for all of it.
///
/// # Errors
/// There is none.
pub async fn begin_body(held: &mut Held, promised: Option<usize>) -> Result<(), NoRoom> {
    held.begin(promised.unwrap_or(0), claim(promised, 0)).await
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Longer than the limit.
    #[error("the body is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The limit.
        limit_bytes: usize,
    },
    /// Nothing came for [`BodyLimits::idle_timeout`].
    #[error("the body did not arrive in time")]
    TimedOut,
    /// There is no room for more of it.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// It came so slowly that others have its room now.
    #[error("the gateway is over its memory limit, and the body arrived too slowly to keep its room")]
    TooSlow,
    /// The connection broke or the framing is wrong.
    #[error("the body broke off: {0}")]
    Broken(String),
}

impl BodyError {
    /// Why the request is refused.
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
/// It does not come, or there is no room for it.
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
    held.settle(whole.len());
    Ok(whole.freeze())
}

/// Reads the whole body of an answer to a request of ours, which `held` has on the account. The caller sets a timeout.
///
/// It copies each piece into one buffer at once. A list of pieces takes 40 bytes for each, and keeps the buffers that the
/// connection read into.
///
/// # Errors
/// It breaks off, or has more than `limit_bytes`.
pub async fn read_answer<B>(mut body: B, limit_bytes: usize, held: &mut Held) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| BodyError::Broken(error.to_string()))?;
        // Trailers say nothing here.
        let Ok(piece) = frame.into_data() else { continue };
        if piece.len() > limit_bytes.saturating_sub(whole.len()) {
            return Err(BodyError::TooLarge { limit_bytes });
        }
        whole.extend_from_slice(&piece);
        held.settle(whole.len());
    }
    Ok(whole.freeze())
}

/// The length that a body says it has.
pub fn promised<B: Body>(body: &B) -> Option<usize> {
    let promised = body.size_hint().lower();
    (promised > 0).then(|| usize::try_from(promised).unwrap_or(usize::MAX))
}

/// A piece of so many bytes that is a whole body is kept as it is. It may keep the buffer alive that its connection read
/// into, which is not much larger then.
const WHOLE_BYTES: usize = 128 << 10;

/// The pieces of a body as one run of bytes. A large body that comes in one piece is not copied. All others are: a small
/// piece keeps the whole buffer alive that its connection read into.
#[derive(Default)]
pub struct Run {
    /// The only piece so far, where it is large.
    first: Bytes,
    /// All of them otherwise.
    all: BytesMut,
}

impl Run {
    /// Appends a piece, of a body that is to have `promised` bytes.
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

    /// The same with room for it, which is waited for shortly.
    ///
    /// # Errors
    /// There is no room.
    pub async fn take(
        &mut self,
        piece: Bytes,
        promised: Option<usize>,
        held: &mut Held,
    ) -> Result<(), NoRoom> {
        let arrived = self.len() + piece.len();
        let claim = claim(promised, arrived);
        // The old buffer stays resident for a while beside the larger one. A body that fits only without the old one is taken
        // all the same.
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

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether nothing has come yet.
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// What has come so far.
    pub fn as_slice(&self) -> &[u8] {
        if self.first.is_empty() {
            &self.all
        } else {
            &self.first
        }
    }

    /// The whole.
    pub fn freeze(self) -> Bytes {
        if self.first.is_empty() {
            self.all.freeze()
        } else {
            self.first
        }
    }
}

/// The pieces of a body, as long as they come fast enough.
pub struct Chunks<B> {
    body: B,
    idle_timeout: Duration,
    /// How long the sender was waited for.
    waited: Duration,
    received: usize,
    arriving: Arriving,
}

impl<B> Chunks<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    /// Begins now. The account of `held` reserves room for each piece.
    pub fn under(body: B, idle_timeout: Duration, held: &Held) -> Self {
        Self::new(body, idle_timeout, held.account().clone(), held.ceiling())
    }

    /// The same under any ceiling.
    pub fn new(body: B, idle_timeout: Duration, account: Arc<Account>, ceiling: Ceiling) -> Self {
        Self {
            body,
            idle_timeout,
            waited: Duration::ZERO,
            received: 0,
            arriving: Arriving::on(account, ceiling),
        }
    }

    /// The next one; `None` at the end.
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

    /// How long the next piece may take where `idle` without any is too long, and so is what falls behind a pace on the
    /// whole.
    fn patience(&self, idle: Duration, pace: f64) -> Duration {
        let paid_for = Duration::from_secs_f64(self.received as f64 / pace);
        (idle + paid_for).saturating_sub(self.waited).min(idle)
    }
}

#[cfg(test)]
mod tests;
