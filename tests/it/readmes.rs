// SPDX-License-Identifier: Apache-2.0

//! The examples in the READMEs of crates, and parts of programs in `docs/sdk.md`. They compile here, and some run.
//!
//! `tests/docs/test_fragments.py` finds each of them in this file, line by line. Most documents show no imports and no
//! function around their example.

#![allow(
    unused,
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "examples show what programs write"
)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

type Outcome = Result<(), Box<dyn Error>>;

// crates/tidegate-account/README.md
#[test]
fn account() {
    let counters = tidegate_account::Counters::default();
    let begun = counters.begin();
    counters.note(begun, 64 << 20); // the process uses 64 MiB
    assert!(counters.reserve(4096, 256 << 20)); // the limit is 256 MiB
}

// crates/tidegate-cells/README.md
fn cells(directory: &Path) -> Outcome {
    use tidegate_cells::{Directory, FamilySpec, Kind, Limits, Options, Store};

    let store = Store::create(directory, Options::default())?;
    let requests = store.family(&FamilySpec::new("requests", Kind::Counter).labels(["model"]))?;
    requests.with(&["llama"]).counter()?.add(3);
    let scan = Directory::open(directory, Limits::default())?.scan();
    Ok(())
}

// crates/tidegate-cluster/README.md
fn cluster(mut sender: tidegate_cluster::PageSender, mut store: impl tidegate_cluster::ClusterStore) {
    use tidegate_engine::clock;

    while let Some((id, call)) = sender.poll(clock::now()) {
        store.start(id, call); // The answer comes later: `sender.answer(id, result, clock::now())`.
    }
}

// crates/tidegate-config/README.md
mod config {
    use std::time::Duration;

    tidegate_config::options! {
        /// Options of the `nixl` receiver.
        pub struct Config {
            /// Directories that contain ring files.
            pub directories: Vec<String> = required,
            /// Interval between two reads.
            pub poll_interval: Duration = Duration::from_millis(10),
        }
    }
}

// crates/tidegate-engine/README.md
#[test]
fn engine() {
    use tidegate_engine::{Limits, Pattern, Rule, Table, clock};

    let rule = Rule::new(Pattern::Glob("requests*".into()));
    let table = Table::new("example", vec![rule], Limits::default());
    table.read(clock::now(), &mut |reading| {
        println!("{}", reading.series.metric.name);
    });
}

// crates/tidegate-exposition/README.md
#[test]
fn exposition() -> Outcome {
    use tidegate_exposition::{Event, Format, Options, Parser};

    let mut parser = Parser::new(Format::Text, b"a{b=\"c\"} 1\n", Options::default());
    while let Some(event) = parser.next(b"")? {
        if let Event::Sample(sample) = event {
            println!("{}", sample.value);
        }
    }
    Ok(())
}

// crates/tidegate-kafka/README.md
fn kafka() -> Outcome {
    use tidegate_cluster::ClusterEngine;
    use tidegate_kafka::{KafkaConfig, KafkaEngine};

    let config = KafkaConfig {
        brokers: vec!["kafka:9092".to_owned()],
        ..KafkaConfig::default()
    };
    let engine = KafkaEngine::start(config, "prod-a", 1)?; // A cluster with one partition.
    let session = engine.open(); // One for each state machine.
    Ok(())
}

// crates/tidegate-kubernetes/README.md
async fn kubernetes(account: Arc<tidegate_runtime::Account>) -> Outcome {
    use tidegate_kubernetes::{ApiClient, Cluster, ObjectKind, Scope, in_cluster};

    let cluster = Cluster::shared(ApiClient::new(in_cluster()?)?, &account);
    let watch = cluster.watch(Scope::all(ObjectKind::Pod));
    watch.status().wait_for(|status| status.is_synced).await?;
    let pods = watch.snapshot();
    Ok(())
}

// crates/tidegate-metrics-derive/README.md
mod metrics_derive {
    #[derive(tidegate_metrics::LabelSet)]
    struct Call {
        method: &'static str,
        code: u16,
    }
}

// crates/tidegate-metrics/README.md
#[test]
fn metrics() -> Outcome {
    use tidegate_metrics::{Counter, MetricSet, MetricsRegistry, Prometheus, RegisterError};

    #[derive(MetricSet)]
    #[metrics(prefix = "service", labels(model))]
    struct Service {
        /// Requests processed.
        requests: Counter,
    }

    fn main() -> Result<(), RegisterError> {
        let registry = Prometheus::new();
        let service = Service::register(&registry, &[("model", "m")])?;
        service.requests.inc();
        print!("{}", registry.prometheus_format_str()); // service_requests_total{model="m"} 1
        Ok(())
    }
    Ok(main()?)
}

// crates/tidegate-model/README.md
#[test]
fn model() {
    let mut bytes = Vec::new();
    tidegate_model::varint::push_varint(&mut bytes, 300);
    assert_eq!(tidegate_model::varint::varint(&bytes), Some((300, 2)));
}

// crates/tidegate-nats/README.md
fn nats() -> Outcome {
    use tidegate_cluster::ClusterEngine;
    use tidegate_nats::{NatsConfig, NatsEngine};

    let config = NatsConfig {
        servers: vec!["nats://nats:4222".into()],
        ..NatsConfig::default()
    };
    let engine = NatsEngine::start(config, "prod")?;
    let session = engine.open(); // `session.store` takes the calls, and `session.events` gives the answers.
    Ok(())
}

// crates/tidegate-otlp/README.md
fn otlp(bytes: Bytes) -> Outcome {
    use tidegate_otlp::{Signal, convert, wire};

    let encoded = wire::check(Signal::Metrics, bytes)?;
    println!("{} points", encoded.items());
    let points = convert::points(&encoded)?;
    Ok(())
}

// crates/tidegate-page/README.md
fn page() -> Outcome {
    let reader = tidegate_page::Reader::open("/dev/shm/tidegate.page")?;
    let handle = reader.find("xfer_time_avg_10s", "agent_name=\"rank_0\"")?;
    let now = reader.read(&handle)?;
    println!("{:?} {:?}", now.state, now.value);
    Ok(())
}

// crates/tidegate-plugin/README.md
mod plugin {
    use tidegate_plugin::{Answer, Batch, Exporter, Setup, Takes};

    struct Counting(u64);

    impl Exporter for Counting {
        const NAME: &std::ffi::CStr = c"counting";
        const VERSION: &std::ffi::CStr = c"1.0.0";
        const TAKES: Takes = Takes::METRICS.and(Takes::EVENTS);

        fn create(_: &Setup<'_>) -> Result<Self, String> {
            Ok(Self(0))
        }

        fn export(&mut self, batch: &Batch<'_>) -> Answer {
            self.0 += batch.items();
            Answer::Ok
        }
    }

    tidegate_plugin::exporter_plugin!(Counting);
}

// crates/tidegate-profiler/README.md
fn profiler(work: impl Fn()) -> Outcome {
    let sampling = tidegate_profiler::Sampling::start()?;
    work();
    std::fs::write("profile.pb", sampling.stop().encode())?;
    Ok(())
}

// crates/tidegate-promql/README.md
#[test]
fn promql() -> Outcome {
    use tidegate_promql::{NAME, Query, QuerySeries, Sample};

    let labels = [(NAME, "requests_total"), ("job", "api")].into_iter().collect();
    let store = vec![QuerySeries::of_floats(
        labels,
        vec![Sample {
            time: 1_000,
            value: 31.0,
        }],
    )];
    let answer = Query::parse("sum by (job) (requests_total)")?.instant(&store, 1_000)?;
    Ok(())
}

// crates/tidegate-requests/README.md
#[test]
fn requests() {
    use tidegate_requests::{attribute, counter, int, request};

    let request = request(
        vec![attribute("host", "a")],
        "scope",
        [counter("requests", [int(3)])],
    );
}

// crates/tidegate-ring/README.md
fn ring() -> Outcome {
    use tidegate_ring::{Batch, Options, Poll, Reader};

    let mut reader = Reader::open("/run/nixl/agent", Options::default())?;
    let mut batch = Batch::default();
    if let Poll::Events(_) = reader.read(&mut batch)? {
        println!("{:?}", batch.values);
        reader.commit();
    }
    Ok(())
}

// crates/tidegate-rules/README.md
fn rules(text: &str, now: i64, mut backend: impl tidegate_rules::RuleBackend) {
    use tidegate_config::Problems;
    use tidegate_rules::{GroupState, parse_rules};

    let mut problems = Problems::default();
    if let Some(file) = parse_rules("rules.yaml", text, &mut problems) {
        let mut group = GroupState::new(file.groups[0].clone(), Arc::default());
        let summary = group.evaluate(now, &mut backend);
        let to_send = group.due_alerts(now, 60_000, 60_000);
    }
}

// crates/tidegate-runtime/README.md
fn runtime(length: usize) -> Outcome {
    use tidegate_runtime::{Account, Held, Limit};

    let account = Arc::new(Account::default());
    account.add_limit(Limit::of(64 << 20));
    let mut held = Held::new(account.clone());
    held.try_grow(length)?; // `NoRoom`: refuse the request.
    let body: Vec<u8> = Vec::with_capacity(length);
    Ok(())
}

// crates/tidegate-wal/README.md
fn wal(
    owner: Arc<str>,
    directory: PathBuf,
    rules: tidegate_wal::Rules,
    quota: Arc<tidegate_wal::Quota>,
    notify: Arc<tokio::sync::Notify>,
    append: tidegate_wal::Append,
) -> Outcome {
    use tidegate_wal::Store;

    let (store, recovered) = Store::open(owner, &directory, &rules, quota, notify, None)?;
    store.append(append); // `Append::done` learns when the record is kept.
    Ok(())
}

// docs/sdk.md
#[test]
fn sdk_scopes() -> Outcome {
    use tidegate_metrics::{Description, MetricsRegistry, Prometheus, Scope};

    let page = Arc::new(Prometheus::new());
    let registry: Arc<dyn MetricsRegistry> = page.clone();
    let endpoint = Scope::new(registry)
        .prefix("dynamo_component")
        .namespace("demo")
        .component("worker")
        .endpoint("generate");
    endpoint.counter(&Description::new("requests", "Requests"), &[])?;
    // dynamo_component_requests_total{dynamo_namespace="demo",dynamo_component="worker",dynamo_endpoint="generate"}
    let text = page.prometheus_format_str();
    assert!(text.contains("\ndynamo_component_requests_total{"), "{text}");
    Ok(())
}

#[test]
fn sdk_without_a_set() -> Outcome {
    use tidegate_metrics::{Description, GaugeMode, MetricsRegistry, Prometheus};

    let registry = Prometheus::new();
    let done = registry.counter(&Description::new("done", "Requests answered"), &[("zone", "a")])?;
    let requests = Description::new("requests", "Requests by user");
    let requests = registry.counter_family(&requests, &[("zone", "a")], &["user"])?;
    requests.with(&["ada"]).inc(); // requests_total{zone="a",user="ada"} 1
    let wait = Description::new("wait", "Time in the queue")
        .unit("s")
        .bounds([0.01, 0.1, 1.0]);
    let wait = registry.histogram(&wait, &[])?;
    let batch = Description::new("batch", "Largest batch of any process").mode(GaugeMode::LiveMax);
    let batch = registry.gauge(&batch, &[])?;
    let text = registry.prometheus_format_str();
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with("requests_total{"));
    assert_eq!(line, Some("requests_total{zone=\"a\",user=\"ada\"} 1"), "{text}");
    Ok(())
}

#[test]
fn sdk_composites() -> Outcome {
    use std::time::Duration;
    use tidegate_metrics::{Across, Description, Function, MetricsRegistry, Prometheus, Trigger};

    let registry = Prometheus::new();
    let latency = Description::new("latency", "Time of a request");
    let queue = Description::new("queue", "Requests that wait");
    let latency_family = registry.histogram_family(&latency, &[], &["model"])?;
    let queue_family = registry.gauge_family(&queue, &[], &["model", "pod"])?;
    let ttft = registry
        .composite("ttft")
        .of(&latency_family)
        .by(["model"])
        .window(Duration::from_secs(10))
        .function(Function::Max)
        .quantiles([0.5, 0.99])
        .build()?;
    let depth = registry
        .composite("depth")
        .of(&queue_family)
        .by(["model"]) // of all pods of a model
        .function(Function::Last)
        .across(Across::Sum)
        .build()?;
    ttft.get(); // now, of everything that was recorded before this call
    ttft.get_for(&[("model", "llama")]);
    let trigger = Trigger::above(0.5)
        .hysteresis(0.1)
        .min_interval(Duration::from_millis(100));
    let subscription = ttft.on_change(trigger, |change| println!("{change:?}"))?; // until it is dropped
    let mut watcher = ttft.watch(); // watcher.wait(timeout), or watcher.changed().await in any runtime
    queue_family.with(&["llama", "a"]).set(7.0);
    queue_family.with(&["llama", "b"]).set(5.0);
    assert_eq!(depth.get().value, Some(12.0));
    Ok(())
}
