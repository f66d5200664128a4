//! The built-in rules `nixl`: the metrics of NIXL's own Prometheus exporter (1.5) by agent, and sums by node.
//!
//! Both inputs yield the same series: events out of rings (one measurement each), and the cumulative points of
//! multi-process stores, which have the output names already. Names get no unit suffix, as NIXL's have none.

use std::sync::Arc;

use tidegate_engine::{Attributes, Grouping, Input, Instrument, Pattern, Rule};

use crate::prom::OPENMETRICS_NAME;

/// Upper bounds of NIXL's time histograms, in microseconds.
const TIME_BOUNDS_US: [f64; 18] = [
    10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 2.5e4, 5e4, 1e5, 2.5e5, 5e5, 1e6, 5e6, 1e7,
];

/// Name of events and counter (exposed with `_total`), what it counts.
const COUNTERS: [(&str, &str); 10] = [
    ("agent_tx_bytes", "Number of bytes sent by the agent"),
    ("agent_rx_bytes", "Number of bytes received by the agent"),
    ("agent_tx_requests_num", "Number of requests sent by the agent"),
    (
        "agent_rx_requests_num",
        "Number of requests received by the agent",
    ),
    ("agent_memory_registered", "Cumulative memory registered"),
    ("agent_memory_deregistered", "Cumulative memory deregistered"),
    (
        "agent_xfer_time",
        "Cumulative sum of transfer time from start to completion",
    ),
    (
        "agent_xfer_post_time",
        "Cumulative sum of time from start to posting to the back-end",
    ),
    (
        "agent_telemetry_events_dropped",
        "Cumulative telemetry events dropped at the producer-side staging queue",
    ),
    ("agent_errors", "Cumulative error count by status"),
];

/// The counter of errors by status. Rings name each error apart (`agent_err_not_found`), stores have the counter.
const ERRORS: (&str, &str) = ("agent_errors", "agent_err*");

/// Name of the events, name of the gauge that shows the last of them, what it shows.
const GAUGES: [(&str, &str, &str); 6] = [
    (
        "agent_tx_bytes",
        "agent_tx_last_bytes",
        "Bytes sent by the last request",
    ),
    (
        "agent_rx_bytes",
        "agent_rx_last_bytes",
        "Bytes received by the last request",
    ),
    (
        "agent_memory_registered",
        "agent_memory_registered_last_bytes",
        "Memory registered by the last operation",
    ),
    (
        "agent_memory_deregistered",
        "agent_memory_deregistered_last_bytes",
        "Memory deregistered by the last operation",
    ),
    (
        "agent_xfer_time",
        "agent_xfer_time",
        "Transfer time of the last request",
    ),
    (
        "agent_xfer_post_time",
        "agent_xfer_post_time",
        "Post time of the last request",
    ),
];

/// Name of the events, name of their histogram, what it shows.
const HISTOGRAMS: [(&str, &str, &str); 2] = [
    (
        "agent_xfer_time",
        "agent_xfer_time_us",
        "Distribution of transfer time from start to completion, in microseconds",
    ),
    (
        "agent_xfer_post_time",
        "agent_xfer_post_time_us",
        "Distribution of time from start to posting to the back-end, in microseconds",
    ),
];

const BY_AGENT: [&str; 3] = ["agent_name", "hostname", "status"];
const BY_NODE: [&str; 2] = ["hostname", "status"];

/// The rules of the set.
pub(super) fn rules() -> Vec<Rule> {
    let counters = COUNTERS.iter().flat_map(|(name, help)| {
        let node = format!("nixl_node_{}", name.trim_start_matches("agent_"));
        let of_node = format!("{help}, all agents of the node");
        let input = if *name == ERRORS.0 { ERRORS.1 } else { name };
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
    let gauges = GAUGES.iter().flat_map(|(events, name, help)| {
        let gauge = |input, kind| Rule {
            inputs: Some(vec![kind]),
            metadata: openmetrics_name(name),
            ..rule(input, name, help, Instrument::Gauge)
        };
        [gauge(events, Input::Event), gauge(name, Input::Gauge)]
    });
    let histograms = HISTOGRAMS.iter().flat_map(|(events, name, help)| {
        let histogram = |input, kind| Rule {
            inputs: Some(vec![kind]),
            bounds: Some(Arc::from(TIME_BOUNDS_US)),
            ..rule(input, name, help, Instrument::Histogram)
        };
        [histogram(events, Input::Event), histogram(name, Input::Histogram)]
    });
    counters.chain(gauges).chain(histograms).collect()
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

/// A gauge that is named like a counter gets another name in OpenMetrics.
fn openmetrics_name(gauge: &str) -> Attributes {
    let shared = COUNTERS.iter().any(|(counter, _)| *counter == gauge);
    let name = shared.then(|| (OPENMETRICS_NAME, format!("{gauge}_last")));
    name.into_iter().collect()
}
