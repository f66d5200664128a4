// SPDX-License-Identifier: Apache-2.0

//! Damaged and full disks.

use super::*;
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
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
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
