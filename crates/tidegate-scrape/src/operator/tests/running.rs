// SPDX-License-Identifier: Apache-2.0

use serde_json::{Value, json};
use tidegate_engine::Value as PointValue;
use tidegate_pipeline::batch::Payload;
use tidegate_pipeline::component::testing::Sink;
use tidegate_pipeline::component::{Lifecycle, Shared};

use super::*;
use crate::Prometheus;

/// Waits for a condition.
async fn eventually(holds: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "it does not happen in time"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A receiver of the objects of a server.
struct Running {
    receiver: Prometheus,
    shared: Arc<Shared>,
    server: FakeApiServer,
    sink: Arc<Sink>,
}

impl Running {
    async fn start(server: FakeApiServer, options: &str) -> Self {
        let sink = Sink::new();
        let url = server.url();
        let yaml = format!(
            "{{config: {{scrape_configs: [{{job_name: fixed, static_configs: [{{targets: ['fixed:1']}}]}}]}},
              prometheus_cr: {{enabled: true, api_server: '{url}', {options}}}}}"
        );
        let config = settings::<PrometheusReceiverConfig>(&yaml).get::<PrometheusReceiverConfig>();
        let cx = sink.receiver_context("prometheus");
        let shared = cx.base.shared.clone();
        let receiver = Prometheus::new(&config, &cx).unwrap();
        receiver.start().await.unwrap();
        Self {
            receiver,
            shared,
            server,
            sink,
        }
    }

    /// The URLs of the targets of all jobs, in order.
    fn urls(&self) -> Vec<String> {
        let pools = self.shared.scrape_pools.list();
        let targets = pools.iter().flat_map(|pool| pool.active());
        let mut urls: Vec<_> = targets.map(|target| target.url.clone()).collect();
        urls.sort();
        urls
    }

    async fn scrapes(&self, expected: &[&str]) {
        let urls: Vec<_> = expected
            .iter()
            .map(|target| format!("http://{target}/metrics"))
            .collect();
        let begun = std::time::Instant::now();
        while self.urls() != urls {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{:?} is not {urls:?}",
                self.urls()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn notices(&self) -> String {
        self.shared
            .notices
            .list()
            .into_values()
            .flatten()
            .collect::<Vec<_>>()
            .join("\n")
    }

    async fn watches(&self, resource: &str, times: usize) {
        let path = format!("/{resource}?watch=1");
        eventually(|| self.server.count(&path) >= times).await;
    }

    async fn stop(self) {
        self.receiver
            .stop(std::time::Instant::now() + Duration::from_secs(30))
            .await;
    }
}

/// A scrape configuration with one target.
fn scraped(name: &str, target: &str) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"staticConfigs": [{"targets": [target]}], "scrapeInterval": "100ms"},
    })
}

const SCRAPED: &str = "scrape_config_selector: {}";

#[tokio::test]
async fn jobs_follow_their_objects() {
    let server = FakeApiServer::start().await;
    server.apply_quietly("scrapeconfigs", &scraped("a", "a:1"));
    let running = Running::start(server, SCRAPED).await;
    running.scrapes(&["a:1", "fixed:1"]).await;
    running.watches("scrapeconfigs", 1).await;
    let pool = |name: &str| {
        let pools = running.shared.scrape_pools.list();
        pools.into_iter().find(|pool| pool.name() == name)
    };
    let before = pool("scrapeConfig/shop/a").unwrap().active();
    running.server.apply("scrapeconfigs", &scraped("b", "b:1"));
    running.scrapes(&["a:1", "b:1", "fixed:1"]).await;
    running.server.apply("scrapeconfigs", &scraped("b", "c:1"));
    running.scrapes(&["a:1", "c:1", "fixed:1"]).await;
    running.server.delete("scrapeconfigs", "shop", "b");
    running.scrapes(&["a:1", "fixed:1"]).await;
    let after = pool("scrapeConfig/shop/a").unwrap().active();
    assert!(Arc::ptr_eq(&before[0], &after[0]), "its loop went on");
    // A job that is gone may come back before its series have ended, and later.
    running.server.apply("scrapeconfigs", &scraped("b", "d:1"));
    running.scrapes(&["a:1", "d:1", "fixed:1"]).await;
    assert_eq!(running.notices(), "");
    running.stop().await;
}

impl Running {
    /// The values of `up` of a target so far.
    fn ups(&self, address: &str) -> Vec<PointValue> {
        let points = self
            .sink
            .batches()
            .into_iter()
            .flat_map(|batch| match batch.payload {
                Payload::Points(points) => points.points.to_vec(),
                _ => Vec::new(),
            });
        let is_up = |point: &tidegate_engine::Point| {
            &*point.series.metric.name == "up" && format!("{:?}", point.series).contains(address)
        };
        points.filter(is_up).map(|point| point.value).collect()
    }
}

#[tokio::test]
async fn series_go_on_when_a_job_changes_and_end_with_it() {
    // Nobody listens there, so `up` is 0.
    const ADDRESS: &str = "127.0.0.1:1";
    let server = FakeApiServer::start().await;
    let mut object = scraped("a", ADDRESS);
    server.apply_quietly("scrapeconfigs", &object);
    let running = Running::start(server, SCRAPED).await;
    let has_ended = || running.ups(ADDRESS).contains(&PointValue::NoRecordedValue);
    eventually(|| running.ups(ADDRESS).len() > 1).await;
    running.watches("scrapeconfigs", 1).await;
    let active = || {
        let pools = running.shared.scrape_pools.list();
        let pool = pools.iter().find(|pool| pool.name() == "scrapeConfig/shop/a");
        pool.and_then(|pool| pool.active().first().cloned())
    };
    let before = active().unwrap();
    object["spec"]["sampleLimit"] = json!(5);
    running.server.apply("scrapeconfigs", &object);
    eventually(|| active().is_some_and(|now| !Arc::ptr_eq(&now, &before))).await;
    let scraped = running.ups(ADDRESS).len();
    // The loop of the old job ends after a little more than two intervals.
    eventually(|| running.ups(ADDRESS).len() > scraped + 5).await;
    assert!(!has_ended(), "{:?}", running.ups(ADDRESS));
    running.server.delete("scrapeconfigs", "shop", "a");
    eventually(has_ended).await;
    running.stop().await;
}

#[tokio::test]
async fn an_object_that_is_wrong_is_skipped_and_stops_nothing() {
    let server = FakeApiServer::start().await;
    server.apply_quietly("scrapeconfigs", &scraped("a", "a:1"));
    let running = Running::start(server, SCRAPED).await;
    running.scrapes(&["a:1", "fixed:1"]).await;
    running.watches("scrapeconfigs", 1).await;
    let wrong = [
        (
            json!({"scrapeInterval": "never"}),
            "scrape_interval: expected a duration",
        ),
        (
            json!({"relabelings": [{"regex": "("}]}),
            "not a regular expression",
        ),
        (json!({"oauth2": {"clientId": {}}}), "`oauth2` is not supported"),
        (
            json!({"scrapeInterval": "1s", "scrapeTimeout": "2s"}),
            "scrape timeout greater than scrape interval",
        ),
        (json!({"proxyUrl": "http://p"}), "`proxy_url` is not supported"),
    ];
    for (more, expected) in wrong {
        let mut object = scraped("b", "b:1");
        for (key, value) in more.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        running.server.apply("scrapeconfigs", &object);
        eventually(|| running.notices().contains(expected)).await;
        let said = running.notices();
        assert!(
            said.contains("scrapeConfig shop/b: job scrapeConfig/shop/b: "),
            "{said}"
        );
        assert_eq!(running.urls(), ["http://a:1/metrics", "http://fixed:1/metrics"]);
    }
    let mut ignored = scraped("b", "b:1");
    ignored["spec"]["keepDroppedTargets"] = json!(5);
    running.server.apply("scrapeconfigs", &ignored);
    eventually(|| running.notices().contains("keep_dropped_targets")).await;
    running.scrapes(&["a:1", "b:1", "fixed:1"]).await;
    running.server.delete("scrapeconfigs", "shop", "b");
    eventually(|| running.notices().is_empty()).await;
    running.stop().await;
}

#[tokio::test]
async fn objects_that_went_unseen_are_gone_after_the_next_list() {
    let server = FakeApiServer::start().await;
    for (name, target) in [("a", "a:1"), ("b", "b:1")] {
        server.apply_quietly("scrapeconfigs", &scraped(name, target));
    }
    let running = Running::start(server, SCRAPED).await;
    running.scrapes(&["a:1", "b:1", "fixed:1"]).await;
    running.watches("scrapeconfigs", 1).await;
    running.server.delete_quietly("scrapeconfigs", "shop", "a");
    running
        .server
        .apply_quietly("scrapeconfigs", &scraped("c", "c:1"));
    running.server.forget_events();
    running.server.end_watches("scrapeconfigs");
    running.scrapes(&["b:1", "c:1", "fixed:1"]).await;
    running.stop().await;
}

#[tokio::test]
async fn monitors_find_pods_and_services_at_the_same_server() {
    let server = FakeApiServer::start().await;
    let pod = json!({
        "metadata": {"namespace": "shop", "name": "web-1", "uid": "u", "labels": {"app": "web"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": [{"name": "metrics", "containerPort": 9100}]}]},
        "status": {"podIP": "10.0.0.1", "phase": "Running"},
    });
    server.apply_quietly("pods", &pod);
    let monitor = |name: &str, app: &str| {
        json!({
            "metadata": {"namespace": "shop", "name": name},
            "spec": {"selector": {"matchLabels": {"app": app}}, "podMetricsEndpoints": [{"port": "metrics"}]},
        })
    };
    server.apply_quietly("podmonitors", &monitor("web", "web"));
    server.apply_quietly("podmonitors", &monitor("other", "other"));
    let mut elsewhere = monitor("web", "web");
    elsewhere["metadata"]["namespace"] = json!("elsewhere");
    elsewhere["spec"]["namespaceSelector"] = json!({"any": true});
    server.apply_quietly("podmonitors", &elsewhere);
    server.apply_quietly("namespaces", &json!({"metadata": {"name": "shop"}}));
    let options = "pod_monitor_selector: {matchLabels: {scraped: 'yes'}},
        pod_monitor_namespace_selector: {matchLabels: {team: core}}";
    let running = Running::start(server, options).await;
    running.scrapes(&["10.0.0.1:9100", "fixed:1"]).await;
    let pools = running.shared.scrape_pools.list();
    let pool = pools
        .iter()
        .find(|pool| pool.name() == "podMonitor/shop/web/0")
        .unwrap();
    let labels = &pool.active()[0].labels;
    let label = |name: &str| labels.iter().find(|(known, _)| known == name).unwrap().1.clone();
    assert_eq!(
        (label("job"), label("pod"), label("endpoint")),
        ("shop/web".into(), "web-1".into(), "metrics".into())
    );
    assert_eq!(
        (label("container"), label("namespace")),
        ("c".into(), "shop".into())
    );
    let paths = running.server.requests();
    let selects = |path: &str, selector: &str| {
        paths
            .iter()
            .any(|known| known.starts_with(path) && known.contains(selector))
    };
    assert!(
        selects("/apis/monitoring.coreos.com/v1/podmonitors?", "scraped%3Dyes"),
        "{paths:?}"
    );
    assert!(selects("/api/v1/namespaces?", "team%3Dcore"), "{paths:?}");
    assert!(
        !paths.iter().any(|path| path.contains("servicemonitors")),
        "{paths:?}"
    );
    running.stop().await;
}

#[tokio::test]
async fn the_memory_of_jobs_is_on_the_account_until_they_end() {
    let server = FakeApiServer::start().await;
    let running = Running::start(server, SCRAPED).await;
    running.scrapes(&["fixed:1"]).await;
    running.watches("scrapeconfigs", 1).await;
    let memory = running.shared.memory.clone();
    let before = memory.reserved_bytes();
    running.server.apply("scrapeconfigs", &scraped("a", "a:1"));
    running.scrapes(&["a:1", "fixed:1"]).await;
    assert!(memory.reserved_bytes() > before + (64 << 10));
    running.server.delete("scrapeconfigs", "shop", "a");
    running.scrapes(&["fixed:1"]).await;
    running.stop().await;
    eventually(|| memory.reserved_bytes() <= before).await;
}
