// SPDX-License-Identifier: Apache-2.0

//! Expressions with their positions in the text.

use super::functions::Function;
use crate::{Matcher, Millis};

/// Bytes of the text, the end not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QuerySpan {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The type of an expression's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Scalar,
    Vector,
    Matrix,
    Text,
}

impl Type {
    /// The name in Prometheus's documentation.
    pub(crate) fn documented(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Vector => "instant vector",
            Self::Matrix => "range vector",
            Self::Text => "string",
        }
    }

    /// The name in Prometheus's API.
    pub(crate) fn plain(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Vector => "vector",
            Self::Matrix => "matrix",
            Self::Text => "string",
        }
    }
}

#[derive(Debug)]
pub(crate) enum Expr {
    Number(f64, QuerySpan),
    Text(String, QuerySpan),
    Paren(Box<Expr>, QuerySpan),
    Unary(Box<Unary>),
    Chain(Box<Chain>),
    Call(Box<Call>),
    Aggregate(Box<Aggregate>),
    Selector(Box<Selector>),
    Range(Box<Range>),
    Subquery(Box<Subquery>),
}

#[derive(Debug)]
pub(crate) struct Unary {
    pub(crate) is_negative: bool,
    pub(crate) expr: Expr,
    pub(crate) span: QuerySpan,
}

/// Operands joined from left to right: `((first op a) op b) op c`. A list, so that long ones take no stack.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) first: Expr,
    pub(crate) links: Vec<Link>,
}

/// An operator with its right operand.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) operator: Operator,
    pub(crate) matching: Matching,
    pub(crate) right: Expr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Atan2,
    Equal,
    NotEqual,
    Less,
    Greater,
    LessOrEqual,
    GreaterOrEqual,
    And,
    Or,
    Unless,
}

impl Operator {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::Mod => "%",
            Self::Pow => "^",
            Self::Atan2 => "atan2",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::Greater => ">",
            Self::LessOrEqual => "<=",
            Self::GreaterOrEqual => ">=",
            Self::And => "and",
            Self::Or => "or",
            Self::Unless => "unless",
        }
    }

    pub(crate) fn is_comparison(self) -> bool {
        matches!(
            self,
            Self::Equal
                | Self::NotEqual
                | Self::Less
                | Self::Greater
                | Self::LessOrEqual
                | Self::GreaterOrEqual
        )
    }

    pub(crate) fn is_set(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Unless)
    }

    /// The larger, the tighter it binds.
    pub(crate) fn precedence(self) -> u8 {
        match self {
            Self::Or => 1,
            Self::And | Self::Unless => 2,
            Self::Add | Self::Sub => 4,
            Self::Mul | Self::Div | Self::Mod | Self::Atan2 => 5,
            Self::Pow => 6,
            _ => 3,
        }
    }
}

/// The matching of the series of two vectors.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matching {
    pub(crate) as_bool: bool,
    /// `on (labels)`, or `ignoring (labels)`.
    pub(crate) is_on: bool,
    pub(crate) labels: Option<Vec<String>>,
    pub(crate) group: GroupModifier,
    /// Labels that `group_left` and `group_right` take over.
    pub(crate) include: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GroupModifier {
    #[default]
    None,
    Left,
    Right,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) function: &'static Function,
    pub(crate) arguments: Vec<Expr>,
    pub(crate) span: QuerySpan,
}

#[derive(Debug)]
pub(crate) struct Aggregate {
    pub(crate) operator: Aggregation,
    pub(crate) parameter: Option<Expr>,
    pub(crate) expr: Expr,
    pub(crate) grouping: Grouping,
    pub(crate) span: QuerySpan,
}

/// The labels that make a group.
#[derive(Clone, Debug)]
pub(crate) struct Grouping {
    pub(crate) is_without: bool,
    pub(crate) labels: Vec<String>,
    /// Whether it was written at all.
    pub(crate) is_given: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aggregation {
    Sum,
    Avg,
    Min,
    Max,
    Count,
    Group,
    Stddev,
    Stdvar,
    Topk,
    Bottomk,
    CountValues,
    Quantile,
    Limitk,
    LimitRatio,
}

impl Aggregation {
    pub(crate) const ALL: [(&'static str, Self); 14] = [
        ("sum", Self::Sum),
        ("avg", Self::Avg),
        ("min", Self::Min),
        ("max", Self::Max),
        ("count", Self::Count),
        ("group", Self::Group),
        ("stddev", Self::Stddev),
        ("stdvar", Self::Stdvar),
        ("topk", Self::Topk),
        ("bottomk", Self::Bottomk),
        ("count_values", Self::CountValues),
        ("quantile", Self::Quantile),
        ("limitk", Self::Limitk),
        ("limit_ratio", Self::LimitRatio),
    ];

    pub(crate) fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, known)| *known == self);
        found.map_or("", |(name, _)| name)
    }

    /// The parameter before the vector, if any.
    pub(crate) fn parameter(self) -> Option<Type> {
        match self {
            Self::Topk | Self::Bottomk | Self::Quantile | Self::Limitk | Self::LimitRatio => {
                Some(Type::Scalar)
            }
            Self::CountValues => Some(Type::Text),
            _ => None,
        }
    }
}

/// The time that a selector reads at, if it is not the time of evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum At {
    Start,
    End,
    Time(Millis),
}

#[derive(Debug)]
pub(crate) struct Selector {
    /// The name before the braces.
    pub(crate) name: Option<String>,
    /// All matchers; the name's is the last, if it stands before the braces.
    pub(crate) matchers: Vec<Matcher>,
    pub(crate) offset: Option<Millis>,
    pub(crate) at: Option<At>,
    pub(crate) span: QuerySpan,
}

#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) selector: Selector,
    pub(crate) range: Millis,
    pub(crate) end: usize,
}

#[derive(Debug)]
pub(crate) struct Subquery {
    pub(crate) expr: Expr,
    pub(crate) range: Millis,
    pub(crate) step: Option<Millis>,
    pub(crate) offset: Option<Millis>,
    pub(crate) at: Option<At>,
    pub(crate) end: usize,
}

impl Expr {
    pub(crate) fn span(&self) -> QuerySpan {
        match self {
            Self::Number(_, span) | Self::Text(_, span) | Self::Paren(_, span) => *span,
            Self::Unary(node) => node.span,
            Self::Chain(node) => QuerySpan {
                start: node.first.span().start,
                end: node
                    .links
                    .last()
                    .map_or_else(|| node.first.span(), |link| link.right.span())
                    .end,
            },
            Self::Call(node) => node.span,
            Self::Aggregate(node) => node.span,
            Self::Selector(node) => node.span,
            Self::Range(node) => QuerySpan {
                start: node.selector.span.start,
                end: node.end,
            },
            Self::Subquery(node) => QuerySpan {
                start: node.expr.span().start,
                end: node.end,
            },
        }
    }

    pub(crate) fn kind(&self) -> Type {
        match self {
            Self::Number(..) => Type::Scalar,
            Self::Text(..) => Type::Text,
            Self::Paren(inner, _) => inner.kind(),
            Self::Unary(node) => node.expr.kind(),
            Self::Chain(node) => node.kind(node.links.len()),
            Self::Call(node) => node.function.returns,
            Self::Aggregate(_) | Self::Selector(_) => Type::Vector,
            Self::Range(_) | Self::Subquery(_) => Type::Matrix,
        }
    }

    /// The expressions that it is made of.
    pub(crate) fn parts(&self) -> Vec<&Self> {
        match self {
            Self::Number(..) | Self::Text(..) | Self::Selector(_) | Self::Range(_) => Vec::new(),
            Self::Paren(inner, _) => vec![inner],
            Self::Unary(node) => vec![&node.expr],
            Self::Chain(node) => {
                let others = node.links.iter().map(|link| &link.right);
                std::iter::once(&node.first).chain(others).collect()
            }
            Self::Call(node) => node.arguments.iter().collect(),
            Self::Aggregate(node) => node.parameter.iter().chain([&node.expr]).collect(),
            Self::Subquery(node) => vec![&node.expr],
        }
    }

    /// Without parentheses around it.
    pub(crate) fn bare(&self) -> &Self {
        let mut expr = self;
        while let Self::Paren(inner, _) = expr {
            expr = inner;
        }
        expr
    }
}

impl Chain {
    /// The type of the first `links` links: a scalar only if all operands are scalars.
    pub(crate) fn kind(&self, links: usize) -> Type {
        let others = self.links.iter().take(links).map(|link| link.right.kind());
        let mut all = std::iter::once(self.first.kind()).chain(others);
        if all.all(|kind| kind == Type::Scalar) {
            Type::Scalar
        } else {
            Type::Vector
        }
    }
}
