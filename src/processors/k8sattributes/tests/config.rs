// SPDX-License-Identifier: Apache-2.0

use super::*;
use tidegate_kubernetes::Scope;

fn scopes(yaml: &str) -> Vec<Scope> {
    let config: K8sAttributesConfig = options(yaml).unwrap();
    PodRules::new(&config).unwrap().scopes(&config.filter).unwrap()
}

fn shown(yaml: &str) -> Vec<String> {
    let shown = |scope: &Scope| {
        let namespace = scope.namespace.as_deref().unwrap_or("*");
        let kind = scope.kind.resource();
        format!(
            "{namespace}/{kind} [{}] [{}]",
            scope.label_selector, scope.field_selector
        )
    };
    scopes(yaml).iter().map(shown).collect()
}

#[test]
fn only_the_objects_that_are_needed_are_watched() {
    assert_eq!(shown("{}"), ["*/pods [] []", "*/replicasets [] []"]);
    assert_eq!(shown("{extract: {metadata: [k8s.pod.name]}}"), ["*/pods [] []"]);
    let filtered = "{extract: {metadata: [k8s.deployment.uid, k8s.cluster.uid, k8s.node.uid]}, filter: {node: n1, namespace: [a, b],
      fields: [{key: status.phase, value: Running}, {key: metadata.name, op: not-equals, value: x}],
      labels: [{key: app, value: web}, {key: tier, op: not-equals, value: db}, {key: x, op: exists}, {key: y, op: does-not-exist}]}}";
    let pods = "[app=web,tier!=db,x,!y] [status.phase=Running,metadata.name!=x,spec.nodeName=n1]";
    let expected = [
        format!("a/pods {pods}"),
        format!("b/pods {pods}"),
        "a/replicasets [] []".to_owned(),
        "b/replicasets [] []".to_owned(),
        "*/namespaces [] [metadata.name=kube-system]".to_owned(),
        "*/nodes [] [metadata.name=n1]".to_owned(),
    ];
    assert_eq!(shown(filtered), expected);
    let labels = "{extract: {metadata: [], labels: [{key: a, from: statefulset}, {key: b, from: job}]}}";
    assert_eq!(
        shown(labels),
        ["*/pods [] []", "*/statefulsets [] []", "*/jobs [] []"]
    );
}

#[test]
fn wrong_options_are_refused_with_the_remedy() {
    for (yaml, expected) in [
        ("{auth_type: none}", "use `serviceAccount` in a pod"),
        (
            "{extract: {metadata: [k8s.pod.names]}}",
            "did you mean `k8s.pod.name`?",
        ),
        (
            "{extract: {metadata: [container.image.repo_digests]}}",
            "is not supported",
        ),
        (
            "{extract: {labels: [{key: a, key_regex: b}]}}",
            "has both `key` and `key_regex`",
        ),
        (
            "{extract: {labels: [{tag_name: a}]}}",
            "needs `key` or `key_regex`",
        ),
        (
            "{filter: {fields: [{key: a, op: exists}]}}",
            "`exists` is for labels",
        ),
        ("{pod_association: [{sources: []}]}", "has 1 to 4 sources"),
        (
            "{pod_association: [{sources: [{from: resource_attribute}]}]}",
            "needs a `name`",
        ),
    ] {
        let problems = options::<K8sAttributesConfig>(yaml).unwrap_err();
        assert!(problems.contains(expected), "{yaml}: {problems}");
    }
}

#[test]
fn a_node_from_a_missing_variable_is_an_error() {
    let config: K8sAttributesConfig = options("{filter: {node_from_env_var: TIDEGATE_NO_SUCH}}").unwrap();
    let error = PodRules::new(&config)
        .unwrap()
        .scopes(&config.filter)
        .unwrap_err();
    assert!(
        error.to_string().contains("TIDEGATE_NO_SUCH is not set"),
        "{error}"
    );
}
