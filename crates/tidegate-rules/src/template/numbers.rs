// SPDX-License-Identifier: Apache-2.0

//! Numbers and times for people, as Prometheus's templates write them.

use super::times::TemplateTime;

/// A number as Go's `%g` writes it; `None`: with as many digits as it needs.
pub(super) fn general(number: f64, precision: Option<usize>) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let digits = precision.map(|precision| precision.max(1));
    let scientific = match digits {
        Some(digits) => {
            let decimals = digits - 1;
            format!("{number:.decimals$e}")
        }
        None => format!("{number:e}"),
    };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let limit = digits.map_or(6, |digits| i32::try_from(digits).unwrap_or(i32::MAX));
    if (-4..limit).contains(&exponent) {
        return match digits {
            None => number.to_string(),
            Some(digits) => {
                let whole = i64::from(exponent) + 1;
                let decimals = usize::try_from(digits as i64 - whole).unwrap_or(0);
                trimmed(&format!("{number:.decimals$}")).to_owned()
            }
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

/// Without zeros at the end of a fraction.
pub(super) fn trimmed(number: &str) -> &str {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    }
}

/// Four digits.
fn short(number: f64) -> String {
    general(number, Some(4))
}

/// With a prefix of the metric system.
pub(super) fn humanize(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return short(number);
    }
    if number.abs() >= 1.0 {
        let (number, prefix) = scaled(number, 1000.0, &["k", "M", "G", "T", "P", "E", "Z", "Y"]);
        return short(number) + prefix;
    }
    let (number, prefix) = fraction(number);
    short(number) + prefix
}

/// With a prefix of powers of 1,024.
pub(super) fn humanize1024(number: f64) -> String {
    if number.abs() <= 1.0 || !number.is_finite() {
        return short(number);
    }
    let (number, prefix) = scaled(number, 1024.0, &["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"]);
    short(number) + prefix
}

fn scaled(number: f64, factor: f64, prefixes: &[&'static str]) -> (f64, &'static str) {
    let (mut number, mut prefix) = (number, "");
    for next in prefixes.iter().copied() {
        if number.abs() < factor {
            break;
        }
        (number, prefix) = (number / factor, next);
    }
    (number, prefix)
}

fn fraction(number: f64) -> (f64, &'static str) {
    let (mut number, mut prefix) = (number, "");
    for next in ["m", "u", "n", "p", "f", "a", "z", "y"] {
        if number.abs() >= 1.0 {
            break;
        }
        (number, prefix) = (number * 1000.0, next);
    }
    (number, prefix)
}

/// Seconds as a duration.
pub(super) fn humanize_duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return short(seconds);
    }
    if seconds == 0.0 {
        return short(seconds) + "s";
    }
    if seconds.abs() < 1.0 {
        let (number, prefix) = fraction(seconds);
        return format!("{}{prefix}s", short(number));
    }
    let sign = if seconds < 0.0 { "-" } else { "" };
    let seconds = seconds.abs();
    let whole = seconds as u64;
    let (days, hours) = (whole / 86_400, whole / 3600 % 24);
    let (minutes, rest) = (whole / 60 % 60, whole % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{sign}{}s", short(seconds)),
        (0, 0, _) => format!("{sign}{minutes}m {rest}s"),
        (0, ..) => format!("{sign}{hours}h {minutes}m {rest}s"),
        _ => format!("{sign}{days}d {hours}h {minutes}m {rest}s"),
    }
}

/// A ratio as per cent.
pub(super) fn humanize_percentage(ratio: f64) -> String {
    short(ratio * 100.0) + "%"
}

/// Seconds since the epoch as Go prints a time in UTC.
pub(super) fn humanize_timestamp(seconds: f64) -> Result<String, String> {
    if !seconds.is_finite() {
        return Ok(short(seconds));
    }
    Ok(TemplateTime::from_seconds(seconds)?.show())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_in_go() {
        let table = [
            (0.0, None, "0"),
            (1.5, None, "1.5"),
            (1_000_000.0, None, "1e+06"),
            (123_456.0, None, "123456"),
            (0.00001, None, "1e-05"),
            (f64::INFINITY, None, "+Inf"),
            (99_999.0, Some(4), "1e+05"),
            (1234.4, Some(4), "1234"),
            (0.012_344, Some(4), "0.01234"),
            (100.0, Some(4), "100"),
        ];
        for (number, precision, shown) in table {
            assert_eq!(general(number, precision), shown);
        }
    }

    #[test]
    fn people_read_short_numbers() {
        let table = [
            (humanize(0.0), "0"),
            (humanize(1_234_567.0), "1.235M"),
            (humanize(-1000.0), "-1k"),
            (humanize(0.0021), "2.1m"),
            (humanize1024(1024.0), "1ki"),
            (humanize1024(1.0), "1"),
            (humanize_duration(0.0), "0s"),
            (humanize_duration(0.0021), "2.1ms"),
            (humanize_duration(59.5), "59.5s"),
            (humanize_duration(-61.0), "-1m 1s"),
            (humanize_duration(3600.0), "1h 0m 0s"),
            (humanize_duration(86_400.0 * 2.0 + 1.0), "2d 0h 0m 1s"),
            (humanize_percentage(0.123_46), "12.35%"),
            (humanize_percentage(f64::NAN), "NaN%"),
        ];
        for (found, expected) in table {
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn times_are_written_in_utc() {
        let table = [
            (0.0, "1970-01-01 00:00:00 +0000 UTC"),
            (1_435_065_584.128, "2015-06-23 13:19:44.128 +0000 UTC"),
            (951_782_400.5, "2000-02-29 00:00:00.5 +0000 UTC"),
            (-1.0, "1969-12-31 23:59:59 +0000 UTC"),
        ];
        for (seconds, shown) in table {
            assert_eq!(humanize_timestamp(seconds).as_deref(), Ok(shown));
        }
        assert!(humanize_timestamp(1e300).is_err());
        assert_eq!(humanize_timestamp(f64::NAN).as_deref(), Ok("NaN"));
    }
}
