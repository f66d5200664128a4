// SPDX-License-Identifier: Apache-2.0

//! The records of retained totals in the store, and what they lack.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidegate_engine::{UnixNanos, partition_id};

use super::PageReader;
use crate::{PageHeaders, ProducerName, RecordDigest, RetainedSeries, StoreMessage, Subject, encode_record};

/// A record: the partition and the producer.
pub(crate) type RecordPlace = (u16, ProducerName);

/// The known state of a record in the store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KnownRecord {
    /// Its sequence; 0: there is none.
    pub(crate) sequence: u64,
    /// When it was written, by our clock; 0: here.
    pub(super) seen: UnixNanos,
    /// The hashes of its content.
    pub(super) digest: Option<RecordDigest>,
    /// Whether it has something that is not known here: nothing may replace it then.
    pub(super) is_unreadable: bool,
    /// Whether the store has lost it, or went back to an older one.
    pub(super) is_lost: bool,
}

/// A record that the store does not have as it should be.
#[derive(Clone, Debug)]
pub(crate) struct MissingRecord {
    pub(crate) place: RecordPlace,
    pub(crate) message: StoreMessage,
    /// The sequence of the record that it replaces.
    pub(crate) expected: u64,
    pub(crate) digest: RecordDigest,
    /// Whether the store had it and lost it.
    pub(crate) is_lost: bool,
}

/// Why the records of a producer can't be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordProblem {
    /// A record in the store is not readable here.
    Unreadable,
    /// A record is larger than a body may be.
    TooLarge,
}

/// All records.
#[derive(Debug, Default)]
pub(super) struct RecordList {
    pub(super) known: BTreeMap<RecordPlace, KnownRecord>,
    /// Producers whose records have changed since the leader looked.
    pub(super) changed: BTreeSet<ProducerName>,
}

impl PageReader {
    /// The records of a producer that the store lacks: those without a run that is known here, and `with_values` those with
    /// an older value too.
    pub(crate) fn missing_records(
        &self,
        producer: &ProducerName,
        with_values: bool,
    ) -> Result<Vec<MissingRecord>, RecordProblem> {
        let mut missing = Vec::new();
        for (partition, totals) in self.retained_by_partition(producer) {
            let place = (partition, producer.clone());
            let known = self.records.known.get(&place).copied().unwrap_or_default();
            let digest = RecordDigest::of(producer, &totals);
            // The value of a folded run may grow while its pages are in the store.
            let is_stored = known.digest.is_some_and(|stored| {
                let is_exact = with_values || known.is_lost;
                stored.runs == digest.runs && (!is_exact || stored.content == digest.content)
            });
            if is_stored {
                continue;
            }
            if known.is_unreadable {
                return Err(RecordProblem::Unreadable);
            }
            let body = encode_record(producer, &totals);
            if body.len() > self.config.limits.max_body_bytes {
                return Err(RecordProblem::TooLarge);
            }
            missing.push(MissingRecord {
                message: self.record_message(&place, body),
                place,
                expected: known.sequence,
                digest,
                is_lost: known.is_lost,
            });
        }
        Ok(missing)
    }

    fn record_message(&self, place: &RecordPlace, body: Bytes) -> StoreMessage {
        let (partition, producer) = place.clone();
        StoreMessage {
            subject: Subject::Retained { partition, producer }.text(&self.config.cluster),
            headers: PageHeaders::RETAINED.write(),
            body,
        }
    }

    fn retained_by_partition(&self, producer: &ProducerName) -> BTreeMap<u16, Vec<RetainedSeries>> {
        let mut all: BTreeMap<u16, Vec<RetainedSeries>> = BTreeMap::new();
        let partitions = u64::from(self.config.partitions.max(1));
        self.merged.retained(producer.id(), &mut |key, series, total| {
            let partition = (partition_id(series) % partitions) as u16;
            all.entry(partition).or_default().push(RetainedSeries {
                key,
                series: series.clone(),
                total,
            });
        });
        all
    }

    /// Notes that the store has a record.
    pub(crate) fn note_record(&mut self, place: RecordPlace, sequence: u64, digest: RecordDigest) {
        self.records.known.insert(
            place,
            KnownRecord {
                sequence,
                digest: Some(digest),
                ..KnownRecord::default()
            },
        );
    }

    /// Notes that the store does not have a record that it had.
    pub(crate) fn note_lost_record(&mut self, place: &RecordPlace) {
        if let Some(known) = self.records.known.get_mut(place) {
            *known = KnownRecord {
                is_lost: true,
                ..KnownRecord::default()
            };
            self.records.changed.insert(place.1.clone());
        }
    }

    /// The records that the store is known to have.
    pub(crate) fn known_records(&self) -> BTreeSet<RecordPlace> {
        let known = self.records.known.iter().filter(|(_, known)| known.sequence > 0);
        known.map(|(place, _)| place.clone()).collect()
    }

    /// When the newest record of a producer was written, by our clock, as far as another replica wrote it.
    pub(super) fn folded_at(&self, producer: &ProducerName) -> Option<UnixNanos> {
        let partitions = 0..self.config.partitions.max(1);
        let records = partitions.filter_map(|at| self.records.known.get(&(at, producer.clone())));
        records.map(|record| record.seen).max()
    }

    /// A producer whose records have changed since the last call.
    pub(crate) fn next_changed_record(&mut self) -> Option<ProducerName> {
        self.records.changed.pop_first()
    }
}
