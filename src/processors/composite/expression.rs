// SPDX-License-Identifier: Apache-2.0

//! Composites that are PromQL expressions: their computation, their input, and the sources that determine their
//! quality.

mod sources;

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_engine::{
    Across, Attributes, BadPattern, Composite, DataQuality, Declaration, Evaluated, Expression, Function,
    Pattern, Series,
};
use tidegate_promql::{Labels, NAME, Query, Selection};
use tokio::task::JoinHandle;

use self::sources::ExpectedSources;
use crate::component::worker::in_background;
use crate::component::{Evaluate, Shared, unix_now};
use crate::prom::Style;
use crate::prom::catalog::View;
use crate::prom::flat::{SUFFIXES, identity};
use crate::prom::name::Kind;

/// The shortest interval between two computations without a reader.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// A declaration with the sources of the series that `query` selects, by the names of any exporter.
pub(super) fn declaration(
    text: &str,
    query: &Query,
    shared: &Shared,
    rest: Declaration,
) -> Result<Declaration, BadPattern> {
    let (view, selections) = (View::of(shared), query.selections());
    let metric = match query.only_names() {
        // A failed reload builds it before it shows the old exporters again.
        Some(names) => Pattern::regex(&patterns(&names, &view.known_styles()))?,
        None => Pattern::parse("*")?,
    };
    // The view reads the composite, so a strong reference would be a cycle.
    let view = Arc::downgrade(&view);
    let selects = move |series: &Series| {
        let styles = view.upgrade().map(|view| view.styles()).unwrap_or_default();
        styles.iter().any(|style| is_selected(series, &selections, style))
    };
    Ok(Declaration {
        metric,
        expression: Some(Expression {
            text: text.into(),
            selects: Arc::new(selects),
        }),
        function: Function::Last,
        across: Some(Across::Sum),
        ..rest
    })
}

/// A pattern for the names of metrics that an exporter shows under one of `names`.
fn patterns(names: &[String], styles: &[Arc<Style>]) -> String {
    let stripped = |name: &String| -> Vec<String> {
        let of_style = |style: &Arc<Style>| {
            // The prefix of the exporter's names.
            let x = style.naming.metric("x", "", Kind::Gauge)?;
            let stem = name.strip_prefix(x.strip_suffix('x')?)?;
            Some(spellings(stem))
        };
        styles.iter().filter_map(of_style).collect()
    };
    let mut all: Vec<String> = names.iter().flat_map(stripped).collect();
    all.sort();
    all.dedup();
    all.join("|")
}

/// A regular expression for the metric names that become `name` in Prometheus. Other characters may stand for
/// underscores, and a unit or `total` may be added.
fn spellings(name: &str) -> String {
    let parts: Vec<String> = name.split('_').map(regex::escape).collect();
    let (mut all, mut closing) = (String::new(), String::new());
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            all.push_str("(?:[^a-zA-Z0-9]?");
            closing.push_str(")?");
        }
        all.push_str(part);
    }
    all + &closing
}

fn is_selected(series: &Series, selections: &[Selection], style: &Style) -> bool {
    let Some((name, pairs)) = identity(series, style) else {
        return false;
    };
    SUFFIXES.iter().any(|suffix| {
        let name = (NAME.to_owned(), format!("{name}{suffix}"));
        let labels: Labels = pairs.iter().cloned().chain([name]).collect();
        // Labels of a part of the series (`le`) are not compared.
        selections.iter().any(|selection| accepts(selection, &labels))
    })
}

fn accepts(selection: &Selection, labels: &Labels) -> bool {
    let is_of_part = |name: &str| matches!(name, "le" | "quantile");
    let mut matchers = selection.matchers.iter();
    matchers.all(|matcher| is_of_part(matcher.name()) || matcher.accepts(labels))
}

/// Computes the composite at every interval and for its readers.
pub(super) fn start(
    composite: &Arc<Composite>,
    query: Query,
    shared: &Arc<Shared>,
    interval: Duration,
) -> JoinHandle<()> {
    let expression = Computing {
        query,
        own: Arc::downgrade(composite),
        shared: Arc::downgrade(shared),
        lease: composite.declaration().lease,
        sources: Mutex::default(),
    };
    composite.computed_by(move |now| expression.evaluate(now));
    let composite = composite.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(interval.max(MIN_INTERVAL));
        loop {
            ticks.tick().await;
            let composite = composite.clone();
            // A panic is in the log. The next round continues.
            let _ = in_background(move || composite.compute(unix_now())).await;
        }
    })
}

/// The input of an expression.
struct Computing {
    query: Query,
    own: Weak<Composite>,
    shared: Weak<Shared>,
    lease: Option<Duration>,
    sources: Mutex<ExpectedSources>,
}

impl Computing {
    fn evaluate(&self, now: u64) -> Result<Evaluated, String> {
        let Some(shared) = self.shared.upgrade() else {
            return Ok(Evaluated::default());
        };
        let evaluators = shared.evaluators.list();
        let evaluator = evaluators
            .first()
            .ok_or("an expression needs the `admin` extension, which computes it")?;
        let evaluation = evaluator.0.evaluate(&self.query, now)?;
        let mut sources = self.sources.lock();
        let of_series = sources.update(&evaluation, self.lease, now);
        drop(sources);
        let (of_composites, collision) = self.composites(&shared, &*evaluator.0, now);
        let attributes = |labels: Labels| -> Attributes {
            labels.iter().map(|(name, value)| (&**name, &**value)).collect()
        };
        let values = evaluation.values.into_iter();
        Ok(Evaluated {
            values: values
                .map(|(labels, value)| (attributes(labels), value))
                .collect(),
            quality: of_series
                .into_iter()
                .chain(of_composites)
                .reduce(DataQuality::and),
            handles_absence: self.query.handles_absence() || self.query.selections().is_empty(),
            collision: evaluation.collision.map(Arc::from).or(collision),
        })
    }

    /// The state of the composites that the expression names.
    fn composites(
        &self,
        shared: &Shared,
        evaluator: &dyn Evaluate,
        now: u64,
    ) -> (Option<DataQuality>, Option<Arc<str>>) {
        let asked = self.query.names();
        let list = shared.composites.list();
        let named = list
            .iter()
            .map(|watched| watched.composite())
            .filter(|composite| {
                let is_own = std::ptr::eq(self.own.as_ptr(), Arc::as_ptr(composite));
                let names = || evaluator.names_of_gauge(&composite.declaration().name);
                !is_own && names().iter().any(|name| asked.contains(name))
            });
        let answers: Vec<_> = named.flat_map(|composite| composite.answers(now)).collect();
        let qualities = answers.iter().map(|answer| DataQuality {
            state: answer.state,
            expected: answer.sources_expected,
            reporting: answer.sources_reporting,
        });
        let collision = answers.iter().find_map(|answer| answer.collision.clone());
        (qualities.reduce(DataQuality::and), collision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_however_they_are_spelt() {
        let is = |name: &str, raw: &str| Pattern::regex(&spellings(name)).unwrap().matches(raw);
        assert!(is("vllm:num_requests_waiting", "vllm:num_requests_waiting"));
        assert!(is("http_server_duration_seconds", "http.server.duration"));
        assert!(is("requests_total", "requests") && is("a__b", "a__b") && is("aB_c", "aB/c"));
        assert!(!is("requests_total", "request") && !is("requests", "requests_failed"));
    }
}
