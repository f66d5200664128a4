// SPDX-License-Identifier: Apache-2.0

//! The host of a request: HTTP/1.1 requires exactly one, and a loopback listener accepts few names.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderValue};
use http::uri::Authority;
use http::{Request, Response, StatusCode, Version};

use crate::net::refused::Why;

/// The refusal of a request with no host, two hosts, or a host that is not served here; `None`: it passes.
pub(super) fn refusal<B>(request: &Request<B>, allowed: Option<&[String]>) -> Option<Response<Bytes>> {
    let mut named = request.headers().get_all(HOST).iter();
    let (host, another) = (named.next(), named.next());
    let is_wrong = match request.version() {
        Version::HTTP_11 => host.is_none() || another.is_some(),
        _ => another.is_some(),
    };
    if is_wrong {
        let why = "a request names its host once, in the header `Host`\n";
        return Some(refused(StatusCode::BAD_REQUEST, why.to_owned()));
    }
    let allowed = allowed?;
    let asked = match (request.uri().authority(), host) {
        (Some(authority), _) => authority.as_str(),
        (None, Some(host)) => host.to_str().unwrap_or_default(),
        // HTTP/1.0.
        (None, None) => return None,
    };
    if is_local(asked, allowed) {
        return None;
    }
    let why = format!(
        "this listener does not answer to the name {asked:?}: use `localhost` or an address, or list the name in \
         `allowed_hosts`\n"
    );
    Some(refused(StatusCode::FORBIDDEN, why))
}

/// Whether the host is an address, `localhost`, or an allowed name, with or without a port.
fn is_local(asked: &str, allowed: &[String]) -> bool {
    let Ok(authority) = asked.parse::<Authority>() else {
        return false;
    };
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    address.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || allowed.iter().any(|known| known.eq_ignore_ascii_case(host))
}

fn refused(status: StatusCode, why: String) -> Response<Bytes> {
    Why::Host.mark(text(status, why))
}

pub(super) fn text(status: StatusCode, why: String) -> Response<Bytes> {
    let mut answer = Response::new(Bytes::from(why));
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(version: Version, uri: &str, hosts: &[&str], allowed: Option<&[&str]>) -> Option<u16> {
        let mut request = Request::builder().version(version).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let request = request.body(()).unwrap();
        let allowed: Option<Vec<String>> =
            allowed.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let answer = refusal(&request, allowed.as_deref())?;
        assert_eq!(Why::of(&answer), Some(Why::Host));
        Some(answer.status().as_u16())
    }

    #[test]
    fn a_request_names_its_host_once() {
        let of = |version, hosts: &[&str]| status(version, "/", hosts, None);
        assert_eq!(of(Version::HTTP_11, &["evil.example"]), None);
        assert_eq!(of(Version::HTTP_11, &[]), Some(400));
        assert_eq!(of(Version::HTTP_11, &["a", "a"]), Some(400));
        assert_eq!(of(Version::HTTP_10, &[]), None);
        assert_eq!(of(Version::HTTP_10, &["a", "b"]), Some(400));
        assert_eq!(of(Version::HTTP_2, &[]), None);
    }

    #[test]
    fn a_local_listener_answers_to_addresses_localhost_and_listed_names() {
        let of = |host: &str| status(Version::HTTP_11, "/", &[host], Some(&["gate.internal"]));
        for host in [
            "127.0.0.1",
            "127.0.0.1:8080",
            "[::1]:8080",
            "[::1]",
            "10.1.2.3",
            "localhost",
            "LOCALHOST:1",
            "Gate.Internal:8080",
        ] {
            assert_eq!(of(host), None, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "evil.localhost",
            "127.0.0.1.evil.example",
            "",
            "a b",
        ] {
            assert_eq!(of(host), Some(403), "{host}");
        }
        let absolute = |uri: &str| status(Version::HTTP_2, uri, &["localhost"], Some(&[]));
        assert_eq!(absolute("http://evil.example/"), Some(403));
        assert_eq!(absolute("http://localhost:80/"), None);
    }
}
