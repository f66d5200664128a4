// SPDX-License-Identifier: Apache-2.0

//! Labels that targets have if `attach_metadata` wants them.

use serde_json::json;
use tidegate_kubernetes::ObjectKind as Kind;

use super::objects::{endpoints, job, namespace, node, pod, replica_set, slice};
use super::roles::NONE;
use super::*;

const ALL: Attached = Attached {
    node: true,
    namespace: true,
    deployment: true,
    job: true,
    cron_job: true,
};

#[test]
fn a_pod_has_the_labels_of_its_node_and_namespace_if_wanted() {
    let objects = [
        (Kind::Pod, pod()),
        (Kind::Node, node()),
        (Kind::Namespace, namespace()),
    ];
    let added = [
        "namespace_annotation_cost_unit=7",
        "namespace_annotationpresent_cost_unit=true",
        "namespace_label_team=a",
        "namespace_labelpresent_team=true",
        "node_label_topology_kubernetes_io_zone=eu-1a",
        "node_labelpresent_topology_kubernetes_io_zone=true",
        "node_name=node-1",
    ];
    let without = found(KubernetesRole::Pod, NONE, &objects);
    let with = found(KubernetesRole::Pod, ALL, &objects);
    assert_eq!(with.len(), 4);
    for (without, with) in without.iter().zip(&with) {
        let new: Vec<_> = with.iter().filter(|label| !without.contains(label)).collect();
        assert_eq!(new, added.iter().collect::<Vec<_>>());
    }
}

#[test]
fn pods_of_other_nodes_are_no_targets_if_nodes_are_wanted() {
    let mut other = node();
    other["metadata"]["name"] = json!("node-2");
    let objects = [(Kind::Pod, pod()), (Kind::Node, other)];
    assert_eq!(found(KubernetesRole::Pod, NONE, &objects).len(), 4);
    assert!(found(KubernetesRole::Pod, ALL, &objects).is_empty());
}

/// The labels of a pod of a controller that name its workloads.
fn workloads(role: KubernetesRole, attached: Attached, (kind, name): (&str, &str)) -> Vec<String> {
    let mut pod = pod();
    pod["metadata"]["ownerReferences"][0]["kind"] = json!(kind);
    pod["metadata"]["ownerReferences"][0]["name"] = json!(name);
    let objects = [
        (Kind::Endpoints, endpoints()),
        (Kind::EndpointSlice, slice()),
        (Kind::Pod, pod),
        (Kind::Node, node()),
        (Kind::ReplicaSet, replica_set()),
        (Kind::Job, job()),
    ];
    let names = ["pod_deployment_name=", "pod_job_name=", "pod_cronjob_name="];
    let is_workload = |label: &&String| names.iter().any(|name| label.starts_with(name));
    let mut found: Vec<Vec<String>> = found(role, attached, &objects)
        .iter()
        .filter(|labels| labels.iter().any(|label| label.starts_with("pod_name=")))
        .map(|labels| labels.iter().filter(is_workload).cloned().collect())
        .collect();
    found.dedup();
    assert_eq!(found.len(), 1, "all targets of a pod have the same: {found:?}");
    found.swap_remove(0)
}

#[test]
fn targets_have_the_names_of_the_workloads_of_their_pod_if_wanted() {
    let job_only = Attached { job: true, ..NONE };
    let cron_job_only = Attached {
        cron_job: true,
        ..NONE
    };
    let table: [(Attached, (&str, &str), &[&str]); 9] = [
        (ALL, ("ReplicaSet", "web-7d4b9c"), &["pod_deployment_name=web"]),
        (ALL, ("ReplicaSet", "other"), &[]),
        // A Job and a ReplicaSet may have the same name.
        (ALL, ("ReplicaSet", "report-2938"), &[]),
        (
            ALL,
            ("Job", "report-2938"),
            &["pod_cronjob_name=report", "pod_job_name=report-2938"],
        ),
        (ALL, ("Job", "web-7d4b9c"), &["pod_job_name=web-7d4b9c"]),
        (ALL, ("StatefulSet", "web-7d4b9c"), &[]),
        (NONE, ("ReplicaSet", "web-7d4b9c"), &[]),
        (job_only, ("Job", "report-2938"), &["pod_job_name=report-2938"]),
        (
            cron_job_only,
            ("Job", "report-2938"),
            &["pod_cronjob_name=report"],
        ),
    ];
    for role in [
        KubernetesRole::Pod,
        KubernetesRole::Endpoints,
        KubernetesRole::EndpointSlice,
    ] {
        for (attached, controller, expected) in table {
            let mut found = workloads(role, attached, controller);
            found.sort();
            assert_eq!(found, expected, "{role} {controller:?}");
        }
    }
}

#[test]
fn an_endpoint_has_the_labels_of_its_node_if_wanted() {
    let names = |target: Value, name: Value| {
        let mut endpoints = endpoints();
        let address = &mut endpoints["subsets"][0]["addresses"][0];
        (address["targetRef"], address["nodeName"]) = (target.clone(), name.clone());
        let mut slice = slice();
        let address = &mut slice["endpoints"][0];
        (address["targetRef"], address["nodeName"]) = (target, name);
        let mut other = node();
        other["metadata"]["name"] = json!("node-2");
        let objects = [
            (Kind::Endpoints, endpoints),
            (Kind::EndpointSlice, slice),
            (Kind::Node, node()),
            (Kind::Node, other),
        ];
        [KubernetesRole::Endpoints, KubernetesRole::EndpointSlice].map(|role| {
            let found = found(role, ALL, &objects);
            let name = |labels: &Vec<String>| {
                let name = labels.iter().find_map(|label| label.strip_prefix("node_name="));
                name.unwrap_or_default().to_owned()
            };
            assert_eq!(name(&found[1]), "", "{found:?}");
            name(&found[0])
        })
    };
    let of_node = json!({"kind": "Node", "name": "node-1"});
    assert_eq!(names(Value::Null, json!("node-1")), ["node-1", "node-1"]);
    assert_eq!(names(of_node.clone(), Value::Null), ["node-1", "node-1"]);
    // As with Prometheus, the roles differ in the name that wins.
    assert_eq!(names(of_node, json!("node-2")), ["node-2", "node-1"]);
}
