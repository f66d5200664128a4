// SPDX-License-Identifier: Apache-2.0

//! Connections through an HTTP proxy: `proxy_url`.

use std::fmt;
use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use tidegate_config::{Decode, Node, Problems, TypeHelp, YamlType, wrong_type};

/// The largest answer of a proxy to `CONNECT`, in bytes.
const MAX_ANSWER_BYTES: usize = 8 << 10;

/// An HTTP proxy. Encrypted traffic uses a tunnel (`CONNECT`), other traffic absolute URLs.
#[derive(Clone, PartialEq)]
pub struct Proxy {
    host: String,
    port: u16,
    /// The value of `Proxy-Authorization`.
    authorization: Option<HeaderValue>,
}

impl Proxy {
    /// The authorization for requests that the proxy reads.
    pub fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// Opens a connection to the proxy.
    pub(super) async fn connect(&self) -> io::Result<TcpStream> {
        TcpStream::connect((self.host.as_str(), self.port)).await
    }

    /// Asks the proxy for a tunnel to a host. Further bytes on the stream go there.
    pub(super) async fn tunnel(&self, stream: &mut TcpStream, host: &str, port: u16) -> io::Result<()> {
        let target = if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
        if let Some(authorization) = &self.authorization {
            request.extend(b"Proxy-Authorization: ");
            request.extend(authorization.as_bytes());
            request.extend(b"\r\n");
        }
        request.extend(b"\r\n");
        stream.write_all(&request).await?;
        let mut answer = Vec::new();
        // It reads byte by byte, because the bytes after the head belong to the caller.
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() >= MAX_ANSWER_BYTES {
                return Err(io::Error::other("the proxy's answer is too long"));
            }
            answer.push(stream.read_u8().await?);
        }
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.lines().next().unwrap_or_default();
        match status.split(' ').nth(1) {
            Some(code) if code.len() == 3 && code.starts_with('2') => Ok(()),
            _ => Err(io::Error::other(format!("the proxy refuses: {status}"))),
        }
    }
}

/// Omits the password.
impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
    }
}

fn parse(text: &str) -> Result<Proxy, &'static str> {
    let uri: Uri = text.parse().map_err(|_| "not a URL")?;
    if uri.scheme_str() != Some("http") {
        return Err("the URL of a proxy must begin with `http://`: write http://host:port");
    }
    let authority = uri.authority().ok_or("a URL without a host")?;
    let authorization = match authority.as_str().rsplit_once('@') {
        Some((user, _)) => {
            let user = percent_decoded(user);
            let value = format!("Basic {}", STANDARD.encode(user));
            let mut value = HeaderValue::try_from(value).map_err(|_| "unusable credentials")?;
            value.set_sensitive(true);
            Some(value)
        }
        None => None,
    };
    Ok(Proxy {
        host: authority.host().trim_matches(['[', ']']).to_owned(),
        port: authority.port_u16().unwrap_or(80),
        authorization,
    })
}

/// Decodes `%40` and the like (RFC 3986, 2.1). Malformed sequences stay.
fn percent_decoded(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|_| first == b'%') {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    out
}

impl Decode for Proxy {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let Some(text) = node.as_text() else {
            return wrong_type(node, cx);
        };
        parse(text).map_err(|error| cx.at(node).error(error)).ok()
    }

    fn type_help() -> TypeHelp {
        TypeHelp::like("URL of a proxy", "http://proxy.example.com:3128").accepting(YamlType::Text)
    }

    fn show(&self) -> String {
        format!("{self:?}")
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_proxy_is_a_url_perhaps_with_credentials() {
        let proxy = parse("http://ada:p%40ss@[::1]:3128").unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("::1", 3128));
        assert_eq!(proxy.authorization.as_ref().unwrap(), "Basic YWRhOnBAc3M=");
        assert!(!format!("{proxy:?}").contains("ss"));
        assert_eq!(parse("http://a.example").unwrap().port, 80);
        assert!(parse("socks5://a:1").is_err() && parse("a:1").is_err());
    }

    #[tokio::test]
    async fn a_tunnel_begins_after_the_answer_of_the_proxy() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\n\r\nhello", Ok("hello")),
            (
                "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
                Err("the proxy refuses: HTTP/1.1 407 Proxy Authentication Required"),
            ),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let proxy = parse(&format!("http://a:b@{}", listener.local_addr().unwrap())).unwrap();
            let served = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = vec![0; 1024];
                let read = stream.read(&mut head).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
                String::from_utf8_lossy(&head[..read]).into_owned()
            };
            let connected = async {
                let mut stream = proxy.connect().await?;
                proxy.tunnel(&mut stream, "otlp.example", 443).await?;
                let mut rest = String::new();
                stream.read_to_string(&mut rest).await?;
                io::Result::Ok(rest)
            };
            let (head, connected) = tokio::join!(served, connected);
            assert!(
                head.starts_with("CONNECT otlp.example:443 HTTP/1.1\r\n"),
                "{head}"
            );
            assert!(head.contains("Proxy-Authorization: Basic YTpi\r\n"), "{head}");
            let connected = connected.map_err(|error| error.to_string());
            assert_eq!(connected.as_deref().map_err(String::as_str), expected);
        }
    }
}
