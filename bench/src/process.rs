// SPDX-License-Identifier: Apache-2.0

//! A process under measurement, on a core of its own, and what the system says of it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{BenchError, machine};

/// How long an end may take.
const GRACE: Duration = Duration::from_secs(12);

/// How long one may take until it listens, or shows everything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between looks at one that may end.
const LOOK: Duration = Duration::from_millis(50);
/// The file of its output, in its directory.
const LOG: &str = "printed.log";

/// The number of processes that were started.
static STARTED: AtomicUsize = AtomicUsize::new(0);

/// A child and its directory; asked to end when dropped.
pub(crate) struct Process {
    child: Child,
    /// Nanoseconds that each thread had when it was last looked at.
    threads: Mutex<HashMap<OsString, u64>>,
    directory: TempDir,
}

impl Process {
    /// On a core of its own.
    pub(crate) fn start(mut command: Command, directory: TempDir) -> Result<Self, BenchError> {
        let spawned = machine::on_a_core_of_its_own(|| printing(&mut command, &directory)?.spawn())?;
        Ok(Self::of(spawned?, directory))
    }

    /// On all cores, which it shares with us.
    pub(crate) fn start_on_all_cores(mut command: Command, directory: TempDir) -> Result<Self, BenchError> {
        let spawned = machine::on_all_cores(|| printing(&mut command, &directory)?.spawn())?;
        Ok(Self::of(spawned?, directory))
    }

    /// The number of processes so far.
    pub(crate) fn started() -> usize {
        STARTED.load(Ordering::Relaxed)
    }

    fn of(child: Child, directory: TempDir) -> Self {
        STARTED.fetch_add(1, Ordering::Relaxed);
        Self {
            child,
            threads: Mutex::default(),
            directory,
        }
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The output so far.
    pub(crate) fn printed(&self) -> String {
        std::fs::read_to_string(self.directory.path().join(LOG)).unwrap_or_default()
    }

    /// Ends it at once, without a drain.
    pub(crate) fn kill(mut self) {
        // One that has ended already can't be killed, which is as good.
        let _ = self.child.kill();
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), BenchError> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// How it ended, if it has.
    pub(crate) fn status(&mut self) -> Result<Option<ExitStatus>, BenchError> {
        Ok(self.child.try_wait()?)
    }

    /// The result of an attempt, which is repeated while the process starts or works on its input.
    pub(crate) fn wait_for<T>(
        &mut self,
        mut attempt: impl FnMut() -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let begun = Instant::now();
        loop {
            match attempt() {
                Err(error) if begun.elapsed() > PATIENCE => return Err(error),
                Err(_) => {}
                done => return done,
            }
            if let Some(status) = self.status()? {
                return Err(format!("it ended: {status}").into());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until it ends, and says how it did with its last words.
    pub(crate) async fn ended(&mut self) -> BenchError {
        loop {
            match self.status() {
                Ok(None) => tokio::time::sleep(LOOK).await,
                Ok(Some(status)) => {
                    let said = std::fs::read_to_string(self.directory.path().join(LOG)).unwrap_or_default();
                    let words = said.lines().rfind(|line| !line.trim().is_empty());
                    return format!("it ended, {status}: {}", words.unwrap_or_default().trim()).into();
                }
                Err(error) => return error,
            }
        }
    }

    /// Resident memory now and at its peak, in MiB.
    pub(crate) fn memory_mib(&self) -> Result<(f64, f64), BenchError> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let mib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok());
            kib.map(|kib| kib / 1024.0)
                .ok_or_else(|| format!("no {name} in its status"))
        };
        Ok((mib("VmRSS:")?, mib("VmHWM:")?))
    }

    /// Processor time of all of its threads so far, user and system. Of one that has ended only what it had when this
    /// was asked last.
    pub(crate) fn cpu(&self) -> Result<Duration, BenchError> {
        let mut threads = self.threads.lock();
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let task = task?;
            // Nanoseconds on a processor come first; the thread may have ended since.
            let schedstat = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            if let Some(nanos) = schedstat.split(' ').next().and_then(|field| field.parse().ok()) {
                threads.insert(task.file_name(), nanos);
            }
        }
        Ok(Duration::from_nanos(threads.values().sum()))
    }
}

/// Writes its output to a file in its directory.
fn printing<'a>(command: &'a mut Command, directory: &TempDir) -> io::Result<&'a mut Command> {
    let log = File::create(directory.path().join(LOG))?;
    Ok(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log))
}

impl Drop for Process {
    fn drop(&mut self) {
        // An ended child can't be signalled, which is as good.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let asked = Instant::now();
        while asked.elapsed() < GRACE && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Most have ended; a peer may not listen.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
