// SPDX-License-Identifier: Apache-2.0

//! A replica: the gateway under test, which shows the totals of all agents.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::agent::CLUSTER;
use super::check::Violations;
use super::fleet::Store;
use super::member::Member;
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
    "tidegate_cluster_losses_total",
    "tidegate_cluster_restored_records_total",
    "tidegate_cluster_failed_folds_total",
];

/// The reasons for which pages of ended runs are not merged. A replica that starts reads many of them.
const LATE: [&str; 2] = ["reason=\"lease_ended\"", "reason=\"final_run\""];

const CONFIG: &str = r#"
extensions:
  cluster: {name: CLUSTER, engine: ENGINE}
  admin: {endpoint: "127.0.0.1:ADMIN"}
receivers:
  partials: {cluster: cluster, max_lag: LAG}
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
}

impl Replica {
    /// A replica that is not started.
    pub(super) fn new(number: usize, binary: &Path, store: &Store, logs: &Path) -> Result<Self, BenchError> {
        let name = format!("replica-{number}");
        let engine = match store {
            Store::Nats(url) => format!("{{nats: {{servers: [\"{url}\"]}}}}"),
            Store::Direct(replicas) => format!(
                "{{direct: {{replicas: [\"{}\"], serve: {{endpoint: \"{}\", name: {name}, sync_timeout: 5s}}}}}}",
                replicas.join("\", \""),
                replicas[number]
            ),
        };
        let (page, admin, own) = (free_port()?, free_port()?, free_port()?);
        let places = [
            ("CLUSTER", CLUSTER.to_owned()),
            ("ENGINE", engine),
            ("LAG", format!("{}s", MAX_LAG.as_secs())),
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
        if self.is_ready() {
            // It may be too busy to answer.
            let wrong = self.wrong_counts().unwrap_or_default();
            violations.add_all(&format!("{} before it is killed", self.member.name), &wrong);
        }
        self.member.kill();
        self.waits_since = None;
    }

    /// The server has just started: a replica that waits could not be ready before.
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
    pub(super) fn wrong_counts(&mut self) -> Result<Vec<String>, BenchError> {
        let mut own = Scraper::connect_within(self.own, "/metrics", LOOK)?;
        let page = own.get()?;
        self.folded += sum(page, "tidegate_cluster_folded_runs_total");
        let lines = page.lines().filter(|line| {
            let value = line.rsplit(' ').next().unwrap_or_default();
            let is_counted = ZEROS.iter().any(|zero| line.starts_with(zero)) && value != "0";
            is_counted && !LATE.iter().any(|late| line.contains(late))
        });
        Ok(lines.map(str::to_owned).collect())
    }

    /// One of its own metrics.
    pub(super) fn own_metric(&self, metric: &str) -> Result<f64, BenchError> {
        Scraper::connect_within(self.own, "/metrics", LOOK)?.sum(metric)
    }
}
