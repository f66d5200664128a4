// SPDX-License-Identifier: Apache-2.0

//! Durations and numbers of the language.

use super::text::quoted;
use crate::Millis;

/// Units from the longest to the shortest, in milliseconds.
const UNITS: [(&str, Millis); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// The longest time that Go's durations hold, in milliseconds.
const MOST: Millis = i64::MAX / 1_000_000;

/// Reads a duration in milliseconds: `1h30m`, `100ms`. Units fall from left to right, each at most once.
///
/// # Errors
/// The text is not a duration, or the duration is too long.
pub fn parse(text: &str) -> Result<Millis, String> {
    let no = || format!("not a valid duration string: {}", quoted(text));
    let too_long = || "duration out of range".to_owned();
    match text {
        "0" => return Ok(0),
        "" => return Err("empty duration string".to_owned()),
        _ => {}
    }
    let (mut rest, mut next_unit, mut sum) = (text, 0, 0_i64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(no)?;
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(letters);
        if number.is_empty() {
            return Err(no());
        }
        let unknown = || format!("unknown unit {} in duration {}", quoted(unit), quoted(text));
        let at = UNITS.iter().position(|(name, _)| *name == unit);
        let at = at.ok_or_else(unknown)?;
        if at < next_unit {
            return Err(no());
        }
        let part = number.parse::<Millis>().map_err(|_| too_long())?;
        let part = part.checked_mul(UNITS[at].1).ok_or_else(too_long)?;
        sum = sum
            .checked_add(part)
            .filter(|sum| *sum <= MOST)
            .ok_or_else(too_long)?;
        (rest, next_unit) = (behind, at + 1);
    }
    Ok(sum)
}

/// A number of seconds as a duration.
pub(super) fn of_seconds(seconds: f64) -> Result<Millis, String> {
    if seconds.is_finite() && seconds.abs() <= MOST as f64 / 1000.0 {
        Ok((seconds * 1000.0).round() as Millis)
    } else {
        Err("duration out of range".to_owned())
    }
}

/// A number as Go reads it: hexadecimal, octal, binary and decimal integers, then decimal fractions.
pub(super) fn number(text: &str) -> Result<f64, String> {
    let plain = text.replace('_', "").to_ascii_lowercase();
    let radix = |prefix: &str, radix: u32| {
        let digits = plain.strip_prefix(prefix)?;
        i64::from_str_radix(digits, radix).ok()
    };
    let is_octal = plain.len() > 1 && plain.starts_with('0') && plain.bytes().all(|b| b.is_ascii_digit());
    let whole = radix("0x", 16).or_else(|| is_octal.then(|| radix("0", 8)).flatten());
    match whole {
        Some(whole) => Ok(whole as f64),
        None if plain.starts_with("0x") => Err(format!(
            "error parsing number: strconv.ParseFloat: parsing {}: invalid syntax",
            quoted(text)
        )),
        None => plain.parse().map_err(|_| {
            format!(
                "error parsing number: strconv.ParseFloat: parsing {}: invalid syntax",
                quoted(text)
            )
        }),
    }
}

/// Writes a duration of milliseconds as Prometheus does.
pub fn show(duration: Millis) -> String {
    if duration == 0 {
        return "0s".to_owned();
    }
    let mut rest = duration;
    let mut made = String::new();
    for (unit, length) in UNITS {
        // Years and weeks only where nothing is left over, as Prometheus writes them.
        let is_exact_only = matches!(unit, "y" | "w");
        if rest >= length && (!is_exact_only || rest % length == 0) {
            made += &format!("{}{unit}", rest / length);
            rest %= length;
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_in_prometheus() {
        let table = [
            ("100ms", 100, "100ms"),
            ("1h30m", 5_400_000, "1h30m"),
            ("90s", 90_000, "1m30s"),
            ("7d", 604_800_000, "1w"),
            ("8d", 691_200_000, "8d"),
            ("0", 0, "0s"),
        ];
        for (text, duration, shown) in table {
            assert_eq!(parse(text), Ok(duration), "{text}");
            assert_eq!(show(duration), shown);
        }
    }

    #[test]
    fn a_text_that_is_not_a_duration_is_an_error() {
        for text in [
            "",
            "5",
            "s",
            "1.5s",
            "1m1h",
            "1s1s",
            "-1s",
            "1 s",
            "999999999y",
            "1x",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
