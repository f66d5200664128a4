// SPDX-License-Identifier: Apache-2.0

//! Answers to requests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::Health;
use crate::MetricsRegistry;
use crate::text::{Format, render};

const JSON: &str = "application/json";
const PLAIN: &str = "text/plain; charset=utf-8";

/// The content that the server serves.
pub(super) struct Site {
    pub(super) registry: Arc<dyn MetricsRegistry>,
    pub(super) health: Health,
}

impl Site {
    pub(super) fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused = page(
                StatusCode::METHOD_NOT_ALLOWED,
                PLAIN,
                "only GET and HEAD\n".to_owned(),
            );
            refused
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        match request.uri().path() {
            "/metrics" => self.metrics(request),
            "/health" => {
                let (is_ready, text) = self.health.json();
                let ready = if is_ready {
                    StatusCode::OK
                } else {
                    StatusCode::SERVICE_UNAVAILABLE
                };
                page(ready, JSON, text)
            }
            "/live" => page(StatusCode::OK, JSON, self.health.live_json()),
            _ => page(
                StatusCode::NOT_FOUND,
                PLAIN,
                "there are /metrics, /health and /live\n".to_owned(),
            ),
        }
    }

    fn metrics<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let accept = request
            .headers()
            .get(ACCEPT)
            .and_then(|accept| accept.to_str().ok());
        let format = Format::accepted(accept.unwrap_or_default());
        // The registry may have any implementation.
        let gathered = catch_unwind(AssertUnwindSafe(|| render(&self.registry.gather(), format)));
        match gathered {
            Ok(text) => page(StatusCode::OK, format.content_type(), text),
            Err(_) => page(
                StatusCode::INTERNAL_SERVER_ERROR,
                PLAIN,
                "the registry panicked\n".to_owned(),
            ),
        }
    }
}

fn page(status: StatusCode, content_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
