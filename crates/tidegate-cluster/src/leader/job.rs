// SPDX-License-Identifier: Apache-2.0

//! One piece of work of a leader: it stores the records of a producer, and then removes the pages of its folded runs.

use std::collections::VecDeque;

use tidegate_engine::UnixNanos;

use super::LeaderStats;
use crate::name::StreamProducer;
use crate::reader::{MissingRecord, RecordProblem};
use crate::{CallId, PageReader, ProducerName, RunName, StoreCall, StoreError, StoreReply};

/// A job that meets other writers more often than this is given up. It comes again later.
const MAX_CONFLICTS: u32 = 8;

/// The state of a job after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobState {
    /// It goes on.
    Open,
    /// All is stored and removed.
    Complete,
    /// It can't go on now.
    GivenUp,
}

/// The call that has no answer yet.
#[derive(Debug)]
enum JobCall {
    Record(Box<MissingRecord>),
    Purge(RunName, u64),
}

#[derive(Debug)]
pub(super) struct FoldJob {
    pub(super) producer: ProducerName,
    /// Whether it has folded runs: their newest values must be stored before their pages go.
    folds: bool,
    /// Whether one of these runs has reported streams.
    has_streams: bool,
    records: VecDeque<MissingRecord>,
    /// Folded runs. Their pages go when all records are stored: each of the records may have a part of them.
    purges: VecDeque<(RunName, u64)>,
    asked: Option<(CallId, JobCall)>,
    conflicts: u32,
}

impl FoldJob {
    /// Folds the runs of a producer, and finds the records that the store lacks. Sequences are taken before the values: a
    /// page that comes later is not removed.
    pub(super) fn begin(
        reader: &mut PageReader,
        producer: ProducerName,
        runs: Vec<(RunName, u64)>,
    ) -> Result<Self, RecordProblem> {
        runs.iter().for_each(|(run, _)| reader.fold(run));
        let folds = !runs.is_empty();
        let has_streams = runs.iter().any(|(run, _)| reader.has_streams(run));
        Ok(Self {
            records: lacking(reader, &producer, folds, has_streams)?.into(),
            producer,
            folds,
            has_streams,
            purges: runs.into(),
            asked: None,
            conflicts: 0,
        })
    }

    /// The call that is due; `None`: one is on its way, or all is done.
    pub(super) fn poll(&mut self, ids: &mut CallId) -> Option<(CallId, StoreCall)> {
        if self.asked.is_some() {
            return None;
        }
        let (call, asked) = if let Some(record) = self.records.pop_front() {
            let call = StoreCall::CompareAndSet(record.message.clone(), record.expected);
            (call, JobCall::Record(Box::new(record)))
        } else {
            let (run, through) = self.purges.pop_front()?;
            (
                StoreCall::Purge(run.clone(), through),
                JobCall::Purge(run, through),
            )
        };
        let id = ids.advance();
        self.asked = Some((id, asked));
        Some((id, call))
    }

    pub(super) fn state(&self) -> JobState {
        if self.asked.is_none() && self.records.is_empty() && self.purges.is_empty() {
            JobState::Complete
        } else {
            JobState::Open
        }
    }

    /// Takes the answer to a call of the job.
    pub(super) fn answer(
        &mut self,
        id: CallId,
        result: Result<StoreReply, StoreError>,
        reader: &mut PageReader,
        stats: &mut LeaderStats,
        now: UnixNanos,
    ) -> JobState {
        let Some((_, call)) = self.asked.take_if(|(asked, _)| *asked == id) else {
            return JobState::Open;
        };
        match (call, result) {
            (JobCall::Record(record), Ok(StoreReply::Stored(sequence))) => {
                stats.stored += 1;
                stats.restored += u64::from(record.is_lost);
                reader.note_record(record.place, sequence, record.digest);
                self.state()
            }
            (JobCall::Record(record), Err(StoreError::Conflict(current))) => {
                match current {
                    // If it is not readable, `missing_records` says so.
                    Some(current) => drop(reader.take(&current, true, now)),
                    None => reader.note_lost_record(&record.place),
                }
                self.conflicts += 1;
                self.find_records(reader)
            }
            (JobCall::Purge(run, through), Ok(StoreReply::Purged)) => {
                stats.purged += 1;
                reader.forget_run(&run, through);
                self.state()
            }
            _ => JobState::GivenUp,
        }
    }

    /// Compares the records with the store again, after a conflict.
    fn find_records(&mut self, reader: &PageReader) -> JobState {
        match lacking(reader, &self.producer, self.folds, self.has_streams) {
            Ok(records) if self.conflicts < MAX_CONFLICTS => {
                self.records = records.into();
                self.state()
            }
            _ => JobState::GivenUp,
        }
    }
}

/// The records that the store lacks: those of a producer, and those of all streams if a folded run has reported some. It may
/// have reported any of them, and other runs too: nothing says whose report a compacted total contains.
fn lacking(
    reader: &PageReader,
    producer: &ProducerName,
    folds: bool,
    has_streams: bool,
) -> Result<Vec<MissingRecord>, RecordProblem> {
    let mut records = reader.missing_records(producer, folds)?;
    for streams in StreamProducer::all().iter().filter(|_| has_streams) {
        records.extend(reader.missing_records(&streams.name, true)?);
    }
    Ok(records)
}
