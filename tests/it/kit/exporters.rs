// SPDX-License-Identifier: Apache-2.0

//! Real exporters that the gateway scrapes: node exporter, pushgateway.

use super::process::Process;
use super::{free_port, http, testenv};
use std::process::Command;

/// A running exporter with its page at `/metrics`.
pub(crate) struct Exporter {
    process: Process,
    port: u16,
}

impl Exporter {
    /// Debian's node exporter with the collectors it has by default.
    pub(crate) fn node() -> Self {
        Self::start("prometheus-node-exporter", &[], "/metrics")
    }

    /// A pushgateway that holds nothing yet and takes names of any character.
    pub(crate) fn pushgateway() -> Self {
        let flags = ["--push.enable-utf8-names", "--persistence.file="];
        Self::start("prometheus-pushgateway", &flags, "/-/ready")
    }

    fn start(program: &str, flags: &[&str], ready: &str) -> Self {
        let port = free_port();
        let mut process = Process::start(
            program,
            Command::new(testenv("debian-unstable/usr/bin").join(program))
                .arg(format!("--web.listen-address=127.0.0.1:{port}"))
                .arg("--log.level=error")
                .args(flags),
        );
        process.wait_until("it is ready", || {
            http::get(port, ready).is_ok_and(|response| response.status == 200)
        });
        Self { process, port }
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Pushes a page of text to the pushgateway under a grouping such as `job/batch/instance/a`.
    ///
    /// # Panics
    /// If it refuses the page.
    pub(crate) fn push(&self, grouping: &str, page: &str) {
        let path = format!("/metrics/{grouping}");
        let answer = http::request("PUT", self.port, &path, &[], page.as_bytes());
        let answer = answer.expect("the pushgateway answers");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Its page in the format that an `Accept` header asks for.
    pub(crate) fn page(&self, accept: &str) -> http::Response {
        let answer = http::request("GET", self.port, "/metrics", &[("accept", accept)], b"");
        answer.expect("the exporter answers")
    }
}
