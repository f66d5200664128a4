// SPDX-License-Identifier: Apache-2.0

//! Parts of lines that all writers of text pages share: heads of families, escaped texts, bounds, times, sums.
//!
//! The gateway and the SDK use them, so a metric has the same text on the pages of both.

use tidegate_model::Histogram;

use crate::write::{TextSink, push_f64, push_u64};

/// The lines before the samples of a family.
#[derive(Clone, Copy, Debug)]
pub struct FamilyHead<'a> {
    /// The name, [escaped](push_escaped) if it is in quotes.
    pub name: &'a str,
    /// Whether the name is in quotes.
    pub is_quoted: bool,
    /// The help. An empty one has no line.
    pub help: &'a str,
    /// The word of the TYPE line.
    pub of_type: &'a str,
    /// The word of the UNIT line.
    pub unit: Option<&'a str>,
    /// Whether the page is OpenMetrics.
    pub is_openmetrics: bool,
}

impl FamilyHead<'_> {
    /// Appends the lines HELP, TYPE and UNIT, as far as the family has them.
    pub fn put(&self, text: &mut impl TextSink) {
        if !self.help.is_empty() {
            self.start(text, "HELP");
            push_help(text, self.help, self.is_openmetrics);
            text.put("\n");
        }
        self.line(text, "TYPE", self.of_type);
        if let Some(unit) = self.unit {
            self.line(text, "UNIT", unit);
        }
    }

    fn line(&self, text: &mut impl TextSink, word: &str, of_line: &str) {
        self.start(text, word);
        text.put(of_line);
        text.put("\n");
    }

    /// `# TYPE name `.
    fn start(&self, text: &mut impl TextSink, word: &str) {
        let quote = if self.is_quoted { "\"" } else { "" };
        for part in ["# ", word, " ", quote, self.name, quote, " "] {
            text.put(part);
        }
    }
}

/// Appends help. Only OpenMetrics escapes quotes in it. A NUL becomes U+FFFD, as in [`push_escaped`].
fn push_help(text: &mut impl TextSink, help: &str, is_openmetrics: bool) {
    let is_escaped = |byte: u8| is_openmetrics || byte != b'"';
    push_replaced(text, help, |byte| escape(byte).filter(|_| is_escaped(byte)));
}

/// Appends the value of a label, or a name in quotes, without the quotes. The text formats agree here.
///
/// A NUL becomes U+FFFD: Prometheus' parsers of text take it for the end of the page.
pub fn push_escaped(text: &mut impl TextSink, raw: &str) {
    push_replaced(text, raw, escape);
}

/// The text that replaces a byte in quotes; `None`: the byte stays.
#[inline]
fn escape(byte: u8) -> Option<&'static str> {
    match byte {
        b'\\' => Some("\\\\"),
        b'"' => Some("\\\""),
        b'\n' => Some("\\n"),
        0 => Some("\u{fffd}"),
        _ => None,
    }
}

/// Appends a text in quotes: the value of a label, or a name with characters that old names don't have.
pub fn push_quoted(text: &mut impl TextSink, raw: &str) {
    text.put("\"");
    push_escaped(text, raw);
    text.put("\"");
}

/// Replaces bytes of ASCII.
fn push_replaced(text: &mut impl TextSink, raw: &str, replacement: impl Fn(u8) -> Option<&'static str>) {
    let mut start = 0;
    for (at, byte) in raw.bytes().enumerate() {
        if let Some(replaced) = replacement(byte) {
            text.put(raw.get(start..at).unwrap_or_default());
            text.put(replaced);
            start = at + 1;
        }
    }
    text.put(raw.get(start..).unwrap_or_default());
}

/// Appends a bound of a bucket or a quantile. OpenMetrics writes it as a float (`1.0`), text 0.0.4 commonly does not.
pub fn push_bound(text: &mut impl TextSink, bound: f64, is_openmetrics: bool) {
    let start = text.written().len();
    push_f64(text, bound);
    let is_whole = |written: &[u8]| written.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-');
    if is_openmetrics && text.written().get(start..).is_some_and(is_whole) {
        text.put(".0");
    }
}

/// Appends a time in seconds, given in milliseconds.
pub fn push_seconds(text: &mut impl TextSink, millis: u64) {
    push_u64(text, millis / 1000);
    let rest = millis % 1000;
    if rest > 0 {
        let digit = |unit: u64| b'0' + (rest / unit % 10) as u8;
        let digits = [b'.', digit(100), digit(10), digit(1)];
        text.put(str::from_utf8(&digits).unwrap_or_default());
    }
}

/// A line of a histogram with explicit bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HistogramLine {
    /// A bucket.
    Bucket {
        /// The place of its bound among those of the histogram; of the last bucket, the number of bounds.
        at: usize,
        /// The bound of the bucket before.
        above: f64,
        /// Its bound; of the last bucket, `+Inf`.
        bound: f64,
        /// The observations up to its bound.
        count: u64,
    },
    /// The sum of all observations.
    Sum(f64),
    /// The number of all observations.
    Count(u64),
}

/// Shows the lines of a histogram in the order of a page. OpenMetrics has a sum only if it can't fall. Without a sum it
/// has no count either.
#[inline]
pub fn histogram_lines(histogram: &Histogram, is_openmetrics: bool, mut each: impl FnMut(HistogramLine)) {
    let mut above = f64::NEG_INFINITY;
    let mut bucket = |at, bound, count| {
        each(HistogramLine::Bucket {
            at,
            above,
            bound,
            count,
        });
        above = bound;
    };
    let count = histogram.running(&mut bucket);
    bucket(histogram.bounds.len(), f64::INFINITY, count);
    let sum = shown_sum(histogram, is_openmetrics);
    if let Some(sum) = sum {
        each(HistogramLine::Sum(sum));
    }
    if sum.is_some() || !is_openmetrics {
        each(HistogramLine::Count(count));
    }
}

#[inline]
fn shown_sum(histogram: &Histogram, is_openmetrics: bool) -> Option<f64> {
    histogram.sum.filter(|sum| {
        let is_rising = *sum >= 0.0 && histogram.bounds.first().is_none_or(|bound| *bound >= 0.0);
        !is_openmetrics || is_rising
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(help: &str, unit: Option<&str>, is_openmetrics: bool) -> String {
        let mut text = String::new();
        let head = FamilyHead {
            name: "a",
            is_quoted: is_openmetrics,
            help,
            of_type: "gauge",
            unit,
            is_openmetrics,
        };
        head.put(&mut text);
        text
    }

    #[test]
    fn a_head_has_lines_for_what_the_family_says() {
        assert_eq!(head("", None, false), "# TYPE a gauge\n");
        assert_eq!(
            head("\"b\\\n\0", None, false),
            "# HELP a \"b\\\\\\n\u{fffd}\n# TYPE a gauge\n"
        );
        assert_eq!(
            head("\"b\0", Some("seconds"), true),
            "# HELP \"a\" \\\"b\u{fffd}\n# TYPE \"a\" gauge\n# UNIT \"a\" seconds\n"
        );
    }

    #[test]
    fn label_values_are_escaped_in_every_sink() {
        let raw = "\u{e4}\"\\\n\0\u{1f30a}";
        let (mut text, mut bytes) = (String::new(), Vec::<u8>::new());
        push_quoted(&mut text, raw);
        push_quoted(&mut bytes, raw);
        assert_eq!(text, "\"\u{e4}\\\"\\\\\\n\u{fffd}\u{1f30a}\"");
        assert_eq!(bytes, text.as_bytes());
    }

    #[test]
    fn bounds_of_openmetrics_are_floats() {
        for (bound, plain, float) in [
            (1.0, "1", "1.0"),
            (-2.0, "-2", "-2.0"),
            (0.5, "0.5", "0.5"),
            (f64::INFINITY, "+Inf", "+Inf"),
            (1e300, "1e+300", "1e+300"),
        ] {
            let (mut text, mut openmetrics) = ("9".to_owned(), "9".to_owned());
            push_bound(&mut text, bound, false);
            push_bound(&mut openmetrics, bound, true);
            assert_eq!((&text[1..], &openmetrics[1..]), (plain, float));
        }
    }

    #[test]
    fn lines_of_a_histogram_end_with_its_sum_and_count() {
        use HistogramLine::{Bucket, Count, Sum};
        let lines = |sum: Option<f64>, is_openmetrics: bool| {
            let mut lines = Vec::new();
            let histogram = Histogram {
                sum,
                count: 3,
                counts: vec![1, 2],
                ..Histogram::empty([0.5].into())
            };
            histogram_lines(&histogram, is_openmetrics, |line| lines.push(line));
            lines
        };
        let bucket = |at, above, bound, count| Bucket {
            at,
            above,
            bound,
            count,
        };
        let buckets = [
            bucket(0, f64::NEG_INFINITY, 0.5, 1),
            bucket(1, 0.5, f64::INFINITY, 3),
        ];
        let ends = |ends: &[HistogramLine]| [&buckets[..], ends].concat();
        assert_eq!(lines(Some(2.0), true), ends(&[Sum(2.0), Count(3)]));
        assert_eq!(lines(None, false), ends(&[Count(3)]));
        for fallen in [None, Some(-2.0)] {
            assert_eq!(lines(fallen, true), buckets);
        }
    }

    #[test]
    fn whole_seconds_have_no_fraction() {
        for (millis, expected) in [(0, "0"), (1500, "1.500"), (2007, "2.007"), (3000, "3")] {
            let mut text = String::new();
            push_seconds(&mut text, millis);
            assert_eq!(text, expected);
        }
    }
}
