// SPDX-License-Identifier: Apache-2.0

//! `Shm` in real processes: several that record at once, children of `fork`, and some that are killed.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use tidegate_metrics::{Description, GaugeMode, MetricsRegistry, Shm, Value};

/// Tells a process that a test has started what it is, and where.
const ROLE: &str = "TIDEGATE_METRICS_TEST_ROLE";
const PATH: &str = "TIDEGATE_METRICS_TEST_PATH";

fn role() -> Option<(String, PathBuf)> {
    Some((std::env::var(ROLE).ok()?, std::env::var_os(PATH)?.into()))
}

/// A process that runs the test of that name in some role, with its input and output.
struct Process {
    child: Child,
    told: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Process {
    fn start(test: &str, role: &str, path: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--test-threads=1", "--nocapture"]);
        command.env(ROLE, role).env(PATH, path);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Process {
            told: child.stdin.take(),
            said: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Waits until it, or a child of it, says this.
    fn wait_for(&mut self, word: &str) {
        let mut line = String::new();
        while !line.ends_with(&format!("{word}\n")) {
            line.clear();
            assert_ne!(
                self.said.read_line(&mut line).unwrap(),
                0,
                "it ended without `{word}`"
            );
        }
    }

    fn notify(&mut self) {
        self.told.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it and its children have ended.
    fn end(mut self) {
        drop(self.told.take());
        self.said.read_to_end(&mut Vec::new()).unwrap();
        self.child.wait().unwrap();
    }
}

fn print(word: &str) {
    let mut out = std::io::stdout();
    out.write_all(format!("{word}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Waits for a word; false: the test has let go.
fn wait_for_byte() -> bool {
    // Not through the buffer of the standard library, which parent and child would each have.
    let mut byte = [0];
    // SAFETY: room for one byte.
    unsafe { libc::read(0, byte.as_mut_ptr().cast(), 1) == 1 }
}

/// Runs `run` in a child of this process, which then ends; gives its process id.
fn fork(run: impl FnOnce()) -> i32 {
    // SAFETY: the C library's allocator works in the child of several threads, and `run` takes no lock that another
    // thread of the test may hold.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            // SAFETY: ends the process without the parent's handlers.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        pid => pid,
    }
}

/// Waits for a child that ends in order.
fn join(pid: i32) {
    let mut status = 0;
    // SAFETY: a child of ours, and room for its status.
    assert_eq!(
        (unsafe { libc::waitpid(pid, &raw mut status, 0) }, status),
        (pid, 0)
    );
}

struct Worker {
    requests: tidegate_metrics::Counter,
    seconds: tidegate_metrics::Histogram,
    sizes: tidegate_metrics::Histogram,
    inflight: tidegate_metrics::Gauge,
}

fn worker(registry: &Shm) -> Worker {
    let of = |name: &str| Description::new(name, "");
    Worker {
        requests: registry.counter(&of("requests"), &[]).unwrap(),
        seconds: registry.histogram(&of("seconds").bounds([0.5]), &[]).unwrap(),
        sizes: registry.histogram(&of("sizes").exponential(), &[]).unwrap(),
        inflight: registry
            .gauge(&of("inflight").mode(GaugeMode::LiveSum), &[])
            .unwrap(),
    }
}

impl Worker {
    fn work(&self, times: u64) {
        for at in 0..times {
            self.requests.inc();
            self.seconds.observe(at as f64);
            self.sizes.observe(1.0 + at as f64);
        }
    }
}

fn value(registry: &Shm, name: &str) -> Value {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name == name).unwrap();
    family.find(&[]).unwrap().value.clone()
}

/// The count of all processes, on which all instruments agree.
fn total(registry: &Shm) -> f64 {
    let [requests, seconds, sizes] =
        ["requests", "seconds", "sizes"].map(|name| value(registry, name).as_f64());
    assert_eq!((requests, requests), (seconds, sizes));
    requests
}

#[test]
fn processes_that_record_at_once_are_added_up() {
    const TEST: &str = "processes_that_record_at_once_are_added_up";
    const TIMES: u64 = 20_000;
    if let Some((_, path)) = role() {
        let registry = Shm::create(&path, &[]).unwrap();
        let worker = worker(&registry);
        print("ready");
        wait_for_byte();
        worker.work(TIMES);
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let registry = Shm::create(directory.path(), &[]).unwrap();
    worker(&registry).work(TIMES);
    let mut others: Vec<_> = (0..3)
        .map(|_| Process::start(TEST, "work", directory.path()))
        .collect();
    others.iter_mut().for_each(|other| other.wait_for("ready"));
    others.iter_mut().for_each(Process::notify);
    let mut before = 0.0;
    for _ in 0..50 {
        let now = value(&registry, "requests").as_f64();
        assert!(now >= before, "it fell from {before} to {now}");
        before = now;
    }
    others.into_iter().for_each(Process::end);
    assert_eq!(total(&registry), (4 * TIMES) as f64);
}

#[test]
fn a_forked_child_counts_in_a_file_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Shm::create(directory.path(), &[]).unwrap();
    let worker = worker(&registry);
    worker.work(10);
    worker.inflight.set(1.0);
    join(fork(|| {
        assert_eq!(worker.requests.get(), 0, "a child starts from nothing");
        worker.work(5);
        worker.inflight.set(2.0);
        registry
            .counter(&Description::new("of_the_child", ""), &[])
            .unwrap()
            .inc();
        assert_eq!((worker.requests.get(), total(&registry)), (5, 15.0));
        assert_eq!(value(&registry, "inflight"), Value::Gauge(3.0));
        // Its own child.
        join(fork(|| worker.work(100)));
    }));
    assert_eq!(worker.requests.get(), 10);
    assert_eq!(total(&registry), 115.0);
    assert_eq!(
        value(&registry, "inflight"),
        Value::Gauge(1.0),
        "of those that live"
    );
    assert_eq!(value(&registry, "of_the_child"), Value::Counter(1));
    let own = registry.own();
    assert!(own.iter().all(|family| family.name != "of_the_child"));
    assert_eq!(registry.scan().processes.len(), 3);
}

#[test]
fn a_parent_that_is_killed_is_folded_and_its_child_goes_on() {
    const TEST: &str = "a_parent_that_is_killed_is_folded_and_its_child_goes_on";
    if let Some((_, path)) = role() {
        let registry = Shm::create(&path, &[]).unwrap();
        let worker = worker(&registry);
        worker.work(10);
        worker.inflight.set(1.0);
        fork(|| {
            worker.work(5);
            worker.inflight.set(2.0);
            print("child");
            while wait_for_byte() {
                worker.work(100);
                print("more");
            }
        });
        loop {
            std::thread::park();
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let registry = Shm::create(directory.path(), &[]).unwrap();
    let mut parent = Process::start(TEST, "parent", directory.path());
    parent.wait_for("child");
    assert_eq!(total(&registry), 15.0);
    assert_eq!(value(&registry, "inflight"), Value::Gauge(3.0));
    parent.kill();
    let alive = || {
        let processes = registry.scan().processes;
        processes.iter().filter(|process| process.alive).count()
    };
    assert_eq!(alive(), 2, "ours and the child");
    registry.fold(Duration::ZERO).unwrap();
    registry.fold(Duration::ZERO).unwrap();
    assert_eq!(total(&registry), 15.0, "what it counted is kept");
    assert_eq!(
        value(&registry, "inflight"),
        Value::Gauge(2.0),
        "it has none in flight"
    );
    let files = std::fs::read_dir(directory.path()).unwrap();
    let files = files.filter(|file| {
        let name = file.as_ref().unwrap().file_name();
        name.to_string_lossy().ends_with(".cells")
    });
    assert_eq!(files.count(), 3, "ours, the child's and what is retained");
    parent.notify();
    parent.wait_for("more");
    assert_eq!(total(&registry), 115.0);
    parent.end();
    registry.fold(Duration::ZERO).unwrap();
    registry.fold(Duration::ZERO).unwrap();
    assert_eq!((total(&registry), alive()), (115.0, 1));
    drop(registry);
    let later = Shm::create(directory.path(), &[]).unwrap();
    assert_eq!(total(&later), 115.0, "a later reader knows");
}
