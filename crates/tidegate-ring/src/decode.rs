// SPDX-License-Identifier: Apache-2.0

//! Slots to columns: tight loops over bytes that are already in our own memory.
//!
//! Version 3 to 5 slots carry four bytes of stack garbage after the type, so the type is read as
//! 32 bits, never as 64. Any content decodes to something; nothing here can fail.

use crate::kind::{Names, NixlKind, OVERFLOW, UNKNOWN};
use crate::layout::{Layout, NAME_SIZE};

/// Columns of events, reused from drain to drain by the caller. All columns have the same length,
/// except that `timestamps_us` is empty for layouts without timestamps (all but version 1).
#[derive(Debug, Default)]
pub struct Batch {
    /// Kind of each event: an index into [`KINDS`](crate::KINDS), or one of the ring's own
    /// [`Names`].
    pub kinds: Vec<u16>,
    /// Value of each event, per operation, in the unit of its kind. Times come from clock differences
    /// cast to unsigned in NIXL: values of 2^63 and more are negative differences.
    pub values: Vec<u64>,
    /// Microseconds since the epoch, version 1 only.
    pub timestamps_us: Vec<u64>,
    /// Events of the kind `UNKNOWN` in this batch: types beyond the table.
    pub unknown: u64,
    /// Events of the kind `OVERFLOW` in this batch: names beyond the ring's table.
    pub overflow: u64,
    raw: Vec<u8>,
}

impl Batch {
    /// Number of events.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Empties the columns and keeps their memory.
    pub fn clear(&mut self) {
        self.kinds.clear();
        self.values.clear();
        self.timestamps_us.clear();
        self.unknown = 0;
        self.overflow = 0;
    }

    /// Room for `bytes` of slots. It only grows (bounded by `max_events` of the largest ring), so
    /// the zeroing of new bytes is not paid again.
    pub(crate) fn raw(&mut self, bytes: usize) -> &mut [u8] {
        if self.raw.len() < bytes {
            self.raw.resize(bytes, 0);
        }
        &mut self.raw[..bytes]
    }

    /// Appends the first `bytes` of the raw buffer as events.
    pub(crate) fn decode(&mut self, layout: Layout, bytes: usize, names: &mut Names) {
        let raw = std::mem::take(&mut self.raw);
        let slots = &raw[..bytes];
        match layout {
            Layout::V1 => self.stamped(slots, names),
            Layout::V2a => self.named::<48, 0, 4, 40>(slots, names),
            Layout::V2b => self.typed::<4>(slots),
            Layout::V3 | Layout::V4 | Layout::V5 => self.typed::<0>(slots),
        }
        self.raw = raw;
        self.unknown = count(&self.kinds, UNKNOWN);
        self.overflow = count(&self.kinds, OVERFLOW);
    }

    /// Slots of 16 bytes: a type at `TYPE`, a value at 8.
    fn typed<const TYPE: usize>(&mut self, slots: &[u8]) {
        let (slots, _) = slots.as_chunks::<16>();
        let unknown = u32::from(UNKNOWN);
        let kind = |slot: &[u8; 16]| {
            u32::from_le_bytes(*part(slot, TYPE)).min(unknown) as u16 // <= UNKNOWN
        };
        self.kinds.extend(slots.iter().map(kind));
        let value = |slot: &[u8; 16]| u64::from_le_bytes(*part(slot, 8));
        self.values.extend(slots.iter().map(value));
    }

    fn stamped(&mut self, slots: &[u8], names: &mut Names) {
        self.named::<56, 8, 12, 48>(slots, names);
        let (slots, _) = slots.as_chunks::<56>();
        let time = |slot: &[u8; 56]| u64::from_le_bytes(*part(slot, 0));
        self.timestamps_us.extend(slots.iter().map(time));
    }

    /// Slots of `SIZE` bytes with a category, a name and a value at these offsets.
    fn named<const SIZE: usize, const CATEGORY: usize, const NAME: usize, const VALUE: usize>(
        &mut self,
        slots: &[u8],
        names: &mut Names,
    ) {
        let (slots, _) = slots.as_chunks::<SIZE>();
        self.kinds.extend(slots.iter().map(|slot| {
            let category = i32::from_le_bytes(*part(slot, CATEGORY));
            names.resolve(part(slot, NAME), category)
        }));
        let value = |slot: &[u8; SIZE]| u64::from_le_bytes(*part(slot, VALUE));
        self.values.extend(slots.iter().map(value));
    }
}

impl Layout {
    /// Kind and value of one event, for callers that get them one at a time; none if `slot` is too short. Names that
    /// are not in the table are of the kind `UNKNOWN`.
    pub fn event(self, slot: &[u8]) -> Option<(u16, u64)> {
        let slot = slot.get(..self.event_size())?;
        let kind = match self {
            Layout::V1 => named(slot, 12),
            Layout::V2a => named(slot, 4),
            Layout::V2b => typed(slot, 4),
            Layout::V3 | Layout::V4 | Layout::V5 => typed(slot, 0),
        }?;
        let (_, value) = slot.split_last_chunk()?;
        Some((kind, u64::from_le_bytes(*value)))
    }
}

fn typed(slot: &[u8], at: usize) -> Option<u16> {
    let kind = u32::from_le_bytes(*slot.get(at..)?.first_chunk()?);
    Some(kind.min(u32::from(UNKNOWN)) as u16) // <= UNKNOWN
}

fn named(slot: &[u8], at: usize) -> Option<u16> {
    let name = slot.get(at..at + NAME_SIZE)?.split(|byte| *byte == 0).next()?;
    let kind = std::str::from_utf8(name).ok().and_then(NixlKind::by_name);
    Some(kind.map_or(UNKNOWN, |kind| kind.id))
}

/// `N` bytes of a slot; offsets are constants of the layout table and lie inside the slot.
#[inline(always)]
fn part<const SIZE: usize, const N: usize>(slot: &[u8; SIZE], offset: usize) -> &[u8; N] {
    slot[offset..]
        .first_chunk()
        .expect("offsets of the layout lie inside the slot")
}

fn count(kinds: &[u16], wanted: u16) -> u64 {
    kinds.iter().filter(|kind| **kind == wanted).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// One at a time is the same as all at once.
        #[test]
        fn an_event_alone_is_what_it_is_in_a_batch(
            layout in proptest::sample::select(Layout::ALL.to_vec()),
            known in proptest::option::of(0..crate::KINDS.len()),
            mut slot in proptest::collection::vec(proptest::prelude::any::<u8>(), 56),
        ) {
            if let Some(known) = known {
                write_kind(layout, &mut slot, &crate::KINDS[known]);
            }
            let slot = &slot[..layout.event_size()];
            let (mut batch, mut names) = (Batch::default(), Names::default());
            batch.raw(slot.len()).copy_from_slice(slot);
            batch.decode(layout, slot.len(), &mut names);
            // A ring gives names of its own kinds of their own.
            let kind = if usize::from(batch.kinds[0]) < crate::KINDS.len() { batch.kinds[0] } else { UNKNOWN };
            proptest::prop_assert_eq!(layout.event(slot), Some((kind, batch.values[0])));
            proptest::prop_assert_eq!(layout.event(&slot[1..]), None);
        }
    }

    fn write_kind(layout: Layout, slot: &mut [u8], kind: &NixlKind) {
        let name = crate::kind::slot_name(kind.string_name().as_bytes());
        match layout {
            Layout::V1 => slot[12..44].copy_from_slice(&name),
            Layout::V2a => slot[4..36].copy_from_slice(&name),
            Layout::V2b => slot[4..8].copy_from_slice(&u32::from(kind.id).to_le_bytes()),
            _ => slot[..4].copy_from_slice(&u32::from(kind.id).to_le_bytes()),
        }
    }
}
