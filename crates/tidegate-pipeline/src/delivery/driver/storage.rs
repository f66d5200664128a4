// SPDX-License-Identifier: Apache-2.0

//! The disk part of the queue: its start and its end, and the batches that are read back, kept for the next run, or
//! lost.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use tidegate_wal::{Recovered, Storage};
use tracing::{info, warn};

use crate::batch::Signal;
use crate::component::{ComponentError, Reason};
use crate::delivery::capacity::Permits;
use crate::delivery::destination::{Attempt, DestinationInner};
use crate::delivery::export_request::{BatchKey, ExportRequest};
use crate::delivery::machine::Load;
use crate::delivery::outcome::Loss;
use crate::delivery::spill::{AppendOptions, KeptRequest, Spill};

impl<A: Attempt> DestinationInner<A> {
    /// Opens the disk part of the queue, if the queue has one.
    pub(in crate::delivery) async fn open_spill(self: &Arc<Self>) -> Result<(), ComponentError> {
        let Some(id) = &self.queue.storage else {
            return Ok(());
        };
        let storage = self.context.storage("sending_queue::storage", id)?;
        let inner = self.clone();
        let opening = self.opening.run(&self.context, move || inner.set_spill(&storage));
        self.note(&opening.await?);
        self.wake.notify_one();
        Ok(())
    }

    /// The part of [`Self::open_spill`] that blocks the thread.
    pub(in crate::delivery) fn set_spill(&self, storage: &Storage) -> Result<Recovered, ComponentError> {
        let (spill, recovered) = Spill::open(
            &self.context,
            storage,
            self.queue.storage_mode,
            self.wake.clone(),
            self.conversion.clone(),
        )?;
        // The destination starts only once.
        let _ = self.spill.set(spill);
        Ok(recovered)
    }

    /// Counts the items that a previous run left, and logs their state.
    fn note(&self, recovered: &Recovered) {
        let component = &*self.context.path;
        for (signal, items) in Signal::ALL.into_iter().zip(recovered.items) {
            match &self.ledgers[signal as usize] {
                Some(ledger) => ledger.restore(usize::try_from(items).unwrap_or(usize::MAX)),
                None if items > 0 => {
                    warn!(component, %signal, items, "no pipeline sends the stored data of this signal to the destination");
                }
                None => {}
            }
        }
        if recovered.records > 0 {
            let (records, items) = (recovered.records, recovered.items.iter().sum::<u64>());
            info!(component, records, items, "found batches on disk to send");
            self.recovery.begin(items, Instant::now());
        }
        recovered.report_damage(component);
        if let Some(conversion) = &self.conversion {
            conversion.note_lost(component);
        }
    }

    /// Moves batches from disk to memory, and reads more if memory allows. Returns whether there are more.
    pub(super) fn read_back(self: &Arc<Self>, spill: &Spill) -> bool {
        let mut reloaded = spill.collect();
        for (signal, items) in Signal::ALL
            .into_iter()
            .zip(reloaded.lost)
            .filter(|(_, items)| *items > 0)
        {
            let loss = Loss {
                items: usize::try_from(items).unwrap_or(usize::MAX),
                reason: Reason::Damaged,
                why: "the stored data is damaged".to_owned(),
            };
            self.lose(Instant::now(), &BatchKey::plain(signal), &loss);
        }
        let draining = self.machine().deadline().is_some();
        for (export, ack) in std::mem::take(&mut reloaded.exports) {
            match ack {
                Some(ack) if draining => ack.keep(),
                ack => {
                    let Some(batch) = export.batches().first() else {
                        continue;
                    };
                    let mut permit = self.capacity.force(batch);
                    ack.into_iter().for_each(|ack| permit.set_ack(ack));
                    self.queue(export, permit);
                }
            }
        }
        spill.taken(&reloaded);
        drop(reloaded);
        if !draining && spill.has_backlog() && self.capacity.is_half_free() {
            let is_empty = self.capacity.used() == 0;
            spill.ask(&self.context.shared.memory, is_empty);
        }
        spill.has_backlog()
    }

    /// Passes a request to the drain handler, or keeps it for the next run. Batches on disk stay there, and the
    /// others are written.
    pub(super) fn keep(&self, load: &ExportRequest, permits: &Permits) {
        let acks: Vec<_> = permits.iter().filter_map(|permit| permit.ack()).collect();
        if let Some(drain_handler) = self.drain_handler.get() {
            self.ending.handed_over.fetch_add(load.items(), Relaxed);
            return load.batches().iter().cloned().for_each(drain_handler);
        }
        let Some(spill) = self.spill.get() else { return };
        let is_written = !acks.iter().any(|ack| ack.failure().is_set());
        if !acks.is_empty() && acks.len() == permits.len() && is_written {
            for ack in &acks {
                ack.keep();
            }
            // The disk may not have them yet, and fail.
            spill.note_kept(KeptRequest {
                batch_key: load.batch_key(),
                items: load.items(),
                failures: acks.iter().map(|ack| ack.failure().clone()).collect(),
            });
        } else {
            // The guards of joined batches are settled when the permits are dropped. The store writes these
            // records before.
            load.batches()
                .iter()
                .for_each(|batch| drop(spill.append(batch, &[], AppendOptions::default())));
        }
    }

    /// Closes the disk part of the queue after all other parts. Batches that could not be written are lost.
    pub(in crate::delivery) async fn close_spill(self: &Arc<Self>) {
        let inner = self.clone();
        // An error is a panic, which is in the log already.
        let _ = tokio::task::spawn_blocking(move || {
            let Some(spill) = inner.spill.get() else { return };
            spill.close();
            inner.context.shared.leave_log(&inner.context.path);
            inner.lose_unstored(spill);
        })
        .await;
    }

    /// Counts what could not be stored as lost, after the stop: the memory does not have it either. A batch that comes
    /// last finds the log closed, so its thread calls this too.
    pub(in crate::delivery) fn lose_unstored(&self, spill: &Spill) {
        const WHY: &str = "it could not be stored";
        for (export, ack) in spill.collect().exports {
            match (ack, export.batches().first()) {
                (Some(ack), _) => ack.keep(),
                (None, Some(batch)) => {
                    self.lose_batch(batch, Reason::Shutdown, WHY);
                    spill.forget(batch.items());
                }
                (None, None) => {}
            }
        }
        for KeptRequest { batch_key, items, .. } in spill.take_unwritten() {
            let loss = Loss {
                items,
                reason: Reason::Shutdown,
                why: WHY.to_owned(),
            };
            self.lose(Instant::now(), &batch_key, &loss);
        }
    }
}
