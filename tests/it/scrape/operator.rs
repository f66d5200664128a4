// SPDX-License-Identifier: Apache-2.0

//! Objects of the Prometheus operator that come and go.

use serde_json::json;
use tidegate_kubernetes::testing::FakeApiServer;

use crate::kit::{Gateway, SOON, Target, free_port, http, wait_until};

#[test]
fn objects_of_the_operator_become_scraped_targets() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(FakeApiServer::start());
    let target = Target::showing("alive 1\n");
    let pod = json!({
        "metadata": {"namespace": "shop", "name": "web-1", "uid": "u", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "ports": [{"name": "metrics", "containerPort": target.port()}]}]},
        "status": {"podIP": "127.0.0.1", "phase": "Running"},
    });
    let secret = json!({"metadata": {"namespace": "shop", "name": "auth"}, "data": {"token": "czNjcjN0"}});
    server.apply_quietly("pods", &pod);
    server.apply_quietly("secrets", &secret);
    let port = free_port();
    let gateway = Gateway::start(&format!(
        "receivers:
  prometheus:
    prometheus_cr:
      enabled: true
      api_server: {}
      pod_monitor_selector: {{}}
      scrape_config_selector: {{}}
      scrape_interval: 1s
exporters: {{prometheus: {{endpoint: \"127.0.0.1:{port}\"}}}}
service: {{pipelines: {{metrics: {{receivers: [prometheus], exporters: [prometheus]}}}}}}
",
        server.url()
    ));
    let page = || {
        let page = http::get(port, "/metrics");
        page.map(|page| page.text()).unwrap_or_default()
    };
    let line = |name: &str| {
        let start = format!("{name}{{");
        page()
            .lines()
            .find(|line| line.starts_with(&start))
            .map(str::to_owned)
    };
    let monitor = json!({
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "podMetricsEndpoints": [
                {"port": "metrics", "bearerTokenSecret": {"name": "auth", "key": "token"}},
                {"port": "metrics", "oauth2": {"tokenUrl": "http://a"}},
            ],
        },
    });
    server.apply("podmonitors", &monitor);
    wait_until(SOON, "the target of the object is shown", || {
        line("alive").is_some()
    });
    let shown = line("alive").expect("it is there");
    for label in [
        "job=\"shop/web\"",
        "pod=\"web-1\"",
        "namespace=\"shop\"",
        "endpoint=\"metrics\"",
    ] {
        assert!(shown.contains(label), "{shown}");
    }
    let (_, headers) = &target.requests()[0];
    assert_eq!(headers["authorization"], "Bearer s3cr3t");
    let job = ["job=\"podMonitor/shop/web/0\""];
    let up = [job[0], "state=\"up\""];
    assert_eq!(gateway.own_metric("tidegate_scrape_targets", &up), 1.0);
    let scrapes = gateway.own_metric("tidegate_scrapes_total", &job);
    assert!(scrapes >= 1.0);
    let objects = ["kind=\"podmonitors\""];
    assert_eq!(gateway.own_metric("tidegate_kubernetes_objects", &objects), 1.0);
    server.delete("podmonitors", "shop", "web");
    wait_until(SOON, "the target is shown no more", || line("alive").is_none());
    let asked = target.asked();
    assert_eq!(gateway.own_metric("tidegate_scrape_targets", &up), 0.0);
    assert_eq!(gateway.own_metric("tidegate_kubernetes_objects", &objects), 0.0);
    let counted = gateway.own_metric("tidegate_scrapes_total", &job);
    assert!(counted >= scrapes, "{counted} {scrapes}");
    assert_eq!(counted, asked as f64, "each request is a scrape");
    let said = gateway.stop();
    assert!(said.contains("`oauth2` is not supported"), "{said}");
    assert!(!said.contains("s3cr3t"), "{said}");
    assert_eq!(target.asked(), asked, "no scraper asks any more");
}
