// SPDX-License-Identifier: Apache-2.0

//! The built-in rules `nixl`: the metrics of NIXL's own Prometheus exporter (1.5) by agent, and sums by node.
//!
//! Both inputs yield the same series: events out of rings (one measurement each), and the cumulative points of
//! multi-process stores, which have the output names already. Names get no unit suffix, as NIXL's have none.

use std::sync::Arc;

use tidegate_engine::{Attributes, Grouping, Input, Instrument, Pattern, Rule};
use tidegate_ring::{DEFAULT_BOUNDS_US, KINDS, KNOWN_KINDS, Metric, NixlKind};

use crate::prom::OPENMETRICS_NAME;

/// The counter of errors by status. Rings have a name for each error (`agent_err_not_found`), stores have the
/// counter.
const ERRORS: (&str, &str) = ("agent_errors", "agent_err*");

const BY_AGENT: [&str; 3] = ["agent_name", "hostname", "status"];
const BY_NODE: [&str; 2] = ["hostname", "status"];

/// The rules of the set.
pub(super) fn rules() -> Vec<Rule> {
    let counters = counters().flat_map(|Metric { name, help }| {
        let node = format!("nixl_node_{}", name.trim_start_matches("agent_"));
        let of_node = format!("{help}, all agents of the node");
        let input = if name == ERRORS.0 { ERRORS.1 } else { name };
        let by_agent = rule(input, name, help, Instrument::Counter);
        let by_node = rule(input, &node, &of_node, Instrument::Counter);
        [
            by_agent,
            Rule {
                grouping: Grouping::by(BY_NODE),
                ..by_node
            },
        ]
    });
    let gauges = known().filter_map(|kind| Some((kind, kind.last?)));
    let gauges = gauges.flat_map(|(kind, Metric { name, help })| {
        // A gauge has another name where its counter's name would be ambiguous (in cells, in OpenMetrics).
        let other = kind.unambiguous_last().filter(|other| other != name);
        let metadata: Attributes = other
            .iter()
            .map(|other| (OPENMETRICS_NAME, other.clone()))
            .collect();
        let gauge = |input: &str, kind| Rule {
            inputs: Some(vec![kind]),
            metadata: metadata.clone(),
            ..rule(input, name, help, Instrument::Gauge)
        };
        let other = other.map(|other| gauge(&other, Input::Gauge));
        let events = gauge(kind.name, Input::Event);
        [events, gauge(name, Input::Gauge)].into_iter().chain(other)
    });
    let histograms = known().filter_map(|kind| Some((kind.name, kind.histogram?)));
    let histograms = histograms.flat_map(|(events, Metric { name, help })| {
        let histogram = |input, kind| Rule {
            inputs: Some(vec![kind]),
            bounds: Some(Arc::from(DEFAULT_BOUNDS_US)),
            ..rule(input, name, help, Instrument::Histogram)
        };
        [histogram(events, Input::Event), histogram(name, Input::Histogram)]
    });
    counters.chain(gauges).chain(histograms).collect()
}

fn known() -> impl Iterator<Item = &'static NixlKind> {
    KINDS.iter().take(KNOWN_KINDS)
}

/// The counters, with the error counter once.
fn counters() -> impl Iterator<Item = Metric> {
    let errors = known().find(|kind| kind.status.is_some());
    let others = known().filter(|kind| kind.status.is_none());
    others.chain(errors).map(|kind| kind.total)
}

fn rule(input: &str, output: &str, help: &str, instrument: Instrument) -> Rule {
    Rule {
        output: Some(output.into()),
        description: Some(help.into()),
        unit: Some("".into()),
        instrument: Some(instrument),
        grouping: Grouping::by(BY_AGENT),
        zero: true,
        ..Rule::new(Pattern::parse(input).unwrap_or(Pattern::Exact(input.into())))
    }
}
