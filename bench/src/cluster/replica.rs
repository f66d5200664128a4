// SPDX-License-Identifier: Apache-2.0

//! A replica: the gateway under test, which shows the totals of all agents.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::agent::CLUSTER;
use super::check::Violations;
use super::member::Member;
use super::store::Store;
use crate::BenchError;
use crate::gateway::{command, free_port};
use crate::http::{Scraper, sum};

/// The most time by which a replica is behind the store before it answers no reader.
pub(super) const MAX_LAG: Duration = Duration::from_secs(2);

/// A look at a replica takes this long at most.
const LOOK: Duration = Duration::from_millis(500);

/// The counts that stay 0 in a replica.
const ZEROS: [&str; 5] = [
    "tidegate_cluster_refused_total",
    "tidegate_cluster_unreadable_messages_total",
    LOSSES,
    RESTORED,
    "tidegate_cluster_failed_folds_total",
];

/// The counts that stay 0 while the store loses nothing.
const LOSSES: &str = "tidegate_cluster_losses_total";
const RESTORED: &str = "tidegate_cluster_restored_records_total";

/// The reasons that are not errors. Pages of ended runs are not merged, and a replica that starts reads many of them. A fold
/// fails while the store is not available, and is repeated.
const EXPECTED: [&str; 3] = [
    "reason=\"lease_ended\"",
    "reason=\"final_run\"",
    "reason=\"store\"",
];

const CONFIG: &str = r#"
extensions:
  cluster: {name: CLUSTER, engine: ENGINE}
  admin: {endpoint: "127.0.0.1:ADMIN"}
receivers:
  partials:
    cluster: cluster
    max_lag: LAG
    linearizable_reads: CONFIRMS
    max_producers: 30000
    composites: [{name: probe_clock, metric: probe_times, function: max, window: 10s}]
exporters:
  prometheus: {endpoint: "127.0.0.1:PAGE"}
service:
  extensions: [cluster, admin]
  telemetry:
    logs: {level: warn}
    metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: OWN}}}}]}
  pipelines:
    metrics: {receivers: [partials], exporters: [prometheus]}
"#;

/// A replica.
pub(super) struct Replica {
    pub(super) member: Member,
    pub(super) page: u16,
    admin: u16,
    own: u16,
    binary: PathBuf,
    config: String,
    /// Since when it could be ready, until it is.
    waits_since: Option<Instant>,
    /// The times from each start until it was ready.
    pub(super) catch_ups: Vec<Duration>,
    pub(super) folded: f64,
    pub(super) restored: f64,
    has_losses: bool,
}

impl Replica {
    /// A replica that is not started.
    pub(super) fn new(number: usize, binary: &Path, store: &Store, logs: &Path) -> Result<Self, BenchError> {
        let name = format!("replica-{number}");
        let (page, admin, own) = (free_port()?, free_port()?, free_port()?);
        let places = [
            ("CLUSTER", CLUSTER.to_owned()),
            ("ENGINE", store.of_replica(number)),
            ("LAG", format!("{}s", MAX_LAG.as_secs())),
            ("CONFIRMS", store.confirms().to_string()),
            ("ADMIN", admin.to_string()),
            ("PAGE", page.to_string()),
            ("OWN", own.to_string()),
        ];
        let fill = |text: String, (place, value): (&str, String)| text.replace(place, &value);
        Ok(Self {
            member: Member::new(name, logs),
            page,
            admin,
            own,
            binary: binary.to_owned(),
            config: places.into_iter().fold(CONFIG.to_owned(), fill),
            waits_since: None,
            catch_ups: Vec::new(),
            folded: 0.0,
            restored: 0.0,
            has_losses: false,
        })
    }

    pub(super) fn start(&mut self) -> Result<(), BenchError> {
        let (binary, config) = (&self.binary, &self.config);
        self.member
            .start(|directory| command(binary, directory.path(), config))?;
        self.waits_since = Some(Instant::now());
        Ok(())
    }

    /// SIGKILL, after a look at its own metrics.
    pub(super) fn kill(&mut self, violations: &Violations) {
        // It may be too busy to answer.
        if self.is_ready()
            && let Ok(page) = self.own_page()
        {
            self.folded += sum(&page, "tidegate_cluster_folded_runs_total");
            self.restored += sum(&page, RESTORED);
            let check = format!("{} before it is killed", self.member.name);
            violations.add_all(&check, &self.wrong_lines(&page));
        }
        self.member.kill();
        self.waits_since = None;
    }

    /// The store has lost something on purpose.
    pub(super) fn expect_losses(&mut self) {
        self.has_losses = true;
    }

    /// The server is reachable again: a replica that waits could not be ready before.
    pub(super) fn note_server(&mut self) {
        self.waits_since = self.waits_since.map(|_| Instant::now());
    }

    /// Whether it has been ready since its start.
    pub(super) fn is_ready(&self) -> bool {
        self.member.runs() && self.waits_since.is_none()
    }

    /// Notes when it becomes ready.
    pub(super) fn look(&mut self) {
        if let Some(since) = self.waits_since
            && self.member.runs()
            && Scraper::connect_within(self.admin, "/-/ready", LOOK)
                .is_ok_and(|mut admin| admin.get().is_ok())
        {
            self.catch_ups.push(since.elapsed());
            self.waits_since = None;
        }
    }

    /// Its own counts that should be 0.
    pub(super) fn wrong_counts(&self) -> Result<Vec<String>, BenchError> {
        Ok(self.wrong_lines(&self.own_page()?))
    }

    fn own_page(&self) -> Result<String, BenchError> {
        let mut own = Scraper::connect_within(self.own, "/metrics", LOOK)?;
        Ok(own.get()?.to_owned())
    }

    fn wrong_lines(&self, page: &str) -> Vec<String> {
        let lines = page.lines().filter(|line| {
            let value = line.rsplit(' ').next().unwrap_or_default();
            let is_counted = ZEROS.iter().any(|zero| line.starts_with(zero)) && value != "0";
            let is_loss = self.has_losses && [LOSSES, RESTORED].iter().any(|loss| line.starts_with(loss));
            is_counted && !is_loss && !EXPECTED.iter().any(|expected| line.contains(expected))
        });
        lines.map(str::to_owned).collect()
    }

    /// One of its own metrics.
    pub(super) fn own_metric(&self, metric: &str) -> Result<f64, BenchError> {
        Scraper::connect_within(self.own, "/metrics", LOOK)?.sum(metric)
    }
}
