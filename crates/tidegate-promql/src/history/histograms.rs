// SPDX-License-Identifier: Apache-2.0

//! Native histograms in few bytes: a sample has only the changes of its buckets, as varints.
//!
//! | bytes | a sample |
//! | --- | --- |
//! | varint | ticks since the one before, times two; plus one: other bounds than before, which follow |
//! | (zigzag, 8, 4 x zigzag) | the bounds: scale, zero threshold, offset and length of both sides; all counts are 0 |
//! | varint | the bits of the sum that changed, the byte order reversed |
//! | varint, (varint, zigzag)* | how many counts changed; each: how many before it did not, and by how much |

use std::collections::VecDeque;

use tidegate_engine::{Buckets, ExponentialHistogram};
use tidegate_model::varint::{push_varint, take_varint, unzigzag, zigzag};

use crate::{FloatHistogram, Millis, Need};

/// Samples of one chunk; a chunk is dropped as a whole.
const SAMPLES: u16 = 120;

/// Counts of a histogram beyond these have no past: more than any sane histogram has.
const MAX_COUNTS: usize = 1 << 16;

/// The past of one series of histograms.
#[derive(Debug, Default)]
pub(super) struct Histograms {
    chunks: VecDeque<Chunk>,
    newest: Frame,
}

/// Some samples in a row; the first one starts from nothing.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    first: u32,
    pub(super) last: u32,
    count: u16,
    bytes: Vec<u8>,
}

/// A histogram as a row of numbers, with their meaning.
#[derive(Clone, Debug, Default, PartialEq)]
struct Frame {
    scale: i32,
    zero_threshold: u64,
    positive: (i32, u32),
    negative: (i32, u32),
    sum: u64,
    /// All, zero, positive, negative.
    counts: Vec<u64>,
}

impl Histograms {
    /// Bytes that it takes besides its own fields.
    pub(super) fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().map(Chunk::bytes);
        size_of::<Self>() + chunks.sum::<usize>() + self.newest.counts.capacity() * size_of::<u64>()
    }

    /// Drops the chunks whose last sample is older than `oldest`.
    pub(super) fn drop_before(&mut self, oldest: u32) {
        while self.chunks.pop_front_if(|chunk| chunk.last < oldest).is_some() {}
    }

    /// Drops the oldest chunk, unless it is the only one.
    pub(super) fn drop_oldest(&mut self) {
        if self.chunks.len() > 1 {
            self.chunks.pop_front();
        }
    }

    /// The tick of the newest sample.
    pub(super) fn last(&self) -> u32 {
        self.chunks.back().map_or(0, |chunk| chunk.last)
    }

    /// Appends a sample unless there is one as late.
    pub(super) fn push(&mut self, tick: u32, histogram: &ExponentialHistogram) {
        if self.chunks.back().is_some_and(|chunk| chunk.last >= tick) || size(histogram) > MAX_COUNTS {
            return;
        }
        let frame = Frame::of(histogram);
        if self.chunks.back().is_none_or(|chunk| chunk.count >= SAMPLES) {
            if let Some(full) = self.chunks.back_mut() {
                full.bytes.shrink_to_fit();
            }
            self.newest = Frame::default();
            self.chunks.push_back(Chunk {
                first: tick,
                last: tick,
                count: 0,
                bytes: Vec::new(),
            });
        }
        if let Some(chunk) = self.chunks.back_mut() {
            put(&mut chunk.bytes, tick - chunk.last, &self.newest, &frame);
            chunk.last = tick;
            chunk.count += 1;
        }
        self.newest = frame;
    }

    /// The chunks, the oldest first.
    pub(super) fn chunks(&self) -> impl DoubleEndedIterator<Item = &Chunk> {
        self.chunks.iter()
    }

    /// The tick of the oldest sample.
    pub(super) fn first(&self) -> Option<u32> {
        self.chunks.front().map(|chunk| chunk.first)
    }

    /// Puts earlier samples before all others, as many of the newest as `room` bytes hold. Returns their number.
    pub(super) fn prepend(
        &mut self,
        samples: impl Iterator<Item = (u32, ExponentialHistogram)>,
        mut room: usize,
    ) -> usize {
        let mut earlier = Self::default();
        samples.for_each(|(tick, histogram)| earlier.push(tick, &histogram));
        if self.chunks.is_empty() {
            // The next sample is the difference from this one.
            self.newest = std::mem::take(&mut earlier.newest);
            room = room.saturating_sub(self.newest.counts.capacity() * size_of::<u64>());
        }
        let mut taken = 0;
        while let Some(mut chunk) = earlier.chunks.pop_back() {
            chunk.bytes.shrink_to_fit();
            match room.checked_sub(chunk.bytes()) {
                Some(left) => room = left,
                None => break,
            }
            taken += usize::from(chunk.count);
            self.chunks.push_front(chunk);
        }
        taken
    }

    /// Ticks within these, each with its histogram, as they are needed; `time` is that of a tick.
    pub(super) fn samples(
        &self,
        (from, to): (u32, u32),
        need: Need,
        time: &dyn Fn(u32) -> Millis,
    ) -> impl Iterator<Item = (u32, FloatHistogram)> + use<> {
        let next = self.chunks.iter().skip(1).map(Some).chain([None]);
        let is_passed = |chunk: &Chunk, next: Option<&Chunk>| {
            let next = next.map(|next| next.first).filter(|next| *next <= to);
            next.is_some_and(|next| time(next) <= need.until(time(chunk.first)))
        };
        let chunks = self.chunks.iter().zip(next).filter(|(chunk, next)| {
            let is_within = chunk.last >= from && chunk.first <= to;
            is_within && !is_passed(chunk, *next)
        });
        let samples = chunks.flat_map(|(chunk, _)| chunk.samples());
        let within = samples.filter(|(tick, _)| (from..=to).contains(tick));
        let mut kept = Vec::new();
        need.keep(within, &mut kept, |(tick, _)| time(*tick));
        let kept = kept.into_iter();
        kept.filter_map(|(tick, frame): (u32, Frame)| Some((tick, FloatHistogram::from(&frame.histogram()?))))
    }

    /// The newest tick within these, and its histogram.
    pub(super) fn newest(&self, from: u32, to: u32) -> Option<(u32, FloatHistogram)> {
        let chunk = self.chunks.iter().rev().find(|chunk| chunk.first <= to)?;
        let samples = chunk.samples().take_while(|(tick, _)| *tick <= to);
        let (tick, frame) = samples.last().filter(|(tick, _)| *tick >= from)?;
        Some((tick, FloatHistogram::from(&frame.histogram()?)))
    }
}

fn size(histogram: &ExponentialHistogram) -> usize {
    histogram.positive.counts.len() + histogram.negative.counts.len()
}

impl Chunk {
    /// Bytes that it takes, its own fields included.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity()
    }

    /// Ticks, each with its histogram.
    pub(super) fn histograms(&self) -> impl Iterator<Item = (u32, ExponentialHistogram)> {
        self.samples()
            .filter_map(|(tick, frame)| Some((tick, frame.histogram()?)))
    }

    fn samples(&self) -> impl Iterator<Item = (u32, Frame)> {
        let (mut rest, mut tick, mut frame) = (&*self.bytes, self.first, Frame::default());
        (0..self.count).map_while(move |_| {
            tick += take(&mut rest, &mut frame)?;
            Some((tick, frame.clone()))
        })
    }
}

impl Frame {
    fn of(histogram: &ExponentialHistogram) -> Self {
        let (positive, negative) = (&histogram.positive, &histogram.negative);
        let counts = [histogram.count, histogram.zero_count].into_iter();
        let counts = counts.chain(positive.counts.iter().chain(&negative.counts).copied());
        Self {
            scale: histogram.scale,
            zero_threshold: histogram.zero_threshold.to_bits(),
            positive: (positive.offset, positive.counts.len() as u32),
            negative: (negative.offset, negative.counts.len() as u32),
            sum: histogram.sum.unwrap_or(f64::NAN).to_bits(),
            counts: counts.collect(),
        }
    }

    fn has_bounds_of(&self, other: &Self) -> bool {
        (self.scale, self.zero_threshold, self.positive, self.negative)
            == (other.scale, other.zero_threshold, other.positive, other.negative)
            && self.counts.len() == other.counts.len()
    }

    /// A histogram of these bounds without observations.
    fn emptied(&self) -> Self {
        let length = 2 + self.positive.1 as usize + self.negative.1 as usize;
        Self {
            sum: 0,
            counts: vec![0; length],
            ..*self
        }
    }

    fn histogram(&self) -> Option<ExponentialHistogram> {
        let [count, zero_count, buckets @ ..] = &*self.counts else {
            return None;
        };
        let (positive, negative) = buckets.split_at_checked(self.positive.1 as usize)?;
        let side = |offset: i32, counts: &[u64]| Buckets {
            offset,
            counts: counts.to_vec(),
        };
        let sum = f64::from_bits(self.sum);
        Some(ExponentialHistogram {
            count: *count,
            sum: (!sum.is_nan()).then_some(sum),
            scale: self.scale,
            zero_count: *zero_count,
            zero_threshold: f64::from_bits(self.zero_threshold),
            positive: side(self.positive.0, positive),
            negative: side(self.negative.0, negative),
            ..ExponentialHistogram::default()
        })
    }
}

fn put(bytes: &mut Vec<u8>, ticks: u32, before: &Frame, frame: &Frame) {
    let is_same = frame.has_bounds_of(before);
    push_varint(bytes, u64::from(ticks) << 1 | u64::from(!is_same));
    let emptied;
    let before = if is_same {
        before
    } else {
        push_varint(bytes, zigzag(frame.scale.into()));
        bytes.extend(frame.zero_threshold.to_le_bytes());
        for (offset, length) in [frame.positive, frame.negative] {
            push_varint(bytes, zigzag(offset.into()));
            push_varint(bytes, length.into());
        }
        emptied = frame.emptied();
        &emptied
    };
    push_varint(bytes, (frame.sum ^ before.sum).swap_bytes());
    let changes = || {
        let pairs = frame.counts.iter().zip(&before.counts).enumerate();
        pairs.filter(|(_, (now, then))| now != then)
    };
    push_varint(bytes, changes().count() as u64);
    let mut next = 0;
    for (at, (now, then)) in changes() {
        push_varint(bytes, (at - next) as u64);
        push_varint(bytes, zigzag(now.wrapping_sub(*then) as i64));
        next = at + 1;
    }
}

/// Changes a frame to the next stored one; gives the ticks between them.
fn take(rest: &mut &[u8], frame: &mut Frame) -> Option<u32> {
    let head = take_varint(rest)?;
    if head & 1 == 1 {
        let scale = unzigzag(take_varint(rest)?) as i32;
        let (zero_threshold, behind) = rest.split_first_chunk()?;
        let zero_threshold = u64::from_le_bytes(*zero_threshold);
        *rest = behind;
        let mut side = || Some((unzigzag(take_varint(rest)?) as i32, take_varint(rest)? as u32));
        let bounds = Frame {
            scale,
            zero_threshold,
            positive: side()?,
            negative: side()?,
            ..Frame::default()
        };
        *frame = bounds.emptied();
    }
    frame.sum ^= take_varint(rest)?.swap_bytes();
    let mut at = 0;
    for _ in 0..take_varint(rest)? {
        at += take_varint(rest)? as usize;
        let count = frame.counts.get_mut(at)?;
        *count = count.wrapping_add(unzigzag(take_varint(rest)?) as u64);
        at += 1;
    }
    u32::try_from(head >> 1).ok()
}
