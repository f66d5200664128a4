// SPDX-License-Identifier: Apache-2.0

//! The memory that a request has reserved.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::senders::{InLine, SenderKey, Share};
use super::{Account, Ceiling, LARGE, NoRoom, resident};

/// A sender is small while it has at most this part of the limit, or 1 MiB.
const LITTLE: usize = 16;

/// This part of the limit is left to small senders: requests of large ones are refused first.
const SPARED: usize = 8;

/// A waiting body of unknown length wants this many bytes. The part that has arrived is in the receive window of its
/// connection, which no account counts.
const UNKNOWN: usize = 256 << 10;

/// Bytes reserved in the account until this is dropped.
#[derive(Debug)]
pub struct Held {
    account: Arc<Account>,
    ceiling: Ceiling,
    /// Whether the gateway itself holds it: no part of the limit is kept from it.
    is_ours: bool,
    /// The share of its sender, if the sender is known.
    share: Option<Arc<Share>>,
    pub(super) reserved: usize,
    pub(super) filled: usize,
}

impl Held {
    /// An empty reservation for data that stays in memory.
    pub fn new(account: Arc<Account>) -> Self {
        Self::under(Ceiling::Soft, account)
    }

    /// An empty reservation under `ceiling`.
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

    /// An empty reservation for the gateway's own work on data that it has taken. No part of the limit is kept from it.
    pub fn ours(account: Arc<Account>) -> Self {
        let mut ours = Self::new(account);
        ours.is_ours = true;
        ours
    }

    /// Counts it on the share of its sender.
    pub fn of(mut self, sender: Option<SenderKey>) -> Self {
        self.share = sender.and_then(|sender| self.account.senders.share(sender));
        self
    }

    /// The most bytes that may be in use once `bytes` more are reserved here. Part of the limit is left to small
    /// senders.
    fn most_with(&self, bytes: usize) -> usize {
        let limit = self.account.limit_under(self.ceiling);
        if self.is_ours {
            return limit;
        }
        let of_sender = self.share.as_ref().map_or(0, |share| share.bytes());
        let own = self.reserved.max(of_sender).saturating_add(bytes);
        if own > (limit / LITTLE).max(LARGE) {
            self.limit_of_the_large()
        } else {
            limit
        }
    }

    /// The most bytes that may be in use by large senders. It never exceeds the soft limit: a large buffer takes more
    /// than its bytes while it grows.
    fn limit_of_the_large(&self) -> usize {
        let limit = self.account.limit_under(self.ceiling);
        (limit - limit / SPARED).min(self.account.limit_under(Ceiling::Soft))
    }

    /// Whether `bytes` more could be reserved if nothing else were reserved.
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

    /// The ceiling that it is reserved under.
    pub fn ceiling(&self) -> Ceiling {
        self.ceiling
    }

    /// The account that it is reserved in.
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// The bytes that are reserved.
    pub fn bytes(&self) -> usize {
        self.reserved
    }

    /// Moves all of it into a reservation of its own; nothing is left here.
    pub fn take(&mut self) -> Self {
        let mut rest = Self::under(self.ceiling, self.account.clone());
        rest.is_ours = self.is_ours;
        rest.share.clone_from(&self.share);
        std::mem::replace(self, rest)
    }

    /// Reserves `bytes` more.
    ///
    /// # Errors
    /// The limit leaves no room for them now.
    pub fn try_grow(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if bytes > 0 {
            self.account.reserve(bytes, self.most_with(bytes), self.ceiling)?;
            self.reserved += bytes;
            self.share_grows(bytes);
        }
        Ok(())
    }

    /// Reserves at least `bytes` in all.
    ///
    /// # Errors
    /// The limit leaves no room for them now.
    pub fn try_grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.try_grow(bytes.saturating_sub(self.reserved))
    }

    /// Reserves `bytes` more for work that can wait. No body that is being received loses its room for it.
    ///
    /// # Errors
    /// The limit leaves no room for them now.
    pub fn try_grow_quietly(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if bytes > 0 {
            self.account.reserve_quietly(bytes, self.most_with(bytes))?;
            self.reserved += bytes;
            self.share_grows(bytes);
        }
        Ok(())
    }

    /// Reserves at least `bytes` in all, after a short wait if necessary.
    ///
    /// # Errors
    /// No room came free in time, or too many requests wait.
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

    /// Checks that a body of `promised` bytes has room, and reserves its first `bytes`. It waits a short time while
    /// bodies are being received that may lose their room.
    ///
    /// # Errors
    /// No room came free.
    pub async fn begin(&mut self, promised: usize, bytes: usize) -> Result<(), NoRoom> {
        let account = self.account.clone();
        let ceiling = self.ceiling;
        // A call that has sent the first bytes, with its length, counts itself.
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

    /// Notes that `bytes` in all are allocated. It reserves any excess over the reservation now: nothing can refuse it.
    pub fn fill_to(&mut self, bytes: usize) {
        let more = bytes.saturating_sub(self.filled);
        if more == 0 {
            return;
        }
        self.filled += more;
        let unreserved = self.filled.saturating_sub(self.reserved);
        self.reserved += unreserved;
        self.account.counters.fill(more, unreserved);
        self.share_grows(unreserved);
    }

    /// Reserves `bytes` more, even without room.
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

    /// Notes that `bytes` more of the reservation are allocated.
    pub fn fill(&mut self, bytes: usize) {
        self.fill_to(self.filled.saturating_add(bytes));
    }

    /// Reserves `bytes` more that are allocated already.
    pub fn grow(&mut self, bytes: usize) {
        self.account.hold(bytes);
        self.reserved += bytes;
        self.filled += bytes;
        self.share_grows(bytes);
    }

    /// Gives back `bytes`, first those that are not allocated.
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

    /// Keeps `bytes` of the reservation, all of them allocated, and gives back the rest.
    pub fn keep(&mut self, bytes: usize) {
        self.shrink(self.reserved.saturating_sub(bytes));
        self.fill_to(bytes);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink(self.reserved);
    }
}
