// SPDX-License-Identifier: Apache-2.0

//! A real NATS server with JetStream, which keeps its port and its data over restarts.

use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::member::Member;
use crate::BenchError;
use crate::gateway::free_port;

/// The longest time of a start.
const PATIENCE: Duration = Duration::from_secs(30);

/// The server.
pub(super) struct Broker {
    pub(super) member: Member,
    binary: PathBuf,
    port: u16,
    data: TempDir,
}

impl Broker {
    /// A server that is not started. It writes to disk before it acknowledges, so it loses nothing when it is killed.
    pub(super) fn new(binary: &Path, logs: &Path) -> Result<Self, BenchError> {
        let broker = Self {
            member: Member::new("nats-server".to_owned(), logs),
            binary: binary.to_owned(),
            port: free_port()?,
            data: TempDir::new_in(logs)?,
        };
        let config = format!(
            "listen: \"127.0.0.1:{}\"\njetstream {{ store_dir: \"{}\", sync_interval: always }}\n",
            broker.port,
            broker.data.path().display()
        );
        std::fs::write(broker.config(), config)?;
        Ok(broker)
    }

    fn config(&self) -> PathBuf {
        self.data.path().join("nats.conf")
    }

    pub(super) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Starts it and waits until it greets.
    pub(super) fn start(&mut self) -> Result<(), BenchError> {
        let mut command = Command::new(&self.binary);
        command.arg("--config").arg(self.config());
        self.member.start(|_| Ok(command))?;
        let begun = Instant::now();
        while !self.greets() {
            if begun.elapsed() > PATIENCE {
                return Err("the NATS server did not start in time".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn greets(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return false;
        };
        let mut first = [0; 4];
        let is_limited = stream.set_read_timeout(Some(Duration::from_secs(1))).is_ok();
        is_limited && stream.read_exact(&mut first).is_ok() && &first == b"INFO"
    }
}
