// SPDX-License-Identifier: Apache-2.0

//! The cost of recording, next to the crates that people use otherwise: nanoseconds of processor time a call. It prints
//! the median of rounds in which all take turns, and the bounds of the lowest and the highest tenth of the rounds.
//!
//! `cargo xtask bench sdk` runs it together with Python's and makes one table of both; docs/sdk.md has it.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

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

const ROUNDS: usize = 31;
/// How long a round of one case takes.
const ROUND: Duration = Duration::from_millis(4);

/// The columns of the table.
const TIDEGATE: &str = "tidegate";
const SHM: &str = "tidegate, files";
const CLIENT: &str = "Prometheus client";
const FACADE: &str = "metrics";
const OTEL: &str = "OpenTelemetry";

/// Something to be measured: a row and a column, and the number of its calls.
struct Case {
    operation: &'static str,
    library: &'static str,
    run: Box<dyn Fn(u64) + Send + Sync>,
}

fn case(operation: &'static str, library: &'static str, call: impl Fn(u64) + Send + Sync + 'static) -> Case {
    Case {
        operation,
        library,
        run: Box::new(move |calls| (0..calls).for_each(&call)),
    }
}

impl Case {
    /// Processor time of `calls` calls of each thread, as one thread sees it: other processes on the machine do not
    /// count.
    fn spend(&self, threads: usize, calls: u64) -> Duration {
        let one = || {
            let start = now();
            (self.run)(calls);
            now().saturating_sub(start)
        };
        let spent: Duration = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .sum()
        });
        spent / threads as u32
    }

    /// How many calls take about as long as a round should.
    fn calls(&self, threads: usize) -> u64 {
        let mut calls = 1000;
        loop {
            let spent = self.spend(threads, calls);
            if spent >= ROUND / 2 {
                return (calls as f64 * ROUND.as_secs_f64() / spent.as_secs_f64()) as u64;
            }
            calls *= 2;
        }
    }
}

fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("since the thread began")
}

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let is_wanted = |case: &Case| {
        let name = format!("{} {}", case.operation, case.library);
        wanted.iter().all(|word| name.contains(word))
    };
    let directory = tempfile::tempdir().expect("a directory");
    let files = Shm::create(directory.path(), &[]).expect("a file");
    let mut cases = counters(&files);
    cases.extend(labelled(&files));
    cases.extend(gauges(&files));
    cases.extend(histograms(&files));
    cases.retain(is_wanted);
    for threads in [1, 4] {
        let calls: Vec<u64> = cases.iter().map(|case| case.calls(threads)).collect();
        let mut spent = vec![Vec::with_capacity(ROUNDS); cases.len()];
        for _ in 0..ROUNDS {
            for ((case, calls), spent) in cases.iter().zip(&calls).zip(&mut spent) {
                spent.push(case.spend(threads, *calls).as_secs_f64() * 1e9 / *calls as f64);
            }
        }
        for (case, mut spent) in cases.iter().zip(spent) {
            spent.sort_by(f64::total_cmp);
            let [low, median, high] = [10, 50, 90].map(|percent| spent[(ROUNDS - 1) * percent / 100]);
            let (operation, library) = (case.operation, case.library);
            println!("row\tRust: {operation}\t{threads}\t{library}\t{median:.1}\t{low:.1}\t{high:.1}");
        }
    }
}

/// Its instruments do nothing once the provider is gone.
fn meter() -> opentelemetry::metrics::Meter {
    let reader = ManualReader::builder().build();
    let provider = SdkMeterProvider::builder().with_reader(reader).build();
    Box::leak(Box::new(provider)).meter("bench")
}

static META: Metadata<'static> = Metadata::new("bench", Level::INFO, None);

const COUNTER: &str = "counter inc";

fn counters(files: &Shm) -> Vec<Case> {
    let description = Description::new("a", "");
    let bare = AtomicU64::new(0);
    let memory = Prometheus::new()
        .counter(&description, &[("model", "m")])
        .expect("valid");
    let in_file = files
        .counter(&Description::new("counter", ""), &[])
        .expect("valid");
    let null = Null::new().counter(&description, &[]).expect("valid");
    let two: Vec<Arc<dyn MetricsRegistry>> = vec![Arc::new(Prometheus::new()), Arc::new(Prometheus::new())];
    let fanout = Fanout::new(two).counter(&description, &[]).expect("valid");
    let watched = Prometheus::new().counter(&description, &[]).expect("valid");
    watched
        .on_change(Trigger::above(1e18), |_| ())
        .expect("valid")
        .forget();
    let float = Prometheus::new().float_counter(&description, &[]).expect("valid");
    let float_in_file = files
        .float_counter(&Description::new("float", ""), &[])
        .expect("valid");
    let client = ClientCounter::<u64>::default();
    let float_client = ClientCounter::<f64, AtomicU64>::default();
    let facade = PrometheusBuilder::new()
        .build_recorder()
        .register_counter(&Key::from_name("a"), &META);
    let otel = meter().u64_counter("a").build();
    let float_otel = meter().f64_counter("a").build();
    vec![
        case("a bare atomic addition", TIDEGATE, move |_| {
            bare.fetch_add(black_box(1), Relaxed);
        }),
        case(COUNTER, TIDEGATE, move |_| memory.inc()),
        case(COUNTER, SHM, move |_| in_file.inc()),
        case(COUNTER, CLIENT, move |_| {
            client.inc();
        }),
        case(COUNTER, FACADE, move |_| facade.increment(1)),
        case(COUNTER, OTEL, move |_| otel.add(1, &[])),
        case("counter inc, watched", TIDEGATE, move |_| watched.inc()),
        case("counter inc, fan-out of 2", TIDEGATE, move |_| fanout.inc()),
        case("counter inc, null", TIDEGATE, move |_| black_box(&null).inc()),
        case("float counter add", TIDEGATE, move |_| float.add(0.5)),
        case("float counter add", SHM, move |_| float_in_file.add(0.5)),
        case("float counter add", CLIENT, move |_| {
            float_client.inc_by(0.5);
        }),
        case("float counter add", OTEL, move |_| float_otel.add(0.5, &[])),
    ]
}

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

const LABELLED: &str = "counter inc, 2 labels looked up";

fn labelled(files: &Shm) -> Vec<Case> {
    let family = |registry: &dyn MetricsRegistry| {
        let description = Description::new("labelled", "");
        let family = registry.counter_family(&description, &[], &["model", "code"]);
        family.expect("valid")
    };
    let memory = family(&Prometheus::new());
    let typed = memory.clone();
    let in_file = family(files);
    let client = ClientFamily::<ClientLabels, ClientCounter>::default();
    let recorder = PrometheusBuilder::new().build_recorder();
    let otel = meter().u64_counter("a").build();
    let labels = Labels {
        model: "llama",
        code: 200,
    };
    let wanted = ClientLabels {
        model: "llama".to_owned(),
        code: 200,
    };
    vec![
        case(LABELLED, TIDEGATE, move |_| {
            memory.with(black_box(&["llama", "200"])).inc();
        }),
        case(LABELLED, SHM, move |_| {
            in_file.with(black_box(&["llama", "200"])).inc();
        }),
        case(LABELLED, CLIENT, move |_| {
            client.get_or_create(black_box(&wanted)).inc();
        }),
        case(LABELLED, FACADE, move |_| {
            let labels = vec![
                Label::from_static_parts("model", "llama"),
                Label::from_static_parts("code", "200"),
            ];
            let key = Key::from_parts("a", labels);
            recorder.register_counter(&key, &META).increment(1);
        }),
        case(LABELLED, OTEL, move |_| {
            otel.add(1, &[KeyValue::new("model", "llama"), KeyValue::new("code", 200)]);
        }),
        case("counter inc, typed labels", TIDEGATE, move |_| {
            typed.of(black_box(&labels)).inc();
        }),
    ]
}

const SET: &str = "gauge set";
const ADD: &str = "gauge add";

fn gauges(files: &Shm) -> Vec<Case> {
    let description = Description::new("a", "");
    let gauge = Prometheus::new().gauge(&description, &[]).expect("valid");
    let in_file = files.gauge(&Description::new("gauge", ""), &[]).expect("valid");
    let watched = Prometheus::new().gauge(&description, &[]).expect("valid");
    watched
        .on_change(Trigger::above(1e300), |_| ())
        .expect("valid")
        .forget();
    let client = ClientGauge::<f64, AtomicU64>::default();
    let facade = PrometheusBuilder::new()
        .build_recorder()
        .register_gauge(&Key::from_name("a"), &META);
    let otel = meter().f64_gauge("a").build();
    let (adding, client_adding, facade_adding) = (gauge.clone(), client.clone(), facade.clone());
    vec![
        case(SET, TIDEGATE, move |at| gauge.set(at as f64)),
        case(SET, SHM, move |at| in_file.set(at as f64)),
        case(SET, CLIENT, move |at| {
            client.set(at as f64);
        }),
        case(SET, FACADE, move |at| facade.set(at as f64)),
        case(SET, OTEL, move |at| otel.record(at as f64, &[])),
        case(ADD, TIDEGATE, move |_| adding.add(1.0)),
        case(ADD, CLIENT, move |_| {
            client_adding.inc();
        }),
        case(ADD, FACADE, move |_| facade_adding.increment(1.0)),
        case("gauge set, watched", TIDEGATE, move |at| {
            watched.set((at % 8) as f64);
        }),
    ]
}

fn value(at: u64) -> f64 {
    (at % 1024) as f64 / 64.0
}

const OBSERVE: &str = "histogram observe, 15 buckets";
const EXPONENTIAL: &str = "exponential histogram observe";

fn histograms(files: &Shm) -> Vec<Case> {
    let description = Description::new("histogram", "").bounds(buckets::LATENCY);
    let of = |registry: &dyn MetricsRegistry| registry.histogram(&description, &[]).expect("valid");
    let exponential = |registry: &dyn MetricsRegistry| {
        let histogram = registry.exponential_histogram(&Description::new("e", ""), &[]);
        histogram.expect("valid")
    };
    let plain = of(&Prometheus::new());
    let in_file = of(files);
    let registry = Prometheus::new();
    let watched = of(&registry);
    // Watched as long as it is there.
    std::mem::forget(registry.composite("c").of(&watched).build().expect("valid"));
    let (exponential, exponential_in_file) = (exponential(&Prometheus::new()), exponential(files));
    let client = ClientHistogram::new(buckets::LATENCY.iter().copied());
    let builder = PrometheusBuilder::new()
        .set_buckets(buckets::LATENCY)
        .expect("some");
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    let facade = recorder.register_histogram(&Key::from_name("a"), &META);
    let otel = meter()
        .f64_histogram("a")
        .with_boundaries(buckets::LATENCY.to_vec())
        .build();
    vec![
        case(OBSERVE, TIDEGATE, move |at| plain.observe(value(at))),
        case(OBSERVE, SHM, move |at| in_file.observe(value(at))),
        case(OBSERVE, CLIENT, move |at| client.observe(value(at))),
        case(OBSERVE, FACADE, move |at| {
            facade.record(value(at));
            // It keeps every value until a reader takes them out.
            if at % 100_000 == 99_999 {
                handle.run_upkeep();
            }
        }),
        case(OBSERVE, OTEL, move |at| otel.record(value(at), &[])),
        case("histogram observe, watched", TIDEGATE, move |at| {
            watched.observe(value(at));
        }),
        case(EXPONENTIAL, TIDEGATE, move |at| exponential.observe(value(at))),
        case(EXPONENTIAL, SHM, move |at| exponential_in_file.observe(value(at))),
    ]
}
