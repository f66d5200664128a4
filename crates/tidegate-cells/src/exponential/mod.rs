// SPDX-License-Identifier: Apache-2.0

//! Exponential histograms: the words of a value have two buffers of buckets, and any number of threads count in them
//! without a lock.
//!
//! | word | what |
//! | --- | --- |
//! | 0 | generation: how often the buffers were switched; its lowest bit says which one counts |
//! | 1 | values that are zero |
//! | 2 | sum, f64 |
//! | 8, 336 | the buffers: scale, first positive bucket, first negative bucket (i32 each), what the switch to it was for, 4 words unused, 160 positive and 160 negative counts |
//!
//! Each word of a buffer has its generation in the highest 12 bits. The bit below them says that the word is closed:
//! its count moves to the other buffer. Writers change a word by compare and swap, so none counts in a word that is
//! closed or of another generation. [`switch`] describes the switch of the buffers. A reader sees the counts of the
//! generation's buffer, also after a process is killed at any instant.

mod bucket;
mod switch;

use std::sync::atomic::{AtomicU64, Ordering, fence};

use tidegate_model::{Buckets, ExponentialHistogram};

pub use bucket::bucket_of;
use switch::{Wanted, switch};

pub(crate) const MIN_SCALE: i32 = -10;
pub(crate) const MAX_SCALE: i32 = 20;
/// Buckets a side.
pub(crate) const BUCKETS: usize = 160;
const GENERATION: usize = 0;
const ZERO: usize = 1;
const SUM: usize = 2;
const FIRST_BUFFER: usize = 8;
const BUFFER: usize = HEAD + 2 * BUCKETS;
/// Words of a buffer before its counts: scale, first buckets, [`WANTED`].
const HEAD: usize = 8;
const SCALE: usize = 0;
const FIRST: usize = 1;
const WANTED: usize = 3;
/// Words of a value.
pub(crate) const WORDS: usize = FIRST_BUFFER + 2 * BUFFER;

/// Bits of a count, or of another content of a word. A count that does not fit stays at the largest.
const BITS: u32 = 51;
const CONTENT: u64 = (1 << BITS) - 1;
const CLOSED: u64 = 1 << BITS;
/// The largest generation. Each switch that a side causes grows its range in use over half of the room left (see
/// [`Shape::around`]). So a side causes 8 switches a scale: with two sides and 31 scales, 496 in all.
const MAX_GENERATION: u64 = (1 << (63 - BITS)) - 1;
/// The lead, in generations, of a value over the one that it replaces. The replaced one has fewer switches left.
pub(crate) const AHEAD: u64 = 1024;

/// The generation of a word.
fn generation_of(word: u64) -> u64 {
    word >> (BITS + 1)
}

fn word_of(generation: u64, content: u64) -> u64 {
    generation << (BITS + 1) | content
}

/// The content of a word, if the word is of this generation and open.
#[inline]
fn open(word: u64, generation: u64) -> Option<u64> {
    (word >> BITS == generation << 1).then_some(word & CONTENT)
}

/// Scale and range of a buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Shape {
    scale: i32,
    /// First bucket of the positive side and of the negative one.
    first: [i32; 2],
}

impl Shape {
    /// `None`: the buffer is of another generation by now, or none that we have written.
    #[inline]
    fn load(buffer: &[AtomicU64], generation: u64) -> Option<Self> {
        let number = |at: usize| Some(open(buffer[at].load(Ordering::Relaxed), generation)? as u32 as i32);
        let scale = number(SCALE).filter(|scale| (MIN_SCALE..=MAX_SCALE).contains(scale))?;
        Some(Shape {
            scale,
            first: [number(FIRST)?, number(FIRST + 1)?],
        })
    }

    /// The index of a side's bucket in the counts, if the range has it.
    #[inline]
    fn count_index(self, side: usize, bucket: i32) -> Option<usize> {
        let place = i64::from(bucket) - i64::from(self.first[side]);
        let place = usize::try_from(place).ok().filter(|place| *place < BUCKETS)?;
        Some(HEAD + side * BUCKETS + place)
    }
}

#[inline]
fn buffer(words: &[AtomicU64], generation: u64) -> &[AtomicU64] {
    let start = FIRST_BUFFER + (generation & 1) as usize * BUFFER;
    &words[start..start + BUFFER]
}

/// Words that make a value of zeros an empty histogram: the index of the first one, and the words.
pub(crate) fn empty(max_scale: i8, generation: u64) -> (usize, Vec<u64>) {
    let scale = u64::from(i32::from(max_scale) as u32);
    if generation == 0 {
        return (FIRST_BUFFER, vec![scale]);
    }
    let mut words = vec![0; WORDS];
    words[GENERATION] = generation;
    // The other buffer too: a thread that still counts in an earlier value of this slot must see a later generation.
    words[FIRST_BUFFER..].fill(word_of(generation, 0));
    words[FIRST_BUFFER + (generation & 1) as usize * BUFFER + SCALE] |= scale;
    (0, words)
}

/// The number of times that the buffers were switched.
pub(crate) fn generation(words: &[AtomicU64]) -> u64 {
    words[GENERATION].load(Ordering::Acquire)
}

/// Counts a finite value. False: the words are none that we have written.
#[inline]
pub(crate) fn observe(words: &[AtomicU64], value: f64) -> bool {
    if value == 0.0 {
        words[ZERO].fetch_add(1, Ordering::Relaxed);
    } else {
        let size = value.abs();
        if !count(words, usize::from(value < 0.0), MAX_SCALE, 1, |scale| {
            bucket_of(size, scale)
        }) {
            return false;
        }
    }
    crate::cells::add_float(&words[SUM], value);
    true
}

/// Adds the counts of another value, as [`observe`] does.
pub(crate) fn add(words: &[AtomicU64], other: &ExponentialHistogram) {
    words[ZERO].fetch_add(other.zero_count, Ordering::Relaxed);
    for (side, buckets) in [&other.positive, &other.negative].into_iter().enumerate() {
        for (at, by) in buckets.counts.iter().enumerate().filter(|(_, by)| **by > 0) {
            let bucket = buckets.offset.saturating_add(at as i32);
            let bucket_at = |scale: i32| match other.scale - scale {
                down @ 0.. => bucket >> down,
                up => bucket << -up, // the first of those that it may be; asked for only to switch to its scale
            };
            count(words, side, other.scale, *by, bucket_at);
        }
    }
    crate::cells::add_float(&words[SUM], other.sum.unwrap_or_default());
}

/// Counts in the bucket that is `bucket_at` a scale, which is `finest` at most.
#[inline]
fn count(words: &[AtomicU64], side: usize, finest: i32, by: u64, bucket_at: impl Fn(i32) -> i32) -> bool {
    // As many attempts as other threads can make switches.
    for _ in 0..MAX_GENERATION {
        let generation = generation(words);
        let buffer = buffer(words, generation);
        let Some(shape) = Shape::load(buffer, generation) else {
            continue;
        };
        let bucket = bucket_at(shape.scale);
        let place = shape.count_index(side, bucket).filter(|_| shape.scale <= finest);
        if place.is_some_and(|place| count_in(&buffer[place], generation, by)) {
            return true;
        }
        switch(words, generation, Wanted { side, bucket, finest });
    }
    false
}

/// False: it is closed, or of another generation by now.
#[inline]
fn count_in(word: &AtomicU64, generation: u64, by: u64) -> bool {
    let mut now = word.load(Ordering::Relaxed);
    while let Some(count) = open(now, generation) {
        let next = word_of(generation, count.saturating_add(by).min(CONTENT));
        match word.compare_exchange_weak(now, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(newer) => now = newer,
        }
    }
    false
}

/// The value of words that others count in.
pub(crate) fn load(words: &[AtomicU64]) -> ExponentialHistogram {
    loop {
        let before = generation(words);
        let value = decode(|word| words[word].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        // It grows a bounded number of times.
        if words[GENERATION].load(Ordering::Relaxed) == before {
            return value;
        }
    }
}

/// The value of words, which may be of any file. Buckets that no writer makes are omitted.
pub(crate) fn decode(read: impl Fn(usize) -> u64) -> ExponentialHistogram {
    let start = FIRST_BUFFER + (read(GENERATION) & 1) as usize * BUFFER;
    let number = |at: usize| read(start + at) as u32 as i32;
    let side = |at: usize| {
        let counts = (0..BUCKETS).map(|place| read(start + HEAD + at * BUCKETS + place) & CONTENT);
        Buckets::trimmed(number(FIRST + at), counts.collect())
    };
    let (zero_count, sum) = (read(ZERO), f64::from_bits(read(SUM)));
    let (positive, negative) = (side(0), side(1));
    ExponentialHistogram {
        // A wrapped count can be 0. A merge then leaves out the sum, but not the buckets.
        count: positive
            .count()
            .saturating_add(negative.count())
            .saturating_add(zero_count),
        sum: Some(sum),
        scale: number(SCALE).clamp(MIN_SCALE, MAX_SCALE),
        zero_count,
        positive,
        negative,
        ..ExponentialHistogram::default()
    }
}

/// Puts a value in words that are all zero; what [`decode`] reads again.
#[cfg(feature = "reader")]
pub(crate) fn encode(value: &ExponentialHistogram, write: &mut impl FnMut(usize, u64)) {
    write(ZERO, value.zero_count);
    write(SUM, value.sum.unwrap_or_default().to_bits());
    let mut put = |at: usize, content: u64| write(FIRST_BUFFER + at, content.min(CONTENT));
    put(SCALE, u64::from(value.scale as u32));
    for (at, side) in [&value.positive, &value.negative].into_iter().enumerate() {
        put(FIRST + at, u64::from(side.offset as u32));
        for (place, count) in side.counts.iter().take(BUCKETS).enumerate() {
            put(HEAD + at * BUCKETS + place, *count);
        }
    }
}

#[cfg(test)]
mod tests;
