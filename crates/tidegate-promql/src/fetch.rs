// SPDX-License-Identifier: Apache-2.0

//! Fetches the samples of an expression's selectors, once.

use super::eval::Eval;
use super::need::{Need, Steps};
use super::syntax::ast::{Expr, Selector};
use super::window::shifted;
use super::{Millis, QueryError, QuerySeries, Samples, Selection};

impl Eval {
    /// Fetches for an expression that will be evaluated at these steps.
    pub(super) fn fetch(
        &mut self,
        expr: &Expr,
        samples: &dyn Samples,
        (steps, needs_past): (Steps, bool),
    ) -> Result<(), QueryError> {
        match expr {
            Expr::Selector(vs) => {
                let start = shifted(steps.start, vs.at, vs.offset, self.bounds);
                let seen = Steps {
                    start,
                    count: if vs.at.is_some() { 1 } else { steps.count },
                    ..steps
                };
                let need = if needs_past || vs.offset.is_some() || vs.at.is_some() {
                    Need::Steps(seen)
                } else {
                    Need::Newest
                };
                self.fetch_for(
                    vs,
                    samples,
                    (start.saturating_sub(self.look_back), seen.last(), need),
                )
            }
            Expr::Range(node) => {
                let vs = &node.selector;
                let shift = |time| shifted(time, vs.at, vs.offset, self.bounds);
                let from = shift(steps.start).saturating_sub(node.range);
                self.fetch_for(vs, samples, (from, shift(steps.last()), Need::All))
            }
            Expr::Subquery(node) => {
                let (_, mut inner) = self.inner(node, steps);
                // A range between two steps: its samples are fetched anyway.
                inner.count = inner.count.max(1);
                self.fetch(&node.expr, samples, (inner, true))
            }
            other => {
                let mut parts = other.parts().into_iter();
                parts.try_for_each(|part| self.fetch(part, samples, (steps, needs_past)))
            }
        }
    }

    fn fetch_for(
        &mut self,
        vs: &Selector,
        samples: &dyn Samples,
        (from, to, need): (Millis, Millis, Need),
    ) -> Result<(), QueryError> {
        let series = samples.select(&Selection {
            matchers: vs.matchers.clone(),
            from,
            to,
            need,
            max_samples: self.room.get(),
            patience: self.patience().clone(),
        })?;
        // The search may have taken long even if it found little.
        self.check()?;
        self.spend(series.iter().map(QuerySeries::weight).sum())?;
        self.fetched.insert(std::ptr::from_ref(vs), series);
        Ok(())
    }

    pub(super) fn fetched(&self, vs: &Selector) -> &[QuerySeries] {
        self.fetched
            .get(&std::ptr::from_ref(vs))
            .map_or(&[], |series| series)
    }
}

/// Shows every selector of an expression to `each`.
pub(super) fn selectors<'a>(expr: &'a Expr, each: &mut dyn FnMut(&'a Selector)) {
    match expr {
        Expr::Selector(vs) => each(vs),
        Expr::Range(node) => each(&node.selector),
        other => other.parts().into_iter().for_each(|part| selectors(part, each)),
    }
}
