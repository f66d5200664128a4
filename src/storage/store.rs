//! A log on a thread of its own. Whoever appends is told when it is written (and synced, where that is asked for);
//! all that wait at one time share one write and one `fsync`.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::sync::Notify;

use super::log::{Log, ReadBack, Recovered};
use super::syncer::Syncer;
use super::{Fsync, Quota, Rules, Share, State};

/// After a failure the disk is tried again at the earliest after this.
const RETRY: Duration = Duration::from_secs(1);

/// When the disk is still busy with what it was given before.
const SYNC_AGAIN: Duration = Duration::from_millis(10);

/// As much may wait to be written; a slow disk does not fill the memory.
const MAX_WAITING_BYTES: u64 = 64 << 20;

/// Written in one go, at least.
const WRITE_BYTES: usize = 1 << 20;

/// Read in one go, about.
const READ_BYTES: usize = 4 << 20;

/// Data to be appended.
#[derive(Debug)]
pub struct Append {
    /// Whose: 0 to 2.
    pub tag: u8,
    /// Items in it.
    pub items: usize,
    /// The bytes, in pieces.
    pub payload: SmallVec<[Bytes; 2]>,
    /// In memory already: it will not be read back in this run.
    pub claimed: bool,
    /// Told when it is kept, or why it is not.
    pub done: Option<Done>,
    /// Room set aside for it on the disk.
    pub share: Option<Share>,
}

/// What is called with the news of an append, on the log's thread.
pub struct Done(pub Box<dyn FnOnce(Result<(), String>) + Send>);

impl std::fmt::Debug for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Done")
    }
}

impl Append {
    fn bytes(&self) -> u64 {
        self.payload.iter().map(|piece| piece.len() as u64).sum()
    }
}

/// What the thread has for the owner.
#[derive(Debug, Default)]
pub struct Outbox {
    /// What was read back.
    pub read: ReadBack,
    /// Unclaimed data that could not be written: its owner has it again.
    pub failed: Vec<Append>,
}

/// A log, its thread and its post.
#[derive(Debug)]
pub struct Store {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
    quota: Arc<Quota>,
}

#[derive(Debug)]
struct Inner {
    owner: Arc<str>,
    fsync: Fsync,
    post: Mutex<Post>,
    come: Condvar,
    /// Told when the outbox has something.
    notify: Arc<Notify>,
    /// Items on disk that nobody has in memory.
    backlog: AtomicU64,
}

#[derive(Debug, Default)]
struct Post {
    appends: Vec<(u64, Append)>,
    waiting_bytes: u64,
    next_seq: u64,
    settled: Vec<u64>,
    wants_read: bool,
    is_reading: bool,
    closing: bool,
    /// Writing failed, and is not tried again before this.
    failed_until: Option<Instant>,
    /// The same for reading.
    unread_until: Option<Instant>,
    outbox: Outbox,
}

impl Store {
    /// Opens a log and starts its thread; `notify` is told when there is post for the owner.
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
        let inner = Arc::new(Inner {
            owner,
            fsync: rules.fsync,
            post: Mutex::new(Post {
                next_seq: log.next_seq(),
                ..Post::default()
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

    /// Room for so many bytes. `Ok(None)`: not now. `Err`: never.
    pub fn reserve(&self, bytes: u64) -> Result<Option<Share>, NeverFits> {
        if !self.quota.could_hold(bytes) || bytes > super::record::MAX_PAYLOAD as u64 {
            return Err(NeverFits);
        }
        let post = self.inner.post();
        let failing = post.failed_until.is_some_and(|until| Instant::now() < until);
        // One that is larger than all that may wait goes alone.
        let crowded = post.waiting_bytes > 0 && post.waiting_bytes + bytes > MAX_WAITING_BYTES;
        drop(post);
        match failing || crowded {
            true => Ok(None),
            false => Ok(self.quota.reserve(bytes)),
        }
    }

    /// Takes data to append. Gives its number.
    pub fn append(&self, append: Append) -> u64 {
        let mut post = self.inner.post();
        let seq = post.next_seq;
        post.next_seq += 1;
        post.waiting_bytes += append.bytes();
        if !append.claimed {
            self.inner.backlog.fetch_add(append.items as u64, Relaxed);
        }
        post.appends.push((seq, append));
        drop(post);
        self.inner.come.notify_one();
        seq
    }

    /// Nobody needs this data any more.
    pub fn settle(&self, seq: u64) {
        self.inner.post().settled.push(seq);
        self.inner.come.notify_one();
    }

    /// Asks for what comes next in the log; the answer comes by the outbox.
    pub fn ask(&self) {
        let mut post = self.inner.post();
        let rests = post.unread_until.is_some_and(|until| Instant::now() < until);
        if !post.is_reading && !rests {
            (post.wants_read, post.is_reading) = (true, true);
            drop(post);
            self.inner.come.notify_one();
        }
    }

    /// Items on disk (or on their way) that nobody has in memory.
    pub fn backlog(&self) -> u64 {
        self.inner.backlog.load(Relaxed)
    }

    /// What the thread has for the owner.
    pub fn collect(&self) -> Outbox {
        let outbox = std::mem::take(&mut self.inner.post().outbox);
        let read: u64 = outbox
            .read
            .stored
            .iter()
            .map(|stored| u64::from(stored.items))
            .sum();
        let gone = read + outbox.read.lost_items.iter().sum::<u64>();
        let less = |items: u64| Some(items.saturating_sub(gone));
        // Never an error: there is always a new value.
        let _ = self.inner.backlog.fetch_update(Relaxed, Relaxed, less);
        outbox
    }

    /// Writes what is there and ends the thread. What could not be written is in the outbox.
    pub fn close(&self) {
        self.inner.post().closing = true;
        self.inner.come.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
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

/// Larger than the whole quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeverFits;

impl Inner {
    fn post(&self) -> MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Worker {
    inner: Arc<Inner>,
    log: Log,
    state: Option<Arc<dyn State>>,
    /// Where data is synced at an interval.
    syncer: Option<Syncer>,
    sync_at: Option<Instant>,
}

/// What there is to do at one time.
struct Work {
    appends: Vec<(u64, Append)>,
    settled: Vec<u64>,
    read: bool,
    closing: bool,
}

impl Worker {
    fn run(mut self) {
        loop {
            // What is in the state by then is among what is written next.
            let snapshot = self.log.wants_snapshot().then(|| self.snapshot()).flatten();
            let Work {
                appends,
                settled,
                read,
                closing,
            } = self.wait();
            settled.into_iter().for_each(|seq| self.log.settle(seq));
            let mut written = self.write(appends);
            let snapshot = match closing {
                true => self.snapshot().or(snapshot),
                false => snapshot,
            };
            if closing {
                // Nobody appends any more, but somebody may have just now.
                let rest = std::mem::take(&mut self.inner.post().appends);
                written &= self.write(rest);
            }
            if let Some((seq, state)) = snapshot.filter(|_| written)
                && let Err(error) = self.log.keep_snapshot(seq, &state)
            {
                self.complain("snapshot", &error);
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

    /// Until there is something to do.
    fn wait(&mut self) -> Work {
        let mut post = self.inner.post();
        loop {
            let due = self
                .sync_at
                .map(|at| at.saturating_duration_since(Instant::now()));
            let idle =
                post.appends.is_empty() && post.settled.is_empty() && !post.wants_read && !post.closing;
            if !idle || due == Some(Duration::ZERO) {
                post.waiting_bytes = 0;
                return Work {
                    appends: std::mem::take(&mut post.appends),
                    settled: std::mem::take(&mut post.settled),
                    read: std::mem::take(&mut post.wants_read),
                    closing: post.closing,
                };
            }
            let come = &self.inner.come;
            post = match due {
                None => come.wait(post).unwrap_or_else(PoisonError::into_inner),
                Some(due) => {
                    come.wait_timeout(post, due)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
    }

    /// The state, and the number of the last data that is in it.
    fn snapshot(&self) -> Option<(u64, Vec<u8>)> {
        let mut seq = 0;
        let state = self
            .state
            .as_ref()?
            .save(&mut || seq = self.inner.post().next_seq - 1);
        Some((seq, state))
    }

    /// Whether all of it is written.
    fn write(&mut self, appends: Vec<(u64, Append)>) -> bool {
        let mut all = true;
        let mut written = Vec::new();
        let mut appends = appends.into_iter().peekable();
        loop {
            let mut result = Ok(());
            while let Some((seq, append)) = appends.next_if(|_| self.log.buffered() < WRITE_BYTES) {
                let head = (seq, append.tag, u32::try_from(append.items).unwrap_or(u32::MAX));
                let pieces = append.payload.iter().map(|piece| &**piece);
                result = result.and_then(|()| self.log.append(head, append.claimed, pieces));
                written.push(append);
            }
            // A failed append leaves the buffer as it was: what is in it is given up with it, so that all that was
            // tried together fails together.
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
            all &= result.is_ok();
            self.report(std::mem::take(&mut written), result);
            if appends.peek().is_none() {
                return all;
            }
        }
    }

    /// Tells those who wait. What is not kept and nobody has goes back to the owner.
    fn report(&mut self, appends: Vec<Append>, result: io::Result<()>) {
        if appends.is_empty() && result.is_ok() {
            return;
        }
        if let Err(error) = &result {
            self.complain("write", error);
        }
        let why = result.err().map(|error| error.to_string());
        let mut failed = Vec::new();
        for mut append in appends {
            append.share = None;
            if let Some(Done(done)) = append.done.take() {
                done(why.clone().map_or(Ok(()), Err));
            }
            if why.is_some() && !append.claimed {
                failed.push(append);
            }
        }
        let mut post = self.inner.post();
        post.failed_until = why.map(|_| Instant::now() + RETRY);
        if !failed.is_empty() {
            let items: usize = failed.iter().map(|append| append.items).sum();
            self.inner.backlog.fetch_sub(items as u64, Relaxed);
            post.outbox.failed.append(&mut failed);
            self.inner.notify.notify_one();
        }
    }

    fn read(&mut self) {
        let read = self.log.read(READ_BYTES);
        let unread_until = read.is_err().then(|| Instant::now() + RETRY);
        let back = read.unwrap_or_else(|error| {
            self.complain("read", &error);
            ReadBack::default()
        });
        if back.lost_records > 0 {
            self.lost(back.lost_records);
        }
        let mut post = self.inner.post();
        (post.is_reading, post.unread_until) = (false, unread_until);
        post.outbox.read = back;
        drop(post);
        self.inner.notify.notify_one();
    }

    fn sync_if_due(&mut self, closing: bool) {
        let Some(syncer) = &self.syncer else { return };
        let now = Instant::now();
        if self.sync_at.is_some_and(|at| closing || at <= now) {
            self.sync_at = if syncer.is_busy() && !closing {
                // Soon: what came meanwhile is synced with it.
                Some(now + SYNC_AGAIN)
            } else {
                match self.log.unsynced() {
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

    fn complain(&self, operation: &'static str, error: &io::Error) {
        metrics::counter!(
            "tidegate_storage_failures_total",
            "exporter" => self.inner.owner.clone(),
            "operation" => operation
        )
        .increment(1);
        // At most once a RETRY: nothing is taken before the disk is tried again.
        tracing::warn!(component = &*self.inner.owner, operation, %error, "storage failed");
    }

    fn lost(&self, records: u64) {
        metrics::counter!("tidegate_storage_lost_records_total", "exporter" => self.inner.owner.clone())
            .increment(records);
        tracing::warn!(
            component = &*self.inner.owner,
            records,
            "stored records are damaged and lost"
        );
    }

    fn show(&self) {
        let owner = || self.inner.owner.to_string();
        metrics::gauge!("tidegate_storage_bytes", "exporter" => owner()).set(self.log.bytes() as f64);
        let backlog = self.inner.backlog.load(Relaxed);
        metrics::gauge!("tidegate_storage_backlog_items", "exporter" => owner()).set(backlog as f64);
    }
}
