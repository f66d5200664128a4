// SPDX-License-Identifier: Apache-2.0

//! Requests of scrapers: formats, codings, escaping, authentication and errors.

use std::io::Read;

use super::*;
use crate::component::auth::{Authenticator, Unauthenticated};
use crate::component::services::Services;

#[tokio::test]
async fn the_format_is_negotiated_only_where_it_is_enabled() {
    let accept = "accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    for (options, wanted) in [
        ("", "text/plain"),
        ("enable_open_metrics: true", "application/openmetrics-text"),
    ] {
        let rig = Rig::start(options).await;
        rig.push(plain(&[point("hits", COUNTER, 3)]));
        let (head, body) = rig.ask("GET /metrics", accept).await;
        assert!(head.contains(&format!("content-type: {wanted};")), "{head}");
        assert!(head.contains("vary: accept, accept-encoding"), "{head}");
        assert_eq!(body.ends_with(b"# EOF\n"), !options.is_empty());
        rig.stop().await;
    }
}

#[tokio::test]
async fn gzip_is_used_where_it_is_accepted() {
    let rig = Rig::start("").await;
    rig.push(plain(&[point("hits", COUNTER, 3)]));
    let (head, body) = rig
        .ask("GET /metrics", "accept-encoding: br, gzip;q=0.5\r\n")
        .await;
    assert!(head.contains("content-encoding: gzip"), "{head}");
    let mut page = String::new();
    flate2::read::GzDecoder::new(&*body)
        .read_to_string(&mut page)
        .unwrap();
    assert_eq!(page, rig.scrape().await);
    let (head, _) = rig.ask("GET /metrics", "accept-encoding: gzip;q=0\r\n").await;
    assert!(!head.contains("content-encoding"), "{head}");
    rig.stop().await;
}

#[tokio::test]
async fn pages_have_the_coding_that_the_client_prefers() {
    let rig = Rig::start("").await;
    rig.push(plain(&[point("hits", COUNTER, 3)]));
    for (accepted, coding) in [
        ("gzip, zstd", "content-encoding: zstd"),
        ("gzip;q=0.9, zstd;q=0.1", "content-encoding: gzip"),
    ] {
        let header = format!("accept-encoding: {accepted}\r\n");
        let (head, body) = rig.ask("GET /metrics", &header).await;
        assert!(head.contains(coding), "{head}");
        let (head_only, nothing) = rig.ask("HEAD /metrics", &header).await;
        assert!(nothing.is_empty());
        let length = format!("content-length: {}", body.len());
        assert!(
            head.contains(&length) && head_only.contains(&length),
            "{head_only}"
        );
        if coding.ends_with("zstd") {
            let page = zstd::decode_all(&*body).unwrap();
            assert_eq!(String::from_utf8(page).unwrap(), rig.scrape().await);
        }
    }
    rig.stop().await;
}

#[tokio::test]
async fn names_are_escaped_as_the_scraper_wants_them() {
    let rig = Rig::start("translation_strategy: NoUTF8EscapingWithSuffixes").await;
    let mut hits = point("http.hits", COUNTER, 3);
    Arc::make_mut(&mut hits.series).attributes = [("http.method", "GET")].into_iter().collect();
    rig.push(plain(&[hits]));
    for (accept, said, line) in [
        (
            "",
            "version=0.0.4; charset=utf-8\r\n",
            "http_hits_total{http_method=\"GET\"} 3",
        ),
        (
            "accept: text/plain;version=1.0.0;escaping=values\r\n",
            "version=1.0.0; charset=utf-8; escaping=values\r\n",
            "U__http_2e_hits__total{U__http_2e_method=\"GET\"} 3",
        ),
        (
            "accept: text/plain;version=1.0.0;escaping=dots\r\n",
            "version=1.0.0; charset=utf-8; escaping=dots\r\n",
            "http_dot_hits__total{http_dot_method=\"GET\"} 3",
        ),
    ] {
        let (head, body) = rig.ask("GET /metrics", accept).await;
        assert!(head.contains(said), "{head}");
        let page = String::from_utf8(body).unwrap();
        assert!(page.lines().any(|shown| shown == line), "{page}");
    }
    rig.stop().await;
}

#[tokio::test]
async fn only_authenticated_clients_may_scrape() {
    let more = "auth: {authenticator: doorman}, response_headers: {x-team: blue}";
    let settings = settings::<PrometheusExporterConfig>(&format!("{{endpoint: '127.0.0.1:0', {more}}}"));
    let base = context("exporters", "prometheus");
    let services = Services {
        authenticator: Some(Arc::new(Doorman)),
        ..Services::default()
    };
    base.shared.services.add("doorman".to_owned(), services);
    let exporter = Prometheus::new(settings.get(), base, Arc::default(), Vec::new());
    exporter.show_tables(Vec::new());
    exporter.start().await.unwrap();
    let rig = Rig {
        exporter,
        ledger: Arc::default(),
    };
    for path in ["/metrics", "/elsewhere"] {
        let (head, body) = rig.ask(&format!("GET {path}"), "").await;
        assert!(head.starts_with("http/1.1 401"), "{head}");
        assert!(
            head.contains("www-authenticate: pass") && head.contains("x-team: blue"),
            "{head}"
        );
        assert!(std::str::from_utf8(&body).unwrap().contains("\"no pass\""));
    }
    let (head, _) = rig.ask("GET /metrics", "pass: 1\r\n").await;
    assert!(
        head.starts_with("http/1.1 200") && head.contains("x-team: blue"),
        "{head}"
    );
    rig.stop().await;
}

/// Admits requests with the header `pass`.
struct Doorman;

#[async_trait]
impl Authenticator for Doorman {
    async fn check(
        &self,
        headers: &http::HeaderMap,
        _: Option<std::net::IpAddr>,
    ) -> Result<(), Unauthenticated> {
        let shown = headers.contains_key("pass");
        shown.then_some(()).ok_or(Unauthenticated::Wrong("no pass"))
    }

    fn identity(&self, headers: &http::HeaderMap) -> Option<crate::component::account::SenderKey> {
        let header = headers.get(http::header::AUTHORIZATION);
        header.map(crate::component::account::SenderKey::of)
    }

    fn challenge(&self) -> http::HeaderValue {
        http::HeaderValue::from_static("Pass")
    }
}

#[tokio::test]
async fn other_methods_and_paths_get_errors_that_name_the_valid_ones() {
    let rig = Rig::start("path: /prom").await;
    rig.push(plain(&[point("hits", COUNTER, 3)]));
    let (head, body) = rig.ask("HEAD /prom", "").await;
    assert!(head.starts_with("http/1.1 200") && body.is_empty(), "{head}");
    let (head, _) = rig.ask("POST /prom", "content-length: 0\r\n").await;
    assert!(
        head.starts_with("http/1.1 405") && head.contains("allow: get, head"),
        "{head}"
    );
    let (head, body) = rig.ask("GET /metrics", "").await;
    assert!(head.starts_with("http/1.1 404"), "{head}");
    assert_eq!(body, b"metrics are at /prom\n");
    rig.stop().await;
}
