//! Reading request bodies: never more than the limit, never for ever, and what is held is on the gateway's books.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

use tokio::time::Instant;

use crate::component::Shared;

/// What a request body may cost.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// Most bytes, before and after decompression.
    pub max_bytes: usize,
    /// A body of which nothing arrives for so long is given up; so is one that has not come at [`SLOWEST`] on the
    /// whole, this long after it began.
    pub idle_timeout: Duration,
}

/// Bytes a second that a body must come at on the whole. A sender of a byte now and then would hold a request for hours.
pub const SLOWEST: f64 = 1024.0;

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

/// A piece of so many bytes that is a whole body is kept as it is. It may keep the buffer alive that its connection read
/// into, which is not much larger then.
const WHOLE_BYTES: usize = 128 << 10;

/// Bytes noted as held in [`Memory`](crate::component::shared::Memory) until this is dropped.
pub struct Held {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Held {
    /// Nothing yet.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, bytes: 0 }
    }

    /// So many more bytes.
    pub fn grow(&mut self, bytes: usize) {
        self.shared.memory.hold(bytes);
        self.bytes += bytes;
    }

    /// Whether the gateway holds more than its memory limiter allows.
    pub fn is_too_much(&self) -> bool {
        self.shared.memory.over_limit()
    }

    /// At least so many bytes in all.
    pub fn grow_to(&mut self, bytes: usize) {
        self.grow(bytes.saturating_sub(self.bytes));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.memory.release(self.bytes);
    }
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
    /// The connection broke or the framing is wrong.
    #[error("the body broke off: {0}")]
    Broken(String),
}

/// Reads a whole body, which counts as held from the moment its length is known.
pub async fn read_body<B>(body: B, limits: BodyLimits, held: &mut Held) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let limit_bytes = limits.max_bytes;
    let promised = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if promised > limit_bytes {
        return Err(BodyError::TooLarge { limit_bytes });
    }
    held.grow_to(promised);
    let mut whole = Run::default();
    let mut chunks = Chunks::new(body, limits.idle_timeout);
    while let Some(chunk) = chunks.next().await? {
        if chunk.len() > limit_bytes.saturating_sub(whole.len()) {
            return Err(BodyError::TooLarge { limit_bytes });
        }
        whole.push(chunk, promised);
        held.grow_to(whole.len());
    }
    Ok(whole.freeze())
}

/// The pieces of a body as one run of bytes. A large body that comes in one piece is not copied.
#[derive(Default)]
pub struct Run {
    /// The only piece so far.
    first: Bytes,
    /// All of them, where there are several.
    all: BytesMut,
}

impl Run {
    /// Appends a piece, of a body that is to have `promised` bytes.
    pub fn push(&mut self, piece: Bytes, promised: usize) {
        if self.is_empty() {
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
        match self.first.is_empty() {
            true => &self.all,
            false => &self.first,
        }
    }

    /// The whole.
    pub fn freeze(self) -> Bytes {
        match self.first.len() {
            0 => self.all.freeze(),
            WHOLE_BYTES.. => self.first,
            _ => Bytes::copy_from_slice(&self.first),
        }
    }
}

/// The pieces of a body, as long as they come fast enough.
pub struct Chunks<B> {
    body: B,
    idle_timeout: Duration,
    began: Instant,
    received: usize,
}

impl<B> Chunks<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    /// Begins now.
    pub fn new(body: B, idle_timeout: Duration) -> Self {
        Self {
            body,
            idle_timeout,
            began: Instant::now(),
            received: 0,
        }
    }

    /// The next one; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            let frame = tokio::time::timeout(self.patience(), self.body.frame())
                .await
                .map_err(|_| BodyError::TimedOut)?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(BodyError::Broken(error.to_string())),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.received = self.received.saturating_add(data.len());
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// How long the next piece may take.
    fn patience(&self) -> Duration {
        let paid_for = Duration::from_secs_f64(self.received as f64 / SLOWEST);
        let left = (self.idle_timeout + paid_for).saturating_sub(self.began.elapsed());
        left.min(self.idle_timeout)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::Frame;
    use http_body_util::Full;
    use proptest::prelude::*;

    use super::*;

    /// Chunks one after another, without a promised length.
    struct Given(std::vec::IntoIter<&'static [u8]>);

    impl Body for Given {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(
                self.0
                    .next()
                    .map(|chunk| Ok(Frame::data(Bytes::from_static(chunk)))),
            )
        }
    }

    fn chunked<const N: usize>(chunks: [&'static [u8]; N]) -> Given {
        Given(Vec::from(chunks).into_iter())
    }

    #[tokio::test]
    async fn a_body_is_on_the_books_while_it_is_held() {
        let shared = Arc::new(Shared::default());
        let mut held = Held::new(shared.clone());
        let body = read_body(chunked([b"abc", b"", b"de"]), BodyLimits::of(5), &mut held)
            .await
            .unwrap();
        assert_eq!(*body, *b"abcde");
        assert_eq!(shared.memory.held_bytes(), 5);
        drop(held);
        assert_eq!(shared.memory.held_bytes(), 0);
    }

    proptest! {
        #[test]
        fn a_run_is_its_pieces_and_no_promise_costs_more_than_what_came(
            pieces in prop::collection::vec((any::<u8>(), prop_oneof![0_usize..100, 60_000_usize..200_000]), 0..8),
            promised in prop_oneof![0_usize..1000, 0_usize..usize::MAX],
        ) {
            let (mut run, mut expected) = (Run::default(), Vec::new());
            for (byte, length) in pieces {
                run.push(vec![byte; length].into(), promised);
                expected.resize(expected.len() + length, byte);
                prop_assert!(run.as_slice() == expected);
                prop_assert!(run.all.capacity() <= AHEAD * expected.len().max(64));
            }
            prop_assert!(run.freeze() == expected);
        }
    }

    #[test]
    fn a_large_body_of_one_piece_is_not_copied() {
        for (length, is_same) in [(WHOLE_BYTES, true), (WHOLE_BYTES - 1, false)] {
            let piece = Bytes::from(vec![7; length]);
            let mut run = Run::default();
            run.push(piece.clone(), length);
            assert_eq!(run.freeze().as_ptr() == piece.as_ptr(), is_same);
        }
    }

    #[tokio::test]
    async fn a_byte_more_than_the_limit_is_too_large_whether_promised_or_not() {
        let mut held = Held::new(Arc::default());
        let surprise = read_body(chunked([b"abc", b"def"]), BodyLimits::of(5), &mut held).await;
        assert!(matches!(surprise, Err(BodyError::TooLarge { limit_bytes: 5 })));
        let promised = read_body(
            Full::new(Bytes::from_static(b"abcdef")),
            BodyLimits::of(5),
            &mut held,
        )
        .await;
        assert!(matches!(promised, Err(BodyError::TooLarge { limit_bytes: 5 })));
    }

    /// A byte whenever it is asked after ten seconds.
    struct Drip(Pin<Box<tokio::time::Sleep>>);

    impl Body for Drip {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            std::task::ready!(self.0.as_mut().poll(cx));
            self.0 = Box::pin(tokio::time::sleep(Duration::from_secs(10)));
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_given_up() {
        let began = Instant::now();
        let drip = Drip(Box::pin(tokio::time::sleep(Duration::from_secs(10))));
        let mut held = Held::new(Arc::default());
        let read = read_body(drip, BodyLimits::of(1 << 20), &mut held).await;
        assert!(matches!(read, Err(BodyError::TimedOut)));
        assert!(began.elapsed() < Duration::from_secs(31), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_body_that_never_comes_is_given_up() {
        struct Never;
        impl Body for Never {
            type Data = Bytes;
            type Error = Infallible;
            fn poll_frame(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
                Poll::Pending
            }
        }
        let limits = BodyLimits {
            idle_timeout: Duration::from_millis(1),
            ..BodyLimits::of(5)
        };
        let mut held = Held::new(Arc::default());
        assert!(matches!(
            read_body(Never, limits, &mut held).await,
            Err(BodyError::TimedOut)
        ));
    }
}
