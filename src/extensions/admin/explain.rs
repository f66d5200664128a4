// SPDX-License-Identifier: Apache-2.0

//! The sources of series, and the reasons for their number.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_engine::{
    Composite, Count, Freshness, Series, SeriesExplanation, SeriesSource, SilentSource, SourceStatus,
    UnixNanos, clock, holdings,
};
use tidegate_promql::{Labels, Patience, QueryError, Selection};

use crate::component::Shared;
use crate::prom::catalog::{Found, View};
use crate::watch::{GroupAnswer, Watched, json as shape};

/// Describes the series that queries see.
///
/// # Errors
/// The reader no longer waits. The search of a series reads its whole table.
pub(super) fn page(
    shared: &Shared,
    found: &[Found],
    now: UnixNanos,
    most: usize,
    patience: &Patience,
) -> Result<Vec<Value>, QueryError> {
    let composites = shared.composites.list();
    let mut explained = Vec::new();
    for one in found {
        patience.check()?;
        let table = one.table.as_ref();
        let page = match table.and_then(|table| table.explain(&one.series, now, most)) {
            Some(explanation) => Some(of_series(&one.labels, &one.series, &explanation, now)),
            None if one.is_target => Some(of_target(one, now)),
            None => of_composite(one, &composites, now, most),
        };
        explained.extend(page.map(|mut page| {
            page["hidden"] = one.is_hidden.into();
            page
        }));
    }
    Ok(explained)
}

/// At most `room` groups of composites that these selections accept and that have no value now: no table and no page has
/// them, so that only this says why. Each has at most `most` of its silent sources.
pub(super) fn without_value(
    view: &View,
    selections: &[Selection],
    now: UnixNanos,
    room: usize,
    most: usize,
) -> Vec<Value> {
    let mut all = Vec::new();
    for (watched, name) in view.names_of_composites() {
        if selections
            .iter()
            .all(|one| one.name().is_some_and(|asked| asked != name))
        {
            continue;
        }
        watched.composite().compute_if_due(now);
        let snapshot = watched.read(now);
        let empty = snapshot
            .answers
            .iter()
            .filter(|group| group.answer.value.is_none());
        for group in empty {
            let labels = view.labels_of_group(watched.composite(), &group.answer.attributes);
            let accepted = labels
                .iter()
                .find(|labels| selections.iter().any(|one| one.accepts(labels)));
            if let Some(labels) = accepted.filter(|_| all.len() < room) {
                all.push(of_group(labels, &watched, group, now, most));
            }
        }
    }
    all
}

fn metric(labels: &Labels) -> Value {
    let pairs = labels.iter();
    pairs
        .map(|(name, value)| (name.to_string(), Value::from(&**value)))
        .collect()
}

/// Seconds since 1970; null if unknown.
fn seconds(time: UnixNanos) -> Value {
    (time > 0).then_some(time as f64 / 1e9).into()
}

fn age_ms(time: UnixNanos, now: UnixNanos) -> Value {
    (time > 0).then(|| now.saturating_sub(time) as f64 / 1e6).into()
}

fn of_series(labels: &Labels, series: &Series, it: &SeriesExplanation, now: UnixNanos) -> Value {
    let source = |source: &SeriesSource| {
        json!({
            "source": shape::labels(&source.attributes),
            "streams": source.streams,
            "state": source.status.name(),
            "age_ms": age_ms(source.seen, now),
            "began": seconds(source.start),
            "said": source.last_value,
        })
    };
    json!({
        "metric": metric(labels),
        "attributes": shape::labels(&series.attributes),
        "resource": shape::labels(&series.resource.attributes),
        "value": it.value.as_f64(),
        "unit": &*series.metric.unit,
        "state": it.state.name(),
        "age_ms": age_ms(it.time, clock::wall(now)),
        "counts_since": seconds(it.start),
        "owner": &*it.owner,
        "rule": it.rule,
        "rule_name": it.rule_name.as_deref(),
        "sources": {"reporting": it.reporting, "expected": it.expected},
        "fed_by": it.sources.iter().map(source).collect::<Vec<_>>(),
        "fed_by_total": it.sources_total,
    })
}

/// A gauge of a composite: its function, its value, and the sources that do not report.
fn of_composite(one: &Found, composites: &[Arc<Watched>], now: UnixNanos, most: usize) -> Option<Value> {
    let name = &one.series.metric.name;
    let mut named = composites.iter().filter(|one| one.declaration().name == *name);
    let watched = named.next()?;
    watched.composite().compute_if_due(now);
    let snapshot = watched.read(now);
    let mut answers = snapshot.answers.iter();
    let group = answers.find(|group| group.answer.attributes == one.series.attributes)?;
    Some(of_group(&one.labels, watched, group, now, most))
}

fn of_group(labels: &Labels, watched: &Watched, group: &GroupAnswer, now: UnixNanos, most: usize) -> Value {
    let composite = watched.composite();
    let silent = composite.silent_sources(&group.answer.attributes, now, most);
    let source = |source: &SilentSource| {
        json!({
            "source": shape::labels(&source.attributes),
            "state": source.reason.name(),
            "age_ms": age_ms(source.since, now),
        })
    };
    json!({
        "metric": metric(labels),
        "state": group.answer.state.name(),
        "composite": shape::label_set(watched, group),
        "silent": silent.sources.iter().map(source).collect::<Vec<_>>(),
        "silent_total": silent.total,
        "unmatched": unmatched(composite).filter(|_| group.answer.state == Freshness::Absent),
        "hidden": false,
    })
}

/// The reason why nothing has matched the metric of a composite; `None`: a series has, or it is an expression.
fn unmatched(composite: &Composite) -> Option<String> {
    let declaration = composite.declaration();
    if declaration.expression.is_some() {
        return None;
    }
    composite.match_tracker().reason(declaration.metric.text())
}

/// `target_info`: the resource that it describes.
fn of_target(one: &Found, now: UnixNanos) -> Value {
    let (state, status) = if one.is_alive {
        (Freshness::Fresh, SourceStatus::Alive)
    } else {
        (Freshness::Stale, SourceStatus::Overdue)
    };
    let reporting = usize::from(one.is_alive);
    let attributes = shape::labels(&one.series.resource.attributes);
    json!({
        "metric": metric(&one.labels),
        "attributes": {},
        "resource": attributes,
        "value": 1.0,
        "unit": "",
        "state": state.name(),
        "age_ms": age_ms(one.seen, now),
        "counts_since": null,
        "owner": "the attributes of the resource",
        "rule": null,
        "rule_name": null,
        "sources": {"reporting": reporting, "expected": 1},
        "fed_by": [{
            "source": attributes,
            "streams": 1,
            "state": status.name(),
            "age_ms": age_ms(one.seen, now),
            "began": null,
            "said": 1.0,
        }],
        "fed_by_total": 1,
    })
}

fn counts(counts: &[Count]) -> Value {
    let count = |count: &Count| json!({"name": count.name, "value": count.count});
    counts.iter().map(count).collect()
}

/// The cardinality page of Prometheus, and what only we know: the bytes, and the sources by streams.
pub(super) fn cardinality_page(
    view: &View,
    now: UnixNanos,
    limit: usize,
    counts_labels: bool,
    patience: &Patience,
) -> Result<Value, QueryError> {
    let all = view.series_stats(now, limit, counts_labels, patience)?;
    let held = holdings(&view.tables(), limit);
    Ok(json!({
        "headStats": {"numSeries": all.series, "numLabelPairs": counts_labels.then_some(all.pairs), "chunkCount": 0, "minTime": 0, "maxTime": 0},
        "seriesCountByMetricName": counts(&all.metrics),
        "labelValueCountByLabelName": counts(&all.labels),
        "memoryInBytesByLabelName": [],
        "seriesCountByLabelValuePair": counts(&all.values),
        "streamCountBySource": counts(&held.sources),
        "bytes": held.bytes,
        "labelsCounted": counts_labels,
    }))
}
