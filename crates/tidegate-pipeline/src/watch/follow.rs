// SPDX-License-Identifier: Apache-2.0

//! One watcher of a composite.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Attributes, Hysteresis, Threshold};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use super::{BY_TIME, CompositeSnapshot, Crossing, Filter, GroupAnswer, Watched};
use crate::component::unix_now;

/// A watcher of a composite. [`Follow::next`] returns the changes that it has not seen, and the end of the composite.
pub struct Follow {
    watched: Arc<Watched>,
    newest: watch::Receiver<u64>,
    crossings: broadcast::Receiver<Arc<Crossing>>,
    /// The number of the newest snapshot that this watcher has seen; 0 = none.
    seen_seq: u64,
    /// The shortest interval between two reported changes.
    min_interval: Duration,
    told: Option<Instant>,
    has_looked: bool,
    /// The own threshold of this watcher. With it, only its crossings are reported.
    own: Option<(Threshold, HashMap<Attributes, Hysteresis>)>,
    wants: Filter,
}

/// An event for a watcher.
#[derive(Debug)]
pub enum WatchEvent {
    /// Groups that changed.
    Changed(Vec<GroupAnswer>),
    /// A declared threshold, or the watcher's own, was crossed or cleared.
    Crossed(Arc<Crossing>),
    /// The watcher was too slow and missed this many crossings.
    Missed(u64),
}

impl WatchEvent {
    /// The most bytes of an encoded message, in any format.
    pub fn weight(&self) -> usize {
        /// Names, numbers and states, as a JSON tree.
        const GROUP: usize = 4096;
        let weight = |group: &GroupAnswer| {
            let answer = &group.answer;
            let labels = answer.attributes.iter();
            let labels: usize = labels
                .map(|(key, value)| key.len() + value.to_string().len())
                .sum();
            let told =
                answer.error.as_deref().map_or(0, str::len) + answer.collision.as_deref().map_or(0, str::len);
            GROUP + 4 * (labels + told) + 64 * answer.quantiles.len()
        };
        match self {
            Self::Changed(all) => all.iter().map(weight).sum(),
            Self::Crossed(crossing) => GROUP + weight(&crossing.group),
            Self::Missed(_) => GROUP,
        }
    }
}

impl Follow {
    pub(super) fn new(
        watched: Arc<Watched>,
        newest: watch::Receiver<u64>,
        crossings: broadcast::Receiver<Arc<Crossing>>,
    ) -> Self {
        Self {
            watched,
            newest,
            crossings,
            seen_seq: 0,
            min_interval: Duration::ZERO,
            told: None,
            has_looked: false,
            own: None,
            wants: Filter::default(),
        }
    }

    /// Skips changes with this number or an older one. A number that does not exist yet is from another run of the
    /// gateway, so all groups are new then.
    #[must_use]
    pub fn after(mut self, seq: u64) -> Self {
        self.seen_seq = if seq > self.watched.seq() { 0 } else { seq };
        self
    }

    /// Sets the shortest interval between reported changes. Crossings are reported at once.
    #[must_use]
    pub fn every(mut self, min_interval: Duration) -> Self {
        self.min_interval = min_interval;
        self
    }

    /// Limits the watcher to some groups.
    #[must_use]
    pub fn only(mut self, wants: Filter) -> Self {
        self.wants = wants;
        self
    }

    /// Reports only crossings of this threshold. A group that is already beyond it is reported at once.
    #[must_use]
    pub fn across(mut self, threshold: Threshold) -> Self {
        self.own = Some((threshold, HashMap::new()));
        self
    }

    /// The next event; `None`: a reload has replaced or removed the composite, and no event is due. It is cancel-safe: a
    /// caller may drop it and call again.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        let watched = self.watched.clone();
        tokio::select! {
            biased;
            // Events that are due come before the end.
            event = self.wait_for_event() => Some(event),
            () = watched.unlisted() => None,
        }
    }

    /// The next event. It waits on after the end of the composite.
    async fn wait_for_event(&mut self) -> WatchEvent {
        if !self.has_looked {
            self.watched.refresh().await;
        }
        loop {
            if let Some(event) = self.next_event() {
                return event;
            }
            tokio::select! {
                crossing = self.crossings.recv(), if self.own.is_none() => match crossing {
                    Ok(crossing) if self.is_wanted(&crossing.group) => return WatchEvent::Crossed(crossing),
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(missed)) => return WatchEvent::Missed(missed),
                    // The composite owns the sender, and `self` keeps the composite.
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                },
                () = Self::change(&mut self.newest, self.told, self.min_interval) => {}
                // A crossing within the minimum interval is reported when the interval ends.
                () = tokio::time::sleep(BY_TIME), if self.own.is_some() => {}
            }
        }
    }

    /// Waits for a change, and until the interval since the last report has passed.
    async fn change(newest: &mut watch::Receiver<u64>, told: Option<Instant>, min_interval: Duration) {
        if let Some(told) = told.filter(|_| !min_interval.is_zero()) {
            tokio::time::sleep_until(told + min_interval).await;
        }
        // The composite owns the sender, so it is not closed.
        let _ = newest.changed().await;
    }

    fn is_wanted(&self, group: &GroupAnswer) -> bool {
        self.wants.takes(&group.answer.attributes)
    }

    fn next_event(&mut self) -> Option<WatchEvent> {
        if self.own.is_some() {
            return self.next_crossing();
        }
        let is_early = self.told.is_some_and(|told| told.elapsed() < self.min_interval);
        if is_early || *self.newest.borrow_and_update() <= self.seen_seq {
            return None;
        }
        let CompositeSnapshot { answers, seq } = self.take_snapshot();
        let before = std::mem::replace(&mut self.seen_seq, seq);
        let new = answers
            .iter()
            .filter(|group| group.seq > before && self.is_wanted(group));
        let new: Vec<GroupAnswer> = new.cloned().collect();
        if new.is_empty() && before != 0 {
            return None;
        }
        self.told = Some(Instant::now());
        Some(WatchEvent::Changed(new))
    }

    /// Takes a snapshot. The first call reads the composite without waiting for the next tick. Later calls don't
    /// read, because each read may produce a change that would cause another call.
    fn take_snapshot(&mut self) -> CompositeSnapshot {
        if std::mem::replace(&mut self.has_looked, true) {
            self.watched.snapshot()
        } else {
            self.watched.read(unix_now())
        }
    }

    fn next_crossing(&mut self) -> Option<WatchEvent> {
        self.newest.borrow_and_update();
        let all = self.take_snapshot();
        let now = unix_now();
        let (threshold, crossed) = self.own.as_mut()?;
        if crossed.len() > all.answers.len() {
            crossed.retain(|known, _| all.answers.iter().any(|group| group.answer.attributes == *known));
        }
        for group in all.answers.iter() {
            let attributes = &group.answer.attributes;
            if !self.wants.takes(attributes) {
                continue;
            }
            let hysteresis = crossed.entry(attributes.clone()).or_default();
            if hysteresis.update(threshold, group.answer.value, now) {
                return Some(WatchEvent::Crossed(Arc::new(Crossing {
                    declaration: self.watched.declaration().clone(),
                    threshold: threshold.clone(),
                    is_crossed: hysteresis.is_crossed(),
                    group: group.clone(),
                    at: now,
                })));
            }
        }
        None
    }
}
