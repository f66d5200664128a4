// SPDX-License-Identifier: Apache-2.0

//! Connections of clients: TCP or Unix sockets, optionally with TLS. gRPC and HTTP share one connector.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::legacy::{Builder, Client};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::stream::Stream;
use super::tls::{TlsClient, TlsClientConfig, TlsError, with_remedy};
use super::via::Proxy;

/// The timeout for opening a connection. The next attempt may reach another address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A TCP connection is dead if data stays unacknowledged for this long, in milliseconds. Otherwise a half-open
/// connection would take attempts for a quarter of an hour.
const UNACKNOWLEDGED_TIMEOUT_MS: u32 = 20_000;

/// The longest head of an answer over HTTP or gRPC, in bytes.
pub const MAX_HEAD_BYTES: u32 = 64 << 10;

/// A builder of HTTP clients. They refuse response heads of more than [`MAX_HEAD_BYTES`], and their timeouts work.
pub fn http_client() -> Builder {
    let mut client = Client::builder(TokioExecutor::new());
    client
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http1_max_buf_size(MAX_HEAD_BYTES as usize)
        .http2_max_header_list_size(MAX_HEAD_BYTES);
    client
}

/// An error with its causes. The text of hyper is only "client error". A cause that the text already has is left out.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) {
            text
        } else {
            format!("{text}: {cause}")
        }
    })
}

/// The use of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UseTls {
    /// TLS for no URL.
    Never,
    /// TLS for `https` URLs.
    ByScheme,
    /// TLS for all URLs, whatever their scheme.
    Always,
}

/// Opens connections to the hosts of URLs, or to one Unix socket.
#[derive(Clone)]
pub struct Connector {
    unix: Option<PathBuf>,
    use_tls: UseTls,
    tls: Option<Arc<TlsClient>>,
    server_name: Option<ServerName<'static>>,
    proxy: Option<Arc<Proxy>>,
}

impl Connector {
    /// Creates a connector. With `unix`, every connection goes to that socket.
    ///
    /// # Errors
    /// A certificate or key is unusable, or `server_name_override` is not a host name.
    pub fn new(
        unix: Option<PathBuf>,
        use_tls: UseTls,
        tls: &TlsClientConfig,
        alpn: &[&[u8]],
    ) -> Result<Self, TlsError> {
        let config = match use_tls {
            UseTls::Never => None,
            UseTls::ByScheme | UseTls::Always => Some(tls.build(alpn)?),
        };
        Ok(Self {
            unix,
            use_tls,
            tls: config,
            server_name: tls.server_name()?,
            proxy: None,
        })
    }

    /// Adds a proxy. Unix sockets are reached without it.
    pub fn via(mut self, proxy: Option<Proxy>) -> Self {
        self.proxy = proxy.map(Arc::new);
        self
    }

    /// Opens a connection to the host of a URL.
    ///
    /// # Errors
    /// The connection fails, or takes more than 10 s.
    pub async fn connect(&self, uri: Uri) -> io::Result<Stream> {
        let opened = tokio::time::timeout(CONNECT_TIMEOUT, self.clone().open(uri)).await;
        opened.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    async fn open(self, uri: Uri) -> io::Result<Stream> {
        let secure = match self.use_tls {
            UseTls::Never => false,
            UseTls::ByScheme => uri.scheme_str() == Some("https"),
            UseTls::Always => true,
        };
        let stream = self.plain(&uri, secure).await?;
        match self.tls {
            Some(tls) if secure => {
                let name = self.server_name.map_or_else(|| host_name(&uri), Ok)?;
                let config = tls.current().map_err(io::Error::other)?;
                let connected = TlsConnector::from(config).connect(name, stream).await;
                let stream = connected.map_err(with_remedy)?;
                Ok(Stream::Tls(Box::new(stream.into())))
            }
            _ => Ok(stream),
        }
    }

    async fn plain(&self, uri: &Uri, secure: bool) -> io::Result<Stream> {
        if let Some(path) = &self.unix {
            return UnixStream::connect(path).await.map(Stream::Unix);
        }
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let host = host(uri)?;
        let mut stream = match &self.proxy {
            Some(proxy) => proxy.connect().await?,
            None => TcpStream::connect((host, port)).await?,
        };
        stream.set_nodelay(true)?;
        rustix::net::sockopt::set_tcp_user_timeout(&stream, UNACKNOWLEDGED_TIMEOUT_MS)?;
        match &self.proxy {
            Some(proxy) if secure => proxy.tunnel(&mut stream, host, port).await?,
            Some(_) => return Ok(Stream::Proxied(stream)),
            None => {}
        }
        Ok(Stream::Tcp(stream))
    }
}

fn host(uri: &Uri) -> io::Result<&str> {
    let host = uri
        .host()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a URL without a host"))?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    Ok(inner.unwrap_or(host))
}

fn host_name(uri: &Uri) -> io::Result<ServerName<'static>> {
    let name = host(uri)?.to_owned().try_into();
    name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Stream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect(uri).await.map(TokioIo::new) })
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self {
            Self::Proxied(_) => Connected::new().proxy(true),
            Self::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
                Connected::new().negotiated_h2()
            }
            _ => Connected::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_come_without_brackets() {
        let table = [("http://[::1]:4318", "::1"), ("https://a.example", "a.example")];
        for (uri, expected) in table {
            assert_eq!(host(&uri.parse().unwrap()).unwrap(), expected);
        }
        assert!(host(&"/path".parse().unwrap()).is_err());
    }

    #[tokio::test]
    async fn the_head_of_an_answer_may_have_64_kib() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Uri = format!("http://{}/", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let served = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let read = stream.read(&mut request).await.unwrap();
                let long = request[..read].starts_with(b"GET /long ");
                let value = "x".repeat(if long { 200 << 10 } else { 40 << 10 });
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\na: {value}\r\n\r\n"
                );
                // A client that has read enough closes the connection.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let connector = Connector::new(None, UseTls::Never, &TlsClientConfig::default(), &[]);
        let client: Client<_, http_body_util::Empty<bytes::Bytes>> = http_client().build(connector.unwrap());
        assert!(client.get(url.clone()).await.is_ok());
        let long = format!("{url}long").parse().unwrap();
        assert!(client.get(long).await.is_err());
        served.abort();
    }
}
