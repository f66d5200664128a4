//! What a request has reserved.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::senders::{InLine, SenderKey, Share};
use super::{Account, Ceiling, LARGE, NoRoom, resident};

/// A sender has little while it has no more than this part of the limit, or a mebibyte.
const LITTLE: usize = 16;

/// This part of the limit is left to senders who have little: those who fill the rest are refused first.
const SPARED: usize = 8;

/// A body of a length that nobody has said wants so much while it waits. What has come of it lies in the window of its
/// connection, on nobody's account.
const UNKNOWN: usize = 256 << 10;

/// Bytes reserved in the account until this is dropped.
#[derive(Debug)]
pub struct Held {
    account: Arc<Account>,
    ceiling: Ceiling,
    /// Whether no sender has it: it may take all that there is.
    is_ours: bool,
    /// What the same sender has, where it is known.
    share: Option<Arc<Share>>,
    pub(super) reserved: usize,
    pub(super) filled: usize,
}

impl Held {
    /// None yet, for what stays in memory.
    pub fn new(account: Arc<Account>) -> Self {
        Self::under(Ceiling::Soft, account)
    }

    /// None yet.
    pub fn under(ceiling: Ceiling, account: Arc<Account>) -> Self {
        Self {
            account,
            ceiling,
            is_ours: false,
            share: None,
            reserved: 0,
            filled: 0,
        }
    }

    /// None yet, for what the gateway does with data that it has taken. No part of the limit is kept from it.
    pub fn ours(account: Arc<Account>) -> Self {
        let mut ours = Self::new(account);
        ours.is_ours = true;
        ours
    }

    /// The same; what a sender has is on one share.
    pub fn of(mut self, sender: Option<SenderKey>) -> Self {
        self.share = sender.and_then(|sender| self.account.senders.share(sender));
        self
    }

    /// The most that may be used once so many bytes more are reserved here. Part of the limit is left to those who have
    /// little.
    fn most_with(&self, bytes: usize) -> usize {
        let limit = self.account.limit_under(self.ceiling);
        if self.is_ours {
            return limit;
        }
        let of_sender = self.share.as_ref().map_or(0, |share| share.bytes());
        let own = self.reserved.max(of_sender).saturating_add(bytes);
        match own > (limit / LITTLE).max(LARGE) {
            true => self.limit_of_the_large(),
            false => limit,
        }
    }

    /// The most that may be used by those who have much: never more than the soft limit, since a large buffer takes more than
    /// its bytes while it grows.
    fn limit_of_the_large(&self) -> usize {
        let limit = self.account.limit_under(self.ceiling);
        (limit - limit / SPARED).min(self.account.limit_under(Ceiling::Soft))
    }

    /// Whether so many bytes more could be reserved if nothing else were held.
    pub fn could_ever_grow(&self, bytes: usize) -> bool {
        let bytes = self.reserved.saturating_add(bytes);
        let limit = self.account.limit_under(self.ceiling);
        resident(bytes) <= self.limit_of_the_large()
            || bytes <= (limit / LITTLE).max(LARGE) && resident(bytes) <= limit
    }

    /// Counts a request that waits for a slot among those of its sender; `None`: `most` of them wait already.
    pub(crate) fn wait_in_line(&self, most: usize) -> Option<InLine> {
        InLine::of(self.share.clone(), most)
    }

    /// How much of the memory it may take.
    pub fn ceiling(&self) -> Ceiling {
        self.ceiling
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
        let mut rest = Self::under(self.ceiling, self.account.clone());
        rest.is_ours = self.is_ours;
        rest.share.clone_from(&self.share);
        std::mem::replace(self, rest)
    }

    /// Reserves so many bytes more.
    ///
    /// # Errors
    /// There is no room for them now.
    pub fn try_grow(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if bytes > 0 {
            self.account.reserve(bytes, self.most_with(bytes), self.ceiling)?;
            self.reserved += bytes;
            self.share_grows(bytes);
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

    /// Reserves so many bytes more for what can wait: no body that is on its way loses its room for it.
    ///
    /// # Errors
    /// There is no room for them now.
    pub fn try_grow_quietly(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if bytes > 0 {
            self.account.reserve_quietly(bytes, self.most_with(bytes))?;
            self.reserved += bytes;
            self.share_grows(bytes);
        }
        Ok(())
    }

    /// Reserves at least so many bytes in all, after a short wait where that is needed.
    ///
    /// # Errors
    /// Nobody has made room meanwhile, or too many wait.
    pub async fn grow_in_time(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if self.try_grow_to(bytes).is_ok() {
            return Ok(());
        }
        let account = self.account.clone();
        let more = bytes.saturating_sub(self.reserved);
        account
            .in_time(more, || self.try_grow_to(bytes).is_ok(), || true)
            .await
    }

    /// Makes sure that there is room for a body of `promised` bytes, and reserves the first `bytes` of it. Waits shortly
    /// where bodies are on their way that may lose theirs.
    ///
    /// # Errors
    /// There is no room.
    pub async fn begin(&mut self, promised: usize, bytes: usize) -> Result<(), NoRoom> {
        let account = self.account.clone();
        let ceiling = self.ceiling;
        // Of a call whose first bytes say how long it is.
        let own = usize::from(self.filled > 0);
        let mut begin =
            || account.has_room_within(promised, self.most_with(promised)) && self.try_grow_to(bytes).is_ok();
        if begin() {
            return Ok(());
        }
        let may_lose_theirs = || {
            account.run_short(ceiling);
            account.arriving.load(Relaxed) > own
        };
        let wanted = match promised.max(bytes) {
            0 => UNKNOWN,
            known => known,
        };
        account.in_time(wanted, begin, may_lose_theirs).await
    }

    /// So many bytes in all are there. More than is reserved is reserved now, since nobody can refuse what is there.
    pub fn fill_to(&mut self, bytes: usize) {
        let more = bytes.saturating_sub(self.filled);
        self.filled += more;
        let unreserved = self.filled.saturating_sub(self.reserved);
        self.reserved += unreserved;
        self.account.counters.fill(more, unreserved);
        self.share_grows(unreserved);
    }

    /// Reserves so many bytes more, whether there is room or not.
    pub fn promise(&mut self, bytes: usize) {
        self.account.counters.promise(bytes);
        self.reserved += bytes;
        self.share_grows(bytes);
    }

    fn share_grows(&self, bytes: usize) {
        if let Some(share) = &self.share {
            share.grow(bytes);
        }
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
        self.share_grows(bytes);
    }

    /// Gives back so many bytes, first those that are not there.
    pub fn shrink(&mut self, bytes: usize) {
        let reserved = self.reserved.saturating_sub(bytes);
        let filled = self.filled.min(reserved);
        let gone = self.reserved - reserved;
        self.account.give_back(gone, self.filled - filled);
        if let Some(share) = &self.share {
            share.shrink(gone);
        }
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
        self.shrink(self.reserved);
    }
}
