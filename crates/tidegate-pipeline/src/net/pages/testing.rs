// SPDX-License-Identifier: Apache-2.0

//! For tests of servers: requests over plain sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Endpoint;

/// A stream of server-sent events.
pub struct Lines(tokio::io::BufReader<tokio::net::TcpStream>);

impl Lines {
    /// Sends a request and reads the head of the answer.
    pub async fn open(endpoint: &Endpoint, path: &str) -> Self {
        let Endpoint::Tcp { host, port } = endpoint else {
            panic!("not TCP");
        };
        let mut stream = tokio::net::TcpStream::connect((host.as_str(), *port))
            .await
            .unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        Self(tokio::io::BufReader::new(stream))
    }

    async fn line(&mut self) -> Option<String> {
        use tokio::io::AsyncBufReadExt;
        let mut line = String::new();
        let patience = std::time::Duration::from_secs(30);
        let read = tokio::time::timeout(patience, self.0.read_line(&mut line)).await;
        let length = read.expect("a line in time").unwrap_or(0);
        (length > 0).then(|| line.trim_end().to_owned())
    }

    /// The next event: its name and data.
    pub async fn event(&mut self) -> (String, serde_json::Value) {
        loop {
            let line = self.line().await.expect("the stream goes on");
            if let Some(name) = line.strip_prefix("event: ") {
                let data = self.line().await.expect("data");
                let data = data.strip_prefix("data: ").expect("data");
                return (name.to_owned(), serde_json::from_str(data).unwrap());
            }
        }
    }

    /// The data of the next event with this name.
    pub async fn event_named(&mut self, wanted: &str) -> serde_json::Value {
        loop {
            let (name, data) = self.event().await;
            if name == wanted {
                return data;
            }
        }
    }

    /// Whether the answer ends here.
    pub async fn ends(&mut self) -> bool {
        while self.line().await.is_some() {}
        true
    }
}

/// Status line number and body of a request.
pub async fn fetch(endpoint: &Endpoint, method: &str, path: &str) -> (u16, String) {
    send(endpoint, method, path, "").await
}

/// The same of a posted form.
pub async fn post(endpoint: &Endpoint, path: &str, form: &str) -> (u16, String) {
    send(endpoint, "POST", path, form).await
}

async fn send(endpoint: &Endpoint, method: &str, path: &str, body: &str) -> (u16, String) {
    let Endpoint::Tcp { host, port } = endpoint else {
        panic!("not TCP");
    };
    let mut stream = tokio::net::TcpStream::connect((host.as_str(), *port))
        .await
        .unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    if head.contains("transfer-encoding: chunked") {
        return (status, without_chunks(body));
    }
    (status, body.to_owned())
}

fn without_chunks(mut chunks: &str) -> String {
    let mut body = String::new();
    while let Some((size, rest)) = chunks.split_once("\r\n") {
        let (chunk, rest) = rest.split_at(usize::from_str_radix(size, 16).unwrap());
        body += chunk;
        chunks = rest.strip_prefix("\r\n").unwrap();
    }
    body
}
