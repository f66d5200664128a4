// SPDX-License-Identifier: Apache-2.0

//! Compare-and-set as a state machine without I/O. Kafka has no such call. But the start of a transaction stops all earlier
//! writers of its subject. Decision 0032 gives the reasons.

#[cfg(test)]
mod tests;

use crate::record::Appended;

/// The last record of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CurrentRecord {
    pub(crate) sequence: u64,
    pub(crate) millis: i64,
    /// The term of a lease in milliseconds.
    pub(crate) term: Option<i64>,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompareStep {
    /// Begin a transaction for the subject. Answer: [`Compare::fenced`].
    Fence,
    /// Find the end of the log, with open transactions. Answer: [`Compare::found_end`].
    FindEnd,
    /// Read the log up to this offset. Answer: [`Compare::read`].
    Read(i64),
    /// Append the record, with at least this time. Answer: [`Compare::appended`].
    Append(i64),
    /// Commit. Answer: [`Compare::ended`].
    Commit,
    /// Abort. Answer: [`Compare::ended`].
    Abort,
    /// The record is stored under this sequence.
    Stored(u64),
    /// The current record is another one.
    Conflict,
}

/// One compare-and-set. A step that fails ends it: the record may be stored or not.
#[derive(Debug)]
pub(crate) struct Compare {
    /// The sequence of the current record; 0: there is none, or its lease has ended.
    expected: u64,
    step: CompareStep,
    current: Option<CurrentRecord>,
    /// The sequence of the new record.
    sequence: u64,
}

impl Compare {
    pub(crate) fn new(expected: u64) -> Self {
        Self {
            expected,
            step: CompareStep::Fence,
            current: None,
            sequence: 0,
        }
    }

    pub(crate) fn step(&self) -> CompareStep {
        self.step
    }

    /// No earlier writer of the subject can append or commit any more.
    pub(crate) fn fenced(&mut self) {
        self.step = CompareStep::FindEnd;
    }

    /// All records of earlier writers are below this offset.
    pub(crate) fn found_end(&mut self, end: i64) {
        self.step = CompareStep::Read(end);
    }

    /// The last record of the subject below the end; `None`: there is none.
    pub(crate) fn read(&mut self, current: Option<CurrentRecord>) {
        self.current = current;
        let is_expected = current.map_or(0, |current| current.sequence) == self.expected;
        let may_have_ended = self.expected == 0 && current.is_some_and(|current| current.term.is_some());
        // A missing record is lost, or a later writer has replaced it and the cleaner was quicker than the read. In the
        // second case the broker refuses the record.
        let is_missing = current.is_none() && self.expected != 0;
        self.step = if is_expected || may_have_ended || is_missing {
            // Sequences of a subject grow, even if the clock of a broker goes back.
            CompareStep::Append(current.map_or(0, |current| current.millis.saturating_add(1)))
        } else {
            CompareStep::Conflict
        };
    }

    /// The record is in the log. Its time by the clock of the broker says whether the lease before it had ended. No later writer
    /// has committed, so a record that was missing is lost.
    pub(crate) fn appended(&mut self, appended: &Appended) {
        self.sequence = appended.sequence();
        let is_free = match self.current {
            None => self.expected == 0,
            Some(before) if self.expected == 0 => {
                let end = before.millis.saturating_add(before.term.unwrap_or(i64::MAX));
                appended.broker_millis >= end
            }
            Some(_) => true,
        };
        self.step = if is_free {
            CompareStep::Commit
        } else {
            CompareStep::Abort
        };
    }

    /// The transaction has ended.
    pub(crate) fn ended(&mut self) {
        self.step = if self.step == CompareStep::Commit {
            CompareStep::Stored(self.sequence)
        } else {
            CompareStep::Conflict
        };
    }
}
