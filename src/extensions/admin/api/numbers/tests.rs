// SPDX-License-Identifier: Apache-2.0

use super::*;
use http_body_util::BodyExt;
use tidegate_engine::{Data, Limits, Rule, Table, Temporality, Value};

use crate::component::Shared;
use crate::component::testing::is_pending;
use crate::extensions::admin::QueryConfig;
use crate::extensions::admin::tests::{point, scrape};
use crate::net::pages::Request;
use crate::prom::catalog::View;
use crate::prom::catalog::testing;
use crate::watch::testing::Bench;
use tokio_util::sync::CancellationToken;

fn api() -> Arc<Api> {
    api_with(QueryConfig {
        timeout: PATIENCE,
        ..QueryConfig::default()
    })
}

fn api_with(limits: QueryConfig) -> Arc<Api> {
    let shared = Arc::new(Shared::default());
    let view = View::of(&shared);
    Arc::new(Api::new(
        &"admin".into(),
        shared,
        view,
        limits,
        CancellationToken::new(),
        "test".to_owned(),
    ))
}

fn request(pairs: &[(&str, &str)]) -> Request {
    let pairs = pairs.iter().copied();
    let form = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Request::of("/api/v1/query", form.collect())
}

async fn status(api: &Arc<Api>, pairs: &[(&str, &str)]) -> http::StatusCode {
    let answer = tokio::time::timeout(PATIENCE, api.clone().answer(request(pairs))).await;
    answer.expect("an answer").status()
}

#[tokio::test]
async fn heavy_queries_hold_up_neither_autoscalers_nor_queries_of_the_present() {
    let api = api();
    let _heavy = api.queues.occupy(QueryKind::Heavy).await;
    let two = api
        .clone()
        .numbers("1 + 1".to_owned(), None, QueryKind::Scaler)
        .await
        .unwrap();
    assert_eq!(two.values, [2.0]);
    assert_eq!(status(&api, &[("query", "1")]).await, http::StatusCode::OK);
    let _light = api.queues.occupy(QueryKind::Light).await;
    let two = api
        .clone()
        .numbers("1 + 1".to_owned(), None, QueryKind::Scaler)
        .await
        .unwrap();
    assert_eq!(two.values, [2.0]);
}

#[tokio::test]
async fn a_query_that_only_looks_light_waits_for_a_place_among_heavy_ones() {
    let api = api();
    let table = Arc::new(Table::new("test", vec![Rule::newest()], Limits::default()));
    api.shared().tables.add(table.clone());
    let now = unix_now();
    for number in 0..1000 {
        table.observe(&point("level", Data::Gauge, &number.to_string(), 1), now);
    }
    // It reads 120,000 series.
    let many = vec!["count(level)"; 120].join(" + ");
    let heavy = api.queues.occupy(QueryKind::Heavy).await;
    let late = status(&api, &[("query", &many), ("timeout", "300ms")]).await;
    assert_eq!(late, http::StatusCode::SERVICE_UNAVAILABLE);
    let light = status(&api, &[("query", "count(level)")]).await;
    assert_eq!(light, http::StatusCode::OK);
    // So does that of an autoscaler, which keeps no other one waiting.
    let asking = tokio::spawn(api.clone().numbers(many.clone(), None, QueryKind::Scaler));
    // Longer than it takes to compute.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!asking.is_finished());
    let two = api
        .clone()
        .numbers("1 + 1".to_owned(), None, QueryKind::Scaler)
        .await
        .unwrap();
    assert_eq!(two.values, [2.0]);
    drop(heavy);
    assert_eq!(asking.await.unwrap().unwrap().values, [120_000.0]);
    assert_eq!(status(&api, &[("query", &many)]).await, http::StatusCode::OK);
    let memory = &api.shared().memory;
    memory.add_limit(crate::component::Limit::of(64 << 20));
    memory.hold(128 << 20);
    let refused = api
        .clone()
        .numbers(many, None, QueryKind::Scaler)
        .await
        .err()
        .map(|why| why.to_string());
    assert_eq!(refused, Some(NotComputed::Memory.to_string()));
    memory.release(128 << 20);
}

/// Runs a query and uses up the memory once the query has its grant. Fails if the answer comes before the grant.
async fn answer_without_memory<T>(api: &Api, answer: impl Future<Output = T>) -> T {
    let memory = &api.shared().memory;
    memory.add_limit(crate::component::Limit::of(1 << 30));
    let granted = async {
        while api.memory.granted_bytes() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::pin!(answer);
    tokio::select! {
        _ = &mut answer => panic!("an answer before the query has memory"),
        () = granted => memory.hold(2 << 30),
    }
    let answer = tokio::time::timeout(PATIENCE, answer).await;
    memory.release(2 << 30);
    answer.expect("the query ends")
}

// 8,641 windows of 10,800 samples each: seconds of work.
const WORK: &str = "quantile_over_time(0.5, vector(1)[3h:1s])";

#[tokio::test]
async fn a_heavy_query_ends_when_memory_is_used_up_while_it_runs() {
    let api = api();
    let end = unix_now() / 1_000_000_000;
    let (start, end) = ((end - 8640).to_string(), end.to_string());
    let form = [("query", WORK), ("start", &start), ("end", &end), ("step", "1")];
    let form = form.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let asked = Request::of("/api/v1/query_range", form.into());
    let answer = answer_without_memory(&api, api.clone().answer(asked)).await;
    assert_eq!(answer.status(), http::StatusCode::SERVICE_UNAVAILABLE);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8_lossy(&body);
    assert!(body.contains("memory"), "{body}");
}

#[tokio::test]
async fn a_heavy_query_of_an_autoscaler_ends_when_memory_is_used_up() {
    let api = api();
    let query = format!("sum_over_time({WORK}[2h:1s])");
    let numbers = api.clone().numbers(query, None, QueryKind::Scaler);
    let numbers = answer_without_memory(&api, numbers).await;
    let why = numbers.err().map(|why| why.to_string());
    assert_eq!(why, Some(NotComputed::Memory.to_string()));
}

#[tokio::test]
async fn the_list_of_composites_is_written_in_the_light_lane() {
    let api = api();
    let ask = || api.clone().answer(Request::of("/api/v1/composites", Vec::new()));
    let light = api.queues.occupy(QueryKind::Light).await;
    assert!(
        tokio::time::timeout(Duration::from_millis(50), ask())
            .await
            .is_err()
    );
    drop(light);
    let answer = tokio::time::timeout(PATIENCE, ask()).await;
    assert_eq!(answer.expect("an answer").status(), http::StatusCode::OK);
}

#[tokio::test]
async fn the_time_of_a_query_runs_while_it_waits_for_its_turn() {
    let api = api();
    let _others = api.queues.occupy(QueryKind::Heavy).await;
    let late = status(&api, &[("query", "max_over_time(m[1m:1s])"), ("timeout", "50ms")]).await;
    assert_eq!(late, http::StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_query_is_refused_if_the_replica_becomes_unready_meanwhile() {
    let api = api();
    let (health, replica) = (&api.shared().health, "receivers::partials");
    for path in ["/api/v1/query", "/api/v1/composites"] {
        let form = vec![("query".to_owned(), "1".to_owned())];
        let ask = || api.clone().answer(Request::of(path, form.clone()));
        for is_ready_again in [false, true] {
            let others = api.queues.occupy(QueryKind::Light).await;
            let mut answer = Box::pin(ask());
            assert!(is_pending(&mut answer).await, "it waits for its turn");
            health.hold(replica, Some("stale"));
            if is_ready_again {
                health.hold(replica, None);
            }
            drop(others);
            let answer = tokio::time::timeout(PATIENCE, answer).await;
            let status = answer.expect("an answer").status();
            let refused = http::StatusCode::SERVICE_UNAVAILABLE;
            assert_eq!(status, refused, "{path}, is ready again: {is_ready_again}");
            health.hold(replica, None);
        }
        assert_eq!(ask().await.status(), http::StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn the_time_of_an_autoscaler_runs_while_it_waits_for_its_turn() {
    let api = api_with(QueryConfig {
        timeout: Duration::from_millis(50),
        ..QueryConfig::default()
    });
    let _others = api.queues.occupy(QueryKind::Scaler).await;
    let asked = api.clone().numbers("1".to_owned(), None, QueryKind::Scaler);
    let late = tokio::time::timeout(PATIENCE, asked).await.expect("an answer");
    assert!(matches!(late, Err(NoNumbers::Timeout)));
}

#[tokio::test]
async fn failed_queries_and_missing_values_are_different_errors() {
    let api = api();
    let bench = Bench::new("queue_depth", Vec::new());
    api.shared().composites.add(bench.watched.clone());
    let ask = |query: &str| api.clone().numbers(query.to_owned(), None, QueryKind::Scaler);
    let missing = ask("queue_depth").await.err();
    assert!(matches!(missing, Some(NoNumbers::Missing(_))), "{missing:?}");
    assert_eq!(
        missing.map(|why| why.to_string()).as_deref(),
        Some(
            "the composite `queue_depth` is absent and has no value, so the query has no value now; check that its sources \
             run and reach the gateway"
        )
    );
    for query in [
        "sum(",
        "\"text\"",
        "label_replace(vector(1), \"a\", \"\", \"b\", \"(\")",
    ] {
        let failed = ask(query).await.err();
        assert!(
            matches!(failed, Some(NoNumbers::Failed(_))),
            "{query}: {failed:?}"
        );
    }
}

const SECOND: u64 = 1_000_000_000;

/// A pod says how many requests wait, and how many it has served.
fn report(table: &Table, pod: &str, waiting: i64, now: UnixNanos) {
    let temporality = Temporality::Cumulative;
    let served = Data::Sum {
        monotonic: true,
        temporality,
    };
    let inflight = Data::Sum {
        monotonic: false,
        temporality,
    };
    for (name, data) in [
        ("waiting", Data::Gauge),
        ("served", served),
        ("inflight", inflight),
    ] {
        let resource = [("service.name", "vllm"), ("service.instance.id", pod)];
        let of = (resource.into_iter().collect(), Attributes::default());
        table.observe(
            &testing::point(name, data, of, (now, now), Value::Int(waiting)),
            now,
        );
    }
}

#[tokio::test]
async fn a_gauge_is_refused_when_all_its_sources_are_overdue() {
    let api = api();
    let table = Arc::new(Table::new("test", vec![Rule::newest()], Limits::default()));
    api.shared().tables.add(table.clone());
    let now = unix_now();
    // Both report every second; one ends 10 s ago, and the other one 8 s ago.
    for ago in (8..20).rev() {
        let at = now - ago * SECOND;
        if ago >= 10 {
            report(&table, "a", 5, at);
        }
        report(&table, "b", 7, at);
        api.view.attend(at);
    }
    let ask = |query: &str| api.clone().numbers(query.to_owned(), None, QueryKind::Scaler);
    let stale = |name: &str, sources: usize| {
        format!(
            "the gauge `{name}` is stale and has no value: 0 of {sources} sources report; check that they run and \
                 reach the gateway"
        )
    };
    for (query, expected) in [
        ("waiting", stale("waiting", 2)),
        ("sum(inflight)", stale("inflight", 2)),
        ("waiting{instance=\"b\"} or vector(0)", stale("waiting", 1)),
        ("max({__name__=~\"wait.*|served.*\"})", stale("waiting", 2)),
    ] {
        match ask(query).await {
            Err(NoNumbers::Missing(why)) => assert_eq!(why, expected, "{query}"),
            Err(why) => panic!("{query}: {why}"),
            Ok(numbers) => panic!("{query}: {:?}", numbers.values),
        }
    }
    // A total is what it was.
    let served = ask("sum(served_total)").await.unwrap();
    assert!(served.values == [12.0] && served.partial.is_none());
    report(&table, "b", 9, unix_now());
    let both = ask("sum(waiting)").await.unwrap();
    let why = both.partial.as_ref().map(Partial::why);
    assert_eq!(
        (&both.values[..], why),
        (
            &[14.0][..],
            Some("the gauge `waiting` is partial: 1 of 2 sources report")
        )
    );
    let one = ask("waiting{instance=\"b\"}").await.unwrap();
    assert!(one.values == [9.0] && one.partial.is_none());
    assert!(ask("waiting{instance=\"a\"}").await.is_err());
}

#[tokio::test]
async fn a_gauge_counts_the_targets_whose_scrapes_fail() {
    let api = api();
    let table = Arc::new(Table::new("test", vec![Rule::newest()], Limits::default()));
    api.shared().tables.add(table.clone());
    scrape(&table, "a", Some(5));
    scrape(&table, "b", Some(7));
    let ask = |query: &str| api.clone().numbers(query.to_owned(), None, QueryKind::Scaler);
    let both = ask("sum(waiting)").await.unwrap();
    assert!(both.values == [12.0] && both.partial.is_none());
    scrape(&table, "a", None);
    let one = ask("sum(waiting)").await.unwrap();
    let partial = "the gauge `waiting` is partial: 1 of 2 sources report";
    assert_eq!(one.values, [7.0]);
    assert_eq!(one.partial.as_ref().map(Partial::why), Some(partial));
    for (query, value) in [("waiting{instance=\"b\"}", 7.0), ("sum(up)", 1.0)] {
        let complete = ask(query).await.unwrap();
        assert!(
            complete.values == [value] && complete.partial.is_none(),
            "{query}"
        );
    }
    let answer = api.clone().answer(request(&[("query", "sum(waiting)")])).await;
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8_lossy(&body);
    assert!(body.contains(partial), "{body}");
    scrape(&table, "b", None);
    for query in ["sum(waiting)", "sum(waiting) or vector(0)"] {
        let missing = ask(query).await.err();
        let why = missing.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(why.contains("0 of 2 sources report"), "{query}: {why}");
        assert!(matches!(missing, Some(NoNumbers::Missing(_))), "{query}");
    }
    // Discovery no longer lists the targets.
    let now = unix_now();
    for pod in ["a", "b"] {
        let resource = [("service.name", "vllm"), ("service.instance.id", pod)];
        let of = (resource.into_iter().collect(), Attributes::default());
        let end = testing::point("up", Data::Gauge, of, (now, now), Value::NoRecordedValue);
        table.observe(&end, now);
    }
    let none = ask("sum(waiting) or vector(0)").await.unwrap();
    assert!(none.values == [0.0] && none.partial.is_none());
}
