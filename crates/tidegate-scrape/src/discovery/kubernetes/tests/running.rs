// SPDX-License-Identifier: Apache-2.0

use proptest::prelude::*;
use serde_json::json;
use tidegate_kubernetes::testing::FakeApiServer;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::objects::{node, pod, replica_set, service, slice};
use super::*;
use crate::config::PrometheusReceiverConfig;
use crate::discovery::{DiscoveredTargets, Discoveries};
use crate::metrics::ScrapeMetrics;
use tidegate_pipeline::batch::Signal;
use tidegate_pipeline::component::testing::{Sink, settings};

/// The discoveries of jobs.
struct Jobs {
    findings: Vec<mpsc::Receiver<(usize, DiscoveredTargets)>>,
    memory: Arc<Account>,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl Jobs {
    fn start(server: &FakeApiServer, options: &[&str]) -> Self {
        let mut jobs = Self {
            findings: Vec::new(),
            memory: Arc::default(),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        for options in options {
            let yaml = format!(
                "config: {{scrape_configs: [{{job_name: j, kubernetes_sd_configs: [{{api_server: '{}', {options}}}]}}]}}",
                server.url()
            );
            let config = settings::<PrometheusReceiverConfig>(&yaml).get::<PrometheusReceiverConfig>();
            let discoveries = Discoveries::new(&config.config.scrape_configs[0]).unwrap();
            let metrics = ScrapeMetrics::new("r".into(), "j".into(), Sink::new().entry(Signal::Metrics));
            let findings = discoveries.start(&Arc::new(metrics), &jobs.memory, &jobs.stopping, &jobs.tasks);
            jobs.findings.push(findings);
        }
        jobs
    }

    /// The addresses that a job finds next.
    async fn next(&mut self, job: usize) -> Vec<String> {
        let found = self.next_found(job).await;
        let address = |labels: &Labels| labels.get("__address__").to_owned();
        found.labels.iter().map(address).collect()
    }

    /// The targets that a job finds next.
    async fn next_found(&mut self, job: usize) -> DiscoveredTargets {
        loop {
            let next = tokio::time::timeout(Duration::from_secs(30), self.findings[job].recv());
            let (source, found) = next.await.expect("a finding in time").expect("it runs");
            if source == 1 {
                return found;
            }
        }
    }

    async fn stop(self) {
        self.stopping.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

#[tokio::test]
async fn targets_follow_the_objects() {
    let server = FakeApiServer::start().await;
    server.apply_quietly("pods", &pod());
    server.apply_quietly("services", &service());
    server.apply_quietly("endpointslices", &slice());
    let mut jobs = Jobs::start(&server, &["role: endpointslice"]);
    let all = [
        "10.1.0.7:8080",
        "10.1.0.8:8080",
        "10.1.0.7:9090",
        "10.1.0.7:15090",
    ];
    assert_eq!(jobs.next(0).await, all);
    while server.count("watch=1") < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.delete("pods", "shop", "web-7d4b9c-x2x9z");
    assert_eq!(jobs.next(0).await, all[..2]);
    server.delete("endpointslices", "shop", "web-abcde");
    assert!(jobs.next(0).await.is_empty());
    jobs.stop().await;
}

#[tokio::test]
async fn jobs_share_the_watches_of_a_server() {
    let server = FakeApiServer::start().await;
    server.apply_quietly("pods", &pod());
    let options = ["role: pod", "role: pod", "role: endpoints"];
    let mut jobs = Jobs::start(&server, &options);
    assert_eq!(jobs.next(0).await.len(), 4);
    assert_eq!(jobs.next(1).await.len(), 4);
    assert!(jobs.next(2).await.is_empty());
    assert_eq!(server.count("/api/v1/pods?limit"), 1, "{:?}", server.requests());
    assert!(server.count("/api/v1/pods?watch") <= 1, "{:?}", server.requests());
    jobs.stop().await;
}

#[tokio::test]
async fn namespaces_and_selectors_reduce_the_requests() {
    let server = FakeApiServer::start().await;
    server.apply_quietly("pods", &pod());
    server.apply_quietly("nodes", &node());
    let options = "role: pod, namespaces: {names: [shop, other]}, attach_metadata: {node: true},
        selectors: [{role: pod, label: app=web, field: spec.nodeName=a}, {role: node, label: x}]";
    let mut jobs = Jobs::start(&server, &[options]);
    assert_eq!(jobs.next(0).await.len(), 4);
    let selectors = "limit=500&labelSelector=app%3Dweb&fieldSelector=spec.nodeName%3Da";
    for path in ["/api/v1/namespaces/shop/pods?", "/api/v1/namespaces/other/pods?"] {
        assert_eq!(
            server.count(&format!("{path}{selectors}")),
            1,
            "{:?}",
            server.requests()
        );
    }
    assert_eq!(server.count("/api/v1/nodes?limit=500&labelSelector=x"), 1);
    jobs.stop().await;
}

#[tokio::test]
async fn workloads_are_watched_in_the_namespaces_of_the_pods() {
    let server = FakeApiServer::start().await;
    server.apply_quietly("pods", &pod());
    let options =
        "namespaces: {names: [shop]}, attach_metadata: {deployment: true, job: true, cronjob: true}";
    let options = ["pod", "endpoints", "service"].map(|role| format!("role: {role}, {options}"));
    let mut jobs = Jobs::start(&server, &options.each_ref().map(String::as_str));
    let named = |found: &DiscoveredTargets| {
        let name = |labels: &Labels| labels.get("__meta_kubernetes_pod_deployment_name").to_owned();
        found.labels.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(named(&jobs.next_found(0).await), [""; 4]);
    for job in [1, 2] {
        assert!(jobs.next(job).await.is_empty());
    }
    for path in [
        "/apis/apps/v1/namespaces/shop/replicasets?",
        "/apis/batch/v1/namespaces/shop/jobs?",
    ] {
        assert_eq!(
            server.count(&format!("{path}limit")),
            1,
            "{:?}",
            server.requests()
        );
    }
    while server.count("replicasets?watch=1") < 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.apply("replicasets", &replica_set());
    while named(&jobs.next_found(0).await) != ["web"; 4] {}
    jobs.stop().await;
}

#[tokio::test]
async fn the_name_of_a_job_needs_no_watch() {
    let server = FakeApiServer::start().await;
    server.apply_quietly("pods", &pod());
    let mut jobs = Jobs::start(&server, &["role: pod, attach_metadata: {job: true}"]);
    assert_eq!(jobs.next(0).await.len(), 4);
    assert_eq!(server.count("/apis/"), 0, "{:?}", server.requests());
    jobs.stop().await;
}

#[tokio::test]
async fn targets_are_on_the_account_and_refused_without_memory() {
    let server = FakeApiServer::start().await;
    server.apply_quietly("pods", &pod());
    let mut jobs = Jobs::start(&server, &["role: pod"]);
    let memory = jobs.memory.clone();
    assert_eq!(jobs.next(0).await.len(), 4);
    jobs.stop().await;
    while memory.reserved_bytes() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    memory.add_limit(tidegate_pipeline::component::Limit::of(20_000));
    let stored = KubeObject::from_json(ObjectKind::Pod, pod().to_string().as_bytes()).unwrap();
    let objects = Objects::new(std::iter::once(&stored), Attached::default());
    let refused = listed(&objects, KubernetesRole::Pod, Held::new(memory.clone()));
    assert!(refused.is_err());
    assert_eq!(memory.reserved_bytes(), 0);
}

/// A change of the cluster: the kind of the object, its number, a port or none if it is gone, and whether the watch sees it.
type Change = (bool, u8, Option<u16>, bool);

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = (
        any::<bool>(),
        0_u8..4,
        prop::option::of(1_u16..4),
        prop::bool::weighted(0.8),
    );
    prop::collection::vec(change, 1..25)
}

fn numbered_pod(number: u8, port: u16) -> Value {
    let mut object = pod();
    object["metadata"]["name"] = json!(format!("pod-{number}"));
    object["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(port);
    object
}

fn numbered_slice(number: u8, port: u16) -> Value {
    let mut object = slice();
    object["metadata"]["name"] = json!(format!("slice-{number}"));
    object["endpoints"][0]["targetRef"]["name"] = json!(format!("pod-{number}"));
    object["ports"][0]["port"] = json!(port);
    object
}

fn change(server: &FakeApiServer, (is_pod, number, port, is_seen): Change) {
    let (resource, name) = if is_pod {
        ("pods", "pod")
    } else {
        ("endpointslices", "slice")
    };
    let object = if is_pod { numbered_pod } else { numbered_slice };
    let name = format!("{name}-{number}");
    match (port, is_seen) {
        (Some(port), true) => server.apply(resource, &object(number, port)),
        (Some(port), false) => server.apply_quietly(resource, &object(number, port)),
        (None, true) => server.delete(resource, "shop", &name),
        (None, false) => server.delete_quietly(resource, "shop", &name),
    }
}

/// The targets of watches, as a text.
fn current(watches: &[Arc<SharedWatch>]) -> Vec<Vec<String>> {
    let objects: Vec<_> = watches.iter().flat_map(|watch| watch.snapshot()).collect();
    let objects = Objects::new(objects.iter().map(|object| &***object), Attached::default());
    let made = listed(&objects, KubernetesRole::EndpointSlice, Held::new(Arc::default())).unwrap();
    made.labels.iter().map(shown).collect()
}

async fn follow(changes: Vec<Change>) {
    let server = FakeApiServer::start().await;
    server.limit_pages(2);
    let memory = Arc::default();
    let open = || {
        let client = ApiClient::new(server.server()).unwrap();
        let cluster = Cluster::with_limits(client, &memory, tidegate_kubernetes::WatchLimits::default());
        let scopes = scopes(KubernetesRole::EndpointSlice, None, &[], Attached::default());
        scopes
            .into_iter()
            .map(|scope| cluster.watch(scope))
            .collect::<Vec<_>>()
    };
    let followed = open();
    for watch in &followed {
        watch.status().wait_for(|status| status.is_synced).await.unwrap();
    }
    let is_missed = changes.iter().any(|(_, _, _, is_seen)| !is_seen);
    for of in changes {
        change(&server, of);
    }
    if is_missed {
        server.forget_events();
        for resource in ["pods", "endpointslices"] {
            server.end_watches(resource);
        }
    }
    let fresh = open();
    for watch in &fresh {
        watch.status().wait_for(|status| status.is_synced).await.unwrap();
    }
    let expected = current(&fresh);
    let begun = std::time::Instant::now();
    while current(&followed) != expected {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{:?} is not {expected:?}",
            current(&followed)
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn events_and_lists_give_the_targets_of_a_fresh_list(changes in changes()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(follow(changes));
    }
}

#[tokio::test(start_paused = true)]
async fn outside_a_pod_the_discovery_waits_for_the_files_of_one() {
    let yaml = "config: {scrape_configs: [{job_name: j, kubernetes_sd_configs: [{role: pod}]}]}";
    let config = settings::<PrometheusReceiverConfig>(yaml).get::<PrometheusReceiverConfig>();
    let discoveries = Discoveries::new(&config.config.scrape_configs[0]).expect("valid outside a pod");
    let metrics = Arc::new(ScrapeMetrics::new(
        "r".into(),
        "j".into(),
        Sink::new().entry(Signal::Metrics),
    ));
    let (stopping, tasks) = (CancellationToken::new(), TaskTracker::new());
    let mut findings = discoveries.start(&metrics, &Arc::default(), &stopping, &tasks);
    let waited = tokio::time::timeout(Duration::from_secs(100), async {
        while let Some((source, _)) = findings.recv().await {
            assert_eq!(source, 0, "only the fixed targets are found");
        }
    });
    assert!(waited.await.is_err(), "it waits for the files of the pod");
    stopping.cancel();
    tasks.close();
    tasks.wait().await;
}
