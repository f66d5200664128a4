// SPDX-License-Identifier: Apache-2.0

//! `target_info`: its targets, and other series that have its name.

use super::*;

/// A gauge of one target, whose resource is of this version.
fn of(version: &str, name: &str) -> (Arc<Series>, Value) {
    let resource = [
        ("service.name", "s"),
        ("service.instance.id", "i"),
        ("service.version", version),
    ];
    (series(name, "", Data::Gauge, &resource, &[]), Value::Int(1))
}

/// Lets what was last heard of at `NOW` expire.
fn expire(table: &Table, kept: usize) -> u64 {
    let later = NOW + 3600 * 1_000_000_000;
    let mut ticks = (0..1000).map(|tick| later + tick * 1_000_000_000);
    let done = ticks.find(|now| {
        table.expire(*now);
        table.len() == kept
    });
    done.expect("they expire")
}

/// The versions that `target_info` names.
fn versions(page: &str) -> Vec<&str> {
    let lines = page.lines().filter(|line| line.starts_with("target_info{"));
    lines
        .map(|line| {
            let (_, rest) = line.split_once("service_version=\"").unwrap();
            rest.split_once('"').unwrap().0
        })
        .collect()
}

#[test]
fn a_target_is_described_by_a_resource_that_is_still_there() {
    let (mut renderer, tables) = (renderer(Format::Text), [table("test")]);
    put(&tables[0], &[of("1", "x")]);
    let later = NOW + 3600 * 1_000_000_000;
    put_at(&tables[0], &[of("2", "y")], later);
    assert_eq!(versions(&text(&mut renderer, &tables)), ["1"]);
    expire(&tables[0], 1);
    let page = text(&mut renderer, &tables);
    assert!(
        !page.contains("# TYPE x ") && page.contains("# TYPE y "),
        "{page}"
    );
    assert_eq!(versions(&page), ["2"]);
}

#[test]
fn a_series_that_takes_the_place_of_its_like_brings_its_resource() {
    let (mut renderer, tables) = (renderer(Format::Text), [table("test")]);
    put(&tables[0], &[of("1", "x")]);
    put_at(&tables[0], &[of("2", "x")], NOW + 3600 * 1_000_000_000);
    assert_eq!(versions(&text(&mut renderer, &tables)), ["1"]);
    assert_eq!(renderer.conflicts().len(), 1, "the same name and labels");
    expire(&tables[0], 1);
    text(&mut renderer, &tables);
    let page = text(&mut renderer, &tables);
    assert_eq!((versions(&page), renderer.conflicts()), (vec!["2"], vec![]));
}

#[test]
fn a_series_replaces_an_equal_one_that_has_just_expired_at_once() {
    let (mut renderer, tables) = (renderer(Format::Text), [table("test"), table("other")]);
    put(&tables[0], &[of("1", "x")]);
    assert!(text(&mut renderer, &tables).contains("x{"));
    let later = expire(&tables[0], 0);
    put_at(&tables[1], &[of("2", "x")], later);
    let page = text(&mut renderer, &tables);
    assert!(page.contains("\nx{"), "{page}");
    assert_eq!(
        (renderer.conflicts(), renderer.counts()),
        (vec![], Counts::default())
    );
    expire(&tables[1], 0);
    assert_eq!(text(&mut renderer, &tables), "");
    assert!(
        renderer.interner.is_empty() && renderer.targets.is_empty(),
        "nothing is held of either"
    );
}

#[test]
fn a_metric_of_its_name_hides_it_and_is_named() {
    for (format, name, why) in [
        (
            Format::Text,
            "target_info",
            "the name `target_info` is a gauge of test already",
        ),
        (
            Format::Protobuf,
            "target_info",
            "the name `target_info` is a gauge of test already",
        ),
        (
            Format::OpenMetrics,
            "target",
            "the name `target` is a gauge of test already",
        ),
    ] {
        let (mut renderer, tables) = (renderer(format), [table("test")]);
        put(&tables[0], &[of("1", name)]);
        let page = renderer.render(&tables, NOW);
        let body = String::from_utf8_lossy(&page.body).into_owned();
        assert!(!body.contains("service_version"), "{body}");
        let told = renderer.take_conflicts();
        assert_eq!(told, renderer.conflicts());
        let [conflict] = &told[..] else { panic!("{told:?}") };
        assert_eq!(
            (conflict.reason, conflict.series),
            (OmissionReason::TargetInfo, 1)
        );
        assert_eq!(renderer.counts()[OmissionReason::TargetInfo as usize], 1);
        assert_eq!(
            (&*conflict.metric, &*conflict.owner),
            ("target_info", "the exporter itself")
        );
        assert_eq!((conflict.rival.as_deref(), &*conflict.why), (Some("test"), why));

        put_at(&tables[0], &[of("1", "x")], NOW + 3600 * 1_000_000_000);
        renderer.render(&tables, NOW);
        assert_eq!(renderer.take_conflicts(), [], "reported once");
        expire(&tables[0], 1);
        renderer.render(&tables, NOW);
        put_at(&tables[0], &[of("1", "x")], NOW + 3601 * 1_000_000_000);
        let page = renderer.render(&tables, NOW);
        let body = String::from_utf8_lossy(&page.body).into_owned();
        assert!(body.contains("service_version"), "{body}");
        assert_eq!(renderer.conflicts(), []);
    }
}
