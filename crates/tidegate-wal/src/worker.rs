// SPDX-License-Identifier: Apache-2.0

//! The thread of a store: it writes all waiting data at once, notifies those who wait, reads back, and syncs in time.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::log::{Log, ReadBack};
use super::snapshot::Underway;
use super::store::{Append, NotKept, OnEnd, READ_BYTES, Reading, StoreInner};
use super::syncer::Syncer;
use super::{Fsync, Joins, Saving, State};

/// After a failure the disk is tried again at the earliest after this.
const RETRY: Duration = Duration::from_secs(1);

/// Written in one go, at least.
const WRITE_BYTES: usize = 1 << 20;

/// The delay of the next sync if the disk is still busy with the one before.
const SYNC_AGAIN: Duration = Duration::from_millis(10);

/// A log, and for whom it is kept.
pub(super) struct Worker {
    pub(super) inner: Arc<StoreInner>,
    pub(super) log: Log,
    pub(super) state: Option<Arc<dyn State>>,
    /// Runs if data is synced at an interval.
    pub(super) syncer: Option<Syncer>,
    pub(super) sync_at: Option<Instant>,
    /// The snapshot that is being written.
    pub(super) snapshot: Option<Underway>,
    /// Data of this round that the log does not have yet.
    pub(super) waiting: VecDeque<(u64, Append)>,
    /// Data that the log has, and whose caller waits for the result.
    pub(super) in_hand: VecDeque<Append>,
    /// Whether all of `in_hand` is written.
    pub(super) is_written: bool,
}

/// The work of one round.
struct Work {
    appends: Vec<(u64, Append)>,
    settled: Vec<u64>,
    read: bool,
    closing: bool,
}

impl Worker {
    /// Until the store is closed. After a panic, all callers that wait get an answer.
    pub(super) fn run(mut self) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work())) {
            self.abandon(message(&*panic));
        }
    }

    fn work(&mut self) {
        loop {
            // Any state by then is part of the next write.
            let wanted = self.snapshot.is_none() && self.log.wants_snapshot();
            let snapshot = wanted.then(|| self.save()).flatten();
            // Without room, no data comes that would begin another round.
            let again = (wanted && snapshot.is_none()).then(|| Instant::now() + RETRY);
            let Work {
                appends,
                settled,
                read,
                closing,
            } = self.wait(snapshot.is_some(), again);
            settled.into_iter().for_each(|seq| self.log.release(seq));
            let mut written = self.write(appends);
            self.end_snapshot(closing);
            if closing {
                drop(snapshot);
                let last = self.save();
                let rest = self.take_last();
                written &= self.write(rest);
                self.begin_snapshot(last.filter(|_| written));
                self.end_snapshot(true);
            } else {
                self.begin_snapshot(snapshot.filter(|_| written));
            }
            if read {
                self.read();
            }
            self.sync_if_due(closing);
            self.show();
            if closing {
                return;
            }
        }
    }

    /// Waits for work, at most until a time. With `at_once` it returns immediately, even without work.
    fn wait(&mut self, at_once: bool, until: Option<Instant>) -> Work {
        let mut inbox = self.inner.inbox();
        loop {
            let due = [self.sync_at, until].into_iter().flatten().min();
            let due = due.map(|at| at.saturating_duration_since(Instant::now()));
            let asked = inbox.reading == Reading::Asked;
            let ended = inbox.snapshot_ended;
            let idle =
                inbox.appends.is_empty() && inbox.settled.is_empty() && !asked && !inbox.closing && !ended;
            if at_once || !idle || due == Some(Duration::ZERO) {
                inbox.waiting_bytes = 0;
                if asked {
                    inbox.reading = Reading::Underway;
                }
                return Work {
                    appends: std::mem::take(&mut inbox.appends),
                    settled: std::mem::take(&mut inbox.settled),
                    read: asked,
                    closing: inbox.closing,
                };
            }
            let come = &self.inner.come;
            match due {
                None => come.wait(&mut inbox),
                Some(due) => {
                    come.wait_for(&mut inbox, due);
                }
            }
        }
    }

    /// Takes data that a caller has appended just now. The store refuses all later data.
    fn take_last(&self) -> Vec<(u64, Append)> {
        let mut inbox = self.inner.inbox();
        inbox.has_ended = true;
        std::mem::take(&mut inbox.appends)
    }

    /// The state, and the number of the last data that is in it. `None`: it may not be saved now.
    fn save(&self) -> Option<(u64, Saving)> {
        // All callbacks of written data have run.
        let mut seq = self.log.next_seq() - 1;
        let state = self.state.as_ref().filter(|state| state.may_save())?;
        let saving = state.save(&mut || {
            if state.joins() == Joins::BeforeAppend {
                seq = self.inner.inbox().next_seq - 1;
            }
        });
        Some((seq, saving))
    }

    /// Writes a snapshot on a thread of its own, so that no append waits for it.
    fn begin_snapshot(&mut self, saved: Option<(u64, Saving)>) {
        let Some((seq, saving)) = saved else { return };
        let inner = self.inner.clone();
        let ended = move || {
            inner.inbox().snapshot_ended = true;
            inner.come.notify_one();
        };
        match Underway::start(
            self.log.directory(),
            seq,
            saving,
            self.log.since_snapshot(),
            ended,
        ) {
            Ok(underway) => self.snapshot = Some(underway),
            Err(error) => self.complain("snapshot", &error),
        }
    }

    /// Takes note of a snapshot that is written; waits for the one under way if `wait`.
    fn end_snapshot(&mut self, wait: bool) {
        let ended = std::mem::take(&mut self.inner.inbox().snapshot_ended);
        let Some(underway) = self.snapshot.take_if(|_| ended || wait) else {
            return;
        };
        let (seq, covered) = (underway.seq, underway.covered);
        match underway.wait() {
            Ok(bytes) => self.log.kept_snapshot(seq, bytes, covered),
            Err(error) => self.complain("snapshot", &error),
        }
    }

    /// Whether all of it is written.
    fn write(&mut self, appends: Vec<(u64, Append)>) -> bool {
        let mut all = true;
        self.waiting.extend(appends);
        loop {
            let mut result: io::Result<()> = Ok(());
            self.is_written = false;
            while self.log.buffered() < WRITE_BYTES
                && let Some((seq, append)) = self.waiting.pop_front()
            {
                let head = (seq, append.tag, u32::try_from(append.items).unwrap_or(u32::MAX));
                self.in_hand.push_back(append);
                let Some(append) = self.in_hand.back().filter(|_| result.is_ok()) else {
                    continue;
                };
                result = self.log.append(head, append.purpose, &append.payload);
            }
            // A failed append leaves the buffer as it was. The buffer is dropped with it, so that data tried together
            // fails together.
            let flushed = self.log.flush();
            let result = result.and(flushed);
            let result = match self.inner.fsync {
                Fsync::Always => result.and_then(|()| self.log.sync()),
                Fsync::Every(interval) => {
                    self.sync_at.get_or_insert_with(|| Instant::now() + interval);
                    result
                }
                Fsync::Never => result,
            };
            self.is_written = result.is_ok();
            all &= self.is_written;
            self.report(result);
            if self.waiting.is_empty() {
                return all;
            }
        }
    }

    /// Reports to each caller. Data that is not kept, and is not in memory, returns to the owner.
    fn report(&mut self, result: io::Result<()>) {
        if self.in_hand.is_empty() && result.is_ok() {
            return;
        }
        if let Err(error) = &result {
            self.complain("write", error);
        }
        let result = result.map_err(|error| NotKept::Failed(error.to_string()));
        // Before the answers: a sender that comes again at once is refused.
        self.inner.inbox().failed_until = result.is_err().then(|| Instant::now() + RETRY);
        if result.is_err() {
            for append in &mut self.in_hand {
                append.finish(result.clone());
            }
            self.inner.give_back(std::mem::take(&mut self.in_hand).into());
        }
        // One by one: if a callback panics, its data is on disk and must not return to the owner.
        while let Some(mut append) = self.in_hand.pop_front() {
            append.finish(Ok(()));
        }
    }

    /// Answers all callers that wait: no thread writes their data any more. The store refuses later data.
    fn abandon(&mut self, panic: &str) {
        let why = NotKept::Ended(panic.into());
        self.count_failure("thread");
        tracing::error!(component = &*self.inner.owner, %why, "storage failed");
        let mut inbox = self.inner.inbox();
        inbox.has_ended = true;
        inbox.ended_by = Some(why.clone());
        let (appends, room, on_end) = (
            std::mem::take(&mut inbox.appends),
            inbox.room.take(),
            inbox.on_end.take(),
        );
        drop(inbox);
        drop(room);
        if let Some(OnEnd(call)) = on_end {
            call(&why);
        }
        let mut rest: Vec<Append> = std::mem::take(&mut self.in_hand).into();
        if self.is_written {
            rest.drain(..).for_each(|mut append| answer(&mut append, Ok(())));
        }
        let waiting = std::mem::take(&mut self.waiting).into_iter().chain(appends);
        rest.extend(waiting.map(|(_, append)| append));
        rest.iter_mut()
            .for_each(|append| answer(append, Err(why.clone())));
        self.inner.give_back(rest);
    }

    fn read(&mut self) {
        let mut room = self.inner.inbox().room.take();
        let mut has_room = |read, more| room.as_mut().is_none_or(|room| room.grow(read, more));
        let read = self.log.read_within(READ_BYTES, &mut has_room);
        // Neither a disk that fails nor memory that is short is asked again at once.
        let rests = match &read {
            Ok(back) => back.is_short && back.stored.is_empty(),
            Err(_) => true,
        };
        let unread_until = rests.then(|| Instant::now() + RETRY);
        let back = read.unwrap_or_else(|error| {
            self.complain("read", &error);
            ReadBack::default()
        });
        if back.lost_records > 0 {
            self.lost(back.lost_records);
        }
        let mut inbox = self.inner.inbox();
        (inbox.reading, inbox.unread_until) = (Reading::Answered, unread_until);
        inbox.completions.read = back;
        inbox.completions.room = room;
        drop(inbox);
        self.inner.notify.notify_one();
    }

    fn sync_if_due(&mut self, closing: bool) {
        let Some(syncer) = &self.syncer else { return };
        let now = Instant::now();
        if self.sync_at.is_some_and(|at| closing || at <= now) {
            self.sync_at = if syncer.is_busy() && !closing {
                // Soon: data that has arrived meanwhile is synced with it.
                Some(now + SYNC_AGAIN)
            } else {
                match self.log.pending_fsync() {
                    Ok(files) => {
                        syncer.sync(files);
                        None
                    }
                    Err(error) => {
                        self.complain("sync", &error);
                        Some(now + RETRY)
                    }
                }
            };
        }
        if let Some(error) = syncer.error() {
            self.complain("sync", &error);
        }
    }

    fn count_failure(&self, operation: &'static str) {
        metrics::counter!(
            "tidegate_storage_failures_total",
            "component" => self.inner.owner.clone(),
            "operation" => operation
        )
        .increment(1);
    }

    fn complain(&self, operation: &'static str, error: &io::Error) {
        self.count_failure(operation);
        // At most once a RETRY: nothing is taken before the disk is tried again.
        tracing::warn!(
            component = &*self.inner.owner,
            operation,
            directory = %self.log.directory().display(),
            %error,
            "storage failed: free space, or repair the disk"
        );
    }

    fn lost(&self, records: u64) {
        metrics::counter!("tidegate_storage_lost_records_total", "component" => self.inner.owner.clone())
            .increment(records);
        tracing::warn!(
            component = &*self.inner.owner,
            records,
            "stored records are damaged and lost"
        );
    }

    fn show(&self) {
        let owner = || self.inner.owner.to_string();
        metrics::gauge!("tidegate_storage_bytes", "component" => owner()).set(self.log.bytes() as f64);
    }
}

/// Reports a result. If the callback panics too, the other callers get their answers all the same.
fn answer(append: &mut Append, result: Result<(), NotKept>) {
    // The log has the panic already.
    let _ = catch_unwind(AssertUnwindSafe(|| append.finish(result)));
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message")
}
