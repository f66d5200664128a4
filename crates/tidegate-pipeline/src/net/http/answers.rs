// SPDX-License-Identifier: Apache-2.0

//! Sending answers on a connection. Answers yield to other work, and a connection is cut off if its peer stops
//! reading.
//!
//! A page of a million series takes a few hundred writes, and a local peer reads them at once. Writing them
//! without a pause would delay all other connections, because the runtime does not poll their sockets meanwhile.
//! Sent bytes stay in memory until the peer has read them. So a client that requests many pages and reads none
//! must be cut off.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::activity::Busy;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// The size of the pieces of a body. Others run between pieces (writing one takes 0.1 ms), and a slow peer differs
/// from a stalled one. HTTP's own buffers hold about as much.
const PIECE_BYTES: usize = 256 << 10;

/// A stall is detected late by at most this part of its limit.
const CHECKS: u32 = 8;

/// The time at which the peer last took a piece of each answer.
#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<Sending>);

#[derive(Debug, Default)]
struct Sending {
    taken: HashMap<u64, Instant>,
    next: u64,
    /// The start of the time in which the connection takes no bytes. Answers that fit the buffers are sent by
    /// then.
    blocked: Option<Instant>,
}

impl Answers {
    fn lock(&self) -> MutexGuard<'_, Sending> {
        self.0.lock()
    }

    fn begin(&self) -> u64 {
        let mut sending = self.lock();
        let number = sending.next;
        sending.next += 1;
        sending.taken.insert(number, Instant::now());
        number
    }

    /// Records that the peer has taken all available bytes of an answer.
    fn rest(&self, number: u64) {
        self.lock().taken.remove(&number);
    }

    fn go_on(&self, number: u64) {
        self.lock().taken.insert(number, Instant::now());
    }

    fn wrote<T>(&self, written: &Poll<T>) {
        let mut sending = self.lock();
        match written {
            Poll::Pending => drop(sending.blocked.get_or_insert_with(Instant::now)),
            Poll::Ready(_) => sending.blocked = None,
        }
    }

    fn oldest(&self) -> Option<Instant> {
        let sending = self.lock();
        sending.taken.values().copied().chain(sending.blocked).min()
    }
}

/// Returns when the peer has taken nothing of an answer for `max_stall`; never without a limit.
pub(super) async fn stalled(answers: Option<&Answers>, max_stall: Option<Duration>) {
    let (Some(answers), Some(max_stall)) = (answers, max_stall) else {
        return std::future::pending().await;
    };
    while answers.oldest().is_none_or(|taken| taken.elapsed() < max_stall) {
        tokio::time::sleep(max_stall / CHECKS).await;
    }
}

/// A connection that records, on request, since when its peer takes nothing.
pub(super) struct Noted<S> {
    stream: S,
    answers: Option<Arc<Answers>>,
}

impl<S> Noted<S> {
    pub(super) fn new(stream: S, answers: Option<Arc<Answers>>) -> Self {
        Self { stream, answers }
    }

    fn note<T>(&self, written: Poll<T>) -> Poll<T> {
        if let Some(answers) = &self.answers {
            answers.wrote(&written);
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Noted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        runs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, runs);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.note(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A body in pieces.
pub(super) struct Pieces<B> {
    /// `None`: only `left` remains.
    body: Option<Pin<Box<B>>>,
    /// The rest of the current frame.
    left: Bytes,
    /// Completes after other tasks have run.
    turn: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    watched: Option<(u64, Arc<Answers>)>,
    #[allow(dead_code, reason = "the request lasts until its answer is sent")]
    busy: Option<Busy>,
}

impl<B> Pieces<B> {
    /// Creates the pieces of a body. `answers`, if present, records when the peer took the last piece.
    pub(super) fn of(body: B, answers: Option<Arc<Answers>>, busy: Option<Busy>) -> Self {
        Self {
            watched: answers.map(|answers| (answers.begin(), answers)),
            body: Some(Box::pin(body)),
            left: Bytes::new(),
            turn: None,
            busy,
        }
    }

    /// Creates the pieces of a short text.
    pub(super) fn of_text(text: Bytes, busy: Busy) -> Self {
        Self {
            watched: None,
            body: None,
            left: text,
            turn: None,
            busy: Some(busy),
        }
    }
}

impl<B: Body<Data = Bytes>> Body for Pieces<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        if let Some(turn) = &mut this.turn {
            ready!(turn.as_mut().poll(cx));
            this.turn = None;
        }
        if this.left.is_empty() {
            let Some(body) = &mut this.body else {
                return Poll::Ready(None);
            };
            let Poll::Ready(frame) = body.as_mut().poll_frame(cx) else {
                // A request for more means that the previous pieces are taken.
                if let Some((number, answers)) = &this.watched {
                    answers.rest(*number);
                }
                return Poll::Pending;
            };
            let Some(frame) = frame else {
                return Poll::Ready(None);
            };
            match frame?.into_data() {
                Ok(data) => this.left = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        if let Some((number, answers)) = &this.watched {
            answers.go_on(*number);
        }
        let piece = this.left.split_to(this.left.len().min(PIECE_BYTES));
        if !this.left.is_empty() {
            // The runtime polls the sockets of other connections before it resumes a task that yields.
            this.turn = Some(Box::pin(tokio::task::yield_now()));
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        let rest = self.body.as_ref();
        self.left.is_empty() && rest.is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.body.as_ref();
        let rest = rest.map_or_else(|| SizeHint::with_exact(0), http_body::Body::size_hint);
        let left = self.left.len() as u64;
        let mut hint = SizeHint::new();
        rest.upper()
            .into_iter()
            .for_each(|upper| hint.set_upper(left + upper));
        hint.set_lower(left + rest.lower());
        hint
    }
}

impl<B> Drop for Pieces<B> {
    fn drop(&mut self) {
        if let Some((number, answers)) = &self.watched {
            answers.rest(*number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use http_body_util::{BodyExt, Full};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::watch;

    use super::super::{HttpConfig, start};
    use super::*;
    use crate::net::{ConnectionLimits, Endpoint, Listener, Server, SocketFileConfig};

    const SOON: Duration = Duration::from_secs(30);

    /// More than the kernel buffers for a peer that reads nothing.
    const PAGE_BYTES: usize = 64 << 20;

    /// A body that reports its drop.
    struct WatchedBody(
        Full<Bytes>,
        #[allow(dead_code, reason = "the test watches for its end")] watch::Receiver<()>,
    );

    impl Body for WatchedBody {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Pin::new(&mut self.0).poll_frame(cx)
        }

        fn size_hint(&self) -> SizeHint {
            self.0.size_hint()
        }
    }

    async fn server(max_stall: Duration, alive: watch::Sender<()>) -> Server {
        let (anywhere, socket) = ("127.0.0.1:0".parse().unwrap(), SocketFileConfig::default());
        let listener = Listener::bind(&anywhere, &socket);
        let config = HttpConfig {
            max_stall: Some(max_stall),
            ..HttpConfig::default()
        };
        let page = Bytes::from(vec![b'x'; PAGE_BYTES]);
        let answer = move |_| {
            let body = WatchedBody(Full::new(page.clone()), alive.subscribe());
            async move { http::Response::new(body) }
        };
        start(
            listener.await.unwrap(),
            ConnectionLimits::plain(8),
            config,
            answer,
        )
    }

    async fn ask(server: &Server) -> TcpStream {
        let Endpoint::Tcp { host, port } = server.local().clone() else {
            panic!("it is bound to TCP");
        };
        let mut stream = TcpStream::connect((host, port)).await.unwrap();
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        stream
    }

    #[tokio::test]
    async fn between_two_pieces_the_runtime_looks_what_has_come() {
        const PIECES: usize = 64;
        let (mut near, mut far) = tokio::net::UnixStream::pair().unwrap();
        let trips = Arc::new(AtomicUsize::new(0));
        let count = trips.clone();
        // Each byte passes only when the runtime has polled its sockets.
        tokio::spawn(async move {
            loop {
                near.write_u8(0).await.unwrap();
                far.read_u8().await.unwrap();
                count.fetch_add(1, SeqCst);
            }
        });
        let page = Bytes::from(vec![b'x'; PIECES * PIECE_BYTES]);
        let mut body = Pieces::of(Full::new(page), None, None);
        let mut pieces = 0;
        while let Some(frame) = body.frame().await {
            assert_eq!(frame.unwrap().into_data().unwrap().len(), PIECE_BYTES);
            pieces += 1;
        }
        assert_eq!(pieces, PIECES);
        let trips = trips.load(SeqCst);
        assert!(trips >= PIECES / 4, "{trips}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_was_sent_or_given_up_is_not_waited_for() {
        let answers = Arc::<Answers>::default();
        let page = || Full::new(Bytes::from(vec![b'x'; 2 * PIECE_BYTES]));
        let mut first = Pieces::of(page(), Some(answers.clone()), None);
        let begun = answers.oldest().unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        first.frame().await.unwrap().unwrap();
        assert_eq!(
            answers.oldest(),
            Some(begun + Duration::from_secs(1)),
            "a piece was taken"
        );
        tokio::time::advance(Duration::from_secs(1)).await;
        let second = Pieces::of(page(), Some(answers.clone()), None);
        drop(first);
        assert_eq!(answers.oldest(), Some(begun + Duration::from_secs(2)), "given up");
        second.collect().await.unwrap();
        assert_eq!(answers.oldest(), None, "sent");
    }

    #[tokio::test]
    async fn how_much_is_left_of_an_answer_is_known() {
        let page = Bytes::from(vec![b'x'; PIECE_BYTES + 7]);
        let mut body = Pieces::of(Full::new(page), None, None);
        assert_eq!(body.size_hint().exact(), Some(PIECE_BYTES as u64 + 7));
        body.frame().await.unwrap().unwrap();
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(7), false));
        body.frame().await.unwrap().unwrap();
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_cut_off_and_its_answer_freed() {
        let alive = watch::Sender::new(());
        let server = server(Duration::from_millis(500), alive.clone()).await;
        let mut silent = ask(&server).await;
        silent.read_u8().await.unwrap();
        let gone = tokio::time::timeout(SOON, alive.closed()).await;
        assert!(gone.is_ok(), "the page is held forever");
    }

    #[tokio::test]
    async fn a_slow_client_gets_all_of_its_answer() {
        let max_stall = Duration::from_secs(2);
        let server = server(max_stall, watch::Sender::new(())).await;
        let mut slow = ask(&server).await;
        let (mut piece, mut read) = (vec![0; PAGE_BYTES / 16], 0);
        let begun = Instant::now();
        loop {
            // Continues well past the limit, always a little before it would be reached.
            if begun.elapsed() < 3 * max_stall {
                tokio::time::sleep(max_stall / 8).await;
            }
            match slow.read(&mut piece).await.unwrap() {
                0 => break,
                bytes => read += bytes,
            }
        }
        assert!(read > PAGE_BYTES, "{read}: headers and body");
    }
}
