// SPDX-License-Identifier: Apache-2.0

//! Scrape targets, for pages that show them. Each job is a pool of targets, with their labels and last scrapes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_engine::UnixNanos;

/// Label names and values.
pub type Pairs = Vec<(String, String)>;

/// The dropped targets that a pool keeps for display. The pool only counts the others.
const MAX_DROPPED: usize = 1000;

/// The targets of one job.
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

/// The numbers of active targets by their last scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetStates {
    /// The last scrape succeeded.
    pub up: usize,
    /// The last scrape failed.
    pub down: usize,
    /// No scrape has ended yet.
    pub unknown: usize,
}

/// One scrape target.
pub struct ScrapeTarget {
    /// The labels of its series.
    pub labels: Pairs,
    /// The labels from discovery, before relabelling.
    pub discovered: Pairs,
    /// The URL of its metrics page.
    pub url: String,
    /// The scrape interval.
    pub interval: Duration,
    /// The timeout of a scrape.
    pub timeout: Duration,
    last: Mutex<Option<LastScrape>>,
}

/// The last scrape of a target.
#[derive(Clone, Debug)]
pub struct LastScrape {
    /// The start of the scrape.
    pub time: UnixNanos,
    /// The duration of the scrape.
    pub duration: Duration,
    /// The error; `None` if the scrape succeeded.
    pub error: Option<String>,
}

impl ScrapePool {
    /// Creates a pool without targets. `name` is the name of the job.
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

    /// Adds a target. `id` is unique in the pool.
    pub fn add(&self, id: u64, target: Arc<ScrapeTarget>) {
        self.state.lock().active.insert(id, target);
    }

    /// Removes a target.
    pub fn remove(&self, id: u64) {
        self.state.lock().active.remove(&id);
    }

    /// Replaces the targets that relabelling drops.
    pub fn set_dropped(&self, mut dropped: Vec<Pairs>) {
        let mut state = self.state.lock();
        state.dropped_total = dropped.len();
        dropped.truncate(MAX_DROPPED);
        state.dropped = dropped;
    }

    /// The active targets.
    pub fn active(&self) -> Vec<Arc<ScrapeTarget>> {
        self.state.lock().active.values().cloned().collect()
    }

    /// Adds its active targets to these numbers.
    pub fn count(&self, states: &mut TargetStates) {
        for target in self.state.lock().active.values() {
            let number = match &*target.last.lock() {
                None => &mut states.unknown,
                Some(last) if last.error.is_some() => &mut states.down,
                Some(_) => &mut states.up,
            };
            *number += 1;
        }
    }

    /// The labels of the dropped targets, at most 1000, and the number of all dropped targets.
    pub fn dropped(&self) -> (Vec<Pairs>, usize) {
        let state = self.state.lock();
        (state.dropped.clone(), state.dropped_total)
    }
}

impl ScrapeTarget {
    /// Creates a target without a scrape.
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

    /// Records a scrape.
    pub fn scraped(&self, last: LastScrape) {
        *self.last.lock() = Some(last);
    }

    /// The last scrape; `None` before the first one.
    pub fn last(&self) -> Option<LastScrape> {
        self.last.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_count_by_their_last_scrape() {
        let pool = ScrapePool::new("app".into());
        let errors = [None, Some(None), Some(Some("refused")), Some(Some("timeout"))];
        for (id, error) in errors.into_iter().enumerate() {
            let second = Duration::from_secs(1);
            let target = ScrapeTarget::new(Vec::new(), Vec::new(), String::new(), second, second);
            if let Some(error) = error {
                target.scraped(LastScrape {
                    time: 1,
                    duration: second,
                    error: error.map(str::to_owned),
                });
            }
            pool.add(id as u64, Arc::new(target));
        }
        let mut states = TargetStates::default();
        pool.count(&mut states);
        let expected = TargetStates {
            up: 1,
            down: 2,
            unknown: 1,
        };
        assert_eq!(states, expected);
    }
}
