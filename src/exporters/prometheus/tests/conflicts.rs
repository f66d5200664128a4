// SPDX-License-Identifier: Apache-2.0

//! Metrics of several owners that collide, and the reports of these conflicts.

use super::*;

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
    let omitted = found["omitted"].as_array().unwrap();
    assert_eq!(omitted.len(), 1, "{found:#}");
    assert_eq!(found["left_out"], found["omitted"], "the old name");
    let one = &omitted[0];
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
    let one = found["omitted"]
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
        debug(&rig).await["omitted"],
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
    assert_eq!(found["omitted"], serde_json::json!([]));
    rig.stop().await;
}

#[tokio::test]
async fn collisions_are_counted_without_scrapes_and_cleared_by_their_thread() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let recorded = recorder.handle();
    let config: Arc<PrometheusExporterConfig> =
        settings::<PrometheusExporterConfig>("{endpoint: '127.0.0.1:0'}").get();
    let exporter = Prometheus::new(
        config.clone(),
        context("exporters", "prometheus"),
        Arc::default(),
        Vec::new(),
    );
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
    let handles = tables.iter().map(|table| {
        let handle = TableHandle::new(table);
        handle.open();
        handle
    });
    exporter.show_tables(handles.collect());
    let labels = "{exporter=\"prometheus\",format=\"text\",reason=\"type_clash\"}";
    let has_line = |line: String| recorded.render().lines().any(|recorded| recorded == line);
    let shows = |series: u64| has_line(format!("tidegate_prometheus_omitted_series{labels} {series}"));
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
