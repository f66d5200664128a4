//! The account of the gateway's memory: what was measured, and what has been promised or taken in since.
//!
//! A reservation ([`Held`]) says how many bytes somebody may allocate, and how many of them are there. A measurement
//! has seen what was there; what is promised and has not arrived counts on top of it, however often it is measured.

pub(crate) mod measure;

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_account::{Counters, resident};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How long a request waits for room before it is refused: those that don't keep their promises lose theirs meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Memory counts as short for so long after room was last refused.
const SHORT_FOR: Duration = Duration::from_secs(1);

/// Before so much is reserved at once, the process is measured again. What others have just let go of is still resident
/// until the allocator gives it back, some tenths of a second later; room for large buffers can't be promised on top of it.
const LARGE: usize = 1 << 20;

/// How often the process is measured where no memory limiter says.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// How much of the machine's or the container's memory may be used where no memory limiter says, in percent.
const DEFAULT_LIMIT_PERCENT: u64 = 80;

/// The limit where no memory limiter says; `None` where the system does not tell how much there is.
pub(crate) fn default_limit() -> Option<usize> {
    let total = measure::total_bytes().ok()?;
    usize::try_from(total / 100 * DEFAULT_LIMIT_PERCENT).ok()
}

/// There is no room now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the gateway is over its memory limit")]
pub struct NoRoom;

/// Counts a request of a receiver that was refused because memory or processors are too short for it.
pub fn count_refusal(receiver: &Arc<str>, reason: &'static str) {
    metrics::counter!("tidegate_memory_refusals_total", "receiver" => receiver.clone(), "reason" => reason)
        .increment(1);
}

/// One a gateway.
#[derive(Debug)]
pub struct Account {
    /// What was measured, reserved and filled; the limit is the smallest of `limits`.
    counters: Counters,
    limits: Mutex<Limits>,
    /// A quarter of `limit`: what a table's series may take where its configuration does not say.
    of_a_table: Arc<AtomicUsize>,
    /// Whether it is that of this process: set once it is watched.
    is_live: AtomicBool,
    /// Bodies that are on their way.
    arriving: AtomicUsize,
    freed: Notify,
    shortage: Notify,
    began: Instant,
    /// Milliseconds after `began`.
    short_until: AtomicU64,
}

/// What limits there are.
#[derive(Debug, Default)]
struct Limits {
    /// Of every memory limiter that runs.
    of_limiters: Vec<usize>,
    /// Where there is none.
    default: Option<usize>,
}

impl Limits {
    fn least(&self) -> usize {
        let of_limiters = self.of_limiters.iter().copied().min();
        of_limiters.or(self.default).unwrap_or(usize::MAX)
    }
}

impl Default for Account {
    fn default() -> Self {
        Self {
            counters: Counters::default(),
            limits: Mutex::default(),
            of_a_table: Arc::new(AtomicUsize::new(usize::MAX)),
            is_live: AtomicBool::new(false),
            arriving: AtomicUsize::new(0),
            freed: Notify::new(),
            shortage: Notify::new(),
            began: Instant::now(),
            short_until: AtomicU64::new(0),
        }
    }
}

impl Account {
    /// A memory limiter begins: no more than so many bytes are to be used.
    pub fn add_limit(&self, bytes: usize) {
        self.change_limits(|limits| limits.of_limiters.push(bytes));
    }

    /// It ends.
    pub fn remove_limit(&self, bytes: usize) {
        self.change_limits(|limits| {
            let mut known = limits.of_limiters.iter();
            if let Some(at) = known.position(|limit| *limit == bytes) {
                limits.of_limiters.swap_remove(at);
            }
        });
    }

    /// No more than so many bytes are to be used while no memory limiter runs.
    pub fn set_default_limit(&self, bytes: usize) {
        self.change_limits(|limits| limits.default = Some(bytes));
    }

    /// Whether the limit is that of a memory limiter, which also measures.
    fn has_limiter(&self) -> bool {
        let limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        !limits.of_limiters.is_empty()
    }

    fn change_limits(&self, change: impl FnOnce(&mut Limits)) {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut limits);
        let limit = limits.least();
        self.counters.set_limit(limit);
        let of_a_table = if limit == usize::MAX { limit } else { limit / 4 };
        self.of_a_table.store(of_a_table, Relaxed);
    }

    /// Measures once a second from now on, for ever, while no memory limiter does.
    pub(crate) async fn watch(&self) {
        self.is_live.store(true, Relaxed);
        let mut ticks = tokio::time::interval(MEASURE_EVERY);
        loop {
            ticks.tick().await;
            if !self.has_limiter() && self.measure().is_ok() {
                self.tell_the_waiting();
            }
        }
    }

    /// The most that may be used.
    pub fn limit(&self) -> usize {
        self.counters.limit()
    }

    /// What the series of a table may take where its configuration does not say: a quarter of the limit, also of one that
    /// comes later.
    pub(crate) fn bytes_of_a_table(&self) -> Arc<AtomicUsize> {
        self.of_a_table.clone()
    }

    /// The process uses so many bytes now.
    pub fn note(&self, measured: usize) {
        self.counters.note(self.counters.begin(), measured);
        self.tell_the_waiting();
    }

    /// What was measured, and what was promised or came since.
    pub fn used_bytes(&self) -> usize {
        self.counters.used()
    }

    /// Whether more is used than the limit allows.
    pub fn over_limit(&self) -> bool {
        self.uses_more_than(self.limit())
    }

    /// Whether more than so many bytes are used.
    pub fn uses_more_than(&self, limit: usize) -> bool {
        !self.holds_again(|| self.used_bytes() <= limit)
    }

    /// Whether so many more bytes could be reserved now.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.holds_again(|| {
            let reserved = self.counters.reserved().saturating_add(bytes);
            self.counters.used_with(reserved) <= self.limit()
        })
    }

    /// Nobody is refused for what was given back to the system since the last measurement.
    fn holds_again(&self, mut condition: impl FnMut() -> bool) -> bool {
        condition() || (self.measure_again() && condition())
    }

    /// Whether so many bytes could be reserved if nothing else were held.
    pub fn can_ever_hold(&self, bytes: usize) -> bool {
        resident(bytes) <= self.limit()
    }

    /// Bytes that are reserved.
    pub fn reserved_bytes(&self) -> usize {
        self.counters.reserved()
    }

    /// Bytes of reservations that are there.
    pub fn filled_bytes(&self) -> usize {
        self.counters.filled()
    }

    /// Notes bytes that the gateway holds already.
    pub fn hold(&self, bytes: usize) {
        self.counters.fill(bytes, bytes);
    }

    /// Notes that it has let go of them.
    pub fn release(&self, bytes: usize) {
        self.give_back(bytes, bytes);
    }

    fn give_back(&self, reserved: usize, filled: usize) {
        if self.counters.give_back(reserved, filled) {
            self.freed.notify_waiters();
        }
    }

    fn tell_the_waiting(&self) {
        if self.counters.has_waiting() {
            self.freed.notify_waiters();
        }
    }

    /// Measures now.
    fn measure(&self) -> io::Result<()> {
        let begun = self.counters.begin();
        let resident = measure::resident_bytes()?;
        self.counters
            .note(begun, usize::try_from(resident).unwrap_or(usize::MAX));
        Ok(())
    }

    /// The same, if this is the account of this process.
    fn measure_again(&self) -> bool {
        self.is_live.load(Relaxed) && self.measure().is_ok()
    }

    fn reserve(&self, bytes: usize) -> Result<(), NoRoom> {
        if bytes >= LARGE {
            self.measure_again();
        }
        match self.holds_again(|| self.counters.reserve(bytes)) {
            true => Ok(()),
            false => {
                self.run_short();
                Err(NoRoom)
            }
        }
    }

    /// Bodies that lag behind lose their room from now on, for a while.
    pub(crate) fn run_short(&self) {
        let until = self.began.elapsed() + SHORT_FOR;
        let until = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        self.short_until.fetch_max(until, Relaxed);
        self.shortage.notify_waiters();
    }

    /// Whether room was refused just now.
    pub(crate) fn is_short(&self) -> bool {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        now < self.short_until.load(Relaxed)
    }

    /// Returns when room is refused to somebody.
    pub(crate) fn shortage(&self) -> impl Future<Output = ()> {
        self.shortage.notified()
    }
}

/// One who waits for room, as long as he does.
struct Waiting<'a>(&'a Counters);

impl<'a> Waiting<'a> {
    fn on(account: &'a Account) -> Self {
        account.counters.wait();
        Self(&account.counters)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.go_on();
    }
}

/// A body that is on its way, until this is dropped.
pub(crate) struct Arriving(Arc<Account>);

impl Arriving {
    pub(crate) fn on(account: Arc<Account>) -> Self {
        account.arriving.fetch_add(1, Relaxed);
        Self(account)
    }

    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.0
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.0.arriving.fetch_sub(1, Relaxed);
    }
}

/// Bytes reserved in the account until this is dropped.
#[derive(Debug)]
pub struct Held {
    account: Arc<Account>,
    reserved: usize,
    filled: usize,
}

impl Held {
    /// None yet.
    pub fn new(account: Arc<Account>) -> Self {
        Self {
            account,
            reserved: 0,
            filled: 0,
        }
    }

    /// Where it is reserved.
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Bytes reserved.
    pub fn bytes(&self) -> usize {
        self.reserved
    }

    /// All of it as a reservation of its own; nothing is left here.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.account.clone()))
    }

    /// Reserves so many bytes more.
    ///
    /// # Errors
    /// There is no room for them now.
    pub fn try_grow(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if bytes > 0 {
            self.account.reserve(bytes)?;
            self.reserved += bytes;
        }
        Ok(())
    }

    /// Reserves at least so many bytes in all.
    ///
    /// # Errors
    /// There is no room for them now.
    pub fn try_grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.try_grow(bytes.saturating_sub(self.reserved))
    }

    /// The same, after a short wait where that is needed.
    ///
    /// # Errors
    /// Nobody has made room meanwhile.
    pub async fn grow_in_time(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if self.try_grow_to(bytes).is_ok() {
            return Ok(());
        }
        let account = self.account.clone();
        let deadline = Instant::now() + LONGEST_WAIT;
        let _waiting = Waiting::on(&account);
        loop {
            let mut freed = pin!(account.freed.notified());
            freed.as_mut().enable();
            if self.try_grow_to(bytes).is_ok() {
                return Ok(());
            }
            if timeout_at(deadline, freed).await.is_err() {
                return self.try_grow_to(bytes);
            }
        }
    }

    /// Makes sure that there is room for a body of `promised` bytes, and reserves the first `bytes` of it. Waits shortly
    /// where bodies are on their way that may lose theirs.
    ///
    /// # Errors
    /// There is no room.
    pub async fn begin(&mut self, promised: usize, bytes: usize) -> Result<(), NoRoom> {
        let account = self.account.clone();
        // Of a call whose first bytes say how long it is.
        let own = usize::from(self.filled > 0);
        let mut begin = || match account.has_room(promised) {
            true => self.try_grow_to(bytes),
            false => Err(NoRoom),
        };
        if begin().is_ok() {
            return Ok(());
        }
        let deadline = Instant::now() + LONGEST_WAIT;
        let _waiting = Waiting::on(&account);
        loop {
            let mut freed = pin!(account.freed.notified());
            freed.as_mut().enable();
            if begin().is_ok() {
                return Ok(());
            }
            account.run_short();
            if account.arriving.load(Relaxed) <= own || timeout_at(deadline, freed).await.is_err() {
                return Err(NoRoom);
            }
        }
    }

    /// So many bytes in all are there. More than is reserved is reserved now, since nobody can refuse what is there.
    pub fn fill_to(&mut self, bytes: usize) {
        let more = bytes.saturating_sub(self.filled);
        self.filled += more;
        let unreserved = self.filled.saturating_sub(self.reserved);
        self.reserved += unreserved;
        self.account.counters.fill(more, unreserved);
    }

    /// Reserves so many bytes more, whether there is room or not.
    pub(crate) fn promise(&mut self, bytes: usize) {
        self.account.counters.promise(bytes);
        self.reserved += bytes;
    }

    /// So many more of those reserved are there.
    pub fn fill(&mut self, bytes: usize) {
        self.fill_to(self.filled.saturating_add(bytes));
    }

    /// So many bytes more are there already.
    pub fn grow(&mut self, bytes: usize) {
        self.account.hold(bytes);
        self.reserved += bytes;
        self.filled += bytes;
    }

    /// Gives back so many bytes, first those that are not there.
    pub fn shrink(&mut self, bytes: usize) {
        let reserved = self.reserved.saturating_sub(bytes);
        let filled = self.filled.min(reserved);
        self.account
            .give_back(self.reserved - reserved, self.filled - filled);
        (self.reserved, self.filled) = (reserved, filled);
    }

    /// Of all that was reserved, so many bytes remain, and they are there.
    pub fn settle(&mut self, bytes: usize) {
        self.shrink(self.reserved.saturating_sub(bytes));
        self.fill_to(bytes);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.account.give_back(self.reserved, self.filled);
    }
}

#[cfg(test)]
mod tests;
