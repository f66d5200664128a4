// SPDX-License-Identifier: Apache-2.0

//! Over real connections, as a router and as KEDA would ask.

mod keda;
mod readiness;

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::messages;
use crate::component::testing::{context, is_pending, settings};
use crate::component::{Confirm, Lifecycle, Shared};
use crate::extensions::admin::{Admin, AdminConfig};
use crate::net::Endpoint;
use crate::net::pages::testing::fetch;
use crate::watch::testing::{Bench, Computed, threshold, until};

const PATIENCE: Duration = Duration::from_secs(60);

/// Values that the store never confirms. Each reader that waits has a receiver of the channel.
#[derive(Debug)]
struct Unconfirmed(watch::Sender<()>);

impl Unconfirmed {
    fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(())))
    }

    fn readers(&self) -> usize {
        self.0.receiver_count()
    }
}

#[async_trait]
impl Confirm for Unconfirmed {
    async fn confirm(&self) -> bool {
        let _waiting = self.0.subscribe();
        pending().await
    }
}

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
        let config = settings::<AdminConfig>(&format!("{{endpoint: '127.0.0.1:0', {options}}}")).get();
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

    /// With a composite `derived` too. Its computation for the next reader waits until the latch is open.
    async fn with_computed() -> (Self, Computed) {
        let gateway = Self::start().await;
        let computed = Computed::new("derived");
        let shared = &gateway.admin.base.shared;
        shared.composites.add(computed.watched.clone());
        computed.holds_next();
        (gateway, computed)
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

/// Makes the replica unready while a reader waits for the expression.
async fn becomes_unready(shared: &Shared, computed: &Computed) {
    until(|| computed.latch.entered() == 1).await;
    shared.health.hold("receivers::partials", Some("stale"));
    computed.latch.open();
}

async fn next<M>(stream: &mut Streaming<M>) -> M {
    let next = timeout(PATIENCE, stream.message()).await;
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
    gateway.depth.observe("m", 4.0);
    gateway.depth.observe("n", 6.0);
    let ask = |name: &str, labels: &[(&str, &str)]| messages::GetRequest {
        name: name.to_owned(),
        labels: pairs(labels),
    };
    let request = ask("queue_depth", &[("model", "n")]);
    let got: messages::GetResponse = gateway.call("/tidegate.v1.Query/Get", request).await.unwrap();
    let [value] = &got.values[..] else {
        panic!("{got:?}")
    };
    assert_eq!(
        (value.value, value.count, value.state()),
        (Some(6.0), Some(1.0), messages::State::Fresh)
    );
    assert_eq!(
        (value.min, value.avg, value.max),
        (Some(6.0), Some(6.0), Some(6.0))
    );
    assert_eq!((value.sources_expected, value.window_ns), (1, 10_000_000_000));
    assert!(value.seq > 0 && value.age_ns.is_some() && value.quantiles.len() == 1);
    let all: messages::ListResponse = gateway
        .call("/tidegate.v1.Query/List", messages::ListRequest {})
        .await
        .unwrap();
    let names: Vec<&str> = all.values.iter().map(|value| &*value.name).collect();
    assert_eq!(names, ["queue_depth", "queue_depth", "kv_usage"]);
    let absent = &all.values[2];
    assert_eq!(
        (absent.state(), absent.value, absent.sum, absent.count),
        (messages::State::Absent, None, None, None)
    );
    let missing: Result<messages::GetResponse, _> = gateway
        .call("/tidegate.v1.Query/Get", ask("queue_dept", &[]))
        .await;
    let missing = missing.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    assert!(
        missing.message().contains("did you mean `queue_depth`"),
        "{missing}"
    );
    let unknown: Result<messages::GetResponse, _> = gateway
        .call("/tidegate.v1.Query/Put", ask("queue_depth", &[]))
        .await;
    assert_eq!(unknown.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn an_answer_without_room_is_refused_and_others_are_given() {
    let mut gateway = Gateway::with("query: {max_answer_bytes: 200}").await;
    for model in ["m", "n", "o"] {
        gateway.depth.observe(model, 4.0);
    }
    let list = "/tidegate.v1.Query/List";
    let refused: Result<messages::ListResponse, _> = gateway.call(list, messages::ListRequest {}).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("have not read"), "{refused}");
    let one = messages::GetRequest {
        name: "queue_depth".to_owned(),
        labels: pairs(&[("model", "m")]),
    };
    let answer: messages::GetResponse = gateway.call("/tidegate.v1.Query/Get", one).await.unwrap();
    assert_eq!(answer.values.len(), 1);
}

#[tokio::test]
async fn a_watch_tells_changes_crossings_and_the_end() {
    let mut gateway = Gateway::start().await;
    gateway.depth.observe("m", 4.0);
    let watch = messages::WatchRequest {
        name: "queue_depth".to_owned(),
        min_interval_ns: Some(0),
        ..messages::WatchRequest::default()
    };
    let mut stream: Streaming<messages::WatchResponse> = gateway
        .stream("/tidegate.v1.Query/Watch", watch.clone())
        .await
        .unwrap();
    assert_eq!(next(&mut stream).await.values[0].value, Some(4.0));
    gateway.depth.observe("m", 12.0);
    let mut crossing = None;
    while crossing.is_none() {
        crossing = next(&mut stream).await.crossing;
    }
    let crossing = crossing.unwrap();
    let threshold = crossing.threshold.unwrap();
    assert!(crossing.crossed && threshold.side() == messages::Side::Above && threshold.at == 10.0);
    assert_eq!(crossing.value.unwrap().value, Some(12.0));
    // One with a threshold of its own hears of nothing else.
    let own = messages::WatchRequest {
        threshold: Some(messages::Threshold {
            side: messages::Side::Below.into(),
            at: 2.0,
            clear: Some(5.0),
            ..messages::Threshold::default()
        }),
        ..watch.clone()
    };
    let mut stream: Streaming<messages::WatchResponse> =
        gateway.stream("/tidegate.v1.Query/Watch", own).await.unwrap();
    gateway.depth.observe("m", 3.0);
    gateway.depth.observe("m", 1.0);
    let message = next(&mut stream).await;
    assert_eq!(
        (
            message.values.len(),
            message.crossing.unwrap().value.unwrap().value
        ),
        (0, Some(1.0))
    );
    let side = messages::WatchRequest {
        threshold: Some(messages::Threshold::default()),
        ..watch
    };
    let wrong: Result<Streaming<messages::WatchResponse>, _> =
        gateway.stream("/tidegate.v1.Query/Watch", side).await;
    assert_eq!(wrong.unwrap_err().code(), Code::InvalidArgument);
    // Watchers do not delay the stop of the gateway.
    let begun = Instant::now();
    gateway.admin.stop(Instant::now() + PATIENCE).await;
    assert!(begun.elapsed() < PATIENCE, "the stop waited for a watcher");
    assert!(!matches!(stream.message().await, Ok(Some(_))));
}

#[tokio::test]
async fn the_request_of_a_watch_is_so_bounded_that_it_needs_no_reservation() {
    let mut gateway = Gateway::start().await;
    let memory = gateway.admin.base.shared.memory.clone();
    let watch = |labels: usize, text: usize, name: usize| messages::WatchRequest {
        name: "queue_depth".to_owned(),
        labels: (0..labels)
            .map(|label| (label.to_string(), "x".repeat(text)))
            .collect(),
        threshold: Some(messages::Threshold {
            name: "x".repeat(name),
            side: messages::Side::Above.into(),
            ..messages::Threshold::default()
        }),
        ..messages::WatchRequest::default()
    };
    let path = "/tidegate.v1.Query/Watch";
    let cases = [
        (watch(24_000, 0, 0), "at most 64 labels"),
        (watch(65, 0, 0), "at most 64 labels"),
        (watch(1, 16 << 10, 0), "at most 16384 are allowed"),
        (watch(0, 0, 1025), "at most 1024 are allowed"),
    ];
    for (request, why) in cases {
        let refused: Result<Streaming<messages::WatchResponse>, _> = gateway.stream(path, request).await;
        let status = refused.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().contains(why), "{status}");
    }
    let get = messages::GetRequest {
        name: "queue_depth".to_owned(),
        labels: watch(65, 0, 0).labels,
    };
    let refused: Result<messages::GetResponse, _> = gateway.call("/tidegate.v1.Query/Get", get).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    let stream: Streaming<messages::WatchResponse> =
        gateway.stream(path, watch(64, 200, 1024)).await.unwrap();
    until(|| memory.reserved_bytes() == 0).await;
    drop(stream);
}

#[tokio::test]
async fn a_watch_ends_when_a_reload_replaces_its_composite() {
    let mut gateway = Gateway::start().await;
    gateway.depth.observe("m", 4.0);
    let watch = messages::WatchRequest {
        name: "queue_depth".to_owned(),
        ..messages::WatchRequest::default()
    };
    let mut stream: Streaming<messages::WatchResponse> =
        gateway.stream("/tidegate.v1.Query/Watch", watch).await.unwrap();
    assert_eq!(next(&mut stream).await.values[0].value, Some(4.0));
    let composites = gateway.admin.base.shared.composites.list();
    composites.iter().for_each(|one| one.set_listed(false));
    let end = async {
        loop {
            match stream.message().await {
                Ok(message) => assert!(message.is_some(), "the stream ended without a status"),
                Err(status) => break status,
            }
        }
    };
    let ended = timeout(PATIENCE, end).await.expect("an end in time");
    assert_eq!(ended.code(), Code::Unavailable, "{ended:?}");
    assert!(ended.message().contains("watch again"), "{ended:?}");
    gateway.admin.stop(Instant::now() + PATIENCE).await;
}

fn object(metadata: &[(&str, &str)]) -> messages::ScaledObjectRef {
    messages::ScaledObjectRef {
        name: "vllm".to_owned(),
        namespace: "inference".to_owned(),
        scaler_metadata: pairs(metadata),
    }
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
        let all: Result<messages::ListResponse, _> = gateway
            .call("/tidegate.v1.Query/List", messages::ListRequest {})
            .await;
        let values = all.unwrap().values;
        let derived = values.iter().find(|value| value.name == "derived").unwrap();
        assert_eq!(derived.value, Some(7.0));
    };
    computed.is_computed_apart(list).await;
    let keda = async || {
        let request = messages::GetMetricsRequest {
            scaled_object_ref: Some(object(&[("composite", "derived"), ("target", "1")])),
            metric_name: String::new(),
        };
        let path = "/externalscaler.ExternalScaler/GetMetrics";
        let answer: Result<messages::GetMetricsResponse, _> = gateway.call(path, request).await;
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
        groups
            .iter()
            .for_each(|group| gateway.depth.observe(group, value));
    };
    say_all(&mut gateway, 1.0);
    let mut slow: Vec<Streaming<messages::WatchResponse>> = Vec::new();
    for _ in 0..8 {
        let ask = messages::WatchRequest {
            name: "queue_depth".to_owned(),
            min_interval_ns: Some(1),
            ..messages::WatchRequest::default()
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
        while let Ok(message) = timeout(soon, stream.message()).await {
            let Err(status) = message else { continue };
            assert_eq!(status.code(), Code::Unavailable, "{status:?}");
            assert!(status.message().contains("watch again"), "{status:?}");
            ended += 1;
            break;
        }
    }
    assert!(ended > 0);
    drop(slow);
    for _ in 0..6000 {
        if memory.reserved_bytes() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(memory.reserved_bytes(), 0);
}
