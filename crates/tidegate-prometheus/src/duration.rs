// SPDX-License-Identifier: Apache-2.0

//! Durations in Prometheus's format, in configurations, queries and answers.

use std::time::Duration;

use tidegate_config::{Decode, Node, Problems, TypeHelp, YamlType, wrong_type};

/// A duration in Prometheus's spelling: `1h30m`, `15s`, `500ms`, `1d`; units from the largest to the smallest.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct PromDuration(pub Duration);

/// The units in the order in which they may follow one another, in milliseconds.
const UNITS: &[(&str, u64)] = &[
    ("y", 365 * 24 * 3_600_000),
    ("w", 7 * 24 * 3_600_000),
    ("d", 24 * 3_600_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

impl PromDuration {
    /// A duration of `seconds` seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Whether it is zero, which means the inherited value in Prometheus's configuration.
    pub fn is_zero(self) -> bool {
        self.0.is_zero()
    }

    /// Parses a text; `None` if it is invalid or longer than 292 years, the limit of Prometheus.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "0" {
            return Some(Self::default());
        }
        let (mut rest, mut at, mut total) = (text, 0, 0u64);
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let number: u64 = rest.get(..digits)?.parse().ok()?;
            rest = &rest[digits..];
            let unit_bytes = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
            let unit = &rest[..unit_bytes];
            let found = UNITS.iter().skip(at).position(|(name, _)| *name == unit)?;
            let (_, factor) = UNITS[at + found];
            at += found + 1;
            total = total.checked_add(number.checked_mul(factor)?)?;
            rest = &rest[unit_bytes..];
        }
        let fits = !text.is_empty() && i64::try_from(total).ok()?.checked_mul(1_000_000).is_some();
        fits.then_some(Self(Duration::from_millis(total)))
    }
}

/// Prints in Prometheus's form: whole years, weeks and days only without a remainder.
impl std::fmt::Display for PromDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut left = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if left == 0 {
            return f.write_str("0s");
        }
        for (unit, factor) in UNITS {
            let whole_only = matches!(*unit, "y" | "w" | "d");
            let fits = left >= *factor && (!whole_only || left.is_multiple_of(*factor));
            if fits {
                write!(f, "{}{unit}", left / factor)?;
                left %= factor;
            }
        }
        Ok(())
    }
}

impl Decode for PromDuration {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        match node.as_text().and_then(Self::parse) {
            Some(duration) => Some(duration),
            None => wrong_type(node, cx),
        }
    }

    fn type_help() -> TypeHelp {
        TypeHelp::like("duration", "15s or 1m30s (units y, w, d, h, m, s, ms)")
            .accepting(YamlType::duration())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_prometheus_does() {
        let table = [
            ("0", Some(0u64), "0s"),
            ("15s", Some(15_000), "15s"),
            ("1m30s", Some(90_000), "1m30s"),
            ("500ms", Some(500), "500ms"),
            ("1d", Some(86_400_000), "1d"),
            ("25h", Some(90_000_000), "25h"),
            ("1w1d", Some(691_200_000), "8d"),
            ("1y", Some(31_536_000_000), "1y"),
            ("", None, ""),
            ("15", None, ""),
            ("1.5s", None, ""),
            ("30s1m", None, ""),
            ("1s1s", None, ""),
            ("-1s", None, ""),
            ("s", None, ""),
            ("9999999999y", None, ""),
        ];
        for (text, expected, shown) in table {
            let read = PromDuration::parse(text);
            let millis = read.map(|duration| duration.0.as_millis());
            assert_eq!(millis, expected.map(u128::from), "{text}");
            if let Some(read) = read {
                assert_eq!(read.to_string(), shown, "{text}");
            }
        }
    }
}
