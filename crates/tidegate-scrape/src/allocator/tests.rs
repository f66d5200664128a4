// SPDX-License-Identifier: Apache-2.0

use std::sync::Mutex;

use tidegate_pipeline::component::testing::{Sink, settings};
use tidegate_pipeline::component::{Lifecycle, Shared};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::Prometheus;

/// An allocator with fixed answers, by path.
struct FakeAllocator {
    port: u16,
    answers: Arc<Mutex<BTreeMap<String, (u16, String)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeAllocator {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let allocator = Self {
            port: listener.local_addr().unwrap().port(),
            answers: Arc::default(),
            asked: Arc::default(),
        };
        let (answers, asked) = (allocator.answers.clone(), allocator.asked.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    if stream.read_buf(&mut request).await.unwrap_or_default() == 0 {
                        break;
                    }
                }
                let request = String::from_utf8_lossy(&request).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                let known = answers.lock().unwrap().get(&path).cloned();
                let (status, body) = known.unwrap_or((404, String::new()));
                asked.lock().unwrap().push(path);
                let answer = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        allocator
    }

    fn answer(&self, path: &str, status: u16, body: &str) {
        let answer = (status, body.to_owned());
        self.answers.lock().unwrap().insert(path.to_owned(), answer);
    }

    fn count(&self, path: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|known| *known == path).count()
    }
}

async fn scrapes(shared: &Shared, expected: &[&str]) {
    let urls = || {
        let pools = shared.scrape_pools.list();
        let targets = pools.iter().flat_map(|pool| pool.active());
        let mut urls: Vec<_> = targets.map(|target| target.url.clone()).collect();
        urls.sort();
        urls
    };
    let begun = std::time::Instant::now();
    while urls() != expected {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{:?} is not {expected:?}",
            urls()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn receiver(allocator: &FakeAllocator) -> (Prometheus, Arc<Shared>, Arc<Sink>) {
    let sink = Sink::new();
    let yaml = format!(
        "target_allocator: {{endpoint: 'http://127.0.0.1:{}/', interval: 20ms, collector_id: 'gate/0',
            http_sd_config: {{refresh_interval: 20ms}}, http_scrape_config: {{bearer_token: t}}}}",
        allocator.port
    );
    let config = settings::<PrometheusReceiverConfig>(&yaml).get::<PrometheusReceiverConfig>();
    let cx = sink.receiver_context("prometheus");
    let shared = cx.base.shared.clone();
    (Prometheus::new(&config, &cx).unwrap(), shared, sink)
}

const TARGETS: &str = "/jobs/podMonitor%2Fshop%2Fweb%2F0/targets?collector_id=gate%2F0";

#[tokio::test]
async fn jobs_and_targets_follow_the_answers_of_the_allocator() {
    let allocator = FakeAllocator::start().await;
    let job = json!({
        "job_name": "podMonitor/shop/web/0", "scrape_interval": "100ms", "metrics_path": "/m",
        "convert_classic_histograms_to_nhcb": false, "bearer_token": "",
        "kubernetes_sd_configs": [{"role": "pod", "kubeconfig_file": ""}],
        "relabel_configs": [
            {"source_labels": ["__address__"], "target_label": "__tmp_hash", "modulus": 1, "action": "hashmod"},
            {"source_labels": ["__tmp_hash"], "regex": "$(SHARD)", "action": "keep"},
        ],
    });
    let jobs = json!({"podMonitor/shop/web/0": job}).to_string();
    allocator.answer("/scrape_configs", 200, &jobs);
    allocator.answer(TARGETS, 200, r#"[{"targets": ["a:1"], "labels": {"x": "y"}}]"#);
    let (receiver, shared, _sink) = receiver(&allocator);
    receiver.start().await.unwrap();
    scrapes(&shared, &["http://a:1/m"]).await;
    assert_eq!(shared.notices.list(), BTreeMap::new());
    allocator.answer(TARGETS, 200, r#"[{"targets": ["a:1", "b:1"]}]"#);
    scrapes(&shared, &["http://a:1/m", "http://b:1/m"]).await;
    // An allocator that fails, or says nonsense, changes nothing.
    for (status, body) in [(500, ""), (200, "[]"), (200, "{\"a\": 1}")] {
        allocator.answer("/scrape_configs", status, body);
        let asked = allocator.count("/scrape_configs");
        while allocator.count("/scrape_configs") < asked + 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        scrapes(&shared, &["http://a:1/m", "http://b:1/m"]).await;
    }
    allocator.answer("/scrape_configs", 200, r#"{"wrong": {"scrape_interval": "x"}}"#);
    scrapes(&shared, &[]).await;
    let said = format!("{:?}", shared.notices.list());
    assert!(
        said.contains("target_allocator: job wrong: scrape_interval"),
        "{said}"
    );
    allocator.answer("/scrape_configs", 200, &jobs);
    scrapes(&shared, &["http://a:1/m", "http://b:1/m"]).await;
    allocator.answer("/scrape_configs", 200, r#"{"wrong": {"scrape_interval": "x"}}"#);
    while shared.notices.list().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    receiver
        .stop(std::time::Instant::now() + Duration::from_secs(30))
        .await;
    assert_eq!(shared.notices.list(), BTreeMap::new());
}

#[test]
fn a_job_has_the_client_of_the_options_and_the_fallback_of_the_collector() {
    let text = json!({"a b": {"honor_labels": true}}).to_string();
    let jobs = described(text.as_bytes()).unwrap();
    let config = settings::<PrometheusReceiverConfig>(
        "{prometheus_cr: {enabled: true, pod_monitor_selector: {}},
          target_allocator: {endpoint: 'https://ta', collector_id: c, tls: {insecure_skip_verify: true, min_version: '1.3'},
            http_scrape_config: {basic_auth: {username: u}}}}",
    )
    .get::<PrometheusReceiverConfig>();
    let options = config.target_allocator.as_ref().unwrap();
    let mut job = crate::jobs::options_for_test(&jobs[0], &config);
    assert_eq!(
        job.fallback_scrape_protocol.unwrap().as_str(),
        "PrometheusText0.0.4"
    );
    add_targets(&mut job, options, "c");
    let discovery = &job.http_sd_configs[0];
    assert_eq!(discovery.url, "https://ta/jobs/a+b/targets?collector_id=c");
    assert!(discovery.tls_config.insecure_skip_verify && !discovery.follow_redirects);
    assert_eq!(job.basic_auth.unwrap().username, "u");
    assert!(job.honor_labels);
}

#[test]
fn a_job_whose_credentials_are_hidden_has_a_notice() {
    let hidden = json!({"username": "u", "password": "<secret>"});
    let text = json!({"a": {"basic_auth": hidden}, "b": {"basic_auth": {"username": "u", "password": "p"}}});
    let jobs = described(text.to_string().as_bytes()).unwrap();
    let options = |more: &str| {
        let yaml = format!("{{target_allocator: {{endpoint: 'http://ta', collector_id: c{more}}}}}");
        let config = settings::<PrometheusReceiverConfig>(&yaml).get::<PrometheusReceiverConfig>();
        config.target_allocator.clone().unwrap()
    };
    let notices = without_credentials(&jobs, &options(""));
    assert_eq!(notices.len(), 1);
    assert!(
        notices[0].starts_with("target_allocator: job a: the allocator hides"),
        "{notices:?}"
    );
    let replaced = options(", http_scrape_config: {bearer_token: t}");
    assert!(without_credentials(&jobs, &replaced).is_empty());
}
