// SPDX-License-Identifier: Apache-2.0

//! A real NATS server with JetStream.

use super::process::Process;
use super::{SOON, free_port, testenv, wait_until};
use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// A server that keeps its port and its data over restarts.
pub(crate) struct NatsServer {
    port: u16,
    directory: TempDir,
    process: Option<Process>,
}

impl NatsServer {
    /// Starts a server that writes to disk before it acknowledges, so it loses nothing when it is killed.
    pub(crate) fn start() -> Self {
        let (directory, port) = (TempDir::new().expect("a temporary directory"), free_port());
        let config = format!(
            "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\", sync_interval: always }}\n",
            directory.path().join("store").display()
        );
        fs::write(directory.path().join("nats.conf"), config).expect("a file in a fresh directory");
        let mut server = Self {
            port,
            directory,
            process: None,
        };
        server.restart();
        server
    }

    /// Starts it after [`Self::kill`], and waits until it greets.
    pub(crate) fn restart(&mut self) {
        let mut command = Command::new(testenv("nats/bin/nats-server"));
        command
            .arg("--config")
            .arg(self.directory.path().join("nats.conf"));
        self.process = Some(Process::start("nats-server", &mut command));
        wait_until(SOON, "the NATS server greets", || self.greets());
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    fn greets(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return false;
        };
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .expect("a limit");
        let mut first = [0; 4];
        stream.read_exact(&mut first).is_ok() && &first == b"INFO"
    }
}
