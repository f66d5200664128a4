// SPDX-License-Identifier: Apache-2.0

//! The notation of input series: `up{job="a"} 1 1+2x3 _x2 stale`.

use tidegate_promql::{Labels, Query, Sample, SampleValue};

use super::histogram;

/// The most values of one series.
const MAX_VALUES: usize = 1_000_000;

/// A value at each interval; `None`: there is no sample.
pub(super) type SeriesValues = Vec<Option<SampleValue>>;

/// Labels as a selector with equalities only.
pub(super) fn labels(text: &str) -> Result<Labels, String> {
    let text = text.trim();
    if text.is_empty() || text == "{}" {
        return Ok(Labels::default());
    }
    let query = Query::parse(text).map_err(|why| why.to_string())?;
    let not_labels = || format!("{text:?} is not a name with labels");
    let selection = query.selection().ok_or_else(not_labels)?;
    let pairs = selection
        .matchers
        .iter()
        .map(|matcher| -> Result<(String, String), String> {
            let value = matcher.equals().ok_or_else(not_labels)?;
            Ok((matcher.name().to_owned(), value.to_owned()))
        });
    pairs
        .collect::<Result<Vec<_>, String>>()
        .map(|pairs| pairs.into_iter().collect())
}

/// Values in the expanding notation.
pub(super) fn values(text: &str) -> Result<SeriesValues, String> {
    let mut values = Vec::new();
    for item in items(text)? {
        let (what, times) = repeated(item)?;
        if values.len().saturating_add(times.unwrap_or(0)) >= MAX_VALUES {
            return Err(format!("a series has {MAX_VALUES} values at most"));
        }
        expand(what, times, &mut values).map_err(|why| format!("{item:?}: {why}"))?;
    }
    Ok(values)
}

/// Divides the text at spaces outside `{{...}}`.
fn items(text: &str) -> Result<Vec<&str>, String> {
    let (mut items, mut rest) = (Vec::new(), text.trim_start());
    while !rest.is_empty() {
        let start = match rest.strip_prefix("{{") {
            Some(inside) => 4 + inside.find("}}").ok_or("unclosed histogram")?,
            None => 0,
        };
        let end = rest[start..].find(char::is_whitespace);
        let end = end.map_or(rest.len(), |at| start + at);
        items.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    Ok(items)
}

/// What is repeated, and how many times.
fn repeated(item: &str) -> Result<(&str, Option<usize>), String> {
    let from = item.rfind("}}").map_or(0, |at| at + 2);
    let Some(at) = item[from..].find('x') else {
        return Ok((item, None));
    };
    let (what, times) = (&item[..from + at], &item[from + at + 1..]);
    let times = times
        .parse()
        .map_err(|_| format!("{item:?}: {times:?} is not a number of repetitions"))?;
    Ok((what, Some(times)))
}

fn expand(what: &str, times: Option<usize>, values: &mut SeriesValues) -> Result<(), String> {
    // `5x2` is 5 three times, and `_x2` is nothing twice.
    let count = times.map_or(1, |times| times + 1);
    match what {
        "_" => values.extend(std::iter::repeat_n(None, times.unwrap_or(1))),
        "stale" => {
            let stale = SampleValue::Float(f64::from_bits(Sample::STALE));
            values.extend(std::iter::repeat_n(Some(stale), count));
        }
        histogram if histogram.starts_with("{{") => {
            let value = SampleValue::Histogram(histogram::parse(histogram)?.into());
            values.extend(std::iter::repeat_n(Some(value), count));
        }
        what => {
            let (mut value, step) = numbers(what, times.is_some())?;
            for _ in 0..count {
                values.push(Some(SampleValue::Float(value)));
                value += step;
            }
        }
    }
    Ok(())
}

/// A number, and the step to the next one.
fn numbers(text: &str, may_step: bool) -> Result<(f64, f64), String> {
    let bytes = text.as_bytes();
    let is_step = |at: &usize| {
        matches!(bytes[*at], b'+' | b'-') && !matches!(bytes[*at - 1], b'e' | b'E' | b'+' | b'-')
    };
    let at = (1..bytes.len()).find(is_step).filter(|_| may_step);
    match at {
        None => Ok((number(text)?, 0.0)),
        Some(at) => Ok((number(&text[..at])?, number(&text[at..])?)),
    }
}

/// A number as PromQL writes it.
pub(super) fn number(text: &str) -> Result<f64, String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1.0, digits),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let is_plain = digits
        .bytes()
        .all(|b| b.is_ascii_digit() || b"eE.+-".contains(&b));
    let number = match digits.to_ascii_lowercase().as_str() {
        "nan" | ".nan" => Some(f64::NAN),
        "inf" | ".inf" => Some(f64::INFINITY),
        digits if is_plain => digits.parse::<f64>().ok(),
        _ => None,
    };
    number
        .map(|number| sign * number)
        .ok_or_else(|| format!("{text:?} is not a number"))
}

/// The labels of a series, and its values.
pub(super) fn series(labels_text: &str, values_text: &str) -> Result<(Labels, SeriesValues), String> {
    Ok((labels(labels_text)?, values(values_text)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> String {
        let values = values(text).unwrap().into_iter();
        let shown = values.map(|value| match value.as_ref().and_then(SampleValue::float) {
            _ if value.is_none() => "_".to_owned(),
            Some(number) if number.to_bits() == Sample::STALE => "stale".to_owned(),
            Some(number) => number.to_string(),
            None => "histogram".to_owned(),
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn values_expand() {
        let table = [
            ("1 2 3", "1 2 3"),
            ("1x2", "1 1 1"),
            ("1+2x3", "1 3 5 7"),
            ("-2-3x1", "-2 -5"),
            ("1e+1+1e1x1", "10 20"),
            ("_ 1 _x3 stale", "_ 1 _ _ _ stale"),
            ("NaN Inf -Inf", "NaN inf -inf"),
            (
                "{{schema:0 sum:1 count:1 buckets:[1]}}x1 5",
                "histogram histogram 5",
            ),
            ("", ""),
        ];
        for (text, expected) in table {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_value_is_an_error() {
        for text in [
            "a",
            "1+2",
            "1x",
            "1xx2",
            "1+x2",
            "{{",
            "{{a:1}}",
            "_x-1",
            "1x99999999",
            "infinity",
            "1 + 2",
        ] {
            assert!(values(text).is_err(), "{text}");
        }
    }

    #[test]
    fn labels_are_equalities() {
        let found = labels("up{job=\"a\", zone=\"b c\"}").unwrap();
        assert_eq!((found.get("__name__"), found.get("zone")), ("up", "b c"));
        for text in ["up{job=~\"a\"}", "up + 1", "up{"] {
            assert!(labels(text).is_err(), "{text}");
        }
        assert_eq!(labels("{}"), Ok(Labels::default()));
    }

    proptest! {
        #[test]
        fn a_written_series_is_read_again(start in -50_i64..50, step in 1_i64..9, times in 0_usize..40) {
            let expanded: Vec<String> = (0..=times as i64).map(|at| (start + at * step).to_string()).collect();
            prop_assert_eq!(shown(&format!("{start}+{step}x{times}")), expanded.join(" "));
        }

        #[test]
        fn no_text_panics(text in "[0-9a-z_+x{}: .\\[\\]é-]{0,40}") {
            drop(values(&text));
            drop(labels(&text));
        }
    }
}
