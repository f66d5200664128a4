// SPDX-License-Identifier: Apache-2.0

//! A child process whose output is kept, shown if the test fails, and that never outlives the test.

use super::{SOON, wait_for, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The lines that a process has printed so far on one stream.
#[derive(Clone, Default)]
pub(crate) struct Transcript(Arc<Mutex<Vec<String>>>);

impl Transcript {
    /// All lines so far, each ended by a line feed.
    pub(crate) fn text(&self) -> String {
        let lines = self.0.lock().expect("no panic inside");
        lines.iter().flat_map(|line| [line, "\n"]).collect()
    }

    /// The first line that contains `part`, if there is one yet.
    pub(crate) fn find(&self, part: &str) -> Option<String> {
        let lines = self.0.lock().expect("no panic inside");
        lines.iter().find(|line| line.contains(part)).cloned()
    }

    fn follow(&self, stream: impl Read + Send + 'static) -> JoinHandle<()> {
        let lines = Arc::clone(&self.0);
        thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                lines.lock().expect("no panic inside").push(line);
            }
        })
    }
}

/// A running child: killed when dropped, its standard error printed if the test is failing.
pub(crate) struct Process {
    name: String,
    child: Child,
    followers: Vec<JoinHandle<()>>,
    pub(crate) stdout: Transcript,
    pub(crate) stderr: Transcript,
}

impl Process {
    /// Starts `command` with piped input and output; `name` is for messages.
    pub(crate) fn start(name: &str, command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let (stdout, stderr) = (Transcript::default(), Transcript::default());
        let followers = vec![
            stdout.follow(child.stdout.take().expect("it is piped")),
            stderr.follow(child.stderr.take().expect("it is piped")),
        ];
        Self {
            name: name.to_owned(),
            child,
            followers,
            stdout,
            stderr,
        }
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// Writes a line to its standard input.
    pub(crate) fn write_line(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("it is piped");
        writeln!(stdin, "{line}").unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// Closes standard input.
    pub(crate) fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    /// The exit status, if it has ended.
    pub(crate) fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("our own child")
    }

    /// Waits for the end, and for the last of the output.
    pub(crate) fn wait(&mut self, deadline: Duration) -> ExitStatus {
        let what = format!("{} ends", self.name);
        let status = wait_for(deadline, &what, || self.status());
        for follower in self.followers.drain(..) {
            // A grandchild may hold the pipe open after the child's end.
            wait_until(SOON, "the output ends", || follower.is_finished());
        }
        status
    }

    /// Waits until `holds`, and fails at once if the process ends before.
    pub(crate) fn wait_until(&mut self, what: &str, mut holds: impl FnMut() -> bool) {
        let message = format!("{}: {what}", self.name);
        wait_until(SOON, &message, || {
            let status = self.status();
            let held = holds();
            let ended = status.filter(|_| !held);
            assert!(ended.is_none(), "{message}: it ended first, {ended:?}");
            held
        });
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- {} wrote:\n{}---", self.name, self.stderr.text());
        }
    }
}
