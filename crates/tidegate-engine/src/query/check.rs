//! What is not supported, by name, before anything is computed.

use promql_parser::parser::{Expr, VectorSelector};

use super::over_time::{self, OverTime};
use super::{QueryError, aggregate, binary, functions, native};

/// Functions that are neither of ranges nor of single values.
const OTHERS: &[&str] = &[
    "absent",
    "absent_over_time",
    "histogram_quantile",
    "label_join",
    "label_replace",
    "pi",
    "scalar",
    "sort",
    "sort_desc",
    "time",
    "timestamp",
    "vector",
];

/// Refuses what is not supported, by name, and what is nested too deeply.
pub(super) fn check(expr: &Expr, depth: usize) -> Result<(), QueryError> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(QueryError::TooMuch(
            "expressions are nested too deeply".to_owned(),
        ));
    };
    match expr {
        Expr::Aggregate(node) => {
            let operator = node.op.to_string();
            if !aggregate::is_supported(&operator) {
                return Err(QueryError::Unsupported(format!(
                    "the aggregation operator `{operator}`"
                )));
            }
            node.param
                .iter()
                .try_for_each(|parameter| check(parameter, depth))?;
            check(&node.expr, depth)
        }
        Expr::Unary(node) => check(&node.expr, depth),
        Expr::Binary(node) => {
            let operator = node.op.to_string();
            if binary::operator(&operator).is_none() {
                return Err(QueryError::Unsupported(format!("the operator `{operator}`")));
            }
            let fill = node.modifier.as_ref().map(|modifier| &modifier.fill_values);
            if fill.is_some_and(|fill| fill.lhs.is_some() || fill.rhs.is_some()) {
                return Err(QueryError::Unsupported("`fill`".to_owned()));
            }
            check(&node.lhs, depth)?;
            check(&node.rhs, depth)
        }
        Expr::Paren(node) => check(&node.expr, depth),
        Expr::Subquery(node) => check(&node.expr, depth),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Ok(()),
        Expr::VectorSelector(selector) => check_selector(selector),
        Expr::MatrixSelector(node) => check_selector(&node.vs),
        Expr::Call(node) => {
            let name = node.func.name;
            let is_known = functions::is_of_value(name)
                || native::function(name).is_some()
                || over_time(name).is_some()
                || OTHERS.contains(&name);
            if !is_known {
                return Err(QueryError::Unsupported(format!("the function `{name}`")));
            }
            node.args
                .args
                .iter()
                .try_for_each(|argument| check(argument, depth))
        }
        Expr::Extension(_) => Err(QueryError::Unsupported("an extension".to_owned())),
    }
}

fn check_selector(selector: &VectorSelector) -> Result<(), QueryError> {
    match selector.matchers.or_matchers.is_empty() {
        true => Ok(()),
        false => Err(QueryError::Unsupported("`or` between matchers".to_owned())),
    }
}

pub(super) fn over_time(name: &str) -> Option<(OverTime, bool)> {
    let found = over_time::FUNCTIONS.iter().find(|(known, ..)| *known == name);
    found.map(|(_, function, keeps_name)| (*function, *keeps_name))
}

/// Whether some part of it turns nothing into something.
pub(super) fn handles_absence(expr: &Expr) -> bool {
    match expr {
        Expr::Binary(node) => {
            node.op.to_string() == "or" || handles_absence(&node.lhs) || handles_absence(&node.rhs)
        }
        Expr::Call(node) => {
            node.func.name.starts_with("absent")
                || node.args.args.iter().any(|argument| handles_absence(argument))
        }
        Expr::Aggregate(node) => handles_absence(&node.expr),
        Expr::Unary(node) => handles_absence(&node.expr),
        Expr::Paren(node) => handles_absence(&node.expr),
        Expr::Subquery(node) => handles_absence(&node.expr),
        _ => false,
    }
}
