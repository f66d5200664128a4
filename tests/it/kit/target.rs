// SPDX-License-Identifier: Apache-2.0

//! A scrape target, or a service that lists targets, in the test's own process: it answers what a test tells it to.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// The answer at a path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// How long it takes to come.
    pub(crate) delay: Duration,
}

impl Answer {
    /// 200 with this content type, none where it is empty.
    pub(crate) fn of(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let mut answer = Self {
            status: 200,
            body: body.into(),
            ..Self::default()
        };
        if !content_type.is_empty() {
            answer.headers.push(("content-type", content_type.to_owned()));
        }
        answer
    }

    /// A page of text 0.0.4.
    pub(crate) fn text(body: &str) -> Self {
        Self::of("text/plain; version=0.0.4; charset=utf-8", body)
    }

    /// A list of targets.
    pub(crate) fn json(body: &str) -> Self {
        Self::of("application/json", body)
    }
}

#[derive(Default)]
struct Held {
    answers: BTreeMap<String, Answer>,
    /// The path with its query, and the headers, of every request.
    requests: Vec<(String, HeaderMap)>,
}

type Shared = Arc<Mutex<Held>>;

/// The running server; it ends when dropped.
pub(crate) struct Target {
    shared: Shared,
    port: u16,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Target {
    /// Listens on a free port and answers 404 until an answer is set.
    pub(crate) fn start() -> Self {
        Self::start_on(0)
    }

    /// The same on this port: a target that is back.
    pub(crate) fn start_on(port: u16) -> Self {
        let listener = super::listen("127.0.0.1", port);
        let port = listener.local_addr().expect("an address").port();
        let shared = Shared::default();
        let (stop, stopped) = oneshot::channel();
        let router = axum::Router::new().fallback(answer).with_state(shared.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                tokio::select! {
                    served = axum::serve(listener, router) => served.expect("it serves"),
                    _ = stopped => {}
                }
            });
        });
        Self {
            shared,
            port,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Listens and shows this page of text at `/metrics`.
    pub(crate) fn showing(page: &str) -> Self {
        let target = Self::start();
        target.answer("/metrics", Answer::text(page));
        target
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// From now on this is answered at a path.
    pub(crate) fn answer(&self, path: &str, answer: Answer) {
        self.held().answers.insert(path.to_owned(), answer);
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.held().requests.len()
    }

    /// Path with query, and headers, of every request so far.
    pub(crate) fn requests(&self) -> Vec<(String, HeaderMap)> {
        self.held().requests.clone()
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.shared.lock().expect("no panic inside")
    }
}

async fn answer(State(shared): State<Shared>, request: Request) -> Response<Body> {
    let answer = {
        let mut held = shared.lock().expect("no panic inside");
        let path = request.uri().path_and_query().map_or("", |path| path.as_str());
        held.requests.push((path.to_owned(), request.headers().clone()));
        held.answers.get(request.uri().path()).cloned()
    };
    let answer = answer.unwrap_or(Answer {
        status: 404,
        ..Answer::default()
    });
    tokio::time::sleep(answer.delay).await;
    let mut response = Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    response.body(Body::from(answer.body)).expect("an answer")
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
