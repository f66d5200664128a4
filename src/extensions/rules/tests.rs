// SPDX-License-Identifier: Apache-2.0

//! The extension on a live table: alerts, recorded series, and its successor.

mod history;

use std::fs;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use bytes::Bytes;
use tempfile::TempDir;
use tidegate_engine::{Attributes, Data, Lease, Limits, Rule, Table, Value};
use tidegate_rules::{ActiveAlert, AlertState, SavedAlerts};

use super::alertmanager::WaitingAlert;
use super::*;
use crate::batch::{Payload, Signal};
use crate::component::testing::{Sink, add_storage, context, eventually, options, storage};
use crate::component::wall_now;
use crate::prom::catalog::testing::point;
use crate::telemetry::testing::recorder;

const RULES: &str = "groups:
- name: web
  rules:
  - {record: \"zone:depth:max\", expr: max by (zone) (depth)}
  - {alert: Deep, expr: \"zone:depth:max > 5\", for: 1h}
";

/// Two groups.
const GROUPS: &str = "groups:
- name: web
  rules:
  - {alert: Deep, expr: depth > 5, for: 1h}
- name: more
  rules:
  - {record: \"zone:depth:max\", expr: max by (zone) (depth)}
  - {alert: Deeper, expr: depth > 6, for: 1h}
";

/// The first one of [`GROUPS`] with another rule.
const CHANGED: &str = "groups:
- name: web
  rules:
  - {alert: Deep, expr: depth > 5, for: 1h, labels: {team: a}}
";

/// An Alertmanager that nobody can reach.
const UNREACHABLE: &str = "alertmanagers: [{endpoint: \"http://127.0.0.1:1\"}]";

/// A gateway with a table and rules.
struct Rig {
    directory: TempDir,
    base: Context,
    table: Arc<Table>,
}

impl Rig {
    fn new() -> Self {
        let rig = Self {
            directory: tempfile::tempdir().unwrap(),
            base: context("extensions", "rules"),
            table: Arc::new(Table::new("test", vec![Rule::newest()], Limits::default())),
        };
        rig.base.shared.tables.add(rig.table.clone());
        rig.base.shared.health.enter(Phase::Ready);
        rig.write(RULES);
        rig
    }

    fn write(&self, rules: &str) {
        fs::write(self.directory.path().join("a.yaml"), rules).unwrap();
    }

    fn extension(&self) -> Result<RulesExtension, ComponentError> {
        self.extension_with("")
    }

    /// The extension with more options.
    fn extension_with(&self, more: &str) -> Result<RulesExtension, ComponentError> {
        let files = self.directory.path().join("*.yaml");
        let config = options::<RulesConfig>(&format!("{{files: [{files:?}], interval: 100ms, {more}}}"));
        RulesExtension::new(Arc::new(config.unwrap()), self.base.clone())
    }

    fn observe(&self, depth: f64) {
        self.observe_in("x", depth);
    }

    fn observe_in(&self, zone: &str, depth: f64) {
        let attributes = Attributes::from_iter([("zone", zone)]);
        let value = Value::Double(depth);
        let series = (Attributes::default(), attributes);
        let point = point("depth", Data::Gauge, series, (0, wall_now()), value);
        self.table.observe(&point, unix_now());
    }

    /// The extension, started, and its alert, which is pending.
    async fn pending(&self) -> (RulesExtension, ActiveAlert) {
        self.observe(9.0);
        let rules = self.extension().unwrap();
        start(&rules).await;
        eventually("the alert is pending", || self.alerts().len() == 1);
        (rules, self.alerts().remove(0))
    }

    fn groups(&self) -> Vec<Arc<GroupReport>> {
        RuleReporters::of(&self.base.shared).groups()
    }

    /// Whether all groups were evaluated.
    fn is_evaluated(&self) -> bool {
        self.groups().iter().all(|group| group.evaluated.is_some())
    }

    fn alerts(&self) -> Vec<ActiveAlert> {
        let groups = self.groups();
        let rules = groups.iter().flat_map(|group| &group.rules);
        rules.flat_map(|rule| rule.alerts.clone()).collect()
    }
}

/// Seems to be an evaluation of a group until it is ended.
struct LongEvaluation {
    end: SyncSender<()>,
    thread: thread::JoinHandle<()>,
}

impl LongEvaluation {
    fn of(group: &Arc<GroupRun>) -> Self {
        let (begin, begun) = sync_channel::<()>(1);
        let (end, ended) = sync_channel::<()>(1);
        let group = group.clone();
        let thread = thread::spawn(move || {
            group.during_evaluation(|| {
                begin.send(()).unwrap();
                ended.recv().unwrap();
            });
        });
        begun.recv().unwrap();
        Self { end, thread }
    }

    fn end(self) {
        self.end.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

/// An alert that waits for its Alertmanager.
fn waiting_alert() -> WaitingAlert {
    let labels = [("alertname", "Late")].into_iter().collect();
    (labels, Bytes::from_static(b"{}"))
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Starts an extension, and lists its table as the service does.
async fn start(rules: &RulesExtension) {
    rules.start().await.unwrap();
    let table = rules.table().cloned();
    table
        .into_iter()
        .for_each(|table| rules.base.shared.tables.add(table));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_takes_over_alerts_and_series() {
    let rig = Rig::new();
    let (first, before) = rig.pending().await;
    assert_eq!(before.state, AlertState::Pending);
    assert!(!first.is_outdated());
    rig.write(&(RULES.to_owned() + "  - {record: zones, expr: count(depth)}\n"));
    assert!(first.is_outdated());
    let second = rig.extension().unwrap();
    first.stop(soon()).await;
    start(&second).await;
    assert_eq!(
        rig.alerts().len(),
        1,
        "the alert is shown before the first evaluation"
    );
    eventually("the new rule has run", || {
        let mut groups = rig.groups().into_iter();
        groups.any(|group| group.rules.len() == 3 && group.evaluated.is_some())
    });
    let after = rig.alerts().remove(0);
    assert_eq!(after.active_at, before.active_at);
    rig.write("groups: []");
    let third = rig.extension().unwrap();
    second.stop(soon()).await;
    start(&third).await;
    let recorded = third.engine.recorded.clone();
    eventually("the series of removed rules end", || recorded.is_empty());
    third.stop(soon()).await;
    assert!(rig.groups().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn series_of_removed_rules_end_while_a_component_is_not_restored() {
    let rig = Rig::new();
    let (first, _) = rig.pending().await;
    eventually("a series is recorded", || !first.engine.recorded.is_empty());
    rig.write("groups: []");
    let second = rig.extension().unwrap();
    first.stop(soon()).await;
    rig.base.shared.health.lack(Some("receivers::otlp".to_owned()));
    start(&second).await;
    let recorded = second.engine.recorded.clone();
    eventually("the series of removed rules end", || recorded.is_empty());
    second.stop(soon()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evaluation_that_outlasts_the_stop_hands_its_state_on() {
    let rig = Rig::new();
    let (first, before) = rig.pending().await;
    let evaluation = LongEvaluation::of(&first.groups[0]);
    first.stop(Instant::now()).await;
    // With one more rule before them, the others keep their states.
    let one_more = "  rules:\n  - {record: zones, expr: count(depth)}\n";
    rig.write(&RULES.replace("  rules:\n", one_more));
    let second = rig.extension().unwrap();
    start(&second).await;
    assert_eq!(
        rig.alerts(),
        std::slice::from_ref(&before),
        "the alert is shown during the evaluation"
    );
    assert_eq!(
        rig.groups()[0].rules[2].alerts.len(),
        1,
        "it is an alert of its rule"
    );
    evaluation.end();
    eventually("the new rule has run", || rig.is_evaluated());
    assert_eq!(rig.alerts().len(), 1);
    assert_eq!(rig.alerts().remove(0).active_at, before.active_at);
    second.stop(soon()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_was_never_evaluated_hands_on_what_it_took_over() {
    let rig = Rig::new();
    add_storage(&rig.base.shared, storage(rig.directory.path(), 1 << 20));
    rig.write(GROUPS);
    rig.observe(9.0);
    let first = rig.extension_with("storage: file_storage").unwrap();
    start(&first).await;
    eventually("both alerts are pending", || rig.alerts().len() == 2);
    let before = rig.alerts();
    first.stop(soon()).await;
    let recorded = first.engine.recorded.clone();
    let series = recorded.len();
    // A reload that fails. Groups are evaluated only while the gateway is ready.
    rig.base.shared.health.enter(Phase::Starting);
    rig.write(CHANGED);
    let second = rig.extension_with("storage: file_storage").unwrap();
    start(&second).await;
    second.stop(soon()).await;
    let file = second.file.lock().clone().unwrap();
    let kept: usize = file.read().unwrap().iter().map(SavedAlerts::len).sum();
    assert_eq!(
        kept, 2,
        "the file has the alerts of the changed and the removed rule"
    );
    assert_eq!(recorded.len(), series, "no series has ended");
    rig.write(GROUPS);
    let third = rig.extension_with("storage: file_storage").unwrap();
    start(&third).await;
    assert_eq!(rig.alerts(), before);
    rig.base.shared.health.enter(Phase::Ready);
    eventually("all groups are evaluated", || rig.is_evaluated());
    assert_eq!(rig.alerts(), before);
    third.stop(soon()).await;
    // One that succeeds.
    rig.write(CHANGED);
    let fourth = rig.extension_with("storage: file_storage").unwrap();
    start(&fourth).await;
    eventually("the series of the removed group end", || {
        recorded.len() < series && rig.is_evaluated()
    });
    assert_eq!(rig.alerts().len(), 1);
    fourth.stop(soon()).await;
    let kept: usize = file.read().unwrap().iter().map(SavedAlerts::len).sum();
    assert_eq!(kept, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_start_hands_on_what_it_has_taken_over() {
    let rig = Rig::new();
    let (first, before) = rig.pending().await;
    first.stop(soon()).await;
    let second = rig.extension_with("storage: missing").unwrap();
    second.start().await.unwrap_err();
    second.stop(soon()).await;
    let third = rig.extension().unwrap();
    start(&third).await;
    assert_eq!(rig.alerts(), [before]);
    third.stop(soon()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alerts_of_the_last_evaluation_of_a_removed_group_are_sent() {
    let rig = Rig::new();
    let first = rig.extension_with(UNREACHABLE).unwrap();
    start(&first).await;
    let evaluation = LongEvaluation::of(&first.groups[0]);
    first.stop(Instant::now()).await;
    rig.write("groups: []");
    let second = rig.extension_with(UNREACHABLE).unwrap();
    start(&second).await;
    first.engine.alertmanagers[0].enqueue(&[waiting_alert()]);
    evaluation.end();
    let successor = &second.engine.alertmanagers[0];
    eventually("the successor has the alert", || {
        !successor.take_rest().is_empty()
    });
    second.stop(soon()).await;
}

#[tokio::test(start_paused = true)]
async fn alerts_of_a_last_evaluation_without_a_successor_count_as_dropped() {
    let (recorder, page) = recorder("[]");
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    let rig = Rig::new();
    let rules = rig.extension_with(UNREACHABLE).unwrap();
    let since = Instant::now();
    let transfer = Transfer {
        since,
        groups: vec![LeftGroup::Busy(rules.groups[0].clone())],
        alerts: Vec::new(),
    };
    let transfers = rig.base.shared.parts.get(Transfers::default);
    transfers.0.lock().insert(rig.base.id.to_string(), transfer);
    rules.engine.alertmanagers[0].enqueue(&[waiting_alert()]);
    discard(rig.base.shared.clone(), rig.base.id.clone(), since).await;
    let dropped = page.series("tidegate_alerts_dropped_total");
    assert_eq!(dropped.iter().map(|(_, alerts)| alerts).sum::<f64>(), 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_account_of_memory_counts_alerts_and_series() {
    let rig = Rig::new();
    let memory = rig.base.shared.memory.clone();
    rig.observe(9.0);
    let rules = rig.extension().unwrap();
    start(&rules).await;
    // A recorded series, the series of an alert, and its labels and annotations.
    eventually("all count", || memory.filled_bytes() >= 4 * 128);
    rig.write("groups: []");
    let none = rig.extension().unwrap();
    rules.stop(soon()).await;
    start(&none).await;
    eventually("nothing counts any more", || memory.filled_bytes() == 0);
    none.stop(soon()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_evaluation_is_pushed_into_the_entries() {
    let rig = Rig::new();
    let rules = rig.extension().unwrap();
    let sink = Sink::new();
    let recorded = rules.engine.recorded.clone();
    recorded.attach(1, sink.entry(Signal::Metrics));
    start(&rules).await;
    rig.observe(3.0);
    let values = || -> Vec<f64> {
        let batches = sink.batches();
        let points = batches.iter().filter_map(|batch| match &batch.payload {
            Payload::Points(points) => Some(points.points.clone()),
            _ => None,
        });
        let points = points.flat_map(|points| points.to_vec());
        points.filter_map(|point| point.value.as_f64()).collect()
    };
    eventually("samples arrive", || values().len() >= 2);
    assert!(values().iter().all(|value| *value == 3.0));
    let owner = recorded.table().owner().clone();
    assert!(
        sink.batches()
            .iter()
            .all(|batch| batch.snapshot_of.as_ref() == Some(&owner))
    );
    recorded.detach(1);
    rules.stop(soon()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_with_more_series_than_max_alerts_fails_and_keeps_its_state() {
    let rig = Rig::new();
    rig.write("groups: [{name: web, rules: [{alert: Deep, expr: depth > 5}]}]");
    let rules = rig.extension_with("max_alerts: 1").unwrap();
    rig.observe(9.0);
    start(&rules).await;
    eventually("the alert fires", || rig.alerts().len() == 1);
    rig.observe_in("y", 9.0);
    eventually("the rule fails", || {
        let groups = rig.groups();
        let mut states = groups.iter().flat_map(|group| &group.rules);
        let is_refused = |why: &String| why.contains("2 series: `max_alerts` allows 1");
        states.any(|rule| rule.health.last_error.as_ref().is_some_and(is_refused))
    });
    assert_eq!(rig.alerts().len(), 1);
    rules.stop(soon()).await;
}

/// One alert, which fires at once.
const DEEP: &str = "groups: [{name: web, rules: [{alert: Deep, expr: depth > 5}]}]";

#[tokio::test]
async fn a_group_is_evaluated_only_while_the_gateway_is_ready() {
    let rig = Rig::new();
    rig.write(DEEP);
    rig.observe(9.0);
    let rules = rig.extension().unwrap();
    let (group, health) = (&rules.groups[0], &rig.base.shared.health);
    let is_evaluated = || {
        group.evaluate_if_ready(unix_now());
        group.report().evaluated.is_some()
    };
    health.enter(Phase::Starting);
    assert!(!is_evaluated(), "the gateway starts");
    health.enter(Phase::Ready);
    health.hold("receivers::partials", Some("stale"));
    assert!(!is_evaluated(), "the replica is not ready");
    health.hold("receivers::partials", None);
    assert!(is_evaluated());
}

#[tokio::test]
async fn a_rule_that_reads_what_was_not_ready_fails_and_keeps_its_state() {
    let rig = Rig::new();
    rig.write(DEEP);
    rig.observe(9.0);
    let rules = rig.extension().unwrap();
    let (group, health) = (&rules.groups[0], &rig.base.shared.health);
    group.evaluate_if_ready(unix_now());
    let state = || group.report().rules[0].alerts[0].state;
    assert_eq!(state(), AlertState::Firing);
    let read = health.begin_read().unwrap();
    health.hold("receivers::partials", Some("stale"));
    health.hold("receivers::partials", None);
    // The alert would resolve.
    rig.observe(1.0);
    group.evaluate(unix_now(), read);
    assert_eq!(state(), AlertState::Firing);
    let report = group.report();
    let error = report.rules[0].health.last_error.as_deref();
    assert!(error.is_some_and(|why| why.contains("not ready")), "{error:?}");
    group.evaluate_if_ready(unix_now());
    assert_eq!(group.report().rules[0].health.last_error, None);
}

#[tokio::test]
async fn an_alert_is_unknown_as_soon_as_its_receiver_sees_the_source_die() {
    let rig = Rig::new();
    rig.write(DEEP);
    let lease = Arc::new(Lease::new(Duration::from_secs(60), unix_now()));
    let report = || {
        let resource = Attributes::from_iter([("service.name", "web")]);
        let of = (resource, Attributes::default());
        let point = point("depth", Data::Gauge, of, (0, wall_now()), Value::Double(9.0));
        let mut session = rig.table.session(unix_now()).of_leased(Some(lease.clone()));
        session.observe(&point);
    };
    report();
    let rules = rig.extension_with("stale: unknown").unwrap();
    let group = &rules.groups[0];
    let is_unknown = || {
        group.evaluate_if_ready(unix_now());
        let all = group.report().rules[0].alerts.clone();
        all.iter()
            .any(|alert| alert.labels.get("state") == "unknown" && alert.state == AlertState::Firing)
    };
    assert!(!is_unknown());
    lease.suspend();
    // Its series come again.
    report();
    assert!(is_unknown(), "its last report is recent");
    lease.touch(unix_now());
    assert!(!is_unknown());
}
