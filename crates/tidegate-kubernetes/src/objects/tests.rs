// SPDX-License-Identifier: Apache-2.0

use serde_json::json;

use super::*;
use crate::ObjectKind;

const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","namespace":"shop","uid":"u-1",
  "resourceVersion":"42","labels":{"b":"2","a":"1","b":"3"},"annotations":null,"managedFields":[{"fieldsV1":{"f:x":{}}}],
  "ownerReferences":[{"kind":"Job","name":"j"},{"kind":"ReplicaSet","name":"web","controller":true}]},
  "spec":{"nodeName":"n1","containers":[{"name":"c","image":"i","ports":[{"containerPort":80,"protocol":"TCP"}],
  "env":[{"name":"SECRET","value":"x"}]}],"initContainers":null},"status":{"phase":"Running","podIP":"10.0.0.1"}}"#;

#[test]
fn an_object_has_the_fields_that_users_need() {
    let (object, version) = object(ObjectKind::Pod, POD.as_bytes()).unwrap();
    assert_eq!(version, "42");
    let metadata = &object.metadata;
    let labels: Vec<_> = metadata.labels.iter().collect();
    assert_eq!(labels, [("a", "1"), ("b", "3")]);
    assert_eq!(
        (metadata.labels.get("b"), metadata.labels.get("c")),
        (Some("3"), None)
    );
    let controller = metadata.controller.as_ref().unwrap();
    assert_eq!((&*controller.kind, &*controller.name), ("ReplicaSet", "web"));
    let Body::Pod(pod) = &object.body else {
        panic!("{object:?}")
    };
    assert_eq!(
        (&*pod.spec.node_name, pod.spec.containers[0].ports[0].port),
        ("n1", 80)
    );
    assert!(pod.spec.init_containers.is_empty());
    assert_eq!(&*object.key(), "shop/web-0");
}

#[test]
fn a_pod_has_the_fields_of_attributes() {
    let text = r#"{"metadata":{"name":"p","creationTimestamp":"2026-01-05T10:00:00Z",
      "ownerReferences":[{"kind":"ReplicaSet","name":"web","uid":"u-9","controller":true}]},
      "spec":{"hostname":"h","hostNetwork":true},"status":{"startTime":"2026-01-05T10:00:01Z",
      "containerStatuses":[{"name":"c","containerID":"x://1","restartCount":3}]}}"#;
    let object = KubeObject::from_json(ObjectKind::Pod, text.as_bytes()).unwrap();
    let metadata = &object.metadata;
    assert_eq!(&*metadata.created, "2026-01-05T10:00:00Z");
    assert_eq!(&*metadata.controller.as_ref().unwrap().uid, "u-9");
    let Body::Pod(pod) = &object.body else {
        panic!("{object:?}")
    };
    assert_eq!((&*pod.spec.hostname, pod.spec.host_network), ("h", true));
    assert_eq!(&*pod.status.started, "2026-01-05T10:00:01Z");
    assert_eq!(pod.status.container_statuses[0].restarts, 3);
}

#[test]
fn workloads_have_the_metadata_that_users_need() {
    let text = POD.replace(
        "\"uid\":\"u-1\"",
        "\"uid\":\"u-1\",\"creationTimestamp\":\"2026-01-05T10:00:00Z\"",
    );
    let read = |kind| KubeObject::from_json(kind, text.as_bytes()).unwrap();
    let set = read(ObjectKind::ReplicaSet);
    assert_eq!(set.body, Body::Workload);
    assert!(set.metadata.controller.is_some() && set.metadata.labels.iter().len() == 0);
    for kind in [
        ObjectKind::Deployment,
        ObjectKind::StatefulSet,
        ObjectKind::DaemonSet,
        ObjectKind::Job,
    ] {
        let object = read(kind);
        assert_eq!(object.metadata.labels.get("a"), Some("1"));
        assert!(object.metadata.created.is_empty());
        assert!(set.weight() < object.weight());
    }
}

#[test]
fn the_weight_of_an_object_covers_its_texts() {
    let small = KubeObject::from_json(ObjectKind::Pod, POD.as_bytes()).unwrap();
    let text = POD.replace("\"a\":\"1\"", &format!("\"a\":\"{}\"", "x".repeat(1_000)));
    let large = KubeObject::from_json(ObjectKind::Pod, text.as_bytes()).unwrap();
    assert_eq!(large.weight() - small.weight(), 999);
}

#[test]
fn bytes_that_are_no_object_are_refused() {
    for text in [
        "",
        "[]",
        "{}",
        r#"{"metadata":{}}"#,
        r#"{"metadata":{"name":"a"},"spec":7}"#,
    ] {
        assert!(
            KubeObject::from_json(ObjectKind::Pod, text.as_bytes()).is_err(),
            "{text}"
        );
    }
    let deep = format!(r#"{{"metadata":{{"name":"a"}},"x":{}}}"#, "[".repeat(100_000));
    assert!(KubeObject::from_json(ObjectKind::Namespace, deep.as_bytes()).is_err());
}

#[test]
fn events_are_read_by_their_type() {
    let read = |kind: &str, object: serde_json::Value| {
        let line = json!({"type": kind, "object": object}).to_string();
        watch_event(ObjectKind::Namespace, line.as_bytes())
    };
    let namespace = json!({"metadata": {"name": "a", "resourceVersion": "7"}});
    assert!(
        matches!(read("ADDED", namespace.clone()), Ok(ReadEvent::Applied("added", _, version)) if version == "7")
    );
    assert!(matches!(
        read("MODIFIED", namespace.clone()),
        Ok(ReadEvent::Applied("modified", ..))
    ));
    assert!(matches!(
        read("DELETED", namespace.clone()),
        Ok(ReadEvent::Deleted(..))
    ));
    let bookmark = json!({"metadata": {"resourceVersion": "9"}});
    assert!(matches!(read("BOOKMARK", bookmark), Ok(ReadEvent::Bookmark(version)) if version == "9"));
    let status = json!({"kind": "Status", "code": 410, "message": "too old"});
    assert!(matches!(read("ERROR", status), Ok(ReadEvent::Failed(410, message)) if message == "too old"));
    assert!(read("OTHER", namespace).is_err());
}

#[test]
fn the_beginning_of_an_event_names_its_object() {
    let named = |text: &str| {
        let found = identity(text.as_bytes());
        (
            found.namespace.unwrap_or_default(),
            found.name.unwrap_or_default(),
        )
    };
    let event = format!(r#"{{"type":"ADDED","object":{POD}}}"#);
    let both = ("shop".to_owned(), "web-0".to_owned());
    for end in [200, event.len()] {
        assert_eq!(named(&event[..end]), both);
    }
    assert_eq!(named(&POD[..100]), both);
    assert_eq!(named(&event[..20]), Default::default());
}
