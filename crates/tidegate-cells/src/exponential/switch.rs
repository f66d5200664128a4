// SPDX-License-Identifier: Apache-2.0

//! The switch to the other buffer, with a lower scale or another range, without a lock.
//!
//! A writer that needs a switch makes it. A writer that meets a closed word makes it too instead of waiting.
//! Each step has the same result for all writers, and a step that another writer has made changes nothing.
//!
//! 1. The first writer writes to the other buffer what the switch is for. All writers follow it.
//! 2. Each count of this buffer is closed, so that it changes no more.
//! 3. Scale and range follow from both. They are written to the other buffer, and then the counts in that
//!    shape.
//! 4. The generation is raised: from now on the other buffer counts.
//!
//! Invariants:
//! - The generation of a word only grows. `claim` writes over an older generation only, and `close` changes
//!   none.
//! - A closed count stays as it is until the next switch claims its buffer for a later generation. So all
//!   writers of one switch compute the same counts.
//! - The generation is raised only after all words of the other buffer are of the new generation. A writer
//!   that finds a word of a later generation gives up: another writer is past this switch.
//! - A switch keeps the sum of the counts, except for a count that is at its largest.
//!
//! Memory order: the raise releases, and [`generation`](super::generation) acquires. A thread that sees the
//! new generation sees the whole new buffer.
//!
//! Ownership: no thread or process owns a switch. One that is killed between two steps leaves words that the
//! next writer completes.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    BITS, BUCKETS, CLOSED, CONTENT, GENERATION, HEAD, MAX_GENERATION, MAX_SCALE, MIN_SCALE, SCALE, Shape,
    WANTED, buffer, generation_of, word_of,
};

/// The bucket that the other buffer must have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Wanted {
    pub(super) side: usize,
    /// The bucket at the present scale.
    pub(super) bucket: i32,
    /// The largest scale that the other buffer may have.
    pub(super) finest: i32,
}

const SIDE_BIT: u32 = 32;
const FINEST_BIT: u32 = 33;

impl Wanted {
    fn encode(self) -> u64 {
        let finest = (self.finest - MIN_SCALE).clamp(0, MAX_SCALE - MIN_SCALE) as u64;
        u64::from(self.bucket as u32) | (self.side as u64 & 1) << SIDE_BIT | finest << FINEST_BIT
    }

    fn decode(content: u64) -> Self {
        Wanted {
            side: (content >> SIDE_BIT & 1) as usize,
            bucket: content as u32 as i32,
            finest: (content >> FINEST_BIT & 0x1f) as i32 + MIN_SCALE,
        }
    }
}

type Counts = [u64; 2 * BUCKETS];

/// Switches from this generation to the next, unless another writer has. The new buffer may lack the wanted
/// bucket: the other writer may have wanted another one. The caller then tries again.
#[cold]
pub(super) fn switch(words: &[AtomicU64], generation: u64, wanted: Wanted) {
    // `None`: another writer was faster.
    let _ = try_switch(words, generation, wanted, || Some(()));
}

/// The same switch. It ends before the step at which `go_on` returns `None`, as a killed writer does.
fn try_switch(
    words: &[AtomicU64],
    generation: u64,
    wanted: Wanted,
    mut go_on: impl FnMut() -> Option<()>,
) -> Option<()> {
    let next = generation + 1;
    if next > MAX_GENERATION {
        return None;
    }
    let (old, new) = (buffer(words, generation), buffer(words, next));
    let wanted = go_on().and_then(|()| claim(&new[WANTED], next, wanted.encode()))?;
    let shape = Shape::load(old, generation)?;
    let mut counts = [0; 2 * BUCKETS];
    for (word, count) in old[HEAD..].iter().zip(&mut counts) {
        *count = go_on().and_then(|()| close(word, generation))?;
    }
    let wider = shape.around(&counts, Wanted::decode(wanted));
    let head = [wider.scale, wider.first[0], wider.first[1]].map(|number| u64::from(number as u32));
    for (word, content) in new[SCALE..].iter().zip(head) {
        go_on().and_then(|()| claim(word, next, content))?;
    }
    for (word, count) in new[HEAD..].iter().zip(shape.moved(&counts, wider)) {
        go_on().and_then(|()| claim(word, next, count))?;
    }
    go_on()?;
    let raised = words[GENERATION].compare_exchange(generation, next, Ordering::Release, Ordering::Relaxed);
    raised.ok().map(drop)
}

#[cfg(test)]
pub(super) fn stopped_after(words: &[AtomicU64], generation: u64, wanted: Wanted, mut steps: usize) {
    let _ = try_switch(words, generation, wanted, || {
        steps = steps.checked_sub(1)?;
        Some(())
    });
}

/// Makes a word one of this generation, with this content unless another writer has claimed it. Returns its
/// content; `None`: it is of a later generation.
fn claim(word: &AtomicU64, generation: u64, content: u64) -> Option<u64> {
    let mut now = word.load(Ordering::Relaxed);
    while generation_of(now) < generation {
        let next = word_of(generation, content);
        match word.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => now = next,
            Err(newer) => now = newer,
        }
    }
    (generation_of(now) == generation).then_some(now & CONTENT)
}

/// Closes a count and returns it. `None`: it is of another generation.
fn close(word: &AtomicU64, generation: u64) -> Option<u64> {
    let is_open = |now: u64| now >> BITS == generation << 1;
    let closed = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |now| {
        is_open(now).then_some(now | CLOSED)
    });
    let now = closed.unwrap_or_else(|now| now);
    (generation_of(now) == generation).then_some(now & CONTENT)
}

impl Shape {
    /// The first and the last bucket in use of a side.
    fn used(self, counts: &Counts, side: usize) -> Option<(i32, i32)> {
        let counts = &counts[side * BUCKETS..][..BUCKETS];
        let low = counts.iter().position(|count| *count != 0)?;
        let high = counts.iter().rposition(|count| *count != 0)?;
        let bucket = |place: usize| self.first[side].wrapping_add(place as i32);
        Some((bucket(low), bucket(high)))
    }

    /// The finest shape that has the counts and the wanted bucket. The range in use is in the middle, so that
    /// neighbours on both sides fit.
    fn around(self, counts: &Counts, wanted: Wanted) -> Shape {
        let mut ranges = [0, 1].map(|side| self.used(counts, side));
        let bucket = wanted.bucket;
        let range = &mut ranges[wanted.side];
        *range = Some(range.map_or((bucket, bucket), |(low, high)| {
            (low.min(bucket), high.max(bucket))
        }));
        let fits = |down: &i32| {
            let mut ranges = ranges.iter().flatten();
            ranges.all(|(low, high)| i64::from(high >> down) - i64::from(low >> down) < BUCKETS as i64)
        };
        let least = (self.scale - wanted.finest).max(0);
        // Two buckets hold all numbers at the lowest scale.
        let most = self.scale - MIN_SCALE;
        let down = (least..=most).find(fits).unwrap_or(most);
        Shape {
            scale: self.scale - down,
            first: ranges.map(|range| {
                range.map_or(0, |(low, high)| {
                    let (low, high) = (low >> down, high >> down);
                    let left = BUCKETS as i32 - 1 - high.wrapping_sub(low);
                    low.wrapping_sub(left / 2)
                })
            }),
        }
    }

    /// The counts in another shape.
    fn moved(self, counts: &Counts, to: Shape) -> Counts {
        let mut moved = [0_u64; 2 * BUCKETS];
        let down = self.scale - to.scale;
        for (at, count) in counts.iter().enumerate().filter(|(_, count)| **count != 0) {
            let (side, place) = (at / BUCKETS, at % BUCKETS);
            let bucket = self.first[side].wrapping_add(place as i32) >> down;
            if let Some(place) = to.count_index(side, bucket) {
                let sum = &mut moved[place - HEAD];
                *sum = sum.saturating_add(*count).min(CONTENT);
            }
        }
        moved
    }
}
