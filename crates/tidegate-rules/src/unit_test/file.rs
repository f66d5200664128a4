// SPDX-License-Identifier: Apache-2.0

//! Files of unit tests as `promtool` reads them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_config::{Node, Problems, parse_text};
use tidegate_promql::{FloatHistogram, Labels, Millis};

use super::{histogram, series};
use crate::file::FieldReader;

/// The interval of a file that names none.
const DEFAULT_INTERVAL: Millis = 60_000;

/// A file of unit tests.
pub(super) struct TestFile {
    pub(super) rule_files: Vec<String>,
    pub(super) interval: Millis,
    pub(super) order: Vec<String>,
    pub(super) is_fuzzy: bool,
    pub(super) tests: Vec<UnitTest>,
}

/// A test with its own series.
pub(super) struct UnitTest {
    pub(super) name: String,
    pub(super) interval: Millis,
    pub(super) series: Vec<(Labels, series::SeriesValues)>,
    pub(super) alerts: Vec<AlertTest>,
    pub(super) exprs: Vec<ExprTest>,
    pub(super) external_labels: Labels,
    pub(super) external_url: String,
}

/// The alerts of one name that fire at a time.
pub(super) struct AlertTest {
    pub(super) at: Millis,
    pub(super) alert_name: String,
    pub(super) expected: Vec<ExpectedAlert>,
}

pub(super) struct ExpectedAlert {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: Labels,
}

/// The value of an expression at a time.
pub(super) struct ExprTest {
    pub(super) at: Millis,
    pub(super) expr: String,
    pub(super) expected: Vec<ExpectedSample>,
}

pub(super) struct ExpectedSample {
    pub(super) labels: Labels,
    pub(super) value: f64,
    pub(super) histogram: Option<Arc<FloatHistogram>>,
}

/// Reads a file. The error lists all that is wrong.
pub(super) fn read(name: &str, text: &str) -> Result<TestFile, String> {
    let mut problems = Problems::default();
    let root = parse_text(name, text, &mut problems);
    let mut fields = FieldReader {
        problems: &mut problems,
    };
    let file = root.map(|root| read_root(&root, &mut fields));
    match file {
        _ if problems.has_errors() => Err(problems.to_string()),
        Some(file) => Ok(file),
        None => Err(format!("{name}: no tests")),
    }
}

fn read_root(root: &Node, fields: &mut FieldReader<'_>) -> TestFile {
    const FIELDS: [&str; 5] = [
        "rule_files",
        "evaluation_interval",
        "group_eval_order",
        "tests",
        "fuzzy_compare",
    ];
    fields.known(root, "a file of unit tests", &FIELDS);
    let interval = interval(root, "evaluation_interval", DEFAULT_INTERVAL, fields);
    let mut tests = Vec::new();
    for node in fields.items(root, "tests") {
        tests.push(read_test(node, interval, fields));
    }
    TestFile {
        rule_files: fields.texts(root, "rule_files"),
        interval,
        order: fields.texts(root, "group_eval_order"),
        is_fuzzy: fields.truth(root, "fuzzy_compare"),
        tests,
    }
}

/// An interval; 0 is the default.
fn interval(node: &Node, key: &str, default: Millis, fields: &mut FieldReader<'_>) -> Millis {
    let interval = fields.duration(node, key).unwrap_or_default();
    if interval == 0 { default } else { interval }
}

fn read_test(node: &Node, of_file: Millis, fields: &mut FieldReader<'_>) -> UnitTest {
    const FIELDS: [&str; 7] = [
        "name",
        "interval",
        "input_series",
        "alert_rule_test",
        "promql_expr_test",
        "external_labels",
        "external_url",
    ];
    fields.known(node, "a test", &FIELDS);
    let mut series = Vec::new();
    for item in fields.items(node, "input_series") {
        series.extend(read_series(item, fields));
    }
    let mut alerts = Vec::new();
    for item in fields.items(node, "alert_rule_test") {
        alerts.push(read_alert(item, fields));
    }
    let mut exprs = Vec::new();
    for item in fields.items(node, "promql_expr_test") {
        exprs.push(read_expr(item, fields));
    }
    UnitTest {
        name: fields.text(node, "name").unwrap_or_default(),
        interval: interval(node, "interval", of_file, fields),
        series,
        alerts,
        exprs,
        external_labels: texts(node, "external_labels", fields).into_iter().collect(),
        external_url: fields.text(node, "external_url").unwrap_or_default(),
    }
}

fn texts(node: &Node, key: &str, fields: &mut FieldReader<'_>) -> BTreeMap<String, String> {
    fields.map(node, key, |_| None)
}

fn read_series(node: &Node, fields: &mut FieldReader<'_>) -> Option<(Labels, series::SeriesValues)> {
    fields.known(node, "an input series", &["series", "values"]);
    let labels = fields.text(node, "series").unwrap_or_default();
    let values = fields.text(node, "values").unwrap_or_default();
    let read = series::series(&labels, &values);
    read.map_err(|why| fields.problems.at(node.child("values")).error(why))
        .ok()
}

fn read_alert(node: &Node, fields: &mut FieldReader<'_>) -> AlertTest {
    fields.known(node, "an alert test", &["eval_time", "alertname", "exp_alerts"]);
    let alert_name = fields.text(node, "alertname").unwrap_or_default();
    if alert_name.is_empty() {
        let why = "an item under alert_rule_test misses required attribute alertname";
        fields.problems.at(node).error(why);
    }
    let mut expected = Vec::new();
    for item in fields.items(node, "exp_alerts") {
        fields.known(item, "an expected alert", &["exp_labels", "exp_annotations"]);
        expected.push(ExpectedAlert {
            labels: texts(item, "exp_labels", fields),
            annotations: texts(item, "exp_annotations", fields).into_iter().collect(),
        });
    }
    AlertTest {
        at: fields.duration(node, "eval_time").unwrap_or_default(),
        alert_name,
        expected,
    }
}

fn read_expr(node: &Node, fields: &mut FieldReader<'_>) -> ExprTest {
    fields.known(node, "an expression test", &["expr", "eval_time", "exp_samples"]);
    let mut expected = Vec::new();
    for item in fields.items(node, "exp_samples") {
        expected.extend(read_sample(item, fields));
    }
    ExprTest {
        at: fields.duration(node, "eval_time").unwrap_or_default(),
        expr: fields.text(node, "expr").unwrap_or_default(),
        expected,
    }
}

fn read_sample(node: &Node, fields: &mut FieldReader<'_>) -> Option<ExpectedSample> {
    fields.known(node, "an expected sample", &["labels", "value", "histogram"]);
    let labels = fields.text(node, "labels").unwrap_or_default();
    let value = fields.text(node, "value");
    let histogram = fields.text(node, "histogram").filter(|text| !text.is_empty());
    expected_sample(&labels, value.as_deref(), histogram.as_deref())
        .map_err(|why| fields.problems.at(node).error(why))
        .ok()
}

fn expected_sample(
    labels: &str,
    value: Option<&str>,
    histogram: Option<&str>,
) -> Result<ExpectedSample, String> {
    let value = value.map(series::number).transpose()?;
    let histogram = histogram.map(|text| histogram::parse(text.trim()));
    Ok(ExpectedSample {
        labels: series::labels(labels)?,
        value: value.unwrap_or_default(),
        histogram: histogram.transpose()?.map(Arc::new),
    })
}
