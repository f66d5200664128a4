//! Exponential histograms: which bucket a value is in, and two buffers of buckets in a value's words.
//!
//! | word | what |
//! | --- | --- |
//! | 0 | control: how often the buffers were switched; the lowest bit says which one counts |
//! | 1 | values that are zero |
//! | 2 | sum, f64 |
//! | 8, 336 | the buffers: scale (i32), first positive and first negative bucket (i32 each, in one word), 160 and 160 counts |
//!
//! Whatever changes the scale or the range is built in the buffer that does not count, and one store of the
//! control word makes it count: a reader, or a process that is killed, has either the one or the other.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::value::{Buckets, ExponentialValue};

pub(crate) const MIN_SCALE: i32 = -10;
pub(crate) const MAX_SCALE: i32 = 20;
/// Buckets a side.
pub(crate) const BUCKETS: usize = 160;
const ZERO: usize = 1;
const SUM: usize = 2;
const FIRST_BUFFER: usize = 8;
const BUFFER: usize = 328;
/// Scale and offsets, then both sides.
const HEAD: usize = 2;
/// Words of a value.
pub(crate) const WORDS: usize = FIRST_BUFFER + 2 * BUFFER;

/// The bucket of a positive, finite value: `i` with `2^(i * 2^-scale) < value <= 2^((i + 1) * 2^-scale)`. Values
/// that are not normal count as the smallest that is.
pub fn bucket_of(value: f64, scale: i32) -> i32 {
    const MANTISSA_BITS: u32 = 52;
    let value = value.max(f64::MIN_POSITIVE);
    let bits = value.to_bits();
    let exponent = ((bits >> MANTISSA_BITS) & 0x7ff) as i32 - 1023;
    let is_power = bits & ((1 << MANTISSA_BITS) - 1) == 0;
    if scale <= 0 {
        return (exponent - i32::from(is_power)) >> -scale;
    }
    if is_power {
        return (exponent << scale) - 1;
    }
    // The fraction alone, so that the result is exact to half a bucket at the largest scale.
    let fraction = f64::from_bits(bits & ((1 << MANTISSA_BITS) - 1) | 1023 << MANTISSA_BITS);
    let factor = f64::from(1 << scale);
    let within = (fraction.log2() * factor).ceil() as i32 - 1;
    (exponent << scale) + within.clamp(0, (1 << scale) - 1)
}

/// Scale and range of a buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Shape {
    scale: i32,
    /// First bucket of the positive side and of the negative one.
    first: [i32; 2],
}

impl Shape {
    fn load(buffer: &[AtomicU64]) -> Self {
        let firsts = buffer[1].load(Ordering::Relaxed);
        Shape {
            scale: buffer[0].load(Ordering::Relaxed) as u32 as i32,
            first: [firsts as u32 as i32, (firsts >> 32) as u32 as i32],
        }
    }

    fn store(self, buffer: &[AtomicU64]) {
        let [positive, negative] = self.first.map(|first| u64::from(first as u32));
        buffer[0].store(u64::from(self.scale as u32), Ordering::Relaxed);
        buffer[1].store(positive | negative << 32, Ordering::Relaxed);
    }

    /// Where the bucket of a side is in its counts, if there.
    fn place(self, side: usize, bucket: i32) -> Option<usize> {
        let place = i64::from(bucket) - i64::from(self.first[side]);
        usize::try_from(place).ok().filter(|place| *place < BUCKETS)
    }
}

/// What makes words that are all zero an empty histogram: which word to set, and to what.
pub(crate) fn empty(max_scale: i8) -> (usize, u64) {
    (FIRST_BUFFER, u64::from(i32::from(max_scale) as u32))
}

/// Takes in what was counted elsewhere, as [`observe`] does.
pub(crate) fn add(words: &[AtomicU64], other: &ExponentialValue) {
    let mut value = decode(|word| words[word].load(Ordering::Relaxed));
    value.merge(other);
    let control = words[0].load(Ordering::Relaxed).wrapping_add(1);
    buffer(words, control)
        .iter()
        .for_each(|word| word.store(0, Ordering::Relaxed));
    encode(&value, control, &mut |word, value| {
        words[word].store(value, Ordering::Relaxed)
    });
    words[0].store(control, Ordering::Release);
}

fn buffer(words: &[AtomicU64], which: u64) -> &[AtomicU64] {
    let start = FIRST_BUFFER + (which & 1) as usize * BUFFER;
    &words[start..start + BUFFER]
}

fn side(buffer: &[AtomicU64], side: usize) -> &[AtomicU64] {
    &buffer[HEAD + side * BUCKETS..HEAD + (side + 1) * BUCKETS]
}

/// Counts a finite value. The caller is the only one to do so at that time; readers are not held up.
pub(crate) fn observe(words: &[AtomicU64], value: f64) {
    if value == 0.0 {
        bump(&words[ZERO], 1);
    } else {
        let side_of = usize::from(value < 0.0);
        let mut current = buffer(words, words[0].load(Ordering::Relaxed));
        let mut shape = Shape::load(current);
        let mut bucket = bucket_of(value.abs(), shape.scale);
        if shape.place(side_of, bucket).is_none() {
            (current, shape) = make_room(words, side_of, bucket);
            bucket = bucket_of(value.abs(), shape.scale);
        }
        if let Some(count) = shape
            .place(side_of, bucket)
            .and_then(|place| side(current, side_of).get(place))
        {
            bump(count, 1);
        }
    }
    let sum = f64::from_bits(words[SUM].load(Ordering::Relaxed)) + value;
    words[SUM].store(sum.to_bits(), Ordering::Relaxed);
}

fn bump(count: &AtomicU64, by: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// First and last bucket in use of a side.
fn used(counts: &[AtomicU64], first: i32) -> Option<(i32, i32)> {
    let is_used = |count: &AtomicU64| count.load(Ordering::Relaxed) != 0;
    let low = counts.iter().position(is_used)?;
    let high = counts.iter().rposition(is_used)?;
    Some((first + low as i32, first + high as i32))
}

/// Builds a buffer in which `bucket`, of the scale there is, has a place, and makes it the one that counts.
fn make_room(words: &[AtomicU64], side_of: usize, bucket: i32) -> (&[AtomicU64], Shape) {
    let control = words[0].load(Ordering::Relaxed);
    let (old, new) = (buffer(words, control), buffer(words, control + 1));
    let shape = Shape::load(old);
    let mut ranges = [0, 1].map(|at| used(side(old, at), shape.first[at]));
    let wanted = ranges[side_of].map_or((bucket, bucket), |(low, high)| {
        (low.min(bucket), high.max(bucket))
    });
    ranges[side_of] = Some(wanted);
    let too_wide = |down: i32| {
        let wide = |(low, high): (i32, i32)| (high >> down) - (low >> down) >= BUCKETS as i32;
        ranges.iter().flatten().any(|range| wide(*range))
    };
    let down = (0..=shape.scale - MIN_SCALE).find(|down| !too_wide(*down));
    let down = down.unwrap_or(shape.scale - MIN_SCALE); // two buckets hold all numbers at the lowest scale
    let first = ranges.map(|range| {
        // In the middle, so that neighbours on both sides find room.
        range.map_or(0, |(low, high)| {
            let (low, high) = (low >> down, high >> down);
            low - (BUCKETS as i32 - 1 - (high - low)) / 2
        })
    });
    let next = Shape {
        scale: shape.scale - down,
        first,
    };
    new.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    next.store(new);
    for at in 0..2 {
        for (place, count) in side(old, at).iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            let bucket = (shape.first[at].wrapping_add(place as i32)) >> down;
            if count != 0
                && let Some(to) = next.place(at, bucket)
            {
                bump(&side(new, at)[to], count);
            }
        }
    }
    words[0].store(control.wrapping_add(1), Ordering::Release);
    (new, next)
}

/// The value of words, which may be of any file. Buckets that no writer makes are left out.
pub(crate) fn decode(read: impl Fn(usize) -> u64) -> ExponentialValue {
    let start = FIRST_BUFFER + (read(0) & 1) as usize * BUFFER;
    let firsts = read(start + 1);
    let scale = (read(start) as u32 as i32).clamp(MIN_SCALE, MAX_SCALE);
    let side = |at: usize| {
        let first = (firsts >> (32 * at)) as u32 as i32;
        let counts = (0..BUCKETS).map(|place| read(start + HEAD + at * BUCKETS + place));
        Buckets::new(first, counts.collect())
    };
    ExponentialValue {
        scale,
        zero: read(ZERO),
        sum: f64::from_bits(read(SUM)),
        positive: side(0),
        negative: side(1),
    }
}

/// Puts a value in words of which the buffer is all zero; what [`decode`] reads again once `control` is there.
pub(crate) fn encode(value: &ExponentialValue, control: u64, write: &mut impl FnMut(usize, u64)) {
    write(ZERO, value.zero);
    write(SUM, value.sum.to_bits());
    let start = FIRST_BUFFER + (control & 1) as usize * BUFFER;
    write(start, u64::from(value.scale as u32));
    let firsts = [&value.positive, &value.negative].map(|side| u64::from(side.first as u32));
    write(start + 1, firsts[0] | firsts[1] << 32);
    for (at, side) in [&value.positive, &value.negative].into_iter().enumerate() {
        for (place, count) in side.counts.iter().take(BUCKETS).enumerate() {
            write(start + HEAD + at * BUCKETS + place, *count);
        }
    }
}

#[cfg(test)]
mod tests;
