// SPDX-License-Identifier: Apache-2.0

//! Of two resources that come to the same labels the living one is shown.

use std::time::Duration;

use tidegate_engine::Lease;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn of_version(version: &str, name: &str, data: Data) -> Arc<Series> {
    series(
        name,
        "",
        data,
        &[("service.name", "shop"), ("service.version", version)],
        &[],
    )
}

fn send(table: &Table, series: &Arc<Series>, times: (u64, u64), value: i64) {
    send_leased(table, series, None, times, value);
}

fn send_leased(
    table: &Table,
    series: &Arc<Series>,
    lease: Option<&Arc<Lease>>,
    (start, time): (u64, u64),
    value: i64,
) {
    let point = Point {
        series: series.clone(),
        start,
        time,
        value: Value::Int(value),
        exemplars: Vec::new(),
    };
    table.session(time).of_leased(lease.cloned()).observe(&point);
}

fn value(renderer: &mut Renderer, tables: &[Arc<Table>], now: u64, name: &str) -> Vec<String> {
    let page = String::from_utf8(renderer.render(tables, now).body.to_vec()).unwrap();
    let lines = page.lines().filter(|line| line.starts_with(name));
    lines
        .map(|line| line.rsplit(' ').next().unwrap().to_owned())
        .collect()
}

#[test]
fn a_successor_that_started_later_takes_the_series_at_once() {
    for format in [Format::Text, Format::OpenMetrics] {
        let (mut renderer, table) = (renderer(format), table("test"));
        let tables = [table.clone()];
        let start = 1000 * SECOND;
        for name in ["req", "level"] {
            let data = if name == "req" { COUNTER } else { Data::Gauge };
            let [old, new] = ["1", "2"].map(|version| of_version(version, name, data));
            // A gauge has no start of its own: the process that sends it has, by its counters.
            let begin = |at: u64| if name == "req" { at } else { 0 };
            send(&table, &old, (begin(start), start + SECOND), 5);
            let shown = |renderer: &mut Renderer, now| {
                value(
                    renderer,
                    &tables,
                    now,
                    &format!("{name}{}", if name == "req" { "_total" } else { "{" }),
                )
            };
            assert_eq!(shown(&mut renderer, start + 2 * SECOND), ["5"], "{name}");
            send(&table, &new, (begin(start + 3 * SECOND), start + 4 * SECOND), 7);
            assert_eq!(shown(&mut renderer, start + 4 * SECOND), ["7"], "{name}");
            // The old one reports once more, and does not get it back.
            send(&table, &old, (begin(start), start + 5 * SECOND), 6);
            assert_eq!(shown(&mut renderer, start + 5 * SECOND), ["7"], "{name}");
        }
        assert_eq!(
            renderer.counts()[OmissionReason::AmbiguousIdentity as usize],
            2,
            "while both report"
        );
        let late = start + 200 * SECOND;
        send(
            &table,
            &of_version("2", "req", COUNTER),
            (start + 3 * SECOND, late),
            9,
        );
        renderer.render(&tables, late);
        assert_eq!(
            renderer.counts(),
            Counts::default(),
            "a quiet series does not collide"
        );
    }
}

#[test]
fn what_a_receiver_repeats_of_a_dead_resource_hides_no_living_one() {
    let (mut renderer, table) = (renderer(Format::Text), table("test"));
    let tables = [table.clone()];
    let [old, new] = ["1", "2"].map(|version| of_version(version, "req", COUNTER));
    let begun = 1000 * SECOND;
    let [dead, alive] = [(); 2].map(|()| Arc::new(Lease::new(Duration::from_secs(15), begun)));
    let send = |series: &Arc<Series>, lease: &Arc<Lease>, times: (u64, u64), value: i64| {
        send_leased(&table, series, Some(lease), times, value);
    };
    send(&old, &dead, (begun, begun + SECOND), 5);
    assert_eq!(value(&mut renderer, &tables, begun + SECOND, "req_total"), ["5"]);
    dead.suspend();
    let replaced = begun + 20 * SECOND;
    send(&new, &alive, (replaced, replaced), 7);
    for minute in 0..5 {
        let now = replaced + (60 * minute + 10) * SECOND;
        send(&old, &dead, (begun, now), 5);
        alive.touch(now);
        assert_eq!(value(&mut renderer, &tables, now, "req_total"), ["7"], "{minute}");
        assert_eq!(renderer.counts(), Counts::default());
    }
    alive.suspend();
    let now = replaced + 600 * SECOND;
    dead.touch(now);
    assert_eq!(
        value(&mut renderer, &tables, now, "req_total"),
        ["5"],
        "it lives again"
    );
}

#[test]
fn one_that_has_gone_quiet_or_has_ended_gives_way() {
    let (mut renderer, table) = (renderer(Format::Text), table("test"));
    let tables = [table.clone()];
    let [old, new] = ["1", "2"].map(|version| of_version(version, "level", Data::Gauge));
    let start = 1000 * SECOND;
    for second in 0..10 {
        let now = start + second * SECOND;
        send(&table, &old, (0, now), 5);
        send(&table, &new, (0, now), 7);
        renderer.register_series(&tables, now);
    }
    assert_eq!(value(&mut renderer, &tables, start + 9 * SECOND, "level"), ["5"]);
    let told = renderer.take_conflicts();
    assert_eq!(
        (told.len(), told[0].series, told[0].reason),
        (1, 1, OmissionReason::AmbiguousIdentity)
    );
    assert!(
        told[0]
            .why
            .contains("they differ in service.version: make one of these a label"),
        "{told:?}"
    );
    for second in 10..17 {
        let now = start + second * SECOND;
        send(&table, &new, (0, now), 8);
        let expected = if second < 15 { "5" } else { "8" };
        assert_eq!(
            value(&mut renderer, &tables, now, "level"),
            [expected],
            "after {second} s"
        );
    }
    assert_eq!(renderer.conflicts(), []);
    // It comes back while the other one lives, and gets the series when that has ended.
    let now = start + 20 * SECOND;
    send(&table, &old, (0, now), 1);
    send(&table, &new, (0, now), 9);
    assert_eq!(value(&mut renderer, &tables, now, "level"), ["9"]);
    assert_eq!(renderer.conflicts().len(), 1);
    assert_eq!(
        renderer.take_conflicts().len(),
        1,
        "the old one is omitted for the first time"
    );
    let now = now + SECOND;
    send(&table, &old, (0, now), 1);
    send(&table, &new, (0, now), 9);
    assert_eq!(value(&mut renderer, &tables, now, "level"), ["9"]);
    assert_eq!(renderer.take_conflicts(), [], "reported once");
    put_at(&table, &[(new, Value::NoRecordedValue)], now + 1);
    assert_eq!(value(&mut renderer, &tables, now + 1, "level"), ["1"]);
}
