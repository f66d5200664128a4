// SPDX-License-Identifier: Apache-2.0

//! A server, and the calls of a state machine.

use std::collections::VecDeque;
use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;
use tidegate_cluster::{
    CallId, ClusterEngine, EngineStatus, ReadScope, StoreCall, StoreError, StoreEvent, StoreMessage,
    StoreReply, StoreSession, StoredMessage,
};
use tidegate_nats::{NatsConfig, NatsEngine};
use tidegate_runtime::testing::free_port;

/// The name of the cluster in the tests.
pub(crate) const CLUSTER: &str = "test";

/// Nothing takes this long, even on a machine with much other work.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A NATS server with JetStream on a port of its own. It keeps its port and its data over restarts.
pub(crate) struct Server {
    host: String,
    port: u16,
    directory: TempDir,
    child: Option<Child>,
}

impl Server {
    /// A server that does not run yet. `settings` go into its configuration.
    pub(crate) fn new(settings: &str) -> Self {
        Self::at("127.0.0.1", free_port(), settings)
    }

    /// The same with an address.
    pub(crate) fn at(host: &str, port: u16, settings: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let store = directory.path().join("store");
        let text = format!(
            "listen: \"{host}:{port}\"\njetstream {{ store_dir: \"{}\" }}\n{settings}\n",
            store.display()
        );
        fs::write(directory.path().join("nats.conf"), text).unwrap();
        Self {
            host: host.to_owned(),
            port,
            directory,
            child: None,
        }
    }

    /// A server that runs.
    pub(crate) fn running(settings: &str) -> Self {
        let mut server = Self::new(settings);
        server.start();
        server
    }

    /// Starts it, and waits until it takes connections.
    pub(crate) fn start(&mut self) {
        let log = self.directory.path().join("nats.log");
        let child = Command::new(testenv("nats/bin/nats-server"))
            .arg("--config")
            .arg(self.directory.path().join("nats.conf"))
            .arg("--log")
            .arg(&log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let child = self.child.insert(child);
        let begin = Instant::now();
        while !greets(&self.host, self.port) {
            let is_over = child.try_wait().unwrap().is_some() || begin.elapsed() > DEADLINE;
            assert!(!is_over, "{}", fs::read_to_string(&log).unwrap_or_default());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://{}:{}", self.host, self.port)
    }

    /// Options that lead to it.
    pub(crate) fn config(&self) -> NatsConfig {
        NatsConfig {
            servers: vec![self.url()],
            ..NatsConfig::default()
        }
    }

    pub(crate) fn engine(&self) -> NatsEngine {
        NatsEngine::start(self.config(), CLUSTER).unwrap()
    }

    /// A client without the engine.
    pub(crate) async fn client(&self) -> async_nats::jetstream::Context {
        let client = async_nats::connect(self.url()).await.unwrap();
        let mut context = async_nats::jetstream::new(client);
        context.set_timeout(DEADLINE);
        context
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether a server sends its first line.
fn greets(host: &str, port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect((host, port)) else {
        return false;
    };
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut first = [0; 4];
    stream.read_exact(&mut first).is_ok() && &first == b"INFO"
}

/// A program of the test environment.
fn testenv(part: &str) -> PathBuf {
    let root = match std::env::var_os("TIDEGATE_TESTENV") {
        Some(root) => PathBuf::from(root),
        None => PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("testenv"),
    };
    let path = root.join(part);
    assert!(
        path.exists(),
        "{} is missing: run `cargo xtask setup`",
        path.display()
    );
    path
}

/// Waits until the status of an engine is as expected.
pub(crate) async fn status_when(
    engine: &NatsEngine,
    expected: &str,
    is_expected: impl Fn(&EngineStatus) -> bool,
) -> EngineStatus {
    let begin = Instant::now();
    loop {
        let status = engine.status();
        if is_expected(&status) {
            return status;
        }
        assert!(
            begin.elapsed() < DEADLINE,
            "the engine is not {expected}: {status:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A session, and what it has said.
pub(crate) struct Session {
    session: StoreSession,
    last: u64,
    /// Events that nobody has asked for yet.
    events: VecDeque<StoreEvent>,
}

impl Session {
    pub(crate) fn open(engine: &NatsEngine) -> Self {
        Self {
            session: engine.open(),
            last: 0,
            events: VecDeque::new(),
        }
    }

    pub(crate) fn start(&mut self, call: StoreCall) -> CallId {
        self.last += 1;
        let id = CallId(self.last);
        self.session.store.start(id, call);
        id
    }

    /// The next event; `None`: the engine has stopped.
    pub(crate) async fn next(&mut self) -> Option<StoreEvent> {
        let next = tokio::time::timeout(DEADLINE, self.session.events.recv());
        next.await.expect("an event in time")
    }

    /// The first event that `pick` takes. Others wait.
    pub(crate) async fn find<T>(&mut self, pick: impl Fn(&StoreEvent) -> Option<T>) -> T {
        let begin = Instant::now();
        let mut waiting = self.events.iter().enumerate();
        let found = waiting.find_map(|(at, event)| Some((at, pick(event)?)));
        if let Some((at, found)) = found {
            self.events.remove(at);
            return found;
        }
        loop {
            assert!(begin.elapsed() < DEADLINE, "no such event, but {:?}", self.events);
            let event = self.next().await.expect("the engine runs");
            match pick(&event) {
                Some(found) => return found,
                None => self.events.push_back(event),
            }
        }
    }

    pub(crate) async fn done(&mut self, id: CallId) -> Result<StoreReply, StoreError> {
        let pick = |event: &StoreEvent| match event {
            StoreEvent::Done(done, result) if *done == id => Some(result.clone()),
            _ => None,
        };
        self.find(pick).await
    }

    pub(crate) async fn connected(&mut self) {
        self.find(|event| (*event == StoreEvent::Connected).then_some(()))
            .await;
    }

    pub(crate) async fn call(&mut self, call: StoreCall) -> Result<StoreReply, StoreError> {
        let id = self.start(call);
        self.done(id).await
    }

    /// Publishes until it succeeds, and gives the sequence.
    pub(crate) async fn publish(&mut self, message: &StoreMessage) -> u64 {
        let begin = Instant::now();
        loop {
            match self.call(StoreCall::Publish(message.clone())).await {
                Ok(StoreReply::Stored(sequence)) => return sequence,
                result => assert!(begin.elapsed() < DEADLINE, "{result:?}"),
            }
        }
    }

    pub(crate) async fn read(&mut self, id: CallId) -> StoredMessage {
        let pick = |event: &StoreEvent| match event {
            StoreEvent::Read(read, stored) if *read == id => Some(stored.clone()),
            _ => None,
        };
        self.find(pick).await
    }

    /// Waits until a read has given all.
    pub(crate) async fn caught_up(&mut self, id: CallId) {
        let ended = self.current_or_failed(id).await;
        ended.unwrap_or_else(|error| panic!("the read has failed: {error:?}"));
    }

    async fn current_or_failed(&mut self, id: CallId) -> Result<(), StoreError> {
        let pick = |event: &StoreEvent| match event {
            StoreEvent::Current(read, ..) if *read == id => Some(Ok(())),
            StoreEvent::Done(done, Err(error)) if *done == id => Some(Err(error.clone())),
            _ => None,
        };
        self.find(pick).await
    }

    /// All messages of a read of everything, until it has given all. A read that fails begins again, as in a state machine: a
    /// server that elects a leader refuses it.
    pub(crate) async fn everything(&mut self) -> Vec<StoredMessage> {
        let begin = Instant::now();
        loop {
            let id = self.start(StoreCall::ReadAll(ReadScope::Everything));
            let ended = self.current_or_failed(id).await;
            let read = self.take_read(id);
            match ended {
                Ok(()) => return read,
                Err(error) => assert!(begin.elapsed() < DEADLINE, "{error:?}"),
            }
        }
    }

    /// All messages of a read of records.
    pub(crate) async fn retained(&mut self) -> Vec<StoredMessage> {
        let id = self.start(StoreCall::ReadAll(ReadScope::Retained));
        assert_eq!(self.done(id).await, Ok(StoreReply::ReadEnd));
        self.take_read(id)
    }

    fn take_read(&mut self, id: CallId) -> Vec<StoredMessage> {
        let mut read = Vec::new();
        self.events.retain(|event| match event {
            StoreEvent::Read(of, stored) if *of == id => {
                read.push(stored.clone());
                false
            }
            _ => true,
        });
        read
    }
}

pub(crate) fn message(subject: &str, body: impl Into<Bytes>) -> StoreMessage {
    StoreMessage {
        subject: format!("tg.{CLUSTER}.{subject}"),
        headers: vec![("tg-v".to_owned(), "1".to_owned())],
        body: body.into(),
    }
}
