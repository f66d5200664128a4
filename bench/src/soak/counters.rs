// SPDX-License-Identifier: Apache-2.0

//! The counters of the page and of the gateway's own metrics: none of them may fall or end.
//!
//! No configuration of the soak resets one. The page keeps its series when a reload builds its exporter, its `aggregate` or its
//! receivers again. The counts of a removed component stay in the gateway's own metrics. No series expires: each name of a ring
//! comes again long before 5 minutes have passed.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use crate::BenchError;
use crate::http::Scraper;

/// A page is asked again after this.
const AGAIN: Duration = Duration::from_millis(20);

/// The counters of a page so far, by their series: counters, and the buckets, counts and sums of histograms, to which nothing
/// below 0 is added.
#[derive(Default)]
struct Counters(HashMap<String, f64>);

impl Counters {
    /// Compares a page with what was seen before. Returns a series that the page lacks. A counter that has fallen is an error.
    fn compare(&mut self, page: &str) -> Result<Option<String>, BenchError> {
        let shown = counters(page);
        for (series, now) in &shown {
            if let Some(before) = self.0.get(*series)
                && now < before
            {
                return Err(format!("`{series}` fell from {before} to {now}").into());
            }
        }
        let mut known = self.0.keys();
        let missing = known.find(|series| !shown.contains_key(series.as_str())).cloned();
        for (series, value) in shown {
            if let Some(known) = self.0.get_mut(series) {
                *known = value;
            } else {
                self.0.insert(series.to_owned(), value);
            }
        }
        Ok(missing)
    }
}

/// The counters of an exposition that has the type of each family.
fn counters(page: &str) -> HashMap<&str, f64> {
    let mut found = HashMap::new();
    let mut is_counted = false;
    for line in page.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            is_counted = family.ends_with(" counter") || family.ends_with(" histogram");
        } else if is_counted
            && !line.starts_with('#')
            && let Some((series, value)) = line.rsplit_once(' ')
            && let Ok(value) = value.parse()
        {
            found.insert(series, value);
        }
    }
    found
}

/// A page that is asked again and again.
struct WatchedPage {
    scraper: Scraper,
    counters: Counters,
}

impl WatchedPage {
    fn look(&mut self, patience: Duration) -> Result<(), BenchError> {
        let begun = Instant::now();
        loop {
            let trouble: BenchError = match self.scraper.get() {
                Ok(page) => match self.counters.compare(page)? {
                    None => return Ok(()),
                    Some(series) => format!("`{series}` is not on its page any more").into(),
                },
                Err(error) => error,
            };
            if begun.elapsed() >= patience {
                return Err(trouble);
            }
            thread::sleep(AGAIN);
        }
    }
}

/// The page of the exporter, and that of the gateway's own metrics.
pub(super) struct WatchedPages {
    shown: WatchedPage,
    own: WatchedPage,
    patience: Duration,
}

impl WatchedPages {
    /// `patience` is the longest time in which a page may give no answer, or lack a series. Reloads need some: a new page begins
    /// on another connection, and one that is replaced may miss series in its last answers.
    pub(super) fn new(shown: Scraper, own: Scraper, patience: Duration) -> Self {
        let watched = |scraper| WatchedPage {
            scraper,
            counters: Counters::default(),
        };
        Self {
            shown: watched(shown),
            own: watched(own),
            patience,
        }
    }

    /// Looks at both. Fails if a counter has fallen, or has ended.
    pub(super) fn look(&mut self) -> Result<(), BenchError> {
        self.shown.look(self.patience)?;
        self.own.look(self.patience)
    }

    /// The sum of the counters of the page with this name, as of the last look.
    pub(super) fn sum(&self, name: &str) -> f64 {
        let has_name = |series: &str| {
            let rest = series.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
        };
        let counters = self.shown.counters.0.iter();
        let of_name = counters.filter(|(series, _)| has_name(series));
        of_name.map(|(_, value)| value).sum()
    }

    /// The number of counters that both had so far.
    pub(super) fn count(&self) -> usize {
        self.shown.counters.0.len() + self.own.counters.0.len()
    }
}

#[cfg(test)]
mod tests;
