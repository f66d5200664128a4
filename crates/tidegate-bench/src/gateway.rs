//! The gateway under test: the release binary, its configuration, and what the system says of it.

use std::collections::HashSet;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::http::Scraper;
use crate::{Error, machine};

/// What a start may take before we give up.
const START_DEADLINE: Duration = Duration::from_secs(10);

/// A running gateway that serves Prometheus; stopped when dropped.
pub(crate) struct Gateway {
    child: Child,
    started: Instant,
    port: u16,
    _directory: TempDir,
}

impl Gateway {
    /// Starts `binary` with this configuration, in which `PORT` stands for the port of its Prometheus exporter.
    pub(crate) fn start(binary: &Path, config: &str) -> Result<Self, Error> {
        let directory = TempDir::new()?;
        let port = free_port()?;
        let path = directory.path().join("config.yaml");
        std::fs::write(&path, config.replace("PORT", &port.to_string()))?;
        let mut command = Command::new(binary);
        command
            .args(["run", "--config"])
            .arg(path)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let started = Instant::now();
        let child = machine::on_a_core_of_its_own(|| command.spawn())??;
        Ok(Self {
            child,
            started,
            port,
            _directory: directory,
        })
    }

    /// Waits for the first scrape that is answered and says how long after the start that was.
    pub(crate) fn first_scrape(&mut self) -> Result<Duration, Error> {
        loop {
            if let Ok(mut scraper) = self.scraper()
                && scraper.get().is_ok()
            {
                return Ok(self.started.elapsed());
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("the gateway ended: {status}").into());
            }
            if self.started.elapsed() > START_DEADLINE {
                return Err("the gateway did not serve in time".into());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    pub(crate) fn scraper(&self) -> Result<Scraper, Error> {
        Scraper::connect(self.port, "/metrics")
    }

    /// Resident memory now and at its peak, in MiB.
    pub(crate) fn memory_mib(&self) -> Result<(f64, f64), Error> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let mib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok());
            kib.map(|kib| kib / 1024.0)
                .ok_or_else(|| format!("no {name} in its status"))
        };
        Ok((mib("VmRSS:")?, mib("VmHWM:")?))
    }

    /// Processor time of all of its threads so far, user and system.
    pub(crate) fn cpu(&self) -> Result<Duration, Error> {
        let mut nanos = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            // Nanoseconds on a processor come first; a thread that ended between is no loss here.
            let schedstat = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
            let on_cpu = schedstat.split(' ').next().and_then(|field| field.parse().ok());
            nanos += on_cpu.unwrap_or(0_u64);
        }
        Ok(Duration::from_nanos(nanos))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // An ended child can't be signalled, which is as good.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// A free port that was not given out before.
pub(crate) fn free_port() -> Result<u16, Error> {
    static GIVEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);
    loop {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        if GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return Ok(port);
        }
    }
}
