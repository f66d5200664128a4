// SPDX-License-Identifier: Apache-2.0

//! Frames from answers of a gateway.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::edges::edge_table;
use super::snapshot::GraphSnapshot;
use super::view::{SortColumn, short, table};
use super::{TopState, names};
use crate::commands::terminal::screen;

fn page(time: f64, instance: &str, items: u64, ids: &[String]) -> Value {
    let exporters = ids.iter().enumerate().map(|(at, id)| {
        json!({"class": "exporter", "id": id, "pipeline": null, "signal": "logs",
            "entered": items, "left": items - 1, "absorbed": 0, "held": at,
            "dropped": {"rejected": 1}, "queue": {"used": 1, "capacity": 4, "endpoints": []}, "latency": {"p50": 0.0042, "p99": 1.5}})
    });
    let receiver = json!({"class": "receiver", "id": "otlp", "pipeline": null, "signal": "logs",
        "accepted": items, "refused": 2, "failed": 0});
    json!({
        "process": {"cpuSeconds": time / 4.0},
        "time": time, "started": 0.0, "instance": instance, "version": "1", "health": {"reason": null},
        "memory": {"usedBytes": 1_048_576, "limitBytes": 2_097_152},
        "pipelines": [{"id": "logs/a", "receivers": ["otlp"], "processors": [], "exporters": ids}],
        "components": std::iter::once(receiver).chain(exporters).collect::<Vec<_>>(),
    })
}

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("file/{at}")).collect()
}

#[test]
fn names_are_paths_and_the_ids_that_one_class_has() {
    let ids = ["otlp", "file/a", "file/b c"].map(str::to_owned);
    let names = names(&page(1.0, "a", 1, &ids));
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let expected = [
        "exporters::file/a",
        "exporters::otlp",
        "file/a",
        "receivers::otlp",
    ];
    assert_eq!(names, expected);
}

fn cells(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn rates_are_differences_and_totals_are_exact() {
    let old = GraphSnapshot::read(&page(10.0, "a", 100, &ids(1)));
    let new = GraphSnapshot::read(&page(12.0, "a", 300, &ids(1)));
    let lines = table(&new.groups(Some(&old)), SortColumn::Data, 80);
    assert_eq!(
        cells(&lines[2]),
        ["receiver", "otlp", "100", "100", "302", "0", "-", "0", "-", "-"]
    );
    assert_eq!(
        cells(&lines[4]),
        [
            "exporter", "file/0", "100", "100", "300", "0", "25%", "0", "4.2ms", "1.5s"
        ]
    );
}

/// The lines above the table of a paused view of edges.
fn head(reason: Option<&str>, width: usize) -> Vec<String> {
    let mut page = page(98.0, "a", 300, &ids(1));
    page["version"] = json!("0.1.0");
    page["memory"] = json!({"usedBytes": 64_u64 << 20, "limitBytes": 19_284_u64 << 20});
    page["health"]["reason"] = json!(reason);
    head_of(&page, width)
}

fn head_of(page: &Value, width: usize) -> Vec<String> {
    let state = TopState {
        endpoint: "http://127.0.0.1:8080".to_owned(),
        interval: Duration::from_secs(1),
        now: Some(GraphSnapshot::read(page)),
        before: None,
        received: Instant::now(),
        stale: None,
        is_paused: true,
        shows_edges: true,
        sort: SortColumn::Dropped,
        scroll: 0,
        last_key: 0,
    };
    state.head(width)
}

#[test]
fn narrow_screens_show_the_health() {
    let at_80 = [
        "http://127.0.0.1:8080  every 1s  edges  sort Dropped  paused",
        "cpu -  version 0.1.0  up 1m 38s  memory 64 of 19284 MiB  ready",
    ];
    assert_eq!(head(None, 80), at_80);
    let at_60 = [
        "http://127.0.0.1:8080  every 1s  edges  sort Dropped  paused",
        "cpu -  version 0.1.0  up 1m 38s  memory 64 of 19284 MiB",
        "ready",
    ];
    assert_eq!(head(None, 60), at_60);
}

#[test]
fn narrow_screens_show_why_a_gateway_is_not_ready() {
    let reason = Some("receivers::partials/store-of-the-whole-region: catching up");
    let at_80 = [
        "http://127.0.0.1:8080  every 1s  edges  sort Dropped  paused",
        "cpu -  version 0.1.0  up 1m 38s  memory 64 of 19284 MiB",
        "not ready: receivers::partials/store-of-the-whole-region: catching up",
    ];
    assert_eq!(head(reason, 80), at_80);
    assert_eq!(
        head(reason, 60)[2..],
        [
            "not ready: receivers::partials/store-of-the-whole-region:",
            "catching up"
        ]
    );
    for width in [0, 10, 30] {
        let lines = head(reason, width);
        assert!(
            lines.iter().all(|line| line.chars().count() <= width),
            "{lines:?}"
        );
    }
}

#[test]
fn the_summary_counts_the_scrape_targets() {
    let summary = |targets: Value| {
        let mut page = page(10.0, "a", 100, &ids(1));
        page["targets"] = targets;
        GraphSnapshot::read(&page).summary
    };
    let some = summary(json!({"up": 1, "down": 1, "unknown": 0}));
    assert_eq!(some[some.len() - 2..], ["ready", "targets 1/2 up"]);
    for none in [json!({"up": 0, "down": 0, "unknown": 0}), Value::Null] {
        assert_eq!(summary(none).last().map(String::as_str), Some("ready"));
    }
}

#[test]
fn the_use_of_processors_is_a_difference() {
    let old = GraphSnapshot::read(&page(10.0, "a", 100, &ids(1)));
    let new = GraphSnapshot::read(&page(12.0, "a", 300, &ids(1)));
    assert_eq!((new.cpu(Some(&old)), new.cpu(None)), (Some(25.0), None));
}

/// A gateway with two exporters. The second one has a long name, and drops items for two reasons.
fn dropping(time: f64, items: u64, exhausted: u64) -> GraphSnapshot {
    let ids = ["file/0", "otlphttp/vendor-of-a-long-name"].map(str::to_owned);
    let mut page = page(time, "a", items, &ids);
    page["components"][2]["dropped"] = json!({"queue_full": 5, "retries_exhausted": exhausted});
    GraphSnapshot::read(&page)
}

/// What a terminal with 24 rows shows below the head.
fn on_screen(lines: Vec<String>) -> Vec<String> {
    let head = vec![String::new(); 2];
    let mut shown = screen(head, lines, &mut 0, 24);
    assert!(shown.len() <= 24, "{shown:?}");
    shown.split_off(2)
}

#[test]
fn narrow_screens_show_reasons_and_percentiles_of_components() {
    let groups = dropping(12.0, 300, 130).groups(Some(&dropping(10.0, 100, 0)));
    let shown = |width: usize| on_screen(table(&groups, SortColumn::Data, width));
    let at_80 = [
        "COMPONENT                    IN/S  OUT/S  TOTAL   HELD FILL DROP/S    P50    P99",
        "logs/a",
        "  receiver otlp               100    100    302      0    -      0      -      -",
        "    2 refused",
        "  exporter file/0             100    100    300      0  25%      0  4.2ms   1.5s",
        "    1 dropped: rejected",
        "  exporter otlphttp/vendor-of-a-long-name",
        "                              100    100    300      1  25%     65  4.2ms   1.5s",
        "    5 dropped: queue_full",
        "    130 dropped: retries_exhausted",
    ];
    assert_eq!(shown(80), at_80);
    let at_60 = [
        "         IN/S  OUT/S  TOTAL   HELD FILL DROP/S    P50    P99",
        "logs/a",
        "  receiver otlp",
        "          100    100    302      0    -      0      -      -",
        "    2 refused",
        "  exporter file/0",
        "          100    100    300      0  25%      0  4.2ms   1.5s",
        "    1 dropped: rejected",
        "  exporter otlphttp/vendor-of-a-long-name",
        "          100    100    300      1  25%     65  4.2ms   1.5s",
        "    5 dropped: queue_full",
        "    130 dropped: retries_exhausted",
    ];
    assert_eq!(shown(60), at_60);
}

#[test]
fn narrow_screens_show_reasons_and_percentiles_of_edges() {
    let edges = dropping(12.0, 300, 130).edges(Some(&dropping(10.0, 100, 0)));
    let shown = |width: usize| on_screen(edge_table(&edges, SortColumn::Data, width));
    let at_80 = [
        "FROM -> TO                       ITEMS/S  TOTAL   HELD FILL DROP/S    P50    P99",
        "logs/a",
        "  otlp -> file/0                     100    300      0  25%      0  4.2ms   1.5s",
        "    receiver otlp: 2 refused",
        "    1 dropped: rejected",
        "  otlp -> otlphttp/vendor-of-a-long-name",
        "                                     100    300      1  25%     65  4.2ms   1.5s",
        "    5 dropped: queue_full",
        "    130 dropped: retries_exhausted",
    ];
    assert_eq!(shown(80), at_80);
    let at_60 = [
        "FROM -> TO   ITEMS/S  TOTAL   HELD FILL DROP/S    P50    P99",
        "logs/a",
        "  otlp -> file/0",
        "                 100    300      0  25%      0  4.2ms   1.5s",
        "    receiver otlp: 2 refused",
        "    1 dropped: rejected",
        "  otlp -> otlphttp/vendor-of-a-long-name",
        "                 100    300      1  25%     65  4.2ms   1.5s",
        "    5 dropped: queue_full",
        "    130 dropped: retries_exhausted",
    ];
    assert_eq!(shown(60), at_60);
}

/// The same page with two receivers, and processors in the pipeline `logs/b`.
fn page_of_edges(time: f64, items: u64) -> Value {
    let mut page = page(time, "a", items, &ids(2));
    page["pipelines"] = json!([
        {"id": "logs/a", "receivers": ["otlp", "uds"], "processors": [], "exporters": ["file/0", "file/1"]},
        {"id": "logs/b", "receivers": ["otlp"], "processors": ["filter", "batch"], "exporters": ["file/0", "file/1"]},
    ]);
    let processor = |id: &str, left: u64, absorbed: u64| {
        json!({"class": "processor", "id": id, "pipeline": "logs/b", "signal": "logs", "entered": items,
            "left": left, "absorbed": absorbed, "held": 0, "dropped": {"filtered": 7}, "queue": null})
    };
    let uds = json!({"class": "receiver", "id": "uds", "pipeline": null, "signal": "logs", "accepted": 5});
    let components = page["components"].as_array_mut().unwrap();
    components.extend([
        uds,
        processor("filter", items / 2, 1),
        processor("batch", items / 4, 0),
    ]);
    page
}

#[test]
fn edges_have_the_rate_of_their_source_and_the_queue_of_their_target() {
    let old = GraphSnapshot::read(&page_of_edges(10.0, 100));
    let new = GraphSnapshot::read(&page_of_edges(12.0, 300));
    let lines = edge_table(&new.edges(Some(&old)), SortColumn::Data, 110);
    let rows: Vec<_> = lines.iter().map(|line| cells(line)).collect();
    let expected: &[&[&str]] = &[
        &[
            "FROM", "->", "TO", "ITEMS/S", "TOTAL", "HELD", "FILL", "DROP/S", "P50", "P99",
        ],
        &["logs/a"],
        &[
            "otlp", "->", "file/0", "100", "300", "0", "25%", "0", "4.2ms", "1.5s",
        ],
        &["receiver", "otlp:", "2", "refused"],
        &["uds", "->", "file/0", "0", "5", "0", "25%", "0", "4.2ms", "1.5s"],
        &["1", "dropped:", "rejected"],
        &[
            "otlp", "->", "file/1", "100", "300", "1", "25%", "0", "4.2ms", "1.5s",
        ],
        &["uds", "->", "file/1", "0", "5", "1", "25%", "0", "4.2ms", "1.5s"],
        &["1", "dropped:", "rejected"],
        &["logs/b"],
        &["otlp", "->", "filter", "100", "300", "0", "-", "0", "-", "-"],
        &["receiver", "otlp:", "2", "refused"],
        &["7", "dropped:", "filtered"],
        &["filter", "->", "batch", "50", "150", "0", "-", "0", "-", "-"],
        &["7", "dropped:", "filtered"],
        &[
            "batch", "->", "file/0", "25", "75", "0", "25%", "0", "4.2ms", "1.5s",
        ],
        &["1", "dropped:", "rejected"],
        &[
            "batch", "->", "file/1", "25", "75", "1", "25%", "0", "4.2ms", "1.5s",
        ],
        &["1", "dropped:", "rejected"],
    ];
    assert_eq!(rows, expected);
    let sorted = edge_table(&new.edges(Some(&old)), SortColumn::Held, 110);
    assert_eq!(cells(&sorted[2])[2], "file/1", "{sorted:?}");
    assert_eq!(
        cells(&edge_table(&new.edges(None), SortColumn::Data, 110)[2])[3],
        "-"
    );
}

#[test]
fn edges_fit_every_width() {
    let new = dropping(12.0, 300, 130);
    for width in [0, 10, 59, 200] {
        let lines = edge_table(&new.edges(None), SortColumn::Data, width);
        assert!(
            lines.iter().all(|line| line.chars().count() <= width),
            "{lines:?}"
        );
    }
}

#[test]
fn the_fill_is_that_of_the_fullest_endpoint() {
    let mut page = page(10.0, "a", 100, &ids(1));
    page["components"][1]["queue"] = json!({"used": 10, "capacity": 20, "endpoints": [
        {"endpoint": "a:1", "used": 1, "capacity": 10},
        {"endpoint": "b:1", "used": 9, "capacity": 10},
    ]});
    let lines = table(&GraphSnapshot::read(&page).groups(None), SortColumn::Data, 80);
    assert_eq!(cells(&lines[4])[6], "90%", "{lines:?}");
}

/// The line below the refused items of each receiver.
fn lines_below_receivers(lines: &[String]) -> Vec<&str> {
    let below = lines.windows(3);
    let below = below.filter(|lines| lines[0].trim_start().starts_with("receiver "));
    below.map(|lines| lines[2].trim()).collect()
}

#[test]
fn refused_items_of_a_receiver_name_the_exporter_with_the_full_queue() {
    let at = |time: f64, refused: u64| {
        let mut page = page(time, "a", 100, &ids(2));
        page["components"][2]["queue"] =
            json!({"used": 1, "capacity": 4, "refused": refused, "endpoints": []});
        GraphSnapshot::read(&page)
    };
    let shown =
        |new: &GraphSnapshot, old: &GraphSnapshot| table(&new.groups(Some(old)), SortColumn::Data, 80);
    let (old, new, last) = (at(10.0, 0), at(12.0, 200), at(14.0, 200));
    let is_full = "of the refused, 200: the queue of exporter file/1 is full";
    assert_eq!(lines_below_receivers(&shown(&new, &old)), [is_full]);
    let was_full = "of the refused, 200: the queue of exporter file/1 was full";
    assert_eq!(lines_below_receivers(&shown(&last, &new)), [was_full]);
    let without = shown(&at(12.0, 0), &old);
    assert!(!without.concat().contains("the queue of"), "{without:?}");
    let edges = edge_table(&new.edges(Some(&old)), SortColumn::Data, 80);
    let below: Vec<_> = edges[3..5].iter().map(|line| line.trim()).collect();
    assert_eq!(below, ["receiver otlp: 2 refused", is_full]);
    let narrow = table(&new.groups(Some(&old)), SortColumn::Data, 20);
    assert!(narrow.iter().all(|line| line.chars().count() <= 20), "{narrow:?}");
}

#[test]
fn a_full_queue_behind_connectors_is_named_too() {
    let mut page = page(10.0, "a", 100, &ids(1));
    page["components"][1]["queue"] = json!({"used": 4, "capacity": 4, "refused": 5, "endpoints": []});
    let other = json!({"class": "receiver", "id": "uds", "pipeline": null, "signal": "logs", "accepted": 1});
    page["components"].as_array_mut().unwrap().push(other);
    page["pipelines"] = json!([
        {"id": "logs/a", "receivers": ["otlp", "forward"], "processors": [], "exporters": ["forward"]},
        {"id": "logs/b", "receivers": ["forward"], "processors": [], "exporters": ["file/0"]},
        {"id": "logs/c", "receivers": ["uds"], "processors": [], "exporters": ["nop"]},
    ]);
    let new = GraphSnapshot::read(&page);
    let lines = table(&new.groups(None), SortColumn::Data, 80);
    let named: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("the queue of"))
        .collect();
    assert_eq!(
        named,
        ["    of the refused, 5: the queue of exporter file/0 is full"]
    );
    assert!(
        lines_below_receivers(&lines)[0].ends_with("file/0 is full"),
        "{lines:?}"
    );
}

#[test]
fn a_queue_of_several_receivers_names_them_all() {
    let mut page = page(10.0, "a", 100, &ids(1));
    page["components"][1]["queue"] = json!({"used": 4, "capacity": 4, "refused": 5, "endpoints": []});
    let receiver = |id: &str, refused: u64| {
        json!({"class": "receiver", "id": id, "pipeline": null, "signal": "logs",
            "accepted": 1, "refused": refused})
    };
    let components = page["components"].as_array_mut().unwrap();
    components.extend([receiver("uds", 3), receiver("nixl", 0)]);
    page["pipelines"][0]["receivers"] = json!(["otlp", "uds", "nixl"]);
    let lines = table(&GraphSnapshot::read(&page).groups(None), SortColumn::Data, 80);
    let named: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("the queue of"))
        .collect();
    let of_all = "    of the refused of all receivers, 5: the queue of exporter file/0 is full";
    let uncounted = "    5 refused: the queue of exporter file/0 is full";
    assert_eq!(named, [of_all, of_all, uncounted]);
}

#[test]
fn the_head_names_components_in_trouble() {
    let mut page = page(98.0, "a", 300, &ids(1));
    let troubles = (0..6).map(|at| (format!("exporters::otlp/{at}"), json!("sending to a:1 fails")));
    page["health"]["troubles"] = Value::Object(troubles.collect());
    let shown = head_of(&page, 60).split_off(2);
    let expected = [
        "trouble: exporters::otlp/0: sending to a:1 fails",
        "trouble: exporters::otlp/1: sending to a:1 fails",
        "trouble: exporters::otlp/2: sending to a:1 fails",
        "trouble: exporters::otlp/3: sending to a:1 fails",
        "2 more components in trouble",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_restart_shows_no_rate() {
    let old = GraphSnapshot::read(&page(10.0, "a", 100, &ids(1)));
    for instance in ["a", "b"] {
        let new = GraphSnapshot::read(&page(12.0, instance, 7, &ids(1)));
        assert_eq!(new.groups(Some(&old))[0].rows[1].entering, None);
    }
}

#[test]
fn long_ids_fit_every_width() {
    let new = GraphSnapshot::read(&page(12.0, "a", 300, &["x".repeat(300)]));
    for width in [0, 10, 80, 200] {
        let lines = table(&new.groups(None), SortColumn::Data, width);
        assert!(
            lines.iter().all(|line| line.chars().count() <= width),
            "{lines:?}"
        );
        let shows_numbers = lines.iter().any(|line| line.ends_with(" 4.2ms   1.5s"));
        assert_eq!(shows_numbers, width >= 80, "{lines:?}");
    }
}

#[test]
fn numbers_are_as_short_as_their_columns() {
    let numbers = [
        (99_999.0, "99999"),
        (100_000.0, "100.0k"),
        (999_900.0, "999.9k"),
        (999_960.0, "1.0M"),
        (999_960_000.0, "1.0G"),
    ];
    for (value, shown) in numbers {
        assert_eq!(short(value), shown);
    }
}

#[test]
fn thousands_of_rows_scroll_to_the_last_and_sort() {
    let new = GraphSnapshot::read(&page(12.0, "a", 300, &ids(3000)));
    let lines = table(&new.groups(None), SortColumn::Held, 80);
    assert!(lines[2].contains("file/2999"), "{}", lines[2]);
    let lines = table(&new.groups(None), SortColumn::Data, 80);
    let mut scroll = usize::MAX;
    let shown = screen(vec!["head".to_owned()], lines, &mut scroll, 24);
    assert_eq!(shown.len(), 24);
    assert!(shown[1].starts_with("COMPONENT") && shown[22].contains("file/2999"));
    assert_eq!(shown[23], "    1 dropped: rejected");
}
