// SPDX-License-Identifier: Apache-2.0

//! A process of the cluster that is killed and started again, and what the system says of all its lives.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::{Builder, TempDir};

use super::check::Violations;
use crate::BenchError;
use crate::process::Process;

/// Processor time and memory of all lives of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    cpu: Duration,
    alive: Duration,
    /// The most memory, in MiB.
    pub(super) peak_mib: f64,
}

impl Usage {
    /// The cores that it used while it lived.
    pub(super) fn cores(&self) -> f64 {
        self.cpu.as_secs_f64() / self.alive.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn add(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.alive += other.alive;
        self.peak_mib = self.peak_mib.max(other.peak_mib);
    }
}

/// A life of a process.
struct MemberLife {
    process: Process,
    started: Instant,
    /// The usage when it was last looked at.
    usage: Usage,
}

/// The process.
pub(super) struct Member {
    pub(super) name: String,
    /// The folder of the output of all lives.
    logs: PathBuf,
    life: Option<MemberLife>,
    past: Usage,
    lives: u32,
    is_paused: bool,
}

impl Member {
    pub(super) fn new(name: String, logs: &Path) -> Self {
        Self {
            name,
            logs: logs.to_owned(),
            life: None,
            past: Usage::default(),
            lives: 0,
            is_paused: false,
        }
    }

    /// Starts a life. Its output stays in a folder of its own.
    pub(super) fn start(
        &mut self,
        command: impl FnOnce(&TempDir) -> Result<Command, BenchError>,
    ) -> Result<(), BenchError> {
        self.lives += 1;
        let prefix = format!("{}-{}-", self.name, self.lives);
        let directory = Builder::new()
            .prefix(&prefix)
            .disable_cleanup(true)
            .tempdir_in(&self.logs)?;
        let process = Process::start_on_all_cores(command(&directory)?, directory)?;
        self.life = Some(MemberLife {
            process,
            started: Instant::now(),
            usage: Usage::default(),
        });
        Ok(())
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) {
        self.look();
        if let Some(life) = self.life.take() {
            self.past.add(life.usage);
            life.process.kill();
        }
        self.is_paused = false;
    }

    /// SIGSTOP, or SIGCONT.
    pub(super) fn pause(&mut self, is_paused: bool) -> Result<(), BenchError> {
        self.is_paused = is_paused;
        let signal = if is_paused { Signal::STOP } else { Signal::CONT };
        self.life
            .as_ref()
            .map_or(Ok(()), |life| life.process.signal(signal))
    }

    /// Whether it lives and is not paused.
    pub(super) fn runs(&self) -> bool {
        self.life.is_some() && !self.is_paused
    }

    pub(super) fn lives_now(&self) -> bool {
        self.life.is_some()
    }

    /// Notes its usage. It may have ended.
    pub(super) fn look(&mut self) {
        if let Some(life) = &mut self.life
            && let (Ok(cpu), Ok((_, peak_mib))) = (life.process.cpu(), life.process.memory_mib())
        {
            let alive = life.started.elapsed();
            life.usage = Usage { cpu, alive, peak_mib };
        }
    }

    /// The usage of all lives.
    pub(super) fn usage(&self) -> Usage {
        let mut usage = self.past;
        if let Some(life) = &self.life {
            usage.add(life.usage);
        }
        usage
    }

    /// Says if it has ended by itself.
    pub(super) fn check(&mut self, violations: &Violations) -> Result<(), BenchError> {
        if let Some(life) = &mut self.life
            && let Some(status) = life.process.status()?
        {
            let printed = life.process.printed();
            let last = printed
                .lines()
                .rfind(|line| !line.trim().is_empty())
                .unwrap_or_default();
            violations.add(format!("{} ended by itself, {status}: {last}", self.name));
            self.kill();
        }
        Ok(())
    }
}
