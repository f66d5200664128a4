// SPDX-License-Identifier: Apache-2.0

//! Standard output of commands: a full disk is a failure, and the end of the program that reads it is not.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tidegate_ring::{Event, Layout, Writer};

use super::kit::command::{Finished, finished};
use super::kit::gateway::tidegate;
use super::kit::{Gateway, SOON, free_port, wait_for};

#[test]
fn a_full_disk_fails_commands_and_the_end_of_their_reader_does_not() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/config/quickstart.yaml");
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["version"],
        &["man"],
        &["completion", "bash"],
        &["completion", "zsh"],
        &["components"],
        &["config", "schema"],
        &["config", "fmt", file],
    ] {
        let full = File::options().write(true).open("/dev/full");
        let full = full.expect("a device of Linux");
        let Finished { code, errors, .. } = finished(tidegate().args(arguments).stdout(full));
        assert_eq!(code, Some(1), "{arguments:?}: {errors}");
        let expected = "tidegate: can't write the output: No space left on device";
        assert!(errors.starts_with(expected), "{arguments:?}: {errors}");
        let (reader, unread) = io::pipe().expect("a pipe");
        drop(reader);
        let Finished { code, errors, .. } = finished(tidegate().args(arguments).stdout(unread));
        assert_eq!((code, &*errors), (Some(0), ""), "{arguments:?}");
    }
}

/// A command that is killed when the test fails.
struct Following(Child);

impl Following {
    /// Starts a command, and ends its reader after this number of lines.
    fn start(command: &mut Command, lines: usize) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().expect("it starts");
        let mut reader = BufReader::new(child.stdout.take().expect("it is piped"));
        let following = Self(child);
        for _ in 0..lines {
            reader.read_line(&mut String::new()).expect("a line");
        }
        following
    }

    fn code(&mut self) -> Option<i32> {
        let what = "the command ends with its reader";
        wait_for(SOON, what, || self.0.try_wait().expect("our own child")).code()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn commands_that_follow_a_gateway_end_with_their_reader() {
    let admin = free_port();
    let gateway = Gateway::start(&format!(
        "extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\", tap: true}}}}
receivers: {{nop: }}
processors: {{composite: {{composites: [{{name: depth, metric: queue, function: avg, window: 10s}}]}}}}
exporters: {{nop: }}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [nop], processors: [composite], exporters: [nop]}}}}
"
    ));
    let endpoint = format!("127.0.0.1:{admin}");
    // No data comes.
    for (arguments, lines) in [
        (&["composites", "watch", "depth"][..], 1),
        (&["tap", "composite"], 0),
        (&["top", "--interval", "1h"], 1),
    ] {
        let mut command = tidegate();
        command.args(arguments).args(["--endpoint", &endpoint]);
        let code = Following::start(&mut command, lines).code();
        assert_eq!(code, Some(0), "{arguments:?}");
    }
    gateway.stop();
}

/// A directory with a ring that has one event, and the path of the ring.
fn ring() -> (TempDir, PathBuf) {
    let directory = TempDir::new().expect("a temporary directory");
    let path = directory.path().join("rank_0");
    let mut writer = Writer::create(&path, Layout::V4, 8).expect("a ring");
    writer.push_all(&[Event {
        kind: 0,
        value: 1,
        timestamp_us: 1,
    }]);
    (directory, path)
}

#[test]
fn a_tail_of_a_quiet_ring_ends_with_its_reader() {
    let (_directory, path) = ring();
    let mut command = tidegate();
    command.args(["ring", "tail", "--json"]).arg(&path);
    assert_eq!(Following::start(&mut command, 1).code(), Some(0));
}

#[test]
fn a_full_disk_leaves_the_events_in_their_ring() {
    let (_directory, path) = ring();
    let tail = || {
        let mut command = tidegate();
        command
            .args(["ring", "tail", "--once", "--consume", "--json"])
            .arg(&path);
        command
    };
    let full = File::options().write(true).open("/dev/full");
    let Finished { code, .. } = finished(tail().stdout(full.expect("a device of Linux")));
    assert_eq!(code, Some(1));
    for expected in [1, 0] {
        let Finished { code, output, errors } = finished(&mut tail());
        assert_eq!(
            (code, output.lines().count()),
            (Some(0), expected),
            "{output}{errors}"
        );
    }
}
