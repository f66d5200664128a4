// SPDX-License-Identifier: Apache-2.0

//! Rings and targets that the gateway reads while reloads change another pipeline.

use super::*;
use crate::kit::{Answer, Repeated, Target};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use tempfile::TempDir;
use tidegate_ring::{Event, Layout, Writer};

/// The slots of the ring. The producer fills about half of them, so that the ring is never full.
const CAPACITY: u64 = 64;

/// The events that the producer publishes at a time.
const BLOCK: u64 = 8;

const RELOADS: u64 = 5;

/// `number` is an option of the pipeline that reads neither the ring nor the target.
fn numbered(ports: Ports, rings: &Path, target: &Target, number: u64) -> String {
    let Ports { input, admin, page } = ports;
    let address = target.address();
    format!(
        "extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
  nixl: {{directories: [{rings:?}]}}
  prometheus:
    config:
      scrape_configs:
        - {{job_name: jobs, scrape_interval: 200ms, scrape_timeout: 200ms, static_configs: [{{targets: [\"{address}\"]}}]}}
processors:
  attributes: {{actions: [{{key: number, value: {number}, action: insert}}]}}
  aggregate:
    rules:
      - {{match: {{name: agent_tx_bytes}}, instrument: counter, by: []}}
      - {{match: {{name: jobs_total}}, instrument: counter, by: []}}
exporters:
  debug: {{}}
  prometheus: {{endpoint: \"127.0.0.1:{page}\"}}
service:
  extensions: [health_check, admin]
  pipelines:
    metrics: {{receivers: [nixl, prometheus], processors: [aggregate], exporters: [prometheus]}}
    metrics/other: {{receivers: [otlp], processors: [attributes], exporters: [debug]}}
"
    )
}

/// Writes events of the values 1, 2, 3 and so on to a ring, and adds them up in `written`.
fn writer(ring: &Path, written: Arc<AtomicU64>) -> Repeated {
    let mut ring = Writer::create(ring, Layout::V4, CAPACITY).expect("a ring");
    let mut value = 0;
    Repeated::start("the ring", move || {
        wait_until(SOON, "the gateway reads the ring", || {
            ring.unread() <= CAPACITY / 2
        });
        for _ in 0..BLOCK {
            value += 1;
            let event = Event {
                kind: 0,
                value,
                timestamp_us: 0,
            };
            if !ring.push(event) {
                return Err("the ring is full".to_owned());
            }
            written.fetch_add(value, SeqCst);
        }
        ring.flush();
        Ok(())
    })
}

fn jobs(count: u64) -> Answer {
    Answer::text(&format!("# TYPE jobs_total counter\njobs_total {count}\n"))
}

/// Shows a counter that is one more at each scrape. `shown` is its value.
fn counter(target: Arc<Target>, shown: Arc<AtomicU64>) -> Repeated {
    Repeated::start("the target", move || {
        target.answer("/metrics", jobs(shown.fetch_add(1, SeqCst) + 1));
        let asked = target.asked();
        wait_until(SOON, "a scrape", || target.asked() > asked);
        Ok(())
    })
}

/// The totals of the ring and of the target on the page.
fn totals(page: u16) -> [Option<u64>; 2] {
    let text = http::get(page, "/metrics").expect("a page").text();
    ["agent_tx_bytes_total ", "jobs_total "].map(|begin| {
        let value = text.lines().find_map(|line| line.strip_prefix(begin))?;
        let value: f64 = value.parse().expect("a number");
        assert_eq!(value.fract(), 0.0, "{text}");
        Some(value as u64)
    })
}

#[test]
fn rings_and_scrapes_go_on_while_reloads_change_another_pipeline() {
    let (ports, target) = (ports(), Arc::new(Target::start()));
    let rings = TempDir::new().expect("a temporary directory");
    target.answer("/metrics", jobs(0));
    let (written, shown) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let ring = writer(&rings.path().join("agent"), written.clone());
    let of = |number| numbered(ports, rings.path(), &target, number);
    let live = Live::start(ports.admin, &of(0));
    wait_until(SOON, "both are read", || {
        totals(ports.page).iter().all(Option::is_some)
    });

    let mut sources = [ring, counter(target.clone(), shown.clone())];
    for number in 1..=RELOADS {
        sources.iter_mut().for_each(Repeated::wait_for_run);
        let lines = live.applies(&of(number));
        assert_eq!(lines, ["rebuilt processors::attributes@metrics/other"]);
    }
    sources.iter_mut().for_each(Repeated::wait_for_run);
    for source in sources {
        assert!(source.stop() > RELOADS, "a run for each reload");
    }

    let expected = [written, shown].map(|total| Some(total.load(SeqCst)));
    wait_until(SOON, "all has arrived", || {
        let now = totals(ports.page);
        let mut pairs = now.iter().zip(&expected);
        assert!(
            pairs.all(|(now, all)| now <= all),
            "{now:?}, more than {expected:?}"
        );
        now == expected
    });
    // A scrape that has been answered may still be on its way.
    let asked = target.asked();
    wait_until(SOON, "more scrapes", || target.asked() > asked + 2);
    assert_eq!(totals(ports.page), expected, "nothing counts twice");
    for metric in ["tidegate_dropped_items_total", "tidegate_nixl_ring_resets_total"] {
        assert_eq!(live.gateway.own_metric(metric, &[]), 0.0, "{metric}");
    }
    // A receiver that is made again takes its targets from the list.
    let slower = of(RELOADS).replace("scrape_interval: 200ms", "scrape_interval: 300ms");
    assert_eq!(live.applies(&slower), ["rebuilt receivers::prometheus"]);
    wait_until(SOON, "one target is listed, and it is up", || {
        let answer = http::get(ports.admin, "/api/v1/targets")
            .expect("an answer")
            .json();
        let targets = answer["data"]["activeTargets"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        targets.len() == 1 && targets[0]["health"] == "up"
    });
    live.gateway.stop();
}
