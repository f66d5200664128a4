// SPDX-License-Identifier: Apache-2.0

//! Metric names: characters, units as words, type suffixes, namespace, and escaping for scrapers.
//!
//! The result equals that of prometheus/otlptranslator byte for byte. `docs/prometheus.md` lists the few
//! differences.

/// The kind of a metric, which determines the suffixes. A summary counts as a histogram.
pub use tidegate_engine::Instrument as Kind;
use tidegate_engine::Metric;

use super::escaping::{Escaping, is_legacy_metric_name};
use super::model::PROMETHEUS_TYPE;
use super::unit::{Words, name_with_suffixes, unit_of_family};

tidegate_config::choices! {
    /// Translation of OTLP names, with the Collector's values.
    pub enum Strategy {
        /// Characters of old Prometheus names only; unit and type as suffixes.
        UnderscoresAndSuffixes = "UnderscoreEscapingWithSuffixes",
        /// Characters of old Prometheus names only.
        Underscores = "UnderscoreEscapingWithoutSuffixes",
        /// Any characters; unit and type as suffixes.
        Suffixes = "NoUTF8EscapingWithSuffixes",
        /// Names as they are.
        Nothing = "NoTranslation",
    }
}

impl Strategy {
    /// Whether every name becomes one that all versions of Prometheus take.
    pub fn escapes(self) -> bool {
        matches!(self, Self::UnderscoresAndSuffixes | Self::Underscores)
    }

    /// Whether unit and type become suffixes.
    pub fn adds_suffixes(self) -> bool {
        matches!(self, Self::UnderscoresAndSuffixes | Self::Suffixes)
    }
}

/// The rules for making names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// Put before every name, joined by `_`.
    pub namespace: String,
    /// The translation of OTLP names.
    pub strategy: Strategy,
    /// The escaping of the remaining characters, for the reader of the names.
    pub escaping: Escaping,
}

impl Default for Naming {
    fn default() -> Self {
        Self {
            namespace: String::new(),
            strategy: Strategy::UnderscoresAndSuffixes,
            escaping: Escaping::default(),
        }
    }
}

/// The origin of the names of a metric and its labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spelling {
    /// A sender of OTLP: names are translated.
    #[default]
    Otlp,
    /// Prometheus, by a scrape or a remote write: legal names stay unchanged.
    Prometheus,
}

impl Spelling {
    /// That of a metric: a metric from Prometheus has its type in its metadata.
    pub fn of(metric: &Metric) -> Self {
        match metric.metadata.get(PROMETHEUS_TYPE) {
            Some(_) => Self::Prometheus,
            None => Self::Otlp,
        }
    }
}

impl Naming {
    /// The Prometheus name of a metric; `None`: its name has no character that Prometheus allows.
    pub fn of(&self, metric: &Metric, kind: Kind) -> Option<String> {
        self.spelt(Spelling::of(metric), &metric.name, &metric.unit, kind)
    }

    /// The name for a name of this spelling.
    pub(super) fn spelt(&self, spelling: Spelling, name: &str, unit: &str, kind: Kind) -> Option<String> {
        match spelling {
            Spelling::Otlp => self.metric(name, unit, kind),
            Spelling::Prometheus => self.kept(name),
        }
    }

    /// A name from Prometheus: without suffixes, and escaped only if it is not legal everywhere.
    fn kept(&self, name: &str) -> Option<String> {
        let name = if self.strategy.escapes() {
            self.prefixed(words(name)?)
        } else {
            self.prefixed_raw(name)?
        };
        Some(self.escaping.metric(without_nul(name)))
    }

    /// The Prometheus name for a name of OTLP; `None`: it has no character that Prometheus allows.
    pub fn metric(&self, name: &str, unit: &str, kind: Kind) -> Option<String> {
        let translated = match self.strategy {
            Strategy::UnderscoresAndSuffixes => {
                self.prefixed(name_with_suffixes(name, unit, kind.suffix(unit))?)
            }
            Strategy::Underscores => self.prefixed(words(name)?),
            Strategy::Suffixes => with_suffixes(self.prefixed_raw(name)?, unit, kind),
            Strategy::Nothing => self.prefixed_raw(name)?,
        };
        let name = self.escaping.metric(without_nul(translated));
        // OpenMetrics takes the suffix off a counter's name: there must be something before it.
        (kind != Kind::Counter || name != "_total").then_some(name)
    }

    /// The name of the gateway's own family: the namespace and the name, without suffixes.
    pub fn own(&self, name: &str) -> String {
        let name = match (self.namespace.as_str(), self.strategy.escapes()) {
            ("", _) => name.to_owned(),
            (_, true) => self.prefixed(name.to_owned()),
            (namespace, false) => format!("{namespace}_{name}"),
        };
        self.escaping.metric(without_nul(name))
    }

    /// The unit of the family's UNIT line. It must be the end of the family's name (OpenMetrics, "UNIT").
    pub fn unit(&self, unit: &str, family: &str) -> Option<String> {
        unit_of_family(unit, family)
    }

    /// Behind the namespace, and never with a digit first.
    fn prefixed(&self, name: String) -> String {
        let mut name = match words(&self.namespace) {
            Some(namespace) => format!("{namespace}_{name}"),
            None => name,
        };
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            name.insert(0, '_');
        }
        name
    }

    /// Behind the namespace, all characters as they are.
    fn prefixed_raw(&self, name: &str) -> Option<String> {
        if name.is_empty() {
            return None;
        }
        Some(match self.namespace.as_str() {
            "" => name.to_owned(),
            namespace => format!("{namespace}_{name}"),
        })
    }
}

/// Prometheus's own parsers take a NUL for the end of the page.
pub(super) fn without_nul(name: String) -> String {
    if name.contains('\0') {
        name.replace('\0', "_")
    } else {
        name
    }
}

/// The runs of characters that a name may have, joined by `_`; underscores within them stay.
fn words(name: &str) -> Option<String> {
    if is_legacy_metric_name(name) {
        return Some(name.to_owned());
    }
    let is_kept = |c: char| c.is_ascii_alphanumeric() || c == ':' || c == '_';
    let words: Vec<_> = name
        .split(|c| !is_kept(c))
        .filter(|word| !word.is_empty())
        .collect();
    let joined = words.join("_");
    let has_more_than_underscores = joined.bytes().any(|byte| byte != b'_');
    has_more_than_underscores.then_some(joined)
}

/// Appends unit and type to a name that keeps its characters, unless it ends with them already.
fn with_suffixes(name: String, unit: &str, kind: Kind) -> String {
    let Words { main, per } = Words::raw(unit);
    let last = kind.suffix(unit).unwrap_or_default();
    let mut name = without_last(without_last(&name, last), &per).to_owned();
    if !main.is_empty() && !name.ends_with(&main) {
        name = format!("{name}_{main}");
    }
    for suffix in [per.as_str(), last]
        .into_iter()
        .filter(|suffix| !suffix.is_empty())
    {
        name = format!("{name}_{suffix}");
    }
    name
}

/// Removes this last word and the character before it, unless nothing would be left. The translator accepts any
/// character as a separator, so `subtotal` becomes `su_total`.
fn without_last<'a>(name: &'a str, word: &str) -> &'a str {
    let rest = name.strip_suffix(word).filter(|_| !word.is_empty());
    let rest = rest.and_then(|rest| rest.strip_suffix(|_: char| true));
    rest.filter(|rest| !rest.is_empty()).unwrap_or(name)
}

#[cfg(test)]
mod tests;
