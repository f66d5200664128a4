// SPDX-License-Identifier: Apache-2.0

//! The keywords of JSON Schema for the values that one place in the configuration takes.

use std::collections::BTreeSet;
use std::iter::once;

use serde_json::{Number, Value, json};

use super::{Definitions, Keywords, describe};
use crate::config::{OptionDoc, Problems, YamlType, parse_text};

/// Matches a string with a reference, which stands for a value of any kind.
pub(super) const REFERENCE: &str = r"\$\{";

/// Characters of words that regular expressions give a meaning.
const SPECIAL: &str = r"\^$.*+?()[]{}|";

/// The values that one place in the configuration takes.
#[derive(Default)]
pub(super) struct AcceptedValues {
    is_any: bool,
    pub(super) types: BTreeSet<&'static str>,
    /// All strings are accepted, not only those of `patterns`.
    is_any_text: bool,
    patterns: BTreeSet<String>,
    words: Vec<Value>,
    range: Option<(i128, i128)>,
    /// Keywords of lists and maps. They do not hold for values of other types.
    pub(super) contents: Keywords,
}

impl AcceptedValues {
    /// Values of these types. The schema accepts references beside them.
    pub(super) fn of_types<const COUNT: usize>(types: [&'static str; COUNT]) -> Self {
        Self {
            types: BTreeSet::from(types),
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, accepts: &YamlType, definitions: &mut Definitions, path: &str) {
        match accepts {
            YamlType::Any => self.is_any = true,
            YamlType::Boolean => self.types.extend(["boolean"]),
            YamlType::Integer { min, max } => {
                let (low, high) = self.range.unwrap_or((*min, *max));
                self.range = Some((low.min(*min), high.max(*max)));
                self.types.extend(["integer"]);
            }
            YamlType::Number => self.types.extend(["number"]),
            YamlType::Text => {
                self.is_any_text = true;
                self.types.extend(["number", "string"]);
            }
            YamlType::Scalar => {
                self.is_any_text = true;
                self.types.extend(["boolean", "number", "string"]);
            }
            YamlType::Pattern(pattern) => self.patterns.extend([(*pattern).to_owned()]),
            YamlType::Words { current, others } => self.add_words(current, others),
            YamlType::List(item) => {
                let items = definitions.value(item, false, path);
                self.contents.insert("items".to_owned(), items.into());
                self.types.extend(["array"]);
            }
            YamlType::Map(value) => {
                let is_nullable = matches!(**value, YamlType::Text | YamlType::Scalar);
                let values = definitions.value(value, is_nullable, path);
                self.contents
                    .insert("additionalProperties".to_owned(), values.into());
                self.types.extend(["object"]);
            }
            YamlType::Options(options) => self.add_table(&options(), definitions, path),
            YamlType::Table(options) => self.add_table(options, definitions, path),
            YamlType::AnyOf(types) => {
                for accepts in types {
                    self.add(accepts, definitions, path);
                }
            }
        }
    }

    fn add_words(&mut self, current: &[&str], others: &[&str]) {
        self.words.extend(current.iter().map(|word| Value::from(*word)));
        for word in current.iter().chain(others) {
            self.patterns.insert(format!("^{}$", in_any_case(word)));
            // YAML reads `true` and `1.2` as other types than strings.
            let other_type = json_of(word).filter(|value| value.is_boolean() || value.is_number());
            self.words.extend(other_type);
        }
    }

    /// Adds a map with the keys of a table. Null stands for all defaults, if all options have one.
    pub(super) fn add_table(&mut self, options: &[OptionDoc], definitions: &mut Definitions, path: &str) {
        let mut properties = Keywords::new();
        let (mut required, mut one_of_spellings) = (Vec::new(), Vec::new());
        for option in options {
            let schema = definitions.option(option, path);
            for alias in option.aliases {
                let mut schema = schema.clone();
                describe(&mut schema, &format!("Another spelling of `{}`.", option.name));
                properties.insert((*alias).to_owned(), schema.into());
            }
            for old in option.deprecated {
                let mut schema = schema.clone();
                let message = format!("Deprecated: write `{}`.", option.name);
                describe(&mut schema, &message);
                schema.insert("deprecated".to_owned(), true.into());
                schema.insert("deprecationMessage".to_owned(), message.into());
                properties.insert((*old).to_owned(), schema.into());
            }
            properties.insert(option.name.to_owned(), schema.into());
            if option.default.is_none() {
                let spellings = once(&option.name).chain(option.aliases).chain(option.deprecated);
                let any: Vec<_> = spellings.map(|name| json!({"required": [name]})).collect();
                match any.len() {
                    1 => required.push(Value::from(option.name)),
                    _ => one_of_spellings.push(json!({"anyOf": any})),
                }
            }
        }
        self.types.extend(["object"]);
        self.contents.insert("properties".to_owned(), properties.into());
        self.contents
            .insert("additionalProperties".to_owned(), false.into());
        if required.is_empty() && one_of_spellings.is_empty() {
            self.types.extend(["null"]);
        }
        for (keyword, conditions) in [("required", required), ("allOf", one_of_spellings)] {
            if !conditions.is_empty() {
                self.contents.insert(keyword.to_owned(), conditions.into());
            }
        }
    }

    pub(super) fn keywords(mut self) -> Keywords {
        if self.is_any {
            return Keywords::new();
        }
        let mut keywords = self.contents;
        if let Some((min, max)) = self.range {
            // Larger bounds are those of the machine.
            let bounds = [
                ("minimum", min, min > i128::from(i64::MIN)),
                ("maximum", max, max <= i128::from(u32::MAX)),
            ];
            for (keyword, bound, _) in bounds.into_iter().filter(|(.., is_meant)| *is_meant) {
                let bound = Number::from_i128(bound).map(Value::Number);
                keywords.extend(bound.map(|bound| (keyword.to_owned(), bound)));
            }
        }
        self.types.extend(["string"]);
        let mut texts = Keywords::new();
        texts.insert("type".to_owned(), json!(self.types));
        if !self.is_any_text {
            self.patterns.extend([REFERENCE.to_owned()]);
            let patterns: Vec<_> = self.patterns.into_iter().collect();
            texts.insert("pattern".to_owned(), patterns.join("|").into());
        }
        if self.words.is_empty() {
            keywords.extend(texts);
        } else {
            // Editors complete the words of an `enum`.
            let any = json!([{"enum": self.words}, texts]);
            keywords.insert("anyOf".to_owned(), any);
        }
        keywords
    }
}

/// A regular expression for a word in upper and lower case.
fn in_any_case(word: &str) -> String {
    let mut pattern = String::new();
    for c in word.chars() {
        if c.is_ascii_alphabetic() {
            pattern.extend(['[', c.to_ascii_lowercase(), c.to_ascii_uppercase(), ']']);
        } else {
            pattern.extend(SPECIAL.contains(c).then_some('\\'));
            pattern.push(c);
        }
    }
    pattern
}

/// The value that YAML makes of a text.
pub(super) fn json_of(text: &str) -> Option<Value> {
    let node = parse_text("schema", text, &mut Problems::default())?;
    Some(node.to_json())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Decode, Headers};

    fn value(accepts: &YamlType) -> Value {
        Definitions::default().value(accepts, false, "a").into()
    }

    #[test]
    fn each_scalar_may_be_a_reference() {
        assert_eq!(
            value(&bool::type_help().accepts),
            json!({"type": ["boolean", "string"], "pattern": "\\$\\{"})
        );
        assert_eq!(
            value(&u16::type_help().accepts),
            json!({"type": ["integer", "string"], "minimum": 0, "maximum": 65535, "pattern": "\\$\\{"})
        );
        assert_eq!(
            value(&u64::type_help().accepts),
            json!({"type": ["integer", "string"], "minimum": 0, "pattern": "\\$\\{"})
        );
        assert_eq!(
            value(&String::type_help().accepts),
            json!({"type": ["number", "string"]})
        );
    }

    #[test]
    fn headers_are_a_map_or_a_list_of_names_and_values() {
        let mut definitions = Definitions::default();
        let schema = definitions.value(&Headers::type_help().accepts, false, "a");
        assert_eq!(
            Value::from(schema),
            json!({
                "type": ["array", "object", "string"],
                "pattern": "\\$\\{",
                "additionalProperties": {"type": ["boolean", "null", "number", "string"]},
                "items": {"$ref": "#/$defs/a"},
            })
        );
        assert_eq!(definitions.by_name["a"]["required"], json!(["name", "value"]));
    }

    #[test]
    fn words_are_listed_and_accepted_in_any_case() {
        let words = YamlType::Words {
            current: vec!["on.1", "never"],
            others: vec!["true"],
        };
        assert_eq!(
            value(&words),
            json!({"anyOf": [
                {"enum": ["on.1", "never", true]},
                {
                    "type": ["string"],
                    "pattern": "\\$\\{|^[nN][eE][vV][eE][rR]$|^[oO][nN]\\.1$|^[tT][rR][uU][eE]$",
                },
            ]})
        );
    }
}
