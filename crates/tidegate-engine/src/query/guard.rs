//! What the parser must not be given: it panics over durations that are numbers without bounds (`offset Inf`).

use std::sync::LazyLock;

use regex::Regex;

use super::QueryError;

/// Seconds; more is no time span that anybody means.
const MAX_SECONDS: f64 = 1e12;

/// Where a duration is expected and a number stands. Texts and comments are blanked before.
static NUMBERS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)(?:\boffset\s*[-+]?|\[|:)\s*(inf\b|nan\b|0x[0-9a-f_]+|[0-9._]+(?:e[-+]?[0-9_]+)?)").ok()
});

pub(super) fn check(text: &str) -> Result<(), QueryError> {
    let blanked = blanked(text);
    let numbers = NUMBERS.iter().flat_map(|pattern| pattern.captures_iter(&blanked));
    for number in numbers.filter_map(|found| found.get(1)) {
        let plain = number.as_str().replace('_', "").to_ascii_lowercase();
        let value = match plain.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).map_or(f64::INFINITY, |value| value as f64),
            // What is no number is none to the parser either, or a duration with its unit behind it.
            None => plain.parse::<f64>().unwrap_or(0.0),
        };
        if value.is_nan() || value > MAX_SECONDS {
            return Err(QueryError::Syntax(format!("{} is no duration", number.as_str())));
        }
    }
    Ok(())
}

/// The text with spaces for what is quoted or commented.
fn blanked(text: &str) -> String {
    let mut blanked = String::with_capacity(text.len());
    let mut inside: Option<char> = None;
    let mut escaped = false;
    for c in text.chars() {
        let ends = match inside {
            Some('#') => c == '\n',
            Some(quote) => c == quote && !escaped,
            None => false,
        };
        escaped = inside.is_some_and(|quote| quote != '#' && quote != '`') && c == '\\' && !escaped;
        match inside {
            Some(_) => {
                blanked.push(' ');
                if ends {
                    inside = None;
                }
            }
            None if matches!(c, '"' | '\'' | '`' | '#') => {
                blanked.push(' ');
                inside = Some(c);
            }
            None => blanked.push(c),
        }
    }
    blanked
}
