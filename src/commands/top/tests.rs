// SPDX-License-Identifier: Apache-2.0

//! Frames from answers of a gateway.

use serde_json::{Value, json};

use super::snapshot::GraphSnapshot;
use super::view::{SortColumn, table};
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
        ["receiver", "otlp", "100", "100", "302", "0", "-", "0", "2"]
    );
    assert_eq!(
        cells(&lines[3]),
        ["exporter", "file/0", "100", "100", "300", "0", "25%", "0", "1"]
    );
    assert_eq!(new.summary, "version 1  up 12s  memory 1 of 2 MiB  ready");
}

#[test]
fn the_use_of_processors_is_a_difference_and_wide_tables_show_latencies() {
    let old = GraphSnapshot::read(&page(10.0, "a", 100, &ids(1)));
    let new = GraphSnapshot::read(&page(12.0, "a", 300, &ids(1)));
    assert_eq!((new.cpu(Some(&old)), new.cpu(None)), (Some(25.0), None));
    let lines = table(&new.groups(Some(&old)), SortColumn::Data, 126);
    assert!(
        cells(&lines[0]).ends_with(&["P50", "P99", "DROPS", "BY", "REASON"]),
        "{lines:?}"
    );
    assert!(
        lines[3].contains("4.2ms") && lines[3].contains("1.5s"),
        "{lines:?}"
    );
    assert!(!table(&new.groups(None), SortColumn::Data, 125)[3].contains("ms"));
}

#[test]
fn the_fill_is_that_of_the_fullest_endpoint() {
    let mut page = page(10.0, "a", 100, &ids(1));
    page["components"][1]["queue"] = json!({"used": 10, "capacity": 20, "endpoints": [
        {"endpoint": "a:1", "used": 1, "capacity": 10},
        {"endpoint": "b:1", "used": 9, "capacity": 10},
    ]});
    let lines = table(&GraphSnapshot::read(&page).groups(None), SortColumn::Data, 80);
    assert_eq!(cells(&lines[3])[6], "90%", "{lines:?}");
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
fn long_ids_fit_and_wide_terminals_show_reasons() {
    let new = GraphSnapshot::read(&page(12.0, "a", 300, &["x".repeat(300)]));
    for (width, has_reason) in [(10, false), (80, false), (200, true)] {
        let lines = table(&new.groups(None), SortColumn::Data, width);
        assert!(
            lines.iter().all(|line| line.chars().count() <= width),
            "{lines:?}"
        );
        assert_eq!(lines[3].contains("rejected 1"), has_reason, "{lines:?}");
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
    assert!(shown[1].starts_with("COMPONENT") && shown[23].contains("file/2999"));
}
