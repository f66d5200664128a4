//! What receivers scrape, for those who show it: each job is a pool, each target of it has its labels and its last scrape.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_engine::UnixNanos;

/// Names and values.
pub type Pairs = Vec<(String, String)>;

/// Dropped targets of a pool that are kept to be shown; the others are counted only.
const MAX_DROPPED: usize = 1000;

/// The targets of a job.
pub struct ScrapePool {
    name: Arc<str>,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    active: BTreeMap<u64, Arc<ScrapeTarget>>,
    dropped: Vec<Pairs>,
    dropped_total: usize,
}

/// One target.
pub struct ScrapeTarget {
    /// The labels of its series.
    pub labels: Pairs,
    /// The labels as discovery found them, before relabelling.
    pub discovered: Pairs,
    /// Where its page is.
    pub url: String,
    /// How often it is scraped.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    last: Mutex<Option<LastScrape>>,
}

/// How the last scrape of a target went.
#[derive(Clone, Debug)]
pub struct LastScrape {
    /// When it began.
    pub time: UnixNanos,
    /// How long it took.
    pub duration: Duration,
    /// Why it gave nothing; `None`: it gave something.
    pub error: Option<String>,
}

impl ScrapePool {
    /// A pool without targets; `name` is that of the job.
    pub fn new(name: Arc<str>) -> Self {
        Self {
            name,
            state: Mutex::default(),
        }
    }

    /// The name of the job.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A target is scraped from now on; `id` is its own in the pool.
    pub fn add(&self, id: u64, target: Arc<ScrapeTarget>) {
        self.state.lock().active.insert(id, target);
    }

    /// A target is scraped no more.
    pub fn remove(&self, id: u64) {
        self.state.lock().active.remove(&id);
    }

    /// Which targets the rules drop.
    pub fn set_dropped(&self, mut dropped: Vec<Pairs>) {
        let mut state = self.state.lock();
        state.dropped_total = dropped.len();
        dropped.truncate(MAX_DROPPED);
        state.dropped = dropped;
    }

    /// The targets that are scraped.
    pub fn active(&self) -> Vec<Arc<ScrapeTarget>> {
        self.state.lock().active.values().cloned().collect()
    }

    /// The labels of dropped targets, at most 1000, and how many targets are dropped.
    pub fn dropped(&self) -> (Vec<Pairs>, usize) {
        let state = self.state.lock();
        (state.dropped.clone(), state.dropped_total)
    }
}

impl ScrapeTarget {
    /// A target that has not been scraped yet.
    pub fn new(labels: Pairs, discovered: Pairs, url: String, interval: Duration, timeout: Duration) -> Self {
        Self {
            labels,
            discovered,
            url,
            interval,
            timeout,
            last: Mutex::default(),
        }
    }

    /// Notes how a scrape went.
    pub fn scraped(&self, last: LastScrape) {
        *self.last.lock() = Some(last);
    }

    /// How the last scrape went; `None`: there was none.
    pub fn last(&self) -> Option<LastScrape> {
        self.last.lock().clone()
    }
}
