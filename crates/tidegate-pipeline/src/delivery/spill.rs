// SPDX-License-Identifier: Apache-2.0

//! The part of a queue that is on disk.
//!
//! A batch has one of three placements. *Memory*: it is not written. *Both*: it is written, and in memory at once.
//! *Disk*: it is written, and read back when memory has space. While a batch waits only on disk, all later batches
//! go to disk too, which preserves the order. A batch on disk is settled when its last piece is delivered or
//! dropped.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_wal::store::ReserveError;
use tidegate_wal::{
    Append, Completions, Done, Purpose, READ_BYTES, ReadRoom, Recovered, Share, State, Storage, Store,
    snapshot,
};
use tokio::sync::Notify;

use super::ack_guard::{AckGuard, ItemCounter, WriteFailure};
use super::capacity::{CapacityError, QueueCapacity, QueuePermit};
use super::config::StorageMode;
use super::export_request::{BatchKey, ExportRequest};
use super::stored;
use super::temporality::Conversion;
use crate::batch::{Batch, Signal};
use crate::component::{Account, ComponentError, Context, Held};

/// The log of a queue, and the mode of its use.
pub(super) struct Spill {
    store: Arc<Store>,
    mode: StorageMode,
    claimed: ItemCounter,
    /// The part of `claimed` that a previous run left.
    restored: ItemCounter,
    /// The first record number of this run. Smaller numbers are from a previous run.
    first_seq: u64,
    /// The file for the positions of the conversion at the stop, if the batches don't carry them.
    at_stop: Option<(PathBuf, Arc<Conversion>)>,
    /// The requests that only the disk has since the stop, if it can write them.
    kept: Mutex<Vec<KeptRequest>>,
}

/// A request that the next run finds, unless the write of a record has failed.
pub(super) struct KeptRequest {
    pub(super) batch_key: BatchKey,
    pub(super) items: usize,
    pub(super) failures: Vec<WriteFailure>,
}

/// The options of one append.
#[derive(Default)]
pub(super) struct AppendOptions {
    /// The disk space reserved for it.
    pub(super) share: Option<Share>,
    /// Whether the batch is in memory too; its guard then settles the record.
    pub(super) claimed: bool,
    /// Called after the write, with its result.
    pub(super) done: Option<Done>,
    /// Set by `done` if the write of a claimed batch has failed.
    pub(super) failure: WriteFailure,
}

/// The placement of a batch, with its reserved capacity.
pub(super) enum Placement {
    Memory(QueuePermit),
    Both(QueuePermit, Share),
    Disk(Share),
}

/// The overhead of a record, in bytes.
const RECORD_BYTES: u64 = 256;

impl Spill {
    /// Opens the log of a component. The store signals `wake` after a read or a failure. Blocks the thread.
    pub(super) fn open(
        context: &Context,
        storage: &Storage,
        mode: StorageMode,
        wake: Arc<Notify>,
        conversion: Option<Arc<Conversion>>,
    ) -> Result<(Self, Recovered), ComponentError> {
        let directory = storage.directory_of(&context.path);
        let at_stop = match mode {
            StorageMode::Spill => conversion
                .clone()
                .map(|conversion| (directory.clone(), conversion)),
            StorageMode::Always => None,
        };
        let state = match mode {
            StorageMode::Always => conversion.map(|conversion| conversion as Arc<dyn State>),
            StorageMode::Spill => {
                conversion
                    .iter()
                    .for_each(|conversion| snapshot::take(&directory, &**conversion));
                None
            }
        };
        let opened = Store::open(
            context.path.clone(),
            &directory,
            &storage.rules,
            storage.quota.clone(),
            wake,
            state,
        );
        let (store, recovered) = opened.map_err(|error| {
            let shown = directory.display();
            context.error(format!("sending_queue::storage: `{shown}`: {error}"))
        })?;
        context.shared.watch_log(&context.path, &store);
        let store = Arc::new(store);
        let spill = Self {
            first_seq: store.next_seq(),
            store,
            mode,
            claimed: ItemCounter::default(),
            restored: ItemCounter::default(),
            at_stop,
            kept: Mutex::default(),
        };
        let found = recovered.items.iter().sum::<u64>();
        spill.restored.add(usize::try_from(found).unwrap_or(usize::MAX));
        Ok((spill, recovered))
    }

    /// Decides the placement of a batch and reserves its capacity.
    pub(super) fn admit(
        &self,
        capacity: &Arc<QueueCapacity>,
        batch: &Batch,
    ) -> Result<Placement, CapacityError> {
        let in_memory = match self.store.backlog() {
            0 => capacity.reserve(batch).ok(),
            _ => None,
        };
        if let (StorageMode::Spill, Some(_)) = (self.mode, &in_memory) {
            return in_memory.map(Placement::Memory).ok_or(CapacityError::Full);
        }
        let bytes = batch.bytes() as u64 + RECORD_BYTES;
        match (self.store.reserve(bytes), in_memory) {
            (Ok(Some(share)), Some(permit)) => Ok(Placement::Both(permit, share)),
            (Ok(Some(share)), None) => Ok(Placement::Disk(share)),
            // Without a promise to store, a failed disk does not refuse a batch that fits into memory.
            (_, _) if self.mode == StorageMode::Spill => capacity.reserve(batch).map(Placement::Memory),
            (Ok(None), _) => Err(CapacityError::Full),
            (Err(ReserveError::NeverFits), _) => Err(CapacityError::TooLarge),
            (Err(ReserveError::Ended(why)), _) => Err(CapacityError::Storage(why)),
        }
    }

    /// Appends a batch. A claimed one is in memory too: its guard settles it.
    pub(super) fn append(&self, batch: &Batch, cursor: &[u8], options: AppendOptions) -> AckGuard {
        let AppendOptions {
            share,
            claimed,
            done,
            failure,
        } = options;
        let seq = self.store.append(Append {
            tag: batch.signal() as u8,
            items: batch.items(),
            payload: stored::to_bytes(batch, cursor),
            purpose: if claimed {
                Purpose::Claimed
            } else {
                Purpose::Unread
            },
            done,
            share,
        });
        if claimed {
            self.claimed.add(batch.items());
        }
        self.ack_guard(seq, batch.items(), !claimed, failure)
    }

    fn ack_guard(&self, seq: u64, items: usize, keeps: bool, failure: WriteFailure) -> AckGuard {
        let restored = (seq < self.first_seq).then(|| self.restored.clone());
        let counts = std::iter::once(self.claimed.clone()).chain(restored).collect();
        AckGuard::new(self.store.clone(), counts, seq, items, keeps, failure)
    }

    /// Unsettled items of all batches on disk, including those that are in memory too.
    pub(super) fn waiting(&self) -> u64 {
        self.store.backlog() + self.claimed.items()
    }

    /// Unsettled items that a previous run left.
    pub(super) fn restored(&self) -> u64 {
        self.restored.items()
    }

    /// Removes items that could not be written and that are lost.
    pub(super) fn forget(&self, items: usize) {
        self.store.taken(items as u64);
    }

    /// Whether an acknowledgement promises that the batch is stored.
    pub(super) fn promises(&self) -> bool {
        self.mode == StorageMode::Always
    }

    /// Whether the disk has batches that are not in memory.
    pub(super) fn has_backlog(&self) -> bool {
        self.backlog() > 0
    }

    /// Items on disk that are not in memory.
    pub(super) fn backlog(&self) -> u64 {
        self.store.backlog()
    }

    /// Asks the store for the next batches if memory has space for them. An empty queue asks without a
    /// reservation, because batches on disk must not wait forever.
    pub(super) fn ask(&self, memory: &Arc<Account>, is_empty: bool) {
        if !self.store.can_ask() {
            return;
        }
        let mut held = Held::ours(memory.clone());
        if held.try_grow_quietly(READ_BYTES).is_err() && !is_empty {
            return;
        }
        self.store.ask(Some(ReadRoom::new(held, is_empty)));
    }

    /// Collects the batches that were read back, or could not be written, since the last call.
    pub(super) fn collect(&self) -> Reloaded {
        let Completions {
            read,
            room,
            failed,
            items,
        } = self.store.collect();
        let mut reloaded = Reloaded {
            items,
            lost: read.lost_items,
            _room: room,
            ..Reloaded::default()
        };
        for stored in read.stored {
            let (seq, tag, items) = (stored.seq, stored.tag, stored.items);
            match stored::from_bytes(stored) {
                Some(batch) => {
                    let export = if seq < self.first_seq {
                        ExportRequest::again(batch)
                    } else {
                        ExportRequest::new(batch)
                    };
                    reloaded.claimed += items as usize;
                    let ack = self.ack_guard(seq, items as usize, false, WriteFailure::default());
                    reloaded.exports.push((export, Some(ack)));
                }
                None => {
                    self.store.release(seq);
                    if let Some(lost) = reloaded.lost.get_mut(usize::from(tag)) {
                        *lost += u64::from(items);
                    }
                }
            }
        }
        // Only records of a previous run are read from files that may be damaged.
        self.restored.lose(reloaded.lost.iter().sum());
        let failed = failed.into_iter().filter_map(|append| {
            let payload = append.payload.concat().into();
            stored::from_bytes(tidegate_wal::Stored {
                seq: 0,
                tag: append.tag,
                items: append.items as u32,
                payload,
            })
        });
        reloaded
            .exports
            .extend(failed.map(|batch| (ExportRequest::new(batch), None)));
        reloaded
    }

    /// Tells the store that the collected batches are in the machine. Later batches may queue after them there.
    pub(super) fn taken(&self, reloaded: &Reloaded) {
        self.store.taken(reloaded.items);
        self.claimed.add(reloaded.claimed);
    }

    /// Notes a request that only the disk has from now on.
    pub(super) fn note_kept(&self, request: KeptRequest) {
        self.kept.lock().push(request);
    }

    /// Takes the kept requests that the disk could not write.
    pub(super) fn take_unwritten(&self) -> Vec<KeptRequest> {
        let is_unwritten = |request: &mut KeptRequest| request.failures.iter().any(WriteFailure::is_set);
        self.kept.lock().extract_if(.., is_unwritten).collect()
    }

    /// Ends the storage thread by a panic.
    #[cfg(test)]
    pub(super) fn break_thread(&self) {
        let broken = |kept: Result<(), tidegate_wal::NotKept>| assert!(kept.is_err(), "broken by the test");
        self.store.append(Append {
            tag: 0,
            items: 0,
            payload: Default::default(),
            purpose: Purpose::Claimed,
            done: Some(Done(Box::new(broken))),
            share: None,
        });
    }

    /// Writes all pending records and closes the log. Blocks the thread.
    pub(super) fn close(&self) {
        self.store.close();
        if let Some((directory, conversion)) = &self.at_stop
            && let Err(error) = snapshot::write(directory, 0, conversion.save(&mut || ()))
        {
            tracing::warn!(directory = %directory.display(), %error, "can't save the positions of streams");
        }
    }
}

/// Batches that move from disk to memory.
#[derive(Default)]
pub(super) struct Reloaded {
    /// The batches, with the guards of those that are still on disk.
    pub(super) exports: Vec<(ExportRequest, Option<AckGuard>)>,
    /// Damaged items, by signal.
    pub(super) lost: [u64; Signal::ALL.len()],
    /// The number of all items.
    items: u64,
    /// The number of items that are still on disk.
    claimed: usize,
    /// The memory reserved until the batches are in the machine.
    _room: Option<ReadRoom>,
}
