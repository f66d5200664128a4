// SPDX-License-Identifier: Apache-2.0

//! The load: counters of agents with two labels, all of which count between two feeds.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::NumberDataPoint;
use prost::Message;
use tidegate_requests::{attribute, counter, int};

use crate::BenchError;
use crate::http::Scraper;
use crate::otlp::load::now_ns;

const METRICS: usize = 100;
const AGENTS: usize = 500;
pub(super) const SERIES: usize = METRICS * AGENTS;
/// Metrics of a request: 5,000 points, as SDKs and agents send them at most.
const METRICS_A_REQUEST: usize = 10;
/// Points began so long before they are pushed.
const AGE_NS: u64 = 3_600_000_000_000;

/// The value of a counter after `feeds` feeds.
fn value(metric: usize, agent: usize, feeds: u64) -> u64 {
    (metric * agent) as u64 + feeds
}

fn labels(agent: usize) -> [(&'static str, String); 2] {
    [
        ("agent_name", format!("agent_{agent}")),
        ("hostname", format!("node-{}", agent / 8)),
    ]
}

/// The target that is scraped.
#[derive(Default)]
pub(super) struct ScrapeTarget {
    /// Until then it shows nothing, so that a program can be looked at that knows no series.
    pub(super) is_open: AtomicBool,
    /// Pages of all series that were asked for.
    pub(super) asked: AtomicU64,
}

impl ScrapeTarget {
    /// Answers every request on this port, in threads that end with the process.
    pub(super) fn serve() -> Result<(Arc<Self>, u16), BenchError> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let target = Arc::<Self>::default();
        let served = target.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let target = served.clone();
                std::thread::spawn(move || target.answer(&stream));
            }
        });
        Ok((target, port))
    }

    /// Answers until the other side has enough.
    fn answer(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut requests = BufReader::new(stream);
        let mut writer = stream;
        let mut line = String::new();
        loop {
            while line != "\r\n" {
                line.clear();
                if requests.read_line(&mut line)? == 0 {
                    return Ok(());
                }
            }
            line.clear();
            let page = self.page();
            let length = page.len();
            write!(
                writer,
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {length}\r\n\r\n{page}"
            )?;
        }
    }

    fn page(&self) -> String {
        let mut page = String::new();
        if !self.is_open.load(Relaxed) {
            return page;
        }
        let feeds = self.asked.fetch_add(1, Relaxed);
        let labels: Vec<_> = (0..AGENTS)
            .map(|agent| {
                labels(agent)
                    .map(|(name, value)| format!("{name}=\"{value}\""))
                    .join(",")
            })
            .collect();
        for metric in 0..METRICS {
            let _ = writeln!(page, "# TYPE bench_things_{metric}_total counter");
            for (agent, labels) in labels.iter().enumerate() {
                let value = value(metric, agent, feeds);
                let _ = writeln!(page, "bench_things_{metric}_total{{{labels}}} {value}");
            }
        }
        page
    }
}

/// Pushes all series over OTLP.
pub(super) struct Pusher {
    connection: Scraper,
    pub(super) feeds: u64,
}

impl Pusher {
    pub(super) fn connect(port: u16) -> Result<Self, BenchError> {
        Ok(Self {
            connection: Scraper::connect(port, "/")?,
            feeds: 0,
        })
    }

    pub(super) fn push(&mut self) -> Result<(), BenchError> {
        let metrics: Vec<usize> = (0..METRICS).collect();
        for metrics in metrics.chunks(METRICS_A_REQUEST) {
            let request = request(metrics, self.feeds).encode_to_vec();
            self.connection
                .post("/v1/metrics", "application/x-protobuf", &request)?;
        }
        self.feeds += 1;
        Ok(())
    }
}

fn request(metrics: &[usize], feeds: u64) -> ExportMetricsServiceRequest {
    let now = now_ns();
    let point = |metric: usize, agent: usize| NumberDataPoint {
        attributes: labels(agent).map(|(name, value)| attribute(name, value)).into(),
        start_time_unix_nano: now - now % AGE_NS - AGE_NS,
        time_unix_nano: now,
        ..int(value(metric, agent, feeds).cast_signed())
    };
    let resource = vec![attribute("service.name", "bench")];
    let counter = |metric: &usize| {
        let points = (0..AGENTS).map(|agent| point(*metric, agent));
        counter(format!("bench.things_{metric}"), points)
    };
    tidegate_requests::request(resource, "", metrics.iter().map(counter))
}
