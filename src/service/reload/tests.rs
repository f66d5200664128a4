// SPDX-License-Identifier: Apache-2.0

//! Reloads that are refused, and the names and the history that queries have after a reload.

mod composites;

use std::fmt::Display;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use async_trait::async_trait;
use tidegate_engine::{Attributes, Data, Number, Value, clock};
use tidegate_promql::{Instant as Answer, NAME, Query};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;
use crate::batch::{Batch, Signal};
use crate::component::testing::free_port;
use crate::component::{Exporter, ExporterFactory, Factory, Flow, Lifecycle, Refused, unix_now};
use crate::delivery::testing::opaque;
use crate::exporters::nop;
use crate::prom::catalog::testing::point;
use crate::prom::catalog::{View, millis};
use crate::service::testing::{DRAIN, plan, run};

/// A plan with these options of a `rules` receiver, and these extensions that run.
fn with_rules(receiver: &str, extensions: &str) -> Plan {
    plan(&format!(
        "extensions: {{rules: {{files: [/nonexistent/*.yaml]}}}}
receivers: {{rules: {receiver}}}
exporters: {{nop: {{}}}}
service:
  extensions: {extensions}
  pipelines: {{metrics: {{receivers: [rules], exporters: [nop]}}}}"
    ))
}

/// A plan with this authenticator of a page, and these extensions that run.
fn with_auth(authenticator: &str, extensions: &str) -> Plan {
    plan(&format!(
        "extensions: {{bearertokenauth: {{token: a}}}}
receivers: {{nop: {{}}}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:0\", auth: {{authenticator: {authenticator}}}}}}}
service:
  extensions: {extensions}
  pipelines: {{metrics: {{receivers: [nop], exporters: [prometheus]}}}}"
    ))
}

/// An address that the listener keeps from others.
fn taken() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Fails to reload because of the address, or of the path.
async fn fails(running: &mut Running, from: &Plan, to: &Plan, address: impl Display) {
    let refused = running.reload(from, to, &[]).await;
    let Err(ReloadError::Start(error)) = &refused else {
        panic!("{refused:?}");
    };
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    running.finish(DRAIN).await;
}

fn texts(errors: &[BuildError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_reload_without_the_extension_of_a_component_is_refused_like_a_start() {
    let of_receiver = "receivers::rules: rules: `rules` is not a `rules` extension in `service::extensions`";
    let of_page = |id: &str| {
        format!("exporters::prometheus: auth::authenticator: `{id}` is not among `service::extensions`")
    };
    let auth = || with_auth("bearertokenauth", "[bearertokenauth]");
    for (from, to, extension, expected) in [
        (
            with_rules("{}", "[rules]"),
            with_rules("{}", "[]"),
            "rules",
            of_receiver.to_owned(),
        ),
        (
            with_rules("{rules: rules}", "[rules]"),
            with_rules("{rules: rules}", "[]"),
            "rules",
            of_receiver.to_owned(),
        ),
        (
            auth(),
            with_auth("bearertokenauth", "[]"),
            "bearertokenauth",
            of_page("bearertokenauth"),
        ),
        (
            auth(),
            with_auth("missing", "[bearertokenauth]"),
            "bearertokenauth",
            of_page("missing"),
        ),
    ] {
        let started = Graph::build(&to, &Arc::default()).err().unwrap();
        assert_eq!(texts(&started), [expected.as_str()]);
        let shared = Arc::new(Shared::default());
        let mut running = run(&from, &shared).await;
        let paths = running.paths();
        let refused = running.reload(&from, &to, &[]).await;
        let Err(ReloadError::Build(errors)) = &refused else {
            panic!("{expected}: {refused:?}");
        };
        assert_eq!(texts(errors), [expected.as_str()]);
        running.finish(DRAIN).await;
        assert_eq!(running.paths(), paths, "the old members run on");
        assert!(shared.services.get(extension).is_some());
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
    plan(&format!(
        "receivers: {{nop: {{}}}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:0\", namespace: {namespace}}}}}
service: {{pipelines: {{metrics: {{receivers: [nop], exporters: [prometheus]}}}}}}"
    ))
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
    let mut running = run(&from, &shared).await;
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
        plan(&format!(
            "extensions: {{file_storage: {{directory: {}}}}}
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
    let mut running = run(&from, &Arc::default()).await;
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

/// Status of the page for a client with this token.
async fn status(page: SocketAddr, token: &str) -> String {
    let mut stream = TcpStream::connect(page).await.unwrap();
    let request = format!(
        "GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().to_owned()
}

/// The failed plan has removed a page, and changed the extension that the page names. The page still listens then.
#[tokio::test]
async fn a_failed_reload_brings_back_a_page_that_it_removes() {
    let (_listener, taken) = taken();
    let page = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let of = |token: &str, receiver: &str, exporters: &str| {
        plan(&format!(
            "extensions: {{bearertokenauth: {{token: {token}}}}}
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
    let mut running = run(&from, &Arc::default()).await;
    let paths = running.paths();
    fails(&mut running, &from, &to, taken).await;
    assert_eq!(running.paths(), paths);
    let statuses = [status(page, "a").await, status(page, "b").await];
    assert_eq!(statuses, ["200", "401"], "the page has the old token");
    running.stop(DRAIN).await;
}

/// The first listener of the new receiver runs when its second one fails. The old receiver needs the address of the first.
#[tokio::test]
async fn a_failed_reload_brings_back_receivers_with_two_listeners() {
    let (folder, (_listener, taken)) = (tempfile::tempdir().unwrap(), taken());
    let grpc = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let otlp = |http: SocketAddr| {
        format!("otlp: {{protocols: {{grpc: {{endpoint: \"{grpc}\"}}, http: {{endpoint: \"{http}\"}}}}}}")
    };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let uds = |datagrams: &str| {
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (events, datagrams) = (path("events.sock"), path(datagrams));
        format!("uds: {{stream: {{path: {events}}}, datagram: {{path: {datagrams}}}}}")
    };
    let of = |id: &str, receiver: &str| {
        plan(&format!(
            "receivers: {{{receiver}}}
exporters: {{nop: {{}}}}
service: {{pipelines: {{metrics: {{receivers: [{id}], exporters: [nop]}}}}}}"
        ))
    };
    for (id, from, to, why) in [
        ("otlp", otlp(any), otlp(taken), taken.to_string()),
        (
            "uds",
            uds("a.sock"),
            uds("missing/a.sock"),
            "missing/a.sock".to_owned(),
        ),
    ] {
        let (from, to) = (of(id, &from), of(id, &to));
        let shared = Arc::new(Shared::default());
        let mut running = run(&from, &shared).await;
        let paths = running.paths();
        for _ in 0..10 {
            fails(&mut running, &from, &to, &why).await;
            assert_eq!(running.paths(), paths);
            assert!(shared.health.is_ready() && shared.health.troubles().is_empty());
        }
        running.stop(DRAIN).await;
    }
}

/// The directory of its socket goes away during the reload, and comes back later.
#[tokio::test]
async fn a_gateway_without_a_receiver_of_its_configuration_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let [home, missing] = ["home", "missing"].map(|name| folder.path().join(name));
    std::fs::create_dir(&home).unwrap();
    let of = |directory: &Path, mode: &str| {
        plan(&format!(
            "receivers:
  uds: {{stream: {{path: {}/a.sock}}}}
  uds/next: {{stream: {{path: {}/next.sock, mode: \"{mode}\"}}}}
exporters: {{nop: {{}}}}
service: {{pipelines: {{metrics: {{receivers: [uds, uds/next], exporters: [nop]}}}}}}",
            directory.display(),
            folder.path().display()
        ))
    };
    let (from, to) = (of(&home, "0660"), of(&missing, "0600"));
    let shared = Arc::new(Shared::default());
    let mut running = run(&from, &shared).await;
    std::fs::remove_dir_all(&home).unwrap();
    for _ in 0..2 {
        fails(&mut running, &from, &to, missing.display()).await;
        let expected = "receivers::uds: not restored after a failed reload";
        assert_eq!(shared.health.unready().as_deref(), Some(expected));
        assert!(shared.health.troubles().contains_key(SERVICE));
        let runs = running.paths();
        assert!(
            runs.iter().any(|path| &**path == "receivers::uds/next"),
            "{runs:?}"
        );
    }
    std::fs::create_dir(&home).unwrap();
    let changes = running.reload(&from, &from, &[]).await.unwrap();
    running.finish(DRAIN).await;
    assert_eq!(changes.added.join(", "), "receivers::uds");
    assert!(shared.health.is_ready() && shared.health.troubles().is_empty());
    running.stop(DRAIN).await;
}

/// The page of the old plan can't listen again, because the directory of its socket has gone.
#[tokio::test]
async fn an_exporter_that_is_not_restored_does_not_keep_receivers_from_it() {
    let (folder, (_listener, taken)) = (tempfile::tempdir().unwrap(), taken());
    let home = folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let of = |page: &str, mode: &str| {
        plan(&format!(
            "receivers: {{uds: {{stream: {{path: {}/events.sock, mode: \"{mode}\"}}}}}}
exporters: {{prometheus: {{endpoint: \"{page}\"}}}}
service: {{pipelines: {{metrics: {{receivers: [uds], exporters: [prometheus]}}}}}}",
            folder.path().display()
        ))
    };
    let from = of(&format!("unix:{}/page.sock", home.display()), "0660");
    let to = of(&taken.to_string(), "0600");
    let shared = Arc::new(Shared::default());
    let mut running = run(&from, &shared).await;
    std::fs::remove_dir_all(&home).unwrap();
    shared
        .notices
        .set("exporters::prometheus", vec!["of the old page".to_owned()]);
    for _ in 0..2 {
        fails(&mut running, &from, &to, taken).await;
        assert!(shared.notices.list().is_empty(), "the page does not run");
        let expected = "exporters::prometheus: not restored after a failed reload";
        assert_eq!(shared.health.unready().as_deref(), Some(expected));
        assert_eq!(running.paths().join(", "), "receivers::uds");
    }
    std::fs::create_dir(&home).unwrap();
    let changes = running.reload(&from, &from, &[]).await.unwrap();
    running.finish(DRAIN).await;
    assert_eq!(changes.added.join(", "), "exporters::prometheus");
    assert!(shared.health.is_ready() && shared.health.troubles().is_empty());
    running.stop(DRAIN).await;
}

#[tokio::test]
async fn components_of_the_refused_plan_do_not_count_as_those_of_the_old_one() {
    let shared = Arc::new(Shared::default());
    let old = run(&page("a"), &Arc::default()).await;
    let mut mixed = run(&page("b"), &shared).await;
    mixed.note_missing(old.planned(), &ReloadError::Busy);
    let expected = "exporters::prometheus: not restored after a failed reload";
    assert_eq!(shared.health.unready().as_deref(), Some(expected));
    mixed.note_whole();
    assert!(shared.health.is_ready());
    let planned = mixed.planned();
    mixed.note_missing(planned, &ReloadError::Busy);
    let expected = "the old pipelines: not restored after a failed reload";
    assert_eq!(shared.health.unready().as_deref(), Some(expected));
    old.stop(DRAIN).await;
    mixed.stop(DRAIN).await;
}

/// Waits until a table has the gauge `depth` with this value.
async fn until_depth_is(expected: f64, shared: &Shared) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mut is_there = false;
        for table in shared.tables.list() {
            table.read(unix_now(), &mut |reading| {
                let value = reading.value.number().map(Number::as_f64);
                is_there |= &*reading.series.metric.name == "depth" && value == Some(expected);
            });
        }
        if is_there {
            return;
        }
        assert!(Instant::now() < deadline, "the depth is not {expected}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The old receiver of datagrams has stopped when the other receiver fails. The new one has not started yet.
#[tokio::test]
async fn a_failed_reload_keeps_the_gauges_of_senders() {
    let (folder, (_listener, taken)) = (tempfile::tempdir().unwrap(), taken());
    let socket = folder.path().join("statsd.sock");
    let of = |mode: &str, address: &str| {
        plan(&format!(
            "receivers:
  otlp: {{protocols: {{http: {{endpoint: \"{address}\"}}}}}}
  uds: {{datagram: {{path: {}, mode: \"{mode}\"}}}}
processors: {{aggregate: {{rules: [{{match: {{name: depth}}}}]}}}}
exporters: {{nop: {{}}}}
service: {{pipelines: {{metrics: {{receivers: [otlp, uds], processors: [aggregate], exporters: [nop]}}}}}}",
            socket.display()
        ))
    };
    let (from, to) = (of("0660", "127.0.0.1:0"), of("0600", &taken.to_string()));
    let shared = Arc::new(Shared::default());
    let mut running = run(&from, &shared).await;
    let sender = UnixDatagram::unbound().unwrap();
    sender.send_to(b"depth:5|g", &socket).unwrap();
    until_depth_is(5.0, &shared).await;
    fails(&mut running, &from, &to, taken).await;
    sender.send_to(b"depth:+1|g", &socket).unwrap();
    until_depth_is(6.0, &shared).await;
    running.stop(DRAIN).await;
}

/// The new receiver of datagrams has started, with other senders, when the next receiver fails.
#[tokio::test]
async fn a_failed_reload_keeps_senders_that_a_started_receiver_ends() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("statsd.sock");
    let missing = folder.path().join("missing/events.sock");
    let of = |timeout: &str, events: &Path| {
        plan(&format!(
            "receivers:
  uds: {{source_timeout: {timeout}, datagram: {{path: {}}}}}
  uds/next: {{stream: {{path: {}}}}}
processors: {{aggregate: {{rules: [{{match: {{name: depth}}}}]}}}}
exporters: {{nop: {{}}}}
service: {{pipelines: {{metrics: {{receivers: [uds, uds/next], processors: [aggregate], exporters: [nop]}}}}}}",
            socket.display(),
            events.display()
        ))
    };
    let (from, to) = (of("60s", &folder.path().join("events.sock")), of("90s", &missing));
    let shared = Arc::new(Shared::default());
    let mut running = run(&from, &shared).await;
    let sender = UnixDatagram::unbound().unwrap();
    sender.send_to(b"depth:5|g", &socket).unwrap();
    until_depth_is(5.0, &shared).await;
    fails(&mut running, &from, &to, missing.display()).await;
    sender.send_to(b"depth:+1|g", &socket).unwrap();
    until_depth_is(6.0, &shared).await;
    running.stop(DRAIN).await;
}

/// An exporter whose start never ends, and whether it opens a log.
struct Hanging(bool);

#[async_trait]
impl Lifecycle for Hanging {
    async fn start(&self) -> Result<(), ComponentError> {
        std::future::pending().await
    }

    fn opens_log(&self) -> bool {
        self.0
    }
}

impl Exporter for Hanging {}

impl Consumer for Hanging {
    fn admit(&self, _: &Batch, _: &mut Flow) -> Result<(), Refused> {
        Ok(())
    }

    fn consume(&self, _: Batch, _: &mut Flow) {}
}

static HANGING: ExporterFactory = Factory {
    build: |_, _| Ok(Arc::new(Hanging(false))),
    ..nop::FACTORY
};

static HANGING_WITH_LOG: ExporterFactory = Factory {
    build: |_, _| Ok(Arc::new(Hanging(true))),
    ..nop::FACTORY
};

/// A plan with this exporter.
fn with_exporter(id: &str) -> Plan {
    plan(&format!(
        "receivers: {{nop: {{}}}}
exporters: {{{id}: {{}}}}
service: {{pipelines: {{logs: {{receivers: [nop], exporters: [{id}]}}}}}}"
    ))
}

#[tokio::test(start_paused = true)]
async fn a_start_that_opens_a_log_has_five_minutes_until_the_gateway_stops() {
    for (factory, is_stopping, seconds, expected) in [
        (&HANGING, false, 30, "did not start within 30 s"),
        (&HANGING_WITH_LOG, false, 300, "did not start within 300 s"),
        (
            &HANGING_WITH_LOG,
            true,
            30,
            "did not start before the stop of the gateway",
        ),
    ] {
        let (from, mut to) = (with_exporter("nop"), with_exporter("nop/hanging"));
        for planned in to.exporters.values_mut() {
            planned.factory = factory;
        }
        let shared = Arc::new(Shared::default());
        let mut running = run(&from, &shared).await;
        if is_stopping {
            shared.reloads.close();
        }
        let began = tokio::time::Instant::now();
        let refused = running.reload(&from, &to, &[]).await;
        let took = began.elapsed().as_secs();
        let error = refused.unwrap_err().to_string();
        assert_eq!(error, format!("exporters::nop/hanging: {expected}"));
        assert_eq!(took, seconds, "{error}");
        running.stop(DRAIN).await;
    }
}

/// A plan with a history of no configured length, and the rules of a folder.
fn with_history(folder: &Path) -> Plan {
    plan(&format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:0\"}}
  rules: {{files: [\"{}/*.yaml\"]}}
receivers: {{nop: {{}}}}
exporters: {{nop: {{}}}}
service:
  extensions: [rules, admin]
  pipelines: {{metrics: {{receivers: [nop], exporters: [nop]}}}}",
        folder.display()
    ))
}

#[tokio::test]
async fn the_history_follows_the_rules_of_reloads() {
    let folder = tempfile::tempdir().unwrap();
    let write = |range: &str| {
        let rule = format!("{{record: far, expr: \"rate(hits_total[{range}])\"}}");
        let text = format!("groups: [{{name: a, rules: [{rule}]}}]");
        std::fs::write(folder.path().join("a.yaml"), text).unwrap();
    };
    write("5m");
    let plan = with_history(folder.path());
    let shared = Arc::new(Shared::default());
    let mut running = run(&plan, &shared).await;
    let span = || View::of(&shared).past_limits().map(|limits| limits.span_ms);
    assert_eq!(span(), Some(600_000));
    for (range, expected) in [("2h", 7_200_000), ("1h", 3_600_000), ("5m", 600_000)] {
        write(range);
        running.reload(&plan, &plan, &[]).await.unwrap();
        running.finish(DRAIN).await;
        assert_eq!(span(), Some(expected), "{range}");
    }
    write("9999d");
    let refused = running.reload(&plan, &plan, &[]).await;
    let Err(ReloadError::Build(errors)) = &refused else {
        panic!("{refused:?}");
    };
    let errors = texts(errors).join("\n");
    assert!(errors.contains("rule `far` of group `a`"), "{errors}");
    assert!(errors.contains("`history::max_bytes`"), "{errors}");
    running.finish(DRAIN).await;
    assert_eq!(span(), Some(600_000), "the old rules run on");
    running.stop(DRAIN).await;
}
