// SPDX-License-Identifier: Apache-2.0

//! Cells of processes, through the whole gateway to a scrape.

use std::path::Path;

use tempfile::TempDir;
use tidegate_cells::{FamilySpec, GaugeMode, Kind, Options, Store};

use super::kit::{Gateway, SOON, free_port, http, wait_for, wait_until};

fn gateway(directory: &Path, scrape: u16) -> Gateway {
    Gateway::start(&format!(
        "receivers:
  shm: {{directories: ['{}'], scan_interval: 20ms, grace_period: 0s}}
exporters:
  prometheus: {{endpoint: '127.0.0.1:{scrape}'}}
service:
  pipelines:
    metrics: {{receivers: [shm], exporters: [prometheus]}}
",
        directory.display()
    ))
}

/// The cells through an aggregate, which adds up what it takes for several processes.
fn aggregated(directory: &Path, scrape: u16, poll_interval: &str) -> String {
    format!(
        "receivers:
  shm: {{directories: ['{}'], poll_interval: {poll_interval}, scan_interval: 20ms, grace_period: 0s}}
processors:
  aggregate: {{rules: [{{match: {{name: requests}}, instrument: counter, by: []}}]}}
exporters:
  prometheus: {{endpoint: '127.0.0.1:{scrape}'}}
service:
  pipelines:
    metrics: {{receivers: [shm], processors: [aggregate], exporters: [prometheus]}}
",
        directory.display()
    )
}

/// The total of all requests on the page, if it is there.
fn requests(scrape: u16) -> Option<u64> {
    let page = http::get(scrape, "/metrics").expect("a page").text();
    let value = page
        .lines()
        .find_map(|line| line.strip_prefix("requests_total "))?;
    let value: f64 = value.parse().expect("a number");
    Some(value as u64)
}

/// The files of processes.
fn files(directory: &Path) -> usize {
    let entries = directory.read_dir().expect("it is there").flatten();
    let names = entries.map(|file| file.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(char::is_numeric)).count()
}

fn worker(directory: &Path) -> Store {
    let options = Options {
        resource: vec![("service.name".into(), "llm".into())],
        ..Options::default()
    };
    Store::create(directory, options).expect("a store")
}

fn work(store: &Store, requests: u64, queue: f64, seconds: &[f64]) {
    let family = FamilySpec::new("requests", Kind::Counter).labels(["model"]);
    let family = store.family(&family).expect("a family");
    family.with(&["m"]).counter().expect("a counter").add(requests);
    let family = FamilySpec::new("queue", Kind::Gauge(GaugeMode::LiveSum));
    let family = store.family(&family).expect("a family");
    family.with(&[]).float().expect("a gauge").set(queue);
    let bounds = [0.5, 1.0].into();
    let family = FamilySpec::new("latency", Kind::Histogram { bounds }).unit("s");
    let family = store.family(&family).expect("a family");
    let histogram = family.with(&[]).histogram().expect("a histogram");
    seconds.iter().for_each(|value| histogram.observe(*value));
}

fn shows(scrape: u16, lines: &[&str]) {
    wait_for(SOON, &format!("{lines:?}"), || {
        let page = http::get(scrape, "/metrics").ok()?.text();
        let has_all = lines.iter().all(|line| page.lines().any(|found| found == *line));
        has_all.then_some(())
    });
}

#[test]
fn workers_come_and_go_and_totals_stay() {
    let cells = TempDir::new().expect("a temporary directory");
    let scrape = free_port();
    let first = gateway(cells.path(), scrape);
    let workers = [worker(cells.path()), worker(cells.path())];
    work(&workers[0], 3, 1.0, &[0.1, 0.7]);
    work(&workers[1], 4, 2.0, &[9.0]);
    let labels = "instance=\"\",job=\"llm\"";
    let totals = [
        format!("requests_total{{{labels},model=\"m\"}} 7"),
        format!("latency_seconds_bucket{{{labels},le=\"0.5\"}} 1"),
        format!("latency_seconds_bucket{{{labels},le=\"+Inf\"}} 3"),
        format!("latency_seconds_count{{{labels}}} 3"),
    ];
    let totals: Vec<_> = totals.iter().map(String::as_str).collect();
    shows(scrape, &totals);
    shows(scrape, &[&format!("queue{{{labels}}} 3")]);

    let [one, two] = workers;
    drop(one);
    shows(scrape, &[&format!("queue{{{labels}}} 2")]);
    wait_for(SOON, "one file and what is retained", || {
        let names = cells.path().read_dir().expect("it is there").flatten();
        let names: Vec<_> = names.map(|file| file.file_name()).collect();
        let is_folded = names.iter().any(|name| name == "retained.cells") && names.len() == 3; // with the lock
        is_folded.then_some(())
    });
    shows(scrape, &totals);
    work(&two, 10, 2.0, &[]);
    shows(scrape, &[&format!("requests_total{{{labels},model=\"m\"}} 17")]);
    first.stop();

    let scrape = free_port();
    let second = gateway(cells.path(), scrape);
    shows(scrape, &[&format!("requests_total{{{labels},model=\"m\"}} 17")]);
    second.stop();
}

#[test]
fn reloads_of_the_receiver_count_every_request_once() {
    const RELOADS: u64 = 4;
    let (cells, scrape) = (TempDir::new().expect("a temporary directory"), free_port());
    // The directory is empty when the first receiver starts.
    let gateway = Gateway::start(&aggregated(cells.path(), scrape, "10ms"));
    let [oldest, living] = [worker(cells.path()), worker(cells.path())];
    work(&oldest, 5, 0.0, &[]);
    work(&living, 2, 0.0, &[]);
    let (mut made, mut shown) = (7, 0);
    wait_for(SOON, "both are counted", || {
        (requests(scrape) == Some(made)).then_some(())
    });
    // Its counts stay, its file goes.
    drop(oldest);
    wait_for(SOON, "one file", || (files(cells.path()) == 1).then_some(()));
    for number in 1..=RELOADS {
        let config = aggregated(cells.path(), scrape, &format!("{}ms", 10 + number));
        gateway.reload_while(&config, || {
            work(&living, 1, 0.0, &[]);
            made += 1;
            let now = requests(scrape).expect("it stays on the page");
            assert!((shown..=made).contains(&now), "{now} after {shown}, of {made}");
            shown = now;
        });
    }
    wait_for(SOON, "all are counted", || {
        (requests(scrape) == Some(made)).then_some(())
    });
    let log = gateway.stop();
    let rebuilt = log.matches("rebuilt receivers::shm").count() as u64;
    assert_eq!(rebuilt, RELOADS, "{log}");
}

#[test]
fn a_quiet_process_is_fresh_until_its_end_and_its_series_stay() {
    let cells = TempDir::new().expect("a temporary directory");
    let (scrape, admin) = (free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "extensions:
  admin: {{endpoint: '127.0.0.1:{admin}'}}
receivers:
  shm: {{directories: ['{}'], scan_interval: 20ms, refresh: 200ms}}
processors:
  composite:
    composites:
      - {{name: level, metric: queue, function: last, across: sum}}
      - {{name: speed, metric: requests, function: rate, window: 1s}}
      - {{name: doubled, expr: '2 * sum(requests_total)'}}
exporters:
  prometheus: {{endpoint: '127.0.0.1:{scrape}', metric_expiration: 1s}}
service:
  extensions: [health_check, admin]
  pipelines:
    metrics: {{receivers: [shm], processors: [composite], exporters: [prometheus]}}
",
        cells.path().display()
    ));
    let store = worker(cells.path());
    work(&store, 3, 4.0, &[]);
    let wait_for_states = |state: &str| {
        for name in ["level", "speed", "doubled"] {
            wait_until(SOON, &format!("{name} is {state}"), || {
                let page = http::get(admin, &format!("/api/v1/composites/{name}")).expect("a page");
                page.json()[0]["state"] == state
            });
        }
    };
    // The series are sent again for twice as long as the exporter keeps them.
    let wait_for_repeats = || {
        let sent = || gateway.own_metric("otelcol_receiver_accepted_metric_points", &["receiver=\"shm\""]);
        let before = sent();
        wait_until(SOON, "the series come again", || sent() >= before + 30.0);
    };
    let labels = "instance=\"\",job=\"llm\"";
    let total = format!("requests_total{{{labels},model=\"m\"}} 3");
    wait_for_states("fresh");
    wait_for_repeats();
    shows(scrape, &[&total, &format!("queue{{{labels}}} 4")]);
    wait_for_states("fresh");

    drop(store);
    wait_for_states("stale");
    wait_for_repeats();
    shows(scrape, &[&total]);
    wait_for_states("stale");

    let _again = worker(cells.path());
    for name in ["speed", "doubled"] {
        wait_until(SOON, &format!("{name} is fresh again"), || {
            let page = http::get(admin, &format!("/api/v1/composites/{name}")).expect("a page");
            page.json()[0]["state"] == "fresh"
        });
    }
    gateway.stop();
}

#[test]
fn a_gateway_that_finds_no_cells_says_where_it_looks() {
    let directory = TempDir::new().expect("a temporary directory");
    let pattern = directory.path().join("cells/*");
    let log = gateway(&pattern, free_port()).stop();
    let line = log
        .lines()
        .find(|line| line.contains("no directory of cells exists yet"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains(&pattern.display().to_string()), "{line}");
}

#[test]
fn without_a_directory_it_is_the_one_of_writers_that_have_none() {
    let runtime = TempDir::new().expect("a temporary directory");
    let own = runtime.path().join("tidegate/cells");
    let named = TempDir::new().expect("a temporary directory");
    for (variable, value, directory) in [
        ("XDG_RUNTIME_DIR", runtime.path(), own.as_path()),
        ("TIDEGATE_CELLS_DIR", named.path(), named.path()),
    ] {
        let scrape = free_port();
        let config = format!(
            "receivers:
  shm: {{scan_interval: 20ms}}
exporters:
  prometheus: {{endpoint: '127.0.0.1:{scrape}'}}
service:
  pipelines:
    metrics: {{receivers: [shm], exporters: [prometheus]}}
"
        );
        let _gateway = Gateway::start_with(&config, |command| {
            command.env_remove("TIDEGATE_CELLS_DIR").env(variable, value);
        });
        // It need not be there before the first writer is.
        work(&worker(directory), 3, 1.0, &[]);
        shows(
            scrape,
            &["requests_total{instance=\"\",job=\"llm\",model=\"m\"} 3"],
        );
    }
}
