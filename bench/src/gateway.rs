// SPDX-License-Identifier: Apache-2.0

//! The gateway under test: the release binary, its configuration, and what the system says of it.

use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use crate::BenchError;
use crate::http::Scraper;
use crate::process::Process;

/// The name of the file of the configuration.
const CONFIG: &str = "config.yaml";

/// The longest time of a start before we give up.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// Linux takes ports for port 0 from 32768 upwards by default.
const PORTS: Range<u16> = 10_000..32_000;

/// A running gateway that serves Prometheus; stopped when dropped.
pub(crate) struct Gateway {
    process: Process,
    started: Instant,
    port: u16,
    /// The file of its configuration.
    config: PathBuf,
}

impl Gateway {
    /// Starts `binary` on a core of its own with this configuration, in which `PORT` stands for the port of its
    /// Prometheus exporter.
    pub(crate) fn start(binary: &Path, config: &str) -> Result<Self, BenchError> {
        Self::start_by(binary, config, Process::start)
    }

    /// The same on all cores, which it shares with us.
    pub(crate) fn start_on_all_cores(binary: &Path, config: &str) -> Result<Self, BenchError> {
        Self::start_by(binary, config, Process::start_on_all_cores)
    }

    fn start_by(
        binary: &Path,
        config: &str,
        start: fn(Command, TempDir) -> Result<Process, BenchError>,
    ) -> Result<Self, BenchError> {
        let directory = TempDir::new()?;
        let (port, path) = (free_port()?, directory.path().join(CONFIG));
        let command = command(
            binary,
            directory.path(),
            &config.replace("PORT", &port.to_string()),
        )?;
        let started = Instant::now();
        Ok(Self {
            process: start(command, directory)?,
            started,
            port,
            config: path,
        })
    }

    /// Waits for the first scrape that is answered and says how long after the start that was.
    pub(crate) fn first_scrape(&mut self) -> Result<Duration, BenchError> {
        loop {
            if let Ok(mut scraper) = self.scraper()
                && scraper.get().is_ok()
            {
                return Ok(self.started.elapsed());
            }
            if let Some(status) = self.process.status()? {
                return Err(format!("the gateway ended: {status}").into());
            }
            if self.started.elapsed() > START_DEADLINE {
                return Err("the gateway did not serve in time".into());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// A connection to a port that it listens on sooner or later: pages are served before receivers start.
    pub(crate) fn connect(&mut self, port: u16) -> Result<Scraper, BenchError> {
        self.process.wait_for(|| Scraper::connect(port, "/"))
    }

    /// Writes another configuration for its next reload.
    pub(crate) fn rewrite(&self, config: &str) -> Result<(), BenchError> {
        let config = config.replace("PORT", &self.port.to_string());
        Ok(std::fs::write(&self.config, config)?)
    }

    /// The process of the gateway.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn scraper(&self) -> Result<Scraper, BenchError> {
        Scraper::connect(self.port, "/metrics")
    }
}

/// A port of 127.0.0.1 that is free now and that no other call in this process gets.
///
/// It lies below the ports that the kernel gives to outgoing connections and to listeners on port 0. One of those could
/// otherwise take it before its user has bound it. The first port depends on the process, so that runs side by side rarely
/// meet.
pub(crate) fn free_port() -> Result<u16, BenchError> {
    static NEXT: LazyLock<Mutex<u16>> = LazyLock::new(|| {
        let mut random = SmallRng::seed_from_u64(std::process::id().into());
        Mutex::new(random.random_range(PORTS))
    });
    let mut next = NEXT.lock();
    for _ in PORTS {
        let port = *next;
        *next = if port + 1 < PORTS.end {
            port + 1
        } else {
            PORTS.start
        };
        let address = ("127.0.0.1", port);
        // A child that another thread starts has a copy of the listener until it executes its program, and takes the port.
        if TcpListener::bind(address).map(drop).is_ok() && TcpStream::connect(address).is_err() {
            return Ok(port);
        }
    }
    Err("no port is free".into())
}

/// The command that runs a binary with this configuration, which is kept in the directory.
pub(crate) fn command(binary: &Path, directory: &Path, config: &str) -> Result<Command, BenchError> {
    let path = directory.join(CONFIG);
    std::fs::write(&path, config)?;
    let mut command = Command::new(binary);
    command.args(["run", "--config"]).arg(path);
    Ok(command)
}
