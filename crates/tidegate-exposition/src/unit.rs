// SPDX-License-Identifier: Apache-2.0

//! Units of OTLP (UCUM) as the words that Prometheus names have, and names with such words and a type behind them.

/// Units as words, as prometheus/otlptranslator 1.0.0 has them: a fleet must call a metric the same everywhere. Newer
/// translators write `tebibytes` and know `kBy`, as the specification does.
const UNITS: &[(&str, &str)] = &[
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("%", "percent"),
    ("1", ""),
];

/// Words behind "per".
const DIVISORS: &[(&str, &str)] = &[
    ("s", "second"),
    ("m", "minute"),
    ("h", "hour"),
    ("d", "day"),
    ("w", "week"),
    ("mo", "month"),
    ("y", "year"),
];

/// Words for the type of a series behind the unit.
const TYPES: &[&str] = &["total", "ratio", "bucket", "sum", "count"];

/// A unit in two parts, either of which may be empty: `By/s` is `bytes` and `per_second`.
#[derive(Debug, PartialEq, Eq)]
pub struct Words {
    /// The unit of the values, without the divisor.
    pub main: String,
    /// Per what: `per_second`.
    pub per: String,
}

impl Words {
    /// As the tables have them; units that the tables don't know keep characters that no Prometheus name has. Only the
    /// first `/` divides, and a part with an annotation (`{packet}`) is not a word.
    pub fn raw(unit: &str) -> Self {
        let (main, divisor) = unit.split_once('/').unwrap_or((unit, ""));
        let divisor = word(divisor, DIVISORS);
        Self {
            main: word(main, UNITS).to_owned(),
            per: match divisor {
                "" => String::new(),
                divisor => format!("per_{divisor}"),
            },
        }
    }

    /// With no other characters than `[a-zA-Z0-9:_]`.
    pub fn plain(unit: &str) -> Self {
        let Self { main, per } = Self::raw(unit);
        Self {
            main: plain(&main),
            per: plain(&per),
        }
    }
}

/// The word that a UNIT line has for the unit. The name has it as its last part before the type suffix.
pub fn unit_word(unit: &str) -> String {
    let Words { main, per } = Words::plain(unit);
    let per = if per == "per_" { "" } else { per.as_str() };
    let both = match (main.as_str(), per) {
        ("", one) | (one, "") => one.to_owned(),
        (main, per) => format!("{}_{per}", main.strip_suffix('_').unwrap_or(main)),
    };
    both.strip_suffix('_').unwrap_or(&both).to_owned()
}

/// The word of a family's UNIT line. It must be the end of the family's name (OpenMetrics, "UNIT").
pub fn unit_of_family(unit: &str, family: &str) -> Option<String> {
    let word = unit_word(unit);
    let before = family.strip_suffix(&word)?.strip_suffix('_')?;
    (!word.is_empty() && !before.is_empty()).then_some(word)
}

/// Unit and type (`total`, `ratio`) behind the words of a name; none twice. Underscores separate words like any other
/// character. `None`: the name has no words.
pub fn name_with_suffixes(name: &str, unit: &str, suffix: Option<&str>) -> Option<String> {
    let is_kept = |c: char| c.is_ascii_alphanumeric() || c == ':';
    let mut tokens: Vec<&str> = name
        .split(|c| !is_kept(c))
        .filter(|token| !token.is_empty())
        .collect();
    if tokens.is_empty() {
        return None;
    }
    let Words { main, per } = Words::plain(unit);
    let per = if per == "per_" {
        ""
    } else {
        per.strip_suffix('_').unwrap_or(&per)
    };
    let per = if tokens.contains(&per) { "" } else { per };
    let main = match main.as_str() {
        main if tokens.contains(&main) => "",
        main if !per.is_empty() => main.strip_suffix('_').unwrap_or(main),
        main => main,
    };
    tokens.extend([main, per].into_iter().filter(|word| !word.is_empty()));
    if let Some(suffix) = suffix {
        tokens.retain(|token| *token != suffix);
        tokens.push(suffix);
    }
    Some(tokens.join("_"))
}

/// What remains of a name without its type, then without its divisor, then without its unit: `a_seconds_total` gives
/// `a_seconds` and `a`.
pub fn stems(name: &str) -> Vec<&str> {
    let without_type = before(name, TYPES.iter().copied());
    let divisors = DIVISORS.iter().map(|(_, word)| *word);
    let without_divisor =
        before(without_type.unwrap_or(name), divisors).and_then(|stem| before(stem, std::iter::once("per")));
    let units = UNITS
        .iter()
        .map(|(_, word)| *word)
        .filter(|word| !word.is_empty());
    let without_unit = before(without_divisor.or(without_type).unwrap_or(name), units);
    [without_type, without_divisor, without_unit]
        .into_iter()
        .flatten()
        .collect()
}

/// The part of a name before an underscore and one of these words.
fn before(name: &str, mut words: impl Iterator<Item = &'static str>) -> Option<&str> {
    let stem = words.find_map(|word| name.strip_suffix(word)?.strip_suffix('_'))?;
    (!stem.is_empty()).then_some(stem)
}

fn word<'a>(unit: &'a str, table: &[(&str, &'static str)]) -> &'a str {
    let unit = unit.trim();
    if unit.contains(['{', '}']) {
        return "";
    }
    let known = table.iter().find(|(short, _)| *short == unit);
    known.map_or(unit, |(_, word)| word)
}

/// Runs of other characters become one underscore, none at the front.
fn plain(word: &str) -> String {
    let mut plain = String::with_capacity(word.len());
    for c in word.chars() {
        match c {
            c if c.is_ascii_alphanumeric() || c == ':' => plain.push(c),
            _ if plain.is_empty() || plain.ends_with('_') => {}
            _ => plain.push('_'),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_page_loses_its_type_its_divisor_and_its_unit() {
        for (name, expected) in [
            ("a_seconds_total", &["a_seconds", "a"][..]),
            ("a_bytes_per_second", &["a_bytes", "a"][..]),
            ("a_milliseconds_bucket", &["a_milliseconds", "a"][..]),
            ("a_seconds", &["a"][..]),
            ("a", &[][..]),
            ("_total", &[][..]),
        ] {
            assert_eq!(stems(name), expected, "{name}");
        }
    }

    #[test]
    fn units_become_words() {
        let table = [
            ("d", "days"),
            ("h", "hours"),
            ("min", "minutes"),
            ("s", "seconds"),
            ("ms", "milliseconds"),
            ("us", "microseconds"),
            ("ns", "nanoseconds"),
            ("By", "bytes"),
            ("KiBy", "kibibytes"),
            ("MiBy", "mebibytes"),
            ("GiBy", "gibibytes"),
            ("TiBy", "tibibytes"),
            ("kBy", "kBy"),
            ("KBy", "kilobytes"),
            ("MBy", "megabytes"),
            ("GBy", "gigabytes"),
            ("TBy", "terabytes"),
            ("m", "meters"),
            ("V", "volts"),
            ("A", "amperes"),
            ("J", "joules"),
            ("W", "watts"),
            ("g", "grams"),
            ("Cel", "celsius"),
            ("Hz", "hertz"),
            ("%", "percent"),
            ("1", ""),
            ("", ""),
            ("   ", ""),
            (" s ", "seconds"),
            ("parsec", "parsec"),
            ("custom@unit#with$chars", "custom_unit_with_chars"),
            ("unit__with__underscores", "unit_with_underscores"),
            ("_custom_unit_", "custom_unit"),
            ("@#$", ""),
        ];
        for (unit, expected) in table {
            assert_eq!(unit_word(unit), expected, "{unit}");
        }
    }

    #[test]
    fn an_annotation_is_no_word() {
        for (unit, expected) in [
            ("{packet}", ""),
            ("{packet}/s", "per_second"),
            ("By/{packet}", "bytes"),
            ("{a}/{b}", ""),
            ("By{used}", ""),
        ] {
            assert_eq!(unit_word(unit), expected, "{unit}");
        }
    }

    #[test]
    fn a_divisor_is_singular_behind_per() {
        for (unit, expected) in [
            ("By/s", "bytes_per_second"),
            ("1/m", "per_minute"),
            ("1/h", "per_hour"),
            ("1/d", "per_day"),
            ("1/w", "per_week"),
            ("1/mo", "per_month"),
            ("1/y", "per_year"),
            ("KBy/s", "kilobytes_per_second"),
            ("1/custom", "per_custom"),
            ("By/_custom__unit_", "bytes_per_custom_unit"),
            ("a/b/c", "a_per_b_c"),
            ("/", ""),
            ("By/", "bytes"),
            ("/s", "per_second"),
            ("By/@", "bytes"),
        ] {
            assert_eq!(unit_word(unit), expected, "{unit}");
        }
    }
}
