// SPDX-License-Identifier: Apache-2.0

//! Streams whose points a component does not take because of their times. Each component that keeps state counts
//! them, and logs one at most once a minute.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_engine::{Series, TimestampAnomalies, TimestampAnomaly};

/// The shortest interval between two log lines of one component.
const PAUSE: Duration = Duration::from_mins(1);

/// Reports the timestamp anomalies of one component as a metric and in the log.
#[derive(Debug, Default)]
pub struct AnomalyReporter(Mutex<AnomalyState>);

#[derive(Debug, Default)]
struct AnomalyState {
    at: Option<Instant>,
    /// The number of streams at the last log line.
    counts: [u64; TimestampAnomaly::ALL.len()],
    unlogged: Option<(TimestampAnomaly, Arc<Series>)>,
}

impl AnomalyReporter {
    /// Counts the streams with an anomaly, and logs the latest one. `label` names the component. Call it about once
    /// a second.
    pub fn report(&self, all: &[&TimestampAnomalies], label: &(&'static str, String)) {
        let counts = TimestampAnomaly::ALL
            .map(|anomaly| all.iter().map(|anomalies| anomalies.count(anomaly)).sum::<u64>());
        for (anomaly, count) in TimestampAnomaly::ALL.into_iter().zip(counts) {
            let labels = [label.clone(), ("reason", anomaly.name().to_owned())];
            metrics::counter!("tidegate_stray_streams_total", &labels).absolute(count);
        }
        let mut state = self.0.lock();
        let latest = all.iter().find_map(|anomalies| anomalies.take_latest());
        state.unlogged = latest.or(state.unlogged.take());
        if state.at.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        let Some((anomaly, series)) = state.unlogged.take() else {
            return;
        };
        let streams = counts[anomaly as usize].saturating_sub(state.counts[anomaly as usize]);
        (state.at, state.counts) = (Some(Instant::now()), counts);
        tracing::warn!(
            component = label.1,
            metric = %series.metric.name,
            attributes = %series.attributes,
            resource = %series.resource.attributes,
            streams,
            "{}",
            description(anomaly)
        );
    }
}

fn description(anomaly: TimestampAnomaly) -> &'static str {
    match anomaly {
        TimestampAnomaly::Behind => {
            "points of a stream are older than its newest point, so the gateway refuses them and the series is stale: check the clock of its sender"
        }
        TimestampAnomaly::Ahead => {
            "points of a stream lie too far ahead of the gateway's clock, so the gateway refuses them and the series is stale: set the clock of its sender, or `future: {action: arrival}`"
        }
        TimestampAnomaly::Reanchored => {
            "the clock of a sender was set back: its stream continues with the new clock"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_anomaly_has_its_own_message() {
        let words: std::collections::BTreeSet<_> = TimestampAnomaly::ALL.map(description).into();
        assert_eq!(words.len(), TimestampAnomaly::ALL.len());
    }
}
