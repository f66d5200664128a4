//! Metric names: characters, units as words, type suffixes, namespace.

/// How names are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Naming {
    /// Put before every name, joined by `_`.
    pub namespace: String,
    /// Add unit and type suffixes (`UnderscoreEscapingWithSuffixes`).
    pub suffixes: bool,
}

/// What the suffixes depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A gauge, or a sum that may fall.
    Gauge,
    /// A monotonic sum.
    Counter,
    /// Any histogram, or a summary.
    Distribution,
}

/// Units as words (specification, unit table).
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
    ("TiBy", "tebibytes"),
    ("kBy", "kilobytes"),
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

impl Naming {
    /// The Prometheus name; `None` when nothing of the name is left.
    pub fn metric(&self, name: &str, unit: &str, kind: Kind) -> Option<String> {
        let mut tokens: Vec<String> = tokens(name);
        if tokens.is_empty() {
            return None;
        }
        if self.suffixes {
            add_suffixes(&mut tokens, unit, kind);
        }
        let mut joined = tokens.join("_");
        // A leading underscore of the name is kept: it tells two names apart.
        if name.starts_with('_') {
            joined.insert(0, '_');
        }
        if !self.namespace.is_empty() {
            joined = format!("{}_{joined}", sanitized(&self.namespace));
        }
        if joined.starts_with(|c: char| c.is_ascii_digit()) {
            joined.insert(0, '_');
        }
        Some(joined)
    }
}

/// Unit first, type suffix last; neither twice.
fn add_suffixes(tokens: &mut Vec<String>, unit: &str, kind: Kind) {
    for word in unit_words(unit) {
        if !tokens.contains(&word) {
            tokens.push(word);
        }
    }
    let last = match kind {
        Kind::Counter => "total",
        Kind::Gauge if unit == "1" => "ratio",
        Kind::Gauge | Kind::Distribution => return,
    };
    tokens.retain(|token| token != last);
    tokens.push(last.to_owned());
}

/// `By/s` -> bytes, per, second. An annotation (`{packet}`) is no word.
fn unit_words(unit: &str) -> Vec<String> {
    let (main, per) = unit
        .split_once('/')
        .map_or((unit, None), |(main, per)| (main, Some(per)));
    let mut words = word_of(main, UNITS);
    if let Some(per) = per
        .map(|per| word_of(per, DIVISORS))
        .filter(|per| !per.is_empty())
    {
        // One token each would let "per" of the name swallow it.
        words.push(format!("per_{}", per.join("_")));
    }
    words
}

fn word_of(unit: &str, table: &[(&str, &str)]) -> Vec<String> {
    if unit.contains(['{', '}']) {
        return Vec::new();
    }
    let known = table.iter().find(|(short, _)| *short == unit.trim());
    tokens(known.map_or(unit, |(_, word)| word))
}

/// The runs of characters that a Prometheus name may have. Colons stay, underscores separate.
fn tokens(name: &str) -> Vec<String> {
    let kept = |c: char| c.is_ascii_alphanumeric() || c == ':';
    name.split(|c| !kept(c))
        .filter(|token| !token.is_empty())
        .map(str::to_owned)
        .collect()
}

fn sanitized(name: &str) -> String {
    tokens(name).join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str, unit: &str, kind: Kind) -> Option<String> {
        Naming {
            namespace: String::new(),
            suffixes: true,
        }
        .metric(name, unit, kind)
    }

    #[test]
    fn names_follow_the_rules_of_the_specification() {
        let table = [
            (
                "http.server.duration",
                "s",
                Kind::Distribution,
                "http_server_duration_seconds",
            ),
            ("a..b", "", Kind::Gauge, "a_b"),
            ("1st", "", Kind::Gauge, "_1st"),
            ("foo.bar", "By", Kind::Counter, "foo_bar_bytes_total"),
            ("foo_bytes", "By", Kind::Counter, "foo_bytes_total"),
            ("foo_total", "", Kind::Counter, "foo_total"),
            ("total_foo", "", Kind::Counter, "foo_total"),
            ("used", "1", Kind::Gauge, "used_ratio"),
            ("used", "1", Kind::Counter, "used_total"),
            ("used", "%", Kind::Gauge, "used_percent"),
            ("io", "By/s", Kind::Gauge, "io_bytes_per_second"),
            ("io", "{packet}/s", Kind::Gauge, "io_per_second"),
            ("io", "{packet}", Kind::Counter, "io_total"),
            ("speed", "m/s", Kind::Gauge, "speed_meters_per_second"),
            ("odd", "parsec", Kind::Gauge, "odd_parsec"),
            ("_hidden", "", Kind::Gauge, "_hidden"),
            ("a:b", "", Kind::Gauge, "a:b"),
        ];
        for (metric, unit, kind, expected) in table {
            assert_eq!(
                name(metric, unit, kind).as_deref(),
                Some(expected),
                "{metric} {unit}"
            );
        }
        assert_eq!(name("___", "", Kind::Gauge), None);
        assert_eq!(name("\u{e9}", "", Kind::Gauge), None);
    }

    #[test]
    fn a_namespace_stands_before_everything() {
        let naming = Naming {
            namespace: "my.ns".into(),
            suffixes: false,
        };
        assert_eq!(
            naming.metric("x", "By", Kind::Counter).as_deref(),
            Some("my_ns_x")
        );
    }
}
