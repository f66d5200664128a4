// SPDX-License-Identifier: Apache-2.0

//! Messages that no client can read.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use futures_util::StreamExt;
use tidegate_cluster::ClusterEngine;
use tokio::time::timeout;

use crate::kit::{DEADLINE, Server, Session, message};

/// Sends bytes over a connection of its own, and waits until the server has stored their messages.
fn send_raw(server: &Server, bytes: &[u8]) {
    let address = server.url().replacen("nats://", "", 1);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let connect = b"CONNECT {\"verbose\":false,\"headers\":true}\r\n";
    stream.write_all(&[connect, bytes, b"PING\r\n"].concat()).unwrap();
    let mut lines = BufReader::new(stream).lines();
    assert!(lines.any(|line| line.unwrap() == "PONG"));
}

/// Stores a message with any bytes as headers.
fn send_headers(server: &Server, subject: &str, headers: &[u8]) {
    let length = headers.len();
    let head = format!("HPUB tg.test.{subject} {length} {}\r\n", length + 1);
    send_raw(server, &[head.as_bytes(), headers, b"x\r\n"].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_no_client_can_read_is_removed() {
    let server = Server::running("");
    let engine = server.engine();
    let mut session = Session::open(&engine);
    session.publish(&message("p.00.n.1.1", "before")).await;
    let poison: [&[u8]; 3] = [
        b"NATS/1.0\r\ntg-v: \xff\r\n\r\n",
        b"NATS/1.0\r\nno colon\r\n\r\n",
        b"NATS/1.0\r\ntg-v: a\rb\r\n\r\n",
    ];
    for (number, headers) in poison.into_iter().enumerate() {
        send_headers(&server, &format!("p.00.n.2.{number}"), headers);
    }
    send_raw(&server, b"PUB tg.test.p.\xff 1\r\nx\r\n");
    let mut after = Session::open(&engine);
    after.publish(&message("p.00.n.3.1", "after")).await;
    let read = after.everything().await;
    let bodies: Vec<_> = read.iter().map(|stored| &stored.message.body[..]).collect();
    assert_eq!(bodies, [&b"before"[..], b"after"]);
    assert_eq!(engine.status().refused.invalid, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_looks_only_at_what_reads_have_not_given() {
    const READABLE: usize = 1_000;
    let server = Server::running("");
    let engine = server.engine();
    let mut writer = Session::open(&engine);
    for number in 0..READABLE {
        writer
            .publish(&message(&format!("p.00.n.1.{number}"), "page"))
            .await;
    }
    send_headers(&server, "p.00.n.2.0", b"NATS/1.0\r\nno colon\r\n\r\n");
    // A request is a message, which others get too.
    let observer = server.client().await;
    let mut requests = observer.client().subscribe("$JS.API.>").await.unwrap();
    // The server has taken the subscription when it answers.
    observer.get_stream("tidegate_test").await.unwrap();
    // A replica reads in two sessions.
    let (mut one, mut other) = (Session::open(&engine), Session::open(&engine));
    let (first, second) = tokio::join!(one.everything(), other.everything());
    assert_eq!((first.len(), second.len()), (READABLE, READABLE));
    let mut seen = 0;
    loop {
        let request = timeout(DEADLINE, requests.next()).await.unwrap().unwrap();
        let subject = request.subject.as_str();
        if subject.contains(".MSG.DELETE.") {
            break;
        }
        seen += usize::from(subject.contains(".MSG.GET."));
        let begins = subject.contains(".CONSUMER.CREATE.");
        assert!(seen == 0 || !begins, "a read begins during the repair");
    }
    // A batch has at most 256 messages.
    assert!(seen <= 256, "the repair has looked at {seen} messages");
}
