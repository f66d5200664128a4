// SPDX-License-Identifier: Apache-2.0

//! A process of the cluster that is killed and started again, and what the system says of all its processes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::{Builder, TempDir};

use super::check::Violations;
use crate::BenchError;
use crate::process::Process;

/// Processor time and memory of all processes of a member.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    cpu: Duration,
    alive: Duration,
    /// The memory at the last look, in MiB.
    pub(super) resident_mib: f64,
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
        self.resident_mib = other.resident_mib;
        self.peak_mib = self.peak_mib.max(other.peak_mib);
    }
}

/// A process of a member.
struct MemberProcess {
    process: Process,
    started: Instant,
    /// The usage when it was last looked at.
    usage: Usage,
}

/// The process.
pub(super) struct Member {
    pub(super) name: String,
    /// The folder of the output of all its processes.
    logs: PathBuf,
    current: Option<MemberProcess>,
    past: Usage,
    starts: u32,
    is_paused: bool,
}

impl Member {
    pub(super) fn new(name: String, logs: &Path) -> Self {
        Self {
            name,
            logs: logs.to_owned(),
            current: None,
            past: Usage::default(),
            starts: 0,
            is_paused: false,
        }
    }

    /// Starts a process. Its output stays in a folder of its own.
    pub(super) fn start(
        &mut self,
        command: impl FnOnce(&TempDir) -> Result<Command, BenchError>,
    ) -> Result<(), BenchError> {
        self.starts += 1;
        let prefix = format!("{}-{}-", self.name, self.starts);
        let directory = Builder::new()
            .prefix(&prefix)
            .disable_cleanup(true)
            .tempdir_in(&self.logs)?;
        let process = Process::start_on_all_cores(command(&directory)?, directory)?;
        self.current = Some(MemberProcess {
            process,
            started: Instant::now(),
            usage: Usage::default(),
        });
        Ok(())
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) {
        self.look();
        if let Some(current) = self.current.take() {
            self.past.add(current.usage);
            current.process.kill();
        }
        self.is_paused = false;
    }

    /// SIGSTOP, or SIGCONT.
    pub(super) fn pause(&mut self, is_paused: bool) -> Result<(), BenchError> {
        self.is_paused = is_paused;
        let signal = if is_paused { Signal::STOP } else { Signal::CONT };
        self.current
            .as_ref()
            .map_or(Ok(()), |current| current.process.signal(signal))
    }

    /// Whether it is alive and not paused.
    pub(super) fn runs(&self) -> bool {
        self.current.is_some() && !self.is_paused
    }

    pub(super) fn is_alive(&self) -> bool {
        self.current.is_some()
    }

    /// Notes its usage. It may have ended.
    pub(super) fn look(&mut self) {
        if let Some(current) = &mut self.current
            && let (Ok(cpu), Ok((resident_mib, peak_mib))) =
                (current.process.cpu(), current.process.memory_mib())
        {
            current.usage = Usage {
                cpu,
                alive: current.started.elapsed(),
                resident_mib,
                peak_mib,
            };
        }
    }

    /// The usage of all its processes.
    pub(super) fn usage(&self) -> Usage {
        let mut usage = self.past;
        if let Some(current) = &self.current {
            usage.add(current.usage);
        }
        usage
    }

    /// The output of the present process.
    pub(super) fn printed(&self) -> String {
        let current = self.current.as_ref();
        current.map_or_else(String::new, |current| current.process.printed())
    }

    /// Whether it has ended by itself.
    pub(super) fn has_ended(&mut self) -> Result<bool, BenchError> {
        let status = self.current.as_mut().map(|current| current.process.status());
        Ok(status.transpose()?.flatten().is_some())
    }

    /// Says if it has ended by itself.
    pub(super) fn check(&mut self, violations: &Violations) -> Result<(), BenchError> {
        if let Some(current) = &mut self.current
            && let Some(status) = current.process.status()?
        {
            let printed = current.process.printed();
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
