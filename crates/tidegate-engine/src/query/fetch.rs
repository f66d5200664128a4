//! What the selectors of an expression need, fetched once.

use std::collections::HashMap;

use promql_parser::parser::{Expr, VectorSelector};

use super::eval::Eval;
use super::window::{millis, shifted};
use super::{LOOK_BACK_MS, Matcher, Millis, NAME, QueryError, QuerySeries, Samples};

/// Samples that one query may look at.
const MAX_SAMPLES: usize = 50_000_000;

impl Eval {
    pub(super) fn prepare(
        expr: &Expr,
        samples: &dyn Samples,
        bounds: (Millis, Millis),
    ) -> Result<Self, QueryError> {
        let mut eval = Self {
            fetched: HashMap::new(),
            bounds,
        };
        let mut room = MAX_SAMPLES;
        eval.fetch(expr, samples, bounds, &mut room)?;
        Ok(eval)
    }

    /// Fetches for an expression that will be evaluated within `span`.
    fn fetch(
        &mut self,
        expr: &Expr,
        samples: &dyn Samples,
        span: (Millis, Millis),
        room: &mut usize,
    ) -> Result<(), QueryError> {
        let mut selector = |vs: &VectorSelector, before: Millis| {
            let shift = |time| shifted(time, vs.at.as_ref(), vs.offset.as_ref(), self.bounds);
            let series = samples.select(&matchers(vs), shift(span.0) - before, shift(span.1))?;
            let count: usize = series.iter().map(|series| series.samples.len()).sum();
            *room = room.checked_sub(count).ok_or_else(|| {
                QueryError::TooMuch(format!("the query looks at more than {MAX_SAMPLES} samples"))
            })?;
            self.fetched.insert(std::ptr::from_ref(vs), series);
            Ok(())
        };
        match expr {
            Expr::VectorSelector(vs) => selector(vs, LOOK_BACK_MS),
            Expr::MatrixSelector(node) => selector(&node.vs, millis(node.range)),
            Expr::Subquery(node) => {
                let shift = |time| shifted(time, node.at.as_ref(), node.offset.as_ref(), self.bounds);
                let span = (shift(span.0) - millis(node.range), shift(span.1));
                self.fetch(&node.expr, samples, span, room)
            }
            Expr::Aggregate(node) => {
                if let Some(parameter) = &node.param {
                    self.fetch(parameter, samples, span, room)?;
                }
                self.fetch(&node.expr, samples, span, room)
            }
            Expr::Binary(node) => {
                self.fetch(&node.lhs, samples, span, room)?;
                self.fetch(&node.rhs, samples, span, room)
            }
            Expr::Unary(node) => self.fetch(&node.expr, samples, span, room),
            Expr::Paren(node) => self.fetch(&node.expr, samples, span, room),
            Expr::Call(node) => {
                let mut arguments = node.args.args.iter();
                arguments.try_for_each(|argument| self.fetch(argument, samples, span, room))
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

/// What a selector asks for, its name too.
pub(super) fn matchers(vs: &VectorSelector) -> Vec<Matcher> {
    let name = vs
        .name
        .as_ref()
        .map(|name| promql_parser::label::Matcher::new(promql_parser::label::MatchOp::Equal, NAME, name));
    let others = vs.matchers.matchers.iter().cloned();
    name.into_iter().chain(others).map(Matcher::new).collect()
}
