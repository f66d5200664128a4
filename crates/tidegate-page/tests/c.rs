// SPDX-License-Identifier: Apache-2.0

//! The reader in C: its layout is the same, and it reads correctly beside a live writer.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{LABELS, NAME, consistent, entry, quantiles};
use tidegate_page::layout::{self, flag, header, slot};
use tidegate_page::{Page, Reader, State};

/// Compiles a program of `tests/c`, every warning an error.
fn compile(name: &str, directory: &Path) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = directory.join(name);
    let options = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Wshadow",
        "-Werror",
        "-O2",
    ];
    let output = Command::new("cc")
        .args(options)
        .arg("-I")
        .arg(here.join("c"))
        .arg(here.join("tests/c").join(name).with_extension("c"))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

/// Lines of a name and a number.
fn numbers(output: &[u8]) -> BTreeMap<String, u64> {
    let text = String::from_utf8_lossy(output);
    let pairs = text.lines().map(|line| line.split_once(' ').unwrap());
    pairs
        .map(|(name, number)| (name.to_owned(), number.parse().unwrap()))
        .collect()
}

#[test]
fn the_layout_is_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(compile("offsets", directory.path()))
        .output()
        .unwrap();
    let expected: &[(&str, usize)] = &[
        ("header.magic", header::MAGIC),
        ("header.version", header::VERSION),
        ("header.header_size", header::HEADER_SIZE),
        ("header.capacity", header::CAPACITY),
        ("header.slot_size", header::SLOT_SIZE),
        ("header.boot", header::BOOT),
        ("header.heartbeat_ns", header::HEARTBEAT_NS),
        ("header.layout_seq", header::LAYOUT_SEQ),
        ("header.used", header::USED),
        ("header.high", header::HIGH),
        ("slot.lock", slot::LOCK),
        ("slot.generation", slot::GENERATION),
        ("slot.state", slot::STATE),
        ("slot.quantiles", slot::QUANTILES),
        ("slot.flags", slot::FLAGS),
        ("slot.name_len", slot::NAME_LEN),
        ("slot.labels_len", slot::LABELS_LEN),
        ("slot.seq", slot::SEQ),
        ("slot.value", slot::VALUE),
        ("slot.min", slot::MIN),
        ("slot.avg", slot::AVG),
        ("slot.max", slot::MAX),
        ("slot.sum", slot::SUM),
        ("slot.count", slot::COUNT),
        ("slot.last", slot::LAST),
        ("slot.window_ns", slot::WINDOW_NS),
        ("slot.as_of_ns", slot::AS_OF_NS),
        ("slot.newest_ns", slot::NEWEST_NS),
        ("slot.sources_expected", slot::SOURCES_EXPECTED),
        ("slot.sources_reporting", slot::SOURCES_REPORTING),
        ("slot.quantile_q", slot::QUANTILE_Q),
        ("slot.quantile_value", slot::QUANTILE_VALUE),
        ("slot.text", slot::TEXT),
        ("size.header", layout::HEADER_SIZE),
        ("size.slot", layout::SLOT_SIZE),
        ("size.text", layout::TEXT_SIZE),
        ("max.quantiles", layout::MAX_QUANTILES),
        ("max.capacity", layout::MAX_CAPACITY as usize),
        ("max.part_size", layout::MAX_PART_SIZE as usize),
        ("version", layout::VERSION as usize),
        ("flag.value", flag::VALUE as usize),
        ("flag.min", flag::MIN as usize),
        ("flag.avg", flag::AVG as usize),
        ("flag.max", flag::MAX as usize),
        ("flag.sum", flag::SUM as usize),
        ("flag.count", flag::COUNT as usize),
        ("flag.last", flag::LAST as usize),
        ("flag.newest", flag::NEWEST as usize),
        ("state.fresh", State::Fresh as usize),
        ("state.idle", State::Idle as usize),
        ("state.stale", State::Stale as usize),
        ("state.partial", State::Partial as usize),
        ("state.absent", State::Absent as usize),
    ];
    let expected = expected.iter().map(|(name, at)| ((*name).to_owned(), *at as u64));
    assert_eq!(numbers(&output.stdout), expected.collect());
}

const SNAPSHOTS: u64 = 300_000;
const DISTINCT: u64 = 2_000;

#[test]
fn every_snapshot_is_of_one_moment() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile("hammer", directory.path());
    let mut page = Page::create(directory.path().join("page"), 4, 0o600).unwrap();
    page.publish(1, &[entry(1, &quantiles(1))]);
    let spawned = Command::new(program)
        .arg(page.path())
        .args([NAME, LABELS, &SNAPSHOTS.to_string(), &DISTINCT.to_string()])
        .stdout(Stdio::piped())
        .spawn();
    let mut reader = spawned.unwrap();
    let mut n = 1;
    while reader.try_wait().unwrap().is_none() {
        for _ in 0..10_000 {
            n += 1;
            page.publish(n, &[entry(n, &quantiles(n))]);
        }
    }
    let output = reader.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let seen = numbers(&output.stdout);
    let expected = [
        ("torn", 0),
        ("backwards", 0),
        ("other", 0),
        ("alive", 1),
        ("current", 1),
        ("moved", 1),
    ];
    for (name, number) in expected {
        assert_eq!(seen.get(name), Some(&number), "{seen:?}");
    }
    assert!(
        seen["good"] >= SNAPSHOTS && seen["distinct"] >= DISTINCT,
        "{seen:?}"
    );
    let reader = Reader::open(page.path()).unwrap();
    let handle = reader.find(NAME, LABELS).unwrap();
    assert!(consistent(&reader.read(&handle).unwrap()));
}

/// Every answer that a read in C can give, and how the end of a page looks.
#[test]
fn the_answers_are_the_same() {
    const OK: &str = "0 1 1";
    const BUSY: &str = "1 1 1";
    const MOVED: &str = "2 1 1";
    const GONE: &str = "3 1 1";
    const MALFORMED: &str = "4 1 1";
    const CLOSED: &str = "3 0 0";
    let directory = tempfile::tempdir().unwrap();
    let mut page = Page::create(directory.path().join("page"), 1, 0o600).unwrap();
    page.publish(1_005, &[entry(1, &quantiles(1))]);
    let mut reader = Command::new(compile("answers", directory.path()));
    let reader = reader.arg(page.path()).args([NAME, LABELS]);
    let mut reader = reader
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut questions = reader.stdin.take().unwrap();
    let mut answers = BufReader::new(reader.stdout.take().unwrap()).lines();
    let mut answer = || {
        questions.write_all(b"?\n").unwrap();
        answers.next().unwrap().unwrap()
    };
    let file = OpenOptions::new().write(true).open(page.path()).unwrap();
    let poke = |field: usize, byte: u8| {
        let offset = layout::HEADER_SIZE + field;
        file.write_all_at(&[byte], offset as u64).unwrap();
    };
    assert_eq!(answer(), OK);
    poke(slot::LOCK, 1);
    assert_eq!(answer(), BUSY);
    poke(slot::LOCK, 2);
    assert_eq!(answer(), OK);
    for (field, wrong, right) in [(slot::STATE, 6, 2), (slot::QUANTILES, 5, 1)] {
        poke(field, wrong);
        assert_eq!(answer(), MALFORMED);
        poke(field, right);
        assert_eq!(answer(), OK);
    }
    page.remove(NAME, LABELS);
    assert_eq!(answer(), GONE);
    page.set(&entry(2, &quantiles(2))).unwrap();
    assert_eq!(answer(), MOVED);
    page.close().unwrap();
    assert_eq!(answer(), CLOSED);
    drop(questions);
    assert!(reader.wait().unwrap().success());
}

#[test]
fn hostile_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile("hammer", directory.path());
    let page = Page::create(directory.path().join("page"), 2, 0o600).unwrap();
    let good = std::fs::read(page.path()).unwrap();
    let path = directory.path().join("hostile");
    let with = |offset: usize, value: u32| {
        let mut bytes = good.clone();
        bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    let hostile = [
        vec![],
        good[..255].to_vec(),
        good[..good.len() - 1].to_vec(),
        [&good[..], &[0]].concat(),
        with(header::MAGIC, 0),
        with(header::VERSION, 2),
        with(header::HEADER_SIZE, 0),
        with(header::HEADER_SIZE, u32::MAX),
        with(header::SLOT_SIZE, 0),
        with(header::SLOT_SIZE, u32::MAX - 63),
        with(header::CAPACITY, 0),
        with(header::CAPACITY, u32::MAX),
    ];
    let opened = |path: &Path| {
        let output = Command::new(&program).arg(path).args(["", "", "1", "1"]).output();
        numbers(&output.unwrap().stdout)["open"]
    };
    const IO: u64 = 6;
    const REJECTED: u64 = 7;
    for bytes in hostile {
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(opened(&path), REJECTED, "{:?}", &bytes[..bytes.len().min(24)]);
    }
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(page.path(), &link).unwrap();
    assert_eq!(opened(&link), IO);
    assert_eq!(opened(directory.path()), REJECTED);
}
