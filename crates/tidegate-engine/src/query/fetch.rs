//! What the selectors of an expression need, fetched once.

use std::cell::Cell;
use std::collections::HashMap;

use promql_parser::parser::{Expr, VectorSelector};

use super::eval::Eval;
use super::window::{millis, shifted};
use super::{LOOK_BACK_MS, MAX_SAMPLES, Matcher, Millis, NAME, QueryError, QuerySeries, Samples, Selection};

impl Eval {
    pub(super) fn prepare(
        expr: &Expr,
        samples: &dyn Samples,
        bounds: (Millis, Millis),
    ) -> Result<Self, QueryError> {
        let mut eval = Self {
            fetched: HashMap::new(),
            bounds,
            room: Cell::new(MAX_SAMPLES),
        };
        eval.fetch(expr, samples, (bounds, bounds.0 != bounds.1))?;
        Ok(eval)
    }

    /// Fetches for an expression that will be evaluated within `span`.
    fn fetch(
        &mut self,
        expr: &Expr,
        samples: &dyn Samples,
        (span, needs_past): ((Millis, Millis), bool),
    ) -> Result<(), QueryError> {
        let mut selector = |vs: &VectorSelector, before: Millis, needs_past: bool| {
            let shift = |time| shifted(time, vs.at.as_ref(), vs.offset.as_ref(), self.bounds);
            let series = samples.select(&Selection {
                matchers: matchers(vs),
                from: shift(span.0) - before,
                to: shift(span.1),
                needs_past,
                max_samples: self.room.get(),
            })?;
            self.spend(series.iter().map(QuerySeries::weight).sum())?;
            self.fetched.insert(std::ptr::from_ref(vs), series);
            Ok(())
        };
        match expr {
            Expr::VectorSelector(vs) => selector(
                vs,
                LOOK_BACK_MS,
                needs_past || vs.offset.is_some() || vs.at.is_some(),
            ),
            Expr::MatrixSelector(node) => selector(&node.vs, millis(node.range), true),
            Expr::Subquery(node) => {
                let shift = |time| shifted(time, node.at.as_ref(), node.offset.as_ref(), self.bounds);
                let span = (shift(span.0) - millis(node.range), shift(span.1));
                self.fetch(&node.expr, samples, (span, true))
            }
            Expr::Aggregate(node) => {
                if let Some(parameter) = &node.param {
                    self.fetch(parameter, samples, (span, needs_past))?;
                }
                self.fetch(&node.expr, samples, (span, needs_past))
            }
            Expr::Binary(node) => {
                self.fetch(&node.lhs, samples, (span, needs_past))?;
                self.fetch(&node.rhs, samples, (span, needs_past))
            }
            Expr::Unary(node) => self.fetch(&node.expr, samples, (span, needs_past)),
            Expr::Paren(node) => self.fetch(&node.expr, samples, (span, needs_past)),
            Expr::Call(node) => {
                let mut arguments = node.args.args.iter();
                arguments.try_for_each(|argument| self.fetch(argument, samples, (span, needs_past)))
            }
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => Ok(()),
        }
    }

    pub(super) fn fetched(&self, vs: &VectorSelector) -> &[QuerySeries] {
        self.fetched
            .get(&std::ptr::from_ref(vs))
            .map_or(&[], |series| series)
    }
}

/// Shows every selector of an expression to `each`.
pub(super) fn selectors(expr: &Expr, each: &mut dyn FnMut(&VectorSelector)) {
    match expr {
        Expr::VectorSelector(vs) => each(vs),
        Expr::MatrixSelector(node) => each(&node.vs),
        Expr::Subquery(node) => selectors(&node.expr, each),
        Expr::Aggregate(node) => {
            node.param.iter().for_each(|parameter| selectors(parameter, each));
            selectors(&node.expr, each);
        }
        Expr::Binary(node) => {
            selectors(&node.lhs, each);
            selectors(&node.rhs, each);
        }
        Expr::Unary(node) => selectors(&node.expr, each),
        Expr::Paren(node) => selectors(&node.expr, each),
        Expr::Call(node) => node
            .args
            .args
            .iter()
            .for_each(|argument| selectors(argument, each)),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
    }
}

/// What a selector asks for, its name too.
pub(super) fn matchers(vs: &VectorSelector) -> Vec<Matcher> {
    let name = vs
        .name
        .as_ref()
        .map(|name| promql_parser::label::Matcher::new(promql_parser::label::MatchOp::Equal, NAME, name));
    let others = vs.matchers.matchers.iter().cloned();
    name.into_iter().chain(others).map(Matcher::new).collect()
}
