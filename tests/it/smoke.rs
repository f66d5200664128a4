// SPDX-License-Identifier: Apache-2.0

//! The kit's gateway: it starts, says that it's well, shows its own metrics and stops cleanly.

use tidegate::built::{COMMIT, DATE, FEATURES, RUSTC};

use super::kit::{Gateway, Prometheus, SOON, free_port, gateway::tidegate};

/// An OTLP receiver and a Prometheus exporter on these ports.
fn config(receiver: u16, exporter: u16) -> String {
    format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\"}}}}}}}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:{exporter}\"}}}}
service: {{pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheus]}}}}}}
"
    )
}

#[test]
fn a_gateway_starts_is_healthy_and_stops_on_sigterm() {
    let gateway = Gateway::start(&config(free_port(), free_port()));
    let health = gateway.health().expect("it answers");
    assert_eq!(health.status, 200);
    assert!(gateway.own_metric("otelcol_process_uptime", &[]) > 0.0);
    let (commit, rustc) = (format!("commit=\"{COMMIT}\""), format!("rustc=\"{RUSTC}\""));
    assert_eq!(gateway.own_metric("tidegate_build_info", &[&commit, &rustc]), 1.0);
    gateway.stop();
}

#[test]
fn a_prometheus_server_scrapes_a_gateway_until_it_ends() {
    let exporter = free_port();
    let gateway = Gateway::start(&config(free_port(), exporter));
    let server = Prometheus::scraping(&[exporter, gateway.telemetry_port()]);
    server.wait_for_scrape();
    let own = format!(
        "{{instance=\"127.0.0.1:{}\",__name__=~\"otelcol_.+\"}}",
        gateway.telemetry_port()
    );
    assert!(!server.query(&own).is_empty(), "its own metrics are there");
    gateway.stop();
    server.wait_for_value("sum(up)", 0.0);
}

#[test]
fn a_gateway_that_cannot_start_says_why() {
    let gateway = Gateway::launch("receivers: {nosuch: {}}\n", |_| {});
    let (code, said) = gateway.wait(SOON);
    assert_eq!(code, Some(1));
    assert!(said.contains("nosuch"), "{said}");
}

#[test]
fn the_binary_tells_its_version() {
    let output = tidegate().arg("version").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let mut lines = said.lines();
    let version = format!("tidegate {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(lines.next(), Some(&*version), "{said}");
    let build = format!("commit: {COMMIT}, {DATE}");
    assert_eq!(lines.next(), Some(&*build), "{said}");
    assert_eq!(lines.next(), Some(&*format!("features: {FEATURES}")), "{said}");
    assert_eq!(lines.next(), Some(&*format!("rustc: {RUSTC}")), "{said}");
    assert!(RUSTC.starts_with("1."), "{RUSTC}");
    // A build outside a repository knows neither.
    let is_hex = COMMIT.len() == 12 && COMMIT.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_checkout = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(".git")
        .exists();
    assert_eq!(is_hex, is_checkout || COMMIT != "unknown", "{COMMIT}");
    let shape: String = DATE
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    assert!(shape == "0000-00-00" || !is_checkout, "{DATE}");
}
