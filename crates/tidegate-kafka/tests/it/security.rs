// SPDX-License-Identifier: Apache-2.0

//! TLS and SASL with a real broker.

use std::io::Write;
use std::path::PathBuf;

use tidegate_cluster::{ClusterEngine, StoreCall, StoreError};
use tidegate_config::Secret;
use tidegate_kafka::{KafkaConfig, KafkaEngine, KafkaSaslConfig, KafkaTlsConfig, SaslMechanism};

use crate::broker::{Broker, PASSWORD, USER};
use crate::machine::{Machine, page};

/// An unsigned token of [`USER`], for 75 years. The broker takes it as long as no one configures how to check a signature.
const TOKEN: &str = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImlhdCI6MSwiZXhwIjo0MTAyNDQ0ODAwfQ.";

fn config(address: String, sasl: Option<KafkaSaslConfig>) -> KafkaConfig {
    KafkaConfig {
        brokers: vec![address],
        sasl,
        tls: Some(KafkaTlsConfig {
            ca_file: Some(Broker::shared().path("ca.pem")),
            ..KafkaTlsConfig::default()
        }),
        ..KafkaConfig::default()
    }
}

/// The mechanisms with a password.
const WITH_PASSWORD: [SaslMechanism; 3] = [
    SaslMechanism::Plain,
    SaslMechanism::ScramSha256,
    SaslMechanism::ScramSha512,
];

fn user(mechanism: SaslMechanism, password: &str) -> KafkaSaslConfig {
    KafkaSaslConfig {
        mechanism,
        username: Some(USER.to_owned()),
        password: Some(Secret::new(password)),
        token_file: None,
    }
}

fn bearer(token_file: PathBuf) -> KafkaSaslConfig {
    KafkaSaslConfig {
        mechanism: SaslMechanism::OauthBearer,
        username: None,
        password: None,
        token_file: Some(token_file),
    }
}

async fn works(config: KafkaConfig) {
    let engine = KafkaEngine::start(config, "secure", 1).unwrap();
    let mut machine = Machine::new(&engine);
    machine
        .stored(StoreCall::Publish(page("secure", 1, 1, b"page")))
        .await;
    assert_eq!(machine.everything().await.len(), 1);
}

/// The error that people see.
async fn refused(config: KafkaConfig) -> String {
    let engine = KafkaEngine::start(config, "secure", 1).unwrap();
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
    let users = WITH_PASSWORD.map(|mechanism| user(mechanism, PASSWORD));
    for sasl in users.into_iter().chain([bearer(token_file)]) {
        works(config(Broker::shared().secure_address(), Some(sasl))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_an_error_that_does_not_show_it() {
    for mechanism in WITH_PASSWORD {
        let wrong = user(mechanism, "wrong-secret");
        let error = refused(config(Broker::shared().secure_address(), Some(wrong))).await;
        assert!(error.contains("uthentication"), "{error}");
        assert!(!error.contains("wrong-secret"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_file_that_is_missing_is_named() {
    let absent = bearer(Broker::shared().path("absent-token"));
    let error = refused(config(Broker::shared().secure_address(), Some(absent))).await;
    assert!(error.contains("absent-token"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_gets_the_certificate_of_its_client() {
    let broker = Broker::shared();
    let without = config(broker.tls_address(), None);
    let with = KafkaConfig {
        tls: without.tls.clone().map(|tls| KafkaTlsConfig {
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
    let sasl = Some(user(SaslMechanism::ScramSha512, PASSWORD));
    let unknown = KafkaConfig {
        tls: Some(KafkaTlsConfig::default()),
        ..config(Broker::shared().secure_address(), sasl)
    };
    let error = refused(unknown.clone()).await;
    assert!(error.to_lowercase().contains("cert"), "{error}");
    let tls = KafkaTlsConfig {
        insecure_skip_verify: true,
        ..KafkaTlsConfig::default()
    };
    works(KafkaConfig {
        tls: Some(tls),
        ..unknown
    })
    .await;
}
