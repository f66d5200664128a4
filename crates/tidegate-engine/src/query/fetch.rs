//! What the selectors of an expression need, fetched once.

use super::eval::Eval;
use super::syntax::ast::{Expr, Selector};
use super::window::shifted;
use super::{Millis, QueryError, QuerySeries, Samples, Selection};

impl Eval {
    /// Fetches for an expression that will be evaluated within `span`.
    pub(super) fn fetch(
        &mut self,
        expr: &Expr,
        samples: &dyn Samples,
        (span, needs_past): ((Millis, Millis), bool),
    ) -> Result<(), QueryError> {
        let look_back = self.look_back;
        let mut selector = |vs: &Selector, before: Millis, needs_past: bool| {
            let shift = |time| shifted(time, vs.at, vs.offset, self.bounds);
            let series = samples.select(&Selection {
                matchers: vs.matchers.clone(),
                from: shift(span.0).saturating_sub(before),
                to: shift(span.1),
                needs_past,
                max_samples: self.room.get(),
            })?;
            self.spend(series.iter().map(QuerySeries::weight).sum())?;
            self.fetched.insert(std::ptr::from_ref(vs), series);
            Ok(())
        };
        match expr {
            Expr::Selector(vs) => selector(
                vs,
                look_back,
                needs_past || vs.offset.is_some() || vs.at.is_some(),
            ),
            Expr::Range(node) => selector(&node.selector, node.range, true),
            Expr::Subquery(node) => {
                let shift = |time| shifted(time, node.at, node.offset, self.bounds);
                let span = (shift(span.0).saturating_sub(node.range), shift(span.1));
                self.fetch(&node.expr, samples, (span, true))
            }
            other => {
                let mut parts = other.parts().into_iter();
                parts.try_for_each(|part| self.fetch(part, samples, (span, needs_past)))
            }
        }
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
