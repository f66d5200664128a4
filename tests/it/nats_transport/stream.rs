// SPDX-License-Identifier: Apache-2.0

//! A stream as another client uses it, with the library itself.

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::Info;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::Config;
use async_nats::jetstream::{self, Context};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

use crate::kit::SOON;
use crate::kit::nats_server::NatsServer;

/// The stream of the tests.
pub(super) const STREAM: &str = "otlp";

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

async fn context(server: &NatsServer) -> Context {
    let mut context = jetstream::new(async_nats::connect(server.url()).await.expect("a server"));
    context.set_timeout(SOON);
    context
}

/// Creates the stream, with these settings.
pub(super) fn create_with(server: &NatsServer, config: Config) {
    runtime().block_on(async {
        let created = context(server).await.create_stream(config).await;
        created.expect("it is created");
    });
}

/// Creates the stream for all subjects below `otlp`.
pub(super) fn create(server: &NatsServer) {
    create_with(
        server,
        Config {
            name: STREAM.to_owned(),
            subjects: vec!["otlp.>".to_owned()],
            ..Config::default()
        },
    );
}

/// All messages of the stream.
pub(super) fn messages(server: &NatsServer) -> Vec<StreamMessage> {
    runtime().block_on(async {
        let stream = context(server).await.get_stream(STREAM).await.expect("a stream");
        let last = stream.cached_info().state.last_sequence;
        let mut messages = Vec::new();
        for sequence in 1..=last {
            messages.push(stream.get_raw_message(sequence).await.expect("a message"));
        }
        messages
    })
}

/// Writes messages: their content, and its encoding if it has one.
pub(super) fn write(server: &NatsServer, subject: &str, messages: &[(Vec<u8>, Option<&str>)]) {
    runtime().block_on(async {
        let context = context(server).await;
        for (payload, encoding) in messages {
            let mut headers = HeaderMap::new();
            headers.insert("tenant", "a");
            if let Some(encoding) = encoding {
                headers.insert("Content-Encoding", *encoding);
            }
            let sent = context
                .publish_with_headers(subject.to_owned(), headers, payload.clone().into())
                .await;
            sent.expect("it is sent").await.expect("the stream has it");
        }
    });
}

/// Writes a message with headers that no client can read, by the protocol itself.
pub(super) fn write_malformed(server: &NatsServer, subject: &str) {
    let address = server.url().replace("nats://", "");
    let mut connection = TcpStream::connect(address).expect("a server");
    let headers = "NATS/1.0\r\nno header\r\n\r\n";
    let (of_headers, all) = (headers.len(), headers.len() + 1);
    let text = format!(
        "CONNECT {{\"headers\":true,\"verbose\":false}}\r\nHPUB {subject} {of_headers} {all}\r\n{headers}x\r\nPING\r\n"
    );
    connection.write_all(text.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    let mut lines = BufReader::new(connection);
    while answer != "PONG\r\n" {
        answer.clear();
        assert!(
            lines.read_line(&mut answer).expect("an answer") > 0,
            "the server ends"
        );
    }
}

/// What the server knows of the consumer of log records, once it exists.
pub(super) fn logs_consumer(server: &NatsServer) -> Option<Info> {
    runtime().block_on(async {
        let stream = context(server).await.get_stream(STREAM).await.expect("a stream");
        stream.consumer_info("tidegate-logs").await.ok()
    })
}
