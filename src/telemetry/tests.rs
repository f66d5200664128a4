// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use opentelemetry_sdk::Resource;

use super::catalogue::{CATALOGUE, MetricKind, RENAMED, find};
use super::logs::RunningLogs;
use super::recorder::Renaming;
use super::server::MetricsPage;
use super::{Prepared, TelemetryConfig};
use crate::component::Shared;
use crate::component::graph_metrics::GraphMetrics;
use crate::component::testing::options;

/// Names of metrics in the code: literals that begin as ours do.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2).filter(|literal| {
        let ours = literal.starts_with("otelcol_") || literal.starts_with("tidegate_");
        // A literal that ends with `_` is the beginning of several names.
        ours && !literal.ends_with('_')
            && literal
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    })
}

/// Crates that are not part of the gateway: they use its names, or have metrics of their own.
const OTHERS: [&str; 4] = [
    "tidegate-capi",
    "tidegate-metrics",
    "tidegate-metrics-derive",
    "tidegate-nixl-plugin",
];

/// The folders of the gateway's own code: of this package, and of its crates.
fn folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = std::fs::read_dir(root.join("crates")).unwrap();
    let names = crates.map(|entry| entry.unwrap().file_name());
    let ours = names.filter(|name| !OTHERS.iter().any(|other| name == other));
    let folders = ours.map(|name| root.join("crates").join(name).join("src"));
    let folders = folders.filter(|folder| folder.is_dir());
    folders.chain([root.join("src")]).collect()
}

/// Files with names of metrics and parts of names, which count nothing.
const LISTS: [&str; 2] = ["telemetry/catalogue.rs", "telemetry/owners.rs"];

fn sources(directory: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        if path.is_dir() {
            sources(&path, found);
        } else if name.ends_with(".rs")
            && !name.contains("test")
            && !LISTS.iter().any(|list| name.ends_with(list))
        {
            found.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn every_metric_in_the_code_is_in_the_catalogue() {
    let mut files = Vec::new();
    for folder in folders() {
        sources(&folder, &mut files);
    }
    let mut missing = BTreeSet::new();
    for (file, text) in &files {
        // Tests of a file stand at its end.
        let code = text.split("#[cfg(test)]").next().unwrap();
        if !code.contains("metrics::") && !code.contains("gauge!") {
            continue;
        }
        missing.extend(
            names_in(code)
                .filter(|name| find(name).is_none())
                .map(|name| (file, name)),
        );
    }
    assert!(
        missing.is_empty(),
        "add these to src/telemetry/catalogue.rs: {missing:?}"
    );
}

#[test]
fn the_catalogue_is_sound() {
    let mut names = BTreeSet::new();
    for described in CATALOGUE {
        let name = described.name;
        assert!(names.insert(name), "{name} twice");
        assert!(
            described.help.ends_with('.') && described.help.len() > 10,
            "{name}"
        );
        assert!(!described.unit.is_empty(), "{name}");
        let is_counter = described.kind == MetricKind::Counter;
        assert!(
            name.starts_with("otelcol_") || is_counter == name.ends_with("_total"),
            "{name}"
        );
    }
}

#[test]
fn a_renamed_metric_is_described_alike_under_both_names() {
    for (new, old) in RENAMED {
        let (new, old) = (find(new).unwrap(), find(old).unwrap());
        assert_eq!((new.kind, new.unit), (old.kind, old.unit), "{}", old.name);
        assert_eq!(new.level as u8, old.level as u8, "{}", old.name);
        assert!(old.help.contains(new.name), "{}", old.name);
    }
}

#[test]
fn the_counts_of_failed_items_say_what_a_request_counts() {
    for items in ["metric_points", "spans", "log_records"] {
        let described = find(&format!("otelcol_receiver_failed_{items}")).unwrap();
        let help = described.help;
        assert!(
            help.contains("a request or message that can't be read counts as one"),
            "{help}"
        );
    }
}

#[tokio::test]
async fn the_error_of_a_port_in_use_names_the_reader_of_own_metrics() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = options::<TelemetryConfig>(&format!(
        "metrics: {{readers: [{{periodic: {{exporter: {{otlp_http: {{endpoint: 'http://a:1'}}}}}}}}, \
         {{pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {}}}}}}}}}]}}",
        taken.local_addr().unwrap().port()
    ))
    .unwrap();
    let pages = config.metrics.pages().unwrap().into_iter();
    let pages = pages.map(|(endpoint, listen)| {
        let (_, rendering) = Renaming::new(&listen, &[]);
        (endpoint, MetricsPage::new(rendering, &[]))
    });
    let prepared = Prepared {
        resource: Resource::builder_empty().build(),
        pages: pages.collect(),
        pushes: Vec::new(),
        logs: RunningLogs::default(),
        gauges: Arc::default(),
    };
    let shared = Shared::default();
    let started = prepared.start(&config, GraphMetrics::default(), &shared);
    let error = started.await.err().unwrap().to_string();
    let option = "set service::telemetry::metrics::readers[1]::pull::exporter::prometheus::port";
    assert!(error.contains(option), "{error}");
}
