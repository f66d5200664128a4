//! Pages as a client sees them.

use std::time::Duration;

use tidegate_engine::{
    AttributeFilter, Declaration, Freshness, Function, Grouping, OnStale, Pattern, Quantile,
};

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_engine::{
    Answer as Reading, AttributeValue, Attributes, Composite, Data, Limits, Metric, Point, Resource, Rule,
    Series, Table, Temporality,
};

use super::*;
use crate::component::testing::{context, settings};
use crate::component::unix_now;
use crate::net::pages::testing::Lines;
use crate::net::pages::testing::{fetch, post};
use crate::watch::testing::{Bench, threshold};
use crate::watch::{GroupAnswer, Watched, json as shape};

const PATIENCE: Duration = Duration::from_secs(30);

fn composite(name: &str) -> Arc<Watched> {
    let composite = Arc::new(Composite::new(declaration(name)));
    Arc::new(Watched::new(composite, Vec::new()))
}

fn declaration(name: &str) -> Declaration {
    Declaration {
        name: name.into(),
        description: Arc::default(),
        metric: Pattern::parse("agent_xfer_time").unwrap(),
        attributes: AttributeFilter::default(),
        expression: None,
        function: Function::Avg,
        quantiles: Arc::default(),
        on_stale: OnStale::Error,
        window: Duration::from_secs(10),
        grouping: Grouping::default(),
        max_groups: 10,
        across: None,
        lease: Some(Duration::from_secs(60)),
    }
}

async fn get(admin: &Admin, path: &str) -> (u16, Value) {
    let (status, body) = fetch(&admin.server.local(), "GET", path).await;
    (status, serde_json::from_str(&body).unwrap())
}

#[tokio::test]
async fn composites_are_arrays_of_label_sets_and_unknown_names_are_404() {
    let config = settings::<Config>("endpoint: 127.0.0.1:0").get();
    let admin = Admin::new(config, context("extensions", "admin")).unwrap();
    admin.base.shared.composites.add(composite("xfer_time_avg"));
    admin.base.shared.composites.add(composite("other"));
    admin.start().await.unwrap();

    let (status, all) = get(&admin, "/api/v1/composites").await;
    assert!(status == 200 && all.is_array());
    let (status, one) = get(&admin, "/api/v1/composites/xfer_time_avg").await;
    assert!(status == 200 && one.is_array());
    assert!(
        one.as_array()
            .unwrap()
            .iter()
            .all(|set| set["name"] == "xfer_time_avg")
    );

    let (status, missing) = get(&admin, "/api/v1/composites/xfer_time_agv").await;
    assert_eq!((status, &missing["did_you_mean"]), (404, &json!("xfer_time_avg")));
    assert_eq!(get(&admin, "/api/v1/compositesx").await.0, 404);
    assert_eq!(
        fetch(&admin.server.local(), "DELETE", "/api/v1/composites")
            .await
            .0,
        405
    );
    admin.stop(Instant::now() + Duration::from_secs(10)).await;
}

#[test]
fn the_json_of_a_label_set_has_every_field() {
    let reading = Reading {
        attributes: [
            ("agent_name", AttributeValue::from("a")),
            ("rank", AttributeValue::Int(3)),
        ]
        .into_iter()
        .collect(),
        value: Some(2.5),
        count: 4.0,
        sum: 10.0,
        min: Some(1.0),
        max: Some(4.0),
        avg: Some(2.5),
        quantiles: vec![Quantile {
            quantile: 0.99,
            value: 3.9,
        }],
        last: Some(3.0),
        window: Duration::from_secs(10),
        age: Some(Duration::from_micros(1500)),
        state: Freshness::Partial,
        sources_expected: 8,
        sources_reporting: 7,
        has_left: false,
        error: None,
        collision: None,
    };
    let expected = json!({
        "name": "x", "labels": {"agent_name": "a", "rank": 3}, "function": "avg", "value": 2.5,
        "min": 1.0, "avg": 2.5, "max": 4.0, "last": 3.0, "sum": 10.0, "count": 4.0, "quantiles": {"0.99": 3.9},
        "window": "10s", "age_ms": 1.5, "state": "partial", "sources": {"reporting": 7, "expected": 8}, "seq": 17,
        "across": null, "expr": null, "error": null, "collision": null,
    });
    let group = GroupAnswer {
        answer: reading,
        seq: 17,
    };
    assert_eq!(shape::label_set(&composite("x"), &group), expected);
}

const COUNTER: Data = Data::Sum {
    monotonic: true,
    temporality: Temporality::Cumulative,
};

pub(super) fn point(name: &str, data: Data, job: &str, value: i64) -> Point {
    let now = unix_now();
    let resource = Resource {
        attributes: [("service.name", job)].into_iter().collect(),
        schema_url: "".into(),
    };
    Point {
        series: Arc::new(Series {
            resource: Arc::new(resource),
            scope: Arc::default(),
            metric: Arc::new(Metric {
                name: name.into(),
                description: "what it is".into(),
                unit: "".into(),
                data,
                metadata: Attributes::default(),
            }),
            attributes: [("pod", "p1")].into_iter().collect(),
        }),
        start: now - 1,
        time: now,
        value: tidegate_engine::Value::Int(value),
        exemplars: Vec::new(),
    }
}

/// A started extension and a table that it can see.
async fn with_table(options: &str) -> (Admin, Arc<Table>) {
    let config = settings::<Config>(&format!("{{endpoint: 127.0.0.1:0, {options}}}")).get();
    let admin = Admin::new(config, context("extensions", "admin")).unwrap();
    let table = Arc::new(Table::new("test", vec![Rule::newest()], Limits::default()));
    admin.base.shared.tables.add(table.clone());
    admin.start().await.unwrap();
    (admin, table)
}

async fn ask(admin: &Admin, query: &str) -> (u16, Value) {
    let form = form_urlencoded::Serializer::new(String::new())
        .append_pair("query", query)
        .finish();
    let (status, body) = post(&admin.server.local(), "/api/v1/query", &form).await;
    (status, serde_json::from_str(&body).unwrap())
}

#[tokio::test]
async fn a_point_can_be_asked_for_at_once_and_its_past_a_little_later() {
    let (admin, table) = with_table("history: {interval: 10ms}").await;
    table.observe(&point("hits", COUNTER, "web", 5), unix_now());
    let (status, answer) = ask(&admin, "sum by (job) (hits_total)").await;
    assert_eq!(status, 200, "{answer}");
    let series = &answer["data"]["result"][0];
    assert_eq!(
        (&series["metric"], &series["value"][1]),
        (&json!({"job": "web"}), &json!("5"))
    );

    let deadline = Instant::now() + Duration::from_secs(10);
    let mut value = 5;
    loop {
        value += 1;
        table.observe(&point("hits", COUNTER, "web", value), unix_now());
        let (status, answer) = ask(&admin, "changes(hits_total[10s])").await;
        let changes = answer["data"]["result"][0]["value"][1]
            .as_str()
            .unwrap_or("0")
            .parse::<u32>();
        if status == 200 && changes.is_ok_and(|changes| changes >= 3) {
            break;
        }
        assert!(Instant::now() < deadline, "{answer}");
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    let now = unix_now() / 1_000_000_000;
    let range = format!(
        "/api/v1/query_range?query=hits_total&start={}&end={}&step=1",
        now - 5,
        now + 1
    );
    let (status, answer) = get(&admin, &range).await;
    assert_eq!(
        (status, &answer["data"]["resultType"]),
        (200, &json!("matrix")),
        "{answer}"
    );
    assert!(
        !answer["data"]["result"][0]["values"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    admin.stop(Instant::now() + Duration::from_secs(10)).await;
}

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

#[tokio::test]
async fn without_history_the_present_is_there_and_the_past_is_refused_by_name() {
    let (admin, table) = with_table("history: {enabled: false}").await;
    table.observe(&point("level", Data::Gauge, "web", 7), unix_now());
    assert_eq!(ask(&admin, "level").await.1["data"]["result"][0]["value"][1], "7");
    let (status, answer) = ask(&admin, "avg_over_time(level[1m])").await;
    assert_eq!((status, &answer["errorType"]), (422, &json!("execution")));
    let why = answer["error"].as_str().unwrap();
    assert!(
        why.contains("`level` has no past") && why.contains("disabled"),
        "{why}"
    );
    // A removed table is released and no longer shown, even without samples.
    admin.base.shared.tables.remove(&table);
    assert_eq!(ask(&admin, "level").await.1["data"]["result"], json!([]));
    assert_eq!(admin.view.series_count(), 0);
    admin.stop(Instant::now() + Duration::from_secs(10)).await;
}

#[tokio::test]
async fn a_series_that_has_gone_is_gone_at_once_and_its_past_stays() {
    let (admin, table) = with_table("history: {interval: 10ms}").await;
    table.observe(&point("level", Data::Gauge, "web", 7), unix_now());
    let deadline = Instant::now() + Duration::from_secs(10);
    while ask(&admin, "count_over_time(level[1m]) >= 3").await.1["data"]["result"] == json!([]) {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    admin.base.shared.tables.remove(&table);
    assert_eq!(ask(&admin, "level").await.1["data"]["result"], json!([]));
    assert_ne!(
        ask(&admin, "max_over_time(level[1m])").await.1["data"]["result"],
        json!([])
    );
    // Another of the same name and labels counts from its first moment.
    let again = Arc::new(Table::new("again", vec![Rule::newest()], Limits::default()));
    again.observe(&point("level", Data::Gauge, "web", 9), unix_now());
    admin.base.shared.tables.add(again);
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(ask(&admin, "level").await.1["data"]["result"][0]["value"][1], "9");
    admin.stop(Instant::now() + Duration::from_secs(10)).await;
}

#[tokio::test]
async fn series_that_came_when_the_memory_was_used_up_have_a_present_only() {
    let (admin, table) = with_table("history: {interval: 10ms, max_bytes: 400B}").await;
    table.observe(&point("first", Data::Gauge, "web", 1), unix_now());
    let sampled = async |query: &str| {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let (status, answer) = ask(&admin, query).await;
            let count = answer["data"]["result"][0]["value"][1].as_str();
            if status == 422 || count.is_some_and(|count| count != "1") {
                return (status, answer);
            }
            assert!(Instant::now() < deadline, "{answer}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert_eq!(sampled("count_over_time(first[1m])").await.0, 200);
    (0..50).for_each(|n| {
        table.observe(&point(&format!("later_{n}"), Data::Gauge, "web", n), unix_now());
    });
    let (status, answer) = sampled("count_over_time(later_49[1m])").await;
    let why = answer["error"].as_str().unwrap_or_default();
    assert!(
        status == 422 && why.contains("`later_49` has no past") && why.contains("used up"),
        "{answer}"
    );
    assert_eq!(
        ask(&admin, "later_49").await.1["data"]["result"][0]["value"][1],
        "49"
    );
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
async fn a_composite_without_a_value_is_an_error_without_a_fallback() {
    let (admin, _) = with_table("history: {enabled: false}").await;
    admin.base.shared.composites.add(composite("xfer_time_avg"));
    let (status, answer) = ask(&admin, "max(xfer_time_avg)").await;
    assert_eq!((status, &answer["status"]), (422, &json!("error")));
    let why = answer["error"].as_str().unwrap();
    assert!(why.contains("the composite `xfer_time_avg` is absent"), "{why}");
    assert_eq!(
        ask(&admin, "xfer_time_avg or vector(0)").await.1["data"]["result"][0]["value"][1],
        "0"
    );
    assert_eq!(ask(&admin, "absent(xfer_time_avg)").await.0, 200);
    let empty = Declaration {
        on_stale: OnStale::Empty,
        ..declaration("may_be_empty")
    };
    let empty = Arc::new(Composite::new(empty));
    let shared = &admin.base.shared;
    shared.composites.add(Arc::new(Watched::new(empty, Vec::new())));
    for nothing in ["something_else", "may_be_empty"] {
        let (status, answer) = ask(&admin, nothing).await;
        assert_eq!(
            (status, &answer["data"]["result"]),
            (200, &json!([])),
            "{nothing}"
        );
    }
    admin.stop(Instant::now() + Duration::from_secs(10)).await;
}

/// An admin extension with a composite that can be fed.
async fn with_queue(options: &str, thresholds: Vec<tidegate_engine::Threshold>) -> (Admin, Bench) {
    let config = settings::<Config>(&format!("endpoint: 127.0.0.1:0\n{options}")).get();
    let admin = Admin::new(config, context("extensions", "admin")).unwrap();
    let bench = Bench::new("queue_depth", thresholds);
    admin.base.shared.composites.add(bench.watched.clone());
    bench.keep_looking();
    admin.start().await.unwrap();
    (admin, bench)
}

#[tokio::test]
async fn a_long_poll_is_answered_after_a_change_or_its_timeout() {
    let (admin, mut bench) = with_queue("", Vec::new()).await;
    bench.say("m", 4.0);
    let (_, first) = get(&admin, "/api/v1/composites/queue_depth?wait=60s").await;
    assert_eq!(
        (&first[0]["value"], first.as_array().unwrap().len()),
        (&json!(4.0), 1)
    );
    let seq = first[0]["seq"].as_u64().unwrap();
    let path = format!("/api/v1/composites/queue_depth?wait=60s&seq={seq}&label=model=n");
    let endpoint = admin.server.local();
    let waiting = tokio::spawn(async move { fetch(&endpoint, "GET", &path).await });
    bench.say("m", 5.0);
    bench.say("n", 6.0);
    let (status, body) = waiting.await.unwrap();
    let answers: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &answers[0]["value"], answers.as_array().unwrap().len()),
        (200, &json!(6.0), 1)
    );
    let seq = bench.watched.seq();
    let (status, same) = get(
        &admin,
        &format!("/api/v1/composites/queue_depth?wait=50ms&seq={seq}"),
    )
    .await;
    assert_eq!(
        (status, same.as_array().unwrap().len()),
        (200, 2),
        "the present, new or not"
    );
    assert_eq!(
        get(&admin, "/api/v1/composites/queue_depth?wait=soon").await.0,
        400
    );
}

#[tokio::test]
async fn a_stream_of_events_tells_changes_and_crossings() {
    let (admin, mut bench) = with_queue("", vec![threshold(10.0, 8.0)]).await;
    bench.say("m", 4.0);
    let mut stream = Lines::open(
        &admin.local(),
        "/api/v1/composites/queue_depth/watch?min_interval=1ms",
    )
    .await;
    let (name, data) = stream.event().await;
    assert_eq!((&*name, &data[0]["value"]), ("change", &json!(4.0)));
    bench.say("m", 11.0);
    let crossing = stream.event_named("threshold").await;
    assert_eq!(
        (&crossing["state"], &crossing["threshold"]),
        (&json!("crossed"), &json!("above 10"))
    );
    assert_eq!(crossing["shown"]["labels"], json!({"model": "m"}));
    let mut own = Lines::open(
        &admin.local(),
        "/api/v1/composites/queue_depth/watch?below=2&clear=3",
    )
    .await;
    bench.say("m", 1.0);
    let crossing = own.event_named("threshold").await;
    assert_eq!(
        (&crossing["state"], &crossing["at"]),
        (&json!("crossed"), &json!(2.0))
    );
    assert_eq!(
        get(&admin, "/api/v1/composites/queue_depth/watch?below=2&above=3")
            .await
            .0,
        400
    );
    admin.stop(Instant::now() + PATIENCE).await;
    assert!(stream.ends().await, "the gateway's stop ends the stream");
}

#[tokio::test]
async fn unauthorised_clients_are_refused_in_their_own_protocol() {
    struct Door;
    #[async_trait]
    impl crate::component::auth::Authenticator for Door {
        async fn check(
            &self,
            headers: &http::HeaderMap,
            _: Option<std::net::IpAddr>,
        ) -> Result<(), crate::component::auth::Unauthenticated> {
            if headers.contains_key("x-key") {
                Ok(())
            } else {
                Err(crate::component::auth::Unauthenticated::Wrong("no key"))
            }
        }

        fn identity(&self, _: &http::HeaderMap) -> Option<crate::component::account::SenderKey> {
            None
        }

        fn challenge(&self) -> http::HeaderValue {
            http::HeaderValue::from_static("Key")
        }
    }
    let config = "endpoint: 127.0.0.1:0\nauth: {authenticator: door}";
    let admin = Admin::new(settings::<Config>(config).get(), context("extensions", "admin")).unwrap();
    let missing = admin.start().await.unwrap_err().to_string();
    assert!(
        missing.contains("`door` is not among `service::extensions`"),
        "{missing}"
    );
    let services = crate::component::services::Services {
        authenticator: Some(Arc::new(Door)),
        ..Default::default()
    };
    admin.base.shared.services.add("door".to_owned(), services);
    admin.start().await.unwrap();
    let endpoint = admin.server.local();
    for path in ["/api/v1/composites", "/api/v1/query?query=1", "/-/healthy"] {
        assert_eq!(fetch(&endpoint, "GET", path).await.0, 401, "{path}");
    }
    let Endpoint::Tcp { host, port } = endpoint else {
        panic!("not TCP");
    };
    let channel = tonic::transport::Channel::from_shared(format!("http://{host}:{port}")).unwrap();
    let mut grpc = tonic::client::Grpc::new(channel.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/tidegate.v1.Query/List");
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let refused = grpc
        .unary(tonic::Request::new(()), path, codec)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unauthenticated);
    let path = http::uri::PathAndQuery::from_static("/tidegate.v1.Query/List");
    let mut request = tonic::Request::new(());
    request.metadata_mut().insert("x-key", "1".parse().unwrap());
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    grpc.ready().await.unwrap();
    grpc.unary(request, path, codec).await.unwrap();
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
    // What one looks at when memory is short is there then.
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

#[tokio::test]
async fn a_series_that_no_rule_of_the_past_matches_has_a_present_only() {
    let rules = "history: {interval: 10ms, rules: [{name: level, attributes: {service.name: web*}}]}";
    let (admin, table) = with_table(rules).await;
    for (name, job) in [("level", "web-1"), ("level", "db"), ("other", "web-1")] {
        table.observe(&point(name, Data::Gauge, job, 3), unix_now());
    }
    for (series, has_past) in [
        ("level{job=\"web-1\"}", true),
        ("level{job=\"db\"}", false),
        ("other", false),
    ] {
        let (status, present) = ask(&admin, series).await;
        assert_eq!(
            (status, present["data"]["result"].as_array().unwrap().len()),
            (200, 1),
            "{series}"
        );
        let (status, past) = ask(&admin, &format!("count_over_time({series}[1m])")).await;
        assert_eq!(status == 200, has_past, "{past}");
        let why = past["error"].as_str().unwrap_or_default();
        assert!(
            has_past || why.contains("no rule of `history::rules` matches it"),
            "{past}"
        );
    }
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

#[test]
fn limits_that_are_not_configured_come_from_the_memory_limit() {
    let query = QueryConfig::default();
    assert_eq!(query.max_samples(usize::MAX), 20_000_000);
    assert_eq!(query.max_samples(128 << 20), 1 << 20);
    let past = HistoryConfig::default();
    assert_eq!(past.max_bytes(usize::MAX), 256 << 20);
    assert_eq!(past.max_bytes(256 << 20), 32 << 20);
    let configured =
        settings::<Config>("{endpoint: '127.0.0.1:0', query: {max_samples: 7}, history: {max_bytes: 1GiB}}");
    let configured = configured.get::<Config>();
    assert_eq!(configured.query.max_samples(1 << 20), 7);
    assert_eq!(configured.history.max_bytes(1 << 20), 1 << 30);
}

#[tokio::test]
async fn forms_are_on_the_account_and_short_ones_are_taken_without_room() {
    let (admin, _) = with_table("").await;
    let memory = admin.base.shared.memory.clone();
    let form = |bytes: usize| format!("query=1&rest={}", "x".repeat(bytes));
    let endpoint = admin.server.local();
    let (status, _) = post(&endpoint, "/api/v1/query", &form(100_000)).await;
    assert_eq!((status, memory.reserved_bytes()), (200, 0));
    memory.set_default_limit(1);
    memory.hold(1 << 20);
    let (status, _) = post(&endpoint, "/api/v1/query", &form(100)).await;
    assert_eq!(status, 200);
    let (status, _) = post(&endpoint, "/api/v1/query", &form(100_000)).await;
    assert_eq!(status, 503);
    let (status, _) = post(&endpoint, "/api/v1/query", &form(300_000)).await;
    assert!([413, 503].contains(&status), "{status}");
    assert_eq!(memory.reserved_bytes(), 1 << 20);
}

/// A parameter of a byte takes a hundred when it is read.
#[tokio::test]
async fn a_request_has_a_thousand_parameters_and_no_more() {
    let (admin, _) = with_table("").await;
    let endpoint = admin.server.local();
    let form = |more: usize| format!("query=1{}", "&a".repeat(more));
    for (more, status) in [(999, 200), (1000, 413), (100_000, 413)] {
        assert_eq!(
            post(&endpoint, "/api/v1/query", &form(more)).await.0,
            status,
            "{more}"
        );
    }
    assert_eq!(
        fetch(&endpoint, "GET", &format!("/api/v1/query?{}", form(999)))
            .await
            .0,
        200
    );
    assert_eq!(
        fetch(&endpoint, "GET", &format!("/api/v1/query?{}", form(1000)))
            .await
            .0,
        413
    );
}
