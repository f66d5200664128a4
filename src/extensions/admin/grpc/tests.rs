//! Over real connections, as a router and as KEDA would ask.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message;
use tidegate_engine::{Declaration, Limits, OnStale, Rule, Table};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::messages as say;
use crate::component::Lifecycle;
use crate::component::testing::{context, settings};
use crate::extensions::admin::{Admin, Config};
use crate::net::Endpoint;
use crate::net::pages::testing::fetch;
use crate::watch::testing::{Bench, Computed, declaration, threshold};

const PATIENCE: Duration = Duration::from_secs(30);

/// An admin extension with a composite of queue depths, and a channel to it.
struct Gateway {
    admin: Admin,
    depth: Bench,
    usage: Bench,
    grpc: Grpc<Channel>,
}

impl Gateway {
    async fn start() -> Self {
        Self::with("").await
    }

    /// With more options.
    async fn with(options: &str) -> Self {
        let config = settings::<Config>(&format!("{{endpoint: '127.0.0.1:0', {options}}}")).get();
        let admin = Admin::new(config, context("extensions", "admin")).unwrap();
        let depth = Bench::new("queue_depth", vec![threshold(10.0, 8.0)]);
        let usage = Bench::new("kv_usage", Vec::new());
        for bench in [&depth, &usage] {
            admin.base.shared.composites.add(bench.watched.clone());
            bench.keep_looking();
        }
        admin.start().await.unwrap();
        let Endpoint::Tcp { host, port } = admin.server.local() else {
            panic!("not TCP");
        };
        let channel = Channel::from_shared(format!("http://{host}:{port}")).unwrap();
        let grpc = Grpc::new(channel.connect().await.unwrap());
        Self {
            admin,
            depth,
            usage,
            grpc,
        }
    }

    async fn call<I, O>(&mut self, path: &'static str, request: I) -> Result<O, Status>
    where
        I: Message + Default + 'static,
        O: Message + Default + 'static,
    {
        self.grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static(path);
        let codec = ProstCodec::<I, O>::default();
        let answer = self.grpc.unary(Request::new(request), path, codec).await;
        answer.map(tonic::Response::into_inner)
    }

    async fn stream<I, O>(&mut self, path: &'static str, request: I) -> Result<Streaming<O>, Status>
    where
        I: Message + Default + 'static,
        O: Message + Default + 'static,
    {
        self.grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static(path);
        let codec = ProstCodec::<I, O>::default();
        let answer = self
            .grpc
            .server_streaming(Request::new(request), path, codec)
            .await;
        answer.map(tonic::Response::into_inner)
    }
}

impl Gateway {
    /// The error of a call that must fail.
    async fn fails(&mut self, face: &str, metadata: &[(&str, &str)]) -> Status {
        let object = object(metadata);
        match face {
            "IsActive" => {
                let path = "/externalscaler.ExternalScaler/IsActive";
                let answer: Result<say::IsActiveResponse, _> = self.call(path, object).await;
                answer.unwrap_err()
            }
            _ => {
                let path = "/externalscaler.ExternalScaler/GetMetrics";
                let ask = say::GetMetricsRequest {
                    scaled_object_ref: Some(object),
                    metric_name: String::new(),
                };
                let answer: Result<say::GetMetricsResponse, _> = self.call(path, ask).await;
                answer.unwrap_err()
            }
        }
    }
}

async fn next<M>(stream: &mut Streaming<M>) -> M {
    let next = tokio::time::timeout(PATIENCE, stream.message()).await;
    next.expect("a message in time")
        .unwrap()
        .expect("the stream goes on")
}

fn pairs(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    let pairs = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    pairs.collect()
}

#[test]
fn the_proto_files_and_the_rust_types_declare_the_same() {
    let protos = [
        include_str!("../../../../proto/tidegate/v1/query.proto"),
        include_str!("../../../../proto/externalscaler/externalscaler.proto"),
    ];
    let declared = crate::protofile::compare(&protos, include_str!("messages.rs"));
    assert_eq!(declared, 64, "fields and values were found at all");
}

#[tokio::test]
async fn composites_are_read_by_name_and_all_together() {
    let mut gateway = Gateway::start().await;
    gateway.depth.say("m", 4.0);
    gateway.depth.say("n", 6.0);
    let ask = |name: &str, labels: &[(&str, &str)]| say::GetRequest {
        name: name.to_owned(),
        labels: pairs(labels),
    };
    let request = ask("queue_depth", &[("model", "n")]);
    let got: say::GetResponse = gateway.call("/tidegate.v1.Query/Get", request).await.unwrap();
    let [value] = &got.values[..] else {
        panic!("{got:?}")
    };
    assert_eq!(
        (value.value, value.count, value.state()),
        (Some(6.0), Some(1.0), say::State::Fresh)
    );
    assert_eq!(
        (value.min, value.avg, value.max),
        (Some(6.0), Some(6.0), Some(6.0))
    );
    assert_eq!((value.sources_expected, value.window_ns), (1, 10_000_000_000));
    assert!(value.seq > 0 && value.age_ns.is_some() && value.quantiles.len() == 1);
    let all: say::ListResponse = gateway
        .call("/tidegate.v1.Query/List", say::ListRequest {})
        .await
        .unwrap();
    let names: Vec<&str> = all.values.iter().map(|value| &*value.name).collect();
    assert_eq!(names, ["queue_depth", "queue_depth", "kv_usage"]);
    let absent = &all.values[2];
    assert_eq!(
        (absent.state(), absent.value, absent.sum, absent.count),
        (say::State::Absent, None, None, None)
    );
    let missing: Result<say::GetResponse, _> = gateway
        .call("/tidegate.v1.Query/Get", ask("queue_dept", &[]))
        .await;
    let missing = missing.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    assert!(
        missing.message().contains("did you mean `queue_depth`"),
        "{missing}"
    );
    let unknown: Result<say::GetResponse, _> = gateway
        .call("/tidegate.v1.Query/Put", ask("queue_depth", &[]))
        .await;
    assert_eq!(unknown.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn an_answer_without_room_is_refused_and_others_are_given() {
    let mut gateway = Gateway::with("query: {max_answer_bytes: 200}").await;
    for model in ["m", "n", "o"] {
        gateway.depth.say(model, 4.0);
    }
    let list = "/tidegate.v1.Query/List";
    let refused: Result<say::ListResponse, _> = gateway.call(list, say::ListRequest {}).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("have not read"), "{refused}");
    let one = say::GetRequest {
        name: "queue_depth".to_owned(),
        labels: pairs(&[("model", "m")]),
    };
    let answer: say::GetResponse = gateway.call("/tidegate.v1.Query/Get", one).await.unwrap();
    assert_eq!(answer.values.len(), 1);
}

#[tokio::test]
async fn a_watch_tells_changes_crossings_and_the_end() {
    let mut gateway = Gateway::start().await;
    gateway.depth.say("m", 4.0);
    let watch = say::WatchRequest {
        name: "queue_depth".to_owned(),
        min_interval_ns: Some(0),
        ..say::WatchRequest::default()
    };
    let mut stream: Streaming<say::WatchResponse> = gateway
        .stream("/tidegate.v1.Query/Watch", watch.clone())
        .await
        .unwrap();
    assert_eq!(next(&mut stream).await.values[0].value, Some(4.0));
    gateway.depth.say("m", 12.0);
    let mut crossing = None;
    while crossing.is_none() {
        crossing = next(&mut stream).await.crossing;
    }
    let crossing = crossing.unwrap();
    let threshold = crossing.threshold.unwrap();
    assert!(crossing.crossed && threshold.side() == say::Side::Above && threshold.at == 10.0);
    assert_eq!(crossing.value.unwrap().value, Some(12.0));
    // One with a threshold of its own hears of nothing else.
    let own = say::WatchRequest {
        threshold: Some(say::Threshold {
            side: say::Side::Below.into(),
            at: 2.0,
            clear: Some(5.0),
            ..say::Threshold::default()
        }),
        ..watch.clone()
    };
    let mut stream: Streaming<say::WatchResponse> =
        gateway.stream("/tidegate.v1.Query/Watch", own).await.unwrap();
    gateway.depth.say("m", 3.0);
    gateway.depth.say("m", 1.0);
    let message = next(&mut stream).await;
    assert_eq!(
        (
            message.values.len(),
            message.crossing.unwrap().value.unwrap().value
        ),
        (0, Some(1.0))
    );
    let side = say::WatchRequest {
        threshold: Some(say::Threshold::default()),
        ..watch
    };
    let wrong: Result<Streaming<say::WatchResponse>, _> =
        gateway.stream("/tidegate.v1.Query/Watch", side).await;
    assert_eq!(wrong.unwrap_err().code(), Code::InvalidArgument);
    // Watchers do not delay the stop of the gateway.
    let begun = Instant::now();
    gateway.admin.stop(Instant::now() + PATIENCE).await;
    assert!(begun.elapsed() < PATIENCE, "the stop waited for a watcher");
    assert!(!matches!(stream.message().await, Ok(Some(_))));
}

fn object(metadata: &[(&str, &str)]) -> say::ScaledObjectRef {
    say::ScaledObjectRef {
        name: "vllm".to_owned(),
        namespace: "inference".to_owned(),
        scaler_metadata: pairs(metadata),
    }
}

#[tokio::test]
async fn keda_gets_targets_values_and_activity_of_one_signal_or_several() {
    let mut gateway = Gateway::start().await;
    let both = [
        ("signals", "queue_depth{model=m}/10, kv_usage/0.8"),
        ("activation", "0.5"),
    ];
    gateway.depth.say("m", 4.0);
    gateway.depth.say("n", 400.0);
    gateway.usage.say("m", 0.6);
    let spec: say::GetMetricSpecResponse = gateway
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
    let ask = say::GetMetricsRequest {
        scaled_object_ref: Some(object(&both)),
        metric_name: "s0-queue_depth".to_owned(),
    };
    let values: say::GetMetricsResponse = gateway
        .call("/externalscaler.ExternalScaler/GetMetrics", ask)
        .await
        .unwrap();
    let [value] = &values.metric_values[..] else {
        panic!("{values:?}")
    };
    assert_eq!((&*value.metric_name, value.metric_value), ("s0-queue_depth", 1));
    assert!((value.metric_value_float - 0.75).abs() < 1e-9, "{value:?}");
    let active: say::IsActiveResponse = gateway
        .call("/externalscaler.ExternalScaler/IsActive", object(&both))
        .await
        .unwrap();
    assert!(active.result);
    let path = "/externalscaler.ExternalScaler/StreamMetricSpec";
    let mut specs: Streaming<say::GetMetricSpecResponse> = gateway.stream(path, object(&both)).await.unwrap();
    assert_eq!(next(&mut specs).await.metric_specs[0], *spec);
    // A composite that is not declared has no target either.
    let unknown = [("signals", "queue_depth/10, queue_dept/5")];
    let answer: Result<say::GetMetricSpecResponse, _> = gateway
        .call("/externalscaler.ExternalScaler/GetMetricSpec", object(&unknown))
        .await;
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
    assert!(status.message().contains("queue_depth"), "{status}");
    let answer: Result<Streaming<say::GetMetricSpecResponse>, _> =
        gateway.stream(path, object(&unknown)).await;
    assert_eq!(answer.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn keda_gets_a_message_when_activity_begins_and_ends() {
    let mut gateway = Gateway::start().await;
    let trigger = [("composite", "queue_depth"), ("target", "10"), ("combine", "sum")];
    gateway.depth.say("m", 0.0);
    let path = "/externalscaler.ExternalScaler/StreamIsActive";
    let mut stream: Streaming<say::IsActiveResponse> = gateway.stream(path, object(&trigger)).await.unwrap();
    assert!(!next(&mut stream).await.result, "the current one at once");
    gateway.depth.say("n", 1.0);
    assert!(next(&mut stream).await.result);
    gateway.depth.say("n", 0.0);
    assert!(!next(&mut stream).await.result);
}

#[tokio::test]
async fn what_is_not_known_is_an_error_and_never_zero() {
    let mut gateway = Gateway::start().await;
    let ask = |metadata: &[(&str, &str)]| say::GetMetricsRequest {
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
        let answer: Result<say::GetMetricsResponse, _> = gateway.call(path, request).await;
        let status = answer.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(why), "{status}");
    }
    gateway.depth.lose("m");
    let stale: Result<say::GetMetricsResponse, _> = gateway.call(path, ask(&composite)).await;
    assert!(stale.unwrap_err().message().contains("is stale"));
    let query = ask(&[("query", "1 + 1"), ("target", "1")]);
    let two: say::GetMetricsResponse = gateway.call(path, query).await.unwrap();
    assert_eq!(two.metric_values[0].metric_value_float, 2.0);
    // A source without a value is null, not 0: for each face of KEDA, and among values of other groups too.
    gateway.usage.join("m");
    let null = [("composite", "kv_usage"), ("target", "1")];
    for face in ["GetMetrics", "IsActive"] {
        let status = gateway.fails(face, &null).await;
        assert_eq!(status.code(), Code::FailedPrecondition, "{face}: {status}");
        assert!(status.message().contains("is idle and has no value"), "{status}");
    }
    gateway.usage.say("n", 0.5);
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
    bench.say("m", 7.0);
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
    depth.say("m", 5.0);
    depth.term = Duration::from_secs(60);
    depth.say("n", 7.0);
    let is_stale = |bench: &Bench| {
        let snapshot = bench.watched.read(crate::component::unix_now());
        snapshot
            .answers
            .iter()
            .any(|group| group.answer.state.says_nothing())
    };
    while !is_stale(&gateway.depth) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Of one model in the other composite half the sources report.
    gateway.usage.say("m", 0.5);
    gateway.usage.lose("m");
    gateway.usage.say("n", 0.6);
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
        let ask = say::GetMetricsRequest {
            scaled_object_ref: Some(query(text)),
            metric_name: String::new(),
        };
        let path = "/externalscaler.ExternalScaler/GetMetrics";
        let answer: Result<say::GetMetricsResponse, _> = gateway.call(path, ask).await;
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
    gateway.depth.term = Duration::from_secs(1);
    gateway.depth.say("m", 5.0);
    let mut stream: Streaming<say::IsActiveResponse> = gateway.stream(path, object(&trigger)).await.unwrap();
    assert!(next(&mut stream).await.result);
    gateway.depth.until_stale().await;
    let said = tokio::time::timeout(Duration::from_millis(300), stream.message()).await;
    assert!(said.is_err(), "it repeats nothing: {said:?}");
    let status = gateway.fails("IsActive", &trigger).await;
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
}

#[tokio::test]
async fn expressions_for_all_readers_run_on_no_thread_of_the_runtime() {
    let mut gateway = Gateway::start().await;
    let computed = Computed::new("derived");
    gateway.admin.base.shared.composites.add(computed.watched.clone());
    let local = gateway.admin.server.local();
    let page = async || {
        let (status, page) = fetch(&local, "GET", "/api/v1/composites/derived").await;
        assert!(status == 200 && page.contains("\"value\":7.0"), "{page}");
    };
    computed.is_computed_apart(page).await;
    let list = async || {
        let all: Result<say::ListResponse, _> =
            gateway.call("/tidegate.v1.Query/List", say::ListRequest {}).await;
        let values = all.unwrap().values;
        let derived = values.iter().find(|value| value.name == "derived").unwrap();
        assert_eq!(derived.value, Some(7.0));
    };
    computed.is_computed_apart(list).await;
    let keda = async || {
        let request = say::GetMetricsRequest {
            scaled_object_ref: Some(object(&[("composite", "derived"), ("target", "1")])),
            metric_name: String::new(),
        };
        let path = "/externalscaler.ExternalScaler/GetMetrics";
        let answer: Result<say::GetMetricsResponse, _> = gateway.call(path, request).await;
        assert_eq!(answer.unwrap().metric_values[0].metric_value_float, 7.0);
    };
    computed.is_computed_apart(keda).await;
}

#[tokio::test]
async fn the_backlog_of_watchers_is_on_the_account_and_slow_watchers_end() {
    let mut gateway = Gateway::start().await;
    let memory = gateway.admin.base.shared.memory.clone();
    // A sixteenth of it for watchers: not enough for a message of each.
    const LIMIT: usize = 32 << 20;
    memory.add_limit(crate::component::Limit::of(LIMIT));
    let groups: Vec<String> = (0..9)
        .map(|group| format!("{group}-{}", "x".repeat(20_000)))
        .collect();
    let say_all = |gateway: &mut Gateway, value: f64| {
        groups.iter().for_each(|group| gateway.depth.say(group, value));
    };
    say_all(&mut gateway, 1.0);
    let mut slow: Vec<Streaming<say::WatchResponse>> = Vec::new();
    for _ in 0..8 {
        let ask = say::WatchRequest {
            name: "queue_depth".to_owned(),
            min_interval_ns: Some(1),
            ..say::WatchRequest::default()
        };
        slow.push(gateway.stream("/tidegate.v1.Query/Watch", ask).await.unwrap());
    }
    // No watcher reads. The backlog stays within the share of watchers.
    let (begun, mut value) = (Instant::now(), 1.0);
    while begun.elapsed() < Duration::from_secs(4) {
        value += 1.0;
        say_all(&mut gateway, value);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(
            memory.reserved_bytes() <= LIMIT / 16,
            "{}",
            memory.reserved_bytes()
        );
    }
    assert!(memory.reserved_bytes() > 0);
    let mut ended = 0;
    for stream in &mut slow {
        let soon = Duration::from_millis(500);
        while let Ok(message) = tokio::time::timeout(soon, stream.message()).await {
            let Err(status) = message else { continue };
            assert_eq!(status.code(), Code::Unavailable, "{status:?}");
            assert!(status.message().contains("watch again"), "{status:?}");
            ended += 1;
            break;
        }
    }
    assert!(ended > 0);
    drop(slow);
    for _ in 0..500 {
        if memory.reserved_bytes() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(memory.reserved_bytes(), 0);
}
