// SPDX-License-Identifier: Apache-2.0

//! The promises of the header and the wrapper, which programs of `tests/c` check.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod kit;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use kit::{command, compile, run};
use tempfile::TempDir;
use tidegate_ring::{Category, Event, Layout, Writer};

#[test]
fn mistakes_are_answered() {
    let directory = TempDir::new().unwrap();
    run(&mut command(&compile("tests/c/mistakes.c", directory.path())));
}

/// So that none is forgotten when one is added.
#[test]
fn every_function_is_called_with_mistakes() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(here.join(path)).unwrap();
    let (header, program) = (read("include/tidegate.h"), read("tests/c/mistakes.c"));
    let functions = header
        .lines()
        .filter(|line| line.starts_with("enum tg_status tg_"));
    let names: Vec<&str> = functions
        .filter_map(|line| line.strip_prefix("enum tg_status ")?.split('(').next())
        .collect();
    assert!(names.len() > 80, "{names:?}");
    let missing: Vec<_> = names
        .iter()
        .filter(|name| !program.contains(&format!("{name}(")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn handles_and_callbacks_behave() {
    let directory = TempDir::new().unwrap();
    let program = compile("tests/c/behaviour.c", directory.path());
    run(command(&program).arg(directory.path().join("cells")));
}

/// Under AddressSanitizer a child may wait forever: its allocator's locks may be held at the fork.
#[test]
fn children_behave() {
    let directory = TempDir::new().unwrap();
    let program = compile("tests/c/children.c", directory.path());
    run(command(&program).arg(directory.path().join("cells")));
}

#[test]
fn the_wrapper_owns_throws_and_counts() {
    let directory = TempDir::new().unwrap();
    let program = compile("tests/c/wrapper.cpp", directory.path());
    let rings = directory.path().join("rings");
    std::fs::create_dir(&rings).unwrap();
    let mut writer = Writer::create(rings.join("agent"), Layout::V1, 4).unwrap();
    for value in [10, 20, 30] {
        let timestamp_us = value + 3;
        let event = Event {
            kind: 0,
            value,
            timestamp_us,
        };
        assert!(writer.push_named("mine", Category::Custom, event));
    }
    writer.flush();
    run(command(&program).arg(&rings));
}

#[test]
fn a_server_serves_until_it_is_stopped() {
    let directory = TempDir::new().unwrap();
    let mut program = command(&compile("tests/c/serve.c", directory.path()));
    let mut child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut input = child.stdin.take().unwrap();
    let mut line = || lines.next().unwrap().unwrap();
    let address = line();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&address).ok()?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        Some(answer)
    };
    let page = get("/metrics").unwrap();
    assert!(
        page.starts_with("HTTP/1.1 200") && page.contains("served_total 7\n"),
        "{page}"
    );
    assert!(get("/health").unwrap().starts_with("HTTP/1.1 200"));

    writeln!(input, "next").unwrap();
    assert_eq!(line(), "not ready");
    let health = get("/health").unwrap();
    assert!(
        health.starts_with("HTTP/1.1 503") && health.contains("\"generate\":\"notready\""),
        "{health}"
    );

    writeln!(input, "next").unwrap();
    assert_eq!(line(), "stopped");
    assert_eq!(get("/metrics"), None);
    writeln!(input, "next").unwrap();
    assert!(child.wait().unwrap().success());
}
