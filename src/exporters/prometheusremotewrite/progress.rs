// SPDX-License-Identifier: Apache-2.0

//! The progress of writing a batch: its chunks by shard, and its losses. The task that writes a chunk removes it
//! only after the result is known. So an attempt may end anywhere, and the next one continues there.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use crate::component::{Held, Reason};
use crate::delivery::{EncodingPermit, Loss};
use crate::prom::remote::series::{Group, Series};
use crate::prom::remote::translate::Translation;

/// Requests that the search for what is refused in one may cost: one bad series of 8,192 takes 26, and a receiver that
/// refuses everything is not asked for every single one.
const MAX_SEARCH: u32 = 64;

/// The content of one request: consecutive groups of its shard.
pub(super) struct Chunk {
    all: Arc<Vec<Group>>,
    run: Range<usize>,
    /// Requests left to the search that this is a part of.
    search: Option<Arc<AtomicU32>>,
}

impl Chunk {
    fn groups(&self) -> &[Group] {
        self.all.get(self.run.clone()).unwrap_or_default()
    }

    pub(super) fn series(&self) -> impl Iterator<Item = &Series> {
        self.groups().iter().flat_map(|group| &group.series)
    }

    pub(super) fn points(&self) -> usize {
        self.groups().iter().map(|group| group.points).sum()
    }

    /// About.
    pub(super) fn bytes(&self) -> usize {
        self.groups().iter().map(Group::bytes).sum()
    }

    /// The name of its first series, for logs.
    fn name(&self) -> &str {
        self.series().next().map_or("", |series| series.identity.name())
    }
}

/// Splits the groups of a shard into chunks of at most `max_bytes`, as far as possible.
fn cut(groups: Vec<Group>, max_bytes: usize) -> VecDeque<Arc<Chunk>> {
    let (mut chunks, mut start, mut size) = (VecDeque::new(), 0, 0);
    let all = Arc::new(groups);
    let mut push = |run: Range<usize>| {
        if !run.is_empty() {
            let (all, search) = (all.clone(), None);
            chunks.push_back(Arc::new(Chunk { all, run, search }));
        }
    };
    for (at, group) in all.iter().enumerate() {
        let bytes = group.bytes();
        if size + bytes > max_bytes {
            push(start..at);
            (start, size) = (at, 0);
        }
        size += bytes;
    }
    push(start..all.len());
    chunks
}

/// The progress of one batch.
pub(super) struct Progress {
    shards: Vec<Mutex<VecDeque<Arc<Chunk>>>>,
    losses: Mutex<Vec<Loss>>,
    /// The message of the receiver when it denied access.
    denied: Mutex<Option<String>>,
    /// Room for all of it, as long as any of it is to be written.
    _held: Held,
}

impl Progress {
    /// Everything is still to be written. Groups stay in the order they are in within their shard.
    pub(super) fn new(
        translation: Translation,
        shards: usize,
        max_bytes: usize,
        permit: EncodingPermit,
    ) -> Self {
        let bytes = translation.groups.iter().map(Group::bytes).sum::<usize>();
        let mut dealt: Vec<Vec<Group>> = vec![Vec::new(); shards.max(1)];
        let shards = dealt.len() as u64;
        for group in translation.groups {
            let shard = usize::try_from(group.hash % shards).unwrap_or(0);
            if let Some(dealt) = dealt.get_mut(shard) {
                dealt.push(group);
            }
        }
        let chunked = |groups| Mutex::new(cut(groups, max_bytes));
        let losses = translation.dropped.into_iter();
        Self {
            shards: dealt.into_iter().map(chunked).collect(),
            denied: Mutex::default(),
            // Lists have room to grow; labels are shared with what is known of the series.
            _held: permit.finish_with(2 * bytes),
            losses: Mutex::new(
                losses
                    .map(|(reason, items, why)| Loss { items, reason, why })
                    .collect(),
            ),
        }
    }

    /// Shards that have something left.
    pub(super) fn open(&self) -> Vec<usize> {
        (0..self.shards.len())
            .filter(|shard| self.next(*shard).is_some())
            .collect()
    }

    /// The next chunk to write.
    pub(super) fn next(&self, shard: usize) -> Option<Arc<Chunk>> {
        self.shard(shard)?.front().cloned()
    }

    /// The receiver has it.
    pub(super) fn taken(&self, shard: usize) {
        if let Some(mut chunks) = self.shard(shard) {
            chunks.pop_front();
        }
    }

    /// Counts points that the receiver permanently refuses.
    pub(super) fn lost(&self, shard: usize, items: usize, reason: Reason, why: String) {
        self.taken(shard);
        let mut losses = self.losses();
        match losses.iter_mut().find(|loss| loss.reason == reason) {
            Some(loss) => loss.items += items,
            None if items > 0 => losses.push(Loss { items, reason, why }),
            None => {}
        }
    }

    /// Halves a refused chunk until bad items are alone, or the search has cost enough.
    pub(super) fn halve(&self, shard: usize, searches: bool, may: bool, why: String) {
        let Some(chunk) = self.next(shard) else { return };
        let search = chunk
            .search
            .clone()
            .unwrap_or_else(|| Arc::new(MAX_SEARCH.into()));
        let goes_on = || {
            let left = search.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(2));
            !searches || left.is_ok()
        };
        if chunk.run.len() <= 1 {
            let why = format!("`{}`: {why}", chunk.name());
            return self.lost(shard, chunk.points(), Reason::Rejected, why);
        }
        if !may || !goes_on() {
            return self.lost(shard, chunk.points(), Reason::Rejected, why);
        }
        let middle = chunk.run.start + chunk.run.len() / 2;
        let search = searches.then_some(search).or_else(|| chunk.search.clone());
        if let Some(mut chunks) = self.shard(shard) {
            chunks.pop_front();
            for run in [middle..chunk.run.end, chunk.run.start..middle] {
                let (all, search) = (chunk.all.clone(), search.clone());
                chunks.push_front(Arc::new(Chunk { all, run, search }));
            }
        }
    }

    /// Notes that the receiver denies access, and why.
    pub(super) fn deny(&self, why: &str) {
        *self.denied.lock() = Some(why.to_owned());
    }

    pub(super) fn take_denied(&self) -> Option<String> {
        self.denied.lock().take()
    }

    /// The losses since the last call.
    pub(super) fn take_losses(&self) -> Vec<Loss> {
        std::mem::take(&mut *self.losses())
    }

    /// Points that are still to be written.
    pub(super) fn points_left(&self) -> usize {
        let shards = (0..self.shards.len()).filter_map(|shard| self.shard(shard));
        shards
            .map(|chunks| chunks.iter().map(|chunk| chunk.points()).sum::<usize>())
            .sum()
    }

    fn shard(&self, shard: usize) -> Option<MutexGuard<'_, VecDeque<Arc<Chunk>>>> {
        let shard = self.shards.get(shard)?;
        Some(shard.lock())
    }

    fn losses(&self) -> MutexGuard<'_, Vec<Loss>> {
        self.losses.lock()
    }
}
