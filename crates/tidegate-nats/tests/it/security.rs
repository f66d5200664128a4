// SPDX-License-Identifier: Apache-2.0

//! Credentials and TLS.

use std::fs;
use std::path::Path;

use nkeys::KeyPair;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair as TlsKey};
use tidegate_config::Secret;
use tidegate_nats::{NatsConfig, NatsEngine, NatsTlsConfig};

use crate::kit::{CLUSTER, Server, Session, message, status_when};

/// The error of an engine that does not connect.
async fn refusal(config: NatsConfig) -> String {
    let engine = NatsEngine::start(config, CLUSTER).unwrap();
    let status = status_when(&engine, "refused", |status| status.last_error.is_some()).await;
    assert!(!status.is_connected);
    status.last_error.unwrap()
}

async fn assert_connects(config: NatsConfig) {
    let engine = NatsEngine::start(config, CLUSTER).unwrap();
    status_when(&engine, "connected", |status| status.is_connected).await;
    Session::open(&engine).publish(&message("p.00.n.1.1", "x")).await;
}

fn with_password(server: &Server, password: &str) -> NatsConfig {
    NatsConfig {
        username: Some("tidegate".to_owned()),
        password: Some(Secret::new(password)),
        ..server.config()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_a_clear_error_without_the_password() {
    let server = Server::running("authorization { user: tidegate, password: hunter2 }");
    let error = refusal(with_password(&server, "hunter3")).await;
    assert!(error.contains("authorization violation"), "{error}");
    assert!(!error.contains("hunter"), "{error}");
    assert_connects(with_password(&server, "hunter2")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_taken() {
    let server = Server::running("authorization { token: hunter2 }");
    assert!(refusal(server.config()).await.contains("authorization violation"));
    let token = Some(Secret::new("hunter2"));
    assert_connects(NatsConfig {
        token,
        ..server.config()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_nkey_is_taken() {
    let key = KeyPair::new_user();
    let users = format!("authorization {{ users: [{{ nkey: {} }}] }}", key.public_key());
    let server = Server::running(&users);
    let with = |key: &KeyPair| NatsConfig {
        nkey: Some(Secret::new(key.seed().unwrap())),
        ..server.config()
    };
    let error = refusal(with(&KeyPair::new_user())).await;
    assert!(error.contains("authorization violation"), "{error}");
    assert_connects(with(&key)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_file_with_credentials_is_named() {
    let server = Server::running("");
    let error = refusal(NatsConfig {
        credentials_file: Some("no/such.creds".into()),
        ..server.config()
    })
    .await;
    assert!(error.contains("no/such.creds"), "{error}");
}

/// Writes an authority, and a certificate for the server and the client with its key.
fn write_certificates(directory: &Path) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, TlsKey::generate().unwrap()).unwrap();
    let key = TlsKey::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let write = |name: &str, pem: String| fs::write(directory.join(name), pem).unwrap();
    write("ca.pem", authority.pem());
    write("cert.pem", certificate.pem());
    write("key.pem", key.serialize_pem());
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_needs_the_authority_and_may_need_a_certificate() {
    let directory = tempfile::TempDir::new().unwrap();
    write_certificates(directory.path());
    let file = |name: &str| directory.path().join(name);
    let server = Server::running(&format!(
        "tls {{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: true }}",
        file("cert.pem"),
        file("key.pem"),
        file("ca.pem")
    ));
    let with = |tls: NatsTlsConfig| NatsConfig {
        tls: Some(tls),
        ..server.config()
    };
    let error = refusal(with(NatsTlsConfig::default())).await;
    assert!(error.contains("certificate"), "{error}");
    let whole = NatsTlsConfig {
        ca_file: Some(file("ca.pem")),
        cert_file: Some(file("cert.pem")),
        key_file: Some(file("key.pem")),
    };
    refusal(with(NatsTlsConfig {
        cert_file: None,
        key_file: None,
        ..whole.clone()
    }))
    .await;
    assert_connects(with(whole)).await;
}
