// SPDX-License-Identifier: Apache-2.0

//! Scaling by KEDA.

use std::sync::Arc;

use tidegate_engine::{Declaration, Function, Limits, OnStale, Rule, Table};

use super::*;
use crate::extensions::admin::tests::scrape;
use crate::watch::testing::declaration;

impl Gateway {
    /// The error of a call that must fail.
    async fn fails(&mut self, face: &str, metadata: &[(&str, &str)]) -> Status {
        let object = object(metadata);
        match face {
            "IsActive" => {
                let path = "/externalscaler.ExternalScaler/IsActive";
                let answer: Result<messages::IsActiveResponse, _> = self.call(path, object).await;
                answer.unwrap_err()
            }
            _ => {
                let path = "/externalscaler.ExternalScaler/GetMetrics";
                let ask = messages::GetMetricsRequest {
                    scaled_object_ref: Some(object),
                    metric_name: String::new(),
                };
                let answer: Result<messages::GetMetricsResponse, _> = self.call(path, ask).await;
                answer.unwrap_err()
            }
        }
    }
}

#[tokio::test]
async fn keda_gets_targets_values_and_activity_of_one_signal_or_several() {
    let mut gateway = Gateway::start().await;
    let both = [
        ("signals", "queue_depth{model=m}/10, kv_usage/0.8"),
        ("activation", "0.5"),
    ];
    gateway.depth.observe("m", 4.0);
    gateway.depth.observe("n", 400.0);
    gateway.usage.observe("m", 0.6);
    let spec: messages::GetMetricSpecResponse = gateway
        .call("/externalscaler.ExternalScaler/GetMetricSpec", object(&both))
        .await
        .unwrap();
    let [spec] = &spec.metric_specs[..] else {
        panic!("{spec:?}")
    };
    assert_eq!(
        (&*spec.metric_name, spec.target_size, spec.target_size_float),
        ("queue_depth-kv_usage", 1, 1.0)
    );
    let ask = messages::GetMetricsRequest {
        scaled_object_ref: Some(object(&both)),
        metric_name: "s0-queue_depth".to_owned(),
    };
    let values: messages::GetMetricsResponse = gateway
        .call("/externalscaler.ExternalScaler/GetMetrics", ask)
        .await
        .unwrap();
    let [value] = &values.metric_values[..] else {
        panic!("{values:?}")
    };
    assert_eq!((&*value.metric_name, value.metric_value), ("s0-queue_depth", 1));
    assert!((value.metric_value_float - 0.75).abs() < 1e-9, "{value:?}");
    let active: messages::IsActiveResponse = gateway
        .call("/externalscaler.ExternalScaler/IsActive", object(&both))
        .await
        .unwrap();
    assert!(active.result);
    let path = "/externalscaler.ExternalScaler/StreamMetricSpec";
    let mut specs: Streaming<messages::GetMetricSpecResponse> =
        gateway.stream(path, object(&both)).await.unwrap();
    assert_eq!(next(&mut specs).await.metric_specs[0], *spec);
    // A composite that is not declared has no target either.
    let unknown = [("signals", "queue_depth/10, queue_dept/5")];
    let answer: Result<messages::GetMetricSpecResponse, _> = gateway
        .call("/externalscaler.ExternalScaler/GetMetricSpec", object(&unknown))
        .await;
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
    assert!(status.message().contains("queue_depth"), "{status}");
    let answer: Result<Streaming<messages::GetMetricSpecResponse>, _> =
        gateway.stream(path, object(&unknown)).await;
    assert_eq!(answer.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn keda_gets_targets_while_no_value_may_be_read() {
    let mut gateway = Gateway::start().await;
    let shared = gateway.admin.base.shared.clone();
    let (health, replica) = (&shared.health, "receivers::partials");
    health.confirm_by(replica, Some(Unconfirmed::new()));
    health.hold(replica, Some("stale"));
    let trigger = [("composite", "queue_depth"), ("target", "10")];
    for call in ["IsActive", "GetMetrics"] {
        let status = gateway.fails(call, &trigger).await;
        assert_eq!(status.code(), Code::Unavailable, "{call}: {status}");
    }
    // Later, the store does not confirm the values.
    for why in [Some("stale"), None] {
        health.hold(replica, why);
        let path = "/externalscaler.ExternalScaler/GetMetricSpec";
        let call = gateway.call(path, object(&trigger));
        let spec: messages::GetMetricSpecResponse = timeout(PATIENCE, call).await.unwrap().unwrap();
        assert_eq!(spec.metric_specs[0].target_size, 10, "{why:?}");
        let path = "/externalscaler.ExternalScaler/StreamMetricSpec";
        let mut specs: Streaming<messages::GetMetricSpecResponse> =
            gateway.stream(path, object(&trigger)).await.unwrap();
        assert_eq!(next(&mut specs).await, spec, "{why:?}");
    }
}

#[tokio::test]
async fn keda_gets_a_message_when_activity_begins_and_ends() {
    let mut gateway = Gateway::start().await;
    let trigger = [("composite", "queue_depth"), ("target", "10"), ("combine", "sum")];
    gateway.depth.observe("m", 0.0);
    let path = "/externalscaler.ExternalScaler/StreamIsActive";
    let mut stream: Streaming<messages::IsActiveResponse> =
        gateway.stream(path, object(&trigger)).await.unwrap();
    assert!(!next(&mut stream).await.result, "the current one at once");
    gateway.depth.observe("n", 1.0);
    assert!(next(&mut stream).await.result);
    gateway.depth.observe("n", 0.0);
    assert!(!next(&mut stream).await.result);
}

#[tokio::test]
async fn keda_gets_no_message_from_a_replica_that_is_not_ready() {
    let mut gateway = Gateway::start().await;
    let shared = gateway.admin.base.shared.clone();
    let trigger = [("composite", "queue_depth"), ("target", "10")];
    gateway.depth.observe("m", 5.0);
    let path = "/externalscaler.ExternalScaler/StreamIsActive";
    let mut stream: Streaming<messages::IsActiveResponse> =
        gateway.stream(path, object(&trigger)).await.unwrap();
    assert!(next(&mut stream).await.result);
    shared.health.hold("receivers::partials", Some("stale"));
    gateway.depth.observe("m", 0.0);
    assert!(is_pending(stream.message()).await, "the values stand still");
    shared.health.hold("receivers::partials", None);
    assert!(!next(&mut stream).await.result);
}

#[tokio::test]
async fn keda_gets_no_message_if_the_replica_becomes_unready_meanwhile() {
    let (mut gateway, computed) = Gateway::with_computed().await;
    let shared = gateway.admin.base.shared.clone();
    let trigger = [("composite", "derived"), ("target", "10")];
    let path = "/externalscaler.ExternalScaler/StreamIsActive";
    let mut stream: Streaming<messages::IsActiveResponse> =
        gateway.stream(path, object(&trigger)).await.unwrap();
    becomes_unready(&shared, &computed).await;
    assert!(is_pending(stream.message()).await, "the value may be too old");
    shared.health.hold("receivers::partials", None);
    assert!(next(&mut stream).await.result);
}

#[tokio::test]
async fn a_stream_of_keda_goes_on_with_the_composite_that_replaces_its_own() {
    let mut gateway = Gateway::start().await;
    let trigger = [("composite", "queue_depth"), ("target", "10")];
    gateway.depth.observe("m", 0.0);
    let path = "/externalscaler.ExternalScaler/StreamIsActive";
    let mut stream: Streaming<messages::IsActiveResponse> =
        gateway.stream(path, object(&trigger)).await.unwrap();
    assert!(!next(&mut stream).await.result);
    let mut successor = Bench::new("queue_depth", Vec::new());
    successor.keep_looking();
    let (old, new) = (gateway.depth.watched.clone(), successor.watched.clone());
    let composites = &gateway.admin.base.shared.composites;
    composites.replace(std::slice::from_ref(&old), || vec![new]);
    old.set_listed(false);
    successor.observe("m", 5.0);
    assert!(next(&mut stream).await.result);
    successor.observe("m", 0.0);
    assert!(!next(&mut stream).await.result);
}

#[tokio::test]
async fn keda_may_not_name_signals_without_end() {
    let mut gateway = Gateway::start().await;
    let signals = vec!["queue_depth/1"; 15_000].join(",");
    let many = [("signals", &*signals)];
    let path = "/externalscaler.ExternalScaler/StreamIsActive";
    let stream: Result<Streaming<messages::IsActiveResponse>, _> = gateway.stream(path, object(&many)).await;
    for status in [stream.unwrap_err(), gateway.fails("GetMetrics", &many).await] {
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert_eq!(status.message(), "signals: at most 64 are allowed");
    }
}

#[tokio::test]
async fn what_is_not_known_is_an_error_and_never_zero() {
    let mut gateway = Gateway::start().await;
    let ask = |metadata: &[(&str, &str)]| messages::GetMetricsRequest {
        scaled_object_ref: Some(object(metadata)),
        metric_name: String::new(),
    };
    let path = "/externalscaler.ExternalScaler/GetMetrics";
    let composite = [("composite", "queue_depth"), ("target", "10")];
    let cases = [
        (ask(&composite), Code::FailedPrecondition, "is absent"),
        (
            ask(&[("query", "nothing_of_this_name"), ("target", "1")]),
            Code::FailedPrecondition,
            "no value",
        ),
        (
            ask(&[("composite", "other"), ("target", "10")]),
            Code::NotFound,
            "no composite",
        ),
        (
            ask(&[("composite", "queue_depth")]),
            Code::InvalidArgument,
            "`target` is missing",
        ),
    ];
    for (request, code, why) in cases {
        let answer: Result<messages::GetMetricsResponse, _> = gateway.call(path, request).await;
        let status = answer.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(why), "{status}");
    }
    let unmatched = [
        ("composite", "queue_depth"),
        ("target", "10"),
        ("labels", "mode=m"),
    ];
    let status = gateway.fails("GetMetrics", &unmatched).await;
    let why = "the composite `queue_depth` has no value: no group has mode=m, because there are no groups";
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, why));
    gateway.depth.lose("m");
    let stale: Result<messages::GetMetricsResponse, _> = gateway.call(path, ask(&composite)).await;
    assert!(stale.unwrap_err().message().contains("is stale"));
    let query = ask(&[("query", "1 + 1"), ("target", "1")]);
    let two: messages::GetMetricsResponse = gateway.call(path, query).await.unwrap();
    assert_eq!(two.metric_values[0].metric_value_float, 2.0);
    // A source without a value is null, not 0: for each face of KEDA, and among values of other groups too.
    gateway.usage.join("m");
    let null = [("composite", "kv_usage"), ("target", "1")];
    for face in ["GetMetrics", "IsActive"] {
        let status = gateway.fails(face, &null).await;
        assert_eq!(status.code(), Code::FailedPrecondition, "{face}: {status}");
        assert!(status.message().contains("is idle and has no value"), "{status}");
    }
    gateway.usage.observe("n", 0.5);
    let unmatched = [("signals", "kv_usage{mode=m}/1")];
    let status = gateway.fails("IsActive", &unmatched).await;
    let why =
        "the composite `kv_usage` has no value: no group has mode=m; its groups are {model=m}, {model=n}";
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, why));
    let sum = [("composite", "kv_usage"), ("target", "1"), ("combine", "sum")];
    let status = gateway.fails("GetMetrics", &sum).await;
    assert!(status.message().contains("kv_usage{model=m}"), "{status}");
}

#[tokio::test]
async fn a_stale_value_is_an_error_for_keda_even_where_the_last_one_is_shown() {
    let mut gateway = Gateway::start().await;
    let shown = Declaration {
        on_stale: OnStale::Last,
        ..declaration("shown")
    };
    let mut bench = Bench::of(shown, Vec::new());
    gateway.admin.base.shared.composites.add(bench.watched.clone());
    bench.term = Duration::from_millis(20);
    bench.observe("m", 7.0);
    bench.until_stale().await;
    let snapshot = bench.watched.read(crate::component::unix_now());
    assert_eq!(snapshot.answers[0].answer.value, Some(7.0));
    let status = gateway
        .fails("GetMetrics", &[("composite", "shown"), ("target", "1")])
        .await;
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    let query = [("query", "sum(shown)"), ("target", "1")];
    let status = gateway.fails("GetMetrics", &query).await;
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
}

#[tokio::test]
async fn a_rate_that_does_not_cover_its_window_is_refused_by_on_partial() {
    let mut gateway = Gateway::start().await;
    let rate = Declaration {
        function: Function::Rate,
        ..declaration("served")
    };
    let mut bench = Bench::of(rate, Vec::new());
    gateway.admin.base.shared.composites.add(bench.watched.clone());
    bench
        .watched
        .composite()
        .observes_from(crate::component::unix_now());
    bench.observe("m", 5.0);
    let trigger = [("composite", "served"), ("target", "1"), ("onPartial", "error")];
    let status = gateway.fails("IsActive", &trigger).await;
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    let why = "partial: its window is not covered yet, or lacks data";
    assert!(status.message().contains(why), "{status}");
    let path = "/externalscaler.ExternalScaler/IsActive";
    let without = object(&trigger[..2]);
    let active: messages::IsActiveResponse = gateway.call(path, without).await.unwrap();
    assert!(active.result);
}

#[tokio::test]
async fn a_query_is_refused_for_the_groups_that_it_selects_and_for_no_others() {
    let mut gateway = Gateway::start().await;
    let table = Arc::new(Table::new("test", vec![Rule::newest()], Limits::default()));
    for bench in [&gateway.depth, &gateway.usage] {
        table.attach(bench.watched.composite().clone());
    }
    gateway.admin.base.shared.tables.add(table.clone());
    let query = |text: &str| {
        object(&[
            ("query", text),
            ("target", "1"),
            ("combine", "sum"),
            ("onPartial", "error"),
        ])
    };
    let depth = &mut gateway.depth;
    depth.term = Duration::from_millis(20);
    depth.observe("m", 5.0);
    depth.term = Duration::from_secs(60);
    depth.observe("n", 7.0);
    let is_stale = |bench: &Bench| {
        let snapshot = bench.watched.read(crate::component::unix_now());
        snapshot
            .answers
            .iter()
            .any(|group| group.answer.state.is_unusable())
    };
    while !is_stale(&gateway.depth) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Of one model in the other composite half the sources report.
    gateway.usage.observe("m", 0.5);
    gateway.usage.lose("m");
    gateway.usage.observe("n", 0.6);
    let cases = [
        ("sum(queue_depth)", Err("queue_depth{model=m}` is stale")),
        ("queue_depth", Err("queue_depth{model=m}` is stale")),
        ("queue_depth{model=~\"m|n\"}", Err("is stale")),
        ("sum(queue_depth{model=\"m\"})", Err("is stale")),
        ("sum(queue_depth{model=\"n\"})", Ok(7.0)),
        ("queue_depth{model!=\"m\"}", Ok(7.0)),
        ("sum(kv_usage)", Err("partial: 1 of 2 sources report")),
        ("sum(kv_usage{model=\"n\"})", Ok(0.6)),
    ];
    for (text, expected) in cases {
        let ask = messages::GetMetricsRequest {
            scaled_object_ref: Some(query(text)),
            metric_name: String::new(),
        };
        let path = "/externalscaler.ExternalScaler/GetMetrics";
        let answer: Result<messages::GetMetricsResponse, _> = gateway.call(path, ask).await;
        match (answer, expected) {
            (Ok(answer), Ok(value)) => {
                assert_eq!(answer.metric_values[0].metric_value_float, value, "{text}");
            }
            (Err(status), Err(why)) => {
                assert_eq!(status.code(), Code::FailedPrecondition, "{text}: {status}");
                assert!(status.message().contains(why), "{text}: {status}");
            }
            (answer, expected) => panic!("{text}: {answer:?}, not {expected:?}"),
        }
    }
}

#[tokio::test]
async fn activity_stays_as_it_was_while_the_value_is_not_known() {
    let mut gateway = Gateway::start().await;
    let trigger = [("composite", "queue_depth"), ("target", "10")];
    let path = "/externalscaler.ExternalScaler/StreamIsActive";
    gateway.depth.term = Duration::from_secs(4);
    gateway.depth.observe("m", 5.0);
    let mut stream: Streaming<messages::IsActiveResponse> =
        gateway.stream(path, object(&trigger)).await.unwrap();
    assert!(next(&mut stream).await.result);
    gateway.depth.until_stale().await;
    let said = timeout(Duration::from_millis(300), stream.message()).await;
    assert!(said.is_err(), "it repeats nothing: {said:?}");
    let status = gateway.fails("IsActive", &trigger).await;
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
}

#[tokio::test]
async fn a_query_is_refused_by_on_partial_while_the_scrapes_of_a_target_fail() {
    let mut gateway = Gateway::start().await;
    let table = Arc::new(Table::new("test", vec![Rule::newest()], Limits::default()));
    gateway.admin.base.shared.tables.add(table.clone());
    let trigger = [("query", "sum(waiting)"), ("target", "1"), ("onPartial", "error")];
    let or_zero = [("query", "sum(waiting) or vector(0)"), ("target", "1")];
    let path = "/externalscaler.ExternalScaler/IsActive";
    scrape(&table, "a", Some(5));
    scrape(&table, "b", Some(3));
    let active: messages::IsActiveResponse = gateway.call(path, object(&trigger)).await.unwrap();
    assert!(active.result);
    scrape(&table, "a", None);
    let partial = gateway.fails("GetMetrics", &trigger).await;
    let lenient: messages::IsActiveResponse = gateway.call(path, object(&or_zero)).await.unwrap();
    assert!(lenient.result);
    scrape(&table, "b", None);
    let missing = gateway.fails("IsActive", &or_zero).await;
    for (status, why) in [
        (partial, "1 of 2 sources report"),
        (missing, "0 of 2 sources report"),
    ] {
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(status.message().contains(why), "{status}");
    }
}
