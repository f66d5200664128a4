// SPDX-License-Identifier: Apache-2.0

//! The data that an exporter has got: series, numbers of items and texts of requests.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tidegate_engine::{Data, Temporality, Value};

use super::exported::{Exported, ReceivedSeries};
use super::{has_attributes, is_equal, listed};
use crate::commands::test::file::{Expectation, ExpectedPoint};
use crate::commands::test::gateway::TestGateway;
use crate::component::graph_metrics::NodeMetrics;
use crate::component::unix_now;
use crate::config::{Class, nearest};

impl ReceivedSeries {
    fn count_and_sum(&self) -> (Option<u64>, Option<f64>) {
        match &self.point.value {
            Value::Histogram(histogram) => (Some(histogram.count), histogram.sum),
            Value::ExponentialHistogram(histogram) => (Some(histogram.count), histogram.sum),
            Value::Summary(summary) => (Some(summary.count), Some(summary.sum)),
            Value::Int(_) | Value::Double(_) | Value::NoRecordedValue => (None, None),
        }
    }

    fn temporality(&self) -> &'static str {
        match (self.data(), self.data().temporality()) {
            (Data::Gauge | Data::Summary, _) | (_, Temporality::Unspecified) => "none",
            (_, Temporality::Delta) => "delta",
            (_, Temporality::Cumulative) => "cumulative",
        }
    }

    fn is_of(&self, expected: &ExpectedPoint) -> bool {
        let series = &self.point.series;
        *series.metric.name == *expected.name
            && has_attributes(&series.attributes, &expected.attributes)
            && has_attributes(&series.resource.attributes, &expected.resource)
    }

    fn is_equal(&self, expected: &ExpectedPoint) -> bool {
        let (count, sum) = self.count_and_sum();
        let number = |expected: Option<f64>, value: Option<f64>| {
            expected.is_none_or(|expected| value.is_some_and(|value| is_equal(expected, value)))
        };
        number(expected.value, self.point.value.as_f64())
            && number(expected.sum, sum)
            && expected.count.is_none_or(|expected| count == Some(expected))
            && (expected.temporality.as_deref()).is_none_or(|expected| expected == self.temporality())
    }

    fn line(&self) -> String {
        let series = &self.point.series;
        let mut line = format!("{}{{{}}}", series.metric.name, series.attributes);
        if !series.resource.attributes.is_empty() {
            let _ = write!(line, " resource {{{}}}", series.resource.attributes);
        }
        match (self.point.value.as_f64(), self.count_and_sum()) {
            (Some(value), _) => {
                let _ = write!(line, " value {value}");
            }
            (None, (Some(count), sum)) => {
                let _ = write!(line, " count {count} sum {}", sum.unwrap_or(f64::NAN));
            }
            (None, (None, _)) => line.push_str(" ended"),
        }
        line + " " + self.temporality()
    }
}

/// Compares the data of an exporter.
pub(super) fn of_exporter(
    expected: &Expectation,
    gateway: &TestGateway,
    exporter: &str,
    exported: &Exported,
) -> Result<(), String> {
    let nodes = &gateway.metrics.nodes;
    if gateway.stand_ins.page(exporter, unix_now()).is_some() {
        return Err(format!("`{exporter}` shows a page: use `page: {exporter}`"));
    }
    if !nodes
        .iter()
        .any(|node| *node.path == *format!("exporters::{exporter}"))
    {
        return Err(unknown_exporter(exporter, nodes));
    }
    let data = exported.of(exporter);
    let data = data.ok_or_else(|| format!("the data of `{exporter}` was not kept"))?;
    let got = data.items;
    if let Some(items) = expected.items.filter(|items| *items != got) {
        return Err(format!("expected {items} items, `{exporter}` got {got}"));
    }
    if !expected.points.is_empty() {
        let series = data.series()?;
        expected
            .points
            .iter()
            .try_for_each(|point| of_point(point, &series, exporter))?;
    }
    if expected.contains.is_empty() && expected.absent.is_empty() {
        return Ok(());
    }
    of_texts(expected, data.texts()?, exporter)
}

/// Says that no pipeline has an exporter, and names those that there are.
fn unknown_exporter(exporter: &str, nodes: &[NodeMetrics]) -> String {
    let exporters = nodes.iter().filter(|node| node.class == Class::Exporter);
    let ids: BTreeSet<&str> = exporters.map(|node| &*node.id).collect();
    let quoted: Vec<_> = ids.iter().map(|id| format!("`{id}`")).collect();
    let mut text = format!(
        "no pipeline has an exporter `{exporter}`; there are {}",
        quoted.join(", ")
    );
    if let Some(near) = nearest(exporter, ids) {
        let _ = write!(text, "; did you mean `{near}`?");
    }
    text
}

fn of_point(expected: &ExpectedPoint, series: &[&ReceivedSeries], exporter: &str) -> Result<(), String> {
    let same: Vec<_> = series.iter().filter(|series| series.is_of(expected)).collect();
    let is_there = same.iter().any(|series| series.is_equal(expected));
    if is_there != expected.absent {
        return Ok(());
    }
    let name = &expected.name;
    if expected.absent {
        let lines = same.iter().map(|series| series.line());
        return Err(listed(&format!("`{exporter}` got series of `{name}`:"), lines));
    }
    let of_name: Vec<_> = series
        .iter()
        .filter(|series| *series.point.series.metric.name == **name)
        .collect();
    let shown = if same.is_empty() { of_name } else { same };
    if shown.is_empty() {
        let mut names: Vec<_> = series
            .iter()
            .map(|series| series.point.series.metric.name.to_string())
            .collect();
        names.sort_unstable();
        names.dedup();
        return Err(listed(
            &format!("`{exporter}` got no `{name}`. It got these metrics:"),
            names,
        ));
    }
    let lines = shown.iter().map(|series| series.line());
    Err(listed(
        &format!("`{exporter}` got no such series of `{name}`. It got:"),
        lines,
    ))
}

/// Checks the texts in the requests of an exporter.
fn of_texts(expected: &Expectation, requests: &[String], exporter: &str) -> Result<(), String> {
    let is_there = |text: &String| requests.iter().any(|request| request.contains(text));
    if let Some(text) = expected.contains.iter().find(|text| !is_there(text)) {
        let what = format!("no request of `{exporter}` has `{text}`. It got:");
        return Err(listed(&what, requests.iter().cloned()));
    }
    match expected.absent.iter().find(|text| is_there(text)) {
        Some(text) => Err(format!("a request of `{exporter}` has `{text}`")),
        None => Ok(()),
    }
}
