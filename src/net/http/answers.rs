//! Answers that are being sent on a connection, and whether the peer still takes them.
//!
//! What is sent stays in memory until the peer has it: who asks for page after page and reads none must be cut off.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Either;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

/// A body is handed out in pieces of this size, so that a slow peer is told from one that stands still. HTTP's own
/// buffers hold about as much.
const PIECE_BYTES: usize = 256 << 10;

/// A stall is noticed late by at most this part of what is allowed.
const CHECKS: u32 = 8;

/// When the peer last took a piece of each answer.
#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<Sending>);

#[derive(Debug, Default)]
struct Sending {
    taken: HashMap<u64, Instant>,
    next: u64,
}

impl Answers {
    fn lock(&self) -> MutexGuard<'_, Sending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> u64 {
        let mut sending = self.lock();
        let number = sending.next;
        sending.next += 1;
        sending.taken.insert(number, Instant::now());
        number
    }

    fn go_on(&self, number: u64) {
        self.lock().taken.insert(number, Instant::now());
    }

    fn end(&self, number: u64) {
        self.lock().taken.remove(&number);
    }

    fn oldest(&self) -> Option<Instant> {
        self.lock().taken.values().min().copied()
    }
}

/// Returns when the peer has taken nothing of some answer for so long; never where there is no such limit.
pub(super) async fn stalled(answers: Option<&Answers>, max_stall: Option<Duration>) {
    let (Some(answers), Some(max_stall)) = (answers, max_stall) else {
        return std::future::pending().await;
    };
    while answers.oldest().is_none_or(|taken| taken.elapsed() < max_stall) {
        tokio::time::sleep(max_stall / CHECKS).await;
    }
}

/// A body of which is known when the peer took a piece; as it is where nobody wants to know.
pub(super) fn watched<B: Body<Data = Bytes>>(
    body: B,
    answers: Option<Arc<Answers>>,
) -> Either<Watched<B>, Pin<Box<B>>> {
    let body = Box::pin(body);
    match answers {
        None => Either::Right(body),
        Some(answers) => Either::Left(Watched {
            number: answers.begin(),
            body,
            left: Bytes::new(),
            answers,
        }),
    }
}

/// See [`watched`].
pub(super) struct Watched<B> {
    body: Pin<Box<B>>,
    /// Of the frame that is being handed out.
    left: Bytes,
    number: u64,
    answers: Arc<Answers>,
}

impl<B: Body<Data = Bytes>> Body for Watched<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        if this.left.is_empty() {
            let Some(frame) = ready!(this.body.as_mut().poll_frame(cx)) else {
                return Poll::Ready(None);
            };
            match frame?.into_data() {
                Ok(data) => this.left = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        this.answers.go_on(this.number);
        let piece = this.left.split_to(this.left.len().min(PIECE_BYTES));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (left, rest) = (self.left.len() as u64, self.body.size_hint());
        match rest.exact() {
            Some(rest) => SizeHint::with_exact(left + rest),
            None => SizeHint::default(),
        }
    }
}

impl<B> Drop for Watched<B> {
    fn drop(&mut self) {
        self.answers.end(self.number);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::watch;

    use super::super::{HttpConfig, start};
    use super::*;
    use crate::net::{ConnectionLimits, Endpoint, Listener, Server, SocketFileConfig};

    const SOON: Duration = Duration::from_secs(30);

    /// More than the kernel takes for a peer that reads nothing.
    const PAGE_BYTES: usize = 64 << 20;

    /// A body that says when it is gone.
    struct Told(
        Full<Bytes>,
        #[allow(dead_code, reason = "its end is what is told")] watch::Receiver<()>,
    );

    impl Body for Told {
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
            let body = Told(Full::new(page.clone()), alive.subscribe());
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
    async fn who_takes_nothing_of_his_answer_is_cut_off_and_it_is_let_go() {
        let alive = watch::Sender::new(());
        let server = server(Duration::from_millis(100), alive.clone()).await;
        let mut silent = ask(&server).await;
        silent.read_u8().await.unwrap();
        let gone = tokio::time::timeout(SOON, alive.closed()).await;
        assert!(gone.is_ok(), "the page is held for ever");
    }

    #[tokio::test]
    async fn who_is_slow_gets_all_of_his_answer() {
        let max_stall = Duration::from_millis(400);
        let server = server(max_stall, watch::Sender::new(())).await;
        let mut slow = ask(&server).await;
        let (mut piece, mut read) = (vec![0; PAGE_BYTES / 16], 0);
        let begun = Instant::now();
        loop {
            // Until well past the limit, always a little before it would be reached.
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
