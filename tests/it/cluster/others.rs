// SPDX-License-Identifier: Apache-2.0

//! What two replicas show of the same senders: those of a cluster, and two vmagents that aggregate streams.
//!
//! Ten senders of a cumulative counter change their replica with each report. One replica is killed and starts again. `cargo
//! xtask interop` runs this and prints the figures of docs/cluster.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::replicas;
use super::streams::{report_hits, stream_gateway};
use crate::kit::process::Process;
use crate::kit::victoria_metrics::VictoriaMetrics;
use crate::kit::{SOON, free_port, http, testenv, wait_until};

const SENDERS: u64 = 10;

/// The total of a sender before its first report.
const BEFORE: u64 = 1000;

/// The reports of each sender. The killed replica is away for some of them.
const REPORTS: u64 = 60;
const KILLED: u64 = 30;
const BACK: u64 = 34;

/// The time between two reports. A vmagent gives its totals once a second.
const PAUSE: Duration = Duration::from_millis(500);

/// What all senders have counted at the end.
const TOTAL: f64 = (SENDERS * (BEFORE + REPORTS)) as f64;

/// Two replicas of any kind.
trait Pair {
    /// Takes the total of a sender at a replica.
    fn report(&self, replica: usize, sender: u64, total: u64);
    fn kill_second(&mut self);
    fn start_second(&mut self);
}

/// All senders report, each time to the other replica. While one is away, they report to the first.
fn drive(pair: &mut impl Pair) {
    for report in 1..=REPORTS {
        if report == KILLED {
            pair.kill_second();
        }
        if report == BACK {
            pair.start_second();
        }
        for sender in 0..SENDERS {
            let is_away = (KILLED..BACK).contains(&report);
            let replica = if is_away {
                0
            } else {
                (report + sender) as usize % 2
            };
            pair.report(replica, sender, BEFORE + report);
        }
        std::thread::sleep(PAUSE);
    }
}

struct Gateways {
    peers: [u16; 2],
    first: (crate::kit::Gateway, u16),
    second: Option<(crate::kit::Gateway, u16)>,
}

impl Pair for Gateways {
    fn report(&self, replica: usize, sender: u64, total: u64) {
        let second = self.second.as_ref().filter(|_| replica == 1);
        let (_, port) = second.unwrap_or(&self.first);
        let start = 1_790_000_000_000_000_000 + sender;
        report_hits(*port, &format!("sender-{sender}"), start, total);
    }

    fn kill_second(&mut self) {
        if let Some((gateway, _)) = self.second.take() {
            gateway.kill();
        }
    }

    fn start_second(&mut self) {
        self.second = Some(stream_gateway(self.peers, "b"));
    }
}

struct Vmagents {
    directory: TempDir,
    ports: [u16; 2],
    store: VictoriaMetrics,
    processes: Vec<Process>,
}

impl Vmagents {
    fn start() -> Self {
        let directory = TempDir::new().expect("a folder");
        let rule = "- match: hits_total\n  interval: 1s\n  without: [sender]\n  outputs: [total]\n";
        fs::write(directory.path().join("rules.yaml"), rule).expect("a file");
        let mut vmagents = Self {
            directory,
            ports: [free_port(), free_port()],
            store: VictoriaMetrics::start(),
            processes: Vec::new(),
        };
        [0, 1]
            .into_iter()
            .for_each(|replica| vmagents.start_replica(replica));
        vmagents
    }

    fn start_replica(&mut self, replica: usize) {
        let (directory, port) = (self.directory.path(), self.ports[replica]);
        let file = |name: &str| -> PathBuf { Path::new(directory).join(name) };
        let mut command = Command::new(testenv("debian-unstable/usr/bin/vmagent"));
        command
            .arg(format!("-httpListenAddr=127.0.0.1:{port}"))
            .arg(format!(
                "-remoteWrite.url=http://127.0.0.1:{}/api/v1/write",
                self.store.port()
            ))
            .arg(format!(
                "-remoteWrite.tmpDataPath={}",
                file(&format!("queue-{replica}")).display()
            ))
            .arg(format!(
                "-remoteWrite.streamAggr.config={}",
                file("rules.yaml").display()
            ))
            .arg(format!("-remoteWrite.label=replica={replica}"))
            .args(["-remoteWrite.flushInterval=200ms", "-loggerLevel=WARN"]);
        let process = Process::start("vmagent", &mut command);
        wait_until(SOON, "vmagent is ready", || {
            http::get(port, "/health").is_ok_and(|answer| answer.status == 200)
        });
        self.processes.push(process);
    }

    /// The last value of each replica, and how often it fell.
    fn shown(&self) -> Vec<(f64, usize)> {
        self.store.flush();
        let series = self.store.export(r#"{__name__=~"hits_total:.*"}"#);
        let shown = series.iter().map(|series| {
            let values = series["values"].as_array().expect("samples");
            let values: Vec<f64> = values.iter().filter_map(serde_json::Value::as_f64).collect();
            let falls = values.windows(2).filter(|pair| pair[1] < pair[0]).count();
            (values.last().copied().unwrap_or_default(), falls)
        });
        shown.collect()
    }
}

impl Pair for Vmagents {
    fn report(&self, replica: usize, sender: u64, total: u64) {
        let line = format!("hits_total{{sender=\"{sender}\"}} {total}\n");
        let path = "/api/v1/import/prometheus";
        let answer = http::post(self.ports[replica], path, "text/plain", line.as_bytes());
        assert!(answer.expect("an answer").status < 300);
    }

    fn kill_second(&mut self) {
        self.processes.pop();
    }

    fn start_second(&mut self) {
        self.start_replica(1);
    }
}

#[test]
#[ignore = "shows figures of others: `cargo xtask interop`"]
fn replicas_of_a_cluster_show_one_exact_total_and_vmagents_two_others() {
    let replicas = replicas();
    let peers = replicas[0].peers;
    let [first, second] = [0, 1].map(|index| replicas[index].start(peers[index]));
    let mut gateways = Gateways {
        peers,
        first: stream_gateway(peers, "a"),
        second: Some(stream_gateway(peers, "b")),
    };
    drive(&mut gateways);
    for replica in &replicas {
        replica.api.wait_for_value("sum(hits_total)", TOTAL);
        replica.api.wait_for_value("sum(resets(hits_total[10m]))", 0.0);
        println!("counted {TOTAL}; replica of a cluster: {TOTAL}, resets 0");
    }
    for gateway in [first, second] {
        gateway.stop();
    }

    let mut vmagents = Vmagents::start();
    drive(&mut vmagents);
    let is_quiet = || {
        let before = vmagents.shown();
        std::thread::sleep(2 * PAUSE + Duration::from_secs(1));
        before.len() == 2 && vmagents.shown() == before
    };
    wait_until(SOON, "the totals of both are at rest", is_quiet);
    let shown = vmagents.shown();
    for (total, falls) in &shown {
        println!(
            "counted {} meanwhile; vmagent: {total}, resets {falls}",
            SENDERS * REPORTS
        );
    }
    assert!(
        shown
            .iter()
            .any(|(total, _)| *total != TOTAL - (SENDERS * BEFORE) as f64),
        "{shown:?}"
    );
}
