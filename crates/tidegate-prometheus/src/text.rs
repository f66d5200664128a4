// SPDX-License-Identifier: Apache-2.0

//! Attribute values as text (OpenTelemetry, "AnyValue": mapping to strings).

use base64::Engine;
use tidegate_engine::AttributeRef;

/// A value as text: JSON for lists and maps, base64 for bytes, JSON's form for numbers.
pub fn text(value: AttributeRef<'_>) -> String {
    match value {
        AttributeRef::Empty => String::new(),
        AttributeRef::Str(text) => text.to_owned(),
        AttributeRef::Bytes(bytes) => base64::engine::general_purpose::STANDARD.encode(bytes),
        value => {
            let mut json = String::new();
            push_json(&mut json, value);
            json
        }
    }
}

fn push_json(json: &mut String, value: AttributeRef<'_>) {
    match value {
        AttributeRef::Empty => json.push_str("null"),
        AttributeRef::Bool(truth) => json.push_str(if truth { "true" } else { "false" }),
        AttributeRef::Int(number) => json.push_str(itoa::Buffer::new().format(number)),
        AttributeRef::Double(number) => json.push_str(&double(number)),
        AttributeRef::Str(_) | AttributeRef::Bytes(_) => push_string(json, &text(value)),
        AttributeRef::Array(values) => {
            json.push('[');
            for (at, value) in values.iter().enumerate() {
                push_separator(json, at);
                push_item(json, value);
            }
            json.push(']');
        }
        AttributeRef::Map(map) => {
            json.push('{');
            for (at, (key, value)) in map.iter().enumerate() {
                push_separator(json, at);
                push_string(json, key);
                json.push(':');
                push_item(json, value);
            }
            json.push('}');
        }
    }
}

fn push_separator(json: &mut String, at: usize) {
    if at > 0 {
        json.push(',');
    }
}

/// JSON has no word for numbers that are none: inside a list or a map they are strings.
fn push_item(json: &mut String, value: AttributeRef<'_>) {
    match value {
        AttributeRef::Double(number) if !number.is_finite() => push_string(json, &double(number)),
        value => push_json(json, value),
    }
}

fn push_string(json: &mut String, text: &str) {
    json.push_str(&serde_json::Value::from(text).to_string());
}

/// As JSON encoders commonly write it (ECMAScript, Go): an exponent only for the very large and the very small.
fn double(number: f64) -> String {
    let size = number.abs();
    match number {
        n if n.is_nan() => "NaN".to_owned(),
        n if n.is_infinite() => if n > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        n if size >= 1e21 => format!("{n:e}").replace('e', "e+"),
        n if size < 1e-6 && size > 0.0 => format!("{n:e}"),
        n => n.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_engine::{AttributeList, AttributeValue};

    use super::*;

    #[test]
    fn values_that_are_no_text_become_text() {
        let list: AttributeList = [
            AttributeValue::Int(1),
            "x\"".into(),
            AttributeValue::Double(2.0),
            AttributeValue::Double(f64::NAN),
        ]
        .into_iter()
        .collect();
        for (value, expected) in [
            (AttributeRef::Array(list.view()), r#"[1,"x\"",2,"NaN"]"#),
            (AttributeRef::Bytes(&[1, 2, 3]), "AQID"),
            (AttributeRef::Bool(true), "true"),
            (AttributeRef::Int(-7), "-7"),
            (AttributeRef::Empty, ""),
            (AttributeRef::Double(1.0), "1"),
            (AttributeRef::Double(-0.25), "-0.25"),
            (AttributeRef::Double(1e20), "100000000000000000000"),
            (AttributeRef::Double(1.5e21), "1.5e+21"),
            (AttributeRef::Double(1e-7), "1e-7"),
            (AttributeRef::Double(0.0), "0"),
            (AttributeRef::Double(f64::NAN), "NaN"),
            (AttributeRef::Double(f64::NEG_INFINITY), "-Infinity"),
        ] {
            assert_eq!(text(value), expected);
        }
    }
}
