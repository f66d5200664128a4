// SPDX-License-Identifier: Apache-2.0

//! A configuration from a web server: `--config https://...`.

use std::sync::Arc;
use std::time::Duration;

use http::header::ACCEPT;
use http::{Request, StatusCode, Uri};
use http_body_util::Empty;

use crate::component::Held;
use crate::net::client::{Connector, UseTls, error_chain, http_client};
use crate::net::tls::ALPN_HTTP;
use crate::net::{TlsClientConfig, read_answer};

/// A server that takes longer for a small file has trouble.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Most bytes of a configuration, as of a file.
const MAX_BYTES: usize = 4 << 20;

/// The text at a URL; an error says why there is none.
pub(super) fn text(url: &str) -> Result<String, String> {
    let url: Uri = url.parse().map_err(|error| format!("not a URL: {error}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let fetched = runtime.block_on(async { tokio::time::timeout(TIMEOUT, get(url)).await });
    fetched.map_err(|_| format!("no answer within {} s", TIMEOUT.as_secs()))?
}

async fn get(url: Uri) -> Result<String, String> {
    let connector = Connector::new(None, UseTls::ByScheme, &TlsClientConfig::default(), ALPN_HTTP);
    let client = http_client().build(connector.map_err(|error| error.to_string())?);
    let request = Request::get(url)
        .header(ACCEPT, "application/yaml, text/yaml, */*")
        .body(Empty::<bytes::Bytes>::new());
    let request = request.map_err(|error| error.to_string())?;
    let answer = client.request(request).await;
    let answer = answer.map_err(|error| error_chain(&error))?;
    if answer.status() != StatusCode::OK {
        return Err(format!("the server answers {}", answer.status()));
    }
    let mut held = Held::ours(Arc::default());
    let body = read_answer(answer.into_body(), MAX_BYTES, &mut held).await;
    let body = body.map_err(|error| error.to_string())?;
    String::from_utf8(body.into()).map_err(|_| "the answer is not UTF-8".to_owned())
}

/// A URL without `user:password@`, for messages.
pub(super) fn without_credentials(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn serve(answer: &'static str) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/gateway.yaml", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        url
    }

    #[test]
    fn the_body_of_an_answer_is_the_text() {
        let url = serve("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\na: b\n");
        assert_eq!(text(&url).unwrap(), "a: b\n");
        let url = serve("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(text(&url).unwrap_err(), "the server answers 404 Not Found");
    }

    #[test]
    fn credentials_are_not_shown() {
        let shown = without_credentials("https://ada:secret@a.example/x?y");
        assert_eq!(shown, "https://a.example/x?y");
    }
}
