// SPDX-License-Identifier: Apache-2.0

//! Test helpers for components: a sink that keeps its batches and refuses pushes on request.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
pub use tidegate_runtime::testing::free_port;
use tidegate_wal::{Fsync, Quota, Rules, Storage};

use super::services::Services;
use super::{Cluster, Consumer, Context, Entry, EntryCounts, Flow, ReceiverContext, Refused, Shared};
use crate::batch::{Batch, Payload, Signal};

/// A consumer that keeps every batch, and refuses the next `refusals` pushes.
#[derive(Default)]
pub struct Sink {
    batches: Mutex<Vec<Batch>>,
    refusals: AtomicUsize,
}

impl Sink {
    /// An empty sink.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Makes the sink refuse the next pushes.
    pub fn refuse(&self, pushes: usize) {
        self.refusals.store(pushes, SeqCst);
    }

    /// The remaining refusals.
    pub fn refusals_left(&self) -> usize {
        self.refusals.load(SeqCst)
    }

    /// The batches that it took.
    pub fn batches(&self) -> Vec<Batch> {
        self.batches.lock().clone()
    }

    /// The number of items in these batches.
    pub fn items(&self) -> usize {
        self.batches().iter().map(Batch::items).sum()
    }

    /// The kind and value of every event so far.
    pub fn events(&self) -> Vec<(String, f64)> {
        let mut all = Vec::new();
        for batch in self.batches() {
            let Payload::Events(events) = &batch.payload else {
                continue;
            };
            for (at, kind) in events.kinds.iter().enumerate() {
                let name = events.schema.kinds[usize::from(*kind)].name.to_string();
                all.push((name, events.values.get(at).unwrap()));
            }
        }
        all
    }

    /// An entry that leads to this sink.
    pub fn entry(self: &Arc<Self>, signal: Signal) -> Entry {
        Entry::new(signal, self.clone(), Arc::<EntryCounts>::default())
    }

    /// The context of a receiver whose signals all lead to this sink.
    pub fn receiver_context(self: &Arc<Self>, id: &str) -> ReceiverContext {
        ReceiverContext {
            base: context("receivers", id),
            entries: Signal::ALL.map(|signal| Some(self.entry(signal))),
        }
    }
}

impl Consumer for Sink {
    fn admit(&self, _: &Batch, _: &mut Flow) -> Result<(), Refused> {
        let refused = self
            .refusals
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        match refused {
            Ok(_) => Err(Refused::busy("set to refuse", Duration::from_millis(1))),
            Err(_) => Ok(()),
        }
    }

    fn consume(&self, batch: Batch, _: &mut Flow) {
        self.batches.lock().push(batch);
    }
}

/// The context of a component outside of any graph.
pub fn context(section: &str, id: &str) -> Context {
    Context {
        path: format!("{section}::{id}").into(),
        id: id.into(),
        shared: Arc::new(Shared::default()),
    }
}

/// Checks that `of` gives a component the same value again after it is rebuilt, and another component a value of its own.
pub fn keeps_one_for_each_component<T>(of: impl Fn(&Context) -> Arc<T>) {
    let base = context("receivers", "a");
    let first = of(&base);
    assert!(Arc::ptr_eq(&first, &of(&base)));
    let other = Context {
        shared: base.shared,
        ..context("receivers", "b")
    };
    assert!(!Arc::ptr_eq(&first, &of(&other)));
}

/// Adds a cluster with the id `cluster`. Its engine does not run.
pub fn add_cluster(shared: &Shared) -> Arc<Cluster> {
    let cluster = Arc::new(Cluster::new("test", 1));
    let services = Services {
        cluster: Some(cluster.clone()),
        ..Services::default()
    };
    shared.services.add("cluster".to_owned(), services);
    cluster
}

/// Logs in a directory, of at most `limit` bytes.
pub fn storage(directory: &Path, limit: u64) -> Arc<Storage> {
    Arc::new(Storage {
        directory: directory.to_owned(),
        rules: Rules {
            fsync: Fsync::Never,
            segment_bytes: 4096,
        },
        quota: Quota::new(limit),
    })
}

/// Adds a storage with the id `file_storage`.
pub fn add_storage(shared: &Shared, storage: Arc<Storage>) {
    let services = Services {
        storage: Some(storage),
        ..Services::default()
    };
    shared.services.add("file_storage".to_owned(), services);
}

/// Decodes options of type `C` from YAML, or returns the problems.
///
/// # Errors
/// The text is not YAML, or its options are invalid for `C`.
pub fn options<C: tidegate_config::Decode>(yaml: &str) -> Result<C, String> {
    let (options, problems) = decoded(yaml);
    options
        .filter(|_| !problems.has_errors())
        .ok_or_else(|| problems.to_string())
}

/// The errors and the warnings of options of type `C`.
pub fn problems<C: tidegate_config::Decode>(yaml: &str) -> String {
    decoded::<C>(yaml).1.to_string()
}

/// Decodes options that are wrong. Panics unless the errors of each contain the text beside it.
pub fn names_mistakes<C: tidegate_config::Decode>(mistakes: &[(&str, &str)]) {
    for (yaml, expected) in mistakes {
        let (_, problems) = decoded::<C>(yaml);
        let said = problems.to_string();
        assert!(problems.has_errors() && said.contains(expected), "{yaml}: {said}");
    }
}

fn decoded<C: tidegate_config::Decode>(yaml: &str) -> (Option<C>, tidegate_config::Problems) {
    let mut problems = tidegate_config::Problems::default();
    let node = tidegate_config::parse_text("test.yaml", yaml, &mut problems);
    let options = node.and_then(|node| C::decode(&node, &mut problems));
    (options, problems)
}

/// Decodes options of type `C` from YAML. Panics with the problems.
pub fn settings<C: tidegate_config::Decode + Send + Sync + 'static>(yaml: &str) -> super::Settings {
    let mut problems = tidegate_config::Problems::default();
    let node = tidegate_config::parse_text("test.yaml", yaml, &mut problems);
    let settings = node.and_then(|node| (super::ConfigType::of::<C>().decode)(&node, &mut problems));
    settings
        .filter(|_| !problems.has_errors())
        .unwrap_or_else(|| panic!("{problems}"))
}

/// Whether a future does not end within 50 ms. The future is dropped then; pass a reference to go on with it.
pub async fn is_pending(future: impl Future) -> bool {
    let limit = Duration::from_millis(50);
    tokio::time::timeout(limit, future).await.is_err()
}

/// Waits until `done` returns true, for at most a minute.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
