// SPDX-License-Identifier: Apache-2.0

//! Readers of expressions that take long.

use std::time::Duration;

use super::*;
use crate::watch::testing::{Computed, until};

/// A reader that has begun to wait, as far as it gets.
async fn reader(computed: &Computed) -> tokio::task::JoinHandle<()> {
    let watched = computed.watched.clone();
    let reader = tokio::spawn(async move { watched.refresh().await });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    reader
}

#[tokio::test]
async fn two_readers_have_an_expression_computed_once() {
    let computed = Computed::new("derived");
    computed.is_stuck().await;
    let readers = [reader(&computed).await, reader(&computed).await];
    assert!(readers.iter().all(|reader| !reader.is_finished()), "they wait");
    // The first took so long that readers do not have it computed again.
    std::thread::sleep(Duration::from_millis(2));
    computed.latch.open();
    for reader in readers {
        reader.await.unwrap();
    }
    assert_eq!(computed.latch.entered(), 1);
}

#[tokio::test]
async fn a_reader_that_is_dropped_gives_its_turn_back() {
    let computed = Computed::new("derived");
    let turn = &computed.watched.turn;
    computed.holds_next();
    let computing = reader(&computed).await;
    until(|| computed.latch.entered() == 1).await;
    let waiting = reader(&computed).await;
    for reader in [computing, waiting] {
        reader.abort();
        assert!(reader.await.unwrap_err().is_cancelled());
    }
    assert_eq!(turn.available_permits(), 0, "until the work is done");
    computed.latch.open();
    until(|| turn.available_permits() == 1).await;
    computed.holds_next();
    let next = reader(&computed).await;
    until(|| computed.latch.entered() == 1).await;
    computed.latch.open();
    next.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn readers_of_a_stuck_expression_get_its_last_value() {
    let computed = Computed::new("derived");
    computed.is_stuck().await;
    let watched = computed.watched.clone();
    for _ in 0..2 {
        let begun = tokio::time::Instant::now();
        watched.refresh().await;
        refresh(std::slice::from_ref(&watched)).await;
        let waited = begun.elapsed();
        assert!((2 * PATIENCE..3 * PATIENCE).contains(&waited), "{waited:?}");
        assert_eq!(watched.read(unix_now()).answers[0].answer.value, Some(7.0));
    }
    assert_eq!(computed.latch.entered(), 1, "and nothing else is begun");
}

#[tokio::test]
async fn an_expression_does_not_wait_for_one_that_is_stuck() {
    let stuck = [0; 2 * AT_ONCE].map(|_| Computed::new("stuck"));
    for one in &stuck {
        one.is_stuck().await;
    }
    let quick = Computed::new("quick");
    let mut all: Vec<Arc<Watched>> = stuck.iter().map(|one| one.watched.clone()).collect();
    all.push(quick.watched.clone());
    quick.holds_next();
    let refreshing = tokio::spawn(async move { refresh(&all).await });
    until(|| quick.latch.entered() == 1).await;
    quick.latch.open();
    assert!(!refreshing.is_finished(), "the others are stuck");
    refreshing.abort();
}
