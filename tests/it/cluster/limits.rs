// SPDX-License-Identifier: Apache-2.0

//! A producer that may send fewer bytes than it has.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::kit::{Gateway, SOON, free_port, http, wait_until};

/// Most bytes of pages per second.
const LIMIT: u32 = 16 << 10;

/// More than a page of 256 of these series has.
const PAGE: u32 = 64 << 10;

/// The counters, which have four pages, and how often each is raised.
const COUNTERS: usize = 1_000;
const ROUNDS: u32 = 30;

/// Raises all counters.
fn raise(sender: &UnixDatagram, socket: &Path) {
    for numbers in (0..COUNTERS).collect::<Vec<_>>().chunks(100) {
        let lines = numbers.iter().map(|number| format!("hit_{number}:1|c"));
        let lines = lines.collect::<Vec<_>>().join("\n");
        sender.send_to(lines.as_bytes(), socket).expect("taken");
    }
}

/// The counters on a page that have their last total.
fn ended_counters(page: u16) -> usize {
    let answer = http::get(page, "/metrics").expect("it answers");
    let end = format!("_total {ROUNDS}");
    let text = answer.text();
    let counters = text.lines().filter(|line| line.starts_with("hit_"));
    counters.filter(|line| line.ends_with(&end)).count()
}

#[test]
fn a_producer_stays_below_its_bytes_per_second_and_loses_nothing() {
    let page = free_port();
    let sockets = tempfile::tempdir().expect("a folder");
    let socket = sockets.path().join("statsd.sock");
    let begun = Instant::now();
    let gateway = Gateway::start(&format!(
        "extensions:
  cluster: {{name: test, engine: {{local: {{}}}}}}
receivers:
  uds: {{datagram: {{path: \"{}\"}}}}
  partials: {{cluster: cluster}}
processors:
  aggregate: {{rules: [{{match: {{name: '*'}}, by: []}}]}}
exporters:
  partials: {{cluster: cluster, producer: node-a, interval: 100ms, max_bytes_per_second: {LIMIT}}}
  prometheus: {{endpoint: \"127.0.0.1:{page}\"}}
service:
  extensions: [health_check, cluster]
  pipelines:
    metrics/produce: {{receivers: [uds], processors: [aggregate], exporters: [partials]}}
    metrics/show: {{receivers: [partials], exporters: [prometheus]}}
",
        socket.display()
    ));
    let own = |name: &str| gateway.own_metric(name, &["exporter=\"partials\""]);
    // It may send the bytes of the first second at once, and one page more than it has bytes for.
    let assert_is_limited = || {
        let bytes = own("tidegate_partials_bytes_total");
        let most = f64::from(LIMIT) * (begun.elapsed().as_secs_f64() + 1.0) + f64::from(PAGE);
        assert!(bytes <= most, "{bytes} bytes, and {most} at most");
    };
    let sender = UnixDatagram::unbound().expect("a socket");
    let mut most_waiting = 0.0_f64;
    for _ in 0..ROUNDS {
        raise(&sender, &socket);
        std::thread::sleep(Duration::from_millis(100));
        most_waiting = most_waiting.max(own("tidegate_partials_waiting_pages"));
        assert_is_limited();
    }
    assert!(most_waiting > 0.0, "pages wait");
    wait_until(SOON, "the page shows all totals", || {
        ended_counters(page) == COUNTERS
    });
    assert_is_limited();
    assert!(own("tidegate_partials_late_pages_total") > 0.0, "pages were late");
    assert_eq!(own("tidegate_partials_failed_pages_total"), 0.0);
    wait_until(SOON, "no page waits", || {
        own("tidegate_partials_waiting_pages") == 0.0
    });
    gateway.stop();
}
