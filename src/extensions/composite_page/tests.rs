// SPDX-License-Identifier: Apache-2.0

//! The page as a reader of this node sees it.

use super::*;
use crate::component::testing::{context, settings};
use crate::watch::testing::{Bench, Computed};

const PATIENCE: Duration = Duration::from_secs(60);

async fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "in time");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn the_page_follows_the_composites_and_ends_with_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page");
    let yaml = format!(
        "{{path: {}, interval: 1ms, composites: [queue_*]}}",
        path.display()
    );
    let extension = CompositePage::new(
        settings::<CompositePageConfig>(&yaml).get(),
        context("extensions", "composite_page"),
    );
    let (mut depth, mut other) = (
        Bench::new("queue_depth", Vec::new()),
        Bench::new("usage", Vec::new()),
    );
    for bench in [&depth, &other] {
        extension.base.shared.composites.add(bench.watched.clone());
    }
    extension.start().await.unwrap();
    depth.observe("m", 4.0);
    other.observe("m", 1.0);
    let reader = tidegate_page::Reader::open(&path).unwrap();
    let handle = until(|| reader.find("queue_depth", "model=\"m\"").ok()).await;
    let read = until(|| reader.read(&handle).ok()).await;
    assert_eq!(
        (read.value, read.state, read.sources_expected),
        (Some(4.0), tidegate_page::State::Fresh, 1)
    );
    assert_eq!(read.quantiles().len(), 1);
    depth.observe("m", 5.0);
    until(|| reader.read(&handle).ok().filter(|read| read.value == Some(5.0))).await;
    assert!(reader.find("usage", "model=\"m\"").is_err(), "not asked for");
    assert!(reader.is_alive(unix_now(), PATIENCE));
    let second = CompositePage::new(
        settings::<CompositePageConfig>(&yaml).get(),
        context("extensions", "composite_page/2"),
    );
    let error = second.start().await.unwrap_err().to_string();
    assert!(error.contains(&path.display().to_string()), "{error}");
    extension.stop(Instant::now() + PATIENCE).await;
    assert!(!path.exists());
}

#[tokio::test]
async fn an_expression_for_the_page_runs_on_no_thread_of_the_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page");
    let config = settings::<CompositePageConfig>(&format!("{{path: {}}}", path.display())).get();
    let extension = CompositePage::new(config, context("extensions", "composite_page"));
    let computed = Computed::new("derived");
    extension.base.shared.composites.add(computed.watched.clone());
    extension.start().await.unwrap();
    let written = async || tokio::time::sleep(Duration::from_millis(50)).await;
    computed.is_computed_apart(written).await;
    let reader = tidegate_page::Reader::open(&path).unwrap();
    let handle = until(|| reader.find("derived", "").ok()).await;
    let value = || reader.read(&handle).ok().and_then(|read| read.value);
    assert_eq!(until(value).await, 7.0);
    extension.stop(Instant::now() + PATIENCE).await;
}

#[tokio::test]
async fn an_expression_that_is_stuck_keeps_no_other_from_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page");
    let config = settings::<CompositePageConfig>(&format!("{{path: {}}}", path.display())).get();
    let extension = CompositePage::new(config, context("extensions", "composite_page"));
    let (stuck, computed) = (Computed::new("a_stuck"), Computed::new("derived"));
    stuck.is_stuck().await;
    for one in [&stuck, &computed] {
        extension.base.shared.composites.add(one.watched.clone());
    }
    extension.start().await.unwrap();
    let written = async || tokio::time::sleep(Duration::from_millis(50)).await;
    computed.is_computed_apart(written).await;
    let reader = tidegate_page::Reader::open(&path).unwrap();
    for name in ["a_stuck", "derived"] {
        let handle = until(|| reader.find(name, "").ok()).await;
        let value = || reader.read(&handle).ok().and_then(|read| read.value);
        assert_eq!(until(value).await, 7.0, "{name}");
    }
    extension.stop(Instant::now() + PATIENCE).await;
}

#[tokio::test(start_paused = true)]
async fn the_stop_does_not_wait_for_an_expression_that_is_stuck() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page");
    let config =
        settings::<CompositePageConfig>(&format!("{{path: {}, interval: 1m}}", path.display())).get();
    let extension = CompositePage::new(config, context("extensions", "composite_page"));
    let stuck = Computed::new("stuck");
    stuck.is_stuck().await;
    extension.base.shared.composites.add(stuck.watched.clone());
    extension.start().await.unwrap();
    // Until the writer waits; time stands still as long as there is something to do.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let begun = tokio::time::Instant::now();
    extension.stop(Instant::now() + PATIENCE).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(!path.exists());
}

#[test]
fn what_would_let_others_write_is_refused() {
    for wrong in [
        "mode: \"0666\"",
        "mode: \"0400\"",
        "interval: 0s",
        "capacity: 0",
        "composites: ['regex:[']",
    ] {
        let mut problems = Problems::default();
        let yaml = format!("{{path: /dev/shm/x, {wrong}}}");
        let node = crate::config::parse_text("a.yaml", &yaml, &mut problems).unwrap();
        let _: Option<CompositePageConfig> = crate::config::Decode::decode(&node, &mut problems);
        assert_ne!(problems.to_string(), "", "{wrong}");
    }
}
