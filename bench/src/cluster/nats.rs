// SPDX-License-Identifier: Apache-2.0

//! NATS servers with JetStream: their files, and a stream that fills the store.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::BenchError;

/// The longest time of an answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The store without agents, and for each of them.
const STORE_BYTES: usize = 32 << 20;
const AGENT_BYTES: usize = 64 << 10;

/// The sizes of the messages that fill it: no page has room when the smallest one has none.
const FILLERS: [usize; 3] = [512 << 10, 16 << 10, 64];

/// The stream that fills the store, and the subject of answers.
const FILLER: &str = "filler";
const REPLY: &str = "filler-reply";

/// The bytes of a store for so many agents of one GPU.
pub(super) fn store_bytes(agents: usize) -> usize {
    STORE_BYTES + agents * AGENT_BYTES
}

/// Writes the configuration of a server. `syncs`: it writes to disk before it acknowledges. Otherwise, it hands its messages
/// to the kernel and writes every 2 minutes, which is the default of NATS. A killed process loses nothing in both cases.
///
/// `routes`: the port of each server for the others, of which the server has the one with its number. A client reaches only
/// the servers of its own configuration, because the servers do not advertise each other.
pub(super) fn configure(
    data: &Path,
    port: u16,
    (number, routes): (usize, &[u16]),
    store_bytes: usize,
    syncs: bool,
) -> Result<(), BenchError> {
    let sync = if syncs { "always" } else { "\"2m\"" };
    let mut text = format!(
        "listen: \"127.0.0.1:{port}\"
server_name: server-{number}
jetstream {{ store_dir: \"{}\", sync_interval: {sync}, max_file_store: {store_bytes} }}
",
        files(data).display(),
    );
    if routes.len() > 1 {
        let all: Vec<_> = routes
            .iter()
            .map(|route| format!("\"nats://127.0.0.1:{route}\""))
            .collect();
        text += &format!(
            "cluster {{ name: test, listen: \"127.0.0.1:{}\", no_advertise: true, routes: [{}] }}\n",
            routes[number],
            all.join(", ")
        );
    }
    Ok(std::fs::write(config(data), text)?)
}

pub(super) fn config(data: &Path) -> PathBuf {
    data.join("nats.conf")
}

/// The directory of its store.
pub(super) fn files(data: &Path) -> PathBuf {
    data.join("store")
}

/// Whether it runs.
pub(super) fn greets(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return false;
    };
    let mut first = [0; 4];
    let is_limited = stream.set_read_timeout(Some(Duration::from_secs(1))).is_ok();
    is_limited && stream.read_exact(&mut first).is_ok() && &first == b"INFO"
}

/// Stores messages until the server takes no more.
pub(super) fn fill(port: u16) -> Result<(), BenchError> {
    let mut client = NatsClient::connect(port)?;
    let stream = json!({"name": FILLER, "subjects": [FILLER], "storage": "file", "num_replicas": 1});
    let created = client.ask(
        &format!("$JS.API.STREAM.CREATE.{FILLER}"),
        stream.to_string().as_bytes(),
    )?;
    if !created["error"].is_null() {
        return Err(format!("the stream that fills the store: {created}").into());
    }
    for bytes in FILLERS {
        let message = vec![b'x'; bytes];
        while client.ask(FILLER, &message)?["error"].is_null() {}
    }
    Ok(())
}

/// Removes the messages of [`fill`].
pub(super) fn empty(port: u16) -> Result<(), BenchError> {
    let deleted = NatsClient::connect(port)?.ask(&format!("$JS.API.STREAM.DELETE.{FILLER}"), b"")?;
    if deleted["success"] == true {
        Ok(())
    } else {
        Err(format!("the stream that fills the store: {deleted}").into())
    }
}

/// A connection that asks one question at a time.
struct NatsClient(BufReader<TcpStream>);

impl NatsClient {
    fn connect(port: u16) -> Result<Self, BenchError> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        let mut client = Self(BufReader::new(stream));
        let greeting = format!("CONNECT {{\"verbose\":false,\"pedantic\":false}}\r\nSUB {REPLY} 1\r\n");
        client.0.get_mut().write_all(greeting.as_bytes())?;
        Ok(client)
    }

    /// The answer to a message.
    fn ask(&mut self, subject: &str, body: &[u8]) -> Result<Value, BenchError> {
        let mut message = format!("PUB {subject} {REPLY} {}\r\n", body.len()).into_bytes();
        message.extend_from_slice(body);
        message.extend_from_slice(b"\r\n");
        self.0.get_mut().write_all(&message)?;
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err("the NATS server closed the connection".into());
            }
            match line.split_whitespace().collect::<Vec<_>>().as_slice() {
                ["PING", ..] => self.0.get_mut().write_all(b"PONG\r\n")?,
                ["-ERR", ..] => return Err(line.trim().into()),
                ["MSG", .., length] => {
                    let mut answer = vec![0; length.parse()?];
                    self.0.read_exact(&mut answer)?;
                    self.0.read_line(&mut line)?;
                    return Ok(serde_json::from_slice(&answer)?);
                }
                _ => {}
            }
        }
    }
}
