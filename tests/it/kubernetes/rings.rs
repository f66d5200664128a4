// SPDX-License-Identifier: Apache-2.0

//! Rings in the directories of pods: their counts have the attributes of the pods that own them.

use std::fs;

use serde_json::{Value, json};
use tidegate_ring::{Event, Layout, Writer};

use super::ApiServer;
use crate::kit::{Gateway, SOON, free_port, http, wait_until};

const UIDS: [&str; 2] = [
    "0f4b8a52-3c1d-4e6f-9a7b-0123456789ab",
    "1f4b8a52-3c1d-4e6f-9a7b-0123456789ab",
];

fn pod(name: &str, uid: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": uid},
        "spec": {"nodeName": "node-1", "containers": [{"name": "engine", "image": "engine:1"}]},
        "status": {"podIP": "10.0.0.1"},
    })
}

#[test]
fn rings_in_directories_of_pods_are_counted_by_pod() {
    let (api, page, directory) = (ApiServer::start(), free_port(), tempfile::tempdir().unwrap());
    let (kubeconfig, root) = (directory.path().join("kubeconfig"), directory.path().join("nixl"));
    fs::write(&kubeconfig, api.kubeconfig()).unwrap();
    for (name, uid) in ["decode-0", "decode-1"].iter().zip(UIDS) {
        api.server.apply_quietly("pods", &pod(name, uid));
    }
    // Agents of two pods have one name. The third ring is in no directory of a pod.
    let places = [root.join(UIDS[0]), root.join(UIDS[1]), root.clone()];
    let mut rings: Vec<_> = places
        .iter()
        .map(|place| {
            fs::create_dir_all(place).unwrap();
            Writer::create(place.join("agent"), Layout::V4, 64).unwrap()
        })
        .collect();
    let gateway = Gateway::start(&format!(
        "receivers: {{nixl: {{directories: [\"{root}\", \"{root}/*\"]}}}}
processors:
  k8sattributes:
    auth_type: kubeConfig
    kube_config_path: {}
    wait_for_metadata: true
    extract: {{metadata: [k8s.pod.name, k8s.node.name]}}
    pod_association: [{{sources: [{{from: resource_attribute, name: k8s.pod.uid}}]}}]
  aggregate: {{rules: [{{match: {{name: agent_tx_bytes}}, instrument: counter, by: [agent_name, k8s.pod.name, k8s.node.name]}}]}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:{page}\"}}}}
service:
  pipelines:
    metrics: {{receivers: [nixl], processors: [k8sattributes, aggregate], exporters: [prometheus]}}
",
        kubeconfig.display(),
        root = root.display(),
    ));
    for (ring, value) in rings.iter_mut().zip([1, 20, 300]) {
        ring.push_all(&[Event {
            kind: 0,
            value,
            timestamp_us: 0,
        }]);
    }
    let expected = [
        "agent_tx_bytes_total{agent_name=\"agent\",k8s_node_name=\"node-1\",k8s_pod_name=\"decode-0\"} 1",
        "agent_tx_bytes_total{agent_name=\"agent\",k8s_node_name=\"node-1\",k8s_pod_name=\"decode-1\"} 20",
        "agent_tx_bytes_total{agent_name=\"agent\"} 300",
    ];
    let lines = || -> Vec<String> {
        let text = http::get(page, "/metrics").expect("a page").text();
        let counts = text.lines().filter(|line| line.starts_with("agent_tx_bytes"));
        let mut counts: Vec<_> = counts.map(str::to_owned).collect();
        counts.sort_unstable();
        counts
    };
    wait_until(SOON, "all rings are counted", || lines().len() >= expected.len());
    assert_eq!(lines(), expected);
    let enriched = "tidegate_k8sattributes_enriched_resources_total";
    assert_eq!(gateway.own_metric(enriched, &[]), 2.0);
    let unmatched = "tidegate_k8sattributes_unmatched_resources_total";
    assert_eq!(gateway.own_metric(unmatched, &["reason=\"no_identifier\""]), 1.0);
    gateway.stop();
}
