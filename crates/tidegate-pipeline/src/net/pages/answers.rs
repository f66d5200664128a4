// SPDX-License-Identifier: Apache-2.0

//! Answers of the server: pages, refusals, downloads, event streams. Whole bodies are compressed on demand.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HeaderValue, RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde_json::json;
use tokio_stream::{Stream, StreamExt};

use super::Takes;
use super::response_memory::ResponseMemory;
use crate::component::account::SenderKey;
use crate::component::worker::Turns;
use crate::net::{Coding, compress};

/// A body, complete or a stream.
pub(super) type Body = UnsyncBoxBody<Bytes, BodyError>;
/// The error of a body.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The answer of a path.
pub type Answer = Response<Body>;

/// Shorter bodies are not compressed, because they fit into one packet. In bytes.
const MIN_COMPRESSED: u64 = 1400;

/// The limit of concurrent compressions, for all servers together.
pub static COMPRESSING: Turns = Turns::of(2);

/// Compresses a complete body if it is large enough, outside of the threads that move data.
pub(super) async fn compressed(
    answer: Answer,
    coding: Coding,
    room: &Arc<ResponseMemory>,
    client: Option<SenderKey>,
) -> Answer {
    let Some(name) = coding.header() else {
        return answer;
    };
    let length = http_body::Body::size_hint(answer.body()).exact();
    let is_coded = answer.headers().contains_key(CONTENT_ENCODING);
    if is_coded || length.is_none_or(|length| length < MIN_COMPRESSED) {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    let Ok(plain) = body.collect().await else {
        return broken_off();
    };
    let plain = plain.to_bytes();
    let kept = plain.clone();
    let coded = COMPRESSING.in_background(move || compress(coding, &plain)).await;
    let coded = coded.and_then(Result::ok);
    let Some(coded) = coded.and_then(|coded| room.hold(coded.into(), client).ok()) else {
        return Response::from_parts(head, whole(kept));
    };
    head.headers.remove(CONTENT_LENGTH);
    head.headers
        .insert(CONTENT_ENCODING, HeaderValue::from_static(name));
    head.headers
        .append(VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(head, whole(coded))
}

pub(super) fn broken_off() -> Answer {
    error(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal",
        "the answer broke off",
    )
}

/// A gRPC answer without a message.
pub fn grpc_error(status: tonic::Status) -> Answer {
    status.into_http::<Body>()
}

/// An answer that names the allowed methods of a path.
pub(super) fn only(takes: Takes, status: StatusCode, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(takes.allowed()));
    if status != StatusCode::NO_CONTENT {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    answer
}

/// An error in the format of Prometheus's API.
pub fn error(status: StatusCode, kind: &str, why: &str) -> Answer {
    json(
        status,
        &json!({"status": "error", "errorType": kind, "error": why}),
    )
}

/// A temporary refusal, which the client may retry soon.
pub fn busy(why: &str) -> Answer {
    let mut answer = error(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why);
    let soon = HeaderValue::from_static("1");
    answer.headers_mut().insert(RETRY_AFTER, soon);
    answer
}

/// A complete body.
pub(super) fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// A complete body with gRPC trailers. The answer to a call has no length in its head.
pub(super) fn with_trailers(bytes: Bytes, trailers: Option<HeaderMap>) -> Body {
    let Some(trailers) = trailers else {
        return whole(bytes);
    };
    let frames = [Frame::data(bytes), Frame::trailers(trailers)].map(Ok);
    StreamBody::new(tokio_stream::iter(frames)).boxed_unsync()
}

pub(super) fn without_body(answer: Answer) -> Answer {
    let length = http_body::Body::size_hint(answer.body()).lower();
    let mut answer = answer.map(|_| whole(Bytes::new()));
    answer.headers_mut().insert(CONTENT_LENGTH, length.into());
    answer
}

/// A JSON page.
pub fn json(status: StatusCode, body: &serde_json::Value) -> Answer {
    text(status, "application/json", body.to_string())
}

/// An empty answer, which is not an error.
pub fn empty() -> Answer {
    let mut answer = Response::new(whole(Bytes::new()));
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}

/// A page of any type.
pub fn text(status: StatusCode, content_type: &'static str, body: String) -> Answer {
    let mut answer = Response::new(whole(body.into()));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// A small page for people who open the root of a server: links to its paths, each with what is there. Paths must have no
/// characters that mean something in HTML; a link with others is left out.
pub fn links(title: &'static str, links: &[(&str, &'static str)]) -> Answer {
    let is_plain = |path: &str| {
        path.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte))
    };
    let items = links.iter().filter(|(path, _)| is_plain(path));
    let items: String = items
        .map(|(path, what)| format!("<li><a href=\"{path}\">{path}</a>: {what}</li>\n"))
        .collect();
    let body = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\n<h1>{title}</h1>\n<ul>\n{items}</ul>\n"
    );
    let mut answer = text(StatusCode::OK, "text/html; charset=utf-8", body);
    let headers = answer.headers_mut();
    let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; base-uri 'none'");
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// A download.
pub fn bytes(content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(whole(body));
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// A stream of server-sent events. Regular comments show that the stream is alive.
pub fn events(next: impl Stream<Item = Event> + Send + 'static) -> Answer {
    let frames = next.map(|event| Ok::<_, BodyError>(Frame::data(event.0)));
    let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer
}

/// One event of a stream, as its readers get it. Clones share the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event(Bytes);

impl Event {
    /// An event with its name and one line of data.
    pub fn named(name: &str, data: &str) -> Self {
        Self(format!("event: {name}\ndata: {data}\n\n").into())
    }

    /// No event: the stream is alive.
    pub fn alive() -> Self {
        Self(Bytes::from_static(b": alive\n\n"))
    }

    /// The size, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_root_links_to_plain_paths_only() {
        let answer = links(
            "title",
            &[("/metrics", "metrics"), ("/<b>", "others"), ("/\"", "more")],
        );
        assert!(answer.headers().contains_key(CONTENT_SECURITY_POLICY));
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body = std::str::from_utf8(&body).unwrap();
        assert!(
            body.contains("<li><a href=\"/metrics\">/metrics</a>: metrics</li>"),
            "{body}"
        );
        assert_eq!(body.matches("<a ").count(), 1, "{body}");
    }
}
