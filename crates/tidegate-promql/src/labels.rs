// SPDX-License-Identifier: Apache-2.0

//! Label sets of the query language, and matchers over them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use regex::{Regex, RegexBuilder};

use super::syntax::quoted;

/// The label that holds the metric's name.
pub const NAME: &str = "__name__";

/// Labels that go together with the metric's name: the name itself, and its type and unit labels.
pub(super) fn is_of_name(label: &str) -> bool {
    label.starts_with("__") && matches!(label, NAME | "__type__" | "__unit__")
}

/// Labels in the order of their names; no name twice, no empty value. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Labels(Arc<[(Arc<str>, Arc<str>)]>);

/// By names and values in turn. Texts that are shared, as names are, are not read.
impl Ord for Labels {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let texts = |a: &Arc<str>, b: &Arc<str>| {
            if Arc::ptr_eq(a, b) {
                std::cmp::Ordering::Equal
            } else {
                a.cmp(b)
            }
        };
        let pairs = self.0.iter().zip(&*other.0);
        let mut orders = pairs.map(|(a, b)| texts(&a.0, &b.0).then_with(|| texts(&a.1, &b.1)));
        let first = orders.find(|order| order.is_ne());
        first.unwrap_or_else(|| self.0.len().cmp(&other.0.len()))
    }
}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Default for Labels {
    fn default() -> Self {
        static NONE: LazyLock<Labels> = LazyLock::new(|| Labels(Arc::from([])));
        NONE.clone()
    }
}

impl<K: Into<Arc<str>>, V: Into<Arc<str>>> FromIterator<(K, V)> for Labels {
    /// Among several values for one name the last one stays; an empty value is none.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter().map(|(name, value)| (name.into(), value.into()));
        let mut pairs: Vec<(Arc<str>, Arc<str>)> = pairs.collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.reverse();
        pairs.dedup_by(|next, kept| next.0 == kept.0);
        pairs.reverse();
        pairs.retain(|(_, value)| !value.is_empty());
        Self(pairs.into())
    }
}

impl Labels {
    /// The value of a label; empty without one, as in PromQL.
    pub fn get(&self, name: &str) -> &str {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(name));
        at.ok()
            .and_then(|at| self.0.get(at))
            .map_or("", |(_, value)| value)
    }

    /// Names and values in the order of names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Arc<str>)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// Only the labels whose names `keep` accepts.
    pub fn filter(&self, keep: impl Fn(&str) -> bool) -> Self {
        if self.0.iter().all(|(name, _)| keep(name)) {
            self.clone()
        } else {
            Self(self.0.iter().filter(|(name, _)| keep(name)).cloned().collect())
        }
    }

    /// Without the metric's name, type and unit.
    pub fn nameless(&self) -> Self {
        self.filter(|name| !is_of_name(name))
    }

    /// The metric's name; `None`: there are labels of its type or unit as well.
    pub(super) fn only_name(&self) -> Option<&str> {
        let of_name = self.0.iter().filter(|(name, _)| is_of_name(name));
        let mut rest = of_name.filter(|(name, _)| **name != *NAME);
        match rest.next() {
            Some(_) => None,
            None => Some(self.get(NAME)),
        }
    }

    /// With one label set; empty removes it.
    pub fn with(&self, name: &str, value: &str) -> Self {
        let own = self.0.iter().filter(|(known, _)| **known != *name).cloned();
        own.chain([(name.into(), value.into())]).collect()
    }
}

impl std::fmt::Display for Labels {
    /// Writes the labels as Prometheus does.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("{")?;
        for (at, (name, value)) in self.0.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{name}={}", quoted(value))?;
        }
        f.write_str("}")
    }
}

/// The operator of a matcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchKind {
    Equal,
    NotEqual,
    Matches,
    MatchesNot,
}

/// The condition of a selector on one label.
#[derive(Clone, Debug)]
pub struct Matcher {
    kind: MatchKind,
    name: Arc<str>,
    value: Arc<str>,
    /// Set if `kind` matches by pattern.
    pattern: Option<Pattern>,
}

/// The values that a pattern accepts.
#[derive(Clone, Debug)]
enum Pattern {
    /// One of these texts, in order.
    Listed(Arc<[String]>),
    Compiled(Regex),
}

impl Pattern {
    fn of(pattern: &str, patterns: &Patterns) -> Result<Self, String> {
        if let Some(mut texts) = alternatives(pattern) {
            texts.sort_unstable();
            texts.dedup();
            return Ok(Self::Listed(texts.into()));
        }
        let compiled = patterns.compile(pattern)?;
        Ok(Self::Compiled(compiled.regex))
    }

    fn accepts(&self, value: &str) -> bool {
        match self {
            Self::Listed(texts) => texts.binary_search_by(|text| text.as_str().cmp(value)).is_ok(),
            Self::Compiled(regex) => regex.is_match(value),
        }
    }
}

impl Matcher {
    /// The error is the pattern's.
    pub(super) fn new(kind: MatchKind, name: &str, value: &str, patterns: &Patterns) -> Result<Self, String> {
        let is_pattern = matches!(kind, MatchKind::Matches | MatchKind::MatchesNot);
        Ok(Self {
            kind,
            name: name.into(),
            value: value.into(),
            pattern: is_pattern.then(|| Pattern::of(value, patterns)).transpose()?,
        })
    }

    /// Accepts one value.
    pub(super) fn equal(name: &str, value: &str) -> Self {
        Self {
            kind: MatchKind::Equal,
            name: name.into(),
            value: value.into(),
            pattern: None,
        }
    }

    /// The name of the label.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The operand: a value or a pattern.
    pub(super) fn value(&self) -> &str {
        &self.value
    }

    /// The operator in the syntax of the language.
    pub(super) fn operator(&self) -> &'static str {
        match self.kind {
            MatchKind::Equal => "=",
            MatchKind::NotEqual => "!=",
            MatchKind::Matches => "=~",
            MatchKind::MatchesNot => "!~",
        }
    }

    /// The one value that it accepts, if it is that plain.
    pub fn equals(&self) -> Option<&str> {
        (self.kind == MatchKind::Equal).then_some(&*self.value)
    }

    /// All values that it accepts, if they can be listed: one, or those of a pattern of plain texts (`a|b`).
    pub fn values(&self) -> Option<Vec<String>> {
        match (self.kind, &self.pattern) {
            (MatchKind::Equal, _) => Some(vec![self.value.to_string()]),
            (MatchKind::Matches, Some(Pattern::Listed(texts))) => Some(texts.to_vec()),
            _ => None,
        }
    }

    /// Whether it accepts this value; an empty value means that the label is missing.
    pub fn accepts_value(&self, value: &str) -> bool {
        let matches = || {
            self.pattern
                .as_ref()
                .is_some_and(|pattern| pattern.accepts(value))
        };
        match self.kind {
            MatchKind::Equal => value == &*self.value,
            MatchKind::NotEqual => value != &*self.value,
            MatchKind::Matches => matches(),
            MatchKind::MatchesNot => !matches(),
        }
    }

    /// Whether it accepts a series with these labels.
    pub fn accepts(&self, labels: &Labels) -> bool {
        self.accepts_value(labels.get(self.name()))
    }
}

impl std::fmt::Display for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}{}", self.name, self.operator(), quoted(&self.value))
    }
}

/// The patterns of a query. To compile one takes time and memory by its size, so that all of them have a bound together.
#[derive(Debug)]
pub(super) struct Patterns {
    /// Bytes that further ones may take, compiled.
    left: Cell<usize>,
    /// A pattern that comes again is compiled once.
    known: RefCell<HashMap<String, Compiled>>,
}

/// A pattern that must match from end to end.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    pub(super) regex: Regex,
    /// The most bytes that it takes.
    pub(super) bytes: usize,
}

impl Default for Patterns {
    fn default() -> Self {
        /// To compile patterns of this many bytes takes about 80 ms.
        const ALL_BYTES: usize = 8 << 20;
        Self {
            left: Cell::new(ALL_BYTES),
            known: RefCell::default(),
        }
    }
}

impl Patterns {
    /// Sizes of patterns. How large one is shows only when it does not fit.
    const SIZES: [usize; 3] = [16 << 10, 128 << 10, 1 << 20];

    /// A class of two letters becomes thousands of bytes before its size is known.
    const MAX_TEXT: usize = 4 << 10;

    pub(super) fn compile(&self, pattern: &str) -> Result<Compiled, String> {
        const TOO_LARGE: &str = "error parsing regexp: expression too large";
        if let Some(known) = self.known.borrow().get(pattern) {
            return Ok(known.clone());
        }
        if pattern.len() > Self::MAX_TEXT {
            return Err(TOO_LARGE.to_owned());
        }
        for bytes in Self::SIZES {
            let left = self.left.get().checked_sub(bytes);
            self.left.set(left.ok_or(
                "error parsing regexp: the patterns of the query are too large together: use fewer, or simpler ones",
            )?);
            if let Some(regex) = anchored(pattern, bytes)? {
                let compiled = Compiled { regex, bytes };
                self.known
                    .borrow_mut()
                    .insert(pattern.to_owned(), compiled.clone());
                return Ok(compiled);
            }
        }
        Err(TOO_LARGE.to_owned())
    }
}

/// A pattern that must match from end to end; `None`: compiled, it takes more than `size` bytes. As in Go, a brace that
/// begins no repetition is a literal.
fn anchored(pattern: &str, size: usize) -> Result<Option<Regex>, String> {
    let compile = |pattern: &str| {
        RegexBuilder::new(&format!("^(?s:{pattern})$"))
            .size_limit(size)
            .build()
    };
    let compiled = compile(pattern).or_else(|error| {
        if pattern.contains('{') {
            compile(&without_lone_braces(pattern)).map_err(|_| error)
        } else {
            Err(error)
        }
    });
    match compiled {
        Ok(compiled) => Ok(Some(compiled)),
        Err(regex::Error::CompiledTooBig(_)) => Ok(None),
        Err(_) => Err(format!("error parsing regexp: `{pattern}`")),
    }
}

/// The texts that a pattern matches which has no other operator than `|`.
fn alternatives(pattern: &str) -> Option<Vec<String>> {
    let mut all = vec![String::new()];
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        let plain = match letter {
            '|' => {
                all.push(String::new());
                continue;
            }
            '\\' => letters.next().filter(char::is_ascii_punctuation)?,
            '.' | '+' | '*' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '^' | '$' => return None,
            _ => letter,
        };
        all.last_mut()?.push(plain);
    }
    Some(all)
}

fn without_lone_braces(pattern: &str) -> String {
    let mut made = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    while let Some(at) = rest.find('{') {
        let (before, brace) = rest.split_at(at);
        made.push_str(before);
        let inside = brace[1..].split_once('}').map_or("", |(inside, _)| inside);
        let is_repetition = inside.starts_with(|c: char| c.is_ascii_digit())
            && inside.bytes().all(|b| b.is_ascii_digit() || b == b',')
            && inside.bytes().filter(|b| *b == b',').count() <= 1;
        let is_escaped = before.ends_with('\\') || before.ends_with("\\p") || before.ends_with("\\P");
        made.push_str(if is_repetition || is_escaped { "{" } else { "\\{" });
        rest = &brace[1..];
    }
    made + rest
}

/// The one metric name that these ask for, if they do.
pub(super) fn name(matchers: &[Matcher]) -> Option<&str> {
    let mut of_name = matchers.iter().filter(|matcher| matcher.name() == NAME);
    of_name.find_map(Matcher::equals)
}
