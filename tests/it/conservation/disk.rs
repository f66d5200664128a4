// SPDX-License-Identifier: Apache-2.0

//! Damaged, full and failing disks.

use super::*;
use std::path::PathBuf;
use tempfile::TempDir;

#[test]
fn damage_costs_the_damaged_records_and_a_torn_end_unacknowledged_ones() {
    let storage = tempfile::tempdir().unwrap();
    let queue = Queue {
        options: "storage: file_storage",
        ..PLAIN
    };
    let hop = start("http://no-such-host.invalid:4318", storage.path(), &queue);
    for n in 0..20 {
        assert!(send(hop.input, n * POINTS..(n + 1) * POINTS));
    }
    hop.gateway.kill();
    let segment = segments(storage.path()).remove(0);
    let mut bytes = std::fs::read(&segment).unwrap();
    let (third, torn) = (bytes.len() / 20 * 3, bytes.len() - 7);
    bytes[third] ^= 1;
    bytes.truncate(torn);
    std::fs::write(&segment, &bytes).unwrap();
    let sink = OtlpSink::start();
    let mut hop = start(&sink.endpoint(), storage.path(), &queue);
    hop.gateway.wait_for_log("part of the stored data is damaged");
    let counts = hop.wait_for_idle();
    assert_eq!(
        (counts.restored, counts.delivered),
        (180, 180),
        "one record is damaged, one torn"
    );
    assert_eq!(arrived(&sink).len(), 180);
    let lost = hop.gateway.own_metric("tidegate_storage_lost_records_total", &[]);
    assert_eq!(lost, 1.0);
    hop.gateway.stop();
}

/// A file system of a few hundred KiB, where the test may mount one.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(kib: u32) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "tmpfs"])
            .arg(directory.path())
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Self(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a child that another test starts has copies of descriptors until it executes its program.
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0.path())
            .status();
    }
}

#[test]
fn a_full_disk_is_a_full_queue_and_the_gateway_serves_on() {
    let quota = tempfile::tempdir().unwrap();
    // Where no file system can be mounted, a file that must not grow stands for it.
    let disk = SmallDisk::mount(256);
    let storage = disk.as_ref().map_or(quota.path(), |disk| disk.0.path());
    let limit = if disk.is_some() { "10GiB" } else { "256KiB" };
    let (sink, input) = (OtlpSink::start(), free_port());
    let proxy = Proxy::start(sink.port(), Fault::Refuse);
    let yaml = format!(
        "extensions:
  file_storage: {{directory: {storage:?}, fsync: always, segment_size: 64KiB, max_size: {limit}}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
exporters:
  otlphttp:
    endpoint: \"http://127.0.0.1:{}\"
    retry_on_failure: {{initial_interval: 10ms, max_interval: 50ms}}
    sending_queue: {{storage: file_storage, queue_size: 5}}
service:
  extensions: [health_check, file_storage]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [otlphttp]}}}}
",
        proxy.port()
    );
    let hop = Hop {
        gateway: Gateway::start(&yaml),
        input,
    };
    let mut taken = BTreeSet::new();
    let mut refused = 0;
    for n in 0..2000 {
        if send(input, n * POINTS..(n + 1) * POINTS) {
            taken.extend(n * POINTS..(n + 1) * POINTS);
        } else {
            refused += 1;
        }
        if refused > 20 {
            break;
        }
    }
    assert!(refused > 20, "256 KiB have no end");
    assert_eq!(hop.gateway.health().expect("it lives").status, 200);
    proxy.set(Fault::None);
    let counts = hop.wait_for_idle();
    let arrived = arrived(&sink);
    assert_eq!(counts.delivered, arrived.len() as u64);
    assert_eq!(counts.entered, counts.delivered + counts.dropped, "{counts:?}");
    let missing: Vec<_> = taken.difference(&arrived).collect();
    assert!(missing.is_empty(), "acknowledged and lost: {missing:?}");
    // The disk is empty again.
    wait_until(SOON, "it takes data again", || send(input, 1_000_000..1_000_010));
    hop.gateway.stop();
}

/// A directory that is reached through a link. A file in the place of the link lets all that needs a name in the directory
/// fail, also for root.
struct FailingDisk(TempDir);

impl FailingDisk {
    fn new() -> Self {
        let disk = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(disk.path("disk")).unwrap();
        disk.mend();
        disk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn link(&self) -> PathBuf {
        self.path("storage")
    }

    fn fail(&self) {
        std::fs::write(self.path("new"), "").unwrap();
        self.replace_link();
    }

    fn mend(&self) {
        std::os::unix::fs::symlink("disk", self.path("new")).unwrap();
        self.replace_link();
    }

    /// Writers find the old one or the new one at any time.
    fn replace_link(&self) {
        std::fs::rename(self.path("new"), self.link()).unwrap();
    }
}

#[test]
fn writes_that_fail_at_the_stop_are_named_and_what_they_lose_is_counted() {
    const RULES: &str =
        "groups: [{name: g, interval: 1s, rules: [{alert: pending, expr: vector(1), for: 10m}]}]";
    let (disk, input) = (FailingDisk::new(), free_port());
    let (storage, rules) = (disk.link(), disk.path("rules.yaml"));
    std::fs::write(&rules, RULES).unwrap();
    // A stop that waits for the whole drain misses the deadline of the test.
    let yaml = format!(
        "extensions:
  file_storage: {{directory: {storage:?}}}
  rules: {{files: [{rules:?}], storage: file_storage}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
processors:
  aggregate: {{rules: [{{match: {{name: \"*\"}}}}], storage: file_storage}}
exporters:
  nop:
  otlphttp/written: {{endpoint: \"http://127.0.0.1:1\", sending_queue: {{storage: file_storage}}}}
  otlphttp/memory:
    endpoint: \"http://127.0.0.1:1\"
    sending_queue: {{storage: file_storage, storage_mode: spill}}
service:
  drain_timeout: 10m
  extensions: [health_check, file_storage, rules]
  pipelines:
    metrics: {{receivers: [otlp], processors: [aggregate], exporters: [nop]}}
    metrics/sent: {{receivers: [otlp], exporters: [otlphttp/written, otlphttp/memory]}}
"
    );
    let mut gateway = Gateway::start(&yaml);
    assert!(send(input, 0..1));
    let alerts = storage.join("extensions%3A%3Arules/alerts");
    gateway.wait_until("the file of alerts is there", || alerts.exists());
    disk.fail();
    let log = gateway.stop();
    let of = |owner: &str| storage.join(owner).display().to_string();
    let failed = "storage failed: free space, or repair the disk";
    for parts in [
        [
            failed,
            "\"snapshot\"",
            of("processors%3A%3Aaggregate%40metrics").as_str(),
        ],
        [
            failed,
            "\"write\"",
            of("exporters%3A%3Aotlphttp%2Fmemory").as_str(),
        ],
        [
            "alerts are not kept",
            "check the disk",
            of("extensions%3A%3Arules").as_str(),
        ],
        // Only memory had it.
        ["dropped", "otlphttp/memory", "items=1 reason=\"shutdown\""],
        [
            "stopped before the queue was empty",
            "otlphttp/memory",
            "kept=0 lost=1",
        ],
        // The disk had it before.
        ["stopped", "otlphttp/written", "kept=1 lost=0"],
    ] {
        let is_there = |line: &str| parts.iter().all(|part| line.contains(part));
        assert!(log.lines().any(is_there), "{parts:?} are in no line of:\n{log}");
    }

    disk.mend();
    let mut gateway = Gateway::start(&yaml);
    let found = gateway.wait_for_log("found batches on disk to send");
    assert!(
        found.contains("otlphttp/written") && found.contains("items=1"),
        "{found}"
    );
    // The snapshot is not there, and the records are.
    let restored = gateway.wait_for_log("the state is restored");
    assert!(restored.contains("series=1"), "{restored}");
    gateway.stop();
}
