// SPDX-License-Identifier: Apache-2.0

//! Patterns, attribute filters and groupings from the configuration, for components that select metrics.

use std::sync::Arc;

use tidegate_engine::{AttributeFilter, BadPattern, Grouping, Pattern};

use tidegate_config::{Node, Ordered, Problems};

/// Reports a pattern that does not compile.
pub fn check_pattern(text: &str, at: &Node, cx: &mut Problems) {
    if let Some(expression) = text.strip_prefix("regex:")
        && !cx.has_room_for_expression(expression, at)
    {
        return;
    }
    if let Err(error) = Pattern::parse(text) {
        cx.at(at).error(error.to_string());
    }
}

/// Reports patterns of attribute values that do not compile.
pub fn check_filter(attributes: &Ordered<String>, at: &Node, cx: &mut Problems) {
    for (key, pattern) in attributes.iter() {
        check_pattern(pattern, at.child(key), cx);
    }
}

/// Compiles a filter for the required attributes.
///
/// # Errors
/// The pattern of an attribute is not a regular expression.
pub fn filter(attributes: &Ordered<String>) -> Result<AttributeFilter, BadPattern> {
    let pairs = attributes
        .iter()
        .map(|(key, pattern)| Ok((Arc::from(key), Pattern::parse(pattern)?)));
    pairs.collect::<Result<_, _>>().map(AttributeFilter)
}

/// The grouping from `by` or `without`, or `None` without both.
pub fn grouping(by: Option<&[String]>, without: Option<&[String]>) -> Option<Grouping> {
    let by = by.map(|keys| Grouping::by(keys.iter().map(String::as_str)));
    by.or_else(|| without.map(|keys| Grouping::without(keys.iter().map(String::as_str))))
}

/// Compiles a list of patterns. A name need match only one of them.
///
/// # Errors
/// A pattern is not a regular expression.
pub fn patterns(texts: &[String]) -> Result<Vec<Pattern>, BadPattern> {
    texts.iter().map(|text| Pattern::parse(text)).collect()
}
