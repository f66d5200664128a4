// SPDX-License-Identifier: Apache-2.0

//! The layout of printed data, for the exporter and for `tidegate tap`. Text is written piece by piece: neither the text nor a JSON tree is kept in memory.

use std::io::{self, Write};

use tidegate_engine::{Point, Value};

use crate::prom::labels::text;

/// `name{attributes} value`, a line a point.
pub(crate) fn points(points: &[Point], to: &mut impl Write) -> io::Result<()> {
    for point in points {
        let pairs = point
            .series
            .attributes
            .iter()
            .map(|(key, value)| format!("{key}={}", text(value)));
        let attributes = pairs.collect::<Vec<_>>().join(", ");
        let value = match &point.value {
            Value::Int(number) => number.to_string(),
            Value::Double(number) => number.to_string(),
            Value::Histogram(h) => format!(
                "count={} sum={:?} min={:?} max={:?}",
                h.count, h.sum, h.min, h.max
            ),
            Value::ExponentialHistogram(h) => format!("count={} sum={:?} scale={}", h.count, h.sum, h.scale),
            Value::Summary(s) => format!("count={} sum={}", s.count, s.sum),
            Value::NoRecordedValue => "no recorded value".to_owned(),
        };
        writeln!(to, "  {}{{{attributes}}} {value}", point.series.metric.name)?;
    }
    Ok(())
}

/// Writes one line of compact JSON for every span or log record of a request.
pub(crate) fn items(json: &str, to: &mut impl Write) -> io::Result<()> {
    let json = json.as_bytes();
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        if *byte != b'"' {
            at += 1;
            continue;
        }
        let end = end_of_string(json, at);
        let (string, rest) = (piece(json, at, end), piece(json, end, json.len()));
        at = end;
        if !matches!(string, b"\"spans\"" | b"\"logRecords\"") || !rest.starts_with(b":[") {
            continue;
        }
        at += 2;
        while !matches!(json.get(at), None | Some(b']')) {
            let end = end_of_value(json, at);
            to.write_all(b"  ")?;
            to.write_all(piece(json, at, end))?;
            to.write_all(b"\n")?;
            at = end + usize::from(json.get(end) == Some(&b','));
        }
    }
    Ok(())
}

/// JSON without spaces, on many lines.
pub(super) fn tree(json: &str, to: &mut impl Write) -> io::Result<()> {
    let json = json.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = json.get(at) {
        let one = piece(json, at, at + 1);
        match byte {
            b'"' => {
                let end = end_of_string(json, at);
                to.write_all(piece(json, at, end))?;
                at = end;
                continue;
            }
            b'{' | b'[' => {
                to.write_all(one)?;
                if let Some(b'}' | b']') = json.get(at + 1) {
                    at += 1;
                    to.write_all(piece(json, at, at + 1))?;
                } else {
                    depth += 1;
                    begin_line(to, depth)?;
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                begin_line(to, depth)?;
                to.write_all(one)?;
            }
            b',' => {
                to.write_all(one)?;
                begin_line(to, depth)?;
            }
            b':' => to.write_all(b": ")?,
            _ => to.write_all(one)?,
        }
        at += 1;
    }
    to.write_all(b"\n")
}

/// Begins a line.
fn begin_line(to: &mut impl Write, depth: usize) -> io::Result<()> {
    write!(to, "\n{:width$}", "", width = 2 * depth)
}

fn piece(json: &[u8], from: usize, to: usize) -> &[u8] {
    json.get(from..to).unwrap_or_default()
}

/// The end of the string that begins at `at`, after its quote.
fn end_of_string(json: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    loop {
        match json.get(end) {
            None => return json.len(),
            Some(b'"') => return end + 1,
            Some(b'\\') => end += 2,
            Some(_) => end += 1,
        }
    }
}

/// The end of the value that begins at `at`: a comma, or the end of its list.
fn end_of_value(json: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => {
                at = end_of_string(json, at);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' | b',' if depth == 0 => return at,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_on_many_lines_is_as_others_write_it() {
        let values = [
            json!({}),
            json!([]),
            json!({"a": [], "b": {}, "c": [[]], "d": [1, -2.5e3, true, null]}),
            json!({"a": {"b": [{"c": "x"}, {"c": "y"}]}, "d": "{[,:]}"}),
            json!({"quotes": "a \"b\" \\", "lines": "a\nb\u{1}", "words": "ä €"}),
        ];
        for value in values {
            let mut written = Vec::new();
            tree(&value.to_string(), &mut written).unwrap();
            assert_eq!(String::from_utf8(written).unwrap(), format!("{value:#}\n"));
        }
    }

    #[test]
    fn items_are_found_wherever_they_are_and_names_in_text_are_none() {
        let json = json!({"resourceLogs": [
            {"resource": {"attributes": [{"key": "spans", "value": {"stringValue": "\"spans\":[1]"}}]}},
            {"scopeLogs": [{"logRecords": []}, {"logRecords": [{"a": [1, 2]}, {"b": "],"}]}]},
            {"scopeLogs": [{"logRecords": [{"logRecords": [3]}], "z": 1}]},
        ]});
        let mut written = Vec::new();
        items(&json.to_string(), &mut written).unwrap();
        let lines = ["{\"a\":[1,2]}", "{\"b\":\"],\"}", "{\"logRecords\":[3]}"];
        let expected: String = lines.iter().map(|line| format!("  {line}\n")).collect();
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }

    #[test]
    fn json_that_breaks_off_ends() {
        let json = json!({"scopeSpans": [{"spans": [{"a": ["x\\", {}]}]}]}).to_string();
        for end in 0..json.len() {
            items(&json[..end], &mut io::sink()).unwrap();
            tree(&json[..end], &mut io::sink()).unwrap();
        }
    }
}
