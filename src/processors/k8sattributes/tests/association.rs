// SPDX-License-Identifier: Apache-2.0

use super::*;

const NAME_ONLY: &str = "extract: {metadata: [k8s.pod.name]}";

fn pods() -> Vec<(ObjectKind, Value)> {
    let mut second = pod("b", "fd00:0::2", "2026-01-05T10:00:00Z");
    second["status"]["containerStatuses"][0]["containerID"] = json!("containerd://cc");
    vec![
        (ObjectKind::Pod, pod("a", "10.0.0.1", "2026-01-05T10:00:00Z")),
        (ObjectKind::Pod, second),
    ]
}

#[test]
fn a_pod_is_found_by_address_in_the_order_of_the_default() {
    let world = World::of(&format!("{{{NAME_ONLY}}}"), &pods());
    let table: [(Given, Option<&str>, Expected); 8] = [
        (&[], Some("10.0.0.1"), &["k8s.pod.name=a"]),
        (&[], Some("fd00::2"), &["k8s.pod.name=b"]),
        (
            &[("k8s.pod.ip", "fd00::2")],
            Some("10.0.0.1"),
            &["k8s.pod.name=b"],
        ),
        (&[("ip", "fd00::2")], Some("10.0.0.1"), &["k8s.pod.name=b"]),
        (&[("host.name", "fd00::2")], Some("10.0.0.1"), &["k8s.pod.name=a"]),
        (&[("host.name", "10.0.0.1")], None, &["k8s.pod.name=a"]),
        (&[("host.name", "web")], None, &[]),
        // The first value that is there decides, even if no pod has it.
        (&[("k8s.pod.ip", "10.9.9.9")], Some("10.0.0.1"), &[]),
    ];
    for (attributes, peer, expected) in table {
        assert_eq!(world.added(attributes, peer), expected, "{attributes:?} {peer:?}");
    }
}

#[test]
fn configured_associations_are_tried_in_their_order() {
    let yaml = format!(
        "{{{NAME_ONLY}, pod_association: [
           {{sources: [{{from: resource_attribute, name: k8s.pod.name}}, {{from: resource_attribute, name: k8s.namespace.name}}]}},
           {{sources: [{{from: resource_attribute, name: k8s.pod.uid}}]}},
           {{sources: [{{from: resource_attribute, name: container.id}}]}},
           {{sources: [{{from: connection}}]}}]}}"
    );
    let world = World::of(&yaml, &pods());
    let table: [(Given, Expected); 6] = [
        (&[("k8s.pod.uid", "uid-b")], &["k8s.pod.name=b"]),
        (&[], &["k8s.pod.name=a"]),
        // Both sources must be there.
        (
            &[("k8s.namespace.name", "shop"), ("k8s.pod.uid", "uid-b")],
            &["k8s.pod.name=b"],
        ),
        (&[("k8s.pod.uid", "uid-gone")], &[]),
        (&[("k8s.pod.name", "b"), ("k8s.namespace.name", "elsewhere")], &[]),
        (&[("container.id", "cc")], &["k8s.pod.name=b"]),
    ];
    for (attributes, expected) in table {
        assert_eq!(
            world.added(attributes, Some("10.0.0.1")),
            expected,
            "{attributes:?}"
        );
    }
}

#[test]
fn an_attribute_that_pods_add_identifies_them_too() {
    let yaml = "{extract: {metadata: [k8s.pod.name], labels: [{tag_name: app, key: app}]},
      pod_association: [{sources: [{from: resource_attribute, name: app}, {from: connection}]}]}";
    let world = World::of(yaml, &pods());
    assert_eq!(
        world.added(&[("app", "web")], Some("10.0.0.1")),
        ["k8s.pod.name=a"]
    );
    assert!(world.added(&[("app", "other")], Some("10.0.0.1")).is_empty());
    assert!(world.added(&[("app", "web")], None).is_empty());
}

#[test]
fn pods_in_the_network_of_their_node_are_not_found_by_address() {
    let mut host = pod("a", "192.168.0.1", "2026-01-05T10:00:00Z");
    host["spec"]["hostNetwork"] = json!(true);
    let world = World::of(&format!("{{{NAME_ONLY}}}"), &[(ObjectKind::Pod, host.clone())]);
    assert!(world.added(&[], Some("192.168.0.1")).is_empty());
    assert!(world.added(&[("k8s.pod.ip", "192.168.0.1")], None).is_empty());
    let by_uid = "pod_association: [{sources: [{from: resource_attribute, name: k8s.pod.uid}]}]";
    let world = World::of(&format!("{{{NAME_ONLY}, {by_uid}}}"), &[(ObjectKind::Pod, host)]);
    assert_eq!(world.added(&[("k8s.pod.uid", "uid-a")], None), ["k8s.pod.name=a"]);
}

#[test]
fn the_address_of_the_connection_is_added_if_it_is_wanted() {
    let world = World::of("{extract: {metadata: [k8s.pod.ip]}}", &pods());
    assert_eq!(world.added(&[], Some("10.0.0.1")), ["k8s.pod.ip=10.0.0.1"]);
    assert_eq!(world.added(&[], Some("10.9.9.9")), ["k8s.pod.ip=10.9.9.9"]);
}
