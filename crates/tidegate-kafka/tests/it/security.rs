// SPDX-License-Identifier: Apache-2.0

//! TLS and SASL with a real broker.

use std::io::Write;

use tidegate_cluster::{ClusterEngine, StoreCall, StoreError};
use tidegate_config::Secret;
use tidegate_kafka::{KafkaAuth, KafkaConfig, KafkaEngine, KafkaTls};

use crate::broker::{Broker, PASSWORD, USER};
use crate::machine::{Machine, page};

/// An unsigned token of [`USER`], for 75 years. The broker takes it as long as no one configures how to check a signature.
const TOKEN: &str = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImlhdCI6MSwiZXhwIjo0MTAyNDQ0ODAwfQ.";

fn config(address: String, auth: Option<KafkaAuth>) -> KafkaConfig {
    KafkaConfig {
        auth,
        tls: Some(KafkaTls {
            ca_file: Some(Broker::shared().path("ca.pem")),
            ..KafkaTls::default()
        }),
        ..KafkaConfig::new(vec![address])
    }
}

fn plain(password: &str) -> KafkaAuth {
    KafkaAuth::Plain {
        username: USER.to_owned(),
        password: Secret::new(password),
    }
}

fn scram_sha_256(password: &str) -> KafkaAuth {
    KafkaAuth::ScramSha256 {
        username: USER.to_owned(),
        password: Secret::new(password),
    }
}

fn scram_sha_512(password: &str) -> KafkaAuth {
    KafkaAuth::ScramSha512 {
        username: USER.to_owned(),
        password: Secret::new(password),
    }
}

async fn works(config: KafkaConfig) {
    let engine = KafkaEngine::start(config, "secure").unwrap();
    let mut machine = Machine::new(&engine);
    machine
        .stored(StoreCall::Publish(page("secure", 1, 1, b"page")))
        .await;
    assert_eq!(machine.everything().await.len(), 1);
}

/// The error that people see.
async fn refused(config: KafkaConfig) -> String {
    let engine = KafkaEngine::start(config, "secure").unwrap();
    let mut machine = Machine::new(&engine);
    let publish = StoreCall::Publish(page("secure", 1, 1, b"page"));
    let result = machine.call(publish).await;
    assert!(matches!(result, Err(StoreError::Unavailable(_))), "{result:?}");
    let has_error = |_: &Machine| engine.status().last_error.is_some();
    machine.until("there is an error", has_error).await;
    engine.status().last_error.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_speaks_each_mechanism_of_sasl_over_tls() {
    let mut token_file = tempfile::NamedTempFile::new().unwrap();
    writeln!(token_file, "{TOKEN}").unwrap();
    let token_file = token_file.path().to_owned();
    for auth in [
        plain(PASSWORD),
        scram_sha_256(PASSWORD),
        scram_sha_512(PASSWORD),
        KafkaAuth::OauthBearer { token_file },
    ] {
        works(config(Broker::shared().secure_address(), Some(auth))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_an_error_that_does_not_show_it() {
    for auth in [plain, scram_sha_256, scram_sha_512] {
        let wrong = auth("wrong-secret");
        let error = refused(config(Broker::shared().secure_address(), Some(wrong))).await;
        assert!(error.contains("uthentication"), "{error}");
        assert!(!error.contains("wrong-secret"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_file_that_is_missing_is_named() {
    let token_file = Broker::shared().path("absent-token");
    let auth = KafkaAuth::OauthBearer { token_file };
    let error = refused(config(Broker::shared().secure_address(), Some(auth))).await;
    assert!(error.contains("absent-token"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_gets_the_certificate_of_its_client() {
    let broker = Broker::shared();
    let without = config(broker.tls_address(), None);
    let with = KafkaConfig {
        tls: without.tls.clone().map(|tls| KafkaTls {
            cert_file: Some(broker.path("client.pem")),
            key_file: Some(broker.path("client.key")),
            ..tls
        }),
        ..without.clone()
    };
    works(with).await;
    refused(without).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_of_an_unknown_authority_is_refused_unless_told() {
    let auth = Some(scram_sha_512(PASSWORD));
    let unknown = KafkaConfig {
        tls: Some(KafkaTls::default()),
        ..config(Broker::shared().secure_address(), auth)
    };
    let error = refused(unknown.clone()).await;
    assert!(error.to_lowercase().contains("cert"), "{error}");
    let tls = KafkaTls {
        insecure_skip_verify: true,
        ..KafkaTls::default()
    };
    works(KafkaConfig {
        tls: Some(tls),
        ..unknown
    })
    .await;
}
