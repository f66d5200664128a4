// SPDX-License-Identifier: Apache-2.0

//! Where the gateway counts what it refuses, for each way in. A counter that is missing shows: those of other ways in
//! don't count.

use super::beside::Observations;
use super::field::AttackedGateway;
use super::result::{CheckLine, counted, counted_by};
use super::wire::Harm;
use crate::BenchError;

/// Counters of the gateway's own metrics: a name, and a label that their samples have.
pub(super) type Counters = &'static [(&'static str, &'static str)];

/// The counters of one way in.
pub(super) struct Refusals {
    /// Of requests that memory or processors were too short for: 413, 429, 503.
    short: Counters,
    /// Of requests that can't be read or taken: 400.
    malformed: Counters,
    /// Whether the honest sender comes this way too.
    is_honest: bool,
}

/// Of requests to the OTLP receiver.
pub(super) const OTLP: &Refusals = &Refusals {
    short: &[
        ("tidegate_memory_refusals_total", "receiver=\"otlp\""),
        ("otelcol_receiver_refused_metric_points", "receiver=\"otlp\""),
    ],
    malformed: &[
        ("tidegate_requests_refused_total", "component=\"otlp\""),
        ("otelcol_receiver_refused_metric_points", "receiver=\"otlp\""),
        ("otelcol_receiver_failed_metric_points", "receiver=\"otlp\""),
    ],
    is_honest: true,
};

/// Of the same where senders are checked first: a check that is not made, because there are too many, is a refusal.
pub(super) const CHECKED: &Refusals = &Refusals {
    short: &[
        ("tidegate_memory_refusals_total", "receiver=\"otlp\""),
        ("otelcol_receiver_refused_metric_points", "receiver=\"otlp\""),
        ("tidegate_unauthenticated_requests_total", "component=\"otlp\""),
    ],
    ..*OTLP
};

/// Of remote writes.
pub(super) const WRITE: &Refusals = &Refusals {
    short: &[
        (
            "tidegate_memory_refusals_total",
            "receiver=\"prometheusremotewrite\"",
        ),
        (
            "otelcol_receiver_refused_metric_points",
            "receiver=\"prometheusremotewrite\"",
        ),
    ],
    malformed: &[
        (
            "tidegate_requests_refused_total",
            "component=\"prometheusremotewrite\"",
        ),
        (
            "otelcol_receiver_refused_metric_points",
            "receiver=\"prometheusremotewrite\"",
        ),
        (
            "otelcol_receiver_failed_metric_points",
            "receiver=\"prometheusremotewrite\"",
        ),
        // The answer to a write is 400 too if a component has dropped some of its points.
        ("tidegate_dropped_items_total", "reason="),
    ],
    is_honest: false,
};

/// Of queries that are not computed, and of answers that the memory limit refused.
pub(super) const QUERIES: Counters = &[
    ("tidegate_queries_refused_total", "component=\"admin\""),
    ("tidegate_answers_refused_total", "component=\"admin\""),
    ("tidegate_memory_refusals_total", "component=\"admin\""),
    ("tidegate_requests_refused_total", "reason=\"busy\""),
];

/// Of connections whose peers take nothing.
pub(super) const STALLED: Counters = &[("tidegate_connections_ended_total", "reason=\"stalled\"")];

impl Refusals {
    /// Whether as many are counted on this page as an attacker and the honest sender were answered.
    pub(super) fn lines(&self, page: &str, harm: &Harm, seen: &Observations) -> Vec<CheckLine> {
        let (short, honest) = if self.is_honest {
            (harm.refused + seen.refused, 0)
        } else {
            (harm.refused, seen.refused)
        };
        vec![
            line("refusals are counted", page, self.short, short),
            line(
                "refusals of what can't be read are counted",
                page,
                self.malformed,
                harm.malformed,
            ),
            line("refusals of honest pushes are counted", page, OTLP.short, honest),
        ]
    }
}

fn line(what: &'static str, page: &str, counters: Counters, refused: u64) -> CheckLine {
    let counted = counted(page, is_of(counters)) as u64;
    CheckLine::new(
        what,
        format!("{counted} counted, {refused} refused"),
        counted >= refused,
    )
}

/// Whether a sample is one of these counters.
fn is_of(counters: Counters) -> impl Fn(&str, &str) -> bool {
    move |name, labels| {
        counters
            .iter()
            .any(|(counter, label)| *counter == name && labels.contains(label))
    }
}

/// The current sum of these counters.
pub(super) fn counted_of(field: &AttackedGateway, counters: Counters) -> Result<f64, BenchError> {
    counted_by(field, is_of(counters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_counter_is_not_made_up_for_by_that_of_another_way_in() {
        let page = "tidegate_memory_refusals_total{receiver=\"otlp\",reason=\"body\"} 3\n\
            tidegate_requests_refused_total{component=\"prometheusremotewrite\",reason=\"body\"} 9\n";
        let held = |refusals: &Refusals, refused, malformed| {
            let harm = Harm {
                refused,
                malformed,
                ..Harm::default()
            };
            let lines = refusals.lines(page, &harm, &Observations::default());
            lines.iter().map(|line| line.holds).collect::<Vec<_>>()
        };
        assert_eq!(held(OTLP, 3, 0), [true, true, true]);
        assert_eq!(held(OTLP, 4, 0), [false, true, true]);
        assert_eq!(held(OTLP, 3, 1), [true, false, true]);
        assert_eq!(held(WRITE, 0, 9), [true, true, true]);
        assert_eq!(held(WRITE, 1, 9), [false, true, true]);
    }

    #[test]
    fn refusals_of_honest_pushes_are_those_of_otlp() {
        let page = "otelcol_receiver_refused_metric_points{receiver=\"otlp\",transport=\"http\"} 501\n";
        let seen = Observations {
            refused: 1,
            ..Observations::default()
        };
        let hold = |refusals: &Refusals, page| {
            let lines = refusals.lines(page, &Harm::default(), &seen);
            lines.iter().all(|line| line.holds)
        };
        assert!(hold(OTLP, page) && hold(WRITE, page));
        assert!(!hold(OTLP, "") && !hold(WRITE, ""));
    }
}
