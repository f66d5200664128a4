// SPDX-License-Identifier: Apache-2.0

//! The plugin in unmodified NIXL processes of every wheel that takes it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use tempfile::TempDir;
use tidegate_cells::Value;

use super::kit::{Steps, Wheel, assert_holds, lost, run, scan, sum, total};

fn cells() -> TempDir {
    TempDir::new().expect("a temporary directory")
}

#[test]
fn agents_of_every_wheel_have_all_that_they_did_in_cells() {
    // 1.1 and 1.2 hand over other events, 1.5 calls functions that older ones do not know of.
    for version in ["1.1.0", "1.2.0", "1.3.2", "1.4.1", "1.5.1"] {
        let cells = cells();
        let outcome = Wheel::new(version).transfers(cells.path());
        let report = outcome.report();
        assert_eq!(report["wheel"], version);
        let scan = scan(cells.path());
        assert_holds(&scan.merged, &report);
        assert_eq!(outcome.plugin_lines(), [""; 0]);
        let [process] = &scan.processes[..] else {
            panic!("{:?}", scan.processes);
        };
        assert_eq!(Some(u64::from(process.identity.pid)), report["pid"].as_u64());
        assert!(!process.alive, "what it counted outlives it");
    }
}

#[test]
fn a_nixl_of_another_interface_refuses_the_plugin_and_logs_it() {
    let cells = cells();
    let outcome = Wheel::new("1.0.1").transfers(cells.path());
    assert_eq!(outcome.status.code(), Some(1));
    assert!(
        outcome
            .stderr
            .contains("Failed to load telemetry plugin: tidegate"),
        "{}",
        outcome.stderr
    );
    assert!(scan(cells.path()).processes.is_empty());
}

#[test]
fn an_agent_that_is_killed_takes_nothing_with_it() {
    let (wheel, cells) = (Wheel::new("1.5.1"), cells());
    let mut agents = Steps::start(wheel.agents("nixl_agents.py", &["steps"], cells.path()));
    let first = agents.step();
    let second = sum(&first, &agents.step());
    let before = scan(cells.path());
    assert!(before.processes[0].alive);
    assert_holds(&before.merged, &second);
    agents.kill();
    let after = scan(cells.path());
    assert!(!after.processes[0].alive);
    assert_eq!(format!("{:?}", after.merged), format!("{:?}", before.merged));
    // Another process with agents of the same names counts on.
    let mut agents = Steps::start(wheel.agents("nixl_agents.py", &["steps"], cells.path()));
    let third = sum(&second, &agents.step());
    assert_holds(&scan(cells.path()).merged, &third);
}

#[test]
fn agents_of_the_same_name_one_after_the_other_count_on() {
    let (wheel, cells) = (Wheel::new("1.5.1"), cells());
    let report = run(wheel.agents("nixl_agents.py", &["again", "--times", "3"], cells.path())).report();
    let scan = scan(cells.path());
    assert_holds(&scan.merged, &report);
    assert_eq!(scan.processes.len(), 1);
}

#[test]
fn many_agents_share_the_file_of_their_process() {
    for version in ["1.3.2", "1.5.1"] {
        let (wheel, cells) = (Wheel::new(version), cells());
        let report = run(wheel.agents("nixl_agents.py", &["many", "--pairs", "4"], cells.path())).report();
        assert_eq!(report["agents"].as_object().map(serde_json::Map::len), Some(8));
        let scan = scan(cells.path());
        assert_holds(&scan.merged, &report);
        assert_eq!(scan.processes.len(), 1);
    }
}

#[test]
fn a_child_of_fork_has_a_file_of_its_own_and_leaves_the_parents_alone() {
    let (wheel, cells) = (Wheel::new("1.5.1"), cells());
    let report = run(wheel.agents("nixl_agents.py", &["fork"], cells.path())).report();
    assert_eq!(report["child"]["status"], 0);
    let scan = scan(cells.path());
    assert_holds(&scan.merged, &report);
    assert_holds(&scan.merged, &report["child"]);
    let mut pids: Vec<_> = scan
        .processes
        .iter()
        .map(|process| u64::from(process.identity.pid))
        .collect();
    pids.sort_unstable();
    let mut expected = [&report["pid"], &report["child"]["pid"]].map(|pid| pid.as_u64().expect("a pid"));
    expected.sort_unstable();
    assert_eq!(pids, expected);
}

/// Blocks a directory of cells, until it is removed.
struct Obstacle(TempDir);

impl Obstacle {
    fn new() -> Self {
        let obstacle = Self(cells());
        fs::write(obstacle.0.path().join("file"), "").expect("a file");
        obstacle
    }

    /// A directory that cannot be made, as its parent is a file: for root as for others.
    fn cells(&self) -> std::path::PathBuf {
        self.0.path().join("file/cells")
    }

    fn remove(&self) {
        fs::remove_file(self.0.path().join("file")).expect("it was there");
    }
}

#[test]
fn without_a_directory_agents_work_and_count_events_until_there_is_one() {
    let (wheel, obstacle) = (Wheel::new("1.5.1"), Obstacle::new());
    let mut agents = Steps::start(wheel.agents("nixl_agents.py", &["steps"], &obstacle.cells()));
    let unseen = agents.step();
    obstacle.remove();
    // Tried again every five seconds, when an event comes.
    let deadline = Instant::now() + Duration::from_secs(90);
    let both = |cells: &Path| {
        let family = scan(cells).merged.family("agent_errors")?.series.len();
        (family == 24).then_some(())
    };
    while !obstacle.cells().exists() || both(&obstacle.cells()).is_none() {
        assert!(Instant::now() < deadline, "they try again");
        agents.step();
    }
    // From here on everything is seen, and what was not is counted.
    let before = scan(&obstacle.cells()).merged;
    let transfers = unseen["agents"]["steps_a"]["transfers"]
        .as_u64()
        .expect("a count");
    assert!(lost(&before, "no_cells", "steps_a") >= 4 * transfers);
    let seen = agents.step();
    let after = scan(&obstacle.cells()).merged;
    for agent in ["steps_a", "steps_b"] {
        assert_eq!(lost(&after, "no_cells", agent), lost(&before, "no_cells", agent));
        let gained = total(&after, "agent_tx_bytes", agent) - total(&before, "agent_tx_bytes", agent);
        assert_eq!(Some(gained), seen["agents"][agent]["agent_tx_bytes"].as_u64());
    }
    let said = agents.end();
    assert_eq!(said.len(), 1, "once for all agents: {said:?}");
    assert!(
        said[0].contains("file/cells") && said[0].contains("TIDEGATE_CELLS_DIR"),
        "{said:?}"
    );
}

#[test]
fn without_a_directory_to_the_end_the_agents_say_what_was_lost() {
    let obstacle = Obstacle::new();
    let outcome = Wheel::new("1.4.1").transfers(&obstacle.cells());
    let report = outcome.report();
    assert_eq!(report["agents"].as_object().map(serde_json::Map::len), Some(2));
    let said = outcome.plugin_lines();
    let [reason, first, second] = &said[..] else {
        panic!("{said:?}")
    };
    assert!(reason.contains("events are lost"), "{reason}");
    for line in [first, second] {
        assert!(line.contains("has ended; its"), "{line}");
    }
}

#[test]
fn a_full_standard_error_blocks_no_agent() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    rustix::fs::fcntl_setfl(&writer, OFlags::NONBLOCK).expect("a flag");
    while rustix::io::write(&writer, &[b'x'; 512]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, OFlags::empty()).expect("a flag");
    let (wheel, obstacle) = (Wheel::new("1.5.1"), Obstacle::new());
    let mut command = wheel.agents("nixl_agents.py", &["rate", "--seconds", "0.1"], &obstacle.cells());
    let mut child = command.stderr(writer).spawn().expect("python3 starts");
    let deadline = Instant::now() + Duration::from_mins(1);
    let status = loop {
        match child.try_wait().expect("our child") {
            Some(status) => break status,
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            None => {
                let _ = child.kill();
                panic!("it waits");
            }
        }
    };
    assert!(status.success(), "{status}");
    drop(reader);
}

/// A file system of the test's own, where it may mount one.
struct Mount(TempDir);

impl Mount {
    fn new(options: &str) -> Option<Self> {
        let mount = Self(cells());
        let mut command = Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(mount.0.path());
        command
            .status()
            .is_ok_and(|status| status.success())
            .then_some(mount)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: a child that another test starts has copies of descriptors until it executes its program.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_directory_that_can_not_be_written_fails_no_agent() {
    let Some(mount) = Mount::new("ro") else {
        eprintln!("not tested: this user can't mount");
        return;
    };
    let outcome = Wheel::new("1.5.1").transfers(mount.path());
    outcome.report();
    assert!(
        outcome.plugin_lines()[0].contains("Read-only file system"),
        "{:?}",
        outcome.plugin_lines()
    );
}

#[test]
fn a_full_file_system_fails_no_agent_and_is_no_sigbus() {
    // From room for nothing to room for everything.
    for kib in [4, 64, 128, 160, 192, 256, 512] {
        let Some(mount) = Mount::new(&format!("size={kib}k")) else {
            eprintln!("not tested: this user can't mount");
            return;
        };
        let outcome = Wheel::new("1.5.1").transfers(mount.path());
        let report = outcome.report();
        let scan = scan(mount.path());
        println!(
            "{kib} KiB: {} files, {:?}",
            scan.processes.len(),
            outcome.plugin_lines()
        );
        if outcome.plugin_lines().is_empty() {
            assert_eq!(scan.processes.len(), 1);
            let bytes: u64 = scan
                .merged
                .family("agent_tx_bytes")
                .expect("it has room")
                .series
                .iter()
                .map(|series| match series.value {
                    Value::Counter(value) => value,
                    _ => 0,
                })
                .sum();
            let agents = report["agents"].as_object().expect("agents");
            let did: u64 = agents
                .values()
                .filter_map(|agent| agent["agent_tx_bytes"].as_u64())
                .sum();
            assert_eq!(bytes, did, "in series of their own or in the overflow series");
        } else {
            assert!(
                outcome.plugin_lines()[0].contains("No space left"),
                "{:?}",
                outcome.plugin_lines()
            );
        }
    }
}
