// SPDX-License-Identifier: Apache-2.0

//! Rows of an option table, and the functions that [`options!`](crate::options) and
//! [`choices!`](crate::choices) call to read maps and words.

use super::decode::{Decode, TypeHelp, wrong_type};
use super::node::{Node, quoted};
use super::problems::Problems;
use super::secret::is_suspicious_key;
use super::suggest::nearest;
use super::yaml_type::YamlType;

/// One row of a component's option table.
#[derive(Clone, Debug)]
pub struct OptionDoc {
    /// The key.
    pub name: &'static str,
    /// Other accepted spellings of the key.
    pub aliases: &'static [&'static str],
    /// Spellings of the key that cause a warning.
    pub deprecated: &'static [&'static str],
    /// The kind of value that it takes.
    pub type_help: TypeHelp,
    /// The default as one would write it; `None` where the option is required.
    pub default: Option<String>,
    /// The doc comment of the field, joined to one line.
    pub help: String,
    /// Whether the option is accepted and does nothing; `help` says why.
    pub is_without_effect: bool,
}

/// Options that are accepted and do nothing: the key, and why it can mean nothing here.
pub type WithoutEffect = [(&'static str, &'static str)];

impl OptionDoc {
    /// Used by [`options!`](crate::options).
    #[doc(hidden)]
    pub fn new<T: Decode>(names: OptionNames, help: &[&str], default: Option<&T>) -> Self {
        let help: Vec<_> = help.iter().map(|line| line.trim()).collect();
        let mut type_help = T::type_help();
        let inside = default.and_then(T::options_inside);
        if let Some(options) = inside {
            type_help.accepts = YamlType::Table(options);
        }
        Self {
            name: names.key(),
            aliases: names.aliases,
            deprecated: names.deprecated,
            type_help,
            default: default.map(T::show),
            help: help.join(" ").trim().to_owned(),
            is_without_effect: false,
        }
    }

    /// Used by [`options!`](crate::options).
    #[doc(hidden)]
    pub fn without_effect(table: &WithoutEffect) -> impl Iterator<Item = Self> {
        table.iter().map(|(name, why)| Self {
            name,
            aliases: &[],
            deprecated: &[],
            type_help: TypeHelp::plain("any value"),
            default: Some("unset".to_owned()),
            help: (*why).to_owned(),
            is_without_effect: true,
        })
    }

    /// The options inside this one, empty for plain values.
    pub fn nested(&self) -> Vec<OptionDoc> {
        self.type_help.accepts.options().unwrap_or_default()
    }
}

/// The key of an option and its aliases.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct OptionNames {
    /// The name of the field, perhaps with `r#`.
    pub field: &'static str,
    /// Other spellings.
    pub aliases: &'static [&'static str],
    /// Spellings that cause a warning.
    pub deprecated: &'static [&'static str],
}

impl OptionNames {
    /// A key without other spellings.
    pub(super) fn only(field: &'static str) -> Self {
        Self {
            field,
            aliases: &[],
            deprecated: &[],
        }
    }

    fn key(self) -> &'static str {
        self.field.strip_prefix("r#").unwrap_or(self.field)
    }

    /// The spellings that cause no warning.
    fn current(self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.key()).chain(self.aliases.iter().copied())
    }

    fn all(self) -> impl Iterator<Item = &'static str> {
        self.current().chain(self.deprecated.iter().copied())
    }
}

/// The map that an options struct is read from. Used by [`options!`](crate::options).
#[doc(hidden)]
pub struct Fields<'a> {
    node: &'a Node,
    cx: &'a mut Problems,
    known: Vec<OptionNames>,
    refused: bool,
}

impl<'a> Fields<'a> {
    /// A map, or null for "all defaults"; anything else is reported.
    pub fn open<T: Decode>(node: &'a Node, cx: &'a mut Problems) -> Option<Self> {
        if node.as_map().is_none() && !node.is_null() {
            wrong_type::<T>(node, cx);
            return None;
        }
        Some(Self {
            node,
            cx,
            known: Vec::new(),
            refused: false,
        })
    }

    /// Keys that others know and we don't take, each with the reason: reported by name. An empty list asks for nothing.
    pub fn refuse(&mut self, table: &[(&'static str, &'static str)]) {
        for (key, reason) in table {
            let Some(entry) = self.node.entry(key) else {
                continue;
            };
            self.cx.unread(&entry.value);
            if entry.value.as_list().is_some_and(<[Node]>::is_empty) {
                self.cx
                    .at_key(&entry.value)
                    .warning("accepted without effect: the list is empty");
            } else {
                self.cx
                    .at_key(&entry.value)
                    .help(*reason)
                    .error(format!("`{key}` is not supported"));
                self.refused = true;
            }
            self.known.push(OptionNames::only(key));
        }
    }

    /// Keys that others know and that can mean nothing here: each that is given is one warning.
    pub fn accept(&mut self, table: &WithoutEffect) {
        for (key, why) in table {
            if let Some(entry) = self.node.entry(key).filter(|entry| !entry.value.is_null()) {
                self.cx.unread(&entry.value);
                self.cx
                    .at_key(&entry.value)
                    .warning(format!("accepted without effect: {why}"));
            }
            self.known.push(OptionNames::only(key));
        }
    }

    /// An option that must be there.
    pub fn required<T: Decode>(&mut self, names: OptionNames) -> Option<T> {
        match self.find(names) {
            Some(node) if node.is_broken() => None,
            Some(node) if T::TAKES_NULL || !node.is_null() => T::decode(node, self.cx),
            _ => {
                let key = names.key();
                let what = T::type_help().name;
                self.cx
                    .at(self.node)
                    .help(format!("`{key}` takes: {what}"))
                    .error(format!("`{key}` must be specified"));
                None
            }
        }
    }

    /// An option with a default, which null means as well.
    pub fn optional<T: Decode>(&mut self, names: OptionNames, default: T) -> Option<T> {
        match self.find(names) {
            Some(node) if node.is_broken() => None,
            Some(node) if T::TAKES_NULL || !node.is_null() => T::decode_over(node, self.cx, default),
            _ => Some(default),
        }
    }

    /// Where this map's problems go.
    pub fn problems(&mut self) -> &mut Problems {
        self.cx
    }

    /// Reports the keys that no option has read.
    pub fn finish(self) -> Option<()> {
        let known: Vec<_> = self.known.iter().flat_map(|names| names.all()).collect();
        let entries = self.node.as_map().unwrap_or_default();
        let mut unknown = entries
            .iter()
            .filter(|entry| !known.contains(&entry.key.as_str()))
            .peekable();
        let clean = unknown.peek().is_none() && !self.refused;
        for entry in unknown {
            self.cx.unread(&entry.value);
            if self.resembles_secret(&entry.key) {
                self.cx.hide(&entry.value);
            }
            let help = (!self.cx.is_full()).then(|| self.help_for(&entry.key));
            self.cx
                .at_key(&entry.value)
                .maybe_help(help)
                .error(format!("unknown key {}", quoted(&entry.key)));
        }
        clean.then_some(())
    }

    /// Whether the key looks like a misspelt option that holds a secret.
    fn resembles_secret(&self, key: &str) -> bool {
        let current = self.known.iter().flat_map(|names| names.current());
        nearest(key, current).is_some_and(is_suspicious_key)
    }

    fn help_for(&self, key: &str) -> String {
        let current = self.known.iter().flat_map(|names| names.current());
        if let Some(near) = nearest(key, current) {
            return format!("did you mean `{near}`?");
        }
        let mut keys: Vec<_> = self.known.iter().map(|names| names.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        match keys.as_slice() {
            [] => "no options are known here".to_owned(),
            keys => format!("known keys: {}", keys.join(", ")),
        }
    }

    fn find(&mut self, names: OptionNames) -> Option<&'a Node> {
        self.known.push(names);
        let mut spellings = names.all().filter_map(|name| self.node.entry(name));
        let found = spellings.next()?;
        for again in spellings {
            self.cx.unread(&again.value);
            self.cx
                .at_key(&again.value)
                .error(format!("the same option as `{}`, which is given too", found.key));
        }
        if names.deprecated.contains(&found.key.as_str()) {
            self.cx
                .at_key(&found.value)
                .warning(deprecation(&found.key, names.key()));
        }
        Some(&found.value)
    }
}

fn deprecation(old: &str, new: &str) -> String {
    format!("`{old}` is deprecated: write `{new}`")
}

/// Reads one of a fixed set of words. Each of `deprecated` is an old spelling, the word to write, and its value. Used by
/// [`choices!`](crate::choices).
#[doc(hidden)]
pub fn decode_choice<T: Copy>(
    node: &Node,
    cx: &mut Problems,
    words: &[(&'static str, T)],
    deprecated: &[(&'static str, &'static str, T)],
) -> Option<T> {
    let text = node.as_text();
    // As the Collector reads most of them: in upper case too.
    let same = |word: &str| text.is_some_and(|text| text.eq_ignore_ascii_case(word));
    let found = words.iter().find(|(word, _)| same(word));
    if let Some((_, value)) = found {
        return Some(*value);
    }
    if let Some((old, new, value)) = deprecated.iter().find(|(old, ..)| same(old)) {
        cx.at(node).warning(deprecation(old, new));
        return Some(*value);
    }
    let known: Vec<_> = words
        .iter()
        .map(|(word, _)| *word)
        .filter(|w| !w.is_empty())
        .collect();
    let near = text.and_then(|text| nearest(text, known.iter().copied()));
    cx.unread(node);
    cx.at(node)
        .maybe_help(near.map(|near| format!("did you mean `{near}`?")))
        .error(format!(
            "expected one of {}, found {}",
            known.join(", "),
            node.describe()
        ));
    None
}

/// `{a: 1, b: x}` for the documentation of a nested default. Used by [`options!`](crate::options).
#[doc(hidden)]
pub fn show_fields(fields: &[(&str, String)]) -> String {
    let set: Vec<_> = fields
        .iter()
        .filter(|(_, value)| value != "unset")
        .map(|(key, value)| format!("{}: {value}", key.trim_start_matches("r#")))
        .collect();
    format!("{{{}}}", set.join(", "))
}
