// SPDX-License-Identifier: Apache-2.0

//! The producers of a merged series, for explanations.

use std::collections::BTreeMap;

use tidegate_engine::{
    Attributes, Key, ProducerId, ProducerShare, Series, SeriesSource, SourceStatus, UnixNanos,
};

use super::PageReader;
use super::producers::ProducerEntry;
use crate::ProducerName;
use crate::name::StreamProducer;

/// A stream whose total is older than this counts as ended (5 min): its gateways say nothing about its sender.
const STREAM_TERM_NS: u64 = 300_000_000_000;

impl PageReader {
    /// The producers of a merged series. Each is a source with the attribute `producer`. The parts of
    /// `tidegate.streams.*` are the totals of senders, which several gateways may have reported.
    pub fn sources_of(&self, series: &Series, now: UnixNanos) -> Vec<SeriesSource> {
        let names = self.names();
        let shares = self.merged.shares(Key::of(series));
        let source = |share: &ProducerShare| {
            let known = names.get(&share.producer);
            let entry = known.and_then(|name| self.producers.by_name.get(*name));
            let seen = entry.and_then(last_seen);
            let name = known.map_or_else(|| share.producer.to_string(), |name| name.as_str().to_owned());
            SeriesSource {
                attributes: Attributes::from_iter([("producer", &*name)]),
                streams: usize::try_from(share.runs).unwrap_or(usize::MAX),
                seen: seen.unwrap_or_else(|| self.clock.own_time(share.time)),
                start: share.start,
                last_value: share.value,
                status: self.status_of(share, entry, now),
            }
        };
        shares.iter().map(source).collect()
    }

    fn status_of(
        &self,
        share: &ProducerShare,
        entry: Option<&ProducerEntry>,
        now: UnixNanos,
    ) -> SourceStatus {
        let Some(entry) = entry else {
            let is_stream = StreamProducer::all()
                .iter()
                .any(|stream| stream.id == share.producer);
            let is_recent = now.saturating_sub(self.clock.own_time(share.time)) <= STREAM_TERM_NS;
            return if is_stream && is_recent {
                SourceStatus::Alive
            } else {
                SourceStatus::Left
            };
        };
        let lease_ns = self.config.merged.lease_ns;
        if entry.runs.values().any(|run| run.is_alive(now, lease_ns)) {
            SourceStatus::Alive
        } else if entry.runs.values().any(|run| !run.has_ended) {
            SourceStatus::Overdue
        } else {
            SourceStatus::Left
        }
    }

    /// The names of all producers that have something here.
    fn names(&self) -> BTreeMap<ProducerId, &ProducerName> {
        let running = self.producers.by_name.keys();
        let ended = self.records.known.keys().map(|(_, producer)| producer);
        let streams = StreamProducer::all().iter().map(|stream| &stream.name);
        let all = running.chain(ended).chain(streams);
        all.map(|name| (name.id(), name)).collect()
    }
}

/// When the last message of a producer was sent, by our clock.
fn last_seen(entry: &ProducerEntry) -> Option<UnixNanos> {
    entry.runs.values().map(|run| run.seen).max()
}
