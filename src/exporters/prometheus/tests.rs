// SPDX-License-Identifier: Apache-2.0

//! The exporter scraped over a socket, fed with each kind of payload.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::{
    Attributes, Data, Grouping, Limits, Metric, Pattern, Point, Resource, Rule, Scope, Series, Table,
    Temporality, Value,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::batch::{Points, convert};
use crate::component::auth::{Authenticator, Unauthenticated};
use crate::component::services::Services;
use crate::component::testing::{context, settings};
use crate::net::Endpoint;

struct Rig {
    exporter: Prometheus,
    ledger: Arc<Ledger>,
}

impl Rig {
    async fn start(more: &str) -> Self {
        let settings = settings::<PrometheusExporterConfig>(&format!("{{endpoint: '127.0.0.1:0', {more}}}"));
        let ledger = Arc::new(Ledger::default());
        let base = context("exporters", "prometheus");
        let exporter = Prometheus::new(settings.get(), base, ledger.clone());
        exporter.start().await.unwrap();
        Self { exporter, ledger }
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
        self.exporter.attach_table(handle);
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

    async fn stop(self) {
        self.exporter.stop(Instant::now() + Duration::from_secs(10)).await;
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

#[tokio::test]
async fn points_encoded_or_not_are_shown_and_counted_as_absorbed() {
    let rig = Rig::start("").await;
    rig.push(plain(&[point("hits", COUNTER, 3)]));
    rig.push(convert::encode_points(&[point("heat", Data::Gauge, 40)]));
    let page = rig.scrape().await;
    assert!(
        page.contains("\nhits_total{user=\"a\"} 3\n") && page.contains("\nheat{user=\"a\"} 40\n"),
        "{page}"
    );
    let balance = rig.ledger.balance();
    assert_eq!((balance.entered, balance.absorbed), (2, 2));
    rig.stop().await;
}

#[tokio::test]
async fn a_live_table_is_read_at_each_scrape_and_goes_with_its_processor() {
    let rig = Rig::start("").await;
    let table = live_table("processors::aggregate@metrics", 3);
    rig.attach(&table);
    assert!(rig.scrape().await.contains("hits_total{user=\"a\"} 3\n"));
    table.observe(&point("hits", COUNTER, 8), unix_now());
    assert!(
        rig.scrape().await.contains("hits_total{user=\"a\"} 8\n"),
        "nothing was pushed in between"
    );
    drop(table);
    assert_eq!(rig.scrape().await, "");
    rig.stop().await;
}

#[tokio::test]
async fn a_table_is_shown_once_it_is_open_and_its_snapshots_are_not_kept() {
    let rig = Rig::start("").await;
    let table = live_table("processors::aggregate@metrics", 3);
    let handle = TableHandle::new(&table);
    rig.exporter.attach_table(handle.clone());
    let snapshot = |owner: &str| Batch {
        snapshot_of: Some(owner.into()),
        ..Batch::new(plain(&[point("hits", COUNTER, 2)]))
    };
    rig.push_batch(snapshot("processors::aggregate@metrics"));
    assert_eq!(rig.scrape().await, "");
    handle.open();
    assert!(rig.scrape().await.contains("hits_total{user=\"a\"} 3\n"));
    assert!(rig.exporter.views.own.is_empty());
    rig.push_batch(snapshot("processors::aggregate@metrics/other"));
    assert_eq!(rig.exporter.views.own.len(), 1);
    assert_eq!(rig.ledger.balance().absorbed, 2);
    rig.stop().await;
}

#[tokio::test]
async fn two_live_tables_with_one_series_show_the_first() {
    let rig = Rig::start("").await;
    let (one, two) = (
        live_table("aggregate@metrics/a", 1),
        live_table("aggregate@metrics/b", 2),
    );
    rig.attach(&one);
    rig.attach(&two);
    let page = rig.scrape().await;
    assert!(page.contains("} 1\n") && !page.contains("} 2\n"), "{page}");
    rig.stop().await;
}

#[tokio::test]
async fn what_no_longer_comes_expires_whether_or_not_anyone_scrapes() {
    let rig = Rig::start("metric_expiration: 50ms").await;
    rig.push(plain(&[point("hits", COUNTER, 3)]));
    assert_eq!(rig.exporter.views.own.len(), 1);
    let gone = async {
        while !rig.exporter.views.own.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone)
        .await
        .expect("it expires");
    assert_eq!(rig.scrape().await, "");
    rig.stop().await;
}

#[tokio::test]
async fn the_format_is_negotiated_only_where_it_is_enabled() {
    let accept = "accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    for (options, wanted) in [
        ("", "text/plain"),
        ("enable_open_metrics: true", "application/openmetrics-text"),
    ] {
        let rig = Rig::start(options).await;
        rig.push(plain(&[point("hits", COUNTER, 3)]));
        let (head, body) = rig.ask("GET /metrics", accept).await;
        assert!(head.contains(&format!("content-type: {wanted};")), "{head}");
        assert!(head.contains("vary: accept, accept-encoding"), "{head}");
        assert_eq!(body.ends_with(b"# EOF\n"), !options.is_empty());
        rig.stop().await;
    }
}

#[tokio::test]
async fn gzip_is_used_where_it_is_accepted() {
    let rig = Rig::start("").await;
    rig.push(plain(&[point("hits", COUNTER, 3)]));
    let (head, body) = rig
        .ask("GET /metrics", "accept-encoding: br, gzip;q=0.5\r\n")
        .await;
    assert!(head.contains("content-encoding: gzip"), "{head}");
    let mut page = String::new();
    flate2::read::GzDecoder::new(&*body)
        .read_to_string(&mut page)
        .unwrap();
    assert_eq!(page, rig.scrape().await);
    let (head, _) = rig.ask("GET /metrics", "accept-encoding: gzip;q=0\r\n").await;
    assert!(!head.contains("content-encoding"), "{head}");
    rig.stop().await;
}

#[tokio::test]
async fn pages_have_the_coding_that_the_client_prefers() {
    let rig = Rig::start("").await;
    rig.push(plain(&[point("hits", COUNTER, 3)]));
    for (accepted, coding) in [
        ("gzip, zstd", "content-encoding: zstd"),
        ("gzip;q=0.9, zstd;q=0.1", "content-encoding: gzip"),
    ] {
        let header = format!("accept-encoding: {accepted}\r\n");
        let (head, body) = rig.ask("GET /metrics", &header).await;
        assert!(head.contains(coding), "{head}");
        let (head_only, nothing) = rig.ask("HEAD /metrics", &header).await;
        assert!(nothing.is_empty());
        let length = format!("content-length: {}", body.len());
        assert!(
            head.contains(&length) && head_only.contains(&length),
            "{head_only}"
        );
        if coding.ends_with("zstd") {
            let page = zstd::decode_all(&*body).unwrap();
            assert_eq!(String::from_utf8(page).unwrap(), rig.scrape().await);
        }
    }
    rig.stop().await;
}

#[tokio::test]
async fn names_are_escaped_as_the_scraper_wants_them() {
    let rig = Rig::start("translation_strategy: NoUTF8EscapingWithSuffixes").await;
    let mut hits = point("http.hits", COUNTER, 3);
    Arc::make_mut(&mut hits.series).attributes = [("http.method", "GET")].into_iter().collect();
    rig.push(plain(&[hits]));
    for (accept, said, line) in [
        (
            "",
            "version=0.0.4; charset=utf-8\r\n",
            "http_hits_total{http_method=\"GET\"} 3",
        ),
        (
            "accept: text/plain;version=1.0.0;escaping=values\r\n",
            "version=1.0.0; charset=utf-8; escaping=values\r\n",
            "U__http_2e_hits__total{U__http_2e_method=\"GET\"} 3",
        ),
        (
            "accept: text/plain;version=1.0.0;escaping=dots\r\n",
            "version=1.0.0; charset=utf-8; escaping=dots\r\n",
            "http_dot_hits__total{http_dot_method=\"GET\"} 3",
        ),
    ] {
        let (head, body) = rig.ask("GET /metrics", accept).await;
        assert!(head.contains(said), "{head}");
        let page = String::from_utf8(body).unwrap();
        assert!(page.lines().any(|shown| shown == line), "{page}");
    }
    rig.stop().await;
}

#[tokio::test]
async fn only_authenticated_clients_may_scrape() {
    let more = "auth: {authenticator: doorman}, response_headers: {x-team: blue}";
    let settings = settings::<PrometheusExporterConfig>(&format!("{{endpoint: '127.0.0.1:0', {more}}}"));
    let base = context("exporters", "prometheus");
    let services = Services {
        authenticator: Some(Arc::new(Doorman)),
        ..Services::default()
    };
    base.shared.services.add("doorman".to_owned(), services);
    let exporter = Prometheus::new(settings.get(), base, Arc::default());
    exporter.start().await.unwrap();
    let rig = Rig {
        exporter,
        ledger: Arc::default(),
    };
    for path in ["/metrics", "/elsewhere"] {
        let (head, body) = rig.ask(&format!("GET {path}"), "").await;
        assert!(head.starts_with("http/1.1 401"), "{head}");
        assert!(
            head.contains("www-authenticate: pass") && head.contains("x-team: blue"),
            "{head}"
        );
        assert!(std::str::from_utf8(&body).unwrap().contains("\"no pass\""));
    }
    let (head, _) = rig.ask("GET /metrics", "pass: 1\r\n").await;
    assert!(
        head.starts_with("http/1.1 200") && head.contains("x-team: blue"),
        "{head}"
    );
    rig.stop().await;
}

/// Admits requests with the header `pass`.
struct Doorman;

#[async_trait]
impl Authenticator for Doorman {
    async fn check(
        &self,
        headers: &http::HeaderMap,
        _: Option<std::net::IpAddr>,
    ) -> Result<(), Unauthenticated> {
        let shown = headers.contains_key("pass");
        shown.then_some(()).ok_or(Unauthenticated::Wrong("no pass"))
    }

    fn identity(&self, headers: &http::HeaderMap) -> Option<crate::component::account::SenderKey> {
        let header = headers.get(http::header::AUTHORIZATION);
        header.map(crate::component::account::SenderKey::of)
    }

    fn challenge(&self) -> http::HeaderValue {
        http::HeaderValue::from_static("Pass")
    }
}

#[tokio::test]
async fn other_methods_and_paths_get_errors_that_name_the_valid_ones() {
    let rig = Rig::start("path: /prom").await;
    rig.push(plain(&[point("hits", COUNTER, 3)]));
    let (head, body) = rig.ask("HEAD /prom", "").await;
    assert!(head.starts_with("http/1.1 200") && body.is_empty(), "{head}");
    let (head, _) = rig.ask("POST /prom", "content-length: 0\r\n").await;
    assert!(
        head.starts_with("http/1.1 405") && head.contains("allow: get, head"),
        "{head}"
    );
    let (head, body) = rig.ask("GET /metrics", "").await;
    assert!(head.starts_with("http/1.1 404"), "{head}");
    assert_eq!(body, b"metrics are at /prom\n");
    rig.stop().await;
}

#[tokio::test]
async fn series_beyond_a_cap_share_one_and_are_counted() {
    for (cap, why) in [
        ("max_series: 1", Overflow::Series),
        ("max_series_per_metric: 1", Overflow::Metric),
    ] {
        let rig = Rig::start(cap).await;
        let other = |user: &str| {
            let mut other = point("hits", COUNTER, 5);
            Arc::make_mut(&mut other.series).attributes = [("user", user)].into_iter().collect();
            other
        };
        rig.push(plain(&[point("hits", COUNTER, 3), other("b"), other("c")]));
        let page = rig.scrape().await;
        assert!(page.contains("hits_total{user=\"a\"} 3\n"), "{page}");
        assert!(
            page.contains("hits_total{otel_metric_overflow=\"true\"} 10\n"),
            "{page}"
        );
        let balance = rig.ledger.balance();
        assert_eq!((balance.entered, balance.absorbed), (3, 3), "nothing is lost");
        let stats = rig.exporter.views.own.stats();
        assert_eq!(stats.overflowed_streams[why as usize], 2, "{cap}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_series_with_an_end_marker_disappears() {
    let rig = Rig::start("").await;
    let (hits, heat) = (point("hits", COUNTER, 3), point("heat", Data::Gauge, 40));
    rig.push(plain(&[hits.clone(), heat.clone()]));
    assert!(rig.scrape().await.contains("hits_total{user=\"a\"} 3\n"));
    let ended = |point: Point| Point {
        time: point.time + 1,
        value: Value::NoRecordedValue,
        ..point
    };
    rig.push(plain(&[ended(hits.clone()), ended(heat)]));
    assert_eq!(rig.scrape().await, "");
    rig.push(plain(&[Point {
        time: hits.time + 2,
        start: hits.time + 2,
        value: Value::Int(1),
        ..hits
    }]));
    let page = rig.scrape().await;
    assert!(
        page.contains("hits_total{user=\"a\"} 1\n"),
        "it may come back: {page}"
    );
    rig.stop().await;
}

/// A table with one series of this metric.
fn table_of(owner: &str, name: &str, data: Data, description: &str) -> Arc<Table> {
    let table = Arc::new(Table::new(owner, vec![Rule::newest()], Limits::default()));
    let mut point = point(name, data, 1);
    let series = Arc::make_mut(&mut point.series);
    Arc::make_mut(&mut series.metric).description = description.into();
    series.attributes = [("owner", owner)].into_iter().collect();
    table.observe(&point, unix_now());
    table
}

async fn debug(rig: &Rig) -> serde_json::Value {
    let (head, body) = rig.ask("GET /debug", "").await;
    assert!(head.contains("content-type: application/json"), "{head}");
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn a_clash_of_types_leaves_the_later_metric_out_and_names_both_owners() {
    let rig = Rig::start("enable_open_metrics: true").await;
    let first = table_of("aggregate/a", "queue.depth", Data::Gauge, "");
    let later = table_of("aggregate/b", "queue_depth", COUNTER, "");
    let clash = table_of("aggregate/c", "queue_depth_total", Data::Gauge, "");
    for table in [&first, &later, &clash] {
        rig.attach(table);
    }
    let before = unix_now();
    let found = debug(&rig).await;
    let left_out = found["left_out"].as_array().unwrap();
    assert_eq!(left_out.len(), 1, "{found:#}");
    let one = &left_out[0];
    assert_eq!(
        (&one["metric"], &one["owner"], &one["rival"], &one["series"]),
        (
            &"queue_depth_total".into(),
            &"aggregate/c".into(),
            &"aggregate/b".into(),
            &1.into()
        )
    );
    assert_eq!(one["formats"], serde_json::json!(["text"]));
    let since = humantime::parse_rfc3339(one["since"].as_str().unwrap()).unwrap();
    let since = since.elapsed().unwrap().as_nanos() as u64;
    assert!(since <= unix_now() - before + 10_000_000, "{found:#}");

    let page = rig.scrape().await;
    assert!(page.contains("queue_depth{owner=\"aggregate/a\"} 1\n"), "{page}");
    assert!(
        page.contains("queue_depth_total{owner=\"aggregate/b\"} 1\n"),
        "{page}"
    );
    assert!(!page.contains("aggregate/c"), "{page}");

    // In OpenMetrics the counter's family is `queue_depth`, which is the gauge's.
    let accept = "accept: application/openmetrics-text;version=1.0.0\r\n";
    rig.ask("GET /metrics", accept).await;
    let found = debug(&rig).await;
    let of_counter = |one: &&serde_json::Value| one["owner"] == "aggregate/b";
    let one = found["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .find(of_counter)
        .unwrap();
    assert_eq!(
        (&one["rival"], &one["formats"][0]),
        (&"aggregate/a".into(), &"openmetrics".into())
    );

    drop((later, first));
    rig.ask("GET /metrics", accept).await;
    rig.scrape().await;
    assert_eq!(
        debug(&rig).await["left_out"],
        serde_json::json!([]),
        "the names are free"
    );
    assert!(
        rig.scrape()
            .await
            .contains("queue_depth_total{owner=\"aggregate/c\"} 1\n")
    );
    rig.stop().await;
}

#[tokio::test]
async fn metrics_described_differently_share_a_family_and_one_comment() {
    let rig = Rig::start("").await;
    let tables = [
        table_of("aggregate/a", "depth", Data::Gauge, "how deep"),
        table_of("aggregate/b", "depth", Data::Gauge, "how very deep"),
        table_of("aggregate/c", "depth", Data::Gauge, ""),
    ];
    for table in &tables {
        rig.attach(table);
    }
    let page = rig.scrape().await;
    assert_eq!(page.matches("# HELP depth how deep\n").count(), 1, "{page}");
    assert_eq!(page.matches("# HELP").count(), 1, "{page}");
    assert_eq!(page.matches("depth{owner=").count(), 3, "{page}");
    let found = debug(&rig).await;
    let differences = found["described_differently"].as_array().unwrap();
    assert_eq!(differences.len(), 1, "{found:#}");
    let one = &differences[0];
    assert_eq!(
        (&one["family"], &one["owner"], &one["shown"], &one["differs_in"]),
        (
            &"depth".into(),
            &"aggregate/b".into(),
            &"aggregate/a".into(),
            &"description".into()
        )
    );
    assert_eq!(found["left_out"], serde_json::json!([]));
    rig.stop().await;
}

#[tokio::test]
async fn namespace_constant_labels_and_times_come_out_as_configured() {
    let mut hit = point("hits", COUNTER, 3);
    hit.time = 1_700_000_000_123_456_789;
    let series = Arc::make_mut(&mut hit.series);
    series.attributes = [("user", "a"), ("cluster", "theirs")].into_iter().collect();
    series.resource = Arc::new(Resource {
        attributes: [("service.name", "s"), ("service.instance.id", "i"), ("pod", "p")]
            .into_iter()
            .collect(),
        schema_url: "".into(),
    });
    let written = |page: String| -> Vec<String> {
        let lines = page.lines().filter(|line| !line.starts_with("# HELP "));
        lines.map(str::to_owned).collect()
    };
    let rig =
        Rig::start("namespace: my.site, const_labels: {cluster: \"a\\\"b\"}, send_timestamps: true").await;
    rig.push(plain(std::slice::from_ref(&hit)));
    assert_eq!(
        written(rig.scrape().await),
        [
            "# TYPE my_site_hits_total counter",
            "my_site_hits_total{cluster=\"a\\\"b\",instance=\"i\",job=\"s\",user=\"a\"} 3 1700000000123",
            "# TYPE my_site_target_info gauge",
            "my_site_target_info{instance=\"i\",job=\"s\",pod=\"p\"} 1",
        ]
    );
    rig.stop().await;
    let rig = Rig::start("").await;
    rig.push(plain(&[hit]));
    assert_eq!(
        written(rig.scrape().await)[..2],
        [
            "# TYPE hits_total counter",
            "hits_total{cluster=\"theirs\",instance=\"i\",job=\"s\",user=\"a\"} 3",
        ]
    );
    rig.stop().await;
}

#[tokio::test]
async fn collisions_are_counted_without_scrapes_and_cleared_by_their_thread() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let recorded = recorder.handle();
    let config: Arc<PrometheusExporterConfig> =
        settings::<PrometheusExporterConfig>("{endpoint: '127.0.0.1:0'}").get();
    let exporter = Prometheus::new(config.clone(), context("exporters", "prometheus"), Arc::default());
    let pages = Arc::new(Pages::new(
        config,
        exporter.views.clone(),
        "prometheus".into(),
        Arc::default(),
    ));
    let own = exporter.views.own.clone();
    let worker = Worker::new("test-worker");
    let work = move |pause: &Pause| {
        metrics::with_local_recorder(&recorder, || keep(&own, &pages, &"prometheus".into(), pause));
    };
    worker.start(work).unwrap();
    let tables = [
        table_of("aggregate/a", "depth_total", Data::Gauge, ""),
        table_of("aggregate/b", "depth", COUNTER, ""),
    ];
    for table in &tables {
        let handle = TableHandle::new(table);
        handle.open();
        exporter.attach_table(handle);
    }
    let labels = "{exporter=\"prometheus\",format=\"text\",reason=\"type_clash\"}";
    let has_line = |line: String| recorded.render().lines().any(|recorded| recorded == line);
    let shows = |series: u64| has_line(format!("tidegate_prometheus_left_out_series{labels} {series}"));
    let found = async {
        while !shows(1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(30), found).await;
    assert!(found.is_ok(), "{}", recorded.render());
    assert!(has_line(format!(
        "tidegate_prometheus_conflicting_series_total{labels} 1"
    )));
    worker.stop(Instant::now() + Duration::from_secs(10)).await;
    assert!(
        shows(0),
        "only that thread has this recorder: {}",
        recorded.render()
    );
}
