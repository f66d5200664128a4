// SPDX-License-Identifier: Apache-2.0

//! Composites: their label sets, and clients that wait for changes.

use serde_json::json;
use tidegate_engine::{
    Answer as Reading, AttributeFilter, AttributeValue, Composite, Declaration, Freshness, Function,
    Grouping, OnStale, Pattern, Quantile,
};

use super::*;
use crate::net::pages::testing::Lines;
use crate::watch::testing::{Bench, threshold, until};
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

#[tokio::test]
async fn composites_are_arrays_of_label_sets_and_unknown_names_are_404() {
    let config = settings::<AdminConfig>("endpoint: 127.0.0.1:0").get();
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
    assert_eq!(
        (&missing["status"], &missing["errorType"]),
        (&json!("error"), &json!("not_found"))
    );
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

#[tokio::test]
async fn a_composite_without_a_value_is_an_error_without_a_fallback() {
    let (admin, _) = with_table("history: {enabled: false}").await;
    admin.base.shared.composites.add(composite("xfer_time_avg"));
    let (status, answer) = ask(&admin, "max(xfer_time_avg)").await;
    assert_eq!((status, &answer["status"]), (422, &json!("error")));
    let why = answer["error"].as_str().unwrap();
    assert!(why.contains("the composite `xfer_time_avg` is absent"), "{why}");
    // A fallback would hide dead servers.
    assert!(
        why.contains("check that its sources run") && !why.contains("`or`"),
        "{why}"
    );
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
    let config = settings::<AdminConfig>(&format!("endpoint: 127.0.0.1:0\n{options}")).get();
    let admin = Admin::new(config, context("extensions", "admin")).unwrap();
    let bench = Bench::new("queue_depth", thresholds);
    admin.base.shared.composites.add(bench.watched.clone());
    bench.keep_looking();
    admin.start().await.unwrap();
    (admin, bench)
}

#[tokio::test]
async fn an_explained_composite_lists_the_sources_that_do_not_report() {
    let (admin, mut bench) = with_queue("", Vec::new()).await;
    bench.lose("n");
    // A group without a value has no series, and is listed too.
    let (_, page) = get(&admin, "/api/v1/explain?match[]=queue_depth").await;
    let one = &page["data"][0];
    assert_eq!(one["metric"]["model"], "n", "{page}");
    assert_eq!(
        (&one["composite"]["state"], &one["silent_total"]),
        (&json!("stale"), &json!(1)),
        "{one}"
    );
    let silent = &one["silent"][0];
    assert_eq!(silent["source"], json!({"model": "n"}));
    assert_eq!(silent["state"], "overdue");
    assert!(silent["age_ms"].is_number(), "{silent}");
    assert_eq!(one["unmatched"], Value::Null, "{one}");
    admin.stop(Instant::now() + Duration::from_secs(10)).await;
}

#[tokio::test]
async fn an_explained_composite_without_data_says_which_metric_was_meant() {
    let config = settings::<AdminConfig>("endpoint: 127.0.0.1:0").get();
    let admin = Admin::new(config, context("extensions", "admin")).unwrap();
    let watched = composite("xfer_time_avg");
    watched.composite().match_tracker().suggest(Some("agent_time"));
    admin.base.shared.composites.add(watched);
    admin.start().await.unwrap();
    let (_, page) = get(&admin, "/api/v1/explain?match[]=xfer_time_avg").await;
    assert_eq!(
        page["data"][0]["unmatched"],
        "no metric `agent_xfer_time` with the selected attributes arrived; did you mean `agent_time`?",
        "{page}"
    );
    admin.stop(Instant::now() + Duration::from_secs(10)).await;
}

#[tokio::test]
async fn a_long_poll_is_answered_after_a_change_or_its_timeout() {
    let (admin, mut bench) = with_queue("", Vec::new()).await;
    bench.observe("m", 4.0);
    let (_, first) = get(&admin, "/api/v1/composites/queue_depth?wait=60s").await;
    assert_eq!(
        (&first[0]["value"], first.as_array().unwrap().len()),
        (&json!(4.0), 1)
    );
    let seq = first[0]["seq"].as_u64().unwrap();
    let path = format!("/api/v1/composites/queue_depth?wait=60s&seq={seq}&label=model=n");
    let endpoint = admin.server.local();
    let waiting = tokio::spawn(async move { fetch(&endpoint, "GET", &path).await });
    bench.observe("m", 5.0);
    bench.observe("n", 6.0);
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
async fn readers_may_not_name_labels_without_end() {
    let (admin, _bench) = with_queue("", Vec::new()).await;
    let labels = vec!["label=k%3Dv"; 65].join("&");
    for path in ["queue_depth/watch?", "queue_depth?wait=60s&", "queue_depth?"] {
        let (status, body) = get(&admin, &format!("/api/v1/composites/{path}{labels}")).await;
        let why = body["error"].as_str().unwrap();
        assert!(
            status == 400 && why.contains("at most 64 labels"),
            "{path}: {body}"
        );
    }
    admin.stop(Instant::now() + PATIENCE).await;
}

/// A client that has seen the value 4 of `queue_depth` and waits for a change.
async fn waiting_client(admin: &Admin, bench: &mut Bench) -> JoinHandle<(u16, String)> {
    bench.observe("m", 4.0);
    let (_, first) = get(admin, "/api/v1/composites/queue_depth").await;
    assert_eq!(first[0]["value"], 4.0);
    let seq = bench.watched.seq();
    let path = format!("/api/v1/composites/queue_depth?wait=60s&seq={seq}");
    let endpoint = admin.server.local();
    let waiting = tokio::spawn(async move { fetch(&endpoint, "GET", &path).await });
    until(|| bench.is_followed()).await;
    waiting
}

#[tokio::test]
async fn a_long_poll_ends_when_a_reload_replaces_its_composite() {
    let (admin, mut bench) = with_queue("", Vec::new()).await;
    let waiting = waiting_client(&admin, &mut bench).await;
    let mut successor = Bench::new("queue_depth", Vec::new());
    successor.observe("m", 5.0);
    let composites = &admin.base.shared.composites;
    composites.replace(std::slice::from_ref(&bench.watched), || {
        vec![successor.watched.clone()]
    });
    bench.watched.set_listed(false);
    let answered = tokio::time::timeout(PATIENCE, waiting).await;
    let (status, body) = answered.expect("an answer before the end of the wait").unwrap();
    let answers: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &answers[0]["value"], answers.as_array().unwrap().len()),
        (200, &json!(4.0), 1),
        "the values of the old composite"
    );
    let (_, again) = get(&admin, "/api/v1/composites/queue_depth").await;
    assert_eq!(again[0]["value"], 5.0, "the next request finds the new one");
    admin.stop(Instant::now() + PATIENCE).await;
}

#[tokio::test]
async fn a_long_poll_is_refused_if_the_replica_becomes_unready_meanwhile() {
    let (admin, mut bench) = with_queue("", Vec::new()).await;
    let waiting = waiting_client(&admin, &mut bench).await;
    let health = &admin.base.shared.health;
    health.hold("receivers::partials", Some("stale"));
    bench.observe("m", 5.0);
    let answered = tokio::time::timeout(PATIENCE, waiting).await;
    let (status, body) = answered.expect("an answer before the end of the wait").unwrap();
    assert!(status == 503 && body.contains("stale"), "{status}: {body}");
    admin.stop(Instant::now() + PATIENCE).await;
}

#[tokio::test]
async fn a_long_poll_gives_the_values_of_a_replica_that_is_ready_again() {
    let (admin, mut bench) = with_queue("", Vec::new()).await;
    let waiting = waiting_client(&admin, &mut bench).await;
    let health = &admin.base.shared.health;
    health.hold("receivers::partials", Some("stale"));
    health.hold("receivers::partials", None);
    bench.observe("m", 5.0);
    let answered = tokio::time::timeout(PATIENCE, waiting).await;
    let (status, body) = answered.expect("an answer before the end of the wait").unwrap();
    let answers: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &answers[0]["value"]), (200, &json!(5.0)), "{body}");
    admin.stop(Instant::now() + PATIENCE).await;
}

#[tokio::test]
async fn a_stream_of_events_ends_when_the_replica_is_not_ready() {
    let (admin, mut bench) = with_queue("", Vec::new()).await;
    bench.observe("m", 4.0);
    let mut stream = Lines::open(&admin.local(), "/api/v1/composites/queue_depth/watch").await;
    assert_eq!(stream.event().await.0, "change");
    let health = &admin.base.shared.health;
    health.hold("receivers::partials", Some("stale"));
    let (name, data) = stream.event().await;
    let why = data["error"].as_str().unwrap();
    assert!(name == "ended" && why.contains("watch again"), "{name}: {why}");
    let (status, _) = fetch(&admin.local(), "GET", "/api/v1/composites/queue_depth/watch").await;
    assert_eq!(status, 503);
    admin.stop(Instant::now() + PATIENCE).await;
}

#[tokio::test]
async fn a_stream_of_events_tells_changes_and_crossings() {
    let (admin, mut bench) = with_queue("", vec![threshold(10.0, 8.0)]).await;
    bench.observe("m", 4.0);
    let mut stream = Lines::open(
        &admin.local(),
        "/api/v1/composites/queue_depth/watch?min_interval=1ms",
    )
    .await;
    let (name, data) = stream.event().await;
    assert_eq!((&*name, &data[0]["value"]), ("change", &json!(4.0)));
    bench.observe("m", 11.0);
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
    bench.observe("m", 1.0);
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
