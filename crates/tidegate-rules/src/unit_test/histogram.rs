// SPDX-License-Identifier: Apache-2.0

//! The notation of native histograms: `{{schema:0 sum:5 count:4 buckets:[1 2 1]}}`.

use tidegate_promql::FloatHistogram;

use super::series::number;

/// Reads a histogram in its braces.
pub(super) fn parse(text: &str) -> Result<FloatHistogram, String> {
    let inside = text.strip_prefix("{{").and_then(|text| text.strip_suffix("}}"));
    let mut rest = inside.ok_or("unclosed histogram")?.trim();
    let mut histogram = FloatHistogram::default();
    let (mut offset, mut negative_offset) = (0, 0);
    let (mut positive, mut negative) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let (key, value, after) = field(rest)?;
        match key {
            "schema" => histogram.schema = schema(value)?,
            "sum" => histogram.sum = number(value)?,
            "count" => histogram.count = number(value)?,
            "z_bucket" => histogram.zero_count = number(value)?,
            "z_bucket_w" => histogram.zero_threshold = number(value)?,
            "offset" => offset = whole(value)?,
            "n_offset" => negative_offset = whole(value)?,
            "buckets" => positive = list(value)?,
            "n_buckets" => negative = list(value)?,
            // Samples carry no hint here.
            "counter_reset_hint" => {}
            key => return Err(format!("histogram field {key:?} is not supported")),
        }
        rest = after;
    }
    histogram.positive = filled(offset, &positive);
    histogram.negative = filled(negative_offset, &negative);
    Ok(histogram)
}

/// Key and value of the first field, and the text after it.
fn field(text: &str) -> Result<(&str, &str, &str), String> {
    let (key, rest) = text.split_once(':').ok_or("a histogram field is key:value")?;
    let end = if rest.starts_with('[') {
        rest.find(']')
            .map(|at| at + 1)
            .ok_or("unclosed list in a histogram")?
    } else {
        rest.find(char::is_whitespace).unwrap_or(rest.len())
    };
    let (value, after) = rest.split_at(end);
    Ok((key, value, after.trim_start()))
}

fn schema(text: &str) -> Result<i32, String> {
    let schema = text
        .parse::<i32>()
        .ok()
        .filter(|schema| (-4..=8).contains(schema));
    schema.ok_or_else(|| format!("schema {text:?} is not supported"))
}

fn whole(text: &str) -> Result<i64, String> {
    let number = text
        .parse::<i32>()
        .map_err(|_| format!("{text:?} is not an offset"));
    number.map(i64::from)
}

fn list(text: &str) -> Result<Vec<f64>, String> {
    let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let inside = inside.ok_or("a list of buckets is [1 2 3]")?;
    inside.split_whitespace().map(number).collect()
}

/// Buckets from an index on, without empty ones.
fn filled(offset: i64, counts: &[f64]) -> Vec<(i64, f64)> {
    let indexed = (offset..).zip(counts.iter().copied());
    indexed.filter(|(_, count)| *count != 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_its_buckets() {
        let found =
            parse("{{schema:1 sum:5 count:4 z_bucket:1 z_bucket_w:0.1 buckets:[1 0 2] offset:-1}}").unwrap();
        assert_eq!((found.schema, found.sum, found.count), (1, 5.0, 4.0));
        assert_eq!(found.positive, [(-1, 1.0), (1, 2.0)]);
        assert_eq!((found.zero_count, found.zero_threshold), (1.0, 0.1));
    }

    #[test]
    fn unknown_fields_and_schemas_are_errors() {
        for text in [
            "{{schema:9}}",
            "{{custom_values:[1]}}",
            "{{sum}}",
            "{{buckets:[1}}",
            "{{buckets:1}}",
            "{{",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
