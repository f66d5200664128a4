//! Reading request bodies: never more than the limit, never for ever, and never beyond what the account has room for.
//!
//! A body reserves little more than what has arrived of it, whatever it promises. While memory is short, those that come
//! slowly lose their room to those that come fast.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

use tokio::time::Instant;

use crate::component::account::{Account, Arriving, Held, NoRoom};

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

/// The first bytes of a body are reserved before any has come.
const FIRST_BYTES: usize = 64 << 10;

/// What is reserved for a body of `promised` bytes, or of a length that nobody has said, when `arrived` of it are there.
fn claim(promised: Option<usize>, arrived: usize) -> usize {
    match promised {
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

/// A piece of so many bytes that is a whole body is kept as it is. It may keep the buffer alive that its connection read
/// into, which is not much larger then.
const WHOLE_BYTES: usize = 128 << 10;

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
    let mut chunks = Chunks::new(body, limits.idle_timeout, held.account().clone());
    while let Some(chunk) = chunks.next().await? {
        if chunk.len() > limit_bytes.saturating_sub(whole.len()) {
            return Err(BodyError::TooLarge { limit_bytes });
        }
        whole.take(chunk, promised, held).await?;
    }
    held.settle(whole.len());
    Ok(whole.freeze())
}

/// The length that a body says it has.
pub fn promised<B: Body>(body: &B) -> Option<usize> {
    let promised = body.size_hint().lower();
    (promised > 0).then(|| usize::try_from(promised).unwrap_or(usize::MAX))
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
        held.grow_in_time(claim(promised, arrived)).await?;
        held.fill_to(arrived);
        self.push(piece, promised.unwrap_or_default());
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
    /// Begins now.
    pub fn new(body: B, idle_timeout: Duration, account: Arc<Account>) -> Self {
        Self {
            body,
            idle_timeout,
            waited: Duration::ZERO,
            received: 0,
            arriving: Arriving::on(account),
        }
    }

    /// The next one; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        let since = Instant::now();
        loop {
            let account = self.arriving.account();
            let is_short = account.is_short();
            let mut left = self.patience(self.idle_timeout, SLOWEST);
            if is_short {
                left = left.min(self.patience(GRACE, PACE));
            }
            let frame = tokio::select! {
                biased;
                frame = self.body.frame() => frame,
                () = account.shortage(), if !is_short => continue,
                () = tokio::time::sleep_until(since + left) => {
                    if since.elapsed() >= self.patience(self.idle_timeout, SLOWEST) {
                        return Err(BodyError::TimedOut);
                    }
                    match self.arriving.account().is_short() {
                        true => return Err(BodyError::TooSlow),
                        false => continue,
                    }
                }
            };
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(BodyError::Broken(error.to_string())),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.received = self.received.saturating_add(data.len());
                        self.waited += since.elapsed();
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// How long the next piece may take where `idle` without any is too long, and so is what falls behind a pace on the
    /// whole.
    fn patience(&self, idle: Duration, pace: f64) -> Duration {
        let paid_for = Duration::from_secs_f64(self.received as f64 / pace);
        (idle + paid_for).saturating_sub(self.waited).min(idle)
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
        let account = Arc::new(Account::default());
        let mut held = Held::new(account.clone());
        let body = read_body(chunked([b"abc", b"", b"de"]), BodyLimits::of(5), &mut held)
            .await
            .unwrap();
        assert_eq!(*body, *b"abcde");
        assert_eq!((account.reserved_bytes(), account.filled_bytes()), (5, 5));
        drop(held);
        assert_eq!((account.reserved_bytes(), account.filled_bytes()), (0, 0));
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

    /// A body of a promised length of which pieces come at their times.
    struct Promise {
        bytes: u64,
        pieces: std::vec::IntoIter<(Duration, usize)>,
        next: Option<(Pin<Box<tokio::time::Sleep>>, usize)>,
    }

    impl Promise {
        fn of(bytes: usize, pieces: &[(u64, usize)]) -> Self {
            let pieces: Vec<_> = pieces
                .iter()
                .map(|(millis, bytes)| (Duration::from_millis(*millis), *bytes))
                .collect();
            Self {
                bytes: bytes as u64,
                pieces: pieces.into_iter(),
                next: None,
            }
        }
    }

    impl Body for Promise {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let (mut sleep, bytes) = match self.next.take() {
                Some(next) => next,
                None => match self.pieces.next() {
                    Some((pause, bytes)) => (Box::pin(tokio::time::sleep(pause)), bytes),
                    None => return Poll::Ready(None),
                },
            };
            match sleep.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Some(Ok(Frame::data(vec![7; bytes].into())))),
                Poll::Pending => {
                    self.next = Some((sleep, bytes));
                    Poll::Pending
                }
            }
        }

        fn size_hint(&self) -> http_body::SizeHint {
            http_body::SizeHint::with_exact(self.bytes)
        }
    }

    /// Time without an end.
    const NEVER: u64 = 1 << 40;

    fn reading(
        account: &Arc<Account>,
        body: Promise,
    ) -> tokio::task::JoinHandle<Result<(Bytes, Held), BodyError>> {
        let mut held = Held::new(account.clone());
        tokio::spawn(async move {
            begin_body(&mut held, promised(&body)).await?;
            let read = read_body(body, BodyLimits::of(64 << 20), &mut held).await?;
            Ok((read, held))
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_promise_takes_little_more_room_than_what_came_of_it() {
        let account = Arc::new(Account::default());
        let table = [
            (vec![(NEVER, 1)], FIRST_BYTES),
            (vec![(1, 1), (NEVER, 1)], FIRST_BYTES),
            (vec![(1, 100_000), (NEVER, 1)], 400_000),
            (vec![(1, 100_000), (1, 100_000), (NEVER, 1)], 800_000),
            (vec![(1, 30 << 20), (NEVER, 1)], 60 << 20),
        ];
        for (pieces, expected) in table {
            let body = reading(&account, Promise::of(60 << 20, &pieces));
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert_eq!(account.reserved_bytes(), expected, "{pieces:?}");
            body.abort();
            assert!(body.await.is_err());
            assert_eq!((account.reserved_bytes(), account.filled_bytes()), (0, 0));
        }
    }

    /// A sender that promises much and sends little loses its room to those who send, and keeps it while there is enough.
    #[tokio::test(start_paused = true)]
    async fn while_memory_is_short_the_slow_make_room_for_the_fast() {
        let account = Arc::new(Account::default());
        account.add_limit(crate::component::Limit::of(10 << 20));
        let slow: Vec<_> = (0..112)
            .map(|_| reading(&account, Promise::of(1 << 20, &[(NEVER, 1)])))
            .collect();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(
            slow.iter().all(|body| !body.is_finished()),
            "nobody needs their room"
        );
        assert_eq!(account.reserved_bytes(), 112 * FIRST_BYTES);
        let began = Instant::now();
        let honest = reading(&account, Promise::of(6 << 20, &[(1, 3 << 20), (1, 3 << 20)]));
        let (body, held) = honest.await.unwrap().unwrap();
        assert_eq!(body.len(), 6 << 20);
        assert!(
            began.elapsed() < Duration::from_millis(100),
            "{:?}",
            began.elapsed()
        );
        for body in slow {
            assert!(matches!(body.await.unwrap(), Err(BodyError::TooSlow)));
        }
        drop(held);
        assert_eq!((account.reserved_bytes(), account.filled_bytes()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_for_which_nobody_makes_room_is_refused_after_a_moment() {
        let account = Arc::new(Account::default());
        account.add_limit(crate::component::Limit::of(10 << 20));
        let all = [(1, 4 << 20), (1, 3 << 20)];
        // There is room for the beginning of both, and for the whole of one.
        let bodies = [0, 1].map(|_| reading(&account, Promise::of(7 << 20, &all)));
        let began = Instant::now();
        let (mut kept, mut refused) = (Vec::new(), 0);
        for body in bodies {
            match body.await.unwrap() {
                Ok(body) => kept.push(body),
                Err(BodyError::NoRoom(NoRoom)) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!((kept.len(), refused), (1, 1));
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        drop(kept);
        assert_eq!((account.reserved_bytes(), account.filled_bytes()), (0, 0));
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
