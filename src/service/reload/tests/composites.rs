// SPDX-License-Identifier: Apache-2.0

//! Composites in reloads: those with equal declarations go on.

use tidegate_engine::Freshness;
use tokio::time::timeout;

use super::*;
use crate::batch::Points;
use crate::prom::catalog::testing;

const SUM: &str = "{name: depth_sum, metric: depth, function: last, across: sum}";

const MAX: &str = "{name: depth_max, metric: depth, function: max, across: max, window: 1h}";

const OTHER: &str = "{name: other, metric: x, function: sum}";

/// A plan with these composites, and a receiver at this address.
fn with_composites(composites: &[&str], address: &str) -> Plan {
    plan(&format!(
        "receivers: {{nop: {{}}, otlp: {{protocols: {{http: {{endpoint: \"{address}\"}}}}}}}}
processors: {{composite: {{composites: [{}]}}}}
exporters: {{nop: {{}}}}
service: {{pipelines: {{metrics: {{receivers: [nop, otlp], processors: [composite], exporters: [nop]}}}}}}",
        composites.join(", ")
    ))
}

/// Pushes a scrape of a target: its depth, or nothing if it is down.
fn scrape(running: &Running, target: &str, depth: Option<i64>) {
    let points = testing::scrape(&[("target", target)], "depth", depth, unix_now());
    let batch = Batch::new(Points {
        points: points.into(),
    });
    let mut members = running.members.iter();
    let receiver = members.find(|member| &*member.path == "receivers::nop").unwrap();
    let downstream = receiver.downstreams[Signal::Metrics as usize].clone().unwrap();
    downstream.push(batch).unwrap();
}

/// Target `a` lives, and target `b` has died.
fn scrape_two(running: &Running) {
    for depth in [1, 9, 2] {
        scrape(running, "a", Some(depth));
    }
    scrape(running, "b", Some(4));
    scrape(running, "b", None);
}

/// State, value, and the expected and the reporting sources.
type Quality = (Freshness, Option<f64>, usize, usize);

/// The composites of the depth, if target `a` has this depth, its largest was 9, and target `b` is down.
fn of_one_target(depth: f64) -> [Quality; 2] {
    [depth, 9.0].map(|value| (Freshness::Partial, Some(value), 2, 1))
}

/// The composites of the depth.
fn depths(shared: &Shared) -> [Quality; 2] {
    let of = |name| {
        let watched = listed(shared, name);
        let answer = watched.composite().read(unix_now()).remove(0);
        (
            answer.state,
            answer.value,
            answer.sources_expected,
            answer.sources_reporting,
        )
    };
    ["depth_sum", "depth_max"].map(of)
}

/// The composite of this name that readers find.
fn listed(shared: &Shared, name: &str) -> Arc<Watched> {
    let all = shared.composites.list();
    let mut named = all.iter().filter(|one| &*one.declaration().name == name);
    let found = named.next().unwrap().clone();
    assert!(named.next().is_none(), "{name} is listed once");
    found
}

#[tokio::test]
async fn a_dead_target_stays_expected_if_an_unrelated_composite_goes() {
    let address = "127.0.0.1:0";
    let (from, to) = (
        with_composites(&[SUM, OTHER, MAX], address),
        with_composites(&[SUM, MAX], address),
    );
    let shared = Arc::new(Shared::default());
    let mut running = run(&from, &shared).await;
    scrape_two(&running);
    assert_eq!(depths(&shared), of_one_target(2.0));
    let watched = listed(&shared, "depth_sum");
    let mut gone = listed(&shared, "other").follow();
    let mut follow = watched.follow();
    let mut depth = 2;
    for [old, new] in [[&from, &to], [&to, &from]] {
        let changes = running.reload(old, new, &[]).await.unwrap();
        running.finish(DRAIN).await;
        let rebuilt: Vec<_> = changes.rebuilt.iter().map(|path| &**path).collect();
        assert_eq!(rebuilt, ["processors::composite@metrics"]);
        assert_eq!(depths(&shared), of_one_target(depth as f64));
        depth += 1;
        scrape(&running, "a", Some(depth));
        // The other target is still down.
        scrape(&running, "b", None);
        assert_eq!(depths(&shared), of_one_target(depth as f64));
        assert!(Arc::ptr_eq(&listed(&shared, "depth_sum"), &watched));
        let event = timeout(DRAIN, follow.next()).await.expect("in time");
        assert!(event.is_some(), "the watch goes on");
    }
    let end = async { while gone.next().await.is_some() {} };
    timeout(DRAIN, end).await.expect("in time");
    running.stop(DRAIN).await;
}

/// The new processor has started when the receiver fails. The third one goes on with the composites of the first.
#[tokio::test]
async fn a_failed_reload_keeps_composites_and_their_sources() {
    let (_listener, taken) = taken();
    let changed = SUM.replace("across: sum", "across: max");
    let (from, to) = (
        with_composites(&[SUM, MAX, OTHER], "127.0.0.1:0"),
        with_composites(&[&changed, MAX], &taken.to_string()),
    );
    let shared = Arc::new(Shared::default());
    let mut running = run(&from, &shared).await;
    scrape_two(&running);
    let before = depths(&shared);
    let watched = ["depth_sum", "depth_max", "other"].map(|name| (name, listed(&shared, name)));
    fails(&mut running, &from, &to, taken).await;
    assert_eq!(depths(&shared), before);
    for (name, watched) in watched {
        assert!(Arc::ptr_eq(&listed(&shared, name), &watched), "{name}");
    }
    scrape(&running, "a", Some(3));
    assert_eq!(depths(&shared), of_one_target(3.0));
    running.stop(DRAIN).await;
}
