// SPDX-License-Identifier: Apache-2.0

//! Bodies that come whole, in pieces, slowly, too large or never, with and without room.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
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
async fn a_body_is_on_the_account_while_it_is_held() {
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

/// So many bytes, each in a piece of its own, which notes how many pieces are there at a time.
struct Bytewise {
    left: usize,
    alive: Arc<AtomicUsize>,
    most_alive: Arc<AtomicUsize>,
}

/// The only byte of a piece.
struct Alive([u8; 1], Arc<AtomicUsize>);

impl AsRef<[u8]> for Alive {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Relaxed);
    }
}

impl Body for Bytewise {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        let alive = self.alive.fetch_add(1, Relaxed) + 1;
        self.most_alive.fetch_max(alive, Relaxed);
        let piece = Bytes::from_owner(Alive([b'x'], self.alive.clone()));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

#[tokio::test]
async fn an_answer_in_pieces_of_a_byte_is_one_buffer_and_none_of_them_stays() {
    const BYTES: usize = 100_000;
    let account = Arc::new(Account::default());
    for (limit, is_read) in [(BYTES, true), (BYTES - 1, false)] {
        let most_alive = Arc::new(AtomicUsize::new(0));
        let body = Bytewise {
            left: BYTES,
            alive: Arc::default(),
            most_alive: most_alive.clone(),
        };
        let mut held = Held::ours(account.clone());
        match read_answer(body, limit, &mut held).await {
            Ok(whole) => {
                assert!(is_read && whole.len() == BYTES && whole.iter().all(|byte| *byte == b'x'));
                assert_eq!(held.bytes(), BYTES, "it is on the account");
            }
            Err(error) => {
                assert!(!is_read, "{error}");
                assert!(matches!(error, BodyError::TooLarge { limit_bytes } if limit_bytes == limit));
            }
        }
        assert_eq!(most_alive.load(Relaxed), 1, "pieces at a time");
    }
    assert_eq!(account.reserved_bytes(), 0);
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
fn a_small_piece_keeps_no_buffer_and_a_large_single_piece_is_not_copied() {
    let large = Bytes::from(vec![1; WHOLE_BYTES]);
    let mut run = Run::default();
    run.push(large.clone(), 0);
    assert_eq!(run.freeze().as_ptr(), large.as_ptr());
    let piece = Bytes::from(vec![1; WHOLE_BYTES - 1]);
    let mut run = Run::default();
    run.push(piece.slice(..1), 0);
    assert!(piece.is_unique());
    assert_eq!(run.freeze(), piece.slice(..1));
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
        (vec![(NEVER, 1)], UNSEEN_BYTES),
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
        .map(|_| reading(&account, Promise::of(1 << 20, &[(1, 1), (NEVER, 1)])))
        .collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(
        slow.iter().all(|body| !body.is_finished()),
        "no other body needs their room"
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
async fn a_body_without_room_is_refused_after_a_moment() {
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
