// SPDX-License-Identifier: Apache-2.0

//! An agent that transfers 25,000 times a second, or as often as it can: every event is received or counted as dropped.
//! Beside it NIXL's own ring, with a reader that is quick enough; `--nocapture` shows the two.

use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use serde_json::Value as Json;
use tempfile::TempDir;
use tidegate_cells::Snapshot;
use tidegate_ring::{Batch, Options, Reader};

use super::kit::{Wheel, lost, observations, run, scan, total};

/// A row of the comparison.
struct Row {
    way: &'static str,
    per_second: f64,
    produced: u64,
    received: u64,
    dropped: u64,
}

impl Row {
    fn print(&self) {
        let Row {
            way,
            per_second,
            produced,
            received,
            dropped,
        } = self;
        let share = |part: u64| 100.0 * part as f64 / *produced as f64;
        println!(
            "{way:<28} {per_second:>7.0} transfers/s  produced {produced:>8}  received {received:>8} ({:>6.2} %)  \
             counted as dropped {dropped:>8} ({:>6.2} %)  unaccounted {}",
            share(*received),
            share(*dropped),
            i128::from(*produced) - i128::from(*received) - i128::from(*dropped),
        );
    }
}

fn temporary() -> TempDir {
    TempDir::new().expect("a temporary directory")
}

/// A busy agent with the plugin, and what came of it.
fn cells(way: &'static str, wheel: &Wheel, per_second: &str, settings: &[(&str, &str)]) -> Row {
    let directory = temporary();
    let mut command = wheel.agents(
        "nixl_agents.py",
        &["rate", "--per-second", per_second],
        directory.path(),
    );
    command.envs(settings.iter().copied());
    let report = run(command).report();
    let merged = scan(directory.path()).merged;
    let did = &report["agents"]["rate_a"];
    let row = Row {
        way,
        per_second: report["per_second"].as_f64().expect("a rate"),
        produced: did["events"].as_u64().expect("a count"),
        received: events(&merged, "rate_a"),
        dropped: total(&merged, "agent_telemetry_events_dropped", "rate_a"),
    };
    row.print();
    for reason in ["no_cells", "invalid_value", "panic"] {
        assert_eq!(lost(&merged, reason, "rate_a"), 0, "{reason}");
    }
    assert_eq!(events(&merged, "rate_b"), 1);
    row
}

/// Events in the cells of an agent that wrote 4,096 bytes at a time and registered once: all four of a transfer, or none.
fn events(merged: &Snapshot, agent: &str) -> u64 {
    let transfers = total(merged, "agent_tx_requests_num", agent);
    assert_eq!(total(merged, "agent_tx_bytes", agent), 4096 * transfers);
    for time in ["agent_xfer_time", "agent_xfer_post_time"] {
        assert_eq!(observations(merged, time, agent), transfers, "{time}");
    }
    assert_eq!(total(merged, "agent_memory_registered", agent), 1 << 20);
    4 * transfers + 1
}

/// The same with NIXL's ring, emptied every millisecond.
fn ring(way: &'static str, wheel: &Wheel, settings: &[(&str, &str)]) -> Row {
    let directory = temporary();
    let mut command = wheel.driver("nixl_agents.py", &["rate"]);
    command
        .env("NIXL_TELEMETRY_DIR", directory.path())
        .envs(settings.iter().copied())
        .stderr(Stdio::null());
    let mut child = command.spawn().expect("python3 starts");
    let ring = directory.path().join("rate_a");
    let (mut received, mut dropped) = (0, 0);
    let mut take = |reader: &mut Reader, columns: &mut Batch| {
        while reader.read(columns).is_ok() && !columns.is_empty() {
            for (kind, value) in columns.kinds.iter().zip(&columns.values) {
                match *kind {
                    20 => dropped += value,
                    _ => received += 1,
                }
            }
            assert!(reader.commit(), "it has no other reader");
        }
    };
    let (mut reader, mut columns) = (open(&ring), Batch::default());
    while child.try_wait().expect("our child").is_none() {
        take(&mut reader, &mut columns);
        thread::sleep(Duration::from_millis(1));
    }
    take(&mut reader, &mut columns);
    let report = std::io::read_to_string(child.stdout.take().expect("it is piped")).expect("UTF-8");
    let report: Json = serde_json::from_str(&report).expect("JSON");
    let row = Row {
        way,
        per_second: report["per_second"].as_f64().expect("a rate"),
        produced: report["agents"]["rate_a"]["events"].as_u64().expect("a count"),
        received,
        dropped,
    };
    row.print();
    row
}

fn open(path: &Path) -> Reader {
    loop {
        match Reader::open(path, Options::default()) {
            Ok(reader) => return reader,
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Held while an agent needs a processor of its own.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn every_event_is_received_or_counted_as_dropped() {
    let _alone = ALONE.lock();
    for version in ["1.4.1", "1.5.1"] {
        println!("NIXL {version}, default settings:");
        let wheel = Wheel::new(version);
        for (way, speed) in [("plugin", "25000"), ("plugin, unlimited", "inf")] {
            let row = cells(way, &wheel, speed, &[]);
            assert_eq!(row.produced, row.received + row.dropped, "{version}");
        }
        let ring = ring("ring, read every millisecond", &wheel, &[]);
        assert!(ring.received + ring.dropped <= ring.produced);
    }
}

#[test]
fn with_a_queue_that_suffices_every_event_is_received() {
    let _alone = ALONE.lock();
    let wheel = Wheel::new("1.5.1");
    let (interval, size) = (
        ("NIXL_TELEMETRY_RUN_INTERVAL", "10"),
        ("NIXL_TELEMETRY_BUFFER_SIZE", "65536"),
    );
    println!("NIXL 1.5.1, 10 ms:");
    let row = cells("plugin", &wheel, "25000", &[interval]);
    // Enough where the agent's export thread gets a processor in time.
    assert_eq!(row.produced, row.received + row.dropped);
    for settings in [&[size][..], &[interval, size]] {
        println!("NIXL 1.5.1, {settings:?}:");
        receives_all(|| {
            let row = cells("plugin", &wheel, "25000", settings);
            assert_eq!(row.produced, row.received + row.dropped, "{settings:?}");
            row
        });
    }
    // The ring has as many places as the queue.
    receives_all(|| ring("ring, read every millisecond", &wheel, &[size]));
}

/// An attempt receives all. On a busy machine a reader may be late for so long that a queue fills, but not each time.
fn receives_all(attempt: impl Fn() -> Row) {
    let all = |row: Row| (row.received, row.dropped) == (row.produced, 0);
    assert!((0..5).any(|_| all(attempt())), "each attempt drops");
}
