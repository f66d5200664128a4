// SPDX-License-Identifier: Apache-2.0

//! Samples in few bits: most follow the last one by one tick, and most values are equal or differ by a whole number.
//!
//! | bits | a sample |
//! | --- | --- |
//! | 0 / 1 + 12 | the next tick / that number of ticks on |
//! | 0 | the same value |
//! | 10 + 2 + n | a whole number away: n bits (6, 12, 20 or 32), the sign in the lowest |
//! | 11 + 6 + 6 + n | other bits: leading zeros of the difference, n - 1, the n bits behind them |

use tidegate_model::varint::{unzigzag, zigzag};

/// Samples of one chunk; a chunk is dropped as a whole.
pub(super) const SAMPLES: u16 = 120;

const WHOLE_BITS: [u32; 4] = [6, 12, 20, 32];
const GAP_BITS: u32 = 12;

/// Some samples in a row.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) first: u32,
    pub(super) last: u32,
    count: u16,
    /// Bits used in the last byte.
    used: u8,
    value: f64,
    start: f64,
    bits: Vec<u8>,
}

impl Chunk {
    pub(super) fn new(tick: u32, value: f64) -> Self {
        Self {
            first: tick,
            last: tick,
            count: 1,
            used: 0,
            value,
            start: value,
            bits: Vec::new(),
        }
    }

    /// Bytes that it takes, its own fields included.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.bits.capacity()
    }

    /// Samples.
    pub(super) fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Appends a later sample; `false`: it is full, or the gap is too wide.
    pub(super) fn push(&mut self, tick: u32, value: f64) -> bool {
        let gap = tick.saturating_sub(self.last);
        if self.count >= SAMPLES || gap == 0 || gap >= 1 << GAP_BITS {
            return false;
        }
        match gap {
            1 => self.put(0, 1),
            _ => {
                self.put(1, 1);
                self.put(u64::from(gap), GAP_BITS);
            }
        }
        self.put_value(value);
        (self.last, self.value) = (tick, value);
        self.count += 1;
        true
    }

    /// Frees its spare capacity.
    pub(super) fn close(&mut self) {
        self.bits.shrink_to_fit();
    }

    fn put_value(&mut self, value: f64) {
        if value.to_bits() == self.value.to_bits() {
            return self.put(0, 1);
        }
        self.put(1, 1);
        if let Some(step) = whole_step(self.value, value) {
            let needed = 64 - step.leading_zeros();
            if let Some(class) = WHOLE_BITS.iter().position(|bits| needed <= *bits) {
                self.put(0, 1);
                self.put(class as u64, 2);
                return self.put(step, WHOLE_BITS[class]);
            }
        }
        let other = value.to_bits() ^ self.value.to_bits();
        let (leading, trailing) = (other.leading_zeros(), other.trailing_zeros());
        let length = 64 - leading - trailing;
        self.put(1, 1);
        self.put(u64::from(leading), 6);
        self.put(u64::from(length - 1), 6);
        self.put(other >> trailing, length);
    }

    /// The lowest `count` bits of a number, the highest first.
    fn put(&mut self, number: u64, count: u32) {
        let mut left = count;
        while left > 0 {
            if self.used == 0 {
                self.bits.push(0);
            }
            let room = 8 - u32::from(self.used);
            let taken = room.min(left);
            let part = (number >> (left - taken)) & ((1 << taken) - 1);
            if let Some(byte) = self.bits.last_mut() {
                *byte |= (part << (room - taken)) as u8;
            }
            self.used = ((u32::from(self.used) + taken) % 8) as u8;
            left -= taken;
        }
    }

    /// All of them, in their order.
    pub(super) fn samples(&self) -> impl Iterator<Item = (u32, f64)> + '_ {
        let mut reader = BitReader {
            bits: &self.bits,
            at: 0,
        };
        let (mut tick, mut value) = (self.first, self.start);
        let rest = (1..self.count).map_while(move |_| {
            tick += match reader.take(1)? {
                0 => 1,
                _ => reader.take(GAP_BITS)? as u32,
            };
            value = reader.value(value)?;
            Some((tick, value))
        });
        std::iter::once((self.first, self.start)).chain(rest)
    }
}

/// The step between two whole numbers, if adding it gives the very same number: zigzag, so that small steps either way
/// are small.
fn whole_step(from: f64, to: f64) -> Option<u64> {
    let step = to - from;
    let is_whole = step.fract() == 0.0 && step.abs() < f64::from(1u32 << 31);
    if !is_whole || (from + step).to_bits() != to.to_bits() {
        return None;
    }
    Some(zigzag(step as i64))
}

struct BitReader<'a> {
    bits: &'a [u8],
    at: usize,
}

impl BitReader<'_> {
    /// The next bits: at least 57 are valid, unless fewer are left.
    fn peek(&self) -> u64 {
        let rest = self.bits.get(self.at / 8..).unwrap_or_default();
        let window = match rest.first_chunk() {
            Some(bytes) => u64::from_be_bytes(*bytes),
            None => {
                let mut bytes = [0; 8];
                bytes[..rest.len()].copy_from_slice(rest);
                u64::from_be_bytes(bytes)
            }
        };
        window << (self.at % 8)
    }

    /// Takes `count` bits, at least one.
    fn take(&mut self, count: u32) -> Option<u64> {
        const AT_ONCE: u32 = 57;
        if count > AT_ONCE {
            let high = self.take(count - AT_ONCE)?;
            return Some(high << AT_ONCE | self.take(AT_ONCE)?);
        }
        let end = self.at + count as usize;
        if end > 8 * self.bits.len() {
            return None;
        }
        let number = self.peek() >> (u64::BITS - count);
        self.at = end;
        Some(number)
    }

    fn value(&mut self, before: f64) -> Option<f64> {
        if self.take(1)? == 0 {
            return Some(before);
        }
        if self.take(1)? == 0 {
            let class = self.take(2)? as usize;
            let step = self.take(*WHOLE_BITS.get(class)?)?;
            return Some(before + unzigzag(step) as f64);
        }
        let leading = self.take(6)? as u32;
        let length = self.take(6)? as u32 + 1;
        let other = self.take(length)? << (64 - leading - length);
        Some(f64::from_bits(before.to_bits() ^ other))
    }
}
