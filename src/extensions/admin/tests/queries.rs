// SPDX-License-Identifier: Apache-2.0

//! Queries, and what Prometheus' API says of series.

use serde_json::json;
use tidegate_engine::AttributeValue;

use super::*;

#[tokio::test]
async fn a_heavy_query_without_memory_is_refused_and_takes_none_from_senders() {
    let (admin, table) = with_table("").await;
    for job in ["a", "b", "c", "d"] {
        table.observe(&point("level", Data::Gauge, job, 7), unix_now());
    }
    let end = unix_now() / 1_000_000_000 + 2;
    let range = |seconds: u64| {
        let start = end - seconds;
        format!("/api/v1/query_range?query=level&start={start}&end={end}&step=1")
    };
    let memory = &admin.base.shared.memory;
    memory.add_limit(crate::component::Limit::of(1 << 30));
    assert_eq!(get(&admin, &range(10_000)).await.0, 200);
    memory.hold(784 << 20);
    let (status, answer) = get(&admin, &range(10_000)).await;
    assert_eq!((status, &answer["errorType"]), (503, &json!("unavailable")));
    assert_eq!(get(&admin, &range(10)).await.0, 200, "little is there");
    assert_eq!(get(&admin, "/api/v1/labels").await.0, 200);
    assert_eq!(memory.reserved_bytes(), 784 << 20);
    memory.release(784 << 20);
    assert_eq!(get(&admin, &range(10_000)).await.0, 200);
    admin.stop(Instant::now() + Duration::from_secs(10)).await;
}

/// Values that the store never confirms.
#[derive(Debug)]
struct Unconfirmed;

#[async_trait]
impl crate::component::Confirm for Unconfirmed {
    async fn confirm(&self) -> bool {
        std::future::pending().await
    }
}

#[tokio::test]
async fn the_wait_for_the_store_ends_with_the_timeout_of_a_query() {
    let (admin, _) = with_table("").await;
    let health = &admin.base.shared.health;
    health.confirm_by("receivers::partials", Some(Arc::new(Unconfirmed)));
    let (status, answer) = get(&admin, "/api/v1/query?query=1&timeout=50ms").await;
    assert_eq!(
        (status, &answer["errorType"]),
        (503, &json!("timeout")),
        "{answer}"
    );
    assert_eq!(get(&admin, "/api/v1/status/buildinfo").await.0, 200);
    health.confirm_by("receivers::partials", None);
    assert_eq!(get(&admin, "/api/v1/query?query=1").await.0, 200);
    admin.stop(Instant::now() + Duration::from_secs(10)).await;
}

#[tokio::test]
async fn what_a_data_source_asks_for_is_answered_as_prometheus_does() {
    let (admin, table) = with_table("history: {interval: 10ms}").await;
    table.observe(&point("hits", COUNTER, "web", 5), unix_now());
    table.observe(&point("level", Data::Gauge, "batch", 7), unix_now());
    let data = async |path: &str| {
        let (status, answer) = get(&admin, path).await;
        assert_eq!(
            (status, &answer["status"]),
            (200, &json!("success")),
            "{path}: {answer}"
        );
        answer["data"].clone()
    };
    assert_eq!(data("/api/v1/labels").await, json!(["__name__", "job", "pod"]));
    assert_eq!(data("/api/v1/label/job/values").await, json!(["batch", "web"]));
    assert_eq!(
        data("/api/v1/label/__name__/values?match[]=%7Bjob%3D%22web%22%7D").await,
        json!(["hits_total"])
    );
    let series = data("/api/v1/series?match[]=level&match[]=hits_total").await;
    assert_eq!(series.as_array().unwrap().len(), 2, "{series}");
    assert_eq!(
        data("/api/v1/metadata?metric=hits_total").await["hits_total"][0]["type"],
        "counter"
    );
    assert_eq!(data("/api/v1/status/buildinfo").await["application"], "tidegate");
    assert_eq!(ask(&admin, "1+1").await.1["data"]["result"][1], "2");
    assert_eq!(data("/api/v1/query?query=1%2B1").await["result"][1], "2");
    assert_eq!(fetch(&admin.server.local(), "GET", "/-/healthy").await.0, 200);
    assert_eq!(
        fetch(&admin.server.local(), "GET", "/-/ready").await.0,
        503,
        "the start is not reported as complete"
    );

    for (path, error) in [
        ("/api/v1/query", "no expression found in input"),
        ("/api/v1/query?query=sum(", "unclosed left parenthesis"),
        ("/api/v1/query?query=up&time=noon", "valid timestamp"),
        (
            "/api/v1/query_range?query=up&start=1&end=2",
            "invalid parameter \"step\"",
        ),
        (
            "/api/v1/query_range?query=up&start=1&end=2&step=x",
            "valid duration",
        ),
        (
            "/api/v1/query_range?query=up&start=1&end=2000000&step=1",
            "exceeded maximum resolution of 11,000 points",
        ),
        ("/api/v1/series", "no match[] parameter"),
        (
            "/api/v1/query?query=info(up)",
            "1:1: parse error: the function \"info\" is not supported",
        ),
    ] {
        let (status, answer) = get(&admin, path).await;
        assert_eq!(
            (status, &answer["errorType"]),
            (400, &json!("bad_data")),
            "{path}"
        );
        assert!(
            answer["error"].as_str().unwrap().contains(error),
            "{path}: {answer}"
        );
    }
    let form = format!("query={}", "x".repeat(300_000));
    assert_eq!(post(&admin.server.local(), "/api/v1/query", &form).await.0, 413);
    admin.stop(Instant::now() + Duration::from_secs(10)).await;
}

#[tokio::test]
async fn a_series_is_explained_and_counted() {
    let (admin, table) = with_table("").await;
    for job in ["a", "b"] {
        table.observe(&point("requests", COUNTER, job, 5), unix_now());
    }
    let path = "/api/v1/explain?match[]=requests_total%7Bjob%3D%22b%22%7D";
    let (status, all) = get(&admin, path).await;
    let one = &all["data"][0];
    assert_eq!((status, all["data"].as_array().unwrap().len()), (200, 1), "{all}");
    assert_eq!(
        (&one["metric"]["job"], &one["value"], &one["state"]),
        (&json!("b"), &json!(5.0), &json!("fresh"))
    );
    assert_eq!(
        (&one["rule"], &one["sources"]),
        (&json!(0), &json!({"reporting": 1, "expected": 1}))
    );
    assert_eq!(one["fed_by"][0]["source"], json!({"service.name": "b"}));
    assert!(one["counts_since"].is_number() && one["owner"].is_string());
    assert_eq!(get(&admin, "/api/v1/explain").await.0, 400);
    let (status, none) = get(&admin, "/api/v1/explain?match[]=requests_totl").await;
    assert_eq!((status, &none["data"]), (200, &json!([])));
    let warning = none["warnings"][0].as_str().unwrap();
    assert!(warning.ends_with("did you mean \"requests_total\"?"), "{warning}");
    let (_, counts) = get(&admin, "/api/v1/status/tsdb?limit=1").await;
    let counts = &counts["data"];
    assert_eq!(counts["headStats"]["numSeries"], json!(2));
    assert_eq!(
        counts["seriesCountByMetricName"],
        json!([{"name": "requests_total", "value": 2}])
    );
    assert_eq!(
        counts["labelValueCountByLabelName"],
        json!([{"name": "job", "value": 2}])
    );
    assert_eq!(counts["headStats"]["numLabelPairs"], json!(4));
    assert_eq!(counts["streamCountBySource"].as_array().unwrap().len(), 1);
    assert_eq!(counts["labelsCounted"], json!(true));
    // When memory is short, the counts that a user needs are still there.
    let memory = &admin.base.shared.memory;
    memory.add_limit(crate::component::Limit::of(1 << 20));
    memory.hold(2 << 20);
    let (status, counts) = get(&admin, "/api/v1/status/tsdb").await;
    assert_eq!((status, &counts["data"]["labelsCounted"]), (200, &json!(false)));
    assert_eq!(
        counts["data"]["seriesCountByMetricName"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(counts["data"]["labelValueCountByLabelName"], json!([]));
    let (status, _) = get(&admin, "/api/v1/explain?match[]=requests_total").await;
    assert_eq!(status, 200);
    let (status, _) = get(&admin, "/api/v1/labels").await;
    assert_eq!(status, 503);
    memory.release(2 << 20);
}

#[test]
fn a_source_of_points_is_overdue_by_its_own_cadence() {
    const SECOND: u64 = 1_000_000_000;
    let begin = unix_now();
    let shared = crate::component::Shared::default();
    let view = View::of(&shared);
    let table = Arc::new(Table::new("test", vec![Rule::newest()], Limits::default()));
    shared.tables.add(table.clone());
    for (job, interval) in [("quick", 10), ("slow", 120)] {
        for second in 0..=2 * interval {
            let now = begin + second * SECOND;
            if second % interval == 0 {
                table.observe(&point("requests", COUNTER, job, 5), now);
            }
            view.attend(now);
        }
    }
    let life = |job: &str, silent: u64| {
        let query = tidegate_promql::Query::parse(&format!("requests_total{{job={job:?}}}")).unwrap();
        let last = if job == "quick" { 20 } else { 240 };
        let now = begin + (last + silent) * SECOND;
        let found = view
            .found(
                now,
                &query.selections(),
                10,
                &tidegate_promql::Patience::default(),
            )
            .unwrap();
        let page = explain::page(&shared, &found, now, 10, &Default::default()).unwrap();
        page[0]["fed_by"][0]["state"].as_str().unwrap().to_owned()
    };
    assert_eq!([life("quick", 20), life("quick", 30)], ["alive", "overdue"]);
    assert_eq!([life("slow", 250), life("slow", 310)], ["alive", "overdue"]);
}

/// An exporter that shows nothing but its own table.
struct Own(Arc<Table>);

impl crate::prom::catalog::Exposes for Own {
    fn live(&self) -> Vec<Arc<Table>> {
        Vec::new()
    }

    fn own(&self) -> &Arc<Table> {
        &self.0
    }
}

#[tokio::test]
async fn exemplars_are_of_series_that_queries_see_each_once_and_in_order() {
    let (admin, first) = with_table("history: {enabled: false}").await;
    let second = Arc::new(Table::new("second", vec![Rule::newest()], Limits::default()));
    for (name, table) in [("prometheus/a", &first), ("prometheus/b", &second)] {
        let exporter = Arc::new(Own(table.clone()));
        admin
            .view
            .expose(name.into(), crate::prom::Style::default(), exporter);
    }
    // Labels don't tell these resources apart: the second is hidden by the first.
    let of = |host: &'static str, values: &[(u64, f64)]| {
        let mut point = point("depth", Data::Gauge, "shop", 3);
        // Neither replaces the other.
        point.start = 1;
        let series = Arc::unwrap_or_clone(point.series);
        let mut resource = Arc::unwrap_or_clone(series.resource.clone());
        let attributes = [("service.name", "shop"), ("host.name", host)];
        resource.attributes = attributes.into_iter().collect();
        point.series = Arc::new(Series {
            resource: Arc::new(resource),
            ..series
        });
        let exemplar = |(second, value): &(u64, f64)| tidegate_engine::Exemplar {
            time: second * 1_000_000_000,
            value: AttributeValue::Double(*value),
            filtered_attributes: Attributes::default(),
            trace_id: Default::default(),
            span_id: Default::default(),
        };
        point.exemplars = values.iter().map(exemplar).collect();
        point
    };
    let shown = of("a", &[(7, 1.5), (5, 2.5), (6, 3.5)]);
    for table in [&first, &second] {
        table.observe(&shown, unix_now());
        let (_, asked) = get(&admin, "/api/v1/query?query=depth").await;
        assert_eq!(asked["data"]["result"].as_array().unwrap().len(), 1, "{asked}");
    }
    first.observe(&of("b", &[(4, 9.5)]), unix_now());
    let (_, page) = get(&admin, "/api/v1/query_exemplars?query=depth").await;
    let [series] = &page["data"].as_array().unwrap()[..] else {
        panic!("{page}")
    };
    assert_eq!(series["seriesLabels"]["job"], "shop");
    let exemplars = series["exemplars"].as_array().unwrap().iter();
    let found: Vec<_> = exemplars
        .map(|one| (one["timestamp"].as_f64().unwrap(), one["value"].as_str().unwrap()))
        .collect();
    assert_eq!(found, [(5.0, "2.5"), (6.0, "3.5"), (7.0, "1.5")]);
    admin.stop(Instant::now() + Duration::from_secs(10)).await;
}
