// SPDX-License-Identifier: Apache-2.0

//! Servers and their connections, on real sockets.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::*;

mod versions;

const SOON: Duration = Duration::from_secs(60);

async fn echo(connection: Connection) {
    let Connection {
        mut stream, stopping, ..
    } = connection;
    let mut buffer = [0; 64];
    while let Some(Ok(read)) = stopping.run_until_cancelled(stream.read(&mut buffer)).await {
        if read == 0 || stream.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

async fn start(endpoint: &str, limits: ConnectionLimits) -> Server {
    let endpoint = endpoint.parse().unwrap();
    let listener = Listener::bind(&endpoint, &SocketFileConfig::default())
        .await
        .unwrap();
    Server::start(listener, limits, echo)
}

async fn start_tls(tls: &TlsServerConfig) -> Server {
    let limits = ConnectionLimits::plain(8).over(Some(tls.build(&[]).unwrap()));
    start("127.0.0.1:0", limits).await
}

async fn connect(server: &Server) -> TcpStream {
    match server.local() {
        Endpoint::Tcp { host, port } => TcpStream::connect((host.as_str(), *port)).await.unwrap(),
        Endpoint::Unix(path) => panic!("unexpected {}", path.display()),
    }
}

async fn exchange_hello(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) {
    stream.write_all(b"hello").await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"hello");
}

#[tokio::test]
async fn a_crowd_that_comes_at_once_waits_to_be_accepted() {
    // More than the library's backlog and fewer than the least that systems allow today.
    const CROWD: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("crowd.sock");
    let file = SocketFileConfig::default();
    let tcp = Listener::bind(&"127.0.0.1:0".parse().unwrap(), &file)
        .await
        .unwrap();
    let unix = format!("unix:{}", path.display()).parse().unwrap();
    let _unix = Listener::bind(&unix, &file).await.unwrap();
    let Endpoint::Tcp { host, port } = tcp.local().clone() else {
        panic!("it is bound to TCP");
    };
    // The listener does not accept. If the backlog is full, a connection over TCP waits forever, one over Unix fails.
    let crowd = async {
        let (mut over_tcp, mut over_unix) = (Vec::new(), Vec::new());
        for _ in 0..CROWD {
            over_tcp.push(TcpStream::connect((host.as_str(), port)).await.unwrap());
            over_unix.push(UnixStream::connect(&path).await.unwrap());
        }
    };
    tokio::time::timeout(SOON, crowd)
        .await
        .expect("all are taken down");
}

#[tokio::test]
async fn tcp_and_unix_serve_alike() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("echo.sock");
    let tcp = start("127.0.0.1:0", ConnectionLimits::plain(8)).await;
    let unix = start(&format!("unix:{}", path.display()), ConnectionLimits::plain(8)).await;
    exchange_hello(connect(&tcp).await).await;
    exchange_hello(UnixStream::connect(&path).await.unwrap()).await;
    unix.stop(Instant::now() + SOON).await;
    assert!(!path.exists(), "the socket goes with its server");
}

#[tokio::test]
async fn a_port_in_use_is_named_with_its_cure() {
    let first = start("127.0.0.1:0", ConnectionLimits::plain(8)).await;
    let error = Listener::bind(first.local(), &SocketFileConfig::default())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains(&first.local().to_string()), "{error}");
    assert!(error.contains("choose another port"), "{error}");
}

#[tokio::test]
async fn connections_beyond_the_cap_wait_for_a_slot() {
    let server = start("127.0.0.1:0", ConnectionLimits::plain(1)).await;
    let first = connect(&server).await;
    let mut second = connect(&server).await;
    second.write_all(b"hello").await.unwrap();
    let mut answer = [0; 5];
    let early = tokio::time::timeout(Duration::from_millis(50), second.read_exact(&mut answer)).await;
    assert!(early.is_err(), "served beyond the cap");
    drop(first);
    second.read_exact(&mut answer).await.unwrap();
}

#[tokio::test]
async fn stop_lets_connections_finish_and_cuts_those_that_do_not() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let endpoint = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(&endpoint, &SocketFileConfig::default())
        .await
        .unwrap();
    let server = Server::start(
        listener,
        ConnectionLimits::plain(8),
        |mut connection| async move {
            let mut first = [0];
            let arrived = connection.stream.read_exact(&mut first).await.is_ok();
            connection.stream.write_all(&first).await.unwrap();
            if arrived && first == *b"p" {
                connection.stopping.cancelled().await;
                ENDED.fetch_add(1, SeqCst);
            } else {
                std::future::pending::<()>().await;
            }
        },
    );
    let mut polite = connect(&server).await;
    polite.write_all(b"p").await.unwrap();
    polite.read_exact(&mut [0]).await.unwrap();
    let mut stubborn = connect(&server).await;
    stubborn.write_all(b"s").await.unwrap();
    stubborn.read_exact(&mut [0]).await.unwrap();
    server.stop(Instant::now() + Duration::from_secs(3)).await;
    assert_eq!(ENDED.load(SeqCst), 1);
    assert_eq!(stubborn.read(&mut [0]).await.unwrap_or(0), 0);
}

fn authority() -> (rcgen::Certificate, rcgen::Issuer<'static, rcgen::KeyPair>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    (certificate, rcgen::Issuer::new(params, key))
}

fn leaf(issuer: &rcgen::Issuer<'static, rcgen::KeyPair>, name: &str) -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn secret(text: String) -> Option<tidegate_config::Secret> {
    Some(tidegate_config::Secret::new(text))
}

#[tokio::test]
async fn mutual_tls_takes_known_clients_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, issuer) = authority();
    let ca_file = dir.path().join("ca.pem");
    std::fs::write(&ca_file, ca.pem()).unwrap();
    let (cert, key) = leaf(&issuer, "gateway.test");
    let tls = TlsServerConfig {
        cert_pem: secret(cert),
        key_pem: secret(key),
        client_ca_file: Some(ca_file.clone()),
        ..TlsServerConfig::default()
    };
    let server = start_tls(&tls).await;

    let (cert, key) = leaf(&issuer, "client.test");
    let known = TlsClientConfig {
        ca_file: Some(ca_file.clone()),
        cert_pem: secret(cert),
        key_pem: secret(key),
        server_name_override: Some("gateway.test".to_owned()),
        ..TlsClientConfig::default()
    };
    exchange_hello(handshake(&server, &known).await.unwrap()).await;

    let anonymous = TlsClientConfig {
        cert_pem: None,
        key_pem: None,
        ..known.clone()
    };
    // In TLS 1.3 the client sees the refusal at its first read.
    let refused = match handshake(&server, &anonymous).await {
        Ok(mut stream) => stream.read(&mut [0]).await.is_err(),
        Err(_) => true,
    };
    assert!(refused);

    let distrustful = TlsClientConfig {
        ca_file: None,
        ..known.clone()
    };
    assert!(handshake(&server, &distrustful).await.is_err());
    let careless = TlsClientConfig {
        insecure_skip_verify: true,
        ..distrustful
    };
    exchange_hello(handshake(&server, &careless).await.unwrap()).await;
}

async fn handshake(
    server: &Server,
    config: &TlsClientConfig,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let name = config.server_name().unwrap().unwrap();
    let connector = tokio_rustls::TlsConnector::from(config.build(&[]).unwrap().current().unwrap());
    connector.connect(name, connect(server).await).await
}

/// A self-signed certificate for this name, and its key.
fn self_signed(name: &str, is_ca: rcgen::IsCa) -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    // Another name than that of `authority`.
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "self-signed");
    params.is_ca = is_ca;
    let certificate = params.self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

/// The error of a client that trusts `trusted` and expects `gateway.test`, at a server with this certificate and key.
async fn refusal((cert, key): (String, String), trusted: String) -> Option<String> {
    let tls = TlsServerConfig {
        cert_pem: secret(cert),
        key_pem: secret(key),
        ..TlsServerConfig::default()
    };
    let server = start_tls(&tls).await;
    let client = TlsClientConfig {
        ca_pem: secret(trusted),
        server_name_override: Some("gateway.test".to_owned()),
        ..TlsClientConfig::default()
    };
    let connector = Connector::new(None, client::UseTls::Always, &client, &[]).unwrap();
    let url = format!("https://{}/", server.local());
    let refused = connector.connect(url.parse().unwrap()).await.err();
    refused.map(|error| error.to_string())
}

#[test]
fn the_text_of_an_error_names_each_cause_once() {
    #[derive(Debug, thiserror::Error)]
    enum Caused {
        #[error("client error")]
        Client(#[source] std::io::Error),
        #[error("client error: {0}")]
        Repeated(#[source] std::io::Error),
    }
    let refused = || std::io::Error::other("refused");
    for error in [Caused::Client(refused()), Caused::Repeated(refused())] {
        assert_eq!(client::error_chain(&error), "client error: refused");
    }
}

#[tokio::test]
async fn the_error_of_a_handshake_names_the_remedy() {
    let unconstrained = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let (ca, issuer) = authority();
    let of_authority = self_signed("gateway.test", unconstrained);
    let plain = self_signed("gateway.test", rcgen::IsCa::ExplicitNoCa);
    let renamed = leaf(&issuer, "other.test");
    let good = leaf(&issuer, "gateway.test");
    for (pair, trusted, expected) in [
        (of_authority.clone(), of_authority.0, "with `CA:FALSE`"),
        (plain.clone(), ca.pem(), "set `ca_file`"),
        (renamed, ca.pem(), "`server_name_override`"),
    ] {
        let error = refusal(pair, trusted).await.unwrap_or_default();
        assert!(error.starts_with("invalid peer certificate: "), "{error}");
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(refusal(plain.clone(), plain.0).await, None);
    assert_eq!(refusal(good, ca.pem()).await, None);
}

#[tokio::test]
async fn a_renewed_certificate_is_served_without_restart_and_a_broken_one_not() {
    let dir = tempfile::tempdir().unwrap();
    let (cert_file, key_file) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let (_, issuer) = authority();
    let mut renewals = 0;
    let mut renew = |cert: &str, key: &str| {
        std::fs::write(&key_file, key).unwrap();
        std::fs::write(&cert_file, cert).unwrap();
        // Clocks of file systems are coarse.
        renewals += 1;
        let later = std::time::SystemTime::now() + Duration::from_secs(renewals);
        let file = std::fs::File::options().append(true).open(&cert_file).unwrap();
        file.set_modified(later).unwrap();
    };
    let (cert, key) = leaf(&issuer, "gateway.test");
    renew(&cert, &key);
    let tls = TlsServerConfig {
        cert_file: Some(cert_file.clone()),
        key_file: Some(key_file.clone()),
        reload_interval: Duration::from_millis(10),
        ..TlsServerConfig::default()
    };
    let server = start_tls(&tls).await;
    let client = TlsClientConfig {
        insecure_skip_verify: true,
        server_name_override: Some("gateway.test".to_owned()),
        ..TlsClientConfig::default()
    };
    let served = async || {
        let stream = handshake(&server, &client).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    let first = served().await;
    assert_eq!(served().await, first);
    let (cert, key) = leaf(&issuer, "gateway.test");
    renew(&cert, &key);
    let second = until(async || Some(served().await).filter(|second| *second != first)).await;
    renew("no certificate", &key);
    // Longer than it takes to look.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(served().await, second);
}

#[tokio::test]
async fn a_client_takes_up_a_renewed_authority_and_certificate_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let mut renewals = 0;
    let mut write = |name: &str, text: &str| {
        std::fs::write(file(name), text).unwrap();
        renewals += 1;
        let later = std::time::SystemTime::now() + Duration::from_secs(renewals);
        let written = std::fs::File::options().append(true).open(file(name)).unwrap();
        written.set_modified(later).unwrap();
    };
    let (old, old_issuer) = authority();
    let (new, new_issuer) = authority();
    let mut client_files = |ca: &rcgen::Certificate, issuer: &rcgen::Issuer<'static, rcgen::KeyPair>| {
        let (cert, key) = leaf(issuer, "client.test");
        write("client.key", &key);
        write("client.pem", &cert);
        write("ca.pem", &ca.pem());
    };
    let (cert, key) = leaf(&new_issuer, "gateway.test");
    std::fs::write(file("server-ca.pem"), new.pem()).unwrap();
    let server = TlsServerConfig {
        cert_pem: secret(cert),
        key_pem: secret(key),
        client_ca_file: Some(file("server-ca.pem")),
        ..TlsServerConfig::default()
    };
    let server = start_tls(&server).await;
    client_files(&old, &old_issuer);
    let config = TlsClientConfig {
        ca_file: Some(file("ca.pem")),
        cert_file: Some(file("client.pem")),
        key_file: Some(file("client.key")),
        server_name_override: Some("gateway.test".to_owned()),
        reload_interval: Duration::from_millis(10),
        ..TlsClientConfig::default()
    };
    // As an exporter has it: made once.
    let client = config.build(&[]).unwrap();
    let name = config.server_name().unwrap().unwrap();
    let dial = async || {
        let connector = tokio_rustls::TlsConnector::from(client.current().unwrap());
        connector.connect(name.clone(), connect(&server).await).await
    };
    assert!(
        dial().await.is_err(),
        "it does not know who signed for the server"
    );
    client_files(&new, &new_issuer);
    exchange_hello(until(async || dial().await.ok()).await).await;
}

/// The first value that `what` gives, after some time.
async fn until<T>(what: impl AsyncFn() -> Option<T>) -> T {
    let there = async {
        loop {
            if let Some(there) = what().await {
                return there;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, there).await.expect("it comes in time")
}

#[test]
fn tls_files_that_are_missing_are_named() {
    let config = TlsServerConfig {
        cert_file: Some("/nonexistent/cert.pem".into()),
        key_file: Some("/nonexistent/key.pem".into()),
        ..TlsServerConfig::default()
    };
    let error = config.build(&[]).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/cert.pem"), "{error}");
}

/// Answers after as many milliseconds as the path says.
async fn http_server(config: http::HttpConfig) -> Server {
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), &SocketFileConfig::default())
        .await
        .unwrap();
    let answer = |request: ::http::Request<hyper::body::Incoming>| async move {
        let ms = request.uri().path().trim_start_matches('/').parse().unwrap();
        tokio::time::sleep(Duration::from_millis(ms)).await;
        ::http::Response::new(http_body_util::Empty::<bytes::Bytes>::new())
    };
    http::start(listener, ConnectionLimits::plain(8), config, answer)
}

#[tokio::test]
async fn a_connection_that_never_asks_is_closed() {
    for http2_only in [false, true] {
        let server = http_server(http::HttpConfig {
            http2_only,
            header_timeout: Duration::from_millis(20),
            ..http::HttpConfig::default()
        })
        .await;
        let mut silent = connect(&server).await;
        // An HTTP/2 server speaks first.
        let closed = tokio::time::timeout(SOON, silent.read_to_end(&mut Vec::new())).await;
        assert!(closed.is_ok(), "{http2_only}: {closed:?}");
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let server = http_server(http::HttpConfig {
        max_idle: Some(Duration::from_millis(50)),
        ..http::HttpConfig::default()
    })
    .await;
    let mut stream = connect(&server).await;
    // Four times as long as it may be idle.
    stream
        .write_all(b"GET /200 HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(SOON, stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "it is closed at last");
    assert!(
        answer.starts_with(b"HTTP/1.1 200"),
        "{:?}",
        String::from_utf8_lossy(&answer)
    );
}
