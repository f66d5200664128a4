// SPDX-License-Identifier: Apache-2.0

//! Calls that overrun, in the process and in one of their own, and processes that end.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod kit;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kit::{odd, opaque, wanted};
use tempfile::TempDir;
use tidegate_plugin::Answer;
use tidegate_plugin::host::{
    Call, Instance, Library, Note, Notes, Process, Refusal, Setup, Trouble, Worker, serve_stdin,
};

const SOON: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(1);
/// A process starts within this time, also on a busy machine.
const START: Duration = Duration::from_secs(5);

fn notes() -> (Notes, Arc<Mutex<Vec<Note>>>) {
    let all = Arc::<Mutex<Vec<Note>>>::default();
    let kept = all.clone();
    (Arc::new(move |note| kept.lock().unwrap().push(note)), all)
}

fn setup(does: &str, directory: &TempDir) -> Setup {
    Setup {
        id: "plugin/odd".to_owned(),
        config: format!("{does} {}", log(directory).display()),
    }
}

fn log(directory: &TempDir) -> std::path::PathBuf {
    directory.path().join("log")
}

fn log_text(directory: &TempDir) -> String {
    std::fs::read_to_string(log(directory)).unwrap_or_default()
}

fn go(directory: &TempDir) {
    std::fs::write(directory.path().join("log.go"), "").unwrap();
}

async fn in_process(
    does: &str,
    directory: &TempDir,
    patience: Duration,
    notes: Notes,
) -> Result<Worker, Refusal> {
    let (wanted, setup) = (wanted(&odd(directory, "odd.so", &[])), setup(does, directory));
    let make = move || {
        let library = Library::open(&wanted)?;
        let instance = Instance::create(&library, &setup)?;
        Ok((instance, library.description().clone()))
    };
    Worker::start("odd", patience, notes, make)
        .await
        .map(|(worker, _)| worker)
}

/// This test binary again, as the process of a plugin.
fn program() -> Command {
    let mut command = Command::new(Path::new("/proc/self/exe"));
    command.args(["--exact", "plugin_process", "--ignored", "--nocapture"]);
    command.stdout(Stdio::null());
    command
}

#[test]
#[ignore = "is the process of a plugin, not a test"]
fn plugin_process() {
    serve_stdin(1 << 30).unwrap();
}

async fn apart(does: &str, directory: &TempDir, limit: Duration, notes: Notes) -> Result<Worker, Refusal> {
    let (wanted, setup) = (wanted(&odd(directory, "odd.so", &[])), setup(does, directory));
    let make = move || Process::start(Box::new(program), wanted, setup, limit);
    Worker::start("odd", SOON, notes, make)
        .await
        .map(|(worker, _)| worker)
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < SOON, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_call_that_overruns_leaves_the_instance_stuck_until_it_returns() {
    let directory = TempDir::new().unwrap();
    let (notes, noted) = notes();
    let worker = in_process("wait", &directory, SHORT, notes).await.unwrap();
    assert_eq!(worker.export(opaque(1)).await, Err(Trouble::TimedOut(SHORT)));
    assert!(worker.is_stuck());
    let asked = Instant::now();
    assert!(matches!(worker.export(opaque(2)).await, Err(Trouble::Stuck(_))));
    assert!(matches!(worker.flush().await, Err(Trouble::Stuck(_))));
    assert!(asked.elapsed() < SOON, "no caller waits for a stuck call");
    go(&directory);
    until("it returns", || !worker.is_stuck()).await;
    assert_eq!(worker.export(opaque(3)).await, Ok(Answer::Ok));
    assert_eq!(
        log_text(&directory),
        "export 1\nexport 3\n",
        "the second was never called"
    );
    let noted = noted.lock().unwrap();
    assert!(matches!(
        noted[..],
        [
            Note::Overran(Call::Export, _),
            Note::Returned(Call::Export, _),
            Note::Called(Call::Export, _, Ok(Answer::Ok))
        ]
    ));
}

#[tokio::test]
async fn the_end_does_not_wait_for_what_is_stuck() {
    let directory = TempDir::new().unwrap();
    let worker = in_process("hang", &directory, SHORT, notes().0).await.unwrap();
    assert_eq!(worker.export(opaque(1)).await, Err(Trouble::TimedOut(SHORT)));
    let asked = Instant::now();
    assert!(matches!(worker.close(asked + SOON).await, Err(Trouble::Stuck(_))));
    assert!(asked.elapsed() < SOON / 2);
}

#[tokio::test]
async fn an_instance_is_flushed_and_destroyed_at_the_end() {
    for (apart_from_us, does) in [(false, "fine"), (true, "fine")] {
        let directory = TempDir::new().unwrap();
        let worker = if apart_from_us {
            apart(does, &directory, SOON, notes().0).await.unwrap()
        } else {
            in_process(does, &directory, SOON, notes().0).await.unwrap()
        };
        assert_eq!(worker.export(opaque(4)).await, Ok(Answer::Ok));
        worker.close(Instant::now() + SOON).await.unwrap();
        assert_eq!(log_text(&directory), "export 4\nflush 1\ndestroy 1\n");
        assert_eq!(worker.export(opaque(5)).await, Err(Trouble::Closed));
    }
}

#[tokio::test]
async fn a_plugin_that_is_not_created_in_time_is_refused() {
    let directory = TempDir::new().unwrap();
    let refused = in_process("hang-create", &directory, SHORT, notes().0)
        .await
        .err()
        .unwrap();
    assert!(matches!(refused, Refusal::Slow { .. }), "{refused}");
    let refused = apart("hang-create", &directory, SHORT, notes().0)
        .await
        .err()
        .unwrap();
    assert!(matches!(refused, Refusal::Slow { .. }), "{refused}");
}

#[tokio::test]
async fn answers_cross_the_socket_unchanged() {
    let directory = TempDir::new().unwrap();
    for (does, expected) in [
        ("partial", "partial: two are odd"),
        ("retry", "retry: busy"),
        ("deny", "refused: not for me"),
        ("small", "too_large"),
        ("stdin", "refused: nothing"),
    ] {
        let near = in_process(does, &directory, SOON, notes().0).await.unwrap();
        let far = apart(does, &directory, SOON, notes().0).await.unwrap();
        let far = far.export(opaque(5)).await.unwrap();
        assert_eq!(far.to_string(), expected);
        // In our own process it would read our standard input.
        if does != "stdin" {
            assert_eq!(near.export(opaque(5)).await.unwrap(), far);
        }
    }
}

#[tokio::test]
async fn refusals_cross_the_socket_too() {
    let directory = TempDir::new().unwrap();
    let refused = apart("refuse", &directory, SOON, notes().0).await.err().unwrap();
    assert_eq!(
        refused.to_string(),
        "the plugin `odd` 1.2.3 refuses its configuration: no such table: t1"
    );
    let refused = apart("crash-create", &directory, SOON, notes().0)
        .await
        .err()
        .unwrap();
    assert!(refused.to_string().contains("SIGSEGV"), "{refused}");
}

#[tokio::test]
async fn a_process_that_ends_is_reported_and_restarted_with_backoff() {
    let directory = TempDir::new().unwrap();
    let worker = apart("crash-until-go", &directory, SOON, notes().0)
        .await
        .unwrap();
    let mut delays = Vec::new();
    while delays.len() < 2 {
        match worker.export(opaque(1)).await {
            Err(Trouble::Crashed(how)) => assert!(how.contains("SIGABRT"), "{how}"),
            Err(Trouble::Down { again, why }) => {
                assert!(why.contains("SIGABRT"), "{why}");
                delays.push(again);
                tokio::time::sleep(again).await;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(delays[1] > Duration::from_millis(100), "{delays:?}");
    go(&directory);
    let mut reply = worker.export(opaque(2)).await;
    while let Err(Trouble::Down { again, .. }) = reply {
        tokio::time::sleep(again).await;
        reply = worker.export(opaque(2)).await;
    }
    assert_eq!(reply, Ok(Answer::Ok));
}

#[tokio::test]
async fn a_process_whose_call_overruns_is_killed() {
    let directory = TempDir::new().unwrap();
    let worker = apart("wait", &directory, START, notes().0).await.unwrap();
    assert_eq!(worker.export(opaque(1)).await, Err(Trouble::TimedOut(START)));
    assert!(!worker.is_stuck());
    go(&directory);
    let mut reply = worker.export(opaque(2)).await;
    while let Err(Trouble::Down { again, .. }) = reply {
        tokio::time::sleep(again).await;
        reply = worker.export(opaque(2)).await;
    }
    assert_eq!(reply, Ok(Answer::Ok));
    assert_eq!(log_text(&directory), "export 1\nexport 2\n");
}

#[tokio::test]
async fn an_exit_is_reported_with_its_code() {
    let directory = TempDir::new().unwrap();
    let worker = apart("exit", &directory, SOON, notes().0).await.unwrap();
    let Err(Trouble::Crashed(how)) = worker.export(opaque(1)).await else {
        panic!("it ends");
    };
    assert!(how.contains("exit status: 3"), "{how}");
}
