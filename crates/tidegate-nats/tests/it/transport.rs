// SPDX-License-Identifier: Apache-2.0

//! Telemetry through a stream: a producer and durable consumers.

use std::sync::Arc;
use std::time::Duration;

use tidegate_config::Secret;
use tidegate_nats::NatsConnection;
use tidegate_nats::transport::{
    Acknowledgement, DeliverFrom, DurableConsumer, DurableOptions, NatsMessageIn, NatsMessageOut,
    NatsProducer, NatsSendError, StreamOptions, TransportLink,
};

use crate::kit::{DEADLINE, Server};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A user who may publish on `otlp.logs` and no other subject of telemetry.
const USERS: &str = r#"authorization { users: [
  { user: all, password: hunter2 }
  { user: few, password: hunter2, permissions: {
    publish: ["otlp.logs"], subscribe: ["_INBOX.>"] } }
] }"#;

fn connection(server: &Server, user: &str) -> NatsConnection {
    NatsConnection {
        servers: server.config().servers,
        username: Some(user.to_owned()),
        password: Some(Secret::new("hunter2")),
        connect_timeout: TIMEOUT,
        ..NatsConnection::default()
    }
}

fn message(subject: &str, id: &str, payload: &str) -> NatsMessageOut {
    NatsMessageOut {
        subject: subject.to_owned(),
        id: id.to_owned(),
        headers: vec![("tenant".to_owned(), "a".to_owned())],
        payload: payload.to_owned().into(),
    }
}

async fn producer(server: &Server, user: &str, timeout: Duration) -> Result<NatsProducer, NatsSendError> {
    let subjects = ["otlp.logs".to_owned(), "otlp.traces".to_owned()];
    let stream = StreamOptions::default();
    let stream = (user == "all").then_some((&stream, &subjects[..]));
    NatsProducer::connect(&connection(server, user), timeout, 4, stream).await
}

fn durable(subject: &str) -> DurableOptions {
    DurableOptions {
        stream: None,
        name: "d".to_owned(),
        subjects: vec![subject.to_owned()],
        ack_wait: Duration::from_hours(1),
        max_ack_pending: 100,
        deliver: DeliverFrom::All,
        headers: vec!["tenant".to_owned()],
    }
}

/// The next messages of a consumer, until there are `count`.
async fn read(consumer: &DurableConsumer, count: usize) -> Vec<NatsMessageIn> {
    let mut messages = Vec::new();
    let reading = async {
        while messages.len() < count {
            let mut pull = consumer
                .pull(count - messages.len(), Duration::from_secs(1))
                .await
                .unwrap();
            while let Some(message) = pull.next().await.unwrap() {
                messages.push(message);
            }
        }
    };
    tokio::time::timeout(DEADLINE, reading).await.unwrap();
    messages
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_with_a_known_id_is_stored_once() {
    let server = Server::running(USERS);
    let producer = producer(&server, "all", TIMEOUT).await.unwrap();
    for (id, is_duplicate) in [("1", false), ("2", false), ("1", true)] {
        let delivery = producer.publish(message("otlp.logs", id, "x")).await.unwrap();
        assert_eq!(delivery.acknowledged().await, Ok(is_duplicate), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_messages_name_the_cure() {
    let server = Server::running(USERS);
    let all = producer(&server, "all", TIMEOUT).await.unwrap();
    let absent = all.publish(message("other", "1", "x")).await.unwrap();
    let error = absent.acknowledged().await.unwrap_err().to_string();
    assert!(
        error.contains("no stream takes the subject `other`: create one"),
        "{error}"
    );
    let large = "x".repeat(all.max_payload());
    let error = all
        .publish(message("otlp.logs", "1", &large))
        .await
        .err()
        .unwrap();
    assert!(matches!(error, NatsSendError::TooLarge(_)), "{error}");
    let few = producer(&server, "few", Duration::from_secs(5)).await.unwrap();
    let denied = few.publish(message("otlp.traces", "1", "x")).await.unwrap();
    let error = denied.acknowledged().await.unwrap_err().to_string();
    assert!(
        error.contains("grant the user to publish on `otlp.traces`"),
        "{error}"
    );
    let taken = few.publish(message("otlp.logs", "1", "x")).await.unwrap();
    assert_eq!(taken.acknowledged().await, Ok(false));
    let wrong = NatsConnection {
        password: Some(Secret::new("hunter3")),
        ..connection(&server, "all")
    };
    let error = NatsProducer::connect(&wrong, TIMEOUT, 4, None)
        .await
        .err()
        .unwrap();
    assert!(matches!(error, NatsSendError::Login(_)), "{error}");
    assert!(!error.to_string().contains("hunter"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_decide_which_messages_come_again() {
    let server = Server::running(USERS);
    let producer = producer(&server, "all", TIMEOUT).await.unwrap();
    for id in ["1", "2", "3"] {
        let delivery = producer.publish(message("otlp.logs", id, id)).await.unwrap();
        delivery.acknowledged().await.unwrap();
    }
    let link = Arc::new(TransportLink::connect(&connection(&server, "all")).await.unwrap());
    let (consumer, differences) = DurableConsumer::open(link.clone(), &durable("otlp.logs"), 1 << 20)
        .await
        .unwrap();
    assert!(differences.is_empty(), "{differences:?}");
    let messages = read(&consumer, 3).await;
    let contents: Vec<_> = messages.iter().map(|message| &*message.payload).collect();
    assert_eq!(contents, [b"1", b"2", b"3"]);
    assert_eq!(messages[0].headers, [("tenant".to_owned(), "a".to_owned())]);
    link.answer(&messages[0].reply, Acknowledgement::Done).await;
    link.answer(&messages[1].reply, Acknowledgement::Never).await;
    link.answer(&messages[2].reply, Acknowledgement::Again).await;
    let again = read(&consumer, 1).await;
    assert_eq!(again[0].key, messages[2].key);
    link.answer(&again[0].reply, Acknowledgement::Done).await;
    // Another member goes on with the same consumer.
    let other = Arc::new(TransportLink::connect(&connection(&server, "all")).await.unwrap());
    let options = DurableOptions {
        ack_wait: Duration::from_secs(5),
        ..durable("otlp.logs")
    };
    let (other, differences) = DurableConsumer::open(other, &options, 1 << 20).await.unwrap();
    assert_eq!(differences, ["ack_wait is 3600s and not 5s"]);
    assert_eq!(other.ack_wait(), Duration::from_hours(1));
    let delivery = producer.publish(message("otlp.logs", "4", "4")).await.unwrap();
    delivery.acknowledged().await.unwrap();
    assert_eq!(read(&other, 1).await[0].payload, "4");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_of_other_subjects_and_an_absent_stream_are_errors() {
    let server = Server::running(USERS);
    let link = Arc::new(TransportLink::connect(&connection(&server, "all")).await.unwrap());
    let open = async |options: DurableOptions| {
        let opened = DurableConsumer::open(link.clone(), &options, 1 << 20).await;
        opened.err().map(|error| error.to_string())
    };
    let absent = open(durable("otlp.logs")).await.unwrap();
    assert!(
        absent.contains("no stream takes the subject `otlp.logs`"),
        "{absent}"
    );
    let named = DurableOptions {
        stream: Some("nowhere".to_owned()),
        ..durable("otlp.logs")
    };
    let absent = open(named).await.unwrap();
    assert!(absent.contains("the stream `nowhere` does not exist"), "{absent}");
    producer(&server, "all", TIMEOUT).await.unwrap();
    assert_eq!(open(durable("otlp.logs")).await, None);
    let other = open(durable("otlp.traces")).await.unwrap();
    assert!(other.contains("has the subjects {\"otlp.logs\"}"), "{other}");
}
