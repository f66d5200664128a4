// SPDX-License-Identifier: Apache-2.0

//! The page for people, and the stream that it reads.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::SystemTime;

use super::*;
use crate::component::graph_metrics::GraphMetrics;
use crate::component::overview::Overview;
use crate::component::shared::{OwnMetrics, Phase};
use crate::net::pages::testing::Lines;

#[tokio::test]
async fn the_page_and_its_files_are_served_by_get_and_head_only() {
    let (admin, _) = with_table("").await;
    let endpoint = admin.server.local();
    let (status, body) = fetch(&endpoint, "GET", "/").await;
    assert_eq!(status, 200);
    assert!(body.starts_with("<!doctype html>"), "{body}");
    assert_eq!(
        fetch(&endpoint, "HEAD", "/page/app.js").await,
        (200, String::new())
    );
    assert_eq!(fetch(&endpoint, "GET", "/page/none.js").await.0, 404);
    assert_eq!(post(&endpoint, "/", "a=1").await.0, 405);
}

/// A gateway without components.
fn overview(config: &str) -> Overview {
    Overview {
        built: SystemTime::now(),
        pipelines: Vec::new(),
        extensions: vec!["admin".to_owned()],
        config: config.to_owned(),
        metrics: GraphMetrics::default(),
    }
}

#[tokio::test]
async fn a_stream_sends_each_topic_when_it_changes() {
    let (admin, _) = with_table("").await;
    let shared = admin.base.shared.clone();
    shared.health.enter(Phase::Ready);
    let path = "/api/v1/status/stream?topic=status/config&topic=composites&topic=composites";
    let mut lines = Lines::open(&admin.server.local(), path).await;
    let first = lines.event_named("status/config").await;
    assert_eq!(first["error"], "the gateway is starting");
    shared.overview.set(overview("one: 1\n"));
    let next = lines.event_named("status/config").await;
    assert_eq!(next["data"]["yaml"], "one: 1\n");
    shared.overview.set(overview("two: 2\n"));
    let next = lines.event_named("status/config").await;
    assert_eq!(next["data"]["yaml"], "two: 2\n");
    let mut other = Lines::open(&admin.server.local(), path).await;
    assert_eq!(
        other.event_named("composites").await["data"],
        Value::Array(Vec::new())
    );
    admin.stop(Instant::now() + Duration::from_secs(60)).await;
    assert!(lines.ends().await);
}

#[tokio::test]
async fn a_topic_is_the_page_of_the_api() {
    let (admin, _) = with_table("").await;
    let shared = &admin.base.shared;
    shared.health.enter(Phase::Ready);
    shared.overview.set(overview("one: 1\n"));
    for topic in [
        "status/health",
        "status/config",
        "status/notices",
        "status/cluster",
        "targets",
        "rules",
        "alerts",
    ] {
        let path = format!("/api/v1/status/stream?topic={topic}");
        let mut lines = Lines::open(&admin.server.local(), &path).await;
        let (status, page) = get(&admin, &format!("/api/v1/{topic}")).await;
        assert_eq!(
            (status, &page["status"]),
            (200, &Value::from("success")),
            "{topic}"
        );
        assert_eq!(lines.event_named(topic).await, page, "{topic}");
    }
}

#[tokio::test]
async fn a_stream_without_topics_has_the_graph_and_an_unknown_topic_is_refused() {
    let (admin, _) = with_table("").await;
    admin.base.shared.overview.set(overview(""));
    let endpoint = admin.server.local();
    let mut lines = Lines::open(&endpoint, "/api/v1/status/stream").await;
    let graph = lines.event_named("status/graph").await;
    assert_eq!(graph["data"]["extensions"][0], "admin");
    let (status, refused) = get(&admin, "/api/v1/status/stream?topic=query").await;
    assert_eq!(status, 400);
    assert!(
        refused["error"].as_str().unwrap().contains("status/graph"),
        "{refused}"
    );
}

#[tokio::test]
async fn health_is_sent_only_when_it_changes() {
    let (admin, _) = with_table("").await;
    let shared = &admin.base.shared;
    shared.health.enter(Phase::Ready);
    shared.overview.set(overview(""));
    let path = "/api/v1/status/stream?topic=status/graph&topic=status/health";
    let mut lines = Lines::open(&admin.server.local(), path).await;
    let page = lines.event_named("status/health").await;
    assert_eq!(page["data"]["ready"], true);
    assert_eq!(page["data"]["version"], crate::built::VERSION);
    for _ in 0..2 {
        assert_eq!(lines.event().await.0, "status/graph");
    }
    let trouble = "sending: refused";
    shared.health.trouble("exporters::otlp", Some(trouble.to_owned()));
    let page = lines.event_named("status/health").await;
    assert_eq!(page["data"]["troubles"]["exporters::otlp"], trouble);
}

#[tokio::test]
async fn sources_are_metrics_of_rings_cells_and_sockets() {
    let (admin, _) = with_table("").await;
    let (status, _) = get(&admin, "/api/v1/status/sources").await;
    assert_eq!(status, 422);
    let text = "# TYPE up gauge\nup 1\ntidegate_nixl_rings{receiver=\"nixl\"} 2\n";
    let metrics = OwnMetrics(Box::new(|| text.to_owned()));
    admin.base.shared.own_metrics.set(metrics);
    let (_, sources) = get(&admin, "/api/v1/status/sources").await;
    assert_eq!(
        sources["data"]["text"],
        "tidegate_nixl_rings{receiver=\"nixl\"} 2"
    );
}

#[tokio::test]
async fn a_topic_is_computed_once_a_tick_for_all_its_readers() {
    let (admin, _) = with_table("").await;
    let computed = AtomicUsize::new(0);
    let text = move || format!("tidegate_nixl_rings {}", computed.fetch_add(1, Relaxed));
    admin.base.shared.own_metrics.set(OwnMetrics(Box::new(text)));
    let (endpoint, path) = (admin.server.local(), "/api/v1/status/stream?topic=status/sources");
    let mut readers = Vec::new();
    for _ in 0..20 {
        readers.push(Lines::open(&endpoint, path).await);
    }
    for reader in &mut readers {
        let mut numbers = Vec::new();
        for _ in 0..3 {
            let page = reader.event_named("status/sources").await;
            let text = page["data"]["text"].as_str().unwrap().to_owned();
            let (_, number) = text.rsplit_once(' ').unwrap();
            numbers.push(number.parse::<usize>().unwrap());
        }
        let first = numbers[0];
        assert_eq!(numbers, [first, first + 1, first + 2]);
    }
}

#[tokio::test]
async fn a_slow_topic_delays_the_others_once() {
    let (admin, _) = with_table("").await;
    admin.base.shared.overview.set(overview(""));
    let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
    let (computed, released) = (AtomicUsize::new(0), Mutex::new(released));
    let text = move || {
        if computed.fetch_add(1, Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(400));
        } else {
            // It fails when the test ends.
            let _ = released.lock().recv();
        }
        String::new()
    };
    admin.base.shared.own_metrics.set(OwnMetrics(Box::new(text)));
    let path = "/api/v1/status/stream?topic=status/graph&topic=status/sources";
    let mut lines = Lines::open(&admin.server.local(), path).await;
    lines.event_named("status/sources").await;
    for _ in 0..3 {
        lines.event_named("status/graph").await;
    }
    drop(release);
    lines.event_named("status/sources").await;
}

#[tokio::test]
async fn durations_are_those_of_processors_and_empty_unless_measured() {
    let (admin, _) = with_table("").await;
    let (_, none) = get(&admin, "/api/v1/status/durations").await;
    assert_eq!(none["data"]["text"], "");
    let line = "otelcol_processor_internal_duration_count{processor=\"batch\"} 3";
    let text = format!("up 1\n{line}\notelcol_process_uptime 1\n");
    let metrics = OwnMetrics(Box::new(move || text.clone()));
    admin.base.shared.own_metrics.set(metrics);
    let (_, unmeasured) = get(&admin, "/api/v1/status/durations").await;
    assert_eq!(unmeasured["data"]["text"], "");
    admin.base.shared.want_details();
    let mut lines = Lines::open(
        &admin.server.local(),
        "/api/v1/status/stream?topic=status/durations",
    )
    .await;
    let page = lines.event_named("status/durations").await;
    assert_eq!(page["data"]["text"], line);
}

#[tokio::test]
async fn the_files_are_public_only_if_the_page_must_ask_for_the_token() {
    for (challenge, status) in [
        ("Bearer realm=\"tidegate\"", 200),
        ("Basic realm=\"tidegate\"", 401),
    ] {
        let admin = with_authenticator(challenge).await;
        let endpoint = admin.server.local();
        for path in ["/", "/page/app.js"] {
            assert_eq!(
                fetch(&endpoint, "GET", path).await.0,
                status,
                "{challenge} {path}"
            );
        }
        for path in ["/api/v1/status/stream", "/api/v1/status/config", "/-/ready"] {
            assert_eq!(fetch(&endpoint, "GET", path).await.0, 401, "{challenge} {path}");
        }
    }
}

#[tokio::test]
async fn the_files_take_no_memory_for_answers_from_clients_with_a_token() {
    let options = "{endpoint: 127.0.0.1:0, auth: {authenticator: door}, query: {max_answer_bytes: 1}}";
    let admin = Admin::new(
        settings::<AdminConfig>(options).get(),
        context("extensions", "admin"),
    )
    .unwrap();
    let services = services("Bearer realm=\"tidegate\"");
    admin.base.shared.services.add("door".to_owned(), services);
    admin.start().await.unwrap();
    let (status, body) = fetch(&admin.server.local(), "GET", "/").await;
    assert_eq!(status, 200, "{body}");
    assert!(body.starts_with("<!doctype html>"), "{body}");
}

#[test]
fn a_browser_says_which_site_asks() {
    let mut request = Request::of("/-/reload", Vec::new());
    assert!(!is_of_other_site(&request));
    for (site, is_other) in [
        ("same-origin", false),
        ("none", false),
        ("same-site", true),
        ("cross-site", true),
    ] {
        let value = http::HeaderValue::from_static(site);
        request.headers.insert("sec-fetch-site", value);
        assert_eq!(is_of_other_site(&request), is_other, "{site}");
    }
}
