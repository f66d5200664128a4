// SPDX-License-Identifier: Apache-2.0

//! Numbers, waiting, thresholds.

use std::time::Duration;

use super::testing::{Bench, Computed, threshold};
use super::*;

/// Long enough for a busy machine; nothing waits so long unless it fails.
const PATIENCE: Duration = Duration::from_secs(30);

async fn next(follow: &mut Follow) -> WatchEvent {
    let next = tokio::time::timeout(PATIENCE, follow.next()).await;
    next.expect("an event in time").expect("a composite that stays")
}

fn changed(event: WatchEvent) -> Vec<(String, Option<f64>)> {
    match event {
        WatchEvent::Changed(groups) => {
            let told = groups
                .iter()
                .map(|one| (one.answer.attributes.to_string(), one.answer.value));
            told.collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_number_grows_with_every_change_and_only_then() {
    let mut bench = Bench::new("depth", Vec::new());
    let now = unix_now();
    let absent = bench.watched.read(now);
    assert_eq!(absent.answers[0].answer.state, Freshness::Absent);
    bench.observe("a", 3.0);
    let one = bench.watched.read(unix_now());
    assert!(one.seq > absent.seq);
    assert_eq!(bench.watched.read(unix_now()).seq, one.seq, "nothing has changed");
    bench.observe("b", 4.0);
    let two = bench.watched.read(unix_now());
    let seqs: Vec<u64> = two.answers.iter().map(|group| group.seq).collect();
    assert_eq!(
        seqs[0], one.answers[0].seq,
        "the number of a group is that of its own last change"
    );
    assert!(seqs[1] > one.seq && two.seq == seqs[1]);
}

#[tokio::test]
async fn a_watcher_gets_each_change_once() {
    let mut bench = Bench::new("depth", Vec::new());
    bench.keep_looking();
    bench.observe("a", 3.0);
    let mut follow = bench.watched.follow();
    assert_eq!(
        changed(next(&mut follow).await),
        [("model=a".to_owned(), Some(3.0))]
    );
    bench.observe("b", 4.0);
    assert_eq!(
        changed(next(&mut follow).await),
        [("model=b".to_owned(), Some(4.0))]
    );
    let seq = bench.watched.seq();
    let mut known = bench.watched.follow().after(seq);
    let told = tokio::time::timeout(Duration::from_millis(100), known.next()).await;
    assert!(told.is_err(), "nothing is new: {told:?}");
    let mut later = bench
        .watched
        .follow()
        .after(seq)
        .only(Filter::parse(["model=a"]).unwrap());
    bench.observe("b", 5.0);
    bench.observe("a", 6.0);
    assert_eq!(
        changed(next(&mut later).await),
        [("model=a".to_owned(), Some(6.0))]
    );
    // A number of another run: everything is new.
    let mut other = bench.watched.follow().after(u64::MAX);
    assert_eq!(changed(next(&mut other).await).len(), 2);
}

#[tokio::test]
async fn changes_keep_their_distance_and_crossings_do_not_wait() {
    let mut bench = Bench::new("depth", vec![threshold(10.0, 8.0)]);
    bench.keep_looking();
    bench.observe("a", 1.0);
    let mut follow = bench.watched.follow().every(Duration::from_hours(1));
    assert_eq!(changed(next(&mut follow).await).len(), 1);
    for (value, is_crossed) in [(11.0, true), (7.0, false)] {
        bench.observe("a", 9.0);
        bench.observe("a", value);
        match next(&mut follow).await {
            WatchEvent::Crossed(crossing) => {
                assert_eq!(
                    (crossing.is_crossed, crossing.group.answer.value),
                    (is_crossed, Some(value))
                );
                assert_eq!(&*crossing.threshold.name, "above 10");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_watcher_with_a_threshold_of_its_own_hears_of_that_alone() {
    let mut bench = Bench::new("depth", Vec::new());
    bench.keep_looking();
    bench.observe("a", 20.0);
    bench.observe("b", 1.0);
    let mut follow = bench.watched.follow().across(threshold(10.0, 8.0));
    let mut told = Vec::new();
    for step in 0..3 {
        match next(&mut follow).await {
            WatchEvent::Crossed(crossing) => {
                told.push((crossing.group.answer.attributes.to_string(), crossing.is_crossed));
            }
            other => panic!("{other:?}"),
        }
        bench.observe("a", 9.0);
        bench.observe(["b", "a", "c"][step], [11.0, 2.0, 0.0][step]);
    }
    let expected = [("a", true), ("b", true), ("a", false)];
    let expected: Vec<_> = expected
        .iter()
        .map(|(model, is)| (format!("model={model}"), *is))
        .collect();
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_watcher_gets_the_end_of_its_composite_after_all_changes() {
    let mut bench = Bench::new("depth", Vec::new());
    bench.observe("a", 3.0);
    let mut follow = bench.watched.follow();
    changed(next(&mut follow).await);
    let last = async {
        bench.observe("a", 4.0);
        bench.watched.read(unix_now());
        bench.watched.set_listed(false);
    };
    let (event, ()) = tokio::join!(next(&mut follow), last);
    assert_eq!(changed(event), [("model=a".to_owned(), Some(4.0))]);
    let end = tokio::time::timeout(PATIENCE, follow.next()).await;
    assert!(end.expect("the end in time").is_none());
    // The same for one that waits.
    bench.watched.set_listed(true);
    let end = tokio::time::timeout(PATIENCE, follow.next());
    let (end, ()) = tokio::join!(end, async { bench.watched.set_listed(false) });
    assert!(end.expect("the end in time").is_none());
}

#[tokio::test]
async fn a_composite_is_not_read_without_watchers() {
    let mut bench = Bench::new("depth", Vec::new());
    bench.keep_looking();
    for value in 0..50 {
        bench.observe("a", f64::from(value));
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.watched.seen().looks, 0);
    let mut follow = bench.watched.follow();
    next(&mut follow).await;
    assert!(bench.watched.seen().looks > 0);
}

#[tokio::test]
async fn a_watcher_of_a_quiet_group_costs_one_look_per_tick() {
    let mut bench = Bench::new("depth", Vec::new());
    bench.keep_looking();
    bench.observe("quiet", 1.0);
    let seq = bench.watched.read(unix_now()).seq;
    let quiet = Filter::parse(["model=quiet"]).unwrap();
    let mut follow = bench.watched.follow().after(seq).only(quiet);
    let begun = std::time::Instant::now();
    let waiting = tokio::spawn(async move { drop(follow.next().await) });
    let mut value = 0.0;
    while begun.elapsed() < Duration::from_millis(200) {
        value += 1.0;
        bench.observe("busy", value);
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished());
    let (looks, ticks) = (
        bench.watched.seen().looks,
        begun.elapsed().as_millis() / TICK.as_millis(),
    );
    assert!(u128::from(looks) <= ticks + 5, "{looks} looks in {ticks} ticks");
}

#[test]
fn nan_after_nan_is_not_a_change() {
    let mut bench = Bench::new("depth", Vec::new());
    bench.observe("a", f64::NAN);
    let mut answer = bench.watched.read(unix_now()).answers[0].answer.clone();
    answer.value = Some(f64::NAN);
    assert!(ComparableValue::of(&answer) == ComparableValue::of(&answer));
}

#[tokio::test]
async fn a_watched_expression_is_computed_outside_the_runtime() {
    let computed = Computed::new("derived");
    let watched = &computed.watched;
    let refreshed = async || {
        watched.refresh().await;
        watched.read(unix_now());
    };
    computed.is_computed_apart(refreshed).await;
    let followed = async || _ = next(&mut watched.follow()).await;
    computed.is_computed_apart(followed).await;
    let looking = tokio::spawn({
        let watched = watched.clone();
        async move { watched.keep_looking().await }
    });
    let mut waiting = watched.follow();
    changed(next(&mut waiting).await);
    let looked_at = async || tokio::time::sleep(BY_TIME * 3).await;
    computed.is_computed_apart(looked_at).await;
    looking.abort();
}
