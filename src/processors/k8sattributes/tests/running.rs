// SPDX-License-Identifier: Apache-2.0

//! The processor with an API server.

use tempfile::TempDir;
use tidegate_kubernetes::testing::FakeApiServer;

use super::*;
use crate::batch::{Batch, Payload, convert};
use crate::component::testing::{Sink, settings};
use crate::component::{Context, Limit, Processor};
use crate::processors::k8sattributes::FACTORY;
use crate::processors::testing::{encoded, events, processor_context};

/// A processor, and its API server with a kubeconfig file.
struct Running {
    server: FakeApiServer,
    processor: Arc<dyn Processor>,
    sink: Arc<Sink>,
    base: Context,
    _directory: TempDir,
}

impl Running {
    /// `yaml` are options beside the access.
    async fn new(yaml: &str) -> Self {
        let server = FakeApiServer::start().await;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        std::fs::write(&path, server.kubeconfig()).unwrap();
        let sink = Sink::new();
        let (cx, base, _) = processor_context("k8sattributes", &sink);
        let yaml = format!(
            "{{auth_type: kubeConfig, kube_config_path: '{}', {yaml}}}",
            path.display()
        );
        let processor = (FACTORY.build)(&settings::<K8sAttributesConfig>(&yaml), cx).unwrap();
        Self {
            server,
            processor,
            sink,
            base,
            _directory: directory,
        }
    }

    /// The name of the pod that a request from an address gets. Empty: none.
    fn name(&self, ip: &str) -> String {
        self.value("k8s.pod.name", ip)
    }

    /// The attribute that a request from an address gets. Empty: none.
    fn value(&self, key: &str, ip: &str) -> String {
        let batch = Batch {
            peer: Some(ip.parse().unwrap()),
            ..Batch::new(encoded(&[("a", 1)]))
        };
        self.processor.push(batch).unwrap();
        let Payload::Encoded(encoded) = self.sink.batches().pop().unwrap().payload else {
            panic!("wire stays wire")
        };
        let points = convert::points(&encoded).unwrap();
        let value = points[0].series.resource.attributes.get(key);
        value.map_or_else(String::new, |value| value.to_string())
    }

    async fn until(&self, ip: &str, expected: &str) {
        let begun = Instant::now();
        while self.name(ip) != expected {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{} is not {expected}",
                self.name(ip)
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

const AT: &str = "2026-01-05T10:00:00Z";

#[tokio::test]
async fn pods_are_found_as_they_come_and_go() {
    let running = Running::new("wait_for_metadata: true, pod_delete_grace_period: 0s").await;
    running.server.apply_quietly("pods", &pod("a", "10.0.0.1", AT));
    running.processor.start().await.unwrap();
    assert_eq!(running.name("10.0.0.1"), "a");
    assert_eq!(running.name("10.0.0.9"), "");
    running.server.apply("pods", &pod("b", "10.0.0.2", AT));
    running.until("10.0.0.2", "b").await;
    running.server.delete("pods", "shop", "a");
    running.until("10.0.0.1", "").await;
    running.processor.stop(Instant::now()).await;
    assert_eq!(running.name("10.0.0.2"), "", "it has stopped");
}

#[tokio::test]
async fn lost_events_lead_to_a_new_list() {
    let running = Running::new("wait_for_metadata: true").await;
    running.server.apply_quietly("pods", &pod("a", "10.0.0.1", AT));
    running.processor.start().await.unwrap();
    while running.server.count("pods?watch=1") == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.server.apply_quietly("pods", &pod("b", "10.0.0.2", AT));
    running.server.forget_events();
    running.server.end_watches("pods");
    running.until("10.0.0.2", "b").await;
    assert_eq!(running.name("10.0.0.1"), "a");
    assert!(running.server.count("pods?limit") >= 2);
}

#[tokio::test]
async fn data_passes_unchanged_until_the_pods_are_known() {
    let mut running = Running::new("wait_for_metadata_timeout: 100ms").await;
    running.server.apply_quietly("pods", &pod("a", "10.0.0.1", AT));
    running.server.stop();
    running.processor.start().await.unwrap();
    assert_eq!(running.name("10.0.0.1"), "");
    assert_eq!(running.sink.items(), 1);
    running.server.restart().await;
    running.until("10.0.0.1", "a").await;
}

#[tokio::test]
async fn a_start_that_waits_fails_without_the_pods() {
    let mut running = Running::new("wait_for_metadata: true, wait_for_metadata_timeout: 50ms").await;
    running.server.stop();
    let error = running.processor.start().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("the API server has not sent the pods"), "{text}");
}

#[tokio::test]
async fn pipelines_share_the_watches_and_the_table() {
    let running = Running::new("wait_for_metadata: true").await;
    let sink = Sink::new();
    let (mut cx, ..) = processor_context("k8sattributes", &sink);
    cx.base = running.base.clone();
    running.server.apply_quietly("pods", &pod("a", "10.0.0.1", AT));
    running.processor.start().await.unwrap();
    let options = "{wait_for_metadata: true, wait_for_metadata_timeout: 1ms}";
    let other = (FACTORY.build)(&settings::<K8sAttributesConfig>(options), cx).unwrap();
    other.start().await.unwrap();
    assert_eq!(running.server.count("pods?limit"), 1);
}

#[tokio::test]
async fn sources_of_events_are_edited_once_a_table() {
    let running = Running::new("wait_for_metadata: true, extract: {metadata: [k8s.pod.uid]}").await;
    running.server.apply_quietly("pods", &pod("a", "10.0.0.1", AT));
    running.processor.start().await.unwrap();
    let mut before = events("agent", Vec::new(), &[]);
    let mut source = (*before.source).clone();
    source.resource = Arc::new(Resource {
        attributes: [("k8s.pod.ip", "10.0.0.1")].into_iter().collect(),
        ..Resource::default()
    });
    before.source = Arc::new(source);
    let pushed = |count: usize| {
        (0..count).for_each(|_| drop(running.processor.push(Batch::new(before.clone())).unwrap()));
        let Payload::Events(events) = running.sink.batches().pop().unwrap().payload else {
            panic!("events stay events")
        };
        events.source.clone()
    };
    let first = pushed(1);
    let uid = first.resource.attributes.get("k8s.pod.uid").unwrap().to_string();
    assert_eq!(uid, "uid-a");
    // Another pod makes another table, and the source stays the same.
    running.server.apply("pods", &pod("b", "10.0.0.2", AT));
    let begun = Instant::now();
    while running.value("k8s.pod.uid", "10.0.0.2") != "uid-b" {
        assert!(begun.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(Arc::ptr_eq(&first, &pushed(2)));
}

#[test]
fn passthrough_adds_the_address_alone() {
    let sink = Sink::new();
    let (cx, ..) = processor_context("k8sattributes", &sink);
    let processor = (FACTORY.build)(&settings::<K8sAttributesConfig>("{passthrough: true}"), cx).unwrap();
    for peer in [Some("10.0.0.1".parse().unwrap()), None] {
        let batch = Batch {
            peer,
            ..Batch::new(encoded(&[("a", 1)]))
        };
        processor.push(batch).unwrap();
    }
    let attributes = |batch: Batch| {
        let points = convert::points(&batch.payload.encode()).unwrap();
        points[0].series.resource.attributes.clone()
    };
    let passed: Vec<_> = sink.batches().into_iter().map(attributes).collect();
    let expected: Attributes = [("k8s.pod.ip", "10.0.0.1")].into_iter().collect();
    assert_eq!(passed, [expected, Attributes::default()]);
}

#[tokio::test]
async fn a_resource_without_memory_for_its_attributes_stays() {
    let running = Running::new("wait_for_metadata: true").await;
    running.server.apply_quietly("pods", &pod("a", "10.0.0.1", AT));
    running.processor.start().await.unwrap();
    running.until("10.0.0.1", "a").await;
    let memory = &running.base.shared.memory;
    memory.add_limit(Limit::of(10));
    memory.note(11);
    assert_eq!(running.name("10.0.0.1"), "");
    memory.remove_limit(Limit::of(10));
    assert_eq!(running.name("10.0.0.1"), "a");
    running.processor.stop(Instant::now()).await;
}
