// SPDX-License-Identifier: Apache-2.0

//! `printf` as Go has it, for the types of templates.

use super::numbers::general;
use super::value::TemplateValue;

/// The largest width and precision.
const MAX_WIDTH: usize = 256;

/// Flags, width and precision of a verb.
#[derive(Default)]
struct Format {
    is_left: bool,
    has_plus: bool,
    has_space: bool,
    is_zero: bool,
    is_sharp: bool,
    width: usize,
    precision: Option<usize>,
}

/// Writes the values in a format. As in Go, a verb that does not fit shows as `%!verb(type=value)`.
pub(super) fn printf(format: &str, values: &[TemplateValue]) -> Result<String, String> {
    let mut out = String::new();
    let mut values = values.iter();
    let mut rest = format;
    while let Some((before, verb)) = rest.split_once('%') {
        out += before;
        let (format, after) = flags(verb)?;
        let mut letters = after.chars();
        let Some(letter) = letters.next() else {
            out += "%!(NOVERB)";
            return Ok(out);
        };
        rest = letters.as_str();
        if letter == '%' {
            out.push('%');
            continue;
        }
        match values.next() {
            None => out += &format!("%!{letter}(MISSING)"),
            Some(value) => out += &format.written(letter, &basic(letter, value)),
        }
        if out.len() > super::MAX_OUTPUT {
            return Err(super::too_long());
        }
    }
    out += rest;
    let extra: Vec<String> = values
        .map(|value| format!("{}={}", value.kind(), value.show()))
        .collect();
    if !extra.is_empty() {
        out += &format!("%!(EXTRA {})", extra.join(", "));
    }
    Ok(out)
}

/// What a verb writes of a time, a duration or a name of the calendar: its text, or the number that it is in Go.
fn basic(letter: char, value: &TemplateValue) -> TemplateValue {
    use TemplateValue::{Duration, Month, Time, Weekday};
    match (letter, value) {
        ('s' | 'v' | 'q' | 'x', Time(_) | Duration { .. } | Month(_) | Weekday(_)) => value.show().into(),
        ('d' | 'b' | 'o' | 'c', _) => value.whole().map_or_else(|| value.clone(), TemplateValue::Int),
        _ => value.clone(),
    }
}

/// Reads what stands between `%` and the letter.
fn flags(verb: &str) -> Result<(Format, &str), String> {
    let mut format = Format::default();
    let mut rest = verb;
    while let Some(flag) = rest.chars().next() {
        match flag {
            '-' => format.is_left = true,
            '+' => format.has_plus = true,
            ' ' => format.has_space = true,
            '0' => format.is_zero = true,
            '#' => format.is_sharp = true,
            _ => break,
        }
        rest = &rest[1..];
    }
    let (width, after) = digits(rest)?;
    format.width = width;
    rest = after;
    if let Some(after) = rest.strip_prefix('.') {
        let (precision, after) = digits(after)?;
        format.precision = Some(precision);
        rest = after;
    }
    Ok((format, rest))
}

/// A number at the start of a text, and the text after it; 0 if there is none.
fn digits(text: &str) -> Result<(usize, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, after) = text.split_at(end);
    if digits.is_empty() {
        return Ok((0, after));
    }
    let number = digits.parse::<usize>().ok().filter(|number| *number <= MAX_WIDTH);
    let number = number.ok_or_else(|| format!("a width in printf is {MAX_WIDTH} at most"))?;
    Ok((number, after))
}

impl Format {
    fn written(&self, letter: char, value: &TemplateValue) -> String {
        use TemplateValue::{Bool, Float, Int, Text};
        let number = |text: String| self.padded(&self.signed(text), self.is_zero);
        match (letter, value) {
            ('v', Float(float)) => number(general(*float, self.precision)),
            ('v' | 'd', Int(int)) => number(int.to_string()),
            ('x', Int(int)) => number(format!("{int:x}")),
            ('X', Int(int)) => number(format!("{int:X}")),
            ('o', Int(int)) => number(format!("{int:o}")),
            ('b', Int(int)) => number(format!("{int:b}")),
            ('c', Int(int)) => {
                let c = u32::try_from(*int).ok().and_then(char::from_u32);
                self.padded(&c.unwrap_or('\u{fffd}').to_string(), false)
            }
            ('f' | 'F', Float(float)) if float.is_finite() => {
                let decimals = self.precision.unwrap_or(6);
                number(format!("{float:.decimals$}"))
            }
            ('e' | 'E', Float(float)) if float.is_finite() => {
                let text = exponential(*float, self.precision.unwrap_or(6));
                number(if letter == 'E' { text.to_uppercase() } else { text })
            }
            ('e' | 'E' | 'f' | 'F' | 'g' | 'G', Float(float)) => {
                let text = general(*float, self.precision);
                number(if letter == 'G' && float.is_finite() {
                    text.to_uppercase()
                } else {
                    text
                })
            }
            ('t', Bool(truth)) => self.padded(&truth.to_string(), false),
            ('s' | 'v' | 'q', Text(text)) => {
                let cut: String = text.chars().take(self.precision.unwrap_or(usize::MAX)).collect();
                let is_quoted = letter == 'q' || (letter == 'v' && self.is_sharp);
                let shown = if is_quoted { format!("{cut:?}") } else { cut };
                self.padded(&shown, false)
            }
            ('x', Text(text)) => {
                let bytes: Vec<String> = text.bytes().map(|byte| format!("{byte:02x}")).collect();
                self.padded(&bytes.concat(), false)
            }
            ('T', value) => self.padded(value.kind(), false),
            ('v', value) => self.padded(&value.show(), false),
            ('s', TemplateValue::Labels(_) | TemplateValue::Arguments(_)) => value.show(),
            (_, TemplateValue::Nil) => format!("%!{letter}(<nil>)"),
            (_, value) => format!("%!{letter}({}={})", value.kind(), value.show()),
        }
    }

    /// With a sign, if the flags ask for one.
    fn signed(&self, text: String) -> String {
        if text.starts_with(['-', '+']) {
            // Go writes `+Inf` in any case.
            text
        } else if self.has_plus {
            format!("+{text}")
        } else if self.has_space {
            format!(" {text}")
        } else {
            text
        }
    }

    fn padded(&self, text: &str, with_zeros: bool) -> String {
        let missing = self.width.saturating_sub(text.chars().count());
        if self.is_left {
            return text.to_owned() + &" ".repeat(missing);
        }
        let is_digits = text.ends_with(|c: char| c.is_ascii_hexdigit());
        if !with_zeros || !is_digits {
            return " ".repeat(missing) + text;
        }
        let digits = text.trim_start_matches(['-', '+', ' ']);
        let sign = &text[..text.len() - digits.len()];
        format!("{sign}{}{digits}", "0".repeat(missing))
    }
}

/// A number as Go's `%e` writes it.
fn exponential(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_in_go() {
        let float = |number: f64| vec![TemplateValue::Float(number)];
        let int = |number: i64| vec![TemplateValue::Int(number)];
        let text = |text: &str| vec![TemplateValue::from(text)];
        let table = [
            ("%.2f%%", float(12.346), "12.35%"),
            ("%8.3f|", float(-1.5), "  -1.500|"),
            ("%-6v|", float(2.0), "2     |"),
            ("%05d", int(-42), "-0042"),
            ("%x", int(255), "ff"),
            ("%e", float(1500.0), "1.500000e+03"),
            ("%.3g", float(1234.0), "1.23e+03"),
            ("%s and %q", text("a"), "a and %!q(MISSING)"),
            ("%q", text("a"), "\"a\""),
            ("%d", float(1.5), "%!d(float64=1.5)"),
            ("a", int(1), "a%!(EXTRA int=1)"),
            ("%", Vec::new(), "%!(NOVERB)"),
            ("%+d", int(3), "+3"),
        ];
        for (format, values, shown) in table {
            assert_eq!(printf(format, &values).as_deref(), Ok(shown), "{format}");
        }
        assert!(printf("%1000000d", &int(1)).is_err());
    }
}
