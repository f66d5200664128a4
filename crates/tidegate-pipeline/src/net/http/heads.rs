// SPDX-License-Identifier: Apache-2.0

//! Memory for request heads. HTTP/2 has no window for them, and they stay until their requests are answered.
//! Without a limit, many heads without bodies would fill the memory.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode, Uri, Version, uri};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::host::text;
use crate::component::{Held, NoRoom};
use crate::net::auth::Sender;
use crate::net::grpc::is_call;
use crate::net::refused::{Of, ServedBy, Why};

/// A head of this size needs no reservation...
const FREE_BYTES: usize = 8 << 10;

/// ...while its connection has no more requests than this. SDKs have one at a time, gateways a few dozen.
const FREE_REQUESTS: usize = 32;

/// The overhead of a field beside its value: its slot in the map, and its name.
const FIELD_BYTES: usize = 128;

/// The overhead of a request beside its head: its stream, its task, its read buffer.
const REQUEST_BYTES: usize = 8 << 10;

/// Memory is measured once a second by default.
const RETRY: Duration = Duration::from_secs(1);

const WHY: &str =
    "the gateway is over its memory limit: it takes no large heads, nor many requests of a connection";

/// Copies the path and the authority of a request over HTTP/2. The originals keep the read buffer of their frame,
/// which may be much larger.
pub(super) fn copy_path<B>(request: &mut Request<B>) {
    if request.version() != Version::HTTP_2 {
        return;
    }
    let uri = request.uri();
    let mut parts = uri::Parts::default();
    parts.scheme = uri.scheme().cloned();
    // Text that was parsed once can be parsed again.
    parts.authority = uri.authority().and_then(|known| known.as_str().try_into().ok());
    parts.path_and_query = uri
        .path_and_query()
        .and_then(|known| known.as_str().try_into().ok());
    if let Ok(copied) = Uri::from_parts(parts) {
        *request.uri_mut() = copied;
    }
}

/// Reserves memory for a request until its answer, if its head is large or its connection has many `requests`.
///
/// # Errors
/// Memory is short.
pub(super) fn hold<B>(
    request: &Request<B>,
    requests: usize,
    by: &ServedBy,
    sender: Option<Sender>,
) -> Result<Option<Held>, NoRoom> {
    let bytes = weight(request);
    if bytes <= FREE_BYTES && requests <= FREE_REQUESTS {
        return Ok(None);
    }
    let bytes = bytes + REQUEST_BYTES;
    let mut held = Held::under(by.ceiling, by.memory.clone()).of(sender.and_then(Sender::key));
    // A small head must not take memory from an arriving body.
    held.try_grow_quietly(bytes)?;
    held.fill(bytes);
    Ok(Some(held))
}

/// The memory of a head. Short fields take more than their bytes.
fn weight<B>(request: &Request<B>) -> usize {
    let (uri, fields) = (request.uri(), request.headers());
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    // Further values of a name have their own slots.
    let places = fields.capacity() + fields.len() - fields.keys_len();
    let text = fields
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len());
    authority + path + places * FIELD_BYTES + text.sum::<usize>()
}

/// The answer to a request without memory.
pub(super) fn refusal<B>(request: &Request<B>) -> Response<Bytes> {
    let answer = if is_call(request) {
        let details = ErrorDetails::with_retry_info(Some(RETRY));
        Status::with_error_details(Code::Unavailable, WHY, details).into_http()
    } else {
        let mut answer = text(StatusCode::SERVICE_UNAVAILABLE, format!("{WHY}\n"));
        let seconds = HeaderValue::from(RETRY.as_secs());
        answer.headers_mut().insert(RETRY_AFTER, seconds);
        answer
    };
    Why::Short(Of::Head).mark(answer)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::component::Account;

    fn request(fields: usize, value: &str) -> Request<()> {
        let mut request = Request::post("/v1/metrics");
        for number in 0..fields {
            request = request.header(format!("x-{number}"), value);
        }
        request.body(()).unwrap()
    }

    fn served_by(limit: usize) -> ServedBy {
        let memory = Arc::new(Account::default());
        memory.set_default_limit(limit);
        ServedBy::component("test", memory)
    }

    #[test]
    fn a_large_head_is_on_the_account_until_its_request_is_answered() {
        let by = served_by(40 << 10);
        let memory = &by.memory;
        let large = request(1, &"x".repeat(16 << 10));
        let hold = || hold(&large, 1, &by, None);
        let held = hold().unwrap().unwrap();
        let bytes = memory.reserved_bytes();
        assert!(bytes > 24 << 10, "{bytes}");
        assert_eq!((held.bytes(), memory.filled_bytes()), (bytes, bytes));
        assert_eq!(hold().unwrap_err(), NoRoom);
        drop(held);
        assert!(hold().is_ok());
    }

    #[test]
    fn a_small_head_needs_no_room_unless_its_connection_has_many_requests() {
        let by = served_by(1);
        let usual = request(12, "application/x-protobuf");
        assert!(hold(&usual, 1, &by, None).unwrap().is_none());
        assert!(hold(&usual, FREE_REQUESTS, &by, None).unwrap().is_none());
        assert!(hold(&usual, FREE_REQUESTS + 1, &by, None).is_err());
    }

    #[test]
    fn the_path_of_a_request_keeps_no_buffer_alive() {
        let read = Bytes::from("http://gateway:4317/v1/metrics?a=b".to_owned());
        let uri = Uri::from_maybe_shared(read.clone()).unwrap();
        let mut request = Request::builder()
            .uri(uri)
            .version(Version::HTTP_2)
            .body(())
            .unwrap();
        assert!(!read.is_unique());
        copy_path(&mut request);
        assert!(read.is_unique());
        assert_eq!(*request.uri(), *"http://gateway:4317/v1/metrics?a=b");
    }

    #[test]
    fn short_fields_weigh_what_they_take() {
        assert!(weight(&request(400, "x")) > 400 * FIELD_BYTES);
        let mut repeated = request(0, "");
        for _ in 0..400 {
            repeated.headers_mut().append("x", HeaderValue::from_static("x"));
        }
        assert!(weight(&repeated) > 399 * FIELD_BYTES);
    }
}
