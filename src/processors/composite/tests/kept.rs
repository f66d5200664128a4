// SPDX-License-Identifier: Apache-2.0

//! Composites that go on in the instance that a reload builds.

use super::*;
use crate::batch::Points;
use crate::component::testing::{add_storage, storage};
use crate::prom::catalog::testing;

const DEPTH: &str = "{name: depth_sum, metric: depth, function: last, across: sum}";

const HITS: &str = "{name: hits_sum, metric: hits, function: sum, window: 1h}";

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// An instance of the gateway of `base` that replaces others, of which the first is the newest.
fn instance(base: &Context, replaced: &[&Composites], options: &str) -> Composites {
    let (cx, _, _) = processor_context("composite", &Sink::new());
    let cx = ProcessorContext {
        base: base.clone(),
        replaced: replaced.iter().map(|old| old.table.clone()).collect(),
        ..cx
    };
    let config = settings::<CompositeProcessorConfig>(options).get();
    Composites::new(config, cx).unwrap()
}

/// The first instance of a gateway, with these composites.
fn first(composites: &str) -> Composites {
    let (_, base, _) = processor_context("composite", &Sink::new());
    instance(&base, &[], &format!("composites: [{composites}]"))
}

/// An instance with these composites that replaces others, of which the first is the newest.
fn successor(replaced: &[&Composites], composites: &str) -> Composites {
    instance(
        &replaced[0].base,
        replaced,
        &format!("composites: [{composites}]"),
    )
}

/// A scrape of a target: its depth, or nothing if it is down.
fn scrape(target: &str, depth: Option<i64>) -> Batch {
    let points = testing::scrape(&[("target", target)], "depth", depth, unix_now());
    Batch::new(Points {
        points: points.into(),
    })
}

fn hits(count: u64) -> Batch {
    let kinds = vec![kind("hits", Instrument::Counter, &[])];
    Batch::new(events("a", kinds, &[(0, count)]))
}

/// The state, the value, and the expected and the reporting sources of the composite at this position.
fn shown(composites: &Composites, at: usize) -> (Freshness, Option<f64>, usize, usize) {
    let answer = composites.set.list()[at].read(unix_now()).remove(0);
    (
        answer.state,
        answer.value,
        answer.sources_expected,
        answer.sources_reporting,
    )
}

#[tokio::test]
async fn dead_targets_and_windows_stay_if_another_composite_goes() {
    let old = first(&format!(
        "{DEPTH}, {HITS}, {{name: other, metric: x, function: sum}}"
    ));
    old.start().await.unwrap();
    for (target, depth) in [("a", Some(3)), ("b", Some(4)), ("b", None)] {
        old.push(scrape(target, depth)).unwrap();
    }
    old.push(hits(5)).unwrap();
    let depth = (Freshness::Partial, Some(3.0), 2, 1);
    assert_eq!(shown(&old, 0), depth);
    let new = successor(&[&old], &format!("{HITS}, {DEPTH}"));
    old.stop(soon()).await;
    new.start().await.unwrap();
    assert!(Arc::ptr_eq(&new.composites()[1], &old.composites()[0]));
    assert_eq!(shown(&new, 1), depth);
    assert_eq!(shown(&new, 0).1, Some(5.0));
    new.push(hits(2)).unwrap();
    // A component that ends later still has a batch for the old instance.
    old.push(hits(1)).unwrap();
    assert_eq!(shown(&new, 0).1, Some(8.0));
    new.push(scrape("b", Some(7))).unwrap();
    assert_eq!(shown(&new, 1), (Freshness::Fresh, Some(10.0), 2, 2));
    new.stop(soon()).await;
}

#[tokio::test]
async fn the_return_from_a_failed_reload_finds_the_first_composites() {
    let old = first(&format!("{HITS}, {DEPTH}"));
    old.start().await.unwrap();
    old.push(hits(5)).unwrap();
    let failed = successor(&[&old], &format!("{}, {DEPTH}", HITS.replace("1h", "2h")));
    old.stop(soon()).await;
    failed.start().await.unwrap();
    assert_eq!(
        shown(&failed, 0).0,
        Freshness::Absent,
        "a changed window begins again"
    );
    failed.push(scrape("a", Some(3))).unwrap();
    failed.stop(soon()).await;
    let again = successor(&[&failed, &old], &format!("{HITS}, {DEPTH}"));
    again.start().await.unwrap();
    assert_eq!(shown(&again, 0).1, Some(5.0));
    assert_eq!(shown(&again, 1).1, Some(3.0));
    again.stop(soon()).await;
}

#[tokio::test]
async fn a_new_threshold_leaves_the_window_and_begins_new_watches() {
    let old = first(HITS);
    old.start().await.unwrap();
    old.push(hits(5)).unwrap();
    let more = HITS.replace("1h", "1h, thresholds: [{above: 100}]");
    let new = successor(&[&old], &more);
    old.stop(soon()).await;
    new.start().await.unwrap();
    assert!(!Arc::ptr_eq(&new.composites()[0], &old.composites()[0]));
    assert_eq!(shown(&new, 0).1, Some(5.0));
    new.stop(soon()).await;
}

#[tokio::test]
async fn the_return_from_a_failed_threshold_finds_the_first_watches() {
    let old = first(HITS);
    old.start().await.unwrap();
    let more = HITS.replace("1h", "1h, thresholds: [{above: 100}]");
    let failed = successor(&[&old], &more);
    old.stop(soon()).await;
    failed.start().await.unwrap();
    failed.stop(soon()).await;
    let again = successor(&[&failed, &old], HITS);
    assert!(Arc::ptr_eq(&again.composites()[0], &old.composites()[0]));
}

/// Nobody hands on the crossings between the stop of an instance and the start of the next one.
#[tokio::test]
async fn a_crossing_between_two_instances_waits_for_the_second() {
    let composites = HITS.replace("1h", "1h, thresholds: [{above: 100}]");
    let old = first(&composites);
    old.start().await.unwrap();
    let new = successor(&[&old], &composites);
    old.stop(soon()).await;
    let watched = new.composites()[0].clone();
    let mut crossings = watched.crossings();
    old.push(hits(200)).unwrap();
    assert_eq!(watched.read(unix_now()).answers[0].answer.value, Some(200.0));
    assert!(crossings.try_recv().is_err());
    new.start().await.unwrap();
    let crossing = tokio::time::timeout(Duration::from_secs(30), crossings.recv()).await;
    assert!(crossing.expect("in time").unwrap().is_crossed);
    new.stop(soon()).await;
}

#[tokio::test]
async fn a_webhook_reports_each_crossing_once_over_a_reload() {
    let (url, mut posted) = peer(&[]).await;
    let webhook = format!("{{endpoint: \"{url}\", headers: {{x-key: secret}}}}");
    let threshold = format!("sum, thresholds: [{{above: 100, webhook: {webhook}}}]}}");
    let depth = DEPTH.replace("sum}", &threshold);
    let mut next = async || {
        let message = tokio::time::timeout(Duration::from_secs(30), posted.recv()).await;
        let message = message.expect("in time").unwrap();
        let state = message["state"].as_str().unwrap().to_owned();
        (state, message["shown"]["value"].as_f64().unwrap())
    };
    let old = first(&depth);
    old.start().await.unwrap();
    old.push(scrape("a", Some(200))).unwrap();
    assert_eq!(next().await, ("crossed".to_owned(), 200.0));
    let new = successor(&[&old], &format!("{depth}, {HITS}"));
    old.stop(soon()).await;
    new.start().await.unwrap();
    new.push(scrape("a", Some(300))).unwrap();
    // The value is still beyond the threshold. A new state of the threshold would be crossed by this read.
    let shown = new.composites()[0].read(unix_now());
    assert_eq!(shown.answers[0].answer.value, Some(300.0));
    for (depth, state) in [(1, "cleared"), (400, "crossed")] {
        new.push(scrape("a", Some(depth))).unwrap();
        assert_eq!(next().await, (state.to_owned(), depth as f64));
    }
    new.stop(soon()).await;
    assert!(posted.try_recv().is_err(), "nothing is sent twice");
}

#[tokio::test]
async fn windows_on_disk_count_once_after_a_reload_and_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (_, base, _) = processor_context("composite", &Sink::new());
    add_storage(&base.shared, storage(folder.path(), 1 << 20));
    let of = |more: &str| format!("storage: file_storage\ncomposites: [{HITS}{more}]");
    let old = instance(&base, &[], &of(""));
    old.start().await.unwrap();
    old.push(hits(5)).unwrap();
    // Until it is over, the new instance writes records, and no snapshot.
    let reload = base.shared.reloads.begin();
    let new = instance(&base, &[&old], &of(", {name: other, metric: x, function: sum}"));
    old.stop(soon()).await;
    new.start().await.unwrap();
    new.push(hits(2)).unwrap();
    assert_eq!(shown(&new, 0).1, Some(7.0));
    new.stop(soon()).await;
    drop(reload);
    let restarted = instance(&base, &[], &of(""));
    restarted.start().await.unwrap();
    assert_eq!(restarted.set.list()[0].read(unix_now())[0].sum, 7.0);
    restarted.stop(soon()).await;
}
