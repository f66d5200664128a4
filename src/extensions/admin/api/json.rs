//! Answers to queries in the JSON of Prometheus's API.

use serde_json::{Value, json};
use tidegate_engine::query::{Bucket, FloatHistogram, Instant, Labels, Millis, QuerySeries, SampleValue};

use crate::prom::number::push_f64;

pub(super) fn instant(value: &Instant, at: Millis) -> Value {
    match value {
        Instant::Scalar(number) => json!({"resultType": "scalar", "result": float(at, *number)}),
        Instant::String(text) => json!({"resultType": "string", "result": [seconds(at), text]}),
        Instant::Vector(vector) => {
            let series = vector.iter().map(|(labels, value)| match value {
                SampleValue::Float(value) => json!({"metric": metric(labels), "value": float(at, *value)}),
                SampleValue::Histogram(value) => {
                    json!({"metric": metric(labels), "histogram": histogram(at, value)})
                }
            });
            json!({"resultType": "vector", "result": series.collect::<Vec<_>>()})
        }
        Instant::Matrix(series) => matrix(series),
    }
}

/// Seconds since 1970, without a fraction where there is none.
pub(super) fn seconds(at: Millis) -> Value {
    match at % 1000 {
        0 => (at / 1000).into(),
        _ => (at as f64 / 1000.0).into(),
    }
}

fn float(at: Millis, value: f64) -> Value {
    json!([seconds(at), text(value)])
}

pub(super) fn text(value: f64) -> String {
    let mut text = String::new();
    push_f64(&mut text, value);
    text
}

fn histogram(at: Millis, value: &FloatHistogram) -> Value {
    let bucket = |bucket: Bucket| {
        let rule = bucket.rule as u8;
        json!([rule, text(bucket.lower), text(bucket.upper), text(bucket.count)])
    };
    let buckets: Vec<Value> = value.buckets().into_iter().map(bucket).collect();
    let mut all = json!({"count": text(value.count), "sum": text(value.sum)});
    if !buckets.is_empty() {
        all["buckets"] = buckets.into();
    }
    json!([seconds(at), all])
}

pub(super) fn metric(labels: &Labels) -> Value {
    labels
        .iter()
        .map(|(name, value)| (name.to_string(), Value::from(&**value)))
        .collect()
}

pub(super) fn matrix(all: &[QuerySeries]) -> Value {
    let shown = |series: &QuerySeries| {
        let mut shown = json!({"metric": metric(&series.labels)});
        let values: Vec<Value> = series
            .samples
            .iter()
            .map(|one| float(one.time, one.value))
            .collect();
        let histograms = series.histograms.iter();
        let histograms: Vec<Value> = histograms.map(|one| histogram(one.time, &one.value)).collect();
        for (kind, samples) in [("values", values), ("histograms", histograms)] {
            if !samples.is_empty() {
                shown[kind] = samples.into();
            }
        }
        shown
    };
    json!({"resultType": "matrix", "result": all.iter().map(shown).collect::<Vec<_>>()})
}
