//! Where series come from, and what makes them so many.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_engine::query::{Labels, NAME, Selection};
use tidegate_engine::{Count, Explanation, Feeder, Series, Table, UnixNanos, cardinality};

use crate::component::Shared;
use crate::prom::Style;
use crate::prom::catalog::{Shown, View};
use crate::prom::flat::identity;
use crate::watch::{Watched, json as shape};

/// What a histogram or a summary is for Prometheus.
const SUFFIXES: [&str; 4] = ["", "_bucket", "_sum", "_count"];

/// Explains at most `most` series that one of these selections accepts, each with at most `most` of its sources.
pub(super) fn page(
    shared: &Shared,
    view: &View,
    selections: &[Selection],
    now: UnixNanos,
    most: usize,
) -> Value {
    let mut found: Vec<(Labels, Arc<Series>, Arc<Table>)> = Vec::new();
    for Shown { table, style, .. } in view.shown() {
        table.read(now, &mut |reading| {
            if found.len() < most
                && let Some(labels) = wanted(reading.series, &style, selections)
            {
                found.push((labels, reading.series.clone(), table.clone()));
            }
        });
    }
    let composites = shared.composites.list();
    let explained = found.iter().filter_map(|(labels, series, table)| {
        let explanation = table.explain(series, now, most);
        match explanation {
            Some(explanation) => Some(of_series(labels, series, &explanation, now)),
            None => of_composite(labels, series, &composites, now),
        }
    });
    explained.collect()
}

fn wanted(series: &Series, style: &Style, selections: &[Selection]) -> Option<Labels> {
    let (name, pairs) = identity(series, style)?;
    let accepts = |labels: &Labels| selections.iter().any(|selection| selection.accepts(labels));
    let labels = |suffix: &str| -> Labels {
        let name = (NAME.to_owned(), format!("{name}{suffix}"));
        pairs.iter().cloned().chain([name]).collect()
    };
    SUFFIXES
        .iter()
        .any(|suffix| accepts(&labels(suffix)))
        .then(|| labels(""))
}

fn metric(labels: &Labels) -> Value {
    let pairs = labels.iter();
    pairs
        .map(|(name, value)| (name.to_string(), Value::from(&**value)))
        .collect()
}

/// Seconds since the epoch; null where it is not known.
fn seconds(time: UnixNanos) -> Value {
    (time > 0).then_some(time as f64 / 1e9).into()
}

fn age_ms(time: UnixNanos, now: UnixNanos) -> Value {
    (time > 0).then(|| now.saturating_sub(time) as f64 / 1e6).into()
}

fn of_series(labels: &Labels, series: &Series, it: &Explanation, now: UnixNanos) -> Value {
    let feeder = |feeder: &Feeder| {
        json!({
            "source": shape::labels(&feeder.source),
            "streams": feeder.streams,
            "state": feeder.life.name(),
            "age_ms": age_ms(feeder.seen, now),
            "began": seconds(feeder.start),
            "said": feeder.said,
        })
    };
    json!({
        "metric": metric(labels),
        "attributes": shape::labels(&series.attributes),
        "resource": shape::labels(&series.resource.attributes),
        "value": it.value.as_f64(),
        "unit": &*series.metric.unit,
        "state": it.state.name(),
        "age_ms": age_ms(it.time, now),
        "counts_since": seconds(it.start),
        "owner": &*it.owner,
        "rule": it.rule,
        "sources": {"reporting": it.reporting, "expected": it.expected},
        "fed_by": it.feeders.iter().map(feeder).collect::<Vec<_>>(),
        "fed_by_total": it.feeders_total,
    })
}

/// A gauge of a composite: what it computes, and what it says.
fn of_composite(
    labels: &Labels,
    series: &Series,
    composites: &[Arc<Watched>],
    now: UnixNanos,
) -> Option<Value> {
    let name = &series.metric.name;
    let mut named = composites.iter().filter(|one| one.declaration().name == *name);
    let watched = named.next()?;
    watched.composite().compute_if_due(now);
    let latest = watched.read(now);
    let mut shown = latest.shown.iter();
    let shown = shown.find(|shown| shown.answer.attributes == series.attributes)?;
    Some(json!({
        "metric": metric(labels),
        "state": shown.answer.state.name(),
        "composite": shape::label_set(watched, shown),
    }))
}

fn counts(counts: &[Count]) -> Value {
    let count = |count: &Count| json!({"name": count.name, "value": count.count});
    counts.iter().map(count).collect()
}

/// The cardinality page of Prometheus, and what only we know. Its names of labels are those of the input: a series is
/// one here that is many there when it is a histogram.
pub(super) fn cardinality_page(tables: &[Arc<Table>], limit: usize) -> Value {
    let all = cardinality(tables, limit);
    json!({
        "headStats": {"numSeries": all.series, "numLabelPairs": all.pairs, "chunkCount": 0, "minTime": 0, "maxTime": 0},
        "seriesCountByMetricName": counts(&all.metrics),
        "labelValueCountByLabelName": counts(&all.labels),
        "memoryInBytesByLabelName": [],
        "seriesCountByLabelValuePair": counts(&all.values),
        "streamCountBySource": counts(&all.sources),
        "bytes": all.bytes,
    })
}
