// SPDX-License-Identifier: Apache-2.0

//! Numbers as Go's `strconv.ParseFloat` reads them, less what Prometheus forbids (hexadecimal, underscores).

/// Powers of ten that a double holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// Whole numbers up to here are doubles.
const EXACT: u64 = 1 << 53;

/// The number and its length, if one without an exponent stands at the beginning, ends before a space or the end of
/// the line and is exact as the quotient of two doubles. Nearly all are; the others take [`parse_float`].
#[inline]
pub(crate) fn quick(bytes: &[u8]) -> Option<(f64, usize)> {
    /// So many digits fit into 64 bits.
    const MAX_DIGITS: usize = 19;
    let start = usize::from(bytes.first() == Some(&b'-'));
    let (mut mantissa, mut at, mut point) = (0u64, start, None);
    loop {
        match *bytes.get(at)? {
            digit @ b'0'..=b'9' if at - start < MAX_DIGITS => {
                mantissa = mantissa * 10 + u64::from(digit - b'0');
            }
            b'.' if point.is_none() => point = Some(at),
            b' ' | b'\n' => break,
            _ => return None,
        }
        at += 1;
    }
    let fraction = point.map_or(0, |point| at - point - 1);
    if at - start == usize::from(point.is_some()) || mantissa > EXACT {
        return None;
    }
    let number = mantissa as f64 / POWERS.get(fraction)?;
    Some((if start == 1 { -number } else { number }, at))
}

/// A number as Prometheus reads it in samples: what is out of a double's range, hexadecimal or has a sign before
/// `NaN` is none.
pub fn parse_float(bytes: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let number: f64 = text.parse().ok()?;
    let letters = text.trim_start_matches(['+', '-']);
    let spelt = letters.starts_with(|c: char| c.is_ascii_alphabetic());
    match () {
        () if number.is_nan() && letters.len() < text.len() => None,
        () if number.is_infinite() && !spelt => None,
        () => Some(number),
    }
}

/// A timestamp of OpenMetrics: seconds with a fraction, as milliseconds.
pub(crate) fn seconds(bytes: &[u8]) -> Option<i64> {
    let seconds = parse_float(bytes)?;
    // Towards zero, as Prometheus does it; beyond the range it stays at its end.
    seconds.is_finite().then_some((seconds * 1000.0) as i64)
}

/// A bound as OpenMetrics spells it, with the digits that Go gives it: `1.0`, `+Inf`, `1e+06`.
pub(crate) fn format_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    /// Exponents from here on are written as such.
    const FIRST_EXPONENT: i32 = 6;
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..FIRST_EXPONENT).contains(&exponent) {
        let plain = format!("{number}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_those_that_go_reads() {
        for (text, number) in [
            ("1", 1.0),
            ("+1.5", 1.5),
            (".5", 0.5),
            ("5.", 5.0),
            ("-0", -0.0),
            ("1e3", 1e3),
            ("1E-3", 1e-3),
            ("1e-999", 0.0),
            ("Inf", f64::INFINITY),
            ("+inf", f64::INFINITY),
            ("-infinity", f64::NEG_INFINITY),
            ("0.1", 0.1),
            ("123456789012345678901234567890", 1.2345678901234568e29),
        ] {
            let parsed = parse_float(text.as_bytes()).map(f64::to_bits);
            assert_eq!(parsed, Some(number.to_bits()), "{text}");
        }
        assert!(parse_float(b"nAn").is_some_and(f64::is_nan));
        for text in [
            "", "+", ".", "e5", "1e", "0x1", "0x1p3", "1_000", "1e400", "+NaN", "-nan", "1 ", " 1", "infi",
            "++1",
        ] {
            assert_eq!(parse_float(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_quick_way_gives_the_same_number(text in "-?[0-9]{0,20}\\.?[0-9]{0,25}( |\n)") {
            if let Some((number, end)) = quick(text.as_bytes()) {
                let parsed = parse_float(&text.as_bytes()[..end]).map(f64::to_bits);
                prop_assert_eq!(Some(number.to_bits()), parsed);
            }
        }
    }
}
