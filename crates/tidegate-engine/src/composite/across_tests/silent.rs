// SPDX-License-Identifier: Apache-2.0

//! The sources that a group expects and that do not report.

use super::*;

fn scene() -> Scene {
    Scene::new(Declaration {
        grouping: Grouping::by(["model"]),
        lease: Some(Duration::from_secs(5)),
        ..declare(Function::Last, Across::Sum)
    })
}

fn depth(pod: &str, now: u64, value: Value) -> Point {
    point(pod, "depth", Data::Gauge, now, value)
}

fn group(model: &str) -> Attributes {
    [("model", model)].into_iter().collect()
}

fn named(pod: &str) -> Attributes {
    [("pod", pod)].into_iter().collect()
}

/// The reasons and names, and the total.
fn silent(scene: &Scene, now: u64, most: usize) -> (Vec<(SilenceReason, Attributes)>, usize) {
    let all = scene.composite.silent_sources(&group("m"), now, most);
    let sources = all.sources.into_iter();
    (
        sources.map(|one| (one.reason, one.attributes)).collect(),
        all.total,
    )
}

#[test]
fn targets_that_are_down_come_before_sources_that_are_overdue() {
    let scene = scene();
    for pod in ["a", "b", "c", "d"] {
        scene.set.observe_all(&[depth(pod, NOW, Value::Int(1))], NOW);
    }
    assert_eq!(silent(&scene, NOW, 10), (Vec::new(), 0));
    // `b` ends with a failed scrape.
    let failed = NOW + SECOND;
    let up = |now| point("b", "up", Data::Gauge, now, Value::Int(0));
    let ended = depth("b", failed, Value::NoRecordedValue);
    scene.set.observe_all(&[ended, up(failed)], failed);
    let now = NOW + 8 * SECOND;
    scene.set.observe_all(&[depth("a", now, Value::Int(1))], now);
    scene.set.observe_all(&[up(now)], now);
    let answer = scene.read(now);
    assert_eq!((answer.sources_reporting, answer.sources_expected), (1, 4));
    let (sources, total) = silent(&scene, now, 10);
    assert_eq!((&sources[0], total), (&(SilenceReason::Down, named("b")), 3));
    let mut overdue: Vec<_> = sources.iter().skip(1).map(|(_, name)| name.to_string()).collect();
    overdue.sort();
    assert_eq!(overdue, [named("c").to_string(), named("d").to_string()]);
    let first = scene.composite.silent_sources(&group("m"), now, 1);
    assert_eq!((first.sources.len(), first.total), (1, 3));
    assert_eq!(first.sources[0].since, failed, "the first failed scrape");
    let other = scene.composite.silent_sources(&group("other"), now, 10);
    assert_eq!(other, SilentSources::default());
}

#[test]
fn overdue_sources_of_events_have_their_attributes() {
    let scene = scene();
    let source = event_source(&[("agent", "a"), ("model", "m")]);
    scene.events(&source, &[4]);
    assert_eq!(silent(&scene, NOW + SECOND, 10).1, 0);
    let overdue = (SilenceReason::Overdue, source.attributes.clone());
    assert_eq!(silent(&scene, NOW + 6 * SECOND, 10), (vec![overdue], 1));
    source.lease.end();
    assert_eq!(silent(&scene, NOW + 6 * SECOND, 10).1, 0);
}

#[test]
fn a_living_source_can_be_without_series() {
    let scene = scene();
    scene.set.observe_all(&[depth("a", NOW, Value::Int(1))], NOW);
    for second in 1..20 {
        let now = NOW + second * SECOND;
        let other = point("a", "other", Data::Gauge, now, Value::Int(1));
        scene.set.observe_all(&[other], now);
    }
    let (sources, _) = silent(&scene, NOW + 19 * SECOND, 10);
    assert_eq!(sources, [(SilenceReason::WithoutSeries, named("a"))]);
}
