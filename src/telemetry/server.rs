//! The pages of tidegate's own metrics. Separate from every receiver, so that they answer when those don't.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tidegate_engine::AttributeRef;

use super::books::Teller;
use super::recorder::Rendering;
use crate::net::http::{HttpConfig, start};
use crate::net::listener::ListenError;
use crate::net::{ConnectionLimits, Endpoint, Listener, SocketFileConfig};
use crate::prom::labels::Labels;

/// A scrape that is under way when the gateway stops may take this long to finish.
const FINISH: Duration = Duration::from_millis(200);

/// Scrapers, and people who look.
const MAX_CONNECTIONS: usize = 64;

/// A page without its numbers.
pub(super) struct Page {
    rendering: Rendering,
    /// `target_info`, rendered.
    target: String,
}

impl Page {
    pub(super) fn new(rendering: Rendering, attributes: &[(String, String)]) -> Self {
        let mut labels = Labels::default();
        for (key, value) in attributes {
            labels.add(key, AttributeRef::Str(value));
        }
        Self {
            rendering,
            target: format!(
                "# HELP target_info Attributes of the gateway itself.\n# TYPE target_info gauge\ntarget_info{{{}}} 1\n",
                labels.render()
            ),
        }
    }

    pub(super) fn rendering(&self) -> Rendering {
        self.rendering.clone()
    }

    fn answer(&self, request: &Request<Incoming>, teller: &Teller) -> Response<Full<Bytes>> {
        let (status, text) = match (request.method(), request.uri().path()) {
            (&Method::GET | &Method::HEAD, "/metrics") => {
                teller.tell();
                (StatusCode::OK, self.target.clone() + &self.rendering.text())
            }
            (&Method::GET | &Method::HEAD, _) => (
                StatusCode::NOT_FOUND,
                "the gateway's own metrics are at /metrics\n".to_owned(),
            ),
            _ => (StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD only\n".to_owned()),
        };
        let mut answer = Response::new(Full::from(text));
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
            let answer = page.answer(&request, &teller);
            async move { answer }
        };
        let limits = ConnectionLimits::plain(MAX_CONNECTIONS);
        let serving = HttpConfig::pages().guarded(&listener, allowed_hosts);
        Ok(Self(start(listener, limits, serving, answer)))
    }

    pub(super) async fn stop(self) {
        self.0.stop(Instant::now() + FINISH).await;
    }
}
