// SPDX-License-Identifier: Apache-2.0

//! Reloads that are refused, and the names that queries know after a reload.

use std::net::{SocketAddr, TcpListener, TcpStream};

use tidegate_engine::{Attributes, Data, Value, clock};
use tidegate_promql::{Instant as Answer, NAME, Query};

use super::*;
use crate::batch::Signal;
use crate::commands::load;
use crate::component::unix_now;
use crate::config::Loader;
use crate::delivery::testing::opaque;
use crate::prom::catalog::testing::point;
use crate::prom::catalog::{View, millis};

const DRAIN: Duration = Duration::from_secs(10);

/// A plan with these options of a `rules` receiver, and these extensions that run.
fn plan(receiver: &str, extensions: &str) -> Plan {
    let yaml = format!(
        "yaml:
extensions: {{rules: {{files: [/nonexistent/*.yaml]}}}}
receivers: {{rules: {receiver}}}
exporters: {{nop: {{}}}}
service:
  extensions: {extensions}
  pipelines: {{metrics: {{receivers: [rules], exporters: [nop]}}}}"
    );
    loaded(&yaml)
}

fn loaded(yaml: &str) -> Plan {
    let loaded = load::load_from(Loader::default().config(yaml));
    loaded.unwrap_or_else(|_| panic!("{yaml} should load")).plan
}

/// The running members of a plan.
async fn run(plan: &Plan) -> Running {
    let shared = Arc::new(Shared::default());
    let graph = Graph::build(plan, &shared).unwrap_or_else(|errors| panic!("{errors:?}"));
    Running::start(graph, shared, DRAIN).await.unwrap()
}

/// An address that the listener keeps from others.
fn taken() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Fails to reload because of the address.
async fn fails(running: &mut Running, from: &Plan, to: &Plan, taken: SocketAddr) {
    let refused = running.reload(from, to, &[]).await;
    let Err(ReloadError::Start(error)) = &refused else {
        panic!("{refused:?}");
    };
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
    running.finish(DRAIN).await;
}

fn texts(errors: &[BuildError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_reload_without_the_extension_of_a_receiver_is_refused_like_a_start() {
    for receiver in ["{}", "{rules: rules}"] {
        let (from, to) = (plan(receiver, "[rules]"), plan(receiver, "[]"));
        let started = Graph::build(&to, &Arc::default()).err().unwrap();
        let expected = "receivers::rules: rules: `rules` is not a `rules` extension in `service::extensions`";
        assert_eq!(texts(&started), [expected]);
        let shared = Arc::new(Shared::default());
        let graph = Graph::build(&from, &shared).unwrap_or_else(|errors| panic!("{errors:?}"));
        let mut running = Running::start(graph, shared.clone(), DRAIN).await.unwrap();
        let paths = running.paths();
        let refused = running.reload(&from, &to, &[]).await;
        let Err(ReloadError::Build(errors)) = &refused else {
            panic!("{receiver}: {refused:?}");
        };
        assert_eq!(texts(errors), [expected]);
        running.finish(DRAIN).await;
        assert_eq!(running.paths(), paths, "the old members run on");
        assert!(shared.services.get("rules").is_some());
        let again = running.reload(&from, &from, &[]).await.unwrap();
        assert!(
            again.added.is_empty() && again.rebuilt.is_empty() && again.removed.is_empty(),
            "{again:?}"
        );
        running.stop(DRAIN).await;
    }
}

/// A plan with a page whose names begin with `namespace`.
fn page(namespace: &str) -> Plan {
    let yaml = format!(
        "yaml:
receivers: {{nop: {{}}}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:0\", namespace: {namespace}}}}}
service: {{pipelines: {{metrics: {{receivers: [nop], exporters: [prometheus]}}}}}}"
    );
    loaded(&yaml)
}

/// The names of the gauge `level` in queries.
fn names(view: &View) -> Vec<String> {
    let (now, query) = (unix_now(), Query::parse("{__name__=~\".*level\"}").unwrap());
    let asked = view.ask(now, &query.selections());
    match query.instant(&asked, millis(clock::wall(now))).unwrap() {
        Answer::Vector(vector) => {
            let names = vector.iter().map(|(labels, _)| labels.get(NAME).to_owned());
            names.collect()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn queries_know_only_new_names_during_pushes_into_the_old_page() {
    let (from, to) = (page("a"), page("b"));
    let shared = Arc::new(Shared::default());
    let graph = Graph::build(&from, &shared).unwrap_or_else(|errors| panic!("{errors:?}"));
    let mut running = Running::start(graph, shared.clone(), DRAIN).await.unwrap();
    let mut members = running.members.iter();
    let old = members.find(|member| member.class == Class::Exporter).unwrap();
    let (table, old) = (old.own_table().unwrap(), Arc::downgrade(&old.lifecycle()));
    let now = unix_now();
    let of = (Attributes::default(), Attributes::default());
    let level = point("level", Data::Gauge, of, (now - 1, now), Value::Int(1));
    table.observe(&level, now);
    let view = View::of(&shared);
    assert_eq!(names(&view), ["a_level"]);
    running.reload(&from, &to, &[]).await.unwrap();
    // As pushes hold it.
    let under_way = running.past.clone();
    assert_eq!(names(&view), ["b_level"]);
    assert_eq!(view.names_of_gauge("level"), ["b_level", "level"]);
    running.finish(Duration::ZERO).await;
    assert!(old.upgrade().is_some(), "pushes may still reach it");
    assert_eq!(names(&view), ["b_level"]);
    drop(under_way);
    running.finish(DRAIN).await;
    assert!(old.upgrade().is_none(), "nothing leads there");
    running.stop(DRAIN).await;
}

/// The new exporter has opened the queue on disk when the page fails. The old one opens it again.
#[tokio::test]
async fn a_failed_reload_counts_items_of_a_queue_on_disk_once() {
    const ITEMS: usize = 3;
    let (folder, (_listener, taken)) = (tempfile::tempdir().unwrap(), taken());
    let of = |timeout: &str, page: &str| {
        loaded(&format!(
            "yaml:
extensions: {{file_storage: {{directory: {}}}}}
receivers: {{nop: {{}}}}
exporters:
  otlphttp: {{endpoint: \"http://127.0.0.1:1\", timeout: {timeout}, sending_queue: {{storage: file_storage}}}}
  prometheus: {{endpoint: \"{page}\"}}
service:
  extensions: [file_storage]
  pipelines:
    logs: {{receivers: [nop], exporters: [otlphttp]}}
    metrics: {{receivers: [nop], exporters: [prometheus]}}",
            folder.path().display()
        ))
    };
    let (from, to) = (of("5s", "127.0.0.1:0"), of("7s", &taken.to_string()));
    let mut running = run(&from).await;
    let mut members = running.members.iter();
    let receiver = members.find(|member| &*member.path == "receivers::nop").unwrap();
    let downstream = receiver.downstreams[Signal::Logs as usize].clone().unwrap();
    downstream.push(opaque(Signal::Logs, b"x", ITEMS)).unwrap();
    let mut nodes = running.metrics().nodes.iter();
    let node = nodes.find(|node| &*node.path == "exporters::otlphttp").unwrap();
    let ledger = node.ledger.clone();
    let counted = || (ledger.balance().held(), ledger.balance().restored);
    assert_eq!(counted(), (ITEMS as u64, 0));
    fails(&mut running, &from, &to, taken).await;
    assert_eq!(counted(), (ITEMS as u64, 0));
    running.stop(Duration::ZERO).await;
}

/// The failed plan has removed a page, and changed the extension that the page names. The page still listens then.
#[tokio::test]
async fn a_failed_reload_brings_back_a_page_that_it_removes() {
    let (_listener, taken) = taken();
    let (listener, page) = self::taken();
    drop(listener);
    let of = |token: &str, receiver: &str, exporters: &str| {
        loaded(&format!(
            "yaml:
extensions: {{bearertokenauth: {{token: {token}}}}}
receivers: {{otlp: {{protocols: {{http: {{endpoint: \"{receiver}\"}}}}}}}}
exporters:
  nop: {{}}
  prometheus: {{endpoint: \"{page}\", auth: {{authenticator: bearertokenauth}}}}
service:
  extensions: [bearertokenauth]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [{exporters}]}}}}"
        ))
    };
    let from = of("a", "127.0.0.1:0", "nop, prometheus");
    let to = of("b", &taken.to_string(), "nop");
    let mut running = run(&from).await;
    let paths = running.paths();
    fails(&mut running, &from, &to, taken).await;
    assert_eq!(running.paths(), paths);
    assert!(TcpStream::connect(page).is_ok(), "the page listens");
    running.stop(DRAIN).await;
}
