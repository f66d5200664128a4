//! What it costs to record, next to the crates that people use otherwise. One run, one table.
//!
//! `cargo bench -p tidegate-metrics --bench record`; docs/sdk.md has the figures and the machine they were taken on.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use metrics::{Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::PrometheusBuilder;
use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::{ManualReader, SdkMeterProvider};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter as ClientCounter;
use prometheus_client::metrics::family::Family as ClientFamily;
use prometheus_client::metrics::gauge::Gauge as ClientGauge;
use prometheus_client::metrics::histogram::Histogram as ClientHistogram;
use rustix::time::{ClockId, clock_gettime};
use tidegate_metrics::{
    Description, Fanout, LabelSet, MetricsRegistry, Null, Prometheus, Shm, Trigger, buckets,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClientLabels {
    model: String,
    code: u16,
}

#[derive(LabelSet)]
struct Labels {
    model: &'static str,
    code: u16,
}

type Group<'a> = BenchmarkGroup<'a, WallTime>;

/// Processor time of this thread: what others on the machine take is not in it.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("since the thread began")
}

/// So many calls.
fn spend(calls: u64, work: &impl Fn(u64)) -> Duration {
    let start = now();
    (0..calls).for_each(work);
    now() - start
}

/// One thread, then four on the same series: processor time of a call as its thread sees it.
fn both(group: &mut Group<'_>, name: &str, work: impl Fn(u64) + Send + Sync) {
    group.bench_function(format!("{name}/1"), |bencher| {
        bencher.iter_custom(|calls| spend(calls, &work));
    });
    group.bench_function(format!("{name}/4"), |bencher| {
        bencher.iter_custom(|calls| {
            let spent: Duration = std::thread::scope(|scope| {
                let threads = [(); 4].map(|()| scope.spawn(|| spend(calls, &work)));
                threads
                    .map(|thread| thread.join().expect("no panic"))
                    .iter()
                    .sum()
            });
            spent / 4
        });
    });
}

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> Group<'a> {
    let mut group = criterion.benchmark_group(name);
    group
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20);
    group
}

fn meter() -> (SdkMeterProvider, opentelemetry::metrics::Meter) {
    let provider = SdkMeterProvider::builder()
        .with_reader(ManualReader::builder().build())
        .build();
    let meter = provider.meter("bench");
    (provider, meter)
}

static META: Metadata<'static> = Metadata::new("bench", Level::INFO, None);

fn counters(criterion: &mut Criterion) {
    let mut group = group(criterion, "counter");
    let bare = AtomicU64::new(0);
    both(&mut group, "bare atomic add", |_| {
        bare.fetch_add(black_box(1), Relaxed);
    });
    let description = Description::new("a", "");
    let memory = Prometheus::new()
        .counter(&description, &[("model", "m")])
        .unwrap();
    both(&mut group, "tidegate memory", |_| memory.inc());
    let directory = tempfile::tempdir().unwrap();
    let shm = Shm::create(directory.path(), &[])
        .unwrap()
        .counter(&description, &[])
        .unwrap();
    both(&mut group, "tidegate shm", |_| shm.inc());
    let null = Null::new().counter(&description, &[]).unwrap();
    both(&mut group, "tidegate null", |_| black_box(&null).inc());
    let two: Vec<Arc<dyn MetricsRegistry>> = vec![Arc::new(Prometheus::new()), Arc::new(Prometheus::new())];
    let fanout = Fanout::new(two).counter(&description, &[]).unwrap();
    both(&mut group, "tidegate fanout of 2", |_| fanout.inc());
    let watched = Prometheus::new().counter(&description, &[]).unwrap();
    let _subscription = watched.on_change(Trigger::above(1e18), |_| ()).unwrap();
    both(&mut group, "tidegate watched", |_| watched.inc());
    let float = Prometheus::new().float_counter(&description, &[]).unwrap();
    both(&mut group, "tidegate float", |_| float.add(0.5));
    let client = ClientCounter::<u64>::default();
    both(&mut group, "prometheus-client", |_| {
        client.inc();
    });
    let recorder = PrometheusBuilder::new().build_recorder();
    let facade = recorder.register_counter(&Key::from_name("a"), &META);
    both(&mut group, "metrics", |_| facade.increment(1));
    let (_provider, meter) = meter();
    let otel = meter.u64_counter("a").build();
    both(&mut group, "opentelemetry", |_| otel.add(1, &[]));
    group.finish();
}

fn labelled(criterion: &mut Criterion) {
    let mut group = group(criterion, "counter with 2 labels looked up");
    let registry = Prometheus::new();
    let family = registry
        .counter_family(&Description::new("a", ""), &[], &["model", "code"])
        .unwrap();
    both(&mut group, "tidegate strings", |_| {
        family.with(&["llama", "200"]).inc()
    });
    let labels = Labels {
        model: "llama",
        code: 200,
    };
    both(&mut group, "tidegate typed", |_| {
        family.of(black_box(&labels)).inc()
    });
    let client = ClientFamily::<ClientLabels, ClientCounter>::default();
    let wanted = ClientLabels {
        model: "llama".to_owned(),
        code: 200,
    };
    both(&mut group, "prometheus-client", |_| {
        client.get_or_create(black_box(&wanted)).inc();
    });
    let recorder = PrometheusBuilder::new().build_recorder();
    both(&mut group, "metrics", |_| {
        let labels = vec![
            Label::from_static_parts("model", "llama"),
            Label::from_static_parts("code", "200"),
        ];
        recorder
            .register_counter(&Key::from_parts("a", labels), &META)
            .increment(1);
    });
    let (_provider, meter) = meter();
    let otel = meter.u64_counter("a").build();
    both(&mut group, "opentelemetry", |_| {
        otel.add(1, &[KeyValue::new("model", "llama"), KeyValue::new("code", 200)]);
    });
    group.finish();
}

fn gauges(criterion: &mut Criterion) {
    let mut group = group(criterion, "gauge");
    let description = Description::new("a", "");
    let gauge = Prometheus::new().gauge(&description, &[]).unwrap();
    both(&mut group, "tidegate set", |at| gauge.set(at as f64));
    both(&mut group, "tidegate add", |_| gauge.add(1.0));
    let watched = Prometheus::new().gauge(&description, &[]).unwrap();
    let _subscription = watched.on_change(Trigger::above(1e300), |_| ()).unwrap();
    both(&mut group, "tidegate set watched", |at| {
        watched.set((at % 8) as f64)
    });
    let client = ClientGauge::<f64, AtomicU64>::default();
    both(&mut group, "prometheus-client set", |at| {
        client.set(at as f64);
    });
    let recorder = PrometheusBuilder::new().build_recorder();
    let facade = recorder.register_gauge(&Key::from_name("a"), &META);
    both(&mut group, "metrics set", |at| facade.set(at as f64));
    let (_provider, meter) = meter();
    let otel = meter.f64_gauge("a").build();
    both(&mut group, "opentelemetry set", |at| otel.record(at as f64, &[]));
    group.finish();
}

fn value(at: u64) -> f64 {
    (at % 1024) as f64 / 64.0
}

fn histograms(criterion: &mut Criterion) {
    let mut group = group(criterion, "histogram of 15 buckets");
    let description = Description::new("a", "").bounds(buckets::LATENCY);
    let plain = Prometheus::new().histogram(&description, &[]).unwrap();
    both(&mut group, "tidegate", |at| plain.observe(value(at)));
    let registry = Prometheus::new();
    let watched = registry.histogram(&description, &[]).unwrap();
    let _composite = registry.composite("c").of(&watched).build().unwrap();
    both(&mut group, "tidegate watched", |at| watched.observe(value(at)));
    let exponential = Prometheus::new()
        .exponential_histogram(&description, &[])
        .unwrap();
    both(&mut group, "tidegate exponential", |at| {
        exponential.observe(value(at))
    });
    let client = ClientHistogram::new(buckets::LATENCY.iter().copied());
    both(&mut group, "prometheus-client", |at| client.observe(value(at)));
    let builder = PrometheusBuilder::new().set_buckets(buckets::LATENCY).unwrap();
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    let facade = recorder.register_histogram(&Key::from_name("a"), &META);
    both(&mut group, "metrics", |at| {
        facade.record(value(at));
        // It keeps every value until somebody takes them out.
        if at % 100_000 == 99_999 {
            handle.run_upkeep();
        }
    });
    let (_provider, meter) = meter();
    let otel = meter
        .f64_histogram("a")
        .with_boundaries(buckets::LATENCY.to_vec())
        .build();
    both(&mut group, "opentelemetry", |at| otel.record(value(at), &[]));
    group.finish();
}

criterion_group!(benches, counters, labelled, gauges, histograms);
criterion_main!(benches);
