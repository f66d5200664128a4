// SPDX-License-Identifier: Apache-2.0

//! Real NIXL agents, drained live: what Prometheus has scraped equals what the driving script did.

use super::kit::script::{NIXL_WHEELS, parse_exposition};
use super::kit::{Gateway, Prometheus, SOON, Script, free_port, http, promtool_check, wait_until};
use serde_json::Value as Json;
use std::path::Path;
use tempfile::TempDir;
use tidegate_ring::{Event, Layout, Writer};

/// A gateway that serves what `receiver` (a line of YAML) gives, by the rules of NIXL's own exporter.
fn gateway(receiver: &str, scrape: u16) -> Gateway {
    Gateway::start(&format!(
        "receivers: {{{receiver}}}
processors: {{aggregate: {{rules: nixl}}}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:{scrape}\", enable_open_metrics: true}}}}
service: {{pipelines: {{metrics: {{receivers: [{}], processors: [aggregate], exporters: [prometheus]}}}}}}
",
        receiver.split(':').next().expect("a type")
    ))
}

const COUNTERS: [&str; 6] = [
    "agent_tx_bytes",
    "agent_rx_bytes",
    "agent_tx_requests_num",
    "agent_rx_requests_num",
    "agent_memory_registered",
    "agent_memory_deregistered",
];

/// Prometheus has, for every agent of the report, what the script did.
fn scraped(server: &Prometheus, report: &Json) {
    for (name, agent) in report["agents"].as_object().expect("agents") {
        for counter in COUNTERS {
            let did = agent[counter].as_f64().expect("a total");
            server.wait_for_value(&format!("{counter}_total{{agent_name=\"{name}\"}}"), did);
        }
        for (status, count) in agent["errors"].as_object().expect("errors") {
            let query = format!("agent_errors_total{{agent_name=\"{name}\",status=\"{status}\"}}");
            server.wait_for_value(&query, count.as_f64().expect("a count"));
        }
        let transfers = agent["transfers"].as_f64().expect("a count");
        server.wait_for_value(
            &format!("agent_xfer_time_us_count{{agent_name=\"{name}\"}}"),
            transfers,
        );
    }
}

fn valid(scrape: u16) {
    let page = http::get(scrape, "/metrics").expect("a page");
    // The names are NIXL's own; promtool finds them unfashionable and nothing else.
    let said = promtool_check(&page.text()).err().unwrap_or_default();
    assert!(
        said.lines()
            .all(|line| line.contains("_time_us metric names should not contain abbreviated units")),
        "{said}"
    );
    parse_exposition("text", &page.text()).expect("prometheus_client takes it");
    let accept = [("Accept", "application/openmetrics-text;version=1.0.0")];
    let page = http::request("GET", scrape, "/metrics", &accept, b"").expect("a page");
    assert!(page.text().ends_with("# EOF\n"), "OpenMetrics by negotiation");
    parse_exposition("openmetrics", &page.text()).expect("prometheus_client takes OpenMetrics");
}

#[test]
fn agents_of_every_wheel_are_drained_live_and_reach_prometheus() {
    let rings = TempDir::new().expect("a temporary directory");
    let scrape = free_port();
    let gateway = gateway(
        &format!("nixl: {{directories: [{}]}}", rings.path().display()),
        scrape,
    );
    let server = Prometheus::scraping(&[scrape]);
    for wheel in NIXL_WHEELS {
        let agents = format!("a-{wheel},b-{wheel}");
        let report = Script::nixl_rings(wheel, rings.path())
            .args(["--agents", &agents, "--errors", "2"])
            .json();
        assert_eq!(report["wheel"], wheel);
        scraped(&server, &report);
    }
    valid(scrape);
    gateway.stop();
}

#[test]
fn stores_of_living_agents_give_the_same_totals() {
    let stores = TempDir::new().expect("a temporary directory");
    let scrape = free_port();
    let gateway = gateway(
        &format!("nixl_mp: {{directories: [{}]}}", stores.path().display()),
        scrape,
    );
    let server = Prometheus::scraping(&[scrape]);
    let report = Script::nixl_stores(stores.path()).args(["--errors", "2"]).json();
    // The agents are gone by now, and their counts stay.
    scraped(&server, &report);
    valid(scrape);
    gateway.stop();
}

#[test]
fn cells_of_agents_give_the_same_totals() {
    let packages = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
    let cells = TempDir::new().expect("a temporary directory");
    let scrape = free_port();
    let gateway = gateway(
        &format!(
            "shm: {{directories: [{}], scan_interval: 50ms}}",
            cells.path().display()
        ),
        scrape,
    );
    let server = Prometheus::scraping(&[scrape]);
    let report = Script::nixl_cells(packages.path(), cells.path())
        .args(["--errors", "2"])
        .json();
    // The agents are gone by now, and the gateway takes their counts over.
    scraped(&server, &report);
    valid(scrape);
    gateway.stop();
}

fn ring(directory: &Path, name: &str, layout: Layout) -> Writer {
    Writer::create(directory.join(name), layout, 64).expect("a ring")
}

fn push(writer: &mut Writer, value: u64) {
    writer.push_all(&[Event {
        kind: 0,
        value,
        timestamp_us: 0,
    }]);
}

/// A change to a ring while the gateway reads it, and the reason under which the gateway counts it.
type Damage = (&'static str, fn(&Path, &mut Writer), &'static str);

#[test]
fn damaged_rings_are_counted_by_reason_and_the_process_keeps_serving() {
    let damages: [Damage; 5] = [
        ("truncated", |path, _| truncate(path, 0), "truncated"),
        ("shrunk", |path, _| truncate(path, 100), "truncated"),
        ("zeroed", |path, _| overwrite_header(path, 0), "zeroed"),
        ("noise", |path, _| overwrite_header(path, 0xa5), "bad_header"),
        (
            "other-version",
            |_, writer| writer.restart(Layout::V1, 64).expect("a ring"),
            "version_changed",
        ),
    ];
    let rings = TempDir::new().expect("a temporary directory");
    let scrape = free_port();
    let gateway = gateway(
        &format!("nixl: {{directories: [{}]}}", rings.path().display()),
        scrape,
    );
    let total = |name: &str| -> f64 {
        let page = http::get(scrape, "/metrics").expect("it serves").text();
        let wanted = format!("agent_tx_bytes_total{{agent_name=\"{name}\"");
        let line = page
            .lines()
            .find(|line| line.starts_with(&wanted))
            .unwrap_or("0 0")
            .to_owned();
        line.rsplit(' ')
            .next()
            .and_then(|value| value.parse().ok())
            .expect("a number")
    };
    let mut good = ring(rings.path(), "good", Layout::V4);
    for (round, (name, damage, reason)) in (1u32..).zip(damages) {
        let mut writer = ring(rings.path(), name, Layout::V4);
        push(&mut writer, 7);
        wait_until(SOON, "the ring is drained", || total(name) == 7.0);
        damage(&rings.path().join(name), &mut writer);
        let labels = [format!("ring=\"{name}\""), format!("reason=\"{reason}\"")];
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        wait_until(SOON, "the reset is counted", || {
            gateway.own_metric("tidegate_nixl_ring_resets_total", &labels) >= 1.0
        });
        push(&mut good, 1);
        wait_until(SOON, "the good ring is drained", || {
            total("good") == f64::from(round)
        });
        assert_eq!(total(name), 7.0, "a counter fell");
    }
    gateway.stop();
}

fn truncate(path: &Path, bytes: u64) {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .expect("it is there");
    file.set_len(bytes).expect("it can be truncated");
}

fn overwrite_header(path: &Path, byte: u8) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .expect("it is there");
    file.write_all_at(&[byte; 40], 0).expect("it is writable");
}
