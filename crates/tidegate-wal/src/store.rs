// SPDX-License-Identifier: Apache-2.0

//! A log on a thread of its own. The thread reports to each caller when its data is written (and synced, if the rules
//! say so). All data that waits at one time shares one write and one `fsync`.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use smallvec::SmallVec;
use tidegate_runtime::Held;
use tokio::sync::Notify;

use super::log::{Log, ReadBack};
use super::recovery::Recovered;
use super::syncer::Syncer;
use super::worker::Worker;
use super::{Fsync, Purpose, Quota, Rules, Share, State};

/// An answer to [`Store::ask`] has about this many bytes, and one record more.
pub const READ_BYTES: usize = 4 << 20;

/// The most bytes that may wait to be written: a slow disk does not fill the memory.
const MAX_WAITING_BYTES: u64 = 64 << 20;

/// Data to be appended.
#[derive(Debug)]
pub struct Append {
    /// The owner's tag; 0 to 2.
    pub tag: u8,
    /// Items in it.
    pub items: usize,
    /// The bytes, in pieces.
    pub payload: SmallVec<[Bytes; 2]>,
    /// The use of the data.
    pub purpose: Purpose,
    /// Called when it is kept, or with the reason why it is not.
    pub done: Option<Done>,
    /// Room set aside for it on the disk.
    pub share: Option<Share>,
}

/// The callback for the result of an append. It runs on the log's thread; after [`Store::close`] on that of the caller.
pub struct Done(pub Box<dyn FnOnce(Result<(), NotKept>) + Send>);

/// The reason why appended data is not kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotKept {
    /// The log was closed before the data arrived.
    #[error("the log is closed")]
    Closed,
    /// The write or the sync failed.
    #[error("{0}")]
    Failed(String),
    /// The storage thread ended before the close, with this message of a panic. Nothing is written until a restart.
    #[error("the storage thread ended by a panic (a bug): {0}. Restart the gateway")]
    Ended(Arc<str>),
}

/// The callback for the end of the thread before the close.
pub(super) struct OnEnd(pub(super) Box<dyn FnOnce(&NotKept) + Send>);

impl std::fmt::Debug for OnEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnEnd")
    }
}

impl std::fmt::Debug for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Done")
    }
}

impl Append {
    fn bytes(&self) -> u64 {
        self.payload.iter().map(|piece| piece.len() as u64).sum()
    }

    /// Frees the reserved disk space, and reports the result.
    pub(super) fn finish(&mut self, result: Result<(), NotKept>) {
        self.share = None;
        if let Some(Done(done)) = self.done.take() {
            done(result);
        }
    }
}

/// Room in memory for data that is read back.
#[derive(Debug)]
pub struct ReadRoom {
    held: Held,
    goes_on: bool,
}

impl ReadRoom {
    /// Reads into `held`, which has [`READ_BYTES`] reserved. With `goes_on` it may have fewer: the first record is read
    /// in any case, since data on disk must not wait forever.
    pub fn new(held: Held, goes_on: bool) -> Self {
        Self { held, goes_on }
    }

    /// Whether memory has room for `read` bytes that were read and a record of `more` bytes.
    pub(super) fn grow(&mut self, read: usize, more: usize) -> bool {
        let missing = read.saturating_add(more).saturating_sub(self.held.bytes());
        if self.held.try_grow_quietly(missing).is_ok() {
            return true;
        }
        let goes_on = self.goes_on && read == 0;
        if goes_on {
            self.held.promise(missing);
        }
        goes_on
    }
}

/// The results of the thread for the owner.
#[derive(Debug, Default)]
pub struct Completions {
    /// The data that was read back.
    pub read: ReadBack,
    /// Room for the data that was read back.
    pub room: Option<ReadRoom>,
    /// Unread data that could not be written: it returns to its owner.
    pub failed: Vec<Append>,
    /// The number of items in all of this. They count as backlog until [`Store::taken`].
    pub items: u64,
}

/// A log, its thread and its inbox.
#[derive(Debug)]
pub struct Store {
    inner: Arc<StoreInner>,
    thread: Mutex<Option<JoinHandle<()>>>,
    quota: Arc<Quota>,
}

#[derive(Debug)]
pub(super) struct StoreInner {
    pub(super) owner: Arc<str>,
    pub(super) fsync: Fsync,
    inbox: Mutex<Inbox>,
    pub(super) come: Condvar,
    /// Notified when there are completions.
    pub(super) notify: Arc<Notify>,
    /// Items on disk that are not in memory.
    pub(super) backlog: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) appends: Vec<(u64, Append)>,
    pub(super) waiting_bytes: u64,
    pub(super) next_seq: u64,
    pub(super) settled: Vec<u64>,
    pub(super) reading: Reading,
    /// Room for the requested data.
    pub(super) room: Option<ReadRoom>,
    pub(super) closing: bool,
    /// The thread has taken the last data that it writes.
    pub(super) has_ended: bool,
    /// Why the thread ended before the close.
    pub(super) ended_by: Option<NotKept>,
    pub(super) on_end: Option<OnEnd>,
    /// A snapshot was written, or could not be.
    pub(super) snapshot_ended: bool,
    /// Writing failed, and is not tried again before this.
    pub(super) failed_until: Option<Instant>,
    /// The same for reading.
    pub(super) unread_until: Option<Instant>,
    pub(super) completions: Completions,
}

/// The state of a request for the next data in the log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Reading {
    /// No request is pending.
    #[default]
    Idle,
    Asked,
    Underway,
    /// The answer is in the completions, which have room for one: no request is possible until it is collected.
    Answered,
}

impl Store {
    /// Opens a log and starts its thread. It notifies `notify` when there are completions for the owner.
    ///
    /// # Errors
    /// See [`Log::open`]; also when no thread can be started.
    pub fn open(
        owner: Arc<str>,
        directory: &Path,
        rules: &Rules,
        quota: Arc<Quota>,
        notify: Arc<Notify>,
        state: Option<Arc<dyn State>>,
    ) -> io::Result<(Self, Recovered)> {
        let (log, recovered) = Log::open(directory, rules, quota.clone(), state.as_deref())?;
        let inner = Arc::new(StoreInner {
            owner,
            fsync: rules.fsync,
            inbox: Mutex::new(Inbox {
                next_seq: log.next_seq(),
                ..Inbox::default()
            }),
            come: Condvar::new(),
            notify,
            backlog: AtomicU64::new(recovered.items.iter().sum()),
        });
        let worker = Worker {
            inner: inner.clone(),
            log,
            state,
            syncer: match rules.fsync {
                Fsync::Every(_) => Some(Syncer::start()?),
                Fsync::Always | Fsync::Never => None,
            },
            sync_at: None,
            snapshot: None,
            waiting: VecDeque::new(),
            in_hand: VecDeque::new(),
            is_written: false,
        };
        let thread = std::thread::Builder::new()
            .name("storage".into())
            .spawn(move || worker.run())?;
        let store = Self {
            inner,
            thread: Mutex::new(Some(thread)),
            quota,
        };
        Ok((store, recovered))
    }

    /// Reserves `bytes` of the quota. `Ok(None)`: not now. `Err`: never.
    ///
    /// # Errors
    /// `bytes` exceeds the whole quota or the largest payload of a record, or the thread ended before the close.
    pub fn reserve(&self, bytes: u64) -> Result<Option<Share>, ReserveError> {
        if !self.quota.could_hold(bytes) || bytes > super::record::MAX_PAYLOAD as u64 {
            return Err(ReserveError::NeverFits);
        }
        let inbox = self.inner.inbox();
        if let Some(why @ NotKept::Ended(_)) = inbox.refusal() {
            return Err(ReserveError::Ended(why));
        }
        // After the end, no thread would write it.
        let failing = inbox.closing || inbox.failed_until.is_some_and(|until| Instant::now() < until);
        // One that is larger than all that may wait goes alone.
        let crowded = inbox.waiting_bytes > 0 && inbox.waiting_bytes + bytes > MAX_WAITING_BYTES;
        drop(inbox);
        if failing || crowded {
            Ok(None)
        } else {
            Ok(self.quota.reserve(bytes))
        }
    }

    /// Takes data to append. Gives its number. A log whose thread has ended refuses it at once, as if the write had
    /// failed.
    pub fn append(&self, mut append: Append) -> u64 {
        let mut inbox = self.inner.inbox();
        let seq = inbox.next_seq;
        inbox.next_seq += 1;
        if append.purpose == Purpose::Unread {
            self.inner.backlog.fetch_add(append.items as u64, Relaxed);
        }
        if let Some(why) = inbox.refusal() {
            // The callback may use this store.
            drop(inbox);
            append.finish(Err(why));
            self.inner.give_back(vec![append]);
            return seq;
        }
        inbox.waiting_bytes += append.bytes();
        inbox.appends.push((seq, append));
        drop(inbox);
        self.inner.come.notify_one();
        seq
    }

    /// Notes that this data is no longer needed.
    pub fn release(&self, seq: u64) {
        let mut inbox = self.inner.inbox();
        // Without a thread, nobody would take it from the list.
        if !inbox.has_ended {
            inbox.settled.push(seq);
            drop(inbox);
            self.inner.come.notify_one();
        }
    }

    /// Whether the owner may ask for the next data in the log.
    pub fn can_ask(&self) -> bool {
        self.inner.inbox().can_ask()
    }

    /// Asks for the next data in the log. The completions have the answer, with the `room` for it. Without `room`, no
    /// account counts the data.
    pub fn ask(&self, room: Option<ReadRoom>) {
        let mut inbox = self.inner.inbox();
        if inbox.can_ask() {
            inbox.reading = Reading::Asked;
            inbox.room = room;
            drop(inbox);
            self.inner.come.notify_one();
        }
    }

    /// The number of the next data to be appended.
    pub fn next_seq(&self) -> u64 {
        self.inner.inbox().next_seq
    }

    /// Items on disk (or on their way) that are not in memory.
    pub fn backlog(&self) -> u64 {
        self.inner.backlog.load(Relaxed)
    }

    /// Calls back with the reason if the thread ends before the close. From then on, nothing is written or read.
    pub fn on_end(&self, call: impl FnOnce(&NotKept) + Send + 'static) {
        let mut inbox = self.inner.inbox();
        let ended_by = inbox.ended_by.clone();
        match ended_by {
            None => inbox.on_end = Some(OnEnd(Box::new(call))),
            Some(why) => {
                drop(inbox);
                call(&why);
            }
        }
    }

    /// Takes the results of the thread. A caller that keeps an order puts them in place before it calls
    /// [`Self::taken`]: until then all later data goes after them.
    pub fn collect(&self) -> Completions {
        let mut inbox = self.inner.inbox();
        if inbox.reading == Reading::Answered {
            inbox.reading = Reading::Idle;
        }
        let mut completions = std::mem::take(&mut inbox.completions);
        drop(inbox);
        let stored = completions
            .read
            .stored
            .iter()
            .map(|stored| u64::from(stored.items));
        let failed = completions.failed.iter().map(|append| append.items as u64);
        completions.items = stored.chain(failed).chain(completions.read.lost_items).sum();
        completions
    }

    /// Notes that `items` collected items are in place: they leave the backlog.
    pub fn taken(&self, items: u64) {
        let less = |backlog: u64| Some(backlog.saturating_sub(items));
        // Never an error: there is always a new value.
        let _ = self.inner.backlog.fetch_update(Relaxed, Relaxed, less);
    }

    /// Writes all waiting data and ends the thread. Data that could not be written is in the completions.
    pub fn close(&self) {
        self.inner.inbox().closing = true;
        self.inner.come.notify_one();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!(
                component = &*self.inner.owner,
                "the storage thread panicked (a bug)"
            );
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

/// The reason why the log never has room for data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReserveError {
    /// It is larger than the whole quota or the largest record.
    NeverFits,
    /// The storage thread ended before the close.
    Ended(NotKept),
}

impl Inbox {
    fn can_ask(&self) -> bool {
        let rests = self.unread_until.is_some_and(|until| Instant::now() < until);
        self.reading == Reading::Idle && !rests && !self.has_ended
    }

    /// Why no thread takes data any more. After the close, an earlier panic no longer matters.
    fn refusal(&self) -> Option<NotKept> {
        let why = || match &self.ended_by {
            Some(why) if !self.closing => why.clone(),
            _ => NotKept::Closed,
        };
        self.has_ended.then(why)
    }
}

impl StoreInner {
    pub(super) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock()
    }

    /// Returns data that is not kept, and is not in memory, to the owner.
    pub(super) fn give_back(&self, mut appends: Vec<Append>) {
        appends.retain(|append| append.purpose == Purpose::Unread);
        if !appends.is_empty() {
            self.inbox().completions.failed.append(&mut appends);
            self.notify.notify_one();
        }
    }
}
