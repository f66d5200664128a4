// SPDX-License-Identifier: Apache-2.0

//! The value of `up` for a page: the gateway and a real Prometheus that scrape the same pages agree.

use super::{Case, Release, all_listed, theirs};
use crate::kit::pages::{Page, Pages};
use crate::kit::query_api::QueryApi;
use crate::kit::{Gateway, SOON, free_port, http, wait_for};
use std::collections::BTreeMap;
use tidegate_exposition::Format;

/// A gateway that scrapes these pages as targets with the label `case`, and shows what it has.
struct Scraper {
    gateway: Gateway,
    queries: QueryApi,
    page: u16,
    _pages: Pages,
}

fn scraper(cases: &[Case]) -> Scraper {
    let pages = Pages::start();
    let mut targets = String::new();
    for (at, case) in cases.iter().enumerate() {
        let content_type = match case.format {
            Format::Text => "text/plain; version=0.0.4",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0",
            Format::Protobuf => panic!("lists have no such page"),
        };
        let page = Page {
            content_type: content_type.to_owned(),
            body: case.page.clone(),
        };
        pages.show(&format!("/{at}"), page);
        let port = pages.port();
        targets += &format!(
            "            - {{targets: ['127.0.0.1:{port}'], labels: {{__metrics_path__: /{at}, case: '{at}'}}}}\n"
        );
    }
    let (admin, page) = (free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "receivers:
  prometheus:
    config:
      global: {{scrape_interval: 5s, scrape_timeout: 5s}}
      scrape_configs:
        - job_name: pages
          static_configs:
{targets}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{page}\"}}
extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [prometheus], exporters: [prometheus]}}}}
"
    ));
    Scraper {
        gateway,
        queries: QueryApi::at(admin),
        page,
        _pages: pages,
    }
}

impl Scraper {
    /// `up` of every case, when all have been scraped.
    fn up(&self, cases: usize) -> BTreeMap<usize, bool> {
        wait_for(SOON, "every target is scraped", || {
            let samples = self.queries.query("up{job=\"pages\"}");
            let one = |labels: &BTreeMap<String, String>| labels["case"].parse().expect("a number");
            let up: BTreeMap<usize, bool> = samples
                .iter()
                .map(|sample| (one(&sample.labels), sample.value == 1.0))
                .collect();
            (up.len() == cases).then_some(up)
        })
    }
}

#[test]
fn targets_are_up_exactly_where_prometheus_sees_them_up() {
    let mut cases = all_listed();
    cases.retain(|case| case.differs != Some(Release::Newest));
    let theirs = theirs(Release::Newest, &cases);
    let up = scraper(&cases).up(cases.len());
    let wrong: Vec<String> = (cases.iter().zip(&theirs).enumerate())
        .filter(|(at, (_, theirs))| up[at] != theirs.is_some())
        .map(|(at, (case, theirs))| {
            let page = String::from_utf8_lossy(&case.page);
            format!("{page:?}: up is {}, Prometheus: {}", up[&at], theirs.is_some())
        })
        .collect();
    assert!(wrong.is_empty(), "{} pages:\n{}", cases.len(), wrong.join("\n"));
    let down = up.values().filter(|up| !**up).count();
    assert!(down > 100 && down < cases.len(), "{down} of {}", cases.len());
}

#[test]
fn a_page_without_an_end_is_a_failed_scrape_with_its_reason() {
    let case = Case {
        format: Format::OpenMetrics,
        page: b"# TYPE a counter\na_total 1\n".to_vec(),
        differs: None,
    };
    let mut scraper = scraper(&[case]);
    assert!(!scraper.up(1)[&0]);
    assert_eq!(scraper.queries.value("a_total"), None);
    let page = http::get(scraper.page, "/metrics")
        .expect("the exporter answers")
        .text();
    assert!(page.contains("\nup{") && !page.contains("a_total"), "{page}");
    let failures = ["job=\"pages\"", "reason=\"page\""];
    let gateway = &mut scraper.gateway;
    assert!(gateway.own_metric("tidegate_scrape_failures_total", &failures) >= 1.0);
    let line = gateway.wait_for_log("scrape failed");
    assert!(
        line.contains("line 3, column 1: expected `# EOF` at the end of the page"),
        "{line}"
    );
}

#[test]
fn a_histogram_without_a_count_is_shown_with_that_of_its_last_bucket() {
    let case = Case {
        format: Format::Text,
        page: b"# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 5\nh_sum 7\n".to_vec(),
        differs: None,
    };
    let scraper = scraper(&[case]);
    assert!(scraper.up(1)[&0]);
    scraper.queries.wait_for_value("h_count", 5.0);
    scraper.queries.wait_for_value("h_bucket{le=\"1\"}", 2.0);
    let page = http::get(scraper.page, "/metrics")
        .expect("the exporter answers")
        .text();
    assert!(
        page.lines()
            .any(|line| line.starts_with("h_count{") && line.ends_with("} 5")),
        "{page}"
    );
}
