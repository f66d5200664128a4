// SPDX-License-Identifier: Apache-2.0

//! The examples do what they say.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "../examples/five_minutes.rs"]
mod five_minutes;
#[path = "../examples/switch.rs"]
mod switch;

use tidegate_metrics::{MetricsRegistry, Prometheus};

/// A program of the guide is the example of this name without its licence and its first line, so it compiles and runs.
fn is_in_the_guide(name: &str) {
    let root = env!("CARGO_MANIFEST_DIR");
    let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).unwrap();
    let (guide, example) = (read("../../docs/sdk.md"), read(&format!("examples/{name}.rs")));
    let program = example.splitn(3, "\n\n").nth(2).unwrap();
    let program = program.replace("pub(crate) fn main", "fn main");
    assert!(
        guide.contains(&format!("```rust\n{program}```\n")),
        "docs/sdk.md has another program than examples/{name}.rs:\n{program}"
    );
}

#[test]
fn the_programs_of_the_guide_are_the_examples() {
    is_in_the_guide("five_minutes");
    is_in_the_guide("spans");
}

#[test]
fn the_guide_of_three_languages_shows_the_examples() {
    let root = env!("CARGO_MANIFEST_DIR");
    let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).unwrap();
    let guide = read("../../docs/guides/sdk.md");
    for name in ["cells", "inflight"] {
        let example = read(&format!("examples/{name}.rs"));
        let program = example.splitn(3, "\n\n").nth(2).unwrap();
        assert!(
            guide.contains(&format!("<<'END'\n{program}END\n")),
            "docs/guides/sdk.md has another program than examples/{name}.rs:\n{program}"
        );
    }
}

#[test]
#[ignore = "the next test runs it in a process of its own"]
fn program_of_the_guide() {
    five_minutes::main().unwrap();
}

#[test]
fn five_minutes_are_enough_for_a_number() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "program_of_the_guide", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("Some(0.2)\n"), "{printed}");
    assert!(
        printed.contains("service_requests_total{model=\"llama\"} 1\n"),
        "{printed}"
    );
}

#[test]
fn instruments_are_made_as_dynamo_makes_them() {
    let registry = Prometheus::new();
    let labels = [("model", "m")];
    let create = || -> Result<(), tidegate_metrics::RegisterError> {
        registry
            .create_counter("requests_total", "Requests", &labels)?
            .add(3);
        registry
            .create_float_counter("energy_joules_total", "Energy", &labels)?
            .add(0.5);
        registry.create_gauge("queue_depth", "Waiting", &labels)?.set(2.0);
        let bounds = [0.5, 1.0];
        registry
            .create_histogram("wait_seconds", "Wait", &labels, Some(&bounds))?
            .observe(0.75);
        registry
            .create_counter_family("answers_total", "Answers", &["code"], &labels)?
            .with(&["200"])
            .inc();
        registry
            .create_gauge_family("slots", "Slots", &["role"], &labels)?
            .with(&["decode"])
            .set(4.0);
        Ok(())
    };
    create().unwrap();
    let page = registry.prometheus_format_str();
    for line in [
        "requests_total{model=\"m\"} 3",
        "energy_joules_total{model=\"m\"} 0.5",
        "queue_depth{model=\"m\"} 2",
        "wait_seconds_bucket{model=\"m\",le=\"1\"} 1",
        "answers_total{model=\"m\",code=\"200\"} 1",
        "slots{model=\"m\",role=\"decode\"} 4",
    ] {
        assert!(page.lines().any(|shown| shown == line), "{line}\n{page}");
    }
}

#[test]
fn switching_changes_nothing_but_where_it_shows() {
    let labels = r#"{dynamo_namespace="demo",dynamo_component="worker",dynamo_endpoint="generate"}"#;
    let expected = format!("dynamo_component_requests_total{labels} 3\n");
    for kind in ["prometheus", "both"] {
        let directory = tempfile::tempdir().unwrap();
        assert!(
            switch::show(kind, directory.path()).unwrap().contains(&expected),
            "{kind}"
        );
    }
    // The labels of a store are in the order of their names.
    let directory = tempfile::tempdir().unwrap();
    let page = switch::show("shm", directory.path()).unwrap();
    let labels = r#"{dynamo_component="worker",dynamo_endpoint="generate",dynamo_namespace="demo"}"#;
    assert!(
        page.contains(&format!("dynamo_component_requests_total{labels} 3\n")),
        "{page}"
    );
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(
        switch::show("null", directory.path())
            .unwrap()
            .matches(" 3\n")
            .count(),
        0
    );
}
