// SPDX-License-Identifier: Apache-2.0

//! Patterns that select metrics by name and attributes by value: exact text, globs, regular expressions.

use std::borrow::Cow;
use std::sync::Arc;

use crate::grouping::target_label;
use crate::{AttributeRef, Attributes};

/// Selects texts; always the whole text.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// This text.
    Exact(Arc<str>),
    /// `*` matches any run of characters, `?` any single one.
    Glob(Arc<str>),
    /// A regular expression, anchored at both ends.
    #[cfg(feature = "tables")]
    Regex(regex::Regex),
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(a), Self::Exact(b)) | (Self::Glob(a), Self::Glob(b)) => a == b,
            #[cfg(feature = "tables")]
            (Self::Regex(a), Self::Regex(b)) => a.as_str() == b.as_str(),
            _ => false,
        }
    }
}

/// A regular expression that does not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a regular expression: {0}")]
pub struct BadPattern(String);

impl Pattern {
    /// `regex:...` is a regular expression, a text with `*` or `?` a glob, anything else is meant exactly.
    ///
    /// # Errors
    /// The text after `regex:` is not a regular expression, or the build lacks the feature `tables`.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        match text.strip_prefix("regex:") {
            Some(expression) => Self::regex(expression),
            None if text.contains(['*', '?']) => Ok(Self::Glob(text.into())),
            None => Ok(Self::Exact(text.into())),
        }
    }

    /// A regular expression that must match the whole text.
    ///
    /// # Errors
    /// `expression` is not a regular expression.
    #[cfg(feature = "tables")]
    pub fn regex(expression: &str) -> Result<Self, BadPattern> {
        regex::Regex::new(&format!("^(?:{expression})$"))
            .map(Self::Regex)
            .map_err(|error| BadPattern(error.to_string()))
    }

    /// Refuses every regular expression: this build has none.
    #[cfg(not(feature = "tables"))]
    fn regex(expression: &str) -> Result<Self, BadPattern> {
        Err(BadPattern(format!(
            "`{expression}`: enable the feature `tables` of tidegate-engine"
        )))
    }

    /// The source text of the pattern, for messages.
    pub fn text(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Glob(text) => text,
            #[cfg(feature = "tables")]
            Self::Regex(regex) => regex.as_str(),
        }
    }

    /// Whether `text` is selected.
    pub fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *text,
            Self::Glob(glob) => glob_matches(glob.as_bytes(), text.as_bytes()),
            #[cfg(feature = "tables")]
            Self::Regex(regex) => regex.is_match(text),
        }
    }
}

/// Backtracks to the last `*` only, so it takes at most pattern length times text length steps.
fn glob_matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut at, mut pos) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while pos < text.len() {
        match glob.get(at) {
            Some(b'*') => {
                star = Some((at, pos));
                at += 1;
            }
            Some(expected) if *expected == b'?' || Some(expected) == text.get(pos) => {
                at += 1;
                pos += 1;
            }
            _ => match star.as_mut() {
                Some((star_at, star_pos)) => {
                    *star_pos += 1;
                    (at, pos) = (*star_at + 1, *star_pos);
                }
                None => return false,
            },
        }
    }
    glob.iter().skip(at).all(|rest| *rest == b'*')
}

/// Attributes that must be there and match.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttributeFilter(pub Vec<(Arc<str>, Pattern)>);

impl AttributeFilter {
    /// Whether every named attribute is in one of `sets` and matches. The first set that has it decides. `job` and
    /// `instance` have the same meaning as in a [`crate::Grouping`].
    pub fn matches(&self, sets: &[&Attributes]) -> bool {
        self.0.iter().all(|(key, pattern)| {
            let matches =
                |value: AttributeRef<'_>| scalar_text(value).is_some_and(|text| pattern.matches(&text));
            match sets.iter().find_map(|set| set.get(key)) {
                Some(value) => matches(value),
                None => target_label(key, sets).is_some_and(|value| matches(value.view())),
            }
        })
    }
}

/// A scalar as text; lists, maps and bytes have none.
fn scalar_text(value: AttributeRef<'_>) -> Option<Cow<'_, str>> {
    match value {
        AttributeRef::Str(text) => Some(Cow::Borrowed(text)),
        AttributeRef::Bool(truth) => Some(Cow::Owned(truth.to_string())),
        AttributeRef::Int(number) => Some(Cow::Owned(number.to_string())),
        AttributeRef::Double(number) => Some(Cow::Owned(number.to_string())),
        AttributeRef::Empty => Some(Cow::Borrowed("")),
        AttributeRef::Bytes(_) | AttributeRef::Array(_) | AttributeRef::Map(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AttributeValue;

    #[test]
    fn each_spelling_selects_its_texts() {
        let yes = |pattern: &str, text: &str| Pattern::parse(pattern).unwrap().matches(text);
        assert!(yes("agent_tx_bytes", "agent_tx_bytes") && !yes("agent_tx", "agent_tx_bytes"));
        assert!(yes("agent_*_bytes", "agent_last_tx_bytes") && yes("*", "") && yes("a*", "a"));
        assert!(!yes("agent_*_bytes", "agent_tx_bytes_total") && !yes("a?", "a") && yes("a?c*", "abc"));
        #[cfg(feature = "tables")]
        assert!(yes("regex:agent_(tx|rx)_.*", "agent_rx_bytes") && !yes("regex:tx|rx", "agent_rx"));
        assert!(Pattern::parse("regex:(").is_err());
    }

    #[test]
    fn a_filter_wants_every_attribute_and_the_nearest_set_decides() {
        let filter = AttributeFilter(vec![("port".into(), Pattern::parse("80").unwrap())]);
        let point: Attributes = [("port", AttributeValue::Int(80))].into_iter().collect();
        let other: Attributes = [("port", "81")].into_iter().collect();
        assert!(filter.matches(&[&point, &other]));
        assert!(!filter.matches(&[&other, &point]));
        assert!(!filter.matches(&[&Attributes::default()]));
        let job = AttributeFilter(vec![("job".into(), Pattern::parse("vllm*").unwrap())]);
        let scraped: Attributes = [("service.name", "vllm-a")].into_iter().collect();
        assert!(job.matches(&[&Attributes::default(), &scraped]) && !job.matches(&[&point]));
    }
}
