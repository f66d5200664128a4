// SPDX-License-Identifier: Apache-2.0

//! Checks that every part of an expression has operands of the right types.

use super::Wrong;
use super::ast::{Aggregate, Call, Chain, Expr, GroupModifier, Link, Operator, QuerySpan, Selector, Type};
use super::text::quoted;

type Checked = Result<(), Wrong>;

pub(super) fn check(expr: &Expr, query: &str) -> Checked {
    match expr {
        Expr::Number(..) | Expr::Text(..) => Ok(()),
        Expr::Paren(inner, _) => check(inner, query),
        Expr::Unary(node) => {
            check(&node.expr, query)?;
            match node.expr.kind() {
                Type::Scalar | Type::Vector => Ok(()),
                other => Err(Wrong::at(
                    node.span,
                    format!(
                        "unary expression only allowed on expressions of type scalar or instant vector, got {}",
                        quoted(other.documented())
                    ),
                )),
            }
        }
        Expr::Chain(node) => chain(node, query),
        Expr::Call(node) => call(node, query),
        Expr::Aggregate(node) => aggregate(node, query),
        Expr::Selector(node) => selector(node),
        Expr::Range(node) => selector(&node.selector),
        Expr::Subquery(node) => {
            check(&node.expr, query)?;
            match node.expr.kind() {
                Type::Vector => Ok(()),
                other => Err(Wrong::at(
                    expr.span(),
                    format!(
                        "subquery is only allowed on instant vector, got {} instead",
                        other.plain()
                    ),
                )),
            }
        }
    }
}

fn expect(expr: &Expr, wanted: Type, context: &str, query: &str) -> Checked {
    check(expr, query)?;
    match expr.kind() {
        kind if kind == wanted => Ok(()),
        other => Err(Wrong::at(
            expr.span(),
            format!(
                "expected type {} in {context}, got {}",
                wanted.documented(),
                other.documented()
            ),
        )),
    }
}

fn aggregate(node: &Aggregate, query: &str) -> Checked {
    expect(&node.expr, Type::Vector, "aggregation expression", query)?;
    match (&node.parameter, node.operator.parameter()) {
        (Some(parameter), Some(wanted)) => expect(parameter, wanted, "aggregation parameter", query),
        _ => Ok(()),
    }
}

fn call(node: &Call, query: &str) -> Checked {
    let function = node.function;
    let (listed, given) = (function.arguments.len(), node.arguments.len());
    let wrong = |how: &str, wanted: usize| {
        let why = format!(
            "expected {how}{wanted} argument(s) in call to {}, got {given}",
            quoted(function.name)
        );
        Err(Wrong::at(node.span, why))
    };
    let least = listed.saturating_sub(1);
    match usize::try_from(function.variadic) {
        Ok(0) if given != listed => return wrong("", listed),
        Ok(0) => {}
        _ if given < least => return wrong("at least ", least),
        Ok(more) if given > least + more => return wrong("at most ", least + more),
        _ => {}
    }
    let context = format!("call to function {}", quoted(function.name));
    let last = function.arguments.last().copied();
    let wanted = function.arguments.iter().copied().map(Some);
    let wanted = wanted.chain(std::iter::repeat(last));
    let mut pairs = node.arguments.iter().zip(wanted);
    pairs.try_for_each(|(argument, wanted)| match wanted {
        Some(wanted) => expect(argument, wanted, &context, query),
        None => Ok(()),
    })
}

fn selector(node: &Selector) -> Checked {
    if let Some(name) = &node.name {
        let others = node.matchers.split_last().map_or(&[][..], |(_, others)| others);
        return match others.iter().find(|matcher| matcher.name() == crate::NAME) {
            Some(other) => Err(Wrong::at(
                node.span,
                format!(
                    "metric name must not be set twice: {} or {}",
                    quoted(name),
                    quoted(other.value())
                ),
            )),
            None => Ok(()),
        };
    }
    if node.matchers.iter().any(|matcher| !matcher.accepts_value("")) {
        Ok(())
    } else {
        Err(Wrong::at(
            node.span,
            "vector selector must contain at least one non-empty matcher",
        ))
    }
}

fn chain(node: &Chain, query: &str) -> Checked {
    check(&node.first, query)?;
    let mut left = Operand {
        span: node.first.span(),
        kind: node.first.kind(),
    };
    for next in &node.links {
        check(&next.right, query)?;
        left = link(left, next, query)?;
    }
    Ok(())
}

/// The left side of a link.
#[derive(Clone, Copy)]
struct Operand {
    span: QuerySpan,
    kind: Type,
}

/// The position of the operator: after the left side and any white space.
fn operator_span(left: QuerySpan, query: &str) -> QuerySpan {
    let behind = query.as_bytes().get(left.end..).unwrap_or_default();
    let blank = behind.iter().position(|byte| !byte.is_ascii_whitespace());
    let start = left.end + blank.unwrap_or(0);
    QuerySpan { start, end: start }
}

fn link(left: Operand, link: &Link, query: &str) -> Result<Operand, Wrong> {
    let (operator, matching) = (link.operator, &link.matching);
    let right = link.right.kind();
    let whole = QuerySpan {
        start: left.span.start,
        end: link.right.span().end,
    };
    let at_operator = |why: String| Err(Wrong::at(operator_span(left.span, query), why));
    let are_scalars = left.kind == Type::Scalar && right == Type::Scalar;
    if matching.as_bool && !operator.is_comparison() {
        return at_operator("bool modifier can only be used on comparison operators".to_owned());
    }
    if operator.is_comparison() && !matching.as_bool && are_scalars {
        return at_operator("comparisons between scalars must use BOOL modifier".to_owned());
    }
    let labels = matching.labels.as_deref().unwrap_or_default();
    let both = labels.iter().find(|label| matching.include.contains(label));
    if let Some(label) = both.filter(|_| matching.is_on) {
        return at_operator(format!(
            "label {} must not occur in ON and GROUP clause at once",
            quoted(label)
        ));
    }
    for (kind, span) in [(left.kind, left.span), (right, link.right.span())] {
        if !matches!(kind, Type::Scalar | Type::Vector) {
            let why = "binary expression must contain only scalar and instant vector types";
            return Err(Wrong::at(span, why));
        }
    }
    let are_vectors = left.kind == Type::Vector && right == Type::Vector;
    if !are_vectors && !labels.is_empty() {
        let why = "vector matching only allowed between instant vectors";
        return Err(Wrong::at(whole, why));
    }
    if are_vectors && operator.is_set() && matching.group != GroupModifier::None {
        let why = format!("no grouping allowed for {} operation", quoted(operator.name()));
        return Err(Wrong::at(whole, why));
    }
    if !are_vectors && operator.is_set() {
        let why = format!(
            "set operator {} not allowed in binary scalar expression",
            quoted(operator.name())
        );
        return Err(Wrong::at(whole, why));
    }
    let kind = if are_scalars { Type::Scalar } else { Type::Vector };
    Ok(Operand { span: whole, kind })
}

/// Whether some part of it turns nothing into something.
pub(crate) fn handles_absence(expr: &Expr) -> bool {
    let is_such = match expr {
        Expr::Chain(node) => node.links.iter().any(|link| link.operator == Operator::Or),
        Expr::Call(node) => node.function.name.starts_with("absent"),
        _ => false,
    };
    is_such || expr.parts().into_iter().any(handles_absence)
}
