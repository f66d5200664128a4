//! The pages of tidegate's own metrics. Separate from every receiver, so that they answer when those don't.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tidegate_engine::AttributeRef;
use tokio::sync::Semaphore;

use super::books::Teller;
use super::recorder::Rendering;
use crate::component::worker::in_background;
use crate::net::http::{HttpConfig, start};
use crate::net::listener::ListenError;
use crate::net::{ConnectionLimits, Endpoint, Listener, SocketFileConfig};
use crate::prom::labels::Labels;

/// A scrape that is under way when the gateway stops may take this long to finish.
const FINISH: Duration = Duration::from_millis(200);

/// Scrapers, and people who look.
const MAX_CONNECTIONS: usize = 64;

/// What pages that clients have not read may take. Beyond it, they share the last one.
const MAX_UNREAD: usize = 16 << 20;

/// Requests at a time on one connection.
const MAX_STREAMS: u32 = 16;

/// A page without its numbers.
pub(super) struct Page {
    rendering: Rendering,
    /// `target_info`, rendered.
    target: String,
    /// The last one: when it was begun, and its text.
    last: Mutex<Option<(Instant, Bytes)>>,
    /// Pages are rendered one after the other.
    turn: Arc<Semaphore>,
    unread: Arc<AtomicUsize>,
}

/// A page that counts as unread until nobody has it any more.
struct Unread(String, Arc<AtomicUsize>);

impl AsRef<[u8]> for Unread {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0.len(), Relaxed);
    }
}

impl Page {
    pub(super) fn new(rendering: Rendering, attributes: &[(String, String)]) -> Self {
        let mut labels = Labels::default();
        for (key, value) in attributes {
            labels.add(key, AttributeRef::Str(value));
        }
        Self {
            rendering,
            last: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
            unread: Arc::default(),
            target: format!(
                "# HELP target_info Attributes of the gateway itself.\n# TYPE target_info gauge\ntarget_info{{{}}} 1\n",
                labels.render()
            ),
        }
    }

    pub(super) fn rendering(&self) -> Rendering {
        self.rendering.clone()
    }

    /// The page as it is now. Those who ask while one is rendered share the next one.
    async fn text(self: &Arc<Self>, teller: &Arc<Teller>) -> Bytes {
        let asked = Instant::now();
        // Never closed.
        let turn = self.turn.clone().acquire_owned().await;
        let is_full = self.unread.load(Relaxed) > MAX_UNREAD;
        if let Some((begun, text)) = self.last()
            && (begun >= asked || is_full)
        {
            return text;
        }
        let (page, teller) = (self.clone(), teller.clone());
        let render = move || {
            // Kept to the end, also when the client hangs up.
            let _turn = turn;
            page.render(&teller)
        };
        in_background(render).await.unwrap_or_default()
    }

    fn render(&self, teller: &Teller) -> Bytes {
        let begun = Instant::now();
        teller.tell();
        let text = self.target.clone() + &self.rendering.text();
        self.unread.fetch_add(text.len(), Relaxed);
        let text = Bytes::from_owner(Unread(text, self.unread.clone()));
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((begun, text.clone()));
        text
    }

    fn last(&self) -> Option<(Instant, Bytes)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn answer(
        self: Arc<Self>,
        method: Method,
        path: String,
        teller: Arc<Teller>,
    ) -> Response<Full<Bytes>> {
        let (status, text) = match (&method, &*path) {
            (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, self.text(&teller).await),
            (&Method::GET | &Method::HEAD, _) => (
                StatusCode::NOT_FOUND,
                Bytes::from_static(b"the gateway's own metrics are at /metrics\n"),
            ),
            _ => (
                StatusCode::METHOD_NOT_ALLOWED,
                Bytes::from_static(b"GET and HEAD only\n"),
            ),
        };
        let mut answer = Response::new(Full::new(text));
        *answer.status_mut() = status;
        let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        answer.headers_mut().insert(CONTENT_TYPE, text);
        if status == StatusCode::METHOD_NOT_ALLOWED {
            answer
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        answer
    }
}

/// A running server.
pub(super) struct Server(crate::net::Server);

impl Server {
    pub(super) async fn start(
        endpoint: &Endpoint,
        allowed_hosts: &[String],
        page: Page,
        teller: Arc<Teller>,
    ) -> Result<Self, ListenError> {
        let listener = Listener::bind(endpoint, &SocketFileConfig::default()).await?;
        let page = Arc::new(page);
        let answer = move |request: Request<Incoming>| {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            page.clone().answer(method, path, teller.clone())
        };
        let limits = ConnectionLimits::plain(MAX_CONNECTIONS);
        let serving = HttpConfig {
            max_concurrent_streams: MAX_STREAMS,
            ..HttpConfig::pages().guarded(&listener, allowed_hosts)
        };
        Ok(Self(start(listener, limits, serving, answer)))
    }

    pub(super) async fn stop(self) {
        self.0.stop(Instant::now() + FINISH).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Listen;
    use super::super::recorder::Renaming;
    use super::*;
    use crate::component::books::Books;

    fn page() -> (Arc<Page>, Arc<Teller>) {
        let (_, rendering) = Renaming::new(&Listen::default(), &[]);
        let page = Page::new(rendering, &[("service.name".to_owned(), "tidegate".to_owned())]);
        (Arc::new(page), Arc::new(Teller::new(Books::default())))
    }

    #[tokio::test]
    async fn those_who_ask_at_once_share_a_page_and_who_asks_later_gets_a_new_one() {
        let (page, teller) = page();
        let turn = page.turn.clone().acquire_owned().await.unwrap();
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let (page, teller) = (page.clone(), teller.clone());
            asking.spawn(async move { page.text(&teller).await });
        }
        tokio::task::yield_now().await;
        drop(turn);
        let texts = asking.join_all().await;
        let one = texts[0].len();
        assert!(std::str::from_utf8(&texts[0]).unwrap().contains("target_info{"));
        assert_eq!(page.unread.load(Relaxed), one, "one page for all");
        let later = page.text(&teller).await;
        assert_eq!(page.unread.load(Relaxed), one + later.len());
        drop(texts);
        assert_eq!(page.unread.load(Relaxed), later.len(), "the last one is kept");
    }

    #[tokio::test]
    async fn where_too_much_is_unread_the_last_page_is_shared() {
        let (page, teller) = page();
        let first = page.text(&teller).await;
        page.unread.fetch_add(MAX_UNREAD, Relaxed);
        let before = page.unread.load(Relaxed);
        assert_eq!(page.text(&teller).await, first);
        assert_eq!(page.unread.load(Relaxed), before);
    }
}
