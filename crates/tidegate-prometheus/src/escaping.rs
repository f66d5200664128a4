// SPDX-License-Identifier: Apache-2.0

//! Escaping of names that only newer scrapers accept (prometheus/common, "escaping schemes").

use std::fmt::Write;

/// The escaping of names after the translation: the `escaping` parameter of `Accept`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Escaping {
    /// `allow-utf-8`: not at all.
    AllowUtf8,
    /// Each bad character becomes `_`.
    #[default]
    Underscores,
    /// `.` becomes `_dot_`, `_` becomes `__`, other bad characters `__`.
    Dots,
    /// `U__` in front, `_` becomes `__`, each bad character its number: `_2e_`.
    Values,
}

/// The values of the parameter.
const NAMES: [(&str, Escaping); 4] = [
    ("allow-utf-8", Escaping::AllowUtf8),
    ("underscores", Escaping::Underscores),
    ("dots", Escaping::Dots),
    ("values", Escaping::Values),
];

/// The kind of a name: labels may not contain colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameKind {
    Metric,
    Label,
}

impl Escaping {
    /// The escaping of this name, as in `escaping=dots`.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, it)| *it)
    }

    /// The name of the scheme.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllowUtf8 => "allow-utf-8",
            Self::Underscores => "underscores",
            Self::Dots => "dots",
            Self::Values => "values",
        }
    }

    /// The escaped name of a metric. A name that all scrapers accept stays unchanged.
    pub fn metric(self, name: String) -> String {
        self.escape(name, NameKind::Metric)
    }

    /// The escaped name of a label. A name that all scrapers accept stays unchanged.
    pub fn label(self, name: String) -> String {
        self.escape(name, NameKind::Label)
    }

    fn escape(self, name: String, of: NameKind) -> String {
        if self == Self::AllowUtf8 || is_legacy(&name, of) {
            return name;
        }
        let mut escaped = String::with_capacity(name.len() + 8);
        if self == Self::Values {
            escaped.push_str("U__");
        }
        for (at, c) in name.char_indices() {
            match self {
                Self::Dots if c == '.' => escaped.push_str("_dot_"),
                Self::Dots | Self::Values if c == '_' => escaped.push_str("__"),
                _ if is_legacy_char(c, at == 0, of) => escaped.push(c),
                Self::Dots => escaped.push_str("__"),
                // Writing to a string can't fail.
                Self::Values => _ = write!(escaped, "_{:x}_", u32::from(c)),
                Self::Underscores | Self::AllowUtf8 => escaped.push('_'),
            }
        }
        escaped
    }
}

/// The name that `values` made this one of; `None`: it made none of that kind.
pub fn unescape(name: &str) -> Option<String> {
    let mut rest = name.strip_prefix("U__")?;
    let mut plain = String::with_capacity(rest.len());
    while let Some((before, behind)) = rest.split_once('_') {
        plain.push_str(before);
        let (number, behind) = behind.split_once('_')?;
        plain.push(match number {
            "" => '_',
            // No character has more digits.
            _ if number.len() > 6 => return None,
            _ => char::from_u32(u32::from_str_radix(number, 16).ok()?)?,
        });
        rest = behind;
    }
    plain.push_str(rest);
    Some(plain)
}

/// Whether every version of Prometheus takes it as a metric's name: `[a-zA-Z_:][a-zA-Z0-9_:]*`.
pub fn is_legacy_metric_name(name: &str) -> bool {
    is_legacy(name, NameKind::Metric)
}

/// Whether every version of Prometheus takes it as a label's name: `[a-zA-Z_][a-zA-Z0-9_]*`.
pub fn is_legacy_label_name(name: &str) -> bool {
    is_legacy(name, NameKind::Label)
}

fn is_legacy(name: &str, of: NameKind) -> bool {
    let mut chars = name.char_indices();
    !name.is_empty() && chars.all(|(at, c)| is_legacy_char(c, at == 0, of))
}

fn is_legacy_char(c: char, is_first: bool, of: NameKind) -> bool {
    match c {
        ':' => of == NameKind::Metric,
        '0'..='9' => !is_first,
        c => c.is_ascii_alphabetic() || c == '_',
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_escaped_by_each_of_the_four_schemes() {
        use Escaping::{AllowUtf8, Dots, Underscores, Values};
        let table = [
            ("mysystem.prod.west", AllowUtf8, "mysystem.prod.west"),
            ("mysystem.prod.west", Underscores, "mysystem_prod_west"),
            ("mysystem.prod.west", Dots, "mysystem_dot_prod_dot_west"),
            ("mysystem.prod.west", Values, "U__mysystem_2e_prod_2e_west"),
            ("http.status:sum", Underscores, "http_status:sum"),
            ("http.status:sum", Values, "U__http_2e_status:sum"),
            ("a_b.c", Dots, "a__b_dot_c"),
            ("a_b.c", Values, "U__a__b_2e_c"),
            ("label with \u{ff31}", Underscores, "label_with__"),
            ("label with \u{ff31}", Dots, "label__with____"),
            ("label with \u{ff31}", Values, "U__label_20_with_20__ff31_"),
            ("no:escaping_required", Dots, "no:escaping_required"),
            ("no:escaping_required", Values, "no:escaping_required"),
            ("0fails", Underscores, "_fails"),
            ("0fails", Dots, "__fails"),
            ("0fails", Values, "U___30_fails"),
        ];
        for (name, scheme, expected) in table {
            assert_eq!(scheme.metric(name.to_owned()), expected, "{name} {scheme:?}");
        }
    }

    #[test]
    fn a_label_may_not_have_colons() {
        assert_eq!(Escaping::Underscores.label("a:b".into()), "a_b");
        assert_eq!(Escaping::Values.label("a:b".into()), "U__a_3a_b");
        assert_eq!(Escaping::AllowUtf8.label("a:b".into()), "a:b");
        assert!(!is_legacy_label_name("a:b") && is_legacy_metric_name("a:b"));
    }

    #[test]
    fn schemes_have_the_names_of_the_header() {
        for (name, scheme) in NAMES {
            assert_eq!(scheme.name(), name);
            assert_eq!(Escaping::named(name), Some(scheme));
        }
        assert_eq!(Escaping::named("sparks"), None);
    }

    #[test]
    fn what_was_not_escaped_is_not_unescaped() {
        for name in ["job", "U__a_2", "U__a_zz_", "U__a_d800_", "U__a_1234567_"] {
            assert_eq!(unescape(name), None, "{name}");
        }
        assert_eq!(unescape("U__job").as_deref(), Some("job"));
    }

    proptest! {
        #[test]
        fn what_is_escaped_by_values_is_found_again(name in ".{1,12}") {
            let escaped = Escaping::Values.label(name.clone());
            if escaped != name {
                prop_assert_eq!(unescape(&escaped), Some(name));
            }
        }

        #[test]
        fn what_is_escaped_is_a_name_that_all_take(name in ".{1,12}") {
            for (_, scheme) in NAMES.into_iter().skip(1) {
                prop_assert!(is_legacy_metric_name(&scheme.metric(name.clone())), "{scheme:?}");
                prop_assert!(is_legacy_label_name(&scheme.label(name.clone())), "{scheme:?}");
            }
        }
    }
}
