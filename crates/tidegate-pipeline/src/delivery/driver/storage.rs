// SPDX-License-Identifier: Apache-2.0

//! Batches between memory and disk: those that are read back, kept for the next run, or lost.

use std::sync::Arc;
use std::time::Instant;

use crate::batch::Signal;
use crate::component::Reason;
use crate::delivery::capacity::Permits;
use crate::delivery::destination::{Attempt, DestinationInner};
use crate::delivery::export_request::{BatchKey, ExportRequest};
use crate::delivery::outcome::Loss;
use crate::delivery::spill::{AppendOptions, Spill};

impl<A: Attempt> DestinationInner<A> {
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
            return load.batches().iter().cloned().for_each(drain_handler);
        }
        let Some(spill) = self.spill.get() else { return };
        if !acks.is_empty() && acks.len() == permits.len() {
            acks.into_iter().for_each(super::super::ack_guard::AckGuard::keep);
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
            for (export, ack) in spill.collect().exports {
                match (ack, export.batches().first()) {
                    (Some(ack), _) => ack.keep(),
                    (None, Some(batch)) => {
                        inner.lose_batch(batch, Reason::Shutdown, "it could not be stored");
                        spill.forget(batch.items());
                    }
                    (None, None) => {}
                }
            }
        })
        .await;
    }
}
