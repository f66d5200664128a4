// SPDX-License-Identifier: Apache-2.0

//! The YAML values that types of options take.

use super::table::OptionDoc;

/// The YAML values that a type of options takes, from which the JSON Schema is made.
///
/// Each type also takes a string with `${...}`: it stands for a value of any kind.
#[derive(Clone, Debug, Default)]
pub enum YamlType {
    /// Every value.
    #[default]
    Any,
    /// `true` or `false`.
    Boolean,
    /// A whole number.
    Integer {
        /// The smallest.
        min: i128,
        /// The largest.
        max: i128,
    },
    /// A number.
    Number,
    /// A string, or a number, which is taken as it is written.
    Text,
    /// A string, a number or a boolean, which are taken as they are written.
    Scalar,
    /// A string that matches a regular expression. It must mean the same in ECMA-262 and in Python.
    Pattern(&'static str),
    /// One of a set of words, in upper or lower case.
    Words {
        /// The words of the documentation.
        current: Vec<&'static str>,
        /// Further accepted spellings.
        others: Vec<&'static str>,
    },
    /// A list of such values.
    List(Box<YamlType>),
    /// A map with any keys and such values.
    Map(Box<YamlType>),
    /// A map with the keys of a table, and the defaults of their type.
    Options(fn() -> Vec<OptionDoc>),
    /// A map with the keys of this table: the option that holds it has its own defaults for them.
    Table(Vec<OptionDoc>),
    /// A value of one of these types.
    AnyOf(Vec<YamlType>),
}

impl YamlType {
    /// A duration with units, or 0. Units end in a letter.
    pub fn duration() -> Self {
        Self::AnyOf(vec![
            Self::Pattern("^0$|^[0-9].*[A-Za-z]$"),
            Self::Integer { min: 0, max: 0 },
        ])
    }

    /// The table of the options inside, if there is one.
    pub fn options(&self) -> Option<Vec<OptionDoc>> {
        match self {
            Self::Options(options) => Some(options()),
            Self::Table(options) => Some(options.clone()),
            Self::List(inner) | Self::Map(inner) => inner.options(),
            Self::AnyOf(types) => types.iter().find_map(Self::options),
            _ => None,
        }
    }
}
