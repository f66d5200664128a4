// SPDX-License-Identifier: Apache-2.0

//! Relabelling as in Prometheus: ordered rules that change or drop a label set.

mod pattern;
mod scalar;

use md5::{Digest, Md5};
use tidegate_config::{Node, Problems};

use crate::escaping::is_legacy_label_name;
use crate::model::LabelSet as Labels;
use pattern::{Pattern, expand, expanded};

pub use scalar::ScalarText;

tidegate_config::choices! {
    /// The rules for names of metrics and labels.
    pub enum Validation {
        /// Any UTF-8.
        Utf8 = "utf8" | "",
        /// Letters, digits and underscores; in metric names also colons.
        Legacy = "legacy",
    }
}

impl Validation {
    /// Whether a label may be called so.
    pub fn label_name(self, name: &str) -> bool {
        match self {
            Self::Utf8 => !name.is_empty(),
            Self::Legacy => is_legacy_label_name(name),
        }
    }
}

tidegate_config::choices! {
    /// The effect of a rule.
    pub enum Action {
        /// Sets a label from what the regex found.
        Replace = "replace",
        /// Drops what does not match.
        Keep = "keep",
        /// Drops what matches.
        Drop = "drop",
        /// Drops what differs from another label.
        KeepEqual = "keepequal",
        /// Drops what equals another label.
        DropEqual = "dropequal",
        /// Sets a label to a hash modulo a number.
        HashMod = "hashmod",
        /// Copies labels whose names match to other names.
        LabelMap = "labelmap",
        /// Takes labels away whose names match.
        LabelDrop = "labeldrop",
        /// Takes labels away whose names don't match.
        LabelKeep = "labelkeep",
        /// Sets a label to lower case.
        Lowercase = "lowercase",
        /// Sets a label to upper case.
        Uppercase = "uppercase",
    }
}

tidegate_config::options! {
    /// A relabelling rule.
    pub struct Rule {
        /// Labels whose joined values are the input.
        pub source_labels: Vec<String> = Vec::new(),
        /// Text between the joined values.
        pub separator: ScalarText = ScalarText(DEFAULT_SEPARATOR.to_owned()),
        /// Regular expression that the whole input, or a label name, must match.
        pub regex: Pattern = Pattern::default(),
        /// Modulus of the hash.
        pub modulus: u64 = 0,
        /// Label to set or to compare.
        pub target_label: ScalarText = ScalarText::default(),
        /// New value. `$$1` and `$${name}` are groups of the regex.
        pub replacement: ScalarText = ScalarText(DEFAULT_REPLACEMENT.to_owned()),
        /// Action of the rule.
        pub action: Action = Action::Replace,
    }
    check = Rule::check
}

const DEFAULT_SEPARATOR: &str = ";";
const DEFAULT_REPLACEMENT: &str = "$1";

impl Rule {
    /// Checks that don't depend on the validation of names.
    fn check(&self, at: &Node, cx: &mut Problems) {
        use Action::{DropEqual, HashMod, KeepEqual, LabelDrop, LabelKeep, Lowercase, Replace, Uppercase};
        let action = self.action.as_str();
        if self.action == HashMod && self.modulus == 0 {
            cx.at(at.child("modulus"))
                .error("relabel configuration for hashmod requires non-zero modulus");
        }
        let needs_target = matches!(
            self.action,
            Replace | HashMod | Lowercase | Uppercase | KeepEqual | DropEqual
        );
        if needs_target && self.target_label.0.is_empty() {
            cx.at(at.child("target_label")).error(format!(
                "relabel configuration for {action} action requires `target_label`"
            ));
        }
        let mut unused: Vec<(&str, bool)> = Vec::new();
        if matches!(self.action, Lowercase | Uppercase | KeepEqual | DropEqual) {
            unused.push(("replacement", self.replacement.0 != DEFAULT_REPLACEMENT));
        }
        if matches!(self.action, KeepEqual | DropEqual | LabelDrop | LabelKeep) {
            unused.push(("modulus", self.modulus != 0));
            unused.push(("separator", self.separator.0 != DEFAULT_SEPARATOR));
        }
        if matches!(self.action, KeepEqual | DropEqual) {
            unused.push(("regex", !self.regex.is_default()));
        }
        if matches!(self.action, LabelDrop | LabelKeep) {
            unused.push(("source_labels", !self.source_labels.is_empty()));
            unused.push(("target_label", !self.target_label.0.is_empty()));
            unused.push(("replacement", self.replacement.0 != DEFAULT_REPLACEMENT));
        }
        for (key, _) in unused.iter().filter(|(_, is_set)| *is_set) {
            cx.at_key(at.child(key))
                .error(format!("`{key}` can not be set for {action} action"));
        }
    }

    /// Reports names that are not valid by the job's scheme.
    pub fn check_names(&self, validation: Validation, at: &Node, cx: &mut Problems) {
        use Action::{DropEqual, HashMod, KeepEqual, LabelMap, Lowercase, Replace, Uppercase};
        let (target, action) = (self.target_label.0.as_str(), self.action.as_str());
        let target_is_valid = match self.action {
            Replace => is_name_template(validation, target),
            Lowercase | Uppercase | KeepEqual | DropEqual | HashMod => validation.label_name(target),
            _ => true,
        };
        if !target_is_valid && !target.is_empty() {
            cx.at(at.child("target_label")).error(format!(
                "{target:?} is invalid `target_label` for {action} action"
            ));
        }
        let replacement = self.replacement.0.as_str();
        if self.action == LabelMap && !is_name_template(validation, replacement) {
            cx.at(at.child("replacement")).error(format!(
                "{replacement:?} is invalid `replacement` for {action} action"
            ));
        }
    }
}

/// Whether the text is a label name that may contain groups of a regex.
fn is_name_template(validation: Validation, text: &str) -> bool {
    if validation == Validation::Utf8 || !text.contains('$') {
        return validation.label_name(text);
    }
    let mut name = String::new();
    // Any group may turn out to be a letter.
    expand(text, &mut name, |_| "a");
    validation.label_name(&name)
}

/// Applies the rules in order; false when one of them drops the set.
pub fn apply(rules: &[Rule], validation: Validation, labels: &mut Labels) -> bool {
    rules.iter().all(|rule| rule.apply(validation, labels))
}

impl Rule {
    fn apply(&self, validation: Validation, labels: &mut Labels) -> bool {
        let regex = &self.regex.regex;
        let source = || {
            let values: Vec<_> = self.source_labels.iter().map(|name| labels.get(name)).collect();
            values.join(&self.separator.0)
        };
        let target = self.target_label.0.as_str();
        match self.action {
            Action::Keep => return regex.is_match(&source()),
            Action::Drop => return !regex.is_match(&source()),
            Action::KeepEqual => return labels.get(target) == source(),
            Action::DropEqual => return labels.get(target) != source(),
            Action::Replace => {
                let source = source();
                self.replace(&source, validation, labels);
            }
            Action::Lowercase => {
                let lower = source().to_lowercase();
                labels.set(target, lower);
            }
            Action::Uppercase => {
                let upper = source().to_uppercase();
                labels.set(target, upper);
            }
            Action::HashMod => {
                let hash = last_word(source().as_bytes());
                labels.set(target, (hash % self.modulus.max(1)).to_string());
            }
            Action::LabelMap => self.map(labels),
            Action::LabelDrop => labels.retain(|name| !regex.is_match(name)),
            Action::LabelKeep => labels.retain(|name| regex.is_match(name)),
        }
        true
    }

    fn replace(&self, source: &str, validation: Validation, labels: &mut Labels) {
        let Some(found) = self.regex.regex.captures(source) else {
            return;
        };
        let target = expanded(&self.target_label.0, &found);
        if validation.label_name(&target) {
            labels.set(&target, expanded(&self.replacement.0, &found));
        }
    }

    fn map(&self, labels: &mut Labels) {
        let copies: Vec<_> = labels
            .iter()
            .filter_map(|(name, value)| {
                let found = self.regex.regex.captures(name)?;
                Some((expanded(&self.replacement.0, &found), value.to_owned()))
            })
            .collect();
        for (name, value) in copies {
            labels.set(&name, value);
        }
    }
}

/// The hash that Prometheus uses: the last eight bytes of the MD5 digest, big endian.
fn last_word(message: &[u8]) -> u64 {
    let digest: [u8; 16] = Md5::digest(message).into();
    let [.., a, b, c, d, e, f, g, h] = digest;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests;
