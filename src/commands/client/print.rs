// SPDX-License-Identifier: Apache-2.0

//! Answers as text for people: labels, numbers, tables and lines, without characters that a terminal obeys.

use serde_json::Value;

/// Labels as PromQL writes them, without the name.
pub(in crate::commands) fn labels(object: &Value) -> String {
    let pairs = object.as_object().into_iter().flatten();
    let pairs = pairs
        .filter(|(key, _)| *key != "__name__")
        .map(|(key, value)| match value {
            Value::String(text) => format!("{}={text:?}", printable(key)),
            other => format!("{}=\"{}\"", printable(key), printable(&other.to_string())),
        });
    let pairs: Vec<String> = pairs.collect();
    if pairs.is_empty() {
        String::new()
    } else {
        format!("{{{}}}", pairs.join(", "))
    }
}

/// A number in a few digits, but a whole number in all of its digits up to 15; `-` where there is none.
pub(in crate::commands) fn number(value: &Value) -> String {
    let Some(number) = value.as_f64() else {
        return "-".to_owned();
    };
    match number.abs() {
        size if (1e9..1e15).contains(&size) && size.fract() == 0.0 => format!("{number}"),
        size if size != 0.0 && !(1e-3..1e9).contains(&size) => format!("{number:.3e}"),
        size => {
            // Digits that matter: three behind the point, and more where the number is small.
            let decimals = match size {
                ..1e-2 => 6,
                ..1e-1 => 5,
                ..1.0 => 4,
                _ => 3,
            };
            let text = format!("{number:.decimals$}");
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                text
            }
        }
    }
}

/// Numbers as a line of eight heights.
pub(in crate::commands) fn sparkline(numbers: &[f64]) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let most = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let height = |number: &f64| {
        if most > least {
            HEIGHTS[(((number - least) / (most - least)) * 7.0).round() as usize % 8]
        } else {
            HEIGHTS[0]
        }
    };
    numbers
        .iter()
        .filter(|number| number.is_finite())
        .map(height)
        .collect()
}

/// The text without characters that a terminal obeys: names come from outside.
pub(in crate::commands) fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        if is_obeyed(c) {
            printable.extend(c.escape_default());
        } else {
            printable.push(c);
        }
    }
    printable
}

/// The same for a text of several lines.
pub(super) fn printable_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(printable).collect();
    lines.join("\n")
}

/// JSON without characters that a terminal obeys. They are in strings only, so JSON has escapes for them.
pub(in crate::commands) fn printable_json(line: &str) -> String {
    let mut printable = String::with_capacity(line.len());
    for c in line.chars() {
        if is_obeyed(c) {
            printable.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            printable.push(c);
        }
    }
    printable
}

/// Whether a terminal obeys a character. None of them is above U+FFFF.
fn is_obeyed(c: char) -> bool {
    c.is_control() || BIDIRECTIONAL.contains(c)
}

/// Characters that change the order of others.
const BIDIRECTIONAL: &str =
    "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";

/// Rows under a head, as wide as need be; the first column to the left.
pub(in crate::commands) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let rows = rows
        .iter()
        .map(|row| row.iter().map(|cell| printable(cell)).collect());
    let rows: Vec<Vec<String>> = rows.collect();
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let longest = cells.map(|cell| cell.chars().count()).max();
            longest.unwrap_or(0).max(head[column].len())
        })
        .collect();
    let mut text = String::new();
    let head = head.iter().map(|word| (*word).to_owned()).collect();
    for row in std::iter::once(&head).chain(&rows) {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let line: Vec<String> = cells.collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_in_a_table_can_t_write_to_the_terminal() {
        let rows = [vec!["a\u{1b}[2J\nb\u{202e}c".to_owned()]];
        assert_eq!(table(&["NAME"], &rows), "NAME\na\\u{1b}[2J\\nb\\u{202e}c\n");
    }

    #[test]
    fn errors_and_json_can_t_write_to_the_terminal() {
        assert_eq!(printable_lines("a\u{1b}[2J\nb\u{9b}"), "a\\u{1b}[2J\nb\\u{9b}");
        let line = json!({"a": "b\u{9b}2J\u{202e}c\u{7f}\u{1b}"});
        let shown = printable_json(&line.to_string());
        assert!(!shown.contains(is_obeyed), "{shown}");
        let read: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(read, line);
    }

    #[test]
    fn numbers_and_labels_are_short() {
        let all = [
            json!(0.0),
            json!(12.5),
            json!(1e12),
            json!(19_460_000_001_u64),
            json!(1e15),
            json!(1_975_038_045.8),
            json!(0.00001),
            json!(null),
            json!(-3),
            json!(0.021_734),
            json!(0.001_234_6),
            json!(0.812_345),
            json!(1234.5678),
        ];
        assert_eq!(
            all.map(|value| number(&value)),
            [
                "0",
                "12.5",
                "1000000000000",
                "19460000001",
                "1.000e15",
                "1.975e9",
                "1.000e-5",
                "-",
                "-3",
                "0.02173",
                "0.001235",
                "0.8123",
                "1234.568"
            ]
        );
        assert_eq!(
            labels(&json!({"__name__": "x", "a": "1\"", "b": 2})),
            r#"{a="1\"", b="2"}"#
        );
        assert_eq!(labels(&json!({})), "");
        let hostile = labels(&json!({"a\u{1b}": "b\u{1b}", "c": ["\u{9b}"]}));
        assert!(!hostile.contains(is_obeyed), "{hostile}");
    }

    #[test]
    fn a_sparkline_spans_what_it_shows() {
        assert_eq!(sparkline(&[0.0, 3.5, 7.0]), "▁▅█");
        assert_eq!(sparkline(&[2.0, f64::NAN, 2.0]), "▁▁");
    }
}
