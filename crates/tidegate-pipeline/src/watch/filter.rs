// SPDX-License-Identifier: Apache-2.0

//! Filters for the groups of a composite.

use tidegate_engine::Attributes;

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
