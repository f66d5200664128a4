// SPDX-License-Identifier: Apache-2.0

//! With `storage`: output and shown values are the same, a restart changes nothing, and a failed write is reported.

use tempfile::TempDir;
use tidegate_engine::Point;

use super::*;
use crate::batch::Encoded;
use crate::component::PushAnswer;
use crate::component::testing::{add_storage, storage};

const RULES: &str = "[{match: {name: taken}, by: [], name: out},
     {match: {name: hot, types: [event]}, by: [agent_name]},
     {match: {name: level, attributes: {k: a*}}, by: []}]";

/// A processor with storage, started.
async fn kept(directory: &TempDir) -> Rig {
    let rig = stored(RULES, directory);
    rig.aggregate.start().await.unwrap();
    rig
}

/// A processor with storage.
fn stored(rules: &str, directory: &TempDir) -> Rig {
    let rig = rig(&format!(
        "{{rules: {rules}, storage: file_storage, interval: 1h}}"
    ));
    add_storage(&rig.base.shared, storage(directory.path(), 1 << 20));
    rig
}

impl Rig {
    /// Pushes as a receiver does whose sender waits for the answer.
    async fn send(&self, payload: impl Into<Payload>) -> PushAnswer {
        let mut flow = Flow::waited_for();
        let batch = Batch::new(payload);
        self.ledger.enter(batch.items());
        self.aggregate.admit(&batch, &mut flow)?;
        self.aggregate.consume(batch, &mut flow);
        flow.settled().await
    }

    async fn until(&self, what: &str, done: impl Fn(&Rig) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !done(self) {
            assert!(Instant::now() < deadline, "timed out waiting until {what}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Batches of every form, with what is taken, what is not, and what is rejected.
fn payloads() -> Vec<Payload> {
    let counter = Data::Sum {
        monotonic: true,
        temporality: Temporality::Cumulative,
    };
    let points = [
        point("taken", counter, &[("pod", "a")], Value::Int(30)),
        point("taken", counter, &[("pod", "b")], Value::Int(-1)),
        point("hot", Data::Gauge, &[], Value::Int(3)),
        point("level", Data::Gauge, &[("k", "a1")], Value::Int(4)),
        point("level", Data::Gauge, &[("k", "b1")], Value::Int(5)),
    ];
    let kinds = || {
        ["taken", "hot", "other"]
            .map(|name| kind(name, Instrument::Counter, &[]))
            .into()
    };
    let later: Vec<_> = points
        .iter()
        .map(|point| Point {
            time: point.time + 1,
            ..point.clone()
        })
        .collect();
    vec![
        encoded(&[("taken", 1), ("other", 2)]).into(),
        encoded(&[("other", 1)]).into(),
        encoded(&[("taken", 4)]).into(),
        events("a", kinds(), &[(0, 1), (1, 2), (2, 3), (1, 5)]).into(),
        events("b", kinds(), &[(2, 3)]).into(),
        events("b", kinds(), &[(0, 70)]).into(),
        Points {
            points: points.into(),
        }
        .into(),
        convert::encode_points(&later).into(),
    ]
}

#[tokio::test]
async fn with_storage_the_same_is_taken_passed_on_rejected_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let (plain, kept) = (rig(&format!("{{rules: {RULES}}}")), kept(&directory).await);
    for payload in payloads() {
        let answer = kept.send(payload.clone()).await.unwrap();
        plain.ledger.enter(payload.items());
        assert_eq!(answer, plain.aggregate.push(Batch::new(payload)).unwrap());
        assert_eq!(kept.ledger.balance(), plain.ledger.balance());
    }
    let passed = |rig: &Rig| -> Vec<String> {
        let batches = rig.sink.batches();
        batches
            .iter()
            .map(|batch| format!("{} {}", batch.items(), batch.first_name()))
            .collect()
    };
    assert_eq!(passed(&kept), passed(&plain));
    let shown = state(&kept.aggregate.absorber.table);
    assert_eq!(shown, state(&plain.aggregate.absorber.table));
    assert!(shown.len() >= 4, "{shown:?}");

    kept.aggregate
        .stop(Instant::now() + Duration::from_secs(10))
        .await;
    let again = self::kept(&directory).await;
    assert_eq!(state(&again.aggregate.absorber.table), shown);
}

/// Name, attributes and unit of a series as text -> its value.
fn state(table: &Table) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    table.read(unix_now(), &mut |reading: Reading<'_>| {
        let series = reading.series;
        let name = format!(
            "{} {:?} {}",
            series.metric.name, series.attributes, series.metric.unit
        );
        all.insert(name, reading.value.clone());
    });
    all
}

/// A request of which ten exceed the room of a segment.
fn large() -> Encoded {
    encoded(&[("taken", 1); 200])
}

/// Takes the directory away: even root can't make a file in it then.
fn fail(directory: &TempDir) -> std::path::PathBuf {
    let aside = directory.path().with_extension("aside");
    std::fs::rename(directory.path(), &aside).unwrap();
    aside
}

#[tokio::test]
async fn a_failed_write_is_reported_to_senders_that_wait() {
    let directory = tempfile::tempdir().unwrap();
    let rig = kept(&directory).await;
    rig.send(encoded(&[("taken", 1)])).await.unwrap();
    let aside = fail(&directory);
    let refused = loop {
        if let Err(refused) = rig.send(large()).await {
            break refused;
        }
    };
    assert!(refused.reason.contains("storage: "), "{refused}");
    assert!(refused.retry_after.is_some());
    let balance = rig.ledger.balance();
    assert_eq!(
        balance.dropped[Reason::StorageFailed as usize],
        200,
        "its sender has it"
    );
    assert_eq!(balance.held(), 0);
    // The storage refuses every batch until it tries again.
    let admit = |rig: &Rig| {
        let batch = Batch::new(encoded(&[("taken", 1)]));
        rig.aggregate.admit(&batch, &mut Flow::default())
    };
    assert!(admit(&rig).unwrap_err().reason.contains("storage: "));
    std::fs::rename(&aside, directory.path()).unwrap();
    rig.until("there is room again", |rig| admit(rig).is_ok()).await;
    rig.send(encoded(&[("taken", 1)])).await.unwrap();
}

#[tokio::test]
async fn a_failed_write_costs_senders_that_do_not_wait_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let rig = kept(&directory).await;
    fail(&directory);
    let mut items = 0;
    loop {
        let batch = Batch::new(large());
        let mut flow = Flow::default();
        if rig.aggregate.admit(&batch, &mut flow).is_err() {
            break;
        }
        items += batch.items();
        rig.ledger.enter(batch.items());
        rig.aggregate.consume(batch, &mut flow);
    }
    rig.until("all is taken in", |rig| rig.ledger.balance().held() == 0)
        .await;
    assert_eq!(rig.ledger.balance().absorbed, items as u64);
}

#[tokio::test]
async fn a_refusal_behind_leaves_no_room_set_aside() {
    let directory = tempfile::tempdir().unwrap();
    let rig = kept(&directory).await;
    rig.sink.refuse(1);
    let mut flow = Flow::default();
    let batch = Batch::new(encoded(&[("other", 1)]));
    assert!(rig.aggregate.admit(&batch, &mut flow).is_err());
    assert_eq!(flow.mark(), 0);
}

#[tokio::test]
async fn data_after_the_stop_is_refused_or_counted_as_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let rig = kept(&directory).await;
    let admitted = Batch::new(encoded(&[("taken", 1), ("taken", 2)]));
    let mut flow = Flow::default();
    rig.aggregate.admit(&admitted, &mut flow).unwrap();
    let (waiting, mut waited_for) = (Batch::new(encoded(&[("taken", 1)])), Flow::waited_for());
    rig.aggregate.admit(&waiting, &mut waited_for).unwrap();
    rig.aggregate.stop(Instant::now() + Duration::from_secs(10)).await;
    let refused = rig.send(encoded(&[("taken", 1)])).await.unwrap_err();
    assert!(refused.retry_after.is_some(), "{refused}");
    // A push that its receiver has begun before the stop.
    let before = rig.ledger.balance();
    rig.ledger.enter(admitted.items());
    rig.aggregate.consume(admitted, &mut flow);
    let balance = rig.ledger.balance();
    assert_eq!(balance.dropped[Reason::Shutdown as usize], 2);
    assert_eq!(balance.held(), before.held(), "nothing waits for a closed log");
    // The sender of this one still has the data.
    rig.ledger.enter(waiting.items());
    rig.aggregate.consume(waiting, &mut waited_for);
    let refused = waited_for.settled().await.unwrap_err();
    assert!(refused.reason.contains("the log is closed"), "{refused}");
    assert_eq!(rig.ledger.balance().dropped[Reason::Shutdown as usize], 3);
}

/// A reload that fails starts an instance with other rules, and then one with the old rules. One that succeeds is over while
/// the instance with the other rules runs.
#[tokio::test]
async fn a_reload_keeps_the_totals_that_changed_rules_drop_until_it_is_over() {
    let rules = |name: &str| {
        format!(
            "[{{match: {{name: hits}}, name: {name}, by: []}},
     {{match: {{name: calls}}, by: []}}]"
        )
    };
    let of = |values: &[(u16, u64)]| {
        let kinds = ["hits", "calls"].map(|name| kind(name, Instrument::Counter, &[]));
        events("a", kinds.into(), values)
    };
    let totals = |rig: &Rig| {
        let shown = show(&rig.aggregate.absorber.table);
        ["hits_total{}", "calls_total{}"]
            .map(|name| shown.get(name).map(|value| value.number().unwrap().as_f64()))
    };
    let soon = || Instant::now() + Duration::from_secs(30);
    for (fails, expected) in [(true, [Some(6.0), Some(3.0)]), (false, [None, Some(3.0)])] {
        let directory = tempfile::tempdir().unwrap();
        let first = stored(&rules("hits"), &directory);
        first.aggregate.start().await.unwrap();
        first.send(of(&[(0, 5), (1, 2)])).await.unwrap();
        let second = stored(&rules("strokes"), &directory);
        let reload = Some(second.base.shared.reloads.begin());
        first.aggregate.stop(soon()).await;
        second.aggregate.start().await.unwrap();
        assert_eq!(totals(&second), [None, Some(2.0)]);
        second.send(of(&[(0, 1), (1, 1)])).await.unwrap();
        // A success ends here.
        let reload = reload.filter(|_| fails);
        second.aggregate.stop(soon()).await;
        drop(reload);
        // The old rules again: after the failure, or after a restart.
        let third = stored(&rules("hits"), &directory);
        third.aggregate.start().await.unwrap();
        assert_eq!(totals(&third), expected, "fails: {fails}");
        third.aggregate.stop(soon()).await;
    }
}
