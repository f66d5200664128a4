// SPDX-License-Identifier: Apache-2.0

//! Files with credentials: an operator, an account and its users, with JWTs that the test writes.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use nkeys::KeyPair;
use tempfile::TempDir;
use tidegate_cluster::{ClusterEngine, StoreCall, StoreError};
use tidegate_nats::{NatsConfig, NatsEngine};

use crate::kit::{CLUSTER, Server, Session, message, status_when};

/// All permissions that the engine needs, in the form of a JWT.
const ALL: &str = r#""pub":{"allow":["tg.test.>","$JS.API.>"]},"sub":{"allow":["_INBOX.>"]}"#;

/// A time that is over, and one that is far.
const PAST: u64 = 1_700_000_000;
const FUTURE: u64 = 4_000_000_000;

/// Base64 for URLs, without padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut block = [0; 4];
        block[1..=chunk.len()].copy_from_slice(chunk);
        let number = u32::from_be_bytes(block);
        for digit in 0..=chunk.len() {
            let value = number >> (18 - 6 * digit) & 63;
            text.push(char::from(DIGITS[value as usize]));
        }
    }
    text
}

/// A JWT of NATS. `content` is the object of its own claims.
fn jwt(issuer: &KeyPair, subject: &KeyPair, expires: u64, content: &str) -> String {
    let claims = format!(
        r#"{{"jti":"test","iat":{},"exp":{expires},"iss":"{}","sub":"{}","name":"test","nats":{{{content},"version":2}}}}"#,
        PAST - 1,
        issuer.public_key(),
        subject.public_key()
    );
    let header = base64(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let signed = format!("{header}.{}", base64(claims.as_bytes()));
    let signature = issuer.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", base64(&signature))
}

/// A server that knows users by their JWTs, and a directory for their files.
struct Accounts {
    account: KeyPair,
    server: Server,
    directory: TempDir,
}

impl Accounts {
    fn new() -> Self {
        let (operator, account, system) = (
            KeyPair::new_operator(),
            KeyPair::new_account(),
            KeyPair::new_account(),
        );
        let limits = [
            "subs",
            "data",
            "payload",
            "imports",
            "exports",
            "conn",
            "leaf",
            "mem_storage",
            "disk_storage",
            "streams",
            "consumer",
        ];
        let limits = limits.map(|name| format!("\"{name}\":-1")).join(",");
        let content = format!(r#""type":"account","limits":{{{limits},"wildcards":true}}"#);
        let of_operator = format!(r#""type":"operator","system_account":"{}""#, system.public_key());
        let mut settings = format!(
            "operator: \"{}\"\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{\n",
            jwt(&operator, &operator, FUTURE, &of_operator),
            system.public_key()
        );
        let of_system = content.replace("\"mem_storage\":-1,\"disk_storage\":-1,", "");
        for (account, content) in [(&account, &content), (&system, &of_system)] {
            let jwt = jwt(&operator, account, FUTURE, content);
            writeln!(settings, "{}: \"{jwt}\"", account.public_key()).unwrap();
        }
        settings.push_str("}\n");
        Self {
            account,
            server: Server::running(&settings),
            directory: TempDir::new().unwrap(),
        }
    }

    /// Options with the file of a user.
    fn user(&self, expires: u64, permissions: &str) -> NatsConfig {
        let user = KeyPair::new_user();
        let content = format!(r#""type":"user","subs":-1,"data":-1,"payload":-1,{permissions}"#);
        let jwt = jwt(&self.account, &user, expires, &content);
        let seed = user.seed().unwrap();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        fs::write(self.file(), text).unwrap();
        NatsConfig {
            credentials_file: Some(self.file()),
            ..self.server.config()
        }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("user.creds")
    }
}

/// The error of an engine that has one.
async fn error_of(engine: &NatsEngine) -> String {
    let status = status_when(engine, "refused", |status| status.last_error.is_some()).await;
    status.last_error.unwrap()
}

fn assert_names_permissions(error: &str, denied: &str) {
    let grant = "grant the user to publish on `tg.test.>` and `$JS.API.>`, and to subscribe to `_INBOX.>`";
    for part in [denied, grant] {
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_credentials_is_enough_for_all_calls() {
    let accounts = Accounts::new();
    let engine = NatsEngine::start(accounts.user(FUTURE, ALL), CLUSTER).unwrap();
    let mut session = Session::open(&engine);
    let sequence = session.publish(&message("r.00.n", "x")).await;
    assert_eq!(session.everything().await.len(), 1);
    assert_eq!(session.retained().await.len(), 1);
    let old = StoreCall::CompareAndSet(message("r.00.n", "y"), sequence + 1);
    let refused = session.call(old).await;
    assert!(
        matches!(refused, Err(StoreError::Conflict(Some(_)))),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_a_permission_learns_what_to_grant() {
    let accounts = Accounts::new();
    let no_pages = r#""pub":{"allow":["$JS.API.>"]},"sub":{"allow":["_INBOX.>"]}"#;
    let engine = NatsEngine::start(accounts.user(FUTURE, no_pages), CLUSTER).unwrap();
    let mut session = Session::open(&engine);
    session.connected().await;
    let refused = session.call(StoreCall::Publish(message("p.00.n.1.1", "x"))).await;
    let Err(StoreError::Unavailable(error)) = refused else {
        panic!("{refused:?}");
    };
    assert_names_permissions(&error, "Publish to \"tg.test.p.00.n.1.1\"");
    assert_eq!(engine.status().last_error, Some(error));

    let no_stream = r#""pub":{"allow":["tg.test.>"]},"sub":{"allow":["_INBOX.>"]}"#;
    let engine = NatsEngine::start(accounts.user(FUTURE, no_stream), CLUSTER).unwrap();
    let error = error_of(&engine).await;
    assert_names_permissions(&error, "Publish to \"$JS.API.STREAM.INFO.tidegate_test\"");

    let no_answers = r#""pub":{"allow":["tg.test.>","$JS.API.>"]},"sub":{"allow":["other.>"]}"#;
    let engine = NatsEngine::start(accounts.user(FUTURE, no_answers), CLUSTER).unwrap();
    assert_names_permissions(&error_of(&engine).await, "Subscription to \"_INBOX.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_has_expired_is_refused_with_the_name_of_its_file() {
    let accounts = Accounts::new();
    let engine = NatsEngine::start(accounts.user(PAST, ALL), CLUSTER).unwrap();
    let error = error_of(&engine).await;
    let file = accounts.file().display().to_string();
    for part in [file.as_str(), "JWT has expired", "write a new one"] {
        assert!(error.contains(part), "{error}");
    }
    // The file is read for each connection.
    accounts.user(FUTURE, ALL);
    status_when(&engine, "connected", |status| status.is_connected).await;
}
