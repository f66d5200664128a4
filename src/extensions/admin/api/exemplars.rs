// SPDX-License-Identifier: Apache-2.0

//! `query_exemplars`: the latest exemplars of the series that a query selects.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json as object};
use tidegate_engine::{Exemplar, Reading, UnixNanos, Value};
use tidegate_promql::{Labels, Millis, Query};

use super::{AnnotatedData, Api, ApiFailure, PageContent, json, params};
use crate::component::unix_now;
use crate::net::pages::Request;
use crate::prom::Style;
use crate::prom::catalog::{Accepted, NamedTable, millis};
use crate::prom::name::Spelling;
use crate::prom::number::push_f64;
use crate::prom::render::exemplar;

/// Exemplars with their times, by the labels of their series.
type ExemplarsBySeries = BTreeMap<Labels, Vec<(UnixNanos, Json)>>;

impl Api {
    pub(super) fn exemplars(&self, request: &Request) -> Result<PageContent, ApiFailure> {
        let start = params::optional_time(request, "start")?.unwrap_or(Millis::MIN);
        let end = params::optional_time(request, "end")?.unwrap_or(Millis::MAX);
        if end < start {
            return Err(ApiFailure::bad(
                "end timestamp must not be before start timestamp",
            ));
        }
        let query = Query::parse(request.get("query").unwrap_or_default())?;
        let selections = query.selections();
        if selections.is_empty() {
            return Ok(PageContent::Empty);
        }
        let now = unix_now();
        let accepted = self.view.accepted(now, &selections, &request.patience)?;
        let mut found = ExemplarsBySeries::new();
        for NamedTable { table, style, .. } in self.view.named_tables() {
            request.patience.check()?;
            table.read(now, &mut |reading| {
                let wanted = reading.exemplars.iter();
                let wanted = wanted.filter(|one| (start..=end).contains(&millis(one.time)));
                for one in wanted {
                    add(&reading, &accepted, &style, one, &mut found);
                }
            });
        }
        let all = found.into_iter().map(|(labels, mut exemplars)| {
            exemplars.sort_by_key(|(time, _)| *time);
            let exemplars: Vec<Json> = exemplars.into_iter().map(|(_, one)| one).collect();
            (labels, exemplars)
        });
        let mut text = self.text(request);
        text.exemplars(all)?;
        Ok(PageContent::Data(AnnotatedData {
            data: text.whole(),
            ..AnnotatedData::default()
        }))
    }
}

/// Adds an exemplar to the number that it belongs to: of a histogram its bucket.
fn add(
    reading: &Reading<'_>,
    accepted: &Accepted,
    style: &Style,
    one: &Exemplar,
    found: &mut ExemplarsBySeries,
) {
    let Some(value) = exemplar::value(one) else { return };
    let labels = match reading.value {
        Value::Histogram(histogram) => {
            let bound = histogram.bounds.iter().find(|bound| value <= **bound);
            let mut le = String::new();
            push_f64(&mut le, bound.copied().unwrap_or(f64::INFINITY));
            let mut buckets = accepted.labels(reading.series, "_bucket");
            buckets.find(|labels| labels.get("le") == le)
        }
        _ => accepted.labels(reading.series, "").next(),
    };
    let Some(labels) = labels else { return };
    let spelling = Spelling::of(&reading.series.metric);
    let own = exemplar::labels(one, &style.naming, spelling, false).into_iter();
    let own: BTreeMap<String, String> = own.collect();
    let entry = object!({
        "labels": own,
        "value": json::text(value),
        "timestamp": json::seconds(millis(one.time)),
    });
    found.entry(labels.clone()).or_default().push((one.time, entry));
}
