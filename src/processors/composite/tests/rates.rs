// SPDX-License-Identifier: Apache-2.0

//! Rates of a gateway that has just started.

use super::*;

#[tokio::test]
async fn a_rate_is_covered_one_window_after_the_first_batch() {
    const WINDOW: UnixNanos = 10_000_000_000;
    /// Longer than a sub-window, which is 100 ms.
    const PAUSE: Duration = Duration::from_millis(300);
    let yaml = "composites: [{name: hits_rate, metric: hits, function: rate, window: 10s}]";
    let (cx, _, _) = processor_context("composite", &Sink::new());
    let composites = Composites::new(settings::<CompositeProcessorConfig>(yaml).get(), cx).unwrap();
    let hit = || {
        let kinds = vec![kind("hits", Instrument::Counter, &[])];
        let batch = Batch::new(events("a", kinds, &[(0, 5)]));
        composites.push(batch).unwrap();
    };
    start(&composites).await;
    let started = unix_now();
    tokio::time::sleep(PAUSE).await;
    hit();
    let first = unix_now();
    tokio::time::sleep(PAUSE).await;
    hit();
    let state = |now| composites.set.list()[0].read(now)[0].state;
    assert_eq!(state(started + WINDOW), Freshness::Partial);
    assert_eq!(state(first + WINDOW), Freshness::Fresh);
    composites.stop(Instant::now()).await;
}
