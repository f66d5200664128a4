//! One watcher of a composite.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Attributes, Hysteresis, Threshold};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use super::{BY_TIME, CompositeSnapshot, Crossing, Filter, GroupAnswer, Watched};
use crate::component::unix_now;

/// A watcher of a composite: [`Follow::next`] gives what is new to it.
pub struct Follow {
    watched: Arc<Watched>,
    newest: watch::Receiver<u64>,
    crossings: broadcast::Receiver<Arc<Crossing>>,
    /// The number of the newest snapshot that this watcher has seen; 0: none.
    seen_seq: u64,
    /// Changes are told so far apart at least.
    min_interval: Duration,
    told: Option<Instant>,
    has_looked: bool,
    /// A threshold of this watcher's own: nothing else is worth telling.
    own: Option<(Threshold, HashMap<Attributes, Hysteresis>)>,
    wants: Filter,
}

/// An event for a watcher.
#[derive(Debug)]
pub enum WatchEvent {
    /// Groups that changed.
    Changed(Vec<GroupAnswer>),
    /// A declared threshold, or the watcher's own, was crossed or is over.
    Crossed(Arc<Crossing>),
    /// It was too slow to hear of so many crossings.
    Missed(u64),
}

impl WatchEvent {
    /// The most bytes that a message of it takes while it is encoded, in any format.
    pub fn weight(&self) -> usize {
        /// Names, numbers and states, as a tree of JSON.
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

    /// What has this number or an older one is known to the watcher. A number that was not given yet is of another run
    /// of the gateway: everything is new.
    #[must_use]
    pub fn after(mut self, seq: u64) -> Self {
        self.seen_seq = if seq > self.watched.seq() { 0 } else { seq };
        self
    }

    /// Changes are told so far apart at least; crossings at once.
    #[must_use]
    pub fn every(mut self, min_interval: Duration) -> Self {
        self.min_interval = min_interval;
        self
    }

    /// Only these groups.
    #[must_use]
    pub fn only(mut self, wants: Filter) -> Self {
        self.wants = wants;
        self
    }

    /// Only crossings of this threshold; a group that is beyond it already is told at once.
    #[must_use]
    pub fn across(mut self, threshold: Threshold) -> Self {
        self.own = Some((threshold, HashMap::new()));
        self
    }

    /// The next event. It is cancel-safe: a caller may drop it and call again.
    pub async fn next(&mut self) -> WatchEvent {
        if !self.has_looked {
            self.watched.refresh().await;
        }
        loop {
            if let Some(event) = self.look() {
                return event;
            }
            tokio::select! {
                crossing = self.crossings.recv(), if self.own.is_none() => match crossing {
                    Ok(crossing) if self.is_wanted(&crossing.group) => return WatchEvent::Crossed(crossing),
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(missed)) => return WatchEvent::Missed(missed),
                    // The sender is the composite, which is here.
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                },
                () = Self::change(&mut self.newest, self.told, self.min_interval) => {}
                // A crossing that came too soon after the last one is told when its time has come.
                () = tokio::time::sleep(BY_TIME), if self.own.is_some() => {}
            }
        }
    }

    /// Waits for a change, and until it may be told.
    async fn change(newest: &mut watch::Receiver<u64>, told: Option<Instant>, min_interval: Duration) {
        if let Some(told) = told.filter(|_| !min_interval.is_zero()) {
            tokio::time::sleep_until(told + min_interval).await;
        }
        // The sender is the composite, which is here.
        let _ = newest.changed().await;
    }

    fn is_wanted(&self, group: &GroupAnswer) -> bool {
        self.wants.takes(&group.answer.attributes)
    }

    fn look(&mut self) -> Option<WatchEvent> {
        if self.own.is_some() {
            return self.look_across();
        }
        let is_early = self.told.is_some_and(|told| told.elapsed() < self.min_interval);
        if is_early || *self.newest.borrow_and_update() <= self.seen_seq {
            return None;
        }
        let CompositeSnapshot { answers, seq } = self.see();
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

    /// What there is; a first look does not wait for the next tick. Later ones read nothing: each reading may be a
    /// change, which would be looked at again.
    fn see(&mut self) -> CompositeSnapshot {
        if std::mem::replace(&mut self.has_looked, true) {
            self.watched.snapshot()
        } else {
            self.watched.read(unix_now())
        }
    }

    fn look_across(&mut self) -> Option<WatchEvent> {
        self.newest.borrow_and_update();
        let all = self.see();
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
