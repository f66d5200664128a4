// SPDX-License-Identifier: Apache-2.0

//! A producer that is a real gateway: what an agent on a node costs.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tempfile::TempDir;

use super::agent::CLUSTER;
use super::late::{LateTimes, PageCounts};
use super::member::Member;
use super::model::Model;
use super::rows::ROWS;
use super::store::Store;
use crate::BenchError;
use crate::gateway::{command, free_port};
use crate::http::Scraper;

/// The interval of its pages, and of the updates of all its series.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// The longest time until it listens.
const START: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(20);

/// The longest time of an answer with its own metrics.
const TIMEOUT: Duration = Duration::from_millis(500);

/// The begin of the names that are not in the model, and the number of their series: the times at which the gateway counts.
pub(super) const PROBES: &str = "probe_";
pub(super) const PROBE_SERIES: usize = 1;

/// The composite of these times: the last one within [`WINDOW`], in seconds since 1970. `CONFIG` and the replicas declare it.
pub(super) const CLOCK: &str = "probe_clock";
pub(super) const WINDOW: Duration = Duration::from_secs(10);

const CONFIG: &str = r#"
extensions:
  cluster: {name: CLUSTER, engine: ENGINE}
receivers:
  uds: {datagram: {path: "SOCKET"}}
processors:
  composite: {composites: [{name: probe_clock, metric: probe_times, function: max, window: 10s}]}
  aggregate: {rules: [{match: {name: "real_*"}, by: []}]}
exporters:
  partials: {cluster: cluster, producer: gateway, interval: 1s}
service:
  extensions: [cluster]
  telemetry: {logs: {level: warn}, metrics: METRICS}
  pipelines:
    metrics: {receivers: [uds], processors: [composite, aggregate], exporters: [partials]}
"#;

/// The options of its own metrics.
const NO_METRICS: &str = "{level: none}";
const OWN_METRICS: &str = "{readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: PORT}}}}]}";

/// The gateway, and the thread that counts.
pub(super) struct Producer {
    pub(super) member: Member,
    /// The port of its own metrics, if it has them.
    own: Option<u16>,
    /// When its pages were late. Without own metrics, this is not known.
    pub(super) late: LateTimes,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    /// The directory of the socket: the path of a socket is short.
    _directory: TempDir,
}

impl Producer {
    /// Starts a gateway with as many counters as an agent has series. All of them change each second.
    pub(super) fn start(
        binary: &Path,
        store: &Store,
        logs: &Path,
        model: Arc<Mutex<Model>>,
        has_own_metrics: bool,
    ) -> Result<Self, BenchError> {
        let own = has_own_metrics.then(free_port).transpose()?;
        let metrics = own.map_or_else(
            || NO_METRICS.to_owned(),
            |port| OWN_METRICS.replace("PORT", &port.to_string()),
        );
        let directory = TempDir::new()?;
        let socket = directory.path().join("statsd.sock");
        let config = CONFIG
            .replace("CLUSTER", CLUSTER)
            .replace("ENGINE", &store.of_producer())
            .replace("METRICS", &metrics)
            .replace("SOCKET", &socket.display().to_string());
        let mut member = Member::new("producer".to_owned(), logs);
        member.start(|directory| command(binary, directory.path(), &config))?;
        let sender = connect(&socket)?;
        let is_over = Arc::<AtomicBool>::default();
        let over = is_over.clone();
        let thread = std::thread::spawn(move || count(&sender, &model, &over));
        Ok(Self {
            member,
            own,
            late: LateTimes::new(Instant::now()),
            is_over,
            thread: Some(thread),
            _directory: directory,
        })
    }

    /// Asks whether its pages are late.
    pub(super) fn check_pages(&mut self) {
        let Some(port) = self.own else { return };
        let counts = Scraper::connect_within(port, "/metrics", TIMEOUT)
            .and_then(|mut own| Ok(PageCounts::parse(own.get()?)));
        self.late.take(counts.ok(), Instant::now());
    }

    /// It counts nothing more.
    pub(super) fn freeze(&mut self) -> Result<(), BenchError> {
        self.is_over.store(true, Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(counted)) => Ok(counted?),
            Some(Err(_)) => Err("the sender of the producer panicked".into()),
            None => Ok(()),
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // An error of the sender is not the first one.
        let _ = self.freeze();
    }
}

fn connect(socket: &Path) -> Result<UnixDatagram, BenchError> {
    let (sender, begun) = (UnixDatagram::unbound()?, Instant::now());
    while let Err(error) = sender.connect(socket) {
        if begun.elapsed() > START {
            return Err(format!("the producer does not listen: {error}").into());
        }
        std::thread::sleep(PAUSE);
    }
    Ok(sender)
}

/// A time in seconds since 1970.
pub(super) fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Counts once a second. The model knows it first.
fn count(sender: &UnixDatagram, model: &Mutex<Model>, over: &AtomicBool) -> std::io::Result<()> {
    for round in 1.. {
        if over.load(Relaxed) {
            break;
        }
        let mut lines = String::new();
        let mut model = model.lock();
        for number in 0..ROWS.len() {
            let amount = (round + number) as u64 % 9 + 1;
            model.count_at_gateway(&format!("real_{number}_total"), amount);
            lines.push_str(&format!("real_{number}:{amount}|c\n"));
        }
        drop(model);
        lines.push_str(&format!("probe_times:{:.3}|h", unix_seconds(SystemTime::now())));
        sender.send(lines.as_bytes())?;
        std::thread::sleep(INTERVAL);
    }
    Ok(())
}
