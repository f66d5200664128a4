// SPDX-License-Identifier: Apache-2.0

//! The `prometheus` exporter inside the test's own process, behind a Unix socket: starting one takes no process, so
//! that a property test can have one a case.

use super::http::{self, Response};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidegate::batch::{Batch, Points, Signal, wire};
use tidegate::component::{Context, Exporter, ExporterContext, Ledger, Shared};
use tidegate::config::{Problems, parse_text};
use tidegate::exporters::prometheus::FACTORY;
use tidegate_engine::Point;
use tokio::runtime::Runtime;

const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// Where exporters run and put their sockets.
pub(crate) struct Exposers {
    runtime: Runtime,
    directory: TempDir,
    started: AtomicU64,
}

impl Default for Exposers {
    fn default() -> Self {
        Self {
            runtime: Runtime::new().expect("a runtime"),
            directory: TempDir::new().expect("a temporary directory"),
            started: AtomicU64::new(0),
        }
    }
}

impl Exposers {
    /// Starts an exporter with these options (YAML of a flow mapping, without the endpoint).
    ///
    /// # Panics
    /// If the options are not valid or it doesn't start.
    pub(crate) fn start(&self, options: &str) -> Exposer<'_> {
        let number = self.started.fetch_add(1, Relaxed);
        let socket = self.directory.path().join(number.to_string());
        let yaml = format!("{{endpoint: 'unix:{}', {options}}}", socket.display());
        let mut problems = Problems::default();
        let node = parse_text("options.yaml", &yaml, &mut problems);
        let settings = node.and_then(|node| (FACTORY.config.decode)(&node, &mut problems));
        let settings = settings.unwrap_or_else(|| panic!("{problems}"));
        let ledger = Arc::new(Ledger::default());
        let exporter = (FACTORY.build)(
            &settings,
            ExporterContext {
                replaced: Vec::new(),
                base: Context {
                    path: "exporters::prometheus".into(),
                    id: "prometheus".into(),
                    shared: Arc::new(Shared::default()),
                },
                ledgers: Signal::ALL.map(|signal| (signal == Signal::Metrics).then(|| ledger.clone())),
            },
        );
        let exporter = exporter.expect("the exporter is built");
        // Without a graph, there are no tables of earlier components.
        exporter.show_tables(Vec::new());
        let started = self.runtime.block_on(exporter.start());
        started.expect("the exporter starts");
        Exposer {
            exposers: self,
            exporter,
            ledger,
            socket,
        }
    }
}

/// A running exporter; it stops when dropped.
pub(crate) struct Exposer<'a> {
    exposers: &'a Exposers,
    exporter: Arc<dyn Exporter>,
    ledger: Arc<Ledger>,
    socket: std::path::PathBuf,
}

impl Exposer<'_> {
    /// Gives it an OTLP request, and expects that every point of it is accounted for.
    pub(crate) fn push(&self, request: Vec<u8>) {
        let encoded = wire::check(Signal::Metrics, request.into()).expect("a request that can be read");
        self.take(Batch::new(encoded));
    }

    /// Gives it points, as a receiver that decodes does.
    pub(crate) fn push_points(&self, points: &[Point]) {
        self.take(Batch::new(Points {
            points: points.into(),
        }));
    }

    fn take(&self, batch: Batch) {
        self.ledger.enter(batch.items());
        let _guard = self.exposers.runtime.enter();
        self.exporter.push(batch).expect("it always has room");
        let balance = self.ledger.balance();
        let settled = balance.absorbed + balance.dropped_total();
        assert_eq!(
            settled, balance.entered,
            "every point is absorbed or dropped: {balance:?}"
        );
    }

    /// Its page in the format that an `Accept` header asks for; an empty one is not sent.
    pub(crate) fn scrape(&self, accept: &str) -> Response {
        let stream = UnixStream::connect(&self.socket).expect("the exporter listens");
        let headers = [("host", "exporter"), ("accept", accept)];
        let headers = if accept.is_empty() {
            &headers[..1]
        } else {
            &headers[..]
        };
        let answer = http::request_over(stream, "GET", "/metrics", headers, b"").expect("it answers");
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        answer
    }
}

impl Drop for Exposer<'_> {
    fn drop(&mut self) {
        let deadline = Instant::now() + STOP_DEADLINE;
        self.exposers.runtime.block_on(self.exporter.stop(deadline));
    }
}
