// SPDX-License-Identifier: Apache-2.0

//! Merges the messages that arrive.

use tidegate_engine::{MergeRefusal, ProducerRun, UnixNanos, clock};

use super::PageReader;
use super::pages::{PagePosition, ReadPage};
use super::records::KnownRecord;
use crate::{
    DecodedPage, PageError, PageHeaders, PageKind, ProducerName, RecordDigest, RunName, StoredMessage,
    Subject, decode_page, decode_record,
};

/// Messages show for this long (3 s) after [`StoreEvent::Current`](crate::StoreEvent::Current) that the replica is up to date.
const CURRENT_TERM: u64 = 3_000_000_000;

/// A message that is older than this (1 s, the default interval of producers) does not show it. A store that keeps the last
/// message of each subject has replaced the messages that such a slow reader should have read.
const MAX_MESSAGE_AGE: u64 = 1_000_000_000;

/// Where a page comes from, and when it was sent.
struct PagePlace<'a> {
    run: &'a RunName,
    page: PagePosition,
    sequence: u64,
    /// By the clock of the store.
    time: UnixNanos,
    /// By our clock.
    seen: UnixNanos,
}

impl PageReader {
    /// Takes a message. `is_current`: the store has the message now, so it is not a late one.
    ///
    /// # Errors
    /// The message is not readable. It is counted.
    pub(crate) fn take(
        &mut self,
        stored: &StoredMessage,
        is_current: bool,
        now: UnixNanos,
    ) -> Result<(), PageError> {
        if self.is_following && !is_current {
            self.clock.note(stored.time, now);
        }
        self.note_sequence(stored, now);
        let seen = self.clock.own_time(stored.time).min(now);
        // A message says nothing of other parts of the store, so the engine has to say it now and then.
        let is_recent = now.saturating_sub(seen) <= MAX_MESSAGE_AGE;
        if self.is_following && is_recent && now.saturating_sub(self.current_at) <= CURRENT_TERM {
            self.caught_up_at = self.caught_up_at.max(Some(seen));
        }
        let Some(subject) = Subject::parse(&self.config.cluster, &stored.message.subject) else {
            self.stats.foreign += 1;
            return Err(PageError::Subject);
        };
        let result = match &subject {
            Subject::Leader => Ok(()),
            Subject::Partitions => {
                let (own, record) = (self.config.partitions, &stored.message.body);
                self.stats.refused_partitions += u64::from(!self.partitions.take(own, record));
                Ok(())
            }
            Subject::Deltas => {
                self.deltas.note(stored, is_current);
                Ok(())
            }
            Subject::Producer(name) => {
                self.note_claim(name, seen);
                Ok(())
            }
            Subject::Page { partition, run, page } => {
                let place = PagePlace {
                    run,
                    page: (*partition, *page),
                    sequence: stored.sequence,
                    time: stored.time,
                    seen,
                };
                self.take_page(&place, stored, now)
            }
            Subject::Retained { partition, producer } => {
                self.take_record((*partition, producer), stored, seen, is_current)
            }
        };
        result.inspect_err(|error| self.note_error(&subject, stored.sequence, error))
    }

    /// A message that is newer and has no higher sequence than another shows that the store has lost messages.
    fn note_sequence(&mut self, stored: &StoredMessage, now: UnixNanos) {
        let (highest, time) = self.highest;
        if stored.sequence <= highest && stored.time <= time {
            return;
        }
        self.highest = (stored.sequence, stored.time.max(time));
        if stored.sequence <= highest {
            self.lost_at = Some(now);
            self.stats.losses += 1;
            for run in self.producers.runs_mut() {
                run.through = run.through.min(stored.sequence);
                run.pages.note_loss(stored.sequence);
            }
        }
    }

    fn note_claim(&mut self, name: &ProducerName, seen: UnixNanos) {
        match self.producers.entry(name) {
            Some(entry) => entry.claimed = entry.claimed.max(Some(seen)),
            None => self.stats.refused += 1,
        }
    }

    fn take_page(
        &mut self,
        place: &PagePlace<'_>,
        stored: &StoredMessage,
        now: UnixNanos,
    ) -> Result<(), PageError> {
        let Some(entry) = self.producers.run(place.run) else {
            self.stats.refused += 1;
            self.has_refused = true;
            return Ok(());
        };
        entry.seen = entry.seen.max(place.seen);
        entry.through = entry.through.max(place.sequence);
        let headers = PageHeaders::parse(&stored.message.headers)?;
        let fits = match headers.kind {
            PageKind::Page => true,
            PageKind::Bye => place.page.1 == 0,
            PageKind::Retained => false,
        };
        if !fits || headers.epoch != place.run.epoch {
            return Err(PageError::Contradiction);
        }
        entry.interval = Some(headers.interval);
        let (body, limits) = (&stored.message.body, self.config.limits);
        if headers.kind == PageKind::Bye {
            entry.note_good(place.page, place.sequence);
            self.end(place, now);
            return Ok(());
        }
        let page = decode_page(&place.run.producer, &headers, body, limits)?;
        entry.note_good(place.page, place.sequence);
        self.stats.pages += 1;
        // A heartbeat has nothing to lose.
        if place.page.1 > 0 {
            let read = ReadPage {
                version: headers.sequence,
                sequence: place.sequence,
                read: self.ids,
            };
            self.producers.note_page(place.run, place.page, read);
        }
        self.merge(place, headers.sequence, page, now);
        self.take_windows_beat(place, now);
        Ok(())
    }

    fn end(&mut self, place: &PagePlace<'_>, now: UnixNanos) {
        let id = place.run.producer.id();
        let time = self.clock.store_time(now);
        // Without room for its lease, the run has no levels either.
        let _ = self.merged.end(id, place.run.epoch, time);
        let run = window_run(place.run);
        self.windows
            .values_mut()
            .for_each(|windows| windows.end(run, now));
        if let Some(entry) = self.producers.run(place.run) {
            entry.has_ended = true;
        }
    }

    /// `sequence` is that of the producer.
    fn merge(&mut self, place: &PagePlace<'_>, sequence: u64, page: DecodedPage, now: UnixNanos) {
        let (id, epoch) = (place.run.producer.id(), place.run.epoch);
        let time = self.clock.store_time(now);
        // Without room for its lease, the levels of the run are refused below.
        let _ = self.merged.touch(id, epoch, place.time, time);
        let (mut refused, mut has_streams) = (0, false);
        for report in page.reports {
            has_streams |= report.report.producer != id;
            let is_total = report.report.mode.is_retained();
            let taken = self.merged.take(report.key, || report.series, report.report);
            refused += u64::from(is_total && taken.is_err_and(|refusal| is_loss(&refusal)));
        }
        for key in page.ended {
            self.merged.drop_level(key, id, epoch);
        }
        let run = window_run(place.run);
        for window in page.windows {
            match self.windows.get_mut(&window.composite) {
                // The windows count what they refuse.
                Some(windows) => {
                    let _ = windows.take(run, sequence, &window.group, &window.part, now);
                }
                None => self.stats.unknown_composites += 1,
            }
        }
        self.stats.refused += refused;
        if let Some(entry) = self.producers.run(place.run) {
            entry.is_refused |= refused > 0;
            entry.has_streams |= has_streams;
        }
    }

    fn take_windows_beat(&mut self, place: &PagePlace<'_>, now: UnixNanos) {
        let (run, sent) = (window_run(place.run), clock::wall(place.seen));
        for windows in self.windows.values_mut() {
            // The windows count what they refuse.
            let _ = windows.beat(run, sent, now);
        }
    }

    fn take_record(
        &mut self,
        (partition, producer): (u16, &ProducerName),
        stored: &StoredMessage,
        seen: UnixNanos,
        is_current: bool,
    ) -> Result<(), PageError> {
        let headers = PageHeaders::parse(&stored.message.headers)?;
        if headers.kind != PageKind::Retained {
            return Err(PageError::Contradiction);
        }
        let totals = decode_record(producer, &stored.message.body, self.config.limits)?;
        self.stats.records += 1;
        let digest = RecordDigest::of(producer, &totals);
        let mut refused = 0;
        for retained in totals {
            let taken = self
                .merged
                .take_retained(retained.key, &retained.series, retained.total);
            refused += u64::from(taken.is_err());
        }
        self.stats.refused += refused;
        let record = KnownRecord {
            sequence: stored.sequence,
            seen,
            digest: Some(digest),
            is_unreadable: refused > 0,
            is_lost: false,
        };
        self.know_record(partition, producer, record, is_current);
        Ok(())
    }

    /// Notes a record of the store. `false`: it is known, or it is not the newest one.
    fn know_record(
        &mut self,
        partition: u16,
        producer: &ProducerName,
        record: KnownRecord,
        is_current: bool,
    ) -> bool {
        let place = (partition, producer.clone());
        let before = self.records.known.get(&place).copied().unwrap_or_default();
        let is_older = record.sequence < before.sequence;
        // A store that lost messages uses their sequences again.
        let is_reused = record.sequence == before.sequence && record.digest != before.digest;
        let is_known = record.sequence == before.sequence && !is_reused;
        if is_known || (is_older && !is_current) {
            return false;
        }
        if before.sequence == 0 && self.records.known.len() >= self.config.max_runs {
            self.stats.refused += 1;
            return false;
        }
        let is_lost = before.is_lost || is_older || is_reused;
        self.records
            .known
            .insert(place, KnownRecord { is_lost, ..record });
        self.records.changed.insert(producer.clone());
        true
    }

    fn note_error(&mut self, subject: &Subject, sequence: u64, error: &PageError) {
        let is_new = match subject {
            Subject::Page { partition, run, page } => self
                .producers
                .run(run)
                .is_some_and(|entry| entry.note_bad((*partition, *page), sequence)),
            Subject::Retained { partition, producer } => {
                let record = KnownRecord {
                    sequence,
                    is_unreadable: true,
                    ..KnownRecord::default()
                };
                self.know_record(*partition, producer, record, false)
            }
            Subject::Producer(_) | Subject::Leader | Subject::Partitions | Subject::Deltas => false,
        };
        let entry = subject.producer().and_then(|name| self.producers.entry(name));
        if let Some(entry) = entry.filter(|_| is_new) {
            let counter = if error.is_newer() {
                &mut entry.counts.newer
            } else {
                &mut entry.counts.poisoned
            };
            *counter += 1;
        }
    }
}

fn window_run(run: &RunName) -> ProducerRun {
    ProducerRun {
        producer: run.producer.id(),
        epoch: run.epoch,
    }
}

/// Whether a total is refused for want of room: it is only in the page.
fn is_loss(refusal: &MergeRefusal) -> bool {
    match refusal {
        MergeRefusal::ProducerSeries(_)
        | MergeRefusal::ProducerRuns(_)
        | MergeRefusal::Producers(_)
        | MergeRefusal::Series(_)
        | MergeRefusal::Memory(_) => true,
        MergeRefusal::Invalid(_)
        | MergeRefusal::MixedKinds { .. }
        | MergeRefusal::LeaseEnded(_)
        | MergeRefusal::FinalRun(_) => false,
    }
}
