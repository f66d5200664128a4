// SPDX-License-Identifier: Apache-2.0

//! The functions of templates that depend on their arguments only.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use regex::{Regex, RegexBuilder};
use tidegate_promql::parse_duration;

use super::times::TemplateTime;
use super::value::{TemplateSample, TemplateValue};
use super::{MAX_OUTPUT, hosts, numbers, printf, times, too_long};

/// All functions.
const KNOWN: &[&str] = &[
    "and",
    "args",
    "eq",
    "externalURL",
    "first",
    "ge",
    "graphLink",
    "gt",
    "html",
    "humanize",
    "humanize1024",
    "humanizeDuration",
    "humanizePercentage",
    "humanizeTimestamp",
    "index",
    "label",
    "le",
    "len",
    "lt",
    "match",
    "ne",
    "not",
    "now",
    "or",
    "parseDuration",
    "pathPrefix",
    "print",
    "printf",
    "println",
    "query",
    "reReplaceAll",
    "safeHtml",
    "slice",
    "sortByLabel",
    "stripDomain",
    "stripPort",
    "strvalue",
    "tableLink",
    "title",
    "toDuration",
    "toLower",
    "toTime",
    "toUpper",
    "urlQueryEscape",
    "urlquery",
    "value",
];

/// Compiled, a pattern takes so many bytes at most.
const MAX_PATTERN_BYTES: usize = 256 << 10;

type CallResult = Result<TemplateValue, String>;

/// Whether there is a function of this name.
pub(super) fn is_known(name: &str) -> bool {
    KNOWN.contains(&name)
}

/// The steps that a call costs.
pub(super) fn cost(name: &str) -> usize {
    match name {
        "match" | "query" | "reReplaceAll" | "sortByLabel" => 1000,
        _ => 1,
    }
}

/// Calls a function that depends on its arguments only.
pub(super) fn call(name: &str, arguments: &[TemplateValue]) -> CallResult {
    let found = match arguments {
        [one] => of_one(name, one),
        [first, second] => of_two(name, first, second),
        [pattern, with, text] if name == "reReplaceAll" => Some(replace(pattern, with, text)),
        [text, from, to] if name == "slice" => Some(slice(text, from, Some(to))),
        _ => None,
    };
    found.unwrap_or_else(|| of_many(name, arguments))
}

/// Functions of one value; `None`: there is no such function.
fn of_one(name: &str, one: &TemplateValue) -> Option<CallResult> {
    let number = |write: fn(f64) -> String| -> CallResult { Ok(write(one.number()?).into()) };
    let text = |write: fn(&str) -> String| -> CallResult { Ok(write(one.text()?).into()) };
    Some(match name {
        "first" => first(one),
        "value" => sample(one).map(|sample| TemplateValue::Float(sample.value)),
        "strvalue" => sample(one).map(|sample| sample.labels.get("__value__").into()),
        "not" => Ok(TemplateValue::Bool(!one.is_true())),
        "len" => length(one),
        "humanize" => number(numbers::humanize),
        "humanize1024" => number(numbers::humanize1024),
        "humanizeDuration" => number(numbers::humanize_duration),
        "humanizePercentage" => number(numbers::humanize_percentage),
        "humanizeTimestamp" => one.number().and_then(numbers::humanize_timestamp).map(Into::into),
        "toTime" => one
            .number()
            .and_then(TemplateTime::from_seconds)
            .map(TemplateValue::Time),
        "toDuration" => one.number().and_then(times::duration_of_seconds),
        "parseDuration" => one.text().and_then(seconds).map(TemplateValue::Float),
        "safeHtml" => text(str::to_owned),
        "title" => text(title),
        "toLower" => text(str::to_lowercase),
        "toUpper" => text(str::to_uppercase),
        "stripPort" => text(hosts::strip_port),
        "stripDomain" => text(hosts::strip_domain),
        "urlQueryEscape" => text(hosts::escape_query),
        "graphLink" => one.text().map(|expr| hosts::link(expr, 0).into()),
        "tableLink" => one.text().map(|expr| hosts::link(expr, 1).into()),
        _ => return None,
    })
}

/// Functions of two values; `None`: there is no such function.
fn of_two(name: &str, first: &TemplateValue, second: &TemplateValue) -> Option<CallResult> {
    let compare = |accepts: fn(Ordering) -> bool| -> CallResult {
        let order = first.compare(second)?;
        Ok(TemplateValue::Bool(order.is_some_and(accepts)))
    };
    Some(match name {
        "label" => label(first, second),
        "sortByLabel" => sort(first, second),
        "match" => matches(first, second),
        "index" => index(first, second),
        "slice" => slice(first, second, None),
        "ne" => first
            .equals(second)
            .map(|is_equal| TemplateValue::Bool(!is_equal)),
        "lt" => compare(Ordering::is_lt),
        "le" => compare(Ordering::is_le),
        "gt" => compare(Ordering::is_gt),
        "ge" => compare(Ordering::is_ge),
        _ => return None,
    })
}

/// Functions of any number of values.
fn of_many(name: &str, arguments: &[TemplateValue]) -> CallResult {
    match (name, arguments) {
        ("args", _) => named_arguments(arguments),
        ("eq", [first, others @ ..]) if !others.is_empty() => {
            let mut is_equal = false;
            for other in others {
                is_equal |= first.equals(other)?;
            }
            Ok(TemplateValue::Bool(is_equal))
        }
        ("printf", [format, values @ ..]) => printf::printf(format.text()?, values).map(Into::into),
        ("print", _) => Ok(print(arguments).into()),
        ("println", _) => {
            let shown: Vec<String> = arguments.iter().map(TemplateValue::show).collect();
            Ok((shown.join(" ") + "\n").into())
        }
        ("html", _) => Ok(hosts::escape_html(&print(arguments)).into()),
        ("urlquery", _) => Ok(hosts::escape_query(&print(arguments)).into()),
        _ => Err(format!(
            "wrong number of args for {name}: got {}",
            arguments.len()
        )),
    }
}

/// The seconds of a duration, which may be negative.
fn seconds(duration: &str) -> Result<f64, String> {
    let millis = match duration.strip_prefix('-') {
        Some(duration) => -parse_duration(duration)?,
        None => parse_duration(duration)?,
    };
    Ok(millis as f64 / 1000.0)
}

/// As in Go, a space stands between two values of which none is a text.
fn print(arguments: &[TemplateValue]) -> String {
    let mut out = String::new();
    let mut was_text = true;
    for value in arguments {
        let is_text = matches!(value, TemplateValue::Text(_));
        if !is_text && !was_text {
            out.push(' ');
        }
        out += &value.show();
        was_text = is_text;
    }
    out
}

fn sample(value: &TemplateValue) -> Result<&TemplateSample, String> {
    match value {
        TemplateValue::Sample(sample) => Ok(sample),
        other => Err(format!(
            "wrong type for value; expected *template.sample; got {}",
            other.kind()
        )),
    }
}

fn list(value: &TemplateValue) -> Result<&[Rc<TemplateSample>], String> {
    match value {
        TemplateValue::List(list) => Ok(list),
        other => Err(format!(
            "wrong type for value; expected template.queryResult; got {}",
            other.kind()
        )),
    }
}

fn first(value: &TemplateValue) -> CallResult {
    let first = list(value)?.first();
    let first = first.ok_or("first() called on vector with no elements")?;
    Ok(TemplateValue::Sample(first.clone()))
}

fn label(name: &TemplateValue, of: &TemplateValue) -> CallResult {
    Ok(sample(of)?.labels.get(name.text()?).into())
}

fn sort(name: &TemplateValue, value: &TemplateValue) -> CallResult {
    let name = name.text()?;
    let mut sorted = list(value)?.to_vec();
    sorted.sort_by(|a, b| a.labels.get(name).cmp(b.labels.get(name)));
    Ok(TemplateValue::List(Rc::new(sorted)))
}

fn length(value: &TemplateValue) -> CallResult {
    let length = match value {
        TemplateValue::Text(text) => text.len(),
        TemplateValue::Labels(labels) => labels.iter().len(),
        TemplateValue::List(list) => list.len(),
        TemplateValue::Arguments(map) => map.len(),
        other => return Err(format!("len of type {}", other.kind())),
    };
    Ok(TemplateValue::Int(length as i64))
}

fn index(value: &TemplateValue, key: &TemplateValue) -> CallResult {
    match (value, key) {
        (TemplateValue::Labels(labels), TemplateValue::Text(name)) => Ok(labels.get(name).into()),
        (TemplateValue::Arguments(map), TemplateValue::Text(name)) => {
            Ok(map.get(&**name).cloned().unwrap_or(TemplateValue::Nil))
        }
        (TemplateValue::List(list), TemplateValue::Int(at)) => {
            let found = usize::try_from(*at).ok().and_then(|at| list.get(at));
            let found = found.ok_or_else(|| format!("index out of range: {at}"))?;
            Ok(TemplateValue::Sample(found.clone()))
        }
        _ => Err(format!("can't index item of type {}", value.kind())),
    }
}

fn slice(text: &TemplateValue, from: &TemplateValue, to: Option<&TemplateValue>) -> CallResult {
    let text = text.text()?;
    let position = |value: &TemplateValue| match value {
        TemplateValue::Int(at) => usize::try_from(*at).map_err(|_| format!("index out of range: {at}")),
        other => Err(format!("cannot index slice with type {}", other.kind())),
    };
    let from = position(from)?;
    let to = to.map_or(Ok(text.len()), position)?;
    let cut = text.get(from..to);
    cut.map(Into::into)
        .ok_or_else(|| format!("index out of range: {to}"))
}

fn named_arguments(arguments: &[TemplateValue]) -> CallResult {
    let mut map = BTreeMap::new();
    for (at, value) in arguments.iter().enumerate() {
        if matches!(value, TemplateValue::Arguments(_)) {
            return Err("args in args is not supported".to_owned());
        }
        map.insert(format!("arg{at}"), value.clone());
    }
    Ok(TemplateValue::Arguments(Rc::new(map)))
}

fn pattern(text: &TemplateValue) -> Result<Regex, String> {
    let text = text.text()?;
    let built = RegexBuilder::new(text).size_limit(MAX_PATTERN_BYTES).build();
    built.map_err(|_| format!("error parsing regexp: `{text}`"))
}

fn matches(regex: &TemplateValue, text: &TemplateValue) -> CallResult {
    Ok(TemplateValue::Bool(pattern(regex)?.is_match(text.text()?)))
}

fn replace(regex: &TemplateValue, with: &TemplateValue, text: &TemplateValue) -> CallResult {
    let regex = pattern(regex)?;
    let (with, text) = (with.text()?, text.text()?);
    // Each `$` stands for a part of a match, and no two matches share a part of the text.
    let found = regex.find_iter(text).count();
    let references = with.matches('$').count();
    let literal = found.saturating_mul(with.len());
    let most = references.saturating_mul(text.len()).saturating_add(literal);
    if most > 16 * MAX_OUTPUT {
        return Err(too_long());
    }
    let replaced = regex.replace_all(text, with);
    Ok((&*replaced).into())
}

/// The first letter of each word as a capital, with the words of Go's `cases.Title`: a dot or an apostrophe between two
/// letters divides no word.
fn title(text: &str) -> String {
    let mut title = String::with_capacity(text.len());
    let (mut is_in_word, mut was_joint) = (false, false);
    for c in text.chars() {
        let is_joint = is_joint(c);
        is_in_word &= !(was_joint && is_joint);
        was_joint = is_joint;
        if !(c.is_lowercase() || c.is_uppercase()) {
            title.push(c);
            is_in_word &= !divides(c);
        } else if is_in_word {
            title.push(c);
        } else {
            push_capital(c, &mut title);
            is_in_word = true;
        }
    }
    title
}

/// Whether a word may go on after this mark (Unicode's `MidLetter`, `MidNumLet` and `Single_Quote`).
fn is_joint(c: char) -> bool {
    matches!(
        c,
        '.' | ':' | '\'' | '\u{b7}' | '\u{387}' | '\u{2018}' | '\u{2019}' | '\u{2024}' | '\u{2027}'
    )
}

/// Whether a word ends here, if the character is not a letter of two cases.
fn divides(c: char) -> bool {
    let is_ideograph = matches!(c, '\u{3040}'..='\u{9fff}' | '\u{20000}'..='\u{3ffff}');
    let is_extension = matches!(c, '_' | '\u{ad}' | '\u{300}'..='\u{36f}' | '\u{200d}');
    is_ideograph || !(c.is_alphanumeric() || is_extension || is_joint(c))
}

/// Adds the capital of a letter: of `ß` it is `Ss`.
fn push_capital(c: char, text: &mut String) {
    let mut capitals = c.to_uppercase();
    if let Some(first) = capitals.next() {
        text.push(first);
        if first.is_uppercase() {
            text.extend(capitals.flat_map(char::to_lowercase));
        } else {
            text.extend(capitals);
        }
    }
}
