//! One group of a composite: its window and who feeds it.

use std::sync::Arc;
use std::time::Duration;

use super::window::{Cut, Moments, Window};
use super::{Answer, Declaration, Function};
use crate::trust::State;
use crate::{Attributes, Lease, Series, UnixNanos};

/// Feeders of one group whose life is watched; with more than this the group's state speaks for these only.
const MAX_FEEDERS: usize = 4096;

#[derive(Debug)]
pub(super) struct Group {
    pub(super) series: Arc<Series>,
    window: Window,
    newest: UnixNanos,
    feeders: Vec<Arc<Lease>>,
}

impl Group {
    pub(super) fn new(series: Arc<Series>, cut: Cut) -> Self {
        Self {
            series,
            window: Window::new(cut),
            newest: 0,
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
        let some = |value: f64| (moments.count > 0.0).then_some(value);
        Answer {
            attributes: self.attributes().clone(),
            value: value(declaration.function, &moments, cut.covered_s(now), state),
            count: moments.count,
            sum: moments.sum,
            min: some(moments.min),
            max: some(moments.max),
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
