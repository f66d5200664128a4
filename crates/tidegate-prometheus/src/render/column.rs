// SPDX-License-Identifier: Apache-2.0

//! The numbers of a table at one moment, read once in the order of the table.
//!
//! An exposition is ordered by family, a table by arrival. Reading the table in the order of the exposition would
//! cost a lock and a miss of every cache for each series.

use tidegate_engine::{Number, Table, Value};

use super::encoder::ValueTimes;

/// The kind of a series.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cell {
    /// The series is gone or replaced.
    Gone,
    /// There, without a value.
    Hidden,
    /// A number, with its times if they are needed.
    Number(Number, ValueTimes),
    /// A value that must be read in the table.
    Complex,
}

/// The state of a column's place.
#[derive(Clone, Copy, Debug, Default)]
struct ColumnSlot {
    bits: u64,
    generation: u32,
    tag: Tag,
}

const _: () = assert!(size_of::<ColumnSlot>() == 16);

#[derive(Clone, Copy, Debug, Default)]
enum Tag {
    #[default]
    Gone,
    Hidden,
    Int,
    Double,
    Complex,
}

/// The numbers of a table by the number of their place.
#[derive(Debug, Default)]
pub(super) struct Column {
    slots: Vec<ColumnSlot>,
    /// Empty if the times are not needed.
    times: Vec<ValueTimes>,
}

impl Column {
    /// Reads a table. Times and exemplars, which are not numbers, are included if the format has them.
    pub(super) fn read(table: &Table, with_times: bool, with_exemplars: bool) -> Self {
        let mut column = Self::default();
        let room = table.len() + table.len() / 64;
        column.slots.reserve_exact(room);
        if with_times {
            column.times.reserve_exact(room);
        }
        table.each_slot(|place, reading| {
            let bits = place.to_bits();
            let (at, generation) = (place.number() as usize, (bits >> 32) as u32);
            let (tag, bits) = match reading.as_ref().map(|reading| reading.value) {
                None | Some(Value::NoRecordedValue) => (Tag::Hidden, 0),
                Some(_) if with_exemplars && reading.is_some_and(|reading| !reading.exemplars.is_empty()) => {
                    (Tag::Complex, 0)
                }
                Some(Value::Int(number)) => (Tag::Int, number.cast_unsigned()),
                Some(Value::Double(number)) => (Tag::Double, number.to_bits()),
                Some(_) => (Tag::Complex, 0),
            };
            let slot = ColumnSlot {
                bits,
                generation,
                tag,
            };
            put(&mut column.slots, at, slot);
            if with_times {
                let times = reading.as_ref().map(ValueTimes::from);
                put(&mut column.times, at, times.unwrap_or_default());
            }
        });
        column
    }

    /// The cell at this place.
    #[inline]
    pub(super) fn at(&self, place: u64) -> Cell {
        let at = place as u32 as usize;
        let slot = self.slots.get(at).copied().unwrap_or_default();
        if slot.generation != (place >> 32) as u32 {
            return Cell::Gone;
        }
        let times = || self.times.get(at).copied().unwrap_or_default();
        match slot.tag {
            Tag::Gone => Cell::Gone,
            Tag::Hidden => Cell::Hidden,
            Tag::Int => Cell::Number(Number::Int(slot.bits.cast_signed()), times()),
            Tag::Double => Cell::Number(Number::Double(f64::from_bits(slot.bits)), times()),
            Tag::Complex => Cell::Complex,
        }
    }
}

/// Sets what is at `at`. Places come in order, with gaps.
#[inline]
fn put<T: Copy + Default>(list: &mut Vec<T>, at: usize, item: T) {
    if list.len() < at {
        list.resize(at, T::default());
    }
    match list.get_mut(at) {
        Some(place) => *place = item,
        None => list.push(item),
    }
}
