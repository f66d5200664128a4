//! `query_exemplars`: the latest exemplars of the series that the selectors of a query ask for.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json as object};
use tidegate_engine::query::{Labels, Millis, NAME, Query, Selection};
use tidegate_engine::{Exemplar, Reading, Value};

use super::{Api, Failure, Page, json, params};
use crate::component::unix_now;
use crate::extensions::server::Request;
use crate::prom::Style;
use crate::prom::catalog::{Shown, millis};
use crate::prom::flat::identity;
use crate::prom::name::Spelling;
use crate::prom::number::push_f64;
use crate::prom::render::exemplar;

impl Api {
    pub(super) fn exemplars(&self, request: &Request) -> Result<Page, Failure> {
        let start = params::optional_time(request, "start")?.unwrap_or(Millis::MIN);
        let end = params::optional_time(request, "end")?.unwrap_or(Millis::MAX);
        if end < start {
            return Err(Failure::bad("end timestamp must not be before start timestamp"));
        }
        let query = Query::parse(request.get("query").unwrap_or_default())?;
        let selections = query.selections();
        if selections.is_empty() {
            return Ok(Page::Empty);
        }
        let mut found: BTreeMap<Labels, Vec<Json>> = BTreeMap::new();
        for Shown { table, style, .. } in self.view.shown() {
            table.read(unix_now(), &mut |reading| {
                let wanted = reading.exemplars.iter();
                let wanted = wanted.filter(|one| (start..=end).contains(&millis(one.time)));
                for one in wanted {
                    Self::add(&reading, &style, one, &selections, &mut found);
                }
            });
        }
        let all = found.into_iter().map(
            |(labels, exemplars)| object!({"seriesLabels": json::metric(&labels), "exemplars": exemplars}),
        );
        Ok(all.collect::<Json>().into())
    }

    /// Adds an exemplar to its series, where a selector asks for that.
    fn add(
        reading: &Reading<'_>,
        style: &Style,
        one: &Exemplar,
        selections: &[Selection],
        found: &mut BTreeMap<Labels, Vec<Json>>,
    ) {
        let (Some(value), Some((name, mut pairs))) = (exemplar::value(one), identity(reading.series, style))
        else {
            return;
        };
        pairs.push((NAME.to_owned(), name));
        if let Value::Histogram(histogram) = reading.value {
            let bound = histogram.bounds.iter().find(|bound| value <= **bound);
            let mut text = String::new();
            push_f64(&mut text, bound.copied().unwrap_or(f64::INFINITY));
            pairs.push(("le".to_owned(), text));
            pairs
                .iter_mut()
                .filter(|(name, _)| name == NAME)
                .for_each(|(_, name)| name.push_str("_bucket"));
        }
        let labels: Labels = pairs.into_iter().collect();
        if selections.iter().any(|selection| selection.accepts(&labels)) {
            let spelling = Spelling::of(&reading.series.metric);
            let own: BTreeMap<String, String> = exemplar::labels(one, &style.naming, spelling, false)
                .into_iter()
                .collect();
            let entry = object!({
                "labels": own,
                "value": json::text(value),
                "timestamp": json::seconds(millis(one.time)),
            });
            found.entry(labels).or_default().push(entry);
        }
    }
}
