// SPDX-License-Identifier: Apache-2.0

//! The exporter scraped over a socket, fed with each kind of payload.

mod conflicts;
mod requests;
mod tables;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::{
    Attributes, Data, Grouping, Limits, Metric, Pattern, Point, Resource, Rule, Scope, Series, Table,
    Temporality, Value,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::batch::{Payload, Points};
use crate::component::testing::{context, settings};
use crate::net::Endpoint;

struct Rig {
    exporter: Prometheus,
    ledger: Arc<Ledger>,
}

impl Rig {
    async fn start(more: &str) -> Self {
        let rig = Self::listen(more).await;
        rig.exporter.show_tables(Vec::new());
        rig
    }

    /// An exporter that listens, and has no tables of earlier components yet.
    async fn listen(more: &str) -> Self {
        let rig = Self::build(more, Arc::default(), Vec::new());
        rig.exporter.start().await.unwrap();
        rig
    }

    fn build(more: &str, ledger: Arc<Ledger>, replaced: Vec<Arc<Table>>) -> Self {
        let settings = settings::<PrometheusExporterConfig>(&format!("{{endpoint: '127.0.0.1:0', {more}}}"));
        let base = context("exporters", "prometheus");
        let exporter = Prometheus::new(settings.get(), base, ledger.clone(), replaced);
        Self { exporter, ledger }
    }

    /// Replaces some exporters, of which the first is the newest and still runs.
    async fn replacing(olds: &[&Self], more: &str) -> Self {
        let tables = olds.iter().map(|old| old.exporter.views.own.clone());
        let new = Self::build(more, olds[0].ledger.clone(), tables.collect());
        olds[0].end().await;
        new.exporter.start().await.unwrap();
        new.exporter.show_tables(Vec::new());
        new
    }

    fn push(&self, payload: impl Into<Payload>) {
        self.push_batch(Batch::new(payload));
    }

    fn push_batch(&self, batch: Batch) {
        self.ledger.enter(batch.items());
        self.exporter.push(batch).unwrap();
    }

    /// Attaches the table of a processor that has started.
    fn attach(&self, table: &Arc<Table>) {
        let handle = TableHandle::new(table);
        handle.open();
        self.exporter.views.live.lock().push(handle);
    }

    fn address(&self) -> String {
        match self.exporter.server.local() {
            Endpoint::Tcp { port, .. } => format!("127.0.0.1:{port}"),
            Endpoint::Unix(path) => panic!("{}", path.display()),
        }
    }

    /// Status line and headers, and body, of a request with these headers.
    async fn ask(&self, request: &str, headers: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(self.address()).await.unwrap();
        let request = format!("{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let end = answer
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .unwrap();
        let body = answer.split_off(end + 4);
        (String::from_utf8(answer).unwrap().to_ascii_lowercase(), body)
    }

    async fn scrape(&self) -> String {
        let (head, body) = self.ask("GET /metrics", "").await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        String::from_utf8(body).unwrap()
    }

    /// Waits until a scrape waits for the tables of earlier components.
    async fn until_awaited(&self) {
        let awaited = async {
            while !self.exporter.views.are_awaited() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), awaited)
            .await
            .expect("a scrape waits");
    }

    async fn end(&self) {
        self.exporter.stop(Instant::now() + Duration::from_secs(10)).await;
    }

    async fn stop(self) {
        self.end().await;
    }
}

const COUNTER: Data = Data::Sum {
    monotonic: true,
    temporality: Temporality::Cumulative,
};

fn point(name: &str, data: Data, value: i64) -> Point {
    Point {
        series: Arc::new(Series {
            resource: Arc::<Resource>::default(),
            scope: Arc::<Scope>::default(),
            metric: Arc::new(Metric {
                name: name.into(),
                description: "".into(),
                unit: "".into(),
                data,
                metadata: Attributes::default(),
            }),
            attributes: [("user", "a")].into_iter().collect(),
        }),
        start: 1,
        time: unix_now(),
        value: Value::Int(value),
        exemplars: Vec::new(),
    }
}

/// A table that a processor keeps, with one counter.
fn live_table(owner: &str, value: i64) -> Arc<Table> {
    let rule = Rule {
        grouping: Grouping::by(["user"]),
        ..Rule::new(Pattern::Glob("*".into()))
    };
    let table = Arc::new(Table::new(owner, vec![rule], Limits::default()));
    table.observe(&point("hits", COUNTER, value), unix_now());
    table
}

fn plain(points: &[Point]) -> Points {
    Points {
        points: points.into(),
    }
}
