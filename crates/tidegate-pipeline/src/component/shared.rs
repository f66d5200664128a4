// SPDX-License-Identifier: Apache-2.0

//! The state that the components of one gateway share: tables, composites, and the memory in use.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_engine::{Key, Table, UnixNanos};
use tidegate_promql::{Labels, Query};
use tidegate_wal::Store;

use super::account::Account;
use super::downstream::Wiring;
pub use super::health::{Confirm, Health, Phase, ReadToken};
use super::overview::Overview;
use super::queue_level::QueueLevel;
use super::reloads::Reloads;
use super::services::ServicesById;
use super::slow::Slowness;
use super::tap::Taps;
use super::targets::ScrapePool;
use crate::watch::Watched;

/// The shared state. Each running gateway has one.
#[derive(Default)]
pub struct Shared {
    /// The tables of the components that run. The service owns this list: it adds a table when its component has started
    /// and removes it when the component has stopped, in a reload when its successor runs. Queries read it. Exporters do
    /// not: the graph builder attaches their tables.
    pub tables: Registry<Table>,
    /// Composites, which readers can read at any time. The service owns this list too.
    pub composites: Registry<Watched>,
    /// The scrape pools of the receivers.
    pub scrape_pools: Registry<ScrapePool>,
    /// The levels of the sending queues.
    pub queues: Registry<QueueLevel>,
    /// The memory in use, and the memory reserved.
    pub memory: Arc<Account>,
    /// Whether the gateway can accept data.
    pub health: Health,
    details: AtomicBool,
    /// The observers of slow batches.
    pub slowness: Slowness,
    /// The evaluator of PromQL over the live tables. Only the first one is used.
    pub evaluators: Registry<Evaluator>,
    /// Probable configuration mistakes.
    pub notices: Notices,
    /// The services of the extensions.
    pub services: ServicesById,
    /// The overview of the components. The service sets it when it has built a graph.
    pub overview: Latest<Overview>,
    /// The gateway's own metrics, if a listener shows them.
    pub own_metrics: Latest<OwnMetrics>,
    /// The generation of the graph that pushes begin in.
    pub wiring: Arc<Wiring>,
    /// Copies of batches on the edges of the graph.
    pub taps: Arc<Taps>,
    /// Requests for a reload, and their results.
    pub reloads: Reloads,
    /// Values that higher layers keep once a gateway.
    pub parts: Parts,
}

impl Shared {
    /// Enables measurements that cost time, for metrics of level `detailed`. Call it before the components are
    /// built.
    pub fn want_details(&self) {
        self.details.store(true, Relaxed);
    }

    /// Whether measurements that cost time are enabled.
    pub fn wants_details(&self) -> bool {
        self.details.load(Relaxed)
    }

    /// Shows it in the health check if the storage thread of this owner ends before the close of its log.
    pub fn watch_log(self: &Arc<Self>, owner: &str, store: &Store) {
        let (shared, path) = (self.clone(), path_of_log(owner));
        store.on_end(move |why| shared.health.trouble(&path, Some(why.to_string())));
    }

    /// Removes the problem of a log that is closed. The next log of this owner may work.
    pub fn leave_log(&self, owner: &str) {
        self.health.trouble(&path_of_log(owner), None);
    }
}

/// The name of a log among the problems: its owner may have another problem.
fn path_of_log(owner: &str) -> String {
    format!("{owner}::storage")
}

/// A value that its owner replaces. Readers get the newest.
pub struct Latest<T>(Mutex<Option<Arc<T>>>);

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Latest<T> {
    /// Replaces the value.
    pub fn set(&self, value: T) {
        *self.0.lock() = Some(Arc::new(value));
    }

    /// The newest value; `None` before the first.
    pub fn get(&self) -> Option<Arc<T>> {
        self.0.lock().clone()
    }
}

/// Renders some of the gateway's own metrics in Prometheus's text format, as components have recorded them. The text has only
/// the metrics that [`OwnMetrics::has`] selects, because pages read it every second.
pub struct OwnMetrics(pub Box<dyn Fn() -> String + Send + Sync>);

impl OwnMetrics {
    /// How the names of metrics of rings, cells and sockets begin.
    pub const SOURCES: &'static [&'static str] = &["tidegate_nixl_", "tidegate_shm_", "tidegate_uds_"];

    /// How the names of the histogram of durations of processors begin.
    pub const DURATIONS: &'static [&'static str] = &["otelcol_processor_internal_duration"];

    /// Whether the text has the metric of this name.
    pub fn has(name: &str) -> bool {
        let mut prefixes = Self::SOURCES.iter().chain(Self::DURATIONS);
        prefixes.any(|prefix| name.starts_with(prefix))
    }
}

/// One value of each type. The first caller that asks for a type creates its value.
#[derive(Default)]
pub struct Parts(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Parts {
    /// The value of type `T`. If there is none, `make` creates it; `make` must not ask for another value.
    pub fn get<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut parts = self.0.lock();
        if let Some(known) = parts.get(&TypeId::of::<T>()).cloned()
            && let Ok(known) = known.downcast::<T>()
        {
            return known;
        }
        let made = Arc::new(make());
        parts.insert(TypeId::of::<T>(), made.clone());
        made
    }
}

/// Computes PromQL over the live tables.
pub struct Evaluator(pub Arc<dyn Evaluate>);

/// The computation of an [`Evaluator`].
pub trait Evaluate: Send + Sync {
    /// The current result of a query.
    ///
    /// # Errors
    /// The query has no result, or the result is not numeric.
    fn evaluate(&self, query: &Query, now: UnixNanos) -> Result<Evaluation, String>;

    /// The names of a gauge in queries.
    fn names_of_gauge(&self, name: &str) -> Vec<String>;
}

/// The result of a query, and the sources of the selected series.
#[derive(Clone, Debug, Default)]
pub struct Evaluation {
    /// The labels without the name, and the value, of each element.
    pub values: Vec<(Labels, f64)>,
    /// The sources of the selected series.
    pub sources: Vec<SelectedSource>,
    /// Scrape targets whose last scrape failed.
    pub failed: HashSet<Key>,
    /// A living series that the query can't see, because another one has the same name and labels.
    pub collision: Option<String>,
}

/// A source of selected series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectedSource {
    /// The key of its job and instance, or of its resource if it has neither.
    pub key: Key,
    /// The time of its last report.
    pub seen: UnixNanos,
    /// The longest silence of a source that counts as alive, in nanoseconds.
    pub lease: u64,
}

/// Probable configuration mistakes that components notice at run time, by component.
#[derive(Debug, Default)]
pub struct Notices {
    all: Mutex<BTreeMap<String, Vec<String>>>,
    /// The log lines of each component that ever had notices.
    lines: Mutex<BTreeMap<String, LogLines>>,
}

/// The interval in which log lines of notices count.
const NOTICE_INTERVAL: Duration = Duration::from_secs(30);

/// The most log lines about notices of a component in an interval.
const MAX_NOTICE_LINES: usize = 20;

/// The log lines of a component in the current interval.
#[derive(Debug, Default)]
struct LogLines {
    /// The start of the interval.
    since: Option<Instant>,
    logged: usize,
    suppressed: usize,
}

impl LogLines {
    /// The number of lines that may be logged of `wanted`, and of those suppressed in the last interval.
    fn allow(&mut self, wanted: usize, now: Instant) -> (usize, usize) {
        let is_over = |since| now.saturating_duration_since(since) >= NOTICE_INTERVAL;
        let mut suppressed = 0;
        if self.since.is_none_or(is_over) {
            (self.since, self.logged) = (Some(now), 0);
            suppressed = std::mem::take(&mut self.suppressed);
        }
        let allowed = wanted.min(MAX_NOTICE_LINES - self.logged);
        self.logged += allowed;
        self.suppressed += wanted - allowed;
        (allowed, suppressed)
    }
}

impl Notices {
    /// Replaces the notices of a component, and logs the new ones.
    pub fn set(&self, component: &str, now: Vec<String>) {
        let mut all = self.all.lock();
        let known = all.remove(component).unwrap_or_default();
        let new: Vec<_> = now.iter().filter(|notice| !known.contains(notice)).collect();
        if !new.is_empty() {
            let mut lines = self.lines.lock();
            let lines = lines.entry(component.to_owned()).or_default();
            let (allowed, suppressed) = lines.allow(new.len(), Instant::now());
            if suppressed > 0 {
                tracing::warn!(component, suppressed, "earlier notices were not logged");
            }
            for notice in new.into_iter().take(allowed) {
                tracing::warn!(component, "{notice}");
            }
        }
        if !now.is_empty() {
            all.insert(component.to_owned(), now);
        }
    }

    /// All notices, by component.
    pub fn list(&self) -> BTreeMap<String, Vec<String>> {
        self.all.lock().clone()
    }
}

/// A list of items that components own and readers inspect. Clones share the list.
pub struct Registry<T> {
    items: Arc<Mutex<Vec<Arc<T>>>>,
}

impl<T> Clone for Registry<T> {
    fn clone(&self) -> Self {
        Self {
            items: self.items.clone(),
        }
    }
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self {
            items: Arc::default(),
        }
    }
}

impl<T> Registry<T> {
    /// Adds an item. One that is on the list stays there once.
    pub fn add(&self, item: Arc<T>) {
        let mut items = self.lock();
        if !items.iter().any(|other| Arc::ptr_eq(other, &item)) {
            items.push(item);
        }
    }

    /// Removes some items and adds those of `change` at one moment. An item that is in both lists stays. `change` may change
    /// what readers in [`Self::inspect`] see beside the list. It must not use the list.
    pub fn replace(&self, old: &[Arc<T>], change: impl FnOnce() -> Vec<Arc<T>>) {
        let mut items = self.lock();
        let new = change();
        let among = |list: &[Arc<T>], item: &Arc<T>| list.iter().any(|other| Arc::ptr_eq(other, item));
        items.retain(|item| !among(old, item) || among(&new, item));
        let added: Vec<_> = new.into_iter().filter(|item| !among(&items, item)).collect();
        items.extend(added);
    }

    /// Removes an item that its owner no longer needs.
    pub fn remove(&self, item: &Arc<T>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, item));
    }

    /// Reads the items while they can't change.
    pub fn inspect<R>(&self, read: impl FnOnce(&[Arc<T>]) -> R) -> R {
        read(&self.lock())
    }

    /// All current items.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.lock().clone()
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Vec<Arc<T>>> {
        self.items.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_notices_are_limited_and_counted() {
        let (mut lines, start) = (LogLines::default(), Instant::now());
        assert_eq!(lines.allow(15, start), (15, 0));
        assert_eq!(lines.allow(15, start), (5, 0));
        assert_eq!(lines.allow(15, start), (0, 0));
        assert_eq!(lines.allow(15, start + NOTICE_INTERVAL), (15, 25));
    }
}
