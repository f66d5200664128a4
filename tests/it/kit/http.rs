// SPDX-License-Identifier: Apache-2.0

//! A small HTTP/1.1 client over a blocking socket: one request per connection, to this machine.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

/// An answer with its body complete and no longer chunked.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// A header's value; names are compared without regard to case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The body as text.
    ///
    /// # Panics
    /// If it isn't UTF-8.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("a body of text")
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it isn't JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }
}

/// GETs a path from a port of 127.0.0.1.
pub(crate) fn get(port: u16, path: &str) -> Result<Response> {
    request("GET", port, path, &[], b"")
}

/// POSTs a body of the given type to a port of 127.0.0.1.
pub(crate) fn post(port: u16, path: &str, content_type: &str, body: &[u8]) -> Result<Response> {
    request("POST", port, path, &[("content-type", content_type)], body)
}

/// Any request; the `host`, `connection` and `content-length` headers are added.
pub(crate) fn request(
    method: &str,
    port: u16,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Response> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let host = [("host", &*format!("127.0.0.1:{port}"))];
    request_over(stream, method, path, &[&host, headers].concat(), body)
}

/// Any request over a connection that is open, without a `host`.
pub(crate) fn request_over(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Response> {
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let sent = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body));
    let mut answer = Vec::new();
    let received = stream.read_to_end(&mut answer);
    // A server may refuse a long body before it has read it all: its answer counts, not our error.
    if answer.is_empty() {
        sent?;
    }
    if let Err(error) = received
        && answer.is_empty()
    {
        return Err(error);
    }
    parse(&answer, method == "HEAD")
}

fn parse(answer: &[u8], is_head: bool) -> Result<Response> {
    let end = find(answer, b"\r\n\r\n").ok_or_else(|| malformed("no end of the headers"))?;
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| malformed("headers not text"))?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let status = status.and_then(|code| code.parse().ok());
    let mut response = Response {
        status: status.ok_or_else(|| malformed("no status"))?,
        headers: lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect(),
        body: Vec::new(),
    };
    if is_head {
        return Ok(response);
    }
    let rest = &answer[end + 4..];
    response.body = match (
        response.header("transfer-encoding"),
        response.header("content-length"),
    ) {
        (Some("chunked"), _) => unchunk(rest)?,
        (None, Some(length)) if length.parse() != Ok(rest.len()) => {
            return Err(malformed("the body is cut short"));
        }
        _ => rest.to_vec(),
    };
    Ok(response)
}

fn unchunk(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = find(rest, b"\r\n").ok_or_else(|| malformed("a chunk without a size"))?;
        let size = std::str::from_utf8(&rest[..line_end]).ok();
        let size = size.and_then(|text| usize::from_str_radix(text, 16).ok());
        let size = size.ok_or_else(|| malformed("a chunk's size"))?;
        rest = &rest[line_end + 2..];
        if size == 0 {
            return Ok(body);
        }
        let chunk = rest.get(..size + 2);
        let chunk = chunk.ok_or_else(|| malformed("a chunk is cut short"))?;
        body.extend_from_slice(&chunk[..size]);
        rest = &rest[size + 2..];
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}
