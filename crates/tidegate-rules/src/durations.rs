// SPDX-License-Identifier: Apache-2.0

//! Durations as Prometheus reads and writes them: `1h30m`, `100ms`.

use tidegate_promql::Millis;

/// Units from the longest to the shortest, in milliseconds, and whether a duration is written with the unit only if
/// nothing remains.
const UNITS: [(&str, Millis, bool); 7] = [
    ("y", 365 * 86_400_000, true),
    ("w", 7 * 86_400_000, true),
    ("d", 86_400_000, false),
    ("h", 3_600_000, false),
    ("m", 60_000, false),
    ("s", 1000, false),
    ("ms", 1, false),
];

/// The longest time that Go's durations hold, in milliseconds.
const MOST: Millis = i64::MAX / 1_000_000;

/// Reads a duration in milliseconds. Units fall from left to right, each at most once.
///
/// # Errors
/// The text is not a duration, or is too long a one.
pub fn parse_duration(text: &str) -> Result<Millis, String> {
    let invalid = || format!("not a valid duration string: {text:?}");
    let too_long = || "duration out of range".to_owned();
    match text {
        "0" => return Ok(0),
        "" => return Err("empty duration string".to_owned()),
        _ => {}
    }
    let (mut rest, mut next_unit, mut sum) = (text, 0, 0_i64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let at = UNITS.iter().position(|(name, ..)| *name == unit);
        let at = at.filter(|at| *at >= next_unit).ok_or_else(invalid)?;
        if number.is_empty() {
            return Err(invalid());
        }
        let number: Millis = number.parse().map_err(|_| too_long())?;
        let part = number.checked_mul(UNITS[at].1).ok_or_else(too_long)?;
        let total = sum.checked_add(part).filter(|total| *total <= MOST);
        sum = total.ok_or_else(too_long)?;
        (rest, next_unit) = (tail, at + 1);
    }
    Ok(sum)
}

/// Writes a duration of milliseconds as Prometheus does.
pub fn show_duration(duration: Millis) -> String {
    let mut rest = duration.unsigned_abs();
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut shown = if duration < 0 { "-" } else { "" }.to_owned();
    for (unit, size, is_exact) in UNITS {
        let size = size.unsigned_abs();
        let count = rest / size;
        if count > 0 && (!is_exact || rest.is_multiple_of(size)) {
            shown += &format!("{count}{unit}");
            rest -= count * size;
        }
    }
    shown
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
            assert_eq!(parse_duration(text), Ok(duration), "{text}");
            assert_eq!(show_duration(duration), shown);
        }
    }

    #[test]
    fn what_is_no_duration_is_an_error() {
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
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
