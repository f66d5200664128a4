// SPDX-License-Identifier: Apache-2.0

//! A real NATS server with JetStream.

use super::process::Process;
use super::{Authority, SOON, free_port, testenv, wait_until};
use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Its file of settings, in its directory.
const CONFIG: &str = "nats.conf";

/// The user of a server that takes only TLS.
pub(crate) const USER: &str = "alice";
pub(crate) const PASSWORD: &str = "alice-secret";

/// A server that keeps its port and its data over restarts.
pub(crate) struct NatsServer {
    port: u16,
    is_secure: bool,
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
        fs::write(directory.path().join(CONFIG), config).expect("a file in a fresh directory");
        let mut server = Self {
            port,
            is_secure: false,
            directory,
            process: None,
        };
        server.restart();
        server
    }

    /// Starts it after [`Self::kill`], and waits until it greets.
    pub(crate) fn restart(&mut self) {
        let mut command = Command::new(testenv("nats/bin/nats-server"));
        command.arg("--config").arg(self.path(CONFIG));
        self.process = Some(Process::start("nats-server", &mut command));
        wait_until(SOON, "the NATS server greets", || self.greets());
    }

    /// Starts it again, so that it takes only TLS and [`USER`]. Gives the file with the authority of its certificate.
    pub(crate) fn secure(&mut self) -> PathBuf {
        self.kill();
        let [authority, certificate, key] =
            ["ca.pem", "server.pem", "server.key"].map(|name| self.path(name));
        let signer = Authority::new();
        signer.write(&authority);
        signer.write_signed(&certificate, &key);
        let mut config = fs::read_to_string(self.path(CONFIG)).expect("its file");
        config += &format!(
            "tls {{ cert_file: {certificate:?}, key_file: {key:?} }}
authorization {{ user: {USER}, password: {PASSWORD} }}
"
        );
        fs::write(self.path(CONFIG), config).expect("its file");
        self.is_secure = true;
        self.restart();
        authority
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    pub(crate) fn url(&self) -> String {
        if self.is_secure {
            format!("tls://localhost:{}", self.port)
        } else {
            format!("nats://127.0.0.1:{}", self.port)
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
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
