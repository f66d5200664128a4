// SPDX-License-Identifier: Apache-2.0

//! The types of YAML scalars.

use granit_parser::Tag;

use super::node::{Scalar, ScalarKind};

/// Whether a tag names a type of YAML's own, by its suffix: `str` for `!!str`.
pub(super) fn is_core(tag: &Tag, suffix: &str) -> bool {
    tag.to_string() == format!("tag:yaml.org,2002:{suffix}")
}

/// A scalar as written; `None` when its tag does not fit its text.
pub(super) fn scalar(text: String, quoted: bool, tag: Option<&Tag>) -> Option<Scalar> {
    let plain_kind = resolve(&text);
    let (kind, quoted) = match tag {
        None if quoted => (ScalarKind::Str, true),
        None => (plain_kind, false),
        Some(tag) if is_core(tag, "str") => (ScalarKind::Str, true),
        Some(tag) if is_core(tag, tag_suffix(plain_kind)) => (plain_kind, false),
        Some(_) => return None,
    };
    Some(Scalar { kind, text, quoted })
}

fn tag_suffix(kind: ScalarKind) -> &'static str {
    match kind {
        ScalarKind::Null => "null",
        ScalarKind::Bool(_) => "bool",
        ScalarKind::Int(_) => "int",
        ScalarKind::Float(_) => "float",
        ScalarKind::Str => "str",
    }
}

/// The type of a plain scalar by YAML 1.2.2 section 10.3.2, the core schema.
pub(super) fn resolve(text: &str) -> ScalarKind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => ScalarKind::Null,
        "true" | "True" | "TRUE" => ScalarKind::Bool(true),
        "false" | "False" | "FALSE" => ScalarKind::Bool(false),
        ".nan" | ".NaN" | ".NAN" => ScalarKind::Float(f64::NAN),
        text => resolve_int(text)
            .map(ScalarKind::Int)
            .or_else(|| resolve_float(text).map(ScalarKind::Float))
            .unwrap_or(ScalarKind::Str),
    }
}

fn resolve_int(text: &str) -> Option<i128> {
    if let Some(hex) = text.strip_prefix("0x") {
        return digits(hex, 16);
    }
    if let Some(octal) = text.strip_prefix("0o") {
        return digits(octal, 8);
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let value = digits(unsigned, 10)?;
    Some(if text.starts_with('-') { -value } else { value })
}

fn digits(text: &str, radix: u32) -> Option<i128> {
    let clean = !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
    clean.then(|| i128::from_str_radix(text, radix).ok())?
}

fn resolve_float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
        return Some(sign * f64::INFINITY);
    }
    let numeric = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.contains(|c: char| c.is_ascii_digit())
        && unsigned
            .bytes()
            .all(|c| c.is_ascii_digit() || b".eE+-".contains(&c));
    numeric.then(|| text.parse().ok())?
}
