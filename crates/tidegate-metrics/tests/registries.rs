// SPDX-License-Identifier: Apache-2.0

//! One component, every registry: the same numbers in each.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod kit;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kit::{MODEL, check_page, work};
use tidegate_metrics::{
    Counter, Description, Fanout, Foreign, ForeignSpec, ForeignText, ForeignVtable, Instrument, Kind,
    MetricSet, MetricsRegistry, Null, Prometheus, RegisterError, Scope, Shm, Value, text::Format,
};

#[test]
fn prometheus_shows_what_was_recorded() {
    let registry = Prometheus::new();
    work(&registry);
    check_page(&registry.prometheus_format_str());
    check_page(&registry.page(Format::OpenMetrics));
}

#[test]
fn shm_shows_what_all_processes_have_recorded_and_keeps_it() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Shm::create(directory.path(), &[("service.name", "test")]).unwrap();
    let service = work(&registry);
    check_page(&registry.prometheus_format_str());
    // Another process would be another store; its values are added.
    let other = Shm::create(directory.path(), &[]).unwrap();
    let second = kit::Service::register(&other, &[("model", MODEL)]).unwrap();
    second.requests.add(5);
    second.cache.set(0.5);
    let read = |name: &str| {
        let families = registry.gather();
        let family = families.iter().find(|family| family.name == name).unwrap();
        family.find(&[("model", MODEL)]).unwrap().value.clone()
    };
    assert_eq!(read("service_requests"), Value::Counter(15));
    assert_eq!(read("service_cache"), Value::Gauge(0.75));
    assert_eq!(service.requests.get(), 10);
    drop((second, other, service, registry));
    // All are gone; the directory still knows.
    let later = Shm::create(directory.path(), &[]).unwrap();
    later.fold(Duration::ZERO).unwrap();
    let families = later.gather();
    let requests = families
        .iter()
        .find(|family| family.name == "service_requests")
        .unwrap();
    assert_eq!(requests.series[0].value, Value::Counter(15));
}

#[test]
fn null_takes_everything_and_keeps_nothing() {
    let registry = Null::new();
    let service = work(&registry);
    assert_eq!(service.requests.get(), 0);
    assert_eq!(registry.describe().len(), 8);
    assert!(registry.gather().iter().all(|family| family.series.is_empty()));
    let refused = registry.gauge(&Description::new("service_requests", ""), &[("model", "m")]);
    assert!(matches!(refused, Err(RegisterError::Conflict { .. })));
}

#[test]
fn fanout_reaches_all_and_reads_the_first_that_keeps() {
    let directory = tempfile::tempdir().unwrap();
    let first = Arc::new(Prometheus::new());
    let second = Arc::new(Shm::create(directory.path(), &[]).unwrap());
    let fanout = Fanout::new(vec![Arc::new(Null::new()), first.clone(), second.clone()]);
    let service = work(&fanout);
    for page in
        [&fanout as &dyn MetricsRegistry, &*first, &*second].map(MetricsRegistry::prometheus_format_str)
    {
        check_page(&page);
    }
    assert_eq!(service.requests.get(), 10);
    service.answers.remove(&["503", "GET"]);
    assert!(!first.prometheus_format_str().contains("503"));
    assert!(!fanout.prometheus_format_str().contains("503"));
}

/// A registry as C would write one: numbers by name and label values.
#[derive(Default)]
struct Ledger {
    names: Vec<String>,
    series: Vec<String>,
    values: BTreeMap<String, f64>,
    released: bool,
}

type SharedLedger = Mutex<Ledger>;

unsafe fn ledger<'a>(context: *mut c_void) -> std::sync::MutexGuard<'a, Ledger> {
    unsafe { &*context.cast::<SharedLedger>() }.lock().unwrap()
}

unsafe fn string(text: ForeignText) -> String {
    let bytes = unsafe { std::slice::from_raw_parts(text.bytes.cast::<u8>(), text.length) };
    String::from_utf8(bytes.to_vec()).unwrap()
}

unsafe extern "C" fn register(context: *mut c_void, spec: *const ForeignSpec, family: *mut u64) -> i32 {
    let spec = unsafe { *spec };
    let name = unsafe { string(spec.name) };
    if name == "refused" {
        return 17;
    }
    let mut ledger = unsafe { ledger(context) };
    ledger.names.push(name);
    unsafe { *family = ledger.names.len() as u64 - 1 };
    0
}

unsafe extern "C" fn series(
    context: *mut c_void,
    family: u64,
    values: *const ForeignText,
    count: usize,
) -> u64 {
    let values = unsafe { std::slice::from_raw_parts(values, count) };
    let values: Vec<String> = values.iter().map(|value| unsafe { string(*value) }).collect();
    let mut ledger = unsafe { ledger(context) };
    let key = format!("{}{values:?}", ledger.names[family as usize]);
    if let Some(known) = ledger.series.iter().position(|series| *series == key) {
        return known as u64;
    }
    ledger.series.push(key);
    ledger.series.len() as u64 - 1
}

unsafe fn change(context: *mut c_void, series: u64, change: impl FnOnce(f64) -> f64) {
    let mut ledger = unsafe { ledger(context) };
    let key = ledger.series[series as usize].clone();
    let value = ledger.values.entry(key).or_default();
    *value = change(*value);
}

unsafe extern "C" fn add_u64(context: *mut c_void, series: u64, by: u64) {
    unsafe { change(context, series, |value| value + by as f64) }
}

unsafe extern "C" fn add_f64(context: *mut c_void, series: u64, by: f64) {
    unsafe { change(context, series, |value| value + by) }
}

unsafe extern "C" fn add_i64(context: *mut c_void, series: u64, by: i64) {
    unsafe { change(context, series, |value| value + by as f64) }
}

unsafe extern "C" fn set(context: *mut c_void, series: u64, to: f64) {
    unsafe { change(context, series, |_| to) }
}

unsafe extern "C" fn remove(context: *mut c_void, series: u64) {
    let mut ledger = unsafe { ledger(context) };
    let key = ledger.series[series as usize].clone();
    ledger.values.remove(&key);
}

unsafe extern "C" fn release(context: *mut c_void) {
    unsafe { ledger(context) }.released = true;
}

#[test]
fn a_foreign_table_gets_all_values_and_they_stay_here() {
    let shared = Box::new(SharedLedger::default());
    let vtable = ForeignVtable {
        size: size_of::<ForeignVtable>(),
        context: (&raw const *shared).cast_mut().cast(),
        register: Some(register),
        series: Some(series),
        add_u64: Some(add_u64),
        add_f64: Some(add_f64),
        add_i64: Some(add_i64),
        set: Some(set),
        observe: Some(add_f64),
        remove: Some(remove),
        release: Some(release),
    };
    // SAFETY: the table is whole, and the ledger outlives the registry and its handles.
    let registry = unsafe { Foreign::new(&raw const vtable) }.unwrap();
    let service = work(&registry);
    check_page(&registry.prometheus_format_str());
    let told = shared.lock().unwrap().values.clone();
    let model = format!("{MODEL:?}");
    let expected = [
        (format!("service_answers[{model}, \"200\", \"GET\"]"), 7.0),
        (format!("service_answers[{model}, \"503\", \"GET\"]"), 3.0),
        (format!("service_cache[{model}]"), 0.75),
        (format!("service_energy[{model}]"), 2.5),
        (format!("service_open[{model}]"), 6.0),
        (format!("service_queue_depth[{model}]"), 4.0),
        (format!("service_requests[{model}]"), 10.0),
        (format!("service_transfers[{model}, \"out\"]"), 1023.0),
        (format!("service_ttft[{model}]"), 5.625),
    ];
    assert_eq!(told, BTreeMap::from(expected));
    service.answers.remove(&["503", "GET"]);
    assert_eq!(shared.lock().unwrap().values.len(), 8);
    let refused = registry.counter(&Description::new("refused", ""), &[]);
    assert!(matches!(refused, Err(RegisterError::Foreign { code: 17, .. })));
    drop(registry);
    assert!(!shared.lock().unwrap().released, "handles are still there");
    drop(service);
    assert!(shared.lock().unwrap().released);
}

#[test]
fn a_foreign_table_of_an_older_version_lacks_its_last_functions() {
    let shared = Box::new(SharedLedger::default());
    let vtable = ForeignVtable {
        size: std::mem::offset_of!(ForeignVtable, add_f64),
        context: (&raw const *shared).cast_mut().cast(),
        register: Some(register),
        series: Some(series),
        add_u64: Some(add_u64),
        // Never called: beyond its size.
        add_f64: Some(add_f64),
        add_i64: None,
        set: Some(set),
        observe: None,
        remove: None,
        release: Some(release),
    };
    // SAFETY: as above.
    let registry = unsafe { Foreign::new(&raw const vtable) }.unwrap();
    work(&registry);
    check_page(&registry.prometheus_format_str());
    assert_eq!(shared.lock().unwrap().values.len(), 3);
    // SAFETY: `new` accepts null, and returns `None` for it.
    assert!(unsafe { Foreign::new(std::ptr::null()) }.is_none());
}

#[test]
fn scopes_add_prefixes_and_labels_and_show_what_lies_within() {
    let registry = Arc::new(Prometheus::new());
    let dynamo = Scope::new(registry.clone()).prefix("dynamo_component");
    let namespace = dynamo.clone().namespace("demo");
    let worker = namespace.clone().component("worker");
    let endpoint = worker.clone().endpoint("generate");
    let requests = Description::new("requests", "Requests");
    for (scope, by) in [(&namespace, 1), (&worker, 2), (&endpoint, 4)] {
        scope.counter(&requests, &[("model", "m")]).unwrap().add(by);
    }
    let page = registry.prometheus_format_str();
    let expected = [
        r#"{dynamo_namespace="demo",model="m"} 1"#,
        r#"{dynamo_namespace="demo",dynamo_component="worker",model="m"} 2"#,
        r#"{dynamo_namespace="demo",dynamo_component="worker",dynamo_endpoint="generate",model="m"} 4"#,
    ];
    for line in expected {
        assert!(
            page.contains(&format!("dynamo_component_requests_total{line}\n")),
            "{page}"
        );
    }
    let counted = |scope: &Scope| {
        scope
            .gather()
            .iter()
            .map(|family| family.series.len())
            .sum::<usize>()
    };
    assert_eq!([&namespace, &worker, &endpoint].map(counted), [3, 2, 1]);
    let twice = endpoint.counter(&Description::new("other", ""), &[("dynamo_endpoint", "x")]);
    assert!(matches!(twice, Err(RegisterError::DuplicateLabel { .. })));
}

#[test]
fn instruments_say_what_they_are() {
    let registry = Prometheus::new();
    let service = work(&registry);
    let info = service.ttft.info().unwrap();
    assert_eq!((info.name(), info.family().unit.as_str()), ("service_ttft", "s"));
    assert_eq!(info.family().help, "Time to the first token.");
    assert_eq!(info.labels().collect::<Vec<_>>(), [("model", MODEL)]);
    let open = registry
        .describe()
        .into_iter()
        .find(|family| family.name == "service_open")
        .unwrap();
    assert_eq!(
        (open.kind, open.help.as_str()),
        (Kind::UpDownCounter, "Connections that are open.")
    );
    let answers = service.answers.with(&["200", "GET"]);
    let labels: Vec<_> = answers.info().unwrap().labels().collect();
    assert_eq!(labels, [("model", MODEL), ("code", "200"), ("method", "GET")]);
}

#[test]
fn the_declared_labels_are_the_ones_to_give() {
    let registry = Prometheus::new();
    for wrong in [
        &[][..],
        &[("role", "x")],
        &[("model", "x"), ("role", "x")],
        &[("model", "x"), ("model", "y")],
    ] {
        let refused = kit::Service::register(&registry, wrong);
        assert!(refused.is_err(), "{wrong:?}");
    }
}

#[test]
fn what_makes_no_sense_is_not_recorded_but_counted() {
    let registry = Prometheus::new();
    let service = work(&registry);
    let before = tidegate_metrics::misused();
    service.joules.add(-1.0);
    service.joules.add(f64::NAN);
    service.ttft.observe(f64::INFINITY);
    service.queue.depth.add(f64::NAN);
    service.answers.with(&["too few"]).inc();
    assert!(tidegate_metrics::misused() >= before + 5);
    check_page(&registry.prometheus_format_str());
}

#[test]
fn a_gauge_is_set_to_every_value_and_adds_no_nan() {
    let registry = Prometheus::new();
    let level = registry.gauge(&Description::new("level", "Level"), &[]).unwrap();
    for (value, expected) in [(f64::NAN, "level NaN"), (f64::INFINITY, "level +Inf")] {
        level.set(value);
        let page = registry.prometheus_format_str();
        assert!(page.lines().any(|line| line == expected), "{page}");
    }
    level.set(1.0);
    level.add(f64::NAN);
    level.sub(f64::NAN);
    assert_eq!(level.get(), 1.0);
}

#[test]
fn series_beyond_the_limit_share_one_marked_series() {
    let registry = Prometheus::with_max_series(3);
    let family = registry
        .counter_family(&Description::new("a", ""), &[("c", "d")], &["b"])
        .unwrap();
    for at in 0..10 {
        family.with(&[&at.to_string()]).inc();
    }
    let page = kit::samples(&registry.prometheus_format_str());
    assert_eq!(page.len(), 4, "{page:?}");
    assert_eq!(page[r#"a_total{otel_metric_overflow="true"}"#], 7.0);
    assert_eq!(page[r#"a_total{b="2",c="d"}"#], 1.0);
    family.remove(&["2"]);
    assert!(!registry.prometheus_format_str().contains("b=\"2\""));
}

#[test]
fn all_handles_of_a_series_are_one_across_threads() {
    let registry = Arc::new(Prometheus::new());
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let registry = registry.clone();
            std::thread::spawn(move || {
                let family = registry
                    .counter_family(&Description::new("a", ""), &[], &["b"])
                    .unwrap();
                let total: Counter = registry.counter(&Description::new("c", ""), &[]).unwrap();
                for at in 0..1000 {
                    family.with(&[["x", "y", "z"][at % 3]]).inc();
                    total.inc();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let families = registry.gather();
    let sum = |name: &str| {
        let family = families.iter().find(|family| family.name == name).unwrap();
        family
            .series
            .iter()
            .map(|series| series.value.as_f64())
            .sum::<f64>()
    };
    assert_eq!((sum("a"), sum("c")), (4000.0, 4000.0));
    assert!(Counter::null().info().is_none());
}
