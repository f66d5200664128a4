// SPDX-License-Identifier: Apache-2.0

//! StatsD and DogStatsD lines: `name:value[:value...]|type[|@rate][|#key:value,...][|c:container][|T seconds]`.
//!
//! Pure: bytes in, borrowed fields out.

use std::str;

/// The type of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Type {
    /// `c`
    Counter,
    /// `g`
    Gauge,
    /// `ms`
    Timer,
    /// `h`
    Histogram,
    /// `d`
    Distribution,
}

/// The type letters.
const TYPES: &[(&[u8], Type)] = &[
    (b"c", Type::Counter),
    (b"g", Type::Gauge),
    (b"ms", Type::Timer),
    (b"h", Type::Histogram),
    (b"d", Type::Distribution),
];

/// A parsed line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line<'a> {
    /// Metric name.
    pub(super) name: &'a str,
    /// The text between name and type: one or more values, which [`Line::values`] checks.
    pub(super) values: &'a str,
    /// The type.
    pub(super) metric_type: Type,
    /// Fraction of the measurements that are reported, above 0 and at most 1.
    pub(super) rate: f64,
    /// Everything after `#`: `key:value,key,...`.
    pub(super) tags: &'a str,
    /// The time of the line in seconds since 1970, if it has one.
    pub(super) seconds: Option<u64>,
}

/// The reason why a line is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LineError {
    /// The line is not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// No name, or none before the colon.
    #[error("no metric name before `:`")]
    NoName,
    /// No `|type`.
    #[error("no `|type` after the value")]
    NoType,
    /// The type is unknown.
    #[error("the metric type is unknown: send `c`, `g`, `ms`, `h` or `d`")]
    UnknownType,
    /// A value that is not a finite number.
    #[error("a value is not a finite number")]
    BadValue,
    /// `|@` without a number above 0 and up to 1.
    #[error("the sample rate is not a number above 0 and up to 1")]
    BadRate,
    /// `|T` without seconds.
    #[error("the timestamp is not a number of seconds")]
    BadTime,
    /// A set, an event or a service check: well-formed, but no metric point.
    #[error("{0} are not supported")]
    Unsupported(&'static str),
}

/// One value of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LineValue {
    /// The number.
    pub(super) number: f64,
    /// For gauges: whether it is written with a sign, which makes it a change and not a value.
    pub(super) signed: bool,
}

/// Reads a line, without its line feed.
pub(super) fn parse(line: &[u8]) -> Result<Line<'_>, LineError> {
    // DogStatsD: `_e{title.length,text.length}:title|text` and `_sc|name|status`.
    if line.starts_with(b"_e{") {
        return Err(LineError::Unsupported("events"));
    }
    if line.starts_with(b"_sc|") {
        return Err(LineError::Unsupported("service checks"));
    }
    let text = str::from_utf8(line).map_err(|_| LineError::NotUtf8)?;
    let (name, rest) = text.split_once(':').ok_or(LineError::NoName)?;
    if name.is_empty() || name.contains('|') {
        return Err(LineError::NoName);
    }
    let mut sections = rest.split('|');
    let values = sections.next().unwrap_or_default();
    let letters = sections.next().ok_or(LineError::NoType)?;
    let mut line = Line {
        name,
        values,
        metric_type: type_of(letters)?,
        rate: 1.0,
        tags: "",
        seconds: None,
    };
    sections.try_for_each(|section| line.add(section))?;
    Ok(line)
}

fn type_of(letters: &str) -> Result<Type, LineError> {
    if letters == "s" {
        return Err(LineError::Unsupported("sets"));
    }
    TYPES
        .iter()
        .find(|(known, _)| *known == letters.as_bytes())
        .map(|(_, metric_type)| *metric_type)
        .ok_or(LineError::UnknownType)
}

impl<'a> Line<'a> {
    /// Unknown sections (a container id, fields of later versions) are skipped, as the protocol requires.
    fn add(&mut self, section: &'a str) -> Result<(), LineError> {
        if let Some(rate) = section.strip_prefix('@') {
            let sound = |rate: &f64| *rate > 0.0 && *rate <= 1.0;
            self.rate = rate.parse().ok().filter(sound).ok_or(LineError::BadRate)?;
        } else if let Some(tags) = section.strip_prefix('#') {
            self.tags = tags;
        } else if let Some(seconds) = section.strip_prefix('T') {
            self.seconds = Some(seconds.parse().map_err(|_| LineError::BadTime)?);
        }
        Ok(())
    }

    /// The values, of which DogStatsD packs several into a line.
    pub(super) fn values(&self) -> impl Iterator<Item = Result<LineValue, LineError>> + 'a {
        self.values.split(':').map(|text| {
            let number: f64 = text.parse().map_err(|_| LineError::BadValue)?;
            if number.is_finite() {
                Ok(LineValue {
                    number,
                    signed: text.starts_with(['+', '-']),
                })
            } else {
                Err(LineError::BadValue)
            }
        })
    }

    /// Tags as key and value; a tag without a value has an empty one.
    pub(super) fn tags(&self) -> impl Iterator<Item = (&'a str, &'a str)> + 'a {
        self.tags
            .split(',')
            .filter(|tag| !tag.is_empty())
            .map(|tag| tag.split_once(':').unwrap_or((tag, "")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(line: &Line<'_>) -> Vec<f64> {
        line.values().map(|value| value.unwrap().number).collect()
    }

    #[test]
    fn every_type_is_read() {
        let table = [
            ("a.b:1|c", Type::Counter),
            ("a.b:1|g", Type::Gauge),
            ("a.b:1|ms", Type::Timer),
            ("a.b:1|h", Type::Histogram),
            ("a.b:1|d", Type::Distribution),
        ];
        for (text, metric_type) in table {
            let line = parse(text.as_bytes()).unwrap();
            assert_eq!(
                (line.name, line.metric_type, line.rate),
                ("a.b", metric_type, 1.0)
            );
            assert_eq!(numbers(&line), [1.0]);
        }
    }

    #[test]
    fn all_sections_in_any_order() {
        let line =
            parse(b"x:1.5:2:-3e2|d|#env:prod,url:http://a:80,canary|T1656581400|@0.25|c:ci-1|e:it").unwrap();
        assert_eq!(numbers(&line), [1.5, 2.0, -300.0]);
        assert_eq!((line.rate, line.seconds), (0.25, Some(1_656_581_400)));
        let tags: Vec<_> = line.tags().collect();
        assert_eq!(tags, [("env", "prod"), ("url", "http://a:80"), ("canary", "")]);
    }

    #[test]
    fn signs_of_gauges_are_reported() {
        let line = parse(b"g:+3:-4:5|g").unwrap();
        let values: Vec<_> = line.values().map(|value| value.unwrap()).collect();
        assert_eq!(
            values.iter().map(|value| value.signed).collect::<Vec<_>>(),
            [true, true, false]
        );
    }

    #[test]
    fn every_mistake_has_its_reason() {
        let table: &[(&[u8], LineError)] = &[
            (b"", LineError::NoName),
            (b"noise", LineError::NoName),
            (b":1|c", LineError::NoName),
            (b"a|b:1|c", LineError::NoName),
            (b"a:1", LineError::NoType),
            (b"a:1|", LineError::UnknownType),
            (b"a:1|x", LineError::UnknownType),
            (b"a:1|c|@0", LineError::BadRate),
            (b"a:1|c|@1.1", LineError::BadRate),
            (b"a:1|c|@nan", LineError::BadRate),
            (b"a:1|c|Tnow", LineError::BadTime),
            (b"a\xff:1|c", LineError::NotUtf8),
            (b"a:1|s", LineError::Unsupported("sets")),
            (b"_e{5,4}:title|text", LineError::Unsupported("events")),
            (b"_sc|name|0", LineError::Unsupported("service checks")),
        ];
        for (text, error) in table {
            assert_eq!(parse(text), Err(*error), "{}", text.escape_ascii());
        }
        for text in ["a:|c", "a:nan|c", "a:inf|g", "a:1:x|h", "a:1:|h"] {
            let line = parse(text.as_bytes()).unwrap();
            assert!(
                line.values().any(|value| value == Err(LineError::BadValue)),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_well_formed_line_gives_back_its_parts(
            name in "[a-zA-Z_.][a-zA-Z0-9_.]{0,20}",
            values in proptest::collection::vec(-1e9f64..1e9, 1..5),
            tags in proptest::collection::vec(("[a-z]{1,8}", "[a-z0-9/:]{0,8}"), 0..4),
            rate in 0.01f64..=1.0,
        ) {
            let packed: Vec<_> = values.iter().map(f64::to_string).collect();
            let joined: Vec<_> = tags.iter().map(|(key, value)| format!("{key}:{value}")).collect();
            let text = format!("{name}:{}|h|@{rate}|#{}", packed.join(":"), joined.join(","));
            let line = parse(text.as_bytes()).unwrap();
            prop_assert_eq!(line.name, name);
            prop_assert_eq!(numbers(&line), values);
            prop_assert_eq!(line.rate, rate);
            let owned: Vec<_> = line.tags().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            prop_assert_eq!(owned, tags);
        }

        #[test]
        fn noise_never_panics(noise in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(line) = parse(&noise) {
                line.values().for_each(drop);
                line.tags().for_each(drop);
            }
        }
    }
}
