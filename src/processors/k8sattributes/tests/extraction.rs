// SPDX-License-Identifier: Apache-2.0

use super::*;

fn added(yaml: &str, all: &[(ObjectKind, Value)], attributes: &[(&str, &str)]) -> Vec<String> {
    World::of(yaml, all).added(attributes, Some("10.0.0.1"))
}

fn web() -> (ObjectKind, Value) {
    (
        ObjectKind::Pod,
        pod("web-7d4b9c-x", "10.0.0.1", "2026-01-05T10:00:00Z"),
    )
}

/// A pod of a controller.
fn owned(kind: &str, name: &str) -> (ObjectKind, Value) {
    let (of, mut pod) = web();
    pod["metadata"]["ownerReferences"] =
        json!([{"kind": kind, "name": name, "uid": "uid-owner", "controller": true}]);
    (of, pod)
}

#[test]
fn the_default_has_the_attributes_of_the_collector() {
    let all = [web(), (ObjectKind::ReplicaSet, replica_set())];
    let expected = [
        "container.image.name=registry:5000/shop/web",
        "container.image.tag=1.2",
        "k8s.deployment.name=web",
        "k8s.namespace.name=shop",
        "k8s.node.name=node-1",
        "k8s.pod.name=web-7d4b9c-x",
        "k8s.pod.start_time=2026-01-05T09:59:58Z",
        "k8s.pod.uid=uid-web-7d4b9c-x",
    ];
    assert_eq!(added("{}", &all, &[("k8s.container.name", "app")]), expected);
    // Of two containers, none is chosen.
    assert_eq!(added("{}", &all, &[]), expected[2..]);
}

#[test]
fn present_values_stay_and_empty_ones_are_replaced() {
    let before = [("k8s.pod.name", "mine"), ("k8s.node.name", "")];
    let world = World::of("{extract: {metadata: [k8s.pod.name, k8s.node.name]}}", &[web()]);
    let enricher = Enricher {
        rules: &world.rules,
        table: Some(&world.table),
        peer: Some("10.0.0.1".parse().unwrap()),
        counters: &MatchCounters::new(&"k".into()),
    };
    let resource = Resource {
        attributes: before.into_iter().collect(),
        ..Resource::default()
    };
    let after = enricher.enriched(&resource).unwrap().attributes;
    let expected: Attributes = [("k8s.pod.name", "mine"), ("k8s.node.name", "node-1")]
        .into_iter()
        .collect();
    assert_eq!(after, expected);
}

#[test]
fn owners_give_their_names_and_ids() {
    let yaml = "{extract: {metadata: [k8s.deployment.name, k8s.deployment.uid, k8s.replicaset.name, k8s.replicaset.uid,
        k8s.statefulset.name, k8s.daemonset.uid, k8s.job.name, k8s.cronjob.name, k8s.cronjob.uid]}}";
    let job = json!({"metadata": {"name": "tidy-29000000", "namespace": "shop", "uid": "uid-owner",
        "ownerReferences": [{"kind": "CronJob", "name": "tidy", "uid": "uid-cron", "controller": true}]}});
    let table: [(Vec<(ObjectKind, Value)>, Expected); 6] = [
        (
            vec![web(), (ObjectKind::ReplicaSet, replica_set())],
            &[
                "k8s.deployment.name=web",
                "k8s.deployment.uid=uid-deploy",
                "k8s.replicaset.name=web-7d4b9c",
                "k8s.replicaset.uid=uid-rs",
            ],
        ),
        (
            vec![web()],
            &["k8s.replicaset.name=web-7d4b9c", "k8s.replicaset.uid=uid-rs"],
        ),
        (vec![owned("StatefulSet", "db")], &["k8s.statefulset.name=db"]),
        (vec![owned("DaemonSet", "log")], &["k8s.daemonset.uid=uid-owner"]),
        (
            vec![owned("Job", "tidy-29000000"), (ObjectKind::Job, job)],
            &[
                "k8s.cronjob.name=tidy",
                "k8s.cronjob.uid=uid-cron",
                "k8s.job.name=tidy-29000000",
            ],
        ),
        (vec![owned("Job", "once-7")], &["k8s.job.name=once-7"]),
    ];
    for (all, expected) in table {
        assert_eq!(added(yaml, &all, &[]), expected);
    }
}

#[test]
fn the_name_of_a_deployment_may_come_from_its_replica_set() {
    let yaml = "{extract: {metadata: [k8s.deployment.name], deployment_name_from_replicaset: true}}";
    assert_eq!(added(yaml, &[web()], &[]), ["k8s.deployment.name=web"]);
    let world = World::new(yaml);
    assert!(world.rules.kinds().is_empty(), "no ReplicaSets are watched");
    let (kind, mut alone) = web();
    alone["metadata"]["labels"] = json!({});
    assert!(
        added(yaml, &[(kind, alone)], &[]).is_empty(),
        "no Deployment made it"
    );
}

#[test]
fn labels_and_annotations_become_attributes() {
    let yaml = "{extract: {metadata: [], otel_annotations: true,
      labels: [{key: app}, {tag_name: part, key: app.kubernetes.io/component},
        {tag_name: 'x.$1', key_regex: 'app\\.kubernetes\\.io/(.*)'}, {key_regex: 'app.*nent'},
        {tag_name: zone, key: zone, from: node}, {key_regex: 'env', from: namespace}],
      annotations: [{tag_name: team, key: team}, {key: gone}, {tag_name: owner, key: owner, from: deployment}]}}";
    let all = [
        web(),
        (ObjectKind::ReplicaSet, replica_set()),
        (
            ObjectKind::Node,
            json!({"metadata": {"name": "node-1", "uid": "n", "labels": {"zone": "z1"}}}),
        ),
        (
            ObjectKind::Namespace,
            json!({"metadata": {"name": "shop", "uid": "s", "labels": {"env": "prod", "envy": "no"}}}),
        ),
        (
            ObjectKind::Deployment,
            json!({"metadata": {"name": "web", "uid": "uid-deploy", "annotations": {"owner": "me"}}}),
        ),
    ];
    let expected = [
        "k8s.namespace.labels.env=prod",
        "k8s.pod.labels.app=web",
        "k8s.pod.labels.app.kubernetes.io/component=front",
        "owner=me",
        "part=front",
        "service.name=storefront",
        "team=blue",
        "x.component=front",
        "zone=z1",
    ];
    assert_eq!(added(yaml, &all, &[]), expected);
}

#[test]
fn objects_that_a_resource_names_need_no_pod() {
    let yaml = "{extract: {metadata: [k8s.node.uid], labels: [{tag_name: env, key: env, from: namespace}]}}";
    let all = [
        (
            ObjectKind::Node,
            json!({"metadata": {"name": "node-1", "uid": "n"}}),
        ),
        (
            ObjectKind::Namespace,
            json!({"metadata": {"name": "shop", "uid": "s", "labels": {"env": "prod"}}}),
        ),
    ];
    let named = [("k8s.namespace.name", "shop"), ("k8s.node.name", "node-1")];
    assert_eq!(added(yaml, &all, &named), ["env=prod", "k8s.node.uid=n"]);
}

#[test]
fn a_container_is_found_by_name_or_id() {
    let yaml = "{extract: {metadata: [k8s.container.name, container.id, container.image.tag]}}";
    let table: [(Given, Expected); 5] = [
        (
            &[("k8s.container.name", "app")],
            &["container.id=aa", "container.image.tag=1.2"],
        ),
        (&[("k8s.container.name", "log")], &["container.id=bb"]),
        (
            &[("container.id", "aa")],
            &["container.image.tag=1.2", "k8s.container.name=app"],
        ),
        (
            &[
                ("k8s.container.name", "app"),
                ("k8s.container.restart_count", "2"),
            ],
            &["container.image.tag=1.2"],
        ),
        (&[("k8s.container.name", "other")], &[]),
    ];
    for (attributes, expected) in table {
        assert_eq!(added(yaml, &[web()], attributes), expected, "{attributes:?}");
    }
    let (kind, mut single) = web();
    single["spec"]["containers"] = json!([{"name": "app", "image": "web"}]);
    let expected = [
        "container.id=aa",
        "container.image.tag=latest",
        "k8s.container.name=app",
    ];
    assert_eq!(added(yaml, &[(kind, single)], &[]), expected);
}

#[test]
fn a_service_is_named_by_labels_or_its_workload() {
    let yaml =
        "{extract: {metadata: [service.name, service.namespace, service.version, service.instance.id]}}";
    let container = [("k8s.container.name", "log")];
    let all = [web(), (ObjectKind::ReplicaSet, replica_set())];
    let expected = [
        "service.instance.id=shop.web-7d4b9c-x.log",
        "service.name=web",
        "service.namespace=shop",
        "service.version=sha256:ab",
    ];
    assert_eq!(added(yaml, &all, &container), expected);
    let (kind, mut labelled) = web();
    labelled["metadata"]["labels"] = json!({"app.kubernetes.io/name": "n", "app.kubernetes.io/instance": "i", "app.kubernetes.io/version": "7"});
    let found = added(yaml, &[(kind, labelled)], &[]);
    assert_eq!(
        found,
        ["service.name=i", "service.namespace=shop", "service.version=7"]
    );
}

#[test]
fn the_cluster_has_the_id_of_its_first_namespace() {
    let yaml = "{extract: {metadata: [k8s.cluster.uid]}}";
    let system = (
        ObjectKind::Namespace,
        json!({"metadata": {"name": "kube-system", "uid": "c1"}}),
    );
    assert_eq!(added(yaml, &[web(), system], &[]), ["k8s.cluster.uid=c1"]);
}

#[test]
fn excluded_pods_give_nothing() {
    let marked = |key: &str, value: &str| {
        let (kind, mut pod) = web();
        pod["metadata"]["annotations"] = json!({key: value});
        (kind, pod)
    };
    let ignore = "opentelemetry.io/k8s-processor/ignore";
    assert!(added("{}", &[marked(ignore, " True")], &[]).is_empty());
    assert!(!added("{}", &[marked(ignore, "no")], &[]).is_empty());
    assert!(added("{exclude: {pods: [{name: '^web'}]}}", &[web()], &[]).is_empty());
    let agent = (ObjectKind::Pod, pod("jaeger-agent-1", "10.0.0.1", ""));
    assert!(added("{}", std::slice::from_ref(&agent), &[]).is_empty());
    assert!(!added("{exclude: {pods: [{name: other}]}}", &[agent], &[]).is_empty());
}
