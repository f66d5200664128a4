// SPDX-License-Identifier: Apache-2.0

//! A pod and its API server over TLS, with the files of a service account.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, crypto};

use super::*;
use crate::access::pod_server;

/// Writes a certificate of an authority to `ca.crt`. Returns TLS with a certificate that it signed for 127.0.0.1.
fn tls(directory: &Path) -> TlsAcceptor {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = authority.self_signed(&authority_key).unwrap();
    std::fs::write(directory.join("ca.crt"), certificate.pem()).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let own = own.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![own.der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        );
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

/// TLS in front of a server.
struct TlsFront {
    port: String,
    connections: Arc<Mutex<JoinSet<()>>>,
    refused: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TlsFront {
    async fn start(server: &FakeApiServer, tls: TlsAcceptor) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let connections = Arc::new(Mutex::new(JoinSet::new()));
        let refused = Arc::new(AtomicUsize::new(0));
        let behind = server.server().url.authority().unwrap().to_string();
        let (all, failures) = (connections.clone(), refused.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connection = connect(stream, tls.clone(), behind.clone(), failures.clone());
                all.lock().spawn(connection);
            }
        });
        Self {
            port,
            connections,
            refused,
            task,
        }
    }

    fn cut_connections(&self) {
        self.connections.lock().abort_all();
    }
}

async fn connect(stream: TcpStream, tls: TlsAcceptor, behind: String, refused: Arc<AtomicUsize>) {
    let Ok(mut stream) = tls.accept(stream).await else {
        refused.fetch_add(1, Ordering::Relaxed);
        return;
    };
    if let Ok(mut server) = TcpStream::connect(behind).await {
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
    }
}

/// The watch of a pod with these files.
fn watch_of_pod(front: &TlsFront, directory: &Path) -> Arc<SharedWatch> {
    let server = pod_server("127.0.0.1", &front.port, directory).unwrap();
    let client = ApiClient::new(server).unwrap();
    let cluster = Cluster::with_limits(client, &Arc::default(), WatchLimits::default());
    cluster.watch(Scope::all(ObjectKind::Pod))
}

#[tokio::test]
async fn a_pod_follows_its_server_over_tls_through_cuts_and_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "first\n").unwrap();
    let mut server = FakeApiServer::start().await;
    server.demand("first");
    server.apply_quietly("pods", &pod("x", "a", "1"));
    let front = TlsFront::start(&server, tls(directory.path())).await;
    let watch = watch_of_pod(&front, directory.path());
    has(&watch, &["x/a=1"]).await;
    eventually("the watch begins", || server.count("watch=1") == 1).await;
    server.apply("pods", &pod("x", "b", "1"));
    has(&watch, &["x/a=1", "x/b=1"]).await;

    front.cut_connections();
    server.apply("pods", &pod("x", "c", "1"));
    has(&watch, &["x/a=1", "x/b=1", "x/c=1"]).await;
    assert_eq!(server.count("limit=500"), 1, "{:?}", server.requests());

    server.stop();
    std::fs::write(&token, "second\n").unwrap();
    server.demand("second");
    server.delete_quietly("pods", "x", "a");
    server.forget_events();
    server.restart().await;
    has(&watch, &["x/b=1", "x/c=1"]).await;
    assert_eq!(server.count("limit=500"), 2, "{:?}", server.requests());
}

#[tokio::test]
async fn a_pod_sends_nothing_to_a_server_of_another_authority() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("token"), "secret\n").unwrap();
    let server = FakeApiServer::start().await;
    let front = TlsFront::start(&server, tls(directory.path())).await;
    // Another authority replaces that of the server.
    tls(directory.path());
    let watch = watch_of_pod(&front, directory.path());
    eventually("the pod refuses the server twice", || {
        front.refused.load(Ordering::Relaxed) >= 2
    })
    .await;
    assert!(server.requests().is_empty(), "{:?}", server.requests());
    assert!(!watch.status().borrow().is_synced);
}
