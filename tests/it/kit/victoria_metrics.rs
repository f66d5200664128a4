// SPDX-License-Identifier: Apache-2.0

//! A real VictoriaMetrics, a peer for remote write and for queries.

use super::process::Process;
use super::query_api::{QueryApi, percent_encode};
use super::{free_port, http, testenv};
use std::ops::Deref;
use std::process::Command;
use tempfile::TempDir;

/// A running server. [`QueryApi`] has its queries. Queries see the newest writes only after [`VictoriaMetrics::flush`].
pub(crate) struct VictoriaMetrics {
    process: Process,
    _directory: TempDir,
    api: QueryApi,
}

impl Deref for VictoriaMetrics {
    type Target = QueryApi;

    fn deref(&self) -> &QueryApi {
        &self.api
    }
}

impl VictoriaMetrics {
    /// Starts a server that takes remote writes at `/api/v1/write`, and waits until it's ready.
    pub(crate) fn start() -> Self {
        let (directory, port) = (TempDir::new().expect("a temporary directory"), free_port());
        let mut process = Process::start(
            "victoria-metrics",
            Command::new(testenv("debian-unstable/usr/bin/victoria-metrics"))
                .arg(format!("-storageDataPath={}", directory.path().display()))
                .arg(format!("-httpListenAddr=127.0.0.1:{port}"))
                .args(["-retentionPeriod=100y", "-memory.allowedBytes=64MiB"])
                // Answers are of now: neither delayed by half a minute nor remembered.
                .args(["-search.latencyOffset=1ms", "-search.disableCache"])
                .arg("-loggerLevel=WARN"),
        );
        process.wait_until("it is ready", || {
            http::get(port, "/health").is_ok_and(|response| response.status == 200)
        });
        Self {
            process,
            _directory: directory,
            api: QueryApi::at(port),
        }
    }

    /// Lets queries see all that was written until now.
    pub(crate) fn flush(&self) {
        let answer = http::get(self.port(), "/internal/force_flush").expect("it answers");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Every series that matches with its samples as they are stored: `metric`, `values`, `timestamps` (ms).
    pub(crate) fn export(&self, selector: &str) -> Vec<serde_json::Value> {
        let path = format!("/api/v1/export?match[]={}", percent_encode(selector));
        let answer = http::get(self.port(), &path).expect("it answers").text();
        let lines = answer.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("a line of JSON"))
            .collect()
    }

    /// Its log: warnings and errors.
    pub(crate) fn log(&self) -> String {
        self.process.stderr.text()
    }
}
