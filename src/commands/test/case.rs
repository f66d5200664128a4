// SPDX-License-Identifier: Apache-2.0

//! The run of one test: inputs and expectations by time, on a gateway with a runtime and a directory of its own.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, UNIX_EPOCH};

use super::arrival::{Arrival, arrivals};
use super::check::{Exported, check};
use super::file::{Expectation, Located, TestCase, TestFile, TestInput};
use super::gateway::{TestClock, TestGateway, complete, drain, load_config, nanos, storage_overrides};
use super::input::{TestData, TestSenders};
use crate::config::Problems;

/// The longest test, in virtual time.
const MAX_LENGTH: Duration = Duration::from_secs(24 * 60 * 60);

/// The time that tasks of an ended test may take.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// A file of tests that could be read.
pub(super) struct LoadedTests {
    pub(super) tests: TestFile,
    /// The directory that relative paths begin at.
    pub(super) directory: PathBuf,
    /// The text of the file, for messages. It has no problems.
    pub(super) problems: Problems,
}

/// A directory of a test, which is removed in the end.
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn create_in(base: &Path) -> Result<Self, String> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        loop {
            let number = NEXT.fetch_add(1, Relaxed);
            let path = base.join(format!("tidegate-test-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                // A killed run with the same process id left it, for example in a container.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
        }
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        // What is left lies in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a test. Adds what the gateway lacks to `notes`.
///
/// # Errors
/// All that is wrong, as a text.
pub(super) fn run(file: &LoadedTests, case: &TestCase, notes: &mut BTreeSet<String>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .map_err(|error| format!("starting the runtime: {error}"))?;
    let result = runtime.block_on(async {
        // The runtime moves its clock itself while it waits, but for a time in which such a task runs.
        let (release, released) = mpsc::sync_channel::<()>(0);
        let holding = tokio::task::spawn_blocking(move || released.recv().is_ok());
        let result = run_held(file, case, notes).await;
        drop(release);
        // It ends at once.
        let _ = holding.await;
        result
    });
    runtime.shutdown_timeout(SHUTDOWN);
    result
}

async fn run_held(file: &LoadedTests, case: &TestCase, notes: &mut BTreeSet<String>) -> Result<(), String> {
    let start = humantime::parse_rfc3339_weak(&case.start).map_err(|error| error.to_string())?;
    let begin = nanos(start.duration_since(UNIX_EPOCH).unwrap_or_default());
    let directory = TestDirectory::create_in(&std::env::temp_dir())?;
    let mut run = CaseRun {
        file,
        clock: TestClock::begin(begin),
        senders: TestSenders::default(),
        exported: Exported::for_all(case.expect.iter().map(|one| &one.value)),
        directory: directory.0.clone(),
        problems: file.problems.clone(),
        reported: BTreeSet::new(),
        has_invalid_input: false,
    };
    let gateway = run.start().await?;
    notes.extend(gateway.notes.iter().cloned());
    let ended = match run.steps(case, gateway).await {
        Ok(gateway) => gateway.stop(&run.clock).await,
        Err(why) => Err(why),
    };
    let problems = run.problems.to_string();
    match ended {
        Ok(()) if problems.is_empty() => Ok(()),
        Ok(()) => Err(problems),
        Err(why) => Err(problems + &why),
    }
}

/// A test that runs.
struct CaseRun<'a> {
    file: &'a LoadedTests,
    clock: TestClock,
    senders: TestSenders,
    exported: Exported,
    directory: PathBuf,
    problems: Problems,
    /// The paths of the inputs with a problem.
    reported: BTreeSet<String>,
    /// Whether data of an input could not be sent. Then an expectation that fails says nothing.
    has_invalid_input: bool,
}

impl CaseRun<'_> {
    /// Loads the configuration, with the storage in the directory of the test, and starts a gateway.
    async fn start(&self) -> Result<TestGateway, String> {
        let tests = &self.file.tests;
        let config = self.file.directory.join(&tests.config);
        let load = |further: Vec<String>| {
            let env = |name: &str| tests.env.get(name).cloned();
            load_config(&config, env, tests.set.iter().cloned().chain(further))
        };
        let mut loaded = load(Vec::new())?;
        let further = storage_overrides(&loaded.plan, &self.directory);
        if !further.is_empty() {
            loaded = load(further)?;
        }
        TestGateway::start(loaded, &self.clock).await
    }

    /// Goes through all inputs and expectations by time. At equal times inputs come first.
    async fn steps(&mut self, case: &TestCase, mut gateway: TestGateway) -> Result<TestGateway, String> {
        let mut expectations: Vec<_> = case.expect.iter().collect();
        expectations.sort_by_key(|expected| expected.value.at);
        let end = expectations.last().map_or(Duration::ZERO, |last| last.value.at);
        if end > MAX_LENGTH {
            return Err("a test may take 24 h at most".to_owned());
        }
        let arrivals = arrivals(&case.input, end)?;
        let mut arrivals = arrivals.iter().peekable();
        for expected in expectations {
            let at = expected.value.at;
            while let Some(arrival) = arrivals.next_if(|arrival| arrival.at <= at) {
                self.advance(&gateway, arrival.at).await;
                gateway = self.arrive(gateway, arrival).await?;
            }
            self.advance(&gateway, at).await;
            self.expect(&gateway, expected).await;
        }
        Ok(gateway)
    }

    async fn advance(&mut self, gateway: &TestGateway, to: Duration) {
        let (senders, exported) = (&self.senders, &mut self.exported);
        let each_step = |now| {
            senders.touch(now);
            exported.take(gateway.stand_ins.take_exported());
        };
        gateway.advance(&mut self.clock, to, each_step).await;
        self.exported.take(gateway.stand_ins.take_exported());
    }

    /// Does what an input says.
    async fn arrive(&mut self, gateway: TestGateway, arrival: &Arrival<'_>) -> Result<TestGateway, String> {
        let input = arrival.input;
        let options = &input.value;
        if options.restart {
            let stand_ins = gateway.stand_ins.clone();
            gateway.stop(&self.clock).await?;
            self.exported.take(stand_ins.take_exported());
            self.senders.disconnect();
            return self.start().await;
        }
        if let Some(source) = &options.reset {
            self.senders.reset(source);
        } else if let Some(source) = &options.dead {
            for data in self.senders.kill(source) {
                self.send(&gateway, input, data).await;
            }
        } else if let Some(source) = &options.down {
            for data in self.senders.fail(source) {
                self.send(&gateway, input, data).await;
            }
        } else {
            let data = receiver(options, &gateway).and_then(|receiver| {
                let directory = &self.file.directory;
                self.senders.data(arrival, receiver, &self.clock, directory)
            });
            match data {
                Ok(data) => self.send(&gateway, input, data).await,
                Err(why) => self.refuse(input, why),
            }
        }
        drain().await;
        Ok(gateway)
    }

    /// Hands data to the pipelines and waits for the answer, as a receiver does.
    async fn send(&mut self, gateway: &TestGateway, input: &Located<TestInput>, data: TestData) {
        let TestData { receiver, batch } = data;
        let signal = batch.signal();
        let Some(entry) = gateway.stand_ins.entry(&receiver, signal) else {
            self.refuse(
                input,
                format!("no pipeline of {signal} has a receiver `{receiver}`"),
            );
            return;
        };
        match complete(entry.send(batch)).await {
            Some(Ok(_)) => {}
            Some(Err(refused)) => self.report(input, format!("the pipelines refuse the data: {refused}")),
            None => self.report(input, "the pipelines did not answer in time".to_owned()),
        }
    }

    /// Reports an input whose data can't be sent.
    fn refuse(&mut self, input: &Located<TestInput>, why: String) {
        self.has_invalid_input = true;
        self.report(input, why);
    }

    /// Reports the first problem of an input. Its repetitions have the same one.
    fn report(&mut self, input: &Located<TestInput>, why: String) {
        if self.reported.insert(input.path().to_owned()) {
            input.at(&mut self.problems).error(why);
        }
    }

    async fn expect(&mut self, gateway: &TestGateway, expected: &Located<Expectation>) {
        drain().await;
        self.exported.take(gateway.stand_ins.take_exported());
        if self.has_invalid_input {
            return;
        }
        if let Err(why) = check(&expected.value, gateway, &self.exported).await {
            expected.at(&mut self.problems).error(why);
        }
    }
}

/// The receiver that an input goes to.
fn receiver(input: &TestInput, gateway: &TestGateway) -> Result<String, String> {
    let all = gateway.stand_ins.receivers();
    match (&input.to, all.as_slice()) {
        (Some(to), _) if all.contains(to) => Ok(to.clone()),
        (Some(to), _) => Err(format!(
            "no pipeline has a receiver `{to}`: expected one of {}",
            all.join(", ")
        )),
        (None, [only]) => Ok(only.clone()),
        (None, _) => Err(format!("`to` is missing: expected one of {}", all.join(", "))),
    }
}

/// The directory of a file of tests.
pub(super) fn directory_of(file: &Path) -> PathBuf {
    file.parent().map(Path::to_path_buf).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_directory_that_a_killed_run_left_is_passed_over() {
        let base = TempDir::new().unwrap();
        let left = base
            .path()
            .join(format!("tidegate-test-{}-0", std::process::id()));
        fs::create_dir(&left).unwrap();
        let own = TestDirectory::create_in(base.path()).unwrap();
        assert_ne!(own.0, left);
        let path = own.0.clone();
        drop(own);
        assert!(left.exists() && !path.exists());
    }
}
