// SPDX-License-Identifier: Apache-2.0

//! Cells that leave: their slots, their weights and the memory of chunks without cells.

use std::sync::atomic::Ordering::Relaxed;

use parking_lot::MutexGuard;

use super::{Cell, CellRef, CellSlot, Cells, Register};
use crate::UnixNanos;
use crate::chunks::CHUNK;
use crate::key::Key;

impl Cells {
    /// Frees the memory of a chunk without cells, after a burst that is over.
    fn vacate(&self, register: &mut Register, chunk: u32) {
        let mut slots = self.chunks.lock(chunk);
        // New slots here continue with the generations of these, so that old references stay invalid.
        let generation = slots.iter().map(|slot| slot.generation).max();
        if let Some(generation) = generation
            && slots.iter().all(|slot| slot.cell.is_none())
            && slots.vacate()
        {
            register.vacated.insert(chunk, generation);
        }
    }

    /// Removes a cell at once. Call it with no cursor that holds a lock.
    pub(crate) fn remove(&self, at: CellRef) {
        let gone = self.cursor().slot(at).and_then(|slot| slot.clear(at.index));
        self.unlink(&mut self.register.lock(), gone.as_slice());
    }

    /// Removes the cells whose term is over, and returns their number. It locks a chunk at a time, so that
    /// threads that add series wait for one chunk only.
    pub(crate) fn expire(&self, now: UnixNanos) -> usize {
        let due = self.register.lock().wheel.take(now);
        let mut removed = 0;
        for chunk in due {
            let mut next = now.saturating_add(self.term_ns);
            let mut gone = Vec::new();
            for (at, slot) in self.chunks.lock(chunk).iter_mut().enumerate() {
                let Some(cell) = &slot.cell else { continue };
                let end = cell.seen.saturating_add(self.term_ns);
                if end < now {
                    gone.extend(slot.clear(chunk * CHUNK + at as u32));
                    continue;
                }
                next = next.min(end);
                // Buckets and exemplars come after a series was made.
                let weight = cell.weigh();
                self.bytes.fetch_add(weight as usize, Relaxed);
                self.bytes.fetch_sub(slot.weight as usize, Relaxed);
                slot.weight = weight;
            }
            removed += gone.len();
            let mut register = self.register.lock();
            register.wheel.add(next, chunk);
            self.unlink(&mut register, &gone);
            if !gone.is_empty() {
                self.vacate(&mut register, chunk);
            }
            MutexGuard::unlock_fair(register);
        }
        self.register.lock().sets.sweep_some();
        removed
    }

    fn unlink(&self, register: &mut Register, gone: &[Gone]) {
        for Gone { index, cell, weight } in gone {
            register.index.remove(Key::of(&cell.series), *index);
            register.free.push(*index);
            self.live.fetch_sub(1, Relaxed);
            self.bytes.fetch_sub(*weight as usize, Relaxed);
            let name = &cell.series.metric.name;
            match register.by_metric.get_mut(name) {
                Some(of_metric) if of_metric.series > 1 => of_metric.series -= 1,
                _ => drop(register.by_metric.remove(name)),
            }
        }
    }
}

/// A cell that was taken out.
struct Gone {
    index: u32,
    cell: Cell,
    weight: u32,
}

impl CellSlot {
    fn clear(&mut self, index: u32) -> Option<Gone> {
        self.generation = self.generation.wrapping_add(1);
        let weight = self.weight;
        self.cell.take().map(|cell| Gone { index, cell, weight })
    }
}
