// SPDX-License-Identifier: Apache-2.0

//! A server of recorded pages: every scraper gets the same bytes.

use super::http::Response;
use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// A body with its content type.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

impl From<Response> for Page {
    /// # Panics
    /// If the answer is not a page.
    fn from(answer: Response) -> Self {
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        Self {
            content_type: answer.header("content-type").expect("a content type").to_owned(),
            body: answer.body,
        }
    }
}

/// Pages by path, and how often each was asked for.
#[derive(Default)]
struct PageState {
    pages: HashMap<String, Page>,
    asked: HashMap<String, u64>,
}

/// The running server; it ends when dropped.
pub(crate) struct Pages {
    state: Arc<Mutex<PageState>>,
    port: u16,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pages {
    /// Listens on a free port, without any page: it answers 404.
    pub(crate) fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket option");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::<Mutex<PageState>>::default();
        let (stop, stopped) = oneshot::channel();
        let router = axum::Router::new().fallback(answer).with_state(state.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a listener");
                // Dropped rather than drained at the end: scrapers keep their connections.
                tokio::select! {
                    served = axum::serve(listener, router) => served.expect("it serves"),
                    _ = stopped => {}
                }
            });
        });
        Self {
            state,
            port,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Answers requests for this path with this page from now on.
    pub(crate) fn show(&self, path: &str, page: impl Into<Page>) {
        let mut state = self.state.lock().expect("no panic inside");
        state.pages.insert(path.to_owned(), page.into());
    }

    /// From now on this path is not found: a scrape of it fails.
    pub(crate) fn hide(&self, path: &str) {
        self.state.lock().expect("no panic inside").pages.remove(path);
    }

    /// How often this path was asked for.
    pub(crate) fn asked(&self, path: &str) -> u64 {
        let state = self.state.lock().expect("no panic inside");
        state.asked.get(path).copied().unwrap_or_default()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn answer(State(state): State<Arc<Mutex<PageState>>>, uri: Uri) -> axum::http::Response<Body> {
    let mut state = state.lock().expect("no panic inside");
    *state.asked.entry(uri.path().to_owned()).or_default() += 1;
    let answer = axum::http::Response::builder();
    let answer = match state.pages.get(uri.path()) {
        Some(page) => answer
            .header("content-type", &page.content_type)
            .body(page.body.clone().into()),
        None => answer.status(404).body(Body::empty()),
    };
    answer.expect("a content type that came over HTTP")
}
