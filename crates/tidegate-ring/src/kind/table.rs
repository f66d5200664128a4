// SPDX-License-Identifier: Apache-2.0

//! The table itself: a row for every event type of NIXL (version 4), with the metrics that its own exporter (1.5) makes
//! of the events.

use super::{Category, FIRST_OWN, Metric, NixlKind, OVERFLOW, UNKNOWN};

/// NIXL's event types by number, then [`UNKNOWN`] and [`OVERFLOW`].
pub const KINDS: [NixlKind; FIRST_OWN as usize] = [
    transfer(
        0,
        "agent_tx_bytes",
        "Number of bytes sent by the agent",
        metric("agent_tx_last_bytes", "Bytes sent by the last request"),
    ),
    transfer(
        1,
        "agent_rx_bytes",
        "Number of bytes received by the agent",
        metric("agent_rx_last_bytes", "Bytes received by the last request"),
    ),
    count(
        2,
        "agent_tx_requests_num",
        Category::Transfer,
        "Number of requests sent by the agent",
    ),
    count(
        3,
        "agent_rx_requests_num",
        Category::Transfer,
        "Number of requests received by the agent",
    ),
    memory(
        4,
        "agent_memory_registered",
        "Cumulative memory registered",
        metric(
            "agent_memory_registered_last_bytes",
            "Memory registered by the last operation",
        ),
    ),
    memory(
        5,
        "agent_memory_deregistered",
        "Cumulative memory deregistered",
        metric(
            "agent_memory_deregistered_last_bytes",
            "Memory deregistered by the last operation",
        ),
    ),
    time(
        6,
        "agent_xfer_time",
        "Cumulative sum of transfer time from start to completion",
        "Transfer time of the last request",
        metric(
            "agent_xfer_time_us",
            "Distribution of transfer time from start to completion, in microseconds",
        ),
    ),
    time(
        7,
        "agent_xfer_post_time",
        "Cumulative sum of time from start to posting to the back-end",
        "Post time of the last request",
        metric(
            "agent_xfer_post_time_us",
            "Distribution of time from start to posting to the back-end, in microseconds",
        ),
    ),
    error(8, "agent_err_not_posted", "not_posted"),
    error(9, "agent_err_invalid_param", "invalid_param"),
    error(10, "agent_err_backend", "backend"),
    error(11, "agent_err_not_found", "not_found"),
    error(12, "agent_err_mismatch", "mismatch"),
    error(13, "agent_err_not_allowed", "not_allowed"),
    error(14, "agent_err_repost_active", "repost_active"),
    error(15, "agent_err_unknown", "unknown"),
    error(16, "agent_err_not_supported", "not_supported"),
    error(17, "agent_err_remote_disconnect", "remote_disconnect"),
    error(18, "agent_err_canceled", "canceled"),
    error(19, "agent_err_no_telemetry", "no_telemetry"),
    count(
        20,
        "agent_telemetry_events_dropped",
        Category::System,
        "Cumulative telemetry events dropped at the producer-side staging queue",
    ),
    count(
        UNKNOWN,
        "unknown_event",
        Category::Custom,
        "Sum of the values of events of unknown types",
    ),
    count(
        OVERFLOW,
        "other_event",
        Category::Custom,
        "Sum of the values of events whose names came too late",
    ),
];

const fn metric(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help }
}

const fn count(id: u16, name: &'static str, category: Category, help: &'static str) -> NixlKind {
    NixlKind {
        id,
        name,
        unit: "1",
        category,
        status: None,
        total: metric(name, help),
        last: None,
        histogram: None,
    }
}

const fn transfer(id: u16, name: &'static str, help: &'static str, last: Metric) -> NixlKind {
    NixlKind {
        unit: "By",
        last: Some(last),
        ..count(id, name, Category::Transfer, help)
    }
}

const fn memory(id: u16, name: &'static str, help: &'static str, last: Metric) -> NixlKind {
    NixlKind {
        category: Category::Memory,
        ..transfer(id, name, help, last)
    }
}

/// The gauge of the last time has the name of the counter.
const fn time(
    id: u16,
    name: &'static str,
    help: &'static str,
    last: &'static str,
    histogram: Metric,
) -> NixlKind {
    NixlKind {
        unit: "us",
        last: Some(metric(name, last)),
        histogram: Some(histogram),
        ..count(id, name, Category::Performance, help)
    }
}

const fn error(id: u16, name: &'static str, status: &'static str) -> NixlKind {
    NixlKind {
        status: Some(status),
        total: metric("agent_errors", "Cumulative error count by status"),
        ..count(id, name, Category::Error, "")
    }
}
