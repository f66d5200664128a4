// SPDX-License-Identifier: Apache-2.0

//! Programs that share a name that they must not share.

use super::*;

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
        // A reload removes the receiver, or gives it another name.
        scene.directories.finish();
        assert_eq!((count_of("resource"), count_of("family")), (Some(0.0), Some(0.0)));
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

/// Sets a gauge that has a help text.
fn set_with_help(store: &Store, help: &str, mode: GaugeMode, value: f64) {
    let spec = FamilySpec::new("depth", Kind::Gauge(mode)).help(help);
    let family = store.family(&spec).unwrap();
    family.with(&[]).float().unwrap().set(value);
}

#[test]
fn of_a_gauge_of_two_modes_and_two_help_texts_one_is_sent() {
    let mut scene = Scene::new("{}");
    let [one, other] = [(); 2].map(|()| scene.process("a", "llm"));
    set_with_help(&one, "Depth", GaugeMode::LiveSum, 3.0);
    set_with_help(&other, "Queue depth", GaugeMode::Max, 9.0);
    scene.look();
    set_with_help(&other, "Queue depth", GaugeMode::Max, 8.0);
    scene.look();
    assert_eq!(scene.sent("depth"), [Value::Double(3.0)]);
    let notices = scene.notices();
    assert!(
        notices.contains("mode livesum") && notices.contains("mode max"),
        "{notices}"
    );
}

#[test]
fn a_series_does_not_end_when_its_help_text_changes() {
    let mut scene = Scene::new("{}");
    let [older, younger] = [(); 2].map(|()| scene.process("a", "llm"));
    set_with_help(&younger, "Queue depth", GaugeMode::LiveSum, 4.0);
    scene.look();
    // The text of the older process counts.
    set_with_help(&older, "Depth", GaugeMode::LiveSum, 3.0);
    scene.look();
    assert_eq!(scene.sent("depth"), [Value::Double(4.0), Value::Double(7.0)]);
    let last = points(&scene.sink).pop().unwrap();
    assert_eq!(&*last.series.metric.description, "Depth");
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
