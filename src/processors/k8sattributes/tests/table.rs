// SPDX-License-Identifier: Apache-2.0

use super::*;

const NAME_ONLY: &str = "{extract: {metadata: [k8s.pod.name]}}";

fn pods(all: &[(&str, &str, &str)]) -> Vec<Objects> {
    let each = all
        .iter()
        .map(|(name, ip, started)| object(ObjectKind::Pod, &pod(name, ip, started)));
    vec![(ObjectKind::Pod, each.collect())]
}

fn found(world: &World) -> Vec<String> {
    world.added(&[], Some("10.0.0.1"))
}

#[test]
fn a_reused_address_leads_to_the_newest_pod() {
    let mut world = World::new(NAME_ONLY);
    let old = ("old", "10.0.0.1", "2026-01-05T10:00:00Z");
    let new = ("new", "10.0.0.1", "2026-01-05T11:00:00Z");
    for order in [[old, new], [new, old]] {
        world.build(&pods(&order), Instant::now());
        assert_eq!(found(&world), ["k8s.pod.name=new"]);
    }
    world.build(&pods(&[new]), Instant::now());
    assert_eq!(
        found(&world),
        ["k8s.pod.name=new"],
        "the old pod does not come back"
    );
}

#[test]
fn a_deleted_pod_is_found_for_a_while() {
    let mut world = World::new(NAME_ONLY);
    let now = Instant::now();
    world.build(&pods(&[("a", "10.0.0.1", "2026-01-05T10:00:00Z")]), now);
    world.build(&pods(&[]), now);
    assert_eq!(found(&world), ["k8s.pod.name=a"]);
    assert_eq!(
        (world.builder.pods(), world.builder.next_end()),
        (1, Some(now + GRACE))
    );
    world.build(
        &pods(&[("b", "10.0.0.1", "2026-01-05T10:00:00Z")]),
        now + GRACE / 2,
    );
    assert_eq!(
        found(&world),
        ["k8s.pod.name=b"],
        "a living pod has the address now"
    );
    world.build(&pods(&[]), now + GRACE);
    assert_eq!(found(&world), ["k8s.pod.name=b"]);
    world.build(&pods(&[]), now + GRACE * 2);
    assert!(found(&world).is_empty());
    assert_eq!((world.builder.pods(), world.builder.next_end()), (0, None));
}

#[test]
fn unchanged_pods_keep_their_entries() {
    let mut world = World::new("{}");
    let one = pods(&[("a", "10.0.0.1", "2026-01-05T10:00:00Z")]);
    world.build(&one, Instant::now());
    let before = world.table.pods.values().next().unwrap().clone();
    world.build(&one, Instant::now());
    assert!(Arc::ptr_eq(&before, world.table.pods.values().next().unwrap()));
    // The ReplicaSet comes later, and changes the entry.
    let mut with_owner = one.clone();
    with_owner.push((
        ObjectKind::ReplicaSet,
        vec![object(ObjectKind::ReplicaSet, &replica_set())],
    ));
    world.build(&with_owner, Instant::now());
    assert!(found(&world).contains(&"k8s.deployment.name=web".to_owned()));
    assert_eq!(world.table.version, 3);
}

#[test]
fn all_memory_is_on_the_account_and_comes_back() {
    let mut world = World::new("{extract: {labels: [{tag_name: '$1', key_regex: '(.*)'}]}}");
    let mut large = pod("a", "10.0.0.1", "2026-01-05T10:00:00Z");
    large["metadata"]["labels"]["long"] = json!("x".repeat(100_000));
    let large = vec![(ObjectKind::Pod, vec![object(ObjectKind::Pod, &large)])];
    world.build(&large, Instant::now());
    let reserved = world.account.reserved_bytes();
    assert!((100_000..200_000).contains(&reserved), "{reserved}");
    let account = world.account.clone();
    drop(world);
    assert_eq!(account.reserved_bytes(), 0);
}

#[test]
fn a_table_without_memory_is_refused_and_made_later() {
    let mut world = World::new(NAME_ONLY);
    world.account.set_default_limit(1);
    let one = pods(&[("a", "10.0.0.1", "2026-01-05T10:00:00Z")]);
    assert!(world.builder.build(&one, Instant::now()).is_err());
    world.account.set_default_limit(1 << 30);
    world.build(&one, Instant::now());
    assert_eq!(found(&world), ["k8s.pod.name=a"]);
}
