// SPDX-License-Identifier: Apache-2.0

//! The share of each sender in the memory. A sender that fills it is refused before small senders are.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tokio::time::Instant;

/// The most senders with a share of their own. Further senders have none: each of their requests counts by itself.
const MAX_SENDERS: usize = 4096;

/// The half-life of a sender's recent bytes, in seconds. Bytes that have moved on into a queue count too.
const HALF_LIFE_SECONDS: f64 = 1.0;

/// A key of a sender: its authenticated identity, or its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SenderKey(u64);

/// The shares of all senders that have sent something.
#[derive(Debug, Default)]
pub(super) struct Senders {
    known: Mutex<HashMap<SenderKey, Arc<Share>>>,
}

/// The share of one sender.
#[derive(Debug)]
pub(super) struct Share {
    /// Bytes reserved for its requests.
    held: AtomicUsize,
    /// The number of its requests that wait for a slot.
    waiting: AtomicUsize,
    recent: Mutex<Recent>,
}

/// Bytes that a sender was given recently.
#[derive(Debug)]
struct Recent {
    bytes: f64,
    at: Instant,
}

impl SenderKey {
    /// The key of an identity. Keys differ in every process, so that no sender can choose the key of another.
    pub fn of(who: impl Hash) -> Self {
        static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(STATE.hash_one(who))
    }
}

impl Senders {
    /// The share of a sender; `None`: too many are known.
    pub(super) fn share(&self, sender: SenderKey) -> Option<Arc<Share>> {
        let mut known = self.known.lock();
        if let Some(share) = known.get(&sender) {
            return Some(share.clone());
        }
        if known.len() >= MAX_SENDERS {
            known.retain(|_, share| share.bytes() > 0);
        }
        if known.len() >= MAX_SENDERS {
            return None;
        }
        let share = Arc::new(Share {
            held: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            recent: Mutex::new(Recent {
                bytes: 0.0,
                at: Instant::now(),
            }),
        });
        known.insert(sender, share.clone());
        Some(share)
    }
}

/// A request that waits for a slot, until this is dropped.
#[derive(Debug)]
pub(crate) struct InLine(Option<Arc<Share>>);

impl InLine {
    /// One more of a sender, if it is known; `None`: `most` of this sender wait already.
    pub(super) fn of(sender: Option<Arc<Share>>, most: usize) -> Option<Self> {
        let before = sender.as_ref().map(|share| share.waiting.fetch_add(1, Relaxed));
        let line = Self(sender);
        before.is_none_or(|before| before < most).then_some(line)
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        if let Some(share) = &self.0 {
            share.waiting.fetch_sub(1, Relaxed);
        }
    }
}

impl Share {
    pub(super) fn grow(&self, bytes: usize) {
        self.held.fetch_add(bytes, Relaxed);
        let mut recent = self.recent.lock();
        recent.decay();
        recent.bytes += bytes as f64;
    }

    pub(super) fn shrink(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Relaxed);
    }

    /// The bytes that it has now or was given recently, whichever is more.
    pub(super) fn bytes(&self) -> usize {
        let mut recent = self.recent.lock();
        recent.decay();
        self.held.load(Relaxed).max(recent.bytes as usize)
    }
}

impl Recent {
    fn decay(&mut self) {
        let now = Instant::now();
        let halves = now.saturating_duration_since(self.at).as_secs_f64() / HALF_LIFE_SECONDS;
        self.bytes *= (-halves).exp2();
        self.at = now;
    }
}
