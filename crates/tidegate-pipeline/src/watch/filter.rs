// SPDX-License-Identifier: Apache-2.0

//! Filters for the groups of a composite.

use std::fmt;
use std::sync::Arc;

use tidegate_engine::Attributes;

/// The most groups that a message names.
const MAX_NAMED: usize = 3;

/// The most labels of a filter.
pub const MAX_LABELS: usize = 64;

/// The most bytes of the names and values of these labels.
const MAX_BYTES: usize = 16 << 10;

/// The memory of a label in addition to its text: two strings, and as much again for their allocations.
const LABEL_BYTES: usize = 4 * size_of::<String>();

/// Required attributes of a group, with their values as text. Empty: all groups match. Clones share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter(Arc<[(String, String)]>);

impl Filter {
    /// Reads `key=value` pairs.
    ///
    /// # Errors
    /// A pair has no `=`, there are too many, or their text is too long.
    pub fn parse<'a>(pairs: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let pair = |pair: &'a str| {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("`{pair}`: a label is KEY=VALUE"))?;
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        };
        // One more shows that there are too many.
        let pairs = pairs.into_iter().take(MAX_LABELS + 1).map(pair);
        Self::of(pairs.collect::<Result<Vec<_>, String>>()?)
    }

    /// Takes pairs of a name and a value.
    ///
    /// # Errors
    /// There are too many, or their text is too long.
    pub fn of(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, String> {
        let filter = Self(pairs.into_iter().take(MAX_LABELS + 1).collect());
        if filter.labels() > MAX_LABELS {
            return Err(format!("at most {MAX_LABELS} labels are allowed"));
        }
        let bytes = filter.text_bytes();
        if bytes > MAX_BYTES {
            return Err(format!(
                "the labels have {bytes} bytes; at most {MAX_BYTES} are allowed"
            ));
        }
        Ok(filter)
    }

    /// The number of required attributes.
    pub fn labels(&self) -> usize {
        self.0.len()
    }

    fn text_bytes(&self) -> usize {
        self.0.iter().map(|(key, value)| key.len() + value.len()).sum()
    }

    /// The memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.labels() * LABEL_BYTES + self.text_bytes()
    }

    /// Whether a group matches.
    pub fn takes(&self, attributes: &Attributes) -> bool {
        let has = |(key, value): &(String, String)| {
            attributes.get(key).is_some_and(|own| own.to_string() == *value)
        };
        self.0.iter().all(has)
    }

    /// The message that none of these groups matches. It names the first ones.
    pub fn no_match(&self, groups: impl IntoIterator<Item = String>) -> String {
        let mut groups: Vec<String> = groups.into_iter().collect();
        groups.sort();
        groups.dedup();
        let more = groups.len().saturating_sub(MAX_NAMED);
        groups.truncate(MAX_NAMED);
        let named = groups.join(", ");
        match (groups.is_empty(), more) {
            (true, _) => format!("no group has {self}, because there are no groups"),
            (false, 0) => format!("no group has {self}; its groups are {named}"),
            (false, more) => format!("no group has {self}; its groups are {named} and {more} more"),
        }
    }
}

/// The attributes as a user writes them.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.0.iter().map(|(key, value)| format!("{key}={value}"));
        f.write_str(&pairs.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_their_text_are_bounded() {
        let parse = |labels: usize, text: usize| {
            let pair = format!("k={}", "x".repeat(text));
            Filter::parse(std::iter::repeat_n(&*pair, labels))
        };
        assert_eq!(parse(MAX_LABELS, 0).unwrap().labels(), MAX_LABELS);
        assert_eq!(parse(24_000, 0).unwrap_err(), "at most 64 labels are allowed");
        assert!(parse(1, MAX_BYTES - 1).unwrap().bytes() > MAX_BYTES);
        let why = parse(1, MAX_BYTES).unwrap_err();
        assert_eq!(why, "the labels have 16385 bytes; at most 16384 are allowed");
        let pairs = |labels: usize| (0..labels).map(|label| (label.to_string(), String::new()));
        assert!(Filter::of(pairs(MAX_LABELS)).is_ok() && Filter::of(pairs(MAX_LABELS + 1)).is_err());
    }

    #[test]
    fn a_filter_without_a_match_names_a_few_groups() {
        let filter = Filter::parse(["model = m", "pod=p"]).unwrap();
        let message = |groups: &[&str]| filter.no_match(groups.iter().map(|group| (*group).to_owned()));
        assert_eq!(
            message(&[]),
            "no group has model=m,pod=p, because there are no groups"
        );
        assert_eq!(
            message(&["{b}", "{a}", "{b}"]),
            "no group has model=m,pod=p; its groups are {a}, {b}"
        );
        assert_eq!(
            message(&["{e}", "{d}", "{c}", "{b}", "{a}"]),
            "no group has model=m,pod=p; its groups are {a}, {b}, {c} and 2 more"
        );
    }
}
