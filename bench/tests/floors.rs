// SPDX-License-Identifier: Apache-2.0

//! The harness by itself, in tiny windows: floors between its own load and its own sinks.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::process::Command;

use serde_json::Value;

/// The rows of a run of these jobs with these subjects.
fn bench(arguments: &[&str]) -> Vec<Value> {
    let output = tempfile::tempdir().unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .args(["-", "bench"])
        .arg(output.path())
        .args(["--window", "60"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let report = std::fs::read_to_string(output.path().join("report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    report["rows"].as_array().unwrap().clone()
}

fn value(rows: &[Value], name: &str) -> f64 {
    let row = rows.iter().find(|row| row["name"] == name);
    row.and_then(|row| row["value"].as_f64())
        .unwrap_or_else(|| panic!("no {name} in {rows:#?}"))
}

#[test]
fn floors_lose_nothing_and_have_figures() {
    let rows = bench(&[
        "--only",
        "forward-grpc-1MiB,forward-http",
        "otlp/grpc-100",
        "otlp/http-1000",
        "otlp/edit-1000",
    ]);
    for (job, floor) in [("grpc-100", "forward-grpc-1MiB"), ("http-1000", "forward-http")] {
        let figure = |what: &str| value(&rows, &format!("{job}, {floor}: {what}"));
        assert_eq!(figure("points lost"), 0.0);
        assert_eq!(figure("requests refused and sent again"), 0.0);
        assert!(figure("processor time a point") > 10.0);
        assert!(figure("points a second") > 100.0);
        assert!(figure("memory when idle") > 0.5);
        assert!(figure("peak memory") >= figure("memory when idle"));
    }
    // Where the load kept its schedule, which a machine that others use may prevent.
    let p99 = rows
        .iter()
        .filter(|row| row["name"].as_str().unwrap().ends_with(", p99"));
    for p99 in p99 {
        let name = p99["name"].as_str().unwrap().replace("p99", "p50");
        assert!(p99["value"].as_f64().unwrap() >= value(&rows, &name));
    }
    // An opaque hop can't edit, and is not measured doing less.
    let omitted = rows
        .iter()
        .filter(|row| row["name"] == "omitted" && row["job"] == "edit-1000");
    let omitted: Vec<&str> = omitted.filter_map(|row| row["text"].as_str()).collect();
    assert!(
        omitted.iter().any(|why| why.starts_with("forward-http: ")),
        "{omitted:?}"
    );
    assert!(
        !rows
            .iter()
            .any(|row| row["name"].as_str().unwrap().starts_with("edit-1000, forward"))
    );
}

#[test]
fn an_unknown_job_is_an_error() {
    let output = tempfile::tempdir().unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .args(["-", "bench"])
        .arg(output.path())
        .arg("otlp/nothing")
        .output()
        .unwrap();
    assert!(!ran.status.success());
    assert!(String::from_utf8_lossy(&ran.stderr).contains("grpc-1000"));
}
