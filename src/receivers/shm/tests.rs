// SPDX-License-Identifier: Apache-2.0

//! The receiver with real cells.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_cells::{FamilySpec, GaugeMode, Kind, Options, Store};
use tidegate_engine::{AttributeRef, Lease, Point, UnixNanos, Value};

use super::config::ShmConfig;
use super::{Directories, FACTORY};
use crate::batch::{Batch, Payload, Signal};
use crate::component::testing::{Sink, context, eventually, settings};
use crate::component::{Consumer, Context, Entry, Flow, Limit, Receiver, Refused, unix_now, wall_now};
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

const HOUR: UnixNanos = 3_600_000_000_000;

/// Lets the file of a process say that it was made at that time.
fn set_created(store: &Store, created_ns: UnixNanos) {
    let name = format!("{}.cells", store.identity().unwrap());
    let path = store.directory().unwrap().join(name);
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut fixed = [0; 56];
    file.read_exact_at(&mut fixed, 0).unwrap();
    fixed[48..].copy_from_slice(&created_ns.to_le_bytes());
    file.write_all_at(&fixed, 0).unwrap();
    file.write_all_at(&crc32(&fixed).to_le_bytes(), 56).unwrap();
}

/// The checksum of a header.
fn crc32(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), bit);
    !bytes.iter().fold(u32::MAX, byte)
}

/// One start must show in every receiver after the first one, over reloads and over restarts. `first` and `later` are the
/// times of the file that is there at the first look, and of one that comes after it.
#[track_caller]
fn check_start(first: Option<UnixNanos>, later: Option<UnixNanos>) {
    let earliest = wall_now() - HOUR;
    for (is_reload, options) in [(true, "{fold: false}"), (true, "{}"), (false, "{}")] {
        let directory = tempfile::tempdir().unwrap();
        let gateway = context("receivers", "shm");
        let new = || {
            let base = if is_reload {
                gateway.clone()
            } else {
                context("receivers", "shm")
            };
            let (sink, config) = (Sink::new(), settings::<ShmConfig>(options).get::<ShmConfig>());
            let patterns = vec![directory.path().display().to_string()];
            let directories = Directories::new(config, patterns, &base, sink.entry(Signal::Metrics));
            (directories, sink)
        };
        let newest = |sink: &Sink| points(sink).pop().unwrap();
        let one = store(directory.path());
        count(&one, "a", 3);
        first.into_iter().for_each(|time| set_created(&one, time));
        let (mut receiver, sink) = new();
        receiver.poll(Instant::now());
        let shown = newest(&sink);
        assert_eq!(shown.value, Value::Int(3));
        assert!((earliest..=shown.time).contains(&shown.start), "{shown:?}");
        let other = later.map(|time| {
            let other = store(directory.path());
            count(&other, "a", 4);
            set_created(&other, time);
            other
        });
        let total = Value::Int(if other.is_some() { 7 } else { 3 });
        receiver.poll(Instant::now() + Duration::from_secs(2));
        assert_eq!(
            (newest(&sink).start, newest(&sink).value),
            (shown.start, total.clone())
        );
        for _ in 0..3 {
            drop(receiver);
            let (next, sink) = new();
            receiver = next;
            receiver.poll(Instant::now());
            assert_eq!(
                (newest(&sink).start, newest(&sink).value),
                (shown.start, total.clone())
            );
        }
    }
}

#[test]
fn the_start_stays_if_the_clock_was_set_back_after_the_first_file() {
    check_start(Some(wall_now() + HOUR), None);
}

#[test]
fn the_start_stays_if_an_older_file_comes_later() {
    const TWO_MS: UnixNanos = 2_000_000;
    let now = wall_now();
    check_start(Some(now), Some(now - TWO_MS));
    check_start(None, Some(now - TWO_MS));
    check_start(Some(now + HOUR), Some(now - TWO_MS));
}

#[test]
fn times_that_no_file_has_do_not_become_the_start() {
    for time in [0, 1, UnixNanos::MAX] {
        check_start(Some(time), None);
        check_start(None, Some(time));
    }
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

#[test]
fn the_lease_of_a_directory_is_that_of_its_processes() {
    let mut scene = Scene::new("{}");
    let [one, other] = [(); 2].map(|()| scene.process("a", "llm"));
    count(&one, "a", 3);
    scene.look();
    let lease = scene.lease();
    assert!(lease.is_alive(unix_now()));
    let sent = scene.sink.batches().len();
    for _ in 0..5 {
        let touched = lease.touched();
        scene.look();
        assert!(lease.touched() > touched, "it lives, and says nothing");
    }
    assert_eq!(scene.sink.batches().len(), sent);
    drop(one);
    scene.look();
    assert!(!lease.is_dead(), "another one lives");
    drop(other);
    scene.look();
    assert!(lease.is_dead() && !lease.is_ended());
    scene.look();
    assert!(lease.is_dead());
    // A process returns, and counts nothing yet.
    let sent = scene.sent("requests").len();
    let again = scene.process("a", "llm");
    scene.look();
    assert!(lease.is_alive(unix_now()));
    assert_eq!(scene.sent("requests")[sent..], [Value::Int(3)]);
    assert!(Arc::ptr_eq(&scene.lease(), &lease));
    drop(again);
    scene.look();
    std::fs::remove_dir_all(scene.root.path().join("a")).unwrap();
    scene.look();
    assert!(lease.is_ended());
    let new = scene.process("a", "llm");
    count(&new, "a", 1);
    scene.look();
    assert!(scene.lease().is_alive(unix_now()) && lease.is_ended());
}

/// Keeps whether the sources of batches are dead when the batches come: composites ignore those.
#[derive(Default)]
struct LeaseTaker(parking_lot::Mutex<Vec<bool>>);

impl Consumer for LeaseTaker {
    fn admit(&self, batch: &Batch, _: &mut Flow) -> Result<(), Refused> {
        let lease = batch.lease.as_ref().unwrap();
        self.0.lock().push(lease.is_dead());
        Ok(())
    }

    fn consume(&self, _: Batch, _: &mut Flow) {}
}

#[test]
fn the_last_counts_of_a_process_are_sent_before_its_lease_ends() {
    let mut scene = Scene::new("{}");
    let store = scene.process("a", "llm");
    count(&store, "a", 3);
    scene.look();
    let lease = scene.lease();
    count(&store, "a", 4);
    drop(store);
    let taker = Arc::new(LeaseTaker::default());
    scene.directories.entry = Entry::new(Signal::Metrics, taker.clone(), Arc::default());
    scene.look();
    assert_eq!(*taker.0.lock(), [false]);
    assert!(lease.is_dead());
}

#[test]
fn a_directory_dies_after_the_pipelines_have_taken_its_last_counts() {
    let mut scene = Scene::new("{}");
    let store = scene.process("a", "llm");
    count(&store, "a", 3);
    scene.look();
    let lease = scene.lease();
    count(&store, "a", 4);
    drop(store);
    scene.sink.refuse(1);
    scene.look();
    assert_eq!(scene.sink.refusals_left(), 0);
    assert!(!lease.is_dead());
    let taker = Arc::new(LeaseTaker::default());
    scene.directories.entry = Entry::new(Signal::Metrics, taker.clone(), Arc::default());
    scene.look();
    assert_eq!(*taker.0.lock(), [false]);
    assert!(lease.is_dead());
}

#[test]
fn a_process_that_no_look_has_seen_alive_counts_for_a_living_source() {
    let mut scene = Scene::new("{}");
    let store = scene.process("a", "llm");
    count(&store, "a", 3);
    scene.look();
    drop(store);
    scene.look();
    let lease = scene.lease();
    assert!(lease.is_dead());
    let taker = Arc::new(LeaseTaker::default());
    scene.directories.entry = Entry::new(Signal::Metrics, taker.clone(), Arc::default());
    let short = scene.process("a", "llm");
    count(&short, "a", 4);
    drop(short);
    // The merge of its file changes no count.
    (0..3).for_each(|_| scene.look());
    assert_eq!(*taker.0.lock(), [false]);
    assert!(lease.is_dead());
}

#[test]
fn unchanged_series_are_sent_again_at_an_interval_also_those_of_the_dead() {
    let mut scene = Scene::new("{refresh: 60s, grace_period: 0s}");
    let store = scene.process("a", "llm");
    count(&store, "a", 3);
    set(&store, "depth", GaugeMode::LiveSum, 4.0);
    scene.look();
    let sent = |scene: &Scene| scene.sent("requests").len();
    for _ in 0..29 {
        scene.look();
    }
    assert_eq!(sent(&scene), 1);
    scene.look();
    assert_eq!(scene.sent("requests"), [Value::Int(3), Value::Int(3)]);
    assert_eq!(scene.sent("depth"), [Value::Double(4.0), Value::Double(4.0)]);
    drop(store);
    scene.look();
    assert_eq!(scene.sent("depth").last(), Some(&Value::NoRecordedValue));
    for _ in 0..60 {
        scene.look();
    }
    assert_eq!(sent(&scene), 4, "its totals stay");
    assert!(scene.sent("requests").iter().all(|value| *value == Value::Int(3)));
    assert_eq!(scene.sent("depth").len(), 3, "it has ended");
}

#[test]
fn a_look_repeats_a_bounded_number_of_series() {
    let mut scene = Scene::new("{refresh: 10s}");
    let store = scene.process("a", "llm");
    let family = FamilySpec::new("requests", Kind::Counter).labels(["model"]);
    let family = store.family(&family).unwrap();
    for number in 0..4500 {
        family.with(&[&number.to_string()]).counter().unwrap().add(1);
    }
    (0..5).for_each(|_| scene.look());
    assert_eq!(scene.sink.items(), 4500);
    scene.look();
    assert_eq!(scene.sink.items(), 4500 + 4096);
    scene.look();
    assert_eq!(scene.sink.items(), 2 * 4500);
    scene.look();
    assert_eq!(scene.sink.items(), 2 * 4500);
}

#[test]
fn a_dead_pod_is_not_repeated_until_it_lives_again() {
    const POD: &str = "0f4b8a52-3c1d-4e6f-9a7b-0123456789ab";
    let mut scene = Scene::new("{refresh: 10s, fold: false}");
    let store = scene.process(POD, "llm");
    count(&store, "a", 3);
    (0..6).for_each(|_| scene.look());
    assert_eq!(scene.sent("requests").len(), 2, "it is repeated while it lives");
    drop(store);
    (0..12).for_each(|_| scene.look());
    assert_eq!(scene.sent("requests").len(), 2);
    let again = scene.process(POD, "llm");
    scene.look();
    assert_eq!(scene.sent("requests").len(), 3);
    count(&again, "a", 1);
    drop(again);
    scene.look();
    assert_eq!(scene.sent("requests").last(), Some(&Value::Int(4)));
}

#[test]
fn a_round_ends_when_the_next_one_begins() {
    let mut scene = Scene::new("{refresh: 2s}");
    let store = scene.process("a", "llm");
    let family = FamilySpec::new("requests", Kind::Counter).labels(["model"]);
    let family = store.family(&family).unwrap();
    for number in 0..4500 {
        family.with(&[&number.to_string()]).counter().unwrap().add(1);
    }
    scene.look();
    assert_eq!(scene.sink.items(), 4500);
    scene.look();
    assert_eq!(scene.sink.items(), 4500 + 4096);
    for rounds in 1..4 {
        scene.look();
        assert_eq!(scene.sink.items(), 4500 + 4096 + rounds * 4500);
    }
}

#[test]
fn repeats_that_wait_stay_due_when_a_series_comes() {
    let mut scene = Scene::new("{refresh: 10s, fold: false}");
    let store = scene.process("a", "llm");
    count(&store, "a", 3);
    (0..5).for_each(|_| scene.look());
    assert_eq!(scene.sent("requests"), [Value::Int(3)]);
    scene.sink.refuse(1);
    scene.look();
    assert_eq!(scene.sink.refusals_left(), 0);
    assert_eq!(scene.sent("requests").len(), 1);
    count(&store, "b", 1);
    scene.look();
    assert_eq!(scene.sent("requests")[1..], [Value::Int(3), Value::Int(1)]);
}

#[test]
fn a_round_that_goes_on_reaches_all_series_when_another_one_comes() {
    let mut scene = Scene::new("{refresh: 10s, fold: false}");
    let store = scene.process("a", "llm");
    let family = FamilySpec::new("requests", Kind::Counter).labels(["model"]);
    let family = store.family(&family).unwrap();
    for number in 0..4500 {
        family.with(&[&number.to_string()]).counter().unwrap().add(1);
    }
    (0..6).for_each(|_| scene.look());
    assert_eq!(scene.sink.items(), 4500 + 4096);
    // The numbers of all series that the round has not reached change.
    for number in 0..1000 {
        family.remove(&[&number.to_string()]);
    }
    scene.look();
    assert_eq!(scene.sink.items(), 4500 + 4096 + 1000 + 404);
    scene.look();
    assert_eq!(scene.sink.items(), 4500 + 4096 + 1000 + 404);
}

#[test]
fn directories_with_one_resource_are_reported_and_counted() {
    let (recorder, page) = recorder("[]");
    metrics::with_local_recorder(&recorder, || {
        let mut scene = Scene::new("{}");
        let count_of = |reason: &str| {
            let all = page.series("tidegate_shm_conflicts");
            let found = all.iter().find(|(labels, _)| labels.contains(reason));
            found.map(|(_, count)| *count)
        };
        let one = scene.process("one", "llm");
        let other = scene.process("other", "vllm");
        count(&one, "a", 3);
        count(&other, "a", 7);
        scene.look();
        assert_eq!((count_of("resource"), count_of("family")), (Some(0.0), Some(0.0)));
        let third = scene.process("third", "llm");
        count(&third, "a", 1);
        scene.look();
        assert_eq!(count_of("resource"), Some(1.0));
        let notices = scene.notices();
        for part in [
            "/one and ",
            "/third have the same resource",
            "`service.instance.id`",
        ] {
            assert!(notices.contains(part), "{notices}");
        }
    });
}

#[test]
fn a_gauge_of_two_modes_is_reported_and_one_of_both_is_sent() {
    let (recorder, page) = recorder("[]");
    metrics::with_local_recorder(&recorder, || {
        let mut scene = Scene::new("{refresh: 4s}");
        let one = scene.process("a", "llm");
        set(&one, "depth", GaugeMode::LiveSum, 3.0);
        scene.look();
        let other = scene.process("a", "llm");
        set(&other, "depth", GaugeMode::Max, 9.0);
        (0..4).for_each(|_| scene.look());
        set(&other, "depth", GaugeMode::Max, 8.0);
        scene.look();
        let sent = scene.sent("depth");
        assert!(
            sent.len() > 2 && sent.iter().all(|value| *value == Value::Double(3.0)),
            "{sent:?}"
        );
        let all = page.series("tidegate_shm_conflicts");
        assert!(
            all.iter()
                .any(|(labels, count)| labels.contains("family") && *count == 1.0)
        );
        let notices = scene.notices();
        for part in ["`depth` is a gauge of mode livesum without a unit", "mode max"] {
            assert!(notices.contains(part), "{notices}");
        }
        // The other one is shown when it is alone.
        drop(one);
        (0..2).for_each(|_| scene.look());
        assert_eq!(scene.sent("depth").last(), Some(&Value::Double(8.0)));
    });
}

#[test]
fn metrics_of_two_units_are_not_added_up() {
    let mut scene = Scene::new("{}");
    let [one, other] = [(); 2].map(|()| scene.process("a", "llm"));
    for (store, unit) in [(&one, "s"), (&other, "ms")] {
        let spec = FamilySpec::new("time", Kind::Counter).unit(unit);
        store.family(&spec).unwrap().with(&[]).counter().unwrap().add(1);
    }
    scene.look();
    assert_eq!(scene.sent("time"), [Value::Int(1), Value::Int(1)]);
    assert!(scene.notices().contains("in ms"), "{}", scene.notices());
}
