// SPDX-License-Identifier: Apache-2.0

//! Expressions as JSON: the tree in the answer of Prometheus's `parse_query`. Text is written in sequence, so that a
//! chain of any length needs no stack.

use std::fmt::Write as _;

use super::ast::{At, Chain, Expr, GroupModifier, Link, Matching, Selector, Type};
use super::functions::Function;
use crate::{Millis, show_number};

/// The tree of an expression.
pub(crate) fn json(expr: &Expr) -> String {
    let mut made = String::new();
    write(&mut made, expr);
    made
}

fn write(to: &mut String, expr: &Expr) {
    match expr {
        Expr::Number(number, _) => {
            begin(to, "numberLiteral");
            member(to, "val", |to| text(to, &show_number(*number)));
        }
        Expr::Text(value, _) => {
            begin(to, "stringLiteral");
            member(to, "val", |to| text(to, value));
        }
        Expr::Paren(inner, _) => {
            begin(to, "parenExpr");
            member(to, "expr", |to| write(to, inner));
        }
        Expr::Unary(node) => {
            begin(to, "unaryExpr");
            member(to, "op", |to| text(to, if node.is_negative { "-" } else { "+" }));
            member(to, "expr", |to| write(to, &node.expr));
        }
        Expr::Chain(node) => return chain(to, node),
        Expr::Call(node) => {
            begin(to, "call");
            member(to, "func", |to| function(to, node.function));
            member(to, "args", |to| list(to, &node.arguments, write));
        }
        Expr::Aggregate(node) => {
            begin(to, "aggregation");
            member(to, "op", |to| text(to, node.operator.name()));
            member(to, "expr", |to| write(to, &node.expr));
            member(to, "param", |to| match &node.parameter {
                Some(parameter) => write(to, parameter),
                None => to.push_str("null"),
            });
            member(to, "grouping", |to| texts(to, &node.grouping.labels));
            plain(to, "without", node.grouping.is_without);
        }
        Expr::Selector(node) => {
            begin(to, "vectorSelector");
            selector(to, node);
        }
        Expr::Range(node) => {
            begin(to, "matrixSelector");
            selector(to, &node.selector);
            plain(to, "range", node.range);
        }
        Expr::Subquery(node) => {
            begin(to, "subquery");
            member(to, "expr", |to| write(to, &node.expr));
            plain(to, "range", node.range);
            plain(to, "step", node.step.unwrap_or(0));
            time(to, node.at, node.offset);
        }
    }
    to.push('}');
}

fn selector(to: &mut String, node: &Selector) {
    member(to, "name", |to| {
        text(to, node.name.as_deref().unwrap_or_default());
    });
    member(to, "matchers", |to| {
        list(to, &node.matchers, |to, matcher| {
            to.push_str("{\"name\":");
            text(to, matcher.name());
            member(to, "value", |to| text(to, matcher.value()));
            member(to, "type", |to| text(to, matcher.operator()));
            to.push('}');
        });
    });
    time(to, node.at, node.offset);
}

fn time(to: &mut String, at: Option<At>, offset: Option<Millis>) {
    plain(to, "offset", offset.unwrap_or(0));
    match at {
        Some(At::Time(time)) => plain(to, "timestamp", time),
        _ => plain(to, "timestamp", "null"),
    }
    member(to, "startOrEnd", |to| match at {
        Some(At::Start) => text(to, "start"),
        Some(At::End) => text(to, "end"),
        _ => to.push_str("null"),
    });
}

/// The last operator is the outermost: all begin before the first operand.
fn chain(to: &mut String, node: &Chain) {
    let mut kinds = Vec::with_capacity(node.links.len());
    let mut left = node.first.kind();
    for link in &node.links {
        let right = link.right.kind();
        kinds.push((left, right));
        let are_scalars = left == Type::Scalar && right == Type::Scalar;
        left = if are_scalars { Type::Scalar } else { Type::Vector };
    }
    for (link, kinds) in node.links.iter().zip(kinds).rev() {
        begin(to, "binaryExpr");
        member(to, "op", |to| text(to, link.operator.name()));
        plain(to, "bool", link.matching.as_bool);
        member(to, "matching", |to| match kinds {
            (Type::Vector, Type::Vector) => matching(to, link),
            _ => to.push_str("null"),
        });
        to.push_str(",\"lhs\":");
    }
    write(to, &node.first);
    for link in &node.links {
        member(to, "rhs", |to| write(to, &link.right));
        to.push('}');
    }
}

fn matching(to: &mut String, link: &Link) {
    let Matching {
        labels,
        include,
        group,
        is_on,
        ..
    } = &link.matching;
    let card = match group {
        GroupModifier::Left => "many-to-one",
        GroupModifier::Right => "one-to-many",
        GroupModifier::None if link.operator.is_set() => "many-to-many",
        GroupModifier::None => "one-to-one",
    };
    to.push_str("{\"card\":");
    text(to, card);
    member(to, "labels", |to| {
        texts(to, labels.as_deref().unwrap_or_default());
    });
    plain(to, "on", is_on);
    member(to, "include", |to| texts(to, include));
    to.push('}');
}

fn function(to: &mut String, function: &Function) {
    to.push_str("{\"name\":");
    text(to, function.name);
    member(to, "argTypes", |to| {
        list(to, function.arguments, |to, kind| text(to, kind.plain()));
    });
    plain(to, "variadic", function.variadic);
    member(to, "returnType", |to| text(to, function.returns.plain()));
    to.push('}');
}

fn begin(to: &mut String, kind: &str) {
    to.push_str("{\"type\":");
    text(to, kind);
}

fn member(to: &mut String, name: &str, value: impl FnOnce(&mut String)) {
    to.push_str(",\"");
    to.push_str(name);
    to.push_str("\":");
    value(to);
}

/// A value that is JSON as it is shown.
fn plain(to: &mut String, name: &str, value: impl std::fmt::Display) {
    // A String takes every text.
    let _ = write!(to, ",\"{name}\":{value}");
}

fn texts(to: &mut String, all: &[String]) {
    list(to, all, |to, one| text(to, one));
}

fn list<T>(to: &mut String, all: &[T], mut each: impl FnMut(&mut String, &T)) {
    to.push('[');
    for (at, one) in all.iter().enumerate() {
        if at > 0 {
            to.push(',');
        }
        each(to, one);
    }
    to.push(']');
}

fn text(to: &mut String, value: &str) {
    to.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => to.extend(['\\', c]),
            _ if c < ' ' => {
                // A String takes every text.
                let _ = write!(to, "\\u{:04x}", c as u32);
            }
            _ => to.push(c),
        }
    }
    to.push('"');
}
