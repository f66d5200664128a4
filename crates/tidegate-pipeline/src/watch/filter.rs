// SPDX-License-Identifier: Apache-2.0

//! Filters for the groups of a composite.

use std::fmt;

use tidegate_engine::Attributes;

/// The most groups that a message names.
const MAX_NAMED: usize = 3;

/// Required attributes of a group, with their values as text. Empty: all groups match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter(Vec<(String, String)>);

impl Filter {
    /// Reads `key=value` pairs.
    ///
    /// # Errors
    /// A pair has no `=`.
    pub fn parse<'a>(pairs: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let pair = |pair: &'a str| {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("`{pair}`: a label is KEY=VALUE"))?;
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        };
        pairs.into_iter().map(pair).collect()
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

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Filter {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
