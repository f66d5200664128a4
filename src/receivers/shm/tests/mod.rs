// SPDX-License-Identifier: Apache-2.0

//! The receiver with real cells.

mod conflicts;
mod directories;
mod liveness;
mod repeats;
mod starts;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_cells::{FamilySpec, GaugeMode, Kind, Options, Store};
use tidegate_engine::{AttributeRef, Lease, Point, UnixNanos, Value};

use super::config::ShmConfig;
use super::{Directories, FACTORY};
use crate::batch::{Batch, Payload, Signal};
use crate::component::testing::{Sink, context, eventually, settings};
use crate::component::{Context, Limit, Receiver, wall_now};
use crate::telemetry::testing::recorder;

fn points(sink: &Sink) -> Vec<Point> {
    let points = |batch: &Batch| match &batch.payload {
        Payload::Points(points) => points.points.to_vec(),
        _ => panic!("points expected"),
    };
    sink.batches().iter().flat_map(points).collect()
}

fn last(sink: &Sink, name: &str) -> Option<Value> {
    let all = points(sink);
    let found = all.iter().rfind(|point| &*point.series.metric.name == name);
    found.map(|point| point.value.clone())
}

async fn start(sink: &Arc<Sink>, directory: &std::path::Path, more: &str) -> Arc<dyn Receiver> {
    let yaml = format!(
        "{{directories: [{}], poll_interval: 1ms, scan_interval: 5ms{more}}}",
        directory.display()
    );
    let receiver = (FACTORY.build)(&settings::<ShmConfig>(&yaml), sink.receiver_context("shm")).unwrap();
    receiver.start().await.unwrap();
    receiver
}

fn store(directory: &std::path::Path) -> Store {
    let options = Options {
        resource: vec![("service.name".into(), "llm".into())],
        max_series: 2,
        ..Options::default()
    };
    Store::create(directory, options).unwrap()
}

fn count(store: &Store, label: &str, n: u64) {
    let family = FamilySpec::new("requests", Kind::Counter).labels(["model"]);
    let family = store.family(&family).unwrap();
    family.with(&[label]).counter().unwrap().add(n);
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[tokio::test]
async fn totals_go_on_over_the_death_of_workers_and_of_the_gateway() {
    let directory = tempfile::tempdir().unwrap();
    let sink = Sink::new();
    let receiver = start(&sink, directory.path(), ", grace_period: 0s").await;
    let (one, two) = (store(directory.path()), store(directory.path()));
    count(&one, "a", 3);
    count(&two, "a", 4);
    eventually("the sum of both", || {
        last(&sink, "requests") == Some(Value::Int(7))
    });
    drop(one);
    let files = || std::fs::read_dir(directory.path()).unwrap().flatten();
    let is_retained = || files().any(|file| file.file_name() == "retained.cells");
    let is_alone = || {
        files()
            .filter(|file| file.file_name().to_string_lossy().starts_with(char::is_numeric))
            .count()
            == 1
    };
    eventually("its file is taken over and removed", || {
        is_retained() && is_alone()
    });
    count(&two, "a", 1);
    eventually("the total with the dead one's", || {
        last(&sink, "requests") == Some(Value::Int(8))
    });
    receiver.stop(soon()).await;
    drop(two);

    let all = points(&sink);
    let sample = all.first().unwrap();
    let service = sample.series.resource.attributes.get("service.name");
    assert_eq!(
        service.and_then(tidegate_engine::AttributeRef::as_str),
        Some("llm")
    );
    assert!(sample.start > 0 && sample.start <= sample.time);
    let falls = all
        .windows(2)
        .any(|pair| matches!((&pair[0].value, &pair[1].value), (Value::Int(a), Value::Int(b)) if a > b));
    assert!(!falls, "{all:?}");

    let sink = Sink::new();
    let receiver = start(&sink, directory.path(), "").await;
    eventually("what a new gateway finds", || {
        last(&sink, "requests") == Some(Value::Int(8))
    });
    // Otherwise an `aggregate` would take the total for that of another process, and count it again.
    let start = points(&sink).last().map(|point| point.start);
    assert_eq!(
        start,
        Some(sample.start),
        "the file of the oldest process is gone"
    );
    receiver.stop(soon()).await;
}

#[tokio::test]
async fn every_instrument_comes_as_what_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let sink = Sink::new();
    let receiver = start(&sink, directory.path(), "").await;
    let store = store(directory.path());
    let series = |name: &str, kind| store.family(&FamilySpec::new(name, kind)).unwrap().with(&[]);
    series("queue", Kind::Gauge(GaugeMode::Sum))
        .float()
        .unwrap()
        .set(2.5);
    series("busy", Kind::UpDownCounter).up_down().unwrap().add(-2);
    let bounds = Kind::Histogram {
        bounds: [1.0, 2.0].into(),
    };
    series("time", bounds).histogram().unwrap().observe(1.5);
    series("size", Kind::ExponentialHistogram { max_scale: 20 })
        .exponential()
        .unwrap()
        .observe(4.0);
    series("sum", Kind::Summary).summary().unwrap().observe(4.0);
    eventually("the gauge", || last(&sink, "queue") == Some(Value::Double(2.5)));
    eventually("the up-down counter", || {
        last(&sink, "busy") == Some(Value::Int(-2))
    });
    eventually(
        "the histogram",
        || matches!(last(&sink, "time"), Some(Value::Histogram(h)) if h.counts == [0, 1, 0] && h.sum == Some(1.5) && h.count == 1),
    );
    eventually(
        "the exponential histogram",
        || matches!(last(&sink, "size"), Some(Value::ExponentialHistogram(h)) if h.count == 1 && h.positive.counts == [1] && lies_in(4.0, h.scale, h.positive.offset)),
    );
    eventually(
        "the summary",
        || matches!(last(&sink, "sum"), Some(Value::Summary(s)) if s.count == 1 && s.sum == 4.0),
    );
    receiver.stop(soon()).await;
}

/// Whether OTLP's bucket of this number holds the value: above the lower bound, at most the upper one.
fn lies_in(value: f64, scale: i32, bucket: i32) -> bool {
    let bound = |number: i32| (f64::from(number) * f64::from(-scale).exp2()).exp2();
    bound(bucket) < value * (1.0 + 1e-12) && value <= bound(bucket + 1) * (1.0 + 1e-12)
}

#[tokio::test]
async fn overflow_series_are_marked_and_ended_series_get_a_marker() {
    let directory = tempfile::tempdir().unwrap();
    let sink = Sink::new();
    let receiver = start(&sink, directory.path(), "").await;
    let store = store(directory.path());
    for label in ["a", "b", "c", "d"] {
        count(&store, label, 1);
    }
    eventually("two label sets in the overflow series", || {
        points(&sink).iter().any(|point| {
            let overflow = point.series.attributes.get("otel.metric.overflow");
            matches!(overflow, Some(AttributeRef::Bool(true))) && point.value == Value::Int(2)
        })
    });
    let family = FamilySpec::new("requests", Kind::Counter).labels(["model"]);
    store.family(&family).unwrap().remove(&["a"]);
    eventually("the end", || {
        points(&sink).iter().any(|point| {
            let model = point.series.attributes.get("model");
            point.value == Value::NoRecordedValue
                && model.and_then(tidegate_engine::AttributeRef::as_str) == Some("a")
        })
    });
    receiver.stop(soon()).await;
}

#[tokio::test]
async fn what_the_pipelines_refuse_is_sent_later() {
    let directory = tempfile::tempdir().unwrap();
    let sink = Sink::new();
    let store = store(directory.path());
    count(&store, "a", 3);
    sink.refuse(3);
    let receiver = start(&sink, directory.path(), "").await;
    eventually("the refusals", || sink.refusals_left() == 0);
    count(&store, "a", 4);
    eventually("all of it", || last(&sink, "requests") == Some(Value::Int(7)));
    receiver.stop(soon()).await;
}

#[tokio::test]
async fn other_files_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(
        directory.path().join("1-2-0000000000000003.cells"),
        b"TIDECELL but no more",
    )
    .unwrap();
    std::fs::write(directory.path().join("notes.txt"), b"mine").unwrap();
    let sink = Sink::new();
    let receiver = start(&sink, directory.path(), ", grace_period: 0s").await;
    count(&store(directory.path()), "a", 3);
    eventually("the good one", || last(&sink, "requests") == Some(Value::Int(3)));
    receiver.stop(soon()).await;
    assert!(directory.path().join("notes.txt").exists());
    assert!(directory.path().join("1-2-0000000000000003.cells").exists());
}

#[test]
fn files_and_series_without_room_wait_and_known_ones_are_read() {
    let (recorder, page) = recorder("[]");
    metrics::with_local_recorder(&recorder, || {
        let directory = tempfile::tempdir().unwrap();
        let sink = Sink::new();
        let config = settings::<ShmConfig>("{fold: false}").get::<ShmConfig>();
        let base = context("receivers", "shm");
        let memory = base.shared.memory.clone();
        let patterns = vec![directory.path().display().to_string()];
        let mut directories = Directories::new(config, patterns, &base, sink.entry(Signal::Metrics));
        let mut now = Instant::now();
        let mut look = |directories: &mut Directories| {
            now += Duration::from_secs(2);
            directories.poll(now);
        };
        look(&mut directories);
        let empty = memory.reserved_bytes();
        let (mut kept, mut stores) = (empty, Vec::new());
        for _ in 0..5 {
            stores.push(store(directory.path()));
            count(&stores[stores.len() - 1], "a", 1);
            look(&mut directories);
            assert!(memory.reserved_bytes() > kept + 4096);
            kept = memory.reserved_bytes();
        }
        // A quarter more counts for what the allocator takes: nothing new has room.
        let limit = Limit::of(kept);
        memory.add_limit(limit);
        stores.push(store(directory.path()));
        count(&stores[5], "a", 100);
        count(&stores[0], "a", 1);
        count(&stores[0], "b", 7);
        look(&mut directories);
        let without_room = || {
            let all = page.series("tidegate_shm_refused");
            let of_memory = all.iter().find(|(labels, _)| labels.contains("\"memory\""));
            of_memory.map(|(_, value)| *value)
        };
        assert_eq!(without_room(), Some(2.0));
        assert_eq!(of_model(&sink, "a"), Some(Value::Int(6)));
        assert_eq!(of_model(&sink, "b"), None);
        memory.remove_limit(limit);
        look(&mut directories);
        assert_eq!(without_room(), Some(0.0));
        assert_eq!(of_model(&sink, "a"), Some(Value::Int(106)));
        assert_eq!(of_model(&sink, "b"), Some(Value::Int(7)));
        for file in std::fs::read_dir(directory.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
        look(&mut directories);
        assert_eq!(memory.reserved_bytes(), empty);
        drop(directories);
        assert_eq!(memory.reserved_bytes(), 0);
    });
}

#[test]
fn a_large_file_leaves_room_to_others_and_is_counted() {
    let (recorder, page) = recorder("[]");
    metrics::with_local_recorder(&recorder, || {
        let directory = tempfile::tempdir().unwrap();
        let sink = Sink::new();
        let config = settings::<ShmConfig>("{fold: false}").get::<ShmConfig>();
        let base = context("receivers", "shm");
        // One file may take a mebibyte of it.
        base.shared.memory.add_limit(Limit::of(16 << 20));
        let patterns = vec![directory.path().display().to_string()];
        let mut directories = Directories::new(config, patterns, &base, sink.entry(Signal::Metrics));
        let large = Options {
            max_series: 5000,
            ..Options::default()
        };
        let large = Store::create(directory.path(), large).unwrap();
        (0..3000).for_each(|number| count(&large, &format!("large {number}"), 1));
        let others = [store(directory.path()), store(directory.path())];
        others.iter().for_each(|other| count(other, "a", 1));
        directories.poll(Instant::now());
        assert_eq!(of_model(&sink, "a"), Some(Value::Int(2)));
        assert_eq!(of_model(&sink, "large 0"), Some(Value::Int(1)));
        assert_eq!(of_model(&sink, "large 2999"), None);
        let refused = page.series("tidegate_shm_refused");
        let of_memory = refused.iter().find(|(labels, _)| labels.contains("\"memory\""));
        assert_eq!(of_memory.map(|(_, count)| *count), Some(1.0));
        // The receiver goes on reading the series that it knows.
        count(&large, "large 0", 1);
        directories.poll(Instant::now() + Duration::from_secs(2));
        assert_eq!(of_model(&sink, "large 0"), Some(Value::Int(2)));
    });
}

/// The newest value of the requests of a model.
fn of_model(sink: &Sink, model: &str) -> Option<Value> {
    let is = |point: &&Point| {
        let found = point.series.attributes.get("model");
        found.and_then(tidegate_engine::AttributeRef::as_str) == Some(model)
    };
    points(sink).iter().rfind(is).map(|point| point.value.clone())
}

/// A receiver of the directories in a directory. The test sets its clock.
struct Scene {
    root: tempfile::TempDir,
    base: Context,
    sink: Arc<Sink>,
    directories: Directories,
    now: Instant,
}

impl Scene {
    fn new(options: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let (sink, base) = (Sink::new(), context("receivers", "shm"));
        let config = settings::<ShmConfig>(options).get::<ShmConfig>();
        let patterns = vec![format!("{}/*", root.path().display())];
        let directories = Directories::new(config, patterns, &base, sink.entry(Signal::Metrics));
        Self {
            root,
            base,
            sink,
            directories,
            now: Instant::now(),
        }
    }

    /// A process in the directory of this name, of this service.
    fn process(&self, directory: &str, service: &str) -> Store {
        let options = Options {
            resource: vec![("service.name".into(), service.into())],
            max_series: 5000,
            ..Options::default()
        };
        Store::create(&self.root.path().join(directory), options).unwrap()
    }

    /// A new receiver replaces the old one.
    fn reload(&mut self) {
        self.reload_as(self.directories.config.clone());
    }

    /// The same with other options.
    fn reload_with(&mut self, options: &str) {
        self.reload_as(settings::<ShmConfig>(options).get::<ShmConfig>());
    }

    fn reload_as(&mut self, config: Arc<ShmConfig>) {
        let (patterns, entry) = (
            self.directories.patterns.clone(),
            self.sink.entry(Signal::Metrics),
        );
        self.directories = Directories::new(config, patterns, &self.base, entry);
    }

    /// Two seconds pass, then the receiver looks.
    fn look(&mut self) {
        self.now += Duration::from_secs(2);
        self.directories.poll(self.now);
    }

    fn lease(&self) -> Arc<Lease> {
        let batches = self.sink.batches();
        let lease = batches.last().unwrap().lease.clone();
        lease.unwrap()
    }

    /// The values of a metric in the order in which they were sent.
    fn sent(&self, name: &str) -> Vec<Value> {
        let points = points(&self.sink).into_iter();
        let of_name = points.filter(|point| &*point.series.metric.name == name);
        of_name.map(|point| point.value).collect()
    }

    fn notices(&self) -> String {
        format!("{:?}", self.base.shared.notices.list())
    }
}

fn set(store: &Store, name: &str, mode: GaugeMode, value: f64) {
    let family = store.family(&FamilySpec::new(name, Kind::Gauge(mode))).unwrap();
    family.with(&[]).float().unwrap().set(value);
}
