// SPDX-License-Identifier: Apache-2.0

use proptest::prelude::*;
use serde_json::json;
use tidegate_runtime::Limit;

use super::*;

fn store(limits: WatchLimits) -> ObjectStore {
    ObjectStore::new(ObjectKind::Namespace, limits, Arc::default())
}

fn namespace(name: &str, label: u8) -> String {
    json!({"metadata": {"name": name, "resourceVersion": "1", "labels": {"n": label.to_string()}}})
        .to_string()
}

fn event(kind: &str, object: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

/// Names with their labels.
fn shown(store: &ObjectStore) -> Vec<String> {
    let shown = |object: &Arc<StoredObject>| {
        let label = object.metadata.labels.get("n").unwrap_or_default();
        format!("{}={label}", object.metadata.name)
    };
    store.snapshot().iter().map(shown).collect()
}

fn list(store: &ObjectStore, objects: &[String]) {
    store.begin_list();
    for object in objects {
        store.take_listed(object.as_bytes()).unwrap();
    }
    store.end_list();
}

#[test]
fn users_wake_up_when_an_object_differs_and_not_otherwise() {
    let store = store(WatchLimits::default());
    let mut status = store.status();
    store.begin_list();
    store.take_listed(namespace("a", 1).as_bytes()).unwrap();
    assert!(!status.has_changed().unwrap(), "the list is not complete");
    store.end_list();
    assert!(status.borrow_and_update().is_synced);
    for kind in ["ADDED", "MODIFIED"] {
        store
            .take_event(event(kind, &namespace("a", 1)).as_bytes())
            .unwrap();
    }
    assert!(!status.has_changed().unwrap());
    store
        .take_event(event("MODIFIED", &namespace("a", 2)).as_bytes())
        .unwrap();
    assert!(status.has_changed().unwrap());
    assert_eq!(shown(&store), ["a=2"]);
}

#[test]
fn objects_beyond_the_limits_are_not_kept() {
    let limited = |objects, bytes| {
        let store = store(WatchLimits {
            objects,
            bytes,
            ..WatchLimits::default()
        });
        list(&store, &[namespace("a", 1), namespace("b", 1), namespace("c", 1)]);
        shown(&store)
    };
    assert_eq!(limited(2, 1 << 20), ["a=1", "b=1"]);
    assert_eq!(limited(100, 1_000), ["a=1"]);
}

#[test]
fn an_object_that_grows_over_the_limit_goes() {
    let store = store(WatchLimits {
        bytes: 1_000,
        ..WatchLimits::default()
    });
    list(&store, &[namespace("a", 1)]);
    let large = json!({"metadata": {"name": "a", "annotations": {"x": "y".repeat(2_000)}}}).to_string();
    store.take_event(event("MODIFIED", &large).as_bytes()).unwrap();
    assert!(shown(&store).is_empty());
    list(&store, &[namespace("a", 1), namespace("b", 1)]);
    let beginning = event("MODIFIED", &namespace("a", 2));
    store
        .take_skipped(Skipped::TooLarge, &beginning.as_bytes()[..75])
        .unwrap();
    assert!(shown(&store).is_empty());
}

#[test]
fn the_account_has_the_objects_until_their_last_user_is_gone() {
    let store = store(WatchLimits::default());
    let account = store.account().clone();
    list(&store, &[namespace("a", 1), namespace("b", 1)]);
    let both = account.reserved_bytes();
    assert_eq!(account.filled_bytes(), both);
    let snapshot = store.snapshot();
    list(&store, &[namespace("b", 1)]);
    assert_eq!(account.reserved_bytes(), both, "the snapshot has both");
    drop(snapshot);
    assert_eq!(account.reserved_bytes(), both / 2);
    drop(store);
    assert_eq!(account.reserved_bytes(), 0);
}

#[test]
fn an_object_without_memory_ends_the_watch() {
    let store = store(WatchLimits::default());
    store.account().add_limit(Limit::of(100_000));
    let large = json!({"metadata": {"name": "a", "annotations": {"x": "y".repeat(20_000)}}}).to_string();
    let error = store.take_event(event("ADDED", &large).as_bytes()).unwrap_err();
    assert!(error.loses_events(), "{error}");
    assert_eq!(store.account().reserved_bytes(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Apply(u8, u8),
    Delete(u8),
    /// A list after changes that the watch missed.
    List(Vec<(u8, u8)>),
    /// A list that broke after some objects, before the same list in full.
    BrokenList(Vec<(u8, u8)>, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pairs = || prop::collection::vec((0_u8..6, 0_u8..3), 0..6);
    let step = prop_oneof![
        4 => (0_u8..6, 0_u8..3).prop_map(|(name, label)| Step::Apply(name, label)),
        2 => (0_u8..6).prop_map(Step::Delete),
        1 => pairs().prop_map(Step::List),
        1 => (pairs(), 0_usize..6).prop_map(|(pairs, kept)| Step::BrokenList(pairs, kept)),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #[test]
    fn events_and_lists_give_the_objects_of_a_fresh_list(steps in steps()) {
        let followed = store(WatchLimits::default());
        let mut truth = std::collections::BTreeMap::<u8, u8>::new();
        let objects = |truth: &std::collections::BTreeMap<u8, u8>| -> Vec<String> {
            truth.iter().map(|(name, label)| namespace(&name.to_string(), *label)).collect()
        };
        for step in steps {
            match step {
                Step::Apply(name, label) => {
                    truth.insert(name, label);
                    let object = namespace(&name.to_string(), label);
                    followed.take_event(event("MODIFIED", &object).as_bytes()).unwrap();
                }
                Step::Delete(name) => {
                    let label = truth.remove(&name).unwrap_or_default();
                    let object = namespace(&name.to_string(), label);
                    followed.take_event(event("DELETED", &object).as_bytes()).unwrap();
                }
                Step::List(pairs) => {
                    truth = pairs.into_iter().collect();
                    list(&followed, &objects(&truth));
                }
                Step::BrokenList(pairs, kept) => {
                    truth = pairs.into_iter().collect();
                    followed.begin_list();
                    for object in objects(&truth).iter().take(kept) {
                        followed.take_listed(object.as_bytes()).unwrap();
                    }
                    list(&followed, &objects(&truth));
                }
            }
        }
        let fresh = store(WatchLimits::default());
        list(&fresh, &objects(&truth));
        prop_assert_eq!(shown(&followed), shown(&fresh));
        prop_assert_eq!(followed.account().reserved_bytes(), fresh.account().reserved_bytes());
    }
}
