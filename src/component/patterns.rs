//! What components that select metrics share: patterns, attribute filters and groupings out of configuration.

use std::sync::Arc;

use tidegate_engine::{AttributeFilter, BadPattern, Grouping, Pattern};

use crate::config::{Node, Ordered, Problems};

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

/// The attributes that must be there.
pub fn filter(attributes: &Ordered<String>) -> Result<AttributeFilter, BadPattern> {
    let pairs = attributes
        .iter()
        .map(|(key, pattern)| Ok((Arc::from(key), Pattern::parse(pattern)?)));
    pairs.collect::<Result<_, _>>().map(AttributeFilter)
}

/// The grouping that `by` or `without` declares, if any does.
pub fn grouping(by: Option<&[String]>, without: Option<&[String]>) -> Option<Grouping> {
    let by = by.map(|keys| Grouping::by(keys.iter().map(String::as_str)));
    by.or_else(|| without.map(|keys| Grouping::without(keys.iter().map(String::as_str))))
}

/// Several patterns, any of which may match.
pub fn patterns(texts: &[String]) -> Result<Vec<Pattern>, BadPattern> {
    texts.iter().map(|text| Pattern::parse(text)).collect()
}
