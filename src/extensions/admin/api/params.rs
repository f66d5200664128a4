// SPDX-License-Identifier: Apache-2.0

//! Parameters of requests, read as Prometheus reads them.

use tidegate_promql::{Millis, days_in_month, days_since_1970};

use super::ApiFailure;
use crate::net::pages::Request;
use crate::prom::duration::PromDuration;

/// The bounds of Go's `time.Duration`, in seconds.
const MAX_DURATION_S: f64 = 9_223_372_036.0;

/// Times beyond that are invalid: 292 million years, as in Prometheus.
const MAX_TIME_S: f64 = 9.223_372_036_854_775e15;

/// The earliest and the latest time that Prometheus knows, as its clients write them.
const BOUNDS: [(&str, Millis); 2] = [
    ("-292273086-05-16T16:47:06Z", Millis::MIN / 2),
    ("292277025-08-18T07:12:54.999999999Z", Millis::MAX / 2),
];

/// An error that names the parameter.
pub(super) fn invalid(name: &str, why: impl std::fmt::Display) -> ApiFailure {
    ApiFailure::bad(format!("invalid parameter {name:?}: {why}"))
}

/// A time that must be there.
///
/// # Errors
/// It is not a time.
pub(super) fn time(request: &Request, name: &str) -> Result<Millis, ApiFailure> {
    parse_time(request.get(name).unwrap_or_default()).map_err(|why| invalid(name, why))
}

/// A time that may be missing or empty.
///
/// # Errors
/// It is not a time.
pub(super) fn optional_time(request: &Request, name: &str) -> Result<Option<Millis>, ApiFailure> {
    let given = request.get(name).filter(|text| !text.is_empty());
    let wrong = |why| invalid(name, format!("invalid time value for '{name}': {why}"));
    given.map(parse_time).transpose().map_err(wrong)
}

/// A duration that may be missing or empty.
///
/// # Errors
/// It is not a duration.
pub(super) fn optional_duration(request: &Request, name: &str) -> Result<Option<Millis>, String> {
    let given = request.get(name).filter(|text| !text.is_empty());
    given.map(parse_duration).transpose()
}

/// The most entries of a list; 0 = no limit.
///
/// # Errors
/// It is not a number from 0.
pub(super) fn limit(request: &Request) -> Result<usize, ApiFailure> {
    let Some(text) = request.get("limit").filter(|text| !text.is_empty()) else {
        return Ok(0);
    };
    let number = integer(text).map_err(|why| invalid("limit", format!("strconv.Atoi: {why}")))?;
    usize::try_from(number).map_err(|_| invalid("limit", "limit must be non-negative"))
}

/// A number that may be missing; a negative one is as good as missing.
///
/// # Errors
/// It is not a number.
pub(super) fn number(request: &Request, name: &str) -> Result<Option<usize>, ApiFailure> {
    let Some(text) = request.get(name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let number = integer(text);
    let number = number.map_err(|_| ApiFailure::bad(format!("{name} must be a number")))?;
    Ok(usize::try_from(number).ok())
}

/// An integer; the error is in the words of Go.
pub(super) fn integer(text: &str) -> Result<i64, String> {
    text.parse::<i64>().map_err(|error| {
        let why = match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("parsing {text:?}: {why}")
    })
}

/// Seconds since 1970, or RFC 3339 in any zone.
pub(super) fn parse_time(text: &str) -> Result<Millis, String> {
    let wrong = || format!("cannot parse {text:?} to a valid timestamp");
    if let Ok(seconds) = text.parse::<f64>() {
        let is_time = seconds.abs() <= MAX_TIME_S;
        return is_time
            .then_some((seconds * 1000.0).round() as Millis)
            .ok_or_else(wrong);
    }
    let bound = BOUNDS.iter().find(|(known, _)| *known == text);
    bound
        .map(|(_, time)| *time)
        .or_else(|| rfc3339(text))
        .ok_or_else(wrong)
}

/// Seconds, or a duration of Prometheus (`1h30m`); years have 365 days.
pub(super) fn parse_duration(text: &str) -> Result<Millis, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return if seconds.abs() <= MAX_DURATION_S {
            // A time shorter than a millisecond counts as 0.
            Ok((seconds * 1000.0) as Millis)
        } else {
            Err(format!(
                "cannot parse {text:?} to a valid duration. It overflows int64"
            ))
        };
    }
    PromDuration::parse(text)
        .and_then(|duration| Millis::try_from(duration.0.as_millis()).ok())
        .ok_or_else(|| format!("cannot parse {text:?} to a valid duration"))
}

/// `2026-11-23T05:00:00.5+02:00`, as strict as Go.
fn rfc3339(text: &str) -> Option<Millis> {
    let bytes = text.as_bytes();
    let is_shaped = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')]
        .iter()
        .all(|(at, sign)| bytes.get(*at) == Some(sign));
    let part = |from: usize, to: usize, least: i64, most: i64| {
        let digits = text.get(from..to)?;
        let number: i64 = digits
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| digits.parse().ok())??;
        (least..=most).contains(&number).then_some(number)
    };
    if !is_shaped {
        return None;
    }
    let (year, month) = (part(0, 4, 0, 9999)?, part(5, 7, 1, 12)?);
    let day = part(8, 10, 1, days_in_month(year, month))?;
    let (hour, minute, second) = (part(11, 13, 0, 23)?, part(14, 16, 0, 59)?, part(17, 19, 0, 59)?);
    let (fraction, zone) = fraction(text.get(19..)?)?;
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some((seconds - zone_seconds(zone)?) * 1000 + fraction)
}

/// The milliseconds of a fraction of a second, and what follows it.
fn fraction(text: &str) -> Option<(Millis, &str)> {
    let Some(rest) = text.strip_prefix(['.', ',']) else {
        return Some((0, text));
    };
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    let (digits, rest) = rest.split_at(end);
    let seconds: f64 = format!("0.{digits}").parse().ok().filter(|_| end > 0)?;
    Some(((seconds * 1000.0) as Millis, rest))
}

fn zone_seconds(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let two = |text: &str, most: i64| {
        let is_two = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        let number: i64 = is_two.then(|| text.parse().ok())??;
        (number <= most).then_some(number)
    };
    Some(sign * (two(hours, 24)? * 3600 + two(minutes, 60)? * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_prometheus_reads_them() {
        let table = [
            ("0", Some(0)),
            ("-1.5", Some(-1500)),
            ("1.0005", Some(1001)),
            ("1e3", Some(1_000_000)),
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T12:34:56.789Z", Some(951_827_696_789)),
            ("2026-11-23T05:00:00+02:00", Some(1_795_402_800_000)),
            ("2026-11-23T05:00:00-00:30", Some(1_795_411_800_000)),
            ("1969-12-31T23:59:59Z", Some(-1000)),
            ("292277025-08-18T07:12:54.999999999Z", Some(Millis::MAX / 2)),
            ("", None),
            ("now", None),
            ("NaN", None),
            ("inf", None),
            ("2026-11-23 05:00:00", None),
            ("2026-11-23T05:00:00", None),
            ("2026-11-23t05:00:00z", None),
            ("2026-02-29T05:00:00Z", None),
            ("2026-11-23T24:00:00Z", None),
            ("2026-11-23T05:00:00.Z", None),
            ("2026-11-23T05:00:00+0200", None),
            ("2026-11-23T0é:00:00Z", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_time(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn durations_are_read_as_prometheus_reads_them() {
        let year = 365 * 86_400_000;
        let table = [
            ("1y", Some(year)),
            ("1.5", Some(1500)),
            ("-1", Some(-1000)),
            ("1h30m", Some(5_400_000)),
            ("5ms", Some(5)),
            ("", None),
            ("1M", None),
            ("1month", None),
            ("1 h", None),
            ("30m1h", None),
            ("1e30", None),
            ("NaN", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_duration(text).ok(), expected, "{text}");
        }
    }
}
