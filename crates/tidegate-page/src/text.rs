// SPDX-License-Identifier: Apache-2.0

//! The identity of an entry: name and labels, as text and as the words of a slot.

use crate::error::SetError;
use crate::layout::{TEXT_SIZE, TEXT_WORDS};

/// The labels as the text that identifies an entry: sorted by key, `key="value"` joined by commas,
/// with `\`, `"` and line feeds in values escaped by a backslash (the last as `\n`).
///
/// ```
/// let labels = tidegate_page::canonical_labels(&[("model", "a\"b"), ("agent_name", "rank_0")]);
/// assert_eq!(labels, r#"agent_name="rank_0",model="a\"b""#);
/// ```
pub fn canonical_labels(pairs: &[(&str, &str)]) -> String {
    let mut sorted = pairs.to_vec();
    sorted.sort_unstable();
    let mut text = String::new();
    for (key, value) in sorted {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(key);
        text.push_str("=\"");
        for character in value.chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    text
}

/// Name and labels as they are in a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    pub(crate) words: [u64; TEXT_WORDS],
    /// The number of words that are not zero.
    pub(crate) used: usize,
    pub(crate) lens: Lens,
}

/// Bytes of name and labels.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Lens {
    pub(crate) name: u16,
    pub(crate) labels: u16,
}

impl Lens {
    /// # Errors
    /// When the two do not fit into a slot.
    pub(crate) fn of(name: &str, labels: &str) -> Result<Self, SetError> {
        let len = name.len().saturating_add(labels.len());
        let short = |text: &str| u16::try_from(text.len()).map_err(|_| SetError::TooLong { len });
        if len > TEXT_SIZE {
            return Err(SetError::TooLong { len });
        }
        Ok(Lens {
            name: short(name)?,
            labels: short(labels)?,
        })
    }

    /// Out of the word of state, flags and lengths.
    #[inline]
    pub(crate) fn of_word(description: u64) -> Self {
        Lens {
            name: (description >> 32) as u16,
            labels: (description >> 48) as u16,
        }
    }
}

impl Text {
    /// # Errors
    /// As [`Lens::of`].
    pub(crate) fn new(name: &str, labels: &str) -> Result<Self, SetError> {
        let lens = Lens::of(name, labels)?;
        let mut words = [0; TEXT_WORDS];
        let mut used = 0;
        for (index, byte) in name.bytes().chain(labels.bytes()).enumerate() {
            words[index / 8] |= u64::from(byte) << (index % 8 * 8);
            used = index / 8 + 1;
        }
        Ok(Text { words, used, lens })
    }
}

#[cfg(test)]
mod tests;
