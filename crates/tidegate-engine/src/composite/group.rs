//! One group of a composite: its window and who feeds it.

use std::sync::Arc;
use std::time::Duration;

use super::sketch::Sketch;
use super::window::{Cut, Moments, Window};
use super::{Answer, Declaration, Function, OnStale};
use crate::trust::State;
use crate::{Attributes, Lease, Quantile, Series, UnixNanos};

/// Feeders of one group whose life is watched; with more than this the group's state speaks for these only.
const MAX_FEEDERS: usize = 4096;

#[derive(Debug)]
pub(super) struct Group {
    pub(super) series: Arc<Series>,
    window: Window,
    newest: UnixNanos,
    /// The last value there was.
    held: Option<f64>,
    feeders: Vec<Arc<Lease>>,
}

impl Group {
    pub(super) fn new(series: Arc<Series>, cut: Cut, has_sketches: bool) -> Self {
        Self {
            series,
            window: Window::new(cut, has_sketches),
            newest: 0,
            held: None,
            feeders: Vec::new(),
        }
    }

    pub(super) fn attributes(&self) -> &Attributes {
        &self.series.attributes
    }

    /// One more source whose life tells whether the group is idle or stale.
    pub(super) fn join(&mut self, lease: &Arc<Lease>) {
        let known = self.feeders.iter().any(|feeder| Arc::ptr_eq(feeder, lease));
        if !known && self.feeders.len() < MAX_FEEDERS {
            self.feeders.push(lease.clone());
        }
    }

    pub(super) fn add(&mut self, now: UnixNanos, moments: &Moments) {
        self.newest = self.newest.max(now);
        self.window.add(now, moments);
    }

    /// Lets `add` add what fell into the window at `now` to its distribution, where that is asked for.
    pub(super) fn sketch(&mut self, now: UnixNanos, add: impl FnOnce(&mut Sketch)) {
        self.window.sketch(now).map(add);
    }

    /// Lets go sources that have said goodbye or `forgotten` says are long gone.
    pub(super) fn prune(&mut self, forgotten: impl Fn(&Lease) -> bool) {
        self.feeders
            .retain(|feeder| !feeder.is_ended() && !forgotten(feeder));
    }

    /// Whether nothing is in the window and nobody feeds it.
    pub(super) fn is_over(&mut self, now: UnixNanos) -> bool {
        self.feeders.is_empty() && self.window.read(now).count == 0.0
    }

    pub(super) fn answer(&mut self, declaration: &Declaration, cut: Cut, now: UnixNanos) -> Answer {
        let moments = self.window.read(now);
        let expected = self.feeders.iter().filter(|feeder| !feeder.is_ended()).count();
        let reporting = self.feeders.iter().filter(|feeder| feeder.is_alive(now)).count();
        let begin = cut.begin(now);
        let lossy = self.feeders.iter().any(|feeder| feeder.lost_at() >= begin.max(1));
        let state = State::of(moments.count > 0.0, expected, reporting, lossy);
        let distribution = declaration.is_sketched().then(|| self.window.distribution(now));
        let quantile = |quantile: f64| {
            let told = distribution.as_ref()?.quantile(quantile)?;
            Some(told.clamp(moments.min, moments.max))
        };
        let value = match declaration.function {
            Function::Quantile(rank) => quantile(rank),
            function => value(function, &moments, cut.covered_s(now), state),
        };
        self.held = value.or(self.held);
        let stands_in = declaration.on_stale == OnStale::Last && state.says_nothing();
        let some = |value: f64| (moments.count > 0.0).then_some(value);
        Answer {
            attributes: self.attributes().clone(),
            value: value.or(self.held.filter(|_| stands_in)),
            count: moments.count,
            sum: moments.sum,
            min: some(moments.min),
            max: some(moments.max),
            avg: some(moments.sum / moments.count),
            quantiles: declaration
                .quantiles
                .iter()
                .filter_map(|rank| {
                    let value = quantile(*rank)?;
                    Some(Quantile {
                        quantile: *rank,
                        value,
                    })
                })
                .collect(),
            last: some(moments.last),
            window: declaration.window,
            age: (self.newest > 0).then(|| Duration::from_nanos(now.saturating_sub(self.newest))),
            state,
            sources_expected: expected,
            sources_reporting: reporting,
        }
    }
}

fn value(function: Function, moments: &Moments, covered_s: f64, state: State) -> Option<f64> {
    if moments.count == 0.0 {
        let additive = matches!(function, Function::Sum | Function::Count | Function::Rate);
        let alive = matches!(state, State::Idle | State::Partial);
        return (additive && alive).then_some(0.0);
    }
    Some(match function {
        Function::Min => moments.min,
        Function::Max => moments.max,
        Function::Avg => moments.sum / moments.count,
        Function::Sum => moments.sum,
        Function::Count => moments.count,
        Function::Rate => moments.sum / covered_s,
        Function::Last => moments.last,
        // Of the distribution, not of the moments.
        Function::Quantile(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_group_has_no_extremes_but_a_sum_of_nothing() {
        let nothing = Moments::NONE;
        assert_eq!(value(Function::Sum, &nothing, 1.0, State::Idle), Some(0.0));
        assert_eq!(value(Function::Max, &nothing, 1.0, State::Idle), None);
        assert_eq!(value(Function::Rate, &nothing, 1.0, State::Stale), None);
    }
}
