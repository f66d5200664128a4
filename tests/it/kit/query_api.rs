// SPDX-License-Identifier: Apache-2.0

//! Prometheus's HTTP API, as Prometheus, VictoriaMetrics and the gateway's `admin` extension serve it.

use super::{SOON, http};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Instant;

/// One series of an answer, with the metric's name among the labels as `__name__`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// The API at a port of 127.0.0.1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryApi {
    port: u16,
}

impl QueryApi {
    /// Of the server that listens there.
    pub(crate) fn at(port: u16) -> Self {
        Self { port }
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// An instant query's vector (or scalar, as one sample without labels); native histograms are omitted.
    ///
    /// # Panics
    /// If the server refuses the expression.
    pub(crate) fn query(&self, expression: &str) -> Vec<Sample> {
        samples_of(self.query_json(expression))
    }

    /// The `result` of an instant query as it is.
    ///
    /// # Panics
    /// If the server refuses the expression.
    pub(crate) fn query_json(&self, expression: &str) -> Vec<Value> {
        let mut answer = self.api("/api/v1/query", &[("query", expression)]);
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        match answer["data"]["result"].take() {
            Value::Array(result) => result,
            other => panic!("{expression}: {other}"),
        }
    }

    /// The answer of its API to a form, whatever it is.
    pub(crate) fn api(&self, path: &str, form: &[(&str, &str)]) -> Value {
        let pair = |(name, value): &(&str, &str)| format!("{name}={}", percent_encode(value));
        let body = form.iter().map(pair).collect::<Vec<_>>().join("&");
        http::post(
            self.port,
            path,
            "application/x-www-form-urlencoded",
            body.as_bytes(),
        )
        .expect("the server answers")
        .json()
    }

    /// The `data` of its API's answer to a GET with these parameters.
    ///
    /// # Panics
    /// If it is not a success.
    pub(crate) fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let pair = |(name, value): &(&str, &str)| format!("{name}={}", percent_encode(value));
        let query = parameters.iter().map(pair).collect::<Vec<_>>().join("&");
        let answer = http::get(self.port, &format!("{path}?{query}")).expect("the server answers");
        let mut answer = answer.json();
        assert_eq!(answer["status"], "success", "{path}?{query}: {answer}");
        answer["data"].take()
    }

    /// The value of an expression that gives one series; nothing if it gives none.
    ///
    /// # Panics
    /// If it gives several.
    pub(crate) fn value(&self, expression: &str) -> Option<f64> {
        let samples = self.query(expression);
        assert!(samples.len() < 2, "{expression} gives {samples:?}");
        samples.first().map(|sample| sample.value)
    }

    /// Waits until the expression gives one series with this value. A server may refuse it before, as a replica does that
    /// lags.
    pub(crate) fn wait_for_value(&self, expression: &str, expected: f64) {
        let (mut last, mut refusal) = (None, Value::Null);
        let deadline = Instant::now() + SOON;
        while last != Some(expected) {
            assert!(
                Instant::now() < deadline,
                "{expression} is {last:?}, not {expected}; refusal: {refusal}; targets: {}",
                self.targets()
            );
            std::thread::sleep(super::POLL_INTERVAL);
            let mut answer = self.api("/api/v1/query", &[("query", expression)]);
            assert!(answer["errorType"] != "bad_data", "{expression}: {answer}");
            (last, refusal) = match answer["data"]["result"].take() {
                Value::Array(result) => {
                    let samples = samples_of(result);
                    assert!(samples.len() < 2, "{expression} gives {samples:?}");
                    (samples.first().map(|sample| sample.value), Value::Null)
                }
                _ => (None, answer),
            };
        }
    }

    /// The targets of the server, with the error of each one's last scrape; null if it has none.
    pub(crate) fn targets(&self) -> Value {
        let answer = http::get(self.port, "/api/v1/targets").expect("the server answers");
        let answer = serde_json::from_slice::<Value>(&answer.body);
        answer.map_or(Value::Null, |mut answer| answer["data"]["activeTargets"].take())
    }

    /// A metric's type and help, as the API's metadata has them.
    pub(crate) fn metadata(&self, metric: &str) -> Value {
        self.get("/api/v1/metadata", &[("metric", metric)])[metric].take()
    }

    /// Every series that matches, with its samples of this last while (such as `5m`).
    pub(crate) fn samples(&self, selector: &str, last: &str) -> Vec<Value> {
        self.query_json(&format!("{selector}[{last}]"))
    }

    /// The exemplars of the series that match, of all times.
    pub(crate) fn exemplars(&self, selector: &str) -> Value {
        let all_times = [("query", selector), ("start", "0"), ("end", "9999999999")];
        self.get("/api/v1/query_exemplars", &all_times)
    }
}

/// The samples of the `result` of an instant query; native histograms are omitted.
fn samples_of(result: Vec<Value>) -> Vec<Sample> {
    if result.first().is_some_and(|first| !first.is_object()) {
        return vec![sample(&serde_json::json!({"value": result}))];
    }
    let samples = result.iter().filter(|series| !series["value"].is_null());
    samples.map(sample).collect()
}

fn sample(series: &Value) -> Sample {
    let labels = series["metric"].as_object().into_iter().flatten();
    let value = series["value"][1].as_str().expect("a value is a string");
    Sample {
        labels: labels
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect(),
        value: value.parse().expect("the API spells floats as Rust reads them"),
    }
}

pub(crate) fn percent_encode(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' => (byte as char).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
